//! Whole logs on the real disk, driven in one thread: what a caller sees, and what a restart finds.
//!
//! Crashes at every step are the simulation's; here is one plain case of each behaviour.

use super::*;
use crate::batch::{BatchBuilder, BatchHeader, NewRecord, Valid};
use crate::disk::RealDisk;
use crate::ids::{DenseId, LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// A directory that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("basalt-log-{}", Uuid::new_v4());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

struct Driven {
    log: Log,
    now: Now,
    purged: Vec<Uuid>,
}

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes_min: 1 << 20,
        segment_bytes_max: 1 << 20,
        retention_check_ms: 10,
        ..LogSettings::default()
    }
}

fn open(dir: &Path, run: i32, settings: LogSettings) -> Result<(Driven, Recovered), OpenError> {
    open_as(dir, run, settings, false)
}

fn open_as(
    dir: &Path,
    run: i32,
    settings: LogSettings,
    salvage: bool,
) -> Result<(Driven, Recovered), OpenError> {
    let now = Now { wall: Timestamp(1_000_000), mono_us: 0 };
    let spec = LogSpec {
        dir: dir.to_path_buf(),
        id: LogId(0),
        cluster: Uuid::from_u128(1),
        run: LeaderEpoch(run),
        settings,
        salvage,
    };
    let (log, recovered) = Log::open(Arc::new(RealDisk), spec, run as u64 + 17, now)?;
    Ok((Driven { log, now, purged: Vec::new() }, recovered))
}

fn key(partition: i32) -> PartitionKey {
    PartitionKey { view: 0, topic: Uuid::from_u128(5), partition }
}

fn kept_for_ever(flush: Flush) -> PartitionSettings {
    PartitionSettings {
        flush,
        retention_ms: None,
        retention_bytes: None,
        internal: false,
        compaction: None,
    }
}

fn any() -> crate::batch::Rules {
    crate::batch::Rules {
        message_bytes_max: 1 << 20,
        timestamps: crate::batch::TimestampRule::Create {
            before_max_ms: i64::MAX,
            after_max_ms: i64::MAX,
        },
        keys_required: false,
        zstd_allowed: true,
        limits: crate::batch::Limits::default(),
    }
}

fn batch_of(values: &[&[u8]], time: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(&NewRecord {
            timestamp: Timestamp(time),
            key: Some(b"key"),
            value: Some(value),
            headers: &[],
        });
    }
    builder.build()
}

impl Driven {
    fn append(&mut self, id: DenseId, batch: &[u8]) -> Appended {
        let valid = Valid::built(batch).unwrap();
        for _ in 0..1000 {
            match self.log.append(id, &valid, self.now) {
                Err(AppendError::Busy) => self.work(),
                other => return other.unwrap(),
            };
        }
        panic!("the log stays busy");
    }

    /// Lets time pass and runs what is due until nothing is.
    fn work(&mut self) -> Vec<DenseId> {
        let mut moved = Vec::new();
        for _ in 0..10 {
            self.now.mono_us += 2_000;
            self.log.tick(self.now);
            for job in self.log.take_jobs() {
                let progress = self.log.finish(job.run(), self.now);
                assert!(progress.failure.is_none(), "{:?}", progress.failure);
                moved.extend(progress.moved);
                self.purged.extend(progress.purged);
            }
        }
        moved
    }

    fn stop(mut self) {
        while !self.log.stop_step(self.now) {
            for job in self.log.take_jobs() {
                self.log.finish(job.run(), self.now);
            }
        }
    }

    /// All batches of a partition from `from` on, read from the file, not the map.
    fn read_cold(&self, id: DenseId, from: i64) -> Vec<BatchHeader> {
        let mut found = Vec::new();
        let mut at = Offset(from);
        loop {
            let ask = ReadAsk {
                from: at,
                bytes_max: 1 << 20,
                whole_first: true,
                until: Until::HighWatermark,
            };
            let plan = self.log.plan_read(id, &ask).unwrap();
            let Some(cold) = plan.cold else { return found };
            let bytes = cold.run().unwrap();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (header, _, behind) = BatchHeader::split(rest).unwrap();
                at = header.end_offset();
                found.push(header);
                rest = behind;
            }
        }
    }
}

#[test]
fn a_commit_moves_the_high_watermark_and_an_os_append_does_at_once() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let slow = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    let fast = log.log.attach(key(1), kept_for_ever(Flush::Os));
    let first = log.append(slow, &batch_of(&[b"a", b"b"], 5));
    let second = log.append(fast, &batch_of(&[b"c"], 5));
    assert_eq!((first.base_offset, first.committed), (Offset(0), false));
    assert_eq!((second.base_offset, second.committed), (Offset(0), true));
    assert_eq!(log.log.offsets(slow).unwrap().high_watermark, Offset(0));
    assert_eq!(log.log.offsets(fast).unwrap().high_watermark, Offset(1));
    assert_eq!(log.work(), [slow]);
    assert_eq!(log.log.offsets(slow).unwrap().high_watermark, Offset(2));
    assert!(log.log.committed() >= first.position);
}

