//! Producers in this process that send JSON, compressed by librdkafka.
//!
//! What `rdkafka_performance` sends is one line again and again, which any codec makes nothing of.

use super::case::{Codec, Producing};
use crate::error::PerfError;
use crate::tool::Outcome;
use benches::events;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);
/// Distinct records of each producer.
const DISTINCT: usize = 20_000;
const DISTINCT_BYTES: usize = 64 << 20;

/// Counts what was acknowledged.
#[derive(Debug, Default)]
struct Delivered {
    good: AtomicU64,
}

impl ClientContext for Delivered {}

impl ProducerContext for Delivered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if result.is_ok() {
            self.good.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends so many records through one producer; all have to be acknowledged.
pub fn produce(
    address: &str,
    topic: &str,
    load: &Producing,
    messages: u64,
) -> Result<Outcome, PerfError> {
    let producer: BaseProducer<Delivered> = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("acks", if load.is_all { "all" } else { "1" })
        .set("linger.ms", "5")
        .set("compression.codec", name(load.json.unwrap_or(Codec::None)))
        .create_with_context(Delivered::default())?;
    let values = events::values(load.bytes, DISTINCT.min(DISTINCT_BYTES / load.bytes));
    let started = Instant::now();
    for (number, value) in (0..messages).zip(values.iter().cycle()) {
        let mut record = BaseRecord::<(), [u8]>::to(topic).payload(value);
        while let Err((error, unsent)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull)
                || started.elapsed() > PATIENCE
            {
                return Err(error.into());
            }
            record = unsent;
            producer.poll(Duration::from_millis(1));
        }
        if number % 64 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(PATIENCE)?;
    let seconds = started.elapsed().as_secs_f64();
    match producer.context().good.load(Ordering::Relaxed) {
        delivered if delivered < messages => Err(PerfError::Lost { delivered, wanted: messages }),
        _ => Ok(Outcome { messages, seconds }),
    }
}

fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::mocking::MockCluster;

    #[test]
    fn all_records_are_acknowledged() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("json", 2, 1).unwrap();
        for json in [Codec::None, Codec::Lz4, Codec::Zstd].map(Some) {
            let (partitions, producers, is_all, is_scattered) = (2, 1, true, false);
            let load = Producing { bytes: 1024, partitions, producers, is_all, is_scattered, json };
            let outcome = produce(&cluster.bootstrap_servers(), "json", &load, 500).unwrap();
            assert_eq!(outcome.messages, 500);
        }
    }
}
