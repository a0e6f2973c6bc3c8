//! A week of a trickle over a thousand topics beside one busy topic.

use crate::driven::{batch, kept_for_ever, key, Driven, START_MS};
use shard::ids::{DenseId, Offset, Timestamp};
use shard::log::{LogSettings, Now, PartitionSettings};

const TOPICS: usize = 1_000;
const DAY_MS: i64 = 24 * 3600 * 1000;
const STEP_MS: i64 = 30 * 60 * 1000;
const STEPS: i64 = 7 * DAY_MS / STEP_MS;
const SEGMENT_BYTES: u32 = 256 << 10;

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes_min: SEGMENT_BYTES,
        segment_bytes_max: SEGMENT_BYTES,
        warm_bytes: 1 << 20,
        retention_check_ms: 300_000,
        ..LogSettings::default()
    }
}

/// Every third topic keeps its records for a day, the others for ever; those write for a day only.
fn of_topic(topic: usize) -> PartitionSettings {
    let retention_ms = topic.is_multiple_of(3).then_some(DAY_MS);
    PartitionSettings { retention_ms, ..kept_for_ever() }
}

#[test]
fn a_week_of_a_trickle_over_a_thousand_topics_leaves_a_bounded_number_of_segments() {
    let folder = tempfile::tempdir().unwrap();
    let now = Now { wall: Timestamp(START_MS), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 1, settings(), now);
    let ids: Vec<DenseId> = (0..TOPICS)
        .map(|topic| driven.log.attach(key(topic as u128 + 1), of_topic(topic)))
        .collect();
    let busy = PartitionSettings { retention_bytes: Some(2 << 20), ..kept_for_ever() };
    let busy = driven.log.attach(key(0), busy);
    let value = vec![b'v'; 4_000];
    let mut most_of_day = [0; 7];
    for step in 0..STEPS {
        let time = driven.now.wall;
        for topic in (step as usize % 5..TOPICS).step_by(5) {
            if topic.is_multiple_of(3) || step * STEP_MS < DAY_MS {
                driven.append(ids[topic], &batch(None, Some(b"a little"), time));
            }
        }
        for _ in 0..25 {
            driven.append(busy, &batch(None, Some(&value), time));
        }
        driven.pass(STEP_MS);
        let day = (step * STEP_MS / DAY_MS) as usize;
        most_of_day[day] = driven.log.size().0.max(most_of_day[day]);
    }
    let counts = driven.log.space_counts();
    println!("{most_of_day:?} segments, {} bytes appended, {counts:?}", driven.appended_bytes);
    // About 5 MiB are alive: 6,500 small records kept for ever, 3,200 of the last day, 2 MiB of
    // the busy topic. At most half of the segments are hollow: files of a header.
    assert!(most_of_day[2..].iter().all(|most| *most <= 80), "{most_of_day:?}");
    assert!(most_of_day[6] <= most_of_day[2] + 10, "{most_of_day:?}");
    assert!(driven.log.size().1 < 14 << 20, "{:?}", driven.log.size());
    assert!(counts.relocated_bytes < driven.appended_bytes / 2, "{counts:?}");
    let ends: Vec<Offset> = ids.iter().map(|id| driven.check_whole(*id)).collect();
    drop(driven);
    let now = Now { wall: Timestamp(START_MS + 7 * DAY_MS), mono_us: 1 };
    let mut driven = Driven::open(folder.path(), 2, settings(), now);
    assert_eq!(driven.recovered.missing, []);
    for (topic, end) in ends.into_iter().enumerate() {
        let id = driven.log.attach(key(topic as u128 + 1), of_topic(topic));
        assert_eq!(driven.check_whole(id), end);
    }
}
