//! The state of one partition: its offsets, producers, epochs and where its batches lie.
//!
//! Owned by the log that holds the partition; changed by appends, by the commit that follows them,
//! by retention and by what is written of its table. It holds no batches and does no I/O.
//!
//! log start ≤ hot start ≤ table end ≤ high watermark ≤ log end: below the table end everything is
//! in files of the table, from the hot start on everything is in the log. Between them it is in
//! both. Without a table the first three are one.

pub mod arrivals;
pub mod damage;
pub mod epochs;
pub mod producers;
mod runs;

pub use runs::{Change, Run, RunKind, Runs};

use crate::ids::{LeaderEpoch, Offset, PartitionKey, Position, SegmentNumber};
use crate::log::{BatchEntry, Flush, PartitionSettings, Until};
use crate::table::Version;
use arrivals::Arrivals;
use epochs::EpochHistory;
use producers::Producers;
use std::sync::Arc;

/// Where a partition stands, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    pub log_start: Offset,
    /// The offset after the last open-transaction-free committed record.
    pub last_stable: Offset,
    /// Consumers see nothing at or above it.
    pub high_watermark: Offset,
    pub log_end: Offset,
    pub leader_epoch: LeaderEpoch,
}

impl Offsets {
    /// The offset below which such a reader sees everything.
    pub fn end(&self, until: Until) -> Offset {
        match until {
            Until::HighWatermark => self.high_watermark,
            Until::LastStable => self.last_stable,
        }
    }
}

#[derive(Debug)]
pub struct Partition {
    pub key: PartitionKey,
    pub settings: PartitionSettings,
    log_start: Offset,
    hot_start: Offset,
    table_end: Offset,
    high_watermark: Offset,
    log_end: Offset,
    /// The table as it is in force; `None` as long as nothing was said of it.
    pub table: Option<Arc<Version>>,
    /// Since when there is something that is in no table.
    pub arrivals: Arrivals,
    /// Appended to since the log was asked last.
    pub fresh: bool,
    /// End of the last frame of this partition.
    pub last_position: Position,
    pub producers: Producers,
    pub epochs: EpochHistory,
    /// Where its batches lie.
    pub runs: Runs,
    /// Changed since the last checkpoint took it.
    pub touched: bool,
}

impl Partition {
    pub fn new(key: PartitionKey, settings: PartitionSettings) -> Partition {
        Partition {
            key,
            settings,
            log_start: Offset(0),
            hot_start: Offset(0),
            table_end: Offset(0),
            high_watermark: Offset(0),
            log_end: Offset(0),
            table: None,
            arrivals: Arrivals::default(),
            fresh: false,
            last_position: Position::default(),
            producers: Producers::default(),
            epochs: EpochHistory::default(),
            runs: Runs::default(),
            touched: false,
        }
    }

    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// From here on the batches are in the log.
    pub fn hot_start(&self) -> Offset {
        self.hot_start
    }

