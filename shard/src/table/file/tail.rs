//! The part of a table file that says what it holds: key-value entries and checksums.
//!
//! `write` makes them, `read` takes them apart again; the format is in the table of this folder's
//! front page. Everything read here is outside bytes.

use crate::batch::crc32c;
use crate::ids::{Offset, Timestamp};
use crate::table::error::Damage;
use crate::table::{FileFacts, FileId, Part};
use parquet::file::metadata::KeyValue;
use std::fmt::Write;

pub(super) const FORMAT: &str = "1";
const FORMAT_KEY: &str = "basalt.format";
const FILE_KEY: &str = "basalt.file";
const PARTS_KEY: &str = "basalt.parts";
const BLOCKS_KEY: &str = "basalt.blocks";
/// The last entry: where its value stands is found from behind.
const TAIL_KEY: &str = "basalt.tail";
/// Of how many bytes one checksum is.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
/// What Parquet files end with.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";
/// The footer's length and the magic bytes.
pub(super) const END_BYTES: usize = 8;
/// What the writer leaves room for and the reader computes with.
const NO_CHECKSUM: &[u8; 8] = b"00000000";

/// The checksums of the data part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checksums {
    /// How many bytes they are of.
    pub data_bytes: u64,
    pub blocks: Vec<u32>,
}

/// The entries of a file, in their order.
pub(super) fn entries(facts: &FileFacts, checksums: &Checksums) -> Vec<KeyValue> {
    let parts: Vec<String> = facts.parts.iter().map(part_text).collect();
    let mut blocks = checksums.data_bytes.to_string();
    blocks.push(',');
    for checksum in &checksums.blocks {
        // Writing to a string cannot fail.
        let _ = write!(blocks, "{checksum:08x}");
    }
    let no_checksum = String::from_utf8_lossy(NO_CHECKSUM).into_owned();
    let entry = |key: &str, value: String| KeyValue::new(key.to_string(), value);
    vec![
        entry(FORMAT_KEY, FORMAT.to_string()),
        entry(FILE_KEY, format!("{},{}", facts.id, facts.created)),
        entry(PARTS_KEY, parts.join(";")),
        entry(BLOCKS_KEY, blocks),
        entry(TAIL_KEY, no_checksum),
    ]
}

/// What the entries of a file say. The file's length is not among them.
pub(super) fn parse(entries: &[KeyValue], bytes: u64) -> Result<(FileFacts, Checksums), Damage> {
    let format = value(entries, FORMAT_KEY)?;
    if format != FORMAT {
        return Err(Damage::Format(format.to_string()));
    }
    let file = value(entries, FILE_KEY)?.split_once(',');
    let (id, created) = file.ok_or(Damage::Missing(FILE_KEY))?;
    let id = u64::from_str_radix(id, 16).map_err(|_| Damage::Missing(FILE_KEY))?;
    let created = created.parse().map_err(|_| Damage::Missing(FILE_KEY))?;
    let parts = value(entries, PARTS_KEY)?.split(';').filter(|text| !text.is_empty());
    let parts: Option<Vec<Part>> = parts.map(parse_part).collect();
    let parts = parts.ok_or(Damage::Missing(PARTS_KEY))?;
    let (id, created) = (FileId(id), Timestamp(created));
    let checksums = parse_blocks(value(entries, BLOCKS_KEY)?);
    let checksums = checksums.ok_or(Damage::Missing(BLOCKS_KEY))?;
    Ok((FileFacts { id, bytes, created, parts }, checksums))
}

/// Puts the checksum of a file's tail into its place. The tail begins where the data ends.
///
/// # Panics
/// When the tail was not made from [`entries`].
pub(super) fn seal(tail: &mut [u8]) {
    let checksum = crc32c(&[tail]);
    let at = place(tail).expect("the entry was written a moment ago");
    let digits = format!("{checksum:08x}");
    tail.get_mut(at..at + digits.len())
        .expect("the entry has room for its value")
        .copy_from_slice(digits.as_bytes());
}

/// What the tail says of itself.
pub(super) fn check(tail: &[u8]) -> Result<(), Damage> {
    let missing = Damage::Missing(TAIL_KEY);
    let Some(at) = place(tail) else { return Err(missing) };
    let (Some(before), Some(digits), Some(behind)) =
        (tail.get(..at), tail.get(at..at + 8), tail.get(at + 8..))
    else {
        return Err(missing);
    };
    let computed = crc32c(&[before, NO_CHECKSUM, behind]);
    if digits != format!("{computed:08x}").as_bytes() {
        let stored = String::from_utf8_lossy(digits).into_owned();
        return Err(Damage::Tail { stored, computed });
    }
    Ok(())
}

