//! What a core counts about itself.
//!
//! Written by the core alone, without locks; a copy is put on a board now and then, where the HTTP
//! thread and `basalt stats` find it.

use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::time::Duration;

/// Counts of one core since its start.
pub struct CoreMetrics {
    /// µs the core did not turn its loop.
    stalls: RefCell<Histogram<u64>>,
    /// µs a sync took.
    syncs: RefCell<Histogram<u64>>,
}

impl Default for CoreMetrics {
    fn default() -> CoreMetrics {
        CoreMetrics { stalls: histogram(), syncs: histogram() }
    }
}

/// From 1 µs to 100 s with two digits.
fn histogram() -> RefCell<Histogram<u64>> {
    let histogram = Histogram::new_with_bounds(1, 100_000_000, 2);
    RefCell::new(histogram.expect("these bounds are valid"))
}

fn record(histogram: &RefCell<Histogram<u64>>, took: Duration) {
    histogram.borrow_mut().saturating_record(took.as_micros().max(1) as u64);
}

impl CoreMetrics {
    pub fn synced(&self, took: Duration) {
        record(&self.syncs, took);
    }

    pub fn stalled(&self, time: Duration) {
        record(&self.stalls, time);
    }
}
