//! Producing while a worker makes table files all the time, against producing while none does.
//!
//! Two brokers one after the other, same but for `table.commit.bytes`. For the latency at a rate,
//! which alone would keep a worker busy for a small part of its time, records wait in another
//! topic beforehand: more than the worker gets done, which a row shows.

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::load::Load;
use crate::tables::{make_topic, waiting_bytes, with_broker, NO_FILES};
use benches::counters::cpu_seconds;
use benches::report::{Bar, Report};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

const RATE: f64 = 20e6;
const DISTINCT_BYTES: u64 = 32 << 20;
/// Files all the time, and no producer held back for them: what is asked is what the work costs.
const FILES: &[&str] = &["table.commit.bytes=4MiB", "table.backlog.bytes=256GiB"];
/// More than one worker gets done in a second.
const WORK_PER_SECOND: u64 = 300_000_000;
const TIMED: &str = "timed";

/// What one broker gave.
struct Found {
    latency: Histogram<u64>,
    flat_out: f64,
    /// In no file after the timed part.
    waiting: f64,
    cpu: f64,
}

/// Latency at 20 MB/s for `seconds`, then `megabytes` flat out; without files and with them.
pub fn beside(starter: &Starter, seconds: u64, megabytes: u64) -> Result<Report, PerfError> {
    let mut report = Report::new("beside tables");
    let load = Load::events(DISTINCT_BYTES);
    let measure = |broker: &Broker| measure(broker, &load, seconds, megabytes);
    let without = with_broker(starter, NO_FILES, |broker, _| measure(broker))?;
    let with = with_broker(starter, FILES, |broker, _| measure(broker))?;
    let case = "produce at 20 MB/s in 64 KiB requests";
    let ms = |found: &Found, quantile| found.latency.value_at_quantile(quantile) as f64 / 1e6;
    for (name, found) in [("no files made", &without), ("files made all the time", &with)] {
        report.row(case, &format!("p50, {name}"), ms(found, 0.5), "ms");
        report.row(case, &format!("p99, {name}"), ms(found, 0.99), "ms");
        report.row(case, &format!("CPU, {name}"), found.cpu, "CPU-s/s");
    }
    let ratio = ms(&with, 0.99) / ms(&without, 0.99).max(1e-6);
    report.held((case, "p99, with files to without"), ratio, "×", Bar::AtMost(2.0));
    // Else the worker had nothing to do for a part of the time.
    let bar = Bar::AtLeast(1.0);
    report.held((case, "still without a file at the end"), with.waiting / 1e6, "MB", bar);
    let case = format!("produce {megabytes} MB flat out");
    report.row(&case, "rate, no files made", without.flat_out, "MB/s");
    report.row(&case, "rate, files made all the time", with.flat_out, "MB/s");
    let ratio = with.flat_out / without.flat_out;
    report.held((&case, "rate, with files to without"), ratio, "×", Bar::AtLeast(0.8));
    Ok(report)
}

fn measure(broker: &Broker, load: &Load, seconds: u64, megabytes: u64) -> Result<Found, PerfError> {
    make_topic(broker, TIMED, 1)?;
    make_topic(broker, "work", 1)?;
    let work = WORK_PER_SECOND * (seconds + 2);
    load.send(&broker.address, ("work", 0), |sent| sent.bytes >= work)?;
    let (before, started) = (cpu_seconds(broker.pid)?, Instant::now());
    let time = Duration::from_secs(seconds);
    let latency = load.paced(&broker.address, (TIMED, 0), RATE, time)?;
    let cpu = (cpu_seconds(broker.pid)? - before) / started.elapsed().as_secs_f64();
    let waiting = waiting_bytes(broker)?;
    let bytes = megabytes * 1_000_000;
    let flat_out = load.send(&broker.address, (TIMED, 0), |sent| sent.bytes >= bytes)?;
    Ok(Found { latency, flat_out: flat_out.megabytes_per_second(), waiting, cpu })
}
