//! Bench `relocation`: what carrying live batches to the tail costs the producers beside it.
//!
//! The same load twice, without and with relocation: a busy topic of which little is kept, and a
//! twentieth of the bytes in many topics that are kept for ever, so that each segment ends up a
//! twentieth alive. The time of a produce is from its append to the commit that covers it.

use crate::drive::{batch_of_frame, nanoseconds, Rig};
use crate::report::{Bar, Report};
use crate::BenchError;
use hdrhistogram::Histogram;
use shard::batch::Valid;
use shard::ids::{DenseId, Position};
use shard::log::{Flush, LogSettings, PartitionSettings};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

/// The p99 of a produce with relocation over that without.
const P99_RATIO: Bar = Bar::AtMost(1.5);
/// Relocated bytes to appended ones.
const SHARE_PERCENT: Bar = Bar::AtMost(10.0);
const FRAME_BYTES: usize = 1024;
const TRICKLES: usize = 200;
/// One frame in so many goes to a trickle.
const TRICKLE_EVERY: u64 = 20;
/// One produce in so many is timed.
const TIMED_EVERY: u64 = 16;

struct Cost {
    produces: Histogram<u64>,
    turns: Histogram<u64>,
    relocated_bytes: u64,
    segments: usize,
    bytes: u64,
}

pub fn run(dir: &Path, seconds: f64, rate: u64) -> Result<Report, BenchError> {
    let megabytes = rate / 1_000_000;
    let mut report =
        Report::new(format!("relocation: {megabytes} MB/s, a twentieth kept for ever"));
    let frames = (seconds * rate as f64 / FRAME_BYTES as f64) as u64;
    let mut p99 = Vec::new();
    for (case, live_percent) in [("without", 0), ("with", 25)] {
        let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
        let cost = measure(folder.path(), (frames, rate), live_percent)?;
        report.latency(case, "produce", &cost.produces);
        report.latency(case, "turn", &cost.turns);
        let share = cost.relocated_bytes as f64 * 100.0 / (frames as f64 * FRAME_BYTES as f64);
        report.held((case, "relocated"), share, "%", SHARE_PERCENT);
        report.row(case, "segments", cost.segments as f64, "");
        report.row(case, "bytes", cost.bytes as f64 / 1e6, "MB");
        p99.push(cost.produces.value_at_quantile(0.99) as f64);
    }
    if let [without, with] = p99[..] {
        report.held(("with", "produce p99, ratio"), with / without.max(1.0), "", P99_RATIO);
    }
    Ok(report)
}

fn settings(live_percent: u32) -> LogSettings {
    LogSettings {
        segment_bytes_max: 32 << 20,
        retention_check_ms: 200,
        relocate_live_percent_max: live_percent,
        ..LogSettings::default()
    }
}

fn of(retention_bytes: Option<u64>) -> PartitionSettings {
    PartitionSettings {
        flush: Flush::Commit,
        retention_ms: None,
        retention_bytes,
        internal: false,
        compaction: None,
    }
}

fn measure(dir: &Path, (frames, rate): (u64, u64), percent: u32) -> Result<Cost, BenchError> {
    let (mut rig, _) = Rig::open(dir, 1, settings(percent))?;
    let busy = rig.attach_as(0, of(Some(64 << 20)));
    let trickles: Vec<DenseId> =
        (1..=TRICKLES).map(|partition| rig.attach_as(partition as i32, of(None))).collect();
    let batch = batch_of_frame(FRAME_BYTES);
    let valid = Valid::built(&batch).map_err(|_| BenchError::ReadBack { offset: 0 })?;
    let (mut produces, mut turns) = (nanoseconds(), nanoseconds());
    let mut waiting: VecDeque<(Position, Instant)> = VecDeque::new();
    let started = Instant::now();
    for frame in 0..frames {
        let due =
            Duration::from_nanos((frame as f64 * FRAME_BYTES as f64 * 1e9 / rate as f64) as u64);
        loop {
            let before = Instant::now();
            rig.turn()?;
            turns.saturating_record(before.elapsed().as_nanos() as u64);
            let committed = rig.log.committed();
            while let Some((_, since)) = waiting.pop_front_if(|(at, _)| *at <= committed) {
                produces.saturating_record(since.elapsed().as_nanos() as u64);
            }
            if started.elapsed() >= due {
                break;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        let trickle = trickles.get((frame / TRICKLE_EVERY) as usize % TRICKLES);
        let id = trickle.filter(|_| frame % TRICKLE_EVERY == 0).copied().unwrap_or(busy);
        let position = rig.append(id, &valid)?.position;
        if frame % TIMED_EVERY == 0 {
            waiting.push_back((position, since));
        }
    }
    rig.settle()?;
    let relocated_bytes = rig.log.space_counts().relocated_bytes;
    let (segments, bytes) = rig.log.size();
    rig.stop()?;
    Ok(Cost { produces, turns, relocated_bytes, segments, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_measures_both_cases() {
        let folder = tempfile::tempdir().unwrap();
        let report = run(folder.path(), 0.02, 20_000_000).unwrap();
        assert!(report.rows.iter().any(|row| row.metric == "produce p99, ratio"));
    }
}
