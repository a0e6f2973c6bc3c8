//! What loads show while a table changes, and what they leave on disk.

use super::*;
use crate::iceberg::manifest;
use crate::iceberg::snapshot::positions_of;
use crate::iceberg::IcebergError;
use iceberg::spec::{Datum, ManifestStatus, TableMetadata};
use shard::ids::Offset;
use std::collections::BTreeMap;

/// Each snapshot's files from its list, oldest first: operation, rows.
fn history(made: &MadeTable, loaded: &Loaded) -> Vec<(String, u64)> {
    let store = Store::new(Arc::new(RealDisk::default()), &made.dir).expect("a plain path");
    let mut snapshots: Vec<_> = loaded.metadata.snapshots().collect();
    snapshots.sort_by_key(|snapshot| snapshot.sequence_number());
    let rows = |location: &str| {
        let list = manifest::read_list(&store, location).expect("a list");
        let entries = list.iter().flat_map(|one| manifest::read(&store, one).expect("whole").all);
        let mut rows = 0;
        for entry in entries.filter(|entry| entry.status != ManifestStatus::Deleted) {
            let path = entry.file_path().strip_prefix("file://").expect("a location");
            assert_eq!(
                fs::metadata(path).expect("the file is there").len(),
                entry.data_file.file_size_in_bytes()
            );
            rows += entry.record_count();
        }
        rows
    };
    snapshots
        .iter()
        .map(|snapshot| {
            let said = &snapshot.summary().additional_properties["total-records"];
            let counted = rows(snapshot.manifest_list());
            assert_eq!(said, &counted.to_string(), "the summary counts what is listed");
            (snapshot.summary().operation.as_str().to_string(), counted)
        })
        .collect()
}

fn check(made: &MadeTable, loaded: &Loaded, expect: &[(&str, u64)]) {
    let expect: Vec<_> = expect.iter().map(|(name, rows)| (name.to_string(), *rows)).collect();
    assert_eq!(history(made, loaded), expect);
}

#[test]
fn each_load_shows_the_rows_of_now_and_keeps_those_of_before() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    let mut table = open(&made, NOON);
    let loaded = table.load(&made.version(), NOON).expect("loaded");
    assert!(loaded.metadata.current_snapshot().is_none());
    made.append(&[0, 2], 10);
    let loaded = table.load(&made.version(), NOON + 1).expect("loaded");
    check(&made, &loaded, &[("append", 20)]);
    let again = table.load(&made.version(), NOON + 2).expect("loaded");
    assert_eq!(again.location, loaded.location, "nothing new, nothing written");
    made.append(&[0], 5);
    made.append(&[1], 5);
    let loaded = table.load(&made.version(), NOON + 3).expect("loaded");
    check(&made, &loaded, &[("append", 20), ("append", 30)]);
    made.merge();
    made.append(&[1], 7);
    let loaded = table.load(&made.version(), NOON + 4).expect("loaded");
    let so_far = [("append", 20), ("append", 30), ("replace", 30), ("append", 37)];
    check(&made, &loaded, &so_far);
    let newest = loaded.metadata.current_snapshot().expect("a snapshot");
    let covers = |end| (Offset(0), Offset(end));
    let expect = BTreeMap::from([(0, covers(15)), (1, covers(12)), (2, covers(10))]);
    assert_eq!(positions_of(newest), expect);
    made.compact();
    let loaded = table.load(&made.version(), NOON + 5).expect("loaded");
    let compacted = made.rows().len() as u64;
    assert!(compacted < 37);
    check(&made, &loaded, &[&so_far[..], &[("overwrite", compacted)]].concat());
    made.append(&[0], 3);
    made.drop_oldest();
    let loaded = table.load(&made.version(), NOON + 6).expect("loaded");
    let gone = [("overwrite", compacted), ("delete", 0), ("append", 3)];
    check(&made, &loaded, &[&so_far[..], &gone[..]].concat());
}

