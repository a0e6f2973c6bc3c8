//! One connection as one task: receive, cut, call the service, send the answers in order.
//!
//! The task is a loop over four steps (a blocked request, input, answers, output) that runs until
//! none of them makes progress. All answers that are ready leave in one system call. Reading stops
//! while the connection holds more than `budget` allows, so a peer that sends but does not receive
//! is held back by TCP itself. A peer that goes away ends the task, and with it the futures of its
//! pending requests.
//!
//! When all its data are on another core (`affinity`), the connection waits for a moment without
//! requests in flight and goes there: its socket under a new descriptor, and the bytes that were
//! received and not yet taken.
//!
//! The task never spawns others, never blocks, and after a share of work lets the core turn its
//! loop even if the socket has more.

mod answers;

use super::affinity::Affinity;
use super::frame::FrameBuffer;
use super::live::{ConnInfo, Control, CoreNet, Order};
use super::socket::{self, Outgoing};
use super::{CoreFuture, Outcome, Parcel, Place, Service};
use answers::Slot;
use bytes::{Bytes, BytesMut};
use futures_lite::AsyncRead;
use glommio::net::TcpStream;
use glommio::timer::Timer;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
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
    /// It goes on on this core, by this descriptor.
    Move(usize, OwnedFd),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
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
    /// Bytes of the peer were waited for when it was last looked.
    receiving: bool,
    /// A request has been taken since all were answered.
    took: bool,
    blocked: Option<(CoreFuture<Outcome>, usize)>,
    slots: VecDeque<Slot>,
    output: Outgoing,
    turn: Option<Timer>,
    affinity: Affinity,
    place: Place,
}

/// What a connection begins with, be it new or from another core.
struct Start {
    stream: TcpStream,
    received: BytesMut,
    affinity: Affinity,
    frame_bytes_max: usize,
    place: Place,
}

/// Runs a new connection to its end, or until it has moved to another core.
pub(super) async fn run<S: Service>(stream: TcpStream, service: Rc<S>, net: Rc<CoreNet>) {
    let Ok(peer) = stream.peer_addr() else { return };
    let Some((ticket, control)) = net.admit(peer.ip()) else { return };
    let (received, affinity) = (BytesMut::new(), Affinity::default());
    let frame_bytes_max = net.limits.frame_bytes_max;
    let place = Box::new(ticket);
    let start = Start { stream, received, affinity, frame_bytes_max, place };
    drive(start, service, net, control).await;
}

/// Goes on with a connection that comes from another core; gives it back if this one is stopping.
pub(super) fn adopt<S: Service>(
    parcel: Parcel,
    service: Rc<S>,
    net: Rc<CoreNet>,
) -> Result<(), Parcel> {
    if net.draining() {
        return Err(parcel);
    }
    let control = net.enlist();
    control.greeted.set(true);
    net.count(|counters| counters.moved_in += 1);
    glommio::spawn_local(drive(unpack(parcel), service, net, control)).detach();
    Ok(())
}

fn unpack(parcel: Parcel) -> Start {
    let Parcel { socket, received, moves, frame_bytes_max, place } = parcel;
    let (stream, affinity) = (socket::adopt_stream(socket), Affinity::after(moves));
    Start { stream, received, affinity, frame_bytes_max, place }
}

async fn drive<S: Service>(
    mut start: Start,
    service: Rc<S>,
    net: Rc<CoreNet>,
    control: Rc<Control>,
) {
    while let Some((core, parcel)) = serve(start, &service, &net, &control).await {
        match service.hand_over(core, parcel).await {
            Ok(()) => {
                net.count(|counters| counters.moved_out += 1);
                break;
            }
            Err(parcel) => start = unpack(parcel),
        }
    }
    net.remove(&control);
}

/// Serves a connection on this core. Returns it when it is to go to another.
async fn serve<S: Service>(
    start: Start,
    service: &Rc<S>,
    net: &Rc<CoreNet>,
    control: &Rc<Control>,
) -> Option<(usize, Parcel)> {
    let mut connection = Connection::open(start, service, net, control).ok()?;
    let end = futures_lite::future::poll_fn(|cx| connection.poll_guarded(cx)).await;
    match end {
        End::Move(core, socket) => return Some((core, connection.pack(socket))),
        End::Failed(error) => {
            tracing::debug!(peer = %connection.info.peer, %error, "connection failed");
        }
        End::PeerClosed | End::Asked => {}
    }
    connection.service.closed(&connection.info);
    None
}

