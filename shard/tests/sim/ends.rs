//! How the process ends, what goes wrong before it does, and how it starts again.
//!
//! A start opens all logs, in any order and perhaps more of them than before, and may itself be cut
//! off at any operation of the disk, several times in a row.

use crate::history::{Ended, Violation};
use crate::machine::{Live, Machine, Plant, CAPACITY_BYTES};
use crate::plants::BlindToPadding;
use crate::reader;
use crate::tables;
use shard::disk::sim::{Fault, Op, SimDisk};
use shard::disk::Disk;
use shard::ids::LeaderEpoch;
use shard::log::Log;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ends in a row, the first included, after which a recovery is let through.
const ENDS_IN_A_ROW_MAX: usize = 6;
const EIO: i32 = 5;

impl Machine {
    pub fn fault(&mut self) -> Result<(), Violation> {
        let rng = &mut self.rng;
        match rng.below(10) {
            0..4 => {
                let at = self.disk.ops() + rng.below(12);
                self.disk.inject(Fault::Stop { at });
                return Ok(());
            }
            4 => self.end(Ended::Crashed),
            5 => self.end(Ended::Killed),
            6 => self.stop()?,
            7 => {
                let bytes = [300_000, 1_500_000, CAPACITY_BYTES][rng.below(3) as usize];
                self.disk.set_capacity(bytes);
                return Ok(());
            }
            8 => {
                let op = [Op::SyncMap, Op::Sync][rng.below(2) as usize];
                self.cache_lies = true;
                self.disk.inject(Fault::Fail { op, after: rng.below(3), errno: EIO });
                return Ok(());
            }
            _ => {
                let ops = [Op::CreateMap, Op::SyncDir, Op::Append, Op::Rename, Op::Remove];
                let op = ops[rng.below(ops.len() as u64) as usize];
                self.disk.inject(Fault::Fail { op, after: rng.below(3), errno: EIO });
                return Ok(());
            }
        }
        self.reopen()
    }

    /// Ends all logs in order; leaves them killed when a disk that stops gets in the way.
    pub fn stop(&mut self) -> Result<(), Violation> {
        for slot in 0..self.slots.len() {
            for _ in 0..1_000 {
                let now = self.now;
                if self.live(slot).log.stop_step(now) {
                    break;
                }
                self.observe(slot)?;
                self.run_job(slot)?;
                self.finish_job(slot)?;
                if self.disk.is_stopped() {
                    self.end_at_stop();
                    return Ok(());
                }
            }
        }
        self.tally.stops += 1;
        let clean = self.slots.iter().flat_map(|slot| &slot.live).all(|live| !live.poisoned);
        self.end(if clean { Ended::Stopped } else { Ended::Killed });
        Ok(())
    }

    pub fn end_at_stop(&mut self) {
        let ended = if self.rng.one_in(4) { Ended::Killed } else { Ended::Crashed };
        self.end(ended);
    }

    /// The process ends.
    pub fn end(&mut self, ended: Ended) {
        self.tables.clear();
        let mut ended = ended;
        match ended {
            Ended::Crashed => {
                self.tally.crashes += 1;
                self.disk = self.disk.crash(&mut self.rng);
                self.cache_lies = false;
            }
            Ended::Stopped | Ended::Killed => {
                self.tally.kills += 1;
                self.disk = self.disk.kill();
                if self.rng.one_in(2) {
                    self.disk.evict();
                    if std::mem::take(&mut self.cache_lies) {
                        // What the failed sync left clean is now read from the device.
                        ended = Ended::Crashed;
                    }
                }
            }
        }
        for slot in &mut self.slots {
            let worst = slot.live.take().is_none() && slot.ended == Ended::Crashed;
            slot.ended = if worst { Ended::Crashed } else { ended };
        }
    }

