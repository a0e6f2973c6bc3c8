//! What the jobs of a table share: where they work, and how they fail.
//!
//! A job runs on a worker, blocks, holds what it needs and never touches a manifest: it ends in an
//! edit, which whoever keeps the table commits. Files of a job that fails go with it, those of an
//! edit that is refused with that; what cannot be removed goes at the next open of the manifest.
//!
//! The library that reads Parquet may panic on what no checksum of ours let through; a job holds
//! nothing that a panic leaves half done, so a runner may catch it and report the job as failed.

use super::error::TableError;
use super::file::{FileReader, Scan};
use super::rows::RowsError;
use super::version::{file_path, FileFacts, FileId, PartAt, TableFile};
use super::Damage;
use crate::disk::Disk;
use crate::ids::{Offset, Timestamp};
use crate::log::ColdError;
use arrow_schema::ArrowError;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files a job keeps open for reading.
const OPEN_FILES_MAX: usize = 16;
/// What a step of a job holds of one file, about, as raw bytes: uncompressed it may be some times
/// as much.
const STEP_BYTES: u64 = 2 << 20;
const STEP_ROWS_MAX: u64 = 8192;

/// Why a job came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// With `Removed` the job is to be planned anew.
    #[error("reading the log: {0}")]
    Feed(#[from] ColdError),
    #[error("rows cannot be taken out of columns: {0}")]
    Columns(#[from] ArrowError),
    #[error("the job was told to stop")]
    Stopped,
}

impl JobError {
    /// Whether a batch of the log is at fault, and not the job or the disk it writes to.
    pub(super) fn is_of_batch(&self) -> bool {
        match self {
            JobError::Rows(error) => !matches!(error, RowsError::Columns(_)),
            JobError::Feed(error) => !matches!(error, ColdError::Removed),
            JobError::Table(_) | JobError::Columns(_) | JobError::Stopped => false,
        }
    }
}

/// Where a job works.
pub struct Site<'a> {
    pub disk: &'a dyn Disk,
    /// The directory of the table.
    pub dir: &'a Path,
    pub now: Timestamp,
    /// A random id that no file of the table ever had.
    pub next_id: &'a mut dyn FnMut() -> FileId,
    /// Set when the job is to end soon.
    pub stop: &'a AtomicBool,
}

impl Site<'_> {
    pub(super) fn go_on(&self) -> Result<(), JobError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(JobError::Stopped),
            false => Ok(()),
        }
    }
}

/// The files of a job that has not ended: removed with it if it fails or panics.
pub(super) struct Written<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    files: Vec<FileFacts>,
}

impl<'a> Written<'a> {
    pub fn new(site: &Site<'a>) -> Written<'a> {
        Written { disk: site.disk, dir: site.dir, files: Vec::new() }
    }

    pub fn extend(&mut self, files: impl IntoIterator<Item = FileFacts>) {
        self.files.extend(files);
    }

    /// The job has ended.
    pub fn into_files(mut self) -> Vec<FileFacts> {
        std::mem::take(&mut self.files)
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        discard(self.disk, self.dir, self.files.iter().map(|file| file.id));
    }
}

/// Removes files that nothing names and nobody reads; those that cannot be go at the next open.
pub(super) fn discard(disk: &dyn Disk, dir: &Path, files: impl Iterator<Item = FileId>) {
    for path in files.map(|id| file_path(dir, id)) {
        if let Err(error) = disk.remove(&path) {
            let path = path.display().to_string();
            tracing::debug!(path, %error, "a table file nobody needs stays until the next open");
        }
    }
}

/// What a job reads of a part: the rows from `from` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub at: PartAt,
    pub from: Offset,
}

impl Piece {
    /// The part without what is below the log start; `None` when that is all of it.
    pub fn above(at: &PartAt, start: Offset) -> Option<Piece> {
        let from = at.part.first.max(start);
        (from < at.part.end).then(|| Piece { at: at.clone(), from })
    }

    /// A scan of some columns of rows `[from, until)`, in steps of bounded memory.
    pub fn scan(&self, from: Offset, until: Offset, columns: Vec<usize>) -> Scan {
        let part = &self.at.part;
        let bytes_each = (part.raw_bytes / part.rows.max(1)).max(1);
        let batch_rows = (STEP_BYTES / bytes_each).clamp(1, STEP_ROWS_MAX) as usize;
        let from = from.max(self.from);
        Scan { partition: part.partition, from, until, columns, batch_rows }
    }
}

/// Files open for reading, the latest used.
pub(super) struct Readers<'a> {
    disk: &'a dyn Disk,
    open: VecDeque<(FileId, FileReader)>,
}

impl<'a> Readers<'a> {
    pub fn new(disk: &'a dyn Disk) -> Readers<'a> {
        Readers { disk, open: VecDeque::new() }
    }

    /// A file, which must hold what the manifest says.
    pub fn get(&mut self, file: &TableFile) -> Result<FileReader, TableError> {
        let id = file.facts.id;
        let at = self.open.iter().position(|(other, _)| *other == id);
        let (_, reader) = match at.and_then(|at| self.open.remove(at)) {
            Some(known) => known,
            None => (id, FileReader::open(self.disk, &file.path)?),
        };
        if *reader.facts() != file.facts {
            let damage = Damage::Missing("parts that the manifest knows of");
            return Err(TableError::damaged(&file.path, damage));
        }
        self.open.push_back((id, reader.clone()));
        if self.open.len() > OPEN_FILES_MAX {
            self.open.pop_front();
        }
        Ok(reader)
    }
}

#[cfg(test)]
mod tests;
