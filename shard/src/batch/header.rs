//! The 61-byte header of a record batch, format v2, and its checksum.
//!
//! First step of everything that touches a batch. Decodes and encodes the fixed fields; it never
//! looks at records and trusts no field: arithmetic on fields saturates.
//!
//! | bytes  | field              |                                                          |
//! |--------|--------------------|----------------------------------------------------------|
//! | 0..8   | base offset        | assigned by the broker, outside the checksum             |
//! | 8..12  | batch length       | bytes after this field                                   |
//! | 12..16 | leader epoch       | assigned by the broker, outside the checksum             |
//! | 16     | magic              | 2                                                        |
//! | 17..21 | crc                | CRC-32C of bytes 21..end                                 |
//! | 21..23 | attributes         | see [`Attributes`]                                       |
//! | 23..27 | last offset delta  |                                                          |
//! | 27..35 | base timestamp     | records hold deltas to it                                |
//! | 35..43 | max timestamp      | with append time: the timestamp of every record          |
//! | 43..51 | producer id        | −1: none                                                 |
//! | 51..53 | producer epoch     |                                                          |
//! | 53..57 | base sequence      | −1: none                                                 |
//! | 57..61 | record count       |                                                          |

use super::error::BatchError;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

/// The size of a batch without records.
pub const HEADER_BYTES: usize = 61;
/// The bytes in front of and including the batch length field.
const LENGTH_END: usize = 12;
/// Where the checksummed part starts.
const CRC_START: usize = 21;
const MAGIC: i8 = 2;
const _: () = assert!(LENGTH_END < CRC_START && CRC_START < HEADER_BYTES);

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// The codec of these attribute bits (0 to 7); 5 to 7 name none.
    pub fn from_bits(bits: u8) -> Option<Codec> {
        match bits {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    pub fn bits(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }
}

/// The flags of a batch: bits 0–2 codec, 3 append time, 4 transactional, 5 control, 6 delete
/// horizon; the rest is unused and kept as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0b111;
    const APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const HORIZON: i16 = 1 << 6;

    pub fn codec_bits(self) -> u8 {
        (self.0 & Self::CODEC) as u8
    }

    /// `None` for bits that name no codec.
    pub fn codec(self) -> Option<Codec> {
        Codec::from_bits(self.codec_bits())
    }

    /// The broker's time of the append stands for the records' own timestamps.
    pub fn is_append_time(self) -> bool {
        self.0 & Self::APPEND_TIME != 0
    }

    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// The batch holds a marker of the broker instead of a client's records.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    pub fn with_codec(self, codec: Codec) -> Attributes {
        Attributes(self.0 & !Self::CODEC | i16::from(codec.bits()))
    }

    pub fn with_append_time(self) -> Attributes {
        Attributes(self.0 | Self::APPEND_TIME)
    }

    pub fn with_transactional(self) -> Attributes {
        Attributes(self.0 | Self::TRANSACTIONAL)
    }

    pub fn with_control(self) -> Attributes {
        Attributes(self.0 | Self::CONTROL)
    }

    /// The base timestamp is the time from which the batch's tombstones may go.
    pub fn has_horizon(self) -> bool {
        self.0 & Self::HORIZON != 0
    }

    pub fn with_horizon(self) -> Attributes {
        Attributes(self.0 | Self::HORIZON)
    }

    pub fn without_horizon(self) -> Attributes {
        Attributes(self.0 & !Self::HORIZON)
    }
}

