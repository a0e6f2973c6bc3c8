//! rskafka's adapter: a client without groups, so that it produces, fetches and looks up offsets.
//!
//! `tests/clients/client.py` has the contract. A header's name stands once in a record, and the
//! partition is the caller's choice; here the sum of the key's bytes decides.

use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(60);
const BATCH_RECORDS: usize = 50;
const FETCH_BYTES: i32 = 1 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tokio::time::timeout(2 * PATIENCE, step(&words)).await?
}

async fn step(words: &[&str]) -> Outcome<()> {
    match words {
        ["version"] => println!("0.6.0"),
        ["create", address, topic, partitions] => {
            let controller = connect(address).await?.controller_client()?;
            controller.create_topic(*topic, partitions.parse()?, 1, 30_000).await?;
        }
        ["produce", address, topic, codec, _] => produce(address, topic, codec).await?,
        ["fetch", address, topic, ends] => fetch(address, topic, ends).await?,
        ["offsets", address, topic, timestamp] => {
            offsets(address, topic, timestamp.parse()?).await?
        }
        _ => return Err(format!("no such step: {words:?}").into()),
    }
    Ok(())
}

async fn connect(address: &str) -> Outcome<Client> {
    let backoff = rskafka::BackoffConfig {
        max_backoff: Duration::from_secs(1),
        deadline: Some(PATIENCE),
        ..Default::default()
    };
    Ok(ClientBuilder::new(vec![address.into()]).backoff_config(backoff).build().await?)
}

async fn partitions(client: &Client, topic: &str) -> Outcome<Vec<PartitionClient>> {
    let topics = client.list_topics().await?;
    let found = topics.iter().find(|found| found.name == topic).ok_or("no such topic")?;
    let mut clients = Vec::new();
    for partition in &found.partitions {
        let unknown = UnknownTopicHandling::Retry;
        clients.push(client.partition_client(topic, *partition, unknown).await?);
    }
    Ok(clients)
}

fn compression(codec: &str) -> Compression {
    match codec {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    }
}

async fn produce(address: &str, topic: &str, codec: &str) -> Outcome<()> {
    let client = connect(address).await?;
    let partitions = partitions(&client, topic).await?;
    let mut waiting: Vec<Vec<Record>> = partitions.iter().map(|_| Vec::new()).collect();
    for line in std::io::stdin().lock().lines() {
        let record = record(&line?)?;
        let key = record.key.iter().flatten().map(|byte| usize::from(*byte)).sum::<usize>();
        let chosen = key % partitions.len();
        waiting[chosen].push(record);
        if waiting[chosen].len() == BATCH_RECORDS {
            let batch = std::mem::take(&mut waiting[chosen]);
            partitions[chosen].produce(batch, compression(codec)).await?;
        }
    }
    for (partition, batch) in partitions.iter().zip(waiting) {
        partition.produce(batch, compression(codec)).await?;
    }
    Ok(())
}

fn record(line: &str) -> Outcome<Record> {
    let (key, value, pairs): (String, String, Vec<(String, String)>) = serde_json::from_str(line)?;
    let headers: BTreeMap<_, _> =
        pairs.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    let (key, value) = (Some(key.into_bytes()), Some(value.into_bytes()));
    Ok(Record { key, value, headers, timestamp: Utc::now() })
}

async fn fetch(address: &str, topic: &str, ends: &str) -> Outcome<()> {
    let ends: BTreeMap<String, i64> = serde_json::from_str(ends)?;
    let client = connect(address).await?;
    for partition in partitions(&client, topic).await? {
        let end = ends.get(&partition.partition().to_string()).copied().unwrap_or(0);
        let mut next = 0;
        while next < end {
            let (records, _) = partition.fetch_records(next, 1..FETCH_BYTES, 1_000).await?;
            for found in records {
                next = found.offset + 1;
                println!("{}", shown(partition.partition(), found)?);
            }
        }
    }
    Ok(())
}

fn shown(partition: i32, found: RecordAndOffset) -> Outcome<Value> {
    let RecordAndOffset { record, offset } = found;
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap_or_default());
    let mut headers = Vec::new();
    for (name, value) in record.headers {
        headers.push((name, String::from_utf8(value)?));
    }
    let timestamp = record.timestamp.timestamp_millis();
    Ok(json!([partition, offset, timestamp, text(record.key)?, text(record.value)?, headers]))
}

async fn offsets(address: &str, topic: &str, timestamp_ms: i64) -> Outcome<()> {
    let time = DateTime::from_timestamp_millis(timestamp_ms).ok_or("no such time")?;
    let client = connect(address).await?;
    let mut rows = Vec::new();
    for at in [OffsetAt::Earliest, OffsetAt::Latest, OffsetAt::Timestamp(time)] {
        let mut row = BTreeMap::new();
        for partition in partitions(&client, topic).await? {
            row.insert(partition.partition().to_string(), partition.get_offset(at).await?);
        }
        rows.push(row);
    }
    println!("{}", json!(rows));
    Ok(())
}
