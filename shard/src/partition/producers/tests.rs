//! Scripts of batches, a model that remembers everything, and kept bytes.

use proptest::prelude::*;

use super::*;
use crate::batch::{BatchBuilder, Marker, MarkerKind, NewRecord};

const MAX: usize = 100;

/// Producer id, epoch, first sequence, how many records.
fn data(id: i64, epoch: i16, sequence: i32, count: i32) -> BatchHeader {
    let (id, epoch) = (ProducerId(id), ProducerEpoch(epoch));
    let mut batch = BatchBuilder::new().producer(id, epoch, sequence);
    batch.push(&NewRecord::default());
    batch.skip(count - 1);
    BatchHeader::parse(&batch.build()).unwrap()
}

fn transactional(id: i64, epoch: i16, sequence: i32) -> BatchHeader {
    let mut header = data(id, epoch, sequence, 1);
    header.attributes = header.attributes.with_transactional();
    header
}

fn marker(id: i64, epoch: i16) -> BatchHeader {
    let marker = Marker { kind: MarkerKind::Commit, coordinator_epoch: 0 };
    let batch = marker.build(ProducerId(id), ProducerEpoch(epoch), Timestamp(0));
    BatchHeader::parse(&batch).unwrap()
}

fn apply(producers: &mut Producers, header: &BatchHeader, at: i64) -> Option<Ended> {
    producers.apply(header, Offset(at), Timestamp(at * 1000), MAX)
}

/// Appends these in order, each accepted as new, at offsets 0, 100, 200…
fn after(headers: &[BatchHeader]) -> Producers {
    let mut producers = Producers::default();
    for (index, header) in headers.iter().enumerate() {
        assert_eq!(producers.check(header), Ok(Verdict::New), "{header:?}");
        apply(&mut producers, header, index as i64 * 100);
    }
    producers
}

fn out_of_order(expected: i32, got: i32) -> Result<Verdict, ProducerError> {
    let producer_id = ProducerId(7);
    Err(ProducerError::OutOfOrder { producer_id, expected, got })
}

fn duplicate(base: i64, last: i64) -> Result<Verdict, ProducerError> {
    Ok(Verdict::Duplicate {
        base_offset: Offset(base),
        last_offset: Offset(last),
        append_time: Timestamp(base * 1000),
    })
}

#[test]
fn no_producer_is_one_empty_pointer() {
    assert_eq!(size_of::<Producers>(), size_of::<usize>());
    let mut producers = Producers::default();
    let plain = data(-1, -1, -1, 5);
    assert_eq!(producers.check(&plain), Ok(Verdict::New));
    assert_eq!(apply(&mut producers, &plain, 0), None);
    assert!(producers.is_empty());
}

#[test]
fn sequences_follow_one_another() {
    let producers = after(&[data(7, 0, 0, 3), data(7, 0, 3, 2)]);
    let check = |header: BatchHeader, expect| assert_eq!(producers.check(&header), expect);
    check(data(7, 0, 5, 1), Ok(Verdict::New));
    check(data(7, 0, 6, 1), out_of_order(5, 6));
    check(data(7, 0, 4, 1), out_of_order(5, 4));
    // The same batches again, but not others that overlap them.
    check(data(7, 0, 0, 3), duplicate(0, 2));
    check(data(7, 0, 3, 2), duplicate(100, 101));
    check(data(7, 0, 0, 2), out_of_order(5, 0));
    check(data(7, 0, 3, 1), out_of_order(5, 3));
}

#[test]
fn unknown_producers_start_anywhere() {
    let producers = after(&[data(7, 3, 1000, 1), data(7, 3, 1001, 1)]);
    assert_eq!(producers.check(&data(8, 0, 55, 1)), Ok(Verdict::New));
}

#[test]
fn sequences_wrap_to_zero() {
    let last = i32::MAX;
    let producers = after(&[data(7, 0, last - 1, 2)]);
    assert_eq!(producers.check(&data(7, 0, 0, 1)), Ok(Verdict::New));
    assert_eq!(producers.check(&data(7, 0, 1, 1)), out_of_order(0, 1));
    // A batch that itself wraps: MAX, 0, 1.
    let producers = after(&[data(7, 0, last, 3)]);
    assert_eq!(producers.check(&data(7, 0, 2, 1)), Ok(Verdict::New));
    assert_eq!(producers.check(&data(7, 0, last, 3)), duplicate(0, 2));
}

