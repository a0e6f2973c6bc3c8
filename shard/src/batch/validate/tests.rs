//! Each rule by a batch that breaks it alone, and what passes unchanged.

use proptest::prelude::*;

use super::*;
use crate::batch::{Attributes, BatchBuilder, Malformed, NewRecord, RecordFault};
use crate::ids::{ProducerEpoch, ProducerId};

const NOW: Timestamp = Timestamp(1_000_000);

fn rules() -> Rules {
    Rules {
        message_bytes_max: 1 << 20,
        timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
        keys_required: false,
        zstd_allowed: true,
        limits: Limits::default(),
    }
}

fn checked<'a>(data: &'a [u8], rules: &Rules) -> Result<Valid<'a>, BatchError> {
    validate(data, rules, NOW, &mut Scratch::default())
}

fn builder(timestamps: &[i64]) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for &timestamp in timestamps {
        let timestamp = Timestamp(timestamp);
        batch.push(&NewRecord { timestamp, value: Some(b"value"), ..Default::default() });
    }
    batch
}

/// The batch with some header fields changed and its checksum right again.
fn edited(batch: &[u8], edit: impl Fn(&mut BatchHeader)) -> Vec<u8> {
    let (mut header, body, _) = BatchHeader::split(batch).unwrap();
    edit(&mut header);
    header.crc = header.crc_with(body);
    [&header.encode()[..], body].concat()
}

/// A batch of `count` records with these record bytes.
fn handmade(records: &[u8], count: i32) -> Vec<u8> {
    let batch = [&builder(&[1]).build()[..HEADER_BYTES], records].concat();
    edited(&[&batch[..8], &(batch.len() as i32 - 12).to_be_bytes(), &batch[12..]].concat(), |h| {
        h.record_count = count;
        h.last_offset_delta = count - 1;
    })
}

#[test]
fn a_good_batch_passes_as_it_is() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = builder(&[5, 9, 9, 2]).codec(codec).build();
        let valid = checked(&batch, &rules()).unwrap();
        assert_eq!(valid.header(), &BatchHeader::parse(&batch).unwrap());
        assert_eq!(valid.body(), &batch[HEADER_BYTES..]);
        assert_eq!(valid.bytes(), batch.len());
        assert_eq!((valid.max_timestamp_delta(), valid.append_time()), (1, None));

        let header = valid.header_bytes(Offset(77), LeaderEpoch(3));
        let written = [&header[..], valid.body()].concat();
        let (header, body, _) = BatchHeader::split(&written).unwrap();
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(77), LeaderEpoch(3)));
        assert_eq!(header.last_offset(), Offset(80));
        assert_eq!(header.crc, header.crc_with(body));
        assert_eq!(Valid::built(&written).unwrap().header(), &header);
    }
}

#[test]
fn the_frame_must_be_exactly_one_batch() {
    let batch = builder(&[1]).build();
    let bytes = batch.len();
    let check = |data: &[u8], expect: BatchError| {
        assert_eq!(checked(data, &rules()), Err(expect));
    };
    check(&[], BatchError::Empty);
    check(&batch[..60], BatchError::Truncated { needed: 61, got: 60 });
    check(&batch[..bytes - 1], BatchError::Truncated { needed: bytes, got: bytes - 1 });
    let twice = [&batch[..], &batch[..]].concat();
    check(&twice, BatchError::Several { batch: bytes, got: 2 * bytes });
    check(&[&batch[..], &[0]].concat(), BatchError::Several { batch: bytes, got: bytes + 1 });
    check(&[0; 30], BatchError::Magic(0));

    let small = Rules { message_bytes_max: bytes - 1, ..rules() };
    let expect = BatchError::TooLarge { bytes, bytes_max: bytes - 1 };
    assert_eq!(checked(&batch, &small), Err(expect));
    assert!(checked(&batch, &Rules { message_bytes_max: bytes, ..rules() }).is_ok());
}

#[test]
fn every_checksummed_byte_counts() {
    let batch = builder(&[1, 2]).build();
    for at in 17..batch.len() {
        let mut damaged = batch.clone();
        damaged[at] ^= 1;
        let got = checked(&damaged, &rules());
        assert!(matches!(got, Err(BatchError::Crc { .. })), "byte {at}: {got:?}");
    }
    let placed = [&batch[..12], &[1, 2, 3, 4], &batch[16..]].concat();
    assert!(checked(&placed, &rules()).is_ok(), "the leader epoch is not checksummed");
}

