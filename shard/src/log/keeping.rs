//! Checkpoints and rounds of retention: work over many partitions, done in slices.
//!
//! Called from `Log::tick`. A checkpoint takes the state of the partitions that changed, a few at a
//! time, each as of its own position, and is written by a job once all it saw is durable. Retention
//! raises log starts to where `retention` says. Neither touches a disk here.

use super::checkpoint::{self, CheckpointEntry, CheckpointHeader};
use super::engine::Log;
use super::jobs::Work;
use super::outcome::{Failure, Now, Progress};
use crate::ids::{DenseId, Offset, PartitionKey, Position};
use crate::partition::Partition;
use std::io;
use std::path::PathBuf;

/// Partitions looked at in one tick by checkpoints and retention.
const SLICE_PARTITIONS: usize = 128;
const SLICE_BYTES: usize = 256 << 10;
/// Deltas may grow to this before a new base is written.
const DELTAS_BYTES_MIN: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct Retention {
    cursor: u32,
    round_started_us: u64,
}

/// A checkpoint being taken.
#[derive(Debug)]
struct Capture {
    /// How many had been begun with it.
    round: u64,
    covered: Position,
    /// Nothing after it has been seen by any entry.
    seen: Position,
    todo: Todo,
    base: bool,
    count: u32,
    body: Vec<u8>,
}

/// The partitions a checkpoint has yet to look at.
#[derive(Debug)]
enum Todo {
    /// All that there were when it began.
    All(std::ops::Range<u32>),
    /// Those touched since the one before.
    Touched(std::vec::IntoIter<DenseId>),
}

impl Todo {
    fn next(&mut self) -> Option<DenseId> {
        match self {
            Todo::All(ids) => ids.next().map(DenseId),
            Todo::Touched(ids) => ids.next(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Todo::All(ids) => ids.is_empty(),
            Todo::Touched(ids) => ids.as_slice().is_empty(),
        }
    }
}

#[derive(Debug)]
struct Writing {
    id: u64,
    round: u64,
    covered: Position,
    base: bool,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Recovery starts from here; only segments before it may go.
    pub covered: Position,
    /// How many have been begun in this run.
    pub round: u64,
    next_id: u64,
    /// The base and deltas in force.
    files: Vec<u64>,
    base_bytes: usize,
    delta_bytes: usize,
    base_is_due: bool,
    wanted: bool,
    touched: Vec<DenseId>,
    detached: Vec<(DenseId, PartitionKey)>,
    capture: Option<Capture>,
    writing: Option<Writing>,
    /// The last log start frame; segments go only when it is durable.
    pub log_start_at: Position,
}

impl Checkpoints {
    pub fn new(covered: Position, next_id: u64, old_files: Vec<u64>) -> Checkpoints {
        Checkpoints {
            covered,
            round: 0,
            next_id,
            files: old_files,
            base_bytes: 0,
            delta_bytes: 0,
            base_is_due: true,
            wanted: false,
            touched: Vec::new(),
            detached: Vec::new(),
            capture: None,
            writing: None,
            log_start_at: Position::default(),
        }
    }

    /// A partition changed; `already` says that it is noted.
    pub fn touched(&mut self, id: DenseId, already: bool) {
        if !already {
            self.touched.push(id);
        }
    }

    pub fn detached(&mut self, id: DenseId, key: PartitionKey) {
        self.detached.push((id, key));
    }

    pub fn log_start_moved(&mut self, at: Position) {
        self.log_start_at = at;
    }

    /// Asks for a checkpoint at the next occasion.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    fn is_idle(&self) -> bool {
        self.capture.is_none() && self.writing.is_none()
    }
}

impl Log {
    pub(super) fn slice_of_checkpoint(&mut self) {
        if self.checkpoints.wanted && self.checkpoints.is_idle() {
            self.begin_checkpoint();
        }
        let Some(mut capture) = self.checkpoints.capture.take() else {
            return;
        };
        let from = capture.body.len();
        for _ in 0..SLICE_PARTITIONS {
            let Some(id) = capture.todo.next() else { break };
            if let Some(partition) = self.partitions.get_mut(id) {
                // Noted again when it changes after this.
                partition.touched = false;
                entry_of(id, partition, self.commit.data_end()).encode(&mut capture.body);
                capture.count += 1;
                capture.seen = self.commit.data_end();
            }
            if capture.body.len() - from >= SLICE_BYTES {
                break;
            }
        }
        if capture.todo.is_empty() && self.commit.durable() >= capture.seen {
            self.write_checkpoint(capture);
        } else {
            self.checkpoints.capture = Some(capture);
        }
    }

