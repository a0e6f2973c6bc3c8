//! A broker's engine, reduced to what matters here: several logs on one simulated disk, driven by a
//! random but repeatable sequence of calls, job orders, faults and ends.
//!
//! Every answer goes to the oracle (`history.rs`). Time is a counter. Jobs of the sync and the
//! prepare lane run in order, workers in any; outcomes reach the log some time after the job ran.
//! How a process ends and starts again is in `ends.rs`.

use crate::batches::{build, rules, Outline, Sender};
use crate::history::{Ended, History, Sent, Violation};
use crate::reader;
use crate::tables::Tables;
use shard::batch::Valid;
use shard::disk::sim::{Rng, SimDisk};
use shard::ids::{DenseId, LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use shard::log::{AppendError, Appended, Done, Flush, Job, Lane, Log, LogSettings, LogSpec, Now};
use shard::log::{Compaction, PartitionSettings, SideBatch, SideError, SpaceCounts};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

const START_MS: i64 = 1_700_000_000_000;
const CLUSTER: u128 = 0xba5a_1700;
/// What files may take together when the disk is not to be full. Small, so that the reserve is.
pub const CAPACITY_BYTES: u64 = 64 << 20;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    pub steps: usize,
    /// Ends, sync errors and a disk that fills up happen at random between steps.
    pub faults: bool,
    /// Most of what happens is about space: small segments, compacted partitions, jobs that run.
    pub space: bool,
    pub plant: Plant,
}

/// A bug put in by the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    None,
    /// Syncs of maps return at once, without writing.
    LyingSync,
    /// Segments read as if they ended at the first padding.
    BlindToPadding,
}

/// What a run went through, so that a simulation that does nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub appends: u64,
    pub large: u64,
    pub seals: u64,
    pub crashes: u64,
    pub crashes_in_recovery: u64,
    pub kills: u64,
    pub stops: u64,
    pub copied_frames: u64,
    pub poisoned: u64,
    pub full: u64,
    pub relocations: u64,
    pub relocated_bytes: u64,
    pub hollowed: u64,
    pub cleanings: u64,
    pub cleaned_bytes: u64,
    pub kept_bytes: u64,
    pub columnarised: u64,
    pub table_merges: u64,
    pub table_cleanings: u64,
    /// Reads of what the log has let go of.
    pub table_reads: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.appends += other.appends;
        self.large += other.large;
        self.seals += other.seals;
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.kills += other.kills;
        self.stops += other.stops;
        self.copied_frames += other.copied_frames;
        self.poisoned += other.poisoned;
        self.full += other.full;
        self.relocations += other.relocations;
        self.relocated_bytes += other.relocated_bytes;
        self.hollowed += other.hollowed;
        self.cleanings += other.cleanings;
        self.cleaned_bytes += other.cleaned_bytes;
        self.kept_bytes += other.kept_bytes;
        self.columnarised += other.columnarised;
        self.table_merges += other.table_merges;
        self.table_cleanings += other.table_cleanings;
        self.table_reads += other.table_reads;
    }
}

/// One log of the data directory, running or not.
pub struct Slot {
    pub spec: LogSpec,
    pub keys: Vec<PartitionKey>,
    pub live: Option<Live>,
    /// How the last process that had it open ended, the worst when there were several since.
    pub ended: Ended,
}

/// A running log with the work it gave out.
pub struct Live {
    pub log: Log,
    pub ids: BTreeMap<PartitionKey, DenseId>,
    sync: VecDeque<Job>,
    prepare: VecDeque<Job>,
    workers: Vec<Job>,
    done: VecDeque<Done>,
    /// Large batches that are in side files and not yet in the log.
    large: VecDeque<Large>,
    segments: usize,
    space: SpaceCounts,
    pub poisoned: bool,
}

impl Live {
    pub fn new(log: Log, ids: BTreeMap<PartitionKey, DenseId>) -> Live {
        Live {
            segments: log.size().0,
            space: log.space_counts(),
            log,
            ids,
            sync: VecDeque::new(),
            prepare: VecDeque::new(),
            workers: Vec::new(),
            done: VecDeque::new(),
            large: VecDeque::new(),
            poisoned: false,
        }
    }
}

struct Large {
    key: PartitionKey,
    time: Timestamp,
    bytes: Vec<u8>,
    side: SideBatch,
}

