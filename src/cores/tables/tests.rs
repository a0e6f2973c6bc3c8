//! Tables of whole cores over a simulated disk: written when they are due or asked for, and seen
//! through the gate as one with what is in the log.

use super::*;
use crate::catalog::{Command, TopicRef};
use crate::config::Config;
use crate::cores::front::{AppendItem, Cores, TrimItem};
use crate::cores::gate::{Gate, TopicSnapshot};
use crate::cores::tests::{all, at, create, item, on_cores_with_tables, Body, COMMITTED};
use crate::cores::Door;
use crate::runtime::within;
use shard::disk::sim::{Fault, Op, SimDisk};
use shard::disk::Disk;
use shard::ids::Offset;
use shard::log::LogSettings;
use shard::table::table_dir;
use std::path::Path;

const DATA: &str = "/data";
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn rules(commit_bytes: u64, commit_ms: i64) -> TableRules {
    TableRules {
        settings: TableSettings { commit_bytes, commit_ms, ..Config::default().table_settings() },
        grace_ms: 0,
        coalesced_ms: 0,
        backlog_bytes_max: 1 << 30,
        retention_check_ms: 100,
    }
}

/// Nothing is due by itself.
fn patient() -> TableRules {
    rules(1 << 40, i64::MAX)
}

fn body<F>(run: impl FnOnce(Door, Gate) -> F + Send + 'static) -> Body
where
    F: Future<Output = ()> + 'static,
{
    Box::new(move |door, gate| Box::pin(run(door, gate)))
}

fn run<F>(disk: &SimDisk, rules: TableRules, test: impl FnOnce(Door, Gate) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    on_cores_with_tables(2, disk, (LogSettings::default(), rules), body(test));
}

async fn append(door: &Door, topic: &Topic, partition: i32, count: usize) {
    let items: Vec<AppendItem> =
        (0..count).map(|_| item(door, at(topic, partition), 1_000)).collect();
    let answers = all(door.append(items, COMMITTED)).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

async fn snapshot(gate: &Gate, topic: &Arc<Topic>) -> TopicSnapshot {
    within(PATIENCE, gate.snapshot(topic.clone())).await.expect("in time").expect("answered")
}

async fn freshen(gate: &Gate, topic: &Arc<Topic>) -> Result<Arc<Version>, GateError> {
    within(PATIENCE, gate.freshen(topic)).await.expect("in time")
}

/// Waits until a snapshot is as wanted.
async fn until(gate: &Gate, topic: &Arc<Topic>, wanted: impl Fn(&TopicSnapshot) -> bool) {
    let wait = async {
        while !wanted(&snapshot(gate, topic).await) {
            Timer::new(Duration::from_millis(5)).await;
        }
    };
    within(PATIENCE, wait).await.expect("in time");
}

/// Rows of the files and of the log, by partition.
fn rows(disk: &SimDisk, snapshot: TopicSnapshot) -> Vec<(u64, u64)> {
    let mut counted = Vec::new();
    for partition in snapshot.partitions {
        let parts = snapshot.version.parts(partition.partition);
        let written = parts.iter().map(|at| at.part.rows).sum();
        let mut hot = 0;
        if let Some(feed) = partition.hot {
            let mut feed = feed.open(disk).expect("nothing has gone");
            while let Some(batches) = feed.next(10_000).expect("whole") {
                hot += batches.len() as u64;
            }
        }
        counted.push((written, hot));
    }
    counted
}

#[test]
fn what_is_asked_for_is_in_files_and_everything_is_seen_once() {
    let disk = SimDisk::new(1);
    let seen = disk.clone();
    run(&disk, patient(), |door, gate| async move {
        let topic = create(&door, "t", 3).await;
        let nothing = freshen(&gate, &topic).await.expect("there is nothing to write");
        assert_eq!((nothing.number, nothing.topic), (0, topic.id));
        for (partition, count) in [(0, 5), (1, 3), (2, 0)] {
            append(&door, &topic, partition, count).await;
        }
        let taken = snapshot(&gate, &topic).await;
        assert_eq!(rows(&seen, taken), [(0, 5), (0, 3), (0, 0)], "a row is seen at its ack");
        let version = freshen(&gate, &topic).await.expect("written");
        let ends: Vec<_> = (0..3).map(|partition| version.table_end(partition)).collect();
        assert_eq!(ends, [Some(Offset(5)), Some(Offset(3)), None]);
        assert_eq!(version.files().len(), 1, "one file for all partitions");
        assert!(version.files().iter().all(|file| seen.open(&file.path).is_ok()));
        append(&door, &topic, 1, 2).await;
        until(&gate, &topic, |taken| taken.version.number == version.number).await;
        let taken = snapshot(&gate, &topic).await;
        assert_eq!(rows(&seen, taken), [(5, 0), (3, 2), (0, 0)]);
    });
}

#[test]
fn a_table_is_written_when_enough_waits_or_for_long_enough() {
    for rules in [rules(50_000, i64::MAX), rules(1 << 40, 50)] {
        let disk = SimDisk::new(2);
        let seen = disk.clone();
        run(&disk, rules, |door, gate| async move {
            let topic = create(&door, "t", 2).await;
            append(&door, &topic, 0, 30).await;
            append(&door, &topic, 1, 30).await;
            until(&gate, &topic, |taken| {
                taken.partitions.iter().all(|partition| partition.hot_from == Offset(30))
            })
            .await;
            let taken = snapshot(&gate, &topic).await;
            assert_eq!(rows(&seen, taken), [(30, 0), (30, 0)]);
        });
    }
}

#[test]
fn a_table_that_cannot_be_written_is_tried_again() {
    let disk = SimDisk::new(3);
    let seen = disk.clone();
    run(&disk, patient(), |door, gate| async move {
        let topic = create(&door, "t", 1).await;
        append(&door, &topic, 0, 4).await;
        seen.inject(Fault::Fail { op: Op::Append, after: 0, errno: 28 });
        assert_eq!(freshen(&gate, &topic).await.err(), Some(GateError::NotWritten));
        assert_eq!(snapshot(&gate, &topic).await.version.number, 0);
        append(&door, &topic, 0, 1).await;
        // Not before its time has come.
        let version = freshen(&gate, &topic).await.expect("written");
        assert_eq!(version.table_end(0), Some(Offset(5)));
    });
}

#[test]
fn files_go_when_the_log_start_has_passed_them_and_with_their_topic() {
    let disk = SimDisk::new(4);
    let seen = disk.clone();
    run(&disk, patient(), |door, gate| async move {
        let topic = create(&door, "t", 2).await;
        let data = table_dir(Path::new(DATA), topic.id).join("data");
        append(&door, &topic, 0, 4).await;
        append(&door, &topic, 1, 4).await;
        let version = freshen(&gate, &topic).await.expect("written");
        assert_eq!(version.files().len(), 1);
        drop(version);
        assert_eq!(seen.list(&data).expect("a directory").len(), 1);
        let trims = [0, 1].map(|partition| TrimItem { at: at(&topic, partition), below: None });
        let trimmed = door.trim(trims.to_vec(), 20_000).await;
        assert!(trimmed.iter().all(|at| *at == Ok(Offset(4))), "{trimmed:?}");
        until(&gate, &topic, |taken| taken.version.files().is_empty()).await;
        until(&gate, &topic, |_| seen.list(&data).is_ok_and(|files| files.is_empty())).await;
        let taken = snapshot(&gate, &topic).await;
        assert_eq!(taken.partitions[0].log_start, Offset(4));
        let topics = vec![TopicRef::Name("t".into())];
        let command = Command::DeleteTopics { view: topic.view, topics };
        door.catalog(command).await.expect("the catalogue works");
        assert_eq!(freshen(&gate, &topic).await.err(), Some(GateError::Unknown));
        let gone = gate.snapshot(topic.clone()).await;
        assert_eq!(gone.err(), Some(GateError::Unknown));
        let wait = async {
            while seen.list(&data).is_ok() {
                Timer::new(Duration::from_millis(5)).await;
            }
        };
        within(PATIENCE, wait).await.expect("its files are removed");
    });
}
