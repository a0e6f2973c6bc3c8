//! A table made for tests: real files of known rows, changed as the broker would change them.
//!
//! The row at an offset follows from partition and offset alone, so that files can be made anew for
//! any range and readers can be held to what they should see.

use shard::batch::{place, BatchBuilder, Header, NewRecord};
use shard::disk::RealDisk;
use shard::ids::{LeaderEpoch, Offset, Timestamp};
use shard::table::file::{Covered, FileWriter};
use shard::table::rows::RowsBuilder;
use shard::table::{file_path, FileId, TableFile, Version};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// 2026-01-01, in ms.
const FIRST_TIME: i64 = 1_767_225_600_000;

/// A record as it was produced.
pub struct Made {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub timestamp: Timestamp,
    pub append_time: Timestamp,
}

/// The record at an offset of a partition.
pub fn record(partition: i32, offset: i64) -> Made {
    let key = match offset % 11 {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(format!("key-{}", offset % 97).into_bytes()),
    };
    let value = match offset % 13 {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some((0..=255).collect()),
        _ => Some(format!("{{\"offset\": {offset}, \"partition\": {partition}}}").into_bytes()),
    };
    let headers = match offset % 3 {
        0 => Vec::new(),
        _ => vec![
            (b"twice".to_vec(), Some(b"one".to_vec())),
            (b"twice".to_vec(), None),
            (vec![0xff, 0xfe], Some(Vec::new())),
        ],
    };
    let timestamp = match offset % 17 {
        0 => Timestamp(-1),
        1 => Timestamp(i64::MAX),
        _ => Timestamp(FIRST_TIME + offset),
    };
    Made { key, value, headers, timestamp, append_time: Timestamp(FIRST_TIME + 5 * offset) }
}

/// A table in a directory of its own.
pub struct MadeTable {
    pub topic: Uuid,
    pub dir: PathBuf,
    disk: RealDisk,
    files: Vec<Arc<TableFile>>,
    starts: BTreeMap<i32, Offset>,
    number: u64,
    next_file: u64,
}

impl MadeTable {
    pub fn new(tables: &Path) -> MadeTable {
        let topic = Uuid::new_v4();
        MadeTable {
            topic,
            dir: tables.join(topic.to_string()),
            disk: RealDisk::default(),
            files: Vec::new(),
            starts: BTreeMap::new(),
            number: 0,
            next_file: 1,
        }
    }

    pub fn version(&self) -> Arc<Version> {
        let (files, starts) = (self.files.clone(), self.starts.clone());
        Arc::new(Version::new(self.number, self.topic, files, starts).expect("no hole"))
    }

    /// Partition and offset of every row there is.
    pub fn rows(&self) -> Vec<(i32, i64)> {
        let mut rows = Vec::new();
        for part in self.files.iter().flat_map(|file| &file.facts.parts) {
            let is_whole = part.rows == (part.end.0 - part.first.0) as u64;
            let kept = (part.first.0..part.end.0).filter(|&at| is_whole || is_kept(at));
            rows.extend(kept.map(|offset| (part.partition, offset)));
        }
        rows.sort_unstable();
        rows
    }

    fn end(&self, partition: i32) -> i64 {
        let parts = self.files.iter().filter_map(|file| file.facts.part(partition));
        parts.map(|part| part.end.0).max().unwrap_or(0)
    }

    /// Adds a file with the next `count` rows of each of these partitions.
    pub fn append(&mut self, partitions: &[i32], count: i64) {
        let range = |&partition: &i32| {
            let first = self.end(partition);
            (partition, first, first + count)
        };
        let parts: Vec<_> = partitions.iter().map(range).collect();
        let file = self.write(&parts, false);
        self.files.push(file);
        self.number += 1;
    }

    /// Makes one file of all.
    pub fn merge(&mut self) {
        self.rewrite(false);
    }

    /// Makes one file of all, with the rows that compaction leaves.
    pub fn compact(&mut self) {
        self.rewrite(true);
    }

    fn rewrite(&mut self, is_compacted: bool) {
        let mut parts: BTreeMap<i32, (i64, i64)> = BTreeMap::new();
        for part in self.files.iter().flat_map(|file| &file.facts.parts) {
            let (first, end) = parts.entry(part.partition).or_insert((i64::MAX, 0));
            (*first, *end) = ((*first).min(part.first.0), (*end).max(part.end.0));
        }
        let parts: Vec<_> =
            parts.into_iter().map(|(partition, (first, end))| (partition, first, end)).collect();
        self.files = vec![self.write(&parts, is_compacted)];
        self.number += 1;
    }

    /// Drops the oldest file, as retention does.
    pub fn drop_oldest(&mut self) {
        let gone = self.files.remove(0);
        for part in &gone.facts.parts {
            self.starts.insert(part.partition, part.end);
        }
        self.number += 1;
    }

    /// Moves a log start, wherever it then stands.
    pub fn start_at(&mut self, partition: i32, start: Offset) {
        self.starts.insert(partition, start);
        self.number += 1;
    }

    fn write(&mut self, parts: &[(i32, i64, i64)], is_compacted: bool) -> Arc<TableFile> {
        let id = FileId(self.next_file);
        self.next_file += 1;
        let created = Timestamp(FIRST_TIME);
        let writer = FileWriter::create(&self.disk, &self.dir, id, created);
        let mut writer = writer.expect("a writable directory");
        let mut covered = Vec::new();
        for &(partition, first, end) in parts {
            let mut rows = RowsBuilder::new();
            for offset in (first..end).filter(|&offset| !is_compacted || is_kept(offset)) {
                let batch = batch(partition, offset);
                let append_time = record(partition, offset).append_time;
                rows.push(partition, append_time, &batch).expect("a whole batch");
            }
            writer.add(&rows.finish().expect("columns that fit")).expect("written");
            let (first, end) = (Offset(first), Offset(end));
            covered.push(Covered { partition, first, end, raw_bytes: 100 });
        }
        let facts = writer.finish(&covered).expect("written");
        Arc::new(TableFile { path: file_path(&self.dir, id), facts })
    }
}

fn is_kept(offset: i64) -> bool {
    offset % 4 == 3
}

fn batch(partition: i32, offset: i64) -> Vec<u8> {
    let made = record(partition, offset);
    let headers: Vec<Header<'_>> =
        made.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        timestamp: made.timestamp,
        key: made.key.as_deref(),
        value: made.value.as_deref(),
        headers: &headers,
    });
    let mut batch = builder.build();
    place(&mut batch, Offset(offset), LeaderEpoch(0));
    batch
}
