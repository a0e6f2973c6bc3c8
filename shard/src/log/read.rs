//! Finding batches by their offset, for fetches.
//!
//! What is warm is handed out as slices of the map, which the kernel reads in `sendmsg`. What is
//! cold, or in the table alone, becomes a value that a worker turns into bytes. Nothing here reads
//! a disk on the core.

use super::cold::{ColdError, ColdRead, Entries, Source};
use super::engine::Log;
use super::frame::FRAME_HEADER_BYTES;
use super::header::{index_name, segment_name};
use super::index::{BatchEntry, SegmentIndex};
use super::segments::Sealed;
use super::tabled::TableRead;
use crate::disk::{Disk, MapWriter, ReadFile, SharedBytes};
use crate::ids::{DenseId, Offset, SegmentNumber};
use crate::partition::{Offsets, Run};
use bytes::Bytes;
use std::io;

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

/// Entries copied for one cold read.
const KNOWN_MAX: usize = 1024;

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
        if let Some(table) = TableRead::plan(partition, at, &self.blocks) {
            let (bytes_max, whole_first) = (ask.bytes_max, ask.whole_first);
            let (disk, source) = (self.disk.clone(), Source::Table(table));
            plan.bytes = bytes_max;
            plan.cold = Some(ColdRead { disk, source, from: at, until, bytes_max, whole_first });
            return Ok(plan);
        }
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
            source: Source::Segment {
                path: self.spec.dir.join(segment_name(run.segment)),
                entries: self.cold_entries(run, id, from, until),
            },
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