#[test]
fn header_rules() {
    let batch = builder(&[1, 2]).build();
    let check = |edit: fn(&mut BatchHeader), expect: Option<BatchError>| {
        assert_eq!(checked(&edited(&batch, edit), &rules()).err(), expect);
    };
    check(|_| (), None);
    check(|h| h.base_offset = Offset(1), Some(BatchError::BaseOffset(1)));
    let count = |record_count, last_offset_delta| {
        Some(BatchError::Count { record_count, last_offset_delta })
    };
    check(|h| h.record_count = 0, count(0, 1));
    check(|h| h.record_count = -1, count(-1, 1));
    check(|h| h.record_count = 1, count(1, 1));
    check(|h| h.last_offset_delta = 2, count(2, 2));
    check(|h| h.last_offset_delta = -1, count(2, -1));
    check(|h| h.record_count = i32::MIN, count(i32::MIN, 1));
    check(|h| h.attributes = h.attributes.with_control(), Some(BatchError::Control));
    for bits in 5..8 {
        let data = edited(&batch, |h| h.attributes = Attributes(bits));
        assert_eq!(checked(&data, &rules()), Err(BatchError::UnknownCodec(bits as u8)));
    }
    check(|h| h.attributes = Attributes(1 << 14), None);
    check(
        |h| h.attributes = h.attributes.with_transactional(),
        Some(BatchError::TransactionWithoutProducer),
    );
    let producer = |id, epoch, base_sequence| BatchError::Producer {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence,
    };
    let check = |id, epoch, sequence, expect: Option<BatchError>| {
        let data = edited(&batch, |h| {
            h.producer_id = ProducerId(id);
            h.producer_epoch = ProducerEpoch(epoch);
            h.base_sequence = sequence;
        });
        assert_eq!(checked(&data, &rules()).err(), expect);
    };
    check(5, 0, 0, None);
    check(5, 0, i32::MAX, None);
    check(-1, -1, -1, None);
    check(5, 0, -1, Some(producer(5, 0, -1)));
    check(5, -1, 0, Some(producer(5, -1, 0)));
}

#[test]
fn zstd_needs_a_newer_request() {
    let batch = builder(&[1]).codec(Codec::Zstd).build();
    let old = Rules { zstd_allowed: false, ..rules() };
    assert_eq!(checked(&batch, &old), Err(BatchError::ZstdTooEarly));
    assert!(checked(&builder(&[1]).codec(Codec::Lz4).build(), &old).is_ok());
}

#[test]
fn compressed_records_must_expand_within_limits() {
    let batch = builder(&[1; 1000]).codec(Codec::Gzip).build();
    let limits = Limits { bytes_max: 5000, ratio_max: 1000, ratio_free_bytes: 0 };
    let got = checked(&batch, &Rules { limits, ..rules() });
    assert_eq!(got, Err(BatchError::Expansion { bytes_max: 5000 }));

    let other = edited(&batch, |h| h.attributes = Attributes(2));
    assert_eq!(checked(&other, &rules()), Err(BatchError::Compression(Codec::Snappy)));
}

fn faults(list: &[(i32, RecordProblem)]) -> RecordErrors {
    let listed = list.iter().map(|&(index, problem)| RecordFault { index, problem }).collect();
    RecordErrors { listed, total: list.len() }
}

#[test]
fn records_at_fault_are_named() {
    let check = |data: &[u8], list: &[(i32, RecordProblem)]| {
        assert_eq!(checked(data, &rules()), Err(BatchError::Records(faults(list))));
    };
    // Deltas 0 and 1.
    let (zero, one) = ([12, 0, 0, 0, 1, 1, 0], [12, 0, 0, 2, 1, 1, 0]);
    assert!(checked(&handmade(&[zero, one].concat(), 2), &rules()).is_ok());
    let delta = |expected, got| RecordProblem::OffsetDelta { expected, got };
    check(&handmade(&[one, zero].concat(), 2), &[(0, delta(0, 1)), (1, delta(1, 0))]);
    check(&handmade(&[zero, zero].concat(), 2), &[(1, delta(1, 0))]);
    let malformed = RecordProblem::Malformed;
    check(&handmade(&zero, 2), &[(1, malformed(Malformed::Missing))]);
    check(&handmade(&[zero, one].concat(), 1), &[(1, malformed(Malformed::Trailing(7)))]);
    check(&handmade(&zero[..6], 1), &[(0, malformed(Malformed::Length { declared: 6, left: 5 }))]);
}

#[test]
fn a_list_of_faults_is_bounded() {
    let keys = Rules { keys_required: true, ..rules() };
    let Err(BatchError::Records(errors)) = checked(&builder(&[1; 5000]).build(), &keys) else {
        panic!("records without keys passed");
    };
    assert_eq!((errors.listed.len(), errors.total), (RecordErrors::LISTED_MAX, 5000));
    let text = "5000 records refused: record 0: a compacted topic takes no record without a key; \
        record 1: a compacted topic takes no record without a key; \
        record 2: a compacted topic takes no record without a key";
    assert_eq!(errors.to_string(), text);
}

#[test]
fn compacted_topics_need_keys() {
    let keys = Rules { keys_required: true, ..rules() };
    let mut batch = BatchBuilder::new();
    for key in [Some(&b""[..]), None, Some(&b"k"[..])] {
        batch.push(&NewRecord { key, ..Default::default() });
    }
    let expect = BatchError::Records(faults(&[(1, RecordProblem::NullKey)]));
    assert_eq!(checked(&batch.build(), &keys), Err(expect));
}

