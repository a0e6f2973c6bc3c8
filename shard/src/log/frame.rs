//! The frame: what one append puts into a segment.
//!
//! Written by `writer`, read back by `scan` (recovery) and skipped over by readers, who go straight
//! to the batch behind the header by way of the index. All numbers are little endian; the batch of
//! a data frame is Kafka's own bytes, big endian, and starts 64 bytes into the frame.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..4 | length | payload bytes that follow the header |
//! | 4 | kind | 1 data, 2 bind, 3 log start, 4 mark, 5 side, 6 gap |
//! | 5 | version | 1 |
//! | 6..8 | flags | data, side: bit 0 = carried, bit 1 = cleaned before it was carried |
//! | 8..16 | sequence | one more than that of the frame before, over the whole log |
//! | 16..20 | partition | dense id within the log |
//! | 20..24 | leader epoch | start counter of the broker that wrote it |
//! | 24..32 | base offset | data, side: of the batch; log start: the new one; gap: from; else 0 |
//! | 32..40 | append time | broker's clock, ms since 1970 |
//! | 40..48 | mark segment | the log was known durable up to here … |
//! | 48..52 | mark offset | … when the frame was written |
//! | 52..60 | covers from | carried: the first offset it stands for; else 0 |
//! | 60..64 | CRC-32C | of bytes 0..60, the segment's epoch and the covered payload |
//!
//! The covered payload is the first 21 bytes of a batch (the rest has the batch's own CRC) and the
//! whole payload of any other kind. A data frame is *whole* when both sums are right.
//!
//! A side frame stands for a batch too large to be stored inline: its payload is the batch's header
//! as it would be stored (61), the number of the side file that holds the batch as it was sent
//! (8), and zeros (3). The file is durable before the frame is written.
//!
//! A *carried* frame is a copy of an older one, whose leader epoch and append time it keeps. It
//! stands for all offsets from "covers from" to the end of its batch: older frames of the partition
//! in this range are dead. A gap frame says the same of a range in which no batch is left; its
//! payload is the offset after the range (8). Neither moves a log end or tells of a producer.
//!
//! A frame starts on an 8-byte slot. After a frame that ends at `e` the next one is either at the
//! next slot or at the next page start, and carries the next sequence; anything else is the end.

use super::header::FILE_NUMBERS_END;
use crate::batch::HEADER_BYTES;
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, Position, SegmentNumber};
use crate::ids::{Sequence, Timestamp};
use crc_fast::{CrcAlgorithm, Digest};

pub const FRAME_HEADER_BYTES: usize = 64;
pub const FRAME_VERSION: u8 = 1;
/// The part of a record batch that its own CRC does not cover, and that CRC.
pub const BATCH_PREFIX_BYTES: usize = 21;
pub const BIND_BYTES: usize = 24;
pub const SIDE_BYTES: usize = 72;
pub const GAP_BYTES: usize = 8;
pub const SLOT_BYTES: u32 = 8;
pub const PAGE_BYTES: u32 = 4096;
const CRC_AT: usize = 60;
const CARRIED: u16 = 1;
const CLEANED: u16 = 2;

const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(SLOT_BYTES as usize));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One record batch.
    Data,
    /// Says which partition a dense id stands for; before its first frame in each segment.
    Bind,
    /// The log start of a partition moved up.
    LogStart,
    /// Nothing but the durable mark.
    Mark,
    /// One record batch whose bytes are in a file of their own.
    Side,
    /// A range of offsets that holds no batch any more.
    Gap,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Bind => 2,
            Kind::LogStart => 3,
            Kind::Mark => 4,
            Kind::Side => 5,
            Kind::Gap => 6,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::Data,
            2 => Kind::Bind,
            3 => Kind::LogStart,
            4 => Kind::Mark,
            5 => Kind::Side,
            6 => Kind::Gap,
            _ => return None,
        })
    }
}

/// What a copy of an older frame says beside the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The first offset it stands for: its batch's, or one of a gap before it.
    pub from: Offset,
    /// Compaction has looked at it.
    pub cleaned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub payload_bytes: u32,
    pub kind: Kind,
    pub sequence: Sequence,
    pub partition: DenseId,
    pub leader_epoch: LeaderEpoch,
    pub base_offset: Offset,
    pub append_time: Timestamp,
    /// Everything before this position was known durable when the frame was written.
    pub mark: Position,
    /// Data and side frames that are copies.
    pub carried: Option<Carried>,
}

