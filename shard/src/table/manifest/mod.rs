//! The manifest of a table: its one truth, on the disk, and the making of versions.
//!
//! One owner keeps it (`cores`), readers hold versions. A commit publishes a small delta, or a new
//! base once the deltas outgrow it, and only then is the version in force. An edit that would lose
//! rows or show rows twice is refused: the parts of a partition follow one another from its log
//! start to its table end, and a table end never goes back.
//!
//! Files are durable before an edit names them, so what a version names is there after any crash;
//! what no version names any more goes when nobody holds it, or at the next open.
//!
//! Assumed of the disk: what `Disk::publish` promises. When it fails, the change may be there or
//! not; nothing more is committed before `reopen` has looked.

mod contents;
mod deltas;
mod format;
#[cfg(test)]
mod tests;

pub use format::Damage;

use super::job::{discard, JobError};
use super::version::{FileFacts, FileId, Part, TableFile, Version};
use super::TableError;
use crate::disk::Disk;
use crate::ids::{Offset, Timestamp};
use contents::Contents;
use deltas::{in_force, manifest_dir, read_whole, Deltas};
use format::{Change, Name};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {damage}", path.display())]
    Damaged { path: PathBuf, damage: Damage },
    /// A later change is there, and not the one before it.
    #[error("{} is missing, and later changes are there", path.display())]
    Missing { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A commit failed half way: `reopen` finds out what became of it.
    #[error("whether the last change of the table is on the disk is not known")]
    Unsure,
    #[error("partition {partition} would have a hole, an overlap or a smaller end")]
    Hole { partition: i32 },
    #[error("file {0} is of the table already")]
    Twice(FileId),
    #[error("file {0} has parts that cannot be")]
    Senseless(FileId),
}

/// A change of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Files that are whole and durable.
    pub add: Vec<FileFacts>,
    /// Files that those replace. One that is gone already is fine.
    pub remove: Vec<FileId>,
    /// Log starts, where they rose.
    pub starts: Vec<(i32, Offset)>,
    /// Compactions: the partitions that were gone through, and how far.
    pub compacted: Vec<(i32, Offset)>,
    /// When.
    pub now: Timestamp,
}

/// A file that nothing names and nobody holds any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub id: FileId,
    pub path: PathBuf,
}

/// The manifest of a table, open for changes.
#[derive(Debug)]
pub struct Manifest {
    dir: PathBuf,
    topic: Uuid,
    contents: Contents,
    version: Arc<Version>,
    log: Deltas,
    has_dir: bool,
    /// The files of a commit that failed half way.
    unsure: Option<Vec<FileId>>,
}

