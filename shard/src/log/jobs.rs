//! The blocking work of a log, as values.
//!
//! `Log` hands out jobs; a caller runs each on any thread of the right lane and gives the outcome
//! back through `Log::finish`. Jobs hold what they need and never touch the log.

use super::carry::{self, CarryError, Item, Load, Place};
use super::checkpoint::{self, CheckpointHeader};
use super::clean::Keys;
use super::header::{index_name, segment_name, SegmentHeader};
use super::index::{IndexStamp, SegmentIndex, Summary};
use super::purge;
use super::segments::Hollowing;
use super::side::side_name;
use crate::disk::{Disk, MapFile, MapWriter, Space};
use crate::ids::{DenseId, Position, SegmentNumber};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Which kind of thread a job belongs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// One thread per log that does nothing else: syncs decide the latency of acks=all.
    Sync,
    /// Segment files and pages, needed soon.
    Prepare,
    /// Everything that can wait.
    Worker,
}

/// A stretch of one mapped segment.
#[derive(Clone, Debug)]
pub struct Stretch {
    pub map: Arc<MapFile>,
    pub from: u64,
    pub to: u64,
}

#[derive(Debug)]
pub(super) enum Work {
    Sync {
        stretches: Vec<Stretch>,
    },
    Prepare {
        number: SegmentNumber,
        bytes_min: u64,
        bytes: u64,
        prefault: u64,
    },
    Discard {
        map: MapWriter,
    },
    Prefault {
        stretch: Stretch,
    },
    WriteIndex {
        index: Arc<SegmentIndex>,
        stamp: IndexStamp,
    },
    WriteCheckpoint {
        path: PathBuf,
        header: CheckpointHeader,
        count: u32,
        body: Vec<u8>,
        replaces: Vec<PathBuf>,
    },
    Delete {
        segments: Vec<SegmentNumber>,
        sides: Vec<u64>,
    },
    /// Replaces segments in a row by one header.
    Hollow(Hollowing),
    /// Lists what a segment holds.
    List {
        place: Place,
    },
    /// Reads what is to be carried.
    Load(Load),
    /// Gathers the keys of what is to be compacted.
    Gather {
        id: DenseId,
        load: Load,
        keys: Keys,
    },
    /// Looks for deleted topics that no segment names.
    LookForTopics {
        places: Vec<Place>,
        topics: BTreeSet<Uuid>,
    },
    /// Keeps some space for indexes and checkpoints on a full disk.
    Reserve,
    /// Unmaps segments that left the warm window; the drop is the work.
    Unmap {
        maps: Vec<MapWriter>,
    },
}

/// One piece of blocking work.
pub struct Job {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) work: Work,
}

/// What became of a job.
#[derive(Debug)]
pub struct Done {
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Synced(io::Result<()>),
    Prepared {
        number: SegmentNumber,
        result: io::Result<MapWriter>,
    },
    Prefaulted {
        result: io::Result<()>,
    },
    IndexWritten {
        number: SegmentNumber,
        result: io::Result<()>,
    },
    CheckpointWritten(io::Result<()>),
    Deleted {
        result: io::Result<()>,
    },
    Hollowed {
        header: SegmentHeader,
        published: io::Result<()>,
        removed: io::Result<()>,
    },
    Listed {
        place: Place,
        result: Result<Vec<Summary>, CarryError>,
    },
    Loaded {
        rest: Load,
        result: Result<Vec<Item>, CarryError>,
    },
    Gathered {
        of: (DenseId, Load, Keys),
        result: Result<bool, CarryError>,
    },
    Unnamed(Vec<Uuid>),
    /// Asked for again in a while, whether it worked or not.
    Reserved {
        _held: bool,
    },
    Unmapped,
    /// The thread that ran the job died on it.
    Panicked,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("dir", &self.dir).field("work", &self.work).finish()
    }
}

impl Done {
    /// Says that a job did not come back. The log trusts nothing it had been doing.
    pub fn panicked() -> Done {
        Done { outcome: Outcome::Panicked, took: Duration::ZERO }
    }

    /// Notes how long the job ran, as its runner saw it: the engine has no clock.
    pub fn timed(self, took: Duration) -> Done {
        Done { took, ..self }
    }

    /// How long the job ran, zero when nobody noted it.
    pub fn took(&self) -> Duration {
        self.took
    }

    pub fn is_sync(&self) -> bool {
        matches!(self.outcome, Outcome::Synced(_))
    }
}

impl Job {
    pub fn lane(&self) -> Lane {
        match self.work {
            Work::Sync { .. } => Lane::Sync,
            Work::Prepare { .. } | Work::Prefault { .. } | Work::Discard { .. } => Lane::Prepare,
            Work::WriteIndex { .. }
            | Work::WriteCheckpoint { .. }
            | Work::Delete { .. }
            | Work::Hollow(_)
            | Work::List { .. }
            | Work::Load(_)
            | Work::Gather { .. }
            | Work::LookForTopics { .. }
            | Work::Reserve
            | Work::Unmap { .. } => Lane::Worker,
        }
    }

    /// Does the work. Blocks.
    pub fn run(self) -> Done {
        let disk = self.disk.clone();
        let outcome = self.work(&*disk);
        Done { outcome, took: Duration::ZERO }
    }

