//! A flag of one core that a task waits for. Setting it many times wakes the task once.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
pub struct Notify {
    set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Notify {
    pub fn notify(&self) {
        if !self.set.replace(true) {
            let waker = self.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Ready once for all notifications so far.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.set.replace(false) {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}
