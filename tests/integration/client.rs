//! librdkafka as a test uses it: records go out, records come back, both as plain values.
//!
//! Nothing here retries or forgives: an error of the client is a failed test.

use crate::broker::external;
use futures_lite::future::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Everything a client can put into a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: i64,
}

/// Where the broker put a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub partition: i32,
    pub offset: i64,
}

/// The first timestamp of `records`: an hour ago, so that no retention touches them.
pub fn begin_ms() -> i64 {
    static BEGIN: OnceLock<i64> = OnceLock::new();
    *BEGIN.get_or_init(|| now_ms() - 3_600_000)
}

pub fn now_ms() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    since.as_millis() as i64
}

/// The time between two of `records`.
pub const STEP_MS: i64 = 10;

/// Keyed records with headers; null and empty keys, values and headers among them.
pub fn records(count: usize) -> Vec<Record> {
    (0..count)
        .map(|number| {
            let text = |part: &str, times: usize| format!("{part} {number} ").repeat(times);
            let value = Some(text("value", number % 40).into_bytes());
            let key = Some(format!("key-{}", number % 97).into_bytes());
            let header = |name: &str, value: Option<Vec<u8>>| (name.to_string(), value);
            Record {
                key: if number % 50 == 13 { None } else { key },
                value: if number % 100 == 7 { None } else { value },
                headers: vec![
                    header("twice", Some(number.to_string().into_bytes())),
                    header("empty", Some(Vec::new())),
                    header("null", None),
                    header("twice", Some(b"again".to_vec())),
                ],
                timestamp_ms: begin_ms() + number as i64 * STEP_MS,
            }
        })
        .collect()
}

pub fn config(address: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config
}

/// What became of each record, by its number.
struct Deliveries(Mutex<Vec<(usize, Result<Place, KafkaError>)>>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let place = |message: &rdkafka::message::BorrowedMessage<'_>| Place {
            partition: message.partition(),
            offset: message.offset(),
        };
        let outcome = result.as_ref().map(place).map_err(|(error, _)| error.clone());
        self.0.lock().expect("no panic holds it").push((number, outcome));
    }
}

/// Sends all records and returns what became of each, in the order of `records`.
pub fn try_produce(
    address: &str,
    topic: &str,
    records: &[Record],
    settings: &[(&str, &str)],
) -> Vec<Result<Place, KafkaError>> {
    let deliveries = Deliveries(Mutex::new(Vec::new()));
    let mut config = config(address, &[("linger.ms", "5"), ("message.timeout.ms", "30000")]);
    for (key, value) in settings {
        config.set(*key, *value);
    }
    let producer: ThreadedProducer<Deliveries> =
        config.create_with_context(deliveries).expect("a producer");
    for (number, record) in records.iter().enumerate() {
        let mut message = BaseRecord::<Vec<u8>, Vec<u8>, usize>::with_opaque_to(topic, number)
            .timestamp(record.timestamp_ms)
            .headers(headers(record));
        if let Some(key) = &record.key {
            message = message.key(key);
        }
        if let Some(value) = &record.value {
            message = message.payload(value);
        }
        producer.send(message).map_err(|(error, _)| error).expect("room in the client's queue");
    }
    producer.flush(PATIENCE).expect("all records answered");
    let mut outcomes = std::mem::take(&mut *producer.context().0.lock().expect("no panic"));
    outcomes.sort_by_key(|(number, _)| *number);
    assert_eq!(outcomes.len(), records.len());
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Sends all records, all acknowledged, and returns where each went.
pub fn produce(
    address: &str,
    topic: &str,
    records: &[Record],
    settings: &[(&str, &str)],
) -> Vec<Place> {
    let outcomes = try_produce(address, topic, records, settings);
    outcomes.into_iter().map(|outcome| outcome.expect("an acknowledged record")).collect()
}

fn headers(record: &Record) -> OwnedHeaders {
    record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: value.as_ref() })
    })
}

