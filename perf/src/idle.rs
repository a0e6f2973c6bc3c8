//! Brokers that only stand there: an empty one, and one with very many partitions.

use crate::broker::Starter;
use crate::error::PerfError;
use crate::topics::Topics;
use benches::counters::{anonymous_bytes, cpu_seconds};
use benches::report::{Bar, Report};
use std::path::Path;
use std::time::Duration;

/// Partitions of one topic.
const TOPIC_PARTITIONS: u32 = 1000;
/// An idle broker is looked at after this time.
const IDLE: Duration = Duration::from_secs(3);

/// An empty broker: memory, time to be ready, CPU.
pub fn empty(starter: &Starter) -> Result<Report, PerfError> {
    let mut report = Report::new("idle");
    let data = starter.data_dir()?;
    look(starter, data.path(), "empty broker", &mut report)?;
    report.hold("empty broker", "anonymous memory", Bar::AtMost(40.0));
    Ok(report)
}

/// So many partitions, after a clean stop and after a kill.
pub fn many(starter: &Starter, partitions: u32) -> Result<Report, PerfError> {
    let mut report = Report::new("idle");
    let data = starter.data_dir()?;
    let broker = starter.start(data.path())?;
    let topics = Topics::at(&broker.address)?;
    let mut left = partitions;
    while left > 0 {
        let count = left.min(TOPIC_PARTITIONS);
        topics.create(&format!("idle-{left}"), count as i32, &[])?;
        left -= count;
    }
    drop(topics);
    broker.stop()?;
    for case in [format!("{partitions} partitions"), format!("{partitions}, after a kill")] {
        look(starter, data.path(), &case, &mut report)?;
        report.hold(&case, "ready", Bar::AtMost(5.0));
        report.hold(&case, "anonymous memory", Bar::AtMost(200.0));
    }
    Ok(report)
}

/// Starts a broker, looks at it and kills it.
fn look(starter: &Starter, data: &Path, case: &str, report: &mut Report) -> Result<(), PerfError> {
    let broker = starter.start(data)?;
    report.row(case, "ready", broker.ready.as_secs_f64(), "s");
    let before = cpu_seconds(broker.pid)?;
    std::thread::sleep(IDLE);
    let cpu = (cpu_seconds(broker.pid)? - before) / IDLE.as_secs_f64();
    report.row(case, "CPU", cpu * 100.0, "%");
    let megabytes = anonymous_bytes(broker.pid)? as f64 / 1e6;
    report.row(case, "anonymous memory", megabytes, "MB");
    // Only now: the answer to a client that asks for everything is memory too.
    let led = Topics::at(&broker.address)?.led_partitions()?;
    report.row(case, "partitions", led as f64, "");
    broker.kill();
    Ok(())
}
