//! One snapshot: a change of the table written down as manifests, a list and a summary.
//!
//! A change adds a manifest of its own for the files it adds. Manifests that list a file it removes
//! are written anew without it (the entry stays for one snapshot, marked as deleted); when they
//! have become many, the small ones are put together, so that planning a scan stays a few reads.
//!
//! The summary says, besides Iceberg's own counts, of which version of the table the snapshot is
//! (`basalt.version`) and which offsets of each partition it covers
//! (`basalt.offsets`, as `{"0":[120,250]}`: from the first, up to but without the second).

use super::change::{Change, Listed, Positions};
use super::error::IcebergError;
use super::file::describe;
use super::manifest::{self, Draft, Writing};
use super::store::Store;
use iceberg::spec::{ManifestFile, Snapshot, Summary, TableMetadata};
use shard::ids::Offset;
use shard::table::FileId;
use std::collections::{BTreeSet, HashMap};

/// More manifests than these are put together.
const MANIFESTS_MAX: usize = 16;
/// A manifest with more files than these is left alone when others are put together.
const MANIFEST_FILES_MAX: usize = 8_192;

const VERSION: &str = "basalt.version";
const OFFSETS: &str = "basalt.offsets";

/// A manifest of the newest snapshot and the files it lists.
#[derive(Clone)]
pub struct Listing {
    pub manifest: ManifestFile,
    pub files: Vec<Listed>,
}

/// What a snapshot is made on.
pub struct Base<'a> {
    pub store: &'a Store,
    pub metadata: &'a TableMetadata,
    pub listings: &'a [Listing],
}

/// What a snapshot says of itself.
pub struct Moment<'a> {
    pub id: i64,
    pub timestamp_ms: i64,
    pub version: u64,
    pub positions: &'a Positions,
}

/// Publishes the manifests and the list of the snapshot that `change` leads to.
pub fn write(
    base: &Base<'_>,
    change: &Change,
    moment: &Moment<'_>,
) -> Result<(Snapshot, Vec<Listing>), IcebergError> {
    let writing = Writing {
        snapshot: moment.id,
        parent: base.metadata.current_snapshot_id(),
        sequence: base.metadata.next_sequence_number(),
    };
    let mut listings = carried(base, change, writing)?;
    if !change.added.is_empty() {
        let mut draft = Draft::new(base.store, base.metadata, writing, 0);
        for file in &change.added {
            draft.add(describe(base.store, file)?)?;
        }
        let of = |file: &std::sync::Arc<shard::table::TableFile>| Listed {
            id: file.facts.id,
            rows: file.facts.rows(),
            bytes: file.facts.bytes,
        };
        let files = change.added.iter().map(of).collect();
        listings.push(Listing { manifest: draft.publish(base.store, writing)?, files });
    }
    let manifests: Vec<ManifestFile> =
        listings.iter().map(|listing| listing.manifest.clone()).collect();
    let list = manifest::publish_list(base.store, &manifests, writing)?;
    let snapshot = Snapshot::builder()
        .with_snapshot_id(moment.id)
        .with_parent_snapshot_id(writing.parent)
        .with_sequence_number(writing.sequence)
        .with_timestamp_ms(moment.timestamp_ms)
        .with_manifest_list(list)
        .with_summary(summary(change, &listings, moment))
        .with_schema_id(base.metadata.current_schema_id())
        .build();
    Ok((snapshot, listings))
}

