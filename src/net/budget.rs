//! What the connections of a core may hold in memory, and who may receive when that is used up.
//!
//! Three kinds of bytes are held: received and not yet a whole request (the buffer they are in),
//! requests without an answer, answers not sent. A connection beyond its own budget is not read,
//! but for one request at a time. Of the core's budget one half is for whoever comes first, the
//! other is split evenly: however much some connections hold, each has its share, so peers that do
//! not take their answers stop only themselves. With a request larger than the share, and nothing
//! else, a connection may go on alone: the *reserve* belongs to one connection at a time, until its
//! request is answered. All others wait in line. So the core holds at most its budget and one
//! request, and no request waits for ever.
//!
//! Example: of 512 MiB, 256 are free for all. With 1,000 connections a share is 256 KiB: when the
//! first half is used up, requests of up to that size go on as before, larger ones one by one.
//!
//! Gap: what a request decodes to is counted nowhere. What workers read for an answer that is not
//! made yet has a bound of its own, in `cores::cold`.

use super::frame::READ_BYTES_MIN;
use super::live::{Control, Limits};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// What one connection or all of a core hold now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests without an answer.
    pub pending: usize,
    /// Buffers with bytes that are not a request yet.
    pub input_bytes: usize,
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

impl Held {
    pub fn bytes(&self) -> usize {
        self.input_bytes + self.request_bytes + self.reply_bytes
    }

    /// Whether nothing but the request that is being received is held.
    fn is_bare(&self) -> bool {
        self.pending == 0 && self.reply_bytes == 0
    }

    fn subtract(&mut self, other: Held) {
        self.pending -= other.pending;
        self.input_bytes -= other.input_bytes;
        self.request_bytes -= other.request_bytes;
        self.reply_bytes -= other.reply_bytes;
    }
}

/// Who has the reserve, and since when on the clock of the sweep.
#[derive(Clone, Copy, Debug)]
struct Reserve {
    id: u64,
    since_ms: u64,
}

/// What all connections of a core hold, and the line of those that wait.
#[derive(Debug, Default)]
pub struct Budget {
    held: Cell<Held>,
    connections: Cell<usize>,
    /// As of the last sweep.
    now_ms: Cell<u64>,
    reserve: Cell<Option<Reserve>>,
    waiting: RefCell<VecDeque<Rc<Control>>>,
}

impl Budget {
    pub fn held(&self) -> Held {
        self.held.get()
    }

    pub fn joined(&self) {
        self.connections.set(self.connections.get() + 1);
    }

    /// A connection is gone with all it held.
    pub fn left(&self, control: &Control, limits: &Limits) {
        self.connections.set(self.connections.get().saturating_sub(1));
        let own = control.held.get();
        self.change(control, limits, |held| held.subtract(own));
        self.waiting.borrow_mut().retain(|waiting| waiting.id != control.id);
        self.release(control, limits);
    }

    /// Changes what a connection holds, and the total with it.
    pub fn change(&self, control: &Control, limits: &Limits, change: impl Fn(&mut Held)) {
        let before = self.held.get().bytes();
        for held in [&self.held, &control.held] {
            let mut changed = held.get();
            change(&mut changed);
            held.set(changed);
        }
        if self.held.get().bytes() < before {
            self.make_way(limits);
        }
    }

    /// Whether a connection may take a request that has been received.
    pub fn may_take(&self, control: &Control, limits: &Limits) -> bool {
        let own = control.held.get();
        own.is_bare() || within_own(own, limits) && self.is_open(own, limits)
    }

    /// Whether a connection may receive. One that may not is woken when that has changed.
    pub fn may_receive(&self, control: &Rc<Control>, limits: &Limits) -> bool {
        let own = control.held.get();
        if !own.is_bare() && !within_own(own, limits) {
            // Its own answers will wake it.
            return false;
        }
        if self.is_open(own, limits) {
            return true;
        }
        match self.reserve.get() {
            Some(reserve) if reserve.id == control.id => return own.is_bare(),
            None if own.is_bare() => {
                let since_ms = self.now_ms.get();
                self.reserve.set(Some(Reserve { id: control.id, since_ms }));
                return true;
            }
            _ => {}
        }
        if !control.queued.replace(true) {
            self.waiting.borrow_mut().push_back(control.clone());
        }
        false
    }

    /// The request a connection has received by the reserve, if it did, is answered.
    pub fn release(&self, control: &Control, limits: &Limits) {
        if self.reserve.get().is_some_and(|reserve| reserve.id == control.id) {
            self.reserve.set(None);
            self.make_way(limits);
        }
    }

    /// The connection that has had the reserve for longer than a peer may take for anything.
    pub fn overstays(&self, limits: &Limits, now_ms: u64) -> Option<u64> {
        let reserve = self.reserve.get()?;
        let waited_ms = now_ms.saturating_sub(reserve.since_ms);
        (waited_ms > limits.stalled_ms).then_some(reserve.id)
    }

