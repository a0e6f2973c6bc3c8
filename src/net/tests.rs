//! A service of one-letter requests over loopback, driven by blocking clients on threads.

use super::*;
use crate::protocol::reply::{Piece, Reply};
use crate::runtime::Background;
use futures_channel::oneshot;
use glommio::{LocalExecutorBuilder, Placement};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Weak;
use std::time::{Duration, Instant};

/// Answers by the first byte of a frame.
#[derive(Default)]
struct Letters {
    /// Long polls and blocked requests that wait for `r`.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    dropped: Rc<Cell<u8>>,
    closed: Cell<u8>,
    net: OnceCell<Rc<CoreNet>>,
    /// What answers for the core connections move to, which is this one again.
    next: OnceCell<Weak<Letters>>,
    /// The latest request began with `o` or `O`.
    touched: Cell<Touched>,
}

struct CountDrop(Rc<Cell<u8>>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut all = (body.len() as i32).to_be_bytes().to_vec();
    all.extend_from_slice(body);
    all
}

fn reply(body: &[u8]) -> Reply {
    let body = Bytes::copy_from_slice(body);
    let prefix = Bytes::copy_from_slice(&(body.len() as i32).to_be_bytes());
    Reply { bytes: 4 + body.len(), pieces: vec![Piece::Bytes(prefix), Piece::Bytes(body)] }
}

impl Letters {
    fn wait(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push(sender);
        receiver
    }
}

impl Service for Letters {
    fn call(&self, frame: Bytes, _conn: &Rc<ConnInfo>) -> Outcome {
        self.touched.set(match frame.first() {
            Some(b'o') => Touched::Other(1),
            Some(b'O') => Touched::Other(2),
            _ => Touched::Nothing,
        });
        match frame.first() {
            Some(b'w') => {
                let held = self.net.get().expect("set at once").held().bytes() as u64;
                reply(&held.to_be_bytes()).into()
            }
            Some(b'l') => {
                let (wait, guard) = (self.wait(), CountDrop(self.dropped.clone()));
                Outcome::Pending(Pending::Later(Box::pin(async move {
                    let _guard = guard;
                    wait.await.map_or(Finish::Close, |()| Finish::Reply(reply(&frame)))
                })))
            }
            Some(b'b') => {
                let wait = self.wait();
                Outcome::Blocked(Box::pin(async move {
                    wait.await.map_or(Outcome::Close, |()| reply(&frame).into())
                }))
            }
            Some(b'r') => {
                let waiting: Vec<_> = self.waiting.borrow_mut().drain(..).collect();
                let woken = waiting.into_iter().filter_map(|sender| sender.send(()).ok()).count();
                reply(&[woken as u8]).into()
            }
            Some(b'v') => reply(&[self.waiting.borrow().len() as u8]).into(),
            Some(b's') => reply(&[self.dropped.get(), self.closed.get()]).into(),
            Some(b'n') => Outcome::Pending(Pending::Nothing),
            Some(b'c') => Outcome::Close,
            Some(b'p') => panic!("planted"),
            Some(b'm') => reply(&vec![b'm'; 1 << 20]).into(),
            _ => reply(&frame).into(),
        }
    }

    fn touched(&self) -> Touched {
        self.touched.get()
    }

    /// Core 1 takes connections, core 2 does not.
    fn hand_over(&self, core: usize, parcel: Parcel) -> CoreFuture<Result<(), Parcel>> {
        let next = self.next.get().and_then(Weak::upgrade).expect("set at once");
        let taken = match core {
            1 => adopt(parcel, &next, self.net.get().expect("set at once")),
            _ => Err(parcel),
        };
        Box::pin(std::future::ready(taken))
    }

    fn closed(&self, _conn: &ConnInfo) {
        self.closed.set(self.closed.get() + 1);
    }
}

/// Runs `client` against a core with these limits and ends when it has returned.
fn check(limits: Limits, client: impl FnOnce(SocketAddr) + Send + 'static) -> Counters {
    check_at(Speed(1), usize::MAX, limits, client)
}

/// How much faster than real time the clock of the sweep runs.
struct Speed(u64);

