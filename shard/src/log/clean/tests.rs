//! When compaction is due, and which records it leaves.

use super::*;
use crate::batch::{place, BatchBuilder, NewRecord};
use crate::ids::{LeaderEpoch, SegmentNumber};

fn run(kind: RunKind, batch_bytes: u64, time: i64) -> Run {
    Run {
        segment: SegmentNumber(1),
        kind,
        base: Offset(0),
        end: Offset(1),
        max_timestamp: Timestamp(time),
        batch_bytes,
        frame_bytes: batch_bytes,
        exact: true,
    }
}

#[test]
fn a_partition_is_due_when_half_is_new_or_something_waits_for_long() {
    let compaction = Compaction { lag_max_ms: 1_000, ..Compaction::default() };
    let check = |runs: &[(RunKind, u64, i64)], expect: bool| {
        let all: Vec<Run> =
            runs.iter().map(|&(kind, bytes, time)| run(kind, bytes, time)).collect();
        assert_eq!(is_due(all.iter(), &compaction, Timestamp(5_000)), expect, "{runs:?}");
    };
    check(&[], false);
    check(&[(RunKind::Cleaned, 100, 0), (RunKind::Gap, 0, -1)], false);
    check(&[(RunKind::Cleaned, 100, 0), (RunKind::Appended, 99, 4_500)], false);
    check(&[(RunKind::Cleaned, 100, 0), (RunKind::Appended, 100, 4_500)], true);
    check(&[(RunKind::Cleaned, 100, 0), (RunKind::Carried, 1, 4_000)], true);
}

type Given<'a> = (&'a str, Option<&'a str>);

fn batch(base: i64, records: &[Given<'_>]) -> (BatchHeader, Vec<u8>) {
    let mut builder = BatchBuilder::new();
    for (key, value) in records {
        builder.push(&NewRecord {
            timestamp: Timestamp(7),
            key: (!key.is_empty()).then_some(key.as_bytes()),
            value: value.map(str::as_bytes),
            headers: &[],
        });
    }
    let mut bytes = builder.build();
    place(&mut bytes, Offset(base), LeaderEpoch(1));
    let (header, body, _) = BatchHeader::split(&bytes).unwrap();
    (header, body.to_vec())
}

fn left(rest: &Rest, whole: &(BatchHeader, Vec<u8>)) -> Vec<i64> {
    let (header, body) = match rest {
        Rest::Nothing => return Vec::new(),
        Rest::Same => whole,
        Rest::Some(header, body) => &(header.clone(), body.clone()),
    };
    let mut offsets = Vec::new();
    let see = |seen: &Keyed<'_>| offsets.push(seen.offset.0);
    each_key(header, body, &mut Expander::default(), see).unwrap();
    offsets
}

#[test]
fn the_last_record_of_each_key_stays_and_a_mark_until_its_horizon() {
    let mut expander = Expander::default();
    let old = batch(0, &[("a", Some("1")), ("b", Some("2")), ("c", Some("3")), ("", Some("x"))]);
    let new = batch(10, &[("a", Some("4")), ("b", None), ("a", Some("5"))]);
    let mut keys = Keys::new(Offset(10), 1 << 20, Timestamp(i64::MAX));
    keys.add(&new.0, &new.1, &mut expander).unwrap();
    assert_eq!((keys.until, keys.is_full), (Offset(13), false));
    let mut pass = Pass { keys, now: Timestamp(100), delete_retention_ms: 50, log_end: Offset(13) };
    assert_eq!(left(&pass.clean((&old.0, &old.1), false, &mut expander).unwrap(), &old), [2]);
    let rest = pass.clean((&new.0, &new.1), false, &mut expander).unwrap();
    assert_eq!(left(&rest, &new), [11, 12]);
    let Rest::Some(header, body) = rest else { panic!("{rest:?}") };
    assert_eq!(header.horizon(), Some(Timestamp(150)));
    for (now, expect) in [(149, &[11, 12][..]), (150, &[12])] {
        pass.now = Timestamp(now);
        let rest = pass.clean((&header, &body), false, &mut expander).unwrap();
        assert_eq!(left(&rest, &(header.clone(), body.clone())), expect);
    }
    // Behind a batch that is kept whole, with a record of the key perhaps.
    let rest = pass.clean((&header, &body), true, &mut expander).unwrap();
    assert_eq!(left(&rest, &(header.clone(), body.clone())), [11, 12]);
}

#[test]
fn keys_are_bounded_and_transactions_hide_nothing() {
    let mut expander = Expander::default();
    let mut keys = Keys::new(Offset(0), 130, Timestamp(i64::MAX));
    let mut transactional = batch(0, &[("a", Some("1"))]);
    transactional.0.attributes = transactional.0.attributes.with_transactional();
    keys.add(&transactional.0, &transactional.1, &mut expander).unwrap();
    assert!(keys.last.is_empty() && keys.until == Offset(1));
    for (base, full) in [(1, false), (2, true)] {
        let (header, body) = batch(base, &[(&format!("{base}"), Some("1"))]);
        keys.add(&header, &body, &mut expander).unwrap();
        assert_eq!((keys.is_full, keys.until), (full, Offset(base + 1)));
    }
}
