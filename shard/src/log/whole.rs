//! Whether bytes are the frame that an index entry promises.
//!
//! Used by everything that reads single frames by way of an index: feeds and what is carried to the
//! log's tail. Both sums are checked, that of the frame and that of the batch.

use super::frame::{decode_side, sum_is_right, FrameHeader, Kind, FRAME_HEADER_BYTES};
use super::index::BatchEntry;
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::ids::DenseId;

/// A frame with a batch that was found whole.
#[derive(Debug)]
pub(super) struct WholeFrame<'a> {
    pub frame: FrameHeader,
    pub batch: BatchHeader,
    /// What follows the batch's header: records, or the rest of a side frame's payload.
    pub rest: &'a [u8],
    /// The file that holds the batch when the frame does not.
    pub side: Option<u64>,
}

/// The frame in `bytes` if it is whole and what the index says it is. `epoch` is its segment's.
pub(super) fn whole_frame<'a>(
    id: DenseId,
    epoch: u64,
    entry: &BatchEntry,
    bytes: &'a [u8],
) -> Option<WholeFrame<'a>> {
    let (raw, payload) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let frame = FrameHeader::parse(raw)?;
    let covered = payload.get(..frame.covered_bytes())?;
    let batch = BatchHeader::parse(payload).ok()?;
    let rest = payload.get(HEADER_BYTES..)?;
    let side = match frame.kind {
        Kind::Side if entry.is_in_side_file() => Some(decode_side(payload)?),
        Kind::Data if !entry.is_in_side_file() => None,
        _ => return None,
    };
    let right = frame.partition == id
        && frame.payload_bytes as usize == payload.len()
        && sum_is_right(raw, epoch, covered)
        && batch.base_offset == entry.base
        && batch.end_offset() == entry.end()
        && (side.is_some()
            || (batch.bytes() == payload.len() && batch.crc_with(rest) == batch.crc));
    right.then_some(WholeFrame { frame, batch, rest, side })
}
