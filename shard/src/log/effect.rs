//! What a frame that was found whole says, before it is applied to anything.
//!
//! Between the scan and the replay: a frame's payload must be what its kind promises, its offsets
//! must be such as a log gives; anything else is damage, whatever its sum says.

use super::chain::Link;
use super::frame::{decode_bind, decode_gap, decode_side, Carried, Kind};
use super::index::{BatchEntry, GAP_FRAME_BYTES};
use super::scan::Frame;
use crate::batch::BatchHeader;
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, Position, SegmentNumber};
use crate::ids::{Sequence, Timestamp};
use crate::partition::{Run, RunKind};

/// Offsets and dense ids at or above these are not from a log that was written in order: nobody
/// appends for so long, and a table of so many partitions does not fit into memory.
const OFFSETS_END: i64 = 1 << 62;
pub(super) const DENSE_END: u32 = 1 << 24;

/// What a frame does to the state.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Data {
        header: BatchHeader,
        /// The file that holds the batch when the frame does not.
        side: Option<u64>,
        carried: Option<Carried>,
    },
    /// No batch is left between the offset of the frame and this one.
    Gap {
        from: Offset,
        to: Offset,
    },
    Bind(PartitionKey),
    LogStart(Offset),
    Mark,
}

/// A frame that was found whole, where it lies.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub link: usize,
    pub at: u32,
    pub end: Position,
    pub sequence: Sequence,
    pub partition: DenseId,
    pub leader_epoch: LeaderEpoch,
    pub append_time: Timestamp,
    pub payload_bytes: u32,
    pub effect: Effect,
}

impl Effect {
    /// The offset behind the batch or range.
    pub fn end(&self) -> Option<Offset> {
        match self {
            Effect::Data { header, .. } => Some(header.end_offset()),
            Effect::Gap { to, .. } => Some(*to),
            Effect::Bind(_) | Effect::LogStart(_) | Effect::Mark => None,
        }
    }
}

/// The run that a carried batch alone is.
pub(super) fn run_of(segment: SegmentNumber, carried: &Carried, entry: &BatchEntry) -> Run {
    Run {
        segment,
        kind: if carried.cleaned { RunKind::Cleaned } else { RunKind::Carried },
        base: carried.from,
        end: entry.end(),
        max_timestamp: entry.max_timestamp,
        batch_bytes: u64::from(entry.batch_bytes),
        frame_bytes: entry.frame_bytes(),
        exact: true,
    }
}

pub(super) fn gap_run(segment: SegmentNumber, base: Offset, end: Offset) -> Run {
    Run {
        segment,
        kind: RunKind::Gap,
        base,
        end,
        max_timestamp: Timestamp(-1),
        batch_bytes: 0,
        frame_bytes: GAP_FRAME_BYTES,
        exact: true,
    }
}

pub(super) fn entry_of(found: &Found, header: &BatchHeader) -> BatchEntry {
    BatchEntry {
        base: header.base_offset,
        max_timestamp: header.max_timestamp,
        frame_at: found.at,
        batch_bytes: header.bytes() as u32,
        last_delta: header.last_offset_delta as u32,
        leader_epoch: found.leader_epoch,
    }
}

/// What a whole frame says; `None` when its payload is not what its kind promises.
pub(super) fn understand(link_at: usize, link: &Link, frame: &Frame<'_>) -> Option<Found> {
    let header = &frame.header;
    if header.partition.0 >= DENSE_END {
        return None;
    }
    let effect = match header.kind {
        Kind::Data | Kind::Side => {
            let side = match header.kind {
                Kind::Side => Some(decode_side(frame.payload)?),
                _ => None,
            };
            let batch = BatchHeader::parse(frame.payload).ok()?;
            let sane = batch.base_offset == header.base_offset
                && (0..OFFSETS_END).contains(&batch.base_offset.0)
                && batch.last_offset_delta >= 0;
            let from = header.carried.map_or(batch.base_offset, |carried| carried.from);
            if !sane || !(0..=batch.base_offset.0).contains(&from.0) {
                return None;
            }
            Effect::Data { header: batch, side, carried: header.carried }
        }
        Kind::Gap => {
            let (from, to) = (header.base_offset, decode_gap(frame.payload)?);
            if !(0..to.0).contains(&from.0) || to.0 >= OFFSETS_END {
                return None;
            }
            Effect::Gap { from, to }
        }
        Kind::Bind => Effect::Bind(decode_bind(frame.payload)?),
        Kind::LogStart => Effect::LogStart(header.base_offset),
        Kind::Mark => Effect::Mark,
    };
    Some(Found {
        link: link_at,
        at: frame.at,
        end: Position { segment: link.header.number, offset: frame.end() },
        sequence: header.sequence,
        partition: header.partition,
        leader_epoch: header.leader_epoch,
        append_time: header.append_time,
        payload_bytes: header.payload_bytes,
        effect,
    })
}
