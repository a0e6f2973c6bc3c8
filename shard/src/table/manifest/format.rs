//! The files of a manifest: what a commit changed, or all there is.
//!
//! A *delta* makes a version of the one before it; a *base* holds everything, and is a delta to
//! nothing. Each is written once, whole (`Disk::publish`): its name is there with all its bytes or
//! not at all, and a number is in force only when all numbers since the newest base are there.
//!
//! File, little endian. Name: `base-` or `delta-` and the number in 20 digits.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `BASALTTM` |
//! | 8..12 | format version, 1 |
//! | 12..16 | 1 for a base, 0 for a delta |
//! | 16..32 | topic id |
//! | 32..40 | number of the version it makes |
//! | 40..44 | files added |
//! | 44..48 | files removed |
//! | 48..52 | log starts noted |
//! | 52..56 | compactions noted |
//! | 56..60 | CRC-32C of what follows the header |
//! | 60..64 | CRC-32C of bytes 0..60 |
//!
//! Then, one after the other:
//! files, each id (8), length (8), created ms (8), number of parts (4) and its parts, each
//! partition (4), first and end offset (8, 8), rows (8), raw bytes (8), least and greatest
//! timestamp (8, 8), greatest append time (8);
//! removals, each file id (8) and when, in ms (8);
//! log starts, each partition (4) and offset (8);
//! compactions, each partition (4), end offset (8) and when, in ms (8): a partition that is named
//! has all of its list, in order.

use crate::batch::crc32c;
use crate::disk::cursor::{Cursor, Ended};
use crate::ids::{Offset, Timestamp};
use crate::table::{Compacted, FileFacts, FileId, Part};
use uuid::Uuid;

const MAGIC: [u8; 8] = *b"BASALTTM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const SUMMED_BYTES: usize = 60;
const FILE_BYTES_MIN: usize = 28;
const PART_BYTES: usize = 60;

/// What a file of the manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub topic: Uuid,
    pub number: u64,
    pub is_base: bool,
    pub files: Vec<FileFacts>,
    pub removed: Vec<(FileId, Timestamp)>,
    pub starts: Vec<(i32, Offset)>,
    pub compacted: Vec<(i32, Compacted)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is cut short")]
    Short,
    #[error("it is no manifest")]
    Magic,
    #[error("its format version is {0}, newer than this program")]
    Version(u32),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("bytes follow its end")]
    Trailing,
    #[error("it says what cannot be")]
    Senseless,
    #[error("it belongs to topic {0}")]
    Topic(Uuid),
    #[error("it is a file of another number")]
    Number,
    #[error("partition {0} has a hole or an overlap")]
    Hole(i32),
}

/// A file of a manifest, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Base(u64),
    Delta(u64),
}

impl Name {
    pub fn parse(name: &str) -> Option<Name> {
        let (kind, digits) = name.split_once('-')?;
        if digits.len() != 20 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let number = digits.parse().ok()?;
        match kind {
            "base" => Some(Name::Base(number)),
            "delta" => Some(Name::Delta(number)),
            _ => None,
        }
    }

    pub fn number(self) -> u64 {
        let (Name::Base(number) | Name::Delta(number)) = self;
        number
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Base(number) => write!(f, "base-{number:020}"),
            Name::Delta(number) => write!(f, "delta-{number:020}"),
        }
    }
}

