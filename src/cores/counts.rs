//! What a core tells of its logs and tables when it is asked for its counts. Changes nothing.

use super::core::Core;
use super::host::Host;
use crate::metrics::{LogCounts, Snapshot, TableCounts};
use std::cell::RefCell;
use std::sync::Arc;

impl Core {
    /// The state of the core's logs.
    pub(super) fn log_counts(&self) -> Vec<LogCounts> {
        let counts = |host: &RefCell<Host>| {
            let host = host.borrow();
            let (segments, bytes) = host.log.size();
            let space = host.log.space_counts();
            LogCounts {
                log: host.id.0,
                segments: segments as u64,
                bytes,
                unsynced_bytes: host.log.unsynced_bytes(),
                relocated_bytes: space.relocated_bytes,
                cleaned_bytes: space.cleaned_bytes,
                kept_bytes: space.kept_bytes,
                failed: host.is_failed(),
            }
        };
        self.hosts.iter().map(counts).collect()
    }

    /// The tables this core keeps.
    pub fn table_counts(&self) -> Arc<[TableCounts]> {
        let (keeper, now) = (self.tables.keeper.borrow(), self.now().wall);
        keeper.counted().map(|counted| counted.at(now)).collect()
    }

    /// Counts of logs and tables that are cheap to have.
    pub fn counts(&self) -> Snapshot {
        Snapshot {
            core: self.id(),
            logs: self.log_counts(),
            waiting_bytes: self.tables.backlog.borrow().bytes(),
            throttle_ms: self.tables.throttle().longest_ms([self.id()].into_iter()).into(),
            lags: self.lags.borrow().clone(),
            table_failures: self.tables.keeper.borrow().failures,
            ..self.metrics.snapshot()
        }
    }
}
