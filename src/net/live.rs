//! The connections of one core: their limits, their counts, and how to end them from outside.
//!
//! A connection's task does its own work; this is the list by which a core sweeps, drains and
//! closes them, and the totals that bound what all of them hold together.
//!
//! Gap: bytes of a frame that has not arrived whole count towards no budget of the core.

use super::frame::BufferPool;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Requests up to this size arrive in one system call.
const LANDING_BYTES: usize = 16 << 10;

/// What connections may claim.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest frame; the service may lower it for a connection.
    pub frame_bytes_max: usize,
    /// Requests of a connection without an answer.
    pub pending_max: usize,
    /// Bytes of a connection's unanswered requests and unsent answers beyond which it is not read.
    pub held_bytes_max: usize,
    /// The same over all connections of the core: beyond it, each has one request at a time.
    pub core_held_bytes_max: usize,
    /// Connections of the core, and from one address; more are closed as soon as accepted.
    pub connections_max: usize,
    pub connections_per_ip_max: usize,
    /// A connection whose first request is not complete by then is closed.
    pub setup_ms: u64,
    /// A connection without requests is closed after this time.
    pub idle_ms: u64,
    /// A connection that stops within a request, or takes none of its answers, is closed then.
    pub stalled_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes_max: 100 << 20,
            pending_max: 1_000,
            held_bytes_max: 64 << 20,
            core_held_bytes_max: 512 << 20,
            connections_max: 10_000,
            connections_per_ip_max: usize::MAX,
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
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// What all connections of a core hold now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests without an answer.
    pub pending: usize,
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

impl Held {
    fn bytes(&self) -> usize {
        self.request_bytes + self.reply_bytes
    }
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
    ip: IpAddr,
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
    opened_ms: u64,
    /// When the connection last received or sent something, on the clock of `sweep`.
    active_ms: Cell<u64>,
    /// The first request has come.
    pub greeted: Cell<bool>,
    /// In the middle of a request, or answers wait for the peer to take them.
    pub unfinished: Cell<bool>,
    pub held: Cell<Held>,
}

impl Control {
    pub fn order(&self) -> Order {
        self.order.get()
    }

    pub fn register(&self, waker: &Waker) {
        let mut registered = self.waker.borrow_mut();
        if !registered.as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            *registered = Some(waker.clone());
        }
    }

    fn give(&self, order: Order) {
        self.order.set(order);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_overdue(&self, now_ms: u64, limits: &Limits) -> bool {
        let quiet_ms = now_ms.saturating_sub(self.active_ms.get());
        let silent = !self.greeted.get() && now_ms - self.opened_ms > limits.setup_ms;
        let stalled = self.unfinished.get() && quiet_ms > limits.stalled_ms;
        let idle = self.held.get().pending == 0 && quiet_ms > limits.idle_ms;
        silent || stalled || idle
    }
}

/// The connections of one core.
#[derive(Debug)]
pub struct CoreNet {
    pub limits: Limits,
    pub(super) pool: BufferPool,
    /// Where small requests arrive, one connection at a time.
    pub(super) landing: RefCell<Vec<u8>>,
    live: RefCell<BTreeMap<u64, Rc<Control>>>,
    per_ip: RefCell<FxHashMap<IpAddr, usize>>,
    next_id: Cell<u64>,
    now_ms: Cell<u64>,
    held: Cell<Held>,
    draining: Cell<bool>,
    counters: Cell<Counters>,
    emptied: RefCell<Option<Waker>>,
}

impl CoreNet {
    pub fn new(limits: Limits) -> Rc<CoreNet> {
        Rc::new(CoreNet {
            limits,
            pool: BufferPool::default(),
            landing: RefCell::new(vec![0; LANDING_BYTES]),
            live: RefCell::default(),
            per_ip: RefCell::default(),
            next_id: Cell::new(0),
            now_ms: Cell::new(0),
            held: Cell::default(),
            draining: Cell::new(false),
            counters: Cell::default(),
            emptied: RefCell::new(None),
        })
    }

    /// Live connections.
    pub fn connections(&self) -> usize {
        self.live.borrow().len()
    }

    pub fn held(&self) -> Held {
        self.held.get()
    }

    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Closes connections that are silent, stalled or idle at `now_ms` of a monotonic clock. To be
    /// called about once a second.
    pub fn sweep(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
        self.order(Order::Close, |control| control.is_overdue(now_ms, &self.limits));
    }

    /// Takes no further requests; connections close once theirs are answered.
    pub fn drain(&self) {
        self.draining.set(true);
        self.order(Order::Drain, |_| true);
    }

    /// Closes all connections, answered or not.
    pub fn close(&self) {
        self.draining.set(true);
        self.order(Order::Close, |_| true);
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

    fn order(&self, order: Order, concerns: impl Fn(&Control) -> bool) {
        let live = self.live.borrow();
        live.values().filter(|control| concerns(control)).for_each(|control| control.give(order));
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.get()
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
        for held in [&self.held, &control.held] {
            let mut changed = held.get();
            change(&mut changed);
            held.set(changed);
        }
    }

    /// Whether a connection may take another request. One is always let in.
    pub(super) fn has_room(&self, control: &Control) -> bool {
        let (limits, own, all) = (&self.limits, control.held.get(), self.held.get());
        own == Held::default()
            || own.pending < limits.pending_max
                && own.bytes() < limits.held_bytes_max
                && all.bytes() < limits.core_held_bytes_max
    }

    /// Admits a connection unless there are as many as there may be.
    pub(super) fn admit(&self, ip: IpAddr) -> Option<(u64, Rc<Control>)> {
        let limits = &self.limits;
        let from_ip = self.per_ip.borrow().get(&ip).copied().unwrap_or(0);
        if self.draining.get()
            || self.connections() >= limits.connections_max
            || from_ip >= limits.connections_per_ip_max
        {
            self.count(|counters| counters.refused += 1);
            return None;
        }
        self.count(|counters| counters.accepted += 1);
        self.per_ip.borrow_mut().insert(ip, from_ip + 1);
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let control = Rc::new(Control {
            ip,
            order: Cell::new(Order::Run),
            waker: RefCell::new(None),
            opened_ms: self.now_ms.get(),
            active_ms: Cell::new(self.now_ms.get()),
            greeted: Cell::new(false),
            unfinished: Cell::new(false),
            held: Cell::default(),
        });
        self.live.borrow_mut().insert(id, control.clone());
        Some((id, control))
    }

    pub(super) fn remove(&self, id: u64, control: &Control) {
        let own = control.held.get();
        self.hold(control, |held| {
            held.pending -= own.pending;
            held.request_bytes -= own.request_bytes;
            held.reply_bytes -= own.reply_bytes;
        });
        let mut per_ip = self.per_ip.borrow_mut();
        if let Some(count) = per_ip.get_mut(&control.ip) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&control.ip);
            }
        }
        self.live.borrow_mut().remove(&id);
        if self.connections() == 0 {
            let waker = self.emptied.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