#[test]
fn records_survive_a_clean_stop_and_a_kill() {
    for clean in [true, false] {
        let folder = Folder::new();
        let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
        let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
        for _ in 0..10 {
            log.append(id, &batch_of(&[b"one", b"two"], 7));
        }
        log.work();
        log.append(id, &batch_of(&[b"three"], 8));
        match clean {
            true => log.stop(),
            false => drop(log),
        }
        let (mut log, recovered) = open(&folder.0, 2, settings()).unwrap();
        assert_eq!(recovered.copied_frames == 0, clean, "{recovered:?}");
        assert_eq!(log.log.attach(key(0), kept_for_ever(Flush::Commit)), id);
        let offsets = log.log.offsets(id).unwrap();
        assert_eq!((offsets.log_start, offsets.log_end), (Offset(0), Offset(21)));
        let read = log.read_cold(id, 0);
        assert_eq!(read.iter().map(|b| b.base_offset.0).collect::<Vec<_>>()[9..], [18, 20]);
        let more = log.append(id, &batch_of(&[b"four"], 9));
        assert_eq!(more.base_offset, Offset(21));
        let epochs = (1..=3).map(|epoch| log.log.end_of_epoch(id, LeaderEpoch(epoch)));
        let (one, two) = ((LeaderEpoch(1), Offset(21)), (LeaderEpoch(2), Offset(22)));
        assert_eq!(epochs.collect::<Vec<_>>(), [Some(one), Some(two), None]);
    }
}

#[test]
fn many_segments_come_back_from_indexes_and_checkpoints() {
    let folder = Folder::new();
    let value = vec![7; 50_000];
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let ids: Vec<_> =
        (0..3).map(|p| log.log.attach(key(p), kept_for_ever(Flush::Commit))).collect();
    for round in 0..100 {
        log.append(ids[round % 3], &batch_of(&[&value], round as i64));
        log.work();
    }
    drop(log);
    let (mut log, recovered) = open(&folder.0, 2, settings()).unwrap();
    assert!(recovered.segments > 4, "{recovered:?}");
    assert!(recovered.frames < 60, "sealed segments are not scanned: {recovered:?}");
    for (partition, id) in ids.iter().enumerate() {
        let id = *id;
        assert_eq!(log.log.attach(key(partition as i32), kept_for_ever(Flush::Commit)), id);
        let count = if partition == 0 { 34 } else { 33 };
        let read = log.read_cold(id, 0);
        let bases: Vec<_> = read.iter().map(|batch| batch.base_offset.0).collect();
        assert_eq!(bases, (0..count).collect::<Vec<i64>>());
    }
}

#[test]
fn a_checkpoint_does_not_wait_for_a_mark_that_nobody_syncs() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Os));
    log.append(id, &batch_of(&[b"last"], 1));
    while log.log.committed() == log.log.end() || log.log.unsynced_bytes() > 0 {
        log.now.mono_us += 300_000;
        log.work();
        assert!(log.now.mono_us < 60_000_000, "no mark is written");
    }
    log.log.checkpoint();
    log.work();
    assert!(log.log.is_settled());
    drop(log);
    let (log, _) = open(&folder.0, 2, settings()).unwrap();
    assert_eq!(log.read_cold(id, 0).len(), 1);
}

#[test]
fn retention_frees_segments() {
    let folder = Folder::new();
    let value = vec![7; 50_000];
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let limited =
        PartitionSettings { retention_bytes: Some(300_000), ..kept_for_ever(Flush::Commit) };
    let id = log.log.attach(key(0), limited);
    for round in 0..200 {
        log.append(id, &batch_of(&[&value], round));
        log.work();
    }
    log.work();
    let (segments, bytes) = log.log.size();
    assert!(segments <= 4 && bytes < 4 << 20, "{segments} segments, {bytes} bytes");
    let offsets = log.log.offsets(id).unwrap();
    assert!(offsets.log_start > Offset(180), "{offsets:?}");
    drop(log);
    let (log, _) = open(&folder.0, 2, settings()).unwrap();
    let again = log.log.offsets(id).unwrap();
    assert_eq!((again.log_start, again.log_end), (offsets.log_start, offsets.log_end));
}

