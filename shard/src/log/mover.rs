//! Carrying batches to the log's tail: what the core does of it, in slices.
//!
//! One task at a time. `relocate` chooses a segment; a worker lists what it holds; of that the core
//! keeps the runs that partitions still have there; a worker reads them (`carry`); the core stores
//! what it read, a slice at each tick, as carried frames. A run moves in the index of its partition
//! only when the copies are on stable storage; until then readers find it where it was. A segment
//! that nobody needs any more goes the usual way, behind the checkpoint.
//!
//! Metered: so many percent of the bytes appended meanwhile, or a floor when that is more, saved up
//! for a moment at most. Appends come first: nothing is stored while the log has much unsynced.

use super::carry::{CarryError, Item, Load, Place, Source};
use super::effect::{gap_run, run_of};
use super::engine::Log;
use super::frame::{Carried, Kind, BATCH_PREFIX_BYTES, GAP_BYTES, SIDE_BYTES};
use super::index::{BatchEntry, Summary};
use super::jobs::Work;
use super::meter::Meter;
use super::outcome::{AppendError, Failure, Now, Progress};
use super::relocate::{choose, Policy, Weight};
use super::segments::IndexFile;
use super::write::{FrameParts, Origin};
use crate::batch::HEADER_BYTES;
use crate::ids::{DenseId, Offset, Position, SegmentNumber};
use crate::partition::{Run, RunKind};
use std::collections::{BTreeSet, VecDeque};

/// What one tick stores at most, but for one batch. About 20 µs of copying.
const SLICE_BYTES: u64 = 128 << 10;
const SLICE_ITEMS: usize = 128;
/// Partitions looked up in one tick.
const SLICE_PARTITIONS: usize = 256;
/// How long after a look that found nothing to do there is another. µs.
const LOOK_EVERY_US: u64 = 20_000;

/// What the work on the log's space came to since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounts {
    /// Bytes of frames stored to empty segments.
    pub relocated_bytes: u64,
    /// Bytes of frames that compaction has gone through, and what it left of them.
    pub cleaned_bytes: u64,
    pub kept_bytes: u64,
    /// Segments emptied, those made hollow, and compactions of a partition.
    pub relocations: u64,
    pub hollowed: u64,
    pub cleanings: u64,
}

#[derive(Debug)]
enum Task {
    None,
    /// A worker lists or reads.
    Away,
    /// The runs of a listed segment are being looked up.
    Choosing {
        place: Place,
        listed: std::vec::IntoIter<Summary>,
        sources: VecDeque<Source>,
    },
    Storing {
        items: VecDeque<Item>,
        rest: Load,
    },
}

/// A copy that becomes the partition's when it is durable.
#[derive(Debug)]
struct Placed {
    end: Position,
    id: DenseId,
    run: Run,
    source_bytes: (u64, u64),
    /// The side file that is now named by this frame, and the segment it leaves.
    side: Option<(u64, SegmentNumber)>,
}

#[derive(Debug)]
pub(super) struct Mover {
    task: Task,
    placed: VecDeque<Placed>,
    /// Segments that cannot be emptied in this run.
    stuck: BTreeSet<SegmentNumber>,
    /// Compacted partitions, and from which on they are to be looked at.
    pub compacted: BTreeSet<DenseId>,
    pub clean_from: Option<DenseId>,
    /// And from the first again after that.
    pub clean_again: bool,
    /// Whose records are being cleaned, until the copies are the partition's.
    pub cleaning: Option<DenseId>,
    pub meter: Meter,
    looked_us: u64,
    /// Compactions before a segment has its turn.
    cleanings_first: u64,
    pub counts: SpaceCounts,
}

impl Mover {
    pub fn new(now_us: u64) -> Mover {
        Mover {
            task: Task::None,
            placed: VecDeque::new(),
            stuck: BTreeSet::new(),
            compacted: BTreeSet::new(),
            clean_from: None,
            clean_again: false,
            cleaning: None,
            meter: Meter::new(now_us),
            looked_us: now_us,
            cleanings_first: 1,
            counts: SpaceCounts::default(),
        }
    }

    /// A worker has the task.
    pub fn away(&mut self) {
        self.task = Task::Away;
    }

    pub fn idle(&mut self) {
        self.task = Task::None;
    }

    /// Compacted partitions are to be looked at: after those whose turn it still is, so that the
    /// first ones, which may always have something to clean, do not keep the last ones from it.
    pub fn seek_cleaning(&mut self) {
        match self.clean_from {
            Some(_) => self.clean_again = true,
            None => self.clean_from = Some(DenseId(0)),
        }
    }
}

