//! Damage below what was synced: refused with the place, never cut off without being asked to.

use crate::broker::{free_port, only_own, topic, Broker, Process, FREE_HTTP, FREE_PG};
use crate::client::create_topic;
use crate::wire::{self, Wire, NOBODY};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of UTF-8")
}

/// The segment file that holds `bytes`, and where.
fn find(log: &Path, bytes: &[u8]) -> (PathBuf, usize) {
    let entries = std::fs::read_dir(log).expect("a log");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .find_map(|path| {
            let segment = std::fs::read(&path).expect("a segment");
            let at = segment.windows(bytes.len()).position(|window| window == bytes)?;
            Some((path, at))
        })
        .expect("the bytes are in a segment")
}

#[test]
fn damage_is_refused_and_salvaged_only_when_asked_to() {
    if only_own("damage_is_refused_and_salvaged_only_when_asked_to") {
        return;
    }
    let mut broker = Broker::start();
    let topic = topic("damage");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    for number in 0..10 {
        let batch = wire::batch(&[&format!("record number {number}")], NOBODY);
        assert_eq!(wire::produce(&mut wire, &topic, batch), Ok(number));
    }
    drop(wire);
    assert!(broker.stop().success());

    let data = broker.data.path().to_path_buf();
    let (segment, at) = find(&data.join("logs/0"), b"record number 6");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).expect("a segment");

    let address = format!("127.0.0.1:{}", free_port());
    let serve = ["serve", "--data-dir", text(&data), "--listen", &address, "--cores", "1"];
    let serve = [&serve[..], &FREE_HTTP, &FREE_PG].concat();
    for _ in 0..2 {
        let mut process = Process::start(&serve);
        assert_eq!(process.end(SOON).code(), Some(1));
        let said = process.errors();
        let name = segment.file_name().and_then(|name| name.to_str()).expect("a name");
        for word in [name, "salvage"] {
            assert!(said.contains(word), "no `{word}` in:\n{said}");
        }
    }

    let mut salvage = Process::start(&["log", "salvage", text(&data)]);
    assert_eq!(salvage.end(SOON).code(), Some(0), "{}", salvage.errors());
    broker.start_stopped();
    let mut wire = Wire::new(&broker);
    let kept = wire::fetch_all(&mut wire, &topic);
    for number in 0..6 {
        let record = format!("record number {number}");
        let is_there = kept.windows(record.len()).any(|window| window == record.as_bytes());
        assert!(is_there, "{record}");
    }
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["more"], NOBODY)), Ok(6));
}

#[test]
fn a_changed_cluster_file_is_named_and_salvage_not_advised() {
    if only_own("a_changed_cluster_file_is_named_and_salvage_not_advised") {
        return;
    }
    let mut broker = Broker::start();
    create_topic(&broker.address, &topic("cluster"), 1, &[]);
    assert!(broker.stop().success());
    let file = broker.data.path().join("cluster");
    let right = std::fs::read(&file).expect("the cluster file");
    let mut wrong = right.clone();
    wrong[0] = if wrong[0] == b'0' { b'1' } else { b'0' };
    std::fs::write(&file, wrong).expect("the cluster file");

    let address = format!("127.0.0.1:{}", free_port());
    let serve = ["serve", "--data-dir", text(broker.data.path()), "--listen", &address];
    let mut process =
        Process::start(&[&serve[..], &["--cores", "1"], &FREE_HTTP, &FREE_PG].concat());
    assert_eq!(process.end(SOON).code(), Some(1));
    let said = process.errors();
    assert!(said.contains("`cluster`") && !said.contains("salvage"), "{said}");
    std::fs::write(&file, right).expect("the cluster file");
    broker.start_stopped();
}

#[test]
fn a_dump_names_the_frames_of_a_stopped_log() {
    if only_own("a_dump_names_the_frames_of_a_stopped_log") {
        return;
    }
    let mut broker = Broker::start();
    let topic = topic("dumped");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    let batch = wire::batch(&["a", "b"], NOBODY);
    for base in [0, 2, 4] {
        assert_eq!(wire::produce(&mut wire, &topic, batch.clone()), Ok(base));
    }
    drop(wire);
    assert!(broker.stop().success());
    let log = broker.data.path().join("logs/0");
    let mut dump = Process::start(&["log", "dump", text(&log)]);
    let (status, output) = dump.output(SOON);
    assert_eq!(status.code(), Some(0), "{}", dump.errors());
    assert!(output.lines().count() >= 5, "{output}");
    broker.start_stopped();
}

#[test]
fn a_running_broker_shows_what_it_counts() {
    if only_own("a_running_broker_shows_what_it_counts") {
        return;
    }
    let http = format!("127.0.0.1:{}", free_port());
    let broker = Broker::with(&["--http", &http]);
    create_topic(&broker.address, &topic("counted"), 1, &[]);
    // The cores put their counts on the board once a second.
    let deadline = Instant::now() + SOON;
    loop {
        let mut stats = Process::start(&["stats", "--http", &http]);
        let (status, output) = stats.output(SOON);
        assert_eq!(status.code(), Some(0), "{}", stats.errors());
        let lines = output.lines().filter(|line| !line.starts_with('#'));
        let has = |word: &str| lines.clone().any(|line| line.contains(word));
        if has("CreateTopics") && has("connections") {
            break;
        }
        assert!(Instant::now() < deadline, "{output}");
    }
}
