//! Rows made batches again: the same records, whatever they were.

use super::*;
use crate::batch::{BatchHeader, Records};
use crate::disk::sim::SimDisk;
use crate::table::file::{Covered, FileWriter};
use crate::table::rows::RowsBuilder;
use crate::table::samples::{built, consumed, sent_batches, Seen};
use crate::table::{file_path, FileId};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// A file of the batches of some partitions, each beginning at offset 10.
fn file_of(disk: &SimDisk, parts: &[(i32, Vec<Vec<u8>>, i64)], group: usize) -> TableFile {
    let (table, id) = (Path::new("/t"), FileId(1));
    let mut writer = FileWriter::create(disk, table, id, Timestamp(0)).unwrap();
    let mut covered = Vec::new();
    let mut rows = RowsBuilder::new();
    for (partition, batches, end) in parts {
        for some in batches.chunks(group) {
            some.iter().for_each(|batch| rows.push(*partition, Timestamp(77), batch).unwrap());
            writer.add(&rows.finish().unwrap()).unwrap();
        }
        let raw_bytes = batches.iter().map(|batch| batch.len() as u64).sum();
        let (first, end) = (Offset(10), Offset(*end));
        covered.push(Covered { partition: *partition, first, end, raw_bytes });
    }
    let facts = writer.finish(&covered).unwrap();
    TableFile { path: file_path(table, id), facts }
}