    /// Opens all logs again, through more crashes and errors, and holds them against the oracle.
    pub fn reopen(&mut self) -> Result<(), Violation> {
        for end in 1.. {
            let hard = self.shape.faults && end < ENDS_IN_A_ROW_MAX;
            let fails = hard && self.rng.one_in(6);
            if fails {
                self.fail_open();
            } else if hard && self.rng.one_in(2) {
                let at = self.disk.ops() + self.rng.below(25);
                self.disk.inject(Fault::Stop { at });
            }
            match self.open_all() {
                Err(_) if self.disk.is_stopped() => {
                    self.tally.crashes_in_recovery += 1;
                    self.end_at_stop();
                }
                // The broker gives up and is started again.
                Err(Violation::Refused { .. }) if fails => self.end_at_stop(),
                result => {
                    // A fault that was not reached waits no longer.
                    self.disk.heal();
                    // What is served from here on is durable, whatever the cache showed before.
                    self.cache_lies = false;
                    if self.shape.plant == Plant::LyingSync {
                        let after = self.rng.below(10);
                        self.disk.inject(Fault::Lie { op: Op::SyncMap, after });
                    }
                    return result;
                }
            }
        }
        Ok(())
    }

    /// Something the opening of logs needs is going to fail.
    fn fail_open(&mut self) {
        let ops = [Op::CreateMap, Op::SyncMap, Op::Sync, Op::SyncDir, Op::Append, Op::Rename];
        let op = ops[self.rng.below(ops.len() as u64) as usize];
        self.cache_lies |= matches!(op, Op::SyncMap | Op::Sync);
        self.disk.inject(Fault::Fail { op, after: self.rng.below(4), errno: EIO });
    }

    fn open_all(&mut self) -> Result<(), Violation> {
        self.run += 1;
        if self.slots.len() < 4 && self.rng.one_in(20) {
            self.add_slot();
        }
        // A disk that stays full may refuse the segment a log needs.
        self.disk.set_capacity(CAPACITY_BYTES);
        self.tables = tables::open(&self.disk, self.history.partitions.keys())?;
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
        order.into_iter().try_for_each(|slot| self.open(slot))
    }

    fn view(&self) -> Arc<dyn Disk> {
        let disk: SimDisk = self.disk.clone();
        match self.shape.plant {
            Plant::None | Plant::LyingSync => Arc::new(disk),
            Plant::BlindToPadding => Arc::new(BlindToPadding(disk)),
        }
    }

    fn open(&mut self, at: usize) -> Result<(), Violation> {
        let settings = self.random_settings();
        let seed = self.rng.number();
        let disk = self.view();
        let slot = &mut self.slots[at];
        slot.spec.run = LeaderEpoch(self.run);
        slot.spec.settings = settings;
        let opened = Log::open(disk, slot.spec.clone(), seed, self.now);
        let (mut log, recovered) =
            opened.map_err(|error| Violation::Refused { error: error.to_string() })?;
        self.tally.copied_frames += recovered.copied_frames;
        let known: Vec<_> = log.partitions().collect();
        for (id, key) in known {
            if self.history.detached.contains(&key) {
                log.detach(id);
            } else if !slot.keys.contains(&key) {
                return Err(Violation::Stranger { key });
            }
        }
        tables::tell(&self.tables, &mut log)?;
        if let Some((id, missing)) = log.partitions().find_map(|(id, _)| {
            let missing = log.missing(id);
            (!missing.is_empty()).then_some((id, missing))
        }) {
            // The log cannot know whether the topic was deleted; what owns it refuses.
            return Err(Violation::Refused { error: format!("{id:?} is without {missing:?}") });
        }
        let mut ids = BTreeMap::new();
        for &key in &slot.keys {
            let id = log.attach(key, self.history.partitions[&key].settings);
            let offsets = log.offsets(id).ok_or(Violation::Stranger { key })?;
            let found = (offsets.log_start, offsets.log_end);
            self.history.reopened(key, found, slot.ended)?;
            self.history.offsets(key, &offsets)?;
            ids.insert(key, id);
        }
        slot.live = Some(Live::new(log, ids));
        self.check(at)?;
        self.observe(at)
    }

    /// Everything a client can ask of a log that was just opened.
    fn check(&mut self, at: usize) -> Result<(), Violation> {
        let slot = &mut self.slots[at];
        let live = slot.live.as_mut().expect("just opened");
        for &key in &slot.keys {
            let id = live.ids[&key];
            let (from, batches) = reader::whole(&live.log, id, &self.disk, &mut self.rng)?;
            self.history.read(key, from, &batches)?;
            let partition = &self.history.partitions[&key];
            reader::retries(&mut live.log, id, partition, key, self.now)?;
            reader::epochs(&live.log, id, partition, key)?;
            reader::times(&live.log, id, partition, key, (&self.disk, &mut self.rng))?;
        }
        Ok(())
    }
}