/// The same with a clock of its own and a limit on connections.
fn check_at(
    speed: Speed,
    connections_max: usize,
    limits: Limits,
    client: impl FnOnce(SocketAddr) + Send + 'static,
) -> Counters {
    let any = "127.0.0.1:0".parse().expect("address");
    let listener = bind(any, 1, false).expect("free port").pop().expect("one");
    let address = listener.local_addr().expect("bound");
    let (done, finished) = oneshot::channel();
    let client = std::thread::spawn(move || {
        let _done = done;
        client(address);
    });
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(64 << 10).make();
    let counters = executor.expect("executor").run(async {
        let admission = Admission::new(connections_max, usize::MAX, BTreeMap::new());
        let (net, service) = (CoreNet::new(limits, admission), Rc::new(Letters::default()));
        assert!(service.net.set(net.clone()).is_ok());
        assert!(service.next.set(Rc::downgrade(&service)).is_ok());
        let accepting = glommio::spawn_local(serve(listener, service, net.clone()));
        let (swept, mut now_ms) = (net.clone(), 0);
        let sweeping = Background::every(Duration::from_millis(1), move || {
            now_ms += speed.0;
            swept.sweep(now_ms);
        });
        let _: Result<(), _> = finished.await;
        accepting.cancel().await;
        sweeping.stop().await;
        net.close();
        net.emptied().await;
        assert_eq!(net.held(), Held::default());
        net.counters()
    });
    client.join().expect("client");
    counters
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream
}

fn send(stream: &mut TcpStream, body: &[u8]) {
    stream.write_all(&framed(body)).expect("send");
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).expect("prefix");
    let mut body = vec![0; i32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut body).expect("body");
    body
}

fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0))
        || stream.take_error().is_ok_and(|error| error.is_some())
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn pipelined_requests_of_all_sizes_are_answered_in_order() {
    let counters = check(Limits::default(), |address| {
        let mut stream = connect(address);
        let bodies: Vec<Vec<u8>> = (0..400usize)
            .map(|i| (0..i * i * 3).map(|at| (at % 13) as u8 + (i % 90) as u8).collect())
            .collect();
        let mut sender = stream.try_clone().expect("clone");
        let all: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        let sending = std::thread::spawn(move || {
            all.chunks(77_777).for_each(|part| sender.write_all(part).expect("send"));
        });
        for body in &bodies {
            assert!(receive(&mut stream) == *body);
        }
        sending.join().expect("sender");
    });
    assert_eq!((counters.requests, counters.accepted), (400, 1));
    assert_eq!(counters.bytes_in, counters.bytes_out);
}

#[test]
fn a_frame_that_arrives_byte_by_byte_is_answered() {
    check(Limits::default(), |address| {
        let mut stream = connect(address);
        stream.set_nodelay(true).expect("nodelay");
        for byte in framed(b"hello") {
            stream.write_all(&[byte]).expect("send");
        }
        assert_eq!(receive(&mut stream), b"hello");
    });
}

#[test]
fn a_late_answer_holds_back_the_later_ones_and_no_one_else() {
    check(Limits::default(), |address| {
        let (mut first, mut second) = (connect(address), connect(address));
        for body in [&b"late"[..], b"nothing", b"echo", b"late too"] {
            send(&mut first, body);
        }
        until(|| {
            send(&mut second, b"release");
            receive(&mut second) == [2]
        });
        for body in [&b"late"[..], b"echo", b"late too"] {
            assert_eq!(receive(&mut first), body);
        }
    });
}

#[test]
fn a_blocked_request_holds_back_the_reading_and_keeps_its_place() {
    check(Limits::default(), |address| {
        let (mut first, mut second) = (connect(address), connect(address));
        send(&mut first, b"echo");
        send(&mut first, b"blocked");
        send(&mut first, b"late");
        assert_eq!(receive(&mut first), b"echo");
        for body in [&b"blocked"[..], b"late"] {
            until(|| {
                send(&mut second, b"release");
                receive(&mut second) == [1]
            });
            assert_eq!(receive(&mut first), body);
        }
    });
}

#[test]
fn a_peer_that_goes_away_cancels_its_long_poll() {
    check(Limits::default(), |address| {
        let mut other = connect(address);
        let mut polling = connect(address);
        send(&mut polling, b"late");
        send(&mut polling, b"echo");
        drop(polling);
        until(|| {
            send(&mut other, b"stats");
            receive(&mut other) == [1, 1]
        });
    });
}

#[test]
fn wrong_lengths_and_panics_close_only_their_connection() {
    check(Limits { frame_bytes_max: 1000, ..Limits::default() }, |address| {
        let mut other = connect(address);
        let wrong = [
            (-1i32).to_be_bytes().to_vec(),
            i32::MAX.to_be_bytes().to_vec(),
            1001i32.to_be_bytes().to_vec(),
            framed(b"panic"),
            framed(b"close"),
        ];
        for bytes in wrong {
            let mut stream = connect(address);
            send(&mut stream, b"echo");
            stream.write_all(&bytes).expect("send");
            assert_eq!(receive(&mut stream), b"echo");
            assert!(is_closed(&mut stream), "after {bytes:?}");
            send(&mut other, b"alive");
            assert_eq!(receive(&mut other), b"alive");
        }
    });
}

