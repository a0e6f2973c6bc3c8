//! What a manifest promises: no row lost, none twice, whatever the disk does in between.

use super::*;
use crate::disk::sim::{Fault, Op, Rng, SimDisk};
use crate::table::samples::part;
use crate::table::{file_path, Part};

const TOPIC: Uuid = Uuid::from_u128(7);

fn dir() -> &'static Path {
    Path::new("/tables/t")
}

/// A durable file and what is known of it.
fn file(disk: &SimDisk, id: u64, parts: Vec<Part>) -> FileFacts {
    let path = file_path(dir(), FileId(id));
    // A disk that has stopped writes nothing, which the commit then meets as well.
    let _ = disk.create_dir(&dir().join("data")).and_then(|()| disk.publish(&path, b"columns"));
    FileFacts { id: FileId(id), bytes: 7, created: Timestamp(0), parts }
}

fn open(disk: &SimDisk) -> Manifest {
    Manifest::open(disk, dir(), TOPIC).unwrap().0
}

fn add(disk: &SimDisk, id: u64, parts: Vec<Part>) -> Edit {
    Edit { add: vec![file(disk, id, parts)], ..Edit::default() }
}

fn ids(version: &Version) -> Vec<u64> {
    version.files().iter().map(|file| file.facts.id.0).collect()
}

fn data_files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|path| path.starts_with(dir().join("data")));
    files
}

#[test]
fn what_was_committed_is_there_again_after_any_number_of_changes() {
    let mut disk = SimDisk::new(1);
    for life in 0..4u64 {
        let mut manifest = open(&disk);
        assert_eq!(manifest.version().number, life * 25);
        for at in life * 25..(life + 1) * 25 {
            let edit = Edit {
                remove: at.checked_sub(1).map(FileId).into_iter().collect(),
                compacted: vec![(0, Offset(at as i64))],
                now: Timestamp(at as i64),
                ..add(&disk, at, vec![part(0, 0, at as i64 + 1)])
            };
            manifest.commit(&disk, edit).unwrap();
        }
        let version = manifest.version().clone();
        disk = disk.crash(&mut Rng::new(life));
        let again = open(&disk);
        assert_eq!(**again.version(), *version);
        assert_eq!(again.version().compacted(0).len(), 16);
        assert_eq!(again.removed().count(), version.number as usize - 1);
    }
    let files = disk.list(&dir().join("manifest")).unwrap();
    assert!(files.len() < 40, "{files:?}");
}

#[test]
fn edits_that_would_lose_or_double_rows_are_refused() {
    let disk = SimDisk::new(1);
    let mut manifest = open(&disk);
    let first = add(&disk, 1, vec![part(0, 50, 100), part(2, 0, 7)]);
    let version = manifest.commit(&disk, first).unwrap();
    assert_eq!(version.starts().get(&0), Some(&Offset(50)), "the table begins with its first file");
    let edits = [
        ("a hole", add(&disk, 2, vec![part(0, 101, 110)])),
        ("an overlap", add(&disk, 3, vec![part(0, 99, 110)])),
        ("a smaller end", Edit { remove: vec![FileId(1)], ..Edit::default() }),
        ("a hole at the front", {
            Edit { remove: vec![FileId(1)], ..add(&disk, 4, vec![part(0, 60, 100), part(2, 0, 7)]) }
        }),
        ("a hole behind the log start", {
            Edit { starts: vec![(0, Offset(200))], ..add(&disk, 5, vec![part(0, 201, 210)]) }
        }),
    ];
    for (what, edit) in edits {
        let result = manifest.commit(&disk, edit);
        assert!(
            matches!(result, Err(ManifestError::Hole { partition: 0 })),
            "{what}: {:?}",
            result.map(|version| version.number)
        );
    }
    let twice = manifest.commit(&disk, add(&disk, 1, vec![part(0, 100, 110)]));
    assert!(matches!(twice, Err(ManifestError::Twice(FileId(1)))));
    let unordered = manifest.commit(&disk, add(&disk, 6, vec![part(3, 0, 1), part(1, 0, 1)]));
    assert!(matches!(unordered, Err(ManifestError::Senseless(FileId(6)))));
    assert_eq!(data_files(&disk).len(), 1, "files that were refused are gone");
    assert_eq!(**open(&disk).version(), *version);
}

