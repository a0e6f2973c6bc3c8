//! The front door of the cores: what a handler may ask, whoever owns the partition.
//!
//! A handler names partitions by their place in the catalogue's picture; the cores find the owner,
//! one message each, and the answers come back in the order of the items. The same door serves
//! local and remote partitions. Time, timers and waiting are behind it too, so that handlers know
//! no runtime and run in tests against a model.

use crate::catalog::{Answer, CatalogImage, Command};
use crate::coordinator::{GroupOutput, GroupRequest};
use bytes::{Bytes, BytesMut};
use shard::batch::{BatchError, Rules};
use shard::disk::SharedBytes;
use shard::ids::{LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
pub use shard::log::{Found, TimeTarget, Until};
pub use shard::partition::Offsets;
use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

/// A future of one core.
pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// Answers about partitions, in the order of the items.
pub type Answers<T> = Later<Vec<Result<T, PartitionRefusal>>>;

/// What handlers ask of the cores. One per core.
pub trait Cores: 'static {
    /// The topics as this core sees them now.
    fn image(&self) -> Arc<CatalogImage>;

    /// The broker's clock.
    fn now(&self) -> Timestamp;

    /// Resolves after `ms` milliseconds.
    fn timer(&self, ms: u64) -> Later<()>;

    /// Appends batches, each to its partition. Called in the order in which requests take effect.
    fn append(&self, items: Vec<AppendItem>, wait: AppendWait) -> Appending;

    /// How long appends to these logs are to wait before they are handed in: their tables do not
    /// keep up. 0 almost always.
    fn throttle_ms(&self, logs: &[LogId]) -> u32;

    /// Moves log starts up, each to its item's offset. Resolves when that would survive a power
    /// cut, whatever the partition's flush policy, with the log starts.
    fn trim(
        &self,
        items: Vec<TrimItem>,
        timeout_ms: u64,
    ) -> Later<Vec<Result<Offset, AppendRefusal>>>;

    /// Reads batches, in the order of the items, until `bytes_max` is used up. Items of different
    /// owners do not know of one another: together they may exceed `bytes_max`.
    fn read(&self, ask: ReadRequest) -> Answers<ReadData>;

    /// Resolves when a partition's visible end passes what its item has seen, or at once if it has
    /// already; also when a partition is deleted. Never when there is no item.
    fn watch(&self, items: Vec<WatchItem>) -> Later<()>;

    fn offsets(&self, items: Vec<PartitionAt>) -> Answers<Offsets>;

    /// Finds records by time among those a reader may see.
    fn find_time(&self, items: Vec<TimeItem>) -> Answers<Option<Found>>;

    /// The largest epoch not above the asked one and where it ends.
    fn end_of_epoch(
        &self,
        items: Vec<(PartitionAt, LeaderEpoch)>,
    ) -> Answers<Option<(LeaderEpoch, Offset)>>;

    /// Has core 0 run a command. Resolves when its records are committed and this core sees them.
    fn catalog(&self, command: Command) -> Later<Result<Answer, CatalogDown>>;

    /// Has the coordinators, each on the partition of `__consumer_offsets` at its `at`, take their
    /// requests. They are decided in the order of calls; a rebalance may take its time to answer.
    fn groups(&self, items: Vec<GroupItem>) -> Later<Vec<GroupAnswer>>;
}

/// A request to the coordinator that lives on a partition of `__consumer_offsets`.
#[derive(Clone, Debug)]
pub struct GroupItem {
    pub at: PartitionAt,
    pub request: GroupRequest,
}

pub type GroupAnswer = Result<GroupOutput, CoordinatorRefusal>;

/// Why a coordinator did not take a request, or its outcome is not known to be kept.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CoordinatorRefusal {
    /// It does not live here, or its log has failed.
    #[error("the coordinator is not here")]
    NotHere,
    #[error("the coordinator is loading")]
    Loading,
    /// The records could not be kept: the disk is full, say.
    #[error("the coordinator could not keep what was decided")]
    NotKept,
}

/// A partition and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionAt {
    pub log: LogId,
    pub key: PartitionKey,
}