#[test]
fn bounds_are_exact_and_given_for_places_and_times_only() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    made.append(&[3, 5], 40);
    made.compact();
    let loaded = open(&made, NOON).load(&made.version(), NOON).expect("loaded");
    let store = Store::new(Arc::new(RealDisk::default()), &made.dir).expect("a plain path");
    let newest = loaded.metadata.current_snapshot().expect("a snapshot");
    let list = manifest::read_list(&store, newest.manifest_list()).expect("a list");
    let entries = manifest::read(&store, &list[0]).expect("a manifest").all;
    let file = &entries[0].data_file;
    let rows = made.rows();
    assert_eq!(rows.len(), 20, "every fourth of 80");
    assert_eq!(file.record_count(), 20);
    assert_eq!(file.lower_bounds().get(&6), Some(&Datum::int(3)));
    assert_eq!(file.upper_bounds().get(&6), Some(&Datum::int(5)));
    assert_eq!(file.lower_bounds().get(&7), Some(&Datum::long(3)), "not 0: it was compacted away");
    assert_eq!(file.upper_bounds().get(&7), Some(&Datum::long(39)));
    let times = rows.iter().map(|&(partition, offset)| {
        crate::iceberg::made::record(partition, offset).append_time.0 * 1000
    });
    let first = times.min().expect("rows");
    assert_eq!(file.lower_bounds().get(&3), Some(&Datum::timestamptz_micros(first)));
    let mut with_bounds: Vec<i32> = file.lower_bounds().keys().copied().collect();
    with_bounds.sort_unstable();
    assert_eq!(with_bounds, [3, 4, 6, 7]);
    let stamped = rows.iter().filter(|(_, offset)| offset % 17 > 1).count() as u64;
    assert_eq!(file.null_value_counts().get(&4), Some(&(20 - stamped)));
    assert_eq!(file.null_value_counts().get(&1), None, "keys are not counted");
    assert_eq!(file.value_counts().get(&7), Some(&20));
}

#[test]
fn a_restart_goes_on_where_the_last_run_ended() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    for round in 0..3 {
        made.append(&[0], 10);
        open(&made, NOON).load(&made.version(), NOON + round).expect("loaded");
    }
    let loaded = open(&made, NOON).load(&made.version(), NOON + 9).expect("loaded");
    check(&made, &loaded, &[("append", 10), ("append", 20), ("append", 30)]);
    made.merge();
    let loaded = open(&made, NOON).load(&made.version(), NOON + 10).expect("loaded");
    check(&made, &loaded, &[("replace", 30)]);
}

#[test]
fn what_was_shown_stays_readable_for_the_grace_period() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    let mut table = open(&made, NOON);
    made.append(&[0], 10);
    let first = made.version();
    table.load(&first, NOON).expect("loaded");
    made.merge();
    let minute = 60_000;
    table.load(&made.version(), NOON + minute).expect("loaded");
    let replaced = Arc::downgrade(&first.files()[0]);
    drop(first);
    let loaded = table.load(&made.version(), NOON + 10 * minute).expect("loaded");
    assert_eq!(loaded.metadata.snapshots().len(), 2, "replaced for less than the period");
    let files = metadata_files(&made.dir);
    let loaded = table.load(&made.version(), NOON + 11 * minute).expect("loaded");
    assert_eq!(loaded.metadata.snapshots().len(), 1);
    assert!(table.sweep(NOON + 20 * minute - 1));
    assert!(replaced.upgrade().is_some(), "shown at 10, held until 20");
    assert!(files.iter().all(|name| metadata_files(&made.dir).contains(name)));
    assert!(table.sweep(NOON + 20 * minute), "metadata that left at 11 is there until 21");
    assert!(replaced.upgrade().is_none());
    assert!(!table.sweep(NOON + 21 * minute));
    let left = metadata_files(&made.dir);
    assert!(left.len() < files.len() + 1, "{left:?}");
    let lists = left.iter().filter(|name| name.starts_with("snap-")).count();
    assert_eq!(lists, 1, "{left:?}");
    let loaded = open(&made, NOON).load(&made.version(), NOON + 22 * minute).expect("loaded");
    check(&made, &loaded, &[("replace", 10)]);
}

