//! Core 0's keeper of the catalogue: step, append, replay, wait for the commit, publish, answer.
//!
//! The state machine decides and holds the state; this shell gives it time and fresh ids, keeps its
//! records in the catalogue's partition of log 0 and hands the new picture to all cores before the
//! command is answered: whoever has the answer sees the topic on every core.
//!
//! When the log has gone on to a new segment the keeper writes the whole state again at its end and
//! drops what was before, so that the catalogue never keeps an old segment from going.
//!
//! The tombstone of a deleted topic goes when every log has said that it holds nothing of it. What
//! a log says while the catalogue cannot be written is said again after the next start.

use super::ask::{Ask, CatalogAnswer, ImageChange};
use super::core::Core;
use super::front::{AppendItem, AppendWait, CatalogDown, PartitionAt};
use crate::catalog::{Answer, Command, Machine, Record, Step, Topic, CATALOG_PARTITION};
use bytes::Bytes;
use futures_channel::oneshot;
use shard::batch::{BatchBuilder, Limits, NewRecord, Rules, TimestampRule};
use shard::ids::{LogId, Timestamp};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// How long a change of the catalogue may wait for its commit.
const COMMIT_TIMEOUT_MS: u64 = 30_000;

/// Records of a snapshot in one batch.
const SNAPSHOT_BATCH_RECORDS: usize = 256;

/// The catalogue's partition and its log.
pub const CATALOG_AT: PartitionAt = PartitionAt { log: LogId(0), key: CATALOG_PARTITION };

/// What core 0 has beyond the other cores.
pub struct Keeper {
    machine: RefCell<Machine>,
}

impl Keeper {
    pub fn new(machine: Machine) -> Keeper {
        Keeper { machine: RefCell::new(machine) }
    }
}

/// A decision whose records are appended and not yet committed.
struct Decided {
    answer: Answer,
    group: Option<Rc<super::append::Group>>,
    change: Option<ImageChange>,
}

impl Core {
    /// Carries out a command for another core.
    pub(super) fn serve_catalog(
        self: &Rc<Self>,
        command: Command,
        reply: oneshot::Sender<CatalogAnswer>,
    ) {
        let outcome = self.command(command);
        glommio::spawn_local(async move {
            let _ = reply.send(outcome.await);
        })
        .detach();
    }

    /// Carries out a command. It is decided now; the future is the rest, and does its work even if
    /// nobody awaits its outcome.
    pub(super) fn command(
        self: &Rc<Self>,
        command: Command,
    ) -> impl std::future::Future<Output = CatalogAnswer> {
        let (sender, outcome) = oneshot::channel();
        match self.decide(&command) {
            Some(decided) => {
                let core = self.clone();
                glommio::spawn_local(async move {
                    let _ = sender.send(core.carry_out(decided).await);
                })
                .detach();
            }
            None => drop(sender),
        }
        async move { outcome.await.unwrap_or(Err(CatalogDown)) }
    }

    /// Tells the catalogue that a log of this core holds nothing of deleted topics any more.
    pub(super) fn tell_purged(self: &Rc<Self>, log: LogId, topics: Vec<Uuid>) {
        let command = Command::Purged { log, topics };
        if self.keeper.is_some() {
            drop(self.command(command));
            return;
        }
        let (reply, _) = oneshot::channel();
        self.send(0, Ask::Catalog { command, reply });
    }

