//! Batches made once and sent as they are, so that the broker and not a client is what is busy.
//!
//! One connection with some requests under way, as fast as it goes or at a rate. At a rate, a
//! request's time counts from when it was due, so that a late answer delays no measurement.

use crate::error::PerfError;
use crate::groups::refuse_error;
use crate::wire::{frame, Wire};
use benches::events::Events;
use bytes::Bytes;
use hdrhistogram::Histogram;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use shard::batch::{place, BatchBuilder, NewRecord};
use shard::ids::{LeaderEpoch, Offset, Timestamp};
use std::time::{Duration, Instant};

const PRODUCE_VERSION: i16 = 7;
/// Requests without an answer, when it goes as fast as it can.
const UNDER_WAY: usize = 8;
/// Not counted at a rate.
const WARM_UP: Duration = Duration::from_secs(1);
/// Records of a batch of small ones.
const SMALL_RECORDS: u64 = 1000;
const KINDS: [&str; 6] = ["created", "paid", "packed", "shipped", "returned", "refunded"];
/// Time of the first small record.
const FIRST_MS: i64 = 1_700_000_000_000;

/// Batches that are sent again and again.
pub struct Load {
    batches: Vec<Bytes>,
}

/// What was sent and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub records: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl Sent {
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds.max(1e-3)
    }
}

impl Load {
    /// JSON of about 300 bytes in batches of 64 KiB; so many bytes before the first comes again.
    pub fn events(bytes: u64) -> Load {
        let as_sent = |mut batch: Vec<u8>| {
            place(&mut batch, Offset(0), LeaderEpoch(-1));
            Bytes::from(batch)
        };
        Load { batches: Events::new(bytes).batches.into_iter().map(as_sent).collect() }
    }

    /// JSON of about 70 bytes under one of 1,000 keys.
    pub fn small(records: u64) -> Load {
        let batch = |number: u64| {
            let mut builder = BatchBuilder::new();
            for record in number * SMALL_RECORDS..(number + 1) * SMALL_RECORDS {
                // A multiplier of an LCG: spreads numbers that follow each other.
                let random = (record + 1).wrapping_mul(6_364_136_223_846_793_005) >> 24;
                let kind = KINDS[(random % KINDS.len() as u64) as usize];
                let (user, cents) = (random / 8 % 1000, random / 8000 % 100_000);
                let value = format!(
                    "{{\"kind\":\"{kind}\",\"id\":\"{random:010x}\",\"user\":{user},\
                     \"cents\":{cents}}}"
                );
                let key = format!("user-{user:03}");
                builder.push(&NewRecord {
                    timestamp: Timestamp(FIRST_MS + record as i64),
                    key: Some(key.as_bytes()),
                    value: Some(value.as_bytes()),
                    headers: &[],
                });
            }
            Bytes::from(builder.build())
        };
        Load { batches: (0..records.div_ceil(SMALL_RECORDS).max(1)).map(batch).collect() }
    }

    /// Sends whole batches as fast as they are taken until `is_enough`, and waits for all answers.
    pub fn send(
        &self,
        address: &str,
        to: (&str, i32),
        is_enough: impl Fn(&Sent) -> bool,
    ) -> Result<Sent, PerfError> {
        let mut wire = Wire::to(address)?;
        let frames = self.frames(to)?;
        let (started, mut sent, mut under_way) = (Instant::now(), Sent::default(), 0);
        for (frame, records, bytes) in frames.iter().cycle() {
            if is_enough(&sent) {
                break;
            }
            wire.send(frame)?;
            under_way += 1;
            if under_way >= UNDER_WAY {
                taken(&mut wire)?;
                under_way -= 1;
            }
            sent.records += records;
            sent.bytes += bytes;
        }
        for _ in 0..under_way {
            taken(&mut wire)?;
        }
        sent.seconds = started.elapsed().as_secs_f64();
        Ok(sent)
    }

