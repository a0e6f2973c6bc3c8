//! Readers that wait for a partition to grow.
//!
//! One watcher serves a whole long poll, however many partitions it names, and is woken once. What
//! nobody waits for any more is dropped when its list is about to grow.

use futures_channel::oneshot;
use rustc_hash::FxHashMap;
use shard::ids::{DenseId, Offset};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
enum Teller {
    Task(Option<Waker>),
    Remote(Option<oneshot::Sender<()>>),
}

/// One long poll's watch over partitions of this core.
#[derive(Debug)]
pub(super) struct Watcher {
    fired: Cell<bool>,
    teller: RefCell<Teller>,
}

impl Watcher {
    pub fn new(remote: Option<oneshot::Sender<()>>) -> Rc<Watcher> {
        let teller = match remote {
            Some(sender) => Teller::Remote(Some(sender)),
            None => Teller::Task(None),
        };
        Rc::new(Watcher { fired: Cell::new(false), teller: RefCell::new(teller) })
    }

    pub fn fire(&self) {
        if self.fired.replace(true) {
            return;
        }
        match &mut *self.teller.borrow_mut() {
            Teller::Task(waker) => {
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Teller::Remote(sender) => {
                if let Some(sender) = sender.take() {
                    let _ = sender.send(());
                }
            }
        }
    }

    pub fn has_fired(&self) -> bool {
        self.fired.get()
    }

    fn is_awaited(&self) -> bool {
        let given_up = match &*self.teller.borrow() {
            // A future that is dropped counts as woken.
            Teller::Task(_) => false,
            Teller::Remote(sender) => sender.as_ref().is_none_or(|sender| sender.is_canceled()),
        };
        !self.fired.get() && !given_up
    }
}

/// Those who wait for partitions of one log.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    lists: FxHashMap<DenseId, Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    watcher: Rc<Watcher>,
    seen: Offset,
}

impl Watchers {
    pub fn add(&mut self, id: DenseId, watcher: &Rc<Watcher>, seen: Offset) {
        let list = self.lists.entry(id).or_default();
        if list.len() == list.capacity() {
            list.retain(|waiting| waiting.watcher.is_awaited());
        }
        list.push(Waiting { watcher: watcher.clone(), seen });
    }

    /// Wakes those who have seen less than `end`.
    pub fn grown(&mut self, id: DenseId, end: Offset) {
        let Some(list) = self.lists.get_mut(&id) else { return };
        list.retain(|waiting| {
            let stays = waiting.seen >= end;
            if !stays {
                waiting.watcher.fire();
            }
            stays
        });
        if list.is_empty() {
            self.lists.remove(&id);
        }
    }

    /// Wakes all who wait for a partition that is gone.
    pub fn gone(&mut self, id: DenseId) {
        let list = self.lists.remove(&id).unwrap_or_default();
        list.iter().for_each(|waiting| waiting.watcher.fire());
    }

    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// Resolves when any of the watchers of a long poll has fired.
#[derive(Debug)]
pub(super) struct Watch {
    pub local: Option<Rc<Watcher>>,
    pub remote: Vec<oneshot::Receiver<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(watcher) = &self.local {
            watcher.fired.set(true);
        }
    }
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(watcher) = &self.local {
            if watcher.has_fired() {
                return Poll::Ready(());
            }
            *watcher.teller.borrow_mut() = Teller::Task(Some(cx.waker().clone()));
        }
        // A core that is gone fires too: the asker then reads again and learns of it.
        let fired = self.remote.iter_mut().any(|end| Pin::new(end).poll(cx).is_ready());
        if fired {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn growth_wakes_those_who_have_seen_less() {
        let mut watchers = Watchers::default();
        let behind = Watcher::new(None);
        let ahead = Watcher::new(None);
        watchers.add(DenseId(1), &behind, Offset(4));
        watchers.add(DenseId(1), &ahead, Offset(5));
        let mut watch = Watch { local: Some(behind), remote: vec![] };
        assert!(block_on(poll_once(&mut watch)).is_none());
        watchers.grown(DenseId(1), Offset(5));
        assert!(block_on(poll_once(&mut watch)).is_some());
        assert!(!ahead.has_fired());
        watchers.gone(DenseId(1));
        assert!(ahead.has_fired() && watchers.is_empty());
    }

    #[test]
    fn long_polls_that_gave_up_do_not_pile_up() {
        let mut watchers = Watchers::default();
        for _ in 0..10_000 {
            let watcher = Watcher::new(None);
            watchers.add(DenseId(1), &watcher, Offset(0));
            let mut watch = Watch { local: Some(watcher), remote: vec![] };
            assert!(block_on(poll_once(&mut watch)).is_none());
            let (reply, cancelled) = oneshot::channel();
            watchers.add(DenseId(1), &Watcher::new(Some(reply)), Offset(0));
            drop(cancelled);
        }
        assert!(watchers.lists[&DenseId(1)].len() <= 16);
    }
}
