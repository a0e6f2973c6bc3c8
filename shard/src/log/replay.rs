//! The second step of recovery: the frames of the chain, applied to partitions in order.
//!
//! A carried frame or a gap changes where batches lie and nothing else: the last one in the log's
//! order counts, whatever the checkpoint covers. The weights of a run that was carried in part when
//! the process ended are measured again at the end.
//!
//! A frame is *settled* when a mark behind it says that it was durable; settled frames stay where
//! they are. Frames beyond the last mark wait in `tail`: recovery copies them before they count.

use super::chain::{io_error, open_link, Chain, Link, OpenError};
use super::cold::Entries;
use super::directory::Directory;
use super::effect::{entry_of, gap_run, run_of, understand, Effect, Found};
use super::header::{index_name, SegmentHeader, FRAMES_START};
use super::index::{BatchEntry, IndexStamp, SegmentIndex, Summary};
use super::read::wanted;
use super::scan::Scanner;
use super::settings::{Flush, LogSpec, PartitionSettings};
use crate::batch::BatchHeader;
use crate::disk::Disk;
use crate::ids::{DenseId, Offset, PartitionKey, Position, Sequence};
use crate::partition::epochs::EpochHistory;
use crate::partition::producers::Producers;
use crate::partition::{Partition, Run, RunKind};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A segment of the chain that has been gone through.
#[derive(Debug)]
pub(super) struct Walked {
    pub header: SegmentHeader,
    pub stamp: IndexStamp,
    /// Side files from the index file, when that was used.
    pub from_file: Vec<u64>,
    /// `None` when the index file was used.
    pub index: Option<SegmentIndex>,
}

impl Walked {
    /// Numbers of the side files its frames stand for.
    pub fn sides(&self) -> &[u64] {
        self.index.as_ref().map_or(&self.from_file, SegmentIndex::sides)
    }

    pub fn refers_to(&self, file: u64) -> bool {
        self.sides().contains(&file)
    }
}

/// The end of a log was not where its last link or file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub path: std::path::PathBuf,
    /// Where the log ends in that file.
    pub at: u32,
    /// Bytes that had been written behind it and do not exist any more.
    pub bytes: u64,
}

/// State as far as it has been replayed.
pub(super) struct Replay<'a> {
    spec: &'a LogSpec,
    pub partitions: FxHashMap<DenseId, Partition>,
    as_of: FxHashMap<DenseId, Position>,
    covered: Position,
    pub next_dense: u32,
    pub mark: Position,
    /// Frames beyond the last mark.
    pub tail: VecDeque<Found>,
    pub walked: Vec<Walked>,
    /// End of the last settled frame and the sequence after it.
    pub settled: Position,
    pub settled_sequence: Sequence,
    pub cuts: Vec<Cut>,
    pub frames: u64,
}

fn unattached() -> PartitionSettings {
    PartitionSettings {
        flush: Flush::Commit,
        retention_ms: None,
        retention_bytes: None,
        internal: false,
        compaction: None,
    }
}

