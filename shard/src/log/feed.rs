//! A feed: the batches of one partition in a range of offsets, for those who read many of them.
//!
//! Planned on the core from the index in memory, then read on a thread of its own: what writes
//! tables and answers queries never touches a map or the log. Opening takes hold of all files at
//! once, so that from then on it does not matter what becomes of the segments; until then one may
//! go, which is told apart from damage and to be planned anew.
//!
//! Copied at the plan: the entries of the open segment alone, 32 bytes a batch. Those of a sealed
//! segment are shared or read from its file.
//!
//! Gap: nothing is known here of aborted transactions; there are none as long as nobody writes
//! their markers.

use super::cold::{as_cold, read_behind, ColdError};
use super::directory::Directory;
use super::engine::Log;
use super::frame::FRAME_HEADER_BYTES;
use super::header::{index_name, segment_name, SEGMENT_HEADER_BYTES};
use super::index::{BatchEntry, SegmentIndex};
use super::read::wanted;
use super::side::side_name;
use super::whole::whole_frame;
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, ReadFile};
use crate::ids::{DenseId, Offset, PartitionKey, SegmentNumber, Timestamp};
use crate::partition::{Run, RunKind};
use bytes::Bytes;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is read in one go, and the most that may lie between two frames of it.
const WINDOW_BYTES: u64 = 1 << 20;
const BETWEEN_BYTES: u64 = 4 << 10;

/// A batch as it is stored, and the broker's clock when it was appended.
pub type Fed = (Timestamp, Bytes);

/// Batches of a partition that are to be read. Holds no file yet.
#[derive(Clone)]
pub struct Feed {
    pub key: PartitionKey,
    /// The first batch may begin before it.
    pub from: Offset,
    /// Everything before it is in the feed, or nothing is left of it.
    pub until: Offset,
    /// Of the batches. Estimated where a part of a segment's index is not in memory.
    pub bytes: u64,
    dense: DenseId,
    dir: PathBuf,
    pieces: Vec<Piece>,
}

/// A stretch of one segment.
#[derive(Clone)]
struct Piece {
    segment: SegmentNumber,
    epoch: u64,
    /// An offset of the stretch in the index.
    base: Offset,
    entries: Known,
    from: Offset,
    until: Offset,
}

/// Where the entries of a stretch come from.
#[derive(Clone)]
enum Known {
    Copied(Vec<BatchEntry>),
    Shared(Arc<SegmentIndex>),
    InFile,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pieces = self.pieces.len();
        write!(f, "Feed({} {}..{} in {pieces} pieces)", self.key, self.from, self.until)
    }
}

impl Log {
    /// The batches of `[from, until)`, or of the first part of it once they come to `bytes_max`
    /// (in what is sealed and no longer in memory, to the end of a segment). What of the range is
    /// not committed is left out. `None` when that leaves nothing, or when the log has let go of
    /// `from`: then the table is newer than the caller knows.
    pub fn feed(&self, id: DenseId, from: Offset, until: Offset, bytes_max: u64) -> Option<Feed> {
        let partition = self.partitions.get(id)?;
        let until = until.min(partition.high_watermark());
        if from < partition.hot_start() || from >= until {
            return None;
        }
        let mut feed = Feed {
            key: partition.key,
            from,
            until: from,
            bytes: 0,
            dense: id,
            dir: self.spec.dir.clone(),
            pieces: Vec::new(),
        };
        for run in partition.runs.iter().skip_while(|run| run.end <= from) {
            if feed.until >= until || feed.bytes >= bytes_max || run.base > feed.until.max(from) {
                break;
            }
            let room = bytes_max - feed.bytes;
            let end = match run.kind {
                RunKind::Gap => until.min(run.end),
                _ => self.feed_run(&mut feed, run, until, room)?,
            };
            let whole = end == until.min(run.end);
            feed.until = end;
            if !whole {
                break;
            }
        }
        (feed.until > from).then_some(feed)
    }

