//! Jobs one by one: what they write, and what they leave when they cannot.

use super::*;
use crate::batch::{place, BatchBuilder, NewRecord};
use crate::disk::sim::SimDisk;
use crate::ids::LeaderEpoch;
use crate::log::Compaction;
use crate::table::file::FileReader;
use crate::table::schema::column;
use crate::table::{
    columnarise, upkeep_due, Batches, Edit, LogStarts, Manifest, Source, TableSettings, Upkeep,
    Version,
};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;
use std::sync::Arc;
use uuid::Uuid;

const DIR: &str = "/tables/t";

/// A feed of batches, and of an error behind them.
struct Feed(VecDeque<Bytes>, Option<ColdError>);

impl Batches for Feed {
    fn next(&mut self, _: usize) -> Result<Option<Vec<(Timestamp, Bytes)>>, ColdError> {
        match (self.0.pop_front(), self.1.take()) {
            (Some(batch), error) => {
                self.1 = error;
                Ok(Some(vec![(Timestamp(5), batch)]))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }
}

type Record<'a> = (&'a str, Option<&'a str>);

fn batch(base: i64, records: &[Record<'_>]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (key, value) in records {
        builder.push(&NewRecord {
            timestamp: Timestamp(1),
            key: Some(key.as_bytes()),
            value: value.map(str::as_bytes),
            headers: &[],
        });
    }
    let mut batch = builder.build();
    place(&mut batch, Offset(base), LeaderEpoch(0));
    batch.into()
}

fn source(partition: i32, from: i64, until: i64, batches: Vec<Bytes>) -> Source<Feed> {
    let (from, until) = (Offset(from), Offset(until));
    let aborted = Default::default();
    Source { partition, from, until, aborted, batches: Feed(batches.into(), None) }
}

/// A table on a disk, with ids in a row.
struct Table {
    disk: SimDisk,
    manifest: Manifest,
    ids: u64,
    now: Timestamp,
    stop: AtomicBool,
}

impl Table {
    fn new() -> Table {
        let disk = SimDisk::new(1);
        let (manifest, _) = Manifest::open(&disk, Path::new(DIR), Uuid::nil()).unwrap();
        Table { disk, manifest, ids: 0, now: Timestamp(10), stop: AtomicBool::new(false) }
    }

    fn work<T>(&mut self, job: impl FnOnce(&mut Site<'_>) -> T) -> T {
        let ids = &mut self.ids;
        let mut next_id = || {
            *ids += 1;
            FileId(*ids)
        };
        let (dir, next_id, stop) = (Path::new(DIR), &mut next_id, &self.stop);
        job(&mut Site { disk: &self.disk, dir, now: self.now, next_id, stop })
    }

    fn commit(&mut self, edit: Edit) -> Arc<Version> {
        self.manifest.commit(&self.disk, edit).unwrap()
    }

    fn columnarise(&mut self, sources: Vec<Source<Feed>>) -> Arc<Version> {
        let edit = self.work(|site| columnarise(site, sources)).unwrap();
        self.commit(edit)
    }

    fn due(&self, rules: Option<&Compaction>, settings: &TableSettings) -> Option<Upkeep> {
        upkeep_due(self.manifest.version(), &LogStarts::new(), rules, settings, self.now)
    }

    fn rows(&self, partition: i32) -> Vec<(i64, String)> {
        let mut rows = Vec::new();
        for at in self.manifest.version().parts(partition) {
            let reader = FileReader::open(&self.disk, &at.file.path).unwrap();
            for batch in reader.read(&Scan::all(partition)).unwrap() {
                let batch = batch.unwrap();
                let offsets = batch.column(column::OFFSET).as_primitive::<Int64Type>().values();
                let blob = |at: usize| batch.column(at).as_binary::<i32>().iter();
                let text = |blob: Option<&[u8]>| match blob {
                    Some(blob) => String::from_utf8_lossy(blob).into_owned(),
                    None => "∅".to_string(),
                };
                let records = blob(column::KEY).zip(blob(column::VALUE));
                let text = records.map(|(key, value)| format!("{}={}", text(key), text(value)));
                rows.extend(offsets.iter().copied().zip(text));
            }
        }
        rows
    }

    fn files(&self) -> usize {
        self.disk.files().iter().filter(|path| path.starts_with("/tables/t/data")).count()
    }
}

fn rules() -> Compaction {
    Compaction { dirty_percent_min: 1, delete_retention_ms: 1000, ..Compaction::default() }
}

#[test]
fn the_last_row_of_each_key_stays_and_marks_go_later() {
    let mut table = Table::new();
    let settings = TableSettings::default();
    let first = batch(0, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    table.columnarise(vec![source(0, 0, 3, vec![first])]);
    let compact = |table: &mut Table| {
        let job = table.due(Some(&rules()), &settings).expect("there is something new");
        let edit = table.work(|site| job.run(site)).unwrap();
        table.commit(edit);
        assert_eq!(table.due(Some(&rules()), &settings), None, "once is enough");
    };
    let check = |table: &Table, expect: &[(i64, &str)]| {
        let rows = table.rows(0);
        let rows: Vec<_> = rows.iter().map(|(offset, row)| (*offset, row.as_str())).collect();
        assert_eq!(rows, expect);
    };
    compact(&mut table);
    check(&table, &[(1, "b=1"), (2, "a=2")]);
    let second = batch(3, &[("b", None), ("c", Some("1"))]);
    table.columnarise(vec![source(0, 3, 5, vec![second])]);
    compact(&mut table);
    check(&table, &[(2, "a=2"), (3, "b=∅"), (4, "c=1")]);
    table.now = Timestamp(table.now.0 + 999);
    table.columnarise(vec![source(0, 5, 7, vec![batch(5, &[("c", Some("2")), ("d", Some("1"))])])]);
    compact(&mut table);
    check(&table, &[(2, "a=2"), (3, "b=∅"), (5, "c=2"), (6, "d=1")]);
    table.now = Timestamp(table.now.0 + 1);
    table.columnarise(vec![source(0, 7, 9, vec![batch(7, &[("d", Some("2")), ("e", None)])])]);
    compact(&mut table);
    check(&table, &[(2, "a=2"), (5, "c=2"), (7, "d=2"), (8, "e=∅")]);
    assert_eq!(table.manifest.version().table_end(0), Some(Offset(9)));
}

#[test]
fn a_compaction_that_is_larger_than_a_file_writes_several_without_a_hole() {
    let mut table = Table::new();
    // Of each file something goes: its first key comes again, in the last one even twice.
    let key = |n: i64| match n % 1000 == 0 || n == 3001 {
        true => "again".to_string(),
        false => format!("{n}{}", "x".repeat(4000)),
    };
    for base in (0..4000).step_by(1000) {
        let keys: Vec<String> = (base..base + 1000).map(key).collect();
        let records: Vec<Record<'_>> = keys.iter().map(|key| (key.as_str(), None)).collect();
        let of = |partition| source(partition, base, base + 1000, vec![batch(base, &records)]);
        table.columnarise(vec![of(0), of(1)]);
    }
    let settings = TableSettings { file_bytes_max: 5 << 20, ..TableSettings::default() };
    let job = table.due(Some(&rules()), &settings).expect("all is new");
    let edit = table.work(|site| job.run(site)).unwrap();
    let version = table.commit(edit);
    assert!(version.files().len() >= 4, "{}", version.files().len());
    let sizes = version.files().iter().map(|file| file.facts.raw_bytes());
    assert!(sizes.max().unwrap() <= 5 << 20);
    for partition in 0..2 {
        let offsets: Vec<i64> = table.rows(partition).iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..4000).filter(|n| n % 1000 != 0).collect::<Vec<_>>());
    }
}

#[test]
fn files_from_which_nothing_goes_are_not_written_again() {
    let mut table = Table::new();
    for (base, key) in (0..).zip(["a", "b", "c", "b", "d"]) {
        let records = [(key, Some("x"))];
        table.columnarise(vec![source(0, base, base + 1, vec![batch(base, &records)])]);
    }
    let before = table.manifest.version().clone();
    let job = table.due(Some(&rules()), &TableSettings::default()).expect("all is new");
    let edit = table.work(|site| job.run(site)).unwrap();
    let of = |offset| before.at(0, Offset(offset)).unwrap().file.facts.id;
    assert_eq!(edit.remove, [of(1)]);
    table.commit(edit);
    let offsets: Vec<i64> = table.rows(0).iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0, 2, 3, 4]);
    assert_eq!(table.due(Some(&rules()), &TableSettings::default()), None);
}

