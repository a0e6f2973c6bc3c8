//! A version: the files a table consists of at one moment.
//!
//! Immutable and shared: the core that keeps a table makes a new version of it for each change and
//! hands it to all cores; fetches, queries and Iceberg hold the one they began with. A file counts
//! its holders, and is removed when no version in force names it and nobody holds it any more.
//!
//! Worked example: partition 0 in files a (0..100) and b (100..250), log start 120. `table_end` is
//! 250; `at(0, 130)` is b's part; a is named by no partition any more once the log start has been
//! noted, and goes.

use crate::ids::{Offset, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// The name of a table file within its table: random, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a file holds of one partition: every row that is left of the offsets `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub partition: i32,
    pub first: Offset,
    /// Exclusive.
    pub end: Offset,
    /// May be 0: everything in the range was compacted away, aborted, or a marker.
    pub rows: u64,
    /// What the rows' batches took in the log; what retention by size counts.
    pub raw_bytes: u64,
    /// Of the rows, as producers (or the broker) stamped them; −1 when there is none.
    pub min_timestamp: Timestamp,
    pub max_timestamp: Timestamp,
    /// The broker's clock at the last append among the rows; −1 when there is none.
    pub max_append_time: Timestamp,
}

/// What is known of a file without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    pub id: FileId,
    /// Its length.
    pub bytes: u64,
    pub created: Timestamp,
    /// One for each partition it has rows or covered offsets of, by partition.
    pub parts: Vec<Part>,
}

impl FileFacts {
    pub fn part(&self, partition: i32) -> Option<&Part> {
        let at = self.parts.binary_search_by_key(&partition, |part| part.partition).ok()?;
        self.parts.get(at)
    }

    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    pub fn raw_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.raw_bytes).sum()
    }
}

/// A file of a table. Whoever holds it may read it.
#[derive(Debug, PartialEq, Eq)]
pub struct TableFile {
    pub facts: FileFacts,
    pub path: PathBuf,
}

/// A part of a partition and the file it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartAt {
    pub file: Arc<TableFile>,
    pub part: Part,
}

/// A compaction went through everything below `end`, as of `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub end: Offset,
    pub at: Timestamp,
}

/// What a table consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Rises by one with each change; 0 is a table that never had a file.
    pub number: u64,
    pub topic: Uuid,
    files: Vec<Arc<TableFile>>,
    /// Ascending and without a hole.
    partitions: BTreeMap<i32, Vec<PartAt>>,
    /// Log starts the table has taken note of: no part ends at or below its partition's.
    starts: BTreeMap<i32, Offset>,
    /// Ends and times of compactions, both ascending.
    compacted: BTreeMap<i32, Vec<Compacted>>,
    /// Files that were found damaged.
    spoiled: BTreeSet<FileId>,
}

impl Version {
    /// # Errors
    /// The partition whose parts overlap or leave a hole.
    pub fn new(
        number: u64,
        topic: Uuid,
        files: Vec<Arc<TableFile>>,
        starts: BTreeMap<i32, Offset>,
    ) -> Result<Version, i32> {
        let mut partitions: BTreeMap<i32, Vec<PartAt>> = BTreeMap::new();
        for file in &files {
            for &part in &file.facts.parts {
                let start = starts.get(&part.partition).copied().unwrap_or(Offset(0));
                if part.end > start {
                    let at = PartAt { file: file.clone(), part };
                    partitions.entry(part.partition).or_default().push(at);
                }
            }
        }
        for (&partition, parts) in &mut partitions {
            parts.sort_by_key(|at| at.part.first);
            if parts.windows(2).any(|pair| pair[0].part.end != pair[1].part.first) {
                return Err(partition);
            }
        }
        let (compacted, spoiled) = (BTreeMap::new(), BTreeSet::new());
        Ok(Version { number, topic, files, partitions, starts, compacted, spoiled })
    }

    /// The same with what compactions left to remember.
    pub fn with_compacted(self, compacted: BTreeMap<i32, Vec<Compacted>>) -> Version {
        Version { compacted, ..self }
    }

    /// The same, knowing of damaged files.
    pub fn with_spoiled(self, spoiled: BTreeSet<FileId>) -> Version {
        Version { spoiled, ..self }
    }

    /// Whether a file was found damaged.
    pub fn is_spoiled(&self, file: FileId) -> bool {
        self.spoiled.contains(&file)
    }

    /// All files, of all partitions.
    pub fn files(&self) -> &[Arc<TableFile>] {
        &self.files
    }

    pub fn starts(&self) -> &BTreeMap<i32, Offset> {
        &self.starts
    }

    /// The compactions of a partition that are remembered, in order.
    pub fn compacted(&self, partition: i32) -> &[Compacted] {
        self.compacted.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// The partitions with parts.
    pub fn partitions(&self) -> impl Iterator<Item = i32> + '_ {
        self.partitions.keys().copied()
    }

    /// The parts of a partition in offset order.
    pub fn parts(&self, partition: i32) -> &[PartAt] {
        self.partitions.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// Everything of a partition below it, from its log start on, is in files. `None` when nothing
    /// of it ever was.
    pub fn table_end(&self, partition: i32) -> Option<Offset> {
        let end = self.parts(partition).last().map(|at| at.part.end);
        end.max(self.starts.get(&partition).copied())
    }

    /// The part that covers `offset`.
    pub fn at(&self, partition: i32, offset: Offset) -> Option<&PartAt> {
        let parts = self.parts(partition);
        let at = parts.partition_point(|at| at.part.end <= offset);
        parts.get(at).filter(|at| at.part.first <= offset)
    }
}

/// Where a file of a table is, in the directory of the table.
pub fn file_path(table: &Path, id: FileId) -> PathBuf {
    table.join("data").join(format!("{id}.parquet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples::part;

    fn file(id: u64, parts: Vec<Part>) -> Arc<TableFile> {
        let facts = FileFacts { id: FileId(id), bytes: 10, created: Timestamp(0), parts };
        Arc::new(TableFile { path: file_path(Path::new("t"), facts.id), facts })
    }

    #[test]
    fn parts_are_found_by_offset_and_have_no_hole() {
        let files =
            vec![file(2, vec![part(0, 100, 250), part(1, 5, 9)]), file(1, vec![part(0, 0, 100)])];
        let starts = BTreeMap::from([(0, Offset(120)), (7, Offset(3))]);
        let version = Version::new(1, Uuid::nil(), files.clone(), starts).expect("no hole");
        assert_eq!(version.parts(0).len(), 1, "what ends below the log start is not named");
        assert_eq!(version.table_end(0), Some(Offset(250)));
        assert_eq!(version.table_end(7), Some(Offset(3)));
        assert_eq!(version.table_end(8), None);
        assert_eq!(version.at(0, Offset(130)).map(|at| at.file.facts.id), Some(FileId(2)));
        assert_eq!(version.at(0, Offset(250)), None);
        let holed = vec![file(1, vec![part(0, 0, 100)]), file(2, vec![part(0, 101, 102)])];
        assert_eq!(Version::new(1, Uuid::nil(), holed, BTreeMap::new()), Err(0));
    }
}
