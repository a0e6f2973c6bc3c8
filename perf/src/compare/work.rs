//! One case on one running broker: producing, consuming and latency, as rows of a report.
//!
//! How much is sent follows from a short run before: each broker gets about the same time, so that
//! a slow one does not take hours and a fast one is not over before it has begun.

use super::case::{Case, Producing};
use super::codec;
use super::java;
use super::peer::Products;
use super::standing;
use super::usage::{watch, Usage};
use crate::broker::Broker;
use crate::error::PerfError;
use crate::groups::open_groups;
use crate::latency;
use crate::load::{one_each, taken};
use crate::tool::{Outcome, Produce, Tool};
use crate::topics::Topics;
use crate::wire::Wire;
use benches::report::Report;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often what was produced is consumed.
const READS: u64 = 5;
const GROUPS: usize = 16;
/// Where no more is wanted than that a topic stays with one partition until its linger is over.
const SCATTERED: &[&str] = &["sticky.partitioning.linger.ms=0"];
/// The first guess at a rate comes of so few messages, as one broker may sync for each.
const FIRST_MESSAGES: u64 = 2000;
const TOUCHED_WITHIN: Duration = Duration::from_secs(60);
/// From one guess to the next.
const GROWTH: u64 = 4;
/// A rate that has not grown by this is what it will be.
const STEADY: f64 = 1.25;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Seconds of a run.
    pub seconds: u64,
    /// Bytes a run sends at most.
    pub bytes_max: u64,
    /// Bytes that consumers read.
    pub read_bytes: u64,
    /// Bytes of JSON records that are looked at on the disk.
    pub rest_bytes: u64,
    /// Partitions of a start that is timed.
    pub partitions: u32,
}

/// A broker at work.
pub struct At<'a> {
    pub broker: &'a Broker,
    pub data: &'a Path,
    pub topics: Topics,
    pub tool: &'a Tool,
    pub products: &'a Products,
    pub scale: Scale,
}

impl At<'_> {
    /// A topic of its own, deleted afterwards.
    pub fn with_topic<T>(
        &self,
        partitions: u32,
        run: impl FnOnce(&str) -> Result<T, PerfError>,
    ) -> Result<T, PerfError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("compare-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.topics.create(&name, partitions as i32, &[])?;
        let result = run(&name);
        self.topics.delete(&name)?;
        result
    }

    pub fn watch<T>(
        &self,
        run: impl FnOnce() -> Result<T, PerfError>,
    ) -> Result<(T, Usage), PerfError> {
        watch(self.broker.pid, self.data, run)
    }

    /// Fills partition 0 of a topic; how many messages it then has.
    pub fn fill(&self, topic: &str, bytes: usize) -> Result<u64, PerfError> {
        let messages = (self.scale.read_bytes / bytes as u64).max(1);
        let (partition, acks, rate) = (Some(0), 1, None);
        let what = Produce { topic, partition, messages, bytes, acks, rate, settings: &[] };
        self.tool.produce(&self.broker.address, &what)?;
        Ok(messages)
    }
}

/// Measures one case that needs no broker of its own.
pub fn measure(at: &At<'_>, case: Case) -> Result<Report, PerfError> {
    let mut report = Report::new("work");
    let name = case.to_string();
    match case {
        Case::Produce(load) => produce(at, &name, &load, &mut report)?,
        Case::Consume(bytes) => consume(at, &name, bytes, &mut report)?,
        Case::Latency(rate) => end_to_end(at, &name, (rate, "0"), &mut report)?,
        Case::LingeringLatency(rate) => end_to_end(at, &name, (rate, "5"), &mut report)?,
        Case::Groups => groups(at, &name, &mut report)?,
        Case::IdleConsumers => standing::idle_consumers(at, &name, &mut report)?,
        Case::Connections => standing::connections(at, &name, &mut report)?,
        Case::JavaProduce => java::produce(at, &name, &mut report)?,
        Case::JavaConsume => java::consume(at, &name, &mut report)?,
        Case::JavaLatency => java::end_to_end(at, &name, &mut report)?,
        Case::CatchUp | Case::CatchUpTables | Case::Start | Case::Disk => {
            return Err(PerfError::OwnBrokers)
        }
    }
    Ok(report)
}

/// Code paths and caches are as they are after some time: a virtual machine has compiled what it
/// runs often. Not measured.
pub fn warm_up(at: &At<'_>, seconds: u64) -> Result<(), PerfError> {
    for (bytes, partitions) in [(100, 1), (1024, 1), (1024, 100)] {
        let load = Producing {
            bytes,
            partitions,
            producers: 1,
            is_all: partitions > 1,
            is_scattered: false,
            json: None,
        };
        at.with_topic(partitions, |topic| {
            let messages = guess(at, topic, &load, seconds as f64 / 3.0)?;
            send(at, topic, &load, messages)
        })?;
    }
    open_groups(&at.broker.address)?;
    at.with_topic(1, |topic| {
        let messages = at.fill(topic, 1024)?;
        at.tool.consume(&at.broker.address, topic, messages).map(|_| ())
    })
}

fn produce(
    at: &At<'_>,
    name: &str,
    load: &Producing,
    report: &mut Report,
) -> Result<(), PerfError> {
    let (outcome, used) = at.with_topic(load.partitions, |topic| {
        let messages = guess(at, topic, load, at.scale.seconds as f64)?;
        at.watch(|| send(at, topic, load, messages))
    })?;
    report.row(name, "rate", outcome.per_second() / 1e3, "k msg/s");
    costs(name, outcome.messages, load.bytes, &used, report);
    let bytes = outcome.messages as f64 * load.bytes as f64;
    report.row(name, "pages dirtied per byte", used.dirtied as f64 / bytes, "B/B");
    if let Some(device) = used.device {
        report.row(name, "written per byte", device as f64 / bytes, "B/B");
    }
    Ok(())
}

