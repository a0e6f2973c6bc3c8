//! Bugs and damage put in on purpose: the simulation must find them.
//!
//! Three bugs a log like this could have, made by a disk that lies or by patched files, never by
//! switches in the product; and damage of every kind below the mark, which must be refused or
//! reported and never read as if nothing were wrong.

use crate::history::{Batch, Ended, Read, Violation};
use crate::machine::{Machine, Plant, Shape, Tally};
use crate::reader;
use crate::tables;
use crate::{for_seeds, number};
use shard::disk::sim::{Fault, Rng, SimDisk, PAGE_BYTES, SECTOR_BYTES};
use shard::disk::{Disk, Entry, MapFile, MapWriter, ReadFile, Space, WriteFile};
use shard::ids::{DenseId, Offset, PartitionKey, Sequence};
use shard::log::{FrameHeader, Kind, Log, LogSpec, Now, Scanner, SegmentHeader};
use shard::log::{FRAMES_START, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const SEEDS: u64 = 200;

/// A disk on which a segment ends at the first frame that is followed by padding: what a recovery
/// sees that takes the page start after a sync for a lost page.
pub struct BlindToPadding(pub SimDisk);

struct Blind {
    file: Arc<dyn ReadFile>,
    /// Zeros are read from here on.
    end: u64,
}

impl ReadFile for Blind {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(offset, into)?;
        let seen = self.end.saturating_sub(offset).min(count as u64) as usize;
        into[seen..count].fill(0);
        Ok(count)
    }
}

/// Where the first frame ends that is followed by padding.
fn first_padding(bytes: &[u8]) -> u64 {
    let mut at = FRAMES_START as usize;
    loop {
        let payload = bytes.get(at..at + 4).and_then(|length| length.first_chunk());
        let Some(payload) = payload.map(|length| u32::from_le_bytes(*length)) else { break };
        let kind = bytes.get(at + 4).copied().unwrap_or(0);
        if kind == 0 {
            break;
        }
        at = (at + FRAME_HEADER_BYTES + payload as usize).next_multiple_of(8);
    }
    at as u64
}

impl Disk for BlindToPadding {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.0.open(path)?;
        if path.extension().is_none_or(|extension| extension != "seg") {
            return Ok(file);
        }
        let end = first_padding(&self.0.cached(path).unwrap_or_default());
        Ok(Arc::new(Blind { file, end }))
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list_dirs(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_dir(dir)
    }

    fn create_map(&self, path: &Path, bytes: u64) -> io::Result<MapWriter> {
        self.0.create_map(path, bytes)
    }

    fn prefault(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        self.0.prefault(map, from, to)
    }

    fn sync_map(&self, map: &MapFile, from: u64, to: u64) -> io::Result<()> {
        self.0.sync_map(map, from, to)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.0.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.0.truncate(path, bytes)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.0.space(dir)
    }
}

/// Runs a plant under many seeds; says how many of them found it.
fn found_by(seeds: u64, each: impl Fn(u64) -> Option<Violation> + Sync) -> u64 {
    let found = AtomicU64::new(0);
    for_seeds(seeds, |seed| {
        if each(seed).is_some() {
            found.fetch_add(1, Ordering::Relaxed);
        }
        Tally::default()
    });
    found.into_inner()
}

fn planted(seed: u64, plant: Plant) -> Option<Violation> {
    let shape = Shape { seed, steps: 400, faults: true, space: false, plant };
    let machine = Machine::new(shape);
    machine.and_then(|mut machine| machine.run()).err()
}

#[test]
fn a_sync_that_lied_is_found() {
    let found = found_by(SEEDS, |seed| planted(seed, Plant::LyingSync));
    assert!(found > SEEDS / 4, "found by {found} of {SEEDS} seeds");
}

#[test]
fn padding_taken_for_a_lost_page_is_found() {
    let found = found_by(SEEDS, |seed| planted(seed, Plant::BlindToPadding));
    assert!(found > SEEDS / 4, "found by {found} of {SEEDS} seeds");
}

/// A machine after a history of ends, and at last a power loss.
fn crashed(seed: u64) -> Machine {
    let shape = Shape { seed, steps: 250, faults: true, space: false, plant: Plant::None };
    let mut machine = Machine::new(shape).expect("an empty disk opens");
    machine.run().expect("no bug is planted yet");
    machine.shape.faults = false;
    machine
}

/// A batch that the last crash un-wrote, with where its log would go on.
struct Ghost {
    key: PartitionKey,
    id: DenseId,
    batch: Batch,
    dir: PathBuf,
}