    /// Below it everything is in the table.
    pub fn table_end(&self) -> Offset {
        self.table_end
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    /// The end of what a reader of committed transactions may see.
    pub fn last_stable(&self) -> Offset {
        let undecided = self.producers.first_undecided(self.high_watermark);
        undecided.map_or(self.high_watermark, |first| first.min(self.high_watermark))
    }

    /// The one setter of the offsets of the log: log start ≤ high watermark ≤ log end, and none
    /// goes back. A log start takes hot start and table end along.
    pub fn advance(&mut self, log_start: Offset, high_watermark: Offset, log_end: Offset) {
        assert!(
            log_start <= high_watermark && high_watermark <= log_end,
            "{}: log start {log_start}, high watermark {high_watermark}, log end {log_end}",
            self.key
        );
        assert!(
            log_start >= self.log_start
                && high_watermark >= self.high_watermark
                && log_end >= self.log_end,
            "{}: an offset goes back from {}, {}, {} to {log_start}, {high_watermark}, {log_end}",
            self.key,
            self.log_start,
            self.high_watermark,
            self.log_end,
        );
        self.log_start = log_start;
        self.high_watermark = high_watermark;
        self.log_end = log_end;
        self.hot_start = self.hot_start.max(log_start);
        self.table_end = self.table_end.max(log_start);
        self.producers.settle(high_watermark);
    }

    /// The one setter of the offsets of the table: hot start ≤ table end ≤ high watermark, and none
    /// goes back. Hands back the runs that the log lets go of.
    pub fn advance_table(&mut self, hot_start: Offset, table_end: Offset) -> Vec<Run> {
        assert!(
            self.hot_start <= hot_start
                && hot_start <= table_end
                && self.table_end <= table_end
                && table_end <= self.high_watermark,
            "{}: hot start {hot_start} after {}, table end {table_end} after {}, high watermark {}",
            self.key,
            self.hot_start,
            self.table_end,
            self.high_watermark,
        );
        self.hot_start = hot_start;
        self.table_end = table_end;
        self.arrivals.settle(table_end, self.log_end);
        self.runs.drop_below(hot_start)
    }

    /// A batch now lies in `segment`: the log end moves behind it, and under a flush policy that
    /// does not wait so does the high watermark.
    /// True when it is the partition's first batch in that segment.
    pub fn extend(&mut self, segment: SegmentNumber, entry: &BatchEntry) -> bool {
        let end = entry.end();
        let visible = match self.settings.flush {
            Flush::Commit => self.high_watermark,
            Flush::Interval | Flush::Os => end,
        };
        self.advance(self.log_start, visible, end);
        self.runs.append(segment, entry)
    }

    /// Everything below `end` is committed.
    pub fn commit(&mut self, end: Offset) -> bool {
        let moved = end > self.high_watermark;
        if moved {
            self.advance(self.log_start, end, self.log_end);
        }
        moved
    }

    /// Raises the log start; the runs wholly below it are handed back.
    pub fn raise_log_start(&mut self, to: Offset) -> Vec<Run> {
        assert!(to <= self.log_end, "log start past the end");
        self.advance(to, self.high_watermark.max(to), self.log_end);
        self.epochs.truncate_start(to);
        self.arrivals.settle(self.table_end, self.log_end);
        self.runs.drop_below(self.hot_start)
    }

    /// What recovery found out before anything is known of a table: sets the offsets without
    /// comparing them to earlier ones, but for the hot start, and hands back the runs below it.
    pub fn restore(&mut self, log_start: Offset, log_end: Offset) -> Vec<Run> {
        assert!(log_start <= log_end && self.table.is_none());
        self.log_start = log_start;
        self.hot_start = self.hot_start.max(log_start);
        // A log that lost its end lost less than what is in the table.
        self.log_end = log_end.max(self.hot_start);
        self.table_end = self.hot_start;
        self.high_watermark = self.log_end;
        self.runs.drop_below(self.hot_start)
    }

    /// What a checkpoint says the log has let go of.
    pub fn restore_hot_start(&mut self, hot_start: Offset) {
        assert!(self.log_start <= hot_start && hot_start <= self.log_end);
        self.hot_start = hot_start;
        self.table_end = hot_start;
    }

    /// Where the partition can be hot from if what is below `least` goes: not in the middle of what
    /// compaction has cleaned in the log. A mark it dropped there may have deleted what the table
    /// still has below.
    pub fn hot_start_behind(&self, least: Offset) -> Offset {
        self.hot_start.max(least).max(self.cleaned_end())
    }

    /// Where what compaction has looked at ends.
    pub fn cleaned_end(&self) -> Offset {
        let is_cleaned = |run: &&Run| matches!(run.kind, RunKind::Cleaned | RunKind::Gap);
        self.runs.iter().rfind(is_cleaned).map_or(self.log_start, |run| run.end)
    }

    /// Where records are not where they should be: what follows the hot start lies in runs without
    /// a hole, what is before it is in the table.
    pub fn holes(&self) -> Vec<(Offset, Offset)> {
        let table_end = self.table.as_ref().and_then(|t| t.table_end(self.key.partition));
        let mut at = table_end.unwrap_or(self.log_start).clamp(self.log_start, self.hot_start);
        let mut holes = Vec::new();
        if at < self.hot_start {
            holes.push((at, self.hot_start));
        }
        at = self.hot_start;
        for run in self.runs.iter() {
            if run.base > at {
                holes.push((at, run.base));
            }
            at = at.max(run.end);
        }
        if at < self.log_end {
            holes.push((at, self.log_end));
        }
        holes
    }

    pub fn offsets(&self, leader_epoch: LeaderEpoch) -> Offsets {
        Offsets {
            log_start: self.log_start,
            last_stable: self.last_stable(),
            high_watermark: self.high_watermark,
            log_end: self.log_end,
            leader_epoch,
        }
    }
}
