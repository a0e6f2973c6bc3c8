//! The process itself: how it starts, refuses to start, and stops.

use crate::broker::{free_port, only_own, topic, Broker, Process, TempDir, FREE_HTTP, FREE_PG};
use crate::client::create_topic;
use crate::wire::{fetch_request, Wire, FETCH_VERSION};
use kafka_protocol::messages::FetchRequest;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A second in the promise; the machine of the tests may be busy.
const SOON: Duration = Duration::from_secs(5);

/// The process refuses: status 1, and one line that has all of `words`.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let mut process = Process::start(arguments);
    let status = process.end(SOON);
    assert_eq!(status.code(), Some(1), "{arguments:?}");
    let said = process.errors().to_lowercase();
    for word in words {
        assert!(said.contains(&word.to_lowercase()), "no `{word}` in:\n{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_stop_ends_with_status_0() {
    if only_own("a_stop_ends_with_status_0") {
        return;
    }
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let data = TempDir::new();
        let address = format!("127.0.0.1:{}", free_port());
        let data_dir = data.path().to_str().expect("a path of UTF-8");
        let serve = ["serve", "--data-dir", data_dir, "--listen", &address];
        let mut process = Process::start(&[&serve[..], &FREE_HTTP, &FREE_PG].concat());
        let line = process.line("ready ", Duration::from_secs(20));
        for part in ["kafka=", "http=", "cores=", "data=", &format!("pid={}", process.id())] {
            assert!(line.contains(part), "no {part} in: {line}");
        }
        process.signal(signal);
        assert_eq!(process.end(SOON).code(), Some(0), "{}", process.errors());
        // The kernel gives up the sockets of an io_uring a little after its owner.
        let deadline = Instant::now() + SOON;
        while TcpStream::connect(&address).is_ok() {
            assert!(Instant::now() < deadline, "somebody still listens");
        }
    }
}

#[test]
fn a_stop_does_not_wait_for_waiting_clients() {
    if only_own("a_stop_does_not_wait_for_waiting_clients") {
        return;
    }
    let mut broker = Broker::start();
    let topic = topic("stopped");
    create_topic(&broker.address, &topic, 1, &[]);
    let idle = Wire::new(&broker);
    let mut waiting = Wire::new(&broker);
    waiting.send(FETCH_VERSION, &fetch_request(&topic, 0, 60_000));
    assert!(waiting.is_silent(Duration::from_millis(50)));
    let begun = Instant::now();
    assert_eq!(broker.stop().code(), Some(0));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // Answered or closed, either is an end.
    if waiting.receive_frame().is_some() {
        assert!(waiting.receive_frame().is_none());
    }
    drop((idle, waiting));
    let _ = std::any::type_name::<FetchRequest>();
}

#[test]
fn a_second_process_on_the_data_is_refused() {
    if only_own("a_second_process_on_the_data_is_refused") {
        return;
    }
    let broker = Broker::start();
    let data = broker.data.path().to_str().expect("a path of UTF-8");
    let address = format!("127.0.0.1:{}", free_port());
    assert_refused(&["serve", "--data-dir", data, "--listen", &address], &[data]);
    create_topic(&broker.address, &topic("first"), 1, &[]);
}

#[test]
fn a_port_in_use_is_refused() {
    if only_own("a_port_in_use_is_refused") {
        return;
    }
    let broker = Broker::start();
    let data = TempDir::new();
    let data_dir = data.path().to_str().expect("a path of UTF-8");
    let port = broker.address.rsplit(':').next().expect("a port");
    assert_refused(&["serve", "--data-dir", data_dir, "--listen", &broker.address], &[port]);

    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = stranger.local_addr().expect("an address");
    let port = address.port().to_string();
    let address = address.to_string();
    assert_refused(&["serve", "--data-dir", data_dir, "--listen", &address], &[&port]);
}

#[test]
fn wrong_settings_are_refused() {
    if only_own("wrong_settings_are_refused") {
        return;
    }
    let data = TempDir::new();
    let data_dir = data.path().to_str().expect("a path of UTF-8");
    let serve = |more: &[&str], words: &[&str]| {
        assert_refused(&[&["serve", "--data-dir", data_dir], more].concat(), words);
    };
    let near = ["log.segment.byte", "log.segment.bytes"];
    serve(&["--set", "log.segment.byte=1"], &near);
    serve(&["--set", "log.segment.bytes=many"], &["log.segment.bytes"]);
    serve(&["--config", "/no/such/file.toml"], &["/no/such/file.toml"]);

    let file = data.path().join("basalt.toml");
    std::fs::write(&file, "log.segment.byte = 1\n").expect("a file");
    let file = file.to_str().expect("a path of UTF-8");
    serve(&["--config", file], &near);
    assert_refused(&["config", "check", file], &near);
}

#[test]
fn the_example_configuration_is_right() {
    if only_own("the_example_configuration_is_right") {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/basalt.toml");
    let mut process = Process::start(&["config", "check", file]);
    assert_eq!(process.end(SOON).code(), Some(0), "{}", process.errors());
}