/// None when the last crash took nothing.
fn ghost(machine: &Machine) -> Option<Ghost> {
    let (key, batch) = machine.history.lost.iter().find(|(key, batch)| {
        let partition = machine.history.partitions.get(key);
        partition.is_some_and(|partition| partition.log_end() == batch.base)
    })?;
    let slot = machine.slots.iter().find(|slot| slot.keys.contains(key))?;
    let id = *slot.live.as_ref()?.ids.get(key)?;
    Some(Ghost { key: *key, id, batch: batch.clone(), dir: slot.spec.dir.clone() })
}

/// Puts the batch behind the log's end, as whole as if it had been appended there: what a recovery
/// leaves that goes on in a branch the page cache still shows.
fn plant_ghost(disk: &SimDisk, ghost: &Ghost) {
    let (path, header) = newest_segment(disk, &ghost.dir);
    let (epoch, mark) = (header.epoch, header.mark);
    let file = disk.open(&path).expect("just listed");
    let mut scanner = Scanner::new(&*file, epoch, FRAMES_START, header.first_sequence);
    while scanner.next_frame().expect("nothing fails now").is_some() {}
    let Ghost { key, id, batch, .. } = ghost;
    let mut bind = key.view.to_le_bytes().to_vec();
    bind.extend(key.topic.as_bytes());
    bind.extend(key.partition.to_le_bytes());
    let frame = |kind, payload: &[u8], after: u64| {
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind,
            sequence: Sequence(scanner.next_sequence().0 + after),
            partition: *id,
            leader_epoch: batch.epoch,
            base_offset: if after == 0 { Offset(0) } else { batch.base },
            append_time: batch.append_time,
            mark,
            carried: None,
        };
        let covered = header.covered_bytes();
        let mut bytes = header.encode(epoch, &payload[..covered]).to_vec();
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let mut bytes = frame(Kind::Bind, &bind, 0);
    bytes.extend(frame(Kind::Data, &batch.bytes, 1));
    disk.damage(&path, u64::from(scanner.end().next_multiple_of(8)), &bytes);
}

fn header_of(segment: &[u8]) -> Option<SegmentHeader> {
    let bytes: &[u8; SEGMENT_HEADER_BYTES] = segment.first_chunk()?;
    SegmentHeader::decode(bytes).ok()
}

/// The segment that took the last appends of a log.
fn newest_segment(disk: &SimDisk, dir: &Path) -> (PathBuf, SegmentHeader) {
    let files = disk.files().into_iter().rev().filter(|path| path.starts_with(dir));
    let mut headed = files.filter(|path| path.extension().is_some_and(|end| end == "seg"));
    headed
        .find_map(|path| Some((path.clone(), header_of(&disk.cached(&path)?)?)))
        .expect("an opened log has a segment with a header")
}

#[test]
fn a_ghost_of_an_abandoned_branch_is_found() {
    let found = found_by(SEEDS, |seed| {
        let mut machine = crashed(seed);
        let ghost = ghost(&machine).filter(|ghost| ghost.batch.bytes.len() < 30_000)?;
        machine.stop().expect("no bug is planted yet");
        plant_ghost(&machine.disk, &ghost);
        let result = machine.reopen();
        assert!(matches!(result, Err(Violation::Ghost { .. })), "not found: {result:?}");
        result.err()
    });
    assert!(found > SEEDS / 10, "{found} ghosts in {SEEDS} seeds");
}

/// Damages one random file of the logs in one random way, and says how. Tables prove their own
/// bytes.
///
/// Not the two ways that leave no trace: the last segment gone, with all marks in it, or without
/// its header, as if it had never been used.
fn damage(disk: &SimDisk, rng: &mut Rng) -> String {
    let mut files = disk.files();
    files.retain(|path| !path.ends_with("reserve") && !path.starts_with(tables::ROOT));
    let path = &files[rng.below(files.len() as u64) as usize];
    let last = path.parent().is_some_and(|dir| newest_segment(disk, dir).0 == *path);
    let bytes = disk.cached(path).unwrap_or_default();
    // Mostly where something has been written.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let at = rng.below(used.max(1) as u64);
    let (what, count) = match rng.below(5) {
        0 if last => return format!("{} left alone", path.display()),
        0 => {
            disk.remove(path).expect("just listed");
            return format!("{} removed", path.display());
        }
        1 => ("zeros", SECTOR_BYTES),
        2 => ("zeros", PAGE_BYTES),
        3 => ("bad sector", SECTOR_BYTES),
        _ => ("flip", 1),
    };
    let from = at - at % count as u64;
    let to = (from + count as u64).min(bytes.len() as u64);
    let place = format!("{what} at {from}..{to} of {}", path.display());
    match what {
        _ if from >= to || (what == "zeros" && last && from == 0) => {}
        "zeros" => disk.damage(path, from, &vec![0; (to - from) as usize]),
        "flip" => disk.damage(path, from, &[bytes[from as usize] ^ 1 << rng.below(8)]),
        _ => disk.inject(Fault::BadSectors { path: path.clone(), from, to }),
    }
    place
}

