//! Batches too large to be copied into the log by a core: each in a file of its own.
//!
//! A worker checks the batch and makes the file durable; then the core appends a side frame that
//! stands for it. Produces of one connection keep their order because the connection waits. The
//! file goes with the segment of its frame; one without a frame is an orphan and goes at the next
//! start. File: the batch as it was sent, `side-` and the number in 20 digits.

use super::cold::read_behind;
use super::engine::{Log, Stored};
use super::frame::{decode_side, SIDE_BYTES};
use super::header::parse_number;
use super::jobs::Work;
use super::outcome::{AppendError, Appended, Now};
use super::settings::LogSpec;
use crate::batch::{validate, BatchError, BatchHeader, Rules, Scratch, HEADER_BYTES};
use crate::disk::{Disk, ReadFile};
use crate::ids::{DenseId, Timestamp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Where the side files of a log are made: by any thread, before the log is asked.
pub struct Sides {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    next: AtomicU64,
    inline_bytes_max: usize,
}

/// A checked batch that is durable in its file and in no log yet.
#[derive(Debug)]
pub struct SideBatch {
    header: BatchHeader,
    file: u64,
}

impl SideBatch {
    /// The header as it will be stored, but for base offset and leader epoch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The broker's time if it replaced the producer's.
    pub fn append_time(&self) -> Option<Timestamp> {
        self.header.attributes.is_append_time().then_some(self.header.max_timestamp)
    }
}

/// Why there is no side file.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    #[error("the batch is refused: {0}")]
    Batch(#[from] BatchError),
    #[error("writing the batch to a file of its own: {0}")]
    Io(#[from] io::Error),
}

impl std::fmt::Debug for Sides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sides({})", self.dir.display())
    }
}

impl Sides {
    pub(super) fn new(disk: Arc<dyn Disk>, spec: &LogSpec, next: u64) -> Sides {
        let inline_bytes_max = spec.settings.inline_bytes_max;
        Sides { disk, dir: spec.dir.clone(), next: AtomicU64::new(next), inline_bytes_max }
    }

    /// Whether a batch of this size has to go through a side file.
    pub fn is_large(&self, batch_bytes: usize) -> bool {
        batch_bytes > self.inline_bytes_max
    }

    /// Checks a batch and makes it durable in a file of its own. Blocks.
    pub fn write(
        &self,
        records: &[u8],
        rules: &Rules,
        now: Timestamp,
    ) -> Result<SideBatch, SideError> {
        let valid = validate(records, rules, now, &mut Scratch::default())?;
        let file = self.next.fetch_add(1, Ordering::Relaxed);
        self.disk.publish(&self.dir.join(side_name(file)), records)?;
        Ok(SideBatch { header: valid.header().clone(), file })
    }
}

impl Log {
    /// Where large batches of this log go before they are appended.
    pub fn sides(&self) -> Arc<Sides> {
        self.sides.clone()
    }

    /// Appends a batch that is in a side file. After `Busy` it may be tried again; after any other
    /// error, and for a recognised retry, the file is removed.
    pub fn append_side(
        &mut self,
        id: DenseId,
        side: &SideBatch,
        now: Now,
    ) -> Result<Appended, AppendError> {
        let stored = Stored { header: &side.header, body: &[], side: Some(side.file) };
        let outcome = self.append_stored(id, &stored, now);
        let kept = match &outcome {
            Ok(appended) => !appended.duplicate,
            Err(error) => *error == AppendError::Busy,
        };
        if !kept {
            self.push_job(Work::Delete { segments: Vec::new(), sides: vec![side.file] });
        }
        outcome
    }
}

/// Reads the batch a side frame stands for, with the header of the frame in place of the one sent.
/// `frame` is the segment's file and where the frame's payload starts. False: not what it should
/// be.
pub(super) fn read(
    disk: &dyn Disk,
    segment: &Path,
    (file, at): (&dyn ReadFile, u64),
    batch_bytes: usize,
    into: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut payload = Vec::new();
    if !read_behind(file, at, SIDE_BYTES, &mut payload)? {
        return Ok(false);
    }
    let Some(number) = decode_side(&payload) else { return Ok(false) };
    let side = disk.open(&segment.with_file_name(side_name(number)))?;
    let from = into.len();
    if side.len()? != batch_bytes as u64 || !read_behind(&*side, 0, batch_bytes, into)? {
        return Ok(false);
    }
    let (Some(header), Some(stored)) =
        (into.get_mut(from..from + HEADER_BYTES), payload.get(..HEADER_BYTES))
    else {
        return Ok(false);
    };
    header.copy_from_slice(stored);
    Ok(true)
}

pub(super) fn side_name(file: u64) -> String {
    format!("side-{file:020}")
}

/// The number in a name that `side_name` made.
pub(super) fn parse_side_name(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix("side-")?)
}
