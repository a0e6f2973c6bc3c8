//! The index of a segment: where each partition's batches lie in it.
//!
//! Grown in memory while the segment is open; when it is sealed a job writes it as
//! `<segment>.idx`. Readers of warm segments use the one in memory, jobs that read cold segments
//! the file, recovery its directory. It can always be made again from the segment.
//!
//! File, little endian, three parts:
//!
//! | header, 64 bytes | | directory entry, 80 bytes | | batch entry, 32 bytes | |
//! |---|---|---|---|---|---|
//! | 0..8 | magic `BASALTIX` | 0..4 | dense id | 0..8 | base offset |
//! | 8..12 | version, 1 | 4..8 | view | 8..16 | max timestamp |
//! | 12..16 | partitions | 8..24 | topic id | 16..20 | frame's place in the segment |
//! | 16..24 | segment number | 24..28 | partition index | 20..24 | batch bytes |
//! | 24..32 | segment epoch | 28..32 | batches | 24..28 | last offset delta |
//! | 32..36 | segment end | 32..40 | first batch, counted over the file | 28..32 | leader epoch |
//! | 36..40 | side files | 40..48 | base offset | | |
//! | 40..48 | batches | 48..56 | end offset | | |
//! | 48..56 | next sequence | 56..64 | max timestamp | | |
//! | 56..60 | CRC-32C of the directory | 64..72 | batch bytes | | |
//! | 60..64 | CRC-32C of bytes 0..60 | 72..76 | CRC-32C of its batch entries | | |
//! | | | 76..80 | 0 | | |
//!
//! Behind the batch entries: the number of each side file the segment refers to (8), then the
//! CRC-32C of these numbers (4). The lowest bit of a frame's place says that the batch is in one.

use super::header::FILE_NUMBERS_END;
use crate::disk::ReadFile;
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, SegmentNumber};
use crate::ids::{Sequence, Timestamp};
use crc_fast::{checksum, CrcAlgorithm};
use rustc_hash::FxHashMap;
use std::io;
use uuid::Uuid;

const MAGIC: [u8; 8] = *b"BASALTIX";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const DIRECTORY_BYTES: usize = 80;
const ENTRY_BYTES: usize = 32;

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
}

/// What a segment holds of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub dense: DenseId,
    pub key: PartitionKey,
    pub base: Offset,
    pub end: Offset,
    pub max_timestamp: Timestamp,
    pub batch_bytes: u64,
}

/// The batches of one partition in a segment, in offset order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionIndex {
    pub key: PartitionKey,
    pub entries: Vec<BatchEntry>,
}

impl PartitionIndex {
    pub fn summary(&self, dense: DenseId) -> Option<Summary> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        Some(Summary {
            dense,
            key: self.key,
            base: first.base,
            end: last.end(),
            max_timestamp: self.entries.iter().map(|e| e.max_timestamp).max()?,
            batch_bytes: self.entries.iter().map(|e| u64::from(e.batch_bytes)).sum(),
        })
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

    pub fn bind(&mut self, dense: DenseId, key: PartitionKey) {
        self.partitions.entry(dense).or_insert(PartitionIndex { key, entries: Vec::new() });
    }

    /// Adds a batch of a bound partition; its base offset is past all others of that partition.
    pub fn push(&mut self, dense: DenseId, entry: BatchEntry) {
        let index = self.partitions.get_mut(&dense).expect("bound before the first batch");
        if let Some(last) = index.entries.last() {
            assert!(last.end() <= entry.base, "batches of a partition ascend");
        }
        index.entries.push(entry);
    }

    pub fn push_side(&mut self, file: u64) {
        self.sides.push(file);
    }

    pub fn sides(&self) -> &[u64] {
        &self.sides
    }

    pub fn entries(&self, dense: DenseId) -> &[BatchEntry] {
        self.partitions.get(&dense).map_or(&[], |index| &index.entries)
    }