    /// Looks after those in line whose share has grown without anyone letting go of bytes.
    pub fn sweep(&self, limits: &Limits, now_ms: u64) {
        self.now_ms.set(now_ms);
        let open = |control: &Rc<Control>| self.is_open(control.held.get(), limits);
        let woken: VecDeque<_> = {
            let mut waiting = self.waiting.borrow_mut();
            let (woken, stay) = waiting.drain(..).partition(open);
            *waiting = stay;
            woken
        };
        woken.into_iter().for_each(wake);
        self.make_way(limits);
    }

    /// Whether the core's budget allows a connection that holds this much to hold more.
    fn is_open(&self, own: Held, limits: &Limits) -> bool {
        let half = limits.core_held_bytes_max / 2;
        let share = half / self.connections.get().max(1);
        self.held.get().bytes() < half || own.bytes() < share
    }

    /// Wakes those at the head of the line for whom there is room now, or gives one the reserve.
    fn make_way(&self, limits: &Limits) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let room = (limits.core_held_bytes_max / 2).saturating_sub(self.held.get().bytes());
        // As many as could fill the room: what one of them leaves is for the next change.
        for _ in 0..room.div_ceil(READ_BYTES_MIN) {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(next) = next else { return };
            wake(next);
        }
        if room == 0 && self.reserve.get().is_none() {
            let mut waiting = self.waiting.borrow_mut();
            let bare = waiting.iter().position(|waiting| waiting.held.get().is_bare());
            // Given here and not taken when it runs: others would take it in between, again and
            // again.
            if let Some(next) = bare.and_then(|at| waiting.remove(at)) {
                self.reserve.set(Some(Reserve { id: next.id, since_ms: self.now_ms.get() }));
                wake(next);
            }
        }
    }
}

fn within_own(own: Held, limits: &Limits) -> bool {
    own.pending < limits.pending_max && own.bytes() < limits.held_bytes_max
}

fn wake(control: Rc<Control>) {
    control.queued.set(false);
    control.wake();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> Limits = || Limits {
        held_bytes_max: 1_000,
        core_held_bytes_max: 2_000,
        pending_max: 3,
        ..Limits::default()
    };

    fn joined(budget: &Budget, count: u64) -> Vec<Rc<Control>> {
        (0..count).for_each(|_| budget.joined());
        (0..count).map(|id| Rc::new(Control::new(id, 0))).collect()
    }

    fn receives(budget: &Budget, control: &Control, bytes: usize) {
        budget.change(control, &LIMITS(), |held| held.input_bytes += bytes);
    }

    #[test]
    fn the_reserve_goes_to_those_in_line_and_not_to_who_asks_again() {
        let (budget, limits) = (Budget::default(), LIMITS());
        let all = joined(&budget, 4);
        let may = |at: usize| budget.may_receive(&all[at], &limits);
        // A share is 250; the fourth holds next to nothing and is never in the line.
        (0..3).for_each(|at| receives(&budget, &all[at], 400));
        receives(&budget, &all[3], 10);
        assert!(may(3), "within its share");
        assert!(may(0), "the first takes the reserve");
        assert!(!may(1) && !may(2));
        assert!(may(0), "and keeps it");
        budget.change(&all[0], &limits, |held| {
            (held.input_bytes, held.request_bytes) =
                (held.input_bytes - 400, held.request_bytes + 400);
            held.pending += 1;
        });
        assert!(!may(0), "one request at a time");
        budget.change(&all[0], &limits, |held| {
            (held.input_bytes, held.request_bytes) =
                (held.input_bytes + 400, held.request_bytes - 400);
            held.pending -= 1;
        });
        budget.release(&all[0], &limits);
        assert!(!may(0), "the line has it");
        assert!(may(1) && !may(2));
        budget.left(&all[1], &limits);
        assert!(may(0) && may(2), "below the first half again");
        assert!(budget.waiting.borrow().is_empty(), "both were woken");
        receives(&budget, &all[3], 400);
        assert!(may(2) && !may(0));
        assert_eq!(budget.overstays(&limits, limits.stalled_ms + 1), Some(2));
        [0, 2, 3].iter().for_each(|at| budget.left(&all[*at], &limits));
        assert_eq!(budget.held(), Held::default());
        assert!(budget.waiting.borrow().is_empty() && budget.reserve.get().is_none());
    }

    #[test]
    fn beyond_its_own_budget_a_connection_has_one_request_at_a_time() {
        let (budget, limits) = (Budget::default(), LIMITS());
        let one = &joined(&budget, 1)[0];
        receives(&budget, one, 5_000);
        assert!(budget.may_receive(one, &limits), "the request it is about to complete");
        budget.change(one, &limits, |held| held.input_bytes -= 5_000);
        for (held, may) in [
            (Held { pending: 2, request_bytes: 900, ..Held::default() }, true),
            (Held { pending: 3, request_bytes: 900, ..Held::default() }, false),
            (Held { pending: 1, request_bytes: 900, input_bytes: 100, ..Held::default() }, false),
            (Held { reply_bytes: 1_000, ..Held::default() }, false),
            (Held { reply_bytes: 999, ..Held::default() }, true),
        ] {
            one.held.set(held);
            assert_eq!(budget.may_take(one, &limits), may, "{held:?}");
            assert_eq!(budget.may_receive(one, &limits), may, "{held:?}");
        }
    }
}
