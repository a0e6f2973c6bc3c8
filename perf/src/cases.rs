//! The cases a running broker is held to: each a function from a target to rows of a report.
//!
//! A function is one round. What is compared (commit with os, 1,000 partitions with one) is
//! measured in the same round, one after the other, and the ratio is taken there.

use crate::broker::Broker;
use crate::error::PerfError;
use crate::latency;
use crate::metrics::Metrics;
use crate::tool::{Outcome, Produce, Tool};
use crate::topics::Topics;
use benches::counters::{anonymous_bytes, cpu_seconds};
use benches::report::{Bar, Report};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Background syncs and the clients' ends settle before a measurement.
const SETTLE: Duration = Duration::from_millis(1200);
const LINGER_ONE_BY_ONE: &str = "sticky.partitioning.linger.ms=0";

/// How much is sent.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Messages of 1 KiB.
    pub large: u64,
    /// Messages of 100 B.
    pub small: u64,
    /// Seconds of the cases that run at a rate.
    pub seconds: u64,
    /// Messages of 1 KiB a second in the comparison of partition counts.
    pub rate: u64,
    /// Groups that heartbeat.
    pub groups: usize,
}

/// What is measured, with what.
pub struct Target<'a> {
    pub broker: &'a Broker,
    pub topics: Topics,
    pub tool: &'a Tool,
    pub scale: Scale,
    /// Topics may be told when to flush: the broker is Basalt.
    pub is_basalt: bool,
}

/// The cost of one run of a client.
#[derive(Clone, Copy, Debug)]
struct Cost {
    outcome: Outcome,
    cpu: f64,
    took: f64,
}

impl Cost {
    fn per_million(&self) -> f64 {
        self.cpu * 1e6 / self.outcome.messages.max(1) as f64
    }
}

impl<'a> Target<'a> {
    pub fn new(
        broker: &'a Broker,
        tool: &'a Tool,
        scale: Scale,
        is_basalt: bool,
    ) -> Result<Self, PerfError> {
        let topics = Topics::at(&broker.address)?;
        Ok(Target { broker, topics, tool, scale, is_basalt })
    }

    /// A topic of its own, deleted afterwards.
    pub fn with_topic<T>(
        &self,
        partitions: i32,
        flush: &str,
        run: impl FnOnce(&str) -> Result<T, PerfError>,
    ) -> Result<T, PerfError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("perf-{}-{number}", std::process::id());
        let settings: &[(&str, &str)] = if self.is_basalt { &[("flush", flush)] } else { &[] };
        self.topics.create(&name, partitions, settings)?;
        let result = run(&name);
        self.topics.delete(&name)?;
        result
    }

    fn cost(&self, run: impl FnOnce() -> Result<Outcome, PerfError>) -> Result<Cost, PerfError> {
        std::thread::sleep(SETTLE);
        let (before, started) = (cpu_seconds(self.broker.pid)?, Instant::now());
        let outcome = run()?;
        let took = started.elapsed().as_secs_f64();
        Ok(Cost { outcome, cpu: cpu_seconds(self.broker.pid)? - before, took })
    }

    fn produce(&self, flush: &str, acks: i32, bytes: usize) -> Result<Cost, PerfError> {
        let messages = if bytes > 512 { self.scale.large } else { self.scale.small };
        self.with_topic(1, flush, |topic| {
            let what = Produce {
                topic,
                partition: Some(0),
                messages,
                bytes,
                acks,
                rate: None,
                settings: &[],
            };
            let warm_up = Produce { messages: messages.div_ceil(20), ..what };
            self.tool.produce(&self.broker.address, &warm_up)?;
            self.cost(|| self.tool.produce(&self.broker.address, &what))
        })
    }
}

/// Producing with acks=1 under `os`, then with acks=all under `commit`, and their ratios.
pub fn produce(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("produce");
    for (bytes, name, bar) in [(1024, "produce 1 KiB", 0.50), (100, "produce 100 B", 0.07)] {
        let os = at.produce("os", 1, bytes)?;
        let case = format!("{name} acks=1");
        report.held((&case, "CPU"), os.per_million(), "CPU-s/M", Bar::AtMost(bar));
        report.row(&case, "rate", os.outcome.per_second() / 1e3, "k msg/s");
        let commit = at.produce("commit", -1, bytes)?;
        let case = match at.is_basalt {
            true => format!("{name} commit, acks=all"),
            false => format!("{name} acks=all"),
        };
        report.row(&case, "CPU", commit.per_million(), "CPU-s/M");
        report.row(&case, "rate", commit.outcome.per_second() / 1e3, "k msg/s");
        let cpu = commit.per_million() / os.per_million().max(1e-9);
        report.held((&case, "CPU to acks=1"), cpu, "×", Bar::AtMost(1.5));
        let rate = commit.outcome.per_second() / os.outcome.per_second();
        report.held((&case, "rate to acks=1"), rate, "×", Bar::AtLeast(0.7));
    }
    Ok(report)
}