/// One batch for one partition.
#[derive(Clone, Debug)]
pub struct AppendItem {
    pub at: PartitionAt,
    /// As the client sent it, not yet looked at.
    pub records: Bytes,
    pub rules: Rules,
}

/// Where a partition's log is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimItem {
    pub at: PartitionAt,
    /// `None`: behind everything readers see. What is below the log start already changes nothing.
    pub below: Option<Offset>,
}

/// When an append is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendWait {
    /// As soon as it is in the log.
    Appended,
    /// When the partition's flush policy calls it committed, or after this time.
    Committed { timeout_ms: u64 },
}

/// How far an append has come.
pub enum Appending {
    /// It has taken effect: later requests may follow.
    Taken(Later<Vec<Result<Appended, AppendRefusal>>>),
    /// An owner can take no more for now: later requests of the connection have to wait for the
    /// outer future.
    Blocked(Later<Later<Vec<Result<Appended, AppendRefusal>>>>),
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub log_start: Offset,
    /// Set when the broker's time replaced the producer's.
    pub append_time: Option<Timestamp>,
}

/// Why a batch was not appended, or is not known to be safe. The text goes to the client.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum AppendRefusal {
    /// The owner has no such partition: it was deleted, or is not there yet.
    #[error("the partition is not there")]
    Unknown,
    #[error("{0}")]
    Batch(BatchError),
    #[error("the sequence is neither the next one nor that of a recent batch")]
    OutOfOrderSequence,
    #[error("a newer producer of this id has written")]
    StaleProducerEpoch,
    #[error("a batch of {bytes} bytes does not fit into a segment of {bytes_max}")]
    TooLargeForSegment { bytes: usize, bytes_max: usize },
    /// Of a trim alone.
    #[error("the partition's high watermark is {0}")]
    AboveHighWatermark(Offset),
    #[error("the disk is full")]
    DiskFull,
    /// Before the append, or before it was committed.
    #[error("the log of this partition has failed")]
    LogFailed,
    #[error("appended, and not committed in time")]
    TimedOut,
}

/// What a fetch wants.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    pub items: Vec<ReadItem>,
    /// Over all items. The first batch found is returned whole whatever its size.
    pub bytes_max: usize,
    pub until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadItem {
    pub at: PartitionAt,
    pub from: Offset,
    pub bytes_max: usize,
}

/// What a read found in one partition.
#[derive(Clone, Debug)]
pub struct ReadData {
    pub offsets: Offsets,
    /// Whole batches, in order.
    pub slices: Vec<Slice>,
    /// Producer id and first offset of aborted transactions in the range; sorted by offset.
    pub aborted: Vec<(i64, Offset)>,
}

#[derive(Clone, Debug)]
pub enum Slice {
    /// Mapped memory the kernel reads when it is sent.
    Warm(SharedBytes),
    /// Read from the disk.
    Cold(Bytes),
}

impl Slice {
    pub fn len(&self) -> usize {
        match self {
            Slice::Warm(bytes) => bytes.len(),
            Slice::Cold(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchItem {
    pub at: PartitionAt,
    /// The end the reader has seen; a higher one wakes it.
    pub seen: Offset,
    pub until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeItem {
    pub at: PartitionAt,
    pub target: TimeTarget,
    pub until: Until,
}

/// Why a partition does not answer a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionRefusal {
    /// The owner has no such partition: it was deleted, or is not there yet.
    Unknown,
    OutOfRange,
    /// The disk did not give the bytes, or they are damaged.
    Unreadable,
}

/// The cores whose partitions a request appends to or reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touched {
    /// It does neither.
    #[default]
    Nothing,
    Here,
    Other(usize),
    Several,
}

/// What a connection holds while it is counted among all; given back when dropped.
pub type Place = Box<dyn Send>;

/// A connection on its way to another core. It has no request in flight.
pub struct Parcel {
    pub socket: OwnedFd,
    /// Received and not yet taken.
    pub received: BytesMut,
    /// How often it has moved, or tried to.
    pub moves: u32,
    pub frame_bytes_max: usize,
    pub place: Place,
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let received_bytes = self.received.len();
        f.debug_struct("Parcel").field("received_bytes", &received_bytes).finish_non_exhaustive()
    }
}

/// The catalogue's log has failed: nothing can be created or deleted until a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogDown;
