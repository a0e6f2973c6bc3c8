//! Reading what is to be carried to the log's tail. Runs on a worker; blocks.
//!
//! `Log` names runs, here their frames are read and checked, and become items that the core only
//! has to store: verbatim, or as compaction leaves them. The core never reads a segment, the worker
//! never writes one. What is damaged stays where it is: carrying it would make it look whole.

use super::chain::read_whole;
use super::directory::{Directory, IndexError};
use super::frame::{decode_side, sum_is_right, FrameHeader, Kind, FRAME_HEADER_BYTES};
use super::header::{index_name, segment_name};
use super::index::{BatchEntry, SegmentIndex, Summary, GAP_FRAME_BYTES};
use super::read::wanted;
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, ReadFile};
use crate::ids::{DenseId, LeaderEpoch, Offset, SegmentNumber, Timestamp};
use crate::partition::{Run, RunKind};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Frames are read until they come to so much.
const LOAD_BYTES: u64 = 1 << 20;

/// A segment to read from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub number: SegmentNumber,
    pub epoch: u64,
    /// None when it has to be read from its file.
    pub index: Option<Arc<SegmentIndex>>,
}

/// A run to be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub id: DenseId,
    pub run: Run,
}

/// What is still to be read: runs in the order of (partition, offset).
#[derive(Debug)]
pub(super) struct Load {
    pub places: Vec<Place>,
    pub sources: VecDeque<Source>,
}

/// One frame to be written at the tail.
#[derive(Debug)]
pub(super) struct Item {
    pub id: DenseId,
    /// Where what it stands for has been.
    pub segment: SegmentNumber,
    pub kind: RunKind,
    /// It stands for these offsets.
    pub from: Offset,
    pub end: Offset,
    /// None: no batch is left there.
    pub batch: Option<Batch>,
    /// Bytes of the batches it stands for, and of their frames.
    pub source_bytes: (u64, u64),
}

#[derive(Debug)]
pub(super) struct Batch {
    pub header: BatchHeader,
    /// What follows the header in the frame: records, or the rest of a side frame's payload.
    pub rest: Vec<u8>,
    pub side: Option<u64>,
    pub leader_epoch: LeaderEpoch,
    pub append_time: Timestamp,
}

/// Why a segment cannot be emptied.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("reading segment {segment}: {error}")]
    Io { segment: SegmentNumber, error: io::Error },
    #[error("the index of segment {0} is damaged")]
    Index(SegmentNumber),
    #[error("the frame at byte {at} of segment {segment} is damaged and stays there")]
    Damaged { segment: SegmentNumber, at: u32 },
}

impl CarryError {
    pub(super) fn segment(&self) -> SegmentNumber {
        match self {
            CarryError::Io { segment, .. }
            | CarryError::Index(segment)
            | CarryError::Damaged { segment, .. } => *segment,
        }
    }

    fn io(segment: SegmentNumber) -> impl Fn(io::Error) -> CarryError {
        move |error| CarryError::Io { segment, error }
    }

    fn index(segment: SegmentNumber) -> impl Fn(IndexError) -> CarryError {
        move |error| match error {
            IndexError::Io(error) => CarryError::Io { segment, error },
            IndexError::Damaged => CarryError::Index(segment),
        }
    }
}

/// What a segment holds, dead or alive.
pub(super) fn list(disk: &dyn Disk, dir: &Path, place: &Place) -> Result<Vec<Summary>, CarryError> {
    if let Some(index) = &place.index {
        return Ok(index.summaries());
    }
    let directory = open_index(disk, dir, place.number)?.1;
    Ok(directory.summaries().copied().collect())
}

type IndexFile = (Arc<dyn ReadFile>, Directory);

fn open_index(disk: &dyn Disk, dir: &Path, number: SegmentNumber) -> Result<IndexFile, CarryError> {
    let file = disk.open(&dir.join(index_name(number))).map_err(CarryError::io(number))?;
    let directory = Directory::read(&*file).map_err(CarryError::index(number))?;
    Ok((file, directory))
}

/// An opened segment.
struct Opened<'a> {
    place: &'a Place,
    file: Arc<dyn ReadFile>,
    index_file: Option<IndexFile>,
}