#[test]
fn five_batches_are_recognised() {
    let headers: Vec<_> = (0..7).map(|sequence| data(7, 0, sequence, 1)).collect();
    let producers = after(&headers);
    for sequence in 0..2 {
        let got = producers.check(&data(7, 0, sequence, 1));
        assert_eq!(got, out_of_order(7, sequence));
    }
    for sequence in 2..7 {
        let at = i64::from(sequence) * 100;
        assert_eq!(producers.check(&data(7, 0, sequence, 1)), duplicate(at, at));
    }
}

#[test]
fn epochs_only_rise() {
    let producers = after(&[data(7, 5, 0, 1), data(7, 5, 1, 1)]);
    let stale = Err(ProducerError::StaleEpoch {
        producer_id: ProducerId(7),
        current: ProducerEpoch(5),
        got: ProducerEpoch(4),
    });
    assert_eq!(producers.check(&data(7, 4, 0, 1)), stale);
    assert_eq!(producers.check(&data(7, 4, 2, 1)), stale);
    assert_eq!(producers.check(&marker(7, 4)), stale);
    assert_eq!(producers.check(&data(7, 6, 0, 1)), Ok(Verdict::New));
    assert_eq!(producers.check(&data(7, 6, 2, 1)), out_of_order(0, 2));
    // Batches of the old epoch are no duplicates under the new one.
    let producers = after(&[data(7, 5, 0, 1), data(7, 6, 0, 1)]);
    assert_eq!(producers.check(&data(7, 6, 0, 1)), duplicate(100, 100));
    assert_eq!(producers.check(&data(7, 5, 0, 1)), {
        Err(ProducerError::StaleEpoch {
            producer_id: ProducerId(7),
            current: ProducerEpoch(6),
            got: ProducerEpoch(5),
        })
    });
    // A marker may raise the epoch; sequences start again.
    let producers = after(&[transactional(7, 5, 0), marker(7, 6)]);
    assert_eq!(producers.check(&data(7, 6, 1, 1)), out_of_order(0, 1));
    assert_eq!(producers.check(&data(7, 6, 0, 1)), Ok(Verdict::New));
}

#[test]
fn a_marker_keeps_the_sequence() {
    let producers = after(&[transactional(7, 5, 0), marker(7, 5)]);
    assert_eq!(producers.check(&transactional(7, 5, 1)), Ok(Verdict::New));
    assert_eq!(producers.check(&transactional(7, 5, 0)), duplicate(0, 0));
}

#[test]
fn transactions_open_and_end() {
    let mut producers = Producers::default();
    let undecided = |producers: &Producers, high_watermark| {
        producers.first_undecided(Offset(high_watermark)).map(|offset| offset.0)
    };
    for (at, header) in [(10, transactional(1, 0, 0)), (11, transactional(2, 0, 0))] {
        apply(&mut producers, &header, at);
    }
    apply(&mut producers, &transactional(1, 0, 1), 12);
    assert_eq!(producers.first_open_offset(), Some(Offset(10)));
    let open = ProducerError::TransactionOpen { producer_id: ProducerId(1), first: Offset(10) };
    assert_eq!(producers.check(&data(1, 0, 2, 1)), Err(open));

    let ended = |producer, first, marker| {
        Some(Ended {
            producer_id: ProducerId(producer),
            first: Offset(first),
            marker: Offset(marker),
        })
    };
    assert_eq!(apply(&mut producers, &marker(1, 0), 13), ended(1, 10, 13));
    assert_eq!(apply(&mut producers, &marker(1, 0), 14), None);
    assert_eq!(producers.first_open_offset(), Some(Offset(11)));
    // The marker at 13 counts once the high watermark has passed it.
    assert_eq!(undecided(&producers, 13), Some(10));
    assert_eq!(undecided(&producers, 14), Some(11));
    producers.settle(Offset(14));
    assert_eq!(undecided(&producers, 0), Some(11));
    assert_eq!(apply(&mut producers, &marker(2, 0), 15), ended(2, 11, 15));
    producers.settle(Offset(16));
    assert_eq!((producers.first_open_offset(), undecided(&producers, 0)), (None, None));
    assert_eq!(producers.check(&data(1, 0, 2, 1)), Ok(Verdict::New));
}

