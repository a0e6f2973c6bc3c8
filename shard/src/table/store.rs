//! Where tables are: one directory for each topic in `tables/` of the data directory.
//!
//! Inside, `data/` holds the files, `manifest/` the truth about them, `metadata/` what Iceberg is
//! told. A directory is named for the topic's id, so a topic made again never meets old files.

use crate::disk::Disk;
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct StoreError {
    pub path: PathBuf,
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    |source| StoreError { path: path.to_path_buf(), source }
}

/// The directory of a topic's table.
pub fn table_dir(data: &Path, topic: Uuid) -> PathBuf {
    data.join("tables").join(topic.hyphenated().to_string())
}

/// The topics with a directory.
pub fn list_tables(disk: &dyn Disk, data: &Path) -> Result<Vec<Uuid>, StoreError> {
    let tables = data.join("tables");
    match disk.list_dirs(&tables) {
        Ok(names) => Ok(names.iter().filter_map(|name| Uuid::try_parse(name).ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(at(&tables)(error)),
    }
}

/// Removes all of a deleted topic's table; what is gone already is fine. Readers that have a file
/// open keep it. A power loss may bring some of it back, for the next start to remove again.
pub fn remove_table(disk: &dyn Disk, data: &Path, topic: Uuid) -> Result<(), StoreError> {
    remove_tree(disk, &table_dir(data, topic))
}

fn remove_tree(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let files = match disk.list(dir) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at(dir)(error)),
    };
    for name in disk.list_dirs(dir).map_err(at(dir))? {
        remove_tree(disk, &dir.join(name))?;
    }
    for file in files {
        let path = dir.join(file.name);
        gone(disk.remove(&path)).map_err(at(&path))?;
    }
    gone(disk.remove_dir(dir)).map_err(at(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn a_table_is_removed_with_all_that_is_in_its_directory() {
        let data = tempfile::tempdir().unwrap();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(list_tables(&RealDisk, data.path()).unwrap().is_empty());
        for topic in [one, other] {
            let inner = table_dir(data.path(), topic).join("metadata/deep");
            RealDisk.create_dir(&inner).unwrap();
            RealDisk.publish(&inner.join("v1.json"), b"{}").unwrap();
        }
        RealDisk.create_dir(&data.path().join("tables/of another make")).unwrap();
        assert_eq!(list_tables(&RealDisk, data.path()).unwrap(), [one, other]);
        remove_table(&RealDisk, data.path(), one).unwrap();
        remove_table(&RealDisk, data.path(), one).unwrap();
        assert_eq!(list_tables(&RealDisk, data.path()).unwrap(), [other]);
    }
}
