//! One connection as one task: receive, cut, call the service, send the answers in order.
//!
//! The task is a loop over four steps (a blocked request, input, answers, output) that runs until
//! none of them makes progress. All answers that are ready leave in one system call. Reading stops
//! while the connection holds more than its budget of unanswered requests and unsent answers, so a
//! peer that sends but does not receive is held back by TCP itself. A peer that goes away ends the
//! task, and with it the futures of its pending requests.
//!
//! The task never spawns others, never blocks, and after a share of work lets the core turn its
//! loop even if the socket has more.

use super::frame::{BufferPool, FrameBuffer};
use super::socket::{self, Outgoing};
use super::{CoreFuture, Finish, Outcome, Pending, Service};
use bytes::Bytes;
use futures_lite::AsyncRead;
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes received in one go before other connections of the core get their turn.
const TURN_BYTES: usize = 1 << 20;

/// What a connection may claim.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest frame; the service may lower it for a connection.
    pub frame_bytes_max: usize,
    /// Unanswered requests and unsent answers of a connection beyond which it is not read.
    pub held_bytes_max: usize,
    /// Requests of a connection without an answer.
    pub pending_max: usize,
    /// Connections of a core; more are closed as soon as they are accepted.
    pub connections_max: usize,
    /// A connection without requests is closed after this time.
    pub idle_ms: u64,
    /// A connection that takes none of its answers is closed after this time.
    pub stalled_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes_max: 100 << 20,
            held_bytes_max: 64 << 20,
            pending_max: 1_000,
            connections_max: 10_000,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Run,
    /// Take no further request, answer those taken, close.
    Drain,
    Close,
}

/// What the core holds of a connection to steer it from outside its task.
#[derive(Debug)]
pub(super) struct Control {
    order: Cell<Order>,
    waker: RefCell<Option<Waker>>,
    /// When the connection last received or sent something, on the clock of `sweep`.
    active_ms: Cell<u64>,
    /// Answers wait for the peer to take them.
    sending: Cell<bool>,
    pending: Cell<usize>,
}

