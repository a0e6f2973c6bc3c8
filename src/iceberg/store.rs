//! The metadata files of a table: where they are, what they are called, how they appear.
//!
//! `<table>/metadata/` holds what readers of Iceberg follow: `<number>-<topic id>.metadata.json`,
//! of which the greatest number is in force, manifest lists `snap-…avro` and manifests
//! `manifest-…avro`. A file appears whole or not at all and is never changed, so that whoever was
//! given its location may read it until it is removed. Metadata names files by `file://` locations.

use super::error::IcebergError;
use shard::disk::{Disk, Entry, ReadFile};
use shard::table::{file_path, FileId};
use std::io;
use std::path::{absolute, Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// The most that is read of one file of metadata. A manifest of 10,000 files takes 3 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;
const READ_BYTES: usize = 1 << 20;

/// A table's directory, as Iceberg sees it.
#[derive(Clone)]
pub struct Store {
    disk: Arc<dyn Disk>,
    table: PathBuf,
    /// `file:///…/<topic id>`.
    location: String,
}

impl Store {
    /// # Errors
    /// When the path cannot be said in a location.
    pub fn new(disk: Arc<dyn Disk>, table: &Path) -> Result<Store, IcebergError> {
        let unfit = || IcebergError::Path { path: table.to_path_buf() };
        let table = absolute(table).map_err(|_| unfit())?;
        let location = format!("file://{}", table.to_str().ok_or_else(unfit)?);
        Ok(Store { disk, table, location })
    }

    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub fn location(&self) -> &str {
        &self.location
    }

    pub fn location_of(&self, name: &str) -> String {
        format!("{}/metadata/{name}", self.location)
    }

    /// The name of a metadata file of this table.
    pub fn name_of<'a>(&self, location: &'a str) -> Option<&'a str> {
        let name = location.strip_prefix(&self.location)?.strip_prefix("/metadata/")?;
        (!name.contains('/')).then_some(name)
    }

    pub fn data_location(&self, file: FileId) -> String {
        let path = file_path(Path::new(""), file);
        format!("{}/{}", self.location, path.display())
    }

    /// The table file at a location.
    pub fn data_file(&self, location: &str) -> Option<FileId> {
        let name = location.rsplit_once('/')?.1.strip_suffix(".parquet")?;
        let file = FileId(u64::from_str_radix(name, 16).ok()?);
        (self.data_location(file) == location).then_some(file)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.table.join("metadata").join(name)
    }

    /// All files of metadata; the directory is made when it is not there.
    pub fn list(&self) -> Result<Vec<Entry>, IcebergError> {
        let path = self.table.join("metadata");
        let listed = self.disk.create_dir(&path).and_then(|()| self.disk.list(&path));
        listed.map_err(|source| IcebergError::Disk { path, source })
    }

    pub fn read(&self, name: &str) -> Result<Vec<u8>, IcebergError> {
        let path = self.path(name);
        let file = self.disk.open(&path);
        let bytes = file.and_then(|file| read_whole(&*file));
        bytes.map_err(|source| IcebergError::Disk { path, source })
    }

    /// Writes a file that is durable when this returns.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), IcebergError> {
        let path = self.path(name);
        self.disk.publish(&path, bytes).map_err(|source| IcebergError::Disk { path, source })
    }

    /// Removes a file; that it is gone already is fine.
    pub fn remove(&self, name: &str) -> Result<(), IcebergError> {
        let path = self.path(name);
        match self.disk.remove(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(IcebergError::Disk { path, source })
            }
            _ => Ok(()),
        }
    }

    /// An error about the contents of a file of metadata.
    pub fn damaged(&self, name: &str, reason: impl ToString) -> IcebergError {
        IcebergError::Damaged { path: self.path(name), reason: reason.to_string() }
    }
}

fn read_whole(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let length = file.len()?;
    if length > FILE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut bytes = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    while (bytes.len() as u64) < length {
        let read = file.read_at(bytes.len() as u64, &mut piece)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        bytes.extend_from_slice(piece.get(..read).unwrap_or(&piece));
    }
    Ok(bytes)
}

/// The name of the metadata file of this number.
pub fn metadata_name(number: u64, topic: Uuid) -> String {
    format!("{number:05}-{topic}.metadata.json")
}

/// The number in the name of a metadata file.
pub fn metadata_number(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('-')?;
    rest.ends_with(".metadata.json").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::disk::RealDisk;

    #[test]
    fn names_and_locations_lead_to_each_other() {
        let store = Store::new(Arc::new(RealDisk), Path::new("/d/tables/t"));
        let store = store.expect("a path of UTF-8");
        let file = FileId(0xab);
        let location = store.data_location(file);
        assert_eq!(location, "file:///d/tables/t/data/00000000000000ab.parquet");
        assert_eq!(store.data_file(&location), Some(file));
        for other in ["file:///d/tables/t/data/x.parquet", "00000000000000ab.parquet", ""] {
            assert_eq!(store.data_file(other), None, "{other}");
        }
        let name = metadata_name(7, Uuid::nil());
        assert_eq!(metadata_number(&name), Some(7));
        assert_eq!(store.name_of(&store.location_of(&name)), Some(name.as_str()));
        assert_eq!(store.name_of("file:///d/tables/u/metadata/x"), None);
        assert_eq!(metadata_number("snap-1.avro"), None);
    }
}
