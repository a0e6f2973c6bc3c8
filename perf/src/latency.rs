//! End to end: from when a record was due to having it from the consumer.
//!
//! Both clients run in this process and share its clock; each record carries the time it was due
//! at, so that a producer that is held up delays no measurement. Settings are librdkafka's
//! defaults but for the linger.

use crate::error::PerfError;
use hdrhistogram::Histogram;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// Not counted: connections and caches warm up.
const WARM_UP: Duration = Duration::from_secs(1);

/// Sends `rate` records of 100 bytes a second for `time` and measures each, in nanoseconds.
pub fn measure(
    address: &str,
    topic: &str,
    rate: u32,
    time: Duration,
) -> Result<Histogram<u64>, PerfError> {
    measure_at(address, topic, (rate, "0"), time)
}

/// The same through a producer that lingers.
pub fn measure_at(
    address: &str,
    topic: &str,
    (rate, linger_ms): (u32, &str),
    time: Duration,
) -> Result<Histogram<u64>, PerfError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("group.id", "basalt-perf")
        .set("enable.auto.commit", "false")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&assignment)?;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("linger.ms", linger_ms)
        .create()?;
    let epoch = Instant::now();
    let total = ((WARM_UP + time).as_secs_f64() * f64::from(rate)) as usize;
    let receiver = std::thread::spawn(move || receive(&consumer, epoch, total));
    wake_in_time();
    let interval = Duration::from_secs(1) / rate;
    for number in 0..total {
        let due = interval * number as u32;
        while let Some(left) = due.checked_sub(epoch.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        let mut payload = [b'x'; 100];
        payload[..8].copy_from_slice(&(due.as_nanos() as u64).to_le_bytes());
        let mut record = BaseRecord::<(), [u8]>::to(topic).partition(0).payload(&payload[..]);
        // A full queue holds this record and those behind it up, which is counted from when they
        // were due.
        while let Err((error, unsent)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull)
                || epoch.elapsed() > due + PATIENCE
            {
                return Err(error.into());
            }
            record = unsent;
            producer.poll(Duration::from_millis(1));
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(PATIENCE)?;
    let (histogram, missing) = receiver.join().map_err(|_| PerfError::Missing(total))??;
    if missing > 0 {
        return Err(PerfError::Missing(missing));
    }
    Ok(histogram)
}

/// The system may wake a sleeping thread 50 µs late by default, which would be counted. Where it
/// cannot be told otherwise, or another thread calls, it stays at that.
fn wake_in_time() {
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}

/// Takes records in until all have come or none comes any more.
fn receive(
    consumer: &BaseConsumer,
    epoch: Instant,
    total: usize,
) -> Result<(Histogram<u64>, usize), PerfError> {
    let mut histogram = benches::drive::nanoseconds();
    let mut missing = total;
    while missing > 0 {
        let Some(message) = consumer.poll(PATIENCE) else { break };
        let message = message?;
        let now = epoch.elapsed();
        missing -= 1;
        let sent = message.payload().and_then(|payload| payload.first_chunk::<8>());
        let sent = sent.map_or(0, |sent| u64::from_le_bytes(*sent));
        if u128::from(sent) >= WARM_UP.as_nanos() {
            histogram.saturating_record((now.as_nanos() as u64).saturating_sub(sent));
        }
    }
    Ok((histogram, missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::mocking::MockCluster;

    #[test]
    fn every_record_is_measured() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("timed", 1, 1).unwrap();
        let address = cluster.bootstrap_servers();
        let time = Duration::from_millis(200);
        let histogram = measure(&address, "timed", 100, time).unwrap();
        // Those sent in the last moment of the warm-up may count too.
        assert!((18..=22).contains(&histogram.len()), "{}", histogram.len());
        assert!(histogram.value_at_quantile(0.5) > 0);
    }
}