    fn work(self, disk: &dyn Disk) -> Outcome {
        match self.work {
            Work::Sync { stretches } => Outcome::Synced(
                stretches.iter().try_for_each(|s| disk.sync_map(&s.map, s.from, s.to)),
            ),
            Work::Prepare { number, bytes_min, bytes, prefault } => {
                let path = self.dir.join(segment_name(number));
                let made = disk
                    .space(&self.dir)
                    .and_then(|space| disk.create_map(&path, affordable(space, bytes_min, bytes)));
                let result = made.and_then(|map| {
                    let ahead = prefault.min(map.map().bytes() as u64);
                    disk.prefault(map.map(), 0, ahead).map(|()| map)
                });
                Outcome::Prepared { number, result }
            }
            Work::Discard { map } => {
                let result = remove(disk, map.map().path().to_path_buf());
                Outcome::Deleted { result }
            }
            Work::Prefault { stretch: Stretch { map, from, to } } => {
                Outcome::Prefaulted { result: disk.prefault(&map, from, to) }
            }
            Work::WriteIndex { index, stamp } => {
                let path = self.dir.join(index_name(stamp.number));
                let result = publish(disk, &self.dir, &path, &index.encode(&stamp));
                Outcome::IndexWritten { number: stamp.number, result }
            }
            Work::WriteCheckpoint { path, header, count, body, replaces } => {
                let bytes = checkpoint::encode(&header, count, &body);
                let written = publish(disk, &self.dir, &path, &bytes);
                let result = written
                    .and_then(|()| replaces.iter().try_for_each(|old| remove(disk, old.clone())));
                Outcome::CheckpointWritten(result)
            }
            Work::Delete { segments, sides } => {
                let sides = sides.iter().map(|&file| side_name(file));
                let files = segments.iter().flat_map(|&n| [index_name(n), segment_name(n)]);
                let mut names = sides.chain(files);
                let result = names.try_for_each(|name| remove(disk, self.dir.join(name)));
                Outcome::Deleted { result }
            }
            Work::Hollow(hollowing) => hollow(disk, &self.dir, &hollowing),
            Work::List { place } => {
                let result = carry::list(disk, &self.dir, &place);
                Outcome::Listed { place, result }
            }
            Work::Load(mut load) => {
                let result = load.run(disk, &self.dir);
                Outcome::Loaded { rest: load, result }
            }
            Work::Gather { id, mut load, mut keys } => {
                let result = load.gather(&mut keys, disk, &self.dir);
                Outcome::Gathered { of: (id, load, keys), result }
            }
            Work::LookForTopics { places, topics } => {
                Outcome::Unnamed(purge::unnamed(disk, &self.dir, &places, topics))
            }
            Work::Reserve => {
                // Without the space there is no reserve, and the next round asks again.
                Outcome::Reserved { _held: reserve(disk, &self.dir).is_ok() }
            }
            Work::Unmap { maps } => {
                drop(maps);
                Outcome::Unmapped
            }
        }
    }
}

/// First the header stands for all of them, then what it replaces goes.
fn hollow(disk: &dyn Disk, dir: &Path, hollowing: &Hollowing) -> Outcome {
    let Hollowing { header, segments, sides } = hollowing;
    let path = dir.join(segment_name(header.number));
    let published = publish(disk, dir, &path, &header.encode());
    let sides = sides.iter().map(|&file| side_name(file));
    let indexes = segments.iter().map(|&number| index_name(number));
    let others = segments.iter().filter(|number| **number != header.number);
    let mut names = sides.chain(indexes).chain(others.map(|&number| segment_name(number)));
    let removed = match &published {
        Ok(()) => names.try_for_each(|name| remove(disk, dir.join(name))),
        Err(_) => Ok(()),
    };
    Outcome::Hollowed { header: *header, published, removed }
}

/// The file that holds space back, in each log's directory.
const RESERVE_NAME: &str = "reserve";
const RESERVE_BYTES: u64 = 16 << 20;

/// Makes the reserve file when there is none and the disk has room to spare.
fn reserve(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let path = dir.join(RESERVE_NAME);
    if disk.open(&path).is_ok() {
        return Ok(());
    }
    let space = disk.space(dir)?;
    let bytes = RESERVE_BYTES.min(space.total_bytes / 16).next_multiple_of(4096);
    if space.free_bytes < bytes * 4 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    disk.create_map(&path, bytes).map(drop)
}

/// Publishes a file; on a full disk by giving up the reserve.
fn publish(disk: &dyn Disk, dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    match disk.publish(path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            give_up_reserve(disk, dir)?;
            disk.publish(path, bytes)
        }
        other => other,
    }
}

/// Gives the space back that is kept in a log's directory, for what helps a full disk: the next
/// round of retention keeps some again when there is some.
pub fn give_up_reserve(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    remove(disk, dir.join(RESERVE_NAME))
}

/// A segment's size: what is wanted, but at most 1/32 of the free space and at least what the next
/// batch needs.
pub(super) fn affordable(space: Space, bytes_min: u64, bytes: u64) -> u64 {
    const STEP: u64 = 1 << 20;
    let share = (space.free_bytes / 32).next_multiple_of(STEP);
    bytes.min(share).max(STEP.min(bytes)).max(bytes_min)
}

/// Removes a file; one that is gone already is fine.
fn remove(disk: &dyn Disk, path: PathBuf) -> io::Result<()> {
    match disk.remove(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The stretches of the mapped segments between two positions. Whole pages: the first page of a
/// later segment holds its header and goes along.
pub(super) fn stretches<'a>(
    from: Position,
    to: Position,
    maps: impl Iterator<Item = (SegmentNumber, &'a MapWriter)>,
) -> Vec<Stretch> {
    maps.filter(|(number, _)| *number >= from.segment && *number <= to.segment)
        .map(|(number, writer)| Stretch {
            map: writer.map().clone(),
            from: if number == from.segment { u64::from(from.offset) } else { 0 },
            to: if number == to.segment { u64::from(to.offset) } else { writer.published() as u64 },
        })
        .filter(|stretch| stretch.from < stretch.to)
        .collect()
}
