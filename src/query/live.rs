//! Snapshots of a running broker: the topics of one view, asked for through the gate.
//!
//! The files of hot batches are opened as part of taking a snapshot. Until then a segment may go
//! (its batches are in the table by then, and the log needed the room); the snapshot is taken anew
//! in that case, and from then on nothing that happens to the log matters to the query.

use super::snapshots::{
    Hot, PartitionSnapshot, RawBatch, RawBatches, RawError, SnapshotError, Snapshots, TopicSnapshot,
};
use crate::catalog::{Topic, TopicLookup};
use crate::cores::gate::{self, Gate};
use futures::future::{BoxFuture, FutureExt};
use shard::disk::Disk;
use shard::log::{ColdError, Feed, OpenFeed};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a snapshot is taken anew because the log moved on.
const TRIES: usize = 10;

/// The topics of a view of a running broker.
pub struct Live {
    pub gate: Gate,
    pub view: u32,
    pub disk: Arc<dyn Disk>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Live(view {})", self.view)
    }
}

impl Snapshots for Live {
    fn topics(&self) -> Vec<String> {
        self.gate.image().topics(self.view).map(|topic| topic.name.to_string()).collect()
    }

    fn has(&self, topic: &str) -> bool {
        self.gate.image().find(self.view, TopicLookup::Name(topic)).is_some()
    }

    fn snapshot<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<Option<TopicSnapshot>, SnapshotError>> {
        let found = self.gate.image().find(self.view, TopicLookup::Name(topic)).cloned();
        async move {
            match found {
                Some(found) => self.take(found).await.map(Some),
                None => Ok(None),
            }
        }
        .boxed()
    }
}

impl Live {
    async fn take(&self, topic: Arc<Topic>) -> Result<TopicSnapshot, SnapshotError> {
        let failed = |reason: &dyn fmt::Display| SnapshotError {
            topic: topic.name.to_string(),
            reason: reason.to_string(),
        };
        let mut last = None;
        for _ in 0..TRIES {
            let snapshot = self.gate.snapshot(topic.clone()).await;
            let snapshot = snapshot.map_err(|error| failed(&error))?;
            let disk = self.disk.clone();
            let opened = tokio::task::spawn_blocking(move || open(snapshot, &disk)).await;
            match opened.map_err(|error| failed(&error))? {
                Ok(opened) => return Ok(opened),
                Err(error @ ColdError::Removed) => last = Some(error),
                Err(error) => return Err(failed(&error)),
            }
        }
        let last = last.map_or_else(String::new, |error| error.to_string());
        Err(failed(&format!("the log lets go of it faster than it can be read: {last}")))
    }
}

/// Opens the hot part of every partition.
fn open(snapshot: gate::TopicSnapshot, disk: &Arc<dyn Disk>) -> Result<TopicSnapshot, ColdError> {
    let mut partitions = Vec::with_capacity(snapshot.partitions.len());
    for seen in snapshot.partitions {
        let hot = match seen.hot.filter(|_| seen.hot_from < seen.end) {
            Some(feed) => Some(HotFeed::open(feed, disk)?),
            None => None,
        };
        partitions.push(PartitionSnapshot {
            partition: seen.partition,
            log_start: seen.log_start,
            hot_from: seen.hot_from,
            end: seen.end,
            hot: hot.map(|hot| Arc::new(hot) as Arc<dyn Hot>),
        });
    }
    Ok(TopicSnapshot { version: snapshot.version, partitions })
}

/// Batches of the log: opened once with the snapshot, and again if a plan reads them again.
struct HotFeed {
    feed: Feed,
    disk: Arc<dyn Disk>,
    opened: Mutex<Option<OpenFeed>>,
}

impl HotFeed {
    fn open(feed: Feed, disk: &Arc<dyn Disk>) -> Result<HotFeed, ColdError> {
        let opened = Mutex::new(Some(feed.clone().open(&**disk)?));
        Ok(HotFeed { feed, disk: disk.clone(), opened })
    }
}

impl fmt::Debug for HotFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.feed.fmt(f)
    }
}

impl Hot for HotFeed {
    fn bytes(&self) -> u64 {
        self.feed.bytes
    }

    fn open(&self) -> Result<Box<dyn RawBatches>, RawError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) => Ok(Box::new(Opened(opened))),
            None => Ok(Box::new(Opened(self.feed.clone().open(&*self.disk)?))),
        }
    }
}

impl From<ColdError> for RawError {
    fn from(error: ColdError) -> RawError {
        match error {
            ColdError::Removed => RawError::Removed,
            other => RawError::Unreadable(other.to_string()),
        }
    }
}

struct Opened(OpenFeed);

impl RawBatches for Opened {
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<RawBatch>>, RawError> {
        Ok(self.0.next(bytes_max)?)
    }
}