    /// The partitions with at least one batch, by dense id.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut all: Vec<Summary> =
            self.partitions.iter().filter_map(|(&dense, index)| index.summary(dense)).collect();
        all.sort_by_key(|summary| summary.dense);
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
            let batches = self.entries(summary.dense);
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

/// Why an index file cannot be used; the segment is then scanned instead.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("reading the index: {0}")]
    Io(#[from] io::Error),
    #[error("the index is cut short, damaged or of another segment")]
    Damaged,
}

/// The directory of an index file, read and checked.
#[derive(Debug)]
pub struct Directory {
    pub stamp: IndexStamp,
    pub sides: Vec<u64>,
    records: Vec<DirectoryRecord>,
}

#[derive(Clone, Copy, Debug)]
struct DirectoryRecord {
    summary: Summary,
    batches: u32,
    first: u64,
    sum: u32,
}

impl Directory {
    pub fn read(file: &dyn ReadFile) -> Result<Directory, IndexError> {
        let head = read_exact(file, 0, HEADER_BYTES)?;
        let head: &[u8; HEADER_BYTES] =
            head.as_slice().try_into().map_err(|_| IndexError::Damaged)?;
        let right = head[0..8] == MAGIC
            && u32::from_le_bytes(field(head, 8)) == VERSION
            && u32::from_le_bytes(field(head, 60)) == crc(&head[..60]);
        if !right {
            return Err(IndexError::Damaged);
        }
        let count = u32::from_le_bytes(field(head, 12)) as usize;
        let bytes = read_exact(file, HEADER_BYTES as u64, count * DIRECTORY_BYTES)?;
        if crc(&bytes) != u32::from_le_bytes(field(head, 56)) {
            return Err(IndexError::Damaged);
        }
        let records = bytes.as_chunks::<DIRECTORY_BYTES>().0.iter().map(decode_directory).collect();
        let stamp = IndexStamp {
            number: SegmentNumber(u64::from_le_bytes(field(head, 16))),
            epoch: u64::from_le_bytes(field(head, 24)),
            end: u32::from_le_bytes(field(head, 32)),
            next_sequence: Sequence(u64::from_le_bytes(field(head, 48))),
        };
        let batches = u64::from_le_bytes(field(head, 40));
        let behind = (batches.checked_mul(ENTRY_BYTES as u64))
            .and_then(|entries| entries.checked_add((HEADER_BYTES + bytes.len()) as u64))
            .ok_or(IndexError::Damaged)?;
        let sides = read_sides(file, behind, u32::from_le_bytes(field(head, 36)))?;
        Ok(Directory { stamp, sides, records })
    }

    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.records.iter().map(|record| &record.summary)
    }

    /// The batches of one partition, empty when it has none here.
    pub fn entries(
        &self,
        file: &dyn ReadFile,
        dense: DenseId,
    ) -> Result<Vec<BatchEntry>, IndexError> {
        let found = self.records.binary_search_by_key(&dense, |record| record.summary.dense);
        let Some(record) = found.ok().and_then(|at| self.records.get(at)) else {
            return Ok(Vec::new());
        };
        let start = HEADER_BYTES + self.records.len() * DIRECTORY_BYTES;
        let at = start as u64 + record.first * ENTRY_BYTES as u64;
        let bytes = read_exact(file, at, record.batches as usize * ENTRY_BYTES)?;
        if crc(&bytes) != record.sum {
            return Err(IndexError::Damaged);
        }
        Ok(bytes.as_chunks::<ENTRY_BYTES>().0.iter().map(decode_entry).collect())
    }
}

fn read_sides(file: &dyn ReadFile, at: u64, count: u32) -> Result<Vec<u64>, IndexError> {
    let bytes = read_exact(file, at, count as usize * 8 + 4)?;
    let (numbers, sum) = bytes.split_last_chunk::<4>().ok_or(IndexError::Damaged)?;
    if crc(numbers) != u32::from_le_bytes(*sum) {
        return Err(IndexError::Damaged);
    }
    let numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let sane = |file: u64| (file < FILE_NUMBERS_END).then_some(file).ok_or(IndexError::Damaged);
    numbers.map(sane).collect()
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
    out.extend([0; 4]);
}