#[test]
fn a_batch_that_cannot_be_read_ends_its_partition_and_no_other() {
    let mut table = Table::new();
    let good = |base| batch(base, &[("k", Some("v"))]);
    let mut bent = good(1).to_vec();
    bent[30] ^= 1;
    let bad = source(0, 0, 3, vec![good(0), bent.clone().into(), good(2)]);
    let mut cut = source(1, 0, 3, vec![good(0), good(1)]);
    cut.batches.1 = Some(ColdError::Damaged(7));
    let whole = source(2, 0, 3, vec![good(0), good(1), good(2)]);
    let version = table.columnarise(vec![bad, cut, whole]);
    let ends = [0, 1, 2].map(|partition| version.table_end(partition));
    assert_eq!(ends, [1, 2, 3].map(|end| Some(Offset(end))));
    let alone = table.work(|site| columnarise(site, vec![source(0, 1, 3, vec![bent.into()])]));
    assert!(matches!(alone, Err(JobError::Rows(_))));
    let mut gone = source(1, 2, 9, vec![good(2)]);
    gone.batches.1 = Some(ColdError::Removed);
    let gone = table.work(|site| columnarise(site, vec![gone]));
    assert!(matches!(gone, Err(JobError::Feed(ColdError::Removed))));
    assert_eq!(table.files(), 1, "nothing is left of jobs that failed");
}

