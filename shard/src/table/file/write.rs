//! Writes a table file: rows in, a durable file and what is known of it out.
//!
//! A worker creates a writer, adds rows in order and finishes; only then does the file have its
//! name. A writer that is dropped takes its temporary file with it. At most one row group is in
//! memory.

use super::read::FileReader;
use super::tail::{self, Checksums, BLOCK_BYTES};
use crate::batch::crc32c;
use crate::disk::{Disk, WriteFile};
use crate::ids::{Offset, Timestamp};
use crate::table::error::{Damage, TableError};
use crate::table::schema::{column, storage_schema};
use crate::table::{file_path, FileFacts, FileId, Part};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Rows of a page; fewer where they are large. What a reader of one record decodes.
const PAGE_ROWS: usize = 2000;
const PAGE_BYTES: usize = 1 << 20;
/// What readers share a file by, and what a writer holds in memory.
const GROUP_ROWS_MAX: usize = 64 * PAGE_ROWS;
const GROUP_BYTES_MAX: usize = 64 << 20;

/// The offsets of a partition that a file stands for, whether or not all have rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub partition: i32,
    pub first: Offset,
    /// Exclusive.
    pub end: Offset,
    /// What the rows' batches took in the log.
    pub raw_bytes: u64,
}

/// A table file in the making.
pub struct FileWriter<'a> {
    disk: &'a dyn Disk,
    id: FileId,
    created: Timestamp,
    path: PathBuf,
    temporary: PathBuf,
    writer: ArrowWriter<Sink>,
    /// In the row group that is being made.
    group_bytes: usize,
    group_rows: usize,
    seen: Vec<Seen>,
    is_finished: bool,
}

/// The rows of one partition so far.
struct Seen {
    partition: i32,
    first: Offset,
    last: Offset,
    rows: u64,
    min_timestamp: Timestamp,
    max_timestamp: Timestamp,
    max_append_time: Timestamp,
}