    /// Adds a run as far as there is room; says where that ends.
    fn feed_run(&self, feed: &mut Feed, run: &Run, until: Offset, room: u64) -> Option<Offset> {
        let (from, until) = (feed.from.max(run.base), until.min(run.end));
        let is_open = run.segment == self.open.number;
        let sealed = self.segments.get(run.segment);
        let epoch = match is_open {
            true => self.open.epoch,
            false => sealed?.stamp.epoch,
        };
        let index = self.index_of(run.segment);
        let (bytes, end) = match index {
            Some(index) => {
                let all = wanted(index.entries(feed.dense, run.base), from, until);
                if from == run.base && until == run.end && run.batch_bytes <= room {
                    (run.batch_bytes, until)
                } else {
                    fitting(all, room, until)
                }
            }
            None => (share(run, from, until), until),
        };
        let entries = match (is_open, index) {
            (true, Some(index)) => {
                Known::Copied(wanted(index.entries(feed.dense, run.base), from, end).to_vec())
            }
            _ => match sealed.and_then(|sealed| sealed.index.clone()) {
                Some(index) => Known::Shared(index),
                None => Known::InFile,
            },
        };
        feed.bytes += bytes;
        let (segment, base) = (run.segment, run.base);
        feed.pieces.push(Piece { segment, epoch, base, entries, from, until: end });
        Some(end)
    }
}

/// How many bytes of the entries there is room for, at least those of one, and where they end.
fn fitting(entries: &[BatchEntry], room: u64, until: Offset) -> (u64, Offset) {
    let mut bytes = 0;
    for (at, entry) in entries.iter().enumerate() {
        bytes += u64::from(entry.batch_bytes);
        if bytes >= room && at + 1 < entries.len() {
            return (bytes, entry.end());
        }
    }
    (bytes, until)
}

/// About what a part of a run weighs.
pub(super) fn share(run: &Run, from: Offset, until: Offset) -> u64 {
    let offsets = (run.end.0 - run.base.0).max(1) as u128;
    let part = (until.0.min(run.end.0) - from.0.max(run.base.0)).max(0) as u128;
    (u128::from(run.batch_bytes) * part / offsets) as u64
}

impl Feed {
    /// Opens all files of the feed. Blocks. `Removed` when one is not there any more: the batches
    /// lie elsewhere now or are in the table, and a new feed has to be planned.
    pub fn open(self, disk: &dyn Disk) -> Result<OpenFeed, ColdError> {
        let Feed { key, from, until, dense, dir, pieces, .. } = self;
        let mut opened = VecDeque::with_capacity(pieces.len());
        for piece in pieces {
            let segment = dir.join(segment_name(piece.segment));
            let piece = piece.open(disk, &dir, dense);
            opened.push_back(piece.map_err(|error| error.unless_removed(disk, &segment))?);
        }
        Ok(OpenFeed { key, from, until, dense, pieces: opened })
    }
}

impl Piece {
    fn open(self, disk: &dyn Disk, dir: &Path, dense: DenseId) -> Result<OpenPiece, ColdError> {
        let file = disk.open(&dir.join(segment_name(self.segment)))?;
        if file.len()? <= SEGMENT_HEADER_BYTES as u64 {
            // Emptied since the feed was planned; an index in memory would not tell.
            return Err(ColdError::Removed);
        }
        let entries = match self.entries {
            Known::Copied(entries) => entries,
            Known::Shared(index) => {
                wanted(index.entries(dense, self.base), self.from, self.until).to_vec()
            }
            Known::InFile => {
                let index = disk.open(&dir.join(index_name(self.segment)))?;
                let directory = Directory::read(&*index).map_err(as_cold)?;
                let all = directory.entries(&*index, dense, self.base).map_err(as_cold)?;
                wanted(&all, self.from, self.until).to_vec()
            }
        };
        let mut sides = VecDeque::new();
        for entry in entries.iter().filter(|entry| entry.is_in_side_file()) {
            let damaged = ColdError::Damaged(entry.frame_start());
            let mut frame = Vec::new();
            let (at, bytes) = (u64::from(entry.frame_start()), entry.frame_bytes() as usize);
            let whole = read_behind(&*file, at, bytes, &mut frame)?;
            let frame = whole_frame(dense, self.epoch, entry, &frame).filter(|_| whole);
            let side = frame.and_then(|frame| frame.side).ok_or(damaged)?;
            sides.push_back(disk.open(&dir.join(side_name(side)))?);
        }
        Ok(OpenPiece { file, epoch: self.epoch, entries: entries.into(), sides })
    }
}

/// A feed being read. The batches come in the order of their offsets.
pub struct OpenFeed {
    pub key: PartitionKey,
    pub from: Offset,
    pub until: Offset,
    dense: DenseId,
    pieces: VecDeque<OpenPiece>,
}