    /// Sends so many bytes a second for `time`: from when each request was due to its answer, in
    /// nanoseconds.
    pub fn paced(
        &self,
        address: &str,
        to: (&str, i32),
        bytes_per_second: f64,
        time: Duration,
    ) -> Result<Histogram<u64>, PerfError> {
        let mut wire = Wire::to(address)?;
        let frames = self.frames(to)?;
        let all: u64 = frames.iter().map(|(_, _, bytes)| bytes).sum();
        let each = all as f64 / frames.len().max(1) as f64;
        let interval = Duration::from_secs_f64(each / bytes_per_second);
        let total = ((WARM_UP + time).as_secs_f64() / interval.as_secs_f64()) as u32;
        let mut answers = wire.twin()?;
        let epoch = Instant::now();
        let receiver = std::thread::spawn(move || {
            let mut histogram = benches::drive::nanoseconds();
            for number in 0..total {
                taken(&mut answers)?;
                let due = interval * number;
                if due >= WARM_UP {
                    let late = epoch.elapsed().saturating_sub(due);
                    histogram.saturating_record(late.as_nanos() as u64);
                }
            }
            Ok::<Histogram<u64>, PerfError>(histogram)
        });
        for (number, (frame, _, _)) in (0..total).zip(frames.iter().cycle()) {
            std::thread::sleep((interval * number).saturating_sub(epoch.elapsed()));
            wire.send(frame)?;
        }
        receiver.join().map_err(|_| PerfError::Missing(total as usize))?
    }

    /// Each batch as a request, with its records and bytes.
    fn frames(&self, (topic, partition): (&str, i32)) -> Result<Vec<(Bytes, u64, u64)>, PerfError> {
        let frame = |batch: &Bytes| {
            let request = produce(topic, [(partition, batch.clone())]);
            Ok((frame(PRODUCE_VERSION, &request)?, records(batch), batch.len() as u64))
        };
        self.batches.iter().map(frame).collect()
    }
}

/// One record of now for each partition of a topic, as one request.
pub fn one_each(topic: &str, partitions: i32, now_ms: i64) -> Result<Bytes, PerfError> {
    let batch = |partition: i32| {
        let mut builder = BatchBuilder::new();
        let value = format!("{{\"partition\":{partition},\"at\":{now_ms}}}");
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp: Timestamp(now_ms), key: None, value, headers: &[] });
        (partition, Bytes::from(builder.build()))
    };
    frame(PRODUCE_VERSION, &produce(topic, (0..partitions).map(batch)))
}

/// Takes the answer to the oldest produce, which has to be a good one.
pub fn taken(wire: &mut Wire) -> Result<(), PerfError> {
    let answer = wire.receive::<ProduceRequest>(PRODUCE_VERSION)?;
    let mut partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.try_for_each(|partition| refuse_error("Produce", partition.error_code))
}

fn produce(topic: &str, batches: impl IntoIterator<Item = (i32, Bytes)>) -> ProduceRequest {
    let data = |(partition, batch)| {
        PartitionProduceData::default().with_index(partition).with_records(Some(batch))
    };
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_string())))
        .with_partition_data(batches.into_iter().map(data).collect());
    ProduceRequest::default().with_acks(1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// How many records a batch has: its last offset delta stands at byte 23.
fn records(batch: &[u8]) -> u64 {
    let delta = batch.get(23..).and_then(|rest| rest.first_chunk::<4>());
    delta.map_or(0, |delta| u64::from(u32::from_be_bytes(*delta)) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_knows_its_records() {
        let load = Load::small(2500);
        let counts: Vec<u64> = load.batches.iter().map(|batch| records(batch)).collect();
        assert_eq!(counts, [1000, 1000, 1000]);
        let all = Events::new(200_000).records as u64;
        let load = Load::events(200_000);
        assert_eq!(load.batches.iter().map(|batch| records(batch)).sum::<u64>(), all);
    }
}
