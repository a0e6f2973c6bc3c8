//! Opens all logs at once and reads the catalogue out of log 0. Blocks; runs before any core.

use super::data::{Data, DataError};
use super::tables::{self, TablesError};
use crate::catalog::{Machine, Record, CATALOG_PARTITION};
use crate::cores::CATALOG_SETTINGS;
use crate::state_machine::{read_batches, Unreadable};
use shard::disk::Disk;
use shard::ids::{LogId, Offset, Timestamp};
use shard::log::{ColdError, Log, LogSettings, LogSpec, Now, OpenError, ReadAsk, ReadError};
use shard::log::{Recovered, Until};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Bytes of the catalogue read in one go.
const READ_BYTES: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error("{source} (`basalt log salvage DIR` gives up what is damaged and keeps the rest)")]
    Open { log: LogId, source: OpenError },
    /// Salvage is no help: a log is whole, and nothing says which of the two files is right.
    #[error(
        "{source} than `cluster` in the data directory names: restore the one that does not \
         belong there"
    )]
    Foreign { log: LogId, source: OpenError },
    #[error(
        "records {from}..{end} of {name}-{partition} are missing from log {log} and from its \
         table: restore the files, or go on without them with `basalt log salvage DIR`"
    )]
    Missing { log: LogId, name: String, partition: i32, from: Offset, end: Offset },
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Tables(#[from] TablesError),
    #[error("the thread that opened log {0} died")]
    Died(LogId),
    #[error(transparent)]
    Catalog(#[from] CatalogUnreadable),
}

/// Why the catalogue could not be read; without it the broker knows no topic.
#[derive(Debug, thiserror::Error)]
pub enum CatalogUnreadable {
    #[error("the catalogue cannot be read: {0}")]
    Cold(#[from] ColdError),
    #[error("the catalogue cannot be read: {0}")]
    Plan(#[from] ReadError),
    #[error("the catalogue cannot be read: {0}")]
    Records(#[from] Unreadable),
}

/// The time on the clocks that logs are told, `started` being their zero.
pub fn now(started: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { wall: Timestamp(wall.as_millis() as i64), mono_us: started.elapsed().as_micros() as u64 }
}

/// A log and what opening it came across.
pub struct Opened {
    pub id: LogId,
    pub log: Log,
    pub recovered: Recovered,
}

/// Refuses to go on without records of topics that are still there. The logs have been told of
/// their tables.
pub fn refuse_missing(opened: &[Opened], machine: &Machine) -> Result<(), LogsError> {
    let image = machine.image();
    for Opened { id: number, log, .. } in opened {
        for (id, key) in log.partitions() {
            let Some(Range { start, end }) = log.missing(id).into_iter().next() else { continue };
            if let Some(topic) = image.by_id(key.view, key.topic) {
                let (name, partition) = (topic.name.to_string(), key.partition);
                return Err(LogsError::Missing { log: *number, name, partition, from: start, end });
            }
        }
    }
    Ok(())
}

/// Opens every log on a thread of its own and reports what was found.
pub fn open(
    disk: &Arc<dyn Disk>,
    data: &Data,
    settings: &LogSettings,
    (started, salvage): (Instant, bool),
) -> Result<Vec<Opened>, LogsError> {
    // What is kept hot is for all of them together.
    let hot_bytes = settings.hot_bytes / (data.logs.len() as u64).max(1);
    let settings = &LogSettings { hot_bytes, ..settings.clone() };
    let opening: Vec<_> = data
        .logs
        .iter()
        .map(|(id, dir)| {
            let spec = LogSpec {
                dir: dir.clone(),
                id: *id,
                cluster: data.cluster,
                run: data.run,
                settings: settings.clone(),
                salvage,
            };
            let disk = disk.clone();
            let seed = Uuid::new_v4().as_u64_pair().0;
            let open = move || Log::open(disk, spec, seed, now(started));
            (*id, thread::spawn(open))
        })
        .collect();
    let mut logs = Vec::with_capacity(opening.len());
    for (id, thread) in opening {
        let opened = thread.join().map_err(|_| LogsError::Died(id))?;
        let (log, recovered) = opened.map_err(|source| match source {
            OpenError::Foreign { what: "cluster", .. } => LogsError::Foreign { log: id, source },
            source => LogsError::Open { log: id, source },
        })?;
        logs.push(Opened { id, log, recovered });
    }
    Ok(logs)
}

pub fn report(log: LogId, recovered: &Recovered) {
    tracing::info!(
        %log,
        segments = recovered.segments,
        partitions = recovered.partitions,
        frames = recovered.frames,
        copied_frames = recovered.copied_frames,
        copied_bytes = recovered.copied_bytes,
        "opened a log"
    );
    for cut in &recovered.cuts {
        tracing::warn!(%log, ?cut, "a log was cut where it had not been acknowledged");
    }
}

/// Lets go of what the logs still hold of topics that were deleted, and asks to be told when
/// nothing of them is left.
pub fn drop_deleted(logs: &mut [Opened], machine: &Machine) {
    for Opened { id: number, log, .. } in logs {
        let deleted: BTreeSet<Uuid> = machine.unpurged(*number).collect();
        let held = log.partitions().filter(|(_, key)| deleted.contains(&key.topic));
        let held: Vec<_> = held.map(|(id, _)| id).collect();
        held.into_iter().for_each(|id| log.detach(id));
        deleted.into_iter().for_each(|topic| log.report_purged(topic));
    }
}

/// Opens every log of a data directory with what is damaged cut off, accepts that what is then
/// neither there nor in a table is gone, and brings it to a clean stop.
pub fn salvage(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Vec<(LogId, Recovered)>, LogsError> {
    let data = Data::open(&**disk, dir, 1)?;
    let started = Instant::now();
    let mut opened = open(disk, &data, &LogSettings::default(), (started, true))?;
    // What is in a table is not missing.
    tables::tell_logs(&mut opened, &tables::all_versions(&**disk, dir)?);
    let mut found = Vec::new();
    for Opened { id, mut log, recovered } in opened {
        log.accept_missing(now(started));
        log.checkpoint();
        let mut stopped = false;
        while !(stopped && log.is_settled()) {
            log.tick(now(started));
            stopped = log.stop_step(now(started));
            for job in log.take_jobs() {
                let progress = log.finish(job.run(), now(started));
                if let Some(failure) = progress.failure {
                    tracing::error!(log = %id, %failure, "a job of a log failed");
                }
            }
            if log.is_poisoned() {
                break;
            }
        }
        found.push((id, recovered));
    }
    Ok(found)
}

/// Replays the catalogue's records, which lie in `log`.
pub fn read_catalog(
    disk: &dyn Disk,
    log: &mut Log,
    machine: &mut Machine,
) -> Result<(), CatalogUnreadable> {
    let id = log.attach(CATALOG_PARTITION, CATALOG_SETTINGS);
    let mut from = log.offsets(id).map_or(Offset(0), |offsets| offsets.log_start);
    loop {
        let ask =
            ReadAsk { from, bytes_max: READ_BYTES, whole_first: true, until: Until::HighWatermark };
        let bytes = log.plan_read(id, &ask)?.copy(disk)?;
        let end = read_batches(&bytes, from, |record: Record| machine.replay(&record))?;
        match end {
            Some(end) => from = end,
            None => return Ok(()),
        }
    }
}
