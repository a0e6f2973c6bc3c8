//! The segments of a log: one open, the others sealed, oldest first.
//!
//! Knows which are warm (still mapped), which partitions keep one alive, and which may go. Rolling
//! and the jobs around it are decided by `Log`; this is the bookkeeping.

use super::frame::{next_page, next_slot};
use super::header::{Predecessor, SegmentHeader};
use super::index::{IndexStamp, SegmentIndex};
use crate::disk::MapWriter;
use crate::ids::{Position, SegmentNumber, Sequence};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The segment that takes appends.
#[derive(Debug)]
pub struct Open {
    pub number: SegmentNumber,
    pub epoch: u64,
    pub writer: MapWriter,
    pub index: SegmentIndex,
    /// End of the last frame.
    pub end: u32,
    /// The next frame starts on a page of its own.
    pub align_next: bool,
    /// Partitions with batches here that are not below their log start.
    pub live: u32,
    /// Bytes of the side files the segment refers to.
    pub side_bytes: u64,
    /// Pages up to here are present or being made so.
    pub prefaulted: u32,
}

impl Open {
    /// Starts a segment: its header is stored, nothing of it is durable yet.
    pub fn start(mut writer: MapWriter, header: &SegmentHeader) -> Open {
        writer.store(0, &header.encode());
        writer.publish(super::header::FRAMES_START as usize);
        Open {
            number: header.number,
            epoch: header.epoch,
            writer,
            index: SegmentIndex::default(),
            end: super::header::FRAMES_START,
            align_next: false,
            live: 0,
            side_bytes: 0,
            prefaulted: 0,
        }
    }

    pub fn capacity(&self) -> u32 {
        u32::try_from(self.writer.map().bytes()).expect("segments are below 4 GiB")
    }

    /// How full the segment counts as. Side files weigh a quarter: a segment goes with all of its
    /// own, so they must not pile up behind one, nor leave it nearly empty.
    pub fn filled(&self) -> u64 {
        u64::from(self.end) + self.side_bytes / 4
    }

    /// Where the next frame starts.
    pub fn next_at(&self) -> u32 {
        if self.align_next {
            next_page(self.end)
        } else {
            next_slot(self.end)
        }
    }

    pub fn position(&self) -> Position {
        Position { segment: self.number, offset: self.end }
    }

    pub fn as_predecessor(&self) -> Predecessor {
        Predecessor { number: self.number, epoch: self.epoch, end: self.end }
    }

    /// Nothing is appended any more.
    pub fn seal(self, next_sequence: Sequence) -> Sealed {
        let (number, epoch, end) = (self.number, self.epoch, self.end);
        Sealed {
            stamp: IndexStamp { number, epoch, end, next_sequence },
            writer: Some(self.writer),
            index_file: IndexFile::Missing,
            live: self.live,
            sides: self.index.sides().to_vec(),
            index: Some(Arc::new(self.index)),
        }
    }
}

/// A segment that is only read.
#[derive(Debug)]
pub struct Sealed {
    pub stamp: IndexStamp,
    /// The map, while the segment is warm.
    pub writer: Option<MapWriter>,
    /// The index, until it is in a file and the segment is cold.
    pub index: Option<Arc<SegmentIndex>>,
    pub index_file: IndexFile,
    pub live: u32,
    /// Side files that go with the segment.
    pub sides: Vec<u64>,
}

/// Where the index file of a sealed segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFile {
    Missing,
    BeingWritten,
    Written,
}

/// All sealed segments of a log.
#[derive(Debug, Default)]
pub struct Segments {
    sealed: BTreeMap<SegmentNumber, Sealed>,
}

impl Segments {
    pub fn add(&mut self, sealed: Sealed) {
        let before = self.sealed.insert(sealed.stamp.number, sealed);
        assert!(before.is_none(), "a segment number is used once");
    }

    pub fn get(&self, number: SegmentNumber) -> Option<&Sealed> {
        self.sealed.get(&number)
    }

    pub fn get_mut(&mut self, number: SegmentNumber) -> Option<&mut Sealed> {
        self.sealed.get_mut(&number)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Sealed> {
        self.sealed.values()
    }

    /// Those whose index has to be written.
    pub fn without_index_file(&mut self) -> impl Iterator<Item = &mut Sealed> {
        self.sealed.values_mut().filter(|sealed| sealed.index_file == IndexFile::Missing)
    }

    pub fn count(&self) -> usize {
        self.sealed.len()
    }

    /// Bytes of the files, without what lies behind the last frames.
    pub fn bytes(&self) -> u64 {
        self.sealed.values().map(|sealed| u64::from(sealed.stamp.end)).sum()
    }

    /// Takes the maps out of segments that lie more than `warm_bytes` behind the log's end.
    /// The map of one that is not durable to its end stays: its sync needs it.
    pub fn cool(&mut self, open_bytes: u32, warm_bytes: u64, durable: Position) -> Vec<MapWriter> {
        let mut behind = u64::from(open_bytes);
        let mut maps = Vec::new();
        for sealed in self.sealed.values_mut().rev() {
            let end = Position { segment: sealed.stamp.number, offset: sealed.stamp.end };
            if behind > warm_bytes && end <= durable {
                maps.extend(sealed.writer.take());
                if sealed.index_file == IndexFile::Written {
                    sealed.index = None;
                }
            }
            behind += u64::from(sealed.stamp.end);
        }
        maps
    }

    /// The oldest segments that no partition needs, before `covered`.
    pub fn take_dead(&mut self, covered: SegmentNumber) -> Vec<Sealed> {
        let mut dead = Vec::new();
        while let Some(entry) = self.sealed.first_entry() {
            let segment = entry.get();
            let goes = segment.live == 0
                && segment.index_file != IndexFile::BeingWritten
                && *entry.key() < covered;
            if !goes {
                break;
            }
            dead.push(entry.remove());
        }
        dead
    }
}
