//! Queries over topics whose files and batches are made for the test, on a simulated disk.

mod limits;
mod rows;

use super::snapshots::*;
use super::*;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::future::{BoxFuture, FutureExt};
use futures::StreamExt;
use shard::batch::{place, BatchBuilder, Codec, NewRecord};
use shard::disk::sim::SimDisk;
use shard::ids::{LeaderEpoch, Offset, Timestamp};
use shard::table::file::{Covered, FileWriter};
use shard::table::rows::RowsBuilder;
use shard::table::{file_path, FileId, TableFile, Version};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use uuid::Uuid;

/// A moment in 2026, in ms; records are stamped one second apart from it.
pub const START_MS: i64 = 1_780_000_000_000;

/// Topics by name, as a test made them.
#[derive(Debug, Default)]
pub struct Topics(pub Mutex<BTreeMap<String, TopicSnapshot>>);

impl Snapshots for Topics {
    fn topics(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn has(&self, topic: &str) -> bool {
        self.0.lock().unwrap().contains_key(topic)
    }

    fn snapshot<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<Option<TopicSnapshot>, SnapshotError>> {
        let found = self.0.lock().unwrap().get(topic).cloned();
        async move { Ok(found) }.boxed()
    }
}

/// Batches in memory.
#[derive(Clone, Debug)]
pub struct Raw(pub Vec<RawBatch>);

impl Hot for Raw {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, batch)| batch.len() as u64).sum()
    }

    fn open(&self) -> Result<Box<dyn RawBatches>, RawError> {
        Ok(Box::new(Reading(self.0.clone())))
    }
}

struct Reading(Vec<RawBatch>);

impl RawBatches for Reading {
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<RawBatch>>, RawError> {
        let mut bytes = 0;
        let count = self.0.iter().take_while(|(_, batch)| {
            bytes += batch.len();
            bytes <= bytes_max || bytes == batch.len()
        });
        let count = count.count();
        Ok((count > 0).then(|| self.0.drain(..count).collect()))
    }
}

/// A batch of records with these offsets; values are JSON, the key is the offset, or null where the
/// offset is a multiple of ten.
pub fn batch(base: i64, count: i64, codec: Codec) -> RawBatch {
    let mut builder = BatchBuilder::new().codec(codec);
    for offset in base..base + count {
        let key = offset.to_string();
        let value = format!("{{\"n\":{offset},\"kind\":\"k{}\"}}", offset % 3);
        builder.push(&NewRecord {
            timestamp: Timestamp(START_MS + offset * 1000),
            key: (offset % 10 != 0).then_some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    let mut bytes = builder.build();
    place(&mut bytes, Offset(base), LeaderEpoch(1));
    (Timestamp(START_MS + base * 1000 + 5), bytes.into())
}

pub fn batches(from: i64, end: i64, each: i64) -> Vec<RawBatch> {
    let starts = (from..end).step_by(each as usize);
    starts.map(|base| batch(base, each.min(end - base), Codec::None)).collect()
}

/// An engine over topics on a disk of its own.
pub struct Bench {
    pub disk: SimDisk,
    pub topics: Arc<Topics>,
    pub engine: Engine,
    pub spill_dir: PathBuf,
    next_file: u64,
}

pub fn settings() -> Settings {
    Settings {
        memory_bytes: 64 << 20,
        spill_bytes: 64 << 20,
        timeout: Duration::from_secs(60),
        concurrency: 4,
        patience: Duration::from_secs(10),
        threads: 2,
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(settings())
    }

    pub fn with(settings: Settings) -> Bench {
        let disk = SimDisk::new(7);
        let topics = Arc::new(Topics::default());
        let spill_dir = std::env::temp_dir().join(format!("basalt-spill-{}", Uuid::new_v4()));
        let place = Place {
            disk: Arc::new(disk.clone()),
            spill_dir: spill_dir.clone(),
            footer_bytes: 1 << 20,
        };
        let view = View { name: "default".into(), topics: topics.clone() };
        let engine = Engine::start(settings, place, vec![view]).expect("an engine");
        Bench { disk, topics, engine, spill_dir, next_file: 1 }
    }

    /// A file of these partitions: `(partition, first, end)`, a record at every offset.
    pub fn file(&mut self, parts: &[(i32, i64, i64)]) -> Arc<TableFile> {
        let id = FileId(self.next_file);
        self.next_file += 1;
        let table = Path::new("/tables/t");
        let mut writer =
            FileWriter::create(&self.disk, table, id, Timestamp(0)).expect("a new file");
        for &(partition, first, end) in parts {
            let mut rows = RowsBuilder::new();
            for (appended, batch) in batches(first, end, 500) {
                rows.push(partition, appended, &batch).expect("a whole batch");
                writer.add(&rows.finish().expect("rows")).expect("rows in order");
            }
        }
        let covered = |&(partition, first, end): &(i32, i64, i64)| Covered {
            partition,
            first: Offset(first),
            end: Offset(end),
            raw_bytes: (end - first) as u64 * 100,
        };
        let covered: Vec<Covered> = parts.iter().map(covered).collect();
        let facts = writer.finish(&covered).expect("a durable file");
        Arc::new(TableFile { path: file_path(table, id), facts })
    }

    /// A topic of these files, and of partitions `(partition, log start, end)` whose batches stand
    /// behind the files.
    pub fn topic(&self, name: &str, files: Vec<Arc<TableFile>>, partitions: &[(i32, i64, i64)]) {
        let version = Version::new(1, Uuid::nil(), files, BTreeMap::new()).expect("no hole");
        let seen = |&(partition, log_start, end): &(i32, i64, i64)| {
            let hot_from = version.table_end(partition).unwrap_or(Offset(log_start));
            let raw = Raw(batches(hot_from.0, end, 7));
            PartitionSnapshot {
                partition,
                log_start: Offset(log_start),
                hot_from,
                end: Offset(end),
                hot: (hot_from.0 < end).then(|| Arc::new(raw) as Arc<dyn Hot>),
            }
        };
        let partitions = partitions.iter().map(seen).collect();
        let snapshot = TopicSnapshot { version: Arc::new(version), partitions };
        self.topics.0.lock().unwrap().insert(name.to_string(), snapshot);
    }

    pub async fn ask(&self, sql: &str) -> Result<Vec<RecordBatch>, QueryError> {
        let mut rows = self.engine.run(sql).await?;
        let mut batches = vec![RecordBatch::new_empty(rows.schema.clone())];
        while let Some(batch) = rows.batches.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }

    /// The rows as a table of text.
    pub fn shown(&self, sql: &str) -> String {
        let batches = block_on(self.ask(sql));
        let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
        pretty_format_batches(&batches).expect("a table").to_string()
    }

    /// The one number a statement gives.
    pub fn number(&self, sql: &str) -> i64 {
        let text = self.shown(sql);
        let cell = text.lines().nth(3).unwrap_or_default().trim_matches(['|', ' ']);
        cell.parse().unwrap_or_else(|_| panic!("{sql}: {text}"))
    }

    pub fn refusal(&self, sql: &str) -> String {
        match block_on(self.ask(sql)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{sql} was answered"),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.spill_dir);
    }
}

pub fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}
