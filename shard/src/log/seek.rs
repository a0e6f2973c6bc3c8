//! Finding a record by its time.
//!
//! The core names the few parts of the table and batches that can hold the record, from the times
//! that are known of parts, runs and batches; a worker reads them. Times need not ascend. A run
//! knows the greatest time of all its batches, of those below the log start and not yet committed
//! too: such a run may hold nothing for the reader, and the next one is then looked at as well.

use super::cold::{read_batch, ColdError, Entries};
use super::engine::Log;
use super::header::segment_name;
use super::index::BatchEntry;
use super::read::{wanted, Until};
use super::tabled::TablePlace;
use crate::batch::{self, BatchError, Expander, Limits};
use crate::disk::Disk;
use crate::ids::{DenseId, LeaderEpoch, Offset, Timestamp};
use crate::partition::{Partition, Run, RunKind};
use crate::table::{Part, PartAt};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeTarget {
    /// The first record at or after this time.
    AtOrAfter(Timestamp),
    /// The first of the records with the greatest time.
    Greatest,
}

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub offset: Offset,
    pub timestamp: Timestamp,
    pub leader_epoch: LeaderEpoch,
}

/// A look-up of a record by its time, to be run on a worker.
pub struct TimeSeek {
    disk: Arc<dyn Disk>,
    /// Where the record may be, in the order of the offsets.
    places: Vec<Place>,
    visible: Visible,
    target: TimeTarget,
}

/// Where some records of a partition are, as far as the reader may see them.
struct Place {
    source: Source,
    visible: Visible,
}

enum Source {
    /// A run.
    Segment { path: PathBuf, entries: Entries },
    /// What the log has let go of.
    Table(TablePlace),
}

/// The offsets a reader may see.
#[derive(Clone, Copy, Debug)]
struct Visible {
    from: Offset,
    until: Offset,
}

impl Visible {
    fn holds(&self, run: &Run) -> bool {
        run.exact && run.base >= self.from && run.end <= self.until
    }

    fn holds_part(&self, part: &Part) -> bool {
        part.first >= self.from && part.end <= self.until
    }

    fn of(&self, from: Offset, until: Offset) -> Visible {
        Visible { from: self.from.max(from), until: self.until.min(until) }
    }
}

impl std::fmt::Debug for TimeSeek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TimeSeek({:?} in {} places)", self.target, self.places.len())
    }
}

impl Log {
    /// Plans a look-up by time among the committed records; `None` when there is none.
    pub fn plan_time(&self, id: DenseId, target: TimeTarget, until: Until) -> Option<TimeSeek> {
        let partition = self.partitions.get(id)?;
        let until = partition.offsets(self.spec.run).end(until);
        let visible = Visible { from: partition.log_start(), until };
        let cold = Visible { until: until.min(partition.hot_start()), ..visible };
        let (parts, is_found) = parts_by_time(partition, target, cold);
        let runs = match is_found {
            true => Vec::new(),
            false => runs_by_time(partition, target, visible),
        };
        let in_table = parts.into_iter().map(|at| Place {
            source: Source::Table(TablePlace::new(&self.blocks, at)),
            visible: cold.of(at.part.first, at.part.end),
        });
        let in_log = runs.into_iter().map(|run| {
            let visible = visible.of(run.base, run.end);
            let path = self.spec.dir.join(segment_name(run.segment));
            let entries = self.entries_by_time(run, id, target, visible);
            Place { source: Source::Segment { path, entries }, visible }
        });
        let places: Vec<_> = in_table.chain(in_log).collect();
        let disk = self.disk.clone();
        (!places.is_empty()).then_some(TimeSeek { disk, places, visible, target })
    }

    fn entries_by_time(
        &self,
        run: &Run,
        id: DenseId,
        target: TimeTarget,
        visible: Visible,
    ) -> Entries {
        match self.index_of(run.segment) {
            Some(index) => Entries::Known(candidates(index.entries(id, run.base), target, visible)),
            None => self.cold_entries(run, id, visible.from, visible.until),
        }
    }
}

/// The same of what only the table has; and whether one of them is sure to hold the first
/// record at or after a time.
fn parts_by_time(
    partition: &Partition,
    target: TimeTarget,
    visible: Visible,
) -> (Vec<&PartAt>, bool) {
    let mut chosen = Vec::new();
    let Some(version) = &partition.table else { return (chosen, false) };
    let parts = version.parts(partition.key.partition).iter().filter(|at| {
        at.part.end > visible.from && at.part.first < visible.until && at.part.rows > 0
    });
    match target {
        TimeTarget::AtOrAfter(time) => {
            for at in parts.filter(|at| at.part.max_timestamp >= time) {
                chosen.push(at);
                if visible.holds_part(&at.part) {
                    return (chosen, true);
                }
            }
        }
        TimeTarget::Greatest => {
            let (whole, partly): (Vec<_>, Vec<_>) =
                parts.partition(|at| visible.holds_part(&at.part));
            let greatest = whole.iter().map(|at| at.part.max_timestamp).max();
            let is_best = |at: &&&PartAt| Some(at.part.max_timestamp) == greatest;
            chosen.extend(partly);
            chosen.extend(whole.iter().find(is_best));
        }
    }
    (chosen, false)
}

