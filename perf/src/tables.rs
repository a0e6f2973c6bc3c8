//! Brokers whose topics become table files, and waiting until they have: what the cases of tables
//! share. Waiting means reading `/metrics`, which a core refreshes once a second.

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::metrics::Metrics;
use crate::topics::Topics;
use std::time::{Duration, Instant};

/// Nothing becomes a table file while this holds.
pub const NO_FILES: &[&str] = &["table.commit.bytes=64GiB", "table.commit.ms=86400000"];
const INTERVAL: Duration = Duration::from_millis(200);
/// Without any progress for so long, waiting is given up.
const STUCK: Duration = Duration::from_secs(60);

/// Makes a topic that keeps its records whatever their timestamps say.
pub fn make_topic(broker: &Broker, name: &str, partitions: i32) -> Result<(), PerfError> {
    Topics::at(&broker.address)?.create(name, partitions, &[("retention.ms", "-1")])
}

pub fn http(broker: &Broker) -> Result<&str, PerfError> {
    let none = || PerfError::Answer("a broker without --http".to_string());
    broker.http.as_deref().ok_or_else(none)
}

pub fn metrics(broker: &Broker) -> Result<Metrics, PerfError> {
    Metrics::of(http(broker)?)
}

/// Waits until so many rows of a topic, or of all topics, are in files.
pub fn wait_for_rows(broker: &Broker, topic: Option<&str>, rows: u64) -> Result<(), PerfError> {
    let what = format!("{rows} rows in table files");
    let all = |now: &Metrics| rows as f64 - now.values("basalt_table_rows", topic).sum::<f64>();
    wait_down(broker, &what, 0.0, all)
}

/// Waits until the logs hold no more bytes than that.
pub fn wait_for_logs(broker: &Broker, bytes: u64) -> Result<(), PerfError> {
    let what = format!("no more than {bytes} bytes in the logs");
    wait_down(broker, &what, bytes as f64, |now| now.values("basalt_log_bytes", None).sum())
}

/// Waits until a number has fallen so far. It may stand still, but not for long.
fn wait_down(
    broker: &Broker,
    what: &str,
    until: f64,
    left: impl Fn(&Metrics) -> f64,
) -> Result<(), PerfError> {
    let (mut least, mut since) = (f64::INFINITY, Instant::now());
    loop {
        let left = left(&metrics(broker)?);
        if left <= until {
            return Ok(());
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        if since.elapsed() > STUCK {
            return Err(PerfError::Answer(format!("waited for {what}, and {left} stay away")));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Bytes that are in no table file yet.
pub fn waiting_bytes(broker: &Broker) -> Result<f64, PerfError> {
    Ok(metrics(broker)?.values("basalt_waiting_bytes", None).sum())
}

/// A broker with these settings on a data directory of its own, for the time of `run`.
pub fn with_broker<T>(
    starter: &Starter,
    settings: &[&str],
    run: impl FnOnce(&Broker, &std::path::Path) -> Result<T, PerfError>,
) -> Result<T, PerfError> {
    let data = starter.data_dir()?;
    let broker = starter.with(settings).start(data.path())?;
    let result = run(&broker, data.path())?;
    broker.stop()?;
    Ok(result)
}
