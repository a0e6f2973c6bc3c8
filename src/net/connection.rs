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

use super::frame::FrameBuffer;
use super::live::{ConnInfo, Control, CoreNet, Order};
use super::socket::{self, Outgoing};
use super::{CoreFuture, Finish, Outcome, Pending, Service};
use crate::protocol::reply::Reply;
use bytes::Bytes;
use futures_lite::AsyncRead;
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Bytes received in one go before other connections of the core get their turn.
const TURN_BYTES: usize = 1 << 20;

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

/// An answer in its place, and the bytes of the request it stands for.
struct Slot {
    state: SlotState,
    request_bytes: usize,
}

enum SlotState {
    Ready(Reply),
    Nothing,
    Later(CoreFuture<Finish>),
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
    /// The last receive took all it was offered room for.
    more: bool,
    /// Nothing more is read.
    reading_over: bool,
    blocked: Option<(CoreFuture<Outcome>, usize)>,
    slots: VecDeque<Slot>,
    output: Outgoing,
    turn: Option<Timer>,
}

/// Runs a connection to its end.
pub(super) async fn run<S: Service>(stream: TcpStream, service: Rc<S>, net: Rc<CoreNet>) {
    let Ok(peer) = stream.peer_addr() else { return };
    let Some((id, control)) = net.admit(peer.ip()) else { return };
    if let Ok(mut connection) = Connection::open(stream, service, &net, (id, &control)) {
        let end = futures_lite::future::poll_fn(|cx| connection.poll_guarded(cx)).await;
        if let End::Failed(error) = end {
            tracing::debug!(%peer, %error, "connection failed");
        }
        connection.service.closed(&connection.info);
    }
    net.remove(id, &control);
}

