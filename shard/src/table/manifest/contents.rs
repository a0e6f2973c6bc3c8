//! What the files of a manifest add up to: the state between two commits.
//!
//! A change is applied the same way when it is committed and when it is read again.

use super::format::Change;
use super::Edit;
use crate::ids::{Offset, Timestamp};
use crate::table::version::{file_path, Compacted, FileId, TableFile, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Compactions remembered of a partition: those closest together in time are not told apart.
const COMPACTIONS_MAX: usize = 16;

/// The state that the files on the disk add up to.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub files: BTreeMap<FileId, Arc<TableFile>>,
    /// Replaced or below the log start, with when.
    pub removed: BTreeMap<FileId, (Arc<TableFile>, Timestamp)>,
    pub starts: BTreeMap<i32, Offset>,
    pub compacted: BTreeMap<i32, Vec<Compacted>>,
    /// Found damaged since the open; on no disk.
    pub spoiled: BTreeSet<FileId>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.removed.is_empty()
            && self.starts.is_empty()
            && self.compacted.is_empty()
    }
}

impl Contents {
    /// Whether a file is, or was, of the table.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file) || self.removed.contains_key(&file)
    }

    pub fn apply(&mut self, dir: &Path, change: &Change) {
        for facts in &change.files {
            let file = TableFile { path: file_path(dir, facts.id), facts: facts.clone() };
            self.files.insert(facts.id, Arc::new(file));
        }
        for &(id, at) in &change.removed {
            self.spoiled.remove(&id);
            if let Some(file) = self.files.remove(&id) {
                self.removed.insert(id, (file, at));
            }
        }
        self.starts.extend(change.starts.iter().copied());
        for (partition, _) in &change.compacted {
            self.compacted.remove(partition);
        }
        for &(partition, compacted) in &change.compacted {
            self.compacted.entry(partition).or_default().push(compacted);
        }
    }

    pub fn keep_known(&mut self, known: Contents) {
        self.spoiled = known.spoiled;
        let removed = known.removed.into_values().map(|(file, _)| file);
        for file in known.files.into_values().chain(removed) {
            let id = file.facts.id;
            if let Some(again) = self.files.get_mut(&id).filter(|again| **again == file) {
                *again = file;
            } else if let Some((again, _)) = self.removed.get_mut(&id) {
                *again = file;
            }
        }
    }

    pub fn version(&self, number: u64, topic: Uuid) -> Result<Version, i32> {
        let files = self.files.values().cloned().collect();
        let version = Version::new(number, topic, files, self.starts.clone())?;
        let version = version.with_compacted(self.compacted.clone());
        Ok(version.with_spoiled(self.spoiled.clone()))
    }

    /// All of it as one change.
    pub fn base(&self, topic: Uuid, number: u64) -> Change {
        let removed = self.removed.values();
        let files = self.files.values().chain(removed.clone().map(|(file, _)| file));
        let compacted = self.compacted.iter();
        Change {
            topic,
            number,
            is_base: true,
            files: files.map(|file| file.facts.clone()).collect(),
            removed: removed.map(|(file, at)| (file.facts.id, *at)).collect(),
            starts: self.starts.iter().map(|(partition, start)| (*partition, *start)).collect(),
            compacted: compacted
                .flat_map(|(partition, all)| all.iter().map(|one| (*partition, *one)))
                .collect(),
        }
    }

    /// The lists of the partitions that an edit's compactions went through.
    pub fn compactions(&self, edit: &Edit) -> Vec<(i32, Compacted)> {
        let mut changed = Vec::new();
        for &(partition, end) in &edit.compacted {
            let mut list = self.compacted.get(&partition).cloned().unwrap_or_default();
            if list.last().is_some_and(|last| last.end >= end) {
                // Nothing was new there.
                continue;
            }
            let at = list.last().map_or(edit.now, |last| last.at.max(edit.now));
            list.push(Compacted { end, at });
            if list.len() > COMPACTIONS_MAX {
                merge_closest(&mut list);
            }
            changed.extend(list.into_iter().map(|one| (partition, one)));
        }
        changed
    }
}

/// Gives up the line between the two compactions closest in time. What the earlier went through
/// counts as gone through at the later: marks of deleted keys stay longer, never shorter.
fn merge_closest(list: &mut Vec<Compacted>) {
    let gaps = list.windows(2).map(|pair| match pair {
        [one, next] => next.at.0.saturating_sub(one.at.0),
        _ => i64::MAX,
    });
    if let Some((closest, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) {
        list.remove(closest);
    }
}
