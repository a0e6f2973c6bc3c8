//! What compaction makes of one batch: some of its records, at their offsets.
//!
//! As in Apache Kafka a rewritten batch keeps its base offset, its last offset delta, its producer
//! and its sequence, so that no offset moves and a reader goes on behind it. The first time a mark
//! of a deleted key is kept, the batch is given its *horizon*: the time from which the mark may go.
//! It stands in the base timestamp, attribute bit 6 says so, and the records' deltas follow.
//!
//! Which records stay is the caller's. Aborted transactions are not known here.

use super::builder::{BatchBuilder, NewRecord};
use super::codec::{expand, Expander, Limits};
use super::error::{BatchError, Malformed, RecordErrors, RecordProblem};
use super::header::{BatchHeader, Codec, HEADER_BYTES};
use super::records::{Header, Record, Records};
use crate::ids::{Offset, Timestamp};

/// A record as compaction looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyed<'a> {
    pub offset: Offset,
    pub key: Option<&'a [u8]>,
    /// The mark of a deleted key.
    pub is_tombstone: bool,
}

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Everything, as it stands.
    Same,
    Nothing,
    /// Header and body.
    Some(BatchHeader, Vec<u8>),
}

/// Visits the records of a stored batch.
pub fn each_key(
    header: &BatchHeader,
    body: &[u8],
    expander: &mut Expander,
    mut visit: impl FnMut(&Keyed<'_>),
) -> Result<(), BatchError> {
    let records = records_of(header, body, expander)?;
    for (index, record) in Records::new(records, header.record_count).enumerate() {
        let record = record.map_err(|malformed| malformed_at(index, malformed))?;
        visit(&keyed(header, &record));
    }
    expander.shrink();
    Ok(())
}

/// Keeps the records that `keep` says yes to. With a tombstone among them the batch gets `horizon`
/// if it has none yet.
pub fn rewrite(
    header: &BatchHeader,
    body: &[u8],
    horizon: Timestamp,
    expander: &mut Expander,
    mut keep: impl FnMut(&Keyed<'_>) -> bool,
) -> Result<Rest, BatchError> {
    let records = records_of(header, body, expander)?;
    let mut kept = Vec::new();
    let mut marks = false;
    for (index, record) in Records::new(records, header.record_count).enumerate() {
        let record = record.map_err(|malformed| malformed_at(index, malformed))?;
        let seen = keyed(header, &record);
        if keep(&seen) {
            marks |= seen.is_tombstone;
            kept.push(record);
        }
    }
    let marked = marks && header.horizon().is_none();
    let rest = match kept.len() {
        0 => Rest::Nothing,
        all if all == header.record_count as usize && !marked => Rest::Same,
        _ => rebuild(header, &kept, marked.then_some(horizon))?,
    };
    expander.shrink();
    Ok(rest)
}

/// The header of a batch of which no record is left and which stays for its last offset.
pub fn emptied(header: &BatchHeader) -> BatchHeader {
    let batch_length = BatchHeader::length_of(0);
    let mut empty = BatchHeader { batch_length, record_count: 0, ..header.clone() };
    empty.crc = empty.crc_with(&[]);
    empty
}

fn records_of<'a>(
    header: &BatchHeader,
    body: &'a [u8],
    expander: &'a mut Expander,
) -> Result<&'a [u8], BatchError> {
    let unknown = BatchError::UnknownCodec(header.attributes.codec_bits());
    let codec = header.attributes.codec().ok_or(unknown)?;
    if body.is_empty() && header.record_count == 0 {
        return Ok(body);
    }
    expand(codec, body, &Limits::default(), expander)
}

fn keyed<'a>(header: &BatchHeader, record: &Record<'a>) -> Keyed<'a> {
    Keyed {
        offset: Offset(header.base_offset.0.saturating_add(i64::from(record.offset_delta))),
        key: record.key,
        is_tombstone: record.value.is_none(),
    }
}

