//! Reads and writes the primitive types that records of groups and offsets are made of.
//!
//! Used by `record` for what lies in `__consumer_offsets` and by `group::subscription` for what a
//! consumer sends. Bytes come from a disk or a client: nothing here trusts a length. Not a codec
//! for requests, which are the `kafka-protocol` crate's.

use bytes::{BufMut, Bytes};
use thiserror::Error;
use uuid::Uuid;

/// The longest string that a length of 16 bits can tell.
pub const STRING_MAX: usize = i16::MAX as usize;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    #[error("{wanted} bytes are wanted where {left} are left")]
    Short { wanted: usize, left: usize },
    #[error("a length of {0}")]
    Length(i64),
    #[error("a string is not UTF-8")]
    NotUtf8,
    #[error("a number of more than 32 bits")]
    LongNumber,
    #[error("{0} bytes are left over")]
    LeftOver(usize),
}

/// Takes one value after the other from bytes.
pub struct Reader<'a> {
    left: &'a [u8],
    /// Whether lengths are those of Kafka's flexible versions: numbers of varying size, plus one.
    compact: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes, compact: false }
    }

    /// Goes on in the compact form of flexible versions.
    pub fn compact(&mut self) {
        self.compact = true;
    }

    pub fn end(self) -> Result<(), WireError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(WireError::LeftOver(left)),
        }
    }

    fn take(&mut self, wanted: usize) -> Result<&'a [u8], WireError> {
        let left = self.left.len();
        let (taken, rest) =
            self.left.split_at_checked(wanted).ok_or(WireError::Short { wanted, left })?;
        self.left = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let left = self.left.len();
        let (taken, rest) =
            self.left.split_first_chunk::<N>().ok_or(WireError::Short { wanted: N, left })?;
        self.left = rest;
        Ok(*taken)
    }

    pub fn int16(&mut self) -> Result<i16, WireError> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn int32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn int64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<Uuid, WireError> {
        self.array().map(Uuid::from_bytes)
    }

    /// An unsigned number of 1 to 5 bytes.
    pub fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| WireError::LongNumber);
            }
        }
        Err(WireError::LongNumber)
    }

    /// How many bytes or entries follow; `None` for null.
    fn length(&mut self, plain: fn(&mut Self) -> Result<i64, WireError>) -> LengthResult {
        let length = if self.compact { i64::from(self.varint()?) - 1 } else { plain(self)? };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(WireError::Length(length)),
        }
    }

    pub fn nullable_string(&mut self) -> Result<Option<String>, WireError> {
        let Some(length) = self.length(|reader| reader.int16().map(i64::from))? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| WireError::NotUtf8)?;
        Ok(Some(text.to_string()))
    }

    pub fn string(&mut self) -> Result<String, WireError> {
        self.nullable_string()?.ok_or(WireError::Length(-1))
    }

    pub fn bytes(&mut self) -> Result<Bytes, WireError> {
        let length = self.length(|reader| reader.int32().map(i64::from))?;
        let length = length.ok_or(WireError::Length(-1))?;
        self.take(length).map(Bytes::copy_from_slice)
    }

    /// How many entries an array has. Nothing may be set aside for them before they are read.
    pub fn entries(&mut self) -> Result<usize, WireError> {
        let length = self.length(|reader| reader.int32().map(i64::from))?;
        length.ok_or(WireError::Length(-1))
    }

    /// The tagged fields at the end of a structure, each shown to `field`; none in versions that
    /// are not flexible.
    pub fn tagged(&mut self, mut field: impl FnMut(u32, Reader<'a>) -> TagResult) -> TagResult {
        if !self.compact {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = self.varint()? as usize;
            field(tag, Reader { left: self.take(length)?, compact: true })?;
        }
        Ok(())
    }
}

pub type TagResult = Result<(), WireError>;
type LengthResult = Result<Option<usize>, WireError>;

/// Strings in the form that is not compact. The writer has seen to it that they are not longer
/// than `STRING_MAX`.
pub fn put_string(into: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("no string of a record is longer than a length");
    into.put_i16(length);
    into.put_slice(text.as_bytes());
}

pub fn put_nullable_string(into: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_string(into, text),
        None => into.put_i16(-1),
    }
}

pub fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).expect("a frame's bytes have a length of 32 bits");
    into.put_i32(length);
    into.put_slice(bytes);
}

pub fn put_varint(into: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        into.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_varying_size() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
        let check = |bytes: &[u8], expect| assert_eq!(Reader::new(bytes).varint(), Err(expect));
        check(&[], WireError::Short { wanted: 1, left: 0 });
        check(&[0x80], WireError::Short { wanted: 1, left: 0 });
        check(&[0xff; 6], WireError::LongNumber);
        check(&[0xff, 0xff, 0xff, 0xff, 0x7f], WireError::LongNumber);
    }

    #[test]
    fn lengths_are_not_trusted() {
        let check = |bytes: &[u8], expect| assert_eq!(Reader::new(bytes).string(), Err(expect));
        check(&[0, 3, b'a'], WireError::Short { wanted: 3, left: 1 });
        check(&[0xff, 0xff], WireError::Length(-1));
        check(&[0xff, 0xfe], WireError::Length(-2));
        check(&[0, 1, 0xff], WireError::NotUtf8);
        let huge = Reader::new(&[0x7f, 0xff, 0xff, 0xff]).bytes();
        assert_eq!(huge, Err(WireError::Short { wanted: 0x7fff_ffff, left: 0 }));
    }
}
