//! Opening a log: from its files to a `Log` that takes appends. Blocks; runs before serving.
//!
//! `chain` says which segments count, `replay` what is in them. What lies beyond the last mark is
//! copied into a new segment that appears whole or not at all; only then is the old tail cut off.
//! The page cache may hold what the disk has lost, so nothing beyond the mark is trusted in place.
//!
//! Worked example: segment 7 holds the last mark at byte 9,000 and whole frames up to 12,000, then
//! a torn one. The frames in 9,000..12,000 become segment 8, whose link says "7 ends at 9,000".
//! Segment 9 takes the appends. Whatever the rest of 7 holds does not exist any more.

use super::chain::{io_error, read_chain, Chain, OpenError};
use super::commit::Commit;
use super::cooling::Cooling;
use super::engine::Log;
use super::frame::PAGE_BYTES;
use super::header::{segment_name, Predecessor, SegmentHeader, FRAMES_START};
use super::jobs::{affordable, give_up_reserve, Work};
use super::keeping::{Checkpoints, Retention};
use super::mover::Mover;
use super::outcome::Now;
use super::partitions::Partitions;
use super::purge::Purge;
use super::replay::{Cut, Replay, Walked};
use super::segments::{IndexFile, Live, Open, Sealed, Segments};
use super::settings::LogSpec;
use super::side::{side_name, Sides};
use super::upkeep::{Next, Prefault, State, ROOM_BESIDE};
use crate::disk::{Disk, MapWriter};
use crate::ids::{DenseId, Offset, Position, SegmentNumber, Sequence};
use crate::table::cache::Blocks;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Files that were allocated further than this past their end are cut.
const SLACK_BYTES: u64 = 1 << 20;

/// Memory for what is read out of tables, until it is shared with others. Bytes.
const BLOCKS_BYTES: usize = 64 << 20;

/// What opening a log came across, for the broker's log file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub segments: usize,
    pub partitions: usize,
    /// Frames read, not taken from a checkpoint or an index file.
    pub frames: u64,
    /// Frames beyond the last mark that were copied before serving.
    pub copied_frames: u64,
    pub copied_bytes: u64,
    /// Where the log had been written further than it now goes.
    pub cuts: Vec<Cut>,
    /// Files removed: abandoned branches, prepared segments, temporary files.
    pub removed: Vec<String>,
    /// Offsets of partitions that are not in the log: they are in the table, or gone. The log knows
    /// which once it is told of the table (`Log::missing`).
    pub missing: Vec<(DenseId, Range<Offset>)>,
}

impl Log {
    /// Opens the log in `spec.dir`, which is made if it is not there. `seed` must be random.
    pub fn open(
        disk: Arc<dyn Disk>,
        spec: LogSpec,
        seed: u64,
        now: Now,
    ) -> Result<(Log, Recovered), OpenError> {
        disk.create_dir(&spec.dir).map_err(io_error("creating", &spec.dir))?;
        let chain = read_chain(&*disk, &spec)?;
        let mut replay = Replay::start(&spec, &chain)?;
        replay.run(&*disk, &chain)?;
        let mut opening = Opening {
            disk: disk.clone(),
            spec: &spec,
            number: chain.next_number,
            random: seed,
            now,
            last: None,
            recovered: Recovered {
                frames: replay.frames,
                cuts: replay.cuts.clone(),
                ..Recovered::default()
            },
        };
        opening.last = opening.settled_end(&replay);
        opening.drop_unsettled(&mut replay);
        opening.copy_tail(&chain, &mut replay)?;
        replay.measure(&*disk);
        let open = opening.open_segment(replay.settled_sequence)?;
        opening.remove_leftovers(&chain, &replay)?;
        let Opening { number, random, recovered, .. } = opening;
        let parts = Parts { chain, open, number, random };
        Ok(assemble(disk, spec.clone(), replay.finish(), parts, recovered, now))
    }
}

/// What is left of a replay once the tail has been copied.
struct Finished {
    partitions: Vec<(DenseId, crate::partition::Partition)>,
    walked: Vec<Walked>,
    next_dense: u32,
    settled_sequence: Sequence,
    covered: Position,
}

impl Replay<'_> {
    fn finish(self) -> Finished {
        let covered = self.covered();
        Finished {
            partitions: self.partitions.into_iter().collect(),
            walked: self.walked,
            next_dense: self.next_dense,
            settled_sequence: self.settled_sequence,
            covered,
        }
    }
}

