//! Upkeep of a table: the next job that is worth it, and the files that are no longer needed.
//!
//! Asked after each commit and now and then; one job of a table runs at a time. Compaction goes
//! before merging, for it merges as well.

use super::compact::{class, compaction_due, Compact};
use super::job::{JobError, Site};
use super::manifest::{Edit, Expired};
use super::merge::{merge_due, LogStarts, Rewrite};
use super::plan::TableSettings;
use super::store::StoreError;
use super::version::Version;
use crate::disk::Disk;
use crate::ids::Timestamp;
use crate::log::Compaction;
use std::io;

/// A job that keeps a table in shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    Compact(Compact),
    Merge(Rewrite),
}

/// The next job of a table; `compaction` is that of its topic, if it is compacted.
pub fn upkeep_due(
    version: &Version,
    starts: &LogStarts,
    compaction: Option<&Compaction>,
    settings: &TableSettings,
    now: Timestamp,
) -> Option<Upkeep> {
    let compact =
        compaction.and_then(|rules| compaction_due(version, starts, rules, settings, now));
    if let Some(compact) = compact {
        return Some(Upkeep::Compact(compact));
    }
    let merge = merge_due(version, starts, settings, |file| {
        compaction.map_or(0, |rules| class(version, file, rules, now))
    });
    merge.map(Upkeep::Merge)
}

impl Upkeep {
    /// Does the work. Blocks.
    pub fn run(self, site: &mut Site<'_>) -> Result<Edit, JobError> {
        match self {
            Upkeep::Compact(compact) => compact.run(site),
            Upkeep::Merge(merge) => merge.run(site),
        }
    }

    /// How much it reads, in raw bytes.
    pub fn raw_bytes(&self) -> u64 {
        match self {
            Upkeep::Compact(compact) => compact.raw_bytes(),
            Upkeep::Merge(merge) => merge.raw_bytes(),
        }
    }
}

/// Removes files that have expired. Returns those that are gone, for the manifest to forget, and
/// the first failure. Blocks.
pub fn unlink(disk: &dyn Disk, expired: Vec<Expired>) -> (Vec<Expired>, Option<StoreError>) {
    let mut failure = None;
    let mut gone = Vec::with_capacity(expired.len());
    for file in expired {
        match disk.remove(&file.path) {
            Ok(()) => gone.push(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => gone.push(file),
            Err(source) => {
                failure.get_or_insert(StoreError { path: file.path, source });
            }
        }
    }
    (gone, failure)
}
