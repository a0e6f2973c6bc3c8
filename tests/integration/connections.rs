//! What a connection may claim: a place among all, time, memory, a file of the process.
//!
//! Waiting is for the broker to close a connection or to answer, never for a time of our own. Gap:
//! that a core's memory stays within its budget is shown by the tests of `net`.

use crate::broker::{free_port, only_own, topic, Broker, Process, TempDir, FREE_HTTP, FREE_PG};
use crate::client::{create_topic, PATIENCE};
use crate::wire::{self, Wire, FETCH_VERSION, NOBODY};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// A broker of two cores, with these keys and its metrics served.
pub struct Watched {
    pub broker: Broker,
    http: String,
}

impl Watched {
    pub fn with(cores: &str, keys: &[&str]) -> Watched {
        let http = format!("127.0.0.1:{}", free_port());
        let mut arguments = vec!["--cores", cores, "--http", &http];
        keys.iter().for_each(|key| arguments.extend(["--set", key]));
        let broker = Broker::with(&arguments);
        Watched { broker, http }
    }

    /// The value of a metric on each core, in the order of the cores.
    pub fn metric(&self, name: &str) -> Vec<u64> {
        let mut stream = TcpStream::connect(&self.http).expect("metrics are served");
        let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("an open connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("metrics");
        let of = |line: &str| {
            line.strip_prefix(name)?.strip_prefix('{')?.split(' ').nth(1)?.parse().ok()
        };
        text.lines().filter_map(of).collect()
    }

    /// Waits until a metric, which is told once a second, is as wanted.
    pub fn until(&self, name: &str, wanted: impl Fn(&[u64]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.metric(name);
            if wanted(&seen) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is still {seen:?}");
            std::thread::yield_now();
        }
    }
}

/// A connection from an address of this machine.
fn connect_from(from: &str, broker: &Broker) -> Wire {
    let address: SocketAddr = broker.address.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from: SocketAddr = format!("{from}:0").parse().expect("an address");
    socket.bind(&from.into()).expect("an address of loopback");
    socket.connect(&address.into()).expect("a listening broker");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option of the socket");
    Wire::over(socket.into())
}

/// Whether the broker answers on this connection; otherwise it has closed it.
fn is_served(wire: &mut Wire) -> bool {
    let frame = wire.frame(0, &ApiVersionsRequest::default());
    wire.stream.write_all(&frame).is_ok() && wire.receive_frame().is_some()
}

/// The first connection that is served again: what has closed is noticed a little later.
fn until_served(broker: &Broker, from: &str) -> Wire {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut wire = connect_from(from, broker);
        if is_served(&mut wire) {
            return wire;
        }
        assert!(Instant::now() < deadline, "no place has come free");
    }
}

#[test]
fn the_number_of_connections_is_limited_over_all_cores() {
    if only_own("the_number_of_connections_is_limited_over_all_cores") {
        return;
    }
    let at = Watched::with("2", &["max.connections=20"]);
    let mut kept: Vec<Wire> = Vec::new();
    // Of so many connections some go to either core.
    for number in 0..60 {
        let mut wire = Wire::new(&at.broker);
        assert_eq!(is_served(&mut wire), number < 20, "connection {number}");
        if number < 20 {
            kept.push(wire);
        }
    }
    at.until("basalt_connections_refused_total", |cores| cores.iter().sum::<u64>() == 40);
    at.until("basalt_connections", |cores| cores.iter().sum::<u64>() == 20);
    assert!(kept.iter_mut().all(is_served));
    kept.truncate(19);
    kept.push(until_served(&at.broker, "127.0.0.1"));
    assert!(kept.iter_mut().all(is_served));
}

#[test]
fn an_address_has_its_limit_over_all_cores_or_one_of_its_own() {
    if only_own("an_address_has_its_limit_over_all_cores_or_one_of_its_own") {
        return;
    }
    let keys =
        ["max.connections.per.ip=3", "max.connections.per.ip.overrides=127.0.0.2:9,127.0.0.3:0"];
    let at = Watched::with("2", &keys);
    for (from, most) in [("127.0.0.1", 3), ("127.0.0.2", 9), ("127.0.0.3", 0), ("127.0.0.4", 3)] {
        let mut all: Vec<Wire> = (0..20).map(|_| connect_from(from, &at.broker)).collect();
        let served = all.iter_mut().map(is_served).filter(|served| *served).count();
        assert_eq!(served, most, "from {from}");
    }
    drop(until_served(&at.broker, "127.0.0.1"));
}

#[test]
fn silent_idle_and_dawdling_connections_are_closed_and_waiting_ones_are_not() {
    if only_own("silent_idle_and_dawdling_connections_are_closed_and_waiting_ones_are_not") {
        return;
    }
    let keys = ["connection.setup.ms=1s", "connections.max.idle.ms=2s", "connection.stall.ms=1s"];
    let at = Watched::with("1", &keys);
    let topic = topic("dawdle");
    create_topic(&at.broker.address, &topic, 1, &[]);
    // A fetch that waits is no idle connection, for as long as all the others take.
    let mut waiting = Wire::new(&at.broker);
    waiting.send(FETCH_VERSION, &wire::fetch_request(&topic, 0, 60_000));
    let mut silent = Wire::new(&at.broker);
    assert!(silent.receive_frame().is_none());
    let mut idle = Wire::new(&at.broker);
    assert!(is_served(&mut idle));
    assert!(idle.receive_frame().is_none());

    let mut slow = Wire::new(&at.broker);
    assert!(is_served(&mut slow));
    let mut pace = Wire::new(&at.broker);
    slow.stream.write_all(&(1i32 << 20).to_be_bytes()).expect("an open connection");
    let deadline = Instant::now() + PATIENCE;
    while slow.stream.write_all(b"x").is_ok() {
        // One byte for each request of another: at no time is it quiet, and it gets nowhere.
        (0..20).for_each(|_| assert!(is_served(&mut pace)));
        assert!(Instant::now() < deadline, "a trickle is still read");
    }
    at.until("basalt_connections_overdue_total", |cores| cores == [3]);
    let mut producer = Wire::new(&at.broker);
    assert_eq!(wire::produce(&mut producer, &topic, wire::batch(&["a"], NOBODY)), Ok(0));
    assert!(waiting.receive_frame().is_some());
}

