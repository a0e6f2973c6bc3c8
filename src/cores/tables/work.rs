//! What a thread of the lane does in a round: open the manifest if need be, write a file of what
//! waits or put one piece of the table in order, commit that, and unlink what nobody reads any more.
//!
//! Blocks. A panic inside is a failure like any other, and the manifest comes back all the same.

use super::lane::Ending;
use super::TableRules;
use crate::catalog::Topic;
use shard::disk::Disk;
use shard::ids::{Offset, Timestamp};
use shard::log::Feed;
use shard::table::{Edit, Manifest, ManifestError};
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;

/// How soon it is looked again for files that were to go and that somebody held.
const HELD_AGAIN_MS: i64 = 60_000;

/// One round's worth.
#[derive(Debug)]
pub struct Work {
    /// Of the table.
    pub dir: PathBuf,
    pub topic: Arc<Topic>,
    /// By partition; empty when nothing waits.
    pub feeds: Vec<Feed>,
    /// Log starts that have passed rows of the table.
    pub starts: BTreeMap<i32, Offset>,
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
    Manifest(#[from] ManifestError),
    #[error("a thread that worked on it panicked")]
    Panicked,
}

impl WorkFailure {
    /// What was to be read has gone meanwhile.
    pub fn is_outdated(&self) -> bool {
        false
    }
}

impl Work {
    /// Gives the manifest back if it could be opened.
    pub fn run(
        self,
        disk: &dyn Disk,
        manifest: Option<Manifest>,
    ) -> (Option<Manifest>, Result<Outcome, WorkFailure>) {
        let manifest = match manifest {
            Some(manifest) if manifest.is_unsure() => manifest.reopen(disk),
            Some(manifest) => Ok((manifest, Arc::default())),
            None => Manifest::open(disk, &self.dir, self.topic.id),
        };
        let mut manifest = match manifest {
            Ok((manifest, _)) => manifest,
            Err(error) => return (None, Err(error.into())),
        };
        let work = AssertUnwindSafe(|| self.with(disk, &mut manifest));
        let outcome = catch_unwind(work).unwrap_or(Err(WorkFailure::Panicked));
        (Some(manifest), outcome)
    }

    fn with(self, disk: &dyn Disk, manifest: &mut Manifest) -> Result<Outcome, WorkFailure> {
        let starts = self.starts.iter().map(|(partition, start)| (*partition, *start)).collect();
        let edit = Edit { starts, now: self.now, ..Edit::default() };
        manifest.commit(disk, edit)?;
        Ok(Outcome { upkeep_at: self.unlink(disk, manifest) })
    }

    /// Unlinks files that have been replaced for long enough; says when the next ones are.
    fn unlink(&self, disk: &dyn Disk, manifest: &mut Manifest) -> Option<Timestamp> {
        let mut expired = manifest.expired(self.now, self.rules.grace_ms);
        expired.retain(|file| match disk.remove(&file.path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => {
                let path = file.path.display();
                tracing::warn!(%path, %error, "a file of a table was not removed");
                false
            }
        });
        manifest.forget(&expired);
        let due = |at: Timestamp| Timestamp(at.0.saturating_add(self.rules.grace_ms));
        let next = manifest.removed().map(|(_, at)| due(at)).min()?;
        Some(next.max(Timestamp(self.now.0 + HELD_AGAIN_MS.min(self.rules.grace_ms.max(1_000)))))
    }
}
