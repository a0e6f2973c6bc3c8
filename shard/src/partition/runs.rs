//! Where the batches of a partition lie: runs of offsets, each in one segment.
//!
//! Runs ascend and follow one another without a hole: what is appended goes to the last, what is
//! carried to the log's tail takes the place of what it copies. Offset order is therefore not log
//! order: a run may lie in a newer segment than the one behind it. A run whose batches are all gone
//! stays as a gap: it says that what older segments hold there is dead.
//!
//! The end of a run is the end of its last batch. Its first batch may begin behind its base, or
//! (below the log start) end before it. Pure: who counts what a segment holds is told by `Change`.
//!
//! Worked example: runs (1: 0..30) and (2: 30..40). Carrying 0..10 to segment 5 leaves (5: 0..10),
//! (1: 10..30), (2: 30..40); when the rest of segment 1 follows they are (5: 0..30), (2: 30..40).

use crate::ids::{Offset, SegmentNumber, Timestamp};
use crate::log::BatchEntry;
use std::collections::VecDeque;

/// How a run came into its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    Appended,
    /// Copied from an older segment as it was.
    Carried,
    /// Copied after compaction had looked at it.
    Cleaned,
    /// Nothing is left of it.
    Gap,
}

/// A stretch of a partition that lies in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub segment: SegmentNumber,
    pub kind: RunKind,
    pub base: Offset,
    pub end: Offset,
    /// Of its batches; with `exact` false, perhaps of others that were in it.
    pub max_timestamp: Timestamp,
    pub batch_bytes: u64,
    /// What its frames take in the segment.
    pub frame_bytes: u64,
    /// Whether the three above are those of its batches and of no others.
    pub exact: bool,
}

/// What a change means to the segments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub gone: Vec<Run>,
    pub come: Vec<Run>,
}

/// The runs of one partition.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    all: VecDeque<Run>,
}

