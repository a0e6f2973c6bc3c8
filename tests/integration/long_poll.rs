//! A fetch at the end of the log waits: not shorter than it was told, not longer than it must.

use crate::broker::{topic, Broker};
use crate::client::create_topic;
use crate::wire::{self, fetch, fetch_request, produce, Wire, FETCH_VERSION, NOBODY};
use kafka_protocol::messages::FetchRequest;
use std::time::{Duration, Instant};

const LONG_MS: i32 = 15_000;

#[test]
fn a_fetch_returns_with_the_produce_and_not_before() {
    let broker = Broker::start();
    let topic = topic("wait");
    create_topic(&broker.address, &topic, 1, &[]);
    let (mut reader, mut writer) = (Wire::new(&broker), Wire::new(&broker));
    for offset in 0..20 {
        reader.send(FETCH_VERSION, &fetch_request(&topic, offset, LONG_MS));
        assert!(reader.is_silent(Duration::from_millis(20)), "answered before the produce");
        let batch = wire::batch(&["late"], NOBODY);
        assert_eq!(produce(&mut writer, &topic, batch.clone()), Ok(offset));
        let produced = Instant::now();
        let (_, answer) = reader.receive::<FetchRequest>(FETCH_VERSION);
        let waited = produced.elapsed();
        assert!(waited < Duration::from_secs(1), "{waited:?} from the produce to the fetch");
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        assert_eq!(partition.records.as_ref().map(|records| records.len()), Some(batch.len()));
    }
}

#[test]
fn a_fetch_without_news_returns_empty_after_its_time() {
    let broker = Broker::start();
    let topic = topic("no-news");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    for wait_ms in [0, 200, 600] {
        let begun = Instant::now();
        let seen = fetch(&mut wire, &topic, 0, wait_ms).expect("an empty answer");
        let waited = begun.elapsed();
        assert!(seen.is_empty());
        let least = Duration::from_millis(wait_ms as u64);
        let most = least + Duration::from_secs(1);
        assert!((least..most).contains(&waited), "{waited:?} for {wait_ms} ms");
    }
}

#[test]
fn a_fetch_waits_until_its_least_bytes_are_there() {
    let broker = Broker::start();
    let topic = topic("least");
    create_topic(&broker.address, &topic, 1, &[]);
    let (mut reader, mut writer) = (Wire::new(&broker), Wire::new(&broker));
    let batch = wire::batch(&["one"], NOBODY);
    let least = batch.len() as i32 * 3;
    reader.send(FETCH_VERSION, &fetch_request(&topic, 0, LONG_MS).with_min_bytes(least));
    for offset in 0..2 {
        assert_eq!(produce(&mut writer, &topic, batch.clone()), Ok(offset));
        assert!(reader.is_silent(Duration::from_millis(50)), "too few bytes were enough");
    }
    assert_eq!(produce(&mut writer, &topic, batch.clone()), Ok(2));
    let (_, answer) = reader.receive::<FetchRequest>(FETCH_VERSION);
    let records = answer.responses[0].partitions[0].records.as_ref();
    assert_eq!(records.map(|records| records.len()), Some(batch.len() * 3));
}

#[test]
fn a_waiting_fetch_does_not_hold_up_other_connections() {
    let broker = Broker::start();
    let topic = topic("others");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut waiting: Vec<Wire> = (0..50).map(|_| Wire::new(&broker)).collect();
    for wire in &mut waiting {
        wire.send(FETCH_VERSION, &fetch_request(&topic, 0, LONG_MS));
    }
    let mut writer = Wire::new(&broker);
    let begun = Instant::now();
    assert_eq!(produce(&mut writer, &topic, wire::batch(&["all"], NOBODY)), Ok(0));
    for wire in &mut waiting {
        let (_, answer) = wire.receive::<FetchRequest>(FETCH_VERSION);
        assert_eq!(answer.responses[0].partitions[0].error_code, 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?} to wake 50 fetches");
}
