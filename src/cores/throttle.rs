//! How long producers are held back because tables do not keep up.
//!
//! The last resort: before it the writing of tables has taken precedence over everything else. Each
//! core says for itself, once a second; whoever takes a produce request looks at the owners of its
//! partitions. Numbers that are a second old will do, so nothing waits for anything.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// What each core says.
#[derive(Clone, Debug)]
pub struct Throttle(Arc<[AtomicU32]>);

impl Throttle {
    pub fn new(cores: usize) -> Throttle {
        Throttle((0..cores).map(|_| AtomicU32::new(0)).collect())
    }

    /// Appends to a core's partitions are to wait so long.
    pub(super) fn tell(&self, core: usize, ms: u32) {
        if let Some(told) = self.0.get(core).filter(|told| told.load(Ordering::Relaxed) != ms) {
            told.store(ms, Ordering::Relaxed);
        }
    }

    /// The longest time of some cores.
    pub(super) fn longest_ms(&self, cores: impl Iterator<Item = usize>) -> u32 {
        let of = |core: usize| self.0.get(core).map_or(0, |told| told.load(Ordering::Relaxed));
        cores.map(of).max().unwrap_or(0)
    }
}
