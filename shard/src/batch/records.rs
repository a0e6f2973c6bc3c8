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
        Records {
            bytes,
            left: count,
            done: false,
        }
    }

    #[cold]
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

    #[inline]
    fn next(&mut self) -> Option<RecordResult<'a>> {
        if self.left <= 0 || self.done {
            return self.end();
        }
        self.left -= 1;
        let mut cursor = Cursor(self.bytes);
        let record = read_record(&mut cursor);
        self.bytes = cursor.0;
        self.done = record.is_err();
        Some(record)
    }
}

#[inline(always)]
fn read_record<'a>(batch: &mut Cursor<'a>) -> RecordResult<'a> {
    if batch.0.is_empty() {
        return Err(Malformed::Missing);
    }
    let declared = batch.varint()?;
    let body = batch
        .take(declared)
        .map_err(|left| Malformed::Length { declared, left })?;
    let mut body = Cursor(body);
    // No bit of a record's attributes has a meaning.
    body.byte()?;
    let timestamp_delta = body.varlong()?;
    let offset_delta = body.varint()?;
    let key_bytes = body.varint()?;
    let key = body
        .take_nullable(key_bytes)
        .map_err(|left| Malformed::Key {
            declared: key_bytes,
            left,
        })?;
    let value_bytes = body.varint()?;
    let value = body
        .take_nullable(value_bytes)
        .map_err(|left| Malformed::Value {
            declared: value_bytes,
            left,
        })?;
    let headers = match body.0 {
        // No headers and nothing left over.
        [0] => Headers::default(),
        _ => read_headers(&mut body)?,
    };
    Ok(Record {
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers,
    })
}

/// Checks the headers to the end of the record.
fn read_headers<'a>(body: &mut Cursor<'a>) -> Result<Headers<'a>, Malformed> {
    let declared = body.varint()?;
    let left = body.0.len();
    // The least header has two bytes: an empty key and no value.
    let count = match u32::try_from(declared) {
        Ok(count) if count as usize <= left / 2 => count,
        _ => return Err(Malformed::HeaderCount { declared, left }),
    };
    let headers = Headers {
        count,
        bytes: body.0,
    };
    for _ in 0..count {
        read_header(body)?;
    }
    if !body.0.is_empty() {
        return Err(Malformed::Leftover(body.0.len()));
    }
    Ok(headers)
}