#[test]
fn a_consumer_that_does_not_read_stops_only_itself_and_is_closed() {
    if only_own("a_consumer_that_does_not_read_stops_only_itself_and_is_closed") {
        return;
    }
    let keys = ["connection.held.bytes=1MiB", "core.held.bytes=4MiB", "connection.stall.ms=3s"];
    let at = Watched::with("1", &keys);
    let topic = topic("stuck");
    create_topic(&at.broker.address, &topic, 1, &[]);
    let mut other = Wire::new(&at.broker);
    let value = "v".repeat(900_000);
    for number in 0..8 {
        let batch = wire::batch(&[&value], NOBODY);
        assert_eq!(wire::produce(&mut other, &topic, batch), Ok(number));
    }
    // Each asks for far more than the budgets and the sockets hold, and reads nothing.
    let mut stuck: Vec<Wire> = (0..8).map(|_| Wire::new(&at.broker)).collect();
    for wire in &mut stuck {
        for number in 0..30 {
            wire.send(FETCH_VERSION, &wire::fetch_request(&topic, number % 8, 0));
        }
    }
    at.until("basalt_connections_held_bytes", |cores| cores[0] > 2 << 20);
    let mut number = 8;
    let deadline = Instant::now() + PATIENCE;
    while at.metric("basalt_connections_overdue_total") != [8] {
        let batch = wire::batch(&[&value], NOBODY);
        assert_eq!(wire::produce(&mut other, &topic, batch), Ok(number));
        let seen = wire::fetch(&mut other, &topic, number, 0).expect("records");
        assert!(seen.len() > value.len());
        number += 1;
        assert!(Instant::now() < deadline, "they are still connected");
    }
    assert!(number > 9, "others were served meanwhile");
    for wire in &mut stuck {
        let mut rest = Vec::new();
        // Ends, be it with a reset.
        let _ = wire.stream.read_to_end(&mut rest);
    }
    assert!(is_served(&mut other));
    at.until("basalt_connections_held_bytes", |cores| cores == [0]);
}

#[test]
fn as_many_connections_are_taken_as_there_may_be_files() {
    if only_own("as_many_connections_are_taken_as_there_may_be_files") {
        return;
    }
    let data = TempDir::new();
    let address = format!("127.0.0.1:{}", free_port());
    let data_dir = data.path().to_str().expect("a path of UTF-8");
    let arguments = ["serve", "--data-dir", data_dir, "--listen", &address, "--cores", "1"];
    let arguments = [&arguments[..], &FREE_HTTP, &FREE_PG].concat();
    let mut process = Process::start_with_files(256, &arguments);
    process.line("ready ", PATIENCE);
    assert!(process.errors().contains("128 connections are taken"), "{}", process.errors());
    let connect = |_| Wire::over(TcpStream::connect(&address).expect("a listening broker"));
    let mut all: Vec<Wire> = (0..300).map(connect).collect();
    assert_eq!(all.iter_mut().map(is_served).filter(|served| *served).count(), 128);
    // For its own files there is room.
    let topic = topic("files");
    let auto_created = MetadataRequestTopic::default().with_name(Some(wire::name(&topic)));
    let request = MetadataRequest::default().with_topics(Some(vec![auto_created]));
    let within = &mut all[0];
    within.ask(4, &request.with_allow_auto_topic_creation(true));
    assert_eq!(wire::produce(within, &topic, wire::batch(&["a"], NOBODY)), Ok(0));
    process.signal(libc::SIGTERM);
    assert_eq!(process.end(PATIENCE).code(), Some(0), "{}", process.errors());
}

/// Sets how many files a process may open from now on.
fn limit_files(id: u32, files: u64) -> u64 {
    let new = libc::rlimit { rlim_cur: files, rlim_max: files.max(4096) };
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both point to values of this function, and the process is a child of this one.
    let outcome = unsafe { libc::prlimit(id as i32, libc::RLIMIT_NOFILE, &new, &mut old) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    old.rlim_cur
}

#[test]
fn a_broker_out_of_files_serves_who_is_in_and_takes_others_when_it_can() {
    if only_own("a_broker_out_of_files_serves_who_is_in_and_takes_others_when_it_can") {
        return;
    }
    let broker = Broker::with(&["--cores", "1"]);
    let topic = topic("files");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut inside = Wire::new(&broker);
    assert!(is_served(&mut inside));
    let id = broker.id().expect("a process of our own");
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count() as u64;
    limit_files(id, open + 2);
    let mut outside: Vec<Wire> = (0..20).map(|_| Wire::new(&broker)).collect();
    let deadline = Instant::now() + PATIENCE;
    while !broker.errors().contains("may not open more files") {
        assert!(Instant::now() < deadline, "nothing was said:\n{}", broker.errors());
        assert_eq!(wire::fetch(&mut inside, &topic, 0, 0), Ok(Default::default()));
    }
    limit_files(id, 4096);
    // They waited in the kernel's queue.
    assert!(outside.iter_mut().all(is_served));
    assert!(broker.errors().contains("taken again"), "{}", broker.errors());
    assert!(!broker.errors().contains("panicked"), "{}", broker.errors());
}
