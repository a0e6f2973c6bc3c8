//! Which files become one: neighbours of about one size.
//!
//! Two files may only be merged when what lies between them, in each of their partitions, is
//! merged too. So the files are put into an order in which every partition's parts ascend, each
//! group of files that share partitions for itself; a stretch of that order may always be merged.
//! There is such an order: files of a table are written one at a time, each behind the ends of all.
//! Sizes are told apart in steps of a factor (`merge_files`): with the default 8, a table of n
//! times the smallest size has about 8 files of each of log₈ n steps, and each row is written about
//! once per step.
//!
//! Worked example, one partition, raw MiB: `300 0.2 0.1 0.3 0.2 0.1 0.2 0.4 0.1` becomes `300 1.6`.

use super::TableSettings;
use crate::table::{FileId, TableFile, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files below it are all of one size.
const SMALLEST_BYTES: u64 = 1 << 20;

/// The files of a table by groups that share partitions, each in an order in which the parts of
/// every partition ascend. Files without parts above the log starts are left out.
pub fn in_order(version: &Version) -> Vec<Vec<Arc<TableFile>>> {
    let mut groups: Vec<BTreeSet<i32>> = Vec::new();
    let files = version.files().iter().filter(|file| !alive(version, file).is_empty());
    for file in files.clone() {
        let mut joined: BTreeSet<i32> = alive(version, file).into_iter().collect();
        groups.retain(|group| {
            let is_apart = group.is_disjoint(&joined);
            if !is_apart {
                joined.extend(group);
            }
            is_apart
        });
        groups.push(joined);
    }
    groups.iter().map(|partitions| sorted(version, partitions)).collect()
}

/// The partitions of a file of which it has rows or offsets above the log start.
fn alive(version: &Version, file: &TableFile) -> Vec<i32> {
    let parts = file.facts.parts.iter();
    let is_named = |part: &&crate::table::Part| {
        version
            .at(part.partition, part.end.plus(-1))
            .is_some_and(|at| at.file.facts.id == file.facts.id)
    };
    parts.filter(is_named).map(|part| part.partition).collect()
}

/// The files of some partitions, each behind those that come before it in any of them. Where there
/// is a choice, and where files come before one another, the older goes first.
fn sorted(version: &Version, partitions: &BTreeSet<i32>) -> Vec<Arc<TableFile>> {
    let key = |file: &Arc<TableFile>| (file.facts.created, file.facts.id);
    let mut waits_for: BTreeMap<FileId, usize> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for &partition in partitions {
        for (place, at) in version.parts(partition).iter().enumerate() {
            *waits_for.entry(at.file.facts.id).or_default() += usize::from(place > 0);
            all.insert(key(&at.file), at.file.clone());
        }
    }
    let is_ready = |waits_for: &BTreeMap<FileId, usize>, file: &TableFile| {
        waits_for.get(&file.facts.id).is_none_or(|count| *count == 0)
    };
    let ready = all.iter().filter(|(_, file)| is_ready(&waits_for, file));
    let mut ready: BTreeSet<_> = ready.map(|(key, _)| *key).collect();
    let mut order = Vec::with_capacity(all.len());
    while let Some(next) = ready.pop_first().or_else(|| all.keys().next().copied()) {
        let Some(file) = all.remove(&next) else { continue };
        for partition in alive(version, &file) {
            let parts = version.parts(partition);
            let place = parts.iter().position(|at| at.file.facts.id == file.facts.id);
            let behind = place.and_then(|place| parts.get(place + 1));
            let Some(behind) = behind.filter(|behind| all.contains_key(&key(&behind.file))) else {
                continue;
            };
            let count = waits_for.entry(behind.file.facts.id).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                ready.insert(key(&behind.file));
            }
        }
        order.push(file);
    }
    order
}

/// Whether nothing lies between these files in any partition.
pub fn is_contiguous(version: &Version, files: &[Arc<TableFile>]) -> bool {
    let has = |id: FileId| files.iter().any(|file| file.facts.id == id);
    version.partitions().all(|partition| {
        let parts = version.parts(partition).iter();
        let mut stretches = 0;
        let mut was_in = false;
        for is_in in parts.map(|at| has(at.file.facts.id)) {
            stretches += usize::from(is_in && !was_in);
            was_in = is_in;
        }
        stretches <= 1
    })
}

