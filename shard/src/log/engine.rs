//! `Log`: the front door of the engine. Appends, offsets and the commit that follows.
//!
//! One caller drives it from one thread: it passes the time in, runs the jobs it takes out, and
//! gives their outcomes back. Reading is in `read`, rolling, checkpoints and retention in `upkeep`,
//! opening in `recover`.

use super::commit::Commit;
use super::cooling::Cooling;
use super::frame::{encode_bind, encode_side, Kind};
use super::frame::{BATCH_PREFIX_BYTES, FRAME_HEADER_BYTES, SIDE_BYTES};
use super::index::BatchEntry;
use super::jobs::{Done, Job, Outcome, Work};
use super::keeping::{Checkpoints, Retention};
use super::mover::Mover;
use super::outcome::{AppendError, Appended, Failure, Now, Progress};
use super::partitions::Partitions;
use super::purge::Purge;
use super::segments::{IndexFile, Open, Segments};
use super::settings::{Flush, LogSpec, PartitionSettings};
use super::upkeep::{Next, Prefault, BIND_FRAME, ROOM_BESIDE};
use super::write::FrameParts;
use crate::batch::{BatchHeader, Valid, HEADER_BYTES};
use crate::disk::Disk;
use crate::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, Position, Sequence, Timestamp};
use crate::partition::producers::Verdict;
use crate::partition::{Offsets, Partition};
use crate::table::cache::Blocks;
use std::sync::Arc;

/// One log and its partitions.
pub struct Log {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) spec: LogSpec,
    pub(super) partitions: Partitions,
    pub(super) segments: Segments,
    pub(super) open: Open,
    pub(super) next: Next,
    pub(super) next_sequence: Sequence,
    pub(super) commit: Commit,
    pub(super) checkpoints: Checkpoints,
    pub(super) prefault: Prefault,
    pub(super) retention: Retention,
    pub(super) cooling: Cooling,
    pub(super) mover: Mover,
    pub(super) purge: Purge,
    /// Of the files of tables what readers share.
    pub(super) blocks: Arc<Blocks>,
    /// Partitions appended to since they were asked for, each once.
    pub(super) fresh: Vec<DenseId>,
    pub(super) jobs: Vec<Job>,
    pub(super) random: u64,
    pub(super) sides: Arc<super::side::Sides>,
}

/// A batch on its way into the log: its bytes, or the side file that holds them.
pub(super) struct Stored<'a> {
    pub header: &'a BatchHeader,
    pub body: &'a [u8],
    pub side: Option<u64>,
}

impl Log {
    /// Gives a partition its place in this log, or finds the one it has.
    pub fn attach(&mut self, key: PartitionKey, settings: PartitionSettings) -> DenseId {
        if let Some(id) = self.partitions.find(&key) {
            let partition = self.partitions.get_mut(id).expect("found by its key");
            partition.settings = settings;
            let waits = partition.table_end() < partition.log_end() && !settings.internal;
            if waits && !std::mem::replace(&mut partition.fresh, true) {
                self.fresh.push(id);
            }
            self.note_compaction(id, &settings);
            return id;
        }
        let id = DenseId(self.partitions.next_dense());
        self.partitions.insert(id, Partition::new(key, settings));
        self.note_compaction(id, &settings);
        id
    }

    fn note_compaction(&mut self, id: DenseId, settings: &PartitionSettings) {
        match settings.compaction {
            Some(_) => self.mover.compacted.insert(id),
            None => self.mover.compacted.remove(&id),
        };
    }

    /// Forgets a partition whose topic is gone; its bytes go with their segments.
    pub fn detach(&mut self, id: DenseId) {
        let Some(partition) = self.partitions.remove(id) else {
            return;
        };
        for run in partition.runs.iter() {
            self.release(run);
        }
        self.mover.compacted.remove(&id);
        self.checkpoints.detached(id, partition.key);
    }

