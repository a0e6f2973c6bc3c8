//! What can be wrong with a batch, with the numbers needed to understand it.
//!
//! Returned by everything in this folder; the broker maps each variant to a Kafka error code and,
//! for faults of single records, to the list of failing records that Produce answers carry.

use crate::ids::{ProducerEpoch, ProducerId, Timestamp};

use super::header::Codec;

/// Why a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("no record batch where one was expected")]
    Empty,
    #[error("the batch needs {needed} bytes, there are {got}")]
    Truncated { needed: usize, got: usize },
    #[error("batch length {declared} is less than a batch header")]
    Length { declared: i32 },
    #[error("one batch of {batch} bytes was expected, there are {got} bytes")]
    Several { batch: usize, got: usize },
    #[error("format v{0} is not v2")]
    Magic(i8),
    #[error("checksum {computed:#010x}, the batch says {stored:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("the batch is {bytes} bytes, {bytes_max} are allowed")]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("a client's batch starts at offset 0, this one at {0}")]
    BaseOffset(i64),
    #[error("{record_count} records with a last offset delta of {last_offset_delta}")]
    Count { record_count: i32, last_offset_delta: i32 },
    #[error("clients do not write control records")]
    Control,
    #[error("producer {producer_id} with epoch {producer_epoch} and sequence {base_sequence}")]
    Producer { producer_id: ProducerId, producer_epoch: ProducerEpoch, base_sequence: i32 },
    #[error("a transactional batch without a producer id")]
    TransactionWithoutProducer,
    #[error("codec {0} is not known")]
    UnknownCodec(u8),
    #[error("zstd needs a newer produce request")]
    ZstdTooEarly,
    #[error("the records do not decompress as {0:?}")]
    Compression(Codec),
    #[error("the records decompress to more than {bytes_max} bytes")]
    Expansion { bytes_max: usize },
    #[error("{0}")]
    Records(RecordErrors),
    #[error("{0}")]
    Timestamps(RecordErrors),
}

/// The records for which a batch was refused: all of them, or the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordErrors {
    /// In the order of the batch, at most [`RecordErrors::LISTED_MAX`].
    pub listed: Vec<RecordFault>,
    /// How many records are at fault, listed or not.
    pub total: usize,
}

impl RecordErrors {
    /// Bounds what a batch of a hundred thousand faulty records costs in memory and answers.
    pub const LISTED_MAX: usize = 100;

    pub(super) fn add(&mut self, index: i32, problem: RecordProblem) {
        self.total += 1;
        if self.listed.len() < Self::LISTED_MAX {
            self.listed.push(RecordFault { index, problem });
        }
    }
}

impl std::fmt::Display for RecordErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} records refused", self.total)?;
        for (place, fault) in self.listed.iter().take(3).enumerate() {
            let lead = if place == 0 { ": " } else { "; " };
            write!(f, "{lead}record {}: {}", fault.index, fault.problem)?;
        }
        Ok(())
    }
}

/// One record at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// Its place in the batch, from 0.
    pub index: i32,
    pub problem: RecordProblem,
}

/// What is wrong with a record. Displays as the message sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    #[error("malformed record: {0}")]
    Malformed(Malformed),
    #[error("offset delta {got}, expected {expected}")]
    OffsetDelta { expected: i32, got: i32 },
    #[error("a compacted topic takes no record without a key")]
    NullKey,
    #[error("timestamp {timestamp} is outside {earliest} to {latest}")]
    TimestampRange { timestamp: Timestamp, earliest: Timestamp, latest: Timestamp },
    #[error("base timestamp {base} and delta {delta} exceed 64 bits")]
    TimestampOverflow { base: Timestamp, delta: i64 },
    #[error("a producer does not set the append time")]
    AppendTimeSet,
}

/// How the bytes of a record contradict the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a number that does not end or does not fit")]
    Varint,
    #[error("length {declared} with {left} bytes left")]
    Length { declared: i32, left: usize },
    #[error("key length {declared} with {left} bytes left")]
    Key { declared: i32, left: usize },
    #[error("value length {declared} with {left} bytes left")]
    Value { declared: i32, left: usize },
    #[error("{declared} headers with {left} bytes left")]
    HeaderCount { declared: i32, left: usize },
    #[error("header key length {declared} with {left} bytes left")]
    HeaderKey { declared: i32, left: usize },
    #[error("header value length {declared} with {left} bytes left")]
    HeaderValue { declared: i32, left: usize },
    #[error("{0} bytes left over in the record")]
    Leftover(usize),
    #[error("{0} bytes after the last record")]
    Trailing(usize),
    #[error("the data ends before the record")]
    Missing,
}
