//! What a core tells of its logs when it is asked for its counts. Changes nothing.

use super::core::Core;
use super::host::Host;
use crate::metrics::LogCounts;
use std::cell::RefCell;

impl Core {
    /// The state of the core's logs.
    pub fn log_counts(&self) -> Vec<LogCounts> {
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
}
