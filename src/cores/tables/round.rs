//! A round of one table: ask the owners, have it written, tell everybody.
//!
//! Owners say what of the topic is decided and on stable storage, and give feeds of it. A thread of
//! the lane turns them into a file and commits that; only then is there a new version, which every
//! owner is told. A core that is gone gives nothing: its partitions wait.
//!
//! What an owner has removed between its answer and the reading is planned anew.

use super::keeper::{Begun, Ended, Reason, Seen};
use super::lane::IDLE;
use super::work::{Outcome, Work};
use crate::catalog::Topic;
use crate::cores::ask::Ask;
use crate::cores::core::Core;
use crate::cores::front::PartitionAt;
use crate::cores::gate::{owners, GateError};
use futures_channel::oneshot;
use shard::ids::Offset;
use shard::log::Feed;
use shard::table::{table_dir, Version};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// What a keeper asks an owner.
#[derive(Clone, Debug)]
pub struct ShareAsk {
    pub topic: Arc<Topic>,
    /// For all partitions of the topic together, about; 0 for no batches at all.
    pub bytes_max: u64,
    /// Somebody waits: what is committed is to reach stable storage soon.
    pub hurry: bool,
}

/// What an owner has of one partition.
#[derive(Debug)]
pub struct TableShare {
    pub partition: i32,
    pub log_start: Offset,
    /// Where what is decided and committed ends.
    pub end: Offset,
    /// What may go into files; ends below `end` when that is not all on stable storage.
    pub feed: Option<Feed>,
}

impl Core {
    /// What this core has of a topic; `None` when there is no such topic any more.
    pub(in crate::cores) fn share(&self, ask: &ShareAsk) -> Option<Vec<TableShare>> {
        let partitions = u64::from(ask.topic.partitions().unsigned_abs().max(1));
        let bytes_max = ask.bytes_max.div_ceil(partitions);
        let mut shares = Vec::new();
        for (partition, &log) in (0..).zip(&ask.topic.logs) {
            if self.owner(log) != self.id() {
                continue;
            }
            let at = PartitionAt { log, key: ask.topic.key(partition) };
            let route = self.route(at)?;
            let log = &mut self.hosts.get(route.host)?.borrow_mut().log;
            let (pending, offsets) = (log.pending(route.id)?, log.offsets(route.id)?);
            if ask.hurry && pending.until < offsets.last_stable {
                log.hurry(route.id);
                self.upkeep.notify();
            }
            let feed = match bytes_max {
                0 => None,
                _ => log.feed(route.id, pending.from, pending.until, bytes_max),
            };
            let (log_start, end) = (offsets.log_start, offsets.last_stable);
            shares.push(TableShare { partition, log_start, end, feed });
        }
        Some(shares)
    }

    /// Begins rounds as long as there are slots for them and tables that need one.
    pub(super) fn begin_rounds(self: &Rc<Self>) {
        let tables = &self.tables;
        loop {
            let begun = {
                let mut keeper = tables.keeper.borrow_mut();
                if keeper.rounds() >= tables.lane.slots() {
                    return;
                }
                keeper.next(&tables.rules.settings, self.now())
            };
            let Some(begun) = begun else { return };
            let core = self.clone();
            self.spawn(Box::pin(async move {
                let topic = begun.topic.clone();
                let ended = core.round(begun).await;
                let is_gone = core.tables.keeper.borrow_mut().ended(topic.id, ended, core.now());
                if is_gone {
                    core.remove_table(topic.id);
                }
                core.tables.due.notify();
            }));
        }
    }