#[test]
fn create_time_has_bounds() {
    let timestamps = TimestampRule::Create { before_max_ms: 1000, after_max_ms: 10 };
    let bounded = Rules { timestamps, ..rules() };
    let (earliest, latest) = (Timestamp(NOW.0 - 1000), Timestamp(NOW.0 + 10));
    let check = |times: &[i64], faulty: &[i32]| {
        let list: Vec<_> = faulty
            .iter()
            .map(|&index| {
                let timestamp = Timestamp(times[index as usize]);
                (index, RecordProblem::TimestampRange { timestamp, earliest, latest })
            })
            .collect();
        let expect = (!list.is_empty()).then(|| BatchError::Timestamps(faults(&list)));
        assert_eq!(checked(&builder(times).build(), &bounded).err(), expect, "{times:?}");
    };
    check(&[NOW.0, earliest.0, latest.0, -1], &[]);
    check(&[-1, -1], &[]);
    check(&[earliest.0 - 1, NOW.0, latest.0 + 1], &[0, 2]);
    check(&[NOW.0, 0, i64::MAX - 1], &[1, 2]);
}

#[test]
fn unbounded_timestamps_reach_far() {
    for times in [[i64::MAX, 0], [0, i64::MAX], [-5, 3], [1, i64::MIN + 1]] {
        let batch = builder(&times).build();
        let valid = checked(&batch, &rules()).unwrap();
        assert_eq!(valid.header().max_timestamp.0, times[0].max(times[1]));
    }
    let batch = edited(&builder(&[0, 5]).build(), |h| h.base_timestamp = Timestamp(i64::MAX - 1));
    let overflow = RecordProblem::TimestampOverflow { base: Timestamp(i64::MAX - 1), delta: 5 };
    let expect = BatchError::Records(faults(&[(1, overflow)]));
    assert_eq!(checked(&batch, &rules()), Err(expect));
}

#[test]
fn a_wrong_max_timestamp_is_corrected() {
    let batch = builder(&[5, 9, 2]).build();
    for wrong in [i64::MIN, -1, 5, 10, i64::MAX] {
        let data = edited(&batch, |h| h.max_timestamp = Timestamp(wrong));
        let valid = checked(&data, &rules()).unwrap();
        assert_eq!(valid.header(), &BatchHeader::parse(&batch).unwrap());
        assert_eq!(valid.max_timestamp_delta(), 1);
    }
}

#[test]
fn append_time_replaces_the_producers() {
    let append = Rules { timestamps: TimestampRule::Append, ..rules() };
    for codec in [Codec::None, Codec::Lz4] {
        let batch = builder(&[5, 9, 2]).codec(codec).build();
        let valid = checked(&batch, &append).unwrap();
        let header = valid.header();
        assert!(header.attributes.is_append_time());
        assert_eq!(header.attributes.codec(), Some(codec));
        assert_eq!((header.max_timestamp, header.base_timestamp), (NOW, Timestamp(5)));
        assert_eq!(header.crc, header.crc_with(valid.body()));
        assert_eq!((valid.append_time(), valid.max_timestamp_delta()), (Some(NOW), 2));
    }
    // The producer may not claim it.
    let claimed =
        edited(&builder(&[5]).build(), |h| h.attributes = h.attributes.with_append_time());
    let expect = BatchError::Timestamps(faults(&[(0, RecordProblem::AppendTimeSet)]));
    for rules in [append, rules()] {
        assert_eq!(checked(&claimed, &rules), Err(expect.clone()));
    }
}

proptest! {
    #[test]
    fn what_was_built_passes(
        times in proptest::collection::vec(-1i64..2_000_000, 1..50),
        codec in 0u8..5,
        value in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut batch = BatchBuilder::new().codec(Codec::from_bits(codec).unwrap());
        for &time in &times {
            let timestamp = Timestamp(time);
            batch.push(&NewRecord { timestamp, value: Some(&value), ..Default::default() });
        }
        let batch = batch.build();
        let valid = checked(&batch, &rules()).unwrap();
        let max = times.iter().copied().max().unwrap();
        let place = times.iter().position(|&time| time == max).unwrap();
        prop_assert_eq!(valid.header().max_timestamp, Timestamp(max));
        // Without a timestamp anywhere the first record stands for the batch.
        prop_assert_eq!(valid.max_timestamp_delta(), place as i32);
    }

    /// Behind a right checksum any damage is refused or harmless, and never panics.
    #[test]
    fn a_changed_byte_never_panics(
        count in 1usize..6,
        codec in 0u8..5,
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
        append in any::<bool>(),
    ) {
        let batch = builder(&vec![7; count]).codec(Codec::from_bits(codec).unwrap()).build();
        let at = at.index(batch.len());
        let mut damaged = batch.clone();
        damaged[at] = value;
        let mut rules = Rules { keys_required: value % 2 == 0, ..rules() };
        if append {
            rules.timestamps = TimestampRule::Append;
        }
        let _ = checked(&damaged[..at], &rules);
        if let Ok((mut header, body, [])) = BatchHeader::split(&damaged) {
            header.crc = header.crc_with(body);
            let repaired = [&header.encode()[..], body].concat();
            if let Ok(valid) = checked(&repaired, &rules) {
                let header = valid.header();
                prop_assert_eq!(header.crc, header.crc_with(valid.body()));
            }
        }
    }
}