impl<'a> Replay<'a> {
    /// The state of the checkpoint.
    pub fn start(spec: &'a LogSpec, chain: &Chain) -> Result<Replay<'a>, OpenError> {
        let mut replay = Replay {
            spec,
            partitions: FxHashMap::default(),
            as_of: FxHashMap::default(),
            covered: Position::default(),
            next_dense: 0,
            mark: Position::default(),
            tail: VecDeque::new(),
            walked: Vec::new(),
            settled: Position::default(),
            settled_sequence: Sequence(1),
            cuts: Vec::new(),
            frames: 0,
        };
        let Some(checkpoint) = &chain.checkpoint else {
            return Ok(replay);
        };
        replay.covered = checkpoint.header.covered;
        replay.mark = replay.covered;
        replay.next_dense = checkpoint.header.next_dense;
        for entry in &checkpoint.entries {
            replay.as_of.insert(entry.dense, entry.as_of);
            // A checkpoint is written when all it saw is durable.
            replay.mark = replay.mark.max(entry.as_of);
            if entry.detached {
                continue;
            }
            let path = spec.dir.join(super::checkpoint::name(checkpoint.header.id));
            let damaged = OpenError::Damaged { path, at: 0, mark: entry.as_of };
            let mut partition = Partition::new(entry.key, unattached());
            let states = Producers::decode(&entry.producers).ok();
            let epochs = EpochHistory::decode(&entry.epochs).ok();
            let (Some(producers), Some(epochs)) = (states, epochs) else {
                return Err(damaged);
            };
            if entry.log_start > entry.hot_start || entry.hot_start > entry.log_end {
                return Err(damaged);
            }
            partition.producers = producers;
            partition.epochs = epochs;
            partition.last_position = entry.last_position;
            partition.restore(entry.log_start, entry.log_end);
            partition.restore_hot_start(entry.hot_start);
            replay.partitions.insert(entry.dense, partition);
        }
        Ok(replay)
    }

    /// Everything before it was durable when the checkpoint was written.
    pub fn covered(&self) -> Position {
        self.covered
    }

    pub fn key_of(&self, id: DenseId) -> Option<PartitionKey> {
        self.partitions.get(&id).map(|partition| partition.key)
    }

    /// Goes through the whole chain. On success `tail` holds what lies beyond the last mark.
    pub fn run(&mut self, disk: &dyn Disk, chain: &Chain) -> Result<(), OpenError> {
        let links = &chain.links;
        if let Some(first) = links.first() {
            self.settled = Position { segment: first.header.number, offset: FRAMES_START };
            self.settled_sequence = first.header.first_sequence;
        }
        let mut expected = self.settled_sequence;
        for (at, link) in links.iter().enumerate() {
            if link.header.first_sequence != expected {
                return self.end_here(disk, links, at);
            }
            if let Some(next) = link.header.hollow {
                self.step_over(link, next)?;
                expected = next;
                continue;
            }
            expected = match self.use_index(disk, link) {
                Some(next) => next,
                None => self.scan(disk, at, link)?,
            };
        }
        self.end_here(disk, links, links.len())
    }

    /// A segment without frames. What they did is in the checkpoint or nowhere.
    fn step_over(&mut self, link: &Link, next: Sequence) -> Result<(), OpenError> {
        let number = link.header.number;
        let Some(end) = link.end.filter(|_| self.spec.salvage || number < self.covered.segment)
        else {
            let mark = Position { segment: number, offset: FRAMES_START };
            return Err(OpenError::Damaged { path: link.path.clone(), at: 0, mark });
        };
        let epoch = link.header.epoch;
        let stamp = IndexStamp { number, epoch, end, next_sequence: next };
        self.settled = Position { segment: number, offset: end };
        self.settled_sequence = next;
        self.walked.push(Walked { header: link.header, stamp, from_file: Vec::new(), index: None });
        Ok(())
    }

    /// Takes a sealed segment before the checkpoint from its index file. `None`: scan it.
    fn use_index(&mut self, disk: &dyn Disk, link: &Link) -> Option<Sequence> {
        let end = link.end?;
        if link.header.number >= self.covered.segment {
            return None;
        }
        let file = disk.open(&self.spec.dir.join(index_name(link.header.number))).ok()?;
        let directory = Directory::read(&*file).ok()?;
        let stamp = directory.stamp;
        let header = &link.header;
        let same = stamp.number == header.number && stamp.epoch == header.epoch;
        if !same || stamp.end != end {
            return None;
        }
        if !directory.summaries().all(|summary| self.continues(stamp, summary)) {
            return None;
        }
        for summary in directory.summaries() {
            self.add_run(stamp, summary);
        }
        self.settled = Position { segment: stamp.number, offset: stamp.end };
        self.settled_sequence = stamp.next_sequence;
        let (header, from_file) = (link.header, directory.sides);
        self.walked.push(Walked { header, stamp, from_file, index: None });
        Some(stamp.next_sequence)
    }

    /// Whether what an index says of a partition can follow what is known of it.
    fn continues(&self, stamp: IndexStamp, summary: &Summary) -> bool {
        let Some(known) = self.partitions.get(&summary.dense) else { return true };
        let last = known.runs.last();
        let end = last.map_or(Offset(0), |last| last.end);
        match summary.kind {
            Some(RunKind::Appended) => {
                let newer =
                    |last: &Run| last.segment < stamp.number || last.kind != RunKind::Appended;
                last.is_none_or(newer) && end <= summary.base
            }
            Some(_) if self.spec.salvage => summary.base.0 >= 0,
            Some(_) => summary.base.0 >= 0 && summary.end <= end.max(known.log_end()),
            None => true,
        }
    }

    fn add_run(&mut self, stamp: IndexStamp, summary: &Summary) {
        // One that the checkpoint does not know was detached before it.
        let Some(partition) = self.partitions.get_mut(&summary.dense) else {
            return;
        };
        match summary.as_run(stamp.number) {
            Some(run) if run.kind == RunKind::Appended => partition.runs.push(run),
            Some(run) => drop(partition.runs.replace(run, None)),
            None => {}
        }
    }

    /// Scans a segment to its end, or to the end of the log. Returns the sequence expected next.
    fn scan(&mut self, disk: &dyn Disk, at: usize, link: &Link) -> Result<Sequence, OpenError> {
        let header = &link.header;
        self.mark = self.mark.max(header.mark);
        let file = open_link(disk, link)?;
        let limit = link.end.unwrap_or(u32::MAX);
        let mut scanner =
            Scanner::new(&*file, header.epoch, FRAMES_START, header.first_sequence).until(limit);
        let stamp = IndexStamp {
            number: header.number,
            epoch: header.epoch,
            end: FRAMES_START,
            next_sequence: header.first_sequence,
        };
        let index = Some(SegmentIndex::default());
        self.walked.push(Walked { header: *header, stamp, from_file: Vec::new(), index });
        let mut bound = rustc_hash::FxHashSet::default();
        let mut ends: FxHashMap<DenseId, Offset> = FxHashMap::default();
        loop {
            // A sector that cannot be read ends the log like one that reads as something else.
            let frame = match scanner.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(path = %link.path.display(), %error, "reading a segment");
                    break;
                }
            };
            self.frames += 1;
            let known = &self.partitions;
            // Behind everything the partition is known to hold.
            let end_of = |id: DenseId, ends: &FxHashMap<DenseId, Offset>| {
                let last = known.get(&id).and_then(|known| known.runs.last());
                let seen = ends.get(&id).copied().unwrap_or(Offset(0));
                last.map_or(seen, |last| last.end.max(seen))
            };
            let found = understand(at, link, &frame).filter(|found| match &found.effect {
                Effect::Bind(_) => bound.insert(found.partition),
                Effect::LogStart(_) => bound.contains(&found.partition),
                Effect::Data { header, carried: None, .. } => {
                    let ascends = header.base_offset >= end_of(found.partition, &ends);
                    ends.insert(found.partition, header.end_offset());
                    ascends && bound.contains(&found.partition)
                }
                Effect::Data { .. } | Effect::Gap { .. } => {
                    let end = end_of(found.partition, &ends);
                    let to = found.effect.end().unwrap_or(end);
                    ends.insert(found.partition, end.max(to));
                    let salvage = self.spec.salvage;
                    let is_older = |known: &Partition| salvage || to <= end.max(known.log_end());
                    let is_older = known.get(&found.partition).is_none_or(is_older);
                    is_older && bound.contains(&found.partition)
                }
                Effect::Mark => true,
            });
            let Some(found) = found else {
                let (path, at) = (link.path.clone(), frame.at);
                return Err(OpenError::Damaged { path, at, mark: self.mark });
            };
            self.mark = self.mark.max(frame.header.mark);
            self.tail.push_back(found);
            self.settle();
        }
        Ok(scanner.next_sequence())
    }

    /// Applies the frames that the last mark covers.
    fn settle(&mut self) {
        while let Some(found) = self.tail.pop_front_if(|found| found.end <= self.mark) {
            let walked = self.walked.iter_mut().rev();
            let walked = walked.into_iter().find(|w| w.stamp.number == found.end.segment);
            let walked = walked.expect("frames come from walked segments");
            walked.stamp.end = found.end.offset;
            walked.stamp.next_sequence = Sequence(found.sequence.0 + 1);
            let mut index = walked.index.take().expect("a scanned segment has an index");
            self.apply(&found, &mut index);
            let at = self.walked.iter().rposition(|w| w.stamp.number == found.end.segment);
            self.walked[at.expect("found above")].index = Some(index);
            self.settled = found.end;
            self.settled_sequence = Sequence(found.sequence.0 + 1);
        }
    }

    /// Applies one frame to the index of its segment and to its partition.
    pub fn apply(&mut self, found: &Found, index: &mut SegmentIndex) {
        let id = found.partition;
        if matches!(found.effect, Effect::Mark) {
            return;
        }
        self.next_dense = self.next_dense.max(id.0 + 1);
        let as_of = self.as_of.get(&id).copied();
        // In front of the checkpoint only what it knows is still there; `as_of` without a
        // partition says that it was detached.
        let gone = match as_of {
            Some(as_of) => !self.partitions.contains_key(&id) && found.end <= as_of,
            None => found.end <= self.covered,
        };
        if let Effect::Bind(key) = found.effect {
            index.bind(id, key);
            if !gone {
                self.partitions.entry(id).or_insert_with(|| Partition::new(key, unattached()));
            }
            return;
        }
        let replayed = as_of.is_none_or(|as_of| found.end > as_of) && found.end > self.covered;
        let partition = self.partitions.get_mut(&id).filter(|_| !gone);
        match &found.effect {
            Effect::Data { header, side, carried } => {
                let entry = entry_of(found, header);
                let entry = if side.is_some() { entry.in_side_file() } else { entry };
                side.iter().for_each(|&file| index.push_side(file));
                if let Some(carried) = carried {
                    let run = run_of(found.end.segment, carried, &entry);
                    index.carry(id, carried.from, entry, run.kind);
                    let _ = partition.map(|partition| partition.runs.carry(run, None));
                    return;
                }
                index.push(id, entry);
                let Some(partition) = partition else { return };
                partition.runs.append(found.end.segment, &entry);
                if replayed {
                    replay_batch(partition, found, header, &entry, self.spec);
                }
            }
            Effect::Gap { from, to } => {
                index.gap(id, *from, *to);
                let run = gap_run(found.end.segment, *from, *to);
                let _ = partition.map(|partition| partition.runs.carry(run, None));
            }
            Effect::LogStart(to) => {
                if let Some(partition) = partition.filter(|_| replayed) {
                    let to = (*to).clamp(partition.log_start(), partition.log_end());
                    partition.restore(to, partition.log_end());
                    partition.epochs.truncate_start(to);
                    partition.last_position = found.end;
                }
            }
            Effect::Bind(_) | Effect::Mark => {}
        }
    }

    /// Weighs the runs again of which only a part is left. One whose entries cannot be read keeps
    /// its estimate.
    pub fn measure(&mut self, disk: &dyn Disk) {
        let (dir, walked) = (&self.spec.dir, &self.walked);
        for (&id, partition) in &mut self.partitions {
            let partial = partition.runs.iter().filter(|run| !run.exact).copied();
            for run in partial.collect::<Vec<Run>>() {
                let at = walked.iter().find(|walked| walked.stamp.number == run.segment);
                let entries = match at.and_then(|walked| walked.index.as_ref()) {
                    Some(index) => Ok(index.entries(id, run.base).to_vec()),
                    None => Entries::read(disk, &dir.join(index_name(run.segment)), id, run.base),
                };
                match entries {
                    Ok(entries) => partition.runs.correct(run.base, weigh(&run, &entries)),
                    Err(error) => tracing::warn!(%id, ?run, %error, "a run is estimated"),
                }
            }
        }
    }

    /// The log ends before link `at`: looks behind the end for marks that say otherwise.
    fn end_here(&mut self, disk: &dyn Disk, links: &[Link], at: usize) -> Result<(), OpenError> {
        let Some(last) = at.checked_sub(1).and_then(|last| links.get(last)) else {
            return Ok(());
        };
        let end = self.tail.back().map_or(self.settled, |found| found.end);
        let next = self.tail.back().map_or(self.settled_sequence, |f| Sequence(f.sequence.0 + 1));
        let mut mark = self.mark;
        let mut bytes = 0;
        for (number, link) in links.iter().enumerate().skip(at - 1) {
            let from = match number == at - 1 && end.segment == link.header.number {
                true => end.offset,
                false => FRAMES_START,
            };
            mark = mark.max(link.header.mark);
            let file = open_link(disk, link)?;
            let limit = link.end.unwrap_or(u32::MAX);
            let epoch = link.header.epoch;
            let mut scanner = Scanner::new(&*file, epoch, from, next).until(limit);
            let beyond = scanner.look_beyond().map_err(io_error("reading", &link.path));
            let beyond = match (beyond, self.spec.salvage) {
                (Err(error), false) => return Err(error),
                (Err(_), true) => None,
                (Ok(beyond), _) => beyond,
            };
            if let Some(beyond) = beyond {
                mark = mark.max(beyond.mark);
                bytes += beyond.end - u64::from(from);
            }
        }
        // Of an empty last segment the start is reached: all before it has been found.
        let start = Position { segment: last.header.number, offset: FRAMES_START };
        if mark > end.max(start) && !self.spec.salvage {
            let (path, at) = (last.path.clone(), end.offset);
            return Err(OpenError::Damaged { path, at, mark });
        }
        if bytes > 0 {
            self.cuts.push(Cut { path: last.path.clone(), at: end.offset, bytes });
        }
        Ok(())
    }
}

/// A run with the weights of its entries, out of those of its stretch.
fn weigh(run: &Run, entries: &[BatchEntry]) -> Run {
    let entries = wanted(entries, run.base, run.end);
    let last = entries.iter().map(|entry| entry.max_timestamp).max();
    Run {
        max_timestamp: last.unwrap_or(run.max_timestamp),
        batch_bytes: entries.iter().map(|entry| u64::from(entry.batch_bytes)).sum(),
        frame_bytes: entries.iter().map(BatchEntry::frame_bytes).sum(),
        exact: last.is_some(),
        ..*run
    }
}

fn replay_batch(
    partition: &mut Partition,
    found: &Found,
    header: &BatchHeader,
    entry: &BatchEntry,
    spec: &LogSpec,
) {
    let log_start = partition.log_start();
    partition.restore(log_start, entry.end().max(partition.log_end()));
    partition.epochs.assign(found.leader_epoch, entry.base);
    let producers_max = spec.settings.producers_max;
    partition.producers.apply(header, entry.base, found.append_time, producers_max);
    partition.last_position = found.end;
}
