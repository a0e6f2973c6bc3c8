//! What happened to a table between two snapshots, in the words of Iceberg.
//!
//! Pure: the files of the last snapshot and a version of the table go in, at most two changes come
//! out. Readers that follow a table look only at appends, so new rows are told apart from what is
//! merely kept in other files: a *replace* when no row came or went, an *overwrite* when some did
//! (compaction, or a merge that took new rows along), a *delete* when files only vanished.
//!
//! Worked example: the snapshot has files a (0..100) and b (100..200) of partition 0. The version
//! has ab (0..200) and c (200..250): a replace of a, b by ab, then an append of c.

use iceberg::spec::Operation;
use shard::ids::Offset;
use shard::table::{FileId, TableFile, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A data file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: FileId,
    pub rows: u64,
    pub bytes: u64,
}

/// Of each partition, the offsets `first..end` that a snapshot covers.
pub type Positions = BTreeMap<i32, (Offset, Offset)>;

/// The next snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub operation: Operation,
    pub removed: Vec<Listed>,
    pub added: Vec<Arc<TableFile>>,
}

/// The offsets a version covers.
pub fn positions(version: &Version) -> Positions {
    let covered = |partition| {
        let parts = version.parts(partition);
        let first = parts.first()?.part.first;
        let start = version.starts().get(&partition).copied().unwrap_or(first);
        Some((partition, (first.max(start), parts.last()?.part.end)))
    };
    version.partitions().filter_map(covered).collect()
}

/// The changes that lead from the files of a snapshot, which covered `before`, to a version. Files
/// without rows are of no interest to readers.
pub fn between(files: &[Listed], before: &Positions, version: &Version) -> Vec<Change> {
    let known: BTreeMap<FileId, &Listed> = files.iter().map(|file| (file.id, file)).collect();
    let now: BTreeMap<FileId, &Arc<TableFile>> = version
        .files()
        .iter()
        .filter(|file| file.facts.rows() > 0)
        .map(|file| (file.facts.id, file))
        .collect();
    let removed: Vec<Listed> =
        files.iter().filter(|file| !now.contains_key(&file.id)).copied().collect();
    let new = now.iter().filter(|(id, _)| !known.contains_key(id)).map(|(_, file)| *file);
    let is_fresh = |file: &&Arc<TableFile>| lies_behind(file, before);
    let (fresh, rewritten): (Vec<_>, Vec<_>) = new.partition(is_fresh);
    let mut changes = Vec::new();
    if !(removed.is_empty() && rewritten.is_empty()) {
        let operation = operation(&removed, &rewritten, before);
        let added = rewritten.into_iter().cloned().collect();
        changes.push(Change { operation, removed, added });
    }
    if !fresh.is_empty() {
        let added = fresh.into_iter().cloned().collect();
        changes.push(Change { operation: Operation::Append, removed: Vec::new(), added });
    }
    changes
}

fn end(before: &Positions, partition: i32) -> Offset {
    before.get(&partition).map_or(Offset(0), |covered| covered.1)
}

fn lies_behind(file: &TableFile, before: &Positions) -> bool {
    file.facts.parts.iter().all(|part| part.first >= end(before, part.partition))
}

