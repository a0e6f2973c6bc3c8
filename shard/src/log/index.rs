//! The index of a segment: where each partition's batches lie in it.
//!
//! Grown in memory while the segment is open; when it is sealed a job writes it as
//! `<segment>.idx`. Readers of warm segments use the one in memory, jobs that read cold segments
//! the file, recovery its directory. It can always be made again from the segment.
//!
//! The batches of a partition are in *stretches*: those appended here are one; those carried here
//! from older segments are others, each for a range of offsets that had been one run. Stretches of
//! a partition do not overlap. A gap stands for a range of which no batch is left.
//!
//! File, little endian, three parts:
//!
//! | header, 64 bytes | | stretch, 88 bytes | | batch entry, 32 bytes | |
//! |---|---|---|---|---|---|
//! | 0..8 | magic `BASALTIX` | 0..4 | dense id | 0..8 | base offset |
//! | 8..12 | version, 2 | 4..8 | view | 8..16 | max timestamp |
//! | 12..16 | stretches | 8..24 | topic id | 16..20 | frame's place in the segment |
//! | 16..24 | segment number | 24..28 | partition index | 20..24 | batch bytes |
//! | 24..32 | segment epoch | 28..32 | batches | 24..28 | last offset delta |
//! | 32..36 | segment end | 32..40 | first batch, counted over the file | 28..32 | leader epoch |
//! | 36..40 | side files | 40..48 | base offset of the range | | |
//! | 40..48 | batches | 48..56 | end offset of the range | | |
//! | 48..56 | next sequence | 56..64 | max timestamp | | |
//! | 56..60 | CRC-32C of the stretches | 64..72 | batch bytes | | |
//! | 60..64 | CRC-32C of bytes 0..60 | 72..76 | CRC-32C of its batch entries | | |
//! | | | 76..80 | 0 bound only, 1 appended, 2 carried, 3 cleaned, 4 gap | | |
//! | | | 80..88 | bytes of its frames | | |
//!
//! Stretches are sorted by dense id and base. A partition that is bound and has no batch is listed
//! too: the frames of a deleted topic are found by it. Version 1 had no stretches; such a file is
//! made anew from its segment.
//!
//! Behind the batch entries: the number of each side file the segment refers to (8), then the
//! CRC-32C of these numbers (4). The lowest bit of a frame's place says that the batch is in one.

use super::frame::{FRAME_HEADER_BYTES, SIDE_BYTES};
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, SegmentNumber};
use crate::ids::{Sequence, Timestamp};
use crate::partition::{Run, RunKind};
use crc_fast::{checksum, CrcAlgorithm};
use rustc_hash::FxHashMap;

pub(super) const MAGIC: [u8; 8] = *b"BASALTIX";
pub(super) const VERSION: u32 = 2;
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const DIRECTORY_BYTES: usize = 88;
pub(super) const ENTRY_BYTES: usize = 32;

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry {
    pub base: Offset,
    pub max_timestamp: Timestamp,
    /// Where its frame starts in the segment; with `IN_SIDE_FILE` the batch is not in the frame.
    pub frame_at: u32,
    pub batch_bytes: u32,
    pub last_delta: u32,
    pub leader_epoch: LeaderEpoch,
}

/// Frames start on 8-byte slots, so the bit is free.
const IN_SIDE_FILE: u32 = 1;

impl BatchEntry {
    /// Says that the batch is in a side file.
    pub fn in_side_file(self) -> BatchEntry {
        BatchEntry { frame_at: self.frame_at | IN_SIDE_FILE, ..self }
    }

    pub fn is_in_side_file(&self) -> bool {
        self.frame_at & IN_SIDE_FILE != 0
    }

    /// Where its frame starts in the segment.
    pub fn frame_start(&self) -> u32 {
        self.frame_at & !IN_SIDE_FILE
    }

    /// The offset after the batch's last.
    pub fn end(&self) -> Offset {
        self.base.plus(i64::from(self.last_delta) + 1)
    }

    /// What its frame takes in the segment.
    pub fn frame_bytes(&self) -> u64 {
        let payload = if self.is_in_side_file() { SIDE_BYTES } else { self.batch_bytes as usize };
        (FRAME_HEADER_BYTES + payload) as u64
    }
}

/// What a segment holds of one partition in one range of its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub dense: DenseId,
    pub key: PartitionKey,
    /// None: the partition is bound here and has no batch.
    pub kind: Option<RunKind>,
    pub base: Offset,
    pub end: Offset,
    pub max_timestamp: Timestamp,
    pub batch_bytes: u64,
    pub frame_bytes: u64,
}

