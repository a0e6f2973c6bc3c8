//! The gate: how threads that are no cores ask the cores (queries, the Iceberg catalogue, HTTP).
//!
//! An ask goes through a channel to each core it concerns, which serves it like the message of
//! another core. What comes back is immutable: a version of the table, and feeds that read the log
//! through files. No core ever waits for a thread that asks; a thread that asks waits for cores.
//!
//! A snapshot is one instant per partition: rows of the files of one version, then what the log has
//! from that version's table end on, to what was committed when the core answered. An acknowledged
//! row is in every snapshot asked for after its acknowledgement.
//!
//! Worked example: core 0 answers at version 7 (table end 100, committed 130), core 1 still at 6.
//! The snapshot is version 7 for both: files up to 7's table ends, hot rows from there on. The feed
//! of core 1 begins at 6's table end; its rows below `hot_from` are in files and to be left out.

use super::ask::Ask;
use super::core::Core;
use super::front::PartitionAt;
use crate::catalog::{CatalogImage, Topic};
use futures_channel::{mpsc, oneshot};
use futures_lite::StreamExt;
use shard::ids::Offset;
use shard::log::Feed;
use shard::table::{table_dir, Version};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// A topic as a reader of rows sees it: all rows committed at one moment, each once.
#[derive(Debug)]
pub struct TopicSnapshot {
    pub topic: Arc<Topic>,
    /// Holding it keeps its files.
    pub version: Arc<Version>,
    /// By partition, all of them.
    pub partitions: Vec<PartitionSnapshot>,
}

/// What a snapshot has of one partition: `[log_start, hot_from)` in the files of the version,
/// `[hot_from, end)` in the log.
#[derive(Debug)]
pub struct PartitionSnapshot {
    pub partition: i32,
    /// Rows below it are gone, also where a file still has them.
    pub log_start: Offset,
    pub hot_from: Offset,
    pub end: Offset,
    /// The batches of `[hot_from, end)`; `None` when there are none. It may begin below `hot_from`.
    /// To be opened soon: when a segment has gone meanwhile (`ColdError::Removed`) the snapshot is
    /// to be asked for again.
    pub hot: Option<Feed>,
}

/// What one core knows of a topic.
#[derive(Debug)]
pub struct HotShare {
    pub version: Arc<Version>,
    pub partitions: Vec<PartitionSnapshot>,
}

/// Why the cores did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("the topic has been deleted")]
    Unknown,
    #[error("the broker is stopping, or a core has died")]
    Stopping,
    #[error("partition {partition} has no records at offset {at}, where there should be some")]
    Missing { partition: i32, at: Offset },
    /// The reason is in the broker's log.
    #[error("the table of the topic cannot be written")]
    NotWritten,
}

/// Where a thread asks. Clones ask the same cores.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Each holds no more than its askers have in flight.
    cores: Vec<mpsc::UnboundedSender<Ask>>,
    image: Shown,
    data: PathBuf,
}

/// The picture of the catalogue that all cores have seen.
#[derive(Clone, Debug)]
pub struct Shown(Arc<Mutex<Arc<CatalogImage>>>);

impl Shown {
    pub fn show(&self, image: Arc<CatalogImage>) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if image.version >= shown.version {
            *shown = image;
        }
    }

    fn get(&self) -> Arc<CatalogImage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A core's end of the gate, on its way to its thread.
#[derive(Debug)]
pub struct GateEnd(mpsc::UnboundedReceiver<Ask>);

/// A gate to so many cores of a broker with this data directory, and the cores' ends of it.
pub fn gate(cores: usize, image: Arc<CatalogImage>, data: &Path) -> (Gate, Vec<GateEnd>) {
    let image = Shown(Arc::new(Mutex::new(image)));
    let (cores, ends): (Vec<_>, Vec<_>) = (0..cores).map(|_| mpsc::unbounded()).unzip();
    let data = data.to_path_buf();
    (Gate(Arc::new(Shared { cores, image, data })), ends.into_iter().map(GateEnd).collect())
}

impl Gate {
    /// Where core 0 shows what the catalogue holds.
    pub fn shown(&self) -> Shown {
        self.0.image.clone()
    }

    /// The topics as every core sees them.
    pub fn image(&self) -> Arc<CatalogImage> {
        self.0.image.get()
    }

    /// The directory of a topic's table; it may not be there yet.
    pub fn table_dir(&self, topic: Uuid) -> PathBuf {
        table_dir(&self.0.data, topic)
    }

