//! Reads a table file: what it holds, and rows of a range of offsets.
//!
//! Opening reads the tail and proves it; every byte of data is proved when it is read. A reader is
//! shared by all who read the file, each scan being a value of its own. Scans read only the pages
//! and columns they need, and end in an error when there are fewer rows than the footer promises.
//!
//! Worked example: partition 1 of a file with parts 0 (rows 0..500) and 1 (rows 500..900, offsets
//! 40..1000, compacted) is scanned from offset 60. The index of the offset column names the page
//! that holds the first offset ≥ 60, that page's offsets say it is row 507, and the scan reads the
//! rows 507..900.

use super::checked::{read_exactly, unwrapped, Checked, Failure, Window};
use super::tail::{self, END_BYTES, MAGIC};
use crate::disk::Disk;
use crate::ids::Offset;
use crate::table::error::{Damage, TableError};
use crate::table::schema::{column, storage_schema};
use crate::table::{FileFacts, Part};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::arrow::ProjectionMask;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The leaf column of the offsets: `headers` before it has two leaves.
const OFFSET_LEAF: usize = column::OFFSET + 1;
/// Likewise that of the values.
const VALUE_LEAF: usize = column::VALUE;
/// What is read at once from the end of a file: most tails are smaller.
const TAIL_READ_BYTES: u64 = 64 << 10;

/// An open table file.
#[derive(Clone)]
pub struct FileReader {
    checked: Arc<Checked>,
    facts: Arc<FileFacts>,
    metadata: ArrowReaderMetadata,
}

/// Which rows and columns to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub partition: i32,
    pub from: Offset,
    /// Exclusive.
    pub until: Offset,
    /// By their places in the schema (`schema::column`), ascending.
    pub columns: Vec<usize>,
    /// The most rows of a batch.
    pub batch_rows: usize,
}

impl Scan {
    /// All columns of all rows of a partition.
    pub fn all(partition: i32) -> Scan {
        Scan {
            partition,
            from: Offset(i64::MIN),
            until: Offset(i64::MAX),
            columns: (0..column::ALL).collect(),
            batch_rows: 8192,
        }
    }
}

impl FileReader {
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<FileReader, TableError> {
        let file = disk.open(path).map_err(TableError::io(path))?;
        let bytes = file.len().map_err(TableError::io(path))?;
        let damaged = |damage| TableError::damaged(path, damage);
        if bytes < (2 * END_BYTES) as u64 {
            return Err(damaged(Damage::Short { bytes }));
        }
        let from = bytes.saturating_sub(TAIL_READ_BYTES);
        let mut end = read_exactly(path, &*file, from, bytes)?;
        let footer_at = footer_start(&end, bytes).ok_or_else(|| damaged(Damage::Footer))?;
        if footer_at < from {
            end = read_exactly(path, &*file, footer_at, bytes)?;
        }
        let footer = end.get(end.len() - (bytes - footer_at) as usize..).unwrap_or_default();
        let data_end = tail::data_end(footer).filter(|data_end| *data_end <= footer_at);
        let data_end = data_end.ok_or_else(|| damaged(Damage::Footer))?;
        if data_end < bytes - end.len() as u64 {
            end = read_exactly(path, &*file, data_end, bytes)?;
        }
        let behind = end.len() - (bytes - data_end) as usize;
        let end = Bytes::from(end).slice(behind..);
        tail::check(&end).map_err(damaged)?;
        let parsed = parse(end, bytes);
        let metadata = parsed.map_err(|error| damaged(Damage::Parquet(error.to_string())))?;
        let entries = metadata.metadata().file_metadata().key_value_metadata();
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        let (facts, checksums) = tail::parse(entries, bytes).map_err(damaged)?;
        if checksums.data_bytes != data_end {
            return Err(damaged(Damage::Missing("end of the data")));
        }
        let checked = Arc::new(Checked { path: path.to_path_buf(), file, checksums });
        let reader = FileReader { checked, facts: Arc::new(facts), metadata };
        reader.check()?;
        Ok(reader)
    }

    /// Opens a file that is to be the one these facts are of.
    pub fn open_as(
        disk: &dyn Disk,
        path: &Path,
        facts: &FileFacts,
    ) -> Result<FileReader, TableError> {
        let reader = FileReader::open(disk, path)?;
        if reader.facts() == facts {
            return Ok(reader);
        }
        let (bytes, expected) = (reader.facts().bytes, facts.bytes);
        let damage = match bytes == expected {
            true => Damage::Missing("parts that the manifest knows"),
            false => Damage::Length { bytes, expected },
        };
        Err(TableError::damaged(path, damage))
    }