#[test]
fn snapshots_whose_files_nobody_holds_are_not_shown() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    let mut table = open(&made, NOON);
    made.append(&[0], 10);
    table.load(&made.version(), NOON).expect("loaded");
    made.merge();
    assert!(!table.sweep(NOON + 2 * GRACE_MS), "nobody came back in time");
    let loaded = table.load(&made.version(), NOON + 2 * GRACE_MS).expect("loaded");
    assert_eq!(seen(&loaded), (10, 1));
}

#[test]
fn many_loads_leave_a_bounded_history_in_few_manifests() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    let mut table = open(&made, NOON);
    let mut loaded = None;
    for round in 1..=130 {
        made.append(&[0], 1);
        loaded = Some(table.load(&made.version(), NOON + round).expect("loaded"));
    }
    let loaded = loaded.expect("loaded");
    assert_eq!(seen(&loaded), (130, 100));
    let newest = loaded.metadata.current_snapshot().expect("a snapshot");
    let store = Store::new(Arc::new(RealDisk::default()), &made.dir).expect("a plain path");
    let list = manifest::read_list(&store, newest.manifest_list()).expect("a list");
    assert!(list.len() <= 16, "{} manifests", list.len());
    assert_eq!(history(&made, &loaded).len(), 100);
    let times: Vec<i64> = loaded.metadata.history().iter().map(|at| at.timestamp_ms()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "time travel has one answer");
    table.sweep(NOON + 2 * GRACE_MS);
    let files = metadata_files(&made.dir);
    let metadata = files.iter().filter(|name| name.ends_with(".json")).count();
    assert!(metadata <= 11, "{metadata} files of metadata");
    assert_eq!(files.iter().filter(|name| name.starts_with("snap-")).count(), 100);
}

#[test]
fn a_clock_that_stands_or_goes_back_does_not_stop_loads() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    let mut table = open(&made, NOON);
    for now in [NOON, NOON, NOON - 86_400_000] {
        made.append(&[0], 1);
        table.load(&made.version(), now).expect("loaded");
    }
    let loaded = table.load(&made.version(), NOON).expect("loaded");
    assert_eq!(seen(&loaded), (3, 3));
}

#[test]
fn damaged_or_moved_metadata_is_made_anew() {
    let folder = Folder::new();
    for kind in [".metadata.json", "snap-", "manifest-"] {
        let mut made = MadeTable::new(&folder.0);
        made.append(&[0], 10);
        open(&made, NOON).load(&made.version(), NOON).expect("loaded");
        let names = metadata_files(&made.dir);
        let name = names.iter().find(|name| name.contains(kind)).expect("one of each kind");
        let path = made.dir.join("metadata").join(name);
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        made.append(&[0], 1);
        let loaded = open(&made, NOON).load(&made.version(), NOON + 1).expect("loaded");
        assert_eq!(seen(&loaded), (11, 1), "{name} cut");
        assert!(!loaded.location.ends_with(name), "{name} is not used again");
        check(&made, &loaded, &[("append", 11)]);
    }
    let mut made = MadeTable::new(&folder.0);
    made.append(&[0], 10);
    let text = |loaded: &Loaded| {
        let path = loaded.location.strip_prefix("file://").expect("a location");
        fs::read_to_string(path).expect("read")
    };
    let loaded = open(&made, NOON).load(&made.version(), NOON).expect("loaded");
    let path = loaded.location.strip_prefix("file://").expect("a location").to_string();
    let place = made.dir.to_str().expect("UTF-8").to_string();
    fs::write(&path, text(&loaded).replace(&place, "/elsewhere")).expect("written");
    let again = open(&made, NOON).load(&made.version(), NOON).expect("loaded");
    assert_ne!(again.location, loaded.location);
    let parsed: TableMetadata = serde_json::from_str(&text(&again)).expect("metadata");
    assert_eq!(parsed.location(), format!("file://{place}"));
}

#[test]
fn rows_below_the_log_start_are_not_shown() {
    let folder = Folder::new();
    let mut made = MadeTable::new(&folder.0);
    made.append(&[0, 1], 10);
    made.start_at(1, Offset(4));
    let refused = open(&made, NOON).load(&made.version(), NOON).map(|loaded| loaded.location);
    let is_untrimmed =
        matches!(refused, Err(IcebergError::Untrimmed { partition: 1, start: Offset(4) }));
    assert!(is_untrimmed, "{refused:?}");
}
