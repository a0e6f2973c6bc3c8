//! A log whose tables keep up: what is hot is bounded, and everything is read all the same.

use crate::driven::{batch, kept_for_ever, key, Driven, START_MS};
use shard::batch::BatchHeader;
use shard::disk::sim::SimDisk;
use shard::disk::RealDisk;
use shard::ids::{DenseId, Offset, Timestamp};
use shard::log::{ColdError, LogSettings, Now, PartitionSettings, TimeTarget, Until};
use shard::table::file::{Covered, FileWriter};
use shard::table::rows::RowsBuilder;
use shard::table::{file_path, FileId, TableFile, Version};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 256 << 10;
const HOT_BYTES: u64 = 2 << 20;
const RECORDS: i64 = 40_000;

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes_min: SEGMENT_BYTES,
        segment_bytes_max: SEGMENT_BYTES,
        warm_bytes: 1 << 20,
        hot_bytes: HOT_BYTES,
        ..LogSettings::default()
    }
}

/// Everything that waits for the table of partition 0 of a topic goes into one file more.
fn columnarise(driven: &mut Driven, id: DenseId, dir: &Path, table: &Version) -> Version {
    let pending = driven.log.pending(id).unwrap();
    let feed = driven.log.feed(id, pending.from, pending.until, u64::MAX).unwrap();
    let (first, end, raw_bytes) = (feed.from, feed.until, feed.bytes);
    assert_eq!(pending.bytes, raw_bytes);
    let disk = &*driven.disk;
    let mut feed = feed.open(disk).unwrap();
    let mut rows = RowsBuilder::new();
    while let Some(batches) = feed.next(1 << 20).unwrap() {
        for (time, batch) in batches {
            rows.push(0, time, &batch).unwrap();
        }
    }
    let file = FileId(table.number + 1);
    let mut writer = FileWriter::create(disk, dir, file, driven.now.wall).unwrap();
    writer.add(&rows.finish().unwrap()).unwrap();
    let facts = writer.finish(&[Covered { partition: 0, first, end, raw_bytes }]).unwrap();
    let mut files = table.files().to_vec();
    files.push(Arc::new(TableFile { path: file_path(dir, facts.id), facts }));
    Version::new(table.number + 1, pending.key.topic, files, BTreeMap::new()).unwrap()
}

#[test]
fn what_is_in_tables_goes_from_the_log_and_is_read_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, tables) = (folder.path().join("log"), folder.path().join("table"));
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let mut driven = Driven::open(&dir, 1, settings(), now);
    let id = driven.log.attach(key(1), kept_for_ever());
    let lazy = driven.log.attach(key(2), kept_for_ever());
    let catalog = PartitionSettings { internal: true, ..kept_for_ever() };
    let catalog = driven.log.attach(key(3), catalog);
    for id in [lazy, catalog] {
        driven.append(id, &batch(None, Some(b"once"), now.wall));
    }
    let mut table = Version::default();
    let (mut most, mut held_back) = (0, 0);
    for record in 0..RECORDS {
        let value = [b'v'; 300];
        driven.append(id, &batch(None, Some(&value), Timestamp(START_MS + record)));
        if record % 2_000 == 0 {
            driven.pass(2_000);
            table = columnarise(&mut driven, id, &tables, &table);
            driven.log.set_table(id, Arc::new(table.clone()));
            driven.pass(2_000);
            most = driven.log.size().1.max(most);
            held_back += usize::from(driven.log.wants_room().contains(&lazy));
        }
    }
    assert_eq!(driven.log.take_fresh(), [lazy, id]);
    driven.append(id, &batch(None, Some(b"more"), now.wall));
    assert_eq!(driven.log.take_fresh(), [id]);
    println!("at most {most} bytes, {:?}", driven.log.space_counts());
    // What is hot, what waits for the table, and the open segment.
    assert!(driven.appended_bytes > 5 * HOT_BYTES && most < HOT_BYTES + (2 << 20), "{most}");
    assert!(held_back > 2, "{held_back}");
    check(&driven, id);
    drop(driven);
    let now = Now { wall: Timestamp(START_MS + 1_000_000), mono_us: 1 };
    let mut driven = Driven::open(&dir, 2, settings(), now);
    let id = driven.log.attach(key(1), kept_for_ever());
    let ends = driven.log.table_ends(id).unwrap();
    assert!(ends.hot_start > Offset(RECORDS / 2), "{ends:?}");
    let nothing_of_it = Offset(0)..ends.hot_start;
    assert_eq!(driven.log.missing(id), [nothing_of_it], "the table is not known yet");
    driven.log.set_table(id, Arc::new(table));
    assert_eq!(driven.log.missing(id), []);
    check(&driven, id);
}

fn check(driven: &Driven, id: DenseId) {
    assert_eq!(driven.check_whole(id), Offset(RECORDS + 1));
    let find = |target| {
        let seek = driven.log.plan_time(id, target, Until::LastStable)?;
        seek.run().unwrap().map(|found| found.offset.0)
    };
    for record in [0, 1, RECORDS / 3, RECORDS / 2, RECORDS - 1] {
        let time = TimeTarget::AtOrAfter(Timestamp(START_MS + record));
        assert_eq!(find(time), Some(record));
    }
    assert_eq!(find(TimeTarget::AtOrAfter(Timestamp(START_MS + RECORDS))), None);
    assert_eq!(find(TimeTarget::Greatest), Some(RECORDS - 1));
}