impl Manifest {
    /// Opens the table in `dir`; one that never had a file is empty. Nobody else may be at work in
    /// `dir`: files that nothing names are what a crash left, and go.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        topic: Uuid,
    ) -> Result<(Manifest, Arc<Version>), ManifestError> {
        let manifest = Manifest::load(disk, dir, topic, Contents::default())?;
        let manifest = manifest.sweep(disk)?;
        let version = manifest.version.clone();
        Ok((manifest, version))
    }

    /// Looks at the disk again after a commit has failed; needed until it succeeds. Files that
    /// work under way has finished and not yet handed over stay.
    pub fn reopen(&mut self, disk: &dyn Disk) -> Result<Arc<Version>, ManifestError> {
        let known = self.contents.clone();
        let unsure = self.unsure.clone().unwrap_or_default();
        *self = Manifest::load(disk, &self.dir, self.topic, known)?;
        self.discard(disk, unsure);
        Ok(self.version.clone())
    }

    /// Takes note of a damaged file that a job came upon: until the next open nothing is planned
    /// that would have to read it. Its rows are missing to readers all the same.
    pub fn note_damage(&mut self, error: &JobError) {
        let JobError::Table(TableError::Damaged { path, .. }) = error else { return };
        let mut files = self.contents.files.values();
        let Some(file) = files.find(|file| file.path == *path) else { return };
        self.contents.spoiled.insert(file.facts.id);
        let version = Version::clone(&self.version);
        self.version = Arc::new(version.with_spoiled(self.contents.spoiled.clone()));
    }

    /// The version in force.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether `reopen` is due.
    pub fn is_unsure(&self) -> bool {
        self.unsure.is_some()
    }

    /// Makes a change durable and returns what it makes of the table; an edit without effect
    /// returns the version in force. Blocks.
    ///
    /// # Errors
    /// After `Write` it may yet turn out to be in force: its files are not to be touched before
    /// `reopen` has looked, which removes them if it is not. After any other but `Unsure` nothing
    /// has happened, and its files are removed.
    pub fn commit(&mut self, disk: &dyn Disk, edit: Edit) -> Result<Arc<Version>, ManifestError> {
        if self.is_unsure() {
            return Err(ManifestError::Unsure);
        }
        let added: Vec<FileId> = edit.add.iter().map(|file| file.id).collect();
        let planned = self.plan(edit).and_then(|change| {
            let mut contents = self.contents.clone();
            contents.apply(&self.dir, &change);
            let version = contents.version(change.number, self.topic);
            let version = version.map_err(|partition| ManifestError::Hole { partition })?;
            self.check(&version)?;
            Ok((change, contents, version))
        });
        let (change, contents, version) = match planned {
            Ok(planned) => planned,
            Err(refusal) => {
                self.discard(disk, added);
                return Err(refusal);
            }
        };
        if change.is_empty() {
            return Ok(self.version.clone());
        }
        self.publish(disk, change, &contents)?;
        self.contents = contents;
        self.version = Arc::new(version);
        self.log.remove_stale(disk, &self.dir);
        Ok(self.version.clone())
    }

    /// Removes files that came to nothing; not one that is of the table.
    fn discard(&self, disk: &dyn Disk, mut files: Vec<FileId>) {
        files.retain(|file| !self.contents.has(*file));
        discard(disk, &self.dir, files.into_iter());
    }

    /// Files that may be unlinked: removed at least `grace_ms` ago and held by nobody.
    pub fn expired(&self, now: Timestamp, grace_ms: i64) -> Vec<Expired> {
        let is_free = |file: &Arc<TableFile>, at: Timestamp| {
            // One is here. Nobody can get another: no version in force names the file.
            now.0.saturating_sub(at.0) >= grace_ms && Arc::strong_count(file) == 1
        };
        let removed = self.contents.removed.iter();
        removed
            .filter(|(_, (file, at))| is_free(file, *at))
            .map(|(&id, (file, _))| Expired { id, path: file.path.clone() })
            .collect()
    }

    /// Files that no version in force names and that are still there, with when they left it.
    pub fn removed(&self) -> impl Iterator<Item = (&Arc<TableFile>, Timestamp)> + '_ {
        self.contents.removed.values().map(|(file, at)| (file, *at))
    }

    /// Expired files have been unlinked.
    pub fn forget(&mut self, gone: &[Expired]) {
        for expired in gone {
            self.contents.removed.remove(&expired.id);
        }
    }

    /// The change that an edit comes to.
    fn plan(&self, edit: Edit) -> Result<Change, ManifestError> {
        let contents = &self.contents;
        let mut starts: BTreeMap<i32, Offset> = BTreeMap::new();
        let mut note = |partition: i32, start: Offset| {
            let known = contents.starts.get(&partition).copied();
            if known.is_none_or(|known| known < start) {
                let noted = starts.entry(partition).or_insert(start);
                *noted = (*noted).max(start);
            }
        };
        edit.starts.iter().for_each(|&(partition, start)| note(partition, start));
        for file in &edit.add {
            if contents.has(file.id) {
                return Err(ManifestError::Twice(file.id));
            }
            let is_ordered = file.parts.is_sorted_by(|one, next| one.partition < next.partition);
            let is_sane = |part: &Part| part.first.0 >= 0 && part.first < part.end;
            if !is_ordered || !file.parts.iter().all(is_sane) {
                return Err(ManifestError::Senseless(file.id));
            }
        }
        // What never had a file begins where its first one does.
        for part in edit.add.iter().flat_map(|file| &file.parts) {
            let is_known = starts.contains_key(&part.partition)
                || self.version.table_end(part.partition).is_some();
            if !is_known {
                let of_partition = edit.add.iter().filter_map(|file| file.part(part.partition));
                let first = of_partition.map(|part| part.first).min().unwrap_or(part.first);
                starts.insert(part.partition, first);
            }
        }
        let start_of = |partition: i32| starts.get(&partition).or(contents.starts.get(&partition));
        let is_below = |file: &FileFacts| {
            let mut parts = file.parts.iter();
            parts.all(|part| start_of(part.partition).is_some_and(|start| part.end <= *start))
        };
        let is_removed = |file: &FileFacts| edit.remove.contains(&file.id) || is_below(file);
        let in_force = contents.files.values().map(|file| &file.facts).chain(&edit.add);
        let removed = in_force.filter(|file| is_removed(file)).map(|file| (file.id, edit.now));
        Ok(Change {
            topic: self.topic,
            number: self.version.number + 1,
            is_base: false,
            removed: removed.collect(),
            starts: starts.iter().map(|(partition, start)| (*partition, *start)).collect(),
            compacted: contents.compactions(&edit),
            files: edit.add,
        })
    }

    /// Nothing goes but what is below a log start.
    fn check(&self, next: &Version) -> Result<(), ManifestError> {
        let hole = |partition| Err(ManifestError::Hole { partition });
        for partition in next.partitions() {
            let start = next.starts().get(&partition).copied().unwrap_or(Offset(0));
            if next.parts(partition).first().is_some_and(|at| at.part.first > start) {
                return hole(partition);
            }
        }
        let known = self.version.partitions().chain(self.version.starts().keys().copied());
        for partition in known {
            if next.table_end(partition) < self.version.table_end(partition) {
                return hole(partition);
            }
        }
        Ok(())
    }

    /// Puts a change on the disk: as a delta, or as a base of what it makes.
    fn publish(
        &mut self,
        disk: &dyn Disk,
        change: Change,
        after: &Contents,
    ) -> Result<(), ManifestError> {
        let manifest = manifest_dir(&self.dir);
        let write = |path: &Path, source| ManifestError::Write { path: path.to_path_buf(), source };
        self.unsure = Some(change.files.iter().map(|file| file.id).collect());
        if !self.has_dir {
            disk.create_dir(&manifest).map_err(|error| write(&manifest, error))?;
            self.has_dir = true;
        }
        let change = match self.log.is_outgrown() {
            true => after.base(change.topic, change.number),
            false => change,
        };
        let (name, bytes) = (change.name(), change.encode());
        let path = manifest.join(name.to_string());
        disk.publish(&path, &bytes).map_err(|error| write(&path, error))?;
        self.unsure = None;
        self.log.wrote(name, bytes.len() as u64);
        Ok(())
    }

    /// Reads what is on the disk. Of files in `known` the same ones are used again, so that their
    /// holders stay counted.
    fn load(
        disk: &dyn Disk,
        dir: &Path,
        topic: Uuid,
        known: Contents,
    ) -> Result<Manifest, ManifestError> {
        let manifest = manifest_dir(dir);
        let read = |path: &Path, source| ManifestError::Read { path: path.to_path_buf(), source };
        let listed = match disk.list(&manifest) {
            Ok(listed) => Some(listed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(read(&manifest, error)),
        };
        let has_dir = listed.is_some();
        let listed = listed.unwrap_or_default();
        let names: Vec<Name> = listed.iter().filter_map(|entry| Name::parse(&entry.name)).collect();
        let (live, stale) = in_force(&manifest, names)?;
        let mut contents = Contents::default();
        let mut log = Deltas::beside(stale);
        for &name in &live {
            let path = manifest.join(name.to_string());
            let bytes = read_whole(disk, &path).map_err(|error| read(&path, error))?;
            let damaged = |damage| ManifestError::Damaged { path: path.clone(), damage };
            let change = Change::decode(&bytes).map_err(damaged)?;
            if change.topic != topic {
                return Err(damaged(Damage::Topic(change.topic)));
            }
            if change.name() != name {
                return Err(damaged(Damage::Number));
            }
            contents.apply(dir, &change);
            log.wrote(name, bytes.len() as u64);
        }
        let number = live.last().map_or(0, |name| name.number());
        contents.keep_known(known);
        let damaged = |partition| ManifestError::Damaged {
            path: manifest.clone(),
            damage: Damage::Hole(partition),
        };
        let version = Arc::new(contents.version(number, topic).map_err(damaged)?);
        if has_dir {
            // What was read may be known to the cache alone, and much will be built on it.
            disk.sync_dir(&manifest).map_err(|error| read(&manifest, error))?;
        }
        let dir = dir.to_path_buf();
        Ok(Manifest { dir, topic, contents, version, log, has_dir, unsure: None })
    }

    /// Removes what a crash left, and says what is missing.
    fn sweep(mut self, disk: &dyn Disk) -> Result<Manifest, ManifestError> {
        self.log.remove_stale(disk, &self.dir);
        let data = self.dir.join("data");
        let listed = match disk.list(&data) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(ManifestError::Read { path: data, source }),
        };
        let bytes: BTreeMap<PathBuf, u64> =
            listed.iter().map(|entry| (data.join(&entry.name), entry.bytes)).collect();
        let contents = &mut self.contents;
        for file in contents.files.values() {
            if bytes.get(&file.path) != Some(&file.facts.bytes) {
                let (path, expected) = (file.path.display(), file.facts.bytes);
                let found = bytes.get(&file.path);
                tracing::error!(%path, expected, found, "a table file is missing or damaged");
            }
        }
        contents.removed.retain(|_, (file, _)| bytes.contains_key(&file.path));
        let removed = contents.removed.values().map(|(file, _)| &file.path);
        let named: Vec<&PathBuf> =
            contents.files.values().map(|file| &file.path).chain(removed).collect();
        let manifest = manifest_dir(&self.dir);
        let half = |name: &str| name.ends_with(".tmp");
        let orphans = bytes.keys().filter(|path| !named.contains(path)).cloned();
        let halves = match disk.list(&manifest) {
            Ok(listed) => listed.into_iter().filter(|entry| half(&entry.name)).collect(),
            Err(_) => Vec::new(),
        };
        for path in orphans.chain(halves.iter().map(|entry| manifest.join(&entry.name))) {
            tracing::info!(path = %path.display(), "removing what an interrupted change left");
            disk.remove(&path).map_err(|source| ManifestError::Write { path, source })?;
        }
        Ok(self)
    }
}
