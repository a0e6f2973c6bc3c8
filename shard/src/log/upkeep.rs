//! What a log does beside appending: syncs, pages, segments, marks and the stop.
//!
//! `Log::tick` looks at what is due and turns it into jobs; nothing here blocks. What grows with
//! the number of partitions is in `keeping`.

use super::engine::Log;
use super::frame::{BIND_BYTES, FRAME_HEADER_BYTES, PAGE_BYTES};
use super::header::{SegmentHeader, FRAMES_START};
use super::jobs::{stretches, Stretch, Work};
use super::outcome::{AppendError, Failure, Now, Progress};
use super::segments::{IndexFile, Live, Open};
use crate::disk::{MapWriter, LARGE_STORE_BYTES};
use crate::ids::{Position, SegmentNumber};
use crate::partition::Run;
use std::io;

/// The most a bind frame takes, with the way to its slot.
pub(super) const BIND_FRAME: u64 = (FRAME_HEADER_BYTES + BIND_BYTES + 8) as u64;
/// What a mark takes at most, on a page of its own. Kept free in every segment: a stop in order
/// must be able to say that all before it is durable.
const MARK_ROOM: u64 = 2 * PAGE_BYTES as u64;
/// What a segment holds beside the one frame it may have been made for: header, bind frame, mark.
pub(super) const ROOM_BESIDE: u64 = FRAMES_START as u64 + BIND_FRAME + MARK_ROOM;
/// Kept free of clients' records at the end of the last segment while no other can be had: log
/// starts and the broker's own records go on when the disk is full.
const KEPT_FOR_INTERNAL: u64 = 256 << 10;
/// A sync that covers more than this is followed by a page start, so that the next store does not
/// fault on a page that has just been written.
const ALIGN_AFTER_BYTES: u64 = 32 << 10;
const PREFAULT_BYTES_MIN: u32 = 1 << 20;
/// After so many bytes in small stores without a large one, pages are made ahead again.
const SMALL_BYTES_MIN: u64 = 128 << 10;
/// A failed preparation is tried again after this time.
const PREPARE_AGAIN_US: u64 = 1_000_000;

/// The segment after the open one.
#[derive(Debug)]
pub(super) enum State {
    None,
    Preparing,
    Ready(MapWriter),
    Failed { at_us: u64 },
}

#[derive(Debug)]
pub(super) struct Next {
    pub state: State,
    /// The number of the next file; one is never used twice, not even for a file thrown away.
    pub number: SegmentNumber,
    /// Size wanted for the next segment.
    pub bytes: u64,
    /// What the batch at hand needs at least.
    pub bytes_min: u64,
    /// How many of its pages are made present while it is prepared. Bytes.
    pub prefaulted: u32,
}

/// How far ahead pages are made present.
#[derive(Debug)]
pub(super) struct Prefault {
    pub window: u32,
    running: bool,
    last_us: u64,
    /// Bytes of small stores since the last large one.
    small_bytes: u64,
}

impl Prefault {
    pub fn new() -> Prefault {
        Prefault {
            window: PREFAULT_BYTES_MIN,
            running: false,
            last_us: 0,
            small_bytes: SMALL_BYTES_MIN,
        }
    }

    /// A body of so many bytes was stored.
    pub fn stored(&mut self, bytes: usize) {
        self.small_bytes = match bytes >= LARGE_STORE_BYTES {
            true => 0,
            false => self.small_bytes.saturating_add(bytes as u64),
        };
    }

    /// Whether pages ahead are worth making: large stores bring their own.
    fn pays(&self) -> bool {
        self.small_bytes >= SMALL_BYTES_MIN
    }

    /// Prefaulting only saves time: a failure shows at the next sync if it matters.
    pub fn finished(&mut self, _worked: bool) {
        self.running = false;
    }
}