/// Some files and all that come before them in any of their partitions, by groups and in order as
/// `in_order`.
pub fn before(version: &Version, some: &BTreeSet<FileId>) -> Vec<Vec<Arc<TableFile>>> {
    let mut wanted: BTreeSet<FileId> = some.clone();
    loop {
        let known = wanted.len();
        for partition in version.partitions() {
            let parts = version.parts(partition);
            let last = parts.iter().rposition(|at| wanted.contains(&at.file.facts.id));
            let until = parts.get(..last.map_or(0, |last| last + 1)).unwrap_or_default();
            wanted.extend(until.iter().map(|at| at.file.facts.id));
        }
        if wanted.len() == known {
            break;
        }
    }
    let mut groups = in_order(version);
    groups.iter_mut().for_each(|files| files.retain(|file| wanted.contains(&file.facts.id)));
    groups
}

/// The next files to merge, of one `class` each (files of different classes stay apart). What is
/// known to be damaged is merged with nothing.
pub fn small_neighbours(
    version: &Version,
    settings: &TableSettings,
    class: impl Fn(&TableFile) -> i64,
) -> Option<Vec<Arc<TableFile>>> {
    let step = settings.merge_files.max(2);
    let size_of = |file: &TableFile| size_step(file.facts.raw_bytes(), step as u64);
    for files in in_order(version) {
        let largest = files.iter().map(|file| size_of(file)).max().unwrap_or(0);
        for size in 0..=largest {
            let is_small = |file: &TableFile| {
                let is_full = file.facts.raw_bytes() >= settings.file_bytes_max;
                size_of(file) <= size && !is_full && !version.is_spoiled(file.facts.id)
            };
            let mut rest = &files[..];
            while let Some(from) = rest.iter().position(|file| is_small(file)) {
                rest = rest.get(from..).unwrap_or_default();
                let of = rest.first().map(|file| class(file));
                let ends = |file: &Arc<TableFile>| !is_small(file) || Some(class(file)) != of;
                let count = rest.iter().position(ends).unwrap_or(rest.len());
                let (run, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                let stretch = worth_merging(run, settings.file_bytes_max, step);
                if let Some(stretch) = stretch.filter(|files| is_contiguous(version, files)) {
                    return Some(stretch.to_vec());
                }
                rest = behind;
            }
        }
    }
    None
}

/// A stretch of a run that is many files, or as much as a file may have; not one that is mostly
/// one file, which would be written again for the sake of little.
fn worth_merging(run: &[Arc<TableFile>], bytes_max: u64, many: usize) -> Option<&[Arc<TableFile>]> {
    (0..run.len()).find_map(|from| {
        let rest = run.get(from..)?;
        let mut bytes = 0u64;
        let fits = |file: &&Arc<TableFile>| {
            bytes = bytes.saturating_add(file.facts.raw_bytes());
            bytes <= bytes_max
        };
        let count = rest.iter().take_while(fits).count();
        let stretch = rest.get(..count)?;
        let sizes = || stretch.iter().map(|file| file.facts.raw_bytes());
        let (total, largest) = (sizes().sum::<u64>(), sizes().max().unwrap_or(0));
        let is_full = count < rest.len() && total >= bytes_max / 2;
        let is_even = largest <= total / 2;
        (is_even && (count >= many || is_full && count >= 2)).then_some(stretch)
    })
}

/// 0 for the smallest, one more for each time the factor larger.
fn size_step(bytes: u64, factor: u64) -> u32 {
    (bytes / SMALLEST_BYTES).checked_ilog(factor).map_or(0, |log| log + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Offset, Timestamp};
    use crate::table::{file_path, FileFacts, Part};
    use std::path::Path;
    use uuid::Uuid;

    const MIB: u64 = 1 << 20;

    fn file(id: u64, created: i64, parts: &[(i32, i64, i64)], raw_bytes: u64) -> Arc<TableFile> {
        let parts: Vec<Part> = parts
            .iter()
            .map(|&(partition, first, end)| Part {
                partition,
                first: Offset(first),
                end: Offset(end),
                rows: (end - first) as u64,
                raw_bytes: raw_bytes / parts.len() as u64,
                min_timestamp: Timestamp(0),
                max_timestamp: Timestamp(0),
                max_append_time: Timestamp(0),
            })
            .collect();
        let facts = FileFacts { id: FileId(id), bytes: 1, created: Timestamp(created), parts };
        Arc::new(TableFile { path: file_path(Path::new("t"), facts.id), facts })
    }

    fn version(files: Vec<Arc<TableFile>>) -> Version {
        Version::new(1, Uuid::nil(), files, BTreeMap::new()).expect("no hole")
    }

    fn ids(files: &[Arc<TableFile>]) -> Vec<u64> {
        files.iter().map(|file| file.facts.id.0).collect()
    }

    /// One file after the other, of one partition, by their raw bytes.
    fn row(sizes: &[u64]) -> Version {
        let sizes = sizes.iter().zip(0..);
        version(sizes.map(|(&bytes, n)| file(n as u64, n, &[(0, n, n + 1)], bytes)).collect())
    }

    fn merged(version: &Version) -> Option<Vec<u64>> {
        small_neighbours(version, &TableSettings::default(), |_| 0).map(|files| ids(&files))
    }

    #[test]
    fn many_small_neighbours_are_merged_and_few_are_not() {
        let check = |sizes: &[u64], expect: Option<Vec<u64>>| {
            assert_eq!(merged(&row(sizes)), expect, "{sizes:?}");
        };
        check(&[1000; 7], None);
        check(&[1000; 8], Some((0..8).collect()));
        check(&[&[300 * MIB][..], &[1000; 8]].concat(), Some((1..9).collect()));
        check(&[&[1000; 5][..], &[300 * MIB], &[1000; 5]].concat(), None);
        // A large run takes the smaller ones between along.
        let mut mixed = [20 * MIB; 9];
        mixed[4] = 100;
        check(&mixed, Some((0..9).collect()));
        // As much as a file may have is worth it with fewer files.
        check(&[65 * MIB; 7], None);
        check(&[65 * MIB; 8], Some((0..7).collect()));
        check(&[&[600 * MIB; 4][..], &[64 * MIB; 8]].concat(), Some((4..12).collect()));
        check(&[400 * MIB; 12], None);
    }

    #[test]
    fn a_trickle_leaves_few_files_and_rewrites_little() {
        let mut sizes: Vec<u64> = Vec::new();
        let mut rewritten = 0;
        let mut most = 0;
        for _ in 0..20_000 {
            sizes.push(300_000);
            while let Some(stretch) = merged(&row(&sizes)) {
                let (first, last) = (stretch[0] as usize, stretch[stretch.len() - 1] as usize);
                let bytes: u64 = sizes.drain(first..=last).sum();
                rewritten += bytes;
                sizes.insert(first, bytes);
            }
            most = most.max(sizes.len());
        }
        let all: u64 = sizes.iter().sum();
        assert!(most <= 45, "{most}");
        assert!(rewritten / all <= 5, "{}", rewritten / all);
    }

    #[test]
    fn files_of_other_partitions_do_not_stand_between() {
        let busy = |n: i64| file(100 + n as u64, n, &[(1, n, n + 1)], 600 * MIB);
        let slow = |n: i64| file(n as u64, n, &[(0, n, n + 1), (2, n, n + 1)], 1000);
        let files = (0..8).flat_map(|n| [busy(n), slow(n)]).collect();
        assert_eq!(merged(&version(files)), Some((0..8).collect()));
    }

    #[test]
    fn classes_stay_apart() {
        let version = row(&[1000; 12]);
        let settings = TableSettings::default();
        let by = |border: u64| {
            let files =
                small_neighbours(&version, &settings, |file| i64::from(file.facts.id.0 >= border));
            files.map(|files| ids(&files))
        };
        assert_eq!(by(3), Some((3..12).collect()));
        assert_eq!(by(6), None);
    }

    #[test]
    fn the_order_is_that_of_the_offsets_whatever_the_clock_said() {
        let files = vec![
            file(1, 90, &[(0, 0, 5), (1, 0, 5)], 10),
            file(2, 80, &[(0, 5, 6)], 10),
            file(3, 70, &[(1, 5, 6), (0, 6, 7)], 10),
            file(4, 60, &[(7, 0, 1)], 10),
        ];
        let version = version(files);
        let order: Vec<Vec<u64>> = in_order(&version).iter().map(|files| ids(files)).collect();
        assert_eq!(order, [vec![1, 2, 3], vec![4]]);
        let some = BTreeSet::from([FileId(3)]);
        let before: Vec<Vec<u64>> =
            before(&version, &some).iter().map(|files| ids(files)).collect();
        assert_eq!(before, [vec![1, 2, 3], vec![]]);
        let of = |ids: &[u64]| {
            let files = version.files().iter().filter(|file| ids.contains(&file.facts.id.0));
            is_contiguous(&version, &files.cloned().collect::<Vec<_>>())
        };
        assert!(of(&[1, 2]) && of(&[2, 3]) && of(&[1, 4]) && !of(&[1, 3]));
    }

    #[test]
    fn files_that_come_before_one_another_are_ordered_all_the_same() {
        let files =
            vec![file(1, 1, &[(0, 0, 5), (1, 5, 9)], 10), file(2, 2, &[(0, 5, 9), (1, 0, 5)], 10)];
        let version = version(files);
        assert_eq!(in_order(&version).iter().map(|files| ids(files)).collect::<Vec<_>>(), [[1, 2]]);
    }
}
