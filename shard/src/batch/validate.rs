//! From a client's bytes to a batch the log may write, checked once and whole.
//!
//! The step between a decoded produce request and the append. One pass for the checksum, one over
//! the records; compressed records are expanded into a scratch buffer, bounded. Nothing is copied:
//! the result borrows the body and carries the header to write in front of it. Producer state
//! (sequence order, epochs) is not looked at here: see `partition::producers`.
//!
//! Follows Apache Kafka where clients can tell: a wrong max timestamp is corrected, not refused;
//! append time sets the flag and the max timestamp and leaves base timestamp and deltas alone.
//! Stricter than Kafka: offset deltas must count 0, 1, 2… in uncompressed batches too; lengths
//! below −1 and timestamps beyond 64 bits are refused; the append-time flag is refused from a
//! producer on every topic.

use super::codec::{expand, Expander, Limits};
use super::error::{BatchError, RecordErrors, RecordProblem};
use super::header::{check_crc, BatchHeader, Codec, HEADER_BYTES};
use super::records::{Record, Records};
use crate::ids::{LeaderEpoch, Offset, Timestamp};

/// What a topic and a request allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `max.message.bytes`: the largest batch, header included, as sent.
    pub message_bytes_max: usize,
    pub timestamps: TimestampRule,
    /// The topic is compacted: every record needs a key.
    pub keys_required: bool,
    /// Requests before Produce v7 may not carry zstd.
    pub zstd_allowed: bool,
    pub limits: Limits,
}

/// Whose clock the records carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampRule {
    /// The producer's, at most so far before and after the broker's. `i64::MAX`: no bound.
    Create { before_max_ms: i64, after_max_ms: i64 },
    /// The broker's.
    Append,
}

/// Buffers kept between validations, one per core.
#[derive(Default)]
pub struct Scratch {
    pub(super) expander: Expander,
}

/// A batch that passed: what to write and what the append needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid<'a> {
    header: BatchHeader,
    body: &'a [u8],
    max_timestamp_delta: i32,
}

impl<'a> Valid<'a> {
    /// The header as it will be written, but for base offset and leader epoch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The bytes after the header, as the client sent them.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The size of the whole batch.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// The header's bytes with what the broker assigns. The checksum does not cover these fields.
    pub fn header_bytes(&self, base: Offset, epoch: LeaderEpoch) -> [u8; HEADER_BYTES] {
        BatchHeader { base_offset: base, leader_epoch: epoch, ..self.header.clone() }.encode()
    }

    /// Which record (offset delta) is the first with the max timestamp; with append time the last
    /// record, as in Kafka.
    pub fn max_timestamp_delta(&self) -> i32 {
        self.max_timestamp_delta
    }

    /// The broker's time if it replaced the producer's: the `log_append_time` of the answer.
    pub fn append_time(&self) -> Option<Timestamp> {
        self.header.attributes.is_append_time().then_some(self.header.max_timestamp)
    }

    /// A batch this broker built itself: lengths and checksum are checked, records are not.
    pub fn built(data: &'a [u8]) -> Result<Valid<'a>, BatchError> {
        let (header, body) = exactly_one(data)?;
        check_crc(data, &header)?;
        let max_timestamp_delta = header.last_offset_delta;
        Ok(Valid { header, body, max_timestamp_delta })
    }
}

/// Checks that `data` is exactly one batch that a client may append under `rules`.
pub fn validate<'a>(
    data: &'a [u8],
    rules: &Rules,
    now: Timestamp,
    scratch: &mut Scratch,
) -> Result<Valid<'a>, BatchError> {
    let (mut header, body) = exactly_one(data)?;
    if data.len() > rules.message_bytes_max {
        return Err(BatchError::TooLarge { bytes: data.len(), bytes_max: rules.message_bytes_max });
    }
    check_crc(data, &header)?;
    let codec = check_fields(&header, rules)?;
    let walk = Walk::new(&header, rules, now);
    let observed = expand(codec, body, &rules.limits, &mut scratch.expander)
        .and_then(|records| walk.run(Records::new(records, header.record_count)));
    scratch.expander.shrink();
    let observed = observed?;

    let mut max_timestamp_delta = observed.max_timestamp_delta;
    if rules.timestamps == TimestampRule::Append {
        header.attributes = header.attributes.with_append_time();
        header.max_timestamp = now;
        header.crc = header.crc_with(body);
        max_timestamp_delta = header.last_offset_delta;
    } else if header.max_timestamp != observed.max_timestamp {
        header.max_timestamp = observed.max_timestamp;
        header.crc = header.crc_with(body);
    }
    if header.attributes.has_horizon() {
        // Compaction's own; a producer that sets it would have its tombstones go too early.
        header.attributes = header.attributes.without_horizon();
        header.crc = header.crc_with(body);
    }
    Ok(Valid { header, body, max_timestamp_delta })
}

fn exactly_one(data: &[u8]) -> Result<(BatchHeader, &[u8]), BatchError> {
    let (header, body, rest) = BatchHeader::split(data)?;
    if !rest.is_empty() {
        return Err(BatchError::Several { batch: header.bytes(), got: data.len() });
    }
    Ok((header, body))
}

