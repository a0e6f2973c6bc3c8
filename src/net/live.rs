//! The connections of one core: their list, their counts, and how to end them from outside.
//!
//! A connection's task does its own work; this is the list by which a core sweeps, drains and
//! closes them. What they may hold is in `budget`, how many there may be in `admission`.

use super::admission::{Admission, Ticket};
use super::budget::{Budget, Held};
use super::frame::BufferPool;
use super::progress::Progress;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Requests up to this size arrive in one system call.
const LANDING_BYTES: usize = 16 << 10;
/// What a connection whose first request is under way has shown of it to count as greeted.
const GREETING_BYTES: usize = 64 << 10;
/// How long a connection that waits for its last answers before a move takes no requests.
const MOVE_PATIENCE_MS: u64 = 1_000;
/// The sweep looks at each connection this often at least.
const LOOK_WITHIN_MS: u64 = 60_000;
/// How soon the sweep looks again at a connection that it cannot close yet.
const RECHECK_MS: u64 = 1;
/// Connections turned away are a line in the log at most this often.
const REFUSAL_TOLD_MS: u64 = 10_000;

/// What connections of a core may claim.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest frame; the service may lower it for a connection.
    pub frame_bytes_max: usize,
    /// Requests of a connection without an answer.
    pub pending_max: usize,
    /// Bytes a connection may hold before it is not read any more, but for one request at a time.
    pub held_bytes_max: usize,
    /// Bytes all connections of the core may hold together, but for one request.
    pub core_held_bytes_max: usize,
    /// A connection whose first request is neither complete nor well under way by then is closed.
    pub setup_ms: u64,
    /// A connection without requests is closed after this time.
    pub idle_ms: u64,
    /// A connection that makes no progress within a request, or with its answers, for this long is
    /// closed.
    pub stalled_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes_max: 100 << 20,
            pending_max: 1_000,
            held_bytes_max: 64 << 20,
            core_held_bytes_max: 512 << 20,
            setup_ms: 10_000,
            idle_ms: 600_000,
            stalled_ms: 60_000,
        }
    }
}

/// What a service may know of a connection.
#[derive(Debug)]
pub struct ConnInfo {
    pub id: u64,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    frame_bytes_max: Cell<usize>,
}

impl ConnInfo {
    pub fn new(id: u64, peer: SocketAddr, local: SocketAddr, frame_bytes_max: usize) -> ConnInfo {
        ConnInfo { id, peer, local, frame_bytes_max: Cell::new(frame_bytes_max) }
    }

    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max.get()
    }

    /// Sets the largest frame accepted from now on.
    pub fn set_frame_bytes_max(&self, bytes: usize) {
        self.frame_bytes_max.set(bytes);
    }
}

/// Counts of one core's connections since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub accepted: u64,
    pub refused: u64,
    /// Closed by this core because the peer was silent, idle or made no progress.
    pub overdue: u64,
    /// Come from and gone to other cores.
    pub moved_in: u64,
    pub moved_out: u64,
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    /// Take no further request, answer those taken, close.
    Drain,
    Close,
}

/// What the core holds of a connection to steer it from outside its task.
#[derive(Debug)]
pub(super) struct Control {
    pub id: u64,
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
    opened_ms: u64,
    /// When the connection last received or sent something, on the clock of `sweep`.
    active_ms: Cell<u64>,
    /// The first request has come.
    pub greeted: Cell<bool>,
    /// What has come of it until then; its buffer is larger than that.
    pub first_bytes: Cell<usize>,
    /// The rest of a request that has begun.
    pub sending: Progress,
    /// The taking of answers.
    pub taking: Progress,
    /// Since when no requests are taken for the sake of a move to another core.
    pub moving_since_ms: Cell<Option<u64>>,
    /// When the sweep looks at it next.
    due_ms: Cell<u64>,
    pub held: Cell<Held>,
    /// In the line for the budget.
    pub queued: Cell<bool>,
}

/// Why a connection is closed by the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overdue {
    Silent,
    SendsTooSlowly,
    TakesTooSlowly,
    Idle,
}

impl Control {
    pub fn new(id: u64, now_ms: u64) -> Control {
        Control {
            id,
            order: Cell::new(Order::Run),
            waker: RefCell::new(None),
            opened_ms: now_ms,
            active_ms: Cell::new(now_ms),
            greeted: Cell::new(false),
            first_bytes: Cell::new(0),
            sending: Progress::default(),
            taking: Progress::default(),
            moving_since_ms: Cell::new(None),
            due_ms: Cell::new(u64::MAX),
            held: Cell::default(),
            queued: Cell::new(false),
        }
    }

