//! What of a log is on stable storage, and when the next sync is due.
//!
//! Pure bookkeeping: `Log` tells it of appends and finished syncs and asks it what to sync next.
//! One sync is in flight at a time; whatever is appended meanwhile rides on the next one, so the
//! cost of a sync is shared by all partitions of the log.

use super::settings::LogSettings;
use crate::ids::{DenseId, Offset, Position};
use std::collections::VecDeque;

/// A batch that becomes visible when the log is durable up to `end`.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    end: Position,
    partition: DenseId,
    offset_end: Offset,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    covers: Position,
    bytes: u64,
    started_us: u64,
}

/// A stretch of the log to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncPlan {
    pub from: Position,
    pub to: Position,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct Commit {
    /// Everything before it is on stable storage.
    durable: Position,
    /// End of the last frame.
    end: Position,
    /// Where the next sync has to start: a mark frame may lie between it and `durable`.
    sync_from: Position,
    in_flight: Option<InFlight>,
    /// Appended bytes that no started sync covers.
    dirty_bytes: u64,
    waiting: VecDeque<Waiting>,
    /// When the oldest dirty byte was appended.
    dirty_since_us: Option<u64>,
    /// Some dirty batch was promised a sync within the flush interval.
    interval_runs: bool,
    last_start_us: u64,
    last_done_us: u64,
    /// The durable position the last frame carried.
    marked: Position,
    /// End of the last frame that is not a mark.
    data_end: Position,
    poisoned: bool,
}

impl Commit {
    /// A log whose every frame is durable.
    pub fn new(end: Position, now_us: u64) -> Commit {
        Commit {
            durable: end,
            end,
            sync_from: end,
            in_flight: None,
            dirty_bytes: 0,
            waiting: VecDeque::new(),
            dirty_since_us: None,
            interval_runs: false,
            last_start_us: 0,
            last_done_us: now_us,
            marked: end,
            data_end: end,
            poisoned: false,
        }
    }

    pub fn durable(&self) -> Position {
        self.durable
    }

    pub fn end(&self) -> Position {
        self.end
    }

    /// The end of what a sync has to cover. A mark behind it is not waited for: it says only what
    /// is known already, and no sync is begun for its sake.
    pub fn data_end(&self) -> Position {
        self.data_end
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Appended bytes that are not known to be durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.dirty_bytes + self.in_flight.map_or(0, |sync| sync.bytes)
    }

    /// Whether some batch waits for a sync to become visible.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn is_syncing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// A frame ends at `end`; `bytes` of it need a sync (none for a mark).
    pub fn appended(&mut self, end: Position, bytes: u64, now_us: u64) {
        assert!(end > self.end, "the log only grows");
        self.end = end;
        self.dirty_bytes += bytes;
        if bytes > 0 && self.dirty_since_us.is_none() {
            self.dirty_since_us = Some(now_us);
        }
        if bytes > 0 {
            self.data_end = end;
        }
        self.marked = self.marked.max(self.durable);
    }

    /// The batch that ends at the log's end becomes visible with the next sync.
    pub fn wait(&mut self, partition: DenseId, offset_end: Offset) {
        self.waiting.push_back(Waiting { end: self.end, partition, offset_end });
    }

    /// The batch that ends at the log's end is to be synced within the flush interval.
    pub fn start_interval(&mut self) {
        self.interval_runs = true;
    }

    /// Whether the core must not store more now.
    pub fn is_full(&self, settings: &LogSettings, now_us: u64) -> bool {
        let stalled = self.in_flight.is_some_and(|sync| {
            now_us.saturating_sub(sync.started_us) > settings.sync_stall_ms * 1000
        });
        let (bound, unsynced) = match self.has_waiting() {
            true => (settings.unsynced_bytes_max, self.unsynced_bytes()),
            false => (settings.unsynced_bytes_max_relaxed, self.unsynced_bytes()),
        };
        unsynced >= bound || (stalled && unsynced >= settings.unsynced_bytes_max)
    }

    /// The next sync, when one is due.
    pub fn plan(&mut self, settings: &LogSettings, now_us: u64) -> Option<SyncPlan> {
        if self.poisoned || self.in_flight.is_some() || self.dirty_bytes == 0 {
            return None;
        }
        let since = self.dirty_since_us.unwrap_or(now_us);
        let due = if self.has_waiting() {
            now_us.saturating_sub(self.last_start_us) >= settings.sync_interval_min_us
        } else {
            let interval_ms = if self.interval_runs {
                settings.flush_interval_ms.min(settings.background_sync_ms)
            } else {
                settings.background_sync_ms
            };
            now_us.saturating_sub(since) >= interval_ms * 1000
                || self.dirty_bytes >= settings.background_sync_bytes
        };
        due.then(|| self.start(now_us))
    }

