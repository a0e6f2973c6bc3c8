//! Bench `partitions`: a log with very many partitions: opening, attaching, memory, idle ticks.
//!
//! Twice: partitions that were only attached, and partitions that hold one batch each and were
//! stopped cleanly. Memory is what a fresh process holds more at the end than at its start, so the
//! measuring runs in a process of its own when the bench runs as a program.

use crate::counters::{anonymous_bytes, thread_usage};
use crate::drive::{batch_of_frame, Rig};
use crate::hash::Hash;
use crate::report::{Bar, Report};
use crate::BenchError;
use shard::batch::Valid;
use shard::log::{Flush, LogSettings};
use std::path::Path;
use std::time::{Duration, Instant};

/// Anonymous memory of a whole broker with 100,000 partitions, in MB, and its time to be ready.
const MEMORY_MB: Bar = Bar::AtMost(200.0);
const READY_S: Bar = Bar::AtMost(5.0);
/// How long the idle log is watched.
const WATCHED: Duration = Duration::from_millis(500);

/// Measures the opening of a log of so many partitions.
pub type Measure<'a> = &'a dyn Fn(&Path, u32, &str) -> Result<Report, BenchError>;

pub fn run(dir: &Path, count: u32, measure: Measure<'_>) -> Result<Report, BenchError> {
    let mut report = Report::new(format!("partitions: {count} attached to one log"));
    let mut hash = Hash::default();
    for case in ["never used", "one batch each"] {
        let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
        if case == "one batch each" {
            fill(folder.path(), count)?;
        }
        let measured = measure(folder.path(), count, case)?;
        hash.number(measured.hash.unwrap_or_default() as i64);
        report.merge(Report { hash: None, ..measured })?;
    }
    report.hash = Some(hash.0);
    Ok(report)
}

/// Puts one batch into each partition and stops cleanly.
fn fill(dir: &Path, count: u32) -> Result<(), BenchError> {
    let (mut rig, _) = Rig::open(dir, 1, LogSettings::default())?;
    let batch = batch_of_frame(256);
    let valid = Valid::built(&batch).map_err(|_| BenchError::ReadBack { offset: 0 })?;
    for partition in 0..count {
        let id = rig.attach(partition as i32, Flush::Commit);
        rig.append(id, &valid)?;
        rig.turn()?;
    }
    rig.settle()?;
    rig.stop()
}

/// Opens the log in `dir`, attaches all partitions and lets it idle.
pub fn measure_here(dir: &Path, count: u32, case: &str) -> Result<Report, BenchError> {
    let mut report = Report::new("partitions");
    let pid = std::process::id();
    let before = anonymous_bytes(pid)?;
    let started = Instant::now();
    let (mut rig, _) = Rig::open(dir, 2, LogSettings::default())?;
    let opened = started.elapsed();
    let mut hash = Hash::default();
    for partition in 0..count {
        let id = rig.attach(partition as i32, Flush::Commit);
        hash.number(i64::from(id.0));
        hash.number(rig.log.offsets(id).map_or(-1, |offsets| offsets.log_end.0));
    }
    let attached = started.elapsed();
    let mut longest = Duration::ZERO;
    let idle_from = Instant::now();
    while idle_from.elapsed() < WATCHED {
        let before = thread_usage();
        let started = Instant::now();
        rig.turn()?;
        let took = started.elapsed();
        if thread_usage().preempted == before.preempted {
            longest = longest.max(took);
        }
        rig.wait()?;
    }
    let bytes = anonymous_bytes(pid)?.saturating_sub(before);
    report.row(case, "open", opened.as_secs_f64(), "s");
    report.held((case, "open and attach"), attached.as_secs_f64(), "s", READY_S);
    report.held((case, "anonymous memory"), bytes as f64 / 1e6, "MB", MEMORY_MB);
    report.row(case, "per partition", bytes as f64 / f64::from(count.max(1)), "B");
    report.row(case, "longest turn, not put aside", longest.as_secs_f64() * 1e6, "µs");
    report.hash = Some(hash.0);
    rig.stop()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_partitions_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let report = run(folder.path(), 300, &measure_here).unwrap();
        assert_eq!(report.rows.len(), 10);
        assert_eq!(report.hash, run(folder.path(), 300, &measure_here).unwrap().hash);
    }
}
