//! What a consumer reads from table files, against what it reads from the log.
//!
//! The same records, once on a broker that makes no files and holds them all in its warm window,
//! once on one that keeps no history in its log. The consumer is librdkafka's, which takes
//! records apart: against it the ratio is taken.

use crate::error::PerfError;
use crate::load::Load;
use crate::tables::{make_topic, metrics, wait_for_logs, wait_for_rows, with_broker, NO_FILES};
use crate::tool::{Outcome, Tool};
use crate::{broker::Broker, broker::Starter};
use benches::report::{Bar, Report};

const TOPIC: &str = "old";
/// Distinct bytes of the load; more than any cache of blocks holds is sent.
const DISTINCT_BYTES: u64 = 32 << 20;
/// The log keeps no history and lets go of segments, so they are small.
pub const COLD: &[&str] = &[
    "hot.bytes=0",
    "hot.ms=0",
    "table.commit.bytes=16MiB",
    "table.commit.ms=1000",
    "log.retention.check.interval.ms=200",
    "log.segment.bytes=16MiB",
];
/// What may be left in the log behind the last full segment.
pub const LEFT_BYTES: u64 = 40 << 20;

/// So many MB of 300-byte records, consumed from the log and from table files.
pub fn old_reads(starter: &Starter, tool: &Tool, megabytes: u64) -> Result<Report, PerfError> {
    let mut report = Report::new("old reads");
    let load = Load::events(DISTINCT_BYTES);
    let bytes = megabytes * 1_000_000;
    let send = |broker: &Broker| {
        make_topic(broker, TOPIC, 1)?;
        load.send(&broker.address, (TOPIC, 0), |sent| sent.bytes >= bytes)
    };
    let warm = format!("log.warm.bytes={}", bytes * 2 + (64 << 20));
    let hot = with_broker(starter, &[NO_FILES, &[warm.as_str()]].concat(), |broker, _| {
        let sent = send(broker)?;
        tool.consume(&broker.address, TOPIC, sent.records)?;
        let outcome = tool.consume(&broker.address, TOPIC, sent.records)?;
        Ok(rate(sent.bytes, outcome))
    })?;
    let case = format!("consume {megabytes} MB of 300-byte JSON");
    report.row(&case, "hot", hot, "MB/s");
    let (old, left) = with_broker(starter, COLD, |broker, _| {
        let sent = send(broker)?;
        wait_for_rows(broker, Some(TOPIC), sent.records)?;
        wait_for_logs(broker, LEFT_BYTES)?;
        let left: f64 = metrics(broker)?.values("basalt_log_bytes", None).sum();
        let outcome = tool.consume(&broker.address, TOPIC, sent.records)?;
        Ok((rate(sent.bytes, outcome), left))
    })?;
    report.row(&case, "from table files", old, "MB/s");
    report.row(&case, "still in the log then", left / 1e6, "MB");
    report.held((&case, "table files to hot"), old / hot, "×", Bar::AtLeast(0.4));
    Ok(report)
}

fn rate(bytes: u64, outcome: Outcome) -> f64 {
    bytes as f64 / 1e6 / outcome.seconds.max(1e-3)
}
