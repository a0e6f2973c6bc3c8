//! Topics become tables while clients write and read: nobody sees a difference.
//!
//! The broker here keeps next to nothing as raw log, writes small files all the time and merges
//! them, so that consumers pass from files to the log and from one file to the next while both
//! change.

use crate::broker::{only_own, topic, Broker, NOTHING_HOT, SMALL_SEGMENTS};
use crate::client::{
    assert_same, config, consume, create_topic, now_ms, placed, produce, records, Place, Record,
    CODECS,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 3;
const EAGER: [&str; 10] = [
    "--cores",
    "2",
    "--set",
    "table.commit.bytes=64KiB",
    "--set",
    "table.commit.ms=200ms",
    "--set",
    "table.file.max.bytes=1MiB",
    "--set",
    "iceberg.reader.grace.ms=100ms",
];

/// The arguments of a broker that writes tables all the time.
fn eager() -> Vec<&'static str> {
    [&SMALL_SEGMENTS[..], &NOTHING_HOT, &EAGER].concat()
}

/// Records that no codec shrinks much.
fn dense(round: usize, count: usize) -> Vec<Record> {
    let mut sent = records(count);
    for (number, record) in sent.iter_mut().enumerate() {
        let seed = (round * 1_000_003 + number) as u32;
        let byte = |at: u32| (seed.wrapping_mul(40_503) + at).wrapping_mul(2_654_435_761) >> 24;
        record.value = Some((0..600).map(|at| byte(at) as u8).collect());
        record.timestamp_ms = now_ms();
    }
    sent
}

/// A reader of all partitions from the beginning.
fn reader(address: &str, topic: &str) -> BaseConsumer {
    let settings = [
        ("group.id", "not-used"),
        ("enable.auto.commit", "false"),
        ("check.crcs", "true"),
        ("auto.offset.reset", "earliest"),
    ];
    let reader: BaseConsumer = config(address, &settings).create().expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        let from = Offset::Beginning;
        assignment.add_partition_offset(topic, partition, from).expect("an offset");
    }
    reader.assign(&assignment).expect("an assignment");
    reader
}

/// Reads until `is_over` and so many records are there; their places in the order they came.
fn read(reader: &BaseConsumer, least: usize, is_over: impl Fn() -> bool) -> Vec<Place> {
    let mut seen = Vec::new();
    let deadline = Instant::now() + 2 * SOON;
    while seen.len() < least || !is_over() {
        assert!(Instant::now() < deadline, "{} of {least} records", seen.len());
        match reader.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                seen.push(Place { partition: message.partition(), offset: message.offset() });
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    seen
}

/// Each partition's offsets, in the order they came.
fn by_partition(places: &[Place]) -> BTreeMap<i32, Vec<i64>> {
    let mut all: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for place in places {
        all.entry(place.partition).or_default().push(place.offset);
    }
    all
}

/// Files below a directory, and what they hold.
fn files(dir: &Path, ending: &str) -> (usize, u64) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.fold((0, 0), |(count, bytes), entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let below = files(&entry.path(), ending);
            (count + below.0, bytes + below.1)
        }
        Ok(metadata) if entry.path().to_string_lossy().ends_with(ending) => {
            (count + 1, bytes + metadata.len())
        }
        // Removed meanwhile, or something else.
        _ => (count, bytes),
    })
}

/// Waits until the log has let go of most of what tables hold.
fn until_cold(broker: &Broker) {
    let deadline = Instant::now() + SOON;
    loop {
        let (_, logs) = files(&broker.data.path().join("logs"), ".seg");
        let (count, _) = files(&broker.data.path().join("tables"), ".parquet");
        // The open segment and the next one of each log, and one that is on its way out.
        if count > 0 && logs <= 6 << 20 {
            return;
        }
        assert!(Instant::now() < deadline, "{logs} bytes of log and {count} table files");
        std::thread::yield_now();
    }
}

#[test]
fn a_reader_sees_every_record_once_in_order_while_tables_are_written_merged_and_dropped() {
    if only_own("a_reader_sees_every_record_once_in_order_while_tables_are_written") {
        return;
    }
    let mut broker = Broker::with(&eager());
    let (kept, short) = (topic("kept"), topic("short"));
    create_topic(&broker.address, &kept, PARTITIONS, &[]);
    create_topic(&broker.address, &short, PARTITIONS, &[("retention.bytes", "200000")]);
    let is_over = AtomicBool::new(false);
    let (rounds, each) = (30, 400);
    let mut expected = Vec::new();
    let address = broker.address.clone();
    std::thread::scope(|scope| {
        let kept_reader = scope.spawn(|| read(&reader(&address, &kept), rounds * each, || true));
        let short_reader =
            scope.spawn(|| read(&reader(&address, &short), 1, || is_over.load(Ordering::Relaxed)));
        for round in 0..rounds {
            let codec = CODECS[round % CODECS.len()];
            let settings = [("compression.codec", codec), ("batch.num.messages", "20")];
            let sent = dense(round, each);
            let places = produce(&broker.address, &kept, &sent, &settings);
            expected.extend(placed(&places, &sent));
            produce(&broker.address, &short, &sent, &settings);
        }
        is_over.store(true, Ordering::Relaxed);
        let seen = by_partition(&kept_reader.join().expect("the reader came to the end"));
        for (partition, offsets) in &seen {
            let all: Vec<i64> = (0..offsets.len() as i64).collect();
            assert_eq!(*offsets, all, "partition {partition}");
        }
        let seen = by_partition(&short_reader.join().expect("the reader came to the end"));
        for (partition, offsets) in &seen {
            let ascends = offsets.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(ascends, "partition {partition} of the short topic: {offsets:?}");
        }
    });
    expected.sort_by_key(|(place, _)| *place);
    until_cold(&broker);
    let check = |broker: &Broker, when: &str| {
        assert_same(&consume(&broker.address, &kept, PARTITIONS), &expected, when);
    };
    check(&broker, "out of tables");
    broker.restart();
    check(&broker, "after a restart");
    broker.kill_and_restart();
    check(&broker, "after a kill");
    let sent = dense(rounds, each);
    let places = produce(&broker.address, &kept, &sent, &[]);
    let mut more = expected.clone();
    more.extend(placed(&places, &sent));
    more.sort_by_key(|(place, _)| *place);
    broker.set_arguments(&[&eager()[..], &["--set", "hot.bytes=1GiB"]].concat());
    broker.restart();
    let seen = consume(&broker.address, &kept, PARTITIONS);
    assert_same(&seen, &more, "with more records and another hot budget");
}