/// CPU and memory of a run.
pub fn costs(name: &str, messages: u64, bytes: usize, used: &Usage, report: &mut Report) {
    let messages = messages.max(1) as f64;
    report.row(name, "CPU per million", used.cpu * 1e6 / messages, "CPU-s");
    report.row(name, "CPU per GB", used.cpu * 1e9 / (messages * bytes as f64), "CPU-s");
    report.row(name, "memory", used.memory as f64 / 1e6, "MB");
}

/// Gives every partition a record: the first one makes files, which is no matter of throughput.
/// A new partition has a leader in metadata before it takes records.
fn touch(at: &At<'_>, topic: &str, partitions: u32) -> Result<(), PerfError> {
    let request = one_each(topic, partitions as i32, 1)?;
    let started = Instant::now();
    let mut wire = Wire::to(&at.broker.address)?;
    loop {
        wire.send(&request)?;
        match taken(&mut wire) {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() > TOUCHED_WITHIN => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// How many messages take about so many seconds: runs that grow until one is long enough to tell,
/// and until more messages at once no longer make larger batches and a higher rate.
fn guess(at: &At<'_>, topic: &str, load: &Producing, seconds: f64) -> Result<u64, PerfError> {
    let most = (at.scale.bytes_max / load.bytes as u64).max(1);
    touch(at, topic, load.partitions)?;
    let (mut count, mut before) = (FIRST_MESSAGES.min(most.div_ceil(20)), 0.0);
    loop {
        let outcome = send(at, topic, load, count)?;
        let rate = outcome.per_second();
        let is_steady = rate < before * STEADY && outcome.seconds > seconds / 4.0;
        if is_steady || outcome.seconds > seconds * 2.0 || count >= most {
            return Ok(((rate * seconds) as u64).clamp(count.min(most), most));
        }
        (count, before) = ((count * GROWTH).min(most), rate);
    }
}

/// Sends so many messages, over all producers.
fn send(at: &At<'_>, topic: &str, load: &Producing, messages: u64) -> Result<Outcome, PerfError> {
    let producers = u64::from(load.producers).min(messages);
    let one = |share: u64| match load.json {
        Some(_) => codec::produce(&at.broker.address, topic, load, share),
        None => {
            let what = Produce {
                topic,
                partition: (load.partitions == 1).then_some(0),
                messages: share,
                bytes: load.bytes,
                acks: if load.is_all { -1 } else { 1 },
                rate: None,
                settings: if load.is_scattered { SCATTERED } else { &[] },
            };
            at.tool.produce(&at.broker.address, &what)
        }
    };
    together(producers as usize, |_| one(messages.div_ceil(producers)))
}

/// Runs clients at once; all their messages in the time of the slowest.
fn together(
    clients: usize,
    run: impl Fn(usize) -> Result<Outcome, PerfError> + Sync,
) -> Result<Outcome, PerfError> {
    let run = &run;
    let outcomes = std::thread::scope(|scope| {
        let all: Vec<_> = (0..clients).map(|number| scope.spawn(move || run(number))).collect();
        let join = |client: std::thread::ScopedJoinHandle<'_, _>| {
            client.join().unwrap_or_else(|_| Err(PerfError::Answer("a client ended".to_string())))
        };
        all.into_iter().map(join).collect::<Result<Vec<Outcome>, PerfError>>()
    })?;
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).fold(1e-3, f64::max);
    Ok(Outcome { messages: outcomes.iter().map(|outcome| outcome.messages).sum(), seconds })
}

fn consume(at: &At<'_>, name: &str, bytes: usize, report: &mut Report) -> Result<(), PerfError> {
    let (outcome, used) = at.with_topic(1, |topic| {
        let messages = at.fill(topic, bytes)?;
        at.tool.consume(&at.broker.address, topic, messages)?;
        at.watch(|| {
            let mut all = Outcome { messages: 0, seconds: 0.0 };
            for _ in 0..READS {
                let one = at.tool.consume(&at.broker.address, topic, messages)?;
                all.messages += one.messages;
                all.seconds += one.seconds;
            }
            Ok(all)
        })
    })?;
    report.row(name, "rate", outcome.per_second() / 1e3, "k msg/s");
    costs(name, outcome.messages, bytes, &used, report);
    Ok(())
}

fn groups(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    const BYTES: usize = 1024;
    open_groups(&at.broker.address)?;
    let (outcome, used) = at.with_topic(1, |topic| {
        let messages = at.fill(topic, BYTES)?;
        at.watch(|| {
            together(GROUPS, |number| {
                let group = format!("{topic}-{number}");
                at.tool.consume_as(&at.broker.address, (&group, topic), messages)
            })
        })
    })?;
    report.row(name, "rate", outcome.per_second() / 1e3, "k msg/s");
    costs(name, outcome.messages, BYTES, &used, report);
    Ok(())
}

fn end_to_end(
    at: &At<'_>,
    name: &str,
    (rate, linger_ms): (u32, &str),
    report: &mut Report,
) -> Result<(), PerfError> {
    let time = Duration::from_secs(at.scale.seconds);
    let (histogram, used) = at.with_topic(1, |topic| {
        at.watch(|| latency::measure_at(&at.broker.address, topic, (rate, linger_ms), time))
    })?;
    for (quantile, at) in QUANTILES {
        report.row(name, quantile, histogram.value_at_quantile(*at) as f64 / 1e6, "ms");
    }
    report.row(name, "CPU", used.cpu / used.took * 100.0, "%");
    report.row(name, "memory", used.memory as f64 / 1e6, "MB");
    Ok(())
}

/// What is told of a latency.
pub const QUANTILES: &[(&str, f64)] = &[
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];