/// What the header alone says. Returns the codec.
fn check_fields(header: &BatchHeader, rules: &Rules) -> Result<Codec, BatchError> {
    if header.base_offset != Offset(0) {
        return Err(BatchError::BaseOffset(header.base_offset.0));
    }
    let BatchHeader { record_count, last_offset_delta, .. } = *header;
    if record_count <= 0 || last_offset_delta != record_count - 1 {
        return Err(BatchError::Count { record_count, last_offset_delta });
    }
    if header.attributes.is_control() {
        return Err(BatchError::Control);
    }
    let BatchHeader { producer_id, producer_epoch, base_sequence, .. } = *header;
    if header.has_producer() && (base_sequence < 0 || producer_epoch.0 < 0) {
        return Err(BatchError::Producer { producer_id, producer_epoch, base_sequence });
    }
    if header.attributes.is_transactional() && !header.has_producer() {
        return Err(BatchError::TransactionWithoutProducer);
    }
    match header.attributes.codec() {
        None => Err(BatchError::UnknownCodec(header.attributes.codec_bits())),
        Some(Codec::Zstd) if !rules.zstd_allowed => Err(BatchError::ZstdTooEarly),
        Some(codec) => Ok(codec),
    }
}

/// The timestamp `distance_ms` away; `i64::MAX` stands for no bound.
fn bound(distance_ms: i64, none: i64, at: impl Fn(i64) -> i64) -> i64 {
    match distance_ms {
        i64::MAX => none,
        ms => at(ms),
    }
}

/// What the records of one batch are held to.
struct Walk {
    base_timestamp: Timestamp,
    earliest: Timestamp,
    latest: Timestamp,
    keys_required: bool,
    /// The producer set the append-time flag: each record is at fault.
    append_time_set: bool,
}

/// What the pass over the records saw.
struct Observed {
    max_timestamp: Timestamp,
    max_timestamp_delta: i32,
}

impl Walk {
    fn new(header: &BatchHeader, rules: &Rules, now: Timestamp) -> Walk {
        let append_time_set = header.attributes.is_append_time();
        let (earliest, latest) = match rules.timestamps {
            // An empty range, so that each record takes the slow path.
            _ if append_time_set => (i64::MAX, i64::MIN),
            TimestampRule::Create { before_max_ms, after_max_ms } => (
                bound(before_max_ms, i64::MIN, |ms| now.0.saturating_sub(ms)),
                bound(after_max_ms, i64::MAX, |ms| now.0.saturating_add(ms)),
            ),
            TimestampRule::Append => (i64::MIN, i64::MAX),
        };
        Walk {
            base_timestamp: header.base_timestamp,
            earliest: Timestamp(earliest),
            latest: Timestamp(latest),
            keys_required: rules.keys_required,
            append_time_set,
        }
    }

    fn run(&self, records: Records<'_>) -> Result<Observed, BatchError> {
        let mut seen = Observed { max_timestamp: Timestamp(-1), max_timestamp_delta: 0 };
        let mut faults = Faults::default();
        let mut index = 0;
        let read = records.visit(|record| {
            let (time, overflow) = self.base_timestamp.0.overflowing_add(record.timestamp_delta);
            let in_range = time >= self.earliest.0 && time <= self.latest.0 && !overflow;
            let has_key = record.key.is_some() || !self.keys_required;
            if !(in_range && has_key && record.offset_delta == index) {
                // By value: a reference would force every record through memory.
                let Record { offset_delta, timestamp_delta, .. } = *record;
                let delta = timestamp_delta;
                if let Some(problem) = self.look_closer(index, offset_delta, has_key, delta) {
                    faults.add(index, problem);
                }
            }
            if time > seen.max_timestamp.0 {
                seen = Observed { max_timestamp: Timestamp(time), max_timestamp_delta: index };
            }
            index += 1;
        });
        if let Err((index, malformed)) = read {
            faults.add(index, RecordProblem::Malformed(malformed));
        }
        faults.verdict().map(|()| seen)
    }

    #[cold]
    fn look_closer(
        &self,
        expected: i32,
        got: i32,
        has_key: bool,
        delta: i64,
    ) -> Option<RecordProblem> {
        let base = self.base_timestamp;
        if got != expected {
            return Some(RecordProblem::OffsetDelta { expected, got });
        }
        if !has_key {
            return Some(RecordProblem::NullKey);
        }
        if self.append_time_set {
            return Some(RecordProblem::AppendTimeSet);
        }
        match base.0.checked_add(delta) {
            None => Some(RecordProblem::TimestampOverflow { base, delta }),
            // No timestamp: passes any bound.
            Some(-1) => None,
            Some(timestamp) => Some(RecordProblem::TimestampRange {
                timestamp: Timestamp(timestamp),
                earliest: self.earliest,
                latest: self.latest,
            }),
        }
    }
}

/// The records at fault so far.
#[derive(Default)]
struct Faults {
    errors: RecordErrors,
    /// Some fault was about a timestamp: it decides how the whole batch is refused.
    about_time: bool,
}

impl Faults {
    fn add(&mut self, index: i32, problem: RecordProblem) {
        self.about_time |=
            matches!(problem, RecordProblem::TimestampRange { .. } | RecordProblem::AppendTimeSet);
        self.errors.add(index, problem);
    }

    fn verdict(self) -> Result<(), BatchError> {
        match (self.errors.total, self.about_time) {
            (0, _) => Ok(()),
            (_, true) => Err(BatchError::Timestamps(self.errors)),
            (_, false) => Err(BatchError::Records(self.errors)),
        }
    }
}

#[cfg(test)]
mod tests;
