//! What of a core's partitions is in no table file yet, and telling it to the tables' keepers.
//!
//! Looked at once a second, and only at partitions that were appended to since, or had records then
//! that were not decided or not on stable storage. The broker's own topics have no tables.
//!
//! Worked example: 3 MB are appended to a partition; within a second its keeper hears of 3 MB that
//! wait since then. A file takes them in; the new version arrives, and 0 bytes wait.

use crate::cores::ask::Ask;
use crate::cores::core::Core;
use crate::cores::gate::keeper;
use crate::cores::routes::Route;
use rustc_hash::{FxHashMap, FxHashSet};
use shard::ids::Offset;
use shard::log::Pending;
use std::collections::BTreeMap;
use std::rc::Rc;

/// When so many percent of what may wait do, tables that would not be due are written too.
const PRESSED_PERCENT: u64 = 50;
/// As many of the largest at a time.
const PRESSED_PARTITIONS: usize = 8;

/// The most an append is held back.
const THROTTLE_MS_MAX: u32 = 1_000;

/// What waits of one partition.
#[derive(Clone, Copy, Debug)]
pub struct News {
    pub pending: Pending,
    pub log_start: Offset,
    /// The log needs the space it takes.
    pub wants_room: bool,
}

/// What waits of all partitions of a core, as of the last look.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: FxHashMap<Route, u64>,
    bytes: u64,
    /// To be looked at again, whether something is appended or not.
    again: FxHashSet<Route>,
}

impl Backlog {
    /// Bytes of records that are in no file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What waits of a partition has changed, or may have.
    pub fn look_again(&mut self, at: Route) {
        self.again.insert(at);
    }

    /// The partition is gone.
    pub fn forget(&mut self, at: Route) {
        self.bytes -= self.waiting.remove(&at).unwrap_or(0);
        self.again.remove(&at);
    }

    fn note(&mut self, at: Route, bytes: u64) {
        let before = match bytes {
            0 => self.waiting.remove(&at),
            _ => self.waiting.insert(at, bytes),
        };
        self.bytes = self.bytes + bytes - before.unwrap_or(0);
    }

    /// The partitions of which most waits.
    fn largest(&self) -> Vec<Route> {
        let mut all: Vec<(u64, Route)> =
            self.waiting.iter().map(|(at, bytes)| (*bytes, *at)).collect();
        let count = PRESSED_PARTITIONS.min(all.len());
        if count < all.len() {
            all.select_nth_unstable_by(count, |one, other| other.0.cmp(&one.0));
        }
        all.into_iter().take(count).map(|(_, at)| at).collect()
    }
}

impl Core {
    /// Looks at what has come, and tells the keepers.
    pub(super) fn look_at_backlog(self: &Rc<Self>) {
        let mut pressed: FxHashSet<Route> = FxHashSet::default();
        let mut look = {
            let mut backlog = self.tables.backlog.borrow_mut();
            if backlog.bytes >= self.tables.rules.backlog_bytes_max / 100 * PRESSED_PERCENT {
                pressed.extend(backlog.largest());
            }
            std::mem::take(&mut backlog.again)
        };
        for (host, cell) in self.hosts.iter().enumerate() {
            let mut hosted = cell.borrow_mut();
            if !hosted.is_failed() {
                let route = |id| Route { host, id };
                look.extend(hosted.log.take_fresh().into_iter().map(route));
                pressed.extend(hosted.log.wants_room().into_iter().map(route));
            }
        }
        look.extend(&pressed);
        let mut news: BTreeMap<usize, Vec<News>> = BTreeMap::new();
        let image = self.image();
        for at in look {
            let Some((pending, log_start)) = self.look_at(at) else { continue };
            if let Some(topic) = image.of_any_view(pending.key.topic) {
                let wants_room = pressed.contains(&at);
                let items = news.entry(keeper(topic, self.cores())).or_default();
                items.push(News { pending, log_start, wants_room });
            }
        }
        self.tables.throttle.tell(self.id(), self.throttle_due_ms());
        for (core, items) in news {
            match core == self.id() {
                true => self.hear(items),
                false => self.send(core, Ask::News { items }),
            }
        }
    }

    /// How long producers of this core are to be held back: the longer the more waits, a second at
    /// twice what may.
    fn throttle_due_ms(&self) -> u32 {
        let bytes_max = self.tables.rules.backlog_bytes_max;
        let over = self.tables.backlog.borrow().bytes().saturating_sub(bytes_max);
        let ms = u128::from(over) * u128::from(THROTTLE_MS_MAX) / u128::from(bytes_max.max(1));
        u32::try_from(ms).map_or(THROTTLE_MS_MAX, |ms| ms.min(THROTTLE_MS_MAX))
    }

    /// What waits of one partition; notes it.
    fn look_at(&self, at: Route) -> Option<(Pending, Offset)> {
        let host = self.hosts.get(at.host)?.borrow();
        let pending = host.log.pending(at.id).filter(|_| !host.is_failed())?;
        let offsets = host.log.offsets(at.id)?;
        let mut backlog = self.tables.backlog.borrow_mut();
        backlog.note(at, pending.bytes);
        if pending.until < offsets.log_end {
            // Not decided or not durable: nothing will tell when it is.
            backlog.look_again(at);
        }
        Some((pending, offsets.log_start))
    }

    /// Takes what a core tells of partitions whose tables this one keeps.
    pub(in crate::cores) fn hear(&self, items: Vec<News>) {
        let image = self.image();
        let mut keeper = self.tables.keeper.borrow_mut();
        for news in items {
            let key = news.pending.key;
            if let Some(topic) = image.of_any_view(key.topic) {
                keeper.hear(topic, news, self.now().wall);
            }
        }
        drop(keeper);
        self.tables.due.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::ids::DenseId;

    #[test]
    fn what_waits_is_counted_once_and_the_largest_are_found() {
        let at = |id: u32| Route { host: 0, id: DenseId(id) };
        let mut backlog = Backlog::default();
        for id in 0..20 {
            backlog.note(at(id), 1 + u64::from(id));
        }
        assert_eq!(backlog.bytes(), 210);
        backlog.note(at(19), 0);
        backlog.note(at(3), 100);
        backlog.forget(at(0));
        assert_eq!(backlog.bytes(), 210 - 20 + 96 - 1);
        let mut largest: Vec<u32> = backlog.largest().iter().map(|at| at.id.0).collect();
        largest.sort_unstable();
        assert_eq!(largest, [3, 12, 13, 14, 15, 16, 17, 18]);
        (1..20).for_each(|id| backlog.forget(at(id)));
        assert_eq!(backlog.bytes(), 0);
        assert!(backlog.largest().is_empty());
    }
}