#[test]
fn a_peer_that_does_not_receive_is_no_longer_read() {
    let limits = Limits { held_bytes_max: 4 << 20, ..Limits::default() };
    let counters = check(limits, |address| {
        let mut stream = connect(address);
        let patience = Some(Duration::from_millis(300));
        stream.set_write_timeout(patience).expect("timeout");
        // 1 MiB of answer for each 10 KiB of request; the sockets' buffers take a few MiB.
        let request = framed(&[b'm'; 10_000]);
        let sent = (0..2_000).take_while(|_| stream.write_all(&request).is_ok()).count();
        assert!(sent < 2_000, "all was read");
        assert_eq!(receive(&mut stream), vec![b'm'; 1 << 20]);
    });
    assert!(counters.requests < 100, "{} requests were taken", counters.requests);
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let counters = check_at(Speed(1), 2, Limits::default(), |address| {
        let mut kept: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
        for stream in &mut kept {
            send(stream, b"echo");
            assert_eq!(receive(stream), b"echo");
        }
        assert!(is_closed(&mut connect(address)));
    });
    assert_eq!((counters.accepted, counters.refused), (2, 1));
}

/// One request and its answer, so that time passes at the core.
fn turn(stream: &mut TcpStream) {
    send(stream, b"alive");
    assert_eq!(receive(stream), b"alive");
}

/// Bytes all connections hold, as the core tells on `stream`.
fn held(stream: &mut TcpStream) -> usize {
    send(stream, b"weight");
    let bytes = receive(stream).try_into().expect("8 bytes");
    u64::from_be_bytes(bytes) as usize
}

const FAST: Speed = Speed(100);

#[test]
fn a_request_that_trickles_in_ends_its_connection() {
    let limits = Limits { stalled_ms: 10_000, ..Limits::default() };
    let counters = check_at(FAST, usize::MAX, limits, |address| {
        let (mut slow, mut other) = (connect(address), connect(address));
        turn(&mut slow);
        slow.write_all(&(10i32 << 20).to_be_bytes()).expect("send");
        until(|| {
            turn(&mut other);
            slow.write_all(b"x").is_err()
        });
        assert!(is_closed(&mut slow));
    });
    assert_eq!(counters.overdue, 1);
}

#[test]
fn a_peer_that_takes_its_answers_too_slowly_loses_its_connection() {
    let limits = Limits { stalled_ms: 10_000, ..Limits::default() };
    let counters = check_at(FAST, usize::MAX, limits, |address| {
        let (mut slow, mut other) = (connect(address), connect(address));
        (0..32).for_each(|_| send(&mut slow, b"m"));
        let mut got = 0;
        until(|| {
            got += slow.read(&mut [0; 16]).expect("some of it");
            send(&mut other, b"stats");
            receive(&mut other) == [0, 1]
        });
        let mut rest = Vec::new();
        // Ends in a reset when something was still to be sent.
        let _ = slow.read_to_end(&mut rest);
        assert!(got + rest.len() < 32 << 20, "all has come");
    });
    assert_eq!(counters.overdue, 1);
}

#[test]
fn silent_and_idle_connections_are_closed_and_waiting_ones_are_not() {
    let stalled_ms = 3_600_000;
    let limits = Limits { setup_ms: 5_000, idle_ms: 30_000, stalled_ms, ..Limits::default() };
    let counters = check_at(FAST, usize::MAX, limits, |address| {
        let mut waiting = connect(address);
        send(&mut waiting, b"late");
        let mut silent = connect(address);
        silent.write_all(&[0, 0]).expect("send");
        let mut idle = connect(address);
        turn(&mut idle);
        // One byte is no request that is well under way.
        let mut slow = connect(address);
        slow.write_all(&[0]).expect("send");
        assert!(is_closed(&mut silent));
        assert!(is_closed(&mut slow));
        assert!(is_closed(&mut idle));
        let mut fresh = connect(address);
        send(&mut fresh, b"release");
        assert_eq!(receive(&mut fresh), [1]);
        assert_eq!(receive(&mut waiting), b"late");
    });
    assert_eq!(counters.overdue, 3);
}