impl<'a> FileWriter<'a> {
    /// Begins a file of the table in this directory, which is made if need be.
    pub fn create(
        disk: &'a dyn Disk,
        table: &Path,
        id: FileId,
        created: Timestamp,
    ) -> Result<FileWriter<'a>, TableError> {
        let path = file_path(table, id);
        let dir = path.parent().unwrap_or(table);
        disk.create_dir(dir).map_err(TableError::io(dir))?;
        let temporary = path.with_extension("parquet.tmp");
        let file = disk.create(&temporary).map_err(TableError::io(&temporary))?;
        let properties = properties().map_err(|error| refused(&path, error))?;
        let writer = ArrowWriter::try_new(Sink::new(file), storage_schema(), Some(properties))
            .map_err(|error| refused(&path, error))?;
        Ok(FileWriter {
            disk,
            id,
            created,
            path,
            temporary,
            writer,
            group_bytes: 0,
            group_rows: 0,
            seen: Vec::new(),
            is_finished: false,
        })
    }

    /// Adds rows. All rows of a file are sorted by partition and offset.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<(), TableError> {
        if rows.schema_ref().fields() != storage_schema().fields() {
            let reason = format!("{:?}", rows.schema_ref().fields());
            return Err(TableError::Columns { path: self.path.clone(), reason });
        }
        self.note(rows)?;
        let mut at = 0;
        while at < rows.num_rows() {
            let page_room = PAGE_ROWS - self.group_rows % PAGE_ROWS;
            let count = fitting(rows, at, page_room);
            let some = rows.slice(at, count);
            self.writer.write(&some).map_err(|error| refused(&self.path, error))?;
            self.group_rows += count;
            self.group_bytes += bytes_of(rows, at, at + count);
            at += count;
            if self.group_rows >= GROUP_ROWS_MAX || self.group_bytes >= GROUP_BYTES_MAX {
                self.writer.flush().map_err(|error| refused(&self.path, error))?;
                (self.group_rows, self.group_bytes) = (0, 0);
            }
        }
        Ok(())
    }

    /// The file's size so far, about.
    pub fn bytes(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    /// Makes the file durable under its name and says what it holds: `covered`, sorted by
    /// partition, names every partition that rows were added of, and may name others.
    pub fn finish(mut self, covered: &[Covered]) -> Result<FileFacts, TableError> {
        let parts = self.parts(covered)?;
        let mut facts = FileFacts { id: self.id, bytes: 0, created: self.created, parts };
        self.write_tail(&facts).map_err(|error| refused(&self.path, error))?;
        let sink = self.writer.inner_mut();
        sink.finish().map_err(TableError::io(&self.temporary))?;
        facts.bytes = sink.bytes;
        let back = FileReader::open(self.disk, &self.temporary)?;
        if *back.facts() != facts {
            let damage = Damage::Parquet("the footer reads back as another".to_string());
            return Err(TableError::damaged(&self.temporary, damage));
        }
        drop(back);
        self.disk.rename(&self.temporary, &self.path).map_err(TableError::io(&self.path))?;
        self.is_finished = true;
        Ok(facts)
    }

    /// Everything behind the data, with its checksum, into the sink.
    fn write_tail(&mut self, facts: &FileFacts) -> Result<(), ParquetError> {
        self.writer.flush()?;
        self.writer.sync()?;
        let checksums = self.writer.inner_mut().end_data();
        for entry in tail::entries(facts, &checksums) {
            self.writer.append_key_value_metadata(entry);
        }
        self.writer.finish()?;
        self.writer.sync()?;
        Ok(())
    }

    /// Notes the rows' places and times.
    fn note(&mut self, rows: &RecordBatch) -> Result<(), TableError> {
        let longs = |at: usize| rows.column(at).as_primitive::<Int64Type>().values();
        let partitions = rows.column(column::PARTITION).as_primitive::<Int32Type>().values();
        let times = longs(column::TIMESTAMP_MS).iter().zip(longs(column::APPEND_TIME_MS));
        let places = partitions.iter().zip(longs(column::OFFSET));
        for ((&partition, &offset), (&time, &append_time)) in places.zip(times) {
            let offset = Offset(offset);
            let (time, append_time) = (Timestamp(time), Timestamp(append_time));
            match self.seen.last_mut() {
                Some(seen) if seen.partition == partition && seen.last < offset => {
                    seen.last = offset;
                    seen.rows += 1;
                    seen.min_timestamp = seen.min_timestamp.min(time);
                    seen.max_timestamp = seen.max_timestamp.max(time);
                    seen.max_append_time = seen.max_append_time.max(append_time);
                }
                Some(seen) if seen.partition >= partition => {
                    let path = self.path.clone();
                    return Err(TableError::OutOfPlace { path, partition, offset });
                }
                _ => self.seen.push(Seen {
                    partition,
                    first: offset,
                    last: offset,
                    rows: 1,
                    min_timestamp: time,
                    max_timestamp: time,
                    max_append_time: append_time,
                }),
            }
        }
        Ok(())
    }

    fn parts(&self, covered: &[Covered]) -> Result<Vec<Part>, TableError> {
        let path = || self.path.clone();
        let mut parts: Vec<Part> = Vec::with_capacity(covered.len());
        for covered in covered {
            let Covered { partition, first, end, raw_bytes } = *covered;
            if first > end || parts.last().is_some_and(|part| part.partition >= partition) {
                return Err(TableError::OutOfPlace { path: path(), partition, offset: first });
            }
            let seen = self.seen.iter().find(|seen| seen.partition == partition);
            if let Some(seen) = seen.filter(|seen| seen.first < first || seen.last >= end) {
                let offset = seen.first;
                return Err(TableError::OutOfPlace { path: path(), partition, offset });
            }
            parts.push(Part {
                partition,
                first,
                end,
                rows: seen.map_or(0, |seen| seen.rows),
                raw_bytes,
                min_timestamp: seen.map_or(Timestamp(-1), |seen| seen.min_timestamp),
                max_timestamp: seen.map_or(Timestamp(-1), |seen| seen.max_timestamp),
                max_append_time: seen.map_or(Timestamp(-1), |seen| seen.max_append_time),
            });
        }
        let is_covered = |seen: &&Seen| covered.iter().any(|c| c.partition == seen.partition);
        match self.seen.iter().find(|seen| !is_covered(seen)) {
            Some(&Seen { partition, first: offset, .. }) => {
                Err(TableError::OutOfPlace { path: path(), partition, offset })
            }
            None => Ok(parts),
        }
    }
}

impl Drop for FileWriter<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Left behind it would only cost space until the table is opened the next time.
        if let Err(error) = self.disk.remove(&self.temporary) {
            let path = self.temporary.display().to_string();
            tracing::debug!(path, %error, "an unfinished table file stays");
        }
    }
}

