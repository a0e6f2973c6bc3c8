//! The set of pages of a file that were written to and not yet made durable.

use std::collections::BTreeSet;

/// The unit in which the simulated kernel keeps a file in its cache.
pub const PAGE_BYTES: usize = 4_096;

/// Page numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages(BTreeSet<usize>);

impl Pages {
    /// Adds the pages that hold the bytes `[from, to)`.
    pub fn insert_range(&mut self, from: usize, to: usize) {
        if from < to {
            self.0.extend(from / PAGE_BYTES..to.div_ceil(PAGE_BYTES));
        }
    }

    /// Removes and returns the pages that hold the bytes `[from, to)`, in order.
    pub fn take_range(&mut self, from: usize, to: usize) -> Vec<usize> {
        if from >= to {
            return Vec::new();
        }
        let pages = from / PAGE_BYTES..to.div_ceil(PAGE_BYTES);
        let taken: Vec<usize> = self.0.range(pages).copied().collect();
        for page in &taken {
            self.0.remove(page);
        }
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
