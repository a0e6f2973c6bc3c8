//! Letting go: which segments are to make room, and how partitions give up what is in their tables.
//!
//! The log keeps the last `hot_bytes` and `hot_ms` of what was appended; of what is older a
//! partition keeps only what is not in its table yet. When the disk is full nothing sealed is kept
//! for its own sake. Looked at when a segment was sealed or could not be had, at each round of
//! retention, a few partitions at each tick; and for one partition when its table has grown. A
//! segment of which nothing is alive any more goes the usual way.
//!
//! A partition lets go of whole runs, in the order of their offsets: what it has in a newer segment
//! because it was carried there goes along with what lies behind it in an old one.
//!
//! Where a partition is hot from is in the checkpoint. The segments of what it let go of may go
//! only once one is written that knows: what they replaced in older segments must not count again.

use super::engine::Log;
use super::segments::Sealed;
use super::upkeep::State;
use crate::ids::{DenseId, Offset, SegmentNumber, Timestamp};
use crate::partition::{Partition, Run};
use std::collections::VecDeque;

/// Partitions looked at in one tick.
const SLICE_PARTITIONS: usize = 256;

/// Where letting go stands.
#[derive(Debug, Default)]
pub(super) struct Cooling {
    /// Segments before it are to make room.
    below: SegmentNumber,
    /// The next partition to be looked at, while a round goes on.
    cursor: Option<u32>,
    /// Another round after this one.
    again: bool,
    /// Let go of, and how many checkpoints had been begun by then.
    gone: VecDeque<(u64, Run)>,
    /// Partitions that hold old segments back until their tables have grown.
    wanting: Vec<DenseId>,
}

impl Cooling {
    /// Has all partitions looked at.
    pub fn seek(&mut self) {
        self.again = true;
    }
}

impl Log {
    /// The partitions whose records keep a segment from making room because they are in no table
    /// yet, as they were found since the last call. Their tables are to be written first.
    pub fn wants_room(&mut self) -> Vec<DenseId> {
        std::mem::take(&mut self.cooling.wanting)
    }

    /// Looks at some partitions.
    pub(super) fn slice_of_cooling(&mut self, now: Timestamp) {
        if self.cooling.cursor.is_none() && std::mem::take(&mut self.cooling.again) {
            self.cooling.below = self.cool_below(now);
            self.cooling.cursor = Some(0);
            self.cooling.wanting.clear();
        }
        let Some(from) = self.cooling.cursor else { return };
        let to = (from + SLICE_PARTITIONS as u32).min(self.partitions.next_dense());
        for id in (from..to).map(DenseId) {
            self.let_go(id);
            if self.holds_back(id) {
                self.cooling.wanting.push(id);
            }
        }
        self.cooling.cursor = Some(to).filter(|to| *to < self.partitions.next_dense());
    }

    /// Of which segment on the log is to be kept: the newest ones that come to `hot_bytes`, if they
    /// are not older than `hot_ms`.
    fn cool_below(&self, now: Timestamp) -> SegmentNumber {
        let settings = &self.spec.settings;
        let open = self.open.number;
        if matches!(self.next.state, State::Failed { .. }) {
            return open;
        }
        let since = now.0.saturating_sub(settings.hot_ms);
        let mut bytes = u64::from(self.open.end);
        let mut sealed_at = self.open.header.created;
        let stays = |sealed: &&Sealed| {
            bytes = bytes.saturating_add(sealed.bytes());
            let is_young = sealed_at.0 >= since;
            sealed_at = sealed.header.created;
            bytes <= settings.hot_bytes && is_young
        };
        let kept = self.segments.iter().rev().take_while(stays).last();
        kept.map_or(open, |kept| kept.stamp.number)
    }

    /// Lets go of what a partition has in old segments and in its table.
    pub(super) fn let_go(&mut self, id: DenseId) {
        let below = self.cooling.below;
        let Some(partition) = self.partitions.get_mut(id) else { return };
        let table_end = partition.table_end();
        let Some(hot_start) = lettable(partition, below) else { return };
        if self.mover.cleaning == Some(id) {
            return;
        }
        let gone = partition.advance_table(hot_start, table_end);
        self.cooled(id, gone);
    }

    /// Notes what a partition lets go of.
    pub(super) fn cooled(&mut self, id: DenseId, gone: Vec<Run>) {
        let Some(partition) = self.partitions.get_mut(id).filter(|_| !gone.is_empty()) else {
            return;
        };
        let touched = std::mem::replace(&mut partition.touched, true);
        self.checkpoints.touched(id, touched);
        self.checkpoints.want();
        let round = self.checkpoints.round;
        for run in &gone {
            if let Some(live) = self.live_of(run.segment) {
                live.leaving += 1;
            }
        }
        self.cooling.gone.extend(gone.into_iter().map(|run| (round, run)));
    }

    /// A checkpoint is written, which was the `round`th to be begun.
    pub(super) fn release_cooled(&mut self, round: u64) {
        while let Some((_, run)) = self.cooling.gone.pop_front_if(|(before, _)| *before < round) {
            self.release(&run);
            if let Some(live) = self.live_of(run.segment) {
                live.leaving = live.leaving.saturating_sub(1);
            }
        }
    }

    /// Whether the log has nothing of a partition below this offset.
    pub(super) fn is_let_go(&self, id: DenseId, below: Offset) -> bool {
        self.partitions.get(id).is_some_and(|partition| below <= partition.hot_start())
    }

    /// Whether a partition has something in an old segment that only its table's growth frees.
    fn holds_back(&self, id: DenseId) -> bool {
        let below = self.cooling.below;
        let Some(partition) = self.partitions.get(id) else { return false };
        let table_end = partition.table_end();
        let runs = partition.runs.iter();
        let mut old = runs.filter(|run| run.segment < below && run.end > table_end);
        !partition.settings.internal && old.any(|run| run.base < partition.last_stable())
    }
}

/// Where a partition can be hot from without its runs in segments before `below`.
fn lettable(partition: &Partition, below: SegmentNumber) -> Option<Offset> {
    let version = partition.table.as_ref()?;
    let table_end = partition.table_end();
    let parts = version.parts(partition.key.partition);
    // Without a part at the log start, the table does not tell what is there.
    let covers = parts.first().is_some_and(|at| at.part.first <= partition.log_start());
    let is_old = |run: &&Run| run.segment < below && run.end <= table_end;
    let last = partition.runs.iter().rfind(is_old).filter(|_| covers)?;
    let hot_start = partition.hot_start_behind(last.end);
    (hot_start <= table_end).then_some(hot_start)
}
