//! What a query reads of a topic: one moment of its table, and its raw batches behind that.
//!
//! Queries get snapshots through [`Snapshots`] and know nothing of cores; what serves them in a
//! broker is `live`, tests bring their own. A snapshot holds the files of its version, so that they
//! stay readable until the query that took it is over.
//!
//! Worked example: partition 0 has log start 120, files up to 250 and raw batches up to 300. The
//! snapshot is `log_start: 120, hot_from: 250, end: 300`: rows 120..250 come out of files, rows
//! 250..300 out of batches, and what is appended a moment later is not part of it.

use bytes::Bytes;
use futures::future::BoxFuture;
use shard::ids::{Offset, Timestamp};
use shard::table::Version;
use std::fmt::Debug;
use std::sync::Arc;

/// The topics of one view, and what they hold at this moment.
pub trait Snapshots: Debug + Send + Sync + 'static {
    /// Names of all topics, in no particular order.
    fn topics(&self) -> Vec<String>;
    fn has(&self, topic: &str) -> bool;
    /// `None` when there is no such topic.
    fn snapshot<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<Option<TopicSnapshot>, SnapshotError>>;
}

/// Why a moment of a topic could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topic {topic:?} cannot be read: {reason}")]
pub struct SnapshotError {
    pub topic: String,
    pub reason: String,
}

/// A topic at one moment, each partition with its own bounds.
#[derive(Clone, Debug)]
pub struct TopicSnapshot {
    pub version: Arc<Version>,
    /// By partition.
    pub partitions: Vec<PartitionSnapshot>,
}

/// A partition at one moment: `[log_start, hot_from)` is in files, `[hot_from, end)` in batches.
#[derive(Clone, Debug)]
pub struct PartitionSnapshot {
    pub partition: i32,
    pub log_start: Offset,
    pub hot_from: Offset,
    pub end: Offset,
    /// `None` when no batch is behind the files.
    pub hot: Option<Arc<dyn Hot>>,
}

/// Raw batches of a partition, to be read as often as a plan runs.
pub trait Hot: Debug + Send + Sync {
    /// What reading all of them reads, about.
    fn bytes(&self) -> u64;
    fn open(&self) -> Result<Box<dyn RawBatches>, RawError>;
}

/// A batch as it is in the log, and when the broker appended it.
pub type RawBatch = (Timestamp, Bytes);

/// Batches in the order of their offsets.
pub trait RawBatches: Send {
    /// The next few batches, about `bytes_max` of them; `None` at the end.
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<RawBatch>>, RawError>;
}

/// Why raw batches could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    #[error("the batches went into the table while the query was about to read them; try again")]
    Removed,
    #[error("batches cannot be read: {0}")]
    Unreadable(String),
}
