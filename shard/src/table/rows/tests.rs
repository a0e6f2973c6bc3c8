//! Batches into rows: what is taken, left out and refused.

use super::*;
use crate::batch::Attributes;
use crate::batch::{
    empty_batch, place, BatchBuilder, Codec, Header, Marker, MarkerKind, NewRecord,
};
use crate::ids::{LeaderEpoch, ProducerEpoch};
use crate::table::schema::{column, storage_schema};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, Int8Type, TimestampMicrosecondType};
use arrow_array::Array;
use proptest::collection::vec;
use proptest::prelude::*;

fn placed(mut batch: Vec<u8>, base: i64) -> Vec<u8> {
    place(&mut batch, Offset(base), LeaderEpoch(4));
    batch
}

fn batch(codec: Codec, base: i64, timestamps: &[i64]) -> Vec<u8> {
    let mut batch = BatchBuilder::new().codec(codec);
    for timestamp in timestamps {
        batch.push(&NewRecord {
            timestamp: Timestamp(*timestamp),
            key: Some(b"k"),
            value: None,
            headers: &[],
        });
    }
    placed(batch.build(), base)
}

fn offsets(rows: &RecordBatch) -> Vec<i64> {
    rows.column(column::OFFSET).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn every_column_holds_what_the_record_said() {
    let headers = [
        Header { key: b"h", value: Some(b"1") },
        Header { key: b"\xff\xfe", value: None },
        Header { key: b"h", value: Some(b"") },
    ];
    let mut sent = BatchBuilder::new().codec(Codec::Lz4);
    sent.push(&NewRecord {
        timestamp: Timestamp(1500),
        key: Some(b""),
        value: None,
        headers: &headers,
    });
    sent.skip(2);
    sent.push(&NewRecord { timestamp: Timestamp(-1), value: Some(b"v"), ..Default::default() });
    let mut builder = RowsBuilder::new();
    builder.push(9, Timestamp(1600), &placed(sent.build(), 70)).unwrap();
    assert_eq!(builder.rows(), 2);
    assert!(builder.bytes() > 100);
    let rows = builder.finish().unwrap();
    assert_eq!(rows.schema(), storage_schema());
    let blob = |at: usize, row: usize| {
        let column = rows.column(at).as_binary::<i32>();
        column.is_valid(row).then(|| column.value(row).to_vec())
    };
    assert_eq!((blob(column::KEY, 0), blob(column::VALUE, 0)), (Some(vec![]), None));
    assert_eq!((blob(column::KEY, 1), blob(column::VALUE, 1)), (None, Some(b"v".to_vec())));
    let time = |at: usize| rows.column(at).as_primitive::<TimestampMicrosecondType>().clone();
    let producer = time(column::TIMESTAMP_PRODUCER);
    assert_eq!((producer.value(0), producer.is_null(1)), (1_500_000, true));
    assert_eq!(time(column::TIMESTAMP_BROKER).values()[..], [1_600_000, 1_600_000]);
    let long = |at: usize| rows.column(at).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(long(column::TIMESTAMP_MS), [1500, -1]);
    assert_eq!(long(column::APPEND_TIME_MS), [1600, 1600]);
    assert_eq!(long(column::OFFSET), [70, 73]);
    let int = |at: usize| rows.column(at).as_primitive::<Int32Type>().values().to_vec();
    assert_eq!((int(column::PARTITION), int(column::LEADER_EPOCH)), (vec![9, 9], vec![4, 4]));
    let byte = |at: usize| rows.column(at).as_primitive::<Int8Type>().values().to_vec();
    assert_eq!((byte(column::TIMESTAMP_TYPE), byte(column::CODEC)), (vec![0, 0], vec![3, 3]));
    let list = rows.column(column::HEADERS).as_list::<i32>();
    assert_eq!(list.value_offsets(), [0, 3, 3]);
    let inner = list.values().as_struct();
    let keys: Vec<_> = inner.column(0).as_binary::<i32>().iter().map(Option::unwrap).collect();
    assert_eq!(keys, [&b"h"[..], b"\xff\xfe", b"h"]);
    let values: Vec<_> = inner.column(1).as_binary::<i32>().iter().collect();
    assert_eq!(values, [Some(&b"1"[..]), None, Some(b"")]);
}

#[test]
fn with_append_time_consumers_see_the_brokers_clock() {
    let sent = batch(Codec::None, 5, &[100, 200]);
    let (mut header, body, _) = BatchHeader::split(&sent).unwrap();
    header.attributes = header.attributes.with_append_time();
    header.max_timestamp = Timestamp(900);
    header.crc = header.crc_with(body);
    let sent = [&header.encode()[..], body].concat();
    let mut builder = RowsBuilder::new();
    builder.push(0, Timestamp(901), &sent).unwrap();
    let rows = builder.finish().unwrap();
    let seen = rows.column(column::TIMESTAMP_MS).as_primitive::<Int64Type>();
    assert_eq!(seen.values()[..], [900, 900]);
    let stamped = rows.column(column::TIMESTAMP_PRODUCER);
    let stamped = stamped.as_primitive::<TimestampMicrosecondType>();
    assert_eq!(stamped.values()[..], [100_000, 200_000]);
    let kind = rows.column(column::TIMESTAMP_TYPE).as_primitive::<Int8Type>();
    assert_eq!(kind.values()[..], [1, 1]);
}

#[test]
fn times_no_database_can_express_are_null_and_kept_exactly() {
    let first = -62_135_596_800_000i64;
    let last = 253_402_300_799_999i64;
    let times = [first, first - 1, last, last + 1, i64::MIN, i64::MAX, -1, -2, 0];
    let mut builder = RowsBuilder::new();
    for (offset, time) in (0..).zip(times) {
        builder.push(0, Timestamp(time), &batch(Codec::None, offset, &[time])).unwrap();
    }
    let rows = builder.finish().unwrap();
    let exact = rows.column(column::TIMESTAMP_MS).as_primitive::<Int64Type>();
    assert_eq!(exact.values()[..], times);
    let micros = [Some(first * 1000), None, Some(last * 1000), None, None, None, None];
    let micros = [&micros[..], &[Some(-2000), Some(0)]].concat();
    for at in [column::TIMESTAMP_BROKER, column::TIMESTAMP_PRODUCER] {
        let shown: Vec<_> =
            rows.column(at).as_primitive::<TimestampMicrosecondType>().iter().collect();
        assert_eq!(shown, micros);
    }
}

#[test]
fn markers_aborted_records_and_those_outside_the_window_make_no_rows() {
    let producer = (ProducerId(7), ProducerEpoch(0));
    let by_producer = |base: i64, in_transaction: bool| {
        let sent = BatchBuilder::new().producer(producer.0, producer.1, 0);
        let mut sent = if in_transaction { sent.transactional() } else { sent };
        sent.push(&NewRecord { value: Some(b"v"), ..Default::default() });
        placed(sent.build(), base)
    };
    let marker = Marker { kind: MarkerKind::Abort, coordinator_epoch: 0 };
    let marker = placed(marker.build(producer.0, producer.1, Timestamp(0)), 12);
    let mut builder = RowsBuilder::new();
    builder.window(Offset(9), Offset(21));
    builder.aborted(Aborted(vec![(producer.0, Offset(10)..Offset(12))]));
    let push = |builder: &mut RowsBuilder, batch: &[u8]| {
        builder.push(0, Timestamp(0), batch).unwrap();
    };
    push(&mut builder, &batch(Codec::Zstd, 7, &[0, 0, 0]));
    push(&mut builder, &by_producer(10, true));
    push(&mut builder, &by_producer(11, false));
    push(&mut builder, &marker);
    push(&mut builder, &by_producer(13, true));
    push(&mut builder, &empty_batch(Offset(14), Offset(18), LeaderEpoch(0)));
    push(&mut builder, &batch(Codec::Gzip, 19, &[0, 0, 0]));
    assert_eq!(offsets(&builder.finish().unwrap()), [9, 11, 13, 19, 20]);
    assert_eq!(builder.rows(), 0);
}

#[test]
fn a_batch_that_cannot_be_read_leaves_nothing_behind() {
    let good = batch(Codec::None, 5, &[1, 2, 3]);
    let mut builder = RowsBuilder::new();
    builder.push(0, Timestamp(0), &good).unwrap();
    let refused = |builder: &mut RowsBuilder, bytes: &[u8]| {
        let error = builder.push(3, Timestamp(0), bytes).unwrap_err();
        let RowsError::Batch { partition: 3, offset, source } = error else { panic!("{error}") };
        (offset.0, source)
    };
    for at in 16..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        refused(&mut builder, &bad);
    }
    for end in 0..good.len() {
        refused(&mut builder, &good[..end]);
    }
    let more = [&good[..], &[0]].concat();
    assert!(matches!(refused(&mut builder, &more), (5, BatchError::Several { .. })));
    // Right checksums, wrong records: the last record is cut off, or a delta goes back.
    let (mut header, body, _) = BatchHeader::split(&good).unwrap();
    let mut body = body.to_vec();
    let third_delta = body.len() - 5;
    assert_eq!(body[third_delta], 4);
    for (at, value) in [(third_delta, 2), (third_delta, 6), (third_delta + 1, 0x7f)] {
        let before = std::mem::replace(&mut body[at], value);
        header.crc = header.crc_with(&body);
        let bytes = [&header.encode()[..], &body].concat();
        assert!(matches!(refused(&mut builder, &bytes), (5, BatchError::Records(_))));
        body[at] = before;
    }
    assert_eq!(offsets(&builder.finish().unwrap()), [5, 6, 7]);
}

proptest! {
    #[test]
    fn any_bytes_with_a_right_checksum_make_rows_or_an_error(
        body in vec(any::<u8>(), 0..200),
        attributes in any::<i16>(),
        record_count in prop_oneof![0i32..8, any::<i32>()],
        last_offset_delta in any::<i32>(),
        base in any::<i64>(),
    ) {
        let (mut header, _, _) = BatchHeader::split(&batch(Codec::None, base, &[1])).unwrap();
        header.attributes = Attributes(attributes);
        header.batch_length = BatchHeader::length_of(body.len());
        (header.record_count, header.last_offset_delta) = (record_count, last_offset_delta);
        header.crc = header.crc_with(&body);
        let bytes = [&header.encode()[..], &body].concat();
        let mut builder = RowsBuilder::new();
        builder.push(0, Timestamp(0), &batch(Codec::None, 0, &[1])).unwrap();
        let pushed = builder.push(0, Timestamp(0), &bytes);
        let rows = builder.finish().unwrap();
        prop_assert!(pushed.is_ok() || rows.num_rows() == 1);
    }
}
