//! Whether the peer does its part: sends the rest of a request, takes its answers.
//!
//! One watch over each direction of a connection. A peer that owes something has to move some bytes
//! in every stretch of `stalled_ms`; a byte now and then, which would keep a connection and what it
//! holds for ever, is not enough. Time is that of the sweep, which also looks at the watches.

use std::cell::Cell;

/// Bytes that count as progress within a stretch, if they do not bring the end anyway.
pub const PROGRESS_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
pub struct Progress {
    /// Since when the stretch runs; nothing is owed without.
    since_ms: Cell<Option<u64>>,
    bytes: Cell<u64>,
}

impl Progress {
    /// The peer owes something from now on. Whether it did not before.
    pub fn owed(&self, now_ms: u64) -> bool {
        let begins = self.since_ms.get().is_none();
        if begins {
            self.bytes.set(0);
            self.since_ms.set(Some(now_ms));
        }
        begins
    }

    /// When the stretch is over that runs.
    pub fn due_ms(&self, stalled_ms: u64) -> Option<u64> {
        self.since_ms.get().map(|since_ms| since_ms.saturating_add(stalled_ms))
    }

    /// Nothing is owed, or not by the peer.
    pub fn settled(&self) {
        self.since_ms.set(None);
    }

    pub fn moved(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes as u64));
    }

    /// Whether the peer has let a whole stretch pass. Begins the next one if it has not.
    pub fn is_stalled(&self, now_ms: u64, stalled_ms: u64) -> bool {
        let Some(since_ms) = self.since_ms.get() else { return false };
        if now_ms.saturating_sub(since_ms) <= stalled_ms {
            return false;
        }
        let moved = self.bytes.replace(0);
        self.since_ms.set(Some(now_ms));
        moved < PROGRESS_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_a_stall_and_a_slow_stream_is_none() {
        let progress = Progress::default();
        assert!(!progress.is_stalled(1_000_000, 10), "nothing is owed");
        progress.owed(100);
        progress.moved(PROGRESS_BYTES as usize - 1);
        assert!(!progress.is_stalled(110, 10));
        assert!(progress.is_stalled(111, 10));
        progress.moved(PROGRESS_BYTES as usize);
        assert!(!progress.is_stalled(122, 10), "a stretch with progress");
        progress.owed(130);
        assert!(progress.is_stalled(133, 10), "owing more begins nothing anew");
        progress.settled();
        assert!(!progress.is_stalled(1_000_000, 10));
        progress.moved(1_000_000);
        progress.owed(1_000_000);
        assert!(progress.is_stalled(1_000_011, 10), "what moved before does not count");
    }
}
