//! Gives partitions of a stopped broker the ends that no client can produce: a transaction's
//! marker, a batch whose last records were compacted away, one of which only its offsets are left.
//!
//! `ends DIRECTORY TOPIC`: the topic is there, has five partitions and no records, and the broker
//! that made it ran with one core. Appends through the engine, as the broker would, and stops the
//! log cleanly. Prints {"ends": {"partition": offset, …}, "rows": […]}, the rows being the records
//! a consumer has to see, as tests/clients/client.py has them.

use basalt::catalog::{Record, TopicRecord, CATALOG_PARTITION};
use basalt::cores::CATALOG_SETTINGS;
use basalt::preflight::DataLock;
use basalt::state_machine::read_batches;
use serde_json::{json, Map, Value};
use shard::batch::{
    emptied, BatchBuilder, BatchHeader, Codec, Header, Marker, MarkerKind, NewRecord, Valid,
};
use shard::disk::RealDisk;
use shard::ids::{DenseId, LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use shard::ids::{ProducerEpoch, ProducerId};
use shard::log::{
    AppendError, Flush, Log, LogSettings, LogSpec, Now, PartitionSettings, ReadAsk, Until,
};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PARTITIONS: i32 = 5;
const PATIENCE: Duration = Duration::from_secs(20);
/// Above what a broker gives out for a long time.
const PRODUCER: ProducerId = ProducerId(1 << 40);
const EPOCH: ProducerEpoch = ProducerEpoch(0);
/// What every consumer can decompress.
const CODECS: [Codec; 3] = [Codec::None, Codec::Gzip, Codec::Snappy];
/// Records of a full batch.
const RECORDS: i32 = 20;
/// Offsets without a record at the end of a batch.
const GONE: i32 = 7;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, topic] = words.as_slice() else {
        return Err("ends DIRECTORY TOPIC".into());
    };
    let directory = Path::new(directory);
    let _lock = DataLock::take(directory)?;
    let mut driven = Driven::open(directory)?;
    let topic = driven.topic(topic)?;
    if topic.logs != [0; PARTITIONS as usize] {
        return Err(format!("the partitions lie in the logs {:?}", topic.logs).into());
    }
    let mut ends = Map::new();
    let mut rows = Vec::new();
    for partition in 0..PARTITIONS {
        let id = driven.attach(&topic, partition);
        let mut making = Making { driven: &mut driven, id, partition, rows: &mut rows };
        making.fill()?;
        let end = driven.settle(id)?;
        ends.insert(partition.to_string(), json!(end.0));
    }
    driven.stop()?;
    println!("{}", json!({ "ends": ends, "rows": rows }));
    Ok(())
}

/// A partition that is being given its records.
struct Making<'a> {
    driven: &'a mut Driven,
    id: DenseId,
    partition: i32,
    rows: &'a mut Vec<Value>,
}

impl Making<'_> {
    fn fill(&mut self) -> Outcome<()> {
        match self.partition {
            // A transaction that was committed is the last of it.
            0 => {
                for (batch, codec) in (0..).zip(CODECS) {
                    let first = batch * RECORDS;
                    let builder = BatchBuilder::new().producer(PRODUCER, EPOCH, first);
                    self.records(builder.codec(codec).transactional(), 0)?;
                }
                self.marker(MarkerKind::Commit)
            }
            // Of the last batch only its offsets are left.
            1 => {
                self.plain()?;
                let mut builder = BatchBuilder::new();
                builder
                    .push(&NewRecord { timestamp: self.driven.now().wall, ..Default::default() });
                builder.skip(GONE - 1);
                let batch = builder.build();
                let (header, ..) = BatchHeader::split(&batch)?;
                self.append(&emptied(&header).encode())
            }
            // The last records of the last batch are gone.
            2 => {
                self.plain()?;
                self.records(BatchBuilder::new().codec(Codec::Gzip), GONE)
            }
            // There never was anything but a marker.
            3 => self.marker(MarkerKind::Abort),
            // As partition 2, then a marker: who reads it goes over both without a record.
            _ => {
                self.records(BatchBuilder::new(), GONE)?;
                self.marker(MarkerKind::Abort)
            }
        }
    }

    fn plain(&mut self) -> Outcome<()> {
        CODECS.into_iter().try_for_each(|codec| self.records(BatchBuilder::new().codec(codec), 0))
    }

    /// A batch of records, and behind its last one offsets without.
    fn records(&mut self, mut builder: BatchBuilder, gone: i32) -> Outcome<()> {
        let time = self.driven.now().wall;
        let first = self.driven.end(self.id);
        for number in 0..RECORDS {
            let offset = first.plus(i64::from(number));
            let key = format!("key-{number}");
            let value = format!("ends-{}-{offset}", self.partition);
            let timestamp = Timestamp(time.0 + i64::from(number));
            builder.push(&NewRecord {
                timestamp,
                key: Some(key.as_bytes()),
                value: Some(value.as_bytes()),
                headers: &[Header { key: b"source", value: Some(b"basalt") }],
            });
            let headers = [["source", "basalt"]];
            self.rows.push(json!([self.partition, offset.0, timestamp.0, key, value, headers]));
        }
        builder.skip(gone);
        self.append(&builder.build())
    }

    fn marker(&mut self, kind: MarkerKind) -> Outcome<()> {
        let marker = Marker { kind, coordinator_epoch: 0 };
        self.append(&marker.build(PRODUCER, EPOCH, self.driven.now().wall))
    }

    fn append(&mut self, batch: &[u8]) -> Outcome<()> {
        self.driven.append(self.id, batch)
    }
}