    /// None when this core is not the catalogue's.
    fn decide(&self, command: &Command) -> Option<Decided> {
        let keeper = self.keeper.as_ref()?;
        let now = self.now().wall;
        let ids: Vec<Uuid> = (0..command.fresh_ids()).map(|_| Uuid::new_v4()).collect();
        let mut machine = keeper.machine.borrow_mut();
        let before = machine.image();
        let Step { records, answer } = machine.step(command, now, &ids);
        if records.is_empty() {
            return Some(Decided { answer, group: None, change: None });
        }
        let item = AppendItem { at: CATALOG_AT, records: batch_of(&records, now), rules: RULES };
        let wait = AppendWait::Committed { timeout_ms: COMMIT_TIMEOUT_MS };
        let group = self.append(vec![item.into()], wait, None);
        // Internal appends are never held back. One that was refused changed nothing.
        let refused = group.is_done() && !group.all_landed();
        if !refused {
            records.iter().for_each(|record| machine.replay(record));
        }
        let removed = records.iter().filter_map(|record| match record {
            Record::TopicDeleted { view, id, .. } => before.by_id(*view, *id).cloned(),
            Record::Topic(_) | Record::TopicPurged { .. } | Record::ProducerIds { .. } => None,
        });
        let removed: Vec<Arc<Topic>> = removed.collect();
        let topics = records
            .iter()
            .any(|record| matches!(record, Record::Topic(_) | Record::TopicDeleted { .. }));
        let change = topics.then(|| ImageChange { image: machine.image(), removed });
        Some(Decided { answer, group: Some(group), change })
    }

    async fn carry_out(self: Rc<Self>, decided: Decided) -> CatalogAnswer {
        let Decided { answer, group, change } = decided;
        if let Some(group) = group {
            futures_lite::future::poll_fn(|cx| group.poll(|group| group.is_done(), cx)).await;
            if let Some(Err(refusal)) = group.take().into_iter().find(Result::is_err) {
                tracing::error!(?refusal, "a change of the catalogue was not kept");
                return Err(CatalogDown);
            }
        }
        if let Some(change) = change {
            self.publish(change).await;
        }
        Ok(answer)
    }

    /// Writes the state anew behind everything, when some of it lies in a segment that could go,
    /// and drops the rest once that is committed.
    pub(super) async fn rewrite_catalog(&self) {
        let Some(group) = self.append_snapshot() else { return };
        futures_lite::future::poll_fn(|cx| group.poll(|group| group.is_done(), cx)).await;
        let answers = group.take();
        if let Some(Err(refusal)) = answers.iter().find(|answer| answer.is_err()) {
            // What was there is still there.
            tracing::warn!(?refusal, "the catalogue was not written anew");
            return;
        }
        if let Some(Ok(first)) = answers.first() {
            self.raise_log_start(CATALOG_AT, first.base_offset);
        }
    }

    /// All batches of a snapshot in one go: no change comes between them.
    fn append_snapshot(&self) -> Option<Rc<super::append::Group>> {
        let keeper = self.keeper.as_ref().filter(|_| self.reaches_back(CATALOG_AT))?;
        let now = self.now().wall;
        let records = keeper.machine.borrow().snapshot();
        let item = |records: &[Record]| AppendItem {
            at: CATALOG_AT,
            records: batch_of(records, now),
            rules: RULES,
        };
        let items = records.chunks(SNAPSHOT_BATCH_RECORDS).map(item).map(Into::into).collect();
        let wait = AppendWait::Committed { timeout_ms: COMMIT_TIMEOUT_MS };
        Some(self.append(items, wait, None))
    }

    /// Returns when all cores see the new picture.
    async fn publish(&self, change: ImageChange) {
        let others = (0..self.cores()).filter(|core| *core != self.id());
        let seen: Vec<oneshot::Receiver<()>> = others
            .map(|core| {
                let (reply, seen) = oneshot::channel();
                self.send(core, Ask::Image { change: change.clone(), reply });
                seen
            })
            .collect();
        self.adopt(change);
        for seen in seen {
            // A core that is gone sees nothing any more.
            let _ = seen.await;
        }
    }
}

/// The broker's own records are taken as they are.
const RULES: Rules = Rules {
    message_bytes_max: usize::MAX,
    timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
    keys_required: false,
    zstd_allowed: true,
    limits: Limits { bytes_max: usize::MAX, ratio_max: usize::MAX, ratio_free_bytes: usize::MAX },
};

fn batch_of(records: &[Record], now: Timestamp) -> Bytes {
    let mut batch = BatchBuilder::new();
    for record in records {
        let value = record.to_bytes();
        batch.push(&NewRecord { timestamp: now, value: Some(&value), ..NewRecord::default() });
    }
    batch.build().into()
}
