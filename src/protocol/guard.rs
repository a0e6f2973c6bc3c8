//! The frame guard: walks a request by its layout before the codec may decode it.
//!
//! The codec trusts counts: a frame of five bytes can make it reserve hundreds of gigabytes. So a
//! frame is first walked without allocating. It is refused when a count or length cannot fit into
//! what is left, when a null stands where none may, when text is not UTF-8, when bytes are left
//! over (but for `left_over_max`), or when the decoded form would take more memory than the budget.
//! What the guard lets pass the codec decodes in bounded memory; what it refuses closes the
//! connection. It never looks inside record data.

use super::api::Row;
use super::layouts::{Field, Kind, Layout};
use thiserror::Error;

/// The key of the Metadata API.
const METADATA: i16 = 3;

/// Old versions write the length of text as an int16. What could not be told to their clients is
/// not taken from others either; Apache Kafka has the same limit.
const TEXT_BYTES_MAX: usize = i16::MAX as usize;

/// What decoding costs for a map of unknown tagged fields and for each entry in it, measured
/// generously: a tree node with room for eleven entries, then a share of the next ones.
const TAG_MAP_BYTES: usize = 512;
const TAG_BYTES: usize = 96;

/// Why a frame is not decoded. `at` counts from the start of the frame, without its length.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    #[error("the frame ends at {at} where {needed} more bytes are due")]
    Short { at: usize, needed: usize },
    #[error("{count} elements at {at} cannot fit into the {left} bytes left")]
    Count { at: usize, count: usize, left: usize },
    #[error("a negative length or count at {at}")]
    Negative { at: usize },
    #[error("a null at {at} where none is allowed")]
    Null { at: usize },
    #[error("a varint longer than 32 bits at {at}")]
    Varint { at: usize },
    #[error("text of {bytes} bytes at {at} is longer than any version can write")]
    Long { at: usize, bytes: usize },
    #[error("text at {at} is not UTF-8")]
    Utf8 { at: usize },
    #[error("tag {tag} at {at} is not known in this version or has a wrong length")]
    Tag { at: usize, tag: u32 },
    #[error("tagged field {tag} occurs again or out of order at {at}")]
    TagOrder { at: usize, tag: u32 },
    #[error("{left} bytes are left over at {at}")]
    Trailing { at: usize, left: usize },
    #[error("decoding would take more than {budget} bytes of memory")]
    Budget { budget: usize },
}

/// A frame that may be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Where the body starts in the frame, and where it ends.
    pub body_at: usize,
    pub body_end: usize,
    /// The client id, as a range of the frame.
    pub client_id: Option<(usize, usize)>,
    /// Memory the decoded request takes beside the frame itself, at most.
    pub memory_bytes: usize,
}

/// Checks a frame (without its length prefix) whose api and version are known to be offered.
pub fn check(frame: &[u8], row: &Row, version: i16, budget: usize) -> Result<Passed, Refused> {
    let mut walk = Walk { frame, at: 0, version, flexible: false, memory: 0, budget };
    walk.skip(super::header::Peek::BYTES)?;
    let client_id = walk.short_text()?;
    walk.flexible = row.is_flexible(version);
    if walk.flexible {
        walk.tags(&[])?;
    }
    let body_at = walk.at;
    walk.charge(row.layout.memory_bytes)?;
    walk.layout(row.layout)?;
    let left = frame.len() - walk.at;
    if left > left_over_max(row, version) {
        return Err(Refused::Trailing { at: walk.at, left });
    }
    Ok(Passed { body_at, body_end: walk.at, client_id, memory_bytes: walk.memory })
}

/// librdkafka (seen in 2.4 to 2.16) asks for all topics by a count of four zero bytes, also where
/// counts are varints. The first says "all"; the others pass for the two flags and the tags, and
/// the real ones are left over. Apache Kafka reads past them.
fn left_over_max(row: &Row, version: i16) -> usize {
    let is_metadata = row.key == METADATA;
    if is_metadata && row.is_flexible(version) {
        3
    } else {
        0
    }
}

struct Walk<'a> {
    frame: &'a [u8],
    /// Never past the end of the frame.
    at: usize,
    version: i16,
    flexible: bool,
    memory: usize,
    budget: usize,
}