pub struct Machine {
    pub disk: SimDisk,
    pub history: History,
    pub tally: Tally,
    pub rng: Rng,
    pub shape: Shape,
    pub slots: Vec<Slot>,
    pub now: Now,
    /// The broker's clock less the monotonic one; it jumps.
    skew_ms: i64,
    pub run: i32,
    next_topic: u128,
    /// A sync has failed in this life: the cache is not to be trusted.
    pub cache_lies: bool,
    pub tables: Tables,
}

impl Machine {
    /// A machine with one to three empty logs and some partitions.
    pub fn new(shape: Shape) -> Result<Machine, Violation> {
        let mut rng = Rng::new(shape.seed);
        let disk = SimDisk::new(rng.number());
        disk.set_write_back([0, 2, 20][rng.below(3) as usize]);
        let mut machine = Machine {
            disk,
            history: History::default(),
            tally: Tally::default(),
            rng,
            shape,
            slots: Vec::new(),
            now: Now { wall: Timestamp(START_MS), mono_us: 1_000_000 },
            skew_ms: START_MS,
            run: 0,
            next_topic: 1,
            cache_lies: false,
            tables: Tables::new(),
        };
        for _ in 0..machine.rng.between(1, 3) {
            machine.add_slot();
        }
        machine.reopen()?;
        for _ in 0..machine.rng.between(1, 6) {
            machine.create_partition();
        }
        Ok(machine)
    }

    pub fn add_slot(&mut self) {
        let id = self.slots.len() as u32;
        let spec = LogSpec {
            dir: PathBuf::from(format!("/data/log-{id}")),
            id: LogId(id),
            cluster: uuid::Uuid::from_u128(CLUSTER),
            run: LeaderEpoch(self.run),
            settings: self.random_settings(),
            salvage: false,
        };
        let ended = Ended::Stopped;
        self.slots.push(Slot { spec, keys: Vec::new(), live: None, ended });
    }

    pub fn random_settings(&mut self) -> LogSettings {
        let sizes = if self.shape.space { 64 << 10 } else { 256 << 10 };
        let rng = &mut self.rng;
        LogSettings {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: sizes << rng.below(3),
            inline_bytes_max: if sizes < 128 << 10 { 30_000 } else { 30_000 << rng.below(3) },
            warm_bytes: [0, 300 << 10, 1 << 30][rng.below(3) as usize],
            unsynced_bytes_max: 32 << 10 << rng.below(5),
            unsynced_bytes_max_relaxed: 1 << 20,
            background_sync_ms: 20,
            background_sync_bytes: 200 << 10,
            sync_interval_min_us: [0, 1_000][rng.below(2) as usize],
            mark_idle_ms: [1, 200][rng.below(2) as usize],
            hot_bytes: [0, 100 << 10, 1 << 40][rng.below(3) as usize],
            hot_ms: [0, 1_000, 1 << 40][rng.below(3) as usize],
            retention_check_ms: 50,
            relocate_live_percent_max: [25, 60, 90][rng.below(3) as usize],
            relocate_bytes_per_second_min: [100_000, 1 << 30][rng.below(2) as usize],
            ..LogSettings::default()
        }
    }

    fn create_partition(&mut self) {
        let slot = self.rng.below(self.slots.len() as u64) as usize;
        let key = PartitionKey {
            view: 0,
            topic: uuid::Uuid::from_u128(self.next_topic),
            partition: self.rng.below(3) as i32,
        };
        self.next_topic += 1;
        let flushes = [Flush::Commit, Flush::Commit, Flush::Interval, Flush::Os];
        let settings = PartitionSettings {
            flush: flushes[self.rng.below(4) as usize],
            retention_ms: self.rng.one_in(4).then(|| self.rng.between(1, 4_000) as i64),
            retention_bytes: self.rng.one_in(3).then(|| self.rng.between(1, 400_000)),
            internal: self.rng.one_in(6),
            compaction: None,
        };
        let compaction = Compaction {
            dirty_percent_min: if self.shape.space { 1 } else { 50 },
            lag_min_ms: [0, 300][self.rng.below(2) as usize],
            lag_max_ms: [1_000, i64::MAX][self.rng.below(2) as usize],
            delete_retention_ms: [0, 400, 1 << 40][self.rng.below(3) as usize],
        };
        let is_compacted = match self.shape.space {
            true => !self.rng.one_in(4),
            false => self.rng.one_in(3),
        };
        let settings = match is_compacted {
            false => settings,
            true => PartitionSettings {
                retention_ms: None,
                retention_bytes: None,
                compaction: Some(compaction),
                ..settings
            },
        };
        self.history.attach(key, settings);
        self.begin_table(key);
        let slot = &mut self.slots[slot];
        slot.keys.push(key);
        if let Some(live) = &mut slot.live {
            let id = live.log.attach(key, settings);
            live.ids.insert(key, id);
        }
    }