fn malformed_at(index: usize, malformed: Malformed) -> BatchError {
    let mut errors = RecordErrors::default();
    errors.add(index as i32, RecordProblem::Malformed(malformed));
    BatchError::Records(errors)
}

fn rebuild(
    header: &BatchHeader,
    kept: &[Record<'_>],
    horizon: Option<Timestamp>,
) -> Result<Rest, BatchError> {
    let base = horizon.unwrap_or(header.base_timestamp);
    let codec = header.attributes.codec().unwrap_or(Codec::None);
    let mut builder = BatchBuilder::new().codec(codec).based_on(base);
    let mut next = 0;
    let mut max_timestamp = Timestamp(-1);
    for (index, record) in kept.iter().enumerate() {
        let gap = record.offset_delta.checked_sub(next).filter(|gap| *gap >= 0);
        builder.skip(gap.ok_or(malformed_at(index, Malformed::Missing))?);
        next = record.offset_delta.saturating_add(1);
        let timestamp = Timestamp(header.base_timestamp.0.wrapping_add(record.timestamp_delta));
        max_timestamp = max_timestamp.max(timestamp);
        let headers: Vec<Header<'_>> = record.headers().collect();
        let (key, value) = (record.key, record.value);
        builder.push(&NewRecord { timestamp, key, value, headers: &headers });
    }
    let built = builder.build();
    let made = BatchHeader::parse(&built)?;
    let body = built.get(HEADER_BYTES..).unwrap_or_default().to_vec();
    let attributes = header.attributes.with_codec(made.attributes.codec().unwrap_or(Codec::None));
    let mut rest = BatchHeader {
        batch_length: made.batch_length,
        record_count: made.record_count,
        base_timestamp: base,
        attributes: if horizon.is_some() { attributes.with_horizon() } else { attributes },
        max_timestamp: match header.attributes.is_append_time() {
            true => header.max_timestamp,
            false => max_timestamp,
        },
        ..header.clone()
    };
    rest.crc = rest.crc_with(&body);
    Ok(Rest::Some(rest, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{find_time, place, validate, Rules, Scratch, TimestampRule};
    use crate::ids::{LeaderEpoch, ProducerEpoch, ProducerId};

    type Given<'a> = (&'a [u8], Option<&'a [u8]>, i64);

    fn batch(codec: Codec, records: &[Given<'_>]) -> (BatchHeader, Vec<u8>) {
        let mut builder =
            BatchBuilder::new().codec(codec).producer(ProducerId(7), ProducerEpoch(2), 40);
        for (key, value, time) in records {
            let headers = [Header { key: b"h", value: None }];
            let (key, value, timestamp) = (Some(*key), *value, Timestamp(*time));
            builder.push(&NewRecord { timestamp, key, value, headers: &headers });
        }
        let mut bytes = builder.build();
        place(&mut bytes, Offset(100), LeaderEpoch(3));
        let (header, body, _) = BatchHeader::split(&bytes).unwrap();
        (header, body.to_vec())
    }

    fn shown(header: &BatchHeader, body: &[u8]) -> Vec<(i64, Vec<u8>, i64)> {
        let mut expander = Expander::default();
        let records = records_of(header, body, &mut expander).unwrap();
        let shown = |record: Record<'_>| {
            assert_eq!(record.headers().count(), 1);
            let offset = header.base_offset.0 + i64::from(record.offset_delta);
            let time = header.base_timestamp.0 + record.timestamp_delta;
            (offset, record.key.unwrap().to_vec(), time)
        };
        Records::new(records, header.record_count).map(|record| shown(record.unwrap())).collect()
    }

    fn whole(header: &BatchHeader, body: &[u8]) -> Vec<u8> {
        [&header.encode()[..], body].concat()
    }

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    #[test]
    fn what_stays_keeps_offset_time_and_producer() {
        for codec in CODECS {
            let given: [Given<'_>; 4] = [
                (b"a", Some(b"1"), 50),
                (b"b", Some(b"2"), 90),
                (b"a", Some(b"3"), 70),
                (b"c", Some(b"4"), 60),
            ];
            let (header, body) = batch(codec, &given);
            let mut expander = Expander::default();
            let keep = |seen: &Keyed<'_>| seen.offset.0 % 2 == 0;
            let rest = rewrite(&header, &body, Timestamp(9), &mut expander, keep).unwrap();
            let Rest::Some(rest, body) = rest else { panic!("{rest:?}") };
            assert_eq!(shown(&rest, &body), [(100, b"a".to_vec(), 50), (102, b"a".to_vec(), 70)]);
            assert_eq!((rest.base_offset, rest.last_offset_delta), (Offset(100), 3));
            assert_eq!((rest.producer_id, rest.base_sequence), (ProducerId(7), 40));
            assert_eq!((rest.max_timestamp, rest.leader_epoch), (Timestamp(70), LeaderEpoch(3)));
            assert_eq!((rest.crc, rest.attributes.codec()), (rest.crc_with(&body), Some(codec)));
            let bytes = whole(&rest, &body);
            let found =
                find_time(&bytes, Timestamp(60), Offset(0), &Limits::default(), &mut expander);
            assert_eq!(found.unwrap().map(|found| found.offset), Some(Offset(102)));
        }
    }

    #[test]
    fn all_is_the_same_and_none_is_nothing() {
        let (header, body) = batch(Codec::Gzip, &[(b"a", Some(b"1"), 5), (b"b", Some(b"2"), 6)]);
        let check = |keep: bool, expect: Rest| {
            let mut expander = Expander::default();
            let rest = rewrite(&header, &body, Timestamp(9), &mut expander, |_| keep).unwrap();
            assert_eq!(rest, expect);
        };
        check(true, Rest::Same);
        check(false, Rest::Nothing);
        let empty = emptied(&header);
        assert_eq!((empty.end_offset(), empty.crc), (Offset(102), empty.crc_with(&[])));
        let mut seen = 0;
        each_key(&empty, &[], &mut Expander::default(), |_| seen += 1).unwrap();
        assert_eq!(seen, 0);
    }

    #[test]
    fn a_tombstone_gives_the_batch_its_horizon_once() {
        let (header, body) = batch(Codec::None, &[(b"a", None, 5), (b"b", Some(b"2"), 6)]);
        let mut expander = Expander::default();
        let rest = rewrite(&header, &body, Timestamp(900), &mut expander, |_| true).unwrap();
        let Rest::Some(first, body) = rest else { panic!("{rest:?}") };
        assert_eq!((first.horizon(), header.horizon()), (Some(Timestamp(900)), None));
        assert_eq!(shown(&first, &body), [(100, b"a".to_vec(), 5), (101, b"b".to_vec(), 6)]);
        let again = rewrite(&first, &body, Timestamp(990), &mut expander, |_| true).unwrap();
        assert_eq!(again, Rest::Same);
        let fewer = |seen: &Keyed<'_>| seen.is_tombstone;
        let rest = rewrite(&first, &body, Timestamp(990), &mut expander, fewer).unwrap();
        let Rest::Some(second, body) = rest else { panic!("{rest:?}") };
        assert_eq!(second.horizon(), Some(Timestamp(900)));
        assert_eq!(shown(&second, &body), [(100, b"a".to_vec(), 5)]);
    }

    #[test]
    fn what_a_producer_sends_cannot_carry_a_horizon() {
        let (mut header, body) = batch(Codec::None, &[(b"a", Some(b"1"), 5)]);
        header.base_offset = Offset(0);
        header.attributes = header.attributes.with_horizon();
        header.crc = header.crc_with(&body);
        let rules = Rules {
            message_bytes_max: 1000,
            timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
            keys_required: true,
            zstd_allowed: true,
            limits: Limits::default(),
        };
        let bytes = whole(&header, &body);
        let valid = validate(&bytes, &rules, Timestamp(0), &mut Scratch::default()).unwrap();
        assert_eq!(valid.header().horizon(), None);
        assert_eq!(valid.header().crc, valid.header().crc_with(valid.body()));
    }
}
