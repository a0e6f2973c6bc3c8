//! A log driven as the broker drives it: one thread appends, jobs run on threads of their lanes.
//!
//! The appending thread calls `turn` between appends: it takes finished jobs back, lets the log
//! look at what is due and hands new jobs out. Only `wait` and the end block.

use crate::hash::Hash;
use crate::BenchError;
use hdrhistogram::Histogram;
use shard::batch::{BatchBuilder, BatchHeader, NewRecord, Valid};
use shard::disk::RealDisk;
use shard::ids::{DenseId, LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use shard::log::{
    AppendError, Appended, Done, Flush, Job, Lane, Log, LogSettings, LogSpec, Now,
    PartitionSettings, ReadAsk, ReadPlan, Recovered, Until,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// A log that stays busy for so long has a fault.
const STUCK: Duration = Duration::from_secs(60);
/// The time of all records, so that results do not depend on the clock.
pub const RECORD_TIME: Timestamp = Timestamp(1_700_000_000_000);

/// One thread per lane and the way back.
struct Lanes {
    jobs: Vec<Sender<Job>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
}

impl Lanes {
    fn start() -> Lanes {
        let (sender, done) = channel();
        let mut lanes = Lanes { jobs: Vec::new(), done, threads: Vec::new() };
        for name in ["sync", "prepare", "worker"] {
            let (jobs, queue) = channel::<Job>();
            let done = sender.clone();
            let work = move || {
                for job in queue {
                    let started = Instant::now();
                    let ended = job.run();
                    if done.send(ended.timed(started.elapsed())).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name(name.to_string()).spawn(work);
            lanes.threads.extend(thread);
            lanes.jobs.push(jobs);
        }
        lanes
    }

    fn give(&self, job: Job) -> Result<(), BenchError> {
        let at = match job.lane() {
            Lane::Sync => 0,
            Lane::Prepare => 1,
            Lane::Worker => 2,
        };
        let lane = self.jobs.get(at).ok_or(BenchError::Lane)?;
        lane.send(job).map_err(|_| BenchError::Lane)
    }
}

/// A log, its lanes and what was seen of its syncs.
pub struct Rig {
    pub log: Log,
    lanes: Lanes,
    started: Instant,
    in_flight: usize,
    /// How long syncs took, in nanoseconds.
    pub syncs: Histogram<u64>,
}

impl Rig {
    /// Opens the log in `dir` as run number `run`.
    pub fn open(
        dir: &Path,
        run: i32,
        settings: LogSettings,
    ) -> Result<(Rig, Recovered), BenchError> {
        let started = Instant::now();
        let spec = LogSpec {
            dir: dir.to_path_buf(),
            id: LogId(0),
            cluster: Uuid::from_u128(0xba5a17),
            run: LeaderEpoch(run),
            settings,
            salvage: false,
        };
        let seed = wall().0 as u64 ^ (u64::from(std::process::id()) << 32);
        let (log, recovered) = Log::open(Arc::new(RealDisk), spec, seed, now_since(started))?;
        let lanes = Lanes::start();
        Ok((Rig { log, lanes, started, in_flight: 0, syncs: nanoseconds() }, recovered))
    }

    pub fn now(&self) -> Now {
        now_since(self.started)
    }

    pub fn attach(&mut self, partition: i32, flush: Flush) -> DenseId {
        let key = PartitionKey { view: 0, topic: Uuid::from_u128(1), partition };
        let settings = PartitionSettings {
            flush,
            retention_ms: None,
            retention_bytes: None,
            internal: false,
            compaction: None,
        };
        self.log.attach(key, settings)
    }

    /// Takes finished jobs back, looks at what is due, hands new jobs out. Does not block.
    pub fn turn(&mut self) -> Result<(), BenchError> {
        loop {
            match self.lanes.done.try_recv() {
                Ok(done) => self.take_back(done)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(BenchError::Lane),
            }
        }
        self.log.tick(self.now());
        self.hand_out()
    }

    fn hand_out(&mut self) -> Result<(), BenchError> {
        for job in self.log.take_jobs() {
            self.in_flight += 1;
            self.lanes.give(job)?;
        }
        Ok(())
    }

    fn take_back(&mut self, done: Done) -> Result<(), BenchError> {
        self.in_flight -= 1;
        if done.is_sync() {
            self.syncs.saturating_record(done.took().as_nanos() as u64);
        }
        let progress = self.log.finish(done, self.now());
        progress.failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Blocks until a job is done, at most a millisecond, then turns.
    pub fn wait(&mut self) -> Result<(), BenchError> {
        match self.lanes.done.recv_timeout(Duration::from_millis(1)) {
            Ok(done) => self.take_back(done)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(BenchError::Lane),
        }
        self.turn()
    }

    /// Appends, waiting while the log is busy.
    pub fn append(&mut self, id: DenseId, batch: &Valid<'_>) -> Result<Appended, BenchError> {
        let since = Instant::now();
        loop {
            match self.log.append(id, batch, self.now()) {
                Err(AppendError::Busy) if since.elapsed() < STUCK => self.wait()?,
                Err(AppendError::Busy) => {
                    return Err(BenchError::Stuck { seconds: STUCK.as_secs() });
                }
                other => return Ok(other?),
            }
        }
    }

    /// Works until every appended byte is synced and no job is left.
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.turn()?;
        let since = Instant::now();
        while self.log.unsynced_bytes() > 0 || self.in_flight > 0 {
            if since.elapsed() > STUCK {
                return Err(BenchError::Stuck { seconds: STUCK.as_secs() });
            }
            self.wait()?;
        }
        Ok(())
    }

    /// A clean stop: everything synced and the mark written.
    pub fn stop(mut self) -> Result<(), BenchError> {
        while !self.log.stop_step(self.now()) {
            self.hand_out()?;
            let done = self.lanes.done.recv().map_err(|_| BenchError::Lane)?;
            self.take_back(done)?;
        }
        while self.in_flight > 0 {
            let done = self.lanes.done.recv().map_err(|_| BenchError::Lane)?;
            self.take_back(done)?;
        }
        Ok(())
    }

    /// Reads the committed batches of a partition from `from` on out of the files and adds them to
    /// `hash`. Returns the offset after the last one.
    pub fn read_back(
        &self,
        id: DenseId,
        from: Offset,
        hash: &mut Hash,
    ) -> Result<Offset, BenchError> {
        let mut at = from;
        loop {
            let failed = BenchError::ReadBack { offset: at.0 };
            let (bytes_max, until) = (4 << 20, Until::HighWatermark);
            let ask = ReadAsk { from: at, bytes_max, whole_first: true, until };
            let Ok(plan) = self.log.plan_read(id, &ask) else { return Err(failed) };
            let Some(bytes) = bytes_of(plan) else { return Err(failed) };
            if bytes.is_empty() {
                return Ok(at);
            }
            let mut rest = &bytes[..];
            while let Ok((header, body, behind)) = BatchHeader::split(rest) {
                if header.base_offset != at || header.crc_with(body) != header.crc {
                    return Err(BenchError::ReadBack { offset: at.0 });
                }
                hash.number(header.base_offset.0);
                hash.bytes(body);
                at = header.end_offset();
                rest = behind;
            }
        }
    }
}

/// What a plan leads to, from the files: a bench has no socket to send slices to.
fn bytes_of(plan: ReadPlan) -> Option<Vec<u8>> {
    if let Some(cold) = plan.cold {
        return cold.run().ok().map(|bytes| bytes.to_vec());
    }
    let mut bytes = Vec::with_capacity(plan.bytes);
    for slice in plan.slices {
        let (path, at) = slice.place();
        let from = bytes.len();
        bytes.resize(from + slice.len(), 0);
        File::open(path).ok()?.read_exact_at(&mut bytes[from..], at).ok()?;
    }
    Some(bytes)
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.lanes.jobs.clear();
        for thread in self.lanes.threads.drain(..) {
            // A lane that panicked has shown itself as a missing outcome already.
            let _ = thread.join();
        }
    }
}

/// Nanoseconds up to a minute, three digits.
pub fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are right")
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as i64)
}

fn now_since(started: Instant) -> Now {
    Now { wall: wall(), mono_us: started.elapsed().as_micros() as u64 }
}

/// A batch of one record whose frame in the log has exactly `frame_bytes`, if it can have.
pub fn batch_of_frame(frame_bytes: usize) -> Vec<u8> {
    let batch_bytes = frame_bytes.saturating_sub(shard::log::FRAME_HEADER_BYTES);
    let mut value = vec![0; batch_bytes.saturating_sub(shard::batch::HEADER_BYTES)];
    for (at, byte) in value.iter_mut().enumerate() {
        *byte = b'a' + (at.wrapping_mul(31) % 26) as u8;
    }
    loop {
        let mut builder = BatchBuilder::new();
        let value_of = Some(&value[..]);
        builder.push(&NewRecord {
            timestamp: RECORD_TIME,
            key: None,
            value: value_of,
            headers: &[],
        });
        if builder.bytes() <= batch_bytes || value.is_empty() {
            return builder.build();
        }
        value.truncate(value.len() - (builder.bytes() - batch_bytes).min(value.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::log::FRAME_HEADER_BYTES;

    #[test]
    fn a_frame_has_the_size_asked_for() {
        for bytes in [200, 1024, 16 << 10] {
            assert_eq!(batch_of_frame(bytes).len() + FRAME_HEADER_BYTES, bytes);
        }
    }

    #[test]
    fn what_is_driven_reads_back_after_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let batch = batch_of_frame(1024);
        let valid = Valid::built(&batch).unwrap();
        let (mut rig, _) = Rig::open(folder.path(), 1, LogSettings::default()).unwrap();
        let id = rig.attach(0, Flush::Commit);
        for offset in 0..100 {
            assert_eq!(rig.append(id, &valid).unwrap().base_offset, Offset(offset));
        }
        rig.settle().unwrap();
        let mut before = Hash::default();
        assert_eq!(rig.read_back(id, Offset(0), &mut before).unwrap(), Offset(100));
        rig.stop().unwrap();
        let (mut rig, recovered) = Rig::open(folder.path(), 2, LogSettings::default()).unwrap();
        assert_eq!(recovered.copied_frames, 0);
        let id = rig.attach(0, Flush::Commit);
        let mut after = Hash::default();
        assert_eq!(rig.read_back(id, Offset(0), &mut after).unwrap(), Offset(100));
        assert_eq!(before, after);
    }
}
