//! Topics come, are described and go.

use crate::broker::{only_own, topic, Broker};
use crate::client::{
    admin, admin_options, assert_same, consume, consumer, create_topic, delete_topic, placed,
    produce, records, try_create_topic, try_produce, PATIENCE,
};
use crate::wire::{self, Wire, NOBODY};
use futures_lite::future::block_on;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
};
use rdkafka::admin::ResourceSpecifier;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;

fn describe(wire: &mut Wire, topic: &str, auto_create: bool) -> MetadataResponse {
    let asked = MetadataRequestTopic::default().with_name(Some(wire::name(topic)));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![asked]))
        .with_allow_auto_topic_creation(auto_create);
    wire.ask(12, &request)
}

#[test]
fn metadata_shows_what_was_created() {
    let broker = Broker::start();
    let topic = topic("shown");
    create_topic(&broker.address, &topic, 5, &[]);
    let metadata = consumer(&broker.address).fetch_metadata(None, PATIENCE).expect("metadata");
    let seen = metadata.topics().iter().find(|seen| seen.name() == topic).expect("the topic");
    assert_eq!(seen.partitions().len(), 5);
    for partition in seen.partitions() {
        assert!(partition.error().is_none());
        let leader = partition.leader();
        assert!(metadata.brokers().iter().any(|broker| broker.id() == leader), "{leader}");
        assert_eq!(partition.replicas(), [leader]);
        assert_eq!(partition.isr(), [leader]);
    }
    let seen = describe(&mut Wire::new(&broker), &topic, false);
    assert!(!seen.topics[0].topic_id.is_nil());
    assert!(seen.cluster_id.is_some());
    assert!(seen.brokers.iter().any(|broker| broker.node_id == seen.controller_id));
}

#[test]
fn wrong_topics_are_refused() {
    let broker = Broker::start();
    let create = |topic: &str, partitions: i32, settings: &[(&str, &str)]| {
        try_create_topic(&broker.address, topic, partitions, settings)
    };
    let name = topic("wrong");
    assert_eq!(create(&name, 1, &[]), Ok(()));
    assert_eq!(create(&name, 1, &[]), Err(RDKafkaErrorCode::TopicAlreadyExists));
    for bad in ["a b", "..", "ü", &"x".repeat(250)] {
        assert_eq!(create(bad, 1, &[]), Err(RDKafkaErrorCode::InvalidTopic), "{bad}");
    }
    let unknown = create(&topic("wrong"), 1, &[("no.such.key", "1")]);
    assert_eq!(unknown, Err(RDKafkaErrorCode::InvalidConfig));
    let unreadable = create(&topic("wrong"), 1, &[("retention.ms", "soon")]);
    assert_eq!(unreadable, Err(RDKafkaErrorCode::InvalidConfig));
}

#[test]
fn the_broker_chooses_the_number_of_partitions_if_asked_to() {
    let broker = Broker::start();
    let topic = topic("default");
    create_topic(&broker.address, &topic, -1, &[]);
    let seen = describe(&mut Wire::new(&broker), &topic, false);
    assert!(!seen.topics[0].partitions.is_empty());
}

#[test]
fn a_producer_creates_its_topic_and_a_reader_does_not() {
    let broker = Broker::start();
    let mut wire = Wire::new(&broker);
    let name = topic("automatic");
    assert_eq!(describe(&mut wire, &name, false).topics[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(describe(&mut wire, &name, false).topics[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
    let sent = records(100);
    let places = produce(&broker.address, &name, &sent, &[]);
    let partitions = describe(&mut wire, &name, false).topics[0].partitions.len() as i32;
    let seen = consume(&broker.address, &name, partitions);
    assert_same(&seen, &placed(&places, &sent), "an automatic topic");
}

#[test]
fn no_topic_is_created_where_that_is_switched_off() {
    if only_own("no_topic_is_created_where_that_is_switched_off") {
        return;
    }
    let broker = Broker::with(&["--set", "auto.create.topics.enable=false"]);
    let name = topic("forbidden");
    let settings = [("topic.metadata.propagation.max.ms", "200"), ("message.timeout.ms", "3000")];
    let outcomes = try_produce(&broker.address, &name, &records(1), &settings);
    assert!(outcomes[0].is_err());
    let seen = describe(&mut Wire::new(&broker), &name, true);
    assert_eq!(seen.topics[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_is_free() {
    let mut broker = Broker::start();
    let name = topic("deleted");
    create_topic(&broker.address, &name, 2, &[]);
    produce(&broker.address, &name, &records(100), &[]);
    let before = describe(&mut Wire::new(&broker), &name, false).topics[0].topic_id;
    assert_eq!(delete_topic(&broker.address, &name), Ok(()));
    let gone = Err(RDKafkaErrorCode::UnknownTopicOrPartition);
    assert_eq!(delete_topic(&broker.address, &name), gone);
    let mut wire = Wire::new(&broker);
    assert_eq!(describe(&mut wire, &name, false).topics[0].error_code, UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(wire::fetch(&mut wire, &name, 0, 0), Err(UNKNOWN_TOPIC_OR_PARTITION));
    drop(wire);

    create_topic(&broker.address, &name, 1, &[]);
    let mut wire = Wire::new(&broker);
    assert_ne!(describe(&mut wire, &name, false).topics[0].topic_id, before);
    assert!(wire::fetch(&mut wire, &name, 0, 0).expect("an empty log").is_empty());
    assert_eq!(wire::produce(&mut wire, &name, wire::batch(&["new"], NOBODY)), Ok(0));
    drop(wire);

    broker.kill_and_restart();
    assert_eq!(consume(&broker.address, &name, 1).len(), 1);
    assert_eq!(delete_topic(&broker.address, &name), Ok(()));
    broker.restart();
    let mut wire = Wire::new(&broker);
    let seen = describe(&mut wire, &name, false).topics[0].error_code;
    assert_eq!(seen, UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn settings_of_a_topic_are_described() {
    let broker = Broker::start();
    let name = topic("settings");
    create_topic(&broker.address, &name, 1, &[("retention.ms", "12345678")]);
    let asked = [ResourceSpecifier::Topic(&name)];
    let answer = block_on(admin(&broker.address).describe_configs(&asked, &admin_options()));
    let described = answer.expect("an answer").pop().expect("a resource").expect("a topic");
    let entry = described.get("retention.ms").expect("retention.ms");
    assert_eq!(entry.value.as_deref(), Some("12345678"));
    assert!(!entry.is_default);
    let entry = described.get("max.message.bytes").expect("max.message.bytes");
    assert!(entry.is_default);
}

#[test]
fn the_cluster_and_its_coordinators_are_answered_for() {
    let broker = Broker::start();
    let mut wire = Wire::new(&broker);
    let cluster = wire.ask(0, &DescribeClusterRequest::default());
    assert_eq!(cluster.error_code, 0);
    assert!(cluster.brokers.iter().any(|broker| broker.broker_id == cluster.controller_id));
    // Found, or a clear refusal; never silence.
    wire.ask(3, &FindCoordinatorRequest::default().with_key(wire::name("group").0));
}
