//! Finding batches by their offset, for fetches.
//!
//! What is warm is handed out as slices of the map, which the kernel reads in `sendmsg`. What is
//! cold becomes a value that a worker turns into bytes. Nothing here reads a disk on the core.

use super::chain::read_whole;
use super::directory::{Directory, IndexError};
use super::engine::Log;
use super::header::{index_name, segment_name, SEGMENT_HEADER_BYTES};
use super::index::{BatchEntry, SegmentIndex};
use super::segments::Sealed;
use super::side;
use crate::batch::BatchHeader;
use crate::disk::{Disk, MapWriter, ReadFile, SharedBytes};
use crate::ids::{DenseId, Offset, SegmentNumber};
use crate::log::frame::FRAME_HEADER_BYTES;
use crate::partition::{Offsets, Run};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    HighWatermark,
    LastStable,
}

/// What a fetch wants of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadAsk {
    pub from: Offset,
    pub bytes_max: usize,
    /// The first batch is returned although it is longer than `bytes_max`.
    pub whole_first: bool,
    pub until: Until,
}

/// Batches for one partition.
#[derive(Debug)]
pub struct ReadPlan {
    pub offsets: Offsets,
    /// Whole batches in offset order, to be sent as they are.
    pub slices: Vec<SharedBytes>,
    /// Bytes of `slices`, or the most that `cold` may return.
    pub bytes: usize,
    /// To be run on a worker when nothing is warm at this offset.
    pub cold: Option<ColdRead>,
}

impl ReadPlan {
    /// Reads all of it through the files, warm or not: a bad sector is an error then and no signal.
    /// Blocks.
    pub fn copy(self, disk: &dyn Disk) -> Result<Bytes, ColdError> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for slice in &self.slices {
            let (path, at) = slice.place();
            let read =
                disk.open(path).and_then(|file| read_file(&*file, at, slice.len(), &mut bytes));
            read.map_err(|error| ColdError::Io(error).unless_removed(disk, path))?;
        }
        match self.cold {
            Some(cold) if bytes.is_empty() => cold.run(),
            Some(cold) => {
                bytes.extend_from_slice(&cold.run()?);
                Ok(bytes.into())
            }
            None => Ok(bytes.into()),
        }
    }
}