impl Runs {
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.all.iter()
    }

    pub fn first(&self) -> Option<&Run> {
        self.all.front()
    }

    pub fn last(&self) -> Option<&Run> {
        self.all.back()
    }

    /// The run whose batches hold `offset`, or the first one with batches after it.
    pub fn at(&self, offset: Offset) -> Option<&Run> {
        let at = self.all.partition_point(|run| run.end <= offset);
        self.all.range(at..).find(|run| run.kind != RunKind::Gap)
    }

    /// A batch is appended in `segment`. Returns whether that began a run there.
    pub fn append(&mut self, segment: SegmentNumber, entry: &BatchEntry) -> bool {
        if let Some(last) = self.all.back_mut() {
            assert!(last.end <= entry.base, "batches of a partition ascend");
            if last.segment == segment && last.kind == RunKind::Appended {
                last.end = entry.end();
                last.max_timestamp = last.max_timestamp.max(entry.max_timestamp);
                last.batch_bytes += u64::from(entry.batch_bytes);
                last.frame_bytes += entry.frame_bytes();
                return false;
            }
        }
        self.all.push_back(Run {
            segment,
            kind: RunKind::Appended,
            base: entry.base,
            end: entry.end(),
            max_timestamp: entry.max_timestamp,
            batch_bytes: u64::from(entry.batch_bytes),
            frame_bytes: entry.frame_bytes(),
            exact: true,
        });
        true
    }

    /// Adds a run behind all others.
    pub fn push(&mut self, run: Run) {
        if let Some(last) = self.all.back() {
            assert!(last.end <= run.base, "runs ascend");
        }
        self.all.push_back(run);
    }

    /// `new` takes the place of whatever there was between its base and its end. Of a run that was
    /// there in part the rest stays; what that weighs is known if `source` says what `new` copied
    /// (bytes of batches and of frames), and estimated otherwise.
    pub fn replace(&mut self, new: Run, source: Option<(u64, u64)>) -> Change {
        let mut change = Change::default();
        let from = self.all.partition_point(|run| run.end <= new.base);
        let to = self.all.partition_point(|run| run.base < new.end);
        let (mut batch_bytes, mut frame_bytes) =
            source.unwrap_or((new.batch_bytes, new.frame_bytes));
        change.gone.extend(self.all.range(from..to.max(from)));
        let whole = |run: &&Run| run.base >= new.base && run.end <= new.end;
        for run in change.gone.iter().filter(whole) {
            batch_bytes = batch_bytes.saturating_sub(run.batch_bytes);
            frame_bytes = frame_bytes.saturating_sub(run.frame_bytes);
        }
        let less = |run: &Run| Run {
            batch_bytes: run.batch_bytes.saturating_sub(batch_bytes),
            frame_bytes: run.frame_bytes.saturating_sub(frame_bytes),
            exact: run.kind == RunKind::Gap,
            ..*run
        };
        let before = change.gone.first().filter(|run| run.base < new.base);
        change.come.extend(before.map(|run| Run { end: new.base, ..less(run) }));
        change.come.push(new);
        let after = change.gone.last().filter(|run| run.end > new.end);
        change.come.extend(after.map(|run| Run { base: new.end, ..less(run) }));
        let mut rest = self.all.split_off(from);
        self.all.extend(change.come.iter().copied());
        self.all.extend(rest.drain(to.max(from) - from..));
        change
    }

    /// The same for a batch that was carried: it goes on with the run before it if that is the same
    /// stretch of the segment.
    pub fn carry(&mut self, new: Run, source: Option<(u64, u64)>) -> Change {
        let mut change = self.replace(new, source);
        let at = self.all.partition_point(|run| run.base < new.base);
        self.join_before(at, &mut change);
        change
    }

    /// Makes one of two neighbours that are one stretch of their segment.
    fn join_before(&mut self, at: usize, change: &mut Change) {
        let Some(before) = at.checked_sub(1).and_then(|before| self.all.get(before)).copied()
        else {
            return;
        };
        let Some(run) = self.all.get_mut(at) else { return };
        let one = before.segment == run.segment
            && before.kind == run.kind
            && before.end == run.base
            && run.kind != RunKind::Appended;
        if !one {
            return;
        }
        let joined = Run {
            base: before.base,
            max_timestamp: run.max_timestamp.max(before.max_timestamp),
            batch_bytes: run.batch_bytes + before.batch_bytes,
            frame_bytes: run.frame_bytes + before.frame_bytes,
            exact: run.exact && before.exact,
            ..*run
        };
        let added = std::mem::replace(run, joined);
        self.all.remove(at - 1);
        match change.come.iter().position(|come| *come == before) {
            Some(at) => drop(change.come.remove(at)),
            None => change.gone.push(before),
        }
        change.come.iter_mut().filter(|come| **come == added).for_each(|come| *come = joined);
    }

    /// Takes out the runs that end at or before `log_start`.
    pub fn drop_below(&mut self, log_start: Offset) -> Vec<Run> {
        let past = self.all.iter().take_while(|run| run.end <= log_start).count();
        self.all.drain(..past).collect()
    }

    /// Sets the weights of a run that were not exact.
    pub fn correct(&mut self, base: Offset, measured: Run) {
        let at = self.all.partition_point(|run| run.base < base);
        if let Some(run) = self.all.get_mut(at).filter(|run| run.base == base) {
            *run = measured;
        }
    }

    pub fn batch_bytes(&self) -> u64 {
        self.all.iter().map(|run| run.batch_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LeaderEpoch;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn run(segment: u64, kind: RunKind, base: i64, end: i64) -> Run {
        Run {
            segment: SegmentNumber(segment),
            kind,
            base: Offset(base),
            end: Offset(end),
            max_timestamp: Timestamp(end),
            batch_bytes: (end - base) as u64 * 10,
            frame_bytes: (end - base) as u64 * 20,
            exact: true,
        }
    }

    fn shown(runs: &Runs) -> Vec<(u64, i64, i64, u64)> {
        let shown = |run: &Run| (run.segment.0, run.base.0, run.end.0, run.batch_bytes);
        runs.iter().map(shown).collect()
    }

    fn two() -> Runs {
        let mut runs = Runs::default();
        runs.push(run(1, RunKind::Appended, 0, 30));
        runs.push(run(2, RunKind::Appended, 30, 40));
        runs
    }

    #[test]
    fn what_is_carried_takes_the_place_of_what_it_copies() {
        let mut runs = two();
        let change = runs.replace(run(5, RunKind::Carried, 0, 10), None);
        assert_eq!(shown(&runs), [(5, 0, 10, 100), (1, 10, 30, 200), (2, 30, 40, 100)]);
        assert_eq!((change.gone.len(), change.come.len()), (1, 2));
        let change = runs.carry(run(5, RunKind::Carried, 10, 30), None);
        assert_eq!(shown(&runs), [(5, 0, 30, 300), (2, 30, 40, 100)]);
        assert_eq!((change.gone.len(), change.come.len()), (2, 1));
        assert_eq!(runs.at(Offset(29)).map(|run| run.segment.0), Some(5));
        runs.replace(run(6, RunKind::Gap, 0, 30), None);
        assert_eq!(runs.at(Offset(0)).map(|run| run.segment.0), Some(2));
        assert_eq!(runs.at(Offset(40)), None);
    }

    #[test]
    fn what_is_appended_is_not_one_with_what_was_carried_there() {
        let mut runs = two();
        runs.replace(run(5, RunKind::Carried, 0, 40), None);
        let entry = BatchEntry {
            base: Offset(40),
            max_timestamp: Timestamp(7),
            frame_at: 4096,
            batch_bytes: 100,
            last_delta: 9,
            leader_epoch: LeaderEpoch(1),
        };
        assert!(runs.append(SegmentNumber(5), &entry));
        assert_eq!(shown(&runs), [(5, 0, 40, 400), (5, 40, 50, 100)]);
        assert_eq!(runs.drop_below(Offset(45)).len(), 1);
    }

    proptest! {
        #[test]
        fn runs_follow_one_another_and_changes_add_up(
            steps in proptest::collection::vec((0i64..20, 1i64..8, 0u8..3), 0..40),
        ) {
            let mut runs = Runs::default();
            runs.push(run(0, RunKind::Appended, 0, 27));
            let mut owner = vec![0u64; 27];
            let mut weight: BTreeMap<u64, (i64, i64)> = BTreeMap::from([(0, (1, 540))]);
            for (at, (base, length, kind)) in steps.into_iter().enumerate() {
                let kind = [RunKind::Carried, RunKind::Cleaned, RunKind::Gap][usize::from(kind)];
                let segment = at as u64 / 4 + 1;
                let new = run(segment, kind, base, base + length);
                let change = match at % 2 {
                    0 => runs.replace(new, None),
                    _ => runs.carry(new, None),
                };
                owner[base as usize..(base + length) as usize].fill(segment);
                for (side, runs) in [(-1, &change.gone), (1, &change.come)] {
                    for run in runs {
                        let entry = weight.entry(run.segment.0).or_default();
                        entry.0 += side;
                        entry.1 += side * run.frame_bytes as i64;
                    }
                }
                let mut expected = Offset(0);
                let mut now: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
                for run in runs.iter() {
                    prop_assert_eq!(run.base, expected);
                    expected = run.end;
                    let owned = &owner[run.base.0 as usize..run.end.0 as usize];
                    prop_assert!(owned.iter().all(|segment| *segment == run.segment.0));
                    let entry = now.entry(run.segment.0).or_default();
                    entry.0 += 1;
                    entry.1 += run.frame_bytes as i64;
                }
                prop_assert_eq!(expected, Offset(27));
                weight.retain(|_, weight| weight.0 != 0);
                prop_assert_eq!(&weight, &now);
            }
        }
    }
}
