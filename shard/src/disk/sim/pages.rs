//! The set of pages of a file that were written to and not yet made durable.

use std::collections::BTreeSet;

/// The unit in which the simulated kernel keeps a file in its cache and writes it back.
pub const PAGE_BYTES: usize = 4_096;
/// The unit in which a power loss tears a page: what a device writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Page numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    pages: BTreeSet<usize>,
    /// Behind the last page that was ever in the set.
    end: usize,
}

impl Pages {
    /// Adds the pages that hold the bytes `[from, to)`.
    pub fn insert_range(&mut self, from: usize, to: usize) {
        if from < to {
            let end = to.div_ceil(PAGE_BYTES);
            self.pages.extend(from / PAGE_BYTES..end);
            self.end = self.end.max(end);
        }
    }

    /// Removes and returns the pages that hold the bytes `[from, to)`, in order.
    pub fn take_range(&mut self, from: usize, to: usize) -> Vec<usize> {
        if from >= to {
            return Vec::new();
        }
        let pages = from / PAGE_BYTES..to.div_ceil(PAGE_BYTES);
        let taken: Vec<usize> = self.pages.range(pages).copied().collect();
        for page in &taken {
            self.pages.remove(page);
        }
        taken
    }

    /// No byte from here on was ever written.
    pub fn end_byte(&self) -> usize {
        self.end * PAGE_BYTES
    }

    pub fn len(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_pages() {
        let check = |from, to, expect: &[usize]| {
            let mut pages = Pages::default();
            pages.insert_range(from, to);
            assert_eq!(pages.take_range(0, usize::MAX), expect, "{from}..{to}");
        };
        check(0, 0, &[]);
        check(5_000, 5_000, &[]);
        check(0, 1, &[0]);
        check(4_095, 4_097, &[0, 1]);
        check(4_096, 8_192, &[1]);
    }

    #[test]
    fn only_the_pages_of_the_range_are_taken() {
        let mut pages = Pages::default();
        pages.insert_range(0, 5 * PAGE_BYTES);
        assert_eq!(pages.take_range(PAGE_BYTES + 1, 2 * PAGE_BYTES + 1), [1, 2]);
        assert!(pages.take_range(9, 9).is_empty());
        assert_eq!(pages.len(), 3);
    }
}