#[test]
fn small_batches_are_read_in_one_go_and_all_limits_hold() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    let other = log.log.attach(key(1), kept_for_ever(Flush::Commit));
    for time in 0..300 {
        log.append(id, &batch_of(&[b"small"], time));
        if time % 50 == 7 {
            log.append(other, &batch_of(&[&[b'x'; 9_000]], time));
            log.work();
        }
    }
    log.work();
    log.stop();
    let (log, _) = open(&folder.0, 2, settings()).unwrap();
    let one = batch_of(&[b"small"], 0).len();
    for (bytes_max, whole_first, expect) in [
        (1 << 20, false, 300),
        (one * 10, false, 10),
        (one * 10 + one - 1, false, 10),
        (1, true, 1),
        (1, false, 0),
    ] {
        let ask = ReadAsk { from: Offset(0), bytes_max, whole_first, until: Until::HighWatermark };
        let bytes = log.log.plan_read(id, &ask).unwrap().cold.unwrap().run().unwrap();
        assert_eq!(bytes.len(), one * expect, "{bytes_max}");
    }
}

#[test]
fn a_read_of_a_segment_that_has_gone_says_so() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    log.append(id, &batch_of(&[b"one"], 5));
    log.stop();
    let (log, _) = open(&folder.0, 2, settings()).unwrap();
    let plan = || {
        let until = Until::HighWatermark;
        let ask = ReadAsk { from: Offset(0), bytes_max: 100, whole_first: true, until };
        let seek = log.log.plan_time(id, TimeTarget::Greatest, until).unwrap();
        (log.log.plan_read(id, &ask).unwrap().cold.unwrap(), seek)
    };
    let path = folder.0.join(segment_name(crate::ids::SegmentNumber(1)));
    let whole = std::fs::read(&path).unwrap();
    let check = |removed: bool| {
        let (read, seek) = plan();
        let outcomes = [read.run().map(|_| ()), seek.run().map(|_| ())];
        let all = outcomes.iter().all(|o| matches!(o, Err(ColdError::Removed)) == removed);
        assert!(all, "{outcomes:?}");
    };
    check(false);
    std::fs::write(&path, &whole[..SEGMENT_HEADER_BYTES]).unwrap();
    check(true);
    std::fs::remove_file(&path).unwrap();
    check(true);
    std::fs::write(&path, vec![1; whole.len()]).unwrap();
    check(false);
}

#[test]
fn a_copy_of_warm_batches_whose_segment_has_gone_says_so() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Os));
    let batch = batch_of(&[b"one"], 5);
    log.append(id, &batch);
    let until = Until::HighWatermark;
    let ask = ReadAsk { from: Offset(0), bytes_max: 1000, whole_first: true, until };
    let plan = || log.log.plan_read(id, &ask).unwrap();
    assert!(plan().cold.is_none(), "it is warm");
    assert_eq!(plan().copy(&RealDisk).unwrap().len(), batch.len());
    let path = folder.0.join(segment_name(crate::ids::SegmentNumber(1)));
    let gone = plan();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(gone.copy(&RealDisk), Err(ColdError::Removed)));
}

#[test]
fn a_gap_stays_one_after_a_kill() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let compacted = PartitionSettings {
        compaction: Some(Compaction::default()),
        ..kept_for_ever(Flush::Commit)
    };
    let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    let other = log.log.attach(key(1), kept_for_ever(Flush::Commit));
    log.append(id, &batch_of(&[b"kept"], 1));
    let mut keyless = BatchBuilder::new();
    keyless.push(&NewRecord { value: Some(b"goes"), ..NewRecord::default() });
    log.append(id, &keyless.build());
    for round in 0..30 {
        log.append(other, &batch_of(&[&[7; 50_000]], round));
        log.work();
    }
    log.append(id, &batch_of(&[b"new"], 2));
    log.log.attach(key(0), compacted);
    for _ in 0..20 {
        log.work();
    }
    assert_eq!(log.log.space_counts().cleanings, 1);
    let bases = |log: &Driven| {
        let read = log.read_cold(id, 0);
        read.iter().map(|batch| batch.base_offset.0).collect::<Vec<_>>()
    };
    drop(log);
    for run in [2, 3] {
        let (mut log, recovered) = open(&folder.0, run, settings()).unwrap();
        assert_eq!((bases(&log), recovered.missing), (vec![0, 2], Vec::new()));
        log.log.attach(key(0), compacted);
        log.work();
    }
}