fn read_file(file: &dyn ReadFile, at: u64, count: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let start = into.len();
    into.resize(start + count, 0);
    let mut done = 0;
    while done < count {
        match file.read_at(at + done as u64, &mut into[start + done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the log does not know this partition")]
    Unknown,
    #[error("offset {from} is outside {log_start}..={log_end}")]
    OutOfRange { from: Offset, log_start: Offset, log_end: Offset },
}

/// Why a cold read came back without bytes.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    #[error("reading the segment: {0}")]
    Io(#[from] io::Error),
    #[error("the batch at {0} in the segment is damaged")]
    Damaged(u32),
    /// The batches were carried elsewhere, or are below the log start: to be planned again.
    #[error("the segment has been removed since the read was planned")]
    Removed,
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

/// Entries copied for one cold read.
const KNOWN_MAX: usize = 1024;

/// Where the entries of a cold segment come from.
#[derive(Debug)]
pub(super) enum Entries {
    Known(Vec<BatchEntry>),
    File { path: PathBuf, dense: DenseId, base: Offset },
}

/// A read of one cold segment, to be run on a worker.
pub struct ColdRead {
    disk: Arc<dyn Disk>,
    segment: PathBuf,
    entries: Entries,
    from: Offset,
    until: Offset,
    bytes_max: usize,
    whole_first: bool,
}

impl std::fmt::Debug for ColdRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColdRead({} from {})", self.segment.display(), self.from)
    }
}

impl Log {
    /// Plans a fetch. An offset at the log's end, or at what the reader may see, yields nothing.
    pub fn plan_read(&self, id: DenseId, ask: &ReadAsk) -> Result<ReadPlan, ReadError> {
        let partition = self.partitions.get(id).ok_or(ReadError::Unknown)?;
        let offsets = partition.offsets(self.spec.run);
        let (log_start, log_end) = (offsets.log_start, offsets.log_end);
        if ask.from < log_start || ask.from > log_end {
            return Err(ReadError::OutOfRange { from: ask.from, log_start, log_end });
        }
        let until = offsets.end(ask.until);
        let mut plan = ReadPlan { offsets, slices: Vec::new(), bytes: 0, cold: None };
        let mut at = ask.from;
        while at < until {
            let Some(run) = partition.runs.at(at) else {
                break;
            };
            let first = plan.slices.is_empty();
            let Some((writer, entries)) = self.warm(run, id) else {
                if first {
                    plan.bytes = ask.bytes_max;
                    plan.cold = Some(self.cold_read(run, id, ask, until));
                }
                break;
            };
            let entries = wanted(entries, at.max(run.base), until.min(run.end));
            if first && entries.first().is_some_and(BatchEntry::is_in_side_file) {
                plan.bytes = ask.bytes_max;
                plan.cold = Some(self.cold_read(run, id, ask, until));
                break;
            }
            if !push_slices(&mut plan, writer, entries, ask) {
                break;
            }
            at = run.end;
        }
        Ok(plan)
    }

    /// The map of a segment that is still mapped, and the entries of the stretch a run is in.
    fn warm(&self, run: &Run, id: DenseId) -> Option<(&MapWriter, &[BatchEntry])> {
        if run.segment == self.open.number {
            return Some((&self.open.writer, self.open.index.entries(id, run.base)));
        }
        let sealed = self.segments.get(run.segment)?;
        Some((sealed.writer.as_ref()?, sealed.index.as_ref()?.entries(id, run.base)))
    }

    fn cold_read(&self, run: &Run, id: DenseId, ask: &ReadAsk, until: Offset) -> ColdRead {
        let (from, until) = (ask.from.max(run.base), until.min(run.end));
        ColdRead {
            disk: self.disk.clone(),
            segment: self.spec.dir.join(segment_name(run.segment)),
            entries: self.cold_entries(run, id, from, until),
            from,
            until,
            bytes_max: ask.bytes_max,
            whole_first: ask.whole_first,
        }
    }

    /// The index of a segment, while it is in memory.
    pub(super) fn index_of(&self, number: SegmentNumber) -> Option<&SegmentIndex> {
        let sealed = self.segments.get(number).and_then(|sealed: &Sealed| sealed.index.as_deref());
        if number == self.open.number {
            Some(&self.open.index)
        } else {
            sealed
        }
    }

    pub(super) fn cold_entries(
        &self,
        run: &Run,
        id: DenseId,
        from: Offset,
        until: Offset,
    ) -> Entries {
        match self.index_of(run.segment) {
            // Enough for one read; the next one asks again.
            Some(index) => {
                let entries = wanted(index.entries(id, run.base), from, until);
                Entries::Known(entries.iter().take(KNOWN_MAX).copied().collect())
            }
            None => {
                let path = self.spec.dir.join(index_name(run.segment));
                Entries::File { path, dense: id, base: run.base }
            }
        }
    }
}

/// The entries with records in `[from, until)`. Batches that pass `until` are left out: what a
/// reader may see always ends with a batch.
pub(super) fn wanted(entries: &[BatchEntry], from: Offset, until: Offset) -> &[BatchEntry] {
    let first = entries.partition_point(|entry| entry.end() <= from);
    let end = entries.partition_point(|entry| entry.end() <= until);
    entries.get(first..end).unwrap_or(&[])
}

/// Adds slices while they fit; false when the limit is reached.
fn push_slices(
    plan: &mut ReadPlan,
    writer: &MapWriter,
    entries: &[BatchEntry],
    ask: &ReadAsk,
) -> bool {
    for entry in entries {
        let bytes = entry.batch_bytes as usize;
        let first = plan.slices.is_empty() && ask.whole_first;
        let fits = first || plan.bytes + bytes <= ask.bytes_max;
        if !fits || entry.is_in_side_file() {
            return false;
        }
        plan.slices.push(writer.share(entry.frame_start() as usize + FRAME_HEADER_BYTES, bytes));
        plan.bytes += bytes;
    }
    true
}

impl Entries {
    pub(super) fn load(self, disk: &dyn Disk) -> Result<Vec<BatchEntry>, ColdError> {
        match self {
            Entries::Known(entries) => Ok(entries),
            Entries::File { path, dense, base } => Entries::read(disk, &path, dense, base),
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

    /// Reads the batches. Blocks; the bytes are whole batches in offset order.
    pub fn run(self) -> Result<Bytes, ColdError> {
        let (disk, segment) = (self.disk.clone(), self.segment.clone());
        self.read().map_err(|error| error.unless_removed(&*disk, &segment))
    }

    fn read(self) -> Result<Bytes, ColdError> {
        let file = self.disk.open(&self.segment)?;
        let entries = self.entries.load(&*self.disk)?;
        let mut entries = wanted(&entries, self.from, self.until);
        let mut bytes = Vec::new();
        while let Some(entry) = entries.first() {
            let first = bytes.is_empty() && self.whole_first;
            if !first && bytes.len() + entry.batch_bytes as usize > self.bytes_max {
                break;
            }
            let room = self.bytes_max.saturating_sub(bytes.len());
            let (near, rest) = entries.split_at(near(entries, room));
            read_near(&*self.disk, &self.segment, &*file, near, &mut bytes)?;
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