/// All fields of the header, as they stand in the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes of the batch after the length field; see [`BatchHeader::bytes`] for the whole.
    pub batch_length: i32,
    pub leader_epoch: LeaderEpoch,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: Timestamp,
    pub max_timestamp: Timestamp,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header at the front of `bytes`. Checks magic, that the length field is at
    /// least a header's, and nothing else: see [`BatchHeader::whole`] and `validate`.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        match bytes.get(16) {
            None if bytes.is_empty() => return Err(BatchError::Empty),
            Some(&magic) if magic as i8 != MAGIC => return Err(BatchError::Magic(magic as i8)),
            _ => {}
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated { needed: HEADER_BYTES, got: bytes.len() });
        };
        let header = BatchHeader {
            base_offset: Offset(i64::from_be_bytes(field::<0, 8>(bytes))),
            batch_length: i32::from_be_bytes(field::<8, 4>(bytes)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field::<12, 4>(bytes))),
            crc: u32::from_be_bytes(field::<17, 4>(bytes)),
            attributes: Attributes(i16::from_be_bytes(field::<21, 2>(bytes))),
            last_offset_delta: i32::from_be_bytes(field::<23, 4>(bytes)),
            base_timestamp: Timestamp(i64::from_be_bytes(field::<27, 8>(bytes))),
            max_timestamp: Timestamp(i64::from_be_bytes(field::<35, 8>(bytes))),
            producer_id: ProducerId(i64::from_be_bytes(field::<43, 8>(bytes))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field::<51, 2>(bytes))),
            base_sequence: i32::from_be_bytes(field::<53, 4>(bytes)),
            record_count: i32::from_be_bytes(field::<57, 4>(bytes)),
        };
        if header.batch_length < (HEADER_BYTES - LENGTH_END) as i32 {
            return Err(BatchError::Length { declared: header.batch_length });
        }
        Ok(header)
    }

    /// Splits off the batch at the front of `bytes`: its header, its body (what follows the
    /// header) and what lies behind it. The checksum is not looked at.
    pub fn split(bytes: &[u8]) -> Result<(BatchHeader, &[u8], &[u8]), BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let truncated = BatchError::Truncated { needed: header.bytes(), got: bytes.len() };
        let (batch, rest) = bytes.split_at_checked(header.bytes()).ok_or(truncated)?;
        Ok((header, batch.get(HEADER_BYTES..).unwrap_or_default(), rest))
    }

    /// The header as bytes, the checksum as it stands in `self.crc`.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put::<0, 8>(&mut out, self.base_offset.0.to_be_bytes());
        put::<8, 4>(&mut out, self.batch_length.to_be_bytes());
        put::<12, 4>(&mut out, self.leader_epoch.0.to_be_bytes());
        put::<16, 1>(&mut out, MAGIC.to_be_bytes());
        put::<17, 4>(&mut out, self.crc.to_be_bytes());
        put::<21, 2>(&mut out, self.attributes.0.to_be_bytes());
        put::<23, 4>(&mut out, self.last_offset_delta.to_be_bytes());
        put::<27, 8>(&mut out, self.base_timestamp.0.to_be_bytes());
        put::<35, 8>(&mut out, self.max_timestamp.0.to_be_bytes());
        put::<43, 8>(&mut out, self.producer_id.0.to_be_bytes());
        put::<51, 2>(&mut out, self.producer_epoch.0.to_be_bytes());
        put::<53, 4>(&mut out, self.base_sequence.to_be_bytes());
        put::<57, 4>(&mut out, self.record_count.to_be_bytes());
        out
    }

    /// The checksum a batch of these fields and this body must carry.
    pub fn crc_with(&self, body: &[u8]) -> u32 {
        crc32c(&[&self.encode()[CRC_START..], body])
    }

    /// The size of the whole batch, header included.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.batch_length).unwrap_or(0) + LENGTH_END
    }

    /// The offset of the last record (of a batch cleaned by compaction: of the last it had).
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after the batch.
    pub fn end_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// From when on the tombstones of a compacted batch may go; `None` before compaction saw it.
    pub fn horizon(&self) -> Option<Timestamp> {
        self.attributes.has_horizon().then_some(self.base_timestamp)
    }

    /// What the length field says of a batch whose body has so many bytes.
    pub fn length_of(body_bytes: usize) -> i32 {
        let length = i32::try_from(HEADER_BYTES - LENGTH_END + body_bytes);
        assert!(length.is_ok(), "a body of {body_bytes} bytes is beyond the format of a batch");
        length.unwrap_or_default()
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id.0 >= 0
    }

    /// The sequence number of the last record; they count from 0 again after 2147483647.
    pub fn last_sequence(&self) -> i32 {
        sequence_plus(self.base_sequence, self.last_offset_delta)
    }
}

