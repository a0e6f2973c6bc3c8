//! Produce on a bare socket: what is refused, what is kept as sent, what is told apart.

use crate::broker::{topic, Broker};
use crate::client::create_topic;
use crate::wire::{self, fetch, produce, Identity, Wire, NOBODY, PRODUCE_VERSION};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

// Kafka's codes, as numbers: a client sees nothing else.
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_RECORD: i16 = 87;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;

fn started(name: &str) -> (Broker, Wire, String) {
    let broker = Broker::start();
    let topic = topic(name);
    create_topic(&broker.address, &topic, 1, &[("max.message.bytes", "10000")]);
    let wire = Wire::new(&broker);
    (broker, wire, topic)
}

#[test]
fn a_batch_is_kept_as_sent() {
    let (_broker, mut wire, topic) = started("as-sent");
    let batches: Vec<Bytes> = [&["a"][..], &["b", "c"], &["d"]]
        .iter()
        .map(|values| wire::batch(values, NOBODY))
        .collect();
    for (batch, base) in batches.iter().zip([0, 1, 3]) {
        assert_eq!(produce(&mut wire, &topic, batch.clone()), Ok(base));
    }
    let seen = fetch(&mut wire, &topic, 0, 0).expect("records");
    let mut rest = &seen[..];
    for (batch, base) in batches.iter().zip([0_i64, 1, 3]) {
        let (head, after) = rest.split_at(batch.len());
        assert_eq!(head[..8], base.to_be_bytes(), "base offset");
        assert_eq!(head[8..12], batch[8..12], "length");
        assert_eq!(head[16..], batch[16..], "from the magic on");
        rest = after;
    }
    assert!(rest.is_empty());
}

#[test]
fn a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch() {
    let (_broker, mut wire, topic) = started("middle");
    let first = wire::batch(&["a", "b", "c"], NOBODY);
    let second = wire::batch(&["d"], NOBODY);
    assert_eq!(produce(&mut wire, &topic, first.clone()), Ok(0));
    assert_eq!(produce(&mut wire, &topic, second.clone()), Ok(3));
    let seen = fetch(&mut wire, &topic, 2, 0).expect("records");
    assert_eq!(seen.len(), first.len() + second.len());
    let seen = fetch(&mut wire, &topic, 3, 0).expect("records");
    assert_eq!(seen.len(), second.len());
}

/// A batch with some of its bytes replaced, under a right CRC if `sealed`.
fn changed(at: usize, bytes: &[u8], sealed: bool) -> Bytes {
    let mut batch = BytesMut::from(&wire::batch(&["a", "b"], NOBODY)[..]);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    if sealed {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]) as u32;
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    batch.freeze()
}

#[test]
fn wrong_records_are_refused_and_nothing_is_appended() {
    let (_broker, mut wire, topic) = started("wrong");
    let good = wire::batch(&["good"], NOBODY);
    let twice = [&good[..], &good[..]].concat();
    let large = wire::batch(&["x".repeat(20_000).as_str()], NOBODY);
    // Apache Kafka finds no batch at all in one that is cut short; both answers tell the client.
    let cut: &[i16] = &[CORRUPT_MESSAGE, INVALID_RECORD];
    let two = 2_i32.to_be_bytes();
    for (what, records, codes) in [
        ("another value under the old CRC", changed(70, b"?", false), &[CORRUPT_MESSAGE][..]),
        ("another CRC", changed(17, &[0; 4], false), &[CORRUPT_MESSAGE]),
        ("a length past the end", changed(9, &[1], false), cut),
        ("a batch cut short", good.slice(..good.len() - 1), cut),
        ("a header cut short", good.slice(..60), cut),
        ("no batch", Bytes::new(), &[INVALID_RECORD]),
        ("two batches", twice.into(), &[INVALID_RECORD]),
        ("magic 1", changed(16, &[1], true), &[INVALID_RECORD]),
        ("a control batch", changed(22, &[0x20], true), &[INVALID_RECORD]),
        ("a last offset delta over the count", changed(23, &two, true), &[INVALID_RECORD]),
        ("a count of none", changed(57, &[0; 4], true), &[INVALID_RECORD]),
        ("a count over the records", changed(57, &3_i32.to_be_bytes(), true), &[INVALID_RECORD]),
        ("larger than allowed", large, &[MESSAGE_TOO_LARGE]),
    ] {
        let outcome = produce(&mut wire, &topic, records);
        let is_refused = outcome.is_err_and(|code| codes.contains(&code));
        assert!(is_refused, "{what}: {outcome:?}");
    }
    assert_eq!(produce(&mut wire, &topic, good), Ok(0));
}

#[test]
fn an_unknown_topic_is_refused() {
    let (_broker, mut wire, _) = started("known");
    let batch = wire::batch(&["a"], NOBODY);
    let outcome = produce(&mut wire, &topic("unknown"), batch);
    assert_eq!(outcome, Err(UNKNOWN_TOPIC_OR_PARTITION));
}

#[test]
fn repeats_are_recognised_and_gaps_refused() {
    let (_broker, mut wire, topic) = started("sequences");
    let identity = wire::init_producer(&mut wire);
    let at = |sequence: i32| Identity { sequence, ..identity };
    let mut send = |values: &[&str], sequence: i32| {
        produce(&mut wire, &topic, wire::batch(values, at(sequence)))
    };
    assert_eq!(send(&["a", "b"], 0), Ok(0));
    assert_eq!(send(&["a", "b"], 0), Ok(0), "a repeat gets the first answer");
    assert_eq!(send(&["c"], 2), Ok(2));
    assert_eq!(send(&["e"], 4), Err(OUT_OF_ORDER_SEQUENCE_NUMBER));
    assert_eq!(send(&["a", "b"], 0), Ok(0));
    assert_eq!(send(&["d"], 3), Ok(3), "neither repeats nor refusals moved the end");
}

#[test]
fn producer_ids_are_never_given_twice() {
    let (mut broker, _, _) = started("ids");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let mut wire = Wire::new(&broker);
        for _ in 0..5 {
            let id = wire::init_producer(&mut wire).id;
            assert!(seen.insert(id), "{id} again");
        }
        drop(wire);
        broker.kill_and_restart();
    }
}

#[test]
fn nothing_answers_a_produce_without_acks() {
    let (_broker, mut wire, topic) = started("no-acks");
    let request = wire::produce_request(&topic, 0, wire::batch(&["a"], NOBODY));
    wire.send(PRODUCE_VERSION, &request);
    wire.send(PRODUCE_VERSION, &request);
    let expected = wire.send(0, &ApiVersionsRequest::default());
    let (seen, answer): (i32, ApiVersionsResponse) = wire.receive::<ApiVersionsRequest>(0);
    assert_eq!((seen, answer.error_code), (expected, 0));
    assert_eq!(produce(&mut wire, &topic, wire::batch(&["b"], NOBODY)), Ok(2));
}
