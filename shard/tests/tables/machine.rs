//! A table under random work and faults, beside the model of what it should hold.
//!
//! The log is a list of batches here: what a feed gives never changes, whatever the table does.

use crate::model::{Partition, Row};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;
use shard::batch::{place, BatchBuilder, Codec, Marker, MarkerKind, NewRecord};
use shard::disk::sim::{Fault, Op, Rng, SimDisk};
use shard::disk::Disk;
use shard::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use shard::log::{ColdError, Compaction};
use shard::table::file::{FileReader, Scan};
use shard::table::schema::column;
use shard::table::{
    columnarise, trim_due, unlink, upkeep_due, Batches, Edit, FileId, JobError, LogStarts,
    Manifest, ManifestError, Site, Source, TableSettings, Upkeep, Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use uuid::Uuid;

const TOPIC: Uuid = Uuid::from_u128(3);
const PARTITIONS: u64 = 3;
const GRACE_MS: i64 = 50;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

pub struct Shape {
    pub seed: u64,
    /// Calls fail and processes die now and then.
    pub faults: bool,
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub files: usize,
    pub merges: usize,
    pub compactions: usize,
    pub trims: usize,
    pub dropped_rows: usize,
    pub unlinked: usize,
    pub held: usize,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.files += other.files;
        self.merges += other.merges;
        self.compactions += other.compactions;
        self.trims += other.trims;
        self.dropped_rows += other.dropped_rows;
        self.unlinked += other.unlinked;
        self.held += other.held;
    }
}

/// A partition's log: batches that never go.
#[derive(Clone, Default)]
struct Log {
    batches: Vec<Stored>,
    rows: BTreeMap<i64, Row>,
    start: i64,
    end: i64,
}

#[derive(Clone)]
struct Stored {
    base: i64,
    end: i64,
    append_time: i64,
    bytes: Bytes,
}

/// A feed out of that log.
struct Feed(VecDeque<(Timestamp, Bytes)>);

impl Batches for Feed {
    fn next(&mut self, _: usize) -> Result<Option<Vec<(Timestamp, Bytes)>>, ColdError> {
        Ok(self.0.pop_front().map(|batch| vec![batch]))
    }
}

type Rows = BTreeMap<i64, Row>;
type Model = BTreeMap<i32, Partition>;

/// Somebody who reads an older version.
struct Holder {
    version: Arc<Version>,
    /// What it read the first time.
    rows: BTreeMap<i32, Rows>,
}

pub struct Machine {
    shape: Shape,
    rng: Rng,
    now: i64,
    disk: SimDisk,
    manifest: Option<Manifest>,
    logs: BTreeMap<i32, Log>,
    model: Model,
    holders: Vec<Holder>,
    /// A job that has ended, not yet committed.
    waiting: Option<Edit>,
    ids: u64,
    is_compacted: bool,
    stop_at: Option<u64>,
    tally: Tally,
}

fn dir() -> PathBuf {
    PathBuf::from("/data/tables/t")
}

fn compaction() -> Compaction {
    Compaction { dirty_percent_min: 30, lag_min_ms: 40, lag_max_ms: 400, delete_retention_ms: 150 }
}

fn settings() -> TableSettings {
    TableSettings {
        file_bytes_max: 4000,
        merge_files: 3,
        compaction_buffer_bytes: 400,
        ..TableSettings::default()
    }
}

impl Machine {
    pub fn new(shape: Shape) -> Machine {
        let disk = SimDisk::new(shape.seed);
        let (manifest, _) = Manifest::open(&disk, &dir(), TOPIC).expect("no table yet");
        Machine {
            rng: Rng::new(shape.seed),
            now: 1000,
            disk,
            manifest: Some(manifest),
            logs: (0..PARTITIONS as i32).map(|partition| (partition, Log::default())).collect(),
            model: Model::new(),
            holders: Vec::new(),
            waiting: None,
            ids: shape.seed << 32,
            is_compacted: !shape.seed.is_multiple_of(2),
            stop_at: None,
            tally: Tally::default(),
            shape,
        }
    }