#[test]
fn an_edit_without_effect_makes_no_version() {
    let disk = SimDisk::new(1);
    let mut manifest = open(&disk);
    manifest.commit(&disk, add(&disk, 1, vec![part(0, 50, 100)])).unwrap();
    let edit = Edit { starts: vec![(0, Offset(20))], remove: vec![FileId(9)], ..Edit::default() };
    assert_eq!(manifest.commit(&disk, edit).unwrap().number, 1);
}

#[test]
fn files_below_the_log_start_go_when_nobody_holds_them() {
    let disk = SimDisk::new(1);
    let mut manifest = open(&disk);
    manifest.commit(&disk, add(&disk, 1, vec![part(0, 0, 100), part(1, 0, 5)])).unwrap();
    let held = manifest.commit(&disk, add(&disk, 2, vec![part(0, 100, 200)])).unwrap();
    let starts = |starts: &[(i32, i64)], now| Edit {
        starts: starts.iter().map(|&(partition, start)| (partition, Offset(start))).collect(),
        now: Timestamp(now),
        ..Edit::default()
    };
    let version = manifest.commit(&disk, starts(&[(0, 150)], 10)).unwrap();
    assert_eq!(ids(&version), [1, 2], "the other partition needs the file");
    drop(version);
    let version = manifest.commit(&disk, starts(&[(1, 9)], 20)).unwrap();
    assert_eq!(ids(&version), [2]);
    assert_eq!(version.table_end(1), Some(Offset(9)));
    assert_eq!(manifest.expired(Timestamp(29), 10), []);
    assert_eq!(manifest.expired(Timestamp(30), 10), [], "an older version is held");
    drop(held);
    let expired = manifest.expired(Timestamp(30), 10);
    assert_eq!(expired.iter().map(|expired| expired.id).collect::<Vec<_>>(), [FileId(1)]);
    disk.remove(&expired[0].path).unwrap();
    manifest.forget(&expired);
    assert_eq!(manifest.removed().count(), 0);
    assert_eq!(open(&disk).removed().count(), 0);
    // Rows that go on above a log start that passed the table end.
    let version = manifest.commit(&disk, add(&disk, 3, vec![part(1, 7, 12)])).unwrap();
    assert_eq!(version.table_end(1), Some(Offset(12)));
}

#[test]
fn holders_stay_counted_when_the_disk_is_looked_at_again() {
    let disk = SimDisk::new(1);
    let mut manifest = open(&disk);
    let held = manifest.commit(&disk, add(&disk, 1, vec![part(0, 0, 100)])).unwrap();
    let merged = Edit { remove: vec![FileId(1)], ..add(&disk, 2, vec![part(0, 0, 100)]) };
    disk.inject(Fault::Fail { op: Op::SyncDir, after: 0, errno: 5 });
    let failed = manifest.commit(&disk, merged.clone());
    assert!(matches!(failed, Err(ManifestError::Write { .. })));
    assert!(matches!(manifest.commit(&disk, merged), Err(ManifestError::Unsure)));
    let version = manifest.reopen(&disk).unwrap();
    assert_eq!((ids(&version), version.number), (vec![2], 2), "the rename had happened");
    assert_eq!(manifest.expired(Timestamp(9), 0), []);
    drop(held);
    assert_eq!(manifest.expired(Timestamp(9), 0).len(), 1);
    let lost = add(&disk, 4, vec![part(0, 100, 101)]);
    disk.inject(Fault::Fail { op: Op::Rename, after: 0, errno: 5 });
    assert!(manifest.commit(&disk, lost).is_err());
    disk.inject(Fault::Fail { op: Op::List, after: 0, errno: 5 });
    assert!(manifest.reopen(&disk).is_err() && manifest.is_unsure());
    assert_eq!(ids(&manifest.reopen(&disk).unwrap()), [2], "the rename had not happened");
    assert_eq!(data_files(&disk).len(), 2, "and its file is gone");
    manifest.commit(&disk, add(&disk, 3, vec![part(0, 100, 101)])).unwrap();
}