#[test]
fn old_coordinators_are_fenced() {
    let mut producers = after(&[transactional(7, 0, 0), marker(7, 0)]);
    producers.set_coordinator(ProducerId(7), 4);
    assert_eq!(producers.check_coordinator(ProducerId(7), 4), Ok(()));
    assert_eq!(producers.check_coordinator(ProducerId(8), 0), Ok(()));
    let expect = ProducerError::StaleCoordinator { producer_id: ProducerId(7), current: 4, got: 3 };
    assert_eq!(producers.check_coordinator(ProducerId(7), 3), Err(expect));
}

#[test]
fn silent_producers_expire() {
    // Appends at 0 s, 100 s, 200 s.
    let mut producers = after(&[data(1, 0, 0, 1), transactional(2, 0, 0), data(3, 0, 0, 1)]);
    producers.expire(Timestamp(99_999), 100_000);
    assert_eq!(producers.count(), 3);
    producers.expire(Timestamp(100_000), 100_000);
    assert_eq!(producers.count(), 2);
    assert_eq!(producers.check(&data(1, 0, 9, 1)), Ok(Verdict::New));
    // An open transaction keeps its producer.
    producers.expire(Timestamp(i64::MAX), 100_000);
    assert_eq!(producers.count(), 1);
    apply(&mut producers, &marker(2, 0), 300);
    producers.settle(Offset(301));
    producers.expire(Timestamp(i64::MAX), 100_000);
    assert!(producers.is_empty());
}

#[test]
fn the_longest_silent_make_room() {
    let mut producers = Producers::default();
    producers.apply(&transactional(1000, 0, 0), Offset(0), Timestamp(0), 32);
    for id in 0..200i64 {
        producers.apply(&data(id, 0, 0, 1), Offset(id), Timestamp(id), 32);
        assert!(producers.count() <= 32);
    }
    assert_eq!(producers.first_open_offset(), Some(Offset(0)));
    let known = |id| producers.find(ProducerId(id)).is_some();
    assert!((0..160).all(|id| !known(id)) && (180..200).all(known) && known(1000));
    // A limit of none still serves the producer at hand.
    producers.apply(&data(5000, 0, 0, 1), Offset(999), Timestamp(999), 0);
    assert!(producers.find(ProducerId(5000)).is_some());
}

#[test]
fn open_transactions_are_bounded() {
    let mut producers = Producers::default();
    for id in 0..OPEN_TRANSACTIONS_MAX as i64 {
        apply(&mut producers, &transactional(id, 0, 0), id);
    }
    let expect = ProducerError::TooManyTransactions { open: OPEN_TRANSACTIONS_MAX };
    let (new, known) = (transactional(1 << 40, 0, 0), transactional(5, 0, 1));
    assert_eq!(producers.check(&new), Err(expect));
    assert_eq!(producers.check(&known), Ok(Verdict::New));
    assert_eq!(producers.check(&data(1 << 40, 0, 0, 1)), Ok(Verdict::New));
}

#[test]
fn bytes_stand_as_documented() {
    let mut producers = Producers::default();
    producers.apply(&transactional(0x0102, 3, 0x0506), Offset(0x0708), Timestamp(0x090a), MAX);
    producers.set_coordinator(ProducerId(0x0102), 0x0304);
    let mut expect = vec![1, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 4, 3, 0, 0];
    expect.extend([0x0a, 9, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 1]);
    expect.extend([8, 7, 0, 0, 0, 0, 0, 0, 0x0a, 9, 0, 0, 0, 0, 0, 0]);
    expect.extend([6, 5, 0, 0, 6, 5, 0, 0]);
    assert_eq!(producers.encode(), expect);
    assert_eq!(Producers::decode(&expect), Ok(producers));
    assert!(Producers::default().encode().is_empty());
    assert_eq!(Producers::decode(&[]), Ok(Producers::default()));

    let check = |bytes: &[u8], expect| assert_eq!(Producers::decode(bytes), Err(expect));
    let changed = |at: usize, to: u8| {
        let mut bytes = expect.clone();
        bytes[at] = to;
        bytes
    };
    check(&[1], StateDamage::Length);
    check(&changed(0, 2), StateDamage::Version(2));
    check(&expect[..40], StateDamage::Length);
    check(&changed(31, 6), StateDamage::Field);
    check(&changed(31, 2), StateDamage::Length);
    check(&changed(8, 0x80), StateDamage::Field);
    check(&changed(30, 0x80), StateDamage::Field);
    check(&changed(51, 0x80), StateDamage::Field);
    check(&[&expect[..], &expect[1..]].concat(), StateDamage::Field);
}

