//! Core 0's keeper of the catalogue: its machine in a shell, and what a change means to the cores.
//!
//! A change is published to all cores when it has committed and before it is answered: whoever has
//! the answer sees the topic on every core. The offsets groups have committed for a topic that is
//! gone go before that answer too.
//!
//! When the log has gone on to a new segment the keeper writes the whole state again at its end and
//! drops what was before, so that the catalogue never keeps an old segment from going.
//!
//! The tombstone of a deleted topic goes when every log has said that it holds nothing of it. What
//! a log says while the catalogue cannot be written is said again after the next start.

use super::append::Group;
use super::ask::{Ask, CatalogAnswer};
use super::core::Core;
use super::front::{CatalogDown, PartitionAt};
use super::machines::Home;
use crate::catalog::{Command, ImageChange, Machine, Record, CATALOG_PARTITION};
use crate::state_machine::{batch_of, Durable, Pair, Shell};
use bytes::Bytes;
use futures_channel::oneshot;
use shard::ids::LogId;
use std::future::{poll_fn, Future};
use std::rc::Rc;
use uuid::Uuid;

/// Records of a snapshot in one batch.
const SNAPSHOT_BATCH_RECORDS: usize = 256;

/// The catalogue's partition and its log.
pub const CATALOG_AT: PartitionAt = PartitionAt { log: LogId(0), key: CATALOG_PARTITION };

impl Core {
    /// Lets the catalogue, as it was read before the cores started, live on this core.
    pub(super) fn keep_catalog(self: &Rc<Self>, read: Machine) {
        let (blank, core) = (read.emptied(), self.clone());
        let home = Home {
            core: self.clone(),
            at: CATALOG_AT,
            name: "catalogue".to_string(),
            empty: Box::new(move || blank.clone().behind(&core.image())),
            loaded: |_, _, _| {},
            perform: |core, change| Box::pin(async move { core.make_known(change).await }),
        };
        let shell = Shell::active(Rc::new(home), read);
        let before = self.catalog.replace(Some(shell));
        assert!(before.is_none(), "a core keeps the catalogue once");
    }

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

    /// Tells the catalogue that a log of this core holds nothing of deleted topics any more.
    pub(super) fn tell_purged(&self, log: LogId, topics: Vec<Uuid>) {
        let command = Command::Purged { log, topics };
        if self.catalog().is_some() {
            drop(self.command(command));
            return;
        }
        let (reply, _) = oneshot::channel();
        self.send(0, Ask::Catalog { command, reply });
    }

    /// Carries out a command. It is decided now and done even if nobody awaits its outcome.
    pub(super) fn command(&self, command: Command) -> impl Future<Output = CatalogAnswer> {
        let submitted = self.catalog().map(|shell| shell.submit(command));
        async move {
            match submitted {
                Some(answer) => match answer.await {
                    Ok(Ok(answer)) => Ok(answer),
                    Ok(Err(_)) | Err(oneshot::Canceled) => Err(CatalogDown),
                },
                // This core has no catalogue.
                None => Err(CatalogDown),
            }
        }
    }

    /// Writes the state anew behind everything, when some of it lies in a segment that could go,
    /// and drops the rest once that is committed.
    pub async fn rewrite_catalog(&self) {
        let Some(group) = self.append_snapshot() else { return };
        poll_fn(|cx| group.poll(Group::is_done, cx)).await;
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
    fn append_snapshot(&self) -> Option<Rc<Group>> {
        let shell = self.catalog().filter(|_| self.reaches_back(CATALOG_AT))?;
        // What may still be refused must not come back with the snapshot: there will be a moment
        // in which nothing is on its way.
        if !shell.is_settled() {
            return None;
        }
        let records = shell.look(Machine::snapshot)?;
        let now = self.now().wall;
        let batch = |records: &[Record]| -> (PartitionAt, Bytes) {
            let pairs: Vec<Pair> = records.iter().map(Durable::to_pair).collect();
            (CATALOG_AT, batch_of(&pairs, now))
        };
        Some(self.append_internal(records.chunks(SNAPSHOT_BATCH_RECORDS).map(batch).collect()))
    }

    /// Returns when all cores see the new picture and no group has offsets of topics that are gone.
    async fn make_known(self: Rc<Self>, change: ImageChange) {
        let gone: Vec<_> = change.removed.iter().map(|topic| topic.id).collect();
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
        self.shown.show(self.image());
        if !gone.is_empty() {
            self.forget_topics(gone).await;
        }
    }
}