fn decode_directory(bytes: &[u8; DIRECTORY_BYTES]) -> DirectoryRecord {
    DirectoryRecord {
        summary: Summary {
            dense: DenseId(u32::from_le_bytes(field(bytes, 0))),
            key: PartitionKey {
                view: u32::from_le_bytes(field(bytes, 4)),
                topic: Uuid::from_bytes(field(bytes, 8)),
                partition: i32::from_le_bytes(field(bytes, 24)),
            },
            base: Offset(i64::from_le_bytes(field(bytes, 40))),
            end: Offset(i64::from_le_bytes(field(bytes, 48))),
            max_timestamp: Timestamp(i64::from_le_bytes(field(bytes, 56))),
            batch_bytes: u64::from_le_bytes(field(bytes, 64)),
        },
        batches: u32::from_le_bytes(field(bytes, 28)),
        first: u64::from_le_bytes(field(bytes, 32)),
        sum: u32::from_le_bytes(field(bytes, 72)),
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

fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> BatchEntry {
    BatchEntry {
        base: Offset(i64::from_le_bytes(field(bytes, 0))),
        max_timestamp: Timestamp(i64::from_le_bytes(field(bytes, 8))),
        frame_at: u32::from_le_bytes(field(bytes, 16)),
        batch_bytes: u32::from_le_bytes(field(bytes, 20)),
        last_delta: u32::from_le_bytes(field(bytes, 24)),
        leader_epoch: LeaderEpoch(i32::from_le_bytes(field(bytes, 28))),
    }
}

fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn field<const N: usize, const L: usize>(bytes: &[u8; L], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Reads `count` bytes, refusing before it allocates what the file cannot hold.
fn read_exact(file: &dyn ReadFile, at: u64, count: usize) -> Result<Vec<u8>, IndexError> {
    let end = at.checked_add(count as u64).ok_or(IndexError::Damaged)?;
    if end > file.len()? {
        return Err(IndexError::Damaged);
    }
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count {
        let read = file.read_at(at + done as u64, &mut bytes[done..])?;
        if read == 0 {
            return Err(IndexError::Damaged);
        }
        done += read;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u8>);

    impl ReadFile for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let from = &self.0[(offset as usize).min(self.0.len())..];
            let count = from.len().min(into.len());
            into[..count].copy_from_slice(&from[..count]);
            Ok(count)
        }
    }

    fn entry(base: i64, frame_at: u32) -> BatchEntry {
        BatchEntry {
            base: Offset(base),
            max_timestamp: Timestamp(1000 - base),
            frame_at,
            batch_bytes: 100,
            last_delta: 4,
            leader_epoch: LeaderEpoch(1),
        }
    }

    fn sample() -> (SegmentIndex, IndexStamp) {
        let mut index = SegmentIndex::default();
        for dense in [3, 1, 2] {
            let key = PartitionKey { view: 0, topic: Uuid::from_u128(9), partition: dense as i32 };
            index.bind(DenseId(dense), key);
        }
        index.push(DenseId(3), entry(10, 4096));
        index.push(DenseId(3), entry(15, 4300));
        index.push(DenseId(1), entry(0, 4504).in_side_file());
        index.push_side(77);
        let (number, next_sequence) = (SegmentNumber(4), Sequence(11));
        (index, IndexStamp { number, epoch: 8, end: 9000, next_sequence })
    }

    #[test]
    fn a_file_gives_back_what_was_put_in() {
        let (index, stamp) = sample();
        let file = Memory(index.encode(&stamp));
        let directory = Directory::read(&file).unwrap();
        assert_eq!((directory.stamp, &directory.sides[..]), (stamp, &[77][..]));
        assert_eq!(directory.summaries().copied().collect::<Vec<_>>(), index.summaries());
        assert_eq!(index.summaries().len(), 2, "bound without a batch is not listed");
        let got = directory.entries(&file, DenseId(3)).unwrap();
        assert_eq!(got, index.entries(DenseId(3)));
        assert_eq!(index.summaries()[1].max_timestamp, Timestamp(990));
        assert!(directory.entries(&file, DenseId(2)).unwrap().is_empty());
    }

    #[test]
    fn damage_and_cuts_are_refused() {
        let (index, stamp) = sample();
        let whole = index.encode(&stamp);
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            assert!(!reads_clean(&Memory(bent)), "byte {at}");
            assert!(!reads_clean(&Memory(whole[..at].to_vec())), "cut at {at}");
        }
    }

    fn reads_clean(file: &Memory) -> bool {
        let Ok(directory) = Directory::read(file) else {
            return false;
        };
        [1, 3].iter().all(|&dense| directory.entries(file, DenseId(dense)).is_ok())
    }
}
