//! The segment header: the first page of a segment file, and the link to the segment before it.
//!
//! Recovery walks these links from the newest segment back; what lies in a predecessor beyond the
//! linked end does not exist. All numbers are little endian; the rest of the page is zero.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `BASALTSG` |
//! | 8..12 | format version, 1 |
//! | 12..16 | log id |
//! | 16..32 | cluster id |
//! | 32..40 | number of this segment |
//! | 40..48 | epoch of this segment, random |
//! | 48..56 | number of the predecessor |
//! | 56..64 | epoch of the predecessor, 0 when this is the first segment of the log |
//! | 64..68 | end of the predecessor: its last frame ends at or before this byte |
//! | 68..72 | leader epoch of the run that made the segment |
//! | 72..80 | sequence of the first frame in this segment |
//! | 80..88 | creation time, ms since 1970 |
//! | 88..96, 96..100 | segment and offset up to which the log was known durable when this was made |
//! | 100..104 | 0 |
//! | 104..112 | hollow: the sequence after the last frame it had; else 0 |
//! | 112..124 | 0 |
//! | 124..128 | CRC-32C of bytes 0..124 |

//! A segment in the middle of the chain that nobody needs any more is made *hollow*: its file is
//! replaced by a header alone that keeps number, epoch and end for the segment after it. Several in
//! a row become one, under the name of the last, with the predecessor and the first sequence of the
//! first. So a chain never has more hollow segments than others.

use super::frame::PAGE_BYTES;
use crate::ids::{LeaderEpoch, LogId, Position, SegmentNumber, Sequence, Timestamp};
use crc_fast::{checksum, CrcAlgorithm};
use uuid::Uuid;

pub const SEGMENT_HEADER_BYTES: usize = 128;
/// Frames start behind the header's page.
pub const FRAMES_START: u32 = PAGE_BYTES;
const MAGIC: [u8; 8] = *b"BASALTSG";
const VERSION: u32 = 1;
const CRC_AT: usize = 124;

/// Where the segment before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    pub number: SegmentNumber,
    pub epoch: u64,
    pub end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub log: LogId,
    pub cluster: Uuid,
    pub number: SegmentNumber,
    pub epoch: u64,
    pub predecessor: Option<Predecessor>,
    pub run: LeaderEpoch,
    pub first_sequence: Sequence,
    pub created: Timestamp,
    /// Everything before this position was known durable when the segment was made.
    pub mark: Position,
    /// Its frames have been removed; the one after it starts with this sequence.
    pub hollow: Option<Sequence>,
}

/// Why a page is not the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Prepared but never used.
    #[error("the header is all zero")]
    Blank,
    #[error("the header's magic number or checksum is wrong")]
    Damaged,
    #[error("format version {0} is newer than this program")]
    Version(u32),
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.log.0.to_le_bytes());
        out[16..32].copy_from_slice(self.cluster.as_bytes());
        out[32..40].copy_from_slice(&self.number.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        if let Some(before) = self.predecessor {
            out[48..56].copy_from_slice(&before.number.0.to_le_bytes());
            out[56..64].copy_from_slice(&before.epoch.to_le_bytes());
            out[64..68].copy_from_slice(&before.end.to_le_bytes());
        }
        out[68..72].copy_from_slice(&self.run.0.to_le_bytes());
        out[72..80].copy_from_slice(&self.first_sequence.0.to_le_bytes());
        out[80..88].copy_from_slice(&self.created.0.to_le_bytes());
        out[88..96].copy_from_slice(&self.mark.segment.0.to_le_bytes());
        out[96..100].copy_from_slice(&self.mark.offset.to_le_bytes());
        let hollow = self.hollow.map_or(0, |next| next.0);
        out[104..112].copy_from_slice(&hollow.to_le_bytes());
        let crc = checksum(CrcAlgorithm::Crc32Iscsi, &out[..CRC_AT]) as u32;
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<SegmentHeader, HeaderError> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(HeaderError::Blank);
        }
        let crc = checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..CRC_AT]) as u32;
        if bytes[0..8] != MAGIC || bytes[CRC_AT..] != crc.to_le_bytes() {
            return Err(HeaderError::Damaged);
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let before = Predecessor {
            number: SegmentNumber(u64::from_le_bytes(field(bytes, 48))),
            epoch: u64::from_le_bytes(field(bytes, 56)),
            end: u32::from_le_bytes(field(bytes, 64)),
        };
        Ok(SegmentHeader {
            log: LogId(u32::from_le_bytes(field(bytes, 12))),
            cluster: Uuid::from_bytes(field(bytes, 16)),
            number: SegmentNumber(u64::from_le_bytes(field(bytes, 32))),
            epoch: u64::from_le_bytes(field(bytes, 40)),
            predecessor: (before.epoch != 0).then_some(before),
            run: LeaderEpoch(i32::from_le_bytes(field(bytes, 68))),
            first_sequence: Sequence(u64::from_le_bytes(field(bytes, 72))),
            created: Timestamp(i64::from_le_bytes(field(bytes, 80))),
            mark: Position {
                segment: SegmentNumber(u64::from_le_bytes(field(bytes, 88))),
                offset: u32::from_le_bytes(field(bytes, 96)),
            },
            hollow: Some(Sequence(u64::from_le_bytes(field(bytes, 104)))).filter(|s| s.0 != 0),
        })
    }
}