pub(super) struct Opening<'a> {
    pub disk: Arc<dyn Disk>,
    pub spec: &'a LogSpec,
    /// The next unused segment number.
    number: SegmentNumber,
    random: u64,
    pub now: Now,
    /// What the next segment links to.
    pub last: Option<Predecessor>,
    pub recovered: Recovered,
}

impl Opening<'_> {
    /// Where the settled frames end; none when not even the header of the oldest segment is known
    /// to be durable: the next segment is then the first.
    fn settled_end(&self, replay: &Replay<'_>) -> Option<Predecessor> {
        if replay.mark < replay.settled {
            return None;
        }
        let at = replay.walked.iter().find(|w| w.stamp.number == replay.settled.segment)?;
        let (number, epoch) = (at.stamp.number, at.stamp.epoch);
        Some(Predecessor { number, epoch, end: replay.settled.offset })
    }

    /// Segments behind the settled end do not exist any more: what counts of them is in the tail.
    fn drop_unsettled(&mut self, replay: &mut Replay<'_>) {
        let settled = replay.settled.segment;
        let trusted = self.last.is_some();
        replay.walked.retain(|walked| trusted && walked.stamp.number <= settled);
        if let Some(last) = replay.walked.last_mut() {
            last.stamp.end = replay.settled.offset;
            last.stamp.next_sequence = replay.settled_sequence;
        }
    }

    pub(super) fn fresh(&mut self) -> (SegmentNumber, u64) {
        let number = self.number;
        self.number = SegmentNumber(number.0 + 1);
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number.0 | 1);
        let epoch = self.random ^ (self.random >> 33);
        (number, epoch.max(1))
    }

    pub(super) fn header(
        &self,
        number: SegmentNumber,
        epoch: u64,
        first: Sequence,
    ) -> SegmentHeader {
        SegmentHeader {
            log: self.spec.id,
            cluster: self.spec.cluster,
            number,
            epoch,
            predecessor: self.last,
            run: self.spec.run,
            first_sequence: first,
            created: self.now.wall,
            mark: self.last.map_or(Position::default(), |last| Position {
                segment: last.number,
                offset: last.end,
            }),
            hollow: None,
        }
    }

    /// Makes the segment that takes the appends of this run; its header is durable.
    fn open_segment(&mut self, first: Sequence) -> Result<Open, OpenError> {
        let (number, epoch) = self.fresh();
        let header = self.header(number, epoch, first);
        let path = self.spec.dir.join(segment_name(number));
        let wanted = u64::from(self.spec.settings.segment_bytes_min);
        let mut made = self.create_map(&path, wanted);
        if matches!(&made, Err(error) if error.kind() == std::io::ErrorKind::StorageFull) {
            // A full disk must not keep the broker from starting: topics can be deleted then.
            give_up_reserve(&*self.disk, &self.spec.dir)
                .map_err(io_error("removing the reserve of", &self.spec.dir))?;
            made = self.create_map(&path, 0);
        }
        let writer = made.map_err(io_error("creating", &path))?;
        let mut open = Open::start(writer, &header);
        let map = open.writer.map().clone();
        let synced = self.disk.sync_map(&map, 0, u64::from(FRAMES_START));
        synced.map_err(io_error("syncing", &path))?;
        let ahead = (1u64 << 20).min(map.bytes() as u64);
        if self.disk.prefault(&map, 0, ahead).is_ok() {
            open.prefaulted = ahead as u32;
        }
        Ok(open)
    }

    fn create_map(&self, path: &Path, wanted: u64) -> std::io::Result<MapWriter> {
        let space = self.disk.space(&self.spec.dir)?;
        self.disk.create_map(path, affordable(space, ROOM_BESIDE, wanted))
    }

    /// Removes what no link leads to, now that the new segment's link is durable, and gives back
    /// the space behind the end of the segment that was open.
    fn remove_leftovers(&mut self, chain: &Chain, replay: &Replay<'_>) -> Result<(), OpenError> {
        let kept = |number| replay.walked.iter().any(|w| w.stamp.number == number);
        let abandoned = chain.links.iter().filter(|link| !kept(link.header.number));
        let abandoned: Vec<&Path> = abandoned.map(|link| link.path.as_path()).collect();
        let orphans: Vec<_> = chain
            .sides
            .iter()
            .filter(|file| !replay.walked.iter().any(|walked| walked.refers_to(**file)))
            .map(|&file| self.spec.dir.join(side_name(file)))
            .collect();
        let leftovers = chain.leftovers.iter().chain(&orphans).map(|path| path.as_path());
        for path in leftovers.chain(abandoned) {
            match self.disk.remove(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(io_error("removing", path))?,
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.recovered.removed.push(name);
        }
        for walked in &replay.walked {
            let link = chain.links.iter().find(|l| l.header.number == walked.stamp.number);
            let Some(link) =
                link.filter(|l| l.file_bytes > u64::from(walked.stamp.end) + SLACK_BYTES)
            else {
                continue;
            };
            let end = u64::from(walked.stamp.end);
            self.disk.truncate(&link.path, end).map_err(io_error("truncating", &link.path))?;
        }
        Ok(())
    }
}

