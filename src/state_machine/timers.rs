//! Timers as data: which are set and which are due. Time comes in as a number.

use std::collections::{BTreeMap, BTreeSet};

/// The timers of one machine, on a clock in milliseconds that never jumps.
#[derive(Debug)]
pub(super) struct Timers<T> {
    at: BTreeMap<T, u64>,
    order: BTreeSet<(u64, T)>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<T: Clone + Ord> Timers<T> {
    /// Sets a timer, moves it, or ends it.
    pub fn set(&mut self, timer: T, at_ms: Option<u64>) {
        let before = match at_ms {
            Some(at_ms) => self.at.insert(timer.clone(), at_ms),
            None => self.at.remove(&timer),
        };
        let Some(before) = before else {
            if let Some(at_ms) = at_ms {
                self.order.insert((at_ms, timer));
            }
            return;
        };
        let mut entry = (before, timer);
        self.order.remove(&entry);
        if let Some(at_ms) = at_ms {
            entry.0 = at_ms;
            self.order.insert(entry);
        }
    }

    /// When the first timer is due.
    pub fn next(&self) -> Option<u64> {
        self.order.first().map(|(at_ms, _)| *at_ms)
    }

    /// Takes the first timer that is due.
    pub fn take_due(&mut self, now_ms: u64) -> Option<T> {
        if self.next()? > now_ms {
            return None;
        }
        let (_, timer) = self.order.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }

    pub fn clear(&mut self) {
        self.at.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_once_and_where_they_were_moved_to() {
        let mut timers = Timers::default();
        timers.set("b", Some(5));
        timers.set("a", Some(5));
        timers.set("c", Some(1));
        timers.set("c", Some(7));
        timers.set("d", Some(3));
        timers.set("d", None);
        timers.set("e", None);
        assert_eq!(timers.next(), Some(5));
        assert_eq!(timers.take_due(4), None);
        let due: Vec<_> = std::iter::from_fn(|| timers.take_due(6)).collect();
        assert_eq!(due, ["a", "b"]);
        assert_eq!(timers.take_due(7), Some("c"));
        assert_eq!(timers.next(), None);
        timers.set("f", Some(1));
        timers.clear();
        assert_eq!((timers.next(), timers.take_due(9)), (None, None));
    }
}