impl Log {
    /// Looks at what is due. To be called after appends and finished jobs, and every few
    /// milliseconds; cheap when nothing is.
    pub fn tick(&mut self, now: Now) {
        self.plan_sync(now);
        self.plan_prefault(now);
        self.plan_next(now);
        self.seal_for_cleaning(now);
        if self.commit.mark_is_due(&self.spec.settings, now.mono_us) {
            self.write_mark(now);
        }
        self.slice_of_checkpoint();
        self.slice_of_retention(now);
        self.slice_of_cooling(now.wall);
        self.slice_of_moving(now);
        self.drop_dead_segments();
    }

    /// When `tick` should be called next for the sake of those who wait for a commit. µs of the
    /// monotonic clock; `None` when nobody waits for it.
    pub fn sync_due_us(&self) -> Option<u64> {
        self.commit.sync_due_us(&self.spec.settings)
    }

    fn plan_sync(&mut self, now: Now) {
        if let Some(plan) = self.commit.plan(&self.spec.settings, now.mono_us) {
            self.push_sync(plan.from, plan.to, plan.bytes);
        }
    }

    fn push_sync(&mut self, from: Position, to: Position, bytes: u64) {
        let sealed = self.segments.iter().filter_map(|sealed| {
            sealed.writer.as_ref().map(|writer| (sealed.stamp.number, writer))
        });
        let open = std::iter::once((self.open.number, &self.open.writer));
        let stretches = stretches(from, to, sealed.chain(open));
        if bytes >= ALIGN_AFTER_BYTES {
            self.open.align_next = true;
        }
        self.push_job(Work::Sync { stretches });
    }

    fn plan_prefault(&mut self, now: Now) {
        let (end, capacity) = (self.open.end, self.open.capacity());
        let ahead = self.open.prefaulted.saturating_sub(end);
        let enough = ahead >= self.prefault.window / 2 || self.open.prefaulted >= capacity;
        if self.prefault.running || enough || !self.prefault.pays() {
            return;
        }
        // Twice the window when the last one was used up at once, half when it lasted.
        let since_us = now.mono_us.saturating_sub(self.prefault.last_us);
        let window = match since_us {
            0..50_000 => self.prefault.window * 2,
            50_000..1_000_000 => self.prefault.window,
            _ => self.prefault.window / 2,
        };
        let bytes_max = self.spec.settings.prefault_bytes_max.max(PREFAULT_BYTES_MIN);
        self.prefault.window = window.clamp(PREFAULT_BYTES_MIN, bytes_max);
        let from = self.open.prefaulted.max(end);
        let to = (u64::from(end) + u64::from(self.prefault.window)).min(u64::from(capacity));
        self.open.prefaulted = to as u32;
        self.prefault.running = true;
        self.prefault.last_us = now.mono_us;
        let map = self.open.writer.map().clone();
        self.push_job(Work::Prefault { stretch: Stretch { map, from: u64::from(from), to } });
    }

    /// Prepares the next segment when the open one is half full, and again after a failure.
    fn plan_next(&mut self, now: Now) {
        let wanted = match self.next.state {
            State::None => {
                self.open.filled() >= u64::from(self.open.capacity() / 2)
                    || self.open.to_clean_bytes >= self.to_clean_bytes_max() / 2
                    || self.open.seal_wanted
            }
            State::Failed { at_us } => now.mono_us.saturating_sub(at_us) >= PREPARE_AGAIN_US,
            State::Preparing | State::Ready(_) => false,
        };
        if wanted && !self.commit.is_poisoned() {
            self.prepare();
        }
    }

    /// Files have been removed: a segment that could not be had may be there for the asking.
    pub(super) fn space_returned(&mut self) {
        if let State::Failed { at_us } = &mut self.next.state {
            *at_us = 0;
        }
    }

