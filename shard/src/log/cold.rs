//! Cold reads: batches that are no longer mapped, read by a worker.
//!
//! Planned by `read` on the core, with all that is needed to find the batches in the file of a
//! segment, or in the files of the table for what the log has let go of. The bytes that come back
//! are whole batches in offset order, each checked. What is read may have gone since the plan was
//! made: that is told apart from damage, and the caller plans anew.

use super::chain::read_whole;
use super::directory::{Directory, IndexError};
use super::frame::FRAME_HEADER_BYTES;
use super::header::SEGMENT_HEADER_BYTES;
use super::index::BatchEntry;
use super::read::wanted;
use super::side;
use super::tabled::{ReadAhead, TableRead};
use crate::batch::BatchHeader;
use crate::disk::{Disk, ReadFile};
use crate::ids::{DenseId, Offset};
use crate::table::TableError;
use bytes::Bytes;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a cold read came back without bytes.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    #[error("reading the segment: {0}")]
    Io(#[from] io::Error),
    #[error("the batch at {0} in the segment is damaged")]
    Damaged(u32),
    #[error(transparent)]
    Table(TableError),
    /// The batches were carried elsewhere, or are below the log start: to be planned again.
    #[error("the file has been removed since the read was planned")]
    Removed,
}

impl From<TableError> for ColdError {
    /// A file that is not there went with its topic: to be planned again, which tells.
    fn from(error: TableError) -> ColdError {
        match error {
            TableError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ColdError::Removed
            }
            error => ColdError::Table(error),
        }
    }
}

impl ColdError {
    /// The same, or that the segment is not there any more: then nothing is wrong with it.
    pub(super) fn unless_removed(self, disk: &dyn Disk, segment: &Path) -> ColdError {
        let removed = match disk.open(segment).and_then(|file| file.len()) {
            Ok(bytes) => bytes <= SEGMENT_HEADER_BYTES as u64,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if removed {
            ColdError::Removed
        } else {
            self
        }
    }
}

/// Where the entries of a cold segment come from.
#[derive(Debug)]
pub(super) enum Entries {
    Known(Vec<BatchEntry>),
    File { path: PathBuf, dense: DenseId, base: Offset },
}

/// A read of batches that are not warm, to be run on a worker.
pub struct ColdRead {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) source: Source,
    pub(super) from: Offset,
    pub(super) until: Offset,
    pub(super) bytes_max: usize,
    pub(super) whole_first: bool,
}

/// Where the batches are.
pub(super) enum Source {
    Segment { path: PathBuf, entries: Entries },
    Table(TableRead),
}

impl std::fmt::Debug for ColdRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Segment { path, .. } => {
                write!(f, "ColdRead({} from {})", path.display(), self.from)
            }
            Source::Table(table) => write!(f, "ColdRead({table:?} from {})", self.from),
        }
    }
}

impl Entries {
    pub(super) fn load(&self, disk: &dyn Disk) -> Result<Cow<'_, [BatchEntry]>, ColdError> {
        match self {
            Entries::Known(entries) => Ok(Cow::Borrowed(entries)),
            Entries::File { path, dense, base } => {
                Entries::read(disk, path, *dense, *base).map(Cow::Owned)
            }
        }
    }

    /// The stretch of a partition that `offset` is in, from an index file.
    pub(super) fn read(
        disk: &dyn Disk,
        path: &Path,
        dense: DenseId,
        offset: Offset,
    ) -> Result<Vec<BatchEntry>, ColdError> {
        let file = disk.open(path)?;
        let directory = Directory::read(&*file).map_err(as_cold)?;
        directory.entries(&*file, dense, offset).map_err(as_cold)
    }
}

pub(super) fn as_cold(error: IndexError) -> ColdError {
    match error {
        IndexError::Io(error) => ColdError::Io(error),
        IndexError::Damaged => ColdError::Damaged(0),
    }
}

impl ColdRead {
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Lowers how much is read; the first batch stays whole where it was to be.
    pub fn at_most(self, bytes_max: usize) -> ColdRead {
        ColdRead { bytes_max: bytes_max.min(self.bytes_max), ..self }
    }

    /// What may be done while the reader takes in what this read gives it.
    pub fn ahead(&self) -> Option<ReadAhead> {
        match &self.source {
            Source::Segment { .. } => None,
            Source::Table(table) => Some(table.ahead(self.bytes_max)),
        }
    }

    /// Reads the batches. Blocks; the bytes are whole batches in offset order. Out of a table at
    /// least one comes back, and be it one without a row: a reader always gets on.
    pub fn run(self) -> Result<Bytes, ColdError> {
        match &self.source {
            Source::Segment { path, entries } => {
                let read = self.read_segment(path, entries);
                read.map_err(|error| error.unless_removed(&*self.disk, path))
            }
            Source::Table(table) => table.read(self.from, (self.bytes_max, self.whole_first)),
        }
    }