#[test]
fn a_power_loss_at_any_step_leaves_the_table_before_or_after() {
    let prepare = || {
        let disk = SimDisk::new(3);
        let mut manifest = open(&disk);
        for at in 0..35 {
            manifest
                .commit(&disk, add(&disk, at, vec![part(0, at as i64, at as i64 + 1)]))
                .unwrap();
        }
        (disk, manifest)
    };
    let change = |disk: &SimDisk, manifest: &mut Manifest| {
        let remove = (0..20).map(FileId).collect();
        let edit = Edit { remove, ..add(disk, 50, vec![part(0, 0, 20)]) };
        let merged = manifest.commit(disk, edit).map(|_| ());
        merged.and_then(|()| manifest.commit(disk, add(disk, 51, vec![part(0, 35, 40)])).map(drop))
    };
    let (disk, mut manifest) = prepare();
    let before = disk.ops();
    change(&disk, &mut manifest).unwrap();
    let steps = disk.ops() - before;
    assert!(steps > 10, "{steps}");
    for (step, seed) in (0..steps).flat_map(|step| (0..8).map(move |seed| (step, seed))) {
        let (disk, mut manifest) = prepare();
        disk.inject(Fault::Stop { at: disk.ops() + step });
        assert!(change(&disk, &mut manifest).is_err());
        let disk = disk.crash(&mut Rng::new(seed));
        let mut again = open(&disk);
        let number = again.version().number;
        assert!((35..=37).contains(&number), "step {step}, seed {seed}");
        let mut named = again.contents.files.values().chain(again.removed().map(|(file, _)| file));
        let is_whole = |file: &Arc<TableFile>| {
            disk.cached(&file.path).is_some_and(|bytes| bytes == b"columns")
        };
        assert!(named.all(is_whole), "step {step}, seed {seed}");
        drop(named);
        let known = again.contents.files.len() + again.removed().count();
        assert_eq!(data_files(&disk).len(), known, "step {step}, seed {seed}: no orphans");
        again.commit(&disk, add(&disk, 99, vec![part(8, 0, 1)])).unwrap();
        assert_eq!(**open(&disk).version(), **again.version());
    }
}

#[test]
fn damage_and_what_is_missing_are_named() {
    let disk = SimDisk::new(1);
    let mut manifest = open(&disk);
    for at in 0..3 {
        manifest.commit(&disk, add(&disk, at, vec![part(0, at as i64, at as i64 + 1)])).unwrap();
    }
    let path = |number| dir().join("manifest").join(Name::Delta(number).to_string());
    let bent = disk.fork();
    bent.damage(&path(3), 70, &[0xee]);
    match Manifest::open(&bent, dir(), TOPIC).unwrap_err() {
        ManifestError::Damaged { path: named, damage: Damage::Checksum } => {
            assert_eq!(named, path(3));
        }
        other => panic!("{other}"),
    }
    let other = Manifest::open(&disk, dir(), Uuid::from_u128(8)).unwrap_err();
    assert!(matches!(other, ManifestError::Damaged { damage: Damage::Topic(TOPIC), .. }));
    disk.remove(&path(2)).unwrap();
    match Manifest::open(&disk, dir(), TOPIC).unwrap_err() {
        ManifestError::Missing { path: named } => assert_eq!(named, path(2)),
        other => panic!("{other}"),
    }
}
