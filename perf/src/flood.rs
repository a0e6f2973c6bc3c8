//! Very many commits over few keys: does the log stay small, and is a restart quick?

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::groups::{commit, open_groups, refuse_error, COMMIT_VERSION};
use crate::topics::Topics;
use crate::wire::Wire;
use benches::report::{Bar, Report};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Groups that commit one partition each.
const KEYS: usize = 100;
const TOPIC: &str = "flood";
/// Commits of each group on their way at a time.
const PIPELINED: u64 = 10;
const FETCH_VERSION: i16 = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// Commits `commits` times over 100 keys, kills the broker and starts it again.
pub fn flood(starter: &Starter, commits: u64, rate: u64) -> Result<Report, PerfError> {
    let mut report = Report::new("flood");
    let case = format!("{commits} commits over {KEYS} keys, {rate} a second at most");
    let data = starter.data_dir()?;
    let broker = starter.start(data.path())?;
    Topics::at(&broker.address)?.create(TOPIC, KEYS as i32, &[])?;
    open_groups(&broker.address)?;
    let started = Instant::now();
    let largest = commit_all(&broker, data.path(), commits, rate)?;
    report.row(&case, "rate", commits as f64 / started.elapsed().as_secs_f64(), "1/s");
    report.row(&case, "log at its largest", largest as f64 / 1e6, "MB");
    broker.kill();
    let started = Instant::now();
    let broker = starter.start(data.path())?;
    let rounds = commits / KEYS as u64;
    for number in 0..KEYS {
        let offset = fetch(&broker.address, number)?;
        if offset != number as i64 + 1 {
            let said = format!("group {number} is at {offset} after {rounds} commits");
            return Err(PerfError::Answer(said));
        }
    }
    let bar = Bar::AtMost(2.0);
    report.held((&case, "restart to all offsets"), started.elapsed().as_secs_f64(), "s", bar);
    report.row(&case, "log after the restart", size_of(data.path())? as f64 / 1e6, "MB");
    broker.stop()?;
    Ok(report)
}

/// Returns the most bytes the data directory came to.
fn commit_all(broker: &Broker, data: &Path, commits: u64, rate: u64) -> Result<u64, PerfError> {
    let mut wires = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        let request = commit(TOPIC, number)?;
        wires.push((Wire::to(&broker.address)?, request.repeat(PIPELINED as usize)));
    }
    let (mut done, mut largest, mut looked) = (0, 0, Instant::now());
    let started = Instant::now();
    while done < commits {
        for (wire, requests) in &mut wires {
            wire.send(requests)?;
        }
        for (wire, _) in &mut wires {
            for _ in 0..PIPELINED {
                let answer = wire.receive::<OffsetCommitRequest>(COMMIT_VERSION)?;
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                for partition in partitions {
                    refuse_error("OffsetCommit", partition.error_code)?;
                }
            }
        }
        done += PIPELINED * KEYS as u64;
        let due = Duration::from_secs_f64(done as f64 / rate.max(1) as f64);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        if looked.elapsed() > Duration::from_secs(1) {
            looked = Instant::now();
            largest = largest.max(size_of(data)?);
        }
    }
    Ok(largest.max(size_of(data)?))
}

fn fetch(address: &str, number: usize) -> Result<i64, PerfError> {
    let topic = OffsetFetchRequestTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(TOPIC)))
        .with_partition_indexes(vec![number as i32]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(StrBytes::from_string(format!("committer-{number}"))))
        .with_topics(Some(vec![topic]));
    let started = Instant::now();
    loop {
        let answer = Wire::to(address)?.ask(FETCH_VERSION, &request)?;
        let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
        match (answer.error_code, partition) {
            (0, Some(partition)) => return Ok(partition.committed_offset),
            // It is loading.
            (14, _) if started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            (code, _) => return refuse_error("OffsetFetch", code).map(|()| -1),
        }
    }
}

/// Bytes of all files below a directory, as the disk holds them.
fn size_of(dir: &Path) -> Result<u64, PerfError> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(PerfError::file(dir))? {
        let path = entry.map_err(PerfError::file(dir))?.path();
        // Segments come and go while they are counted.
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        bytes += match found.is_dir() {
            true => size_of(&path)?,
            false => std::os::unix::fs::MetadataExt::blocks(&found) * 512,
        };
    }
    Ok(bytes)
}
