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
    records: Vec<u8>,
    /// One record, before its length is known.
    record: Vec<u8>,
    record_count: i32,
    next_delta: i32,
    attributes: Attributes,
    /// None: that of the first record.
    base_timestamp: Option<Timestamp>,
    max_timestamp: Timestamp,
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
            records: Vec::new(),
            record: Vec::new(),
            record_count: 0,
            next_delta: 0,
            attributes: Attributes::default(),
            base_timestamp: None,
            max_timestamp: Timestamp(-1),
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
        let body = &mut self.record;
        body.clear();
        body.push(0);
        put_varint(body, record.timestamp.0.wrapping_sub(base.0));
        put_varint(body, i64::from(self.next_delta));
        put_nullable(body, record.key);
        put_nullable(body, record.value);
        put_varint(body, record.headers.len() as i64);
        for header in record.headers {
            put_nullable(body, Some(header.key));
            put_nullable(body, header.value);
        }
        put_varint(&mut self.records, self.record.len() as i64);
        self.records.extend_from_slice(&self.record);
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
        HEADER_BYTES + self.records.len()
    }

    /// The whole batch, its checksum right, base offset 0 and leader epoch −1.
    pub fn build(self) -> Vec<u8> {
        let mut attributes = self.attributes;
        let mut batch = vec![0; HEADER_BYTES];
        let codec = attributes.codec().unwrap_or(Codec::None);
        if compress(codec, &self.records, &mut batch).is_err() {
            // A compressor only fails for want of memory; the records are as good without.
            attributes = attributes.with_codec(Codec::None);
            batch.truncate(HEADER_BYTES);
            batch.extend_from_slice(&self.records);
        }
        let mut header = BatchHeader {
            base_offset: Offset(0),
            batch_length: BatchHeader::length_of(batch.len() - HEADER_BYTES),
            leader_epoch: LeaderEpoch(-1),
            crc: 0,
            attributes,
            last_offset_delta: self.next_delta - 1,
            base_timestamp: self.base_timestamp.unwrap_or(Timestamp(-1)),
            max_timestamp: self.max_timestamp,
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

/// A batch without records that covers the offsets from `base` to `last`: consumers move on over
/// them.
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
pub(super) fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut raw = ((number << 1) ^ (number >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}
