//! Tables on their cores: who keeps which, what waits for them, when they are written.
//!
//! The core that owns partition 0 of a topic keeps its table: it alone changes the manifest. Every
//! core looks once a second what was appended to its partitions (`backlog`) and tells the keepers.
//! A keeper (`keeper`, pure) says which table is next; a round (`round`) asks the owners for the
//! batches, has a thread of the lane write and commit them (`work`, `lane`), and makes the new
//! version known to all owners, whose logs may then let go of what is in it.
//!
//! A table that cannot be written is a line in the log and a count; it is tried again, later each
//! time. The log of the partition goes on, and keeps what is in no file.

mod backlog;
mod keeper;
mod lane;
mod round;
mod work;
#[cfg(test)]
mod tests;

pub use lane::TableLane;
pub(super) use backlog::{Backlog, News};
pub(super) use keeper::Keeper;
pub(super) use round::{ShareAsk, TableShare};

use super::ask::Ask;
use super::core::Core;
use super::front::PartitionAt;
use super::gate::owners;
use super::notify::Notify;
use crate::catalog::Topic;
use rustc_hash::FxHashMap;
use shard::table::{Manifest, TableSettings, Version};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// The tables of a broker as they were found at its start.
pub type Found = BTreeMap<Uuid, (Manifest, Arc<Version>)>;

/// How a core keeps tables.
#[derive(Clone, Debug)]
pub struct TableRules {
    pub settings: TableSettings,
    /// How long replaced files stay for those who have begun with them.
    pub grace_ms: i64,
    /// Producers of a core are slowed down when more than this waits for its tables.
    pub backlog_bytes_max: u64,
    /// How often it is looked whether log starts have passed files.
    pub retention_check_ms: u64,
}

/// What a core starts with; it travels to the core's thread.
pub struct TableParts {
    /// Of the tables this core keeps.
    pub manifests: Vec<Manifest>,
    /// Of all tables.
    pub versions: Vec<Arc<Version>>,
    /// The data directory, in which `tables/` lies.
    pub data: PathBuf,
    pub rules: TableRules,
    pub lane: TableLane,
}

/// What a core knows of tables.
pub(super) struct Tables {
    /// In force, of topics with partitions here.
    versions: RefCell<FxHashMap<Uuid, Arc<Version>>>,
    /// What of the core's partitions is in no file yet.
    pub backlog: RefCell<Backlog>,
    /// The tables this core keeps.
    pub keeper: RefCell<Keeper>,
    /// Wakes the task that begins rounds.
    pub due: Notify,
    /// When log starts were compared with files. ms of the monotonic clock.
    looked_ms: Cell<u64>,
    data: PathBuf,
    rules: TableRules,
    lane: TableLane,
}