fn operation(removed: &[Listed], rewritten: &[&Arc<TableFile>], before: &Positions) -> Operation {
    if rewritten.is_empty() {
        return Operation::Delete;
    }
    let is_within = |file: &&Arc<TableFile>| {
        file.facts.parts.iter().all(|part| part.end <= end(before, part.partition))
    };
    let rows_before: u64 = removed.iter().map(|file| file.rows).sum();
    let rows_now: u64 = rewritten.iter().map(|file| file.facts.rows()).sum();
    // Within the same offsets rows can only vanish, so an equal count means the same rows.
    if rows_before == rows_now && rewritten.iter().all(is_within) {
        Operation::Replace
    } else {
        Operation::Overwrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::ids::Timestamp;
    use shard::table::{file_path, FileFacts, Part};
    use std::path::Path;
    use uuid::Uuid;

    fn file(id: u64, parts: &[(i32, i64, i64, u64)]) -> Arc<TableFile> {
        let part = |&(partition, first, end, rows): &(i32, i64, i64, u64)| Part {
            partition,
            first: Offset(first),
            end: Offset(end),
            rows,
            raw_bytes: 100,
            min_timestamp: Timestamp(0),
            max_timestamp: Timestamp(0),
            max_append_time: Timestamp(0),
        };
        let parts = parts.iter().map(part).collect();
        let facts = FileFacts { id: FileId(id), bytes: 10, created: Timestamp(0), parts };
        Arc::new(TableFile { path: file_path(Path::new("t"), facts.id), facts })
    }

    fn version(files: Vec<Arc<TableFile>>) -> Version {
        Version::new(1, Uuid::nil(), files, BTreeMap::new()).expect("no hole")
    }

    fn listed(version: &Version) -> Vec<Listed> {
        let of = |file: &Arc<TableFile>| Listed {
            id: file.facts.id,
            rows: file.facts.rows(),
            bytes: file.facts.bytes,
        };
        version.files().iter().filter(|file| file.facts.rows() > 0).map(of).collect()
    }

    /// Each change as its operation, the files it removes and the files it adds.
    fn check(
        before: Vec<Arc<TableFile>>,
        now: Vec<Arc<TableFile>>,
        expect: &[(&str, &[u64], &[u64])],
    ) {
        let before = version(before);
        let changes = between(&listed(&before), &positions(&before), &version(now));
        let said: Vec<(&str, Vec<u64>, Vec<u64>)> = changes
            .iter()
            .map(|change| {
                let removed = change.removed.iter().map(|file| file.id.0).collect();
                let added = change.added.iter().map(|file| file.facts.id.0).collect();
                (change.operation.as_str(), removed, added)
            })
            .collect();
        let expect: Vec<_> =
            expect.iter().map(|(name, old, new)| (*name, old.to_vec(), new.to_vec())).collect();
        assert_eq!(said, expect);
    }

    #[test]
    fn changes_are_named_for_what_became_of_the_rows() {
        let a = || file(1, &[(0, 0, 100, 100)]);
        let b = || file(2, &[(0, 100, 200, 90)]);
        let ab = || file(3, &[(0, 0, 200, 190)]);
        let compacted = || file(4, &[(0, 0, 200, 50)]);
        let c = || file(5, &[(0, 200, 250, 50), (1, 0, 7, 7)]);
        let abc = || file(6, &[(0, 0, 250, 240)]);
        let empty = || file(7, &[(0, 200, 201, 0)]);
        check(vec![], vec![], &[]);
        check(vec![], vec![a(), b()], &[("append", &[], &[1, 2])]);
        check(vec![a()], vec![a(), b()], &[("append", &[], &[2])]);
        check(vec![a(), b()], vec![a(), b()], &[]);
        check(vec![a(), b()], vec![ab()], &[("replace", &[1, 2], &[3])]);
        let both: &[(&str, &[u64], &[u64])] = &[("replace", &[1, 2], &[3]), ("append", &[], &[5])];
        check(vec![a(), b()], vec![ab(), c()], both);
        check(vec![a(), b()], vec![compacted()], &[("overwrite", &[1, 2], &[4])]);
        check(vec![a(), b()], vec![abc()], &[("overwrite", &[1, 2], &[6])]);
        check(vec![a(), b()], vec![b()], &[("delete", &[1], &[])]);
        check(vec![a(), b()], vec![a(), b(), empty()], &[]);
        let gone: &[(&str, &[u64], &[u64])] = &[("delete", &[1], &[]), ("append", &[], &[5])];
        check(vec![a()], vec![c()], gone);
    }
}
