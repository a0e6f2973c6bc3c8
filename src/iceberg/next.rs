//! A table's next metadata, while it grows: snapshots added for a version, old ones dropped.
//!
//! Begins as what is in force and is published as a whole or not at all. Time comes in.

use super::change::{between, positions, Change, Listed, Positions};
use super::error::IcebergError;
use super::manifest;
use super::snapshot::{positions_of, write, Base, Listing, Moment};
use super::store::Store;
use iceberg::spec::{ManifestFile, TableMetadata, MAIN_BRANCH};
use serde_json::{json, Value};
use shard::table::{FileId, Version};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// Snapshots are made when a table is loaded, but some readers, DuckDB among them, look for one
/// that is older than the transaction in which they load it. What is as of a moment may thus have
/// rows of up to so much later.
const BACKDATED_MS: i64 = 5_000;

/// The manifests of each snapshot, and the data files in each manifest.
#[derive(Clone, Default)]
pub struct Shown {
    lists: HashMap<i64, Vec<ManifestFile>>,
    files: HashMap<String, Arc<[Listed]>>,
}

impl Shown {
    /// Of metadata that was written earlier, from its files.
    pub fn read(store: &Store, metadata: &TableMetadata) -> Result<Shown, IcebergError> {
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
        Ok(shown)
    }

    /// Where the manifests are.
    pub fn manifests(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The data files of all snapshots.
    pub fn files(&self) -> BTreeSet<FileId> {
        self.files.values().flat_map(|files| files.iter()).map(|file| file.id).collect()
    }

    /// The data files of a snapshot.
    pub fn files_of(&self, snapshot: i64) -> impl Iterator<Item = &Listed> {
        let manifests = self.lists.get(&snapshot).into_iter().flatten();
        let files = manifests.filter_map(|manifest| self.files.get(&manifest.manifest_path));
        files.flat_map(|files| files.iter())
    }

    fn listings(&self, snapshot: i64) -> Vec<Listing> {
        let listing = |manifest: &ManifestFile| {
            let files = self.files.get(&manifest.manifest_path);
            let files = files.map_or_else(Vec::new, |files| files.to_vec());
            Listing { manifest: manifest.clone(), files }
        };
        self.lists.get(&snapshot).into_iter().flatten().map(listing).collect()
    }

    fn add(&mut self, snapshot: i64, listings: &[Listing]) {
        for listing in listings {
            let files = listing.files.as_slice().into();
            self.files.insert(listing.manifest.manifest_path.clone(), files);
        }
        let manifests = listings.iter().map(|listing| listing.manifest.clone()).collect();
        self.lists.insert(snapshot, manifests);
    }

    fn drop_snapshots(&mut self, expired: &[i64]) {
        self.lists.retain(|id, _| !expired.contains(id));
        let manifests = self.lists.values().flatten();
        let named: HashSet<&str> =
            manifests.map(|manifest| manifest.manifest_path.as_str()).collect();
        self.files.retain(|path, _| named.contains(path.as_str()));
    }
}

pub struct Next {
    pub metadata: TableMetadata,
    pub shown: Shown,
    /// Whether it differs from what it began as.
    pub is_changed: bool,
    /// Where the metadata it began as is, until that is noted in its log.
    before: Option<String>,
}

impl Next {
    pub fn new(metadata: TableMetadata, shown: Shown, before: Option<String>) -> Next {
        Next { metadata, shown, is_changed: false, before }
    }

    /// Adds the snapshots that lead to `version`.
    pub fn follow(
        &mut self,
        store: &Store,
        version: &Version,
        asked_ms: i64,
    ) -> Result<(), IcebergError> {
        let newest = self.metadata.current_snapshot();
        let before = newest.map(|newest| positions_of(newest)).unwrap_or_default();
        let listed: Vec<Listed> = match newest {
            Some(newest) => self.shown.files_of(newest.snapshot_id()).copied().collect(),
            None => Vec::new(),
        };
        let changes = between(&listed, &before, version);
        for (at, change) in changes.iter().enumerate() {
            let mut covers = positions(version);
            if at + 1 < changes.len() {
                keep_within(&mut covers, &before);
            }
            self.add(store, change, (version.number, &covers), asked_ms)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        store: &Store,
        change: &Change,
        (version, covers): (u64, &Positions),
        asked_ms: i64,
    ) -> Result<(), IcebergError> {
        let id = (Uuid::new_v4().as_u64_pair().0 >> 1) as i64;
        let last = self.metadata.current_snapshot();
        // Time travel needs snapshots of one table at times of their own, whatever the clock does.
        let made_ms = asked_ms - BACKDATED_MS;
        let timestamp_ms = last.map_or(made_ms, |last| made_ms.max(last.timestamp_ms() + 1));
        let listings = last.map(|last| self.shown.listings(last.snapshot_id()));
        let moment = Moment { id, timestamp_ms, version, positions: covers };
        let listings = listings.unwrap_or_default();
        let base = Base { store, metadata: &self.metadata, listings: &listings };
        let (snapshot, listings) = write(&base, change, &moment)?;
        let builder = self.metadata.clone().into_builder(self.before.take());
        self.metadata = builder.set_branch_snapshot(snapshot, MAIN_BRANCH)?.build()?.metadata;
        self.shown.add(id, &listings);
        self.is_changed = true;
        Ok(())
    }

    /// Drops snapshots, none of them the newest. Written as JSON, because the builder of the
    /// metadata would look at a clock of its own.
    pub fn drop_snapshots(&mut self, expired: &[i64], now_ms: i64) -> Result<(), IcebergError> {
        if expired.is_empty() {
            return Ok(());
        }
        let mut metadata = serde_json::to_value(&self.metadata)?;
        let id = |entry: &Value| entry.get("snapshot-id").and_then(Value::as_i64);
        let is_expired = |entry: &Value| id(entry).is_some_and(|id| expired.contains(&id));
        let mut list = |name: &str, work: &dyn Fn(&mut Vec<Value>)| {
            metadata.get_mut(name).and_then(Value::as_array_mut).map(work);
        };
        list("snapshots", &|all| all.retain(|snapshot| !is_expired(snapshot)));
        // What was current before a gap is not known any more.
        list("snapshot-log", &|log| {
            let gap = log.iter().rposition(is_expired);
            log.drain(..gap.map_or(0, |gap| gap + 1));
        });
        let at = now_ms.max(self.metadata.last_updated_ms());
        if let Some(said) = metadata.get_mut("last-updated-ms") {
            *said = json!(at);
        }
        self.metadata = serde_json::from_value(metadata)?;
        self.shown.drop_snapshots(expired);
        self.is_changed = true;
        Ok(())
    }
}

/// What a snapshot on the way to a version covers: of what is new, nothing yet.
fn keep_within(covers: &mut Positions, before: &Positions) {
    covers.retain(|partition, _| before.contains_key(partition));
    for (partition, covered) in covers.iter_mut() {
        if let Some(before) = before.get(partition) {
            covered.1 = covered.1.min(before.1);
        }
    }
}