impl Log {
    /// What was relocated and cleaned since the log was opened.
    pub fn space_counts(&self) -> SpaceCounts {
        self.mover.counts
    }

    /// Carries the work on the log's space a step further.
    pub(super) fn slice_of_moving(&mut self, now: Now) {
        if self.commit.is_poisoned() {
            return;
        }
        match std::mem::replace(&mut self.mover.task, Task::None) {
            Task::None => self.look_for_work(now),
            Task::Away => self.mover.task = Task::Away,
            Task::Choosing { place, listed, sources } => self.choose_runs(place, listed, sources),
            Task::Storing { items, rest } => self.store_slice(items, rest, now),
        }
    }

    fn look_for_work(&mut self, now: Now) {
        let waited = now.mono_us.saturating_sub(self.mover.looked_us) >= LOOK_EVERY_US;
        if !waited || !self.mover.placed.is_empty() {
            return;
        }
        self.mover.cleaning = None;
        // What compaction drops need not be carried: a segment has its turn when nothing is to be
        // cleaned, or after some compactions. Not always the same number of them: what it moves
        // cannot be cleaned at once, and that should not hit the same partition each time.
        let found = if self.mover.cleanings_first == 0 {
            self.mover.cleanings_first = 1 + self.mover.counts.cleanings * 5 % 13;
            self.look_for_segment() || self.look_for_cleaning(now)
        } else if self.look_for_cleaning(now) {
            self.mover.cleanings_first -= 1;
            true
        } else {
            self.mover.clean_from.is_none() && self.look_for_segment()
        };
        if !found {
            self.mover.looked_us = now.mono_us;
        }
    }

    /// Begins to empty a segment if one is worth it.
    fn look_for_segment(&mut self) -> bool {
        let settings = &self.spec.settings;
        let policy = Policy {
            live_percent_max: u64::from(settings.relocate_live_percent_max),
            segment_bytes_min: u64::from(settings.segment_bytes_min),
            segment_bytes_max: u64::from(settings.segment_bytes_max),
        };
        let (covered, durable) = (self.checkpoints.covered.segment, self.commit.durable());
        let weights = self.segments.iter().filter(|sealed| !sealed.is_hollow()).map(|sealed| {
            let number = sealed.stamp.number;
            let settled = number < covered && sealed.end() <= durable && sealed.live.leaving == 0;
            Weight {
                number,
                bytes: u64::from(sealed.stamp.end),
                live_bytes: sealed.live.bytes,
                ready: settled && !self.mover.stuck.contains(&number),
            }
        });
        let weights: Vec<Weight> = weights.collect();
        let chosen = choose(&weights, &policy).and_then(|number| self.place(number));
        let Some(place) = chosen else { return false };
        self.mover.away();
        self.push_job(Work::List { place });
        true
    }

    /// Where a worker finds a sealed segment.
    pub(super) fn place(&self, number: SegmentNumber) -> Option<Place> {
        let sealed = self.segments.get(number).filter(|_| !self.mover.stuck.contains(&number))?;
        let known = sealed.index.is_some() || sealed.index_file == IndexFile::Written;
        let (epoch, index) = (sealed.stamp.epoch, sealed.index.clone());
        known.then_some(Place { number, epoch, index })
    }

    pub(super) fn listed(
        &mut self,
        place: Place,
        result: Result<Vec<Summary>, CarryError>,
        progress: &mut Progress,
    ) {
        match result {
            Ok(listed) => {
                let (listed, sources) = (listed.into_iter(), VecDeque::new());
                self.mover.task = Task::Choosing { place, listed, sources };
            }
            Err(error) => self.give_up(error, progress),
        }
    }

    pub(super) fn give_up(&mut self, error: CarryError, progress: &mut Progress) {
        self.mover.idle();
        // Nobody may have needed it any more: then it is gone, and nothing is wrong.
        let number = error.segment();
        if self.segments.get(number).is_some_and(|sealed| sealed.live.runs > 0) {
            self.mover.stuck.insert(number);
            progress.failure = Some(Failure::Carry(error));
        }
    }

    /// Of what a segment was found to hold, keeps the runs that are still there.
    fn choose_runs(
        &mut self,
        place: Place,
        mut listed: std::vec::IntoIter<Summary>,
        mut sources: VecDeque<Source>,
    ) {
        for Summary { dense: id, base, end, .. } in listed.by_ref().take(SLICE_PARTITIONS) {
            let Some(partition) = self.partitions.get(id) else { continue };
            let here = |run: &&Run| run.segment == place.number && run.base < end && run.end > base;
            for run in partition.runs.iter().filter(here).copied() {
                // Gaps that lie side by side are one run and several stretches.
                if sources.back() != Some(&Source { id, run }) {
                    sources.push_back(Source { id, run });
                }
            }
        }
        if !listed.as_slice().is_empty() {
            self.mover.task = Task::Choosing { place, listed, sources };
            return;
        }
        self.mover.counts.relocations += 1;
        self.load(Load::new(vec![place], sources, None));
    }