    /// The whole run, and at its end one more power loss.
    pub fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..self.shape.steps {
            self.step()?;
        }
        self.end(Ended::Crashed);
        self.reopen()?;
        let partitions = &self.history.partitions;
        self.slots
            .iter()
            .try_for_each(|slot| reader::append_times(&self.disk, &slot.spec.dir, partitions))
    }

    /// One random step, and what has to be done when it hit a chosen stop.
    pub fn step(&mut self) -> Result<(), Violation> {
        self.now.mono_us += [0, 30, 700, 5_000][self.rng.below(4) as usize];
        self.now.wall = Timestamp(self.skew_ms + (self.now.mono_us / 1_000) as i64);
        let slot = self.rng.below(self.slots.len() as u64) as usize;
        let result = match self.rng.below(1_000) {
            0..100 if self.shape.space => self.settle(slot),
            0..400 => self.append(slot),
            400..525 => self.tick(slot),
            525..550 => self.work_on_table(slot),
            550..740 => self.run_job(slot),
            740..920 => self.finish_job(slot),
            920..930 => self.append_large(slot),
            930..945 => self.read(slot),
            945..955 => self.raise_log_start(slot),
            955..958 => self.replace_partition(slot),
            958..962 => self.wait(),
            962..975 => self.retry(slot),
            975..980 => self.settle(slot),
            _ if self.shape.faults => self.fault(),
            _ => Ok(()),
        };
        if self.disk.is_stopped() {
            self.end_at_stop();
            return self.reopen();
        }
        result
    }

    pub fn live(&mut self, slot: usize) -> &mut Live {
        self.slots[slot].live.as_mut().expect("all logs run between steps")
    }

    pub fn random_key(&mut self, slot: usize) -> Option<PartitionKey> {
        let keys = &self.slots[slot].keys;
        let at = self.rng.below(keys.len() as u64) as usize;
        keys.get(at).copied()
    }

    fn wait(&mut self) -> Result<(), Violation> {
        self.now.mono_us += self.rng.below(2_000_000);
        if self.rng.one_in(4) {
            self.skew_ms = START_MS + self.rng.below(20_000) as i64 - 10_000;
        }
        Ok(())
    }

    fn append(&mut self, slot: usize) -> Result<(), Violation> {
        let Some(key) = self.random_key(slot) else { return Ok(()) };
        let body_bytes = match self.rng.below(10) {
            0 => self.rng.between(20_000, 90_000),
            1..3 => self.rng.between(1_000, 8_000),
            _ => self.rng.between(8, 700),
        } as usize;
        let (sender, time) = (self.random_sender(key), self.random_time());
        let records = self.rng.between(1, 20) as i32;
        let keyed = self.history.partitions[&key].settings.compaction.is_some();
        let outline = Outline { sender, records, body_bytes, time, keyed };
        let bytes = build(&outline, &mut self.rng);
        let now = self.now;
        let live = self.live(slot);
        if live.log.sides().is_large(bytes.len()) {
            return self.write_large(slot, key, bytes);
        }
        let valid = Valid::built(&bytes).expect("the simulation builds whole batches");
        let answer = live.log.append(live.ids[&key], &valid, now);
        self.answered(slot, (key, sender, time), &bytes, answer)
    }

    /// A time by a producer's clock, which may be wrong by seconds.
    fn random_time(&mut self) -> Timestamp {
        Timestamp(self.now.wall.0 - 3_000 + self.rng.below(6_000) as i64)
    }

    /// Tells the oracle.
    fn answered(
        &mut self,
        slot: usize,
        (key, sender, timestamp): (PartitionKey, Sender, Timestamp),
        bytes: &[u8],
        answer: Result<Appended, AppendError>,
    ) -> Result<(), Violation> {
        match answer {
            Ok(answer) => {
                self.tally.appends += 1;
                let (time, epoch) = (self.now.wall, LeaderEpoch(self.run));
                let sent = Sent { bytes, sender, timestamp, time, epoch };
                self.history.appended(key, &sent, &answer)?;
            }
            Err(AppendError::Full) => self.tally.full += 1,
            Err(AppendError::Busy | AppendError::Poisoned) => {}
            Err(error) => {
                let error = format!("{error:?} for {sender:?}");
                return Err(Violation::Failed { call: "append", error });
            }
        }
        self.observe(slot)
    }

    /// A large batch goes to its file first. Its producer is nobody: it may be appended late.
    fn write_large(
        &mut self,
        slot: usize,
        key: PartitionKey,
        bytes: Vec<u8>,
    ) -> Result<(), Violation> {
        let outline = Outline {
            sender: Sender::NOBODY,
            records: 3,
            body_bytes: bytes.len(),
            time: self.random_time(),
            keyed: self.history.partitions[&key].settings.compaction.is_some(),
        };
        let bytes = build(&outline, &mut self.rng);
        let now = self.now;
        let live = self.live(slot);
        match live.log.sides().write(&bytes, &rules(), now.wall) {
            Ok(side) => live.large.push_back(Large { key, time: outline.time, bytes, side }),
            Err(SideError::Io(_)) => {}
            Err(SideError::Batch(error)) => {
                let error = format!("{error:?}");
                return Err(Violation::Failed { call: "side job", error });
            }
        }
        Ok(())
    }

    fn append_large(&mut self, slot: usize) -> Result<(), Violation> {
        let now = self.now;
        let live = self.live(slot);
        let Some(large) = live.large.pop_front() else { return Ok(()) };
        let Some(id) = live.ids.get(&large.key) else { return Ok(()) };
        let answer = live.log.append_side(*id, &large.side, now);
        if answer == Err(AppendError::Busy) {
            live.large.push_front(large);
            return self.observe(slot);
        }
        self.tally.large += u64::from(answer.is_ok());
        let (key, time) = (large.key, large.time);
        self.answered(slot, (key, Sender::NOBODY, time), &large.bytes, answer)
    }

    /// One of three producers that goes on where it was, a new epoch of it, or nobody.
    fn random_sender(&mut self, key: PartitionKey) -> Sender {
        let id = match self.rng.below(4) {
            3 => return Sender::NOBODY,
            id => id as i64,
        };
        let retries = self.history.partitions[&key].retries();
        match retries.get(&id).and_then(|window| window.back()) {
            None => Sender { id, epoch: 0, base_sequence: 0 },
            Some(last) if self.rng.one_in(30) => {
                Sender { id, epoch: last.sender.epoch + 1, base_sequence: 0 }
            }
            Some(last) => Sender {
                base_sequence: last.sender.base_sequence + (last.end.0 - last.base.0) as i32,
                ..last.sender
            },
        }
    }

    /// Sends batches again: the log must answer with their first places.
    fn retry(&mut self, slot: usize) -> Result<(), Violation> {
        let Some(key) = self.random_key(slot) else { return Ok(()) };
        let now = self.now;
        let live = self.slots[slot].live.as_mut().expect("all logs run between steps");
        if live.poisoned {
            return Ok(());
        }
        reader::retries(&mut live.log, live.ids[&key], &self.history.partitions[&key], key, now)
    }

    fn tick(&mut self, slot: usize) -> Result<(), Violation> {
        let now = self.now;
        self.live(slot).log.tick(now);
        self.observe(slot)
    }

    pub fn run_job(&mut self, slot: usize) -> Result<(), Violation> {
        let lane = self.rng.below(3);
        let pick = self.rng.number();
        let live = self.live(slot);
        let job = match lane {
            0 => live.sync.pop_front(),
            1 => live.prepare.pop_front(),
            _ if live.workers.is_empty() => None,
            _ => Some(live.workers.swap_remove((pick % live.workers.len() as u64) as usize)),
        };
        if let Some(job) = job {
            let done = job.run();
            self.live(slot).done.push_back(done);
        }
        Ok(())
    }

    pub fn finish_job(&mut self, slot: usize) -> Result<(), Violation> {
        let now = self.now;
        let live = self.live(slot);
        if let Some(done) = live.done.pop_front() {
            let progress = live.log.finish(done, now);
            if progress.poisoned && !std::mem::replace(&mut live.poisoned, true) {
                self.tally.poisoned += 1;
            }
        }
        self.observe(slot)
    }

    /// Takes new jobs, tells the oracle what is committed, and holds the offsets against it.
    pub fn observe(&mut self, slot: usize) -> Result<(), Violation> {
        let Slot { live: Some(live), keys, .. } = &mut self.slots[slot] else { return Ok(()) };
        self.history.walls.push(self.now.wall.0);
        for job in live.log.take_jobs() {
            match job.lane() {
                Lane::Sync => live.sync.push_back(job),
                Lane::Prepare => live.prepare.push_back(job),
                Lane::Worker => live.workers.push(job),
            }
        }
        let segments = live.log.size().0;
        self.tally.seals += u64::from(segments > live.segments);
        live.segments = segments;
        let (before, space) = (live.space, live.log.space_counts());
        self.tally.relocations += space.relocations - before.relocations;
        self.tally.relocated_bytes += space.relocated_bytes - before.relocated_bytes;
        self.tally.hollowed += space.hollowed - before.hollowed;
        self.tally.cleanings += space.cleanings - before.cleanings;
        self.tally.cleaned_bytes += space.cleaned_bytes - before.cleaned_bytes;
        self.tally.kept_bytes += space.kept_bytes - before.kept_bytes;
        live.space = space;
        for &key in keys.iter() {
            let Some(offsets) = live.log.offsets(live.ids[&key]) else {
                return Err(Violation::Stranger { key });
            };
            let at = (self.now.wall, live.log.end());
            let parts = self.tables.get(&key).map(|table| table.version().parts(key.partition));
            let parts = parts.into_iter().flatten();
            // Of a part that is hot in part the log knows only what the whole weighs.
            let slack_bytes = parts.map(|at| at.part.raw_bytes).max().unwrap_or(0);
            self.history.started(key, offsets.log_start, at, slack_bytes)?;
        }
        self.history.committed(keys, live.log.committed());
        for &key in keys.iter() {
            let Some(offsets) = live.log.offsets(live.ids[&key]) else { continue };
            self.history.offsets(key, &offsets)?;
        }
        Ok(())
    }

    fn read(&mut self, slot: usize) -> Result<(), Violation> {
        let Some(key) = self.random_key(slot) else { return Ok(()) };
        let live = self.slots[slot].live.as_ref().expect("all logs run between steps");
        let id = live.ids[&key];
        let (from, batches) = reader::whole(&live.log, id, &self.disk, &mut self.rng)?;
        self.tally.table_reads += u64::from(batches.iter().any(|read| read.from_table));
        self.history.read(key, from, &batches)?;
        let partition = &self.history.partitions[&key];
        reader::times(&live.log, id, partition, key, (&self.disk, &mut self.rng))
    }

    fn raise_log_start(&mut self, slot: usize) -> Result<(), Violation> {
        let Some(key) = self.random_key(slot) else { return Ok(()) };
        let watermark = self.history.partitions[&key].high_watermark();
        let to = Offset(self.rng.between(0, watermark.0 as u64) as i64);
        let now = self.now;
        let live = self.live(slot);
        match live.log.raise_log_start(live.ids[&key], to, now) {
            Ok((start, at)) => self.history.raised(key, start, at),
            Err(AppendError::Busy | AppendError::Full | AppendError::Poisoned) => {}
            Err(error) => {
                let error = format!("{error:?}");
                return Err(Violation::Failed { call: "raise_log_start", error });
            }
        }
        self.observe(slot)
    }

    /// A topic is deleted and another one created.
    fn replace_partition(&mut self, slot: usize) -> Result<(), Violation> {
        if self.slots[slot].keys.len() > 1 {
            let at = self.rng.below(self.slots[slot].keys.len() as u64) as usize;
            let key = self.slots[slot].keys.swap_remove(at);
            let live = self.live(slot);
            let id = live.ids.remove(&key).expect("attached");
            live.log.detach(id);
            self.drop_table(key);
            self.history.detach(key);
        }
        self.create_partition();
        Ok(())
    }

    /// Runs everything that is waiting, so that a log comes to rest now and then.
    fn settle(&mut self, slot: usize) -> Result<(), Violation> {
        for _ in 0..4 {
            for _ in 0..50 {
                self.run_job(slot)?;
                self.finish_job(slot)?;
            }
            self.now.mono_us += 250_000;
            self.tick(slot)?;
        }
        Ok(())
    }
}
