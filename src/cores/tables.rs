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
#[cfg(test)]
mod tests;
mod work;

pub(super) use backlog::{Backlog, News};
pub(super) use keeper::{Keeper, Removed};
pub use lane::TableLane;
pub(super) use round::{ShareAsk, TableShare};

use super::core::Core;
use super::front::PartitionAt;
use super::gate::GateError;
use super::notify::Notify;
use super::throttle::Throttle;
use crate::catalog::{CatalogImage, Topic};
use futures_channel::oneshot;
use futures_lite::future::yield_now;
use glommio::timer::Timer;
use rustc_hash::FxHashMap;
use shard::table::{Manifest, TableSettings, Version};
use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// How often it is looked what has come, and which tables are due.
const LOOK_MS: u64 = 1_000;
/// Topics whose log starts are looked at before others of the core get their turn.
const STARTS_TOPICS: usize = 64;

/// How a core keeps tables.
#[derive(Clone, Debug)]
pub struct TableRules {
    pub settings: TableSettings,
    /// How long replaced files stay for those who have begun with them.
    pub grace_ms: i64,
    /// Producers of a core are slowed down when more than this waits for its tables.
    pub backlog_bytes_max: u64,
    /// Who asks within this time of a round that was asked for gets what that one wrote.
    pub coalesced_ms: u64,
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
    pub throttle: Throttle,
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
    throttle: Throttle,
    data: PathBuf,
    rules: TableRules,
    lane: TableLane,
}

/// The version of a table that has no files.
fn empty(topic: Uuid) -> Arc<Version> {
    let mut version = Version::default();
    version.topic = topic;
    Arc::new(version)
}

impl Tables {
    pub fn new(parts: TableParts, image: &CatalogImage) -> Tables {
        let TableParts { manifests, versions, data, rules, lane, throttle } = parts;
        let mut keeper = Keeper::default();
        for manifest in manifests {
            if let Some(topic) = image.of_any_view(manifest.version().topic) {
                keeper.found(topic, manifest);
            }
        }
        let versions = versions.into_iter().map(|version| (version.topic, version)).collect();
        Tables {
            versions: RefCell::new(versions),
            backlog: RefCell::default(),
            keeper: RefCell::new(keeper),
            due: Notify::default(),
            throttle,
            data,
            rules,
            lane,
        }
    }

    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// The version in force of a topic's table; `None` as long as there is none.
    pub fn version(&self, topic: Uuid) -> Option<Arc<Version>> {
        self.versions.borrow().get(&topic).cloned()
    }

    /// Until there is something to begin, or for so long.
    async fn wait(&self, ms: u64) {
        let mut timer = Timer::new(Duration::from_millis(ms));
        poll_fn(|cx| match self.due.poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => Pin::new(&mut timer).poll(cx).map(drop),
        })
        .await;
    }
}

impl Core {
    /// The table of a topic, an empty one if it has no files.
    pub(super) fn table_version(&self, topic: Uuid) -> Arc<Version> {
        let version = self.tables.version(topic);
        version.unwrap_or_else(|| empty(topic))
    }

    /// Takes a version of a table: the logs may let go of what is in it.
    pub(super) fn adopt_table(&self, version: Arc<Version>) {
        let image = self.image();
        let Some(topic) = image.of_any_view(version.topic) else { return };
        let known = self.tables.versions.borrow_mut().insert(topic.id, version.clone());
        if let Some(known) = known.filter(|known| known.number > version.number) {
            self.tables.versions.borrow_mut().insert(topic.id, known);
            return;
        }
        for (partition, &log) in (0..).zip(&topic.logs) {
            if self.owner(log) != self.id() {
                continue;
            }
            let Some(at) = self.route(PartitionAt { log, key: topic.key(partition) }) else {
                continue;
            };
            self.hosts[at.host].borrow_mut().set_table(at.id, version.clone());
            self.tables.backlog.borrow_mut().look_again(at);
        }
        self.upkeep.notify();
    }

    /// Lets go of the table of a topic that is gone.
    pub(super) fn drop_table(self: &Rc<Self>, topic: &Topic) {
        self.tables.versions.borrow_mut().remove(&topic.id);
        let was = self.tables.keeper.borrow_mut().remove(topic.id);
        if was == Removed::Idle {
            self.remove_table(topic.id);
        }
    }

    /// Has everything that is committed in a topic written into files.
    pub(super) fn freshen(
        &self,
        topic: &Arc<Topic>,
        reply: oneshot::Sender<Result<Arc<Version>, GateError>>,
    ) {
        let is_there = self.image().of_any_view(topic.id).is_some();
        if topic.is_internal() || !is_there {
            let version = self.table_version(topic.id);
            // An asker that is gone needs no answer.
            let _ = reply.send(if is_there { Ok(version) } else { Err(GateError::Unknown) });
            return;
        }
        let coalesced_ms = self.tables.rules.coalesced_ms;
        self.tables.keeper.borrow_mut().ask(topic, reply, (self.now(), coalesced_ms));
        self.tables.due.notify();
    }

    /// Looks what has come and begins rounds, for as long as the core runs.
    pub(super) async fn keep_tables(self: Rc<Self>) {
        let now_ms = || self.now().mono_us / 1000;
        let mut starts_ms = now_ms();
        loop {
            self.look_at_backlog();
            if now_ms().saturating_sub(starts_ms) >= self.tables.rules.retention_check_ms {
                starts_ms = now_ms();
                self.look_at_starts().await;
            }
            let look_ms = now_ms() + LOOK_MS;
            loop {
                self.begin_rounds();
                let left_ms = look_ms.saturating_sub(now_ms());
                if left_ms == 0 {
                    break;
                }
                let is_asked = self.tables.keeper.borrow().is_asked();
                self.tables
                    .wait(if is_asked { left_ms.min(keeper::PAUSE_MS) } else { left_ms })
                    .await;
            }
        }
    }

    /// Has keepers told of log starts that have passed files.
    async fn look_at_starts(&self) {
        let tables: Vec<Arc<Version>> = self.tables.versions.borrow().values().cloned().collect();
        for some in tables.chunks(STARTS_TOPICS) {
            for version in some {
                self.look_at_starts_of(version);
            }
            yield_now().await;
        }
    }

    fn look_at_starts_of(&self, version: &Version) {
        let image = self.image();
        let Some(topic) = image.of_any_view(version.topic) else { return };
        for partition in version.partitions() {
            let Some(log) = topic.log_of(partition).filter(|log| self.owner(*log) == self.id())
            else {
                continue;
            };
            let at = self.route(PartitionAt { log, key: topic.key(partition) });
            let first = version.parts(partition).first().map(|at| at.part.end);
            if let (Some(at), Some(first)) = (at, first) {
                let offsets = self.hosts[at.host].borrow().log.offsets(at.id);
                if offsets.is_some_and(|offsets| offsets.log_start >= first) {
                    self.tables.backlog.borrow_mut().look_again(at);
                }
            }
        }
    }

    /// Work on tables that is under way need not come to an end.
    pub(super) fn end_tables(&self) {
        self.tables.lane.ending().begin();
    }
}
