//! What a log and its partitions can be told, with the bounds the engine relies on.

use crate::ids::{LeaderEpoch, LogId};
use std::path::PathBuf;
use uuid::Uuid;

/// When a batch counts as committed: acknowledged to acks=all and visible to consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// When it is on stable storage.
    Commit,
    /// At the append; synced within `flush_interval_ms`.
    Interval,
    /// At the append, as Apache Kafka does by default; synced in the background.
    Os,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    pub flush: Flush,
    /// Records older than this go; `None` keeps them for ever.
    pub retention_ms: Option<i64>,
    /// Older batches go when more bytes than this are kept.
    pub retention_bytes: Option<u64>,
    /// The broker's own records may use the space that is kept from clients on a full disk.
    pub internal: bool,
    /// The last record of each key is kept, others go.
    pub compaction: Option<Compaction>,
}

/// How a compacted partition is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The share of a partition that must be new before it is cleaned. Percent.
    pub dirty_percent_min: u8,
    /// Younger records stay, whatever follows them. By the broker's clock.
    pub lag_min_ms: i64,
    /// New records are cleaned after this time, however few they are.
    pub lag_max_ms: i64,
    /// How long the mark of a deleted key stays once compaction has seen it.
    pub delete_retention_ms: i64,
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction {
            dirty_percent_min: 50,
            lag_min_ms: 0,
            lag_max_ms: i64::MAX,
            delete_retention_ms: 24 * 3600 * 1000,
        }
    }
}

/// Which log to open, and how.
#[derive(Clone, Debug)]
pub struct LogSpec {
    pub dir: PathBuf,
    pub id: LogId,
    pub cluster: Uuid,
    /// The start counter of this run: the leader epoch of what is appended.
    pub run: LeaderEpoch,
    pub settings: LogSettings,
    /// Cut a damaged log at the damage in place of refusing it. An explicit act of an operator:
    /// acknowledged records are lost.
    pub salvage: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// First segments have this size, later ones double up to the maximum. Bytes.
    pub segment_bytes_min: u32,
    pub segment_bytes_max: u32,
    /// Larger batches are written to files of their own by a worker. Bytes.
    pub inline_bytes_max: usize,
    /// Batches this close to the log's end are sent straight from the map. Bytes.
    pub warm_bytes: u64,
    /// What is in tables stays in the log too while it is among the last appended bytes …
    pub hot_bytes: u64,
    /// … and its segment was sealed no longer ago than this.
    pub hot_ms: i64,
    /// Appends wait while this many bytes are not on stable storage, under `Flush::Commit`.
    pub unsynced_bytes_max: u64,
    /// The same bound when no partition waits for syncs.
    pub unsynced_bytes_max_relaxed: u64,
    /// The longest time a batch of a partition with `Flush::Interval` may be without a sync.
    pub flush_interval_ms: u64,
    /// A sync is started at least this often while there is something to sync …
    pub background_sync_ms: u64,
    /// … and when this many bytes are waiting.
    pub background_sync_bytes: u64,
    /// Least time between the starts of two syncs, so that syncs at a low rate share pages. µs.
    pub sync_interval_min_us: u64,
    /// An idle log writes its durable mark this long after the last sync.
    pub mark_idle_ms: u64,
    /// Appends stop while a sync has been running for longer than this.
    pub sync_stall_ms: u64,
    /// Pages are made present at most this far ahead of the end. Bytes.
    pub prefault_bytes_max: u32,
    /// How often retention looks at each partition.
    pub retention_check_ms: u64,
    /// A segment is emptied when no more of it is alive than this. Percent.
    pub relocate_live_percent_max: u32,
    /// What carrying batches to the tail may add to what is appended. Percent …
    pub relocate_bandwidth_percent: u32,
    /// … or bytes per second, when that is more.
    pub relocate_bytes_per_second_min: u64,
    /// Memory for the keys of one compaction. Bytes.
    pub cleaner_buffer_bytes: usize,
    /// Producers a partition remembers at most; the longest silent one goes first.
    pub producers_max: usize,
    /// Silent producers are forgotten after this time.
    pub producer_expiry_ms: i64,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            segment_bytes_min: 8 << 20,
            segment_bytes_max: 256 << 20,
            inline_bytes_max: 4 << 20,
            warm_bytes: 256 << 20,
            hot_bytes: 8 << 30,
            hot_ms: 24 * 3600 * 1000,
            unsynced_bytes_max: 16 << 20,
            unsynced_bytes_max_relaxed: 256 << 20,
            flush_interval_ms: 100,
            background_sync_ms: 1000,
            background_sync_bytes: 64 << 20,
            sync_interval_min_us: 1000,
            mark_idle_ms: 200,
            sync_stall_ms: 1000,
            prefault_bytes_max: 32 << 20,
            retention_check_ms: 300_000,
            relocate_live_percent_max: 25,
            relocate_bandwidth_percent: 10,
            relocate_bytes_per_second_min: 1 << 20,
            cleaner_buffer_bytes: 64 << 20,
            producers_max: 10_000,
            producer_expiry_ms: 24 * 3600 * 1000,
        }
    }
}
