//! A service of one-letter requests over loopback, driven by blocking clients on threads.

use super::*;
use crate::protocol::reply::{Piece, Reply};
use futures_channel::oneshot;
use glommio::{LocalExecutorBuilder, Placement};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Answers by the first byte of a frame.
#[derive(Default)]
struct Letters {
    /// Long polls and blocked requests that wait for `r`.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    dropped: Rc<Cell<u8>>,
    closed: Cell<u8>,
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
        match frame.first() {
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
            Some(b's') => reply(&[self.dropped.get(), self.closed.get()]).into(),
            Some(b'n') => Outcome::Pending(Pending::Nothing),
            Some(b'c') => Outcome::Close,
            Some(b'p') => panic!("planted"),
            Some(b'm') => reply(&vec![b'm'; 1 << 20]).into(),
            _ => reply(&frame).into(),
        }
    }

    fn closed(&self, _conn: &ConnInfo) {
        self.closed.set(self.closed.get() + 1);
    }
}

/// Runs `client` against a core with these limits and ends when it has returned.
fn check(limits: Limits, client: impl FnOnce(SocketAddr) + Send + 'static) -> Counters {
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
        let (net, service) = (CoreNet::new(limits), Rc::new(Letters::default()));
        let accepting = glommio::spawn_local(serve(listener, service, net.clone()));
        let _: Result<(), _> = finished.await;
        accepting.cancel().await;
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
    let counters = check(Limits { connections_max: 2, ..Limits::default() }, |address| {
        let mut kept: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
        for stream in &mut kept {
            send(stream, b"echo");
            assert_eq!(receive(stream), b"echo");
        }
        assert!(is_closed(&mut connect(address)));
    });
    assert_eq!((counters.accepted, counters.refused), (2, 1));
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