impl FrameHeader {
    /// The header's bytes with the sum over it, the segment's epoch and `covered`.
    pub fn encode(&self, segment_epoch: u64, covered: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0..4].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[4] = self.kind.code();
        out[5] = FRAME_VERSION;
        out[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.partition.0.to_le_bytes());
        out[20..24].copy_from_slice(&self.leader_epoch.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.base_offset.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.append_time.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.mark.segment.0.to_le_bytes());
        out[48..52].copy_from_slice(&self.mark.offset.to_le_bytes());
        if let Some(Carried { from, cleaned }) = self.carried {
            let flags = CARRIED | if cleaned { CLEANED } else { 0 };
            out[6..8].copy_from_slice(&flags.to_le_bytes());
            out[52..CRC_AT].copy_from_slice(&from.0.to_le_bytes());
        }
        let crc = checksum(&out, segment_epoch, covered);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header without judging its sum. `None` when the bytes cannot be one.
    pub fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Option<FrameHeader> {
        if bytes[5] != FRAME_VERSION {
            return None;
        }
        let kind = Kind::from_code(bytes[4])?;
        let from = i64::from_le_bytes(field(bytes, 52));
        let carried = match u16::from_le_bytes(field(bytes, 6)) {
            0 if from == 0 => None,
            flags if flags & !CLEANED == CARRIED && matches!(kind, Kind::Data | Kind::Side) => {
                Some(Carried { from: Offset(from), cleaned: flags & CLEANED != 0 })
            }
            _ => return None,
        };
        Some(FrameHeader {
            payload_bytes: u32::from_le_bytes(field(bytes, 0)),
            kind,
            sequence: Sequence(u64::from_le_bytes(field(bytes, 8))),
            partition: DenseId(u32::from_le_bytes(field(bytes, 16))),
            leader_epoch: LeaderEpoch(i32::from_le_bytes(field(bytes, 20))),
            base_offset: Offset(i64::from_le_bytes(field(bytes, 24))),
            append_time: Timestamp(i64::from_le_bytes(field(bytes, 32))),
            mark: Position {
                segment: SegmentNumber(u64::from_le_bytes(field(bytes, 40))),
                offset: u32::from_le_bytes(field(bytes, 48)),
            },
            carried,
        })
    }

    /// How much of the payload the header's sum covers.
    pub fn covered_bytes(&self) -> usize {
        match self.kind {
            Kind::Data => BATCH_PREFIX_BYTES.min(self.payload_bytes as usize),
            Kind::Bind | Kind::LogStart | Kind::Mark | Kind::Side | Kind::Gap => {
                self.payload_bytes as usize
            }
        }
    }

    /// Header and payload.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }
}

/// Whether the stored sum of `header` is right for the given segment and covered payload.
pub fn sum_is_right(header: &[u8; FRAME_HEADER_BYTES], segment_epoch: u64, covered: &[u8]) -> bool {
    let stored = u32::from_le_bytes(field(header, CRC_AT));
    stored == checksum(header, segment_epoch, covered)
}

fn checksum(header: &[u8; FRAME_HEADER_BYTES], segment_epoch: u64, covered: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..CRC_AT]);
    digest.update(&segment_epoch.to_le_bytes());
    digest.update(covered);
    digest.finalize() as u32
}

