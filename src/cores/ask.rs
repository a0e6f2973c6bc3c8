//! What cores ask of one another: one closed enum, one message per (request, owner).
//!
//! Each ask carries all items of a request that belong to the owner, and the way back for the
//! answer. Asks of one core to another arrive in the order they were made. The owner serves its own
//! requests with the very functions that serve these messages. Reads and look-ups by time come back
//! as plans: what has to be read from the disk is read by a worker for the asking core.

use super::front::{
    AppendItem, AppendRefusal, AppendWait, Appended, CatalogDown, CoordinatorRefusal, GroupAnswer,
    GroupItem, Offsets, Parcel, PartitionAt, PartitionRefusal, ReadRequest, TimeItem, WatchItem,
};
use super::gate::{GateError, HotShare};
use super::tables::{News, ShareAsk, TableShare};
use crate::catalog::{Answer, Command, ImageChange, Topic};
use bytes::Bytes;
use futures_channel::oneshot::Sender;
use shard::batch::Rules;
use shard::ids::{LeaderEpoch, Offset};
use shard::log::{ReadPlan, SideBatch, TimeSeek};
use shard::table::Version;
use std::sync::Arc;

pub type AppendAnswer = Result<Appended, AppendRefusal>;
pub type ReadAnswer = Result<ReadPlan, PartitionRefusal>;
pub type OffsetsAnswer = Result<Offsets, PartitionRefusal>;
/// Nothing to look up when the partition holds no records.
pub type TimeAnswer = Result<Option<TimeSeek>, PartitionRefusal>;
pub type EpochItem = (PartitionAt, LeaderEpoch);
pub type EpochAnswer = Result<Option<(LeaderEpoch, Offset)>, PartitionRefusal>;
pub type CatalogAnswer = Result<Answer, CatalogDown>;

/// One batch on its way to its owner.
#[derive(Debug)]
pub struct Item {
    pub at: PartitionAt,
    pub batch: Batch,
}

#[derive(Debug)]
pub enum Batch {
    /// As the client sent it, to be checked by the owner.
    Inline { records: Bytes, rules: Rules },
    /// Checked by a worker and durable in a file of its own.
    Side(SideBatch),
    /// Refused by the worker that was to write it.
    Refused(AppendRefusal),
    /// No batch: records below this offset are to go, or all that readers see.
    Trim { below: Option<Offset> },
}

impl From<AppendItem> for Item {
    fn from(item: AppendItem) -> Item {
        let AppendItem { at, records, rules } = item;
        Item { at, batch: Batch::Inline { records, rules } }
    }
}

/// A message between cores.
#[derive(Debug)]
pub enum Ask {
    Append {
        items: Vec<Item>,
        wait: AppendWait,
        reply: Sender<Vec<AppendAnswer>>,
    },
    Read {
        ask: ReadRequest,
        reply: Sender<Vec<ReadAnswer>>,
    },
    /// Answered once, when any of the partitions has more than its reader has seen.
    Watch {
        items: Vec<WatchItem>,
        reply: Sender<()>,
    },
    Offsets {
        items: Vec<PartitionAt>,
        reply: Sender<Vec<OffsetsAnswer>>,
    },
    Time {
        items: Vec<TimeItem>,
        reply: Sender<Vec<TimeAnswer>>,
    },
    EpochEnd {
        items: Vec<EpochItem>,
        reply: Sender<Vec<EpochAnswer>>,
    },
    /// A connection whose data are all there. It comes back when it is not taken.
    Connection {
        parcel: Parcel,
        reply: Sender<Result<(), Parcel>>,
    },
    /// To core 0, which owns the catalogue.
    Catalog {
        command: Command,
        reply: Sender<CatalogAnswer>,
    },
    /// To the coordinators of groups on the owner's partitions; answered when all have answered.
    Groups {
        items: Vec<GroupItem>,
        reply: Sender<Vec<GroupAnswer>>,
    },
    /// What an owner has of a topic beside its table.
    Hot {
        topic: Arc<Topic>,
        reply: Sender<Result<HotShare, GateError>>,
    },
    /// From the keeper of a table: what of it could be written into files now.
    Share {
        ask: ShareAsk,
        reply: Sender<Result<Vec<TableShare>, GateError>>,
    },
    /// To the keeper of tables: what waits for them on another core.
    News {
        items: Vec<News>,
    },
    /// From the keeper of a table, when it has changed.
    Table {
        version: Arc<Version>,
    },
    /// To the keeper of a table: everything committed is to be in files.
    Freshen {
        topic: Arc<Topic>,
        reply: Sender<Result<Arc<Version>, GateError>>,
    },
    /// From core 0, when the catalogue has changed.
    Image {
        change: ImageChange,
        reply: Sender<()>,
    },
}

/// The answer in place of one that will not come, because the owner is gone.
pub trait Lost {
    fn lost() -> Self;
}

impl<T> Lost for Result<T, AppendRefusal> {
    fn lost() -> Self {
        Err(AppendRefusal::LogFailed)
    }
}

impl<T> Lost for Result<T, PartitionRefusal> {
    fn lost() -> Self {
        Err(PartitionRefusal::Unreadable)
    }
}

impl<T> Lost for Result<T, CoordinatorRefusal> {
    fn lost() -> Self {
        Err(CoordinatorRefusal::NotHere)
    }
}