#[test]
fn a_deleted_topic_is_reported_when_no_segment_names_it() {
    let folder = Folder::new();
    let value = vec![7; 50_000];
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let limited =
        PartitionSettings { retention_bytes: Some(300_000), ..kept_for_ever(Flush::Commit) };
    let stays = log.log.attach(key(0), limited);
    let other = PartitionKey { topic: Uuid::from_u128(6), ..key(0) };
    let goes = log.log.attach(other, kept_for_ever(Flush::Commit));
    for id in [stays, goes, stays] {
        log.append(id, &batch_of(&[&value], 1));
        log.work();
    }
    log.log.detach(goes);
    log.log.report_purged(other.topic);
    log.log.report_purged(key(0).topic);
    for _ in 0..15 {
        log.append(stays, &batch_of(&[&value], 2));
        log.work();
    }
    assert!(log.purged.is_empty(), "its segment is still there");
    drop(log);
    let (mut log, _) = open(&folder.0, 2, settings()).unwrap();
    assert_eq!(log.log.find(&other), None);
    log.log.report_purged(other.topic);
    let stays = log.log.attach(key(0), limited);
    for _ in 0..60 {
        log.append(stays, &batch_of(&[&value], 2));
        log.work();
    }
    assert_eq!(log.purged, [other.topic]);
}

#[test]
fn records_are_found_by_time() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Os));
    for time in [100, 200, 300, 250] {
        log.append(id, &batch_of(&[b"x"], time));
    }
    let at = |log: &Driven, target| {
        let seek = log.log.plan_time(id, target, Until::HighWatermark)?;
        seek.run().unwrap().map(|found| (found.offset.0, found.timestamp.0))
    };
    let after = |time| TimeTarget::AtOrAfter(Timestamp(time));
    assert_eq!(at(&log, after(0)), Some((0, 100)));
    assert_eq!(at(&log, after(101)), Some((1, 200)));
    assert_eq!(at(&log, after(300)), Some((2, 300)));
    assert_eq!(at(&log, after(301)), None);
    assert_eq!(at(&log, TimeTarget::Greatest), Some((2, 300)));
}

#[test]
fn damage_below_the_mark_is_refused_and_salvage_cuts_there() {
    let folder = Folder::new();
    let (mut log, _) = open(&folder.0, 1, settings()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    for time in 0..20 {
        log.append(id, &batch_of(&[b"some value"], time));
        log.work();
    }
    log.stop();
    let segment = folder.0.join(segment_name(crate::ids::SegmentNumber(1)));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let Err(OpenError::Damaged { path, at, .. }) = open(&folder.0, 2, settings()) else {
        panic!("damage below the mark must be refused");
    };
    assert_eq!(path, segment);
    assert!(at <= 5_000 && at > 4_096, "{at}");
    let (log, recovered) = open_as(&folder.0, 2, settings(), true).unwrap();
    let [cut] = &recovered.cuts[..] else { panic!("one cut: {recovered:?}") };
    assert_eq!((&cut.path, cut.at), (&segment, at));
    assert!(cut.bytes > 1_000, "{cut:?}");
    let left = log.log.offsets(id).unwrap().log_end;
    assert!(left > Offset(0) && left < Offset(20), "{left}");
}

#[test]
fn a_large_batch_lives_in_a_file_until_its_segment_goes() {
    let folder = Folder::new();
    let settings = LogSettings { inline_bytes_max: 1000, ..settings() };
    let (mut log, _) = open(&folder.0, 1, settings.clone()).unwrap();
    let id = log.log.attach(key(0), kept_for_ever(Flush::Commit));
    let large = batch_of(&[&[b'x'; 2000]], 5);
    let small = batch_of(&[b"y"], 6);
    let sides = log.log.sides();
    assert!(sides.is_large(large.len()) && !sides.is_large(small.len()));
    log.append(id, &small);
    let side = sides.write(&large, &any(), log.now.wall).unwrap();
    let appended = log.log.append_side(id, &side, log.now).unwrap();
    assert_eq!(appended.base_offset, Offset(1));
    log.append(id, &small);
    sides.write(&large, &any(), log.now.wall).unwrap();
    log.work();
    let ask = |from| ReadAsk {
        from: Offset(from),
        bytes_max: 10,
        whole_first: true,
        until: Until::HighWatermark,
    };
    assert_eq!(log.log.plan_read(id, &ask(0)).unwrap().slices.len(), 1);
    let plan = log.log.plan_read(id, &ask(1)).unwrap();
    let bytes = plan.cold.expect("read by a worker").run().unwrap();
    let (header, body, _) = BatchHeader::split(&bytes).unwrap();
    assert_eq!((header.base_offset, header.crc_with(body)), (Offset(1), header.crc));
    for run in [2, 3] {
        drop(log);
        log = open(&folder.0, run, settings.clone()).unwrap().0;
        let read = log.read_cold(id, 0);
        assert_eq!(read.iter().map(|b| b.base_offset.0).collect::<Vec<_>>(), [0, 1, 2]);
        log.work();
    }
    let sides = std::fs::read_dir(&folder.0).unwrap();
    let sides =
        sides.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("side"));
    assert_eq!(sides.count(), 1, "the orphan is gone");
}
