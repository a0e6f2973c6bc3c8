//! Merging and trimming: the same rows in fewer files, and no row below the log start.
//!
//! Small neighbours become one file, so that a table that grows by a trickle has few. A file with
//! rows below the log start is written again without them before anybody reads it who knows no log
//! starts (Iceberg). Both are planned from a version and leave an edit that fits any later one, or
//! is refused by the manifest.

use super::job::{JobError, Piece, Site, Written};
use super::manifest::Edit;
use super::plan::{small_neighbours, TableSettings};
use super::rewrite::{rewrite, All};
use super::version::{FileId, TableFile, Version};
use crate::ids::Offset;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The log starts of a topic's partitions, as far as they are known.
pub type LogStarts = BTreeMap<i32, Offset>;

/// Files to be written again, each group of them as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    groups: Vec<Group>,
    /// Those the rows were cut by.
    starts: Vec<(i32, Offset)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    replaces: Vec<FileId>,
    /// In order of partition and offset.
    pieces: Vec<Piece>,
}

/// The next merge that is worth it. Files for which `class` differs are not merged.
pub fn merge_due(
    version: &Version,
    starts: &LogStarts,
    settings: &TableSettings,
    class: impl Fn(&TableFile) -> i64,
) -> Option<Rewrite> {
    let files = small_neighbours(version, settings, class)?;
    let groups = vec![Group::new(version, starts, &files)];
    Some(Rewrite { groups, starts: listed(starts) })
}

/// Writes the files again that have rows below a log start, if there are any. One that is damaged
/// cannot be.
pub fn trim_due(version: &Version, starts: &LogStarts) -> Option<Rewrite> {
    let is_cut = |file: &&Arc<TableFile>| {
        let mut parts = file.facts.parts.iter();
        !version.is_spoiled(file.facts.id)
            && parts.any(|part| {
                let start = start_of(version, starts, part.partition);
                part.first < start && part.rows > 0
            })
    };
    let groups: Vec<Group> = version
        .files()
        .iter()
        .filter(is_cut)
        .map(|file| Group::new(version, starts, std::slice::from_ref(file)))
        .collect();
    (!groups.is_empty()).then(|| Rewrite { groups, starts: listed(starts) })
}

impl Rewrite {
    /// Does the work. Blocks.
    pub fn run(self, site: &mut Site<'_>) -> Result<Edit, JobError> {
        let mut remove = Vec::new();
        let mut add = Written::new(site);
        for group in self.groups {
            add.extend(rewrite(site, &group.pieces, u64::MAX, &mut All)?);
            remove.extend(group.replaces);
        }
        let (add, starts, now) = (add.into_files(), self.starts, site.now);
        Ok(Edit { add, remove, starts, now, ..Edit::default() })
    }

    /// How many files it takes away.
    pub fn files(&self) -> usize {
        self.groups.iter().map(|group| group.replaces.len()).sum()
    }

    /// How much it reads and writes, in raw bytes.
    pub fn raw_bytes(&self) -> u64 {
        let pieces = self.groups.iter().flat_map(|group| &group.pieces);
        pieces.map(|piece| piece.at.part.raw_bytes).sum()
    }
}

impl Group {
    fn new(version: &Version, starts: &LogStarts, files: &[Arc<TableFile>]) -> Group {
        let replaces = files.iter().map(|file| file.facts.id).collect();
        Group { replaces, pieces: pieces_of(version, starts, files) }
    }
}

/// What some files have above the log starts, in order of partition and offset.
pub(super) fn pieces_of(
    version: &Version,
    starts: &LogStarts,
    files: &[Arc<TableFile>],
) -> Vec<Piece> {
    let ids: Vec<FileId> = files.iter().map(|file| file.facts.id).collect();
    let mut pieces = Vec::new();
    for partition in version.partitions() {
        let start = start_of(version, starts, partition);
        let parts = version.parts(partition).iter();
        let parts = parts.filter(|at| ids.contains(&at.file.facts.id));
        pieces.extend(parts.filter_map(|at| Piece::above(at, start)));
    }
    pieces
}

/// The log start of a partition, as the table or the caller knows it.
pub(super) fn start_of(version: &Version, starts: &LogStarts, partition: i32) -> Offset {
    let noted = version.starts().get(&partition).copied();
    noted.max(starts.get(&partition).copied()).unwrap_or(Offset(0))
}

pub(super) fn listed(starts: &LogStarts) -> Vec<(i32, Offset)> {
    starts.iter().map(|(partition, start)| (*partition, *start)).collect()
}