impl<S: Service> Connection<S> {
    fn open(
        start: Start,
        service: &Rc<S>,
        net: &Rc<CoreNet>,
        control: &Rc<Control>,
    ) -> glommio::Result<Connection<S>, ()> {
        let Start { stream, received, affinity, frame_bytes_max, place } = start;
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        stream.set_nodelay(true)?;
        Ok(Connection {
            socket: socket::descriptor(&stream),
            stream,
            service: service.clone(),
            net: net.clone(),
            control: control.clone(),
            info: Rc::new(ConnInfo::new(control.id, peer, local, frame_bytes_max)),
            input: FrameBuffer::from(received),
            // What came before the move may still be in the socket.
            more: false,
            reading_over: false,
            receiving: false,
            took: false,
            blocked: None,
            slots: VecDeque::new(),
            output: Outgoing::default(),
            turn: None,
            affinity,
            place,
        })
    }

    /// What another core needs to go on. There is nothing in flight.
    fn pack(mut self, socket: OwnedFd) -> Parcel {
        self.affinity.moved();
        self.input.release(&self.net.pool);
        Parcel {
            socket,
            received: self.input.into_rest(),
            moves: self.affinity.moves(),
            frame_bytes_max: self.info.frame_bytes_max(),
            place: self.place,
        }
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
            if let Some(end) = self.poll_move() {
                return Poll::Ready(end);
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
        self.note();
        Ok(progress)
    }

    /// Keeps the accounts of what is held and what the peer owes.
    fn note(&mut self) {
        let (control, now_ms) = (&self.control, self.net.now_ms());
        let (before, input_bytes) = (control.held.get().input_bytes, self.input.held_bytes());
        if before != input_bytes {
            self.net.hold(control, |held| {
                held.input_bytes = held.input_bytes + input_bytes - before;
            });
        }
        if self.took && self.slots.is_empty() && self.blocked.is_none() {
            self.took = false;
            self.net.answered(control);
        }
        let mut begins = false;
        match self.receiving && !self.input.is_empty() {
            true => begins |= control.sending.owed(now_ms),
            false => control.sending.settled(),
        }
        match self.output.is_empty() {
            true => control.taking.settled(),
            false => begins |= control.taking.owed(now_ms),
        }
        if begins {
            self.net.watch(control);
        }
    }

    /// Whether the connection goes to another core now.
    fn poll_move(&mut self) -> Option<End> {
        let core = self.affinity.elsewhere()?;
        if self.reading_over || self.control.order() != Order::Run {
            return None;
        }
        let since_ms = &self.control.moving_since_ms;
        if self.slots.is_empty() && self.blocked.is_none() && self.output.is_empty() {
            since_ms.set(None);
            match socket::detach(&self.stream) {
                Ok(socket) => return Some(End::Move(core, socket)),
                Err(error) => tracing::debug!(%error, "a connection cannot move"),
            }
            self.affinity.moved();
        } else if self.control.moves_too_slowly(self.net.now_ms()) {
            // A long poll, say. What comes behind it has waited long enough.
            since_ms.set(None);
            self.affinity.moved();
        } else if self.affinity.presses() && since_ms.get().is_none() {
            since_ms.set(Some(self.net.now_ms()));
            self.net.watch(&self.control);
        }
        None
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

    /// Whether another request may come, as far as this connection goes.
    fn accepting(&self) -> bool {
        !self.reading_over
            && self.blocked.is_none()
            && self.control.order() == Order::Run
            && self.control.moving_since_ms.get().is_none()
    }

    fn poll_input(&mut self, cx: &mut Context, received: &mut usize) -> Result<bool, End> {
        let mut progress = self.take_frames(cx);
        self.receiving = self.accepting() && self.net.may_receive(&self.control);
        if !self.receiving {
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
        self.control.sending.moved(got);
        let first_bytes = &self.control.first_bytes;
        first_bytes.set(first_bytes.get().saturating_add(got));
        self.take_frames(cx);
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
        while self.accepting() && self.net.may_take(&self.control) {
            match self.input.next(self.info.frame_bytes_max()) {
                Ok(Some(frame)) => {
                    self.control.sending.settled();
                    self.call(frame, cx);
                }
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
        self.affinity.note(self.service.touched());
        self.took = true;
    }
}