    /// Has a worker read on, or ends the task.
    pub(super) fn load(&mut self, load: Load) {
        if load.is_over() {
            if load.pass.is_some() {
                self.mover.counts.cleanings += 1;
                self.mover.counts.cleaned_bytes += load.read_bytes;
                self.mover.seek_cleaning();
            }
            return;
        }
        self.mover.away();
        self.push_job(Work::Load(load));
    }

    pub(super) fn loaded(
        &mut self,
        rest: Load,
        result: Result<Vec<Item>, CarryError>,
        progress: &mut Progress,
    ) {
        match result {
            Ok(items) => self.mover.task = Task::Storing { items: items.into(), rest },
            Err(error) => self.give_up(error, progress),
        }
    }

    /// Stores some of the items, as the meter and the log's own work allow.
    fn store_slice(&mut self, mut items: VecDeque<Item>, rest: Load, now: Now) {
        let settings = &self.spec.settings;
        let percent = u64::from(settings.relocate_bandwidth_percent);
        let unsynced_max = match self.commit.has_waiting() {
            true => settings.unsynced_bytes_max / 2,
            false => settings.unsynced_bytes_max_relaxed / 2,
        };
        self.mover.meter.earn(percent, settings.relocate_bytes_per_second_min, now.mono_us);
        let mut stored = 0;
        for _ in 0..SLICE_ITEMS {
            let busy = stored >= SLICE_BYTES || self.commit.unsynced_bytes() >= unsynced_max;
            let Some(item) = items.front().filter(|_| !busy && self.mover.meter.has_credit())
            else {
                break;
            };
            match self.store(item, now) {
                Ok(bytes) => {
                    self.mover.meter.spend(bytes);
                    stored += bytes;
                }
                Err(AppendError::TooLarge { .. }) => {
                    // The segments have become smaller since: it stays where it is.
                    self.mover.stuck.insert(item.segment);
                    return;
                }
                Err(_) => break,
            }
            items.pop_front();
        }
        match rest.pass {
            None => self.mover.counts.relocated_bytes += stored,
            Some(_) => self.mover.counts.kept_bytes += stored,
        }
        match items.is_empty() {
            true => self.load(rest),
            false => self.mover.task = Task::Storing { items, rest },
        }
    }

    /// Stores one item at the log's end. Returns the bytes of its frame; none when nobody needs it
    /// any more.
    fn store(&mut self, item: &Item, now: Now) -> Result<u64, AppendError> {
        let needed = self.partitions.get(item.id).is_some_and(|partition| {
            let at = partition.runs.at(item.end.plus(-1));
            let is_there = at.is_none_or(|run| run.segment == item.segment || item.batch.is_none());
            partition.hot_start() < item.end && is_there
        });
        if !needed {
            return Ok(0);
        }
        let payload_bytes = match &item.batch {
            Some(batch) => HEADER_BYTES + batch.rest.len(),
            None => GAP_BYTES,
        };
        self.make_room(item.id, payload_bytes, true, now)?;
        self.bind(item.id, now);
        let (run, side) = match &item.batch {
            Some(batch) => self.store_batch(item, batch, now),
            None => (self.store_gap(item.id, item.from, item.end, now), None),
        };
        let end = self.open.position();
        let side = side.map(|file| (file, item.segment));
        self.place_copy(Placed { end, id: item.id, run, source_bytes: item.source_bytes, side });
        Ok(run.frame_bytes)
    }