/// Where the data ends, of which the footer has the checksums. To be called before the footer is
/// known to be right.
pub(super) fn data_end(footer: &[u8]) -> Option<u64> {
    let key = BLOCKS_KEY.as_bytes();
    let at = footer.windows(key.len()).rposition(|window| window == key)?;
    // The type of the value, then its length as a varint: the digits come after its last byte.
    let value = footer.get(at + key.len() + 1..)?;
    let length_bytes = 1 + value.iter().position(|byte| byte & 0x80 == 0)?;
    let digits = value.get(length_bytes..)?;
    let digits = digits.get(..digits.iter().take(20).position(|byte| *byte == b',')?)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Where the tail's checksum stands: behind its key, the type of the value (one byte) and its
/// length (one byte).
fn place(tail: &[u8]) -> Option<usize> {
    let key = TAIL_KEY.as_bytes();
    let at = tail.windows(key.len()).rposition(|window| window == key)?;
    Some(at + key.len() + 2)
}

fn value<'a>(entries: &'a [KeyValue], key: &'static str) -> Result<&'a str, Damage> {
    let entry = entries.iter().find(|entry| entry.key == key);
    entry.and_then(|entry| entry.value.as_deref()).ok_or(Damage::Missing(key))
}

fn part_text(part: &Part) -> String {
    let Part { partition, first, end, rows, raw_bytes, .. } = part;
    let Part { min_timestamp, max_timestamp, max_append_time, .. } = part;
    format!(
        "{partition},{first},{end},{rows},{raw_bytes},{min_timestamp},{max_timestamp},\
         {max_append_time}"
    )
}

fn parse_part(text: &str) -> Option<Part> {
    let mut numbers = text.split(',');
    let mut number = || numbers.next();
    let part = Part {
        partition: number()?.parse().ok()?,
        first: Offset(number()?.parse().ok()?),
        end: Offset(number()?.parse().ok()?),
        rows: number()?.parse().ok()?,
        raw_bytes: number()?.parse().ok()?,
        min_timestamp: Timestamp(number()?.parse().ok()?),
        max_timestamp: Timestamp(number()?.parse().ok()?),
        max_append_time: Timestamp(number()?.parse().ok()?),
    };
    number().is_none().then_some(part)
}

fn parse_blocks(text: &str) -> Option<Checksums> {
    let (data_bytes, digits) = text.split_once(',')?;
    let data_bytes: u64 = data_bytes.parse().ok()?;
    let checksum = |digits: &[u8]| {
        let hex = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(hex, 16).ok()
    };
    let (digits, left) = digits.as_bytes().as_chunks::<8>();
    if !left.is_empty() {
        return None;
    }
    let blocks: Option<Vec<u32>> = digits.iter().map(|digits| checksum(digits)).collect();
    let blocks = blocks.filter(|blocks| blocks.len() as u64 == data_bytes.div_ceil(BLOCK_BYTES))?;
    Some(Checksums { data_bytes, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> FileFacts {
        let part = |partition: i32, first: i64| Part {
            partition,
            first: Offset(first),
            end: Offset(first + 10),
            rows: 7,
            raw_bytes: 900,
            min_timestamp: Timestamp(i64::MIN),
            max_timestamp: Timestamp(i64::MAX),
            max_append_time: Timestamp(-1),
        };
        let parts = vec![part(0, 5), part(3, 0)];
        FileFacts { id: FileId(0xfe), bytes: 1234, created: Timestamp(99), parts }
    }

    #[test]
    fn entries_say_what_was_written() {
        let checksums = Checksums { data_bytes: BLOCK_BYTES + 1, blocks: vec![0, 0xdeadbeef] };
        let written = entries(&facts(), &checksums);
        let shown: Vec<_> =
            written.iter().map(|entry| (&*entry.key, entry.value.as_deref().unwrap())).collect();
        let parts = "0,5,15,7,900,-9223372036854775808,9223372036854775807,-1;\
                     3,0,10,7,900,-9223372036854775808,9223372036854775807,-1";
        let expect = [
            ("basalt.format", "1"),
            ("basalt.file", "00000000000000fe,99"),
            ("basalt.parts", parts),
            ("basalt.blocks", "65537,00000000deadbeef"),
            ("basalt.tail", "00000000"),
        ];
        assert_eq!(shown, expect);
        assert_eq!(parse(&written, 1234).unwrap(), (facts(), checksums));
    }

    #[test]
    fn what_does_not_fit_is_damage() {
        let written = entries(&facts(), &Checksums { data_bytes: 1, blocks: vec![7] });
        let check = |at: usize, value: &str, expect: &str| {
            let mut entries = written.clone();
            entries[at].value = Some(value.to_string());
            assert_eq!(parse(&entries, 1).unwrap_err().to_string(), expect);
        };
        check(0, "2", "format 2 is not known");
        check(1, "00", "the footer names no basalt.file");
        check(1, "00,x", "the footer names no basalt.file");
        check(2, "1,2", "the footer names no basalt.parts");
        check(2, "1,2,3,4,5,6,7,8,9", "the footer names no basalt.parts");
        check(3, "1,0000000", "the footer names no basalt.blocks");
        check(3, "1,", "the footer names no basalt.blocks");
        check(3, "65537,00000000", "the footer names no basalt.blocks");
        assert!(parse(&written[1..], 1).is_err());
    }

    #[test]
    fn a_sealed_tail_shows_every_flipped_bit() {
        let mut tail = b"indexes.. basalt.tail\x18\x0800000000 and the end".to_vec();
        seal(&mut tail);
        assert!(check(&tail).is_ok());
        for at in 0..tail.len() * 8 {
            let mut flipped = tail.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(check(&flipped).is_err(), "bit {at}");
        }
        assert!(check(b"").is_err() && check(b"basalt.tail").is_err());
    }
}