fn read_header<'a>(body: &mut Cursor<'a>) -> Result<Header<'a>, Malformed> {
    let declared = body.varint()?;
    let key = body
        .take(declared)
        .map_err(|left| Malformed::HeaderKey { declared, left })?;
    let declared = body.varint()?;
    let value = body
        .take_nullable(declared)
        .map_err(|left| Malformed::HeaderValue { declared, left })?;
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
            _ => u32::try_from(self.long_number(5)?).map_err(|_| Malformed::Varint)?,
        };
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
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
            _ => self.long_number(10)?,
        };
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A varint of up to `bytes_max` bytes; longer ones and a tenth byte above 1 do not fit.
    #[inline(never)]
    fn long_number(&mut self, bytes_max: u32) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for place in 0..bytes_max {
            let byte = self.byte()?;
            if place == 9 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Varint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::builder::put_varint;
    use crate::batch::{BatchBuilder, NewRecord, HEADER_BYTES};
    use crate::ids::Timestamp;
    use proptest::prelude::*;

    /// Key "k", value "v", one header "h" without a value.
    const ONE: [u8; 12] = [22, 0, 0, 0, 2, b'k', 2, b'v', 2, 2, b'h', 1];

    fn read(bytes: &[u8], count: i32) -> Result<Vec<Record<'_>>, Malformed> {
        Records::new(bytes, count).collect()
    }

    #[test]
    fn a_record_is_read_as_it_stands() {
        let records = read(&ONE, 1).unwrap();
        assert_eq!(records[0].key, Some(&b"k"[..]));
        assert_eq!(records[0].value, Some(&b"v"[..]));
        let headers: Vec<_> = records[0].headers().collect();
        assert_eq!(
            headers,
            [Header {
                key: b"h",
                value: None
            }]
        );
        assert_eq!(read(&[], 0), Ok(vec![]));
        assert_eq!(read(&[], -1), Ok(vec![]));
    }

    #[test]
    fn null_and_empty_differ() {
        let records = [&[12, 0, 0, 0, 1, 0, 0][..], &[12, 0, 0, 2, 0, 1, 0]].concat();
        let records = read(&records, 2).unwrap();
        assert_eq!((records[0].key, records[0].value), (None, Some(&b""[..])));
        assert_eq!((records[1].key, records[1].value), (Some(&b""[..]), None));
    }

    #[test]
    fn sizes_must_be_exact() {
        let check = |bytes: &[u8], count, expect: Malformed| {
            assert_eq!(read(bytes, count), Err(expect), "{bytes:?}");
        };
        check(&[], 1, Malformed::Missing);
        check(&ONE, 2, Malformed::Missing);
        check(&ONE, 0, Malformed::Trailing(12));
        check(&[&ONE[..], &[9]].concat(), 1, Malformed::Trailing(1));
        check(
            &ONE[..11],
            1,
            Malformed::Length {
                declared: 11,
                left: 10,
            },
        );
        check(
            &[1],
            1,
            Malformed::Length {
                declared: -1,
                left: 0,
            },
        );
        check(&[0x80], 1, Malformed::Varint);
        check(&[0xff, 0xff, 0xff, 0xff, 0x1f], 1, Malformed::Varint);
        let changed = |at: usize, to: u8| {
            let mut bytes = ONE;
            bytes[at] = to;
            bytes
        };
        check(
            &changed(4, 3),
            1,
            Malformed::Key {
                declared: -2,
                left: 7,
            },
        );
        check(
            &changed(4, 16),
            1,
            Malformed::Key {
                declared: 8,
                left: 7,
            },
        );
        check(
            &changed(6, 3),
            1,
            Malformed::Value {
                declared: -2,
                left: 5,
            },
        );
        check(
            &changed(6, 12),
            1,
            Malformed::Value {
                declared: 6,
                left: 5,
            },
        );
        check(
            &changed(8, 1),
            1,
            Malformed::HeaderCount {
                declared: -1,
                left: 3,
            },
        );
        check(
            &changed(8, 4),
            1,
            Malformed::HeaderCount {
                declared: 2,
                left: 3,
            },
        );
        check(&changed(8, 0), 1, Malformed::Leftover(3));
        check(
            &changed(9, 1),
            1,
            Malformed::HeaderKey {
                declared: -1,
                left: 2,
            },
        );
        check(
            &changed(9, 6),
            1,
            Malformed::HeaderKey {
                declared: 3,
                left: 2,
            },
        );
        check(
            &changed(11, 3),
            1,
            Malformed::HeaderValue {
                declared: -2,
                left: 0,
            },
        );
        check(
            &changed(11, 2),
            1,
            Malformed::HeaderValue {
                declared: 1,
                left: 0,
            },
        );
    }

    #[test]
    fn numbers_of_any_length_are_read() {
        let check = |number: i64| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut cursor = Cursor(&bytes);
            assert_eq!(cursor.varlong(), Ok(number));
            assert!(cursor.0.is_empty());
            let short = Cursor(&bytes).varint();
            assert_eq!(
                short,
                i32::try_from(number).map_err(|_| Malformed::Varint),
                "{number}"
            );
        };
        for shift in 0..64 {
            for near in [-1, 0, 1] {
                check((1i64 << shift).wrapping_add(near));
                check((1i64 << shift).wrapping_neg().wrapping_add(near));
            }
        }
        // Longer than needed is legal; more than fits is not.
        assert_eq!(Cursor(&[0x82, 0x80, 0x00]).varint(), Ok(1));
        assert_eq!(Cursor(&[0xff; 9]).varlong(), Err(Malformed::Varint));
        let beyond = [[0xff; 9].as_slice(), &[2]].concat();
        assert_eq!(Cursor(&beyond).varlong(), Err(Malformed::Varint));
    }

    type Model = (
        Option<Vec<u8>>,
        Option<Vec<u8>>,
        Vec<(Vec<u8>, Option<Vec<u8>>)>,
        i64,
    );

    fn any_record() -> impl Strategy<Value = Model> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let nullable = move || proptest::option::of(bytes());
        let headers = proptest::collection::vec((bytes(), nullable()), 0..4);
        (nullable(), nullable(), headers, any::<i64>())
    }

    fn build(models: &[Model]) -> Vec<u8> {
        let mut batch = BatchBuilder::new();
        for (key, value, headers, timestamp) in models {
            let headers: Vec<_> = headers
                .iter()
                .map(|(key, value)| Header {
                    key,
                    value: value.as_deref(),
                })
                .collect();
            batch.push(&NewRecord {
                timestamp: Timestamp(*timestamp),
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            });
        }
        batch.build().split_off(HEADER_BYTES)
    }

    proptest! {
        #[test]
        fn what_was_built_is_read(models in proptest::collection::vec(any_record(), 0..20)) {
            let bytes = build(&models);
            let records = read(&bytes, models.len() as i32).unwrap();
            prop_assert_eq!(records.len(), models.len());
            for (index, (record, model)) in records.iter().zip(&models).enumerate() {
                prop_assert_eq!(record.offset_delta, index as i32);
                prop_assert_eq!(record.key, model.0.as_deref());
                prop_assert_eq!(record.value, model.1.as_deref());
                let headers: Vec<_> = record
                    .headers()
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect();
                prop_assert_eq!(&headers, &model.2);
                let delta = model.3.wrapping_sub(models[0].3);
                prop_assert_eq!(record.timestamp_delta, delta);
            }
        }

        #[test]
        fn a_changed_byte_never_panics(
            models in proptest::collection::vec(any_record(), 1..5),
            at in any::<proptest::sample::Index>(),
            value in any::<u8>(),
            count in -1..7,
        ) {
            let mut bytes = build(&models);
            let at = at.index(bytes.len());
            bytes[at] = value;
            for record in Records::new(&bytes, count).flatten() {
                prop_assert_eq!(record.headers().count(), record.headers().len());
            }
            let _ = read(&bytes[..at], count);
        }
    }
}
