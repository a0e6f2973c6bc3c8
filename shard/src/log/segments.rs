//! The segments of a log: one open, the others sealed, oldest first.
//!
//! Knows which are warm (still mapped), what of each is alive, and which may go: the oldest are
//! removed, those between others are made hollow (see `header`). Rolling and the jobs around it are
//! decided by `Log`; this is the bookkeeping.

use super::frame::{next_page, next_slot};
use super::header::{Predecessor, SegmentHeader, SEGMENT_HEADER_BYTES};
use super::index::{IndexStamp, SegmentIndex};
use crate::disk::MapWriter;
use crate::ids::{Position, SegmentNumber, Sequence};
use crate::partition::Run;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What of a segment is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Runs of partitions that lie in it and are not below their log start.
    pub runs: u32,
    /// What their frames take.
    pub bytes: u64,
    /// How many of the runs were let go of and leave with the next checkpoint.
    pub leaving: u32,
}

impl Live {
    pub fn take(&mut self, run: &Run) {
        self.runs += 1;
        self.bytes += run.frame_bytes;
    }

    pub fn release(&mut self, run: &Run) {
        self.runs = self.runs.checked_sub(1).expect("released as often as it was used");
        self.bytes = self.bytes.saturating_sub(run.frame_bytes);
    }
}

/// The segment that takes appends.
#[derive(Debug)]
pub struct Open {
    pub header: SegmentHeader,
    pub number: SegmentNumber,
    pub epoch: u64,
    pub writer: MapWriter,
    pub index: SegmentIndex,
    /// End of the last frame.
    pub end: u32,
    /// The next frame starts on a page of its own.
    pub align_next: bool,
    pub live: Live,
    /// Bytes of the side files the segment refers to.
    pub side_bytes: u64,
    /// Bytes of frames that compaction waits for, of the broker's own partitions.
    pub to_clean_bytes: u64,
    /// Compaction waits for it to be sealed.
    pub seal_wanted: bool,
    /// Pages up to here are present or being made so.
    pub prefaulted: u32,
}

impl Open {
    /// Starts a segment: its header is stored, nothing of it is durable yet.
    pub fn start(mut writer: MapWriter, header: &SegmentHeader) -> Open {
        writer.store(0, &header.encode());
        writer.publish(super::header::FRAMES_START as usize);
        Open {
            header: *header,
            number: header.number,
            epoch: header.epoch,
            writer,
            index: SegmentIndex::default(),
            end: super::header::FRAMES_START,
            align_next: false,
            live: Live::default(),
            side_bytes: 0,
            to_clean_bytes: 0,
            seal_wanted: false,
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
            header: self.header,
            stamp: IndexStamp { number, epoch, end, next_sequence },
            writer: Some(self.writer),
            index_file: IndexFile::Missing,
            live: self.live,
            sides: self.index.sides().to_vec(),
            index: Some(Arc::new(self.index)),
            being_emptied: false,
        }
    }
}

/// A segment that is only read.
#[derive(Debug)]
pub struct Sealed {
    /// As it is in the file.
    pub header: SegmentHeader,
    pub stamp: IndexStamp,
    /// The map, while the segment is warm.
    pub writer: Option<MapWriter>,
    /// The index, until it is in a file and the segment is cold.
    pub index: Option<Arc<SegmentIndex>>,
    pub index_file: IndexFile,
    pub live: Live,
    /// Side files that go with the segment.
    pub sides: Vec<u64>,
    /// A job replaces its file by a header.
    pub being_emptied: bool,
}

impl Sealed {
    pub fn is_hollow(&self) -> bool {
        self.header.hollow.is_some()
    }

    pub fn end(&self) -> Position {
        Position { segment: self.stamp.number, offset: self.stamp.end }
    }

    pub fn bytes(&self) -> u64 {
        if self.is_hollow() {
            SEGMENT_HEADER_BYTES as u64
        } else {
            u64::from(self.stamp.end)
        }
    }

