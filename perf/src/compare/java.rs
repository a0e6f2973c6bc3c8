//! Kafka's own tools as the client: `kafka-producer-perf-test`, `kafka-consumer-perf-test` and
//! the end-to-end latency of kafka-tools.

use super::work::{costs, At};
use crate::error::PerfError;
use benches::report::Report;

const BYTES: usize = 1024;
/// Of one message after the other.
const ROUND_TRIPS: u64 = 2000;
const ROUND_TRIP_BYTES: usize = 100;

/// 1 KiB, acks=all.
pub fn produce(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    let address = &at.broker.address;
    let run = |topic: &str, messages: u64| {
        let (count, bytes) = (messages.to_string(), BYTES.to_string());
        let said = at.products.kafka.tool(
            "ProducerPerformance",
            &[
                "--bootstrap-server",
                address,
                "--topic",
                topic,
                "--num-records",
                &count,
                "--record-size",
                &bytes,
                "--throughput",
                "-1",
                "--command-property",
                "acks=all",
            ],
        )?;
        produced(&said).ok_or(PerfError::NoSummary { said })
    };
    let (messages, produced, used) = at.with_topic(1, |topic| {
        let first = run(topic, 20_000)?;
        let most = at.scale.bytes_max / BYTES as u64;
        let messages = ((first.rate * at.scale.seconds as f64) as u64).clamp(1, most);
        let (produced, used) = at.watch(|| run(topic, messages))?;
        Ok((messages, produced, used))
    })?;
    report.row(name, "rate", produced.rate / 1e3, "k msg/s");
    report.row(name, "p99", produced.p99_ms, "ms");
    costs(name, messages, BYTES, &used, report);
    Ok(())
}

/// 1 KiB that has just been produced.
pub fn consume(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    let address = &at.broker.address;
    let (messages, rate, used) = at.with_topic(1, |topic| {
        let messages = at.fill(topic, BYTES)?;
        let count = messages.to_string();
        let (rate, used) = at.watch(|| {
            let said = at.products.kafka.tool(
                "ConsumerPerformance",
                &["--bootstrap-server", address, "--topic", topic, "--num-records", &count],
            )?;
            consumed(&said, messages).ok_or(PerfError::NoSummary { said })
        })?;
        Ok((messages, rate, used))
    })?;
    report.row(name, "rate", rate / 1e3, "k msg/s");
    costs(name, messages, BYTES, &used, report);
    Ok(())
}

/// One message after the other, from sending to having it, acks=all.
pub fn end_to_end(at: &At<'_>, name: &str, report: &mut Report) -> Result<(), PerfError> {
    let (count, bytes) = (ROUND_TRIPS.to_string(), ROUND_TRIP_BYTES.to_string());
    let said = at.with_topic(1, |topic| {
        at.products.kafka.tool(
            "EndToEndLatency",
            &[
                "--bootstrap-server",
                &at.broker.address,
                "--topic",
                topic,
                "--num-records",
                &count,
                "--producer-acks",
                "all",
                "--record-size",
                &bytes,
            ],
        )
    })?;
    let mean = number_behind(&said, "Avg latency: ");
    let p99 = number_behind(&said, "99th = ");
    let (Some(mean), Some(p99)) = (mean, p99) else {
        return Err(PerfError::NoSummary { said });
    };
    report.row(name, "mean", mean, "ms");
    report.row(name, "p99, whole ms", p99, "ms");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Produced {
    rate: f64,
    p99_ms: f64,
}

/// `9 records sent, 5.0 records/sec (0.01 MB/sec), 3.1 ms avg latency, …, 7 ms 99th, 9 ms 99.9th.`
fn produced(said: &str) -> Option<Produced> {
    let line = said.lines().rev().find(|line| line.contains(" ms 99th"))?;
    let rate = line.split(", ").find_map(|part| part.split_once(" records/sec"))?.0;
    let p99 = line.split(", ").find_map(|part| part.split_once(" ms 99th"))?.0;
    Some(Produced { rate: rate.trim().parse().ok()?, p99_ms: p99.trim().parse().ok()? })
}

/// Messages a second of the fetching alone, which is the last column; the fifth counts them.
fn consumed(said: &str, messages: u64) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.matches(", ").count() >= 9)?;
    let columns: Vec<&str> = line.split(", ").map(str::trim).collect();
    let count: u64 = columns.get(4)?.parse().ok()?;
    (count >= messages).then_some(())?;
    columns.get(9)?.parse().ok()
}

fn number_behind(said: &str, mark: &str) -> Option<f64> {
    let (_, rest) = said.rsplit_once(mark)?;
    rest.split(|c: char| c.is_whitespace() || c == ',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_print_is_read() {
        let said = "100 records sent, 20.0 records/sec (0.1 MB/sec)\n9 records sent, 5.5 \
                    records/sec (0.01 MB/sec), 3.10 ms avg latency, 20.00 ms max latency, 2 ms \
                    50th, 5 ms 95th, 7 ms 99th, 9 ms 99.9th.\n";
        assert_eq!(produced(said), Some(Produced { rate: 5.5, p99_ms: 7.0 }));
        let said = "start.time, end.time, …\n2026-01-01 00:00:00:000, 2026-01-01 00:00:01:000, \
                    9.7, 9.7, 100, 99.0, 3000, 1000, 9.7, 1234.5\n";
        assert_eq!(consumed(said, 100), Some(1234.5));
        assert_eq!(consumed(said, 101), None);
        let said = "0\t12.3\nAvg latency: 0.5123 ms\nPercentiles: 50th = 0, 99th = 2, 99.9th = 5\n";
        assert_eq!(number_behind(said, "Avg latency: "), Some(0.5123));
        assert_eq!(number_behind(said, "99th = "), Some(2.0));
        assert_eq!((produced(""), consumed("", 0)), (None, None));
    }
}
