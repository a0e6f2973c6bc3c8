//! Very many commits over few keys on a compacted partition.

use crate::driven::{batch, kept_for_ever, key, Driven, START_MS};
use shard::batch::Records;
use shard::ids::Timestamp;
use shard::log::{Compaction, Flush, LogSettings, Now, PartitionSettings};
use std::collections::BTreeMap;

const COMMITS: usize = 200_000;
const KEYS: usize = 100;
const SEGMENT_BYTES: u32 = 256 << 10;

#[test]
fn commits_over_a_hundred_keys_keep_a_bounded_log_and_the_last_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let settings = LogSettings {
        segment_bytes_min: SEGMENT_BYTES,
        segment_bytes_max: SEGMENT_BYTES,
        warm_bytes: 1 << 20,
        ..LogSettings::default()
    };
    let offsets = PartitionSettings {
        flush: Flush::Os,
        internal: true,
        compaction: Some(Compaction::default()),
        ..kept_for_ever()
    };
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 1, settings.clone(), now);
    let id = driven.log.attach(key(1), offsets);
    let mut most = 0;
    for commit in 0..COMMITS {
        let (name, value) = (format!("group/topic-{}", commit % KEYS), commit.to_string());
        let batch = batch(Some(name.as_bytes()), Some(value.as_bytes()), driven.now.wall);
        driven.append(id, &batch);
        if commit % 1_000 == 0 {
            driven.pass(2_000);
            most = driven.log.size().1.max(most);
        }
    }
    driven.pass(6_000);
    driven.pass(6_000);
    println!("at most {most} bytes, {:?} {:?}", driven.log.size(), driven.log.space_counts());
    assert!(driven.appended_bytes > 20 << 20);
    assert!(most < u64::from(SEGMENT_BYTES) * 12, "{most}");
    let (segments, bytes) = driven.log.size();
    assert!(segments <= 10 && bytes < u64::from(SEGMENT_BYTES) * 8, "{segments} {bytes}");
    drop(driven);
    let now = Now { wall: Timestamp(START_MS + 1_000_000), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 2, settings, now);
    let id = driven.log.attach(key(1), offsets);
    assert!(driven.recovered.frames < 10_000, "{:?}", driven.recovered);
    let mut last = BTreeMap::new();
    let mut read = 0;
    for (header, body) in driven.read(id) {
        for record in Records::new(&body, header.record_count) {
            let record = record.unwrap();
            last.insert(record.key.unwrap().to_vec(), record.value.unwrap().to_vec());
            read += 1;
        }
    }
    // What is live, and what the segments hold that no compaction has seen yet.
    assert!(read < 6_000, "{read}");
    for commit in COMMITS - KEYS..COMMITS {
        let name = format!("group/topic-{}", commit % KEYS);
        assert_eq!(last.remove(name.as_bytes()), Some(commit.to_string().into_bytes()));
    }
    assert!(last.is_empty());
}

#[test]
fn partitions_that_always_have_something_to_clean_leave_the_others_their_turn() {
    const PARTITIONS: u128 = 12;
    let folder = tempfile::tempdir().unwrap();
    let settings = LogSettings {
        segment_bytes_min: SEGMENT_BYTES,
        segment_bytes_max: SEGMENT_BYTES,
        ..LogSettings::default()
    };
    let offsets = PartitionSettings {
        flush: Flush::Commit,
        internal: true,
        compaction: Some(Compaction::default()),
        ..kept_for_ever()
    };
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 1, settings, now);
    let ids: Vec<_> = (1..=PARTITIONS).map(|n| driven.log.attach(key(n), offsets)).collect();
    for round in 0..8_000 {
        for &id in &ids {
            let batch = batch(Some(b"a key"), Some(b"a value"), driven.now.wall);
            driven.append(id, &batch);
        }
        if round % 40 == 0 {
            // Enough for some of the partitions, not for all, before there is more for the first.
            (0..30).for_each(|_| driven.turn());
        }
    }
    let left: Vec<usize> = ids.iter().map(|id| driven.read(*id).len()).collect();
    assert!(left.iter().all(|batches| *batches < 6_000), "{left:?}");
}

#[test]
fn what_coordinators_write_seals_a_segment_long_before_it_is_full() {
    for (internal, segments) in [(true, 4), (false, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings {
            segment_bytes_min: 1 << 20,
            segment_bytes_max: 1 << 20,
            relocate_bytes_per_second_min: 1,
            ..LogSettings::default()
        };
        let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
        let mut driven = Driven::open(folder.path(), 1, settings, now);
        let compaction = Some(Compaction::default());
        let offsets = PartitionSettings { internal, compaction, ..kept_for_ever() };
        let id = driven.log.attach(key(1), offsets);
        while driven.appended_bytes < 450 << 10 {
            let batch = batch(Some(b"a key"), Some(&[7; 400]), driven.now.wall);
            driven.append(id, &batch);
            driven.turn();
        }
        let count = driven.log.size().0;
        assert_eq!(count, segments, "internal: {internal}");
    }
}
