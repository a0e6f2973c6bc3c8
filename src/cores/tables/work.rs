//! What a thread of the lane does in a round: open the manifest if need be, write a file of what
//! waits or put one piece of the table in order, commit that, and unlink what nobody reads any
//! more.
//!
//! Blocks. A panic inside is a failure like any other, and the manifest comes back all the same.

use super::keeper::Reason;
use super::lane::Ending;
use super::TableRules;
use crate::catalog::Topic;
use shard::disk::Disk;
use shard::ids::{Offset, Timestamp};
use shard::log::{ColdError, Compaction, Feed, OpenFeed};
use shard::table::rows::Aborted;
use shard::table::{columnarise, trim_due, unlink, upkeep_due, Edit, FileId, JobError};
use shard::table::{LogStarts, Manifest, ManifestError, Site, Source};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

/// How soon it is looked again for files that were to go and that somebody held: after as long as
/// they have been held, within these bounds.
const HELD_AGAIN_MS: (i64, i64) = (1_000, 60_000);

/// One round's worth.
#[derive(Debug)]
pub struct Work {
    /// Of the table.
    pub dir: PathBuf,
    pub topic: Arc<Topic>,
    pub reason: Reason,
    /// By partition; empty when nothing waits.
    pub feeds: Vec<Feed>,
    pub starts: LogStarts,
    /// Of a compacted topic.
    pub compaction: Option<Compaction>,
    pub now: Timestamp,
    pub rules: TableRules,
    pub ending: Ending,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// When the files are to be looked at again.
    pub upkeep_at: Option<Timestamp>,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum WorkFailure {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("a thread that worked on it panicked")]
    Panicked,
}

impl WorkFailure {
    /// Nothing is wrong: what was to be read has gone meanwhile, or the broker stops.
    pub fn is_outdated(&self) -> bool {
        matches!(self, WorkFailure::Job(JobError::Feed(ColdError::Removed) | JobError::Stopped))
    }
}

impl Work {
    /// Gives the manifest back if it could be opened.
    pub fn run(
        self,
        disk: &dyn Disk,
        manifest: Option<Manifest>,
    ) -> (Option<Manifest>, Result<Outcome, WorkFailure>) {
        let opened = match manifest {
            Some(manifest) => Ok(manifest),
            None => Manifest::open(disk, &self.dir, self.topic.id).map(|(manifest, _)| manifest),
        };
        let mut manifest = match opened {
            Ok(manifest) => manifest,
            Err(error) => return (None, Err(error.into())),
        };
        if manifest.is_unsure() {
            if let Err(error) = manifest.reopen(disk) {
                return (Some(manifest), Err(error.into()));
            }
        }
        let work = AssertUnwindSafe(|| self.with(disk, &mut manifest));
        let outcome = catch_unwind(work).unwrap_or(Err(WorkFailure::Panicked));
        if let Err(WorkFailure::Job(error)) = &outcome {
            // What is damaged is not planned with again, and stops nothing else.
            manifest.note_damage(error);
        }
        (Some(manifest), outcome)
    }

    fn with(mut self, disk: &dyn Disk, manifest: &mut Manifest) -> Result<Outcome, WorkFailure> {
        let mut next_id = || FileId(Uuid::new_v4().as_u64_pair().0);
        let (dir, ending, now) = (self.dir.clone(), self.ending.clone(), self.now);
        let next_id = &mut next_id;
        let mut site = Site { disk, dir: &dir, now, next_id, stop: ending.flag() };
        let feeds = std::mem::take(&mut self.feeds);
        if !feeds.is_empty() {
            let sources = feeds.into_iter().map(|feed| source(feed, disk));
            let sources: Result<Vec<_>, _> = sources.collect();
            let mut edit = columnarise(&mut site, sources.map_err(JobError::Feed)?)?;
            edit.starts = self.starts.iter().map(|(partition, at)| (*partition, *at)).collect();
            self.commit(disk, manifest, edit)?;
        } else if self.reason == Reason::Upkeep {
            match self.upkeep_due(manifest) {
                Some(upkeep) => self.commit(disk, manifest, upkeep.run(&mut site)?)?,
                None => self.note_starts(disk, manifest)?,
            }
        }
        if self.reason == Reason::Asked {
            // Who asks knows no log starts.
            if let Some(trim) = trim_due(manifest.version(), &self.starts) {
                self.commit(disk, manifest, trim.run(&mut site)?)?;
            }
        }
        Ok(Outcome { upkeep_at: self.tidy(disk, manifest) })
    }

    fn upkeep_due(&self, manifest: &Manifest) -> Option<shard::table::Upkeep> {
        let (version, settings) = (manifest.version(), &self.rules.settings);
        upkeep_due(version, &self.starts, self.compaction.as_ref(), settings, self.now)
    }

    /// Files that log starts have passed leave the table.
    fn note_starts(&self, disk: &dyn Disk, manifest: &mut Manifest) -> Result<(), WorkFailure> {
        let starts = self.starts.iter().map(|(partition, at)| (*partition, *at)).collect();
        self.commit(disk, manifest, Edit { starts, now: self.now, ..Edit::default() })
    }

    fn commit(
        &self,
        disk: &dyn Disk,
        manifest: &mut Manifest,
        edit: Edit,
    ) -> Result<(), WorkFailure> {
        let before = manifest.version().number;
        let version = manifest.commit(disk, edit)?;
        if version.number > before {
            let (number, files) = (version.number, version.files().len());
            let (topic, reason) = (&self.topic.name, self.reason);
            tracing::debug!(%topic, ?reason, number, files, "a table changed");
        }
        Ok(())
    }

    /// Unlinks files that have been replaced for long enough, and says when there is more to do.
    fn tidy(&self, disk: &dyn Disk, manifest: &mut Manifest) -> Option<Timestamp> {
        let (gone, failure) = unlink(disk, manifest.expired(self.now, self.rules.grace_ms));
        if let Some(error) = failure {
            tracing::warn!(topic = %self.topic.name, %error, "a file of a table was not removed");
        }
        manifest.forget(&gone);
        if self.upkeep_due(manifest).is_some() {
            return Some(self.now);
        }
        let expiry = |at: Timestamp| Timestamp(at.0.saturating_add(self.rules.grace_ms));
        let held = |at: Timestamp| {
            let held_ms = self.now.0.saturating_sub(at.0);
            let again = Timestamp(self.now.0 + held_ms.clamp(HELD_AGAIN_MS.0, HELD_AGAIN_MS.1));
            if held_ms >= 0 {
                again
            } else {
                at
            }
        };
        let expires_at = manifest.removed().map(|(_, at)| held(expiry(at))).min();
        let check_ms = i64::try_from(self.rules.retention_check_ms).unwrap_or(i64::MAX);
        let check_at = Timestamp(self.now.0.saturating_add(check_ms));
        let ages = self.compaction.is_some() && !manifest.version().files().is_empty();
        [expires_at, ages.then_some(check_at)].into_iter().flatten().min()
    }
}

fn source(feed: Feed, disk: &dyn Disk) -> Result<Source<OpenFeed>, ColdError> {
    let (partition, from, until): (i32, Offset, Offset) =
        (feed.key.partition, feed.from, feed.until);
    let (batches, aborted) = (feed.open(disk)?, Aborted::default());
    Ok(Source { partition, from, until, aborted, batches })
}
