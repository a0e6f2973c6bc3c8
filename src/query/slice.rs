//! Rows that are no whole Parquet file: batches of the log, and files below whose log start rows
//! have gone.
//!
//! A slice reads front to back, a block at a time, on a query thread. Batches are made into columns
//! as they are read; blocks whose batch headers say that no row of them can be wanted are dropped
//! before they are decompressed, with the very pruning DataFusion does on files; a sort for the
//! newest rows narrows that while it runs.

use super::files::{self, Files};
use super::snapshots::{Hot, RawBatch, RawBatches, RawError};
use super::source::Reading;
use super::statistics;
use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::projection::Projector;
use shard::batch::BatchHeader;
use shard::ids::Offset;
use shard::table::file::{RowsReader, Scan};
use shard::table::rows::{RowsBuilder, RowsError};
use shard::table::schema::visible_columns;
use shard::table::TableFile;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What is read and made into columns in one go.
const BLOCK_BYTES: usize = 1 << 20;

/// A stretch of a partition.
#[derive(Clone)]
pub struct Slice {
    pub partition: i32,
    pub from: Offset,
    pub end: Offset,
    pub of: SliceOf,
}

/// What a stretch is read from.
#[derive(Clone)]
pub enum SliceOf {
    Batches(Arc<dyn Hot>),
    File(Arc<TableFile>, Arc<Files>),
}

impl Slice {
    /// What reading it reads, about.
    pub fn bytes(&self) -> u64 {
        match &self.of {
            SliceOf::Batches(hot) => hot.bytes(),
            SliceOf::File(file, _) => file.facts.bytes,
        }
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} offsets {}..{}", self.partition, self.from, self.end)
    }
}

/// The rows of a slice, block by block.
pub struct SliceRows {
    blocks: Source,
    reading: Arc<Reading>,
    projector: Projector,
    /// Made and not yet handed out, all of one block.
    block: Option<RecordBatch>,
}

enum Source {
    Batches(Box<FromBatches>),
    File(RowsReader),
}

/// Batches on their way to being columns.
struct FromBatches {
    slice: Slice,
    batches: Box<dyn RawBatches>,
    builder: RowsBuilder,
    /// Batches that did not fit into the columns of the last block.
    left: VecDeque<RawBatch>,
}

impl SliceRows {
    pub fn open(slice: &Slice, reading: Arc<Reading>) -> Result<SliceRows> {
        let blocks = match &slice.of {
            SliceOf::Batches(hot) => {
                let batches = hot.open().map_err(|error| unreadable(slice, error))?;
                let mut builder = RowsBuilder::new();
                builder.window(slice.from, slice.end);
                let (slice, left) = (slice.clone(), VecDeque::new());
                Source::Batches(Box::new(FromBatches { slice, batches, builder, left }))
            }
            SliceOf::File(file, files) => {
                let scan = Scan {
                    partition: slice.partition,
                    from: slice.from,
                    until: slice.end,
                    columns: (0..visible_columns()).collect(),
                    batch_rows: reading.batch_rows,
                };
                let reader = files.reader(file).map_err(files::failed)?;
                Source::File(reader.read(&scan).map_err(files::failed)?)
            }
        };
        let projector = reading.projection.make_projector(&reading.schema)?;
        Ok(SliceRows { blocks, reading, projector, block: None })
    }

    /// The next block with rows in it.
    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        let block = match &mut self.blocks {
            Source::Batches(batches) => batches.next(&self.reading)?,
            Source::File(rows) => rows.next().transpose().map_err(files::failed)?,
        };
        let Some(block) = block else { return Ok(None) };
        let visible: Vec<usize> = (0..visible_columns()).collect();
        Ok(Some(block.project(&visible)?.with_schema(self.reading.schema.clone())?))
    }
}

impl FromBatches {
    fn next(&mut self, reading: &Reading) -> Result<Option<RecordBatch>> {
        loop {
            if self.left.is_empty() {
                let read = self.batches.next(BLOCK_BYTES);
                let read = read.map_err(|error| unreadable(&self.slice, error))?;
                let Some(batches) = read else { return Ok(None) };
                if reading.prunes(&block_facts(self.slice.partition, &batches)?)? {
                    continue;
                }
                self.left = batches.into();
            }
            while let Some((appended, batch)) = self.left.front() {
                match self.builder.push(self.slice.partition, *appended, batch) {
                    Ok(()) => drop(self.left.pop_front()),
                    Err(RowsError::Full) if self.builder.rows() > 0 => break,
                    Err(error) => return Err(defective(&self.slice, error)),
                }
            }
            let rows = self.builder.finish().map_err(|error| defective(&self.slice, error))?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }
}

impl Iterator for SliceRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let block = match self.block.take() {
            Some(block) => block,
            None => match self.advance() {
                Ok(block) => block?,
                Err(error) => return Some(Err(error)),
            },
        };
        let now = block.num_rows().min(self.reading.batch_rows.max(1));
        if now < block.num_rows() {
            self.block = Some(block.slice(now, block.num_rows() - now));
        }
        Some(self.projector.project_batch(&block.slice(0, now)))
    }
}

/// A block as a file of its own, for pruning.
fn block_facts(partition: i32, batches: &[RawBatch]) -> Result<PartitionedFile> {
    let mut facts = statistics::Covered::new(partition);
    for (_, batch) in batches {
        let header = BatchHeader::parse(batch).map_err(|error| {
            DataFusionError::Execution(format!("partition {partition}: a batch: {error}"))
        })?;
        let last = header.base_offset.0.saturating_add(i64::from(header.last_offset_delta));
        facts.cover(header.base_offset, Offset(last));
    }
    Ok(PartitionedFile::new("block", 0).with_statistics(Arc::new(facts.bounds())))
}

fn unreadable(slice: &Slice, error: RawError) -> DataFusionError {
    DataFusionError::Execution(format!("{slice:?}: {error}"))
}

fn defective(slice: &Slice, error: RowsError) -> DataFusionError {
    DataFusionError::Execution(format!("{slice:?}: {error}"))
}
