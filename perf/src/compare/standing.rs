//! Brokers at rest: clients that wait, the time a start takes, bytes on the disk, and old records
//! that are in no memory.

use super::case::Case;
use super::peer::{Peer, Products};
use super::usage::{disk_bytes, watch};
use super::work::{costs, At, Scale};
use crate::broker::Broker;
use crate::connections::{ask, connect};
use crate::error::PerfError;
use crate::load::{one_each, taken, Load, Sent};
use crate::old_reads::{COLD, LEFT_BYTES};
use crate::tables::{make_topic, metrics, wait_for_logs, wait_for_rows, NO_FILES};
use crate::tool::Tool;
use crate::topics::Topics;
use crate::wire::{frame, Wire};
use benches::counters::{anonymous_bytes, cpu_seconds};
use benches::report::Report;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{FetchRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const IDLE_CONSUMERS: usize = 1000;
const CONNECTIONS: usize = 2000;
/// What a broker allocates once is there after so many connections.
const FIRST_CONNECTIONS: usize = 50;
const FETCH_VERSION: i16 = 4;
const METADATA_VERSION: i16 = 4;
/// As clients do by default.
const FETCH_WAIT_MS: i32 = 500;
const TOPIC: &str = "compare";
/// Where the first record after a start goes.
const FIRST: &str = "first";
/// Partitions of each topic of a start with many.
const TOPIC_PARTITIONS: u32 = 1000;
const FIRST_PRODUCE_WITHIN: Duration = Duration::from_secs(180);

/// Consumers that fetch again and again and are given nothing.
pub fn idle_consumers(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    let pid = at.broker.pid;
    let before = anonymous_bytes(pid)?;
    let (used, fetches) = at.with_topic(1, |topic| {
        let mut wires = (0..IDLE_CONSUMERS)
            .map(|_| Wire::to(&at.broker.address))
            .collect::<Result<Vec<_>, _>>()?;
        let request = fetch(topic)?;
        let mut turn = || {
            wires.iter_mut().try_for_each(|wire| wire.send(&request))?;
            let mut receive =
                |wire: &mut Wire| wire.receive::<FetchRequest>(FETCH_VERSION).map(|_| ());
            wires.iter_mut().try_for_each(&mut receive)
        };
        turn()?;
        let mut turns = 0;
        let (_, used) = at.watch(|| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(at.scale.seconds) {
                turn()?;
                turns += 1;
            }
            Ok(())
        })?;
        Ok((used, (turns * IDLE_CONSUMERS) as f64 / used.took))
    })?;
    report.row(name, "CPU", used.cpu / used.took * 100.0, "%");
    report.row(name, "fetches", fetches, "1/s");
    report.row(name, "memory", used.memory as f64 / 1e6, "MB");
    let grown = used.memory.saturating_sub(before) as f64;
    report.row(name, "memory of each", grown / IDLE_CONSUMERS as f64 / 1024.0, "KiB");
    Ok(())
}

fn fetch(topic: &str) -> Result<bytes::Bytes, PerfError> {
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default()
        .with_topic(TopicName(StrBytes::from_string(topic.to_string())))
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_wait_ms(FETCH_WAIT_MS)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![wanted]);
    frame(FETCH_VERSION, &request)
}

/// Connections that have asked once and are quiet since.
pub fn connections(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    let pid = at.broker.pid;
    let first = connect(&at.broker.address, FIRST_CONNECTIONS)?;
    let (before, started) = (anonymous_bytes(pid)?, Instant::now());
    let others = connect(&at.broker.address, CONNECTIONS)?;
    report.row(name, "connected in", started.elapsed().as_secs_f64(), "s");
    let time = Duration::from_secs(at.scale.seconds);
    let cpu = cpu_seconds(pid)?;
    std::thread::sleep(time);
    let cpu = cpu_seconds(pid)? - cpu;
    report.row(name, "CPU", cpu / time.as_secs_f64() * 100.0, "%");
    let after = anonymous_bytes(pid)?;
    report.row(name, "memory", after as f64 / 1e6, "MB");
    let grown = after.saturating_sub(before) as f64;
    report.row(name, "memory of each", grown / CONNECTIONS as f64 / 1024.0, "KiB");
    // All of them are still there.
    for mut stream in first.into_iter().chain(others) {
        ask(&mut stream).map_err(PerfError::run("an idle connection"))?;
    }
    Ok(())
}

/// Measures cases on brokers of their own, and keeps what takes long to make for the next round.
pub struct Standing<'a> {
    products: &'a Products,
    tool: &'a Tool,
    scale: Scale,
    many: Vec<(Peer, TempDir)>,
}