impl Summary {
    /// The stretch as a run of its partition.
    pub fn as_run(&self, segment: SegmentNumber) -> Option<Run> {
        Some(Run {
            segment,
            kind: self.kind?,
            base: self.base,
            end: self.end,
            max_timestamp: self.max_timestamp,
            batch_bytes: self.batch_bytes,
            frame_bytes: self.frame_bytes,
            exact: true,
        })
    }
}

/// What a gap frame takes.
pub const GAP_FRAME_BYTES: u64 = (FRAME_HEADER_BYTES + super::frame::GAP_BYTES) as u64;

/// Batches of one partition that stand for a range of its offsets, in offset order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub kind: RunKind,
    pub base: Offset,
    pub end: Offset,
    pub entries: Vec<BatchEntry>,
}

/// What a segment holds of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionIndex {
    pub key: PartitionKey,
    /// By their base; what was appended here is the last.
    stretches: Vec<Stretch>,
}

impl PartitionIndex {
    fn summary(&self, dense: DenseId, stretch: &Stretch) -> Summary {
        let entries = &stretch.entries;
        let gap = if stretch.kind == RunKind::Gap { GAP_FRAME_BYTES } else { 0 };
        Summary {
            dense,
            key: self.key,
            kind: Some(stretch.kind),
            base: stretch.base,
            end: stretch.end,
            max_timestamp: entries.iter().map(|e| e.max_timestamp).max().unwrap_or(Timestamp(-1)),
            batch_bytes: entries.iter().map(|e| u64::from(e.batch_bytes)).sum(),
            frame_bytes: entries.iter().map(BatchEntry::frame_bytes).sum::<u64>() + gap,
        }
    }

    fn bound_only(&self, dense: DenseId) -> Summary {
        Summary {
            dense,
            key: self.key,
            kind: None,
            base: Offset(0),
            end: Offset(0),
            max_timestamp: Timestamp(-1),
            batch_bytes: 0,
            frame_bytes: 0,
        }
    }

    /// Where a stretch that begins at `base` is or would be.
    fn place(&self, base: Offset) -> usize {
        self.stretches.partition_point(|stretch| stretch.base < base)
    }
}

/// The index of one segment.
#[derive(Clone, Debug, Default)]
pub struct SegmentIndex {
    partitions: FxHashMap<DenseId, PartitionIndex>,
    /// Numbers of the side files that frames of this segment stand for.
    sides: Vec<u64>,
}

impl SegmentIndex {
    /// Whether the partition has been bound in this segment.
    pub fn is_bound(&self, dense: DenseId) -> bool {
        self.partitions.contains_key(&dense)
    }

