//! The timers of a core's requests, all of which a stop ends at once.
//!
//! A long poll waits for news or for its timer. When the broker stops nobody should wait for a
//! minute to be told that there is no news: the alarms ring, and the polls are answered as they
//! are.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

#[derive(Debug, Default)]
struct Set {
    /// Dropping a sender ends its wait.
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
    next: Cell<u64>,
    rung: Cell<bool>,
    /// Waits that are not over.
    open: Cell<usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Alarms(Rc<Set>);

impl Alarms {
    /// Resolves with `timer`, or when the alarms ring.
    pub fn wait<T: Future + Unpin>(&self, timer: T) -> Alarm<T> {
        let (sender, ring) = oneshot::channel();
        let number = self.0.next.replace(self.0.next.get() + 1);
        self.0.open.set(self.0.open.get() + 1);
        if !self.0.rung.get() {
            self.0.waiting.borrow_mut().insert(number, sender);
        }
        Alarm { timer, ring, number, set: self.0.clone() }
    }

    /// Whether any wait has not come to its end, or been dropped.
    pub fn has_waiting(&self) -> bool {
        self.0.open.get() > 0
    }

    /// Ends all waits, and those still to come.
    pub fn ring(&self) {
        self.0.rung.set(true);
        self.0.waiting.borrow_mut().clear();
    }
}

pub(super) struct Alarm<T> {
    timer: T,
    ring: oneshot::Receiver<()>,
    number: u64,
    set: Rc<Set>,
}

impl<T: Future + Unpin> Future for Alarm<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let rung = Pin::new(&mut self.ring).poll(cx).is_ready();
        if rung || Pin::new(&mut self.timer).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<T> Drop for Alarm<T> {
    fn drop(&mut self) {
        self.set.open.set(self.set.open.get() - 1);
        // Taken out before it is dropped: its drop may wake tasks.
        let sender = self.set.waiting.borrow_mut().remove(&self.number);
        drop(sender);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, pending, poll_once, ready};

    #[test]
    fn a_ring_ends_all_waits_and_a_timer_its_own() {
        let alarms = Alarms::default();
        block_on(alarms.wait(Box::pin(ready(()))));
        assert!(alarms.0.waiting.borrow().is_empty(), "nothing is left behind");
        let mut first = alarms.wait(Box::pin(pending::<()>()));
        assert!(block_on(poll_once(&mut first)).is_none());
        assert!(alarms.has_waiting());
        alarms.ring();
        block_on(first);
        assert!(!alarms.has_waiting());
        block_on(alarms.wait(Box::pin(pending::<()>())));
    }
}