/// Copies `N` bytes at `at` out of a buffer whose length the type proves.
fn field<const N: usize, const L: usize>(bytes: &[u8; L], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The first slot at or after `at`.
pub fn next_slot(at: u32) -> u32 {
    at.next_multiple_of(SLOT_BYTES)
}

/// The first page start at or after `at`.
pub fn next_page(at: u32) -> u32 {
    at.next_multiple_of(PAGE_BYTES)
}

/// The payload of a bind frame: view (4), topic id (16), partition index (4).
pub fn encode_bind(key: &PartitionKey) -> [u8; BIND_BYTES] {
    let mut out = [0; BIND_BYTES];
    out[0..4].copy_from_slice(&key.view.to_le_bytes());
    out[4..20].copy_from_slice(key.topic.as_bytes());
    out[20..24].copy_from_slice(&key.partition.to_le_bytes());
    out
}

/// Reads the payload of a bind frame; `None` when it has another length.
pub fn decode_bind(payload: &[u8]) -> Option<PartitionKey> {
    let bytes: &[u8; BIND_BYTES] = payload.try_into().ok()?;
    Some(PartitionKey {
        view: u32::from_le_bytes(field(bytes, 0)),
        topic: uuid::Uuid::from_bytes(field(bytes, 4)),
        partition: i32::from_le_bytes(field(bytes, 20)),
    })
}

/// The payload of a side frame.
pub fn encode_side(header: &[u8; HEADER_BYTES], file: u64) -> [u8; SIDE_BYTES] {
    let mut out = [0; SIDE_BYTES];
    out[..HEADER_BYTES].copy_from_slice(header);
    out[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&file.to_le_bytes());
    out
}

/// The number of the side file in the payload of a side frame; the batch's header is in front.
pub fn decode_side(payload: &[u8]) -> Option<u64> {
    let bytes: &[u8; SIDE_BYTES] = payload.try_into().ok()?;
    let file = u64::from_le_bytes(field(bytes, HEADER_BYTES));
    (file < FILE_NUMBERS_END).then_some(file)
}

/// The end of the range in the payload of a gap frame.
pub fn decode_gap(payload: &[u8]) -> Option<Offset> {
    let bytes: &[u8; GAP_BYTES] = payload.try_into().ok()?;
    Some(Offset(i64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            payload_bytes: 0x0102_0304,
            kind: Kind::Data,
            sequence: Sequence(0x1112_1314_1516_1718),
            partition: DenseId(0x2122_2324),
            leader_epoch: LeaderEpoch(7),
            base_offset: Offset(1 << 40),
            append_time: Timestamp(1_700_000_000_000),
            mark: Position { segment: SegmentNumber(9), offset: 4096 },
            carried: None,
        }
    }

    #[test]
    fn the_byte_table_holds() {
        let bytes = header().encode(5, b"prefix");
        assert_eq!(bytes[0..4], [4, 3, 2, 1]);
        assert_eq!(bytes[4..8], [1, 1, 0, 0]);
        assert_eq!(bytes[8..16], [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(bytes[16..20], [0x24, 0x23, 0x22, 0x21]);
        assert_eq!(bytes[20..24], [7, 0, 0, 0]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(bytes[32..40], 1_700_000_000_000i64.to_le_bytes());
        assert_eq!(bytes[40..52], [9, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]);
        assert_eq!(bytes[52..60], [0; 8]);
        assert_eq!(FrameHeader::parse(&bytes), Some(header()));
    }

    #[test]
    fn a_copy_says_what_it_stands_for() {
        let from = Offset(0x0102);
        for (cleaned, flags) in [(false, 1), (true, 3)] {
            let copy = FrameHeader { carried: Some(Carried { from, cleaned }), ..header() };
            let mut bytes = copy.encode(5, b"prefix");
            assert_eq!((bytes[6..8].to_vec(), bytes[52..60].to_vec()), {
                (vec![flags, 0], vec![2, 1, 0, 0, 0, 0, 0, 0])
            });
            assert_eq!(FrameHeader::parse(&bytes), Some(copy));
            bytes[4] = Kind::Mark.code();
            assert_eq!(FrameHeader::parse(&bytes), None, "only batches are carried");
        }
        let mut bytes = header().encode(5, b"prefix");
        bytes[6] = 2;
        assert_eq!(FrameHeader::parse(&bytes), None, "cleaned and not carried");
        assert_eq!(decode_gap(&7i64.to_le_bytes()), Some(Offset(7)));
        assert_eq!(decode_gap(&[0; 7]), None);
    }

    #[test]
    fn the_sum_covers_header_epoch_and_payload() {
        let bytes = header().encode(5, b"prefix");
        assert!(sum_is_right(&bytes, 5, b"prefix"));
        assert!(!sum_is_right(&bytes, 6, b"prefix"));
        assert!(!sum_is_right(&bytes, 5, b"prefiy"));
        for at in 0..FRAME_HEADER_BYTES {
            let mut bent = bytes;
            bent[at] ^= 1;
            assert!(!sum_is_right(&bent, 5, b"prefix"), "byte {at}");
        }
    }

    #[test]
    fn side_payload_round_trips_and_a_number_of_nobody_is_refused() {
        let payload = encode_side(&[7; HEADER_BYTES], 5);
        assert_eq!((decode_side(&payload), payload[0]), (Some(5), 7));
        assert_eq!(decode_side(&encode_side(&[7; HEADER_BYTES], u64::MAX)), None);
    }

    #[test]
    fn bind_payload_round_trips() {
        let key = PartitionKey { view: 3, topic: uuid::Uuid::from_u128(77), partition: -1 };
        assert_eq!(decode_bind(&encode_bind(&key)), Some(key));
        assert_eq!(decode_bind(&[0; 23]), None);
    }
}
