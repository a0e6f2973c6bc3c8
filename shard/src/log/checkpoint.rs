//! Checkpoint files: the state of partitions as of a position of the log.
//!
//! Taken at a seal, in slices, on the core; written by a job once everything they saw is durable;
//! read by recovery, which then replays only what lies behind them. A *base* holds every partition,
//! a *delta* those touched since the file before it. Each entry has its own as-of position: a frame
//! in front of it is already in the entry.
//!
//! File, little endian. Name: `checkpoint-` and the id in 20 digits.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `BASALTCP` |
//! | 8..12 | version, 2 |
//! | 12..16 | log id |
//! | 16..24 | id of this file |
//! | 24..32 | id of the file it is a delta to, 0 for a base |
//! | 32..40, 40..44 | segment and offset from which frames are replayed; all before is durable |
//! | 44..48 | number of entries |
//! | 48..52 | next dense id |
//! | 52..56 | CRC-32C of what follows the header |
//! | 56..60 | CRC-32C of bytes 0..56 |
//! | 60..64 | 0 |
//!
//! Entry: dense id (4), view (4), topic id (16), partition index (4), flags (4: bit 0 = detached),
//! as-of segment (8) and offset (4), last-frame segment (8) and offset (4), log start (8), hot
//! start (8), log end (8), then epoch history and producers, each a length (4) and that many bytes.
//! Version 1 has no hot start: it is the log start.

use super::effect::DENSE_END;
use super::header::parse_number;
use crate::batch::crc32c;
use crate::disk::cursor::{Cursor, Ended};
use crate::ids::{DenseId, LogId, Offset, PartitionKey, Position, SegmentNumber};
use uuid::Uuid;

const MAGIC: [u8; 8] = *b"BASALTCP";
const VERSION: u32 = 2;
/// The one that knew nothing of tables.
const VERSION_WITHOUT_HOT_START: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES_MIN: usize = 80;
const DETACHED: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    pub log: LogId,
    pub id: u64,
    /// The file this one is a delta to; `None` for a base.
    pub delta_to: Option<u64>,
    /// Frames from here on are replayed over the entries.
    pub covered: Position,
    pub next_dense: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub dense: DenseId,
    pub key: PartitionKey,
    pub detached: bool,
    pub as_of: Position,
    pub last_position: Position,
    pub log_start: Offset,
    /// What is below it the log has let go of.
    pub hot_start: Offset,
    pub log_end: Offset,
    pub epochs: Vec<u8>,
    pub producers: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub header: CheckpointHeader,
    pub entries: Vec<CheckpointEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint is cut short, damaged or of a newer version")]
pub struct CheckpointDamaged;

impl CheckpointEntry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.dense.0.to_le_bytes());
        out.extend(self.key.view.to_le_bytes());
        out.extend(self.key.topic.as_bytes());
        out.extend(self.key.partition.to_le_bytes());
        out.extend((if self.detached { DETACHED } else { 0 }).to_le_bytes());
        for position in [self.as_of, self.last_position] {
            out.extend(position.segment.0.to_le_bytes());
            out.extend(position.offset.to_le_bytes());
        }
        out.extend(self.log_start.0.to_le_bytes());
        out.extend(self.hot_start.0.to_le_bytes());
        out.extend(self.log_end.0.to_le_bytes());
        for bytes in [&self.epochs, &self.producers] {
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
    }
}

/// The bytes of a checkpoint file whose `count` entries are encoded in `entries`.
pub fn encode(header: &CheckpointHeader, count: u32, entries: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + entries.len());
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(header.log.0.to_le_bytes());
    out.extend(header.id.to_le_bytes());
    out.extend(header.delta_to.unwrap_or(0).to_le_bytes());
    out.extend(header.covered.segment.0.to_le_bytes());
    out.extend(header.covered.offset.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(header.next_dense.to_le_bytes());
    out.extend(crc32c(&[entries]).to_le_bytes());
    let sum = crc32c(&[&out]);
    out.extend(sum.to_le_bytes());
    out.extend([0; 4]);
    out.extend(entries);
    out
}