    pub fn path(&self) -> &PathBuf {
        &self.checked.path
    }

    /// What the file says it holds; its length is the one it has.
    pub fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// The footer with all page indexes.
    pub fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.metadata.metadata()
    }

    /// Bytes of the data part, verified: for other readers of Parquet, which have the footer from
    /// here too.
    pub fn bytes(&self, range: Range<u64>) -> Result<Bytes, TableError> {
        self.checked.read(range.start, range.end)
    }

    /// What an open reader takes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.metadata().memory_size() + 4 * self.checked.checksums.blocks.len() + 1024
    }

    /// The rows of a range of offsets.
    pub fn read(&self, scan: &Scan) -> Result<RowsReader, TableError> {
        let from = self.row_at(scan.partition, scan.from)?;
        let until = self.row_at(scan.partition, scan.until)?;
        self.read_rows(from..until.max(from), &scan.columns, scan.batch_rows)
    }

    /// The rows of a range of places in the file, whatever their partitions.
    pub fn read_rows(
        &self,
        rows: Range<u64>,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<RowsReader, TableError> {
        let mut groups = Vec::new();
        let mut skip = 0;
        let mut start = 0;
        for (number, group) in self.metadata().row_groups().iter().enumerate() {
            let end = start + group.num_rows().max(0) as u64;
            if end > rows.start && start < rows.end {
                if groups.is_empty() {
                    skip = rows.start - start;
                }
                groups.push(number);
            }
            start = end;
        }
        let expected = rows.end.min(start).saturating_sub(rows.start);
        let selection = RowSelection::from(vec![
            RowSelector::skip(skip as usize),
            RowSelector::select(expected as usize),
        ]);
        let schema = self.metadata().file_metadata().schema_descr();
        let mask = ProjectionMask::roots(schema, columns.iter().copied());
        let window = Window::new(self.checked.clone());
        let failure = window.failure();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(window, self.metadata.clone())
                .with_row_groups(groups)
                .with_row_selection(selection)
                .with_projection(mask)
                .with_batch_size(batch_rows.max(1));
        let reader = builder.build().map_err(|error| unwrapped(self.path(), &failure, error))?;
        let checked = self.checked.clone();
        Ok(RowsReader { checked, failure, reader, expected, got: 0, is_done: false })
    }

    /// The places of a partition's rows in the file.
    pub fn rows_of(&self, partition: i32) -> Result<Range<u64>, TableError> {
        Ok(self.place(partition)?.1)
    }

    /// The place of the first row of a partition at or behind an offset; the end of the partition
    /// when there is none.
    pub fn row_at(&self, partition: i32, offset: Offset) -> Result<u64, TableError> {
        let (part, rows) = self.place(partition)?;
        if offset <= part.first || rows.is_empty() {
            return Ok(rows.start);
        }
        if offset >= part.end {
            return Ok(rows.end);
        }
        if part.rows == (part.end.0 - part.first.0) as u64 {
            // Without gaps a row's place follows from its offset.
            return Ok(rows.start + (offset.0 - part.first.0) as u64);
        }
        let candidates = self.candidates(&rows, offset)?;
        let mut at = candidates.start;
        for batch in self.read_rows(candidates, &[column::OFFSET], 8192)? {
            let batch = batch?;
            let offsets = batch.column(0).as_primitive::<Int64Type>().values();
            let before = offsets.partition_point(|have| *have < offset.0);
            at += before as u64;
            if before < offsets.len() {
                break;
            }
        }
        Ok(at)
    }

    /// Where the pages of the values begin: the natural borders of work on this file.
    pub fn page_starts(&self) -> Result<Vec<u64>, TableError> {
        self.pages_of(VALUE_LEAF).map(|pages| pages.into_iter().map(|page| page.start).collect())
    }

    fn place(&self, partition: i32) -> Result<(Part, Range<u64>), TableError> {
        let mut start = 0;
        for part in &self.facts.parts {
            if part.partition == partition {
                return Ok((*part, start..start + part.rows));
            }
            start += part.rows;
        }
        Err(TableError::NoPartition { path: self.path().clone(), partition })
    }

    /// Rows among which the first at or behind `offset` is, or right behind which.
    fn candidates(&self, rows: &Range<u64>, offset: Offset) -> Result<Range<u64>, TableError> {
        let pages = self.pages_of(OFFSET_LEAF)?;
        let missing =
            || TableError::damaged(self.path(), Damage::Missing("column index of offsets"));
        let all = self.metadata().column_index().ok_or_else(missing)?;
        let mut bounds = Vec::with_capacity(pages.len());
        for group in all {
            let Some(ColumnIndexMetaData::INT64(index)) = group.get(OFFSET_LEAF) else {
                return Err(missing());
            };
            bounds.extend(index.min_values().iter().zip(index.max_values()));
        }
        if bounds.len() != pages.len() {
            return Err(missing());
        }
        // Pages that hold nothing of other partitions: only of these the bounds say something.
        let mut found = rows.clone();
        for (page, (&min, &max)) in pages.iter().zip(bounds) {
            if page.start < rows.start || page.end > rows.end {
                continue;
            }
            if max < offset.0 {
                found.start = page.end;
                continue;
            }
            let is_before = offset.0 < min;
            found.end = if is_before && found.start < page.start { page.start } else { page.end };
            if !is_before {
                found.start = page.start;
            }
            break;
        }
        Ok(found)
    }

    /// The rows of each page of a leaf column.
    fn pages_of(&self, leaf: usize) -> Result<Vec<Range<u64>>, TableError> {
        let missing = || TableError::damaged(self.path(), Damage::Missing("offset index"));
        let groups = self.metadata().row_groups();
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.metadata().offset_index().ok_or_else(missing)?;
        let mut pages: Vec<Range<u64>> = Vec::new();
        let mut start = 0;
        for (group, index) in groups.iter().zip(all) {
            let end = start + group.num_rows().max(0) as u64;
            let locations = index.get(leaf).ok_or_else(missing)?.page_locations();
            for location in locations {
                let first = start + location.first_row_index.max(0) as u64;
                if let Some(last) = pages.last_mut() {
                    last.end = first;
                }
                pages.push(first..end);
            }
            start = end;
        }
        Ok(pages)
    }

    /// Holds the parts to what the footer says of the rows and columns.
    fn check(&self) -> Result<(), TableError> {
        let damaged = |damage| Err(TableError::damaged(self.path(), damage));
        let footer = self.metadata().file_metadata();
        let (got, expected) = (footer.num_rows().max(0) as u64, self.facts.rows());
        let in_groups = self.metadata().row_groups().iter().map(|group| group.num_rows());
        if got != expected || in_groups.sum::<i64>() != footer.num_rows() {
            return damaged(Damage::Rows { expected, got });
        }
        if self.metadata.schema().fields() != storage_schema().fields() {
            return damaged(Damage::Missing("columns of a table"));
        }
        let is_sane =
            |part: &Part| part.first <= part.end && part.rows <= part.end.0.abs_diff(part.first.0);
        let is_sorted = self.facts.parts.is_sorted_by(|a, b| a.partition < b.partition);
        if !is_sorted || !self.facts.parts.iter().all(is_sane) {
            return damaged(Damage::Missing("sensible parts"));
        }
        Ok(())
    }
}

