//! The most anonymous memory a broker has while very much becomes table files.

use crate::broker::Starter;
use crate::error::PerfError;
use crate::load::Load;
use crate::tables::{make_topic, wait_for_rows, with_broker};
use benches::counters::anonymous_bytes;
use benches::report::{Bar, Report};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TOPIC: &str = "memory";
const DISTINCT_BYTES: u64 = 64 << 20;
/// How often the broker's memory is looked at.
const INTERVAL: Duration = Duration::from_millis(20);
/// The log keeps less than everything, so that this fits on small disks.
const SETTINGS: &[&str] = &[
    "hot.bytes=1GiB",
    "table.commit.ms=2000",
    "log.retention.check.interval.ms=500",
    "iceberg.reader.grace.ms=0",
];

/// Sends so many GB of 300-byte records and waits until they are in files.
pub fn table_memory(starter: &Starter, gigabytes: f64) -> Result<Report, PerfError> {
    let mut report = Report::new("table memory");
    let load = Load::events(DISTINCT_BYTES);
    let bytes = (gigabytes * 1e9) as u64;
    let case = format!("{gigabytes} GB of 300-byte JSON to files");
    with_broker(starter, SETTINGS, |broker, _| {
        make_topic(broker, TOPIC, 1)?;
        let (most, is_over) =
            (AtomicU64::new(anonymous_bytes(broker.pid)?), AtomicBool::new(false));
        report.row(
            &case,
            "anonymous memory before",
            most.load(Ordering::Relaxed) as f64 / 1e6,
            "MB",
        );
        let started = Instant::now();
        let sent = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    most.fetch_max(anonymous_bytes(broker.pid)?, Ordering::Relaxed);
                    std::thread::sleep(INTERVAL);
                }
                Ok::<(), PerfError>(())
            });
            let sent = load
                .send(&broker.address, (TOPIC, 0), |sent| sent.bytes >= bytes)
                .and_then(|sent| wait_for_rows(broker, Some(TOPIC), sent.records).map(|()| sent));
            is_over.store(true, Ordering::Relaxed);
            let watched = watcher.join().map_err(|_| PerfError::Missing(0))?;
            watched.and(sent)
        })?;
        let megabytes = sent.bytes as f64 / 1e6;
        report.row(&case, "producing", sent.megabytes_per_second(), "MB/s");
        let seconds = started.elapsed().as_secs_f64();
        report.row(&case, "until all is in files", megabytes / seconds, "MB/s");
        let peak = most.load(Ordering::Relaxed) as f64 / 1e6;
        report.held((&case, "anonymous memory at its most"), peak, "MB", Bar::AtMost(512.0));
        Ok(())
    })?;
    Ok(report)
}