impl<'a> Standing<'a> {
    pub fn new(products: &'a Products, tool: &'a Tool, scale: Scale) -> Standing<'a> {
        Standing { products, tool, scale, many: Vec::new() }
    }

    pub fn measure(&mut self, peer: Peer, case: Case) -> Result<Report, PerfError> {
        let mut report = Report::new("standing");
        match case {
            Case::Start => self.start(peer, &mut report)?,
            Case::Disk => self.disk(peer, &mut report)?,
            Case::CatchUp => self.catch_up(peer, case, &mut report)?,
            Case::CatchUpTables => self.catch_up(peer, case, &mut report)?,
            _ => return Err(PerfError::Answer(format!("{case} needs a broker that runs"))),
        }
        Ok(report)
    }

    /// Starts an empty broker, and one with many partitions, which was stopped cleanly.
    fn start(&mut self, peer: Peer, report: &mut Report) -> Result<(), PerfError> {
        let empty = self.products.data_dir()?;
        if !peer.is_basalt() {
            self.products.kafka.format(empty.path())?;
        }
        self.start_on(peer, empty.path(), "start, empty", report)?;
        let many = match self.many.iter().position(|(known, _)| *known == peer) {
            Some(index) => index,
            None => {
                self.many.push((peer, self.with_many_partitions(peer)?));
                self.many.len() - 1
            }
        };
        let case = format!("start, {} partitions", self.scale.partitions);
        self.start_on(peer, self.many[many].1.path(), &case, report)
    }

    fn with_many_partitions(&self, peer: Peer) -> Result<TempDir, PerfError> {
        let data = self.products.data_dir()?;
        let broker = self.products.start(peer, data.path(), &[])?;
        let topics = Topics::at(&broker.address)?;
        for number in 0..self.scale.partitions.div_ceil(TOPIC_PARTITIONS) {
            let left = self.scale.partitions - number * TOPIC_PARTITIONS;
            let name = format!("many-{number}");
            topics.create(&name, left.min(TOPIC_PARTITIONS) as i32, &[])?;
            eprintln!("    {} has {} partitions", peer.name(), (number + 1) * TOPIC_PARTITIONS);
        }
        topics.create(FIRST, 1, &[])?;
        drop(topics);
        broker.stop()?;
        Ok(data)
    }

    fn start_on(
        &self,
        peer: Peer,
        data: &Path,
        case: &str,
        report: &mut Report,
    ) -> Result<(), PerfError> {
        let started = Instant::now();
        let broker = self.products.start(peer, data, &[])?;
        first_produce(&broker.address, started)?;
        report.row(case, "to the first produce", started.elapsed().as_secs_f64(), "s");
        report.row(case, "memory", anonymous_bytes(broker.pid)? as f64 / 1e6, "MB");
        broker.stop()
    }

    /// What is on the disk when everything has come to rest.
    fn disk(&self, peer: Peer, report: &mut Report) -> Result<(), PerfError> {
        let data = self.products.data_dir()?;
        let broker = self.products.start(peer, data.path(), COLD)?;
        let sent = self.send_events(&broker, self.scale.rest_bytes)?;
        let mut records = None;
        if peer.is_basalt() {
            wait_for_rows(&broker, Some(TOPIC), sent.records)?;
            wait_for_logs(&broker, LEFT_BYTES)?;
            records = Some(metrics(&broker)?.values("basalt_table_bytes", Some(TOPIC)).sum());
        }
        broker.stop()?;
        let (allocated, _) = disk_bytes(data.path())?;
        let bytes = sent.bytes as f64;
        let records: f64 = records.unwrap_or(allocated as f64);
        report.row("disk", "records at rest per byte", records / bytes, "B/B");
        report.row("disk", "whole directory per byte", allocated as f64 / bytes, "B/B");
        Ok(())
    }

    /// Consumes JSON that nobody has in memory. Kafka goes on as it is, warmed up; Basalt, which
    /// holds its log as mapped memory, is started anew for it.
    fn catch_up(&self, peer: Peer, case: Case, report: &mut Report) -> Result<(), PerfError> {
        let data = self.products.data_dir()?;
        let settings = if case == Case::CatchUpTables { COLD } else { NO_FILES };
        let mut broker = self.products.start(peer, data.path(), settings)?;
        let sent = self.send_events(&broker, self.scale.read_bytes)?;
        if peer.is_basalt() && case == Case::CatchUpTables {
            wait_for_rows(&broker, Some(TOPIC), sent.records)?;
            wait_for_logs(&broker, LEFT_BYTES)?;
        }
        self.tool.consume(&broker.address, TOPIC, sent.records)?;
        if peer.is_basalt() {
            broker.stop()?;
            forget(data.path())?;
            broker = self.products.start(peer, data.path(), settings)?;
        } else {
            forget(data.path())?;
        }
        let consume = || self.tool.consume(&broker.address, TOPIC, sent.records);
        let (outcome, used) = watch(broker.pid, data.path(), consume)?;
        let name = case.to_string();
        report.row(&name, "rate", outcome.per_second() / 1e3, "k msg/s");
        let each = (sent.bytes / sent.records.max(1)) as usize;
        costs(&name, outcome.messages, each, &used, report);
        broker.stop()
    }

    fn send_events(&self, broker: &Broker, bytes: u64) -> Result<Sent, PerfError> {
        make_topic(broker, TOPIC, 1)?;
        // None comes twice, which a codec would see.
        let load = Load::events(bytes);
        load.send(&broker.address, (TOPIC, 0), |sent| sent.bytes >= bytes)
    }
}

/// Produces one record, however often that has to be tried.
fn first_produce(address: &str, started: Instant) -> Result<(), PerfError> {
    const INTERVAL: Duration = Duration::from_millis(2);
    let name = TopicName(StrBytes::from_static_str(FIRST));
    let topic = MetadataRequestTopic::default().with_name(Some(name));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(true);
    let produce = one_each(FIRST, 1, 1)?;
    let once = || {
        let mut wire = Wire::to(address)?;
        wire.ask(METADATA_VERSION, &request)?;
        wire.send(&produce)?;
        taken(&mut wire)
    };
    while let Err(error) = once() {
        if started.elapsed() > FIRST_PRODUCE_WITHIN {
            return Err(error);
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Writes the files under a directory back and takes them out of the page cache.
fn forget(path: &Path) -> Result<(), PerfError> {
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(PerfError::file(path))?;
        for entry in entries {
            forget(&entry.map_err(PerfError::file(path))?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path).map_err(PerfError::file(path))?;
    file.sync_all().map_err(PerfError::file(path))?;
    let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    posix_fadvise(file.as_raw_fd(), 0, 0, advice)
        .map_err(|errno| PerfError::File { path: path.to_path_buf(), source: errno.into() })
}