/// How many rows from `at` on are given to Parquet's writer at once: after each time it looks
/// whether a page is full, and `add` whether the row group is.
fn fitting(rows: &RecordBatch, at: usize, page_room: usize) -> usize {
    let fits = |count: usize| bytes_of(rows, at, at + count) <= PAGE_BYTES;
    let most = page_room.min(rows.num_rows() - at);
    if fits(most) {
        return most;
    }
    let (mut fit, mut too_many) = (1, most);
    while fit + 1 < too_many {
        let middle = (fit + too_many) / 2;
        if fits(middle) {
            fit = middle;
        } else {
            too_many = middle;
        }
    }
    fit
}

/// What keys, values and headers of the rows `[from, to)` take.
fn bytes_of(rows: &RecordBatch, from: usize, to: usize) -> usize {
    let span = |ends: &[i32], from: usize, to: usize| {
        let at = |place: usize| ends.get(place).copied().unwrap_or_default() as usize;
        (at(from), at(to))
    };
    let blob = |array: &dyn Array, from: usize, to: usize| {
        let (start, end) = span(array.as_binary::<i32>().value_offsets(), from, to);
        end - start
    };
    let headers = rows.column(column::HEADERS).as_list::<i32>();
    let (first, last) = span(headers.value_offsets(), from, to);
    let inner = headers.values().as_struct();
    blob(rows.column(column::KEY), from, to)
        + blob(rows.column(column::VALUE), from, to)
        + inner.columns().iter().map(|column| blob(column, first, last)).sum::<usize>()
}

fn refused(path: &Path, error: ParquetError) -> TableError {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(source) => TableError::Io { path: path.to_path_buf(), source: *source },
            Err(other) => columns(path, other.to_string()),
        },
        other => columns(path, other.to_string()),
    }
}

fn columns(path: &Path, reason: String) -> TableError {
    TableError::Columns { path: path.to_path_buf(), reason }
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let path = |names: &[&str]| ColumnPath::new(names.iter().map(|n| n.to_string()).collect());
    let blobs = [
        path(&["key"]),
        path(&["value"]),
        path(&["headers", "list", "element", "key"]),
        path(&["headers", "list", "element", "value"]),
    ];
    let numbers = [
        "timestamp_broker",
        "timestamp_producer",
        "kafka_partition",
        "kafka_offset",
        "_timestamp_ms",
        "_timestamp_type",
        "_append_time_ms",
        "_leader_epoch",
        "_codec",
    ];
    let mut builder = WriterProperties::builder()
        .set_created_by(format!("basalt {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(PAGE_ROWS)
        .set_max_row_group_row_count(None);
    for blob in blobs {
        builder = builder.set_column_statistics_enabled(blob, EnabledStatistics::None);
    }
    for number in numbers {
        let number = path(&[number]);
        builder = builder.set_column_encoding(number, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

/// Where Parquet's writer writes to: the data with checksums into the file, the tail into memory.
struct Sink {
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    checksums: Checksums,
    /// What the last block, not yet whole, holds.
    block: Vec<u8>,
    tail: Option<Vec<u8>>,
    bytes: u64,
}

impl Sink {
    const BUFFER_BYTES: usize = 1 << 20;

    fn new(file: Box<dyn WriteFile>) -> Sink {
        Sink {
            file,
            buffer: Vec::with_capacity(Self::BUFFER_BYTES),
            checksums: Checksums::default(),
            block: Vec::with_capacity(BLOCK_BYTES as usize),
            tail: None,
            bytes: 0,
        }
    }

    fn note_data(&mut self, mut bytes: &[u8]) {
        self.checksums.data_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = BLOCK_BYTES as usize - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES as usize {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.checksums.blocks.push(crc32c(&[&self.block]));
            self.block.clear();
        }
    }

    /// What comes now is the tail.
    fn end_data(&mut self) -> Checksums {
        self.end_block();
        self.tail = Some(Vec::new());
        self.checksums.clone()
    }

    /// Writes what is left, the tail sealed, and syncs.
    fn finish(&mut self) -> io::Result<()> {
        let mut tail = self.tail.take().unwrap_or_default();
        tail::seal(&mut tail);
        self.bytes = self.checksums.data_bytes + tail.len() as u64;
        self.buffer.extend_from_slice(&tail);
        self.file.append(&self.buffer)?;
        self.buffer.clear();
        self.file.sync()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tail {
            Some(tail) => tail.extend_from_slice(bytes),
            None => {
                self.note_data(bytes);
                self.buffer.extend_from_slice(bytes);
                if self.buffer.len() >= Self::BUFFER_BYTES {
                    self.file.append(&self.buffer)?;
                    self.buffer.clear();
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