    fn store_batch(
        &mut self,
        item: &Item,
        batch: &super::carry::Batch,
        now: Now,
    ) -> (Run, Option<u64>) {
        let encoded = batch.header.encode();
        let (kind, head, body) = match batch.side {
            None => (Kind::Data, encoded.to_vec(), &batch.rest[..]),
            Some(_) => (Kind::Side, [&encoded[..], &batch.rest[..]].concat(), &[][..]),
        };
        let covered = if batch.side.is_some() { SIDE_BYTES } else { BATCH_PREFIX_BYTES };
        let carried = Carried { from: item.from, cleaned: item.kind == RunKind::Cleaned };
        let (leader_epoch, append_time) = (batch.leader_epoch, batch.append_time);
        let frame_at = self.write(
            FrameParts {
                kind,
                partition: item.id,
                base_offset: batch.header.base_offset,
                head: &head,
                covered,
                body,
                origin: Some(Origin { leader_epoch, append_time, carried }),
            },
            now,
        );
        let entry = BatchEntry {
            base: batch.header.base_offset,
            max_timestamp: batch.header.max_timestamp,
            frame_at,
            batch_bytes: batch.header.bytes() as u32,
            last_delta: batch.header.last_offset_delta as u32,
            leader_epoch,
        };
        let entry = if batch.side.is_some() { entry.in_side_file() } else { entry };
        self.open.index.carry(item.id, item.from, entry, item.kind);
        if let Some(file) = batch.side {
            self.open.index.push_side(file);
            self.open.side_bytes += u64::from(entry.batch_bytes);
        }
        (run_of(self.open.number, &carried, &entry), batch.side)
    }

    fn store_gap(&mut self, id: DenseId, from: Offset, end: Offset, now: Now) -> Run {
        let payload = end.0.to_le_bytes();
        self.write(
            FrameParts {
                kind: Kind::Gap,
                partition: id,
                base_offset: from,
                head: &payload,
                covered: payload.len(),
                body: &[],
                origin: None,
            },
            now,
        );
        self.open.index.gap(id, from, end);
        gap_run(self.open.number, from, end)
    }

    /// Notes a copy, as one with the copy before it where they are one stretch.
    fn place_copy(&mut self, placed: Placed) {
        let joins = |last: &Placed| {
            let (one, two) = (&last.run, &placed.run);
            last.id == placed.id
                && one.segment == two.segment
                && one.kind == two.kind
                && one.end == two.base
                && two.kind != RunKind::Gap
                && last.side.is_none()
                && placed.side.is_none()
                && last.run.frame_bytes < SLICE_BYTES
        };
        let Some(last) = self.mover.placed.back_mut().filter(|last| joins(last)) else {
            self.mover.placed.push_back(placed);
            return;
        };
        last.end = placed.end;
        last.source_bytes.0 += placed.source_bytes.0;
        last.source_bytes.1 += placed.source_bytes.1;
        last.run.end = placed.run.end;
        last.run.max_timestamp = last.run.max_timestamp.max(placed.run.max_timestamp);
        last.run.batch_bytes += placed.run.batch_bytes;
        last.run.frame_bytes += placed.run.frame_bytes;
    }

    /// Lets readers have the copies that are on stable storage.
    pub(super) fn switch_to_copies(&mut self) {
        let durable = self.commit.durable();
        while let Some(placed) = self.mover.placed.pop_front_if(|placed| placed.end <= durable) {
            self.switch(placed.id, placed.run, Some(placed.source_bytes));
            if let Some((file, from)) = placed.side {
                if let Some(sealed) = self.segments.get_mut(from) {
                    sealed.sides.retain(|side| *side != file);
                }
            }
        }
    }

    fn switch(&mut self, id: DenseId, run: Run, source_bytes: Option<(u64, u64)>) {
        let Some(partition) = self.partitions.get_mut(id) else { return };
        let hot_start = partition.hot_start();
        if run.end <= hot_start {
            return;
        }
        let change = partition.runs.carry(run, source_bytes);
        let below = partition.runs.drop_below(hot_start);
        for run in &change.come {
            if let Some(live) = self.live_of(run.segment) {
                live.take(run);
            }
        }
        change.gone.iter().chain(&below).for_each(|run| self.release(run));
    }

    /// Accepts that records are missing: a salvage says so in the log, so that the next start
    /// finds nothing wrong. The log has been told of all tables before.
    pub fn accept_missing(&mut self, now: Now) {
        let ids: Vec<DenseId> = self.partitions.iter().map(|(id, _)| id).collect();
        for id in ids {
            let holes = self.partitions.get(id).map_or(Vec::new(), |partition| partition.holes());
            for (from, end) in holes {
                tracing::warn!(%id, %from, %end, "records are missing");
                if self.is_let_go(id, end) {
                    // The table has lost them: nothing is left before.
                    if let Err(error) = self.raise_log_start(id, end, now) {
                        tracing::error!(%error, %id, %end, "missing records are not noted");
                    }
                    continue;
                }
                if let Err(error) = self.make_room(id, GAP_BYTES, true, now) {
                    tracing::error!(%error, %id, %from, %end, "missing records are not noted");
                    continue;
                }
                self.bind(id, now);
                let run = self.store_gap(id, from, end, now);
                self.switch(id, run, None);
            }
        }
    }
}