struct OpenPiece {
    file: Arc<dyn ReadFile>,
    epoch: u64,
    /// What is still to be read.
    entries: VecDeque<BatchEntry>,
    /// The files of those that are not in the segment.
    sides: VecDeque<Arc<dyn ReadFile>>,
}

impl std::fmt::Debug for OpenFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFeed({} {}..{})", self.key, self.from, self.until)
    }
}

impl OpenFeed {
    /// The next batches: at least one, and no more than `bytes_max` of them beyond that. `None` at
    /// the end. Blocks.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<Fed>>, ColdError> {
        let mut batches = Vec::new();
        let mut left = bytes_max as u64;
        while let Some(piece) = self.pieces.front_mut() {
            match piece.read(self.dense, left, batches.is_empty(), &mut batches)? {
                Some(read) => left = left.saturating_sub(read),
                None if piece.entries.is_empty() => drop(self.pieces.pop_front()),
                None => break,
            }
        }
        Ok((!batches.is_empty()).then_some(batches))
    }
}

impl OpenPiece {
    /// Reads frames that lie close together as far as there is room, in one go; the first one
    /// anyway if `whole_first`. Returns the bytes of their batches; `None` when nothing was read.
    fn read(
        &mut self,
        dense: DenseId,
        room: u64,
        whole_first: bool,
        into: &mut Vec<Fed>,
    ) -> Result<Option<u64>, ColdError> {
        let Some(first) = self.entries.front() else { return Ok(None) };
        if !whole_first && u64::from(first.batch_bytes) > room {
            return Ok(None);
        }
        if first.is_in_side_file() {
            return self.read_side(dense, into).map(Some);
        }
        let start = u64::from(first.frame_start());
        let (mut end, mut bytes, mut count) = (start, 0, 0);
        for entry in &self.entries {
            let at = u64::from(entry.frame_start());
            let is_near = at >= end && at <= end + BETWEEN_BYTES && !entry.is_in_side_file();
            let is_small = at + entry.frame_bytes() - start <= WINDOW_BYTES;
            let fits = bytes + u64::from(entry.batch_bytes) <= room && is_small;
            if !is_near || !(fits || count == 0) {
                break;
            }
            end = at + entry.frame_bytes();
            bytes += u64::from(entry.batch_bytes);
            count += 1;
        }
        let mut window = Vec::new();
        let whole = read_behind(&*self.file, start, (end - start) as usize, &mut window)?;
        let window = Bytes::from(window);
        for entry in self.entries.drain(..count) {
            let at = (u64::from(entry.frame_start()) - start) as usize;
            let frame = window.get(at..at + entry.frame_bytes() as usize).unwrap_or_default();
            let found = whole_frame(dense, self.epoch, &entry, frame).filter(|_| whole);
            let damaged = ColdError::Damaged(entry.frame_start());
            let time = found.ok_or(damaged)?.frame.append_time;
            let batch = at + FRAME_HEADER_BYTES..at + entry.frame_bytes() as usize;
            into.push((time, window.slice(batch)));
        }
        Ok(Some(bytes))
    }

    /// Reads a batch out of its own file, under the header of its frame.
    fn read_side(&mut self, dense: DenseId, into: &mut Vec<Fed>) -> Result<u64, ColdError> {
        let (Some(entry), Some(side)) = (self.entries.pop_front(), self.sides.pop_front()) else {
            return Ok(0);
        };
        let damaged = || ColdError::Damaged(entry.frame_start());
        let mut frame = Vec::new();
        let (at, bytes) = (u64::from(entry.frame_start()), entry.frame_bytes() as usize);
        let whole = read_behind(&*self.file, at, bytes, &mut frame)?;
        let found = whole_frame(dense, self.epoch, &entry, &frame).filter(|_| whole);
        let found = found.ok_or_else(damaged)?;
        let bytes = entry.batch_bytes as usize;
        let mut batch = Vec::new();
        if side.len()? != bytes as u64 || !read_behind(&*side, 0, bytes, &mut batch)? {
            return Err(damaged());
        }
        let head = batch.first_chunk_mut::<HEADER_BYTES>().ok_or_else(damaged)?;
        *head = found.batch.encode();
        let is_whole = BatchHeader::split(&batch).is_ok_and(|(header, body, rest)| {
            rest.is_empty() && header.crc_with(body) == header.crc
        });
        if !is_whole {
            return Err(damaged());
        }
        into.push((found.frame.append_time, batch.into()));
        Ok(bytes as u64)
    }
}
