//! Files written and read again on the simulated disk, whole and damaged.

use super::*;
use crate::batch::{place, BatchBuilder, NewRecord};
use crate::disk::sim::{Fault, Rng, SimDisk};
use crate::disk::Disk;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::table::rows::RowsBuilder;
use crate::table::schema::column;
use crate::table::{file_path, Damage, FileFacts, FileId, TableError};
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

/// Everything the file holds, or the first error.
fn all_rows(disk: &SimDisk) -> Result<Vec<RecordBatch>, TableError> {
    let reader = open(disk)?;
    let mut all = Vec::new();
    for part in &reader.facts().parts {
        for batch in reader.read(&Scan::all(part.partition))? {
            all.push(batch?);
        }
    }
    Ok(all)
}

#[test]
fn a_flipped_bit_anywhere_is_an_error() {
    let disk = SimDisk::new(1);
    let first = rows(0, (0..60).step_by(2), 30);
    let facts = write(&disk, &[first, rows(1, 5..9, 30)], &[covered(0, 0, 90), covered(1, 5, 9)]);
    let path = file_path(Path::new(TABLE), FileId(7));
    let whole = disk.durable(&path).unwrap();
    assert_eq!(all_rows(&disk).unwrap().len(), 2);
    for (at, &byte) in whole.iter().enumerate() {
        let bit = 1 << (at % 8);
        disk.damage(&path, at as u64, &[byte ^ bit]);
        let error = all_rows(&disk).expect_err("damage is never silent");
        assert!(matches!(error, TableError::Damaged { .. }), "byte {at}: {error}");
        disk.damage(&path, at as u64, &[byte]);
    }
    assert!(all_rows(&disk).is_ok());
    for bytes in (0..facts.bytes).rev() {
        disk.truncate(&path, bytes).unwrap();
        let error = all_rows(&disk).expect_err("a cut is never silent");
        assert!(matches!(error, TableError::Damaged { .. }), "{bytes} bytes: {error}");
    }
}

#[test]
fn damage_costs_only_what_is_in_its_block() {
    let disk = SimDisk::new(1);
    write(&disk, &[rows(0, 0..20_000, 100)], &[covered(0, 0, 20_000)]);
    let path = file_path(Path::new(TABLE), FileId(7));
    let reader = open(&disk).unwrap();
    assert!(reader.facts().bytes > 1_800_000);
    disk.damage(&path, 1_000_000, &[0xaa; 16]);
    let scan = |from: i64, until: i64| {
        let (from, until) = (Offset(from), Offset(until));
        let scan = Scan { from, until, ..Scan::all(0) };
        let read: Result<Vec<_>, _> = reader.read(&scan).unwrap().collect();
        read.map(|all| all.iter().map(|batch| batch.num_rows()).sum::<usize>())
    };
    assert_eq!(scan(0, 4000).unwrap(), 4000);
    assert_eq!(scan(15_000, 20_000).unwrap(), 5000);
    let error = scan(0, 20_000).unwrap_err();
    let TableError::Damaged { damage: Damage::Block { block: 15, .. }, .. } = error else {
        panic!("{error}");
    };
    // Columns that are not in the block are read all the same.
    assert_eq!(offsets(&reader, 0, 0, 20_000).len(), 20_000);
}

#[test]
fn a_disk_that_does_not_read_is_not_a_damaged_file() {
    let disk = SimDisk::new(1);
    write(&disk, &[rows(0, 0..20_000, 100)], &[covered(0, 0, 20_000)]);
    let path = file_path(Path::new(TABLE), FileId(7));
    let reader = open(&disk).unwrap();
    let (from, to) = (1_000_000, 1_001_000);
    disk.inject(Fault::BadSectors { path: path.clone(), from, to });
    let read: Result<Vec<_>, _> = reader.read(&Scan::all(0)).unwrap().collect();
    assert!(matches!(read.unwrap_err(), TableError::Io { .. }));
    disk.heal();
    disk.remove(&path).unwrap();
    assert!(matches!(open(&disk), Err(TableError::Io { .. })));
}

