//! Appends at a rate, with syncs and preparation running beside them, and what they cost the core.
//!
//! The appending thread spins between appends, so that its timings hold no wake-ups. Whether it was
//! put aside by the kernel during an append is asked of the kernel, and such appends are counted:
//! on a busy machine they, not the log, make the tail.

use crate::counters::{thread_usage, ThreadUsage};
use crate::drive::{batch_of_frame, nanoseconds, Rig};
use crate::hash::Hash;
use crate::BenchError;
use hdrhistogram::Histogram;
use shard::batch::Valid;
use shard::ids::{DenseId, Offset};
use shard::log::{AppendError, Flush, LogSettings};
use std::path::Path;
use std::time::{Duration, Instant};

/// Batches read back at the end, for the hash.
const READ_BACK: i64 = 4096;

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub frames: u64,
    pub frame_bytes: usize,
    /// Bytes per second; `None` is as fast as it goes.
    pub rate: Option<u64>,
    pub flush: Flush,
}

impl Load {
    /// Frames of 1 KiB at a rate for some seconds; without a rate as many as 400 MB/s would be.
    pub fn seconds(seconds: f64, rate: Option<u64>) -> Load {
        const FRAME_BYTES: usize = 1024;
        let bytes = seconds * rate.unwrap_or(400_000_000) as f64;
        let frames = (bytes / FRAME_BYTES as f64) as u64;
        Load { frames, frame_bytes: FRAME_BYTES, rate, flush: Flush::Commit }
    }

    pub fn bytes(&self) -> u64 {
        self.frames * self.frame_bytes as u64
    }

    pub fn name(&self) -> String {
        match self.rate {
            Some(rate) => format!("{} MB/s", rate / 1_000_000),
            None => "flat out".to_string(),
        }
    }
}

/// What a load cost.
pub struct Cost {
    /// One append, in nanoseconds.
    pub appends: Histogram<u64>,
    /// The same without appends during which the thread was put aside.
    pub undisturbed: Histogram<u64>,
    /// Finished jobs taken back, what is due looked at, jobs handed out. In nanoseconds.
    pub turns: Histogram<u64>,
    pub syncs: Histogram<u64>,
    /// Page faults within appends.
    pub faults: i64,
    /// How often an append was refused because the log was busy, and how long that took in all.
    pub busy: u64,
    pub busy_time: Duration,
    pub elapsed: Duration,
    pub hash: Hash,
}

struct Run<'a> {
    rig: &'a mut Rig,
    id: DenseId,
    cost: Cost,
}

/// Runs a load against a fresh log in `dir`; everything is synced when it returns.
pub fn run(dir: &Path, load: &Load) -> Result<Cost, BenchError> {
    let (mut rig, _) = Rig::open(dir, 1, LogSettings::default())?;
    let id = rig.attach(0, load.flush);
    let batch = batch_of_frame(load.frame_bytes);
    let valid = Valid::built(&batch).map_err(|_| BenchError::ReadBack { offset: 0 })?;
    let cost = Cost {
        appends: nanoseconds(),
        undisturbed: nanoseconds(),
        turns: nanoseconds(),
        syncs: nanoseconds(),
        faults: 0,
        busy: 0,
        busy_time: Duration::ZERO,
        elapsed: Duration::ZERO,
        hash: Hash::default(),
    };
    let mut run = Run { rig: &mut rig, id, cost };
    run.appends(load, &valid)?;
    let mut cost = run.cost;
    rig.settle()?;
    let from = Offset((load.frames as i64 - READ_BACK).max(0));
    let end = rig.read_back(id, from, &mut cost.hash)?;
    if end.0 != load.frames as i64 {
        return Err(BenchError::ReadBack { offset: end.0 });
    }
    cost.syncs = rig.syncs.clone();
    rig.stop()?;
    Ok(cost)
}

impl Run<'_> {
    fn appends(&mut self, load: &Load, batch: &Valid<'_>) -> Result<(), BenchError> {
        let started = Instant::now();
        let frame_ns = load.rate.map(|rate| load.frame_bytes as f64 * 1e9 / rate as f64);
        let mut usage = thread_usage();
        for frame in 0..load.frames {
            if let Some(frame_ns) = frame_ns {
                let due = Duration::from_nanos((frame as f64 * frame_ns) as u64);
                while started.elapsed() < due {
                    self.turn()?;
                    std::hint::spin_loop();
                }
                usage = thread_usage();
            }
            usage = self.append(batch, usage)?;
            self.turn()?;
        }
        self.cost.elapsed = started.elapsed();
        Ok(())
    }

    fn turn(&mut self) -> Result<(), BenchError> {
        let started = Instant::now();
        self.rig.turn()?;
        self.cost.turns.saturating_record(started.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// One append, timed; refusals are waited out and not part of it.
    fn append(
        &mut self,
        batch: &Valid<'_>,
        mut before: ThreadUsage,
    ) -> Result<ThreadUsage, BenchError> {
        let mut refused: Option<Instant> = None;
        loop {
            let now = self.rig.now();
            let started = Instant::now();
            let result = self.rig.log.append(self.id, batch, now);
            let took = started.elapsed().as_nanos() as u64;
            let after = thread_usage();
            self.cost.appends.saturating_record(took);
            self.cost.faults += after.faults - before.faults;
            if after.preempted == before.preempted {
                self.cost.undisturbed.saturating_record(took);
            }
            match result {
                Ok(appended) => {
                    self.cost.busy_time += refused.map_or(Duration::ZERO, |since| since.elapsed());
                    self.cost.hash.number(appended.base_offset.0);
                    return Ok(after);
                }
                Err(AppendError::Busy) => {
                    self.cost.busy += u64::from(refused.is_none());
                    refused.get_or_insert(started);
                    self.rig.wait()?;
                    before = thread_usage();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
