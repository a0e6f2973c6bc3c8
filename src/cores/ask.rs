//! What cores ask of one another: one closed enum, one message per (request, owner).
//!
//! Each ask carries all items of a request that belong to the owner, and the way back for the
//! answer. Asks of one core to another arrive in the order they were made. The owner serves its own
//! requests with the very functions that serve these messages.

use crate::catalog::{Answer, CatalogImage, Command, Topic};
use bytes::Bytes;
use futures_channel::oneshot::Sender;
use shard::batch::{BatchError, Rules};
use shard::ids::{LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use shard::log::{AppendError, Appended, ReadAsk, ReadError, ReadPlan, TimeSeek, TimeTarget, Until};
use shard::partition::Offsets;
use std::sync::Arc;

/// A message between cores.
#[derive(Debug)]
pub enum Ask {
    Append { items: Vec<AppendItem>, until: Acked, reply: Sender<Vec<AppendAnswer>> },
    Read { items: Vec<ReadItem>, reply: Sender<Vec<ReadAnswer>> },
    /// Answered once, when any of the partitions has more than its reader has seen.
    Watch { items: Vec<WatchItem>, reply: Sender<()> },
    Offsets { items: Vec<Place>, reply: Sender<Vec<OffsetsAnswer>> },
    Time { items: Vec<TimeItem>, reply: Sender<Vec<TimeAnswer>> },
    EpochEnd { items: Vec<EpochItem>, reply: Sender<Vec<EpochAnswer>> },
    /// To core 0, which owns the catalogue.
    Catalog { command: Command, reply: Sender<CatalogAnswer> },
    /// From core 0, when the catalogue has changed.
    Image { change: ImageChange, reply: Sender<()> },
}

/// A partition and the log it lies in, as the catalogue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub key: PartitionKey,
    pub log: LogId,
}

/// Something that belongs to one partition, and so to one owner.
pub trait Placed {
    fn place(&self) -> Place;
}

/// When an append is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// When the batch has its offset.
    Appended,
    /// When it has committed.
    Committed,
}

#[derive(Clone, Debug)]
pub struct AppendItem {
    pub place: Place,
    /// Exactly one batch, as the producer sent it.
    pub batch: Bytes,
    pub rules: Rules,
}

/// A batch has its place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    pub appended: Appended,
    /// The broker's time, if the topic's records carry it.
    pub append_time: Option<Timestamp>,
}

pub type AppendAnswer = Result<Landed, AppendRefusal>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefusal {
    #[error("the partition is not there")]
    Unknown,
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Log(#[from] AppendError),
    /// The owner did not answer: it is stopping or dead. The batch may have been appended.
    #[error("the partition's core is gone")]
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub struct ReadItem {
    pub place: Place,
    pub ask: ReadAsk,
}

pub type ReadAnswer = Result<ReadPlan, ReadRefusal>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefusal {
    #[error("the partition is not there")]
    Unknown,
    #[error(transparent)]
    Log(#[from] ReadError),
    #[error("the partition's core is gone")]
    Lost,
}

/// Wakes its asker when the high watermark is above `beyond`, or the partition goes away.
#[derive(Clone, Copy, Debug)]
pub struct WatchItem {
    pub place: Place,
    pub beyond: Offset,
}

pub type OffsetsAnswer = Result<Offsets, ReadRefusal>;

#[derive(Clone, Copy, Debug)]
pub struct TimeItem {
    pub place: Place,
    pub target: TimeTarget,
    pub until: Until,
}

/// Offsets, and the look-up to be run on a worker if there are any records.
pub type TimeAnswer = Result<(Offsets, Option<TimeSeek>), ReadRefusal>;

#[derive(Clone, Copy, Debug)]
pub struct EpochItem {
    pub place: Place,
    pub epoch: LeaderEpoch,
}

/// The largest epoch not above the one asked for, and where it ends; none if there is no such.
pub type EpochAnswer = Result<(Offsets, Option<(LeaderEpoch, Offset)>), ReadRefusal>;

pub type CatalogAnswer = Result<Answer, CatalogError>;

/// Why a command to the catalogue was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    #[error("the catalogue's log refused: {0}")]
    Log(#[from] AppendError),
    #[error("the catalogue's core is gone")]
    Lost,
}

/// A new picture of the catalogue, and what became different.
#[derive(Clone, Debug)]
pub struct ImageChange {
    pub image: Arc<CatalogImage>,
    pub removed: Vec<Arc<Topic>>,
}

impl Placed for Place {
    fn place(&self) -> Place {
        *self
    }
}

macro_rules! placed {
    ($($item:ty),*) => {
        $(impl Placed for $item {
            fn place(&self) -> Place {
                self.place
            }
        })*
    };
}

placed!(AppendItem, ReadItem, WatchItem, TimeItem, EpochItem);

/// The answer when the owner is gone.
pub trait Lost {
    fn lost() -> Self;
}

impl<T> Lost for Result<T, AppendRefusal> {
    fn lost() -> Self {
        Err(AppendRefusal::Lost)
    }
}

impl<T> Lost for Result<T, ReadRefusal> {
    fn lost() -> Self {
        Err(ReadRefusal::Lost)
    }
}