    /// All rows of a topic that are committed when this is called.
    pub fn snapshot(
        &self,
        topic: Arc<Topic>,
    ) -> impl Future<Output = Result<TopicSnapshot, GateError>> + Send + 'static {
        let asked: Vec<_> = owners(&topic, self.0.cores.len())
            .into_iter()
            .map(|core| {
                let topic = topic.clone();
                self.ask(core, |reply| Ask::Hot { topic, reply })
            })
            .collect();
        async move {
            let mut shares = Vec::with_capacity(asked.len());
            for answer in asked {
                let share = answer.await.map_err(|oneshot::Canceled| GateError::Stopping)?;
                shares.push(share?);
            }
            Ok(join(topic, shares))
        }
    }

    /// Has what is committed in a topic written into table files and resolves to the version that
    /// has it. Askers within a second of one another share the work: it may be that much behind.
    pub fn freshen(
        &self,
        topic: &Arc<Topic>,
    ) -> impl Future<Output = Result<Arc<Version>, GateError>> + Send + 'static {
        let keeper = keeper(topic, self.0.cores.len());
        let topic = topic.clone();
        let answer = self.ask(keeper, |reply| Ask::Freshen { topic, reply });
        async move { answer.await.unwrap_or(Err(GateError::Stopping)) }
    }

    /// The answer of a core that is gone is that none comes.
    fn ask<T>(
        &self,
        core: usize,
        ask: impl FnOnce(oneshot::Sender<T>) -> Ask,
    ) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.cores.get(core).map(|asks| asks.unbounded_send(ask(reply)));
        if !matches!(sent, Some(Ok(()))) {
            tracing::debug!(core, "an ask to a core that is gone");
        }
        answer
    }
}

/// The core that keeps a topic's table: the owner of partition 0.
pub fn keeper(topic: &Topic, cores: usize) -> usize {
    topic.logs.first().map_or(0, |log| log.0 as usize % cores)
}

/// The cores that own partitions of a topic, each once.
pub(super) fn owners(topic: &Topic, cores: usize) -> Vec<usize> {
    let mut owners: Vec<usize> = topic.logs.iter().map(|log| log.0 as usize % cores).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// One snapshot out of what each core knows: the newest version holds for all.
pub(super) fn join(topic: Arc<Topic>, shares: Vec<HotShare>) -> TopicSnapshot {
    let newest = shares.iter().map(|share| &share.version).max_by_key(|version| version.number);
    let version = newest.cloned().unwrap_or_default();
    let mut partitions: Vec<PartitionSnapshot> =
        shares.into_iter().flat_map(|share| share.partitions).collect();
    partitions.sort_unstable_by_key(|partition| partition.partition);
    for partition in &mut partitions {
        let start = version.starts().get(&partition.partition);
        partition.log_start = partition.log_start.max(start.copied().unwrap_or(Offset(0)));
        let table_end = version.table_end(partition.partition).unwrap_or(Offset(0));
        partition.hot_from = partition.hot_from.max(table_end).max(partition.log_start);
        partition.end = partition.end.max(partition.hot_from);
    }
    TopicSnapshot { topic, version, partitions }
}

impl Core {
    /// What this core knows of a topic.
    pub(super) fn hot(&self, topic: &Topic) -> Result<HotShare, GateError> {
        let mut partitions = Vec::new();
        for (partition, &log) in (0..).zip(&topic.logs) {
            if self.owner(log) == self.id() {
                let at = PartitionAt { log, key: topic.key(partition) };
                partitions.push(self.hot_partition(at)?);
            }
        }
        Ok(HotShare { version: self.table_version(topic.id), partitions })
    }

    fn hot_partition(&self, at: PartitionAt) -> Result<PartitionSnapshot, GateError> {
        let partition = at.key.partition;
        let route = self.route(at).ok_or(GateError::Unknown)?;
        let log = &self.hosts[route.host].borrow().log;
        let offsets = log.offsets(route.id).ok_or(GateError::Unknown)?;
        let ends = log.table_ends(route.id).ok_or(GateError::Unknown)?;
        let (log_start, hot_from, end) = (offsets.log_start, ends.table_end, offsets.last_stable);
        let hot = log.feed(route.id, hot_from, end, u64::MAX);
        let reaches = hot.as_ref().map_or(hot_from, |hot| hot.until);
        if reaches < end {
            return Err(GateError::Missing { partition, at: reaches });
        }
        Ok(PartitionSnapshot { partition, log_start, hot_from, end, hot })
    }
}

/// Serves what comes through the gate, for as long as the core runs.
pub(super) async fn serve(core: Rc<Core>, GateEnd(mut asks): GateEnd) {
    while let Some(ask) = asks.next().await {
        core.serve(ask);
    }
}
