//! Files written and read again on the simulated disk, whole and damaged.

use super::*;
use crate::batch::{place, BatchBuilder, NewRecord};
use crate::disk::sim::SimDisk;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::table::rows::RowsBuilder;
use crate::table::schema::column;
use crate::table::{file_path, FileFacts, FileId, TableError};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::RecordBatch;
use std::path::Path;

const TABLE: &str = "/t";

/// Rows of one partition: at each offset a value of so many bytes that do not compress.
fn rows(partition: i32, offsets: impl Iterator<Item = i64>, bytes: usize) -> RecordBatch {
    let mut builder = RowsBuilder::new();
    let mut state = 1u64;
    for offset in offsets {
        let mut value = Vec::with_capacity(bytes);
        while value.len() < bytes {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(offset as u64 | 1);
            value.extend_from_slice(&state.to_be_bytes());
        }
        value.truncate(bytes);
        let mut batch = BatchBuilder::new();
        batch.push(&NewRecord {
            timestamp: Timestamp(1000 + offset),
            value: Some(&value),
            ..Default::default()
        });
        let mut batch = batch.build();
        place(&mut batch, Offset(offset), LeaderEpoch(3));
        builder.push(partition, Timestamp(2000), &batch).unwrap();
    }
    builder.finish().unwrap()
}

fn covered(partition: i32, first: i64, end: i64) -> Covered {
    Covered { partition, first: Offset(first), end: Offset(end), raw_bytes: 5 }
}

fn write(disk: &SimDisk, all: &[RecordBatch], covered: &[Covered]) -> FileFacts {
    let id = FileId(7);
    let mut writer = FileWriter::create(disk, Path::new(TABLE), id, Timestamp(55)).unwrap();
    all.iter().for_each(|rows| writer.add(rows).unwrap());
    writer.finish(covered).unwrap()
}

fn open(disk: &SimDisk) -> Result<FileReader, TableError> {
    FileReader::open(disk, &file_path(Path::new(TABLE), FileId(7)))
}

fn offsets(reader: &FileReader, partition: i32, from: i64, until: i64) -> Vec<i64> {
    let (from, until) = (Offset(from), Offset(until));
    let scan = Scan { from, until, columns: vec![column::OFFSET], ..Scan::all(partition) };
    let batches = reader.read(&scan).unwrap().map(|batch| batch.unwrap());
    let longs = |batch: RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    batches.flat_map(longs).collect()
}

#[test]
fn what_was_written_is_read_back_by_offset() {
    let disk = SimDisk::new(1);
    let first = rows(0, (0..5000).step_by(2), 10);
    let second = rows(4, 100..9100, 10);
    let parts = [covered(0, 0, 5001), covered(2, 8, 30), covered(4, 100, 9100)];
    let facts = write(&disk, &[first.clone(), second.clone()], &parts);
    let reader = open(&disk).unwrap();
    assert_eq!(*reader.facts(), facts);
    assert_eq!(facts.bytes, disk.durable(reader.path()).unwrap().len() as u64);
    assert_eq!(facts.parts.iter().map(|part| part.rows).collect::<Vec<_>>(), [2500, 0, 9000]);
    let (first_part, empty) = (facts.parts[0], facts.parts[1]);
    assert_eq!(first_part.min_timestamp, Timestamp(1000));
    assert_eq!(
        (first_part.max_timestamp, first_part.max_append_time),
        (Timestamp(5998), Timestamp(2000))
    );
    assert_eq!((empty.min_timestamp, empty.max_append_time), (Timestamp(-1), Timestamp(-1)));
    for (from, until) in [(0, 5001), (-5, 1), (1, 4), (3999, 4003), (4998, 9999), (4999, 5001)] {
        let expect: Vec<i64> =
            (0..5000).step_by(2).filter(|at| (from..until).contains(at)).collect();
        assert_eq!(offsets(&reader, 0, from, until), expect, "{from}..{until}");
    }
    assert_eq!(offsets(&reader, 4, 4000, 4003), [4000, 4001, 4002]);
    assert_eq!(offsets(&reader, 2, 0, 100), [0i64; 0]);
    let all: Vec<RecordBatch> = [0, 4]
        .iter()
        .flat_map(|partition| reader.read(&Scan::all(*partition)).unwrap())
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(all.iter().map(|batch| batch.num_rows()).sum::<usize>(), 11500);
    assert_eq!(all[0], first.slice(0, all[0].num_rows()));
    assert!(matches!(reader.rows_of(3), Err(TableError::NoPartition { partition: 3, .. })));
}