/// Reads a part as a consumer does, from an offset to its end.
fn consume(
    blocks: &Blocks,
    file: &TableFile,
    partition: i32,
    from: i64,
    bytes: usize,
) -> Vec<Seen> {
    let part = *file.facts.part(partition).unwrap();
    let end = part.end.0;
    let mut at = from.max(part.first.0);
    let mut all = Vec::new();
    while at < end {
        let from = Offset(at);
        let want = Want { partition, from, bytes_max: bytes, whole_first: true };
        let (seen, next) = consumed(&rebatch(blocks, file, &want).unwrap());
        let next = next.expect("a reader always gets something");
        assert!(next > at && next <= end, "from {at} to {next} of {end}");
        all.extend(seen.into_iter().filter(|record| record.offset >= at));
        at = next;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn records_come_back_as_they_were(
        first in sent_batches(12),
        second in sent_batches(12),
        tail in prop_oneof![Just(0i64), 1i64..50, Just(3 << 31)],
        bytes_max in prop_oneof![Just(0usize), 1usize..5000, Just(1 << 20)],
        group in 1usize..4,
        start in 0i64..500,
    ) {
        let disk = SimDisk::new(3);
        let mut parts = Vec::new();
        let mut expect = Vec::new();
        for (partition, sent) in [(0, &first), (5, &second)] {
            let (bytes, seen, end) = built(sent, 10);
            parts.push((partition, bytes, end + tail));
            expect.push((partition, seen));
        }
        let file = file_of(&disk, &parts, group);
        let blocks = Blocks::new(Arc::new(disk), 1 << 20);
        for (partition, seen) in expect {
            prop_assert_eq!(&consume(&blocks, &file, partition, 0, bytes_max), &seen);
            let from = 10 + start;
            let later: Vec<Seen> = seen.into_iter().filter(|seen| seen.offset >= from).collect();
            prop_assert_eq!(&consume(&blocks, &file, partition, from, bytes_max), &later);
        }
    }
}

#[test]
fn a_reader_gets_to_the_end_of_a_part() {
    let disk = SimDisk::new(3);
    let sent = |offsets: std::ops::Range<i64>| {
        let one = |offset: i64| {
            let mut batch = BatchBuilder::new();
            batch.push(&NewRecord { value: Some(&[7; 1000]), ..Default::default() });
            let mut batch = batch.build();
            place(&mut batch, Offset(offset), LeaderEpoch(0));
            batch
        };
        offsets.map(one).collect::<Vec<_>>()
    };
    let parts = [(0, sent(40..2060), 3000), (1, Vec::new(), 90), (2, sent(10..11), 11)];
    let file = file_of(&disk, &parts, 1000);
    let blocks = Blocks::new(Arc::new(disk), 1 << 30);
    let get = |partition: i32, from: i64, bytes_max: usize, whole_first: bool| {
        let want = Want { partition, from: Offset(from), bytes_max, whole_first };
        let (seen, next) = consumed(&rebatch(&blocks, &file, &want).unwrap());
        (seen.len(), next)
    };
    assert_eq!(get(0, 0, usize::MAX, true), (2020, Some(3000)));
    // In the gap behind the last row, and where nothing was left of a whole part.
    assert_eq!(get(0, 2500, usize::MAX, true), (0, Some(3000)));
    assert_eq!(get(1, 0, usize::MAX, true), (0, Some(90)));
    assert_eq!(get(1, 50, 0, true), (0, Some(90)));
    assert_eq!(get(1, 50, 60, false), (0, None));
    assert_eq!(get(0, 3000, usize::MAX, true), (0, None));
    // Whole batches only, none above the limit but the first.
    assert_eq!(get(0, 45, 0, false), (0, None));
    let (count, next) = get(0, 45, 0, true);
    assert_eq!((count, next), (259, Some(299)));
    assert_eq!(get(0, 45, 300_000, true), (259, Some(299)));
    assert_eq!(get(0, 45, 700_000, false), (518, Some(558)));
    assert_eq!(get(2, 10, 1, true), (1, Some(11)));
    let no_part = Want { partition: 3, from: Offset(0), bytes_max: 1, whole_first: true };
    assert!(matches!(rebatch(&blocks, &file, &no_part), Err(TableError::NoPartition { .. })));
}

/// Where a client goes on that knows of records and not of batches: behind the last one, shown or
/// not, that lies at or above what it asked for.
fn next_by_records(mut bytes: &[u8], from: i64) -> Option<i64> {
    let mut next = None;
    while !bytes.is_empty() {
        let (header, body, rest) = BatchHeader::split(bytes).unwrap();
        for record in Records::new(body, header.record_count) {
            let offset = header.base_offset.0 + i64::from(record.unwrap().offset_delta);
            next = next.max((offset >= from).then_some(offset + 1));
        }
        bytes = rest;
    }
    next
}

#[test]
fn who_goes_on_by_records_gets_to_the_end_of_a_part_as_well() {
    let disk = SimDisk::new(3);
    let mut batch = BatchBuilder::new();
    (0..3).for_each(|_| batch.push(&NewRecord::default()));
    let mut batch = batch.build();
    place(&mut batch, Offset(10), LeaderEpoch(0));
    let far = 13 + (3i64 << 31);
    let parts = [(0, vec![batch], 90), (1, Vec::new(), 11), (2, Vec::new(), far)];
    let file = file_of(&disk, &parts, 1);
    let blocks = Blocks::new(Arc::new(disk), 1 << 20);
    let check = |partition: i32, stops: &[i64]| {
        let mut at = 10;
        for stop in stops {
            let from = Offset(at);
            let want = Want { partition, from, bytes_max: 1 << 20, whole_first: true };
            let next = next_by_records(&rebatch(&blocks, &file, &want).unwrap(), at);
            assert_eq!(next, Some(*stop), "partition {partition} from {at}");
            at = *stop;
        }
    };
    check(0, &[13, 90]);
    check(1, &[11]);
    let reach = i64::from(i32::MAX);
    check(2, &[10 + reach, 10 + 2 * reach, 10 + 3 * reach, far]);
}

#[test]
fn several_readers_make_a_block_once() {
    let disk = SimDisk::new(3);
    let mut batch = BatchBuilder::new();
    for _ in 0..5000 {
        batch.push(&NewRecord { value: Some(&[7; 300]), ..Default::default() });
    }
    let mut batch = batch.build();
    place(&mut batch, Offset(10), LeaderEpoch(0));
    let file = file_of(&disk, &[(0, vec![batch], 5010)], 1);
    let blocks = Blocks::new(Arc::new(disk.clone()), 64 << 20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(consume(&blocks, &file, 0, 10, 100_000).len(), 5000));
        }
    });
    let counts = blocks.counts();
    assert_eq!((counts.made, counts.opened), (3, 1));
    assert!(counts.found > 3 && counts.block_bytes > 1_500_000);
    assert!(counts.block_bytes < 1_800_000, "{counts:?}");
    blocks.forget(&file.path);
    assert_eq!(blocks.counts().block_bytes, 0);
    consume(&blocks, &file, 0, 10, 100_000);
    assert_eq!(blocks.counts().opened, 2);
    // A budget smaller than a block still serves; nothing is kept longer than needed.
    let small = Blocks::new(Arc::new(disk), 1);
    assert_eq!(consume(&small, &file, 0, 10, 1 << 20).len(), 5000);
    assert!(small.counts().block_bytes < 700_000);
}