impl Change {
    pub fn name(&self) -> Name {
        match self.is_base {
            true => Name::Base(self.number),
            false => Name::Delta(self.number),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let body = self.encode_body();
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(u32::from(self.is_base).to_le_bytes());
        out.extend(self.topic.as_bytes());
        out.extend(self.number.to_le_bytes());
        let counts =
            [self.files.len(), self.removed.len(), self.starts.len(), self.compacted.len()];
        for count in counts {
            out.extend((count as u32).to_le_bytes());
        }
        out.extend(crc32c(&[&body]).to_le_bytes());
        let sum = crc32c(&[&out]);
        out.extend(sum.to_le_bytes());
        out.extend(body);
        out
    }

    fn encode_body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for file in &self.files {
            out.extend(file.id.0.to_le_bytes());
            out.extend(file.bytes.to_le_bytes());
            out.extend(file.created.0.to_le_bytes());
            out.extend((file.parts.len() as u32).to_le_bytes());
            file.parts.iter().for_each(|part| encode_part(part, &mut out));
        }
        for (id, at) in &self.removed {
            out.extend(id.0.to_le_bytes());
            out.extend(at.0.to_le_bytes());
        }
        for (partition, start) in &self.starts {
            out.extend(partition.to_le_bytes());
            out.extend(start.0.to_le_bytes());
        }
        for (partition, compacted) in &self.compacted {
            out.extend(partition.to_le_bytes());
            out.extend(compacted.end.0.to_le_bytes());
            out.extend(compacted.at.0.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Change, Damage> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(Damage::Short)?;
        let (summed, sum) = header.split_at_checked(SUMMED_BYTES).ok_or(Damage::Short)?;
        let mut from = Cursor { rest: summed };
        if from.array::<8>()? != MAGIC {
            return Err(Damage::Magic);
        }
        let version = from.u32()?;
        if (Cursor { rest: sum }).u32()? != crc32c(&[summed]) {
            return Err(Damage::Checksum);
        }
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let kind = from.u32()?;
        let topic = Uuid::from_bytes(from.array()?);
        let number = from.u64()?;
        let counts = [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
        if from.u32()? != crc32c(&[body]) {
            return Err(Damage::Checksum);
        }
        if kind > 1 {
            return Err(Damage::Senseless);
        }
        let change = Change { topic, number, is_base: kind == 1, ..Change::default() };
        decode_body(change, counts, Cursor { rest: body })
    }
}

fn decode_body(
    mut change: Change,
    counts: [u32; 4],
    mut from: Cursor<'_>,
) -> Result<Change, Damage> {
    let [files, removed, starts, compacted] = counts;
    for _ in 0..from.count(files, FILE_BYTES_MIN)? {
        change.files.push(decode_file(&mut from)?);
    }
    for _ in 0..from.count(removed, 16)? {
        change.removed.push((FileId(from.u64()?), Timestamp(from.i64()?)));
    }
    for _ in 0..from.count(starts, 12)? {
        change.starts.push((decode_partition(&mut from)?, Offset(from.i64()?)));
    }
    for _ in 0..from.count(compacted, 20)? {
        let partition = decode_partition(&mut from)?;
        let compacted = Compacted { end: Offset(from.i64()?), at: Timestamp(from.i64()?) };
        change.compacted.push((partition, compacted));
    }
    match from.rest {
        [] => Ok(change),
        _ => Err(Damage::Trailing),
    }
}

fn encode_part(part: &Part, out: &mut Vec<u8>) {
    out.extend(part.partition.to_le_bytes());
    out.extend(part.first.0.to_le_bytes());
    out.extend(part.end.0.to_le_bytes());
    out.extend(part.rows.to_le_bytes());
    out.extend(part.raw_bytes.to_le_bytes());
    for time in [part.min_timestamp, part.max_timestamp, part.max_append_time] {
        out.extend(time.0.to_le_bytes());
    }
}

fn decode_file(from: &mut Cursor<'_>) -> Result<FileFacts, Damage> {
    let (id, bytes) = (FileId(from.u64()?), from.u64()?);
    let created = Timestamp(from.i64()?);
    let count = from.u32()?;
    let count = from.count(count, PART_BYTES)?;
    let parts = (0..count).map(|_| decode_part(from)).collect::<Result<Vec<_>, _>>()?;
    if !parts.is_sorted_by(|one, next| one.partition < next.partition) {
        return Err(Damage::Senseless);
    }
    Ok(FileFacts { id, bytes, created, parts })
}

fn decode_part(from: &mut Cursor<'_>) -> Result<Part, Damage> {
    let part = Part {
        partition: decode_partition(from)?,
        first: Offset(from.i64()?),
        end: Offset(from.i64()?),
        rows: from.u64()?,
        raw_bytes: from.u64()?,
        min_timestamp: Timestamp(from.i64()?),
        max_timestamp: Timestamp(from.i64()?),
        max_append_time: Timestamp(from.i64()?),
    };
    match part.first >= Offset(0) && part.first < part.end {
        true => Ok(part),
        false => Err(Damage::Senseless),
    }
}

impl From<Ended> for Damage {
    fn from(Ended: Ended) -> Damage {
        Damage::Short
    }
}

fn decode_partition(from: &mut Cursor<'_>) -> Result<i32, Damage> {
    let partition = from.i32()?;
    if partition >= 0 {
        Ok(partition)
    } else {
        Err(Damage::Senseless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Change {
        let part = |partition| Part {
            partition,
            first: Offset(5),
            end: Offset(9),
            rows: 3,
            raw_bytes: 300,
            min_timestamp: Timestamp(-1),
            max_timestamp: Timestamp(i64::MAX),
            max_append_time: Timestamp(70),
        };
        let file =
            |id, parts| FileFacts { id: FileId(id), bytes: 1000, created: Timestamp(77), parts };
        Change {
            topic: Uuid::from_u128(4),
            number: 12,
            is_base: false,
            files: vec![file(u64::MAX, vec![part(0), part(7)]), file(1, vec![])],
            removed: vec![(FileId(3), Timestamp(8))],
            starts: vec![(0, Offset(4)), (9, Offset(100))],
            compacted: vec![(0, Compacted { end: Offset(8), at: Timestamp(60) })],
        }
    }

    #[test]
    fn a_file_gives_back_what_was_put_in_and_damage_is_seen() {
        let change = sample();
        let bytes = change.encode();
        assert_eq!(Change::decode(&bytes).as_ref(), Ok(&change));
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 4;
            assert!(Change::decode(&bent).is_err(), "byte {at}");
            assert!(Change::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_bytes_stand_where_the_table_says() {
        let change = Change { is_base: true, ..sample() };
        let bytes = change.encode();
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(&bytes[0..8], b"BASALTTM");
        assert_eq!((u32_at(8), u32_at(12)), (1, 1));
        assert_eq!(&bytes[16..32], Uuid::from_u128(4).as_bytes());
        assert_eq!(u64_at(32), 12);
        assert_eq!([40, 44, 48, 52].map(u32_at), [2, 1, 2, 1]);
        assert_eq!((u32_at(56), u32_at(60)), (crc32c(&[&bytes[64..]]), crc32c(&[&bytes[..60]])));
        assert_eq!((u64_at(64), u64_at(72), u64_at(80), u32_at(88)), (u64::MAX, 1000, 77, 2));
        let part = 92;
        assert_eq!((u32_at(part + 60), u64_at(part + 64), u64_at(part + 72)), (7, 5, 9));
        let removed = part + 2 * 60 + 28;
        assert_eq!((u64_at(removed), u64_at(removed + 8)), (3, 8));
        assert_eq!((u32_at(removed + 16 + 12), u64_at(removed + 16 + 16)), (9, 100));
        assert_eq!(bytes.len(), removed + 16 + 2 * 12 + 20);
    }

    #[test]
    fn names_parse() {
        for name in [Name::Base(7), Name::Delta(u64::MAX)] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for other in ["base-7", "base-0000000000000000000x", "delta", "x-00000000000000000007"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