    pub fn order(&self) -> Order {
        self.order.get()
    }

    pub fn register(&self, waker: &Waker) {
        let mut registered = self.waker.borrow_mut();
        if !registered.as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            *registered = Some(waker.clone());
        }
    }

    pub fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn give(&self, order: Order) {
        self.order.set(order);
        self.wake();
    }

    fn overdue(&self, now_ms: u64, limits: &Limits) -> Option<Overdue> {
        let quiet_ms = now_ms.saturating_sub(self.active_ms.get());
        let held = self.held.get();
        if !self.has_begun() && now_ms.saturating_sub(self.opened_ms) > limits.setup_ms {
            Some(Overdue::Silent)
        } else if self.sending.is_stalled(now_ms, limits.stalled_ms) {
            Some(Overdue::SendsTooSlowly)
        } else if self.taking.is_stalled(now_ms, limits.stalled_ms) {
            Some(Overdue::TakesTooSlowly)
        } else if held.pending == 0 && quiet_ms > limits.idle_ms {
            Some(Overdue::Idle)
        } else {
            None
        }
    }

    fn has_begun(&self) -> bool {
        self.greeted.get() || self.first_bytes.get() > GREETING_BYTES
    }

    /// The first moment at which it could be overdue, or move too slowly, as things stand.
    fn next_due_ms(&self, limits: &Limits) -> u64 {
        let setup_ms = self.opened_ms.saturating_add(limits.setup_ms);
        let moves_ms = |since_ms: u64| since_ms.saturating_add(MOVE_PATIENCE_MS);
        let times = [
            (!self.has_begun()).then_some(setup_ms),
            self.sending.due_ms(limits.stalled_ms),
            self.taking.due_ms(limits.stalled_ms),
            self.moving_since_ms.get().map(moves_ms),
            Some(self.active_ms.get().saturating_add(limits.idle_ms)),
        ];
        times.into_iter().flatten().min().unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Whether the last answers before a move let others wait for too long.
    pub fn moves_too_slowly(&self, now_ms: u64) -> bool {
        let since_ms = self.moving_since_ms.get();
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > MOVE_PATIENCE_MS)
    }
}

/// The connections of one core.
#[derive(Debug)]
pub struct CoreNet {
    pub limits: Limits,
    pub(super) pool: BufferPool,
    /// Where small requests arrive, one connection at a time.
    pub(super) landing: RefCell<Vec<u8>>,
    budget: Budget,
    admission: Arc<Admission>,
    live: RefCell<BTreeMap<u64, Rc<Control>>>,
    /// When the sweep looks at which connection, the next on top. Thousands that are idle are not
    /// looked at each second.
    dues: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    next_id: Cell<u64>,
    now_ms: Cell<u64>,
    draining: Cell<bool>,
    counters: Cell<Counters>,
    refusal_told_ms: Cell<Option<u64>>,
    emptied: RefCell<Option<Waker>>,
}

impl CoreNet {
    pub fn new(limits: Limits, admission: Arc<Admission>) -> Rc<CoreNet> {
        Rc::new(CoreNet {
            limits,
            pool: BufferPool::default(),
            landing: RefCell::new(vec![0; LANDING_BYTES]),
            budget: Budget::default(),
            admission,
            live: RefCell::default(),
            dues: RefCell::default(),
            next_id: Cell::new(0),
            now_ms: Cell::new(0),
            draining: Cell::new(false),
            counters: Cell::default(),
            refusal_told_ms: Cell::new(None),
            emptied: RefCell::new(None),
        })
    }

    /// Live connections.
    pub fn connections(&self) -> usize {
        self.live.borrow().len()
    }

    pub fn held(&self) -> Held {
        self.budget.held()
    }

    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Closes connections that are silent, stalled or idle at `now_ms` of a monotonic clock. To be
    /// called about once a second.
    pub fn sweep(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
        while let Some(control) = self.next_due(now_ms) {
            if let Some(why) = control.overdue(now_ms, &self.limits) {
                self.close_overdue(&control, why);
                continue;
            }
            if control.moves_too_slowly(now_ms) {
                control.wake();
            }
            // Idle for long with a request that waits: looked at again a little later.
            let due_ms = control.next_due_ms(&self.limits).max(now_ms.saturating_add(RECHECK_MS));
            self.look_at(&control, due_ms);
        }
        if let Some(id) = self.budget.overstays(&self.limits, now_ms) {
            let control = self.live.borrow().get(&id).cloned();
            if let Some(control) = control.filter(|control| control.held.get().pending == 0) {
                self.close_overdue(&control, Overdue::SendsTooSlowly);
            }
        }
        self.budget.sweep(&self.limits, now_ms);
    }