/// Where the footer of a file of so many bytes starts, given its end.
fn footer_start(end: &[u8], bytes: u64) -> Option<u64> {
    let (rest, magic) = end.split_last_chunk::<4>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    if magic != MAGIC {
        return None;
    }
    bytes.checked_sub(END_BYTES as u64 + u64::from(u32::from_le_bytes(*length)))
}

fn parse(tail: Bytes, bytes: u64) -> parquet::errors::Result<ArrowReaderMetadata> {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    reader.try_parse_sized(&tail, bytes)?;
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    ArrowReaderMetadata::try_new(Arc::new(reader.finish()?), options)
}

/// The rows of a scan, batch by batch.
pub struct RowsReader {
    checked: Arc<Checked>,
    failure: Failure,
    reader: ParquetRecordBatchReader,
    expected: u64,
    got: u64,
    is_done: bool,
}

impl Iterator for RowsReader {
    type Item = Result<RecordBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        match self.reader.next() {
            Some(Ok(batch)) => {
                self.got += batch.num_rows() as u64;
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.is_done = true;
                let error = parquet::errors::ParquetError::from(error);
                Some(Err(unwrapped(&self.checked.path, &self.failure, error)))
            }
            None => {
                self.is_done = true;
                let (expected, got) = (self.expected, self.got);
                let damage = Damage::Rows { expected, got };
                let short = || Err(TableError::damaged(&self.checked.path, damage));
                (got != expected).then(short)
            }
        }
    }
}