    fn read_segment(&self, path: &Path, entries: &Entries) -> Result<Bytes, ColdError> {
        let file = self.disk.open(path)?;
        let entries = entries.load(&*self.disk)?;
        let mut entries = wanted(&entries, self.from, self.until);
        let mut bytes = Vec::new();
        while let Some(entry) = entries.first() {
            let first = bytes.is_empty() && self.whole_first;
            if !first && bytes.len() + entry.batch_bytes as usize > self.bytes_max {
                break;
            }
            let room = self.bytes_max.saturating_sub(bytes.len());
            let (near, rest) = entries.split_at(near(entries, room));
            read_near(&*self.disk, path, &*file, near, &mut bytes)?;
            entries = rest;
        }
        Ok(Bytes::from(bytes))
    }
}

/// What is read in one go, and the most that may lie between two batches of it.
const NEAR_BYTES: u64 = 256 << 10;
const BETWEEN_BYTES: u64 = 4 << 10;

/// How many of the entries, at least one, lie so close together that they are read in one go; their
/// batches have `room`.
fn near(entries: &[BatchEntry], room: usize) -> usize {
    let Some(first) = entries.first() else { return 0 };
    let end = |entry: &BatchEntry| u64::from(entry.frame_start()) + entry.frame_bytes();
    let mut bytes = first.batch_bytes as usize;
    let joins = |pair: &&[BatchEntry]| {
        let [one, two] = pair else { return false };
        bytes += two.batch_bytes as usize;
        let start = u64::from(two.frame_start());
        !one.is_in_side_file()
            && !two.is_in_side_file()
            && (end(one)..=end(one) + BETWEEN_BYTES).contains(&start)
            && end(two) - u64::from(first.frame_start()) <= NEAR_BYTES
            && bytes <= room
    };
    1 + entries.windows(2).take_while(joins).count()
}

/// Reads batches that lie close together; one by one when they cannot be read in one go.
fn read_near(
    disk: &dyn Disk,
    segment: &Path,
    file: &dyn ReadFile,
    entries: &[BatchEntry],
    into: &mut Vec<u8>,
) -> Result<(), ColdError> {
    let mut window = Vec::new();
    let at = entries.first().map_or(0, BatchEntry::frame_start);
    if let [_, .., last] = entries {
        let end = u64::from(last.frame_start()) + last.frame_bytes();
        let read = read_behind(file, u64::from(at), (end - u64::from(at)) as usize, &mut window);
        if !matches!(read, Ok(true)) {
            window.clear();
        }
    }
    for entry in entries {
        let from = (entry.frame_start() - at) as usize + FRAME_HEADER_BYTES;
        let found = window.get(from..from + entry.batch_bytes as usize);
        match found.filter(|batch| is_promised(batch, entry)) {
            Some(batch) => into.extend_from_slice(batch),
            None => read_batch(disk, segment, file, entry, into)?,
        }
    }
    Ok(())
}

/// Reads one batch behind what is in `into` and checks that it is the one the index promised.
pub(super) fn read_batch(
    disk: &dyn Disk,
    segment: &Path,
    file: &dyn ReadFile,
    entry: &BatchEntry,
    into: &mut Vec<u8>,
) -> Result<(), ColdError> {
    let damaged = ColdError::Damaged(entry.frame_start());
    let at = u64::from(entry.frame_start()) + FRAME_HEADER_BYTES as u64;
    let from = into.len();
    let whole = if entry.is_in_side_file() {
        side::read(disk, segment, (file, at), entry.batch_bytes as usize, into)?
    } else {
        read_behind(file, at, entry.batch_bytes as usize, into)?
    };
    if whole && is_promised(&into[from..], entry) {
        Ok(())
    } else {
        Err(damaged)
    }
}

/// Whether bytes are the whole batch that an entry promises.
fn is_promised(bytes: &[u8], entry: &BatchEntry) -> bool {
    BatchHeader::split(bytes).is_ok_and(|(header, body, rest)| {
        let whole = rest.is_empty() && header.crc_with(body) == header.crc;
        whole && header.base_offset == entry.base
    })
}

/// Reads `count` bytes behind what is in `into`; false when the file ends before.
pub(super) fn read_behind(
    file: &dyn ReadFile,
    at: u64,
    count: usize,
    into: &mut Vec<u8>,
) -> io::Result<bool> {
    if at + count as u64 > file.len()? {
        return Ok(false);
    }
    let from = into.len();
    into.resize(from + count, 0);
    read_whole(file, at, &mut into[from..])
}