    async fn round(self: &Rc<Self>, begun: Begun) -> Ended {
        let Begun { topic, version, manifest, reason } = begun;
        let shares = match self.gather(&topic, reason).await {
            Ok(shares) => shares,
            Err(_) => return Ended::Outdated(manifest),
        };
        let seen = |share: &TableShare| Seen { log_start: share.log_start, end: share.end };
        let seen = shares.iter().map(|share| (share.partition, seen(share))).collect();
        let work = self.work(&topic, reason, shares);
        let nice = self.niceness();
        let (disk, before) = (self.disk.clone(), version.number);
        let done = self.tables.lane.run(nice, move || work.run(&*disk, manifest)).await;
        // Lost when the broker stops or no thread could be had; the disk knows what there is.
        let Ok((manifest, outcome)) = done else { return Ended::Failed(None) };
        match (manifest, outcome) {
            (Some(manifest), Ok(Outcome { upkeep_at, .. })) => {
                if manifest.version().number > before {
                    self.make_table_known(&topic, manifest.version());
                }
                Ended::Written { manifest, upkeep_at, seen }
            }
            (manifest, Err(failure)) if failure.is_outdated() => Ended::Outdated(manifest),
            (manifest, outcome) => {
                if let Err(failure) = outcome {
                    tracing::error!(topic = %topic.name, %failure, "a table was not written");
                }
                Ended::Failed(manifest)
            }
        }
    }

    /// What all owners have of a topic.
    async fn gather(
        self: &Rc<Self>,
        topic: &Arc<Topic>,
        reason: Reason,
    ) -> Result<Vec<TableShare>, GateError> {
        let ask = ShareAsk {
            topic: topic.clone(),
            bytes_max: match reason {
                Reason::Upkeep => 0,
                Reason::Asked | Reason::Room | Reason::Due => {
                    self.tables.rules.settings.file_bytes_max
                }
            },
            hurry: reason == Reason::Asked,
        };
        let mut asked = Vec::new();
        for core in owners(topic, self.cores()).into_iter().filter(|core| *core != self.id()) {
            let (reply, answer) = oneshot::channel();
            self.send(core, Ask::Share { ask: ask.clone(), reply });
            asked.push(answer);
        }
        let mut shares = self.share(&ask).ok_or(GateError::Unknown)?;
        for answer in asked {
            let share = answer.await.map_err(|oneshot::Canceled| GateError::Stopping)?;
            shares.extend(share.ok_or(GateError::Unknown)?);
        }
        shares.sort_unstable_by_key(|share| share.partition);
        Ok(shares)
    }

    /// How nice a round may be: the more waits for tables, the less.
    fn niceness(&self) -> i32 {
        let waiting = self.tables.backlog.borrow().bytes();
        let half = (self.tables.rules.backlog_bytes_max / 2).max(1);
        match waiting / half {
            0 => IDLE,
            1 => 10,
            _ => 0,
        }
    }

    /// A table has changed: every owner is told.
    fn make_table_known(self: &Rc<Self>, topic: &Topic, version: &Arc<Version>) {
        for core in owners(topic, self.cores()).into_iter().filter(|core| *core != self.id()) {
            self.send(core, Ask::Table { version: version.clone() });
        }
        self.adopt_table(version.clone());
    }

    /// Removes the files of a topic that is gone.
    pub(super) fn remove_table(self: &Rc<Self>, topic: Uuid) {
        let (core, disk, data) = (self.clone(), self.disk.clone(), self.tables.data.clone());
        self.spawn(Box::pin(async move {
            let remove = move || shard::table::remove_table(&*disk, &data, topic);
            match core.tables.lane.run(IDLE, remove).await {
                // The next start removes what a stop leaves.
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => tracing::error!(%topic, %error, "a table was not removed"),
            }
        }));
    }

    fn work(&self, topic: &Arc<Topic>, reason: Reason, shares: Vec<TableShare>) -> Work {
        let starts = shares.iter().map(|share| (share.partition, share.log_start));
        let starts = starts.filter(|(_, start)| *start > Offset(0)).collect();
        // As it is set now: a topic's settings may have changed since its table was first kept.
        let topic = self.image().of_any_view(topic.id).unwrap_or(topic).clone();
        Work {
            dir: table_dir(&self.tables.data, topic.id),
            reason,
            feeds: shares.into_iter().filter_map(|share| share.feed).collect(),
            starts,
            compaction: (self.settings_of)(&topic).compaction,
            topic,
            now: self.now().wall,
            rules: self.tables.rules.clone(),
            ending: self.tables.lane.ending().clone(),
        }
    }
}