pub fn decode(bytes: &[u8]) -> Result<Checkpoint, CheckpointDamaged> {
    let (head, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(CheckpointDamaged)?;
    let (summed, sum) = head.split_at_checked(56).ok_or(CheckpointDamaged)?;
    let mut sum = Cursor { rest: sum };
    let mut from = Cursor { rest: summed };
    let is_ours = from.array::<8>()? == MAGIC;
    let version = from.u32()?;
    let right = is_ours
        && (VERSION_WITHOUT_HOT_START..=VERSION).contains(&version)
        && sum.u32()? == crc32c(&[summed])
        && sum.u32()? == 0;
    if !right {
        return Err(CheckpointDamaged);
    }
    let log = LogId(from.u32()?);
    let id = from.u64()?;
    let delta_to = Some(from.u64()?).filter(|&before| before != 0);
    let covered = position(&mut from)?;
    let count = from.u32()? as usize;
    let next_dense = from.u32()?;
    if from.u32()? != crc32c(&[body]) || count > body.len() / ENTRY_BYTES_MIN {
        return Err(CheckpointDamaged);
    }
    let mut from = Cursor { rest: body };
    let entry = |_| decode_entry(version, &mut from);
    let entries: Vec<_> = (0..count).map(entry).collect::<Result<_, _>>()?;
    if !from.rest.is_empty() {
        return Err(CheckpointDamaged);
    }
    let sane = |entry: &CheckpointEntry| {
        entry.dense.0 < next_dense
            && Offset(0) <= entry.log_start
            && entry.log_start <= entry.hot_start
            && entry.hot_start <= entry.log_end
    };
    if next_dense > DENSE_END || !entries.iter().all(sane) {
        return Err(CheckpointDamaged);
    }
    let header = CheckpointHeader { log, id, delta_to, covered, next_dense };
    Ok(Checkpoint { header, entries })
}

fn decode_entry(version: u32, from: &mut Cursor<'_>) -> Result<CheckpointEntry, CheckpointDamaged> {
    let dense = DenseId(from.u32()?);
    let key = PartitionKey {
        view: from.u32()?,
        topic: Uuid::from_bytes(from.array()?),
        partition: from.u32()? as i32,
    };
    let detached = from.u32()? & DETACHED != 0;
    let (as_of, last_position) = (position(from)?, position(from)?);
    let log_start = Offset(from.u64()? as i64);
    let hot_start = match version {
        VERSION_WITHOUT_HOT_START => log_start,
        _ => Offset(from.u64()? as i64),
    };
    Ok(CheckpointEntry {
        dense,
        key,
        detached,
        as_of,
        last_position,
        log_start,
        hot_start,
        log_end: Offset(from.u64()? as i64),
        epochs: from.counted()?.to_vec(),
        producers: from.counted()?.to_vec(),
    })
}

/// The id in a checkpoint's file name.
pub fn parse_name(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix("checkpoint-")?)
}

pub fn name(id: u64) -> String {
    format!("checkpoint-{id:020}")
}

impl From<Ended> for CheckpointDamaged {
    fn from(Ended: Ended) -> CheckpointDamaged {
        CheckpointDamaged
    }
}

fn position(from: &mut Cursor<'_>) -> Result<Position, Ended> {
    Ok(Position { segment: SegmentNumber(from.u64()?), offset: from.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where an entry has its hot start.
    const HOT_START_AT: usize = 64;

    fn sample() -> (CheckpointHeader, Vec<CheckpointEntry>) {
        let position = Position { segment: SegmentNumber(3), offset: 4200 };
        let header = CheckpointHeader {
            log: LogId(1),
            id: 12,
            delta_to: Some(11),
            covered: position,
            next_dense: 5,
        };
        let entry = |dense, producers: &[u8]| CheckpointEntry {
            dense: DenseId(dense),
            key: PartitionKey { view: 0, topic: Uuid::from_u128(4), partition: 2 },
            detached: dense == 1,
            as_of: position,
            last_position: position,
            log_start: Offset(5),
            hot_start: Offset(20),
            log_end: Offset(50),
            epochs: vec![1, 2, 3],
            producers: producers.to_vec(),
        };
        (header, vec![entry(0, b""), entry(1, b"producers")])
    }

    #[test]
    fn a_file_gives_back_what_was_put_in_and_damage_is_seen() {
        let (header, entries) = sample();
        let mut body = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut body));
        let bytes = encode(&header, 2, &body);
        let got = decode(&bytes).unwrap();
        assert_eq!((got.header, got.entries), (header, entries));
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 4;
            assert!(decode(&bent).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_file_of_before_there_were_tables_is_read() {
        let (header, entries) = sample();
        let mut body = Vec::new();
        for entry in &entries {
            let at = body.len() + HOT_START_AT;
            entry.encode(&mut body);
            body.drain(at..at + 8);
        }
        let mut bytes = encode(&header, 2, &body);
        bytes[8] = 1;
        let sum = crc32c(&[&bytes[..56]]).to_le_bytes();
        bytes[56..60].copy_from_slice(&sum);
        let hot_starts = |got: Checkpoint| got.entries.iter().map(|e| e.hot_start.0).collect();
        assert_eq!(decode(&bytes).map(hot_starts), Ok(vec![5, 5]));
    }

    #[test]
    fn names_parse() {
        assert_eq!(parse_name(&name(7)), Some(7));
        assert_eq!(parse_name("checkpoint-7"), None);
    }
}
