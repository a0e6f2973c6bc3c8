//! The records inside a batch: bounded parsing of the varint format.
//!
//! Stands behind the header and the codec: it is given uncompressed records. Yields borrowed keys,
//! values and headers exactly as they stand (headers in order, repeats kept, keys as raw bytes);
//! never copies or allocates, and refuses any byte that the sizes do not account for.
//!
//! A record is `length, attributes (1 byte), timestamp delta, offset delta, key, value, headers`.
//! Numbers are zigzag varints; key, value and header values are a length (−1: null) and bytes.
//! For example `key = "k"`, `value = null`, no headers, deltas 0, is `0e 00 00 00 02 6b 01 00`.

use super::error::Malformed;

type RecordResult<'a> = Result<Record<'a>, Malformed>;

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// The headers in their order.
    pub fn headers(&self) -> Headers<'a> {
        self.headers
    }
}

/// One header of a record. Keys may repeat and need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of a record: an iterator over bytes that were checked with the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.count = self.count.checked_sub(1)?;
        let mut cursor = Cursor(self.bytes);
        // Checked when the record was read: a failure cannot happen and would end the headers.
        let header = read_header(&mut cursor).ok()?;
        self.bytes = cursor.0;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Iterates over `count` records that must fill `bytes` to the last byte. Ends after an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    left: i32,
    done: bool,
}

impl<'a> Records<'a> {
    /// A negative `count` stands for none.
    pub fn new(bytes: &'a [u8], count: i32) -> Records<'a> {
        Records { bytes, left: count, done: false }
    }

    /// Visits all records; stops at the first that cannot be read and returns its place. The fast
    /// form of the iterator: here the records of the fast way never pass through memory.
    #[inline(always)]
    pub fn visit(mut self, mut visit: impl FnMut(&Record<'a>)) -> Result<(), (i32, Malformed)> {
        let count = self.left.max(0);
        for index in 0..count {
            if let Some((record, rest)) = read_short(self.bytes) {
                self.bytes = rest;
                visit(&record);
                continue;
            }
            let (record, rest) = read_record(self.bytes).map_err(|fault| (index, fault))?;
            self.bytes = rest;
            visit(&record);
        }
        match self.bytes.len() {
            0 => Ok(()),
            trailing => Err((count, Malformed::Trailing(trailing))),
        }
    }

    fn end(&mut self) -> Option<RecordResult<'a>> {
        if self.done || self.bytes.is_empty() {
            return None;
        }
        self.done = true;
        Some(Err(Malformed::Trailing(self.bytes.len())))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordResult<'a>;

    fn next(&mut self) -> Option<RecordResult<'a>> {
        if self.left <= 0 || self.done {
            return self.end();
        }
        self.left -= 1;
        match read_record(self.bytes) {
            Ok((record, rest)) => {
                self.bytes = rest;
                Some(Ok(record))
            }
            Err(malformed) => {
                self.done = true;
                Some(Err(malformed))
            }
        }
    }
}

/// The fast way: a record whose first five numbers fill at most eight bytes together, read from
/// one register without a check for each byte. `None` for any other record, good or bad.
#[inline(always)]
fn read_short(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let mut window = Window { bits: u64::from_le_bytes(*bytes.first_chunk()?), taken: 0 };
    let length = window.number()?;
    let end = window.taken + usize::try_from(length).ok()?;
    window.skip();
    let timestamp_delta = i64::from(window.number()?);
    let offset_delta = window.number()?;
    let key_bytes = window.number()?;
    if window.taken > size_of::<u64>() {
        return None;
    }
    let (record, rest) = bytes.split_at_checked(end)?;
    let mut body = Cursor(record.get(window.taken..)?);
    let key = body.take_nullable(key_bytes).ok()?;
    let value_bytes = body.varint().ok()?;
    let value = body.take_nullable(value_bytes).ok()?;
    let headers = match body.0 {
        // No headers and nothing left over.
        [0] => Headers::default(),
        _ => read_headers(body.0).ok()?,
    };
    Some((Record { timestamp_delta, offset_delta, key, value, headers }, rest))
}

/// Up to eight bytes in a register, the next one lowest. Numbers behind them read as 0.
struct Window {
    bits: u64,
    taken: usize,
}

impl Window {
    #[inline(always)]
    fn skip(&mut self) {
        self.bits >>= 8;
        self.taken += 1;
    }

