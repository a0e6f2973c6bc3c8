//! Consumer groups: who gets which partitions, what outlives a member, a broker, a topic.

use crate::broker::{only_own, topic as unused, topic, Broker};
use crate::client::{
    admin, admin_options, config, consumer, create_topic, delete_topic, produce, records, PATIENCE,
};
use crate::member::{
    committed, find, group_id, text, when_ready, Member, COORDINATOR_LOAD_IN_PROGRESS,
    FENCED_INSTANCE_ID, NOT_COORDINATOR, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID,
};
use crate::wire::Wire;
use futures_lite::future::block_on;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, DescribeGroupsResponse, LeaveGroupRequest,
    ListGroupsRequest,
};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 4;
const NO_DELAY: [&str; 2] = ["--set", "group.initial.rebalance.delay.ms=0"];

fn subscribed(broker: &Broker, group: &str, topic: &str) -> BaseConsumer {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("session.timeout.ms", "10000"),
        ("heartbeat.interval.ms", "200"),
    ];
    let consumer: BaseConsumer = config(&broker.address, &settings).create().expect("a consumer");
    consumer.subscribe(&[topic]).expect("a subscription");
    consumer
}

fn assigned(consumer: &BaseConsumer) -> BTreeSet<i32> {
    let assignment = consumer.assignment().expect("an assignment");
    assignment.elements().iter().map(|element| element.partition()).collect()
}

/// Polls all consumers in turn, counting what each record's partition gave, until `done`.
fn poll_until(
    consumers: &[&BaseConsumer],
    seen: &mut BTreeMap<(i32, i64), usize>,
    mut done: impl FnMut(&BTreeMap<(i32, i64), usize>) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while !done(seen) {
        assert!(Instant::now() < deadline, "waited in vain: {} records", seen.len());
        for consumer in consumers {
            if let Some(polled) = consumer.poll(Duration::from_millis(20)) {
                let message = polled.expect("a record");
                *seen.entry((message.partition(), message.offset())).or_default() += 1;
            }
        }
    }
}

#[test]
fn two_members_share_and_the_one_left_gets_all() {
    let broker = Broker::with(&NO_DELAY);
    let (topic, group) = (topic("shared"), topic("group"));
    create_topic(&broker.address, &topic, PARTITIONS, &[]);
    produce(&broker.address, &topic, &records(1_000), &[]);
    let (first, second) =
        (subscribed(&broker, &group, &topic), subscribed(&broker, &group, &topic));
    let mut seen = BTreeMap::new();
    poll_until(&[&first, &second], &mut seen, |seen| {
        seen.len() == 1_000 && assigned(&first).len() == 2 && assigned(&second).len() == 2
    });
    assert!(assigned(&first).is_disjoint(&assigned(&second)));
    first.commit_consumer_state(CommitMode::Sync).expect("a commit");
    second.commit_consumer_state(CommitMode::Sync).expect("a commit");
    drop(second);
    poll_until(&[&first], &mut seen, |_| assigned(&first).len() == 4);
    // What both had committed is not read again; what is new is.
    let before = seen.clone();
    produce(&broker.address, &topic, &records(100), &[]);
    poll_until(&[&first], &mut seen, |seen| seen.len() == 1_100);
    for (place, count) in before {
        assert_eq!(seen[&place], count, "{place:?} came again");
    }
}

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
fn a_member_outlives_the_broker() {
    if only_own("a_member_outlives_the_broker") {
        return;
    }
    let mut broker = Broker::with(&NO_DELAY);
    let group = topic("group");
    let mut member = Member::alone(&broker, &group);
    for round in 0..4 {
        if round % 2 == 0 {
            broker.restart();
        } else {
            broker.kill_and_restart();
        }
        member.wire = Wire::new(&broker);
        let mut codes = BTreeSet::new();
        when_ready(|| {
            let code = member.heartbeat();
            codes.insert(code);
            (code, code)
        });
        // A coordinator may load first; it never says that the member, or itself, is not there.
        codes.remove(&COORDINATOR_LOAD_IN_PROGRESS);
        assert_eq!(codes, BTreeSet::from([0]), "round {round}");
    }
    let described = describe(&mut member.wire, &[&group]);
    assert_eq!(described.groups[0].group_state.as_str(), "Stable");
    assert_eq!(&described.groups[0].members[0].member_assignment[..], b"all");
}

fn describe(wire: &mut Wire, groups: &[&str]) -> DescribeGroupsResponse {
    let ids = groups.iter().map(|group| group_id(group)).collect();
    let request = DescribeGroupsRequest::default().with_groups(ids);
    when_ready(|| {
        let answer = wire.ask(6, &request);
        let code = answer.groups.iter().map(|group| group.error_code).find(|code| *code < 20);
        let code = code.unwrap_or(0);
        (answer, code)
    })
}