/// The log of a data directory, driven by hand.
struct Driven {
    log: Log,
    begun: Instant,
}

impl Driven {
    /// Counts the start, as a broker does, and opens the log.
    fn open(directory: &Path) -> Outcome<Driven> {
        let cluster = Uuid::try_parse(fs::read_to_string(directory.join("cluster"))?.trim())?;
        let started: i32 = fs::read_to_string(directory.join("start"))?.trim().parse()?;
        fs::write(directory.join("start"), format!("{}\n", started + 1))?;
        let spec = LogSpec {
            dir: directory.join("logs/0"),
            id: LogId(0),
            cluster,
            run: LeaderEpoch(started + 1),
            settings: LogSettings::default(),
            salvage: false,
        };
        let begun = Instant::now();
        let seed = Uuid::new_v4().as_u64_pair().0;
        let (log, _) = Log::open(Arc::new(RealDisk), spec, seed, now(begun)?)?;
        Ok(Driven { log, begun })
    }

    fn now(&self) -> Now {
        now(self.begun).expect("the clock stands after 1970")
    }

    /// What the catalogue has of a topic.
    fn topic(&mut self, name: &str) -> Outcome<TopicRecord> {
        let id = self.log.attach(CATALOG_PARTITION, CATALOG_SETTINGS);
        let mut from = self.log.offsets(id).ok_or("there is no catalogue")?.log_start;
        let mut found = None;
        loop {
            let (bytes_max, until) = (1 << 20, Until::HighWatermark);
            let ask = ReadAsk { from, bytes_max, whole_first: true, until };
            let bytes = self.log.plan_read(id, &ask)?.copy(&RealDisk)?;
            let end = read_batches(&bytes, from, |record: Record| match record {
                Record::Topic(topic) if topic.name == name => found = Some(topic),
                _ => {}
            })?;
            match end {
                Some(end) => from = end,
                None => return found.ok_or_else(|| format!("there is no topic {name}").into()),
            }
        }
    }

    fn attach(&mut self, topic: &TopicRecord, partition: i32) -> DenseId {
        let key = PartitionKey { view: topic.view, topic: topic.id, partition };
        let settings = PartitionSettings {
            flush: Flush::Commit,
            retention_ms: None,
            retention_bytes: None,
            internal: false,
            compaction: None,
        };
        self.log.attach(key, settings)
    }

    fn end(&self, id: DenseId) -> Offset {
        self.log.offsets(id).expect("attached").log_end
    }

    fn append(&mut self, id: DenseId, batch: &[u8]) -> Outcome<()> {
        let valid = Valid::built(batch)?;
        let late = Instant::now() + PATIENCE;
        loop {
            match self.log.append(id, &valid, self.now()) {
                Err(AppendError::Busy) if Instant::now() < late => self.work()?,
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Runs what is due.
    fn work(&mut self) -> Outcome<()> {
        self.log.tick(self.now());
        for job in self.log.take_jobs() {
            if let Some(failure) = self.log.finish(job.run(), self.now()).failure {
                return Err(failure.into());
            }
        }
        Ok(())
    }

    /// Waits until all of a partition is committed. Where it ends.
    fn settle(&mut self, id: DenseId) -> Outcome<Offset> {
        let late = Instant::now() + PATIENCE;
        loop {
            self.work()?;
            let offsets = self.log.offsets(id).expect("attached");
            if offsets.last_stable == offsets.log_end {
                return Ok(offsets.log_end);
            }
            if Instant::now() > late {
                return Err(format!("not committed in time: {offsets:?}").into());
            }
        }
    }

    fn stop(mut self) -> Outcome<()> {
        let late = Instant::now() + PATIENCE;
        while !self.log.stop_step(self.now()) {
            self.work()?;
            if Instant::now() > late {
                return Err("the log does not stop in time".into());
            }
        }
        Ok(())
    }
}

fn now(begun: Instant) -> Outcome<Now> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    Ok(Now { wall: Timestamp(wall), mono_us: begun.elapsed().as_micros() as u64 })
}
