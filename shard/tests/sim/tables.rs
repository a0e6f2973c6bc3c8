//! Tables of the simulation: what is in the log goes into real files on the same disk, and the log
//! is told.
//!
//! The list of the files of a table is kept by the test and outlives every crash, as a manifest
//! would; a file is on it only after it was written whole. Tables are not compacted here: a row
//! stays as it came out of the log. What a feed gives is held against the oracle before it is
//! written.

use crate::compacted::rows;
use crate::history::{Partition, Read, Violation};
use crate::machine::Machine;
use shard::disk::Disk;
use shard::ids::{DenseId, Offset, PartitionKey, Timestamp};
use shard::log::Log;
use shard::table::file::{Covered, FileWriter};
use shard::table::rows::RowsBuilder;
use shard::table::{file_path, FileFacts, FileId, TableError, TableFile, Version};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn failed(call: &'static str, error: impl std::fmt::Debug) -> Violation {
    Violation::Failed { call, error: format!("{error:?}") }
}

/// Where all tables are.
pub const ROOT: &str = "/data/tables";

fn dir(key: PartitionKey) -> PathBuf {
    Path::new(ROOT).join(key.topic.to_string())
}

impl Machine {
    /// Writes some of what a partition has in no table into a file, and tells the log.
    pub fn columnarise(&mut self, slot: usize) -> Result<(), Violation> {
        let wanting = self.live(slot).log.wants_room();
        let live = self.slots[slot].live.as_ref().expect("all logs run between steps");
        let first = live.ids.iter().find(|(_, id)| wanting.contains(id)).map(|(key, _)| *key);
        let Some(key) = first.or_else(|| self.random_key(slot)) else { return Ok(()) };
        if self.history.partitions[&key].settings.internal {
            return Ok(());
        }
        let bytes_max = [1, 20_000, u64::MAX][self.rng.below(3) as usize];
        let live = self.slots[slot].live.as_ref().expect("all logs run between steps");
        let id = live.ids[&key];
        let Some(fed) = self.feed(&live.log, id, key, bytes_max)? else { return Ok(()) };
        let table = self.tables.get(&key).cloned().unwrap_or_default();
        self.next_file += 1;
        let written = write(&self.disk, key, FileId(self.next_file), &fed, self.now.wall);
        let facts = match written {
            Ok(facts) => facts,
            Err(TableError::Io { .. }) => return Ok(()),
            Err(error) => return Err(failed("table file", error)),
        };
        let start = live.log.offsets(id).map_or(Offset(0), |offsets| offsets.log_start);
        // Where the log start has passed the table's end, there is a hole that only it explains.
        let joins = table.table_end(key.partition).is_none_or(|end| end == fed.from);
        let starts = match self.rng.one_in(2) || !joins {
            true => BTreeMap::from([(key.partition, start)]),
            false => table.starts().clone(),
        };
        let path = file_path(&dir(key), facts.id);
        let mut files = table.files().to_vec();
        files.push(Arc::new(TableFile { facts, path }));
        let start = starts.get(&key.partition).copied().unwrap_or(Offset(0));
        let (files, past): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|file| file.facts.parts.iter().any(|part| part.end > start));
        let version = Version::new(table.number + 1, key.topic, files, starts);
        let version = Arc::new(version.map_err(|partition| failed("version", partition))?);
        self.tables.insert(key, version.clone());
        for file in past {
            // A removal that a crash undoes leaves a file that nobody names.
            let _ = self.disk.remove(&file.path);
        }
        self.tally.columnarised += 1;
        self.live(slot).log.set_table(id, version);
        self.observe(slot)
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

    /// A topic is gone, and its table.
    pub fn drop_table(&mut self, key: PartitionKey) {
        let table = self.tables.remove(&key);
        for file in table.iter().flat_map(|table| table.files()) {
            // As above.
            let _ = self.disk.remove(&file.path);
        }
    }
}

/// As manifests have them.
pub type Tables = BTreeMap<PartitionKey, Arc<Version>>;

/// Tells a log that was just opened of the tables of its partitions.
pub fn tell(tables: &Tables, log: &mut Log) -> Result<(), Violation> {
    let known: Vec<_> = log.partitions().collect();
    for (id, key) in known {
        let Some(version) = tables.get(&key) else { continue };
        let promised_end = version.table_end(key.partition).unwrap_or(Offset(0));
        let log_end = log.offsets(id).map_or(Offset(0), |offsets| offsets.log_end);
        if promised_end > log_end {
            return Err(Violation::Lost { key, promised_end, log_end });
        }
        log.set_table(id, version.clone());
    }
    Ok(())
}

struct Fed {
    from: Offset,
    until: Offset,
    batches: Vec<Read>,
}

fn write(
    disk: &dyn Disk,
    key: PartitionKey,
    id: FileId,
    fed: &Fed,
    now: Timestamp,
) -> Result<FileFacts, TableError> {
    let mut builder = RowsBuilder::new();
    builder.window(fed.from, fed.until);
    let mut raw_bytes = 0;
    for Read { bytes, append_time, .. } in &fed.batches {
        let time = append_time.expect("a feed tells the broker's time");
        builder.push(key.partition, time, bytes).expect("the simulation builds whole batches");
        raw_bytes += bytes.len() as u64;
    }
    let rows = builder.finish().expect("columns of one schema");
    let mut file = FileWriter::create(disk, &dir(key), id, now)?;
    file.add(&rows)?;
    let (first, end) = (fed.from, fed.until);
    file.finish(&[Covered { partition: key.partition, first, end, raw_bytes }])
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
