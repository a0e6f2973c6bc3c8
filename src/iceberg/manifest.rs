//! Manifests and manifest lists: bytes made by the `iceberg` crate, files made by the store.
//!
//! The crate's writers write into its storage in memory, from where the bytes go through the
//! store's synced writes. What is read back may be damaged, and is then an error, never a panic.

use super::change::Listed;
use super::error::IcebergError;
use super::store::Store;
use futures_lite::future::block_on;
use iceberg::io::{MemoryStorage, OutputFile, Storage};
use iceberg::spec::{
    DataFile, FormatVersion, Manifest, ManifestEntry, ManifestFile, ManifestList,
    ManifestListWriter, ManifestStatus, ManifestWriter, ManifestWriterBuilder, TableMetadata,
    UNASSIGNED_SEQUENCE_NUMBER,
};
use std::sync::Arc;

/// The sequence number of an entry that takes that of its manifest.
const INHERITED: i64 = UNASSIGNED_SEQUENCE_NUMBER;

/// The snapshot files are written for.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    pub snapshot: i64,
    pub parent: Option<i64>,
    pub sequence: i64,
}

/// A manifest, its entries complete with what they inherit from it.
pub struct Entries {
    pub all: Vec<ManifestEntry>,
}

impl Entries {
    /// The data files that a reader of the manifest sees.
    pub fn live(&self, store: &Store, name: &str) -> Result<Vec<Listed>, IcebergError> {
        let listed = |entry: &ManifestEntry| {
            let id = store.data_file(entry.file_path());
            let id = id.ok_or_else(|| store.damaged(name, "it lists a file of elsewhere"))?;
            let bytes = entry.data_file.file_size_in_bytes();
            Ok(Listed { id, rows: entry.record_count(), bytes })
        };
        self.all.iter().filter(|entry| entry.is_alive()).map(listed).collect()
    }
}

/// Reads a manifest of the table.
pub fn read(store: &Store, manifest: &ManifestFile) -> Result<Entries, IcebergError> {
    let name = name(store, &manifest.manifest_path)?;
    let bytes = store.read(name)?;
    let parsed = Manifest::parse_avro(&bytes).map_err(|error| store.damaged(name, error))?;
    let complete = |entry: &Arc<ManifestEntry>| {
        let mut entry = ManifestEntry::clone(entry);
        entry.snapshot_id = entry.snapshot_id.or(Some(manifest.added_snapshot_id));
        if entry.status == ManifestStatus::Added {
            entry.sequence_number = entry.sequence_number.or(Some(manifest.sequence_number));
            entry.file_sequence_number =
                entry.file_sequence_number.or(Some(manifest.sequence_number));
        }
        entry
    };
    Ok(Entries { all: parsed.entries().iter().map(complete).collect() })
}

/// Reads a manifest list of the table.
pub fn read_list(store: &Store, location: &str) -> Result<Vec<ManifestFile>, IcebergError> {
    let name = name(store, location)?;
    let bytes = store.read(name)?;
    let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2);
    let list = list.map_err(|error| store.damaged(name, error))?;
    Ok(list.consume_entries().into_iter().collect())
}

fn name<'a>(store: &Store, location: &'a str) -> Result<&'a str, IcebergError> {
    store.name_of(location).ok_or_else(|| IcebergError::Path { path: location.into() })
}

/// A manifest being written. Its entries are added through `writer`.
pub struct Draft {
    pub writer: ManifestWriter,
    storage: MemoryStorage,
    name: String,
    location: String,
}

impl Draft {
    /// `index` tells the manifests of a snapshot apart.
    pub fn new(store: &Store, metadata: &TableMetadata, of: Writing, index: usize) -> Draft {
        let name = format!("manifest-{}-{index}.avro", of.snapshot);
        let location = store.location_of(&name);
        let storage = MemoryStorage::new();
        let output = OutputFile::new(Arc::new(storage.clone()), location.clone());
        let schema = metadata.current_schema().clone();
        let spec = metadata.default_partition_spec().as_ref().clone();
        let builder = ManifestWriterBuilder::new(output, Some(of.snapshot), schema, spec);
        Draft { writer: builder.build_v2_data(), storage, name, location }
    }

    pub fn add(&mut self, file: DataFile) -> Result<(), IcebergError> {
        Ok(self.writer.add_file(file, INHERITED)?)
    }

    /// Takes over an entry of another manifest: as it stands, or as one this snapshot removes.
    pub fn carry(&mut self, entry: ManifestEntry, is_removed: bool) -> Result<(), IcebergError> {
        let sequence = entry.sequence_number.unwrap_or(0);
        let file_sequence = entry.file_sequence_number.or(Some(sequence));
        let snapshot = entry.snapshot_id.unwrap_or(0);
        let file = entry.data_file;
        let writer = &mut self.writer;
        let added = match is_removed {
            true => writer.add_delete_file(file, sequence, file_sequence),
            false => writer.add_existing_file(file, snapshot, sequence, file_sequence),
        };
        Ok(added?)
    }

    /// Publishes the manifest and tells what a list says of it.
    pub fn publish(self, store: &Store, of: Writing) -> Result<ManifestFile, IcebergError> {
        let mut manifest = block_on(self.writer.write_manifest_file())?;
        let bytes = block_on(self.storage.read(&self.location))?;
        store.publish(&self.name, &bytes)?;
        for number in [&mut manifest.sequence_number, &mut manifest.min_sequence_number] {
            if *number == UNASSIGNED_SEQUENCE_NUMBER {
                *number = of.sequence;
            }
        }
        Ok(manifest)
    }
}

/// Publishes a manifest list; its location.
pub fn publish_list(
    store: &Store,
    manifests: &[ManifestFile],
    of: Writing,
) -> Result<String, IcebergError> {
    let name = format!("snap-{}.avro", of.snapshot);
    let location = store.location_of(&name);
    let storage = MemoryStorage::new();
    let output = OutputFile::new(Arc::new(storage.clone()), location.clone());
    let file = block_on(output.writer())?;
    let mut writer = ManifestListWriter::v2(file, of.snapshot, of.parent, of.sequence);
    writer.add_manifests(manifests.iter().cloned())?;
    block_on(writer.close())?;
    store.publish(&name, &block_on(storage.read(&location))?)?;
    Ok(location)
}
