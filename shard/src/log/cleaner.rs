//! Compaction of a partition: what the core does of it.
//!
//! Looked for when a segment was sealed, after each compaction and at each round of retention. A
//! worker gathers the keys of what is new (`clean`), then everything up to there is read, cleaned
//! (`carry`) and stored at the tail in slices (`mover`) like what is relocated, in the order of its
//! offsets: after a crash the front of a partition is cleaned and the rest is as it was, so that a
//! mark of a deleted key is never gone before what it deleted.
//!
//! Of a partition with a table only what is in it is cleaned here, and only as long as the log has
//! all of it: the table is compacted by itself, and a mark must not be gone from one before what it
//! deleted has gone from the other.
//!
//! Gap: nobody is held back when more is written than compaction gets through; the log grows then.

use super::carry::{CarryError, Load, Place, Source};
use super::clean::{is_due, Keys, Pass};
use super::engine::Log;
use super::jobs::Work;
use super::outcome::{Now, Progress};
use crate::ids::{DenseId, Offset, Timestamp};
use crate::partition::{Run, RunKind};
use std::sync::Arc;

/// Compacted partitions looked at in one tick.
const SLICE_PARTITIONS: usize = 128;

impl Log {
    /// Looks at some of the compacted partitions and begins with one that is due. True: it has.
    pub(super) fn look_for_cleaning(&mut self, now: Now) -> bool {
        let Some(from) = self.mover.clean_from else { return false };
        let slice = self.mover.compacted.range(from..).take(SLICE_PARTITIONS);
        let slice: Vec<DenseId> = slice.copied().collect();
        for &id in &slice {
            self.mover.clean_from = Some(DenseId(id.0 + 1));
            if self.begin_cleaning(id, now) {
                return true;
            }
        }
        if slice.len() < SLICE_PARTITIONS {
            let again = std::mem::take(&mut self.mover.clean_again);
            self.mover.clean_from = again.then_some(DenseId(0));
        }
        false
    }

    /// Notes what keeps a partition from being cleaned now: a sync that is due, or what the last
    /// compaction left, which is in the open segment. That one is sealed when much waits behind it.
    fn note_obstacles(&mut self, id: DenseId) {
        let Some(partition) = self.partitions.get(id) else { return };
        let (open, durable) = (self.open.number, self.commit.durable());
        let is_unsynced = |run: &Run| {
            let sealed = self.segments.get(run.segment);
            sealed.is_some_and(|sealed| sealed.end() > durable)
        };
        let is_new = |run: &Run| matches!(run.kind, RunKind::Appended | RunKind::Carried);
        let again = partition.runs.iter().any(is_unsynced);
        let left = |run: &&Run| run.segment != open || run.kind == RunKind::Appended;
        let behind = partition.runs.iter().skip_while(left);
        let waiting = behind.filter(|run| is_new(run) && run.segment != open);
        let bytes: u64 = waiting.map(|run| run.batch_bytes).sum();
        self.mover.clean_again |= again;
        self.open.seal_wanted |= bytes >= self.to_clean_bytes_max();
    }

    fn begin_cleaning(&mut self, id: DenseId, now: Now) -> bool {
        let Some(partition) = self.partitions.get(id) else { return false };
        let Some(compaction) = partition.settings.compaction else { return false };
        let runs = self.cleanable(id, Offset(i64::MAX));
        if !is_due(runs.iter(), &compaction, now.wall) {
            self.note_obstacles(id);
            return false;
        }
        let is_new = |run: &Run| matches!(run.kind, RunKind::Appended | RunKind::Carried);
        let clean = runs.iter().take_while(|run| !is_new(run)).count();
        let dirty = runs.get(clean..).unwrap_or_default();
        let (Some(first), Some(places)) = (dirty.first(), self.places(dirty)) else { return false };
        let younger_than = Timestamp(now.wall.0.saturating_sub(compaction.lag_min_ms));
        self.mover.cleaning = Some(id);
        let keys = Keys::new(first.base, self.spec.settings.cleaner_buffer_bytes, younger_than);
        let sources = dirty.iter().map(|run| Source { id, run: *run }).collect();
        let load = Load::new(places, sources, None);
        self.mover.away();
        self.push_job(Work::Gather { id, load, keys });
        true
    }

    /// The runs of a partition, from its log start, that a worker may read and clean now.
    fn cleanable(&self, id: DenseId, until: Offset) -> Vec<Run> {
        let Some(partition) = self.partitions.get(id) else { return Vec::new() };
        let until = match partition.table {
            None => until.min(partition.last_stable()),
            Some(_) if partition.hot_start() > partition.log_start() => return Vec::new(),
            Some(_) => until.min(partition.table_end()),
        };
        let durable = self.commit.durable();
        let settled = |run: &&Run| {
            let sealed = self.segments.get(run.segment);
            run.base < until && sealed.is_some_and(|sealed| sealed.end() <= durable)
        };
        let runs = partition.runs.iter().take_while(settled);
        runs.map(|run| Run { end: run.end.min(until), ..*run }).collect()
    }

    /// Where the runs are; `None` when one of the segments cannot be read.
    fn places(&self, runs: &[Run]) -> Option<Vec<Place>> {
        let mut numbers: Vec<_> = runs.iter().map(|run| run.segment).collect();
        numbers.sort();
        numbers.dedup();
        numbers.into_iter().map(|number| self.place(number)).collect()
    }

    pub(super) fn gathered(
        &mut self,
        (id, load, keys): (DenseId, Load, Keys),
        result: Result<bool, CarryError>,
        now: Now,
        progress: &mut Progress,
    ) {
        self.mover.idle();
        match result {
            Ok(true) => self.clean(id, keys, now),
            Ok(false) => {
                self.mover.away();
                self.push_job(Work::Gather { id, load, keys });
            }
            Err(error) => self.give_up(error, progress),
        }
    }

    /// Goes through everything whose keys are known.
    fn clean(&mut self, id: DenseId, keys: Keys, now: Now) {
        let runs = self.cleanable(id, keys.until);
        let Some(partition) = self.partitions.get(id) else { return };
        let Some(compaction) = partition.settings.compaction else { return };
        let is_new = |run: &Run| matches!(run.kind, RunKind::Appended | RunKind::Carried);
        let Some(places) = self.places(&runs).filter(|_| runs.iter().any(is_new)) else { return };
        let pass = Pass {
            keys,
            now: now.wall,
            delete_retention_ms: compaction.delete_retention_ms,
            log_end: partition.log_end(),
        };
        let sources = runs.into_iter().map(|run| Source { id, run }).collect();
        self.load(Load::new(places, sources, Some(Arc::new(pass))));
    }
}
