//! Rows as record batches again: how old offsets are fetched.
//!
//! A fetch below a partition's hot start comes here, on a worker. The rows of a page of the file
//! become a *block* of batches, made once and kept in [`Blocks`]; what is sent are whole batches
//! from the one that holds the asked offset. Offsets, gaps, timestamps and their type, keys,
//! values, headers and leader epochs are as they were; batches are cut anew (about 256 KiB), are
//! not compressed and name no producer.
//!
//! A reader always gets on: the last batch of a part covers the offsets to the part's end, and
//! where no row is left a gap batch does. Worked example: of a part 40..100 with rows 40..60 the
//! batch from 40 has the last offset 99; a fetch from 70 gets a gap batch 70..99.
//!
//! Gaps: the codec a producer chose is not used again (the worker's time is worth more than the
//! bytes); a marker or an aborted record leaves a gap, not a batch.

use super::cache::Blocks;
use super::error::{Damage, TableError};
use super::file::FileReader;
use super::schema::column;
use super::TableFile;
use crate::batch::{gap_batch, place, BatchBuilder, Header, NewRecord, HEADER_BYTES};
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, Int8Type};
use arrow_array::{Array, BinaryArray, RecordBatch};
use bytes::Bytes;
use std::ops::Range;

/// Where a batch ends when a record more would pass this.
const BATCH_BYTES: usize = 256 << 10;

/// What is wanted of a partition's part in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub partition: i32,
    pub from: Offset,
    pub bytes_max: usize,
    /// The first batch is returned although it is longer than `bytes_max`.
    pub whole_first: bool,
}

/// Whole batches from the wanted offset on, to be sent as they are; nothing when the offset is
/// behind the file's part, or the first batch does not fit. Blocks.
pub fn rebatch(blocks: &Blocks, file: &TableFile, want: &Want) -> Result<Bytes, TableError> {
    let missing = || {
        let (path, partition) = (file.path.clone(), want.partition);
        TableError::NoPartition { path, partition }
    };
    let part = *file.facts.part(want.partition).ok_or_else(missing)?;
    let from = want.from.max(part.first);
    let mut taken = Taken { batches: Vec::new(), bytes: 0, want };
    if from < part.end {
        let reader = blocks.reader(file)?;
        let rows = reader.rows_of(want.partition)?;
        let mut row = reader.row_at(want.partition, from)?;
        if row >= rows.end {
            taken.push(&rest(from, part.end));
        }
        while row < rows.end {
            let borders = block_of(&reader, &rows, row)?;
            let block = blocks.block(&reader, want.partition, borders.clone())?;
            let first = block.batches.partition_point(|batch| batch.last < from);
            let mut wanted = block.batches.get(first..).unwrap_or_default().iter();
            if !wanted.all(|batch| taken.push(&batch.bytes)) {
                break;
            }
            row = borders.end;
        }
    }
    Ok(taken.joined())
}

/// A batch without a row from `from` as far towards `end` as one batch reaches.
fn rest(from: Offset, end: Offset) -> Bytes {
    let last = Offset(end.0 - 1).min(from.plus(i64::from(i32::MAX) - 1));
    Bytes::from(gap_batch(from, last, LeaderEpoch(-1)))
}

/// The rows of the block that a row is in: those of its partition in one page of values.
fn block_of(reader: &FileReader, rows: &Range<u64>, row: u64) -> Result<Range<u64>, TableError> {
    let starts = reader.page_starts()?;
    let next = starts.partition_point(|start| *start <= row);
    let start = next.checked_sub(1).and_then(|at| starts.get(at)).copied().unwrap_or(0);
    let end = starts.get(next).copied().unwrap_or(rows.end);
    Ok(start.max(rows.start)..end.min(rows.end))
}

/// Batches on their way to a reader.
struct Taken<'a> {
    batches: Vec<Bytes>,
    bytes: usize,
    want: &'a Want,
}

