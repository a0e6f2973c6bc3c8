//! Old records go, new ones stay, and what has gone does not come back.
//!
//! Gap: segments go from the oldest on, and log 0 keeps the catalogue's first records, so that its
//! space comes back only with relocation. What is given back is looked for in log 1.

use crate::broker::{only_own, topic, Broker, SMALL_SEGMENTS};
use crate::client::{consume, create_topic, delete_topic, now_ms, produce, records, Record};
use crate::offsets::{ask, EARLIEST, LATEST};
use crate::wire::Wire;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// The log start once `is_enough` says so of it.
fn log_start(broker: &Broker, topic: &str, is_enough: impl Fn(i64) -> bool) -> i64 {
    let mut wire = Wire::new(broker);
    let deadline = Instant::now() + SOON;
    loop {
        let start = ask(&mut wire, topic, EARLIEST).offset;
        if is_enough(start) {
            return start;
        }
        assert!(Instant::now() < deadline, "the log still starts at {start}");
    }
}

/// Records of 1,000 bytes that no codec shrinks much, from a time.
fn thousands(count: usize, from_ms: i64) -> Vec<Record> {
    let mut sent = records(count);
    for (number, record) in sent.iter_mut().enumerate() {
        let byte = |at: usize| ((number * 1_000 + at) as u32).wrapping_mul(2_654_435_761) >> 24;
        record.value = Some((0..1_000).map(|at| byte(at) as u8).collect());
        record.timestamp_ms = from_ms + number as i64;
    }
    sent
}

#[test]
fn records_over_the_size_go_and_stay_gone() {
    if only_own("records_over_the_size_go_and_stay_gone") {
        return;
    }
    let mut broker = Broker::with(&SMALL_SEGMENTS);
    let topic = topic("size");
    create_topic(&broker.address, &topic, 1, &[("retention.bytes", "1000000")]);
    let sent = thousands(6_000, now_ms());
    produce(&broker.address, &topic, &sent, &[("batch.num.messages", "50")]);
    let start = log_start(&broker, &topic, |start| start > 1_000);
    assert!(start < 6_000, "the newest records stay");
    broker.kill_and_restart();
    let again = log_start(&broker, &topic, |_| true);
    assert!(again >= start, "the log starts at {again} and did at {start}");
    let seen = consume(&broker.address, &topic, 1);
    let end = ask(&mut Wire::new(&broker), &topic, LATEST).offset;
    assert_eq!(end, 6_000);
    for (place, record) in &seen {
        assert_eq!(record, &sent[place.offset as usize], "offset {}", place.offset);
    }
    let last = seen.last().map(|(place, _)| place.offset);
    assert_eq!(last, Some(5_999));
}

#[test]
fn records_over_the_age_go_and_the_offsets_go_on() {
    if only_own("records_over_the_age_go_and_the_offsets_go_on") {
        return;
    }
    let mut broker = Broker::with(&SMALL_SEGMENTS);
    let topic = topic("age");
    create_topic(&broker.address, &topic, 1, &[("retention.ms", "60000")]);
    let old = thousands(2_500, now_ms() - 3_600_000);
    produce(&broker.address, &topic, &old, &[("batch.num.messages", "50")]);
    produce(&broker.address, &topic, &thousands(2_500, now_ms()), &[("acks", "all")]);
    let start = log_start(&broker, &topic, |start| start >= 2_000);
    assert!(start <= 2_500, "the young stay, and the log starts at {start}");
    broker.restart();
    assert!(log_start(&broker, &topic, |_| true) >= start);
    let places = produce(&broker.address, &topic, &thousands(1, now_ms()), &[]);
    assert_eq!(places[0].offset, 5_000);
}

#[test]
fn the_space_of_what_has_gone_is_given_back() {
    if only_own("the_space_of_what_has_gone_is_given_back") {
        return;
    }
    let mut broker = Broker::with(&[&SMALL_SEGMENTS[..], &["--cores", "2"]].concat());
    let topic = topic("space");
    create_topic(&broker.address, &topic, 6, &[]);
    produce(&broker.address, &topic, &thousands(12_000, now_ms()), &[("batch.num.messages", "50")]);
    let full = used_bytes(broker.data.path());
    assert!(full > 12_000_000, "{full} bytes for 12 MB of records");
    assert_eq!(delete_topic(&broker.address, &topic), Ok(()));
    let deadline = Instant::now() + SOON;
    loop {
        let used = used_bytes(broker.data.path());
        if used + 4_000_000 < full {
            break;
        }
        assert!(Instant::now() < deadline, "{used} bytes of {full} are still in use");
        std::thread::yield_now();
    }
    broker.kill_and_restart();
}

/// Allocated bytes of the files below a directory.
fn used_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => used_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0, // removed meanwhile
        })
        .sum()
}
