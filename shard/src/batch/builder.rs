//! Builds batches: for the broker's own records, for rows that become batches again, for tests.
//!
//! The other end of `records`: what is built here passes `validate` when it holds records without
//! gaps. Offsets and leader epoch are filled in by whoever writes the batch. Never reads outside
//! bytes.

use super::codec::compress;
use super::header::{Attributes, BatchHeader, Codec, HEADER_BYTES};
use super::records::Header;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

/// A record to be put into a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    pub timestamp: Timestamp,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// A batch in the making.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    /// Room for the header, then the records.
    batch: Vec<u8>,
    record_count: i32,
    next_delta: i32,
    attributes: Attributes,
    /// None: that of the first record.
    base_timestamp: Option<Timestamp>,
    max_timestamp: Timestamp,
    append_time: Option<Timestamp>,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            batch: vec![0; HEADER_BYTES],
            record_count: 0,
            next_delta: 0,
            attributes: Attributes::default(),
            base_timestamp: None,
            max_timestamp: Timestamp(-1),
            append_time: None,
            producer_id: ProducerId(-1),
            producer_epoch: ProducerEpoch(-1),
            base_sequence: -1,
        }
    }

    pub fn codec(mut self, codec: Codec) -> BatchBuilder {
        self.attributes = self.attributes.with_codec(codec);
        self
    }

    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    pub fn transactional(mut self) -> BatchBuilder {
        self.attributes = self.attributes.with_transactional();
        self
    }

    /// Makes room for records of so many bytes.
    pub fn with_room(mut self, bytes: usize) -> BatchBuilder {
        self.batch.reserve_exact(bytes);
        self
    }

    /// The broker's time of the append, which stands for the records' own.
    pub fn appended_at(mut self, time: Timestamp) -> BatchBuilder {
        self.attributes = self.attributes.with_append_time();
        self.append_time = Some(time);
        self
    }

    /// Records keep their time as its distance from this one.
    pub(super) fn based_on(mut self, time: Timestamp) -> BatchBuilder {
        self.base_timestamp = Some(time);
        self
    }

    pub(super) fn control(mut self) -> BatchBuilder {
        self.attributes = self.attributes.with_control();
        self
    }

    /// Appends a record with the next offset. The first one's timestamp becomes the base.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        let base = *self.base_timestamp.get_or_insert(record.timestamp);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        let time_delta = record.timestamp.0.wrapping_sub(base.0);
        let offset_delta = i64::from(self.next_delta);
        let mut bytes = 1 + varint_bytes(time_delta) + varint_bytes(offset_delta);
        bytes += nullable_bytes(record.key) + nullable_bytes(record.value);
        bytes += varint_bytes(record.headers.len() as i64);
        for header in record.headers {
            bytes += nullable_bytes(Some(header.key)) + nullable_bytes(header.value);
        }
        let out = &mut self.batch;
        put_varint(out, bytes as i64);
        out.push(0);
        put_varint(out, time_delta);
        put_varint(out, offset_delta);
        put_nullable(out, record.key);
        put_nullable(out, record.value);
        put_varint(out, record.headers.len() as i64);
        for header in record.headers {
            put_nullable(out, Some(header.key));
            put_nullable(out, header.value);
        }
        self.record_count += 1;
        self.next_delta += 1;
    }

    /// Leaves `count` offsets out, before the next record or at the end of the batch.
    pub fn skip(&mut self, count: i32) {
        self.next_delta += count;
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// The size of the batch if it were built now without compression.
    pub fn bytes(&self) -> usize {
        self.batch.len()
    }

    /// The whole batch, its checksum right, base offset 0 and leader epoch −1.
    pub fn build(self) -> Vec<u8> {
        let mut attributes = self.attributes;
        let mut batch = self.batch;
        let codec = attributes.codec().unwrap_or(Codec::None);
        if codec != Codec::None {
            let mut compressed = vec![0; HEADER_BYTES];
            match compress(codec, batch.get(HEADER_BYTES..).unwrap_or_default(), &mut compressed) {
                Ok(()) => batch = compressed,
                // A compressor only fails for want of memory; the records are as good without.
                Err(_) => attributes = attributes.with_codec(Codec::None),
            }
        }
        let mut header = BatchHeader {
            base_offset: Offset(0),
            batch_length: BatchHeader::length_of(batch.len() - HEADER_BYTES),
            leader_epoch: LeaderEpoch(-1),
            crc: 0,
            attributes,
            last_offset_delta: self.next_delta - 1,
            base_timestamp: self.base_timestamp.unwrap_or(Timestamp(-1)),
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        header.crc = header.crc_with(&batch[HEADER_BYTES..]);
        batch[..HEADER_BYTES].copy_from_slice(&header.encode());
        batch
    }
}

/// A batch without records that covers the offsets from `base` to `last`, as compaction leaves one.
#[cfg(test)]
pub fn empty_batch(base: Offset, last: Offset, epoch: LeaderEpoch) -> [u8; HEADER_BYTES] {
    let delta = i32::try_from(last.0 - base.0);
    assert!(delta.as_ref().is_ok_and(|delta| *delta >= 0), "a batch cannot cover {base} to {last}");
    let mut header = BatchHeader {
        base_offset: base,
        batch_length: BatchHeader::length_of(0),
        leader_epoch: epoch,
        crc: 0,
        attributes: Attributes::default(),
        last_offset_delta: delta.unwrap_or_default(),
        base_timestamp: Timestamp(-1),
        max_timestamp: Timestamp(-1),
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: -1,
        record_count: 0,
    };
    header.crc = header.crc_with(&[]);
    header.encode()
}

/// Gives a whole batch another base offset and leader epoch, which its checksum does not cover.
pub fn place(batch: &mut [u8], base: Offset, epoch: LeaderEpoch) {
    if let Some(offset) = batch.first_chunk_mut::<8>() {
        *offset = base.0.to_be_bytes();
    }
    if let Some(field) = batch.get_mut(12..16) {
        field.copy_from_slice(&epoch.0.to_be_bytes());
    }
}

fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_bytes(bytes.len() as i64) + bytes.len())
}

/// What [`put_varint`] writes for a number.
fn varint_bytes(number: i64) -> usize {
    let raw = ((number << 1) ^ (number >> 63)) as u64;
    (70 - raw.leading_zeros().min(63) as usize) / 7
}

#[inline(always)]
fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

/// A zigzag varint.
#[inline(always)]
pub(super) fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut raw = ((number << 1) ^ (number >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_bytes_they_are_said_to() {
        let check = |number: i64| {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            assert_eq!(varint_bytes(number), out.len(), "{number}");
        };
        for power in 0..63 {
            for number in [1 << power, (1 << power) - 1, (1 << power) + 1] {
                check(number);
                check(-number);
            }
        }
        check(i64::MAX);
        check(i64::MIN);
    }

    #[test]
    fn with_append_time_the_header_has_it_and_the_records_keep_theirs() {
        let mut builder = BatchBuilder::new().appended_at(Timestamp(9)).with_room(100);
        builder.push(&NewRecord { timestamp: Timestamp(70), ..Default::default() });
        builder.skip(4);
        let batch = builder.build();
        let (header, body, _) = BatchHeader::split(&batch).unwrap();
        assert!(header.attributes.is_append_time());
        assert_eq!((header.max_timestamp, header.base_timestamp), (Timestamp(9), Timestamp(70)));
        assert_eq!((header.last_offset_delta, header.crc), (4, header.crc_with(body)));
    }
}