impl Taken<'_> {
    /// False when the batch is one too many.
    fn push(&mut self, batch: &Bytes) -> bool {
        let is_first = self.batches.is_empty() && self.want.whole_first;
        if self.bytes + batch.len() > self.want.bytes_max && !is_first {
            return false;
        }
        self.bytes += batch.len();
        self.batches.push(batch.clone());
        true
    }

    fn joined(mut self) -> Bytes {
        match self.batches.len() {
            1 => self.batches.remove(0),
            _ => Bytes::from(self.batches.concat()),
        }
    }
}

/// The batches made of the rows of one page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    batches: Vec<Made>,
}

#[derive(Debug, PartialEq, Eq)]
struct Made {
    last: Offset,
    bytes: Bytes,
}

impl Block {
    /// What the block takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let batches: usize = self.batches.iter().map(|batch| batch.bytes.len()).sum();
        batches + 100 * self.batches.len() + 200
    }
}

/// What a block is made from; the two timestamp columns for queries are not read.
const COLUMNS: [usize; 7] = [
    column::KEY,
    column::VALUE,
    column::HEADERS,
    column::OFFSET,
    column::TIMESTAMP_MS,
    column::TIMESTAMP_TYPE,
    column::LEADER_EPOCH,
];

/// Makes the block of these rows, which are all of one partition.
pub(super) fn make_block(
    reader: &FileReader,
    partition: i32,
    rows: Range<u64>,
) -> Result<Block, TableError> {
    let mut blocks = Making { made: Vec::new(), open: None, left: 0 };
    let count = (rows.end - rows.start) as usize;
    let is_last = rows.end == reader.rows_of(partition)?.end;
    for batch in reader.read_rows(rows, &COLUMNS, count)? {
        let batch = batch?;
        let columns = Columns::of(&batch);
        let damage = || Damage::Missing("columns of a table");
        let columns = columns.ok_or_else(|| TableError::damaged(reader.path(), damage()))?;
        blocks.left = columns.record_bytes();
        blocks.add(&columns);
    }
    let end = reader.facts().part(partition).filter(|_| is_last).map(|part| part.end);
    blocks.end_batch(end);
    Ok(Block { batches: blocks.made })
}

/// What a record takes beside its key, value and headers, as a rule at most.
const RECORD_BYTES: usize = 16;

/// The columns of rows, as they are read from a file.
struct Columns<'a> {
    key: &'a BinaryArray,
    value: &'a BinaryArray,
    header_ends: &'a [i32],
    header_key: &'a BinaryArray,
    header_value: &'a BinaryArray,
    offset: &'a [i64],
    timestamp: &'a [i64],
    timestamp_type: &'a [i8],
    epoch: &'a [i32],
}

impl<'a> Columns<'a> {
    fn of(rows: &'a RecordBatch) -> Option<Columns<'a>> {
        let [key, value, headers, offset, timestamp, timestamp_type, epoch] = rows.columns() else {
            return None;
        };
        let headers = headers.as_list_opt::<i32>()?;
        let inner = headers.values().as_struct_opt()?;
        let [header_key, header_value] = inner.columns() else { return None };
        Some(Columns {
            key: key.as_binary_opt()?,
            value: value.as_binary_opt()?,
            header_ends: headers.value_offsets(),
            header_key: header_key.as_binary_opt()?,
            header_value: header_value.as_binary_opt()?,
            offset: offset.as_primitive_opt::<Int64Type>()?.values(),
            timestamp: timestamp.as_primitive_opt::<Int64Type>()?.values(),
            timestamp_type: timestamp_type.as_primitive_opt::<Int8Type>()?.values(),
            epoch: epoch.as_primitive_opt::<Int32Type>()?.values(),
        })
    }

    /// What the rows take as records, about.
    fn record_bytes(&self) -> usize {
        let blobs = [self.key, self.value, self.header_key, self.header_value];
        let bytes = |blob: &BinaryArray| {
            let (first, last) = (blob.value_offsets().first(), blob.value_offsets().last());
            first.zip(last).map_or(0, |(first, last)| (last - first) as usize)
        };
        blobs.map(bytes).iter().sum::<usize>() + RECORD_BYTES * self.offset.len()
    }
}

/// A block in the making.
struct Making {
    made: Vec<Made>,
    open: Option<Open>,
    /// What the records to come take, about.
    left: usize,
}

/// The batch that records are being added to.
struct Open {
    builder: BatchBuilder,
    base: Offset,
    next: Offset,
    kind: Kind,
}

/// What all records of a batch share.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    epoch: LeaderEpoch,
    append_time: Option<Timestamp>,
}

