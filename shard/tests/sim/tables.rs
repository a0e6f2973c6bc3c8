//! Tables of the simulation: what is in the log goes into real tables on the same disk, and the log
//! is told of them.
//!
//! Manifests are opened again after each end, jobs columnarise, merge and compact; each runs in one
//! step, and a crash may cut it off at any operation of the disk. What a feed gives is held against
//! the oracle before it becomes rows.

use crate::compacted::rows;
use crate::history::{Partition, Read, Violation};
use crate::machine::Machine;
use bytes::Bytes;
use shard::disk::sim::{Rng, SimDisk};
use shard::ids::{DenseId, Offset, PartitionKey, Timestamp};
use shard::log::{ColdError, Log};
use shard::table::rows::Aborted;
use shard::table::{
    columnarise, remove_table, table_dir, trim_due, unlink, upkeep_due, Batches, Edit, FileId,
    JobError, LogStarts, Manifest, Site, Source, TableError, TableSettings, Upkeep,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The data directory.
const DATA: &str = "/data";
/// Where all tables are.
pub const ROOT: &str = "/data/tables";

/// The tables of this life of the process.
pub type Tables = BTreeMap<PartitionKey, Manifest>;

fn failed(call: &'static str, error: impl std::fmt::Debug) -> Violation {
    Violation::Failed { call, error: format!("{error:?}") }
}

/// Opens the tables of topics that are there.
pub fn open<'a>(
    disk: &SimDisk,
    keys: impl Iterator<Item = &'a PartitionKey>,
) -> Result<Tables, Violation> {
    let open = |key: &PartitionKey| {
        let opened = Manifest::open(disk, &table_dir(Path::new(DATA), key.topic), key.topic);
        let (manifest, _) =
            opened.map_err(|error| Violation::Refused { error: error.to_string() })?;
        Ok((*key, manifest))
    };
    keys.map(open).collect()
}

/// Tells a log that was just opened of the tables of its partitions.
pub fn tell(tables: &Tables, log: &mut Log) -> Result<(), Violation> {
    let known: Vec<_> = log.partitions().collect();
    for (id, key) in known {
        let Some(manifest) = tables.get(&key) else { continue };
        let table_end = manifest.version().table_end(key.partition);
        let promised_end = table_end.unwrap_or(Offset(0));
        let log_end = log.offsets(id).map_or(Offset(0), |offsets| offsets.log_end);
        if promised_end > log_end {
            return Err(Violation::Lost { key, promised_end, log_end });
        }
        log.set_table(id, manifest.version().clone());
    }
    Ok(())
}

/// What was read of a feed.
struct Fed {
    from: Offset,
    until: Offset,
    batches: Vec<Read>,
}

/// The same on its way to the job.
struct Again(VecDeque<(Timestamp, Bytes)>);

impl Batches for Again {
    fn next(&mut self, _: usize) -> Result<Option<Vec<(Timestamp, Bytes)>>, ColdError> {
        Ok(self.0.pop_front().map(|batch| vec![batch]))
    }
}

impl Machine {
    /// Does some work on the table of a partition, and tells the log.
    pub fn work_on_table(&mut self, slot: usize) -> Result<(), Violation> {
        let wanting = self.live(slot).log.wants_room();
        let live = self.slots[slot].live.as_ref().expect("all logs run between steps");
        let first = live.ids.iter().find(|(_, id)| wanting.contains(id)).map(|(key, _)| *key);
        let Some(key) = first.or_else(|| self.random_key(slot)) else { return Ok(()) };
        if self.history.partitions[&key].settings.internal {
            return Ok(());
        }
        let edit = match self.rng.below(4) {
            0 => self.keep_up(key)?,
            _ => self.columnarise(slot, key)?,
        };
        let Some(edit) = edit else { return Ok(()) };
        let Some(mut manifest) = self.tables.remove(&key) else { return Ok(()) };
        if manifest.commit(&self.disk, edit).is_err() {
            if !manifest.is_unsure() {
                // A merge that was planned before the log start moved, or a full disk.
                self.tables.insert(key, manifest);
                return Ok(());
            }
            if manifest.reopen(&self.disk).is_err() {
                // The disk stops, or the next start finds out.
                return Ok(());
            }
        }
        let version = manifest.version().clone();
        let expired = manifest.expired(self.now.wall, 100);
        let (gone, _) = unlink(&self.disk, expired);
        manifest.forget(&gone);
        self.tables.insert(key, manifest);
        let live = self.live(slot);
        live.log.set_table(live.ids[&key], version);
        self.observe(slot)
    }

    /// Rows of some of what is in no table yet.
    fn columnarise(&mut self, slot: usize, key: PartitionKey) -> Result<Option<Edit>, Violation> {
        let bytes_max = [1, 20_000, u64::MAX][self.rng.below(3) as usize];
        let live = self.slots[slot].live.as_ref().expect("all logs run between steps");
        let (log, id) = (&live.log, live.ids[&key]);
        let Some(fed) = self.feed(log, id, key, bytes_max)? else { return Ok(None) };
        let start = log.offsets(id).map_or(Offset(0), |offsets| offsets.log_start);
        let batches = fed.batches.into_iter().map(|read| {
            (read.append_time.expect("a feed tells the broker's time"), Bytes::from(read.bytes))
        });
        let source = Source {
            partition: key.partition,
            from: fed.from,
            until: fed.until,
            aborted: Aborted::default(),
            batches: Again(batches.collect()),
        };
        let made = self.job(key, |site| columnarise(site, vec![source]))?;
        self.tally.columnarised += u64::from(made.is_some());
        Ok(made.map(|edit| Edit { starts: vec![(key.partition, start)], ..edit }))
    }