    fn begin_checkpoint(&mut self) {
        self.purge.checkpoint_begins();
        let covered = self.commit.data_end();
        let checkpoints = &mut self.checkpoints;
        checkpoints.wanted = false;
        checkpoints.round += 1;
        let round = checkpoints.round;
        let outgrown = checkpoints.base_bytes.max(DELTAS_BYTES_MIN);
        let base = checkpoints.base_is_due || checkpoints.delta_bytes > outgrown;
        let touched = std::mem::take(&mut checkpoints.touched);
        let detached = std::mem::take(&mut checkpoints.detached);
        let todo = match base {
            true => Todo::All(0..self.partitions.next_dense()),
            false => Todo::Touched(touched.into_iter()),
        };
        let mut body = Vec::new();
        let mut count = 0;
        if !base {
            for &(dense, key) in &detached {
                detached_entry(dense, key, covered).encode(&mut body);
                count += 1;
            }
        }
        checkpoints.capture =
            Some(Capture { round, covered, seen: covered, todo, base, count, body });
    }

    fn write_checkpoint(&mut self, capture: Capture) {
        let id = self.checkpoints.next_id;
        self.checkpoints.next_id += 1;
        let header = CheckpointHeader {
            log: self.spec.id,
            id,
            delta_to: self.checkpoints.files.last().copied().filter(|_| !capture.base),
            covered: capture.covered,
            next_dense: self.partitions.next_dense(),
        };
        let path_of = |id: u64| self.spec.dir.join(checkpoint::name(id));
        let replaces: Vec<PathBuf> = match capture.base {
            true => self.checkpoints.files.iter().map(|&old| path_of(old)).collect(),
            false => Vec::new(),
        };
        let path = path_of(id);
        let Capture { round, covered, base, count, body, .. } = capture;
        self.checkpoints.writing = Some(Writing { id, round, covered, base, bytes: body.len() });
        self.push_job(Work::WriteCheckpoint { path, header, count, body, replaces });
    }

    pub(super) fn checkpoint_written(&mut self, result: io::Result<()>, progress: &mut Progress) {
        let checkpoints = &mut self.checkpoints;
        let writing = checkpoints.writing.take().expect("a checkpoint was being written");
        self.purge.checkpoint_ended(result.is_ok());
        if let Err(error) = result {
            // What it held is noted nowhere else: the next one is whole again.
            checkpoints.base_is_due = true;
            progress.failure = Some(Failure::Checkpoint(error));
            return;
        }
        if writing.base {
            checkpoints.files.clear();
            checkpoints.base_bytes = writing.bytes;
            checkpoints.delta_bytes = 0;
            checkpoints.base_is_due = false;
        } else {
            checkpoints.delta_bytes += writing.bytes;
        }
        checkpoints.files.push(writing.id);
        checkpoints.covered = writing.covered;
        self.release_cooled(writing.round);
    }

    pub(super) fn slice_of_retention(&mut self, now: Now) {
        let interval_us = self.spec.settings.retention_check_ms * 1000;
        let waited = now.mono_us.saturating_sub(self.retention.round_started_us) >= interval_us;
        if self.retention.cursor == 0 && !waited || self.commit.is_poisoned() {
            return;
        }
        if self.retention.cursor == 0 {
            self.retention.round_started_us = now.mono_us;
            self.write_missing_indexes();
            self.push_job(Work::Reserve);
            self.mover.seek_cleaning();
            self.cooling.seek();
            self.look_for_purged();
        }
        let from = self.retention.cursor;
        let to = (from + SLICE_PARTITIONS as u32).min(self.partitions.next_dense());
        self.retention.cursor = if to == self.partitions.next_dense() { 0 } else { to };
        for id in (from..to).map(DenseId) {
            let expiry_ms = self.spec.settings.producer_expiry_ms;
            let Some(partition) = self.partitions.get_mut(id) else {
                continue;
            };
            partition.producers.expire(now.wall, expiry_ms);
            let Some(partition) = self.partitions.get(id) else {
                continue;
            };
            let Some(target) = self.retention_target(id, partition, now.wall) else {
                continue;
            };
            if let Err(error) = self.raise_log_start(id, target, now) {
                // Busy or full: the next round tries again.
                tracing::debug!(%error, "retention waits");
                return;
            }
        }
    }

    /// Asks for a checkpoint of all that is known.
    pub fn checkpoint(&mut self) {
        self.checkpoints.want();
    }

    /// Whether no checkpoint is wanted or under way.
    pub fn is_settled(&self) -> bool {
        self.checkpoints.is_idle() && !self.checkpoints.wanted
    }
}

fn entry_of(id: DenseId, partition: &Partition, as_of: Position) -> CheckpointEntry {
    CheckpointEntry {
        dense: id,
        key: partition.key,
        detached: false,
        as_of,
        last_position: partition.last_position,
        log_start: partition.log_start(),
        hot_start: partition.hot_start(),
        log_end: partition.log_end(),
        epochs: partition.epochs.encode(),
        producers: partition.producers.encode(),
    }
}

fn detached_entry(dense: DenseId, key: PartitionKey, as_of: Position) -> CheckpointEntry {
    CheckpointEntry {
        dense,
        key,
        detached: true,
        as_of,
        last_position: Position::default(),
        log_start: Offset(0),
        hot_start: Offset(0),
        log_end: Offset(0),
        epochs: Vec::new(),
        producers: Vec::new(),
    }
}