impl Walk<'_> {
    fn left(&self) -> usize {
        self.frame.len() - self.at
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Refused> {
        if bytes > self.left() {
            return Err(Refused::Short { at: self.at, needed: bytes - self.left() });
        }
        self.at += bytes;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let rest = self.frame.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.first_chunk::<N>() else {
            return Err(Refused::Short { at: self.at, needed: N - rest.len() });
        };
        self.at += N;
        Ok(*bytes)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Refused> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.budget {
            return Err(Refused::Budget { budget: self.budget });
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u32, Refused> {
        let start = self.at;
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Refused::Varint { at: start })
    }

    /// A length or count: compact (one more than the value, 0 for null) or of the given width.
    fn length(&mut self, wide: bool) -> Result<Option<usize>, Refused> {
        let start = self.at;
        if self.flexible {
            return Ok((self.varint()? as usize).checked_sub(1));
        }
        let value = if wide {
            i32::from_be_bytes(self.take()?)
        } else {
            i32::from(i16::from_be_bytes(self.take()?))
        };
        match value {
            -1 => Ok(None),
            value => match usize::try_from(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(Refused::Negative { at: start }),
            },
        }
    }

    /// The client id of a request header: an int16 length in every version, or null.
    fn short_text(&mut self) -> Result<Option<(usize, usize)>, Refused> {
        let Some(bytes) = self.length(false)? else {
            return Ok(None);
        };
        let start = self.at;
        self.text(bytes)?;
        Ok(Some((start, self.at)))
    }

    fn text(&mut self, bytes: usize) -> Result<(), Refused> {
        let start = self.at;
        if bytes > TEXT_BYTES_MAX {
            return Err(Refused::Long { at: start, bytes });
        }
        self.skip(bytes)?;
        let text = self.frame.get(start..self.at).unwrap_or_default();
        match std::str::from_utf8(text) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::Utf8 { at: start }),
        }
    }

    fn layout(&mut self, layout: &Layout) -> Result<(), Refused> {
        let version = self.version;
        for field in layout.fields.iter().filter(|f| f.is_in(version)) {
            self.field(field)?;
        }
        if self.flexible && !layout.bare {
            self.tags(layout.tagged)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &Field) -> Result<(), Refused> {
        let at = self.at;
        match field.kind {
            Kind::Bool | Kind::Int8 => self.skip(1),
            Kind::Int16 => self.skip(2),
            Kind::Int32 => self.skip(4),
            Kind::Int64 => self.skip(8),
            Kind::Uuid => self.skip(16),
            Kind::Text => match self.length(false)? {
                Some(bytes) => self.text(bytes),
                None => self.null(field, at),
            },
            Kind::Bytes => match self.length(true)? {
                Some(bytes) => self.skip(bytes),
                None => self.null(field, at),
            },
            Kind::Array(element) => match self.length(true)? {
                Some(count) => self.array(element, count),
                None => self.null(field, at),
            },
            Kind::Struct(layout) => self.layout(layout),
        }
    }

    fn null(&self, field: &Field, at: usize) -> Result<(), Refused> {
        if self.version >= field.null_since {
            Ok(())
        } else {
            Err(Refused::Null { at })
        }
    }

    fn array(&mut self, element: &Layout, count: usize) -> Result<(), Refused> {
        let least = self.least_bytes(element);
        if count.saturating_mul(least) > self.left() {
            return Err(Refused::Count { at: self.at, count, left: self.left() });
        }
        self.charge(count.saturating_mul(element.memory_bytes))?;
        for _ in 0..count {
            self.layout(element)?;
        }
        Ok(())
    }

    /// The fewest bytes an element can take: never 0, so a count is always bounded by the frame.
    fn least_bytes(&self, layout: &Layout) -> usize {
        let fields = layout.fields.iter().filter(|f| f.is_in(self.version));
        let sum: usize = fields.map(|f| self.least_field_bytes(f)).sum();
        let tags = usize::from(self.flexible && !layout.bare);
        (sum + tags).max(1)
    }

    fn least_field_bytes(&self, field: &Field) -> usize {
        match field.kind {
            Kind::Bool | Kind::Int8 => 1,
            Kind::Int16 => 2,
            Kind::Int32 => 4,
            Kind::Int64 => 8,
            Kind::Uuid => 16,
            Kind::Text if !self.flexible => 2,
            Kind::Bytes | Kind::Array(_) if !self.flexible => 4,
            Kind::Text | Kind::Bytes | Kind::Array(_) => 1,
            Kind::Struct(layout) => self.least_bytes(layout),
        }
    }

    /// Tagged fields: a count, then for each its tag, its length, its bytes. The decoder reads a
    /// tag it knows by its type and not by its length, so both must agree.
    fn tags(&mut self, known: &[(u32, Field)]) -> Result<(), Refused> {
        let count = self.varint()? as usize;
        if count.saturating_mul(2) > self.left() {
            return Err(Refused::Count { at: self.at, count, left: self.left() });
        }
        if count > 0 {
            self.charge(TAG_MAP_BYTES.saturating_add(count.saturating_mul(TAG_BYTES)))?;
        }
        let mut last = None;
        for _ in 0..count {
            let at = self.at;
            let tag = self.varint()?;
            let bytes = self.varint()? as usize;
            if last.is_some_and(|last| last >= tag) {
                return Err(Refused::TagOrder { at, tag });
            }
            last = Some(tag);
            self.tag(known, tag, bytes, at)?;
        }
        Ok(())
    }

    fn tag(
        &mut self,
        known: &[(u32, Field)],
        tag: u32,
        bytes: usize,
        at: usize,
    ) -> Result<(), Refused> {
        let start = self.at;
        let Some((_, field)) = known.iter().find(|(number, _)| *number == tag) else {
            return self.skip(bytes);
        };
        if !field.is_in(self.version) {
            return Err(Refused::Tag { at, tag });
        }
        self.field(field)?;
        if self.at - start != bytes {
            return Err(Refused::Tag { at, tag });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::api::Api;
    use crate::protocol::header::Peek;
    use crate::protocol::request::{read, Close, Incoming};
    use crate::protocol::samples::{self, Dice};
    use bytes::Bytes;

    const BUDGET: usize = 16 << 20;

    /// Each API and version offered, with a seed.
    fn each(seeds: u64, mut check: impl FnMut(&mut Dice, Api, i16)) {
        for api in Api::ALL.iter().copied() {
            for version in api.row().version_min..=api.row().version_max {
                for seed in 0..seeds {
                    check(&mut Dice::new(seed), api, version);
                }
            }
        }
    }

    #[test]
    fn what_the_codec_encodes_is_walked_to_its_last_byte() {
        each(150, |dice, api, version| {
            let (request, body) = samples::request(dice, api, version);
            let frame = samples::frame(dice, api, version, &body);
            let passed = check(&frame, api.row(), version, BUDGET);
            let passed = passed.unwrap_or_else(|refused| {
                panic!("{api:?} v{version}: {refused}\n{request:?}\n{frame:?}")
            });
            assert_eq!(passed.body_at, frame.len() - body.len());
            let Ok(Incoming::Request(decoded)) = read(&frame, BUDGET) else {
                panic!("{api:?} v{version}: not decoded")
            };
            assert_eq!(format!("{:?}", decoded.request.api()), api.row().name);
        });
    }

    #[test]
    fn what_the_table_describes_is_decoded_to_its_last_byte() {
        each(150, |dice, api, version| {
            let body = samples::wire(dice, api, version);
            let frame = samples::frame(dice, api, version, &body);
            if let Err(close) = read(&frame, BUDGET) {
                panic!("{api:?} v{version}: {close}\n{frame:?}");
            }
        });
    }

    #[test]
    fn every_truncation_and_every_extra_byte_is_refused() {
        each(8, |dice, api, version| {
            let body = samples::wire(dice, api, version);
            let frame = samples::frame(dice, api, version, &body);
            let step = (frame.len() / 200).max(1);
            for bytes in (Peek::BYTES..frame.len()).step_by(step) {
                assert!(check(&frame[..bytes], api.row(), version, BUDGET).is_err());
            }
            let left = left_over_max(api.row(), version) + 1;
            let longer = [&frame[..], &vec![0; left]].concat();
            let expect = Err(Refused::Trailing { at: frame.len(), left });
            assert_eq!(check(&longer, api.row(), version, BUDGET), expect);
        });
    }

    #[test]
    fn what_passes_mutated_is_decoded_to_its_last_byte() {
        let mut passed = 0;
        each(40, |dice, api, version| {
            let body = samples::wire(dice, api, version);
            let mut frame = samples::frame(dice, api, version, &body).to_vec();
            for _ in 0..30 {
                let room = (frame.len() - Peek::BYTES) as u64;
                let at = Peek::BYTES + dice.below(room) as usize;
                let before = frame[at];
                frame[at] = [0, 1, 0x7f, 0x80, 0xff, dice.number() as u8][dice.below(6) as usize];
                match read(&Bytes::copy_from_slice(&frame), 1 << 20) {
                    Ok(_) => passed += 1,
                    Err(Close::Refused { .. }) => frame[at] = before,
                    Err(close) => panic!("{api:?} v{version}: {close}\n{frame:02x?}"),
                }
            }
        });
        assert!(passed > 1000, "only {passed} mutations passed the guard");
    }

    #[test]
    fn hostile_counts_are_refused_before_anything_is_reserved() {
        let check = |api: Api, version: i16, body: &[u8], expect: Refused| {
            let mut frame = vec![0; Peek::BYTES];
            frame.extend([0xff, 0xff]); // no client id
            if api.row().is_flexible(version) {
                frame.push(0);
            }
            frame.extend(body);
            assert_eq!(check(&frame, api.row(), version, BUDGET), Err(expect));
        };
        let billions = [0x7f, 0xff, 0xff, 0xff];
        let count = i32::MAX as usize;
        check(Api::Metadata, 1, &billions, Refused::Count { at: 14, count, left: 0 });
        check(Api::Metadata, 0, &[0xff; 4], Refused::Null { at: 10 });
        check(Api::Metadata, 1, &[0xff, 0xff, 0xff, 0xfe], Refused::Negative { at: 10 });
        let compact = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let count = u32::MAX as usize - 1;
        check(Api::Metadata, 9, &compact, Refused::Count { at: 16, count, left: 0 });
        check(Api::Metadata, 9, &[0xff; 5], Refused::Varint { at: 11 });
        check(Api::Metadata, 9, &[2, 9, b'a'], Refused::Short { at: 13, needed: 7 });
        check(Api::Metadata, 9, &[2, 3, 0xc3, 0x28, 0, 0, 0, 0, 0], Refused::Utf8 { at: 13 });
        let long = [&[2, 0x81, 0x80, 0x02][..], &[b'a'; 0x8000]].concat();
        check(Api::Metadata, 9, &long, Refused::Long { at: 15, bytes: 0x8000 });
        let again = [1, 0, 0, 0, 2, 5, 0, 5, 0];
        check(Api::Metadata, 9, &again, Refused::TagOrder { at: 18, tag: 5 });
    }

    #[test]
    fn a_known_tag_must_have_its_length_and_version() {
        // v17 of FetchPartition knows tag 0 (16 bytes) and not tag 1.
        let check = |tags: &[u8], expect: Option<u32>| {
            let mut frame = vec![0; Peek::BYTES];
            frame.extend([0xff, 0xff, 0]); // no client id, no tags
            frame.extend([0; 4 + 4 + 4 + 1 + 4 + 4]); // max_wait_ms … session_epoch
            frame.push(2); // one topic
            frame.extend([0; 16]); // its id
            frame.push(2); // one partition
            frame.extend([0; 4 + 4 + 8 + 4 + 8 + 4]);
            let at = frame.len() + 1;
            frame.extend(tags);
            frame.extend([0, 1, 1, 0]); // topic tags, forgotten, rack_id, tags
            let got = super::check(&frame, Api::Fetch.row(), 17, BUDGET);
            assert_eq!(got.err(), expect.map(|tag| Refused::Tag { at, tag }), "{tags:?}");
        };
        check(&[0], None);
        check(&[&[1, 0, 16], &[7; 16][..]].concat(), None);
        check(&[&[1, 0, 15], &[7; 16][..]].concat(), Some(0));
        check(&[&[1, 1, 8], &[7; 8][..]].concat(), Some(1));
        check(&[1, 2, 3, 7, 7, 7], None);
    }

    #[test]
    fn dense_arrays_end_at_the_budget() {
        let topics = 100_000u32;
        let mut frame = vec![0; Peek::BYTES];
        frame.extend([0xff, 0xff]);
        frame.extend(topics.to_be_bytes());
        frame.extend(vec![0; topics as usize * 2]);
        let expect = Err(Refused::Budget { budget: 1 << 20 });
        assert_eq!(check(&frame, Api::Metadata.row(), 0, 1 << 20), expect);
        assert!(check(&frame, Api::Metadata.row(), 0, 16 << 20).is_ok());
    }
}
