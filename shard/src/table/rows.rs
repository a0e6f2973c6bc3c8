//! From raw batches to rows: the first half of making columns of a log.
//!
//! A feed of the log (or of a query's hot rows) is pushed batch by batch; what comes out goes into
//! `file` or a query. Batches are outside bytes: lengths, checksum, codec limits and records are
//! checked, and a batch that fails leaves no row behind. Markers and what the caller names as
//! aborted make no rows. Rows stay in the order of the pushes.

mod columns;
#[cfg(test)]
mod tests;

use crate::batch::{expand, BatchError, BatchHeader, Expander, Limits};
use crate::ids::{Offset, ProducerId, Timestamp};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use columns::{Columns, Frame};
use std::ops::Range;

/// Batches of the log were held to the broker's limits when they came, whatever those are now: here
/// only to what columns can hold.
const STORED: Limits =
    Limits { bytes_max: i32::MAX as usize, ratio_max: usize::MAX, ratio_free_bytes: usize::MAX };

/// Why a batch made no rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// With the base offset the batch claims, −1 if not even its header can be read.
    #[error("partition {partition}, batch at {offset}: {source}")]
    Batch { partition: i32, offset: Offset, source: BatchError },
    #[error("the batch's records would make columns of more than 2 GiB; finish the rows first")]
    Full,
    #[error("the columns do not fit together: {0}")]
    Columns(#[from] ArrowError),
}

/// The transactions of a partition that were aborted: who, and the offsets of its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aborted(pub Vec<(ProducerId, Range<Offset>)>);

impl Aborted {
    fn has(&self, header: &BatchHeader) -> bool {
        header.attributes.is_transactional()
            && self.0.iter().any(|(producer, offsets)| {
                *producer == header.producer_id && offsets.contains(&header.base_offset)
            })
    }
}

/// Rows in the making. A worker keeps one: it remembers how large the last rows were.
pub struct RowsBuilder {
    from: Offset,
    until: Offset,
    aborted: Aborted,
    limits: Limits,
    expander: Expander,
    columns: Columns,
}

impl Default for RowsBuilder {
    fn default() -> RowsBuilder {
        RowsBuilder::new()
    }
}

impl RowsBuilder {
    /// Rows of about so many bytes are best made and passed on at once: they stay in the caches
    /// of a CPU on their way.
    pub const GOOD_BYTES: usize = 1 << 20;

    /// Every offset is taken, nothing counts as aborted.
    pub fn new() -> RowsBuilder {
        RowsBuilder {
            from: Offset(i64::MIN),
            until: Offset(i64::MAX),
            aborted: Aborted::default(),
            limits: STORED,
            expander: Expander::default(),
            columns: Columns::default(),
        }
    }

    /// From the next push on, rows outside `[from, until)` are left out.
    pub fn window(&mut self, from: Offset, until: Offset) {
        (self.from, self.until) = (from, until);
    }

    /// From the next push on, records of these transactions are left out.
    pub fn aborted(&mut self, aborted: Aborted) {
        self.aborted = aborted;
    }

    /// Adds the records of one whole batch, which the log took at `append_time`.
    ///
    /// # Errors
    /// The batch cannot be read; it has added nothing.
    pub fn push(
        &mut self,
        partition: i32,
        append_time: Timestamp,
        batch: &[u8],
    ) -> Result<(), RowsError> {
        let refused = |offset, source| RowsError::Batch { partition, offset, source };
        let (header, body, rest) =
            BatchHeader::split(batch).map_err(|source| refused(Offset(-1), source))?;
        let base = header.base_offset;
        if !rest.is_empty() {
            let several = BatchError::Several { batch: header.bytes(), got: batch.len() };
            return Err(refused(base, several));
        }
        let computed = header.crc_with(body);
        if computed != header.crc {
            return Err(refused(base, BatchError::Crc { stored: header.crc, computed }));
        }
        let is_empty = header.record_count <= 0 && body.is_empty();
        if is_empty || header.attributes.is_control() || self.aborted.has(&header) {
            return Ok(());
        }
        let unknown = BatchError::UnknownCodec(header.attributes.codec_bits());
        let codec = header.attributes.codec().ok_or(unknown).map_err(|e| refused(base, e))?;
        let records = expand(codec, body, &self.limits, &mut self.expander)
            .map_err(|source| refused(base, source))?;
        if !self.columns.have_room(records.len()) {
            return Err(RowsError::Full);
        }
        let frame = Frame { header: &header, codec, partition, append_time };
        let pushed = self.columns.push(&frame, records, self.from..self.until);
        self.expander.shrink();
        pushed.map_err(|source| refused(base, source))
    }

    /// What the rows take in memory, about.
    pub fn bytes(&self) -> usize {
        self.columns.bytes()
    }

    pub fn rows(&self) -> usize {
        self.columns.rows()
    }

    /// All rows pushed since the last call.
    pub fn finish(&mut self) -> Result<RecordBatch, RowsError> {
        let next = self.columns.as_large();
        Ok(std::mem::replace(&mut self.columns, next).finish()?)
    }
}