    /// Whether no partition has been bound.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    pub fn bind(&mut self, dense: DenseId, key: PartitionKey) {
        self.partitions.entry(dense).or_insert(PartitionIndex { key, stretches: Vec::new() });
    }

    /// Adds a batch of a bound partition; its base offset is past all others of that partition.
    pub fn push(&mut self, dense: DenseId, entry: BatchEntry) {
        let index = self.partitions.get_mut(&dense).expect("bound before the first batch");
        if let Some(last) = index.stretches.last_mut() {
            assert!(last.end <= entry.base, "batches of a partition ascend");
            if last.kind == RunKind::Appended {
                last.end = entry.end();
                last.entries.push(entry);
                return;
            }
        }
        index.stretches.push(Stretch {
            kind: RunKind::Appended,
            base: entry.base,
            end: entry.end(),
            entries: vec![entry],
        });
    }

    /// Adds a batch that was carried here and stands for the offsets since `from`.
    pub fn carry(&mut self, dense: DenseId, from: Offset, entry: BatchEntry, kind: RunKind) {
        let index = self.partitions.get_mut(&dense).expect("bound before the first batch");
        let at = index.place(from);
        let before = at.checked_sub(1).and_then(|before| index.stretches.get_mut(before));
        match before.filter(|before| before.kind == kind && before.end == from) {
            Some(before) => {
                before.end = entry.end();
                before.entries.push(entry);
            }
            None => {
                let end = entry.end();
                index.stretches.insert(at, Stretch { kind, base: from, end, entries: vec![entry] });
            }
        }
    }

    /// Nothing is left of a range.
    pub fn gap(&mut self, dense: DenseId, base: Offset, end: Offset) {
        let index = self.partitions.get_mut(&dense).expect("bound before the first batch");
        let at = index.place(base);
        let gap = Stretch { kind: RunKind::Gap, base, end, entries: Vec::new() };
        index.stretches.insert(at, gap);
    }

    pub fn push_side(&mut self, file: u64) {
        self.sides.push(file);
    }

    pub fn sides(&self) -> &[u64] {
        &self.sides
    }

    /// The batches of the stretch that `offset` is in.
    pub fn entries(&self, dense: DenseId, offset: Offset) -> &[BatchEntry] {
        let Some(index) = self.partitions.get(&dense) else { return &[] };
        let at = index.stretches.partition_point(|stretch| stretch.end <= offset);
        let found = index.stretches.get(at).filter(|stretch| stretch.base <= offset);
        found.map_or(&[], |stretch| &stretch.entries)
    }

    /// All stretches and the partitions without one, by dense id and base.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut all = Vec::with_capacity(self.partitions.len());
        for (&dense, index) in &self.partitions {
            if index.stretches.is_empty() {
                all.push(index.bound_only(dense));
            }
            all.extend(index.stretches.iter().map(|stretch| index.summary(dense, stretch)));
        }
        all.sort_by_key(|summary| (summary.dense, summary.base));
        all
    }

    /// The bytes of the index file.
    pub fn encode(&self, stamp: &IndexStamp) -> Vec<u8> {
        let summaries = self.summaries();
        let mut directory = Vec::with_capacity(summaries.len() * DIRECTORY_BYTES);
        let mut entries = Vec::new();
        for summary in &summaries {
            let first = (entries.len() / ENTRY_BYTES) as u64;
            let from = entries.len();
            let batches = match summary.kind {
                Some(_) => self.entries(summary.dense, summary.base),
                None => &[],
            };
            for entry in batches {
                encode_entry(entry, &mut entries);
            }
            let sum = crc(&entries[from..]);
            encode_directory(summary, (batches.len() as u32, first, sum), &mut directory);
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + directory.len() + entries.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((summaries.len() as u32).to_le_bytes());
        out.extend(stamp.number.0.to_le_bytes());
        out.extend(stamp.epoch.to_le_bytes());
        out.extend(stamp.end.to_le_bytes());
        out.extend((self.sides.len() as u32).to_le_bytes());
        out.extend(((entries.len() / ENTRY_BYTES) as u64).to_le_bytes());
        out.extend(stamp.next_sequence.0.to_le_bytes());
        out.extend(crc(&directory).to_le_bytes());
        let sum = crc(&out);
        out.extend(sum.to_le_bytes());
        out.extend(directory);
        out.extend(entries);
        let sides: Vec<u8> = self.sides.iter().flat_map(|file| file.to_le_bytes()).collect();
        out.extend(&sides);
        out.extend(crc(&sides).to_le_bytes());
        out
    }
}

/// Which segment an index file belongs to, and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexStamp {
    pub number: SegmentNumber,
    pub epoch: u64,
    pub end: u32,
    pub next_sequence: Sequence,
}

fn encode_directory(summary: &Summary, (batches, first, sum): (u32, u64, u32), out: &mut Vec<u8>) {
    out.extend(summary.dense.0.to_le_bytes());
    out.extend(summary.key.view.to_le_bytes());
    out.extend(summary.key.topic.as_bytes());
    out.extend(summary.key.partition.to_le_bytes());
    out.extend(batches.to_le_bytes());
    out.extend(first.to_le_bytes());
    out.extend(summary.base.0.to_le_bytes());
    out.extend(summary.end.0.to_le_bytes());
    out.extend(summary.max_timestamp.0.to_le_bytes());
    out.extend(summary.batch_bytes.to_le_bytes());
    out.extend(sum.to_le_bytes());
    out.extend(kind_code(summary.kind).to_le_bytes());
    out.extend(summary.frame_bytes.to_le_bytes());
}

fn kind_code(kind: Option<RunKind>) -> u32 {
    match kind {
        None => 0,
        Some(RunKind::Appended) => 1,
        Some(RunKind::Carried) => 2,
        Some(RunKind::Cleaned) => 3,
        Some(RunKind::Gap) => 4,
    }
}

fn encode_entry(entry: &BatchEntry, out: &mut Vec<u8>) {
    out.extend(entry.base.0.to_le_bytes());
    out.extend(entry.max_timestamp.0.to_le_bytes());
    out.extend(entry.frame_at.to_le_bytes());
    out.extend(entry.batch_bytes.to_le_bytes());
    out.extend(entry.last_delta.to_le_bytes());
    out.extend(entry.leader_epoch.0.to_le_bytes());
}

pub(super) fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests;