    /// The next live connection whose time has come.
    fn next_due(&self, now_ms: u64) -> Option<Rc<Control>> {
        let mut dues = self.dues.borrow_mut();
        loop {
            let Reverse((due_ms, id)) = *dues.peek().filter(|next| next.0 .0 <= now_ms)?;
            dues.pop();
            let live = self.live.borrow();
            // Another time may have been set meanwhile.
            let control = live.get(&id).filter(|control| control.due_ms.get() == due_ms);
            if let Some(control) = control {
                control.due_ms.set(u64::MAX);
                return Some(control.clone());
            }
        }
    }

    fn look_at(&self, control: &Control, due_ms: u64) {
        // So that times given up do not pile up until a day that is far off.
        let due_ms = due_ms.min(self.now_ms.get().saturating_add(LOOK_WITHIN_MS));
        if due_ms < control.due_ms.get() {
            control.due_ms.set(due_ms);
            self.dues.borrow_mut().push(Reverse((due_ms, control.id)));
        }
    }

    /// A connection has something new to be watched for.
    pub(super) fn watch(&self, control: &Control) {
        self.look_at(control, control.next_due_ms(&self.limits));
    }

    fn close_overdue(&self, control: &Control, why: Overdue) {
        if control.order() != Order::Close {
            tracing::debug!(connection = control.id, ?why, "closing a connection");
            self.count(|counters| counters.overdue += 1);
        }
        control.give(Order::Close);
    }

    /// Takes no further requests; connections close once theirs are answered.
    pub fn drain(&self) {
        self.draining.set(true);
        self.order(Order::Drain);
    }

    /// Closes all connections, answered or not.
    pub fn close(&self) {
        self.draining.set(true);
        self.order(Order::Close);
    }

    /// Resolves when no connection is left.
    pub async fn emptied(&self) {
        futures_lite::future::poll_fn(|cx| {
            if self.connections() == 0 {
                return Poll::Ready(());
            }
            *self.emptied.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn order(&self, order: Order) {
        self.live.borrow().values().for_each(|control| control.give(order));
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.get()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        add(&mut counters);
        self.counters.set(counters);
    }

    pub(super) fn is_active(&self, control: &Control) {
        control.active_ms.set(self.now_ms.get());
    }

    /// Changes what a connection holds, and the total with it.
    pub(super) fn hold(&self, control: &Control, change: impl Fn(&mut Held)) {
        self.budget.change(control, &self.limits, change);
    }

    pub(super) fn may_take(&self, control: &Control) -> bool {
        self.budget.may_take(control, &self.limits)
    }

    pub(super) fn may_receive(&self, control: &Rc<Control>) -> bool {
        self.budget.may_receive(control, &self.limits)
    }

    /// All requests a connection has taken are answered.
    pub(super) fn answered(&self, control: &Control) {
        self.budget.release(control, &self.limits);
    }

    /// Admits a new connection unless there are as many as there may be.
    pub(super) fn admit(&self, ip: IpAddr) -> Option<(Ticket, Rc<Control>)> {
        if self.draining.get() {
            return None;
        }
        match self.admission.admit(ip) {
            Ok(ticket) => {
                self.count(|counters| counters.accepted += 1);
                Some((ticket, self.enlist()))
            }
            Err(refused) => {
                self.count(|counters| counters.refused += 1);
                let told_ms = self.refusal_told_ms.get();
                let now_ms = self.now_ms.get();
                if told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= REFUSAL_TOLD_MS) {
                    self.refusal_told_ms.set(Some(now_ms));
                    tracing::warn!(%ip, %refused, "a connection was turned away");
                }
                None
            }
        }
    }

    /// Puts a connection on the list that has its place among all already.
    pub(super) fn enlist(&self) -> Rc<Control> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let control = Rc::new(Control::new(id, self.now_ms.get()));
        self.live.borrow_mut().insert(id, control.clone());
        self.watch(&control);
        self.budget.joined();
        control
    }

    pub(super) fn remove(&self, control: &Control) {
        self.budget.left(control, &self.limits);
        self.live.borrow_mut().remove(&control.id);
        if self.connections() == 0 {
            let waker = self.emptied.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
