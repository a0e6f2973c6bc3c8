//! Committed offsets: what they outlive, with what they go, and who may commit them.

use crate::broker::{only_own, topic as unused, topic, Broker};
use crate::client::{config, create_topic, delete_topic, PATIENCE};
use crate::member::{committed, Member, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION};
use crate::wire::Wire;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;

const PARTITIONS: i32 = 4;

#[test]
fn committed_offsets_outlive_restarts_and_kills() {
    if only_own("committed_offsets_outlive_restarts_and_kills") {
        return;
    }
    let mut broker = Broker::start();
    let (topic, group) = (topic("committed"), topic("group"));
    create_topic(&broker.address, &topic, PARTITIONS, &[]);
    let mut expect = BTreeMap::new();
    for round in 0..4 {
        let consumer: BaseConsumer =
            config(&broker.address, &[("group.id", &group)]).create().expect("a consumer");
        let mut offsets = TopicPartitionList::new();
        for partition in round..PARTITIONS {
            let offset = i64::from(round * 100 + partition);
            let at = Offset::Offset(offset);
            offsets.add_partition_offset(&topic, partition, at).expect("an offset");
            expect.insert(partition, offset);
        }
        consumer.commit(&offsets, CommitMode::Sync).expect("a commit");
        if round % 2 == 0 {
            broker.restart();
        } else {
            broker.kill_and_restart();
        }
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&topic, 0, PARTITIONS - 1);
        let found = consumer.committed_offsets(asked, PATIENCE).expect("an answer");
        for (partition, offset) in &expect {
            let seen = found.find_partition(&topic, *partition).expect("a partition").offset();
            assert_eq!(seen, Offset::Offset(*offset), "partition {partition} in round {round}");
        }
    }
}

#[test]
fn offsets_go_with_their_topic() {
    let broker = Broker::with(&["--set", "group.initial.rebalance.delay.ms=0"]);
    let (topic, group) = (topic("again"), topic("group"));
    create_topic(&broker.address, &topic, 1, &[]);
    let mut simple = Member::new(&broker, &group);
    assert_eq!(simple.commit(&topic, 7), 0);
    let groups = [group];
    assert_eq!(committed(&mut simple.wire, &groups, &topic), [7]);
    assert_eq!(delete_topic(&broker.address, &topic), Ok(()));
    create_topic(&broker.address, &topic, 1, &[]);
    assert_eq!(committed(&mut simple.wire, &groups, &topic), [-1]);
    assert_eq!(simple.commit(&topic, 3), 0);
    assert_eq!(committed(&mut simple.wire, &groups, &topic), [3]);
}

/// Consumers that assign their partitions themselves commit without being members, old ones even
/// without the name of a group.
#[test]
fn offsets_are_kept_for_consumers_in_no_group() {
    let broker = Broker::with(&["--set", "group.initial.rebalance.delay.ms=0"]);
    let topic = topic("alone");
    create_topic(&broker.address, &topic, 1, &[]);
    let groups = [unused("nobody-joins"), String::new()];
    for group in &groups {
        let mut simple = Member::new(&broker, group);
        assert_eq!(simple.commit(&topic, 7), 0, "{group:?}");
        assert_eq!(simple.commit("no-such-topic", 7), UNKNOWN_TOPIC_OR_PARTITION);
    }
    assert_eq!(committed(&mut Wire::new(&broker), &groups, &topic), [7, 7]);
    // Once somebody is in the group, only members commit.
    let mut member = Member::alone(&broker, &groups[0]);
    assert_eq!(Member::new(&broker, &groups[0]).commit(&topic, 8), UNKNOWN_MEMBER_ID);
    assert_eq!(member.commit(&topic, 9), 0);
    assert_eq!(committed(&mut member.wire, &groups, &topic), [9, 7]);
}
