//! Reading an index file: its stretches first, the batches of one when they are asked for.
//!
//! The bytes are described in `index`. Everything read is checked by its sum and its bounds: an
//! index that is not what it should be is made again from its segment, never trusted.

use super::header::FILE_NUMBERS_END;
use super::index::{crc, BatchEntry, IndexStamp, Summary};
use super::index::{DIRECTORY_BYTES, ENTRY_BYTES, HEADER_BYTES, MAGIC, VERSION};
use crate::disk::ReadFile;
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, SegmentNumber};
use crate::ids::{Sequence, Timestamp};
use crate::partition::RunKind;
use std::io;
use uuid::Uuid;

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

impl DirectoryRecord {
    /// Whether the next one may be `other`: sorted, and without an overlap.
    fn is_before(&self, other: &DirectoryRecord) -> bool {
        let (one, two) = (&self.summary, &other.summary);
        one.dense < two.dense || (one.dense == two.dense && one.end <= two.base)
    }
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
        let records = bytes.as_chunks::<DIRECTORY_BYTES>().0.iter().map(decode_directory);
        let records: Vec<_> = records.collect::<Option<_>>().ok_or(IndexError::Damaged)?;
        if !records.is_sorted_by(|a, b| a.is_before(b)) {
            return Err(IndexError::Damaged);
        }
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

    /// The batches of the stretch of one partition that `offset` is in.
    pub fn entries(
        &self,
        file: &dyn ReadFile,
        dense: DenseId,
        offset: Offset,
    ) -> Result<Vec<BatchEntry>, IndexError> {
        let before = |record: &DirectoryRecord| {
            let summary = &record.summary;
            (summary.dense, summary.end) <= (dense, offset)
        };
        let at = self.records.partition_point(before);
        let holds = |record: &&DirectoryRecord| {
            record.summary.dense == dense && record.summary.base <= offset
        };
        let Some(record) = self.records.get(at).filter(holds) else {
            return Ok(Vec::new());
        };
        let start = HEADER_BYTES + self.records.len() * DIRECTORY_BYTES;
        let at = start as u64 + record.first.saturating_mul(ENTRY_BYTES as u64);
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

/// None for a kind that is not known, and for a range that ends before it begins.
fn decode_directory(bytes: &[u8; DIRECTORY_BYTES]) -> Option<DirectoryRecord> {
    let summary = Summary {
        dense: DenseId(u32::from_le_bytes(field(bytes, 0))),
        key: PartitionKey {
            view: u32::from_le_bytes(field(bytes, 4)),
            topic: Uuid::from_bytes(field(bytes, 8)),
            partition: i32::from_le_bytes(field(bytes, 24)),
        },
        kind: match u32::from_le_bytes(field(bytes, 76)) {
            0 => None,
            1 => Some(RunKind::Appended),
            2 => Some(RunKind::Carried),
            3 => Some(RunKind::Cleaned),
            4 => Some(RunKind::Gap),
            _ => return None,
        },
        base: Offset(i64::from_le_bytes(field(bytes, 40))),
        end: Offset(i64::from_le_bytes(field(bytes, 48))),
        max_timestamp: Timestamp(i64::from_le_bytes(field(bytes, 56))),
        batch_bytes: u64::from_le_bytes(field(bytes, 64)),
        frame_bytes: u64::from_le_bytes(field(bytes, 80)),
    };
    let whole =
        summary.base < summary.end || (summary.kind.is_none() && summary.base == summary.end);
    whole.then_some(DirectoryRecord {
        summary,
        batches: u32::from_le_bytes(field(bytes, 28)),
        first: u64::from_le_bytes(field(bytes, 32)),
        sum: u32::from_le_bytes(field(bytes, 72)),
    })
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