impl Making {
    fn add(&mut self, rows: &Columns<'_>) {
        let mut headers = Vec::new();
        let numbers = rows.offset.iter().zip(rows.timestamp);
        let kinds = rows.timestamp_type.iter().zip(rows.epoch);
        for (row, ((&offset, &timestamp), (&kind, &epoch))) in numbers.zip(kinds).enumerate() {
            let timestamp = Timestamp(timestamp);
            let append_time = (kind != 0).then_some(timestamp);
            let kind = Kind { epoch: LeaderEpoch(epoch), append_time };
            let key = at(rows.key, row);
            let value = at(rows.value, row);
            headers_of(rows, row, &mut headers);
            let record = NewRecord { timestamp, key, value, headers: &headers };
            let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            let open = self.batch_for(Offset(offset), bytes, kind);
            // Below 2³¹: see `batch_for`.
            open.builder.skip((offset - open.next.0) as i32);
            open.builder.push(&record);
            open.next = Offset(offset + 1);
        }
    }

    /// The open batch if the record may follow in it, or else a new one.
    fn batch_for(&mut self, offset: Offset, bytes: usize, kind: Kind) -> &mut Open {
        let fits = |open: &Open| {
            open.kind == kind
                && open.builder.bytes() + bytes <= BATCH_BYTES
                && offset.0 - open.base.0 < i64::from(i32::MAX)
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.end_batch(None);
        }
        let room = BATCH_BYTES.min(self.left).max(bytes + RECORD_BYTES);
        self.left = self.left.saturating_sub(bytes + RECORD_BYTES);
        self.open.get_or_insert_with(|| {
            let builder = BatchBuilder::new().with_room(room);
            let builder = match kind.append_time {
                Some(time) => builder.appended_at(time),
                None => builder,
            };
            Open { builder, base: offset, next: offset, kind }
        })
    }

    /// Ends the open batch, which covers the offsets to `end` if that is given.
    fn end_batch(&mut self, end: Option<Offset>) {
        let Some(mut open) = self.open.take() else { return };
        if let Some(end) = end {
            let reach = Offset(end.0.min(open.base.0 + i64::from(i32::MAX)));
            let more = (reach.0 - open.next.0).max(0);
            open.builder.skip(more as i32);
            open.next = open.next.plus(more);
        }
        let mut bytes = open.builder.build();
        place(&mut bytes, open.base, open.kind.epoch);
        self.made.push(Made { last: Offset(open.next.0 - 1), bytes: Bytes::from(bytes) });
    }
}

#[inline(always)]
fn at(column: &BinaryArray, row: usize) -> Option<&[u8]> {
    column.is_valid(row).then(|| column.value(row))
}

fn headers_of<'a>(rows: &Columns<'a>, row: usize, into: &mut Vec<Header<'a>>) {
    into.clear();
    let (Some(&from), Some(&to)) = (rows.header_ends.get(row), rows.header_ends.get(row + 1))
    else {
        return;
    };
    for place in from as usize..to as usize {
        let key = at(rows.header_key, place).unwrap_or_default();
        into.push(Header { key, value: at(rows.header_value, place) });
    }
}

/// A batch without a row is the least that comes back.
const _: () = assert!(HEADER_BYTES < BATCH_BYTES);

#[cfg(test)]
mod tests;