    /// The partitions this log knows.
    pub fn partitions(&self) -> impl Iterator<Item = (DenseId, PartitionKey)> + '_ {
        self.partitions.iter().map(|(id, partition)| (id, partition.key))
    }

    pub fn find(&self, key: &PartitionKey) -> Option<DenseId> {
        self.partitions.find(key)
    }

    pub fn offsets(&self, id: DenseId) -> Option<Offsets> {
        Some(self.partitions.get(id)?.offsets(self.spec.run))
    }

    /// Whether some of a partition's records lie in a segment that takes no more appends.
    pub fn reaches_back(&self, id: DenseId) -> bool {
        let first = self.partitions.get(id).and_then(|partition| partition.runs.first());
        first.is_some_and(|run| run.segment < self.open.number)
    }

    /// Kafka's OffsetForLeaderEpoch: the largest epoch not above `epoch`, and where it ends.
    pub fn end_of_epoch(&self, id: DenseId, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let partition = self.partitions.get(id)?;
        if epoch == self.spec.run {
            return Some((epoch, partition.log_end()));
        }
        partition.epochs.end_of(epoch, self.spec.run, partition.log_end())
    }

    /// Everything before it is committed.
    pub fn committed(&self) -> Position {
        self.commit.durable()
    }

    /// End of the last frame.
    pub fn end(&self) -> Position {
        self.commit.end()
    }

    pub fn is_poisoned(&self) -> bool {
        self.commit.is_poisoned()
    }

    pub fn unsynced_bytes(&self) -> u64 {
        self.commit.unsynced_bytes()
    }

    /// Whether an append would be refused as busy, so that its checks can wait.
    pub fn is_busy(&self, now: Now) -> bool {
        self.commit.is_full(&self.spec.settings, now.mono_us)
    }

    /// Number of segments and the bytes of their frames.
    pub fn size(&self) -> (usize, u64) {
        (self.segments.count() + 1, self.segments.bytes() + u64::from(self.open.end))
    }

    /// Appends a validated batch at the end of a partition.
    ///
    /// One copy: the batch goes from the caller's buffer into the map. Offsets are given out in the
    /// order of the calls. A recognised retry is answered with its first place and not appended.
    /// Batches above `inline_bytes_max` should come through `append_side`.
    ///
    /// # Panics
    /// When the partition is not attached.
    pub fn append(
        &mut self,
        id: DenseId,
        batch: &Valid<'_>,
        now: Now,
    ) -> Result<Appended, AppendError> {
        let stored = Stored { header: batch.header(), body: batch.body(), side: None };
        self.append_stored(id, &stored, now)
    }

    /// Appends a batch, inline or by reference.
    pub(super) fn append_stored(
        &mut self,
        id: DenseId,
        stored: &Stored<'_>,
        now: Now,
    ) -> Result<Appended, AppendError> {
        if self.commit.is_poisoned() {
            return Err(AppendError::Poisoned);
        }
        let partition = self.partitions.get(id).expect("attached");
        if let Verdict::Duplicate { base_offset, last_offset, append_time } =
            partition.producers.check(stored.header)?
        {
            let first = self.repeated(partition, base_offset, last_offset);
            return Ok(Appended { append_time, ..first });
        }
        let payload_bytes = match stored.side {
            Some(_) => SIDE_BYTES,
            None => HEADER_BYTES + stored.body.len(),
        };
        let internal = partition.settings.internal;
        self.make_room(id, payload_bytes, internal, now)?;
        self.bind(id, now);
        Ok(self.append_batch(id, stored, now))
    }

    fn repeated(&self, partition: &Partition, base: Offset, last: Offset) -> Appended {
        let position = partition.last_position;
        let waits = partition.settings.flush == Flush::Commit;
        Appended {
            base_offset: base,
            last_offset: last,
            log_start: partition.log_start(),
            position,
            committed: !waits || position <= self.commit.durable(),
            duplicate: true,
            append_time: Timestamp(-1),
        }
    }

    /// Makes sure that a frame with this payload, and a bind frame before it, fit.
    pub(super) fn make_room(
        &mut self,
        id: DenseId,
        payload_bytes: usize,
        internal: bool,
        now: Now,
    ) -> Result<(), AppendError> {
        let bytes_max = self.spec.settings.segment_bytes_max;
        let frame_bytes = (FRAME_HEADER_BYTES + payload_bytes) as u64;
        if frame_bytes + ROOM_BESIDE > u64::from(bytes_max) {
            return Err(AppendError::TooLarge { bytes: payload_bytes, bytes_max });
        }
        if self.commit.is_full(&self.spec.settings, now.mono_us) && !internal {
            return Err(AppendError::Busy);
        }
        let bind_bytes = if self.open.index.is_bound(id) { 0 } else { BIND_FRAME };
        let end = u64::from(self.open.next_at()) + bind_bytes + frame_bytes;
        if self.fits_here(end, internal) && !self.is_outgrown() {
            return Ok(());
        }
        self.roll(frame_bytes, now)
    }

    /// Writes a bind frame at a partition's first use in the open segment.
    pub(super) fn bind(&mut self, id: DenseId, now: Now) {
        if self.open.index.is_bound(id) {
            return;
        }
        let key = self.partitions.get(id).expect("attached").key;
        let payload = encode_bind(&key);
        self.write(
            FrameParts {
                kind: Kind::Bind,
                partition: id,
                base_offset: Offset(0),
                head: &payload,
                covered: payload.len(),
                body: &[],
                origin: None,
            },
            now,
        );
        self.open.index.bind(id, key);
    }

    fn append_batch(&mut self, id: DenseId, stored: &Stored<'_>, now: Now) -> Appended {
        let partition = self.partitions.get(id).expect("attached");
        let base_offset = partition.log_end();
        let leader_epoch = self.spec.run;
        let header = BatchHeader { base_offset, leader_epoch, ..stored.header.clone() };
        let frame_at = self.write_batch(id, &header, stored, now);
        let entry = BatchEntry {
            base: base_offset,
            max_timestamp: header.max_timestamp,
            frame_at,
            batch_bytes: header.bytes() as u32,
            last_delta: header.last_offset_delta as u32,
            leader_epoch,
        };
        let entry = if stored.side.is_some() { entry.in_side_file() } else { entry };
        self.open.index.push(id, entry);
        if let Some(file) = stored.side {
            self.open.index.push_side(file);
            self.open.side_bytes += u64::from(entry.batch_bytes);
        }
        let position = self.open.position();
        let (segment, run) = (self.open.number, self.spec.run);
        let producers_max = self.spec.settings.producers_max;
        let partition = self.partitions.get_mut(id).expect("attached");
        partition.epochs.assign(run, base_offset);
        partition.producers.apply(&header, base_offset, now.wall, producers_max);
        let new_run = partition.extend(segment, &entry);
        partition.last_position = position;
        let log_start = partition.log_start();
        let to_clean = partition.settings.internal && partition.settings.compaction.is_some();
        let flush = partition.settings.flush;
        let waits = flush == Flush::Commit;
        let touched = std::mem::replace(&mut partition.touched, true);
        if !partition.settings.internal {
            partition.arrivals.note(base_offset, now.wall);
            if !std::mem::replace(&mut partition.fresh, true) {
                self.fresh.push(id);
            }
        }
        self.open.live.runs += u32::from(new_run);
        self.open.live.bytes += entry.frame_bytes();
        self.mover.meter.appended(entry.frame_bytes());
        if to_clean {
            self.open.to_clean_bytes += entry.frame_bytes();
        }
        self.checkpoints.touched(id, touched);
        let last_offset = Offset(entry.end().0 - 1);
        match flush {
            Flush::Commit => self.commit.wait(id, entry.end()),
            Flush::Interval => self.commit.start_interval(),
            Flush::Os => {}
        }
        Appended {
            base_offset,
            last_offset,
            log_start,
            position,
            committed: !waits,
            duplicate: false,
            append_time: now.wall,
        }
    }

    fn write_batch(
        &mut self,
        id: DenseId,
        header: &BatchHeader,
        stored: &Stored<'_>,
        now: Now,
    ) -> u32 {
        let encoded = header.encode();
        let side = stored.side.map(|file| encode_side(&encoded, file));
        let (kind, head, covered) = match &side {
            None => (Kind::Data, &encoded[..], BATCH_PREFIX_BYTES),
            Some(payload) => (Kind::Side, &payload[..], SIDE_BYTES),
        };
        let body = if side.is_some() { &[] } else { stored.body };
        let base_offset = header.base_offset;
        let origin = None;
        self.write(
            FrameParts { kind, partition: id, base_offset, head, covered, body, origin },
            now,
        )
    }

    /// Moves a partition's log start up to `to`, at most to the high watermark, and frees what lies
    /// below. Returns the new log start and the position that makes it durable.
    pub fn raise_log_start(
        &mut self,
        id: DenseId,
        to: Offset,
        now: Now,
    ) -> Result<(Offset, Position), AppendError> {
        if self.commit.is_poisoned() {
            return Err(AppendError::Poisoned);
        }
        let partition = self.partitions.get(id).expect("attached");
        let to = to.min(partition.high_watermark());
        if to <= partition.log_start() {
            return Ok((partition.log_start(), partition.last_position));
        }
        self.make_room(id, 0, true, now)?;
        self.bind(id, now);
        self.write(
            FrameParts {
                kind: Kind::LogStart,
                partition: id,
                base_offset: to,
                head: &[],
                covered: 0,
                body: &[],
                origin: None,
            },
            now,
        );
        let position = self.open.position();
        let partition = self.partitions.get_mut(id).expect("attached");
        partition.last_position = position;
        let touched = std::mem::replace(&mut partition.touched, true);
        let gone = partition.raise_log_start(to);
        self.checkpoints.touched(id, touched);
        for run in gone {
            self.release(&run);
        }
        self.checkpoints.log_start_moved(position);
        Ok((to, position))
    }

    /// Has what is in the log synced without delay, as if a batch of this partition waited for it.
    pub fn hurry(&mut self, id: DenseId) {
        if self.commit.durable() < self.commit.data_end() {
            // No partition ends below 0: when it comes true nobody's visible end moves.
            self.commit.wait(id, Offset(0));
        }
    }

    /// The work that has piled up. Each job is to be run and its outcome given to `finish`.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    pub(super) fn push_job(&mut self, work: Work) {
        self.jobs.push(Job { disk: self.disk.clone(), dir: self.spec.dir.clone(), work });
    }

    /// Takes the outcome of a job.
    pub fn finish(&mut self, done: Done, now: Now) -> Progress {
        let mut progress = Progress::default();
        match done.outcome {
            Outcome::Synced(result) => self.synced(result, now, &mut progress),
            Outcome::Prepared { number, result } => {
                self.prepared(number, result, now, &mut progress);
            }
            Outcome::Prefaulted { result } => self.prefault.finished(result.is_ok()),
            Outcome::IndexWritten { number, result } => {
                if let Some(sealed) = self.segments.get_mut(number) {
                    sealed.index_file =
                        if result.is_ok() { IndexFile::Written } else { IndexFile::Missing };
                }
                progress.failure = result.err().map(Failure::Index);
            }
            Outcome::CheckpointWritten(result) => self.checkpoint_written(result, &mut progress),
            Outcome::Deleted { result } => {
                self.space_returned();
                progress.failure = result.err().map(Failure::Delete);
            }
            Outcome::Hollowed { header, published, removed } => {
                self.mover.counts.hollowed += u64::from(published.is_ok());
                self.space_returned();
                let maps = self.segments.hollowed(&header, published.is_ok());
                self.push_job(Work::Unmap { maps });
                progress.failure = published.and(removed).err().map(Failure::Delete);
            }
            Outcome::Listed { place, result } => self.listed(place, result, &mut progress),
            Outcome::Loaded { rest, result } => self.loaded(rest, result, &mut progress),
            Outcome::Gathered { of, result } => self.gathered(of, result, now, &mut progress),
            Outcome::Unnamed(gone) => progress.purged = self.purge.looked(gone),
            Outcome::Unmapped | Outcome::Reserved { .. } => {}
            Outcome::Panicked => {
                self.commit.poison();
                progress.poisoned = true;
                progress.failure = Some(Failure::Panic);
            }
        }
        progress
    }

    fn synced(&mut self, result: std::io::Result<()>, now: Now, progress: &mut Progress) {
        progress.unblocked = true;
        if self.commit.is_poisoned() {
            return;
        }
        if let Err(error) = result {
            self.commit.failed();
            progress.poisoned = true;
            progress.failure = Some(Failure::Sync(error));
            return;
        }
        for (id, end) in self.commit.done(now.mono_us) {
            let Some(partition) = self.partitions.get_mut(id) else {
                continue;
            };
            if partition.commit(end) && progress.moved.last() != Some(&id) {
                progress.moved.push(id);
            }
        }
        self.switch_to_copies();
    }
}
