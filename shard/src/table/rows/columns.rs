//! The columns of rows in the making: plain vectors that become Arrow arrays without a copy.
//!
//! Filled by `rows` one batch at a time. What differs from record to record is pushed in one pass
//! over the records; what all records of a batch share is filled in behind it.

use crate::batch::{
    BatchError, BatchHeader, Codec, Header, Record, RecordErrors, RecordFault, RecordProblem,
    Records,
};
use crate::ids::{Offset, Timestamp};
use crate::table::schema::{header_element, storage_schema, ZONE};
use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, Int8Array, ListArray, RecordBatch, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// A batch on its way into rows.
pub(super) struct Frame<'a> {
    pub header: &'a BatchHeader,
    pub codec: Codec,
    pub partition: i32,
    pub append_time: Timestamp,
}

/// All columns, of equal length between pushes.
#[derive(Default)]
pub(super) struct Columns {
    key: Blobs,
    value: Blobs,
    /// What the producers stamped.
    producer_ms: Vec<i64>,
    /// Where each row's headers end.
    header_ends: Vec<i32>,
    header_key: Blobs,
    header_value: Blobs,
    partition: Vec<i32>,
    offset: Vec<i64>,
    timestamp_ms: Vec<i64>,
    timestamp_type: Vec<i8>,
    append_ms: Vec<i64>,
    epoch: Vec<i32>,
    codec: Vec<i8>,
}

impl Columns {
    /// No column of bytes holds more: their ends are counted in 32 bits.
    const BYTES_MAX: usize = i32::MAX as usize;

    /// Whether the records of a batch fit, which take so many bytes uncompressed.
    pub fn have_room(&self, records: usize) -> bool {
        let columns = [&self.key, &self.value, &self.header_key, &self.header_value];
        // Two bytes of a record make a header: their count is bounded by the bytes too.
        let most = columns.iter().map(|blobs| blobs.data.len().max(blobs.ends.len())).max();
        most.unwrap_or(0).saturating_add(records) <= Self::BYTES_MAX
    }

    /// Empty columns with room for as much as these hold, within reason.
    pub fn as_large(&self) -> Columns {
        let rows = room(self.rows());
        Columns {
            key: self.key.as_large(),
            value: self.value.as_large(),
            producer_ms: Vec::with_capacity(rows),
            header_ends: Vec::with_capacity(rows),
            header_key: self.header_key.as_large(),
            header_value: self.header_value.as_large(),
            partition: Vec::with_capacity(rows),
            offset: Vec::with_capacity(rows),
            timestamp_ms: Vec::with_capacity(rows),
            timestamp_type: Vec::with_capacity(rows),
            append_ms: Vec::with_capacity(rows),
            epoch: Vec::with_capacity(rows),
            codec: Vec::with_capacity(rows),
        }
    }

    pub fn rows(&self) -> usize {
        self.offset.len()
    }

    pub fn bytes(&self) -> usize {
        const FIXED_BYTES: usize = 8 * 4 + 4 * 5 + 2;
        let columns = [&self.key, &self.value, &self.header_key, &self.header_value];
        let blobs: usize =
            columns.iter().map(|blobs| blobs.data.len() + 4 * blobs.ends.len()).sum();
        self.rows() * FIXED_BYTES + blobs
    }

    /// Adds the records within the window, or nothing.
    pub fn push(
        &mut self,
        frame: &Frame<'_>,
        records: &[u8],
        window: Range<Offset>,
    ) -> Result<(), BatchError> {
        let rows = self.rows();
        let headers = self.header_key.ends.len();
        let pushed = self.push_records(frame.header, records, window);
        if pushed.is_err() {
            self.truncate(rows, headers);
        } else {
            self.fill(frame);
        }
        pushed
    }