#[test]
fn members_that_are_unknown_are_told_so() {
    let broker = Broker::with(&NO_DELAY);
    let (topic, group) = (topic("t"), topic("group"));
    create_topic(&broker.address, &topic, 1, &[]);
    let mut nobody = Member::new(&broker, &group);
    nobody.id = "nobody".to_string();
    nobody.generation = 1;
    let code = when_ready(|| {
        let code = nobody.heartbeat();
        (code, code)
    });
    assert_eq!(code, UNKNOWN_MEMBER_ID, "no group");
    let mut member = Member::alone(&broker, &group);
    assert_eq!(member.heartbeat(), 0);
    assert_eq!(nobody.heartbeat(), UNKNOWN_MEMBER_ID);
    assert_eq!(nobody.commit(&topic, 7), UNKNOWN_MEMBER_ID);
    assert_eq!(nobody.sync(&[]), Err(UNKNOWN_MEMBER_ID));
    assert_eq!(nobody.join().error_code, UNKNOWN_MEMBER_ID);
    assert_eq!(member.commit(&topic, 7), 0);
    assert_eq!(committed(&mut member.wire, &[group], &topic), [7]);
}

#[test]
fn a_member_that_falls_silent_is_left_behind() {
    if only_own("a_member_that_falls_silent_is_left_behind") {
        return;
    }
    let broker =
        Broker::with(&[&NO_DELAY[..], &["--set", "group.min.session.timeout.ms=100"]].concat());
    let group = topic("group");
    let mut silent = Member::new(&broker, &group);
    silent.session_timeout_ms = 1_000;
    silent.enter();
    // The join waits for the silent member to come along, until its session ends.
    let mut next = Member::new(&broker, &group);
    let joined = next.join();
    assert_eq!((joined.error_code, joined.members.len()), (0, 1));
    assert_eq!(next.generation, silent.generation + 1);
    assert_eq!(silent.heartbeat(), UNKNOWN_MEMBER_ID);
}

#[test]
fn a_rebalance_calls_all_members() {
    let broker = Broker::with(&NO_DELAY);
    let group = topic("group");
    let mut first = Member::alone(&broker, &group);
    let mut second = Member::new(&broker, &group);
    second.send_join();
    let deadline = Instant::now() + PATIENCE;
    while first.heartbeat() != REBALANCE_IN_PROGRESS {
        assert!(Instant::now() < deadline, "no rebalance");
    }
    let joined = first.join();
    let followed = second.joined();
    assert_eq!((joined.error_code, followed.error_code), (0, 0));
    assert_eq!((joined.members.len(), followed.members.len()), (2, 0));
    assert_eq!((&joined.leader, &followed.leader), (&joined.member_id, &joined.member_id));
    assert_eq!(joined.generation_id, followed.generation_id);
    second.send_sync(&[]);
    let members = [first.id.clone(), second.id.clone()];
    assert!(first.sync(&members).is_ok() && second.synced().is_ok());
    assert_eq!((first.heartbeat(), second.heartbeat()), (0, 0));

    let leaving = MemberIdentity::default().with_member_id(text(&second.id));
    let request = LeaveGroupRequest::default()
        .with_group_id(group_id(&group))
        .with_members(vec![leaving.clone(), leaving]);
    let left = second.wire.ask(5, &request);
    let codes: Vec<i16> = left.members.iter().map(|member| member.error_code).collect();
    assert_eq!((left.error_code, codes), (0, vec![0, UNKNOWN_MEMBER_ID]));
    assert_eq!(first.heartbeat(), REBALANCE_IN_PROGRESS);
    assert_eq!(first.join().members.len(), 1);
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let broker = Broker::with(&NO_DELAY);
    let group = topic("group");
    let mut before = Member::new(&broker, &group);
    before.instance = Some("instance".to_string());
    before.enter();
    let mut after = Member::new(&broker, &group);
    after.instance = before.instance.clone();
    let joined = after.join();
    assert_eq!((joined.error_code, joined.skip_assignment), (0, true));
    assert_eq!(after.generation, before.generation);
    assert_ne!(after.id, before.id);
    assert_eq!(after.sync(&[]), Ok("all".into()));
    assert_eq!(after.heartbeat(), 0);
    assert_eq!(before.heartbeat(), FENCED_INSTANCE_ID);
}

