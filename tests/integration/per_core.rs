//! `advertise = per-core`: each core is a broker to its clients, and any core serves any request.

use crate::broker::{only_own, topic, Broker};
use crate::client::PATIENCE;
use crate::client::{assert_same, consume, consumer, create_topic, placed, produce, records};
use crate::wire::{self, Wire, NOBODY};
use rdkafka::consumer::Consumer;
use std::collections::BTreeSet;

const PARTITIONS: i32 = 6;

#[test]
fn every_core_is_a_broker_of_its_own() {
    if only_own("every_core_is_a_broker_of_its_own") {
        return;
    }
    let mut broker = Broker::with(&["--cores", "2", "--advertise", "per-core"]);
    let topic = topic("per-core");
    create_topic(&broker.address, &topic, PARTITIONS, &[]);
    let metadata =
        consumer(&broker.address).fetch_metadata(Some(&topic), PATIENCE).expect("metadata");
    let ids: BTreeSet<i32> = metadata.brokers().iter().map(|broker| broker.id()).collect();
    assert_eq!(ids, BTreeSet::from([1, 2]));
    let partitions = metadata.topics()[0].partitions();
    let leaders: BTreeSet<i32> = partitions.iter().map(|partition| partition.leader()).collect();
    assert_eq!(leaders, ids, "partitions on each core");

    let sent = records(1_000);
    let places = produce(&broker.address, &topic, &sent, &[("enable.idempotence", "true")]);
    let expected = placed(&places, &sent);
    assert_same(&consume(&broker.address, &topic, PARTITIONS), &expected, "two brokers");
    broker.kill_and_restart();
    assert_same(&consume(&broker.address, &topic, PARTITIONS), &expected, "after a kill");
}

#[test]
fn any_core_serves_any_partition() {
    if only_own("any_core_serves_any_partition") {
        return;
    }
    for advertise in ["one", "per-core"] {
        let broker = Broker::with(&["--cores", "2", "--advertise", advertise]);
        // Topics of one partition each: some live on the other core than the connection.
        let mut wire = Wire::new(&broker);
        for number in 0..4 {
            let topic = topic("hop");
            create_topic(&broker.address, &topic, 1, &[]);
            let batch = wire::batch(&["a", "b"], NOBODY);
            let what = format!("{advertise}, topic {number}");
            assert_eq!(wire::produce(&mut wire, &topic, batch.clone()), Ok(0), "{what}");
            let seen = wire::fetch(&mut wire, &topic, 0, 0).expect("records");
            assert_eq!(seen.len(), batch.len(), "{what}");
        }
    }
}