/// Remembers every batch ever appended.
#[derive(Default)]
struct Model(Vec<(BatchHeader, i64)>);

impl Model {
    fn check(&self, header: &BatchHeader) -> Result<Option<i64>, bool> {
        let own = self.0.iter().rev().filter(|(old, _)| old.producer_id == header.producer_id);
        let Some(epoch) = own.clone().map(|(old, _)| old.producer_epoch).next() else {
            return Ok(None);
        };
        let current = own.take_while(|(old, _)| old.producer_epoch == epoch).take(5);
        let same = |old: &BatchHeader| {
            old.producer_epoch == header.producer_epoch
                && old.base_sequence == header.base_sequence
                && old.record_count == header.record_count
                && old.last_offset_delta == header.last_offset_delta
        };
        if let Some((_, at)) = current.clone().find(|(old, _)| same(old)) {
            return Ok(Some(*at));
        }
        let last = current.clone().next().map(|(old, _)| old.last_sequence());
        let next = match last {
            Some(i32::MAX) => 0,
            Some(last) if header.producer_epoch == epoch => last + 1,
            _ => 0,
        };
        let next = if header.producer_epoch > epoch { 0 } else { next };
        match header.producer_epoch < epoch {
            true => Err(true),
            false if header.base_sequence == next => Ok(None),
            false => Err(false),
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_model_that_remembers_everything(
        steps in proptest::collection::vec((0i64..3, 0i16..3, -4i32..12, 1i32..4), 0..200),
    ) {
        let (mut producers, mut model) = (Producers::default(), Model::default());
        let mut end = 0;
        for (id, epoch, place, count) in steps {
            // Near the end of the sequence numbers, so that they wrap.
            let header = data(id, epoch, sequence_plus(i32::MAX - 4, 5 + place), count);
            let expect = model.check(&header);
            let got = producers.check(&header);
            match expect {
                Ok(None) => {
                    prop_assert_eq!(got, Ok(Verdict::New));
                    apply(&mut producers, &header, end);
                    model.0.push((header, end));
                    end += i64::from(count);
                }
                Ok(Some(at)) => {
                    prop_assert_eq!(got, duplicate(at, at + i64::from(count) - 1));
                }
                Err(true) => {
                    let stale = matches!(got, Err(ProducerError::StaleEpoch { .. }));
                    prop_assert!(stale, "{:?}", got);
                }
                Err(false) => {
                    let order = matches!(got, Err(ProducerError::OutOfOrder { .. }));
                    prop_assert!(order, "{:?}", got);
                }
            }
            prop_assert_eq!(Producers::decode(&producers.encode()), Ok(producers.clone()));
        }
    }

    #[test]
    fn a_changed_byte_never_panics(
        count in 1i64..20,
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut producers = Producers::default();
        for step in 0..count {
            apply(&mut producers, &transactional(step % 3, 0, step as i32), step);
        }
        let mut bytes = producers.encode();
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = Producers::decode(&bytes[..at]);
        if let Ok(producers) = Producers::decode(&bytes) {
            prop_assert_eq!(producers.encode(), bytes);
            let _ = producers.check(&data(0, 0, 0, 1)).map(|_| ());
        }
    }

    #[test]
    fn any_bytes_decode_without_a_panic(bytes in proptest::collection::vec(0u8..3, 0..200)) {
        let _ = Producers::decode(&bytes);
    }
}
