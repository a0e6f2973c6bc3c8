//! The Iceberg face of one table: its snapshots, brought up to a version of the table on demand.
//!
//! Everything here can be made again from the table itself. Metadata that is damaged, or that was
//! written when the data directory had another path, is dropped with a warning and begun anew.
//!
//! **What a reader was given stays readable.** Whoever loads the table may read every snapshot in
//! the answer for the grace period. Data files that later versions replaced are kept by holding
//! them; metadata files that the newest metadata does not lead to are removed only after the
//! period. A snapshot is dropped once a file of it has been replaced for that long, at the latest
//! when there are too many, and at once when nothing keeps its files: holds end with the process,
//! so a restart ends the snapshots that need replaced files.
//!
//! Worked example, grace 10 min: a load at 12:00 shows snapshot 1 (files a, b). At 12:05 a and b
//! are merged into ab; a load at 12:06 adds snapshot 2 (ab) and notes that a and b are replaced.
//! Loads until 12:16 show both, each holding a and b for another 10 min; from then on only snapshot
//! 2 is shown, and a and b are let go 10 min after the last load that showed them.
//!
//! Nothing of a table changes in memory until its metadata is published.

use super::error::IcebergError;
use super::next::{Next, Shown};
use super::schema;
use super::snapshot::weight;
use super::store::{metadata_name, metadata_number, Store};
use iceberg::spec::{Snapshot, TableMetadata};
use shard::table::{FileId, TableFile, Version};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use uuid::Uuid;

const SNAPSHOTS_MAX: usize = 100;
/// Summaries grow with partitions; metadata above this drops its oldest snapshots.
const METADATA_BYTES_MAX: usize = 4 << 20;

/// A data file kept for readers, and until when.
struct Hold {
    _file: Arc<TableFile>,
    until_ms: i64,
}

pub struct Table {
    store: Store,
    topic: Uuid,
    grace_ms: i64,
    metadata: TableMetadata,
    /// Of the newest metadata file; 0 when there is none.
    number: u64,
    /// Whether that file holds `metadata`.
    is_written: bool,
    /// The version the newest metadata is of, when this process made it.
    version: Option<u64>,
    shown: Shown,
    holds: BTreeMap<FileId, Hold>,
    /// Files of older snapshots that the newest version no longer has, and since when.
    replaced: BTreeMap<FileId, i64>,
    /// Metadata files that lead nowhere any more, and when they may go.
    leaving: BTreeMap<String, i64>,
}

/// The newest metadata and where it is.
pub struct Loaded {
    pub location: String,
    pub metadata: TableMetadata,
}

impl Table {
    /// Takes up what an earlier run has left.
    pub fn open(
        store: Store,
        topic: Uuid,
        grace_ms: i64,
        now_ms: i64,
    ) -> Result<Table, IcebergError> {
        let names: Vec<String> = store.list()?.into_iter().map(|entry| entry.name).collect();
        let number = names.iter().filter_map(|name| metadata_number(name)).max().unwrap_or(0);
        let left = (number > 0).then(|| read(&store, topic, number)).transpose();
        let left = left.unwrap_or_else(|error| {
            tracing::warn!(%topic, %error, "iceberg metadata is made anew");
            None
        });
        let is_written = left.is_some();
        let (metadata, shown) = match left {
            Some(left) => left,
            None => (schema::empty(topic, store.location(), now_ms)?, Shown::default()),
        };
        let mut table = Table {
            store,
            topic,
            grace_ms,
            metadata,
            number,
            is_written,
            version: None,
            shown,
            holds: BTreeMap::new(),
            replaced: BTreeMap::new(),
            leaving: BTreeMap::new(),
        };
        table.mark_leaving(names, now_ms);
        Ok(table)
    }

    /// The metadata of `version`, which was asked for at `asked_ms`, or of a newer one that was
    /// loaded meanwhile.
    pub fn load(
        &mut self,
        version: &Version,
        asked_ms: i64,
        now_ms: i64,
    ) -> Result<Loaded, IcebergError> {
        refuse_untrimmed(version)?;
        let before = self.is_written.then(|| self.location());
        let mut next = Next::new(self.metadata.clone(), self.shown.clone(), before);
        let is_newer = self.version.is_none_or(|newest| newest < version.number);
        if is_newer {
            next.follow(&self.store, version, asked_ms)?;
            self.note_files(version, &next.shown, now_ms);
        }
        next.drop_snapshots(&self.expired(&next, now_ms), now_ms)?;
        if next.is_changed || !self.is_written {
            self.publish(next, now_ms)?;
        }
        if is_newer {
            self.version = Some(version.number);
        }
        let shown = self.shown.files();
        for (_, hold) in self.holds.iter_mut().filter(|(id, _)| shown.contains(id)) {
            hold.until_ms = now_ms + self.grace_ms;
        }
        Ok(Loaded { location: self.location(), metadata: self.metadata.clone() })
    }