impl Load {
    /// Reads the next items. Blocks. Runs that have been read to their end leave `sources`.
    pub fn run(&mut self, disk: &dyn Disk, dir: &Path) -> Result<Vec<Item>, CarryError> {
        let Load { places, sources } = self;
        let mut items = Vec::new();
        let mut opened: Option<Opened<'_>> = None;
        let mut bytes = 0;
        // A gap in front of a run becomes a part of it.
        let mut gap: Option<Source> = None;
        while let Some(source) = sources.front_mut().filter(|_| bytes < LOAD_BYTES) {
            let follows = |gap: &Source| gap.id == source.id && gap.run.end == source.run.base;
            let joined = gap.take_if(|gap| follows(gap));
            items.extend(gap.take().map(gap_item));
            if source.run.kind == RunKind::Gap {
                let before = joined.map_or(source.run.base, |gap| gap.run.base);
                gap = Some(Source { run: Run { base: before, ..source.run }, ..*source });
                sources.pop_front();
                continue;
            }
            let number = source.run.segment;
            if opened.as_ref().is_none_or(|opened| opened.place.number != number) {
                let place = places.iter().find(|place| place.number == number);
                opened = Some(open(disk, dir, place.ok_or(CarryError::Index(number))?)?);
            }
            let Some(opened) = &opened else { break };
            let mut from = joined.map_or(source.run.base, |gap| gap.run.base);
            let entries = opened.entries(source)?;
            for entry in wanted(&entries, source.run.base, source.run.end) {
                if bytes >= LOAD_BYTES {
                    break;
                }
                bytes += entry.frame_bytes();
                items.push(opened.carry(source, from, entry)?);
                from = entry.end();
                source.run.base = from;
            }
            if source.run.base >= source.run.end
                || wanted(&entries, source.run.base, source.run.end).is_empty()
            {
                sources.pop_front();
            }
        }
        items.extend(gap.map(gap_item));
        Ok(items)
    }
}

fn gap_item(gap: Source) -> Item {
    Item {
        id: gap.id,
        segment: gap.run.segment,
        kind: RunKind::Gap,
        from: gap.run.base,
        end: gap.run.end,
        batch: None,
        source_bytes: (0, GAP_FRAME_BYTES),
    }
}

fn open<'a>(disk: &dyn Disk, dir: &Path, place: &'a Place) -> Result<Opened<'a>, CarryError> {
    let number = place.number;
    let file = disk.open(&dir.join(segment_name(number))).map_err(CarryError::io(number))?;
    let index_file = match place.index {
        Some(_) => None,
        None => Some(open_index(disk, dir, number)?),
    };
    Ok(Opened { place, file, index_file })
}

impl Opened<'_> {
    fn entries(&self, source: &Source) -> Result<Vec<BatchEntry>, CarryError> {
        let (id, base) = (source.id, source.run.base);
        if let Some((file, directory)) = &self.index_file {
            let entries = directory.entries(&**file, id, base);
            return entries.map_err(CarryError::index(self.place.number));
        }
        let index = self.place.index.as_ref();
        Ok(index.map_or(Vec::new(), |index| index.entries(id, base).to_vec()))
    }

    /// Reads one frame and makes the item that copies it.
    fn carry(&self, source: &Source, from: Offset, entry: &BatchEntry) -> Result<Item, CarryError> {
        let segment = self.place.number;
        let damaged = CarryError::Damaged { segment, at: entry.frame_start() };
        let mut bytes = vec![0; entry.frame_bytes() as usize];
        let read = read_whole(&*self.file, u64::from(entry.frame_start()), &mut bytes);
        if !read.map_err(CarryError::io(segment))? {
            return Err(damaged);
        }
        let Some(batch) = self.check(source.id, entry, &bytes) else { return Err(damaged) };
        let kind = match source.run.kind {
            RunKind::Cleaned => RunKind::Cleaned,
            _ => RunKind::Carried,
        };
        Ok(Item {
            id: source.id,
            segment,
            kind,
            from,
            end: entry.end(),
            batch: Some(batch),
            source_bytes: (u64::from(entry.batch_bytes), entry.frame_bytes()),
        })
    }

    /// The batch in a frame that is whole and what the index says it is.
    fn check(&self, id: DenseId, entry: &BatchEntry, frame: &[u8]) -> Option<Batch> {
        let (raw, payload) = frame.split_first_chunk::<FRAME_HEADER_BYTES>()?;
        let frame = FrameHeader::parse(raw)?;
        let covered = payload.get(..frame.covered_bytes())?;
        let header = BatchHeader::parse(payload).ok()?;
        let rest = payload.get(HEADER_BYTES..)?;
        let side = match frame.kind {
            Kind::Side if entry.is_in_side_file() => Some(decode_side(payload)?),
            Kind::Data if !entry.is_in_side_file() => None,
            _ => return None,
        };
        let right = frame.partition == id
            && frame.payload_bytes as usize == payload.len()
            && sum_is_right(raw, self.place.epoch, covered)
            && header.base_offset == entry.base
            && header.end_offset() == entry.end()
            && (side.is_some()
                || (header.bytes() == payload.len() && header.crc_with(rest) == header.crc));
        right.then(|| Batch {
            header,
            rest: rest.to_vec(),
            side,
            leader_epoch: frame.leader_epoch,
            append_time: frame.append_time,
        })
    }
}