    /// Goes on in the next segment although nothing is appended.
    fn seal_for_cleaning(&mut self, now: Now) {
        let ready = self.open.seal_wanted && matches!(self.next.state, State::Ready(_));
        if ready && !self.commit.is_poisoned() {
            if let Err(error) = self.roll(ROOM_BESIDE, now) {
                tracing::debug!(%error, "compaction waits for a segment");
            }
        }
    }

    fn prepare(&mut self) {
        let number = self.next.number;
        self.next.number = SegmentNumber(number.0 + 1);
        self.next.state = State::Preparing;
        let bytes_max = u64::from(self.spec.settings.segment_bytes_max);
        self.next.prefaulted = if self.prefault.pays() { self.prefault.window } else { 0 };
        self.push_job(Work::Prepare {
            number,
            bytes_min: self.next.bytes_min.min(bytes_max),
            bytes: self.next.bytes.max(self.next.bytes_min).min(bytes_max),
            prefault: u64::from(self.next.prefaulted),
        });
    }

    pub(super) fn prepared(
        &mut self,
        number: SegmentNumber,
        result: io::Result<MapWriter>,
        now: Now,
        progress: &mut Progress,
    ) {
        progress.unblocked = true;
        match result {
            Ok(writer) => {
                assert!(number < self.next.number);
                self.next.state = State::Ready(writer);
            }
            Err(error) => {
                self.next.state = State::Failed { at_us: now.mono_us };
                self.cooling.seek();
                progress.failure = Some(Failure::Prepare(error));
            }
        }
    }

    /// Whether a frame that ends at `end` may go into the open segment.
    pub(super) fn fits_here(&self, end: u64, internal: bool) -> bool {
        let kept = match (&self.next.state, internal) {
            (State::Ready(_), _) | (_, true) => 0,
            _ => KEPT_FOR_INTERNAL.min(u64::from(self.open.capacity()) / 8),
        };
        end + kept.max(MARK_ROOM) <= u64::from(self.open.capacity())
    }

    /// Whether what the open segment refers to, or holds for compaction, calls for the next one,
    /// and it is there.
    pub(super) fn is_outgrown(&self) -> bool {
        let full = self.open.filled() >= u64::from(self.open.capacity());
        (full || self.is_to_be_cleaned()) && matches!(self.next.state, State::Ready(_))
    }

    /// What coordinators write is replayed at each start until it has been compacted, and only
    /// sealed segments are: so much of it seals one.
    pub(super) fn to_clean_bytes_max(&self) -> u64 {
        u64::from(self.spec.settings.segment_bytes_max) / 8
    }

    fn is_to_be_cleaned(&self) -> bool {
        self.open.seal_wanted || self.open.to_clean_bytes >= self.to_clean_bytes_max()
    }

    /// Seals the open segment and goes on in the next one.
    pub(super) fn roll(&mut self, frame_bytes: u64, now: Now) -> Result<(), AppendError> {
        let needed = frame_bytes + ROOM_BESIDE;
        self.next.bytes_min = needed;
        match std::mem::replace(&mut self.next.state, State::None) {
            State::Ready(map) if map.map().bytes() as u64 >= needed => {
                self.start_segment(map, now);
                Ok(())
            }
            State::Ready(map) => {
                self.push_job(Work::Discard { map });
                self.prepare();
                Err(AppendError::Busy)
            }
            State::None => {
                self.prepare();
                Err(AppendError::Busy)
            }
            State::Preparing => {
                self.next.state = State::Preparing;
                Err(AppendError::Busy)
            }
            State::Failed { at_us } => {
                self.next.state = State::Failed { at_us };
                Err(AppendError::Full)
            }
        }
    }