    /// Whether nobody needs it and the checkpoint starts behind it.
    fn is_dead(&self, covered: SegmentNumber) -> bool {
        self.live.runs == 0
            && self.index_file != IndexFile::BeingWritten
            && !self.being_emptied
            && self.stamp.number < covered
    }
}

/// Segments in a row whose files are to become one header.
#[derive(Debug)]
pub struct Hollowing {
    pub header: SegmentHeader,
    /// Those that go, and the last one, whose name stays.
    pub segments: Vec<SegmentNumber>,
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
        let missing = |sealed: &&mut Sealed| {
            sealed.index_file == IndexFile::Missing && !sealed.is_hollow() && !sealed.being_emptied
        };
        self.sealed.values_mut().filter(missing)
    }

    pub fn count(&self) -> usize {
        self.sealed.len()
    }

    /// Bytes of the files, without what lies behind the last frames.
    pub fn bytes(&self) -> u64 {
        self.sealed.values().map(Sealed::bytes).sum()
    }

    /// Takes the maps out of segments that lie more than `warm_bytes` behind the log's end.
    /// The map of one that is not durable to its end stays: its sync needs it.
    pub fn cool(&mut self, open_bytes: u32, warm_bytes: u64, durable: Position) -> Vec<MapWriter> {
        let mut behind = u64::from(open_bytes);
        let mut maps = Vec::new();
        for sealed in self.sealed.values_mut().rev() {
            if behind > warm_bytes && sealed.end() <= durable {
                maps.extend(sealed.writer.take());
                if sealed.index_file == IndexFile::Written {
                    sealed.index = None;
                }
            }
            behind += sealed.bytes();
        }
        maps
    }

    /// The oldest segments that no partition needs, before `covered`.
    pub fn take_dead(&mut self, covered: SegmentNumber) -> Vec<Sealed> {
        let mut dead = Vec::new();
        while let Some(entry) = self.sealed.first_entry() {
            if !entry.get().is_dead(covered) {
                break;
            }
            dead.push(entry.remove());
        }
        dead
    }

    /// The first segments in a row, not the oldest, that no partition needs and that are not hollow
    /// yet. One row at a time.
    pub fn take_hollowing(&mut self, covered: SegmentNumber) -> Option<Hollowing> {
        if self.sealed.values().any(|sealed| sealed.being_emptied) {
            return None;
        }
        let mut row: Vec<&mut Sealed> = Vec::new();
        let mut due = false;
        for sealed in self.sealed.values_mut().skip(1) {
            if sealed.is_dead(covered) {
                due |= !sealed.is_hollow();
                row.push(sealed);
            } else if due {
                break;
            } else {
                row.clear();
            }
        }
        let first = row.first().filter(|_| due)?.header;
        let last = row.last()?;
        let header = SegmentHeader {
            predecessor: first.predecessor,
            first_sequence: first.first_sequence,
            hollow: Some(last.stamp.next_sequence),
            ..last.header
        };
        let sides = row.iter().flat_map(|sealed| sealed.sides.iter().copied()).collect();
        let segments = row.iter().map(|sealed| sealed.stamp.number).collect();
        row.into_iter().for_each(|sealed| sealed.being_emptied = true);
        Some(Hollowing { header, segments, sides })
    }

    /// A row was made hollow, or stays as it is. Hands back the maps of its segments.
    pub fn hollowed(&mut self, header: &SegmentHeader, done: bool) -> Vec<MapWriter> {
        let mut maps = Vec::new();
        for sealed in self.sealed.values_mut().filter(|sealed| sealed.being_emptied) {
            if done {
                maps.extend(sealed.writer.take());
                sealed.index = None;
                sealed.sides.clear();
            }
        }
        if done {
            self.sealed.retain(|number, sealed| !sealed.being_emptied || *number == header.number);
            if let Some(last) = self.sealed.get_mut(&header.number) {
                last.header = *header;
            }
        }
        self.sealed.values_mut().for_each(|sealed| sealed.being_emptied = false);
        maps
    }
}