    fn push_records(
        &mut self,
        header: &BatchHeader,
        records: &[u8],
        window: Range<Offset>,
    ) -> Result<(), BatchError> {
        let base = header.base_offset.0;
        let base_time = header.base_timestamp.0;
        let mut last_delta = -1;
        let mut fault = None;
        let mut index = 0;
        let read = Records::new(records, header.record_count).visit(|record| {
            let delta = record.offset_delta;
            if delta <= last_delta || delta > header.last_offset_delta {
                fault.get_or_insert((index, last_delta + 1, delta));
            }
            last_delta = delta;
            index += 1;
            let offset = base.saturating_add(i64::from(delta));
            if window.contains(&Offset(offset)) {
                self.offset.push(offset);
                self.producer_ms.push(base_time.wrapping_add(record.timestamp_delta));
                self.push_bytes(record);
            }
        });
        if let Err((index, malformed)) = read {
            return Err(at_record(index, RecordProblem::Malformed(malformed)));
        }
        match fault {
            Some((index, expected, got)) => {
                Err(at_record(index, RecordProblem::OffsetDelta { expected, got }))
            }
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn push_bytes(&mut self, record: &Record<'_>) {
        self.key.push(record.key);
        self.value.push(record.value);
        for Header { key, value } in record.headers() {
            self.header_key.push(Some(key));
            self.header_value.push(value);
        }
        self.header_ends.push(self.header_key.ends.len() as i32);
    }

    /// What all rows of the batch share.
    fn fill(&mut self, frame: &Frame<'_>) {
        let rows = self.rows();
        let attributes = frame.header.attributes;
        if attributes.is_append_time() {
            self.timestamp_ms.resize(rows, frame.header.max_timestamp.0);
        } else {
            let new = self.timestamp_ms.len();
            self.timestamp_ms.extend_from_slice(self.producer_ms.get(new..).unwrap_or_default());
        }
        self.timestamp_type.resize(rows, i8::from(attributes.is_append_time()));
        self.partition.resize(rows, frame.partition);
        self.append_ms.resize(rows, frame.append_time.0);
        self.epoch.resize(rows, frame.header.leader_epoch.0);
        self.codec.resize(rows, frame.codec.bits() as i8);
    }

    fn truncate(&mut self, rows: usize, headers: usize) {
        self.key.truncate(rows);
        self.value.truncate(rows);
        self.producer_ms.truncate(rows);
        self.offset.truncate(rows);
        self.header_ends.truncate(rows);
        self.header_key.truncate(headers);
        self.header_value.truncate(headers);
    }

    pub fn finish(self) -> Result<RecordBatch, ArrowError> {
        let (element, fields) = header_element();
        let header_columns: Vec<ArrayRef> =
            vec![Arc::new(self.header_key.finish()?), Arc::new(self.header_value.finish()?)];
        let headers = StructArray::try_new(fields, header_columns, None)?;
        let headers = ListArray::try_new(element, ends(self.header_ends), Arc::new(headers), None)?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.key.finish()?),
            Arc::new(self.value.finish()?),
            Arc::new(timestamps(&self.append_ms)),
            Arc::new(timestamps(&self.producer_ms)),
            Arc::new(headers),
            Arc::new(Int32Array::from(self.partition)),
            Arc::new(Int64Array::from(self.offset)),
            Arc::new(Int64Array::from(self.timestamp_ms)),
            Arc::new(Int8Array::from(self.timestamp_type)),
            Arc::new(Int64Array::from(self.append_ms)),
            Arc::new(Int32Array::from(self.epoch)),
            Arc::new(Int8Array::from(self.codec)),
        ];
        RecordBatch::try_new(storage_schema(), columns)
    }
}

/// A column of byte strings.
struct Blobs {
    data: Vec<u8>,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for Blobs {
    fn default() -> Blobs {
        Blobs { data: Vec::new(), ends: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }
}

impl Blobs {
    fn as_large(&self) -> Blobs {
        Blobs {
            data: Vec::with_capacity(room(self.data.len())),
            ends: Vec::with_capacity(room(self.ends.len())),
            nulls: NullBufferBuilder::new(0),
        }
    }

    #[inline(always)]
    fn push(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                self.nulls.append_non_null();
            }
            None => self.nulls.append_null(),
        }
        // Bounded by `have_room`.
        self.ends.push(self.data.len() as i32);
    }

    fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.data.truncate(self.ends.last().map_or(0, |end| *end as usize));
        self.nulls.truncate(count);
    }

    fn finish(mut self) -> Result<BinaryArray, ArrowError> {
        let nulls = self.nulls.finish();
        BinaryArray::try_new(ends(self.ends), Buffer::from_vec(self.data), nulls)
    }
}

/// Room for as many as last time and a little more, which spares a move of everything.
fn room(count: usize) -> usize {
    const MOST: usize = 4 << 20;
    (count + count / 16 + 1).min(MOST)
}

/// Ends as Arrow counts them: with the first start in front.
fn ends(mut ends: Vec<i32>) -> OffsetBuffer<i32> {
    ends.insert(0, 0);
    OffsetBuffer::new(ScalarBuffer::from(ends))
}

/// 0001-01-01 and 9999-12-31 23:59:59.999 in milliseconds.
const TIME_MS_MIN: i64 = -62_135_596_800_000;
const TIME_MS_MAX: i64 = 253_402_300_799_999;

/// Milliseconds as timestamps; what is none, or none a database can express, is null.
fn timestamps(all_ms: &[i64]) -> TimestampMicrosecondArray {
    let is_time = |ms: i64| ms != -1 && (TIME_MS_MIN..=TIME_MS_MAX).contains(&ms);
    let micros: Vec<i64> =
        all_ms.iter().map(|&ms| if is_time(ms) { ms * 1000 } else { 0 }).collect();
    let mut nulls = NullBufferBuilder::new(all_ms.len());
    if all_ms.iter().all(|&ms| is_time(ms)) {
        nulls.append_n_non_nulls(all_ms.len());
    } else {
        all_ms.iter().for_each(|&ms| nulls.append(is_time(ms)));
    }
    TimestampMicrosecondArray::new(ScalarBuffer::from(micros), nulls.finish()).with_timezone(ZONE)
}

fn at_record(index: i32, problem: RecordProblem) -> BatchError {
    let listed = vec![RecordFault { index, problem }];
    BatchError::Records(RecordErrors { listed, total: 1 })
}