    /// Lets go of what no reader can want any more; whether anything is left to let go of later.
    pub fn sweep(&mut self, now_ms: i64) -> bool {
        self.holds.retain(|_, hold| hold.until_ms > now_ms);
        let (store, topic) = (&self.store, self.topic);
        self.leaving.retain(|name, at| {
            if *at > now_ms {
                return true;
            }
            let removed = store.remove(name);
            if let Err(error) = &removed {
                tracing::warn!(%topic, %error, "a metadata file cannot be removed");
            }
            removed.is_err()
        });
        !(self.holds.is_empty() && self.leaving.is_empty())
    }

    fn location(&self) -> String {
        self.store.location_of(&metadata_name(self.number, self.topic))
    }

    /// Holds the files of a version, and notes which files of older snapshots it lacks.
    fn note_files(&mut self, version: &Version, shown: &Shown, now_ms: i64) {
        let until_ms = now_ms + self.grace_ms;
        let now: BTreeSet<FileId> = version.files().iter().map(|file| file.facts.id).collect();
        for file in version.files() {
            self.holds.insert(file.facts.id, Hold { _file: file.clone(), until_ms });
        }
        let shown = shown.files();
        self.replaced.retain(|id, _| shown.contains(id));
        for id in shown.difference(&now) {
            self.replaced.entry(*id).or_insert(now_ms);
        }
    }

    /// The snapshots that readers should not begin with any more: too many of them, or files that
    /// are not kept, or not for much longer.
    fn expired(&self, next: &Next, now_ms: i64) -> Vec<i64> {
        let is_going = |id: &FileId| {
            let is_held = self.holds.get(id).is_some_and(|hold| hold.until_ms > now_ms);
            let since = self.replaced.get(id);
            since.is_some_and(|since| !is_held || since + self.grace_ms <= now_ms)
        };
        let newest = next.metadata.current_snapshot_id();
        let mut snapshots: Vec<&Snapshot> =
            next.metadata.snapshots().map(|snapshot| snapshot.as_ref()).collect();
        snapshots.sort_by_key(|snapshot| Reverse(snapshot.sequence_number()));
        let (mut kept, mut bytes, mut expired) = (0, 0, Vec::new());
        for snapshot in snapshots {
            let id = snapshot.snapshot_id();
            bytes += weight(snapshot);
            let is_too_much = kept >= SNAPSHOTS_MAX || bytes > METADATA_BYTES_MAX;
            let leads_to_going = || next.shown.files_of(id).any(|file| is_going(&file.id));
            if newest != Some(id) && (is_too_much || leads_to_going()) {
                expired.push(id);
            } else {
                kept += 1;
            }
        }
        expired
    }

    /// Writes new metadata and makes it the one in force.
    fn publish(&mut self, next: Next, now_ms: i64) -> Result<(), IcebergError> {
        let number = self.number + 1;
        let name = metadata_name(number, self.topic);
        self.store.publish(&name, &serde_json::to_vec(&next.metadata)?)?;
        let before = self.leads_to();
        self.metadata = next.metadata;
        self.shown = next.shown;
        self.number = number;
        self.is_written = true;
        self.mark_leaving(before, now_ms);
        Ok(())
    }

    /// The names of the metadata files that the newest metadata leads to, itself included.
    fn leads_to(&self) -> HashSet<String> {
        let lists = self.metadata.snapshots().map(|snapshot| snapshot.manifest_list());
        let manifests = self.shown.manifests();
        let log = self.metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        let newest = self.is_written.then(|| metadata_name(self.number, self.topic));
        let names = lists.chain(manifests).chain(log);
        let names = names.filter_map(|location| self.store.name_of(location));
        names.map(str::to_string).chain(newest).collect()
    }

    fn mark_leaving(&mut self, names: impl IntoIterator<Item = String>, now_ms: i64) {
        let leads_to = self.leads_to();
        for name in names.into_iter().filter(|name| !leads_to.contains(name)) {
            self.leaving.entry(name).or_insert(now_ms + self.grace_ms);
        }
    }
}

/// What an earlier run has left, when it is whole and of this place.
fn read(store: &Store, topic: Uuid, number: u64) -> Result<(TableMetadata, Shown), IcebergError> {
    let name = metadata_name(number, topic);
    let bytes = store.read(&name)?;
    let metadata: TableMetadata =
        serde_json::from_slice(&bytes).map_err(|error| store.damaged(&name, error))?;
    if metadata.location() != store.location() {
        return Err(store.damaged(&name, "it was written for another path"));
    }
    let shown = Shown::read(store, &metadata)?;
    Ok((metadata, shown))
}

/// A table whose log start lies within a file would show rows that were deleted.
fn refuse_untrimmed(version: &Version) -> Result<(), IcebergError> {
    let parts = version.files().iter().flat_map(|file| &file.facts.parts);
    for part in parts.filter(|part| part.rows > 0) {
        if let Some(&start) = version.starts().get(&part.partition) {
            if part.first < start {
                return Err(IcebergError::Untrimmed { partition: part.partition, start });
            }
        }
    }
    Ok(())
}