    fn start_segment(&mut self, map: MapWriter, now: Now) {
        let number = super::header::parse_segment_name(
            map.map().path().file_name().and_then(|name| name.to_str()).unwrap_or_default(),
        )
        .expect("prepared under a segment's name");
        let header = SegmentHeader {
            log: self.spec.id,
            cluster: self.spec.cluster,
            number,
            epoch: self.fresh_epoch(),
            predecessor: Some(self.open.as_predecessor()),
            run: self.spec.run,
            first_sequence: self.next_sequence,
            created: now.wall,
            mark: self.commit.durable(),
            hollow: None,
        };
        let bytes_max = u64::from(self.spec.settings.segment_bytes_max);
        // Twice the size, unless this one was sealed long before it was full.
        let filled = match self.is_to_be_cleaned() {
            true => self.open.end.min(self.open.capacity()),
            false => self.open.capacity(),
        };
        let least = u64::from(self.spec.settings.segment_bytes_min);
        self.next.bytes = (u64::from(filled) * 2).max(least).min(bytes_max);
        self.next.bytes_min = ROOM_BESIDE;
        let mut open = Open::start(map, &header);
        open.prefaulted = self.next.prefaulted.min(open.capacity());
        let sealed = std::mem::replace(&mut self.open, open).seal(self.next_sequence);
        self.segments.add(sealed);
        self.write_missing_indexes();
        self.checkpoints.want();
        self.mover.seek_cleaning();
        self.cooling.seek();
        self.cool();
    }

    /// Starts to write the index of each sealed segment that has none in a file.
    pub(super) fn write_missing_indexes(&mut self) {
        let mut work = Vec::new();
        for sealed in self.segments.without_index_file() {
            if let Some(index) = sealed.index.clone() {
                sealed.index_file = IndexFile::BeingWritten;
                work.push(Work::WriteIndex { index, stamp: sealed.stamp });
            }
        }
        work.into_iter().for_each(|work| self.push_job(work));
    }

    fn cool(&mut self) {
        let warm_bytes = self.spec.settings.warm_bytes;
        let maps = self.segments.cool(self.open.end, warm_bytes, self.commit.durable());
        if !maps.is_empty() {
            self.push_job(Work::Unmap { maps });
        }
    }

    /// Random enough that bytes of an older file never pass for this segment's; never 0.
    pub(super) fn fresh_epoch(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).max(1)
    }

    /// A partition needs this run no more.
    pub(super) fn release(&mut self, run: &Run) {
        if let Some(live) = self.live_of(run.segment) {
            live.release(run);
        }
    }

    /// What is alive of a segment.
    pub(super) fn live_of(&mut self, segment: SegmentNumber) -> Option<&mut Live> {
        if segment == self.open.number {
            return Some(&mut self.open.live);
        }
        self.segments.get_mut(segment).map(|sealed| &mut sealed.live)
    }

    fn drop_dead_segments(&mut self) {
        if self.commit.durable() < self.checkpoints.log_start_at {
            return;
        }
        let covered = self.checkpoints.covered.segment;
        let dead = self.segments.take_dead(covered);
        if let Some(hollowing) = self.segments.take_hollowing(covered) {
            self.push_job(Work::Hollow(hollowing));
        }
        if dead.is_empty() {
            return;
        }
        let segments = dead.iter().map(|sealed| sealed.stamp.number).collect();
        let sides = dead.iter().flat_map(|sealed| sealed.sides.iter().copied()).collect();
        let maps = dead.into_iter().filter_map(|sealed| sealed.writer).collect();
        self.push_job(Work::Unmap { maps });
        self.push_job(Work::Delete { segments, sides });
    }

    /// One step towards a clean stop: everything synced, the mark written and synced too. True when
    /// there is nothing left to do; false when jobs have to be run first.
    pub fn stop_step(&mut self, now: Now) -> bool {
        if self.commit.is_poisoned() {
            return true;
        }
        if self.commit.is_syncing() {
            return false;
        }
        if self.commit.mark_is_missing() {
            self.write_mark(now);
        }
        if !self.commit.has_unsynced_frames() {
            return true;
        }
        let plan = self.commit.start(now.mono_us);
        self.push_sync(plan.from, plan.to, plan.bytes);
        false
    }
}
