//! How much of old history may be in a core's memory on its way to consumers.
//!
//! Records that are not mapped are read into buffers, which live until the last byte has been sent,
//! and consumers that catch up may be many and slow. What all buffers hold together is counted
//! here; a read that would pass the bound is cut short, to a single batch at worst: every consumer
//! goes on, none waits for another.

use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The count of a core. Buffers may be freed on any thread, hence the atomic; it is touched once a
/// read.
#[derive(Debug)]
pub struct ColdBytes {
    held: Arc<AtomicUsize>,
    bytes_max: AtomicUsize,
}

impl Default for ColdBytes {
    fn default() -> ColdBytes {
        ColdBytes { held: Arc::default(), bytes_max: AtomicUsize::new(usize::MAX) }
    }
}

/// Bytes that are counted as long as it lives.
#[derive(Debug)]
pub(super) struct Counted {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Counted {
    /// How much may be read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was read, counted as what it is until it is sent.
    pub fn hold(mut self, data: Bytes) -> Bytes {
        self.held.fetch_add(data.len(), Ordering::Relaxed);
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = data.len();
        Bytes::from_owner(Held { data, _counted: self })
    }
}

struct Held {
    data: Bytes,
    _counted: Counted,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl ColdBytes {
    pub fn set_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Sets room aside for a read of at most `wanted` bytes; there may be less, or none.
    pub(super) fn take(&self, wanted: usize) -> Counted {
        let held = self.held.load(Ordering::Relaxed);
        let room = self.bytes_max.load(Ordering::Relaxed).saturating_sub(held);
        let bytes = wanted.min(room);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Counted { held: self.held.clone(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_others_have_left_and_comes_back() {
        let cold = ColdBytes::default();
        cold.set_max(100);
        let first = cold.take(70);
        assert_eq!(first.bytes(), 70);
        let second = cold.take(70);
        assert_eq!(second.bytes(), 30);
        assert_eq!(cold.take(1).bytes(), 0);
        let data = first.hold(Bytes::from(vec![1; 50]));
        assert_eq!(data.len(), 50);
        let slice = data.slice(10..20);
        drop(data);
        assert_eq!(cold.take(70).bytes(), 20, "a slice keeps all of it");
        drop((slice, second));
        assert_eq!(cold.take(700).bytes(), 100);
    }
}