/// The manifests of the last snapshot, but for the files that go.
fn carried(
    base: &Base<'_>,
    change: &Change,
    writing: Writing,
) -> Result<Vec<Listing>, IcebergError> {
    let removed: BTreeSet<FileId> = change.removed.iter().map(|file| file.id).collect();
    let is_touched =
        |listing: &Listing| listing.files.iter().any(|file| removed.contains(&file.id));
    let of_use = base.listings.iter().filter(|listing| !listing.files.is_empty());
    let (mut anew, mut kept): (Vec<&Listing>, Vec<&Listing>) =
        of_use.partition(|listing| is_touched(listing));
    if anew.len() + kept.len() >= MANIFESTS_MAX {
        let is_small = |listing: &&Listing| listing.files.len() < MANIFEST_FILES_MAX;
        let (small, large) = kept.into_iter().partition(is_small);
        anew.extend::<Vec<&Listing>>(small);
        kept = large;
    }
    let mut listings: Vec<Listing> = kept.into_iter().cloned().collect();
    let mut index = 1;
    let mut pending: Option<(Draft, Vec<Listed>)> = None;
    for listing in anew {
        let fresh = || (Draft::new(base.store, base.metadata, writing, index), Vec::new());
        let (draft, files) = pending.get_or_insert_with(fresh);
        rewrite(base.store, listing, &removed, draft)?;
        files.extend(listing.files.iter().filter(|file| !removed.contains(&file.id)));
        if files.len() >= MANIFEST_FILES_MAX {
            if let Some((draft, files)) = pending.take() {
                listings.push(Listing { manifest: draft.publish(base.store, writing)?, files });
            }
            index += 1;
        }
    }
    if let Some((draft, files)) = pending {
        listings.push(Listing { manifest: draft.publish(base.store, writing)?, files });
    }
    Ok(listings)
}

fn rewrite(
    store: &Store,
    listing: &Listing,
    removed: &BTreeSet<FileId>,
    into: &mut Draft,
) -> Result<(), IcebergError> {
    let entries = manifest::read(store, &listing.manifest)?;
    for entry in entries.all.into_iter().filter(|entry| entry.is_alive()) {
        let file = store.data_file(entry.file_path());
        let is_removed = file.is_some_and(|file| removed.contains(&file));
        into.carry(entry, is_removed)?;
    }
    Ok(())
}

fn summary(change: &Change, listings: &[Listing], moment: &Moment<'_>) -> Summary {
    let mut said: HashMap<String, String> = HashMap::new();
    let mut count = |names: [&str; 3], files: &[Listed]| {
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        for (name, number) in names.into_iter().zip([files.len() as u64, rows, bytes]) {
            said.insert(name.into(), number.to_string());
        }
    };
    let all: Vec<Listed> = listings.iter().flat_map(|listing| &listing.files).copied().collect();
    count(["total-data-files", "total-records", "total-files-size"], &all);
    if !change.added.is_empty() {
        let ids: BTreeSet<FileId> = change.added.iter().map(|file| file.facts.id).collect();
        let added: Vec<Listed> =
            all.iter().filter(|file| ids.contains(&file.id)).copied().collect();
        count(["added-data-files", "added-records", "added-files-size"], &added);
    }
    if !change.removed.is_empty() {
        count(["deleted-data-files", "deleted-records", "removed-files-size"], &change.removed);
    }
    for name in ["total-delete-files", "total-position-deletes", "total-equality-deletes"] {
        said.insert(name.into(), "0".into());
    }
    said.insert(VERSION.into(), moment.version.to_string());
    let offsets: HashMap<String, (i64, i64)> = moment
        .positions
        .iter()
        .map(|(partition, (first, end))| (partition.to_string(), (first.0, end.0)))
        .collect();
    said.insert(OFFSETS.into(), serde_json::json!(offsets).to_string());
    Summary { operation: change.operation.clone(), additional_properties: said }
}

/// The offsets a snapshot covers, as its summary has them; nothing when it does not say.
pub fn positions_of(snapshot: &Snapshot) -> Positions {
    let said = snapshot.summary().additional_properties.get(OFFSETS);
    let said = said.and_then(|said| serde_json::from_str::<HashMap<i32, (i64, i64)>>(said).ok());
    let covered = |(partition, (first, end))| (partition, (Offset(first), Offset(end)));
    said.unwrap_or_default().into_iter().map(covered).collect()
}

/// The bytes that naming a snapshot takes in metadata, nearly.
pub fn weight(snapshot: &Snapshot) -> usize {
    let said = &snapshot.summary().additional_properties;
    let said: usize = said.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    said + snapshot.manifest_list().len() + 200
}