    /// A merge, a compaction or a trim that is due.
    fn keep_up(&mut self, key: PartitionKey) -> Result<Option<Edit>, Violation> {
        // Not what a power loss may take back: the log might end before it then.
        let start = self.history.partitions[&key].log_start;
        let starts = LogStarts::from([(key.partition, start)]);
        let compaction = self.history.partitions[&key].settings.compaction;
        let settings = settings(&mut self.rng);
        let Some(manifest) = self.tables.get(&key) else { return Ok(None) };
        let version = manifest.version();
        let (compaction, now) = (compaction.as_ref(), self.now.wall);
        let upkeep = match self.rng.one_in(4) {
            true => trim_due(version, &starts).map(Upkeep::Merge),
            false => upkeep_due(version, &starts, compaction, &settings, now),
        };
        let Some(upkeep) = upkeep else { return Ok(None) };
        let is_compaction = matches!(upkeep, Upkeep::Compact(_));
        let edit = self.job(key, |site| upkeep.run(site))?;
        let (merges, compactions) = (&mut self.tally.table_merges, &mut self.tally.table_cleanings);
        *(if is_compaction { compactions } else { merges }) += u64::from(edit.is_some());
        Ok(edit)
    }

    /// Runs a job on a table; nothing comes of it when the disk is in the way.
    fn job(
        &mut self,
        key: PartitionKey,
        run: impl FnOnce(&mut Site<'_>) -> Result<Edit, JobError>,
    ) -> Result<Option<Edit>, Violation> {
        let (dir, stop) = (table_dir(Path::new(DATA), key.topic), AtomicBool::new(false));
        let rng = &mut self.rng;
        let mut next_id = || FileId(rng.number());
        let (disk, now) = (&self.disk, self.now.wall);
        let mut site = Site { disk, dir: &dir, now, next_id: &mut next_id, stop: &stop };
        match run(&mut site) {
            Ok(edit) => Ok(Some(edit)),
            Err(JobError::Table(TableError::Io { .. })) => Ok(None),
            Err(error) => Err(failed("a job of a table", error)),
        }
    }

    /// What the log offers for the table, read and held against the oracle. Nothing when there is
    /// nothing, or the disk stops.
    fn feed(
        &self,
        log: &Log,
        id: DenseId,
        key: PartitionKey,
        bytes_max: u64,
    ) -> Result<Option<Fed>, Violation> {
        let pending = log.pending(id).ok_or(Violation::Stranger { key })?;
        if pending.from >= pending.until {
            return Ok(None);
        }
        let feed = log.feed(id, pending.from, pending.until, bytes_max);
        let feed = feed.ok_or_else(|| failed("feed", pending))?;
        if feed.from != pending.from || feed.until > pending.until || pending.since.is_none() {
            return Err(failed("feed", (feed, pending)));
        }
        let (from, until) = (feed.from, feed.until);
        let mut open = match feed.open(&self.disk) {
            Ok(open) => open,
            Err(_) if self.disk.is_stopped() => return Ok(None),
            Err(error) => return Err(failed("opening a feed", error)),
        };
        let mut batches = Vec::new();
        loop {
            let bytes_max = [1, 5_000, 1 << 20][batches.len() % 3];
            match open.next(bytes_max) {
                Ok(Some(more)) => batches.extend(more.into_iter().map(|(time, bytes)| Read {
                    bytes: bytes.to_vec(),
                    append_time: Some(time),
                    from_table: false,
                })),
                Ok(None) => break,
                Err(_) if self.disk.is_stopped() => return Ok(None),
                Err(error) => return Err(failed("a feed", error)),
            }
        }
        let partition = &self.history.partitions[&key];
        match partition.settings.compaction {
            Some(_) => check_rest(key, partition, &batches)?,
            None => self.history.read_until(key, (from, until), &batches)?,
        }
        Ok(Some(Fed { from, until, batches }))
    }

    /// A topic is there; if the disk is in the way it has no table before the next start.
    pub fn begin_table(&mut self, key: PartitionKey) {
        let dir = table_dir(Path::new(DATA), key.topic);
        if let Ok((manifest, _)) = Manifest::open(&self.disk, &dir, key.topic) {
            self.tables.insert(key, manifest);
        }
    }

    /// A topic is gone, and its table.
    pub fn drop_table(&mut self, key: PartitionKey) {
        self.tables.remove(&key);
        // What a fault leaves there belongs to no topic.
        let _ = remove_table(&self.disk, Path::new(DATA), key.topic);
    }
}

fn settings(rng: &mut Rng) -> TableSettings {
    TableSettings {
        file_bytes_max: [50_000, 1 << 30][rng.below(2) as usize],
        merge_files: 2,
        compaction_buffer_bytes: [300, 1 << 20][rng.below(2) as usize],
        ..TableSettings::default()
    }
}

/// Of a compacted partition: nothing is there that was not appended.
fn check_rest(key: PartitionKey, partition: &Partition, batches: &[Read]) -> Result<(), Violation> {
    for Read { bytes, append_time, .. } in batches {
        let base = bytes.first_chunk().map_or(-1, |base| i64::from_be_bytes(*base));
        let base = Offset(base);
        let batch = partition.batches.iter().find(|batch| batch.base == base);
        let same = batch.is_some_and(|batch| {
            let appended = rows(&batch.bytes);
            let same_time = append_time.is_none_or(|time| time == batch.append_time);
            same_time && rows(bytes).iter().all(|row| appended.contains(row))
        });
        if !same {
            return Err(Violation::Changed { key, base });
        }
    }
    Ok(())
}