/// A machine that stopped in order, with damage done to its files since.
fn damaged(seed: u64) -> (Machine, String) {
    let mut machine = crashed(seed);
    for _ in 0..200 {
        machine.step().expect("no bug is planted yet");
    }
    machine.stop().expect("no bug is planted yet");
    assert_eq!(machine.slots[0].ended, Ended::Stopped);
    let place = damage(&machine.disk, &mut Rng::new(seed));
    (machine, place)
}

/// Opens all logs by cutting them at the damage, and holds what is left against the oracle: less
/// may be there, but nothing else.
fn salvage(machine: &mut Machine) -> Result<(), Violation> {
    let tables = tables::open(&machine.disk, machine.history.partitions.keys())?;
    for slot in &machine.slots {
        let mut spec = slot.spec.clone();
        spec.salvage = true;
        let opened = Log::open(Arc::new(machine.disk.clone()), spec, 1, machine.now);
        let (mut log, _) =
            opened.map_err(|error| Violation::Refused { error: error.to_string() })?;
        for &key in &slot.keys {
            let partition = &machine.history.partitions[&key];
            let id = log.attach(key, partition.settings);
            if let Some(manifest) = tables.get(&key) {
                log.set_table(id, manifest.version().clone());
            }
            // A batch that cannot be read is reported, as before.
            let Ok((_, batches)) = reader::whole(&log, id, &machine.disk, &mut machine.rng) else {
                continue;
            };
            if partition.settings.compaction.is_some() {
                continue;
            }
            let appended = |read: &Read| {
                read.from_table || partition.batches.iter().any(|b| b.bytes == read.bytes)
            };
            if let Some(read) = batches.iter().find(|read| !appended(read)) {
                let base = read.bytes.first_chunk().map_or(-1, |base| i64::from_be_bytes(*base));
                return Err(Violation::Changed { key, base: Offset(base) });
            }
        }
        log.accept_missing(machine.now);
        rest(&mut log, machine.now);
        drop(log);
        machine.disk = machine.disk.kill();
        let spec = LogSpec { salvage: false, ..slot.spec.clone() };
        let again = Log::open(Arc::new(machine.disk.clone()), spec, 2, machine.now);
        let (mut log, _) =
            again.map_err(|error| Violation::Refused { error: error.to_string() })?;
        tables::tell(&tables, &mut log)?;
        let missing = |(id, _)| log.missing(id).into_iter().next();
        let found = log.partitions().find_map(missing);
        if let Some(range) = found {
            return Err(Violation::Refused { error: format!("it is without {range:?} again") });
        }
    }
    Ok(())
}

/// Brings a salvaged log to rest, as the command does.
fn rest(log: &mut Log, mut now: Now) {
    log.checkpoint();
    let mut stopped = false;
    while !(stopped && log.is_settled()) {
        now.mono_us += 1_000;
        log.tick(now);
        stopped = log.stop_step(now);
        for job in log.take_jobs() {
            log.finish(job.run(), now);
        }
    }
}

#[test]
fn a_damaged_log_opens_by_an_explicit_act_and_shows_nothing_else() {
    let salvaged = found_by(number("BASALT_SIM_SEEDS").unwrap_or(SEEDS), |seed| {
        let (mut machine, place) = damaged(seed);
        let refused = machine.reopen().err()?;
        machine.end(Ended::Killed);
        let outcome = salvage(&mut machine);
        assert_eq!(outcome, Ok(()), "{place}, first {refused:?}");
        Some(refused)
    });
    assert!(salvaged > SEEDS / 8, "{salvaged} refused");
}

#[test]
fn damage_below_the_mark_is_refused_or_reported_and_never_read() {
    let (refused, reported, harmless) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    for_seeds(number("BASALT_SIM_SEEDS").unwrap_or(SEEDS * 3), |seed| {
        let (mut machine, place) = damaged(seed);
        let outcome = machine.reopen();
        match &outcome {
            Err(Violation::Refused { .. }) => refused.fetch_add(1, Ordering::Relaxed),
            Err(Violation::Failed { call: "cold read" | "time seek", .. }) => {
                reported.fetch_add(1, Ordering::Relaxed)
            }
            Ok(()) => harmless.fetch_add(1, Ordering::Relaxed),
            Err(violation) => panic!("{place}: {violation:?}\n{:?}", machine.disk),
        };
        machine.tally
    });
    println!("refused {refused:?}, reported {reported:?}, harmless {harmless:?}");
    assert!(refused.into_inner() > SEEDS / 4 && reported.into_inner() > 0);
}
