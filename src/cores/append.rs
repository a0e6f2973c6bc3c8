//! The appends of one request on one core: which have their place, which wait for the commit.
//!
//! A group is made by the owner for its own connection or for another core, and answered at once,
//! or later by the log's host as batches land, commit, time out or fail. It holds no log.

use super::ask::AppendAnswer;
use super::front::{AppendRefusal, AppendWait};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Who is told when a group is done.
#[derive(Debug)]
enum Teller {
    /// A future of this core.
    Task(Option<Waker>),
    /// Another core.
    Remote(Option<oneshot::Sender<Vec<AppendAnswer>>>),
}

#[derive(Debug)]
pub(super) struct Group {
    answers: RefCell<Vec<Option<AppendAnswer>>>,
    /// Items that wait for a busy log.
    unplaced: Cell<usize>,
    /// Items without their final answer, the unplaced ones among them.
    open: Cell<usize>,
    waits_for_commit: bool,
    /// When waiting for the commit ends, on the core's clock.
    pub deadline_us: u64,
    teller: RefCell<Teller>,
}

impl Group {
    pub fn new(
        count: usize,
        wait: AppendWait,
        now_us: u64,
        remote: Option<oneshot::Sender<Vec<AppendAnswer>>>,
    ) -> Rc<Group> {
        let (waits_for_commit, deadline_us) = match wait {
            AppendWait::Appended => (false, u64::MAX),
            AppendWait::Committed { timeout_ms } => {
                (true, now_us.saturating_add(timeout_ms.saturating_mul(1000)))
            }
        };
        let teller = match remote {
            Some(sender) => Teller::Remote(Some(sender)),
            None => Teller::Task(None),
        };
        Rc::new(Group {
            answers: RefCell::new(vec![None; count]),
            unplaced: Cell::new(count),
            open: Cell::new(count),
            waits_for_commit,
            deadline_us,
            teller: RefCell::new(teller),
        })
    }

    /// Whether a batch that is not committed yet keeps the group waiting.
    pub fn waits_for_commit(&self) -> bool {
        self.waits_for_commit
    }

    /// An item has its place, and `committed` or not, or was refused.
    pub fn place(&self, index: usize, answer: AppendAnswer, committed: bool) {
        let last = committed || answer.is_err() || !self.waits_for_commit;
        self.answers.borrow_mut()[index] = Some(answer);
        self.unplaced.set(self.unplaced.get() - 1);
        self.open.set(self.open.get() - usize::from(last));
        if self.is_placed() {
            self.tell();
        }
    }

    /// A placed item has committed.
    pub fn commit(&self) {
        self.close_one();
    }

    /// A placed item will not commit, or not in time.
    pub fn fail(&self, index: usize, refusal: AppendRefusal) {
        self.answers.borrow_mut()[index] = Some(Err(refusal));
        self.close_one();
    }

    fn close_one(&self) {
        self.open.set(self.open.get() - 1);
        if self.is_done() {
            self.tell();
        }
    }

    fn tell(&self) {
        let done = self.open.get() == 0;
        match &mut *self.teller.borrow_mut() {
            Teller::Task(waker) => {
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Teller::Remote(sender) if done => {
                if let Some(sender) = sender.take() {
                    // An asker that is gone needs no answer.
                    let _ = sender.send(self.take());
                }
            }
            Teller::Remote(_) => {}
        }
    }

    /// Whether all items have their place or were refused.
    pub fn is_placed(&self) -> bool {
        self.unplaced.get() == 0
    }

    pub fn is_done(&self) -> bool {
        self.open.get() == 0
    }

    /// Whether no item has been refused so far.
    pub fn all_landed(&self) -> bool {
        self.answers.borrow().iter().flatten().all(Result::is_ok)
    }

    /// Ready when `reached` holds.
    pub fn poll(&self, reached: impl Fn(&Group) -> bool, cx: &Context<'_>) -> Poll<()> {
        if reached(self) {
            return Poll::Ready(());
        }
        if let Teller::Task(waker) = &mut *self.teller.borrow_mut() {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        Poll::Pending
    }

    /// The answers of a group that is done.
    pub fn take(&self) -> Vec<AppendAnswer> {
        let answers = std::mem::take(&mut *self.answers.borrow_mut());
        answers.into_iter().map(|answer| answer.expect("every item is answered")).collect()
    }
}