#[test]
fn rows_out_of_place_are_refused() {
    let disk = SimDisk::new(1);
    let begin = || FileWriter::create(&disk, Path::new(TABLE), FileId(7), Timestamp(1)).unwrap();
    let place = |error: TableError| match error {
        TableError::OutOfPlace { partition, offset, .. } => (partition, offset.0),
        other => panic!("{other}"),
    };
    let mut writer = begin();
    writer.add(&rows(3, 5..9, 1)).unwrap();
    assert_eq!(place(writer.add(&rows(3, 8..9, 1)).unwrap_err()), (3, 8));
    assert_eq!(place(writer.add(&rows(2, 50..51, 1)).unwrap_err()), (2, 50));
    drop(writer);
    let finish = |parts: &[Covered]| {
        let mut writer = begin();
        writer.add(&rows(3, 5..9, 1)).unwrap();
        writer.finish(parts)
    };
    assert_eq!(place(finish(&[]).unwrap_err()), (3, 5));
    assert_eq!(place(finish(&[covered(3, 6, 9)]).unwrap_err()), (3, 5));
    assert_eq!(place(finish(&[covered(3, 5, 8)]).unwrap_err()), (3, 5));
    assert_eq!(place(finish(&[covered(3, 5, 9), covered(1, 0, 1)]).unwrap_err()), (1, 0));
    assert!(disk.files().is_empty(), "temporary files go with their writers");
    assert!(finish(&[covered(3, 5, 9), covered(4, 0, 1)]).is_ok());
    let other = rows(3, 5..9, 1).project(&[0, 1]).unwrap();
    assert!(matches!(begin().add(&other), Err(TableError::Columns { .. })));
}

#[test]
fn after_a_crash_at_any_step_a_file_is_whole_or_not_there() {
    let path = file_path(Path::new(TABLE), FileId(7));
    let attempt = |disk: &SimDisk| {
        let rows = rows(0, 0..3000, 500);
        let mut writer = FileWriter::create(disk, Path::new(TABLE), FileId(7), Timestamp(1))?;
        writer.add(&rows)?;
        writer.finish(&[covered(0, 0, 3000)])
    };
    let steps = {
        let disk = SimDisk::new(0);
        attempt(&disk).unwrap();
        disk.ops()
    };
    let mut whole = 0;
    for at in 0..=steps {
        let disk = SimDisk::new(at);
        disk.inject(Fault::Stop { at });
        let written = attempt(&disk);
        let after = disk.crash(&mut Rng::new(at));
        match open(&after) {
            Ok(reader) => {
                whole += 1;
                assert_eq!(reader.facts().rows(), 3000);
                assert_eq!(
                    all_rows(&after).unwrap().iter().map(|b| b.num_rows()).sum::<usize>(),
                    3000
                );
            }
            Err(error) => {
                assert!(after.cached(&path).is_none(), "step {at}: {error}");
                assert!(written.is_err(), "step {at}");
            }
        }
    }
    assert!(whole >= 1 && steps > 6, "{whole} of {steps}");
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let disk = SimDisk::new(1);
    disk.set_capacity(1 << 20);
    let mut writer = FileWriter::create(&disk, Path::new(TABLE), FileId(7), Timestamp(1)).unwrap();
    let written =
        writer.add(&rows(0, 0..20_000, 100)).and_then(|()| writer.finish(&[covered(0, 0, 20_000)]));
    let Err(TableError::Io { source, .. }) = written else { panic!("{written:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert!(disk.files().is_empty(), "{:?}", disk.files());
}

#[test]
fn large_and_many_rows_are_cut_into_pages_and_groups() {
    let disk = SimDisk::new(1);
    let many = rows(0, 0..140_000, 4);
    let large = rows(1, 0..70, 1 << 20);
    let uneven = [many.slice(0, 3100), many.slice(3100, 1700), many.slice(4800, 135_200)];
    let all = [&uneven[..], &[large]].concat();
    write(&disk, &all, &[covered(0, 0, 140_000), covered(1, 0, 70)]);
    let reader = open(&disk).unwrap();
    let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
    assert_eq!(groups, [128_000, 12_000 + 64, 6]);
    let starts = reader.page_starts().unwrap();
    let pages: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pages.iter().all(|rows| *rows <= 2000), "{pages:?}");
    assert_eq!(starts.iter().filter(|start| **start > 140_000).count(), 70 - 1);
    assert_eq!(offsets(&reader, 1, 60, 99), (60..70).collect::<Vec<i64>>());
}
