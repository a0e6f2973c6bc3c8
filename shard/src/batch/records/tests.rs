//! Records are read as they stand, sizes must be exact, and both ways of reading agree.

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

fn visited(bytes: &[u8], count: i32) -> Result<Vec<Record<'_>>, Malformed> {
    let mut records = Vec::new();
    let read = Records::new(bytes, count).visit(|record| records.push(*record));
    read.map(|()| records).map_err(|(_, malformed)| malformed)
}

/// Without the fast way.
fn slowly(mut bytes: &[u8], count: i32) -> Result<Vec<Record<'_>>, Malformed> {
    let mut records = Vec::new();
    for _ in 0..count {
        let (record, rest) = read_record(bytes)?;
        records.push(record);
        bytes = rest;
    }
    match bytes.len() {
        0 => Ok(records),
        trailing => Err(Malformed::Trailing(trailing)),
    }
}

#[test]
fn a_record_is_read_as_it_stands() {
    let records = read(&ONE, 1).unwrap();
    assert_eq!(records[0].key, Some(&b"k"[..]));
    assert_eq!(records[0].value, Some(&b"v"[..]));
    let headers: Vec<_> = records[0].headers().collect();
    assert_eq!(headers, [Header { key: b"h", value: None }]);
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
        assert_eq!(visited(bytes, count), Err(expect), "{bytes:?}");
    };
    check(&[], 1, Malformed::Missing);
    check(&ONE, 2, Malformed::Missing);
    check(&ONE, 0, Malformed::Trailing(12));
    check(&[&ONE[..], &[9]].concat(), 1, Malformed::Trailing(1));
    check(&ONE[..11], 1, Malformed::Length { declared: 11, left: 10 });
    check(&[1], 1, Malformed::Length { declared: -1, left: 0 });
    check(&[0x80], 1, Malformed::Varint);
    check(&[0xff, 0xff, 0xff, 0xff, 0x1f], 1, Malformed::Varint);
    let changed = |at: usize, to: u8| {
        let mut bytes = ONE;
        bytes[at] = to;
        bytes
    };
    check(&changed(4, 3), 1, Malformed::Key { declared: -2, left: 7 });
    check(&changed(4, 16), 1, Malformed::Key { declared: 8, left: 7 });
    check(&changed(6, 3), 1, Malformed::Value { declared: -2, left: 5 });
    check(&changed(6, 12), 1, Malformed::Value { declared: 6, left: 5 });
    check(&changed(8, 1), 1, Malformed::HeaderCount { declared: -1, left: 3 });
    check(&changed(8, 4), 1, Malformed::HeaderCount { declared: 2, left: 3 });
    check(&changed(8, 0), 1, Malformed::Leftover(3));
    check(&changed(9, 1), 1, Malformed::HeaderKey { declared: -1, left: 2 });
    check(&changed(9, 6), 1, Malformed::HeaderKey { declared: 3, left: 2 });
    check(&changed(11, 3), 1, Malformed::HeaderValue { declared: -2, left: 0 });
    check(&changed(11, 2), 1, Malformed::HeaderValue { declared: 1, left: 0 });
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
        assert_eq!(short, i32::try_from(number).map_err(|_| Malformed::Varint), "{number}");
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

type Model = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>, i64);

fn any_record() -> impl Strategy<Value = Model> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let nullable = move || proptest::option::of(bytes());
    let headers = proptest::collection::vec((bytes(), nullable()), 0..4);
    (nullable(), nullable(), headers, any::<i64>())
}

fn build(models: &[Model]) -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    for (key, value, headers, timestamp) in models {
        let headers: Vec<_> =
            headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
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
        prop_assert_eq!(visited(&bytes, count), read(&bytes, count));
        prop_assert_eq!(slowly(&bytes, count), read(&bytes, count));
        let _ = read(&bytes[..at], count);
    }
}