#[test]
fn requests_that_have_begun_stay_within_the_cores_budget_and_all_come_to_their_end() {
    const PEERS: usize = 16;
    const FRAME_BYTES: usize = 4 << 20;
    const BUDGET: usize = 8 << 20;
    let limits = Limits { core_held_bytes_max: BUDGET, ..Limits::default() };
    check(limits, |address| {
        let mut other = connect(address);
        let frame = framed(&[b'x'; FRAME_BYTES - 4]);
        let mut peers: Vec<(TcpStream, usize)> =
            (0..PEERS).map(|_| (connect(address), 0)).collect();
        // All send all but the last byte, as far as the core takes it.
        let (mut quiet, mut most) = (0, 0);
        while quiet < 200 {
            let mut moved = 0;
            for (peer, sent) in &mut peers {
                peer.set_nonblocking(true).expect("an option of the socket");
                moved +=
                    peer.write(&frame[*sent..FRAME_BYTES - 1]).inspect(|n| *sent += n).unwrap_or(0);
            }
            quiet = if moved == 0 { quiet + 1 } else { 0 };
            most = most.max(held(&mut other));
        }
        // A buffer may be up to twice as large as what is in it.
        assert!(most > BUDGET / 2 && most <= BUDGET + 2 * FRAME_BYTES, "{most} bytes were held");
        let ending: Vec<_> = peers
            .into_iter()
            .map(|(mut peer, sent)| {
                let frame = frame.clone();
                peer.set_nonblocking(false).expect("an option of the socket");
                std::thread::spawn(move || {
                    peer.write_all(&frame[sent..]).expect("send");
                    assert!(receive(&mut peer) == frame[4..]);
                })
            })
            .collect();
        ending.into_iter().for_each(|peer| peer.join().expect("answered"));
        turn(&mut other);
    });
}

#[test]
fn peers_that_do_not_take_their_answers_stop_only_themselves() {
    let limits =
        Limits { held_bytes_max: 4 << 20, core_held_bytes_max: 16 << 20, ..Limits::default() };
    check(limits, |address| {
        let mut stuck: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
        for peer in &mut stuck {
            (0..16).for_each(|_| send(peer, b"m"));
        }
        let mut other = connect(address);
        until(|| held(&mut other) > 8 << 20);
        // Up to its share, and a single request above it.
        for bytes in [10, 300_000, 3 << 20, 300_000, 3 << 20] {
            let body = vec![b'x'; bytes];
            let mut others = [connect(address), connect(address)];
            for other in &mut others {
                let (mut sender, body) = (other.try_clone().expect("clone"), body.clone());
                let sending = std::thread::spawn(move || send(&mut sender, &body));
                assert!(receive(other) == vec![b'x'; bytes]);
                sending.join().expect("sent");
            }
        }
        for peer in &mut stuck {
            (0..16).for_each(|_| assert_eq!(receive(peer).len(), 1 << 20));
        }
    });
}

#[test]
fn a_connection_that_moves_loses_nothing_and_keeps_its_order() {
    for (letter, moves) in [(b'o', true), (b'O', false)] {
        let counters = check(Limits::default(), move |address| {
            let mut stream = connect(address);
            let body = |number: usize| {
                let mut body = vec![letter; 1 + number % 700];
                body.extend(number.to_be_bytes());
                body
            };
            let mut sender = stream.try_clone().expect("clone");
            let all: Vec<u8> = (0..20_000).flat_map(|number| framed(&body(number))).collect();
            let sending = std::thread::spawn(move || {
                all.chunks(7_777).for_each(|part| sender.write_all(part).expect("send"));
            });
            for number in 0..20_000 {
                assert!(receive(&mut stream) == body(number), "answer {number}");
            }
            sending.join().expect("sender");
        });
        assert_eq!((counters.requests, counters.accepted), (20_000, 1));
        assert_eq!(counters.moved_in, counters.moved_out);
        // 16 requests before the first, twice as many before each further one.
        assert_eq!((5..12).contains(&counters.moved_in), moves, "{} moves", counters.moved_in);
    }
}

#[test]
fn a_connection_that_wants_to_move_does_not_wait_long_for_a_long_poll() {
    check_at(FAST, usize::MAX, Limits::default(), |address| {
        let (mut moving, mut other) = (connect(address), connect(address));
        // Enough to press for a move, behind a request that is answered much later.
        send(&mut moving, b"late");
        (0..200).for_each(|_| send(&mut moving, b"o"));
        send(&mut moving, b"late");
        until(|| {
            send(&mut other, b"visitors");
            receive(&mut other) == [2]
        });
        send(&mut other, b"release");
        assert_eq!(receive(&mut other), [2]);
        assert_eq!(receive(&mut moving), b"late");
        (0..200).for_each(|_| assert_eq!(receive(&mut moving), b"o"));
        assert_eq!(receive(&mut moving), b"late");
    });
}

#[test]
fn a_port_in_use_is_refused_and_cores_share_or_split_ports() {
    let any = "127.0.0.1:0".parse().expect("address");
    let shared = bind(any, 3, false).expect("free port");
    let address = shared[0].local_addr().expect("bound");
    assert!(shared.iter().all(|one| one.local_addr().expect("bound") == address));
    assert!(matches!(bind(address, 1, false), Err(BindError::InUse(taken)) if taken == address));
    drop(shared);
    let last = SocketAddr::new(address.ip(), u16::MAX);
    assert!(matches!(bind(last, 2, true), Err(BindError::PortsEnd { cores: 2, .. })));
}