#[test]
fn offsets_go_with_their_topic() {
    let broker = Broker::with(&NO_DELAY);
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

/// Whoever deletes the topic of the groups deletes the groups, and nothing else: the next to look
/// for a coordinator finds a new one.
#[test]
fn groups_go_with_their_internal_topic() {
    if only_own("groups_go_with_their_internal_topic") {
        return;
    }
    let mut broker = Broker::with(&[&["--cores", "2"][..], &NO_DELAY].concat());
    let (topic, group) = (topic("kept"), topic("group"));
    create_topic(&broker.address, &topic, 1, &[]);
    let mut member = Member::alone(&broker, &group);
    assert_eq!(member.commit(&topic, 7), 0);
    let mut waiting = Member::new(&broker, &group);
    waiting.send_join();
    assert_eq!(delete_topic(&broker.address, "__consumer_offsets"), Ok(()));
    assert_eq!(waiting.joined().error_code, NOT_COORDINATOR);
    assert_eq!(member.heartbeat(), NOT_COORDINATOR);
    let groups = [group.clone()];
    for round in 0..2 {
        find(&mut member.wire, &group);
        let code = when_ready(|| {
            let code = member.heartbeat();
            (code, code)
        });
        assert_eq!(code, UNKNOWN_MEMBER_ID, "round {round}");
        assert_eq!(committed(&mut member.wire, &groups, &topic), [-1]);
        broker.kill_and_restart();
        member.wire = Wire::new(&broker);
    }
    let mut member = Member::alone(&broker, &group);
    assert_eq!((member.generation, member.commit(&topic, 8)), (1, 0));
}

/// Groups and states a broker lists.
fn listed(wire: &mut Wire, states: &[&str]) -> BTreeMap<String, String> {
    let states = states.iter().map(|state| text(state)).collect();
    let request = ListGroupsRequest::default().with_states_filter(states);
    let answer = when_ready(|| {
        let answer = wire.ask(5, &request);
        let code = answer.error_code;
        (answer, code)
    });
    assert_eq!(answer.error_code, 0);
    let count = answer.groups.len();
    let group = |group: kafka_protocol::messages::list_groups_response::ListedGroup| {
        (group.group_id.to_string(), group.group_state.to_string())
    };
    let groups: BTreeMap<String, String> = answer.groups.into_iter().map(group).collect();
    assert_eq!(groups.len(), count, "a group twice");
    groups
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let broker = Broker::with(&NO_DELAY);
    let (topic, full, simple) = (topic("t"), topic("full"), topic("simple"));
    create_topic(&broker.address, &topic, 1, &[]);
    let mut member = Member::alone(&broker, &full);
    assert_eq!(member.commit(&topic, 1), 0);
    assert_eq!(Member::new(&broker, &simple).commit(&topic, 2), 0);
    let mut wire = Wire::new(&broker);
    let groups = listed(&mut wire, &[]);
    assert_eq!(groups.get(&full).map(String::as_str), Some("Stable"));
    assert_eq!(groups.get(&simple).map(String::as_str), Some("Empty"));
    assert!(!listed(&mut wire, &["empty"]).contains_key(&full));
    assert!(listed(&mut wire, &["STABLE", "dead"]).contains_key(&full));
    assert!(listed(&mut wire, &["nonsense"]).is_empty());

    let missing = unused("missing");
    let described = describe(&mut wire, &[&full, &simple, &missing]);
    let told: Vec<(i16, &str, usize)> = described
        .groups
        .iter()
        .map(|group| (group.error_code, group.group_state.as_str(), group.members.len()))
        .collect();
    assert_eq!(told, [(0, "Stable", 1), (0, "Empty", 0), (69, "Dead", 0)]);
    let seen = &described.groups[0].members[0];
    assert_eq!(seen.member_id.as_str(), member.id);
    assert_eq!(seen.client_id.as_str(), "integration");
    assert_eq!(seen.client_host.as_str(), "/127.0.0.1");
    assert_eq!(&seen.member_metadata[..], b"subscription");

    let delete = |wire: &mut Wire| -> Vec<i16> {
        let ids = [&full, &simple, &missing].map(|group| group_id(group)).to_vec();
        let answer = wire.ask(2, &DeleteGroupsRequest::default().with_groups_names(ids));
        answer.results.iter().map(|result| result.error_code).collect()
    };
    assert_eq!(delete(&mut wire), [68, 0, 69]);
    assert_eq!(delete(&mut wire), [68, 69, 69]);
    assert_eq!(committed(&mut wire, &[full, simple], &topic), [1, -1]);
}

#[test]
fn librdkafkas_tools_see_and_delete_groups() {
    let broker = Broker::with(&NO_DELAY);
    let (topic, group) = (topic("tools"), topic("group"));
    create_topic(&broker.address, &topic, PARTITIONS, &[]);
    let member = subscribed(&broker, &group, &topic);
    poll_until(&[&member], &mut BTreeMap::new(), |_| assigned(&member).len() == 4);
    let looker = consumer(&broker.address);
    let list = looker.fetch_group_list(Some(&group), PATIENCE).expect("groups");
    let seen = &list.groups()[0];
    assert_eq!((seen.state(), seen.protocol_type()), ("Stable", "consumer"));
    assert_eq!(seen.members().len(), 1);
    drop(member);
    let answer = block_on(admin(&broker.address).delete_groups(&[&group], &admin_options()));
    assert_eq!(answer.expect("an answer"), [Ok(group)]);
}

#[test]
fn the_first_join_waits_for_others() {
    if only_own("the_first_join_waits_for_others") {
        return;
    }
    let broker = Broker::with(&["--set", "group.initial.rebalance.delay.ms=1s"]);
    let group = topic("group");
    let (mut first, mut second) = (Member::new(&broker, &group), Member::new(&broker, &group));
    // A join in vain, so that the coordinator is there when the time is taken.
    let request = first.join_request();
    let answer = when_ready(|| {
        let answer = first.wire.ask(9, &request);
        let code = answer.error_code;
        (answer, code)
    });
    first.id = answer.member_id.to_string();
    let begun = Instant::now();
    first.send_join();
    second.send_join();
    let (one, other) = (first.joined(), second.joined());
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((one.error_code, other.error_code), (0, 0));
    assert_eq!((one.generation_id, other.generation_id), (1, 1));
    assert_eq!(one.members.len() + other.members.len(), 2);
}

#[test]
fn a_stop_does_not_wait_for_a_rebalance() {
    if only_own("a_stop_does_not_wait_for_a_rebalance") {
        return;
    }
    let mut broker = Broker::with(&["--set", "group.initial.rebalance.delay.ms=5min"]);
    let mut waiting = Member::new(&broker, &topic("group"));
    waiting.send_join();
    assert!(waiting.wire.is_silent(Duration::from_millis(50)));
    assert_eq!(broker.stop().code(), Some(0));
    // Told to look for the coordinator again, or closed.
    if let Some(answer) = waiting.wire.receive_frame() {
        assert!(waiting.wire.receive_frame().is_none(), "more than {answer:?}");
    }
}

#[test]
fn groups_are_spread_over_the_cores() {
    if only_own("groups_are_spread_over_the_cores") {
        return;
    }
    for (advertise, nodes) in [("one", vec![1]), ("per-core", vec![1, 2])] {
        let arguments = ["--cores", "2", "--advertise", advertise];
        let mut broker = Broker::with(&[&arguments[..], &NO_DELAY].concat());
        let topic = topic("spread");
        create_topic(&broker.address, &topic, 1, &[]);
        let groups: Vec<String> = (0..20).map(|number| format!("spread-{number}")).collect();
        let mut coordinators = BTreeMap::new();
        for (number, group) in groups.iter().enumerate() {
            let (node, address) = find(&mut Wire::new(&broker), group);
            coordinators.insert(node, address);
            let mut member = Member::alone(&broker, group);
            assert_eq!(member.commit(&topic, number as i64), 0);
            // Whoever asks another node than the coordinator's is served as well.
            member.wire = Wire::new(&broker);
            assert_eq!(member.heartbeat(), 0, "{advertise}, {group}");
        }
        assert_eq!(coordinators.keys().copied().collect::<Vec<i32>>(), nodes, "{advertise}");
        let offsets: Vec<i64> = (0..20).collect();
        assert_eq!(committed(&mut Wire::new(&broker), &groups, &topic), offsets);
        let mut all = BTreeMap::new();
        for address in coordinators.values() {
            for (group, state) in listed(&mut Wire::to(address), &[]) {
                assert_eq!(all.insert(group, state), None, "{advertise}: a group on two nodes");
            }
        }
        assert_eq!(all.len(), groups.len());
        broker.kill_and_restart();
        assert_eq!(committed(&mut Wire::new(&broker), &groups, &topic), offsets);
    }
}

#[test]
fn a_hundred_groups_at_once() {
    let broker = Broker::with(&[&["--cores", "2"][..], &NO_DELAY].concat());
    let topic = topic("hundred");
    create_topic(&broker.address, &topic, 1, &[]);
    let groups: Vec<String> = (0..100).map(|_| unused("hundred")).collect();
    let mut members: Vec<Member> = groups.iter().map(|group| Member::new(&broker, group)).collect();
    members.iter_mut().for_each(Member::send_join);
    for member in &mut members {
        assert_eq!(member.joined().error_code, 0);
        let id = member.id.clone();
        member.send_sync(&[id]);
    }
    for (number, member) in members.iter_mut().enumerate() {
        assert!(member.synced().is_ok());
        assert_eq!(member.commit(&topic, number as i64), 0);
    }
    let offsets: Vec<i64> = (0..100).collect();
    assert_eq!(committed(&mut Wire::new(&broker), &groups, &topic), offsets);
    assert!(members.iter_mut().all(|member| member.heartbeat() == 0));
}
