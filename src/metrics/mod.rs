//! What a core counts about itself, and the text in which it is told.
//!
//! Written by the core alone, without locks. Once a second the core puts a copy on its board, where
//! the HTTP thread finds it; nothing on the data path ever waits for a reader.

mod text;

pub use text::prometheus;

use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Times of one core since its start, in µs.
pub struct CoreMetrics {
    stalls: RefCell<Histogram<u64>>,
    syncs: RefCell<Histogram<u64>>,
    slices: RefCell<Histogram<u64>>,
}

/// From 1 µs to 100 s with two digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000, 2).expect("these bounds are valid")
}

impl Default for CoreMetrics {
    fn default() -> CoreMetrics {
        CoreMetrics {
            stalls: RefCell::new(histogram()),
            syncs: RefCell::new(histogram()),
            slices: RefCell::new(histogram()),
        }
    }
}

fn record(histogram: &RefCell<Histogram<u64>>, took: Duration) {
    histogram.borrow_mut().saturating_record(took.as_micros().max(1) as u64);
}

impl CoreMetrics {
    /// A sync came back after this time.
    pub fn synced(&self, took: Duration) {
        record(&self.syncs, took);
    }

    /// A look after a log in which it relocated or compacted something took this time.
    pub fn moved(&self, took: Duration) {
        record(&self.slices, took);
    }

    /// The core turned its loop this much later than it meant to.
    pub fn stalled(&self, time: Duration) {
        record(&self.stalls, time);
    }

    /// A snapshot with the times filled in.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            stalls: Times::of(&self.stalls.borrow()),
            syncs: Times::of(&self.syncs.borrow()),
            slices: Times::of(&self.slices.borrow()),
            ..Snapshot::default()
        }
    }
}

/// How times were spread. µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub sum_us: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Times {
        let count = histogram.len();
        Times {
            count,
            sum_us: (histogram.mean() * count as f64) as u64,
            p50_us: histogram.value_at_quantile(0.5),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// The state of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    pub log: u32,
    pub segments: u64,
    pub bytes: u64,
    pub unsynced_bytes: u64,
    /// Stored to empty segments, gone through by compaction, and left by it.
    pub relocated_bytes: u64,
    pub cleaned_bytes: u64,
    pub kept_bytes: u64,
    pub failed: bool,
}

/// How far a group is behind in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLag {
    pub group: Arc<str>,
    pub topic: Arc<str>,
    /// Of all partitions it has committed offsets of.
    pub records: u64,
}

/// The table of a topic, told by the core that keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCounts {
    pub topic: Arc<str>,
    pub files: u64,
    /// Of the files.
    pub bytes: u64,
    pub rows: u64,
    /// Records that are in no file yet, and how long the oldest has been waiting.
    pub waiting_bytes: u64,
    pub waiting_ms: u64,
    /// Tries to write it that failed since the last that did not.
    pub failing: u64,
}

/// Everything a core tells of itself, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub core: usize,
    pub connections: u64,
    pub accepted: u64,
    pub refused: u64,
    /// Closed because the peer was silent, idle or made no progress.
    pub overdue: u64,
    /// Connections come from and gone to other cores.
    pub moved_in: u64,
    pub moved_out: u64,
    /// Requests, partly received ones included, and unsent answers.
    pub held_bytes: u64,
    /// Requests without an answer.
    pub pending: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// By API.
    pub requests: Vec<(&'static str, u64)>,
    pub logs: Vec<LogCounts>,
    pub tables: Arc<[TableCounts]>,
    /// Records of this core's partitions that are in no table file yet.
    pub waiting_bytes: u64,
    /// How long produces to its partitions are held back for their sake.
    pub throttle_ms: u64,
    /// Tries to write a table that failed.
    pub table_failures: u64,
    /// Of the coordinators on this core.
    pub groups: u64,
    pub group_members: u64,
    pub committed_offsets: u64,
    pub lags: Arc<[GroupLag]>,
    pub stalls: Times,
    pub syncs: Times,
    pub slices: Times,
}

/// Where a core puts its latest snapshot for threads that are no cores.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Snapshot>>);

impl Board {
    pub fn put(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    pub fn get(&self) -> Snapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
