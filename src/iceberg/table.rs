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
//! Worked example, grace 10 min: a load at 12:00 shows snapshot 1 (files a, b). At 12:05 a and b are
//! merged into ab; a load at 12:06 adds snapshot 2 (ab) and notes that a and b are replaced. Loads
//! until 12:16 show both, each holding a and b for another 10 min; from then on only snapshot 2 is
//! shown, and a and b are let go 10 min after the last load that showed them.
//!
//! Nothing of a table changes in memory until its metadata is published.

use super::change::{between, positions, Change, Listed, Positions};
use super::error::IcebergError;
use super::manifest;
use super::schema;
use super::snapshot::{positions_of, weight, write, Base, Listing, Moment};
use super::store::{metadata_name, metadata_number, Store};
use iceberg::spec::{ManifestFile, Snapshot, TableMetadata, MAIN_BRANCH};
use shard::table::{FileId, TableFile, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

const SNAPSHOTS_MAX: usize = 100;
/// Summaries grow with partitions; metadata above this drops its oldest snapshots.
const METADATA_BYTES_MAX: usize = 4 << 20;

/// A snapshot's manifests, and the files in each manifest.
#[derive(Clone, Default)]
struct Shown {
    lists: HashMap<i64, Vec<ManifestFile>>,
    files: HashMap<String, Arc<[Listed]>>,
}

/// A data file kept for readers, and until when.
struct Hold {
    file: Arc<TableFile>,
    until_ms: i64,
}

pub struct Table {
    store: Store,
    topic: Uuid,
    grace_ms: i64,
    metadata: TableMetadata,
    /// Of the newest metadata file; 0 when none is written yet.
    number: u64,
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
        let (metadata, shown) = match read(&store, topic, number) {
            Ok(read) => read,
            Err(error) => {
                if number > 0 {
                    tracing::warn!(%topic, %error, "iceberg metadata is made anew");
                }
                (schema::empty(topic, store.location(), now_ms)?, Shown::default())
            }
        };
        let mut table = Table {
            store,
            topic,
            grace_ms,
            metadata,
            number,
            version: None,
            shown,
            holds: BTreeMap::new(),
            replaced: BTreeMap::new(),
            leaving: BTreeMap::new(),
        };
        table.mark_leaving(names, now_ms);
        Ok(table)
    }

    /// The metadata of `version`, or of a newer one that was loaded meanwhile.
    pub fn load(&mut self, version: &Version, now_ms: i64) -> Result<Loaded, IcebergError> {
        refuse_untrimmed(version)?;
        if self.version.is_none_or(|newest| newest < version.number) {
            self.bring_up_to(version, now_ms)?;
        }
        self.drop_expired(now_ms)?;
        let shown: BTreeSet<FileId> = self.shown_files();
        for (_, hold) in self.holds.iter_mut().filter(|(id, _)| shown.contains(id)) {
            hold.until_ms = now_ms + self.grace_ms;
        }
        let location = self.location();
        Ok(Loaded { location, metadata: self.metadata.clone() })
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

    fn listings(&self) -> Vec<Listing> {
        let newest = self.metadata.current_snapshot_id();
        let manifests = newest.and_then(|id| self.shown.lists.get(&id));
        let listing = |manifest: &ManifestFile| {
            let files = self.shown.files.get(&manifest.manifest_path);
            let files = files.map_or_else(Vec::new, |files| files.to_vec());
            Listing { manifest: manifest.clone(), files }
        };
        manifests.into_iter().flatten().map(listing).collect()
    }

    /// The data files of all snapshots shown.
    fn shown_files(&self) -> BTreeSet<FileId> {
        self.shown.files.values().flat_map(|files| files.iter()).map(|file| file.id).collect()
    }

    /// Adds the snapshots that lead to `version`.
    fn bring_up_to(&mut self, version: &Version, now_ms: i64) -> Result<(), IcebergError> {
        let listings = self.listings();
        let listed: Vec<Listed> = listings.iter().flat_map(|of| &of.files).copied().collect();
        let before = self.metadata.current_snapshot().map(|newest| positions_of(newest));
        let before = before.unwrap_or_default();
        let changes = between(&listed, &before, version);
        let mut next = Next {
            metadata: self.metadata.clone(),
            shown: self.shown.clone(),
            listings,
            log: (self.number > 0).then(|| self.location()),
        };
        for (at, change) in changes.iter().enumerate() {
            let mut covers = positions(version);
            if at + 1 < changes.len() {
                keep_within(&mut covers, &before);
            }
            next.add(&self.store, change, (version.number, &covers), now_ms)?;
        }
        if !changes.is_empty() || self.number == 0 {
            self.publish(next, now_ms)?;
        }
        self.version = Some(version.number);
        self.note_files(version, now_ms);
        Ok(())
    }

    /// Holds the files of a version, and notes which files of older snapshots it lacks.
    fn note_files(&mut self, version: &Version, now_ms: i64) {
        let until_ms = now_ms + self.grace_ms;
        let now: BTreeSet<FileId> = version.files().iter().map(|file| file.facts.id).collect();
        for file in version.files() {
            let hold = Hold { file: file.clone(), until_ms };
            self.holds.insert(file.facts.id, hold);
        }
        let shown = self.shown_files();
        self.replaced.retain(|id, _| shown.contains(id));
        for id in shown.difference(&now) {
            self.replaced.entry(*id).or_insert(now_ms);
        }
    }

    /// Drops the snapshots that readers should not begin with any more.
    fn drop_expired(&mut self, now_ms: i64) -> Result<(), IcebergError> {
        let is_going = |file: &Listed| {
            let held = self.holds.get(&file.id).is_some_and(|hold| hold.until_ms > now_ms);
            let since = self.replaced.get(&file.id);
            since.is_some_and(|since| !held || since + self.grace_ms <= now_ms)
        };
        let leads_to_going = |snapshot: &Snapshot| {
            let manifests = self.shown.lists.get(&snapshot.snapshot_id());
            let mut files = manifests
                .into_iter()
                .flatten()
                .filter_map(|manifest| self.shown.files.get(&manifest.manifest_path))
                .flat_map(|files| files.iter());
            files.any(is_going)
        };
        let mut snapshots: Vec<&Snapshot> =
            self.metadata.snapshots().map(|snapshot| snapshot.as_ref()).collect();
        snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
        let mut expired = Vec::new();
        let (mut kept, mut bytes) = (0, 0);
        for snapshot in snapshots {
            let is_newest = Some(snapshot.snapshot_id()) == self.metadata.current_snapshot_id();
            bytes += weight(snapshot);
            let is_too_much = kept >= SNAPSHOTS_MAX || bytes > METADATA_BYTES_MAX;
            if !is_newest && (is_too_much || leads_to_going(snapshot)) {
                expired.push(snapshot.snapshot_id());
            } else {
                kept += 1;
            }
        }
        if expired.is_empty() {
            return Ok(());
        }
        let builder = self.metadata.clone().into_builder(Some(self.location()));
        let metadata = builder.remove_snapshots(&expired).build()?.metadata;
        let mut shown = self.shown.clone();
        shown.drop_snapshots(&expired);
        let next = Next { metadata, shown, listings: Vec::new(), log: None };
        self.publish(next, now_ms)
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
        self.mark_leaving(before, now_ms);
        Ok(())
    }

    /// The names of the metadata files that the newest metadata leads to, itself included.
    fn leads_to(&self) -> HashSet<String> {
        let lists = self.metadata.snapshots().map(|snapshot| snapshot.manifest_list());
        let manifests = self.shown.files.keys().map(String::as_str);
        let log = self.metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        let newest = metadata_name(self.number, self.topic);
        let names = lists.chain(manifests).chain(log);
        let names = names.filter_map(|location| self.store.name_of(location));
        names.map(str::to_string).chain([newest]).collect()
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
    let mut shown = Shown::default();
    for snapshot in metadata.snapshots() {
        let manifests = manifest::read_list(store, snapshot.manifest_list())?;
        for manifest in &manifests {
            let path = &manifest.manifest_path;
            if !shown.files.contains_key(path) {
                let live = manifest::read(store, manifest)?.live(store, path)?;
                shown.files.insert(path.clone(), live.into());
            }
        }
        shown.lists.insert(snapshot.snapshot_id(), manifests);
    }
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

fn keep_within(covers: &mut Positions, before: &Positions) {
    covers.retain(|partition, _| before.contains_key(partition));
    for (partition, covered) in covers.iter_mut() {
        if let Some(before) = before.get(partition) {
            covered.1 = covered.1.min(before.1);
        }
    }
}

impl Shown {
    fn drop_snapshots(&mut self, expired: &[i64]) {
        self.lists.retain(|id, _| !expired.contains(id));
        let manifests = self.lists.values().flatten();
        let named: HashSet<&str> =
            manifests.map(|manifest| manifest.manifest_path.as_str()).collect();
        self.files.retain(|path, _| named.contains(path.as_str()));
    }
}

/// A table's next metadata, while it grows.
struct Next {
    metadata: TableMetadata,
    shown: Shown,
    listings: Vec<Listing>,
    /// The metadata file that precedes it, until it is noted.
    log: Option<String>,
}

impl Next {
    fn add(
        &mut self,
        store: &Store,
        change: &Change,
        (version, covers): (u64, &Positions),
        now_ms: i64,
    ) -> Result<(), IcebergError> {
        let id = (Uuid::new_v4().as_u64_pair().0 >> 1) as i64;
        // Time travel needs snapshots of one table at times of their own, whatever the clock does.
        let timestamp_ms = match self.metadata.current_snapshot() {
            Some(last) => now_ms.max(last.timestamp_ms() + 1),
            None => now_ms,
        };
        let moment = Moment { id, timestamp_ms, version, positions: covers };
        let base = Base { store, metadata: &self.metadata, listings: &self.listings };
        let (snapshot, listings) = write(&base, change, &moment)?;
        let builder = self.metadata.clone().into_builder(self.log.take());
        self.metadata = builder.set_branch_snapshot(snapshot, MAIN_BRANCH)?.build()?.metadata;
        for listing in &listings {
            let files = listing.files.as_slice().into();
            self.shown.files.insert(listing.manifest.manifest_path.clone(), files);
        }
        let manifests = listings.iter().map(|listing| listing.manifest.clone()).collect();
        self.shown.lists.insert(id, manifests);
        self.listings = listings;
        Ok(())
    }
}
