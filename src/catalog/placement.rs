//! Chooses the log of each new partition: the one with the fewest partitions, then the lowest.
//!
//! The choice is stored in the topic's record and never derived again: logs are not cores, and
//! their number may change.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Places `partitions` new partitions on `logs`, given how many partitions each log has.
///
/// # Panics
/// When there is no log.
pub fn place(partitions: usize, logs: &[u32], load: &BTreeMap<u32, usize>) -> Vec<u32> {
    assert!(!logs.is_empty(), "a broker has a log");
    let loaded = |log: &u32| Reverse((load.get(log).copied().unwrap_or(0), *log));
    let mut least: BinaryHeap<_> = logs.iter().map(loaded).collect();
    let mut placed = Vec::with_capacity(partitions);
    while placed.len() < partitions {
        if let Some(mut top) = least.peek_mut() {
            let Reverse((count, log)) = &mut *top;
            placed.push(*log);
            *count += 1;
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_log_is_next() {
        let load = |counts: &[(u32, usize)]| counts.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(place(4, &[0, 1], &load(&[])), [0, 1, 0, 1]);
        assert_eq!(place(3, &[0, 1], &load(&[(0, 2)])), [1, 1, 0]);
        assert_eq!(place(2, &[5], &load(&[(5, 9)])), [5, 5]);
        assert_eq!(place(0, &[0], &load(&[])), [0u32; 0]);
    }
}