    /// A zigzag varint of one or two bytes.
    #[inline(always)]
    fn number(&mut self) -> Option<i32> {
        let bits = self.bits as u32;
        let raw = if bits & 0x80 == 0 {
            self.bits >>= 8;
            self.taken += 1;
            bits & 0x7f
        } else if bits & 0x8000 == 0 {
            self.bits >>= 16;
            self.taken += 2;
            bits & 0x7f | (bits & 0x7f00) >> 1
        } else {
            return None;
        };
        Some(unzigzag(raw))
    }
}

/// Any record, and the place for every fault.
#[inline(never)]
fn read_record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), Malformed> {
    let mut batch = Cursor(bytes);
    if batch.0.is_empty() {
        return Err(Malformed::Missing);
    }
    let declared = batch.varint()?;
    let body = batch.take(declared).map_err(|left| Malformed::Length { declared, left })?;
    let mut body = Cursor(body);
    // No bit of a record's attributes has a meaning.
    body.byte()?;
    let timestamp_delta = body.varlong()?;
    let offset_delta = body.varint()?;
    let key_bytes = body.varint()?;
    let key = body
        .take_nullable(key_bytes)
        .map_err(|left| Malformed::Key { declared: key_bytes, left })?;
    let value_bytes = body.varint()?;
    let value = body
        .take_nullable(value_bytes)
        .map_err(|left| Malformed::Value { declared: value_bytes, left })?;
    let headers = read_headers(body.0)?;
    Ok((Record { timestamp_delta, offset_delta, key, value, headers }, batch.0))
}

/// Checks the headers to the end of the record.
#[inline(never)]
fn read_headers(body: &[u8]) -> Result<Headers<'_>, Malformed> {
    let mut body = Cursor(body);
    let declared = body.varint()?;
    let left = body.0.len();
    // The least header has two bytes: an empty key and no value.
    let count = match u32::try_from(declared) {
        Ok(count) if count as usize <= left / 2 => count,
        _ => return Err(Malformed::HeaderCount { declared, left }),
    };
    let headers = Headers { count, bytes: body.0 };
    for _ in 0..count {
        read_header(&mut body)?;
    }
    if !body.0.is_empty() {
        return Err(Malformed::Leftover(body.0.len()));
    }
    Ok(headers)
}

fn read_header<'a>(body: &mut Cursor<'a>) -> Result<Header<'a>, Malformed> {
    let declared = body.varint()?;
    let key = body.take(declared).map_err(|left| Malformed::HeaderKey { declared, left })?;
    let declared = body.varint()?;
    let value =
        body.take_nullable(declared).map_err(|left| Malformed::HeaderValue { declared, left })?;
    Ok(Header { key, value })
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.0.split_first().ok_or(Malformed::Varint)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// The next `count` bytes, or how many are left instead.
    #[inline(always)]
    fn take(&mut self, count: i32) -> Result<&'a [u8], usize> {
        // A negative count becomes more than any slice holds.
        match self.0.split_at_checked(count as isize as usize) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(self.0.len()),
        }
    }

    #[inline(always)]
    fn take_nullable(&mut self, count: i32) -> Result<Option<&'a [u8]>, usize> {
        if count == -1 {
            return Ok(None);
        }
        self.take(count).map(Some)
    }

    /// A zigzag varint of 32 bits: one or two bytes in nearly every record.
    #[inline(always)]
    fn varint(&mut self) -> Result<i32, Malformed> {
        let raw = match *self.0 {
            [a, ref rest @ ..] if a < 0x80 => {
                self.0 = rest;
                u32::from(a)
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.0 = rest;
                u32::from(a & 0x7f) | u32::from(b) << 7
            }
            _ => u32::try_from(self.long(5)?).map_err(|_| Malformed::Varint)?,
        };
        Ok(unzigzag(raw))
    }

    /// A zigzag varint of 64 bits.
    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, Malformed> {
        let raw = match *self.0 {
            [a, ref rest @ ..] if a < 0x80 => {
                self.0 = rest;
                u64::from(a)
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.0 = rest;
                u64::from(a & 0x7f) | u64::from(b) << 7
            }
            _ => self.long(10)?,
        };
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    #[inline(always)]
    fn long(&mut self, bytes_max: u32) -> Result<u64, Malformed> {
        let (number, rest) = long_number(self.0, bytes_max)?;
        self.0 = rest;
        Ok(number)
    }
}

#[inline(always)]
fn unzigzag(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

/// A varint of up to `bytes_max` bytes; longer ones and a tenth byte above 1 do not fit. Takes
/// and returns what is left, so that a cursor need not live in memory for its sake.
#[inline(never)]
fn long_number(bytes: &[u8], bytes_max: u32) -> Result<(u64, &[u8]), Malformed> {
    let mut number = 0u64;
    let mut left = bytes;
    for place in 0..bytes_max {
        let (&byte, rest) = left.split_first().ok_or(Malformed::Varint)?;
        left = rest;
        if place == 9 && byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok((number, left));
        }
    }
    Err(Malformed::Varint)
}

#[cfg(test)]
mod tests;
