//! The rdkafka crate's adapter, an example of the broker's package so that librdkafka is built once
//! for it and the integration tests. `tests/clients/client.py` has the contract.

use nix::sys::signal::{SigSet, Signal};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::json;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Records printed before a commit.
const COMMIT_RECORDS: usize = 500;

static STOPPING: AtomicBool = AtomicBool::new(false);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["version"] => println!("0.39 (librdkafka {})", rdkafka::util::get_rdkafka_version().1),
        ["create", address, topic, partitions] => create(address, topic, partitions.parse()?)?,
        ["produce", address, topic, codec, mode] => produce(address, topic, codec, mode)?,
        ["consume", address, group, topic] => consume(address, group, topic)?,
        ["fetch", address, topic, ends] => fetch(address, topic, ends)?,
        ["committed", address, group, topic] => committed(address, group, topic)?,
        ["offsets", address, topic, timestamp] => offsets(address, topic, timestamp.parse()?)?,
        _ => return Err(format!("no such step: {words:?}").into()),
    }
    Ok(())
}

fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    config
}

fn create(address: &str, topic: &str, partitions: i32) -> Outcome<()> {
    let admin: AdminClient<_> = config(address).create()?;
    let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let answers = futures_lite::future::block_on(admin.create_topics([&wanted], &options))?;
    for answer in answers {
        answer.map_err(|(topic, code)| format!("{topic}: {code}"))?;
    }
    Ok(())
}

#[derive(Default)]
struct Deliveries {
    good: AtomicUsize,
    bad: AtomicUsize,
}

struct Counted(Arc<Deliveries>);

impl ClientContext for Counted {}

impl ProducerContext for Counted {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.0.good.fetch_add(1, Ordering::SeqCst),
            Err((error, _)) => {
                eprintln!("{error}");
                self.0.bad.fetch_add(1, Ordering::SeqCst)
            }
        };
    }
}

fn produce(address: &str, topic: &str, codec: &str, mode: &str) -> Outcome<()> {
    let idempotent = mode == "idempotent";
    let deliveries = Arc::new(Deliveries::default());
    let producer: ThreadedProducer<Counted> = config(address)
        .set("compression.type", codec)
        .set("enable.idempotence", idempotent.to_string())
        .set("max.in.flight.requests.per.connection", if idempotent { "5" } else { "1" })
        .set("linger.ms", "5")
        .create_with_context(Counted(Arc::clone(&deliveries)))?;
    let mut sent = 0;
    for line in std::io::stdin().lock().lines() {
        let (key, value, pairs): (String, String, Vec<(String, String)>) =
            serde_json::from_str(&line?)?;
        let mut headers = OwnedHeaders::new();
        for (name, text) in &pairs {
            headers = headers.insert(Header { key: name, value: Some(text) });
        }
        let record = BaseRecord::to(topic).key(&key).payload(&value).headers(headers);
        producer.send(record).map_err(|(error, _)| error)?;
        sent += 1;
    }
    producer.flush(PATIENCE)?;
    let good = deliveries.good.load(Ordering::SeqCst);
    if good != sent || deliveries.bad.load(Ordering::SeqCst) > 0 {
        return Err(format!("{good} of {sent} delivered").into());
    }
    Ok(())
}

fn consumer(address: &str, group: &str) -> Outcome<BaseConsumer> {
    Ok(config(address)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        .set("check.crcs", "true")
        .create()?)
}

fn show(message: &BorrowedMessage<'_>) -> Outcome<()> {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec());
    let mut headers = Vec::new();
    for header in message.headers().iter().flat_map(|headers| headers.iter()) {
        headers.push((header.key, text(header.value)?));
    }
    let shown = json!([
        message.partition(),
        message.offset(),
        message.timestamp().to_millis(),
        text(message.key())?,
        text(message.payload())?,
        headers
    ]);
    println!("{shown}");
    Ok(())
}

/// SIGTERM is blocked before librdkafka makes threads, and awaited by one of ours.
fn stop_at_sigterm() -> Outcome<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    std::thread::spawn(move || {
        if let Err(error) = signals.wait() {
            eprintln!("{error}");
        }
        STOPPING.store(true, Ordering::SeqCst);
    });
    Ok(())
}

fn consume(address: &str, group: &str, topic: &str) -> Outcome<()> {
    stop_at_sigterm()?;
    let consumer = consumer(address, group)?;
    consumer.subscribe(&[topic])?;
    let mut open = 0;
    while !STOPPING.load(Ordering::SeqCst) {
        let at_rest = match consumer.poll(POLL) {
            Some(Ok(message)) => {
                show(&message)?;
                open += 1;
                false
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => true,
            Some(Err(error)) => {
                eprintln!("{error}");
                true
            }
        };
        if open >= COMMIT_RECORDS || (at_rest && open > 0) {
            commit(&consumer);
            open = 0;
        }
    }
    Ok(())
}

/// An error is a rebalance or no broker: the next one commits.
fn commit(consumer: &BaseConsumer) {
    if let Err(error) = consumer.commit_consumer_state(CommitMode::Sync) {
        eprintln!("{error}");
    }
}

fn fetch(address: &str, topic: &str, ends: &str) -> Outcome<()> {
    let ends: BTreeMap<String, i64> = serde_json::from_str(ends)?;
    let consumer = consumer(address, "none")?;
    let mut list = TopicPartitionList::new();
    for partition in ends.keys() {
        list.add_partition_offset(topic, partition.parse()?, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let mut open = ends.len();
    while open > 0 {
        match consumer.poll(PATIENCE).ok_or("nothing more comes")? {
            Ok(message) => show(&message)?,
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Outcome<Vec<i32>> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let topic = metadata.topics().first().ok_or("no such topic")?;
    Ok(topic.partitions().iter().map(|partition| partition.id()).collect())
}

fn committed(address: &str, group: &str, topic: &str) -> Outcome<()> {
    let consumer = consumer(address, group)?;
    let mut list = TopicPartitionList::new();
    for partition in partitions(&consumer, topic)? {
        list.add_partition(topic, partition);
    }
    println!("{}", by_partition(&consumer.committed_offsets(list, PATIENCE)?));
    Ok(())
}

fn by_partition(list: &TopicPartitionList) -> serde_json::Value {
    let found: BTreeMap<String, i64> = list
        .elements()
        .iter()
        .map(|part| (part.partition().to_string(), part.offset().to_raw().unwrap_or(-1)))
        .collect();
    json!(found)
}

fn offsets(address: &str, topic: &str, timestamp_ms: i64) -> Outcome<()> {
    let consumer = consumer(address, "none")?;
    let (mut firsts, mut ends) = (BTreeMap::new(), BTreeMap::new());
    let mut list = TopicPartitionList::new();
    for partition in partitions(&consumer, topic)? {
        let (first, end) = consumer.fetch_watermarks(topic, partition, PATIENCE)?;
        firsts.insert(partition.to_string(), first);
        ends.insert(partition.to_string(), end);
        list.add_partition_offset(topic, partition, Offset::Offset(timestamp_ms))?;
    }
    let found = consumer.offsets_for_times(list, PATIENCE)?;
    println!("{}", json!([firsts, ends, by_partition(&found)]));
    Ok(())
}