/// Consuming what was just produced: 1 KiB records that lie in memory.
pub fn consume(at: &Target<'_>) -> Result<Report, PerfError> {
    const TIMES: u64 = 5;
    const BYTES: usize = 1024;
    let mut report = Report::new("consume");
    // A fifth of the messages stay well within the warm window.
    let messages = (at.scale.large / 5).min(200_000);
    let cost = at.with_topic(1, "os", |topic| {
        let (partition, acks, rate) = (Some(0), 1, None);
        let what = Produce { topic, partition, messages, bytes: BYTES, acks, rate, settings: &[] };
        at.tool.produce(&at.broker.address, &what)?;
        at.tool.consume(&at.broker.address, topic, messages)?;
        at.cost(|| {
            let mut all = Outcome { messages: 0, seconds: 0.0 };
            for _ in 0..TIMES {
                let one = at.tool.consume(&at.broker.address, topic, messages)?;
                all.messages += one.messages;
                all.seconds += one.seconds;
            }
            Ok(all)
        })
    })?;
    let gigabytes = cost.outcome.messages as f64 * BYTES as f64 / 1e9;
    let case = "consume 1 KiB, hot";
    report.held((case, "CPU"), cost.cpu / gigabytes, "CPU-s/GB", Bar::AtMost(0.20));
    report.row(case, "rate", gigabytes * 1e3 / cost.outcome.seconds.max(1e-3), "MB/s");
    Ok(report)
}

/// The same bytes a second into one partition and into 1,000, under `commit`.
pub fn partitions(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("partitions");
    let one = at_rate(at, 1, &[])?;
    let many = at_rate(at, 1000, &[])?;
    let scattered = at_rate(at, 1000, &[LINGER_ONE_BY_ONE])?;
    let case = format!("{} msg/s of 1 KiB, commit", at.scale.rate);
    for (name, cost) in [
        ("1 partition", &one),
        ("1,000 partitions", &many),
        ("1,000 partitions, none sticky", &scattered),
    ] {
        report.row(&case, &format!("CPU, {name}"), cost.0.cpu / cost.0.took, "CPU-s/s");
        report.row(&case, &format!("rate, {name}"), cost.0.outcome.per_second(), "msg/s");
        if let Some(syncs) = cost.1 {
            report.row(&case, &format!("syncs, {name}"), syncs, "1/s");
        }
    }
    let per_message = |cost: &Cost| cost.per_million();
    let ratio = per_message(&many.0) / per_message(&one.0).max(1e-9);
    report.held((&case, "CPU, 1,000 to 1"), ratio, "×", Bar::AtMost(1.5));
    let ratio = per_message(&scattered.0) / per_message(&one.0).max(1e-9);
    report.row(&case, "CPU, 1,000 none sticky to 1", ratio, "×");
    if let (Some(many), Some(one)) = (many.1, one.1) {
        let bar = Bar::Between(0.8, 1.2);
        report.held((&case, "syncs, 1,000 to 1"), many / one.max(1e-9), "×", bar);
    }
    Ok(report)
}

/// One run at a rate, and syncs a second where the broker tells them.
fn at_rate(
    at: &Target<'_>,
    partitions: i32,
    settings: &[&str],
) -> Result<(Cost, Option<f64>), PerfError> {
    at.with_topic(partitions, "commit", |topic| {
        let what = Produce {
            topic,
            partition: (partitions == 1).then_some(0),
            messages: at.scale.rate * at.scale.seconds,
            bytes: 1024,
            acks: -1,
            rate: Some(at.scale.rate),
            settings,
        };
        let warm_up = Produce { messages: at.scale.rate, ..what };
        at.tool.produce(&at.broker.address, &warm_up)?;
        let syncs = || match &at.broker.http {
            Some(http) => Metrics::of(http)?.count("sync_seconds").map(Some),
            None => Ok(None),
        };
        std::thread::sleep(SETTLE);
        let before = syncs()?;
        let cost = at.cost(|| at.tool.produce(&at.broker.address, &what))?;
        let syncs = match (before, syncs()?) {
            (Some(before), Some(after)) => Some((after - before) / cost.took),
            _ => None,
        };
        Ok((cost, syncs))
    })
}

/// 1,000 messages a second, each on its own.
pub fn end_to_end(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("latency");
    let time = Duration::from_secs(at.scale.seconds);
    for flush in ["os", "commit"] {
        if flush == "commit" && !at.is_basalt {
            continue;
        }
        let histogram = at.with_topic(1, flush, |topic| {
            latency::measure(&at.broker.address, topic, 1000, time)
        })?;
        let case = format!("end to end, 1,000 msg/s, {flush}");
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        let bars = [("p50", 0.5, 0.3), ("p99", 0.99, 1.5)];
        for (name, quantile, most) in bars {
            let row = report.row(&case, name, ms(quantile), "ms");
            row.bar = (flush == "os").then_some(Bar::AtMost(most));
        }
        report.row(&case, "p99.9", ms(0.999), "ms");
    }
    Ok(report)
}

/// How long a core does not turn its loop while it takes all it can. A broker counts from its
/// start: one that was started for this has seen nothing else.
pub fn stalls(at: &Target<'_>, flush: &str) -> Result<Report, PerfError> {
    let mut report = Report::new("stalls");
    let Some(http) = &at.broker.http else {
        report.note("stalls: only a broker with --http tells");
        return Ok(report);
    };
    let before = Metrics::of(http)?;
    at.produce(flush, if flush == "os" { 1 } else { -1 }, 1024)?;
    let after = Metrics::of(http)?;
    let case = format!("loop stalls, full produce load, {flush}");
    let ms = |quantile| {
        let us = after.quantile_us(&before, "loop_stall", quantile)?;
        Ok::<f64, PerfError>(us / 1e3)
    };
    report.row(&case, "p99", ms(0.99)?, "ms");
    report.held((&case, "p99.9"), ms(0.999)?, "ms", Bar::AtMost(5.0));
    report.row(&case, "max", ms(1.0)?, "ms");
    Ok(report)
}

/// Anonymous memory of a broker that holds nothing, or of a peer as it is.
pub fn memory(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("memory");
    let megabytes = anonymous_bytes(at.broker.pid)? as f64 / 1e6;
    report.row("as it runs", "anonymous memory", megabytes, "MB");
    Ok(report)
}