#[test]
fn retention_counts_what_is_in_the_table_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, tables) = (folder.path().join("log"), folder.path().join("table"));
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let settings = LogSettings { hot_bytes: 0, retention_check_ms: 1_000, ..settings() };
    let mut driven = Driven::open(&dir, 1, settings, now);
    let limits = |retention_ms, retention_bytes| PartitionSettings {
        retention_ms,
        retention_bytes,
        ..kept_for_ever()
    };
    let id = driven.log.attach(key(1), limits(None, None));
    let mut table = Version::default();
    for record in 0..6_000 {
        let time = Timestamp(START_MS + record * 10);
        driven.append(id, &batch(None, Some(&[b'v'; 300]), time));
        if record % 1_000 == 999 {
            driven.pass(2_000);
            table = columnarise(&mut driven, id, &tables, &table);
            driven.log.set_table(id, Arc::new(table.clone()));
        }
    }
    driven.pass(6_000);
    let whole = table.parts(0).iter().map(|at| at.part.raw_bytes).sum::<u64>();
    assert!(driven.log.table_ends(id).unwrap().hot_start > Offset(3_000));
    let start_under = |driven: &mut Driven, retention_ms, retention_bytes| {
        driven.log.attach(key(1), limits(retention_ms, retention_bytes));
        driven.pass(6_000);
        driven.log.offsets(id).unwrap().log_start.0
    };
    // One part of six fits not: 5/6 of the bytes are left.
    assert_eq!(start_under(&mut driven, None, Some(whole)), 0);
    assert_eq!(start_under(&mut driven, None, Some(whole / 6 * 5)), 1_000);
    let since = driven.now.wall.0 + 6_000 - START_MS;
    assert_eq!(start_under(&mut driven, Some(since - 25_000), None), 2_000);
    let left = driven.check_whole(id);
    assert_eq!(left, Offset(6_000));
    assert_eq!(start_under(&mut driven, None, Some(0)), 6_000);
}

#[test]
fn an_open_feed_outlives_its_segments_and_another_says_that_they_have_gone() {
    let folder = tempfile::tempdir().unwrap();
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 1, settings(), now);
    let id = driven.log.attach(key(1), kept_for_ever());
    for _ in 0..6_000 {
        driven.append(id, &batch(None, Some(&[b'v'; 300]), now.wall));
    }
    driven.pass(6_000);
    let feed = |until, bytes_max| driven.log.feed(id, Offset(0), Offset(until), bytes_max).unwrap();
    let (early, late) = (feed(6_000, u64::MAX), feed(6_000, u64::MAX));
    assert_eq!((early.until, feed(1_000, u64::MAX).until), (Offset(6_000), Offset(1_000)));
    let small = feed(6_000, 10_000);
    assert!(small.bytes >= 10_000 && small.until < Offset(1_500), "{small:?}");
    let mut early = early.open(&RealDisk).unwrap();
    let newest = driven.log.end().segment;
    driven.log.raise_log_start(id, Offset(6_000), driven.now).unwrap();
    for _ in 0..10 {
        driven.pass(6_000);
    }
    assert!(driven.log.size().0 <= 2 && driven.log.end().segment >= newest);
    assert!(matches!(late.open(&RealDisk), Err(ColdError::Removed)));
    assert!(driven.log.feed(id, Offset(0), Offset(6_000), u64::MAX).is_none());
    let mut next = 0;
    while let Some(batches) = early.next(100_000).unwrap() {
        for (time, bytes) in batches {
            let (header, body, rest) = BatchHeader::split(&bytes).unwrap();
            assert!(rest.is_empty() && header.crc_with(body) == header.crc);
            assert!(header.base_offset == Offset(next) && time >= now.wall);
            next = header.end_offset().0;
        }
    }
    assert_eq!(next, 6_000);
}

#[test]
fn a_full_disk_makes_the_log_let_go_of_all_that_is_in_tables() {
    let disk = SimDisk::new(1);
    disk.set_capacity(8 << 20);
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let (dir, tables) = (Path::new("/data/log"), Path::new("/data/table"));
    let settings = LogSettings { hot_bytes: u64::MAX, ..settings() };
    let mut driven = Driven::open_on(Arc::new(disk), dir, 1, settings, now);
    let id = driven.log.attach(key(1), kept_for_ever());
    let mut table = Version::default();
    for record in 0..RECORDS {
        let time = Timestamp(START_MS + record);
        driven.append(id, &batch(None, Some(&[b'v'; 300]), time));
        if record % 2_000 == 0 {
            driven.pass(2_000);
            table = columnarise(&mut driven, id, tables, &table);
            driven.log.set_table(id, Arc::new(table.clone()));
        }
    }
    assert!(driven.appended_bytes > 16 << 20, "{}", driven.appended_bytes);
    assert!(driven.full > 0 && driven.log.size().1 < 8 << 20, "{:?}", driven.log.size());
    assert_eq!(driven.check_whole(id), Offset(RECORDS));
}