#[test]
fn a_job_that_is_told_to_stop_leaves_nothing() {
    let mut table = Table::new();
    for base in 0..8 {
        table.columnarise(vec![source(0, base, base + 1, vec![batch(base, &[("k", None)])])]);
    }
    let merge = table.due(None, &TableSettings::default()).expect("eight small files");
    table.stop.store(true, Ordering::Relaxed);
    assert!(matches!(table.work(|site| merge.clone().run(site)), Err(JobError::Stopped)));
    let again =
        table.work(|site| columnarise(site, vec![source(0, 8, 9, vec![batch(8, &[("k", None)])])]));
    assert!(matches!(again, Err(JobError::Stopped)));
    assert_eq!(table.files(), 8);
    table.stop.store(false, Ordering::Relaxed);
    let raw_bytes = |version: &Version| -> u64 {
        version.files().iter().map(|file| file.facts.raw_bytes()).sum()
    };
    let before = raw_bytes(table.manifest.version());
    let edit = table.work(|site| merge.run(site)).unwrap();
    let version = table.commit(edit);
    assert_eq!((version.files().len(), raw_bytes(&version)), (1, before));
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_merged() {
    let mut table = Table::new();
    for base in 0..20 {
        table.columnarise(vec![source(0, base, base + 1, vec![batch(base, &[("k", None)])])]);
    }
    let settings = TableSettings::default();
    let version = table.manifest.version().clone();
    let bad = version.at(0, Offset(3)).unwrap().file.clone();
    table.disk.damage(&bad.path, 20, &[0xaa; 8]);
    let merge = table.due(None, &settings).expect("many small files");
    let error = table.work(|site| merge.run(site)).unwrap_err();
    assert!(error.to_string().contains(&bad.path.display().to_string()), "{error}");
    assert_eq!(table.files(), 20, "nothing is left of the job");
    table.manifest.note_damage(&error);
    let merge = table.due(None, &settings).expect("many small files");
    let edit = table.work(|site| merge.run(site)).unwrap();
    assert!(!edit.remove.contains(&bad.facts.id));
    let version = table.commit(edit);
    assert_eq!(version.files().len(), 5, "three in front of it, it, and those behind as one");
    assert!(version.is_spoiled(bad.facts.id));
    assert_eq!(table.due(Some(&rules()), &settings), None, "compaction would have to read it");
}