fn field<const N: usize>(bytes: &[u8; SEGMENT_HEADER_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The file name of a segment: its number in 20 digits, so that names sort as numbers do.
pub fn segment_name(number: SegmentNumber) -> String {
    format!("{:020}.seg", number.0)
}

/// The file name of a sealed segment's index.
pub fn index_name(number: SegmentNumber) -> String {
    format!("{:020}.idx", number.0)
}

/// The number in a name that `segment_name` made.
pub fn parse_segment_name(name: &str) -> Option<SegmentNumber> {
    parse_number(name.strip_suffix(".seg")?).map(SegmentNumber)
}

/// Numbers of files, given in order, never come this far: one that does is nobody's.
pub const FILE_NUMBERS_END: u64 = 1 << 62;

/// The 20 digits of a file's number.
pub fn parse_number(digits: &str) -> Option<u64> {
    let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    let number = plain.then(|| digits.parse().ok()).flatten();
    number.filter(|&number| number < FILE_NUMBERS_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            log: LogId(2),
            cluster: Uuid::from_u128(0x0102),
            number: SegmentNumber(10),
            epoch: 99,
            predecessor: Some(Predecessor { number: SegmentNumber(8), epoch: 77, end: 5000 }),
            run: LeaderEpoch(3),
            first_sequence: Sequence(1234),
            created: Timestamp(1_700_000_000_000),
            mark: Position { segment: SegmentNumber(8), offset: 4096 },
            hollow: None,
        }
    }

    #[test]
    fn the_byte_table_holds() {
        let bytes = header().encode();
        assert_eq!(&bytes[0..8], b"BASALTSG");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[30..32], [1, 2]);
        assert_eq!((bytes[32], bytes[40], bytes[48], bytes[56]), (10, 99, 8, 77));
        assert_eq!(bytes[64..68], 5000u32.to_le_bytes());
        assert_eq!((bytes[68], bytes[72..74].to_vec()), (3, vec![0xd2, 4]));
        assert_eq!(bytes[88..100], [8, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header()));
        let first = SegmentHeader { predecessor: None, ..header() };
        assert_eq!(SegmentHeader::decode(&first.encode()), Ok(first));
        let hollow = SegmentHeader { hollow: Some(Sequence(0x0708)), ..header() };
        assert_eq!(hollow.encode()[104..112], [8, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SegmentHeader::decode(&hollow.encode()), Ok(hollow));
    }

    #[test]
    fn damage_is_seen() {
        let bytes = header().encode();
        for at in 0..SEGMENT_HEADER_BYTES {
            let mut bent = bytes;
            bent[at] ^= 0x10;
            assert!(SegmentHeader::decode(&bent).is_err(), "byte {at}");
        }
        assert_eq!(SegmentHeader::decode(&[0; 128]), Err(HeaderError::Blank));
    }

    #[test]
    fn names_sort_and_parse() {
        assert_eq!(segment_name(SegmentNumber(7)), "00000000000000000007.seg");
        assert_eq!(parse_segment_name("00000000000000000007.seg"), Some(SegmentNumber(7)));
        assert_eq!(parse_segment_name("18446744073709551615.seg"), None);
        assert_eq!(parse_segment_name("7.seg"), None);
        assert_eq!(parse_segment_name("00000000000000000007.idx"), None);
    }
}