    pub fn ops(&self) -> u64 {
        self.disk.ops()
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub fn stop_at(&mut self, at: u64) {
        self.disk.inject(Fault::Stop { at });
        self.stop_at = Some(at);
    }

    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.shape.faults && self.rng.one_in(6) {
                self.inject();
            }
            self.step();
            if self.disk.is_stopped() {
                self.die();
            }
            self.check();
        }
        if self.stop_at.is_none() {
            self.settle();
        }
    }

    fn version(&self) -> Arc<Version> {
        self.manifest.as_ref().expect("open between steps").version().clone()
    }

    fn inject(&mut self) {
        let after = self.rng.below(8);
        let ops = [Op::Append, Op::Sync, Op::SyncDir, Op::Rename, Op::Create, Op::Remove, Op::Read];
        match self.rng.below(3) {
            0 => self.disk.inject(Fault::Stop { at: self.disk.ops() + 2 * after }),
            _ => {
                let op = ops[self.rng.below(ops.len() as u64) as usize];
                let errno = if self.rng.one_in(2) { EIO } else { ENOSPC };
                self.disk.inject(Fault::Fail { op, after, errno });
            }
        }
    }

    fn step(&mut self) {
        self.now += self.rng.below(30) as i64;
        match self.rng.below(16) {
            0..=4 => self.append(),
            5..=7 => self.columnarise(),
            8..=9 => self.upkeep(),
            10 => self.trim(),
            11 => self.raise_start(),
            12 => self.expire(),
            13 => self.hold(),
            _ => self.commit_waiting(),
        }
    }

    /// A batch with gaps in it, or a marker, or a gap before it.
    fn append(&mut self) {
        let rng = &mut self.rng;
        let partition = rng.below(PARTITIONS) as i32;
        let log = self.logs.get_mut(&partition).expect("all are there");
        let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
        let base = log.end + if rng.one_in(5) { 3 } else { 0 };
        let append_time = self.now;
        let mut end = base;
        let mut batch = if rng.one_in(6) {
            end += 1;
            let marker = Marker { kind: MarkerKind::Commit, coordinator_epoch: 0 };
            marker.build(ProducerId(5), ProducerEpoch(0), Timestamp(append_time))
        } else {
            let codec = codecs[rng.below(5) as usize];
            let mut builder = BatchBuilder::new().codec(codec);
            for _ in 0..rng.between(1, 6) {
                let key = (!rng.one_in(12)).then(|| vec![b'k', b'0' + rng.below(8) as u8]);
                let bytes = rng.below(60) as usize;
                let value = (!rng.one_in(5)).then(|| vec![rng.below(256) as u8; bytes]);
                let timestamp = rng.below(5000) as i64 - 1;
                builder.push(&NewRecord {
                    timestamp: Timestamp(timestamp),
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &[],
                });
                log.rows.insert(end, Row { key, value, timestamp, append_time });
                end += 1;
                if rng.one_in(8) {
                    builder.skip(2);
                    end += 2;
                }
            }
            builder.build()
        };
        place(&mut batch, Offset(base), LeaderEpoch(1));
        log.batches.push(Stored { base, end, append_time, bytes: batch.into() });
        log.end = end;
    }

    fn starts(&self) -> LogStarts {
        self.logs.iter().map(|(partition, log)| (*partition, Offset(log.start))).collect()
    }

    fn columnarise(&mut self) {
        let version = self.version();
        let mut sources = Vec::new();
        let logs = self.logs.clone();
        for (&partition, log) in &logs {
            let end = version.table_end(partition).unwrap_or(Offset(0)).0;
            let from = end.max(log.start);
            let ends: Vec<i64> =
                log.batches.iter().map(|batch| batch.end).filter(|end| *end > from).collect();
            if ends.is_empty() || self.rng.one_in(3) {
                continue;
            }
            let until = ends[self.rng.below(ends.len() as u64) as usize];
            let batches = log.batches.iter().filter(|b| b.end > from && b.base < until);
            let feed = batches.map(|b| (Timestamp(b.append_time), b.bytes.clone())).collect();
            sources.push(Source {
                partition,
                from: Offset(from),
                until: Offset(until),
                aborted: Default::default(),
                batches: Feed(feed),
            });
        }
        if let Some(mut edit) = self.work(|site| columnarise(site, sources)) {
            self.tally.files += edit.add.len();
            edit.starts = self.starts().into_iter().collect();
            self.commit(edit);
        }
    }

    fn upkeep(&mut self) {
        if self.waiting.is_some() {
            return;
        }
        let compaction = compaction();
        let rules = self.is_compacted.then_some(&compaction);
        let now = Timestamp(self.now);
        let due = upkeep_due(&self.version(), &self.starts(), rules, &settings(), now);
        let Some(job) = due else { return };
        match &job {
            Upkeep::Compact(_) => self.tally.compactions += 1,
            Upkeep::Merge(_) => self.tally.merges += 1,
        }
        self.waiting = self.work(|site| job.run(site));
    }

    fn trim(&mut self) {
        if self.waiting.is_some() {
            return;
        }
        if let Some(job) = trim_due(&self.version(), &self.starts()) {
            self.tally.trims += 1;
            self.waiting = self.work(|site| job.run(site));
        }
    }

    /// Runs a job; what it leaves when it fails must be nothing that counts.
    fn work(&mut self, job: impl FnOnce(&mut Site<'_>) -> Result<Edit, JobError>) -> Option<Edit> {
        let (disk, dir, stop) = (self.disk.clone(), dir(), AtomicBool::new(false));
        let ids = &mut self.ids;
        let mut next_id = || {
            *ids += 1;
            FileId(*ids)
        };
        let now = Timestamp(self.now);
        let mut site = Site { disk: &disk, dir: &dir, now, next_id: &mut next_id, stop: &stop };
        match job(&mut site) {
            Ok(edit) => Some(edit),
            Err(error) => {
                assert!(self.may_fail(), "without a fault: {error}");
                None
            }
        }
    }

    fn may_fail(&self) -> bool {
        self.shape.faults || self.disk.is_stopped()
    }

    fn raise_start(&mut self) {
        let partition = self.rng.below(PARTITIONS) as i32;
        let log = self.logs.get_mut(&partition).expect("all are there");
        let end = (log.start + 12).min(log.end);
        log.start = self.rng.between(log.start as u64, end as u64) as i64;
        let starts = vec![(partition, Offset(log.start))];
        self.commit(Edit { starts, now: Timestamp(self.now), ..Edit::default() });
    }

    fn commit_waiting(&mut self) {
        if let Some(edit) = self.waiting.take() {
            self.commit(edit);
        }
    }

    /// What the model makes of an edit.
    fn after(&mut self, edit: &Edit) -> (Model, usize) {
        let mut model = self.model.clone();
        let mut dropped = 0;
        if edit.remove.is_empty() {
            for part in edit.add.iter().flat_map(|file| &file.parts) {
                let log = &self.logs[&part.partition].rows;
                let rows = log.range(part.first.0..part.end.0);
                let into = &mut model.entry(part.partition).or_default().rows;
                into.extend(rows.map(|(offset, row)| (*offset, row.clone())));
            }
        }
        for &(partition, end) in &edit.compacted {
            let of = edit.starts.iter().find(|(of, _)| *of == partition);
            let start = of.map_or(0, |(_, start)| start.0);
            let retention = compaction().delete_retention_ms;
            let into = model.entry(partition).or_default();
            dropped += into.compact(start, end.0, edit.now.0, retention);
        }
        (model, dropped)
    }

    fn commit(&mut self, edit: Edit) {
        let (after, dropped) = self.after(&edit);
        let Some(mut manifest) = self.manifest.take() else { return };
        let before = manifest.version().number;
        match manifest.commit(&self.disk, edit) {
            Ok(_) => {
                self.tally.dropped_rows += dropped;
                self.model = after;
                self.manifest = Some(manifest);
            }
            Err(ManifestError::Write { .. }) if self.may_fail() => {
                while manifest.is_unsure() && !self.disk.is_stopped() {
                    self.disk.heal();
                    manifest.reopen(&self.disk).expect("a disk that works");
                }
                if self.disk.is_stopped() {
                    manifest = self.reborn();
                }
                if manifest.version().number > before {
                    self.model = after;
                }
                self.manifest = Some(manifest);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn expire(&mut self) {
        let Some(mut manifest) = self.manifest.take() else { return };
        let expired = manifest.expired(Timestamp(self.now), GRACE_MS);
        let (gone, failure) = unlink(&self.disk, expired);
        assert!(failure.is_none() || self.may_fail(), "{failure:?}");
        self.tally.unlinked += gone.len();
        manifest.forget(&gone);
        self.manifest = Some(manifest);
    }

    /// Somebody begins to read, or somebody who began long ago reads again and goes.
    fn hold(&mut self) {
        if self.holders.len() >= 3 {
            let holder = self.holders.remove(0);
            self.tally.held += 1;
            if let Some(rows) = self.read_all(&holder.version, &LogStarts::new()) {
                assert_eq!(rows, holder.rows, "version {}", holder.version.number);
            }
        }
        let version = self.version();
        if let Some(rows) = self.read_all(&version, &LogStarts::new()) {
            self.holders.push(Holder { version, rows });
        }
    }

    /// The process is gone: killed, or with it the power.
    fn die(&mut self) {
        let manifest = self.reborn();
        self.manifest = Some(manifest);
    }

    /// Another process opens the table.
    fn reborn(&mut self) -> Manifest {
        self.holders.clear();
        self.waiting = None;
        self.disk = match self.rng.below(3) {
            0 => self.disk.kill(),
            _ => self.disk.crash(&mut self.rng),
        };
        let opened = Manifest::open(&self.disk, &dir(), TOPIC);
        let (manifest, version) = opened.unwrap_or_else(|error| panic!("{error}"));
        let named = version.files().len() + manifest.removed().count();
        let in_data = |path: &&PathBuf| path.starts_with(dir().join("data"));
        let files = self.disk.files();
        let files: Vec<&PathBuf> = files.iter().filter(in_data).collect();
        assert_eq!(files.len(), named, "orphans or missing files: {files:?}");
        manifest
    }

    /// All rows of the version in force are those of the model.
    fn check(&mut self) {
        let (version, starts) = (self.version(), self.starts());
        let Some(got) = self.read_all(&version, &starts) else { return };
        for (partition, log) in &self.logs {
            let nothing = Partition::default();
            let model = self.model.get(partition).unwrap_or(&nothing);
            let expect: Rows =
                model.rows.range(log.start..).map(|(at, row)| (*at, row.clone())).collect();
            let got = got.get(partition).cloned().unwrap_or_default();
            let version = version.number;
            assert_eq!(got, expect, "partition {partition} of version {version}");
            if !self.is_compacted {
                let end = self.version().table_end(*partition).unwrap_or(Offset(0)).0;
                let all = log.rows.range(log.start..end.max(log.start));
                assert!(expect.iter().eq(all), "partition {partition}: the model lost a record");
            }
        }
    }

    /// Every row above the starts; `None` if a call fails as it was told to.
    fn read_all(&self, version: &Version, starts: &LogStarts) -> Option<BTreeMap<i32, Rows>> {
        let mut all = BTreeMap::new();
        for partition in version.partitions() {
            let start = starts.get(&partition).copied().unwrap_or(Offset(0));
            let mut rows = Rows::new();
            for at in version.parts(partition) {
                let from = at.part.first.max(start);
                match read(&self.disk, &at.file.path, partition, from) {
                    Ok(read) => rows.extend(read),
                    Err(error) => {
                        assert!(self.may_fail(), "without a fault: {error}");
                        return None;
                    }
                }
            }
            all.insert(partition, rows);
        }
        Some(all)
    }

    /// With a disk that works, everything ends up in the table, in few files, and nothing else is
    /// left in its directory.
    fn settle(&mut self) {
        self.disk.heal();
        self.commit_waiting();
        for (partition, log) in self.logs.clone() {
            let end = self.version().table_end(partition).unwrap_or(Offset(0)).0;
            let from = end.max(log.start);
            let batches = log.batches.iter().filter(|batch| batch.end > from);
            let feed = batches.map(|b| (Timestamp(b.append_time), b.bytes.clone())).collect();
            let (from, until) = (Offset(from), Offset(log.end));
            let aborted = Default::default();
            let batches = Feed(feed);
            let sources = vec![Source { partition, from, until, aborted, batches }];
            let mut edit = self.work(|site| columnarise(site, sources)).expect("no fault");
            edit.starts = self.starts().into_iter().collect();
            self.commit(edit);
        }
        self.now += 1000;
        let mut jobs = 0;
        while self.upkeep_once() {
            jobs += 1;
            assert!(jobs < 200, "upkeep finds no end");
        }
        // What failed jobs could not remove goes now.
        self.die();
        self.now += GRACE_MS;
        self.expire();
        self.check();
        let version = self.version();
        let names = self.disk.list(&dir().join("data")).map_or(0, |files| files.len());
        assert_eq!(names, version.files().len(), "files that nobody needs stay");
        for (partition, log) in &self.logs {
            let end = version.table_end(*partition).unwrap_or(Offset(0)).0;
            assert_eq!(end, log.end, "partition {partition}");
        }
    }

    fn upkeep_once(&mut self) -> bool {
        self.upkeep();
        let is_due = self.waiting.is_some();
        self.commit_waiting();
        is_due
    }
}

fn read(
    disk: &SimDisk,
    path: &Path,
    partition: i32,
    from: Offset,
) -> Result<Rows, shard::table::TableError> {
    let mut rows = Rows::new();
    let reader = FileReader::open(disk, path)?;
    for batch in reader.read(&Scan { from, ..Scan::all(partition) })? {
        let batch = batch?;
        let blob = |at: usize| batch.column(at).as_binary::<i32>();
        let long = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        let (keys, values) = (blob(column::KEY).iter(), blob(column::VALUE).iter());
        let times = long(column::TIMESTAMP_MS).iter().zip(long(column::APPEND_TIME_MS));
        let places = long(column::OFFSET).iter().zip(times);
        for ((key, value), (&offset, (&timestamp, &append_time))) in keys.zip(values).zip(places) {
            let (key, value) = (key.map(Vec::from), value.map(Vec::from));
            let twice = rows.insert(offset, Row { key, value, timestamp, append_time });
            assert!(twice.is_none(), "offset {offset} of {partition} twice");
        }
    }
    Ok(rows)
}