/// The runs that may hold the record: one that the reader sees whole and that has it for sure, and
/// those seen in part that could have it instead.
fn runs_by_time(partition: &Partition, target: TimeTarget, visible: Visible) -> Vec<&Run> {
    let in_sight = |run: &&Run| run.base < visible.until && run.end > visible.from;
    let batches = |run: &&Run| run.kind != RunKind::Gap;
    let runs = partition.runs.iter().filter(batches).filter(in_sight);
    let mut chosen: Vec<&Run> = Vec::new();
    match target {
        TimeTarget::AtOrAfter(time) => {
            for run in runs.filter(|run| run.max_timestamp >= time) {
                chosen.push(run);
                if visible.holds(run) {
                    break;
                }
            }
        }
        TimeTarget::Greatest => {
            let mut best: Option<&Run> = None;
            for run in runs {
                if !visible.holds(run) {
                    chosen.push(run);
                } else if best.is_none_or(|best| run.max_timestamp > best.max_timestamp) {
                    best = Some(run);
                }
            }
            chosen.extend(best);
        }
    }
    chosen
}

/// The batches that may hold the record, at most two. Of one that starts below what is visible the
/// index does not know the greatest time of the rest: another stands beside it.
fn candidates(entries: &[BatchEntry], target: TimeTarget, visible: Visible) -> Vec<BatchEntry> {
    let entries = wanted(entries, visible.from, visible.until);
    let cut = usize::from(entries.first().is_some_and(|entry| entry.base < visible.from));
    let (partly, whole) = entries.split_at(cut);
    match target {
        TimeTarget::AtOrAfter(time) => {
            let late = |entry: &&BatchEntry| entry.max_timestamp >= time;
            let first = whole.iter().find(late);
            partly.iter().filter(late).chain(first).copied().collect()
        }
        TimeTarget::Greatest => {
            let greatest = whole.iter().map(|entry| entry.max_timestamp).max();
            let first = whole.iter().find(|entry| Some(entry.max_timestamp) == greatest);
            partly.iter().chain(first).copied().collect()
        }
    }
}

/// One of the few places where the record is looked for.
enum Candidate {
    Batch(PathBuf, BatchEntry),
    /// Found in the table already.
    Row(Found),
}

impl Candidate {
    /// By the greatest time, the first of equal ones.
    fn order(&self) -> (Reverse<Timestamp>, Offset) {
        match self {
            Candidate::Batch(_, entry) => (Reverse(entry.max_timestamp), entry.base),
            Candidate::Row(found) => (Reverse(found.timestamp), found.offset),
        }
    }
}

impl Place {
    fn candidates(
        self,
        disk: &dyn Disk,
        target: TimeTarget,
        into: &mut Vec<Candidate>,
    ) -> Result<(), ColdError> {
        let visible = self.visible;
        match self.source {
            Source::Segment { path, entries } => {
                let entries = entries.load(disk);
                let entries = entries.map_err(|error| error.unless_removed(disk, &path))?;
                let entries = candidates(&entries, target, visible);
                into.extend(entries.into_iter().map(|e| Candidate::Batch(path.clone(), e)));
            }
            Source::Table(table) => {
                let found = table.find(target, visible.from, visible.until)?;
                into.extend(found.map(Candidate::Row));
            }
        }
        Ok(())
    }
}

impl TimeSeek {
    /// Finds the record. Blocks. `None` when the reader sees none that matches.
    pub fn run(self) -> Result<Option<Found>, ColdError> {
        let TimeSeek { disk, places, visible, target } = self;
        let mut all = Vec::new();
        for place in places {
            place.candidates(&*disk, target, &mut all)?;
            if target != TimeTarget::Greatest && matches!(all.last(), Some(Candidate::Row(_))) {
                break;
            }
        }
        if target == TimeTarget::Greatest {
            all.sort_by_key(Candidate::order);
        }
        for candidate in all {
            let (segment, entry) = match candidate {
                Candidate::Row(found) => return Ok(Some(found)),
                Candidate::Batch(segment, entry) => (segment, entry),
            };
            let found = look_at(&*disk, &segment, &entry, target, visible.from);
            let found = found.map_err(|error| error.unless_removed(&*disk, &segment))?;
            if let Some(batch::Found { offset, timestamp }) = found {
                return Ok(Some(Found { offset, timestamp, leader_epoch: entry.leader_epoch }));
            }
        }
        Ok(None)
    }
}

fn look_at(
    disk: &dyn Disk,
    segment: &Path,
    entry: &BatchEntry,
    target: TimeTarget,
    from: Offset,
) -> Result<Option<batch::Found>, ColdError> {
    let file = disk.open(segment)?;
    let mut bytes = Vec::new();
    read_batch(disk, segment, &*file, entry, &mut bytes)?;
    let found = look_into(&bytes, entry, target, from);
    found.map_err(|_| ColdError::Damaged(entry.frame_start()))
}

/// The record sought in one batch, at or above `from`.
fn look_into(
    batch: &[u8],
    entry: &BatchEntry,
    target: TimeTarget,
    from: Offset,
) -> Result<Option<batch::Found>, BatchError> {
    let (limits, mut expander) = (Limits::default(), Expander::default());
    let time = match target {
        TimeTarget::AtOrAfter(time) => time,
        TimeTarget::Greatest => {
            let latest = batch::find_latest(batch, &limits, &mut expander)?;
            if latest.is_none_or(|found| found.offset >= from) {
                return Ok(latest);
            }
            entry.max_timestamp
        }
    };
    batch::find_time(batch, time, from, &limits, &mut expander)
}
