//! Finds a record inside one stored batch by its timestamp.
//!
//! The last step of a look-up by time: the index has named the batch, this names the record.
//! Compressed batches are expanded within limits. Stored bytes are checked like any others: a
//! damaged batch is an error, never a wrong offset.

use super::codec::{expand, Expander, Limits};
use super::error::{BatchError, RecordErrors, RecordProblem};
use super::header::{check_crc, BatchHeader, Codec};
use super::records::Records;
use crate::ids::{Offset, Timestamp};

/// The record a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub offset: Offset,
    pub timestamp: Timestamp,
}

/// The first record at or after offset `from` whose timestamp is at least `time`.
pub fn find_time(
    batch: &[u8],
    time: Timestamp,
    from: Offset,
    limits: &Limits,
    expander: &mut Expander,
) -> Result<Option<Found>, BatchError> {
    let matches = |found: &Found| found.timestamp >= time && found.offset >= from;
    each_record(batch, limits, expander, |found, best| best.is_none() && matches(found))
}

/// The first record with the largest timestamp of the batch; with append time the last record, as
/// in Kafka.
pub fn find_latest(
    batch: &[u8],
    limits: &Limits,
    expander: &mut Expander,
) -> Result<Option<Found>, BatchError> {
    let by_append = BatchHeader::parse(batch)?.attributes.is_append_time();
    each_record(batch, limits, expander, |found, best| {
        by_append || best.is_none_or(|best| found.timestamp > best.timestamp)
    })
}

/// Passes over all records; keeps the one `better` chose last, given the one kept so far.
fn each_record(
    batch: &[u8],
    limits: &Limits,
    expander: &mut Expander,
    better: impl Fn(&Found, Option<Found>) -> bool,
) -> Result<Option<Found>, BatchError> {
    let (header, body, _) = BatchHeader::split(batch)?;
    check_crc(batch.get(..header.bytes()).unwrap_or_default(), &header)?;
    let unknown = BatchError::UnknownCodec(header.attributes.codec_bits());
    let codec = header.attributes.codec().ok_or(unknown)?;
    if body.is_empty() && codec != Codec::None && header.record_count == 0 {
        // A batch emptied by compaction keeps its codec bits.
        return Ok(None);
    }
    let records = expand(codec, body, limits, expander)?;
    let mut best: Option<Found> = None;
    for (index, record) in Records::new(records, header.record_count).enumerate() {
        let record = record.map_err(|malformed| {
            let mut errors = RecordErrors::default();
            errors.add(index as i32, RecordProblem::Malformed(malformed));
            BatchError::Records(errors)
        })?;
        let timestamp = match header.attributes.is_append_time() {
            true => header.max_timestamp,
            false => Timestamp(header.base_timestamp.0.saturating_add(record.timestamp_delta)),
        };
        let offset = Offset(header.base_offset.0.saturating_add(i64::from(record.offset_delta)));
        let found = Found { offset, timestamp };
        if better(&found, best) {
            best = Some(found);
        }
    }
    expander.shrink();
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{empty_batch, place, BatchBuilder, NewRecord};
    use crate::ids::LeaderEpoch;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn batch(codec: Codec, timestamps: &[i64], base: i64) -> Vec<u8> {
        let mut batch = BatchBuilder::new().codec(codec);
        for &timestamp in timestamps {
            batch.push(&NewRecord { timestamp: Timestamp(timestamp), ..Default::default() });
        }
        let mut batch = batch.build();
        place(&mut batch, Offset(base), LeaderEpoch(1));
        batch
    }

    fn time(batch: &[u8], time: i64, from: i64) -> Result<Option<(i64, i64)>, BatchError> {
        let (time, from) = (Timestamp(time), Offset(from));
        find_time(batch, time, from, &Limits::default(), &mut Expander::default())
            .map(|found| found.map(|found| (found.offset.0, found.timestamp.0)))
    }

    fn latest(batch: &[u8]) -> Result<Option<(i64, i64)>, BatchError> {
        find_latest(batch, &Limits::default(), &mut Expander::default())
            .map(|found| found.map(|found| (found.offset.0, found.timestamp.0)))
    }

    #[test]
    fn the_first_record_at_or_after_a_time() {
        for codec in CODECS {
            let batch = batch(codec, &[50, 40, 70, 60, 70], 100);
            let check = |at, from, expect| assert_eq!(time(&batch, at, from), Ok(expect));
            check(0, 0, Some((100, 50)));
            check(50, 0, Some((100, 50)));
            check(51, 0, Some((102, 70)));
            check(60, 103, Some((103, 60)));
            check(61, 103, Some((104, 70)));
            check(71, 0, None);
            check(0, 105, None);
            assert_eq!(latest(&batch), Ok(Some((102, 70))));
        }
    }

    #[test]
    fn with_append_time_all_records_carry_one_timestamp() {
        for codec in CODECS {
            let batch = batch(codec, &[50, 40, 70], 100);
            let (mut header, body, _) = BatchHeader::split(&batch).unwrap();
            header.attributes = header.attributes.with_append_time();
            header.max_timestamp = Timestamp(1000);
            header.crc = header.crc_with(body);
            let batch = [&header.encode()[..], body].concat();
            assert_eq!(time(&batch, 1000, 0), Ok(Some((100, 1000))));
            assert_eq!(time(&batch, 60, 101), Ok(Some((101, 1000))));
            assert_eq!(time(&batch, 1001, 0), Ok(None));
            assert_eq!(latest(&batch), Ok(Some((102, 1000))));
        }
    }

    #[test]
    fn empty_batches_hold_nothing() {
        let empty = empty_batch(Offset(5), Offset(9), LeaderEpoch(2));
        let header = BatchHeader::parse(&empty).unwrap();
        assert_eq!((header.base_offset, header.last_offset()), (Offset(5), Offset(9)));
        assert_eq!((time(&empty, -1, 0), latest(&empty)), (Ok(None), Ok(None)));
    }

    #[test]
    fn records_with_gaps_keep_their_offsets() {
        let mut batch = BatchBuilder::new();
        batch.skip(3);
        batch.push(&NewRecord { timestamp: Timestamp(8), ..Default::default() });
        batch.skip(4);
        let batch = batch.build();
        assert_eq!(BatchHeader::parse(&batch).unwrap().last_offset(), Offset(7));
        assert_eq!(time(&batch, 8, 0), Ok(Some((3, 8))));
    }

    #[test]
    fn damage_is_an_error() {
        let batch = batch(Codec::Zstd, &[50, 40], 100);
        assert!(matches!(time(&batch[..70], 0, 0), Err(BatchError::Truncated { .. })));
        let mut damaged = batch.clone();
        damaged[70] ^= 1;
        assert!(matches!(latest(&damaged), Err(BatchError::Crc { .. })));
        // A second batch behind it is not looked at.
        let more = [&batch[..], &[9; 9]].concat();
        assert_eq!(latest(&more), Ok(Some((100, 50))));
    }
}
