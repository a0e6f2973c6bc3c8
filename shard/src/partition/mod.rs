//! The state of one partition: its offsets, producers, epochs and where its batches lie.
//!
//! Owned by the log that holds the partition; changed by appends, by the commit that follows them
//! and by retention. It holds no batches and does no I/O.

pub mod damage;
pub mod epochs;
pub mod producers;
mod runs;

pub use runs::{Change, Run, RunKind, Runs};

use crate::ids::{LeaderEpoch, Offset, PartitionKey, Position, SegmentNumber};
use crate::log::{BatchEntry, Flush, PartitionSettings, Until};
use epochs::EpochHistory;
use producers::Producers;

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
    high_watermark: Offset,
    log_end: Offset,
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
            high_watermark: Offset(0),
            log_end: Offset(0),
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

    /// The one setter of offsets: log start ≤ high watermark ≤ log end, and none goes back.
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
        self.producers.settle(high_watermark);
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
        self.runs.drop_below(to)
    }

    /// What recovery found out: sets the offsets without comparing them to earlier ones, and hands
    /// back the runs that lie below the log start.
    pub fn restore(&mut self, log_start: Offset, log_end: Offset) -> Vec<Run> {
        assert!(log_start <= log_end);
        self.log_start = log_start;
        self.high_watermark = log_end;
        self.log_end = log_end;
        self.runs.drop_below(log_start)
    }

    /// Where records are not where they should be: what follows the log start lies in runs without
    /// a hole.
    pub fn holes(&self) -> Vec<(Offset, Offset)> {
        let mut at = self.log_start;
        let mut holes = Vec::new();
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