    /// Starts a sync of all that is dirty, whether it is due or not.
    pub fn start(&mut self, now_us: u64) -> SyncPlan {
        assert!(self.in_flight.is_none() && !self.poisoned);
        let plan = SyncPlan { from: self.sync_from, to: self.end, bytes: self.dirty_bytes };
        self.in_flight =
            Some(InFlight { covers: self.end, bytes: self.dirty_bytes, started_us: now_us });
        self.dirty_bytes = 0;
        self.dirty_since_us = None;
        self.interval_runs = false;
        self.last_start_us = now_us;
        plan
    }

    /// The sync in flight is done; hands back the partitions' ends that are now committed.
    pub fn done(&mut self, now_us: u64) -> Vec<(DenseId, Offset)> {
        let sync = self.in_flight.take().expect("a sync was in flight");
        assert!(sync.covers >= self.durable);
        self.durable = sync.covers;
        self.sync_from = sync.covers;
        self.last_done_us = now_us;
        let count = self.waiting.iter().take_while(|batch| batch.end <= self.durable).count();
        self.waiting.drain(..count).map(|batch| (batch.partition, batch.offset_end)).collect()
    }

    /// The sync in flight failed: nothing is durable any more than it was, for good.
    pub fn failed(&mut self) {
        self.in_flight = None;
        self.poisoned = true;
    }

    /// Whether an idle log should write down how far it is durable.
    pub fn mark_is_due(&self, settings: &LogSettings, now_us: u64) -> bool {
        self.mark_is_missing()
            && now_us.saturating_sub(self.last_done_us) >= settings.mark_idle_ms * 1000
    }

    /// Whether all data is durable and no frame says so.
    pub fn mark_is_missing(&self) -> bool {
        !self.poisoned && self.marked < self.data_end && self.durable >= self.data_end
    }

    /// Whether there are frames that no finished sync covers, marks included.
    pub fn has_unsynced_frames(&self) -> bool {
        self.sync_from < self.end
    }

    /// When the next sync may start for those who wait, if it is not in flight. µs.
    pub fn sync_due_us(&self, settings: &LogSettings) -> Option<u64> {
        let waits = self.has_waiting() && self.dirty_bytes > 0;
        let idle = self.in_flight.is_none() && !self.poisoned;
        (waits && idle).then(|| self.last_start_us + settings.sync_interval_min_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentNumber;

    fn at(offset: u32) -> Position {
        Position { segment: SegmentNumber(1), offset }
    }

    #[test]
    fn what_is_appended_during_a_sync_rides_on_the_next() {
        let settings = LogSettings::default();
        let mut commit = Commit::new(at(4096), 0);
        commit.appended(at(5000), 904, 10_000);
        commit.wait(DenseId(0), Offset(1));
        let plan = commit.plan(&settings, 10_000).unwrap();
        assert_eq!(plan, SyncPlan { from: at(4096), to: at(5000), bytes: 904 });
        commit.appended(at(6000), 1000, 10_100);
        commit.wait(DenseId(0), Offset(2));
        assert_eq!(commit.plan(&settings, 20_000), None, "one at a time");
        assert_eq!(commit.done(20_000), [(DenseId(0), Offset(1))]);
        assert_eq!((commit.durable(), commit.unsynced_bytes()), (at(5000), 1000));
        let plan = commit.plan(&settings, 20_000).unwrap();
        assert_eq!((plan.from, plan.to), (at(5000), at(6000)));
    }

    #[test]
    fn without_waiters_syncs_are_lazy() {
        let settings = LogSettings::default();
        let mut commit = Commit::new(at(4096), 0);
        commit.appended(at(5000), 904, 10_000);
        assert_eq!(commit.plan(&settings, 500_000), None);
        assert!(commit.plan(&settings, 1_010_000).is_some());
    }

    #[test]
    fn an_interval_is_kept() {
        let settings = LogSettings { flush_interval_ms: 100, ..LogSettings::default() };
        let mut commit = Commit::new(at(4096), 0);
        commit.appended(at(5000), 904, 10_000);
        commit.start_interval();
        assert_eq!(commit.plan(&settings, 109_000), None);
        assert!(commit.plan(&settings, 110_000).is_some());
        commit.done(111_000);
        commit.appended(at(6000), 1000, 120_000);
        assert_eq!(commit.plan(&settings, 900_000), None, "nobody was promised more");
    }

    #[test]
    fn a_mark_needs_no_sync_but_the_next_sync_covers_it() {
        let settings = LogSettings::default();
        let mut commit = Commit::new(at(4096), 0);
        commit.appended(at(5000), 904, 0);
        commit.start(0);
        commit.done(1000);
        assert!(!commit.mark_is_due(&settings, 100_000));
        assert!(commit.mark_is_due(&settings, 201_000));
        commit.appended(at(8256), 0, 201_000);
        assert!(!commit.mark_is_due(&settings, 900_000), "written once");
        assert_eq!(commit.plan(&settings, 9_000_000), None);
        commit.appended(at(9000), 100, 9_000_000);
        assert_eq!(commit.start(9_000_000).from, at(5000));
    }
}
