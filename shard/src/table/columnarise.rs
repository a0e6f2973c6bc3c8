//! Columnarising: batches of the log become a file of the table.
//!
//! A feed of each partition is read to its end, some megabytes at a time; markers and aborted
//! records make no rows, and every offset of the feed is covered. The file is durable when the job
//! ends; the rows count as in the table only when the edit has been committed.
//!
//! A batch that cannot be read ends its partition there and keeps none of the others: the table of
//! a topic does not wait for one bad sector. What is behind it stays in the log.

use super::file::{Covered, FileWriter};
use super::job::{JobError, Site};
use super::manifest::Edit;
use super::rows::{Aborted, RowsBuilder, RowsError};
use crate::batch::BatchHeader;
use crate::ids::{Offset, Timestamp};
use crate::log::{ColdError, OpenFeed};
use bytes::Bytes;

/// What is read in one go.
const READ_BYTES: usize = 1 << 20;
/// Rows go into the file when they have come to this much in memory.
const ROWS_BYTES: usize = RowsBuilder::GOOD_BYTES;

/// The batches of one partition, in the order of their offsets.
pub trait Batches {
    /// The next ones with the broker's clock at their appends, at least one and no more than
    /// `bytes_max` of them beyond that; `None` at the end. Blocks.
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<(Timestamp, Bytes)>>, ColdError>;
}

impl Batches for OpenFeed {
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<(Timestamp, Bytes)>>, ColdError> {
        OpenFeed::next(self, bytes_max)
    }
}

/// What of a partition becomes rows.
pub struct Source<B> {
    pub partition: i32,
    /// The table end. The first batch may begin before it.
    pub from: Offset,
    /// The table end to be.
    pub until: Offset,
    pub aborted: Aborted,
    pub batches: B,
}

/// Makes one file of what the sources give; nothing if they give nothing. Blocks.
pub fn columnarise<B: Batches>(
    site: &mut Site<'_>,
    mut sources: Vec<Source<B>>,
) -> Result<Edit, JobError> {
    let now = site.now;
    sources.retain(|source| source.from < source.until);
    sources.sort_by_key(|source| source.partition);
    if sources.is_empty() {
        return Ok(Edit { now, ..Edit::default() });
    }
    let mut writer = FileWriter::create(site.disk, site.dir, (site.next_id)(), now)?;
    let mut rows = RowsBuilder::new();
    let mut covered = Vec::with_capacity(sources.len());
    let mut failure = None;
    for mut source in sources {
        rows.window(source.from, source.until);
        rows.aborted(std::mem::take(&mut source.aborted));
        let mut taken = Taken { until: source.from, raw_bytes: 0 };
        match add_all(site, &mut source, &mut rows, &mut writer, &mut taken) {
            Ok(()) => taken.until = source.until,
            Err(error) if error.is_of_batch() => {
                let Source { partition, from, until, .. } = source;
                let (dir, reached) = (site.dir.display(), taken.until);
                tracing::error!(%dir, partition, %from, %until, %reached, %error, "cannot be read");
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
        if taken.until > source.from {
            let (first, end) = (source.from, taken.until);
            let Taken { raw_bytes, .. } = taken;
            covered.push(Covered { partition: source.partition, first, end, raw_bytes });
        }
    }
    if let Some(error) = failure.filter(|_| covered.is_empty()) {
        return Err(error);
    }
    flush(&mut rows, &mut writer)?;
    let file = writer.finish(&covered)?;
    Ok(Edit { add: vec![file], now, ..Edit::default() })
}

/// How much of a source is in.
struct Taken {
    until: Offset,
    /// Of the batches.
    raw_bytes: u64,
}

/// Adds all rows of a source, or those in front of a batch that cannot be read.
fn add_all<B: Batches>(
    site: &Site<'_>,
    source: &mut Source<B>,
    rows: &mut RowsBuilder,
    writer: &mut FileWriter<'_>,
    taken: &mut Taken,
) -> Result<(), JobError> {
    let partition = source.partition;
    while let Some(batches) = source.batches.next(READ_BYTES)? {
        site.go_on()?;
        for (append_time, batch) in batches {
            match rows.push(partition, append_time, &batch) {
                Err(RowsError::Full) if rows.rows() > 0 => {
                    flush(rows, writer)?;
                    rows.push(partition, append_time, &batch)?;
                }
                other => other?,
            }
            taken.raw_bytes += batch.len() as u64;
            if let Ok((header, ..)) = BatchHeader::split(&batch) {
                taken.until = header.end_offset().clamp(taken.until, source.until);
            }
            if rows.bytes() >= ROWS_BYTES {
                flush(rows, writer)?;
            }
        }
    }
    Ok(())
}

fn flush(rows: &mut RowsBuilder, writer: &mut FileWriter<'_>) -> Result<(), JobError> {
    if rows.rows() > 0 {
        writer.add(&rows.finish()?)?;
    }
    Ok(())
}
