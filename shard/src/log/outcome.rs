//! What a log is told and what it answers: the time, appended batches, refusals, failures.

use super::carry::CarryError;
use crate::ids::{DenseId, Offset, Position, Timestamp};
use crate::partition::producers::ProducerError;
use uuid::Uuid;

/// The time as the caller sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The broker's clock; may jump.
    pub wall: Timestamp,
    /// Microseconds of a clock that only goes forward.
    pub mono_us: u64,
}

/// A batch is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub log_start: Offset,
    /// The log has to be committed up to here before acks=all may be answered.
    pub position: Position,
    /// Nothing is to be waited for.
    pub committed: bool,
    /// The same batch had been appended before; this is where.
    pub duplicate: bool,
    /// The broker's time when it was appended (first).
    pub append_time: Timestamp,
}

/// Why nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// An earlier write or sync failed; the log takes nothing more in this run.
    #[error("the log has failed")]
    Poisoned,
    /// The disk has no room for the next segment.
    #[error("the disk is full")]
    Full,
    /// Too much is on its way to the disk; try again after the next finished job.
    #[error("the log is busy")]
    Busy,
    #[error("a batch of {bytes} bytes does not fit into a segment of {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: u32 },
}

/// What changed when a job was finished.
#[derive(Debug, Default)]
pub struct Progress {
    /// Partitions whose high watermark moved.
    pub moved: Vec<DenseId>,
    /// Appends that were refused as busy or full may be tried again.
    pub unblocked: bool,
    /// The log failed on this job.
    pub poisoned: bool,
    /// Deleted topics of which the log holds nothing any more.
    pub purged: Vec<Uuid>,
    /// What an operator should read; each failure is reported once.
    pub failure: Option<Failure>,
}

/// A job that failed, for the log file of the broker.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("a sync failed, the log takes no more appends: {0}")]
    Sync(std::io::Error),
    #[error("no new segment: {0}")]
    Prepare(std::io::Error),
    #[error("an index was not written, it will be made again at the next start: {0}")]
    Index(std::io::Error),
    #[error("a checkpoint was not written: {0}")]
    Checkpoint(std::io::Error),
    #[error("old segments were not removed: {0}")]
    Delete(std::io::Error),
    #[error("a segment is not emptied: {0}")]
    Carry(#[from] CarryError),
    #[error("a job of the log panicked")]
    Panic,
}