/// The sequence number `count` records after `sequence`. −1 (none) stays −1.
pub fn sequence_plus(sequence: i32, count: i32) -> i32 {
    if sequence < 0 {
        return sequence;
    }
    sequence.wrapping_add(count) & i32::MAX
}

/// Checks the checksum of a whole batch: header bytes and body as one slice.
pub(super) fn check_crc(batch: &[u8], header: &BatchHeader) -> Result<(), BatchError> {
    let computed = crc_fast::crc32_iscsi(batch.get(CRC_START..).unwrap_or_default());
    if computed != header.crc {
        return Err(BatchError::Crc { stored: header.crc, computed });
    }
    Ok(())
}

/// CRC-32C (Castagnoli) over the parts, one after the other.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // The upper half of the 64-bit result is empty for a 32-bit checksum.
    digest.finalize() as u32
}

fn field<const AT: usize, const N: usize>(bytes: &[u8; HEADER_BYTES]) -> [u8; N] {
    const { assert!(AT + N <= HEADER_BYTES) };
    let mut out = [0; N];
    out.copy_from_slice(&bytes[AT..AT + N]);
    out
}

fn put<const AT: usize, const N: usize>(out: &mut [u8; HEADER_BYTES], value: [u8; N]) {
    const { assert!(AT + N <= HEADER_BYTES) };
    out[AT..AT + N].copy_from_slice(&value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> BatchHeader {
        BatchHeader {
            base_offset: Offset(0x0102030405060708),
            batch_length: 49,
            leader_epoch: LeaderEpoch(0x11121314),
            crc: 0x21222324,
            attributes: Attributes(0x3132),
            last_offset_delta: 0x41424344,
            base_timestamp: Timestamp(0x5152535455565758),
            max_timestamp: Timestamp(0x6162636465666768),
            producer_id: ProducerId(0x7172737475767778),
            producer_epoch: ProducerEpoch(0x0a0b),
            base_sequence: 0x1a1b1c1d,
            record_count: 0x2a2b2c2d,
        }
    }

    #[test]
    fn fields_stand_where_the_table_says() {
        let mut expect = vec![1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 49, 0x11, 0x12, 0x13, 0x14, 2];
        expect.extend([0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x41, 0x42, 0x43, 0x44]);
        expect.extend([0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58]);
        expect.extend([0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68]);
        expect.extend([0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x0a, 0x0b]);
        expect.extend([0x1a, 0x1b, 0x1c, 0x1d, 0x2a, 0x2b, 0x2c, 0x2d]);
        assert_eq!(sample().encode().as_slice(), expect);
        assert_eq!(BatchHeader::parse(&expect), Ok(sample()));
    }

    #[test]
    fn refuses_what_is_no_header() {
        let check = |bytes: &[u8], expect: BatchError| {
            assert_eq!(BatchHeader::parse(bytes), Err(expect));
        };
        let good = sample().encode();
        check(&[], BatchError::Empty);
        check(&[0; 16], BatchError::Truncated { needed: 61, got: 16 });
        check(&good[..60], BatchError::Truncated { needed: 61, got: 60 });
        check(&[0; 17], BatchError::Magic(0));
        check(&[255; 61], BatchError::Magic(-1));
        for declared in [i32::MIN, -1, 0, 48] {
            let mut bytes = good;
            bytes[8..12].copy_from_slice(&declared.to_be_bytes());
            check(&bytes, BatchError::Length { declared });
        }
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let check = |sequence, count, expect| assert_eq!(sequence_plus(sequence, count), expect);
        check(0, 0, 0);
        check(5, 4, 9);
        check(i32::MAX, 0, i32::MAX);
        check(i32::MAX, 1, 0);
        check(i32::MAX - 1, 5, 3);
        check(i32::MAX, i32::MAX, i32::MAX - 1);
        check(-1, 7, -1);
    }

    #[test]
    fn the_checksum_is_castagnoli() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe3069283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe3069283);
        assert_eq!(crc32c(&[]), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = bytes;
            let _ = BatchHeader::split(&bytes);
            if let Some(magic) = bytes.get_mut(16) {
                *magic = 2;
            }
            if let Ok(header) = BatchHeader::parse(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
                let _ = (header.last_offset(), header.end_offset(), header.last_sequence());
            }
        }
    }
}