impl Control {
    fn give(&self, order: Order) {
        self.order.set(order);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The connections of one core.
#[derive(Debug)]
pub struct CoreNet {
    pub limits: Limits,
    pub(super) pool: BufferPool,
    live: RefCell<BTreeMap<u64, Rc<Control>>>,
    next_id: Cell<u64>,
    now_ms: Cell<u64>,
    pending: Cell<usize>,
    draining: Cell<bool>,
    counters: Cell<Counters>,
    emptied: RefCell<Option<Waker>>,
}

impl CoreNet {
    pub fn new(limits: Limits) -> Rc<CoreNet> {
        Rc::new(CoreNet {
            limits,
            pool: BufferPool::default(),
            live: RefCell::default(),
            next_id: Cell::new(0),
            now_ms: Cell::new(0),
            pending: Cell::new(0),
            draining: Cell::new(false),
            counters: Cell::default(),
            emptied: RefCell::new(None),
        })
    }

    /// Live connections.
    pub fn connections(&self) -> usize {
        self.live.borrow().len()
    }

    /// Requests taken and not answered.
    pub fn pending(&self) -> usize {
        self.pending.get()
    }

    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Closes connections that are idle or stalled at `now_ms` of a monotonic clock. To be called
    /// about once a second.
    pub fn sweep(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
        let overdue: Vec<Rc<Control>> = self
            .live
            .borrow()
            .values()
            .filter(|control| {
                let quiet_ms = now_ms.saturating_sub(control.active_ms.get());
                let stalled = control.sending.get() && quiet_ms > self.limits.stalled_ms;
                let idle = control.pending.get() == 0 && quiet_ms > self.limits.idle_ms;
                stalled || idle
            })
            .cloned()
            .collect();
        overdue.iter().for_each(|control| control.give(Order::Close));
    }

    /// Takes no further requests; connections close once theirs are answered.
    pub fn drain(&self) {
        self.draining.set(true);
        self.order_all(Order::Drain);
    }

    /// Closes all connections, answered or not.
    pub fn close(&self) {
        self.draining.set(true);
        self.order_all(Order::Close);
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

    fn remove(&self, id: u64) {
        self.live.borrow_mut().remove(&id);
        if self.connections() == 0 {
            let waker = self.emptied.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn order_all(&self, order: Order) {
        let live: Vec<Rc<Control>> = self.live.borrow().values().cloned().collect();
        live.iter().for_each(|control| control.give(order));
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.get()
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        add(&mut counters);
        self.counters.set(counters);
    }

    fn add_pending(&self, control: &Control, change: isize) {
        self.pending.set(self.pending.get().saturating_add_signed(change));
        control.pending.set(control.pending.get().saturating_add_signed(change));
    }

    /// Admits a connection unless the core has as many as it may.
    fn admit(&self) -> Option<(u64, Rc<Control>)> {
        if self.draining.get() || self.connections() >= self.limits.connections_max {
            self.count(|counters| counters.refused += 1);
            return None;
        }
        self.count(|counters| counters.accepted += 1);
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let control = Rc::new(Control {
            order: Cell::new(Order::Run),
            waker: RefCell::new(None),
            active_ms: Cell::new(self.now_ms.get()),
            sending: Cell::new(false),
            pending: Cell::new(0),
        });
        self.live.borrow_mut().insert(id, control.clone());
        Some((id, control))
    }
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    PeerClosed,
    Asked,
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
}

/// An answer in its place, and the bytes of the request it keeps alive.
struct Slot {
    state: SlotState,
    held_bytes: usize,
}

enum SlotState {
    Pending(Pending),
    Close,
}

struct Connection<S: Service> {
    stream: TcpStream,
    socket: RawFd,
    service: Rc<S>,
    net: Rc<CoreNet>,
    control: Rc<Control>,
    info: Rc<ConnInfo>,
    input: FrameBuffer,
    /// The last receive took all there was.
    drained: bool,
    /// Nothing more is read.
    reading_over: bool,
    blocked: Option<(CoreFuture<Outcome>, usize)>,
    slots: VecDeque<Slot>,
    held_bytes: usize,
    output: Outgoing,
    turn: Option<Timer>,
}

/// Runs a connection to its end.
pub(super) async fn run<S: Service>(stream: TcpStream, service: Rc<S>, net: Rc<CoreNet>) {
    let Some((id, control)) = net.admit() else {
        return;
    };
    if let Some(mut connection) = Connection::open(stream, service, &net, (id, &control)) {
        let end = futures_lite::future::poll_fn(|cx| connection.poll_guarded(cx)).await;
        if let End::Failed(error) = end {
            tracing::debug!(peer = %connection.info.peer, %error, "connection failed");
        }
        connection.service.closed(&connection.info);
        net.add_pending(&control, -(connection.slots.len() as isize));
    }
    net.remove(id);
}

impl<S: Service> Connection<S> {
    fn open(
        stream: TcpStream,
        service: Rc<S>,
        net: &Rc<CoreNet>,
        (id, control): (u64, &Rc<Control>),
    ) -> Option<Connection<S>> {
        let (peer, local) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        stream.set_nodelay(true).ok()?;
        Some(Connection {
            socket: socket::descriptor(&stream),
            stream,
            service,
            net: net.clone(),
            control: control.clone(),
            info: Rc::new(ConnInfo::new(id, peer, local, net.limits.frame_bytes_max)),
            input: FrameBuffer::default(),
            drained: false,
            reading_over: false,
            blocked: None,
            slots: VecDeque::new(),
            held_bytes: 0,
            output: Outgoing::default(),
            turn: None,
        })
    }

    /// A panic in an answer's future closes this connection and leaves the core running.
    fn poll_guarded(&mut self, cx: &mut Context) -> Poll<End> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.poll(cx)));
        outcome.unwrap_or_else(|_| {
            tracing::error!(peer = %self.info.peer, "an answer's future panicked");
            Poll::Ready(End::Asked)
        })
    }

    fn poll(&mut self, cx: &mut Context) -> Poll<End> {
        self.register(cx);
        if let Some(turn) = &mut self.turn {
            std::task::ready!(Pin::new(turn).poll(cx));
            self.turn = None;
        }
        let mut received = 0;
        loop {
            if self.control.order.get() == Order::Close {
                return Poll::Ready(End::Asked);
            }
            let steps = match self.steps(cx, &mut received) {
                Ok(steps) => steps,
                Err(end) => return Poll::Ready(end),
            };
            if self.finished() {
                return Poll::Ready(End::Asked);
            }
            if !steps {
                return Poll::Pending;
            }
            if received >= TURN_BYTES {
                return self.let_others_run(cx);
            }
        }
    }

    /// Whether any step made progress.
    fn steps(&mut self, cx: &mut Context, received: &mut usize) -> Result<bool, End> {
        let mut progress = self.poll_blocked(cx);
        progress |= self.poll_input(cx, received)?;
        progress |= self.poll_answers(cx);
        progress |= self.poll_output(cx)?;
        Ok(progress)
    }

    fn register(&self, cx: &Context) {
        let mut waker = self.control.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Comes back after the core has looked at its other sockets. Waking the task at once would
    /// not do: the executor looks at sockets only when no task is ready.
    fn let_others_run(&mut self, cx: &mut Context) -> Poll<End> {
        let mut turn = Timer::new(Duration::from_nanos(1));
        match Pin::new(&mut turn).poll(cx) {
            Poll::Pending => self.turn = Some(turn),
            Poll::Ready(_) => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    fn finished(&self) -> bool {
        let over = self.reading_over || self.control.order.get() == Order::Drain;
        over && self.slots.is_empty() && self.blocked.is_none() && self.output.is_empty()
    }

    fn poll_blocked(&mut self, cx: &mut Context) -> bool {
        let Some((future, held_bytes)) = &mut self.blocked else {
            return false;
        };
        let Poll::Ready(outcome) = future.as_mut().poll(cx) else {
            return false;
        };
        let held_bytes = *held_bytes;
        self.blocked = None;
        self.held_bytes -= held_bytes;
        self.settle(outcome, held_bytes, cx);
        true
    }

    /// Whether another request may be taken.
    fn accepting(&self) -> bool {
        let limits = &self.net.limits;
        !self.reading_over
            && self.blocked.is_none()
            && self.control.order.get() == Order::Run
            && self.slots.len() < limits.pending_max
            && self.held_bytes + self.output.bytes() <= limits.held_bytes_max
    }

    fn poll_input(&mut self, cx: &mut Context, received: &mut usize) -> Result<bool, End> {
        let mut progress = self.take_frames(cx);
        if !self.accepting() {
            return Ok(progress);
        }
        let got = match self.receive(cx)? {
            Poll::Ready(got) => got,
            Poll::Pending => {
                self.input.release(&self.net.pool);
                return Ok(progress);
            }
        };
        if got == 0 {
            return Err(End::PeerClosed);
        }
        progress = true;
        *received += got;
        self.net.count(|counters| counters.bytes_in += got as u64);
        self.control.active_ms.set(self.net.now_ms.get());
        self.take_frames(cx);
        Ok(progress)
    }

    /// Receives what is there, or arranges for a wake-up when there is more.
    fn receive(&mut self, cx: &mut Context) -> Result<Poll<usize>, End> {
        while !self.drained {
            let (buffer, wanted) = self.input.prepare(&self.net.pool);
            match socket::receive(self.socket, buffer, wanted) {
                Ok(got) => {
                    self.drained = got < wanted;
                    return Ok(Poll::Ready(got));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.drained = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(End::Failed(error)),
            }
        }
        let mut byte = [0];
        let poll = Pin::new(&mut self.stream).poll_read(cx, &mut byte);
        self.drained = false;
        match poll {
            Poll::Ready(Ok(got)) => {
                if got > 0 {
                    self.input.prepare(&self.net.pool);
                    self.input.push(byte[0]);
                }
                Ok(Poll::Ready(got))
            }
            Poll::Ready(Err(error)) => Err(End::Failed(error)),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Calls the service with the frames that have arrived.
    fn take_frames(&mut self, cx: &mut Context) -> bool {
        let mut progress = false;
        while self.accepting() {
            match self.input.next(self.info.frame_bytes_max.get()) {
                Ok(Some(frame)) => self.call(frame, cx),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(peer = %self.info.peer, %error, "connection closed");
                    self.settle(Outcome::Close, 0, cx);
                }
            }
            progress = true;
        }
        progress
    }

    fn call(&mut self, frame: Bytes, cx: &mut Context) {
        let held_bytes = frame.len();
        self.net.count(|counters| counters.requests += 1);
        let call = AssertUnwindSafe(|| self.service.call(frame, &self.info));
        let outcome = catch_unwind(call).unwrap_or_else(|_| {
            tracing::error!(peer = %self.info.peer, "a request made its handler panic");
            Outcome::Close
        });
        self.settle(outcome, held_bytes, cx);
    }

    /// Gives what became of a request its place.
    fn settle(&mut self, outcome: Outcome, frame_bytes: usize, cx: &mut Context) {
        let mut held_bytes = frame_bytes;
        let state = match outcome {
            Outcome::Pending(Pending::Nothing) => return,
            Outcome::Pending(Pending::Ready(reply)) if self.slots.is_empty() => {
                reply.pieces.into_iter().for_each(|piece| self.output.push(piece));
                return;
            }
            Outcome::Pending(Pending::Later(mut future)) => match future.as_mut().poll(cx) {
                Poll::Ready(finish) => finish.into(),
                Poll::Pending => SlotState::Pending(Pending::Later(future)),
            },
            Outcome::Pending(Pending::Ready(reply)) => {
                held_bytes += reply.bytes;
                SlotState::Pending(Pending::Ready(reply))
            }
            Outcome::Close => {
                self.reading_over = true;
                SlotState::Close
            }
            Outcome::Blocked(future) => {
                self.held_bytes += frame_bytes;
                self.blocked = Some((future, frame_bytes));
                return;
            }
        };
        self.held_bytes += held_bytes;
        self.net.add_pending(&self.control, 1);
        self.slots.push_back(Slot { state, held_bytes });
    }

    /// Moves answers into the output as far as their order allows.
    fn poll_answers(&mut self, cx: &mut Context) -> bool {
        let mut progress = false;
        while self.output.bytes() <= self.net.limits.held_bytes_max {
            let Some(slot) = self.slots.front_mut() else {
                break;
            };
            if let SlotState::Pending(Pending::Later(future)) = &mut slot.state {
                let Poll::Ready(finish) = future.as_mut().poll(cx) else {
                    break;
                };
                slot.state = finish.into();
            }
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            progress = true;
            self.held_bytes -= slot.held_bytes;
            self.net.add_pending(&self.control, -1);
            match slot.state {
                SlotState::Pending(Pending::Ready(reply)) => {
                    reply.pieces.into_iter().for_each(|piece| self.output.push(piece));
                }
                SlotState::Pending(Pending::Nothing | Pending::Later(_)) => {}
                SlotState::Close => self.stop(),
            }
        }
        progress
    }

    /// Nothing more is answered; what is on its way out still leaves.
    fn stop(&mut self) {
        self.reading_over = true;
        self.blocked = None;
        self.net.add_pending(&self.control, -(self.slots.len() as isize));
        self.slots.clear();
    }

    fn poll_output(&mut self, cx: &mut Context) -> Result<bool, End> {
        let before = self.output.bytes();
        while !self.output.is_empty() {
            match self.output.send(self.socket) {
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(End::Failed(error)),
            }
            match self.output.poll_send(&mut self.stream, cx) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => break,
            };
        }
        let sent = before - self.output.bytes();
        self.control.sending.set(!self.output.is_empty());
        if sent > 0 {
            self.net.count(|counters| counters.bytes_out += sent as u64);
            self.control.active_ms.set(self.net.now_ms.get());
        }
        Ok(sent > 0)
    }
}

impl From<Finish> for SlotState {
    fn from(finish: Finish) -> SlotState {
        match finish {
            Finish::Reply(reply) => SlotState::Pending(Pending::Ready(reply)),
            Finish::Nothing => SlotState::Pending(Pending::Nothing),
            Finish::Close => SlotState::Close,
        }
    }
}
