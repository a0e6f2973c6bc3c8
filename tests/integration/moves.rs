//! Connections that go to the core of their data, with two cores behind one port.

use crate::broker::{only_own, topic, Broker};
use crate::client::{assert_same, consume, create_topic, placed, produce, records};
use crate::connections::Watched;
use crate::wire::{self, batch, init_producer, Identity, Wire, PRODUCE_VERSION};
use kafka_protocol::messages::ProduceRequest;

/// Requests in flight.
const PIPELINED: usize = 8;

fn moved(at: &Watched) -> u64 {
    at.metric("basalt_connections_moved_in_total").iter().sum()
}

/// A producer on a bare socket, several requests ahead of their answers.
struct Pipeline {
    wire: Wire,
    topic: String,
    identity: Identity,
    sent: [i64; 2],
    waiting: std::collections::VecDeque<(i32, i32, i64)>,
}

impl Pipeline {
    fn new(broker: &Broker, topic: &str) -> Pipeline {
        let mut wire = Wire::new(broker);
        let identity = init_producer(&mut wire);
        let (topic, waiting) = (topic.to_string(), Default::default());
        Pipeline { wire, topic, identity, sent: [0; 2], waiting }
    }

    /// One record more for a partition. Its sequence tells the broker of any change of order.
    fn send(&mut self, partition: i32) {
        let offset = self.sent[partition as usize];
        self.sent[partition as usize] += 1;
        let identity = Identity { sequence: offset as i32, ..self.identity };
        let records = batch(&[&format!("{partition}/{offset}")], identity);
        let mut request = wire::produce_request(&self.topic, -1, records);
        request.topic_data[0].partition_data[0].index = partition;
        let correlation = self.wire.send(PRODUCE_VERSION, &request);
        self.waiting.push_back((correlation, partition, offset));
        while self.waiting.len() > PIPELINED {
            self.receive();
        }
    }

    fn receive(&mut self) {
        let (correlation, partition, offset) = self.waiting.pop_front().expect("one was sent");
        let (seen, answer) = self.wire.receive::<ProduceRequest>(PRODUCE_VERSION);
        let answer = &answer.responses[0].partition_responses[0];
        let answered = (seen, answer.index, answer.error_code, answer.base_offset);
        assert_eq!(answered, (correlation, partition, 0, offset));
    }

    fn finish(&mut self) {
        while !self.waiting.is_empty() {
            self.receive();
        }
    }
}

/// The values of a topic's partitions, in their order.
fn values(broker: &Broker, topic: &str) -> [Vec<String>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for (place, record) in consume(&broker.address, topic, 2) {
        let value = record.value.expect("a value");
        all[place.partition as usize].push(String::from_utf8(value).expect("text"));
    }
    all
}

fn expected(sent: [i64; 2]) -> [Vec<String>; 2] {
    [0, 1].map(|partition| (0..sent[partition]).map(|n| format!("{partition}/{n}")).collect())
}

#[test]
fn a_producer_follows_its_partition_and_nothing_is_lost_or_reordered() {
    if only_own("a_producer_follows_its_partition_and_nothing_is_lost_or_reordered") {
        return;
    }
    let at = Watched::with("2", &[]);
    let topics: Vec<String> = (0..4).map(|_| topic("moves")).collect();
    let mut producers = Vec::new();
    for topic in &topics {
        create_topic(&at.broker.address, topic, 2, &[]);
        producers.push(Pipeline::new(&at.broker, topic));
    }
    let all = producers.len() as u64;
    // Wherever a connection began: after one of the two rounds it has moved, with the partitions
    // of a topic on different cores.
    for partition in [0, 1] {
        for _ in 0..400 {
            producers.iter_mut().for_each(|producer| producer.send(partition));
        }
    }
    producers.iter_mut().for_each(Pipeline::finish);
    let in_and_out = |name: &str| {
        at.until(name, |cores| cores.len() == 2 && (all..=2 * all).contains(&cores.iter().sum()));
    };
    in_and_out("basalt_connections_moved_in_total");
    in_and_out("basalt_connections_moved_out_total");
    // They are all there, and each still among the connections.
    let connected = |cores: &[u64]| cores.iter().sum::<u64>() >= all;
    at.until("basalt_connections", connected);
    for (producer, topic) in producers.iter().zip(&topics) {
        assert_eq!(values(&at.broker, topic), expected(producer.sent), "{topic}");
    }
    drop(producers);
    at.until("basalt_connections", |cores| cores == [0, 0]);
}

#[test]
fn a_connection_with_mixed_requests_stays() {
    if only_own("a_connection_with_mixed_requests_stays") {
        return;
    }
    let at = Watched::with("2", &[]);
    let topic = topic("mixed");
    create_topic(&at.broker.address, &topic, 2, &[]);
    let mut producer = Pipeline::new(&at.broker, &topic);
    for _ in 0..300 {
        for partition in [0, 0, 0, 1, 1] {
            producer.send(partition);
        }
    }
    producer.finish();
    at.until("basalt_requests_total", |counts| counts.iter().sum::<u64>() >= 600);
    assert_eq!(moved(&at), 0);
    assert_eq!(values(&at.broker, &topic), expected(producer.sent));
}

#[test]
fn a_connection_stays_where_each_core_has_a_port() {
    if only_own("a_connection_stays_where_each_core_has_a_port") {
        return;
    }
    let at = Watched::with("2", &["advertise=per-core"]);
    let topic = topic("per-core");
    create_topic(&at.broker.address, &topic, 2, &[]);
    let mut producer = Pipeline::new(&at.broker, &topic);
    for partition in [0, 1] {
        (0..300).for_each(|_| producer.send(partition));
    }
    producer.finish();
    at.until("basalt_requests_total", |counts| counts.iter().sum::<u64>() >= 600);
    assert_eq!(moved(&at), 0);
    assert_eq!(values(&at.broker, &topic), expected(producer.sent));
}

#[test]
fn clients_of_librdkafka_notice_nothing_of_moves() {
    if only_own("clients_of_librdkafka_notice_nothing_of_moves") {
        return;
    }
    let at = Watched::with("2", &[]);
    let sent = records(3_000);
    for _ in 0..4 {
        let topic = topic("librdkafka");
        create_topic(&at.broker.address, &topic, 1, &[]);
        let settings = [("batch.num.messages", "10"), ("enable.idempotence", "true")];
        let places = produce(&at.broker.address, &topic, &sent, &settings);
        let seen = consume(&at.broker.address, &topic, 1);
        assert_same(&seen, &placed(&places, &sent), "after a move");
    }
    assert!(at.broker.errors().is_empty() || !at.broker.errors().contains("panicked"));
}

#[test]
fn a_stop_amid_moves_is_a_clean_one() {
    if only_own("a_stop_amid_moves_is_a_clean_one") {
        return;
    }
    let mut at = Watched::with("2", &[]);
    let topic = topic("stop");
    create_topic(&at.broker.address, &topic, 2, &[]);
    let mut producer = Pipeline::new(&at.broker, &topic);
    for partition in [0, 1] {
        (0..100).for_each(|_| producer.send(partition));
    }
    assert_eq!(at.broker.stop().code(), Some(0));
}