pub fn consumer(address: &str) -> BaseConsumer {
    let settings = [
        ("group.id", "not-used"),
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("check.crcs", "true"),
        ("auto.offset.reset", "error"),
    ];
    config(address, &settings).create().expect("a consumer")
}

/// Every record of the topic's partitions from the beginning, ordered by place.
pub fn consume(address: &str, topic: &str, partitions: i32) -> Vec<(Place, Record)> {
    consume_at_least(address, topic, partitions, 0)
}

/// Goes on at the ends until there are `least` records: those sent without acks=all appear when
/// they are committed, a little after their acknowledgement.
pub fn consume_at_least(
    address: &str,
    topic: &str,
    partitions: i32,
    least: usize,
) -> Vec<(Place, Record)> {
    let consumer = consumer(address);
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        let from = Offset::Beginning;
        assignment.add_partition_offset(topic, partition, from).expect("an offset");
    }
    consumer.assign(&assignment).expect("an assignment");
    let mut found = Vec::new();
    let mut ended = BTreeSet::new();
    while ended.len() < partitions as usize || found.len() < least {
        match consumer.poll(PATIENCE).expect("a record or the end of a partition") {
            Ok(message) => {
                let place = Place { partition: message.partition(), offset: message.offset() };
                found.push((place, record(&message)));
            }
            Err(KafkaError::PartitionEOF(partition)) => drop(ended.insert(partition)),
            Err(error) => panic!("consuming {topic}: {error}"),
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found
}

fn record(message: &impl Message) -> Record {
    let header =
        |header: Header<'_, &[u8]>| (header.key.to_string(), header.value.map(<[u8]>::to_vec));
    Record {
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: message.headers().into_iter().flat_map(Headers::iter).map(header).collect(),
        timestamp_ms: message.timestamp().to_millis().expect("a timestamp"),
    }
}

/// What a consumer must find when `records` went to `places`.
pub fn placed(places: &[Place], records: &[Record]) -> Vec<(Place, Record)> {
    let mut expected: Vec<_> = places.iter().copied().zip(records.iter().cloned()).collect();
    expected.sort_by_key(|(place, _)| *place);
    expected
}

/// Fails with the first difference instead of two thousand records.
pub fn assert_same(seen: &[(Place, Record)], expected: &[(Place, Record)], what: &str) {
    for (number, (seen, expected)) in seen.iter().zip(expected).enumerate() {
        assert_eq!(seen, expected, "{what}: record {number} differs");
    }
    assert_eq!(seen.len(), expected.len(), "{what}: number of records");
}

pub fn admin(address: &str) -> AdminClient<DefaultClientContext> {
    config(address, &[]).create().expect("an admin client")
}

pub fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

pub fn create_topic(address: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    try_create_topic(address, topic, partitions, settings).expect("a new topic");
    if external().is_some() {
        // Apache Kafka's broker learns of a topic some time after its controller made it.
        let deadline = Instant::now() + PATIENCE;
        while !is_known(address, topic) {
            assert!(Instant::now() < deadline, "{topic} was created and does not appear");
        }
    }
}

fn is_known(address: &str, topic: &str) -> bool {
    let metadata = consumer(address).fetch_metadata(Some(topic), PATIENCE).expect("metadata");
    metadata.topics().iter().all(|topic| topic.error().is_none())
}

pub fn try_create_topic(
    address: &str,
    topic: &str,
    partitions: i32,
    settings: &[(&str, &str)],
) -> Result<(), RDKafkaErrorCode> {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        new = new.set(key, value);
    }
    let answer = block_on(admin(address).create_topics([&new], &admin_options()));
    let outcome = answer.expect("an answer").pop().expect("one topic");
    outcome.map(drop).map_err(|(_, code)| code)
}

pub fn delete_topic(address: &str, topic: &str) -> Result<(), RDKafkaErrorCode> {
    let answer = block_on(admin(address).delete_topics(&[topic], &admin_options()));
    let outcome = answer.expect("an answer").pop().expect("one topic");
    outcome.map(drop).map_err(|(_, code)| code)
}
