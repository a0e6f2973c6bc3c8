//! What was acknowledged is there after a stop, a kill, and a start with other settings.

use crate::broker::{only_own, topic, Broker};
use crate::client::CODECS;
use crate::client::{assert_same, consume, create_topic, placed, produce, records, Place, Record};
use crate::wire::{self, Identity, Wire, NOBODY};

const PARTITIONS: i32 = 3;

/// One topic in each codec, and what must be found in it.
struct Written {
    topics: Vec<(String, Vec<(Place, Record)>)>,
}

impl Written {
    fn new(broker: &Broker) -> Written {
        let mut topics = Vec::new();
        for codec in CODECS {
            let topic = topic(&format!("restart-{codec}"));
            create_topic(&broker.address, &topic, PARTITIONS, &[]);
            topics.push((topic, Vec::new()));
        }
        let mut written = Written { topics };
        written.add(broker);
        written
    }

    /// Adds 1,000 records to each topic.
    fn add(&mut self, broker: &Broker) {
        for ((topic, expected), codec) in self.topics.iter_mut().zip(CODECS) {
            let sent = records(1_000);
            let settings = [("compression.codec", codec), ("enable.idempotence", "true")];
            let places = produce(&broker.address, topic, &sent, &settings);
            expected.extend(placed(&places, &sent));
            expected.sort_by_key(|(place, _)| *place);
        }
    }

    fn check(&self, broker: &Broker, when: &str) {
        for (topic, expected) in &self.topics {
            let seen = consume(&broker.address, topic, PARTITIONS);
            assert_same(&seen, expected, &format!("{topic} {when}"));
        }
    }
}

#[test]
fn records_outlive_clean_restarts() {
    if only_own("records_outlive_clean_restarts") {
        return;
    }
    let mut broker = Broker::start();
    let mut written = Written::new(&broker);
    for _ in 0..3 {
        broker.restart();
        written.check(&broker, "after a restart");
        written.add(&broker);
        written.check(&broker, "with more records");
    }
}

#[test]
fn records_outlive_kills() {
    if only_own("records_outlive_kills") {
        return;
    }
    let mut broker = Broker::start();
    let mut written = Written::new(&broker);
    for _ in 0..3 {
        broker.kill_and_restart();
        written.check(&broker, "after a kill");
        written.add(&broker);
    }
    broker.kill_and_restart();
    broker.kill_and_restart();
    written.check(&broker, "after two kills in a row");
    broker.restart();
    written.check(&broker, "after a clean stop");
}

#[test]
fn records_outlive_another_number_of_cores() {
    if only_own("records_outlive_another_number_of_cores") {
        return;
    }
    let mut broker = Broker::with(&["--cores", "2"]);
    let mut written = Written::new(&broker);
    for cores in ["1", "2"] {
        broker.set_arguments(&["--cores", cores]);
        broker.restart();
        written.check(&broker, &format!("on {cores} cores"));
        written.add(&broker);
    }
    broker.set_arguments(&["--cores", "1"]);
    broker.kill_and_restart();
    written.check(&broker, "on 1 core after a kill");
}

#[test]
fn records_of_each_flush_mode_outlive_kills() {
    if only_own("records_of_each_flush_mode_outlive_kills") {
        return;
    }
    for flush in ["commit", "interval", "os"] {
        let mut broker = Broker::with(&["--flush", flush]);
        let written = Written::new(&broker);
        broker.kill_and_restart();
        written.check(&broker, &format!("with flush={flush}"));
    }
}

#[test]
fn a_repeated_batch_is_known_after_restarts() {
    if only_own("a_repeated_batch_is_known_after_restarts") {
        return;
    }
    let mut broker = Broker::start();
    let topic = topic("repeated");
    create_topic(&broker.address, &topic, 1, &[]);
    let identity = wire::init_producer(&mut Wire::new(&broker));
    let batch =
        |number: i32| wire::batch(&["a", "b"], Identity { sequence: number * 2, ..identity });
    for round in 0..3 {
        let mut wire = Wire::new(&broker);
        for number in 0..5 {
            let base = i64::from(number) * 2;
            let seen = wire::produce(&mut wire, &topic, batch(number));
            assert_eq!(seen, Ok(base), "batch {number} in round {round}");
        }
        drop(wire);
        if round == 0 {
            broker.kill_and_restart();
        } else {
            broker.restart();
        }
    }
    let mut wire = Wire::new(&broker);
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["c"], NOBODY)), Ok(10));
}