/// What the opened log is put together from besides the replayed state.
struct Parts {
    chain: Chain,
    open: Open,
    number: SegmentNumber,
    random: u64,
}

fn assemble(
    disk: Arc<dyn Disk>,
    spec: LogSpec,
    finished: Finished,
    parts: Parts,
    mut recovered: Recovered,
    now: Now,
) -> (Log, Recovered) {
    let mut segments = Segments::default();
    // Above the files there are and those that old segments speak of: a removed segment may come
    // back after a power loss without its side files, and will take them along when it goes again.
    let named = finished.walked.iter().flat_map(Walked::sides);
    let next_side = parts.chain.sides.iter().chain(named).max().map_or(1, |file| file + 1);
    // A batch in a file may have been carried: the file goes with the last frame that names it.
    let holders: FxHashMap<u64, SegmentNumber> = (finished.walked.iter())
        .flat_map(|walked| walked.sides().iter().map(|file| (*file, walked.stamp.number)))
        .collect();
    for walked in finished.walked {
        segments.add(Sealed {
            header: walked.header,
            stamp: walked.stamp,
            writer: None,
            index_file: match walked.index {
                Some(_) => IndexFile::Missing,
                None => IndexFile::Written,
            },
            sides: (walked.sides().iter().copied())
                .filter(|file| holders.get(file) == Some(&walked.stamp.number))
                .collect(),
            index: walked.index.map(Arc::new),
            live: Live::default(),
            being_emptied: false,
        });
    }
    let mut partitions = Partitions::default();
    for (id, mut partition) in finished.partitions {
        let log_start = partition.log_start();
        let last = partition.runs.last().map(|run| run.end);
        let log_end = partition.log_end().max(last.unwrap_or(log_start)).max(log_start);
        partition.restore(log_start, log_end);
        if log_end > log_start {
            partition.arrivals.note(log_start, now.wall);
        }
        recovered.missing.extend(partition.holes().into_iter().map(|(from, end)| (id, from..end)));
        for run in partition.runs.iter() {
            let sealed = segments.get_mut(run.segment).expect("runs lie in walked segments");
            sealed.live.take(run);
        }
        partitions.insert(id, partition);
    }
    partitions.reserve_below(finished.next_dense);
    recovered.segments = segments.count();
    recovered.partitions = partitions.iter().count();
    let chain = parts.chain;
    let start = parts.open.position();
    let files = chain.checkpoint_files;
    let mut log = Log {
        partitions,
        segments,
        next: Next {
            state: State::None,
            number: parts.number,
            bytes: u64::from(spec.settings.segment_bytes_min),
            bytes_min: u64::from(PAGE_BYTES) + ROOM_BESIDE,
            prefaulted: 0,
        },
        open: parts.open,
        next_sequence: finished.settled_sequence,
        commit: Commit::new(start, now.mono_us),
        checkpoints: Checkpoints::new(finished.covered, chain.next_checkpoint, files),
        prefault: Prefault::new(),
        retention: Retention::default(),
        cooling: Cooling::default(),
        mover: Mover::new(now.mono_us),
        purge: Purge::default(),
        blocks: Arc::new(Blocks::new(disk.clone(), BLOCKS_BYTES)),
        fresh: Vec::new(),
        jobs: Vec::new(),
        random: parts.random,
        sides: Arc::new(Sides::new(disk.clone(), &spec, next_side)),
        disk,
        spec,
    };
    log.write_missing_indexes();
    log.push_job(Work::Reserve);
    if log.segments.count() > 0 {
        log.checkpoints.want();
    }
    (log, recovered)
}