impl<S: Service> Connection<S> {
    fn open(
        stream: TcpStream,
        service: Rc<S>,
        net: &Rc<CoreNet>,
        (id, control): (u64, &Rc<Control>),
    ) -> glommio::Result<Connection<S>, ()> {
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        stream.set_nodelay(true)?;
        Ok(Connection {
            socket: socket::descriptor(&stream),
            stream,
            service,
            net: net.clone(),
            control: control.clone(),
            info: Rc::new(ConnInfo::new(id, peer, local, net.limits.frame_bytes_max)),
            input: FrameBuffer::default(),
            more: false,
            reading_over: false,
            blocked: None,
            slots: VecDeque::new(),
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
        self.control.register(cx.waker());
        if let Some(turn) = &mut self.turn {
            std::task::ready!(Pin::new(turn).poll(cx));
            self.turn = None;
        }
        let mut received = 0;
        loop {
            if self.control.order() == Order::Close {
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
        let over = self.reading_over || self.control.order() == Order::Drain;
        over && self.slots.is_empty() && self.blocked.is_none() && self.output.is_empty()
    }

    fn poll_blocked(&mut self, cx: &mut Context) -> bool {
        let Some((future, request_bytes)) = &mut self.blocked else { return false };
        let Poll::Ready(outcome) = future.as_mut().poll(cx) else { return false };
        let request_bytes = *request_bytes;
        self.blocked = None;
        self.net.hold(&self.control, |held| held.request_bytes -= request_bytes);
        self.settle(outcome, request_bytes, cx);
        true
    }

    /// Whether another request may be taken.
    fn accepting(&self) -> bool {
        !self.reading_over
            && self.blocked.is_none()
            && self.control.order() == Order::Run
            && self.net.has_room(&self.control)
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
        self.net.is_active(&self.control);
        self.take_frames(cx);
        self.note_unfinished();
        Ok(progress)
    }

    /// Receives what is there, or arranges for a wake-up when there is more.
    ///
    /// Small requests come by way of the core's landing place: a receive that leaves room there
    /// makes the executor watch the socket without another system call. What is more than that
    /// goes straight to the connection's buffer.
    fn receive(&mut self, cx: &mut Context) -> Result<Poll<usize>, End> {
        let (buffer, wanted) = self.input.prepare(&self.net.pool);
        while self.more {
            match socket::receive(self.socket, buffer, wanted) {
                Ok(got) => {
                    self.more = got == wanted;
                    return Ok(Poll::Ready(got));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.more = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(End::Failed(error)),
            }
        }
        let mut landing = self.net.landing.borrow_mut();
        let room = landing.len().min(wanted);
        let landing = landing.get_mut(..room).unwrap_or_default();
        match Pin::new(&mut self.stream).poll_read(cx, landing) {
            Poll::Ready(Ok(got)) => {
                self.more = got == room;
                buffer.extend_from_slice(landing.get(..got).unwrap_or_default());
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
            match self.input.next(self.info.frame_bytes_max()) {
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
        let request_bytes = frame.len();
        self.control.greeted.set(true);
        self.net.count(|counters| counters.requests += 1);
        let call = AssertUnwindSafe(|| self.service.call(frame, &self.info));
        let outcome = catch_unwind(call).unwrap_or_else(|_| {
            tracing::error!(peer = %self.info.peer, "a request made its handler panic");
            Outcome::Close
        });
        self.settle(outcome, request_bytes, cx);
    }

    /// Gives what became of a request its place.
    fn settle(&mut self, outcome: Outcome, request_bytes: usize, cx: &mut Context) {
        let state = match outcome {
            Outcome::Pending(Pending::Nothing) => return,
            Outcome::Pending(Pending::Ready(reply)) => {
                self.net.hold(&self.control, |held| held.reply_bytes += reply.bytes);
                if self.slots.is_empty() {
                    return self.put_out(reply);
                }
                SlotState::Ready(reply)
            }
            Outcome::Pending(Pending::Later(mut future)) => match future.as_mut().poll(cx) {
                Poll::Ready(finish) => self.finished_with(finish),
                Poll::Pending => SlotState::Later(future),
            },
            Outcome::Close => {
                self.reading_over = true;
                SlotState::Close
            }
            Outcome::Blocked(future) => {
                self.net.hold(&self.control, |held| held.request_bytes += request_bytes);
                self.blocked = Some((future, request_bytes));
                return;
            }
        };
        self.net.hold(&self.control, |held| {
            held.pending += 1;
            held.request_bytes += request_bytes;
        });
        self.slots.push_back(Slot { state, request_bytes });
    }

    fn finished_with(&self, finish: Finish) -> SlotState {
        match finish {
            Finish::Reply(reply) => {
                self.net.hold(&self.control, |held| held.reply_bytes += reply.bytes);
                SlotState::Ready(reply)
            }
            Finish::Nothing => SlotState::Nothing,
            Finish::Close => SlotState::Close,
        }
    }

    fn put_out(&mut self, reply: Reply) {
        reply.pieces.into_iter().for_each(|piece| self.output.push(piece));
    }

    /// Moves answers into the output as far as their order allows.
    fn poll_answers(&mut self, cx: &mut Context) -> bool {
        let mut progress = false;
        while self.output.bytes() < self.net.limits.held_bytes_max {
            let Some(slot) = self.slots.front_mut() else { break };
            if let SlotState::Later(future) = &mut slot.state {
                let Poll::Ready(finish) = future.as_mut().poll(cx) else { break };
                let state = self.finished_with(finish);
                if let Some(slot) = self.slots.front_mut() {
                    slot.state = state;
                }
            }
            let Some(slot) = self.slots.pop_front() else { break };
            progress = true;
            self.net.hold(&self.control, |held| {
                held.pending -= 1;
                held.request_bytes -= slot.request_bytes;
            });
            match slot.state {
                SlotState::Ready(reply) => self.put_out(reply),
                SlotState::Nothing | SlotState::Later(_) => {}
                SlotState::Close => self.stop(),
            }
        }
        progress
    }

    /// Nothing more is answered; what is on its way out still leaves.
    fn stop(&mut self) {
        self.reading_over = true;
        self.blocked = None;
        self.slots.clear();
        let (all, out) = (self.control.held.get(), self.output.bytes());
        self.net.hold(&self.control, |held| {
            held.pending -= all.pending;
            held.request_bytes -= all.request_bytes;
            held.reply_bytes -= all.reply_bytes - out;
        });
    }

    fn note_unfinished(&self) {
        let within_request = self.accepting() && !self.input.is_empty();
        self.control.unfinished.set(!self.output.is_empty() || within_request);
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
        if sent > 0 {
            self.net.hold(&self.control, |held| held.reply_bytes -= sent);
            self.net.count(|counters| counters.bytes_out += sent as u64);
            self.net.is_active(&self.control);
            self.note_unfinished();
        }
        Ok(sent > 0)
    }
}
