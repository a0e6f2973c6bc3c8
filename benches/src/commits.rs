//! Bench `commits`: very many offset commits over few keys on a compacted partition.
//!
//! What a group coordinator's partition goes through: one small record per append, each waiting
//! for a sync, while compaction runs beside. Held to the space the log takes in the end and to how
//! long it takes to be open again after a kill and to read what is left.

use crate::drive::{Rig, RECORD_TIME};
use crate::hash::Hash;
use crate::report::{Bar, Report};
use crate::BenchError;
use shard::batch::{BatchBuilder, NewRecord, Records, Valid};
use shard::log::{Compaction, Flush, LogSettings, PartitionSettings};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Open and read again.
const RESTART_S: Bar = Bar::AtMost(2.0);
/// How often the log's size is looked at.
const SAMPLED: u64 = 4_096;

pub fn run(dir: &Path, commits: u64, keys: u64) -> Result<Report, BenchError> {
    let mut report = Report::new(format!("commits: {commits} over {keys} keys, compacted"));
    let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
    let case = "commits";
    let settings = LogSettings::default();
    let (mut rig, _) = Rig::open(folder.path(), 1, settings.clone())?;
    let id = rig.attach_as(0, of_offsets());
    let started = Instant::now();
    let mut most = 0;
    for commit in 0..commits {
        let batch = batch_of(commit % keys.max(1), commit);
        let valid = Valid::built(&batch).map_err(|_| BenchError::ReadBack { offset: 0 })?;
        rig.append(id, &valid)?;
        rig.turn()?;
        if commit % SAMPLED == 0 {
            most = rig.log.size().1.max(most);
        }
    }
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    rest(&mut rig)?;
    let rested = started.elapsed().as_secs_f64() - seconds;
    let space = rig.log.space_counts();
    report.row(case, "committed", commits as f64 / seconds, "1/s");
    report.row(case, "most bytes of the log", most as f64 / 1e6, "MB");
    report.row(case, "until compaction rests", rested, "s");
    // What is being filled, and what compaction has left.
    let bytes_max = Bar::AtMost(f64::from(settings.segment_bytes_max) / 1e6);
    report.held((case, "bytes at the end"), rig.log.size().1 as f64 / 1e6, "MB", bytes_max);
    report.row(case, "cleaned", space.cleaned_bytes as f64 / 1e6, "MB");
    report.row(case, "left by cleaning", space.kept_bytes as f64 / 1e6, "MB");
    drop(rig);
    let started = Instant::now();
    let (mut rig, recovered) = Rig::open(folder.path(), 2, settings)?;
    let id = rig.attach_as(0, of_offsets());
    let opened = started.elapsed().as_secs_f64();
    let mut last: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut records = 0u64;
    rig.each_batch(id, |header, body| {
        for record in Records::new(body, header.record_count).flatten() {
            records += 1;
            let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
            last.insert(key.to_vec(), value.to_vec());
        }
    })?;
    report.row(case, "open", opened, "s");
    report.held((case, "open and read"), started.elapsed().as_secs_f64(), "s", RESTART_S);
    report.row(case, "frames read to open", recovered.frames as f64, "");
    report.row(case, "records read", records as f64, "");
    let mut hash = Hash::default();
    for (key, value) in &last {
        hash.bytes(key);
        hash.bytes(value);
    }
    report.hash = Some(hash.0);
    if last.len() as u64 != keys.min(commits) {
        return Err(BenchError::ReadBack { offset: last.len() as i64 });
    }
    rig.stop()?;
    Ok(report)
}

/// Goes on until nothing has been cleaned or removed for a while.
fn rest(rig: &mut Rig) -> Result<(), BenchError> {
    const QUIET: Duration = Duration::from_millis(1_500);
    rig.settle()?;
    let mut seen = (rig.log.space_counts(), rig.log.size());
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        rig.wait()?;
        let now = (rig.log.space_counts(), rig.log.size());
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    rig.settle()
}

fn of_offsets() -> PartitionSettings {
    PartitionSettings {
        flush: Flush::Commit,
        retention_ms: None,
        retention_bytes: None,
        internal: true,
        compaction: Some(Compaction::default()),
    }
}

fn batch_of(key: u64, commit: u64) -> Vec<u8> {
    let (key, value) = (format!("a-group/a-topic-{key}"), format!("{commit:020}"));
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        timestamp: RECORD_TIME,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: &[],
    });
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_commits_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = run(folder.path(), 500, 7).unwrap();
        let again = run(folder.path(), 500, 7).unwrap();
        assert_eq!(first.hash, again.hash);
        assert_eq!(first.rows.len(), 10);
    }
}
