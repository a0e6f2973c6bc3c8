//! The group handlers over scripted coordinators: what they ask, and what they make of answers.

use super::model::{body, Bench, CLIENT_ID};
use super::offset_tests::{commit_codes, commit_request};
use super::{Finish, Outcome, Pending};
use crate::catalog::CatalogImage;
use crate::coordinator::{self as group, *};
use crate::cores::front::{CoordinatorRefusal, Cores, GroupAnswer};
use crate::protocol::api::Api;
use bytes::Bytes;
use futures_lite::future::{block_on, poll_once};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use shard::ids::LogId;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

const PARTITIONS: i32 = 4;
const CONFIG: &str = "offsets.topic.num.partitions = 4";

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

pub(super) fn id(group: &str) -> GroupId {
    GroupId(text(group))
}

pub(super) fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

/// A broker whose topic of the groups is there.
pub(super) fn bench() -> Bench {
    let bench = Bench::new(CONFIG);
    let found = find(&bench, 4, 0, &["any"]);
    assert_eq!(found.coordinators[0].error_code, 0);
    bench
}

pub(super) fn create(bench: &Bench, topic: &str, partitions: i32) -> Uuid {
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    let response: CreateTopicsResponse = bench.ask(Api::CreateTopics, 7, &request);
    assert_eq!(response.topics[0].error_code, 0);
    response.topics[0].topic_id
}

pub(super) fn delete(bench: &Bench, topic: &str) {
    let request = DeleteTopicsRequest::default().with_topic_names(vec![name(topic)]);
    let response: DeleteTopicsResponse = bench.ask(Api::DeleteTopics, 5, &request);
    assert_eq!(response.responses[0].error_code, 0);
}

pub(super) fn find(
    bench: &Bench,
    version: i16,
    kind: i8,
    groups: &[&str],
) -> FindCoordinatorResponse {
    let mut request = FindCoordinatorRequest::default();
    if version >= 1 {
        request = request.with_key_type(kind);
    }
    let keys: Vec<StrBytes> = groups.iter().map(|group| text(group)).collect();
    match version >= 4 {
        true => request = request.with_coordinator_keys(keys),
        false => request = request.with_key(keys[0].clone()),
    }
    bench.ask(Api::FindCoordinator, version, &request)
}

/// Asks with the answers the coordinators will give, and what they were asked.
pub(super) fn scripted<Q: Encodable, S: Decodable>(
    bench: &Bench,
    (api, version): (Api, i16),
    request: &Q,
    answers: impl IntoIterator<Item = GroupAnswer>,
) -> (S, Vec<GroupRequest>) {
    bench.model.will_answer(answers);
    let response = bench.ask(api, version, request);
    (response, bench.model.asked().into_iter().map(|item| item.request).collect())
}

pub(super) fn versions(api: Api) -> std::ops::RangeInclusive<i16> {
    api.row().version_min..=api.row().version_max
}

#[test]
fn looking_for_a_coordinator_makes_the_topic_of_the_groups() {
    for version in versions(Api::FindCoordinator) {
        let bench = Bench::new(CONFIG);
        let found = find(&bench, version, 0, &["g"]);
        let one = match found.coordinators.first() {
            Some(one) => (one.error_code, one.node_id.0, one.host.to_string(), one.port),
            None => (found.error_code, found.node_id.0, found.host.to_string(), found.port),
        };
        assert_eq!(one, (0, 1, "broker.test".to_string(), 9092), "v{version}");
        let topic = MetadataRequestTopic::default().with_name(Some(name(OFFSETS_TOPIC)));
        let request = MetadataRequest::default().with_topics(Some(vec![topic]));
        let response: MetadataResponse = bench.ask(Api::Metadata, 9, &request);
        let topic = &response.topics[0];
        assert_eq!((topic.error_code, topic.is_internal), (0, true));
        assert_eq!(topic.partitions.len(), PARTITIONS as usize);
    }
}

#[test]
fn each_key_has_its_coordinator_and_no_key_makes_no_topic() {
    let bench = Bench::new(CONFIG);
    assert!(find(&bench, 4, 0, &[]).coordinators.is_empty());
    assert!(image(&bench).by_name(0, OFFSETS_TOPIC).is_none());
    let found = find(&bench, 4, 0, &["a", "", "b"]);
    let keys: Vec<&str> = found.coordinators.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["a", "", "b"]);
    assert!(found.coordinators.iter().all(|one| (one.error_code, one.node_id.0) == (0, 1)));
}

pub(super) fn image(bench: &Bench) -> Arc<CatalogImage> {
    bench.model.image()
}

#[test]
fn a_topic_that_cannot_be_made_is_a_coordinator_that_is_not_available() {
    let bench = Bench::new("offsets.topic.num.partitions = 50\npartitions.max = 10");
    for version in versions(Api::FindCoordinator) {
        let found = find(&bench, version, 0, &["g"]);
        let one = found.coordinators.first();
        let code = one.map_or(found.error_code, |one| one.error_code);
        let port = one.map_or(found.port, |one| one.port);
        assert_eq!((code, port), (15, -1), "v{version}");
    }
}

/// One request of each API about group "g"; what its answer says is a code or, for a list, nothing.
pub(super) fn code_of(bench: &Bench, api: Api) -> i16 {
    match api {
        Api::JoinGroup => {
            let request = JoinGroupRequest::default().with_group_id(id("g"));
            bench.ask::<_, JoinGroupResponse>(api, 9, &request).error_code
        }
        Api::SyncGroup => {
            let request = SyncGroupRequest::default().with_group_id(id("g"));
            bench.ask::<_, SyncGroupResponse>(api, 4, &request).error_code
        }
        Api::Heartbeat => {
            let request = HeartbeatRequest::default().with_group_id(id("g"));
            bench.ask::<_, HeartbeatResponse>(api, 4, &request).error_code
        }
        Api::LeaveGroup => {
            let request = LeaveGroupRequest::default().with_group_id(id("g"));
            bench.ask::<_, LeaveGroupResponse>(api, 5, &request).error_code
        }
        Api::OffsetCommit => {
            let request = commit_request(9, &[("a", &[0])]);
            commit_codes(&bench.ask::<_, OffsetCommitResponse>(api, 9, &request))[0]
        }
        Api::OffsetFetch => {
            let request = OffsetFetchRequest::default().with_group_id(id("g"));
            bench.ask::<_, OffsetFetchResponse>(api, 7, &request).error_code
        }
        Api::DescribeGroups => {
            let request = DescribeGroupsRequest::default().with_groups(vec![id("g")]);
            bench.ask::<_, DescribeGroupsResponse>(api, 5, &request).groups[0].error_code
        }
        Api::ListGroups => {
            let request = ListGroupsRequest::default();
            bench.ask::<_, ListGroupsResponse>(api, 5, &request).error_code
        }
        Api::DeleteGroups => {
            let request = DeleteGroupsRequest::default().with_groups_names(vec![id("g")]);
            bench.ask::<_, DeleteGroupsResponse>(api, 2, &request).results[0].error_code
        }
        other => panic!("{other:?} asks no coordinator"),
    }
}

const GROUP_APIS: [Api; 9] = [
    Api::JoinGroup,
    Api::SyncGroup,
    Api::Heartbeat,
    Api::LeaveGroup,
    Api::OffsetCommit,
    Api::OffsetFetch,
    Api::DescribeGroups,
    Api::ListGroups,
    Api::DeleteGroups,
];

#[test]
fn what_a_coordinator_does_not_take_is_told_by_every_api() {
    let without = Bench::new(CONFIG);
    create(&without, "a", 1);
    for api in GROUP_APIS {
        let expect = if api == Api::ListGroups { 0 } else { 16 };
        assert_eq!(code_of(&without, api), expect, "{api:?} without the topic");
        assert!(without.model.asked().is_empty());
    }
    let with = bench();
    create(&with, "a", 1);
    let refusals = [
        (CoordinatorRefusal::NotHere, 16),
        (CoordinatorRefusal::Loading, 14),
        (CoordinatorRefusal::NotKept, 15),
    ];
    for (refusal, code) in refusals {
        for api in GROUP_APIS {
            let partitions = if api == Api::ListGroups { PARTITIONS } else { 1 };
            with.model.will_answer((0..partitions).map(|_| Err(refusal)));
            assert_eq!(code_of(&with, api), code, "{api:?} {refusal:?}");
            assert_eq!(with.model.asked().len(), partitions as usize);
        }
    }
}

#[test]
fn members_need_a_group_id_and_offsets_do_not() {
    let bench = bench();
    create(&bench, "a", 1);
    let join: JoinGroupResponse = bench.ask(Api::JoinGroup, 9, &JoinGroupRequest::default());
    let sync: SyncGroupResponse = bench.ask(Api::SyncGroup, 3, &SyncGroupRequest::default());
    let beat: HeartbeatResponse = bench.ask(Api::Heartbeat, 4, &HeartbeatRequest::default());
    let left: LeaveGroupResponse = bench.ask(Api::LeaveGroup, 5, &LeaveGroupRequest::default());
    let codes = [join.error_code, sync.error_code, beat.error_code, left.error_code];
    assert_eq!(codes, [24; 4]);
    assert!(bench.model.asked().is_empty());

    let partition = OffsetCommitRequestPartition::default().with_partition_index(0);
    let topic =
        OffsetCommitRequestTopic::default().with_name(name("a")).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let answer = Ok(GroupOutput::Commit(Ok(vec![Ok(())])));
    let (response, asked): (OffsetCommitResponse, _) =
        scripted(&bench, (Api::OffsetCommit, 2), &request, [answer]);
    assert_eq!(commit_codes(&response), [0]);
    let GroupRequest::Commit(commit) = &asked[0] else { panic!("{asked:?}") };
    let expect = Session { generation: -1, ..Session::default() };
    assert_eq!(commit.session, expect);
}

fn join_request(version: i16) -> JoinGroupRequest {
    let protocol = |name: &str, metadata: &'static [u8]| {
        JoinGroupRequestProtocol::default()
            .with_name(text(name))
            .with_metadata(Bytes::from_static(metadata))
    };
    let mut request = JoinGroupRequest::default()
        .with_group_id(id("g"))
        .with_member_id(text("m"))
        .with_session_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range", b"r"), protocol("sticky", b"s")]);
    if version >= 1 {
        request = request.with_rebalance_timeout_ms(60_000);
    }
    if version >= 5 {
        request = request.with_group_instance_id(Some(text("i")));
    }
    request
}

#[test]
fn a_join_says_all_that_its_version_has() {
    let bench = bench();
    for version in versions(Api::JoinGroup) {
        let joined = Joined {
            generation: 3,
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            leader: "m".into(),
            member: "m".into(),
            skip_assignment: version >= 9,
            members: vec![JoinedMember {
                member: "m".into(),
                instance: Some("i".into()),
                subscription: Bytes::from_static(b"r"),
            }],
        };
        let answer = Ok(GroupOutput::Join(Ok(joined)));
        let (response, asked): (JoinGroupResponse, _) =
            scripted(&bench, (Api::JoinGroup, version), &join_request(version), [answer]);
        let join = Join {
            group: "g".into(),
            member: "m".into(),
            instance: (version >= 5).then(|| "i".into()),
            client_id: CLIENT_ID.into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: (version >= 1).then_some(60_000),
            protocol_type: "consumer".into(),
            protocols: vec![
                ("range".into(), Bytes::from_static(b"r")),
                ("sticky".into(), Bytes::from_static(b"s")),
            ],
            two_steps: version >= 4,
            may_skip_assignment: version >= 9,
        };
        assert_eq!(asked, [GroupRequest::Join(join)], "v{version}");
        assert_eq!((response.error_code, response.generation_id), (0, 3));
        assert_eq!(response.protocol_name, Some(text("range")));
        assert_eq!(response.protocol_type, (version >= 7).then(|| text("consumer")));
        assert_eq!((response.leader.as_str(), response.member_id.as_str()), ("m", "m"));
        assert_eq!(response.skip_assignment, version >= 9);
        let member = &response.members[0];
        assert_eq!((member.member_id.as_str(), &member.metadata[..]), ("m", &b"r"[..]));
        assert_eq!(member.group_instance_id, (version >= 5).then(|| text("i")));
    }
}

#[test]
fn a_refused_join_carries_a_member_id_and_no_protocol() {
    let bench = bench();
    for version in versions(Api::JoinGroup) {
        let refusal = JoinRefusal { refusal: GroupRefusal::MemberIdRequired, member: "new".into() };
        let answers = [Ok(GroupOutput::Join(Err(refusal))), Err(CoordinatorRefusal::Loading)];
        for (answer, code, member) in answers.into_iter().zip([79, 14]).zip(["new", "m"]).map(flat)
        {
            let (response, _): (JoinGroupResponse, _) =
                scripted(&bench, (Api::JoinGroup, version), &join_request(version), [answer]);
            assert_eq!((response.error_code, response.generation_id), (code, -1), "v{version}");
            assert_eq!(response.member_id.as_str(), member);
            let protocol = if version >= 7 { None } else { Some(StrBytes::default()) };
            assert_eq!(response.protocol_name, protocol);
            assert!(response.members.is_empty());
        }
    }
}

fn flat<A, B, C>(((a, b), c): ((A, B), C)) -> (A, B, C) {
    (a, b, c)
}

fn sync_request(version: i16) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(text("m"))
        .with_assignment(Bytes::from_static(b"all"));
    let mut request = SyncGroupRequest::default()
        .with_group_id(id("g"))
        .with_generation_id(3)
        .with_member_id(text("m"))
        .with_assignments(vec![assignment]);
    if version >= 3 {
        request = request.with_group_instance_id(Some(text("i")));
    }
    if version >= 5 {
        request = request
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")));
    }
    request
}

#[test]
fn a_sync_brings_and_gets_assignments() {
    let bench = bench();
    let session = |version| Session {
        group: "g".into(),
        member: "m".into(),
        instance: (version >= 3).then(|| "i".into()),
        generation: 3,
    };
    for version in versions(Api::SyncGroup) {
        let synced = Synced {
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            assignment: Bytes::from_static(b"mine"),
        };
        let answer = Ok(GroupOutput::Sync(Ok(synced)));
        let (response, asked): (SyncGroupResponse, _) =
            scripted(&bench, (Api::SyncGroup, version), &sync_request(version), [answer]);
        let sync = Sync {
            session: session(version),
            protocol_type: (version >= 5).then(|| "consumer".into()),
            protocol: (version >= 5).then(|| "range".into()),
            assignments: vec![("m".into(), Bytes::from_static(b"all"))],
        };
        assert_eq!(asked, [GroupRequest::Sync(sync)], "v{version}");
        assert_eq!((response.error_code, &response.assignment[..]), (0, &b"mine"[..]));
        assert_eq!(response.protocol_name, (version >= 5).then(|| text("range")));
        let answer = Ok(GroupOutput::Sync(Err(GroupRefusal::RebalanceInProgress)));
        let (response, _): (SyncGroupResponse, _) =
            scripted(&bench, (Api::SyncGroup, version), &sync_request(version), [answer]);
        assert_eq!((response.error_code, response.assignment.len()), (27, 0));
    }
    let half = sync_request(5).with_protocol_name(None);
    let (response, asked): (SyncGroupResponse, _) =
        scripted(&bench, (Api::SyncGroup, 5), &half, []);
    assert_eq!((response.error_code, asked.len()), (23, 0));
}

#[test]
fn members_of_a_group_that_is_not_there_are_unknown() {
    let bench = bench();
    let refused = [(GroupRefusal::UnknownGroup, 25), (GroupRefusal::FencedInstance, 82)];
    for (refusal, code) in refused {
        for version in versions(Api::Heartbeat) {
            let request = HeartbeatRequest::default().with_group_id(id("g")).with_generation_id(2);
            let answer = Ok(GroupOutput::Heartbeat(Err(refusal)));
            let (response, asked): (HeartbeatResponse, _) =
                scripted(&bench, (Api::Heartbeat, version), &request, [answer]);
            assert_eq!(response.error_code, code, "v{version}");
            assert!(matches!(&asked[0], GroupRequest::Heartbeat(s) if s.generation == 2));
        }
        let answer = Ok(GroupOutput::Sync(Err(refusal)));
        let (response, _): (SyncGroupResponse, _) =
            scripted(&bench, (Api::SyncGroup, 5), &sync_request(5), [answer]);
        assert_eq!(response.error_code, code);
    }
    let request = HeartbeatRequest::default().with_group_id(id("g"));
    let answer = Ok(GroupOutput::Heartbeat(Ok(())));
    let (response, _): (HeartbeatResponse, _) =
        scripted(&bench, (Api::Heartbeat, 4), &request, [answer]);
    assert_eq!(response.error_code, 0);
}

#[test]
fn members_leave_one_by_one_or_together() {
    let bench = bench();
    let outcomes = || vec![Err(GroupRefusal::UnknownMember), Ok(())];
    for version in versions(Api::LeaveGroup) {
        let (request, count) = match version >= 3 {
            false => (LeaveGroupRequest::default().with_member_id(text("m")), 1),
            true => {
                let removed = MemberIdentity::default().with_group_instance_id(Some(text("i")));
                let members = vec![MemberIdentity::default().with_member_id(text("m")), removed];
                (LeaveGroupRequest::default().with_members(members), 2)
            }
        };
        let request = request.with_group_id(id("g"));
        let results = outcomes().into_iter().take(count).collect();
        let known = Ok(GroupOutput::Leave(Ok(results)));
        let unknown = Ok(GroupOutput::Leave(Err(GroupRefusal::UnknownGroup)));
        for (answer, codes) in [(known, [25, 0]), (unknown, [25, 25])] {
            let (response, asked): (LeaveGroupResponse, _) =
                scripted(&bench, (Api::LeaveGroup, version), &request, [answer]);
            let first = Leaving { member: "m".into(), instance: None };
            let second = Leaving { member: String::new(), instance: Some("i".into()) };
            let members = [first, second].into_iter().take(count).collect();
            assert_eq!(asked, [GroupRequest::Leave { group: "g".into(), members }]);
            let top = if version >= 3 { 0 } else { codes[0] };
            assert_eq!(response.error_code, top, "v{version}");
            let seen: Vec<i16> = response.members.iter().map(|member| member.error_code).collect();
            assert_eq!(seen, if version >= 3 { codes.to_vec() } else { vec![] });
        }
    }
}

fn described() -> Described {
    Described {
        state: GroupState::Stable,
        protocol_type: "consumer".into(),
        protocol: "range".into(),
        members: vec![DescribedMember {
            member: "m".into(),
            instance: Some("i".into()),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            subscription: Bytes::from_static(b"s"),
            assignment: Bytes::from_static(b"a"),
        }],
    }
}

#[test]
fn groups_are_described_each_on_its_own() {
    let bench = bench();
    for version in versions(Api::DescribeGroups) {
        let request = DescribeGroupsRequest::default()
            .with_groups(vec![id("g"), id("no"), id("h")])
            .with_include_authorized_operations(version >= 3);
        let answers = [
            Ok(GroupOutput::Describe(Some(described()))),
            Ok(GroupOutput::Describe(None)),
            Err(CoordinatorRefusal::Loading),
        ];
        let (response, _): (DescribeGroupsResponse, _) =
            scripted(&bench, (Api::DescribeGroups, version), &request, answers);
        let [known, unknown, loading] = &response.groups[..] else { panic!("{response:?}") };
        assert_eq!((known.error_code, known.group_id.as_str()), (0, "g"), "v{version}");
        assert_eq!(known.group_state.as_str(), "Stable");
        assert_eq!(
            (known.protocol_type.as_str(), known.protocol_data.as_str()),
            ("consumer", "range")
        );
        let member = &known.members[0];
        assert_eq!((member.client_id.as_str(), member.client_host.as_str()), ("c", "/127.0.0.1"));
        assert_eq!(
            (&member.member_metadata[..], &member.member_assignment[..]),
            (&b"s"[..], &b"a"[..])
        );
        assert_eq!(member.group_instance_id, (version >= 4).then(|| text("i")));
        let code = if version >= 6 { 69 } else { 0 };
        assert_eq!((unknown.error_code, unknown.group_state.as_str()), (code, "Dead"));
        assert_eq!(unknown.error_message.is_some(), version >= 6);
        assert_eq!((loading.error_code, loading.group_state.as_str()), (14, ""));
        let asked = if version >= 3 { 0b1101_0100_1000 } else { i32::MIN };
        assert_eq!(known.authorized_operations, asked);
        assert_eq!(loading.authorized_operations, i32::MIN);
    }
}

#[test]
fn all_partitions_are_asked_for_their_groups() {
    let bench = bench();
    for version in versions(Api::ListGroups) {
        let mut request = ListGroupsRequest::default();
        if version >= 4 {
            request = request.with_states_filter(vec![text("STABLE"), text("noSuch")]);
        }
        if version >= 5 {
            request = request.with_types_filter(vec![text("Classic")]);
        }
        let one = |group: &str| Listed {
            group: group.into(),
            protocol_type: "consumer".into(),
            state: GroupState::Stable,
        };
        let answers = [vec![one("a")], vec![], vec![one("b"), one("c")], vec![one("d")]];
        let answers = answers.map(|groups| Ok(GroupOutput::List(groups)));
        bench.model.will_answer(answers);
        let response: ListGroupsResponse = bench.ask(Api::ListGroups, version, &request);
        let groups: Vec<&str> = response.groups.iter().map(|g| g.group_id.as_str()).collect();
        assert_eq!(groups, ["a", "b", "c", "d"], "v{version}");
        let state = if version >= 4 { "Stable" } else { "" };
        let kind = if version >= 5 { "classic" } else { "" };
        let listed = &response.groups[0];
        assert_eq!((listed.group_state.as_str(), listed.group_type.as_str()), (state, kind));
        let asked = bench.model.asked();
        let places: BTreeSet<i32> = asked.iter().map(|item| item.at.key.partition).collect();
        assert_eq!(places, (0..PARTITIONS).collect());
        let filter = ListFilter {
            states: if version >= 4 { vec!["stable".into(), "nosuch".into()] } else { vec![] },
            types: if version >= 5 { vec!["classic".into()] } else { vec![] },
        };
        let expect = GroupRequest::List(filter);
        assert!(asked.iter().all(|item| item.request == expect));
    }
}

/// Clients put the lists of all nodes together: no group may be on two of them.
#[test]
fn each_node_lists_the_groups_it_coordinates() {
    let mut partitions: Vec<Vec<i32>> = Vec::new();
    for core in 0..2 {
        let bench = Bench::of_nodes(CONFIG, 2, core);
        let found = find(&bench, 4, 0, &["a", "b", "c", "d", "e"]);
        for one in &found.coordinators {
            let node = partition_of(&one.key, PARTITIONS) % 2 + 1;
            assert_eq!((one.node_id.0, one.port), (node, 9091 + node), "{}", one.key);
        }
        let _: ListGroupsResponse = bench.ask(Api::ListGroups, 5, &ListGroupsRequest::default());
        partitions.push(bench.model.asked().iter().map(|item| item.at.key.partition).collect());
    }
    assert_eq!(partitions, [vec![0, 2], vec![1, 3]]);
}

#[test]
fn groups_are_deleted_each_on_its_own_and_once() {
    let bench = bench();
    for version in versions(Api::DeleteGroups) {
        let names = vec![id("a"), id("b"), id("a"), id("c")];
        let request = DeleteGroupsRequest::default().with_groups_names(names);
        let answers = [
            Ok(GroupOutput::Delete(Ok(()))),
            Ok(GroupOutput::Delete(Err(group::DeleteRefusal::NotEmpty))),
            Ok(GroupOutput::Delete(Err(group::DeleteRefusal::UnknownGroup))),
        ];
        let (response, _): (DeleteGroupsResponse, _) =
            scripted(&bench, (Api::DeleteGroups, version), &request, answers);
        let told: Vec<(&str, i16)> =
            response.results.iter().map(|r| (r.group_id.as_str(), r.error_code)).collect();
        assert_eq!(told, [("a", 0), ("b", 68), ("c", 69)], "v{version}");
    }
}

#[test]
fn a_request_goes_to_the_partition_its_group_hashes_to() {
    let bench = bench();
    let topic = image(&bench).by_name(0, OFFSETS_TOPIC).cloned().unwrap();
    let groups = ["a", "group", "", "another", "and more"];
    let names = groups.iter().map(|group| id(group)).collect();
    let request = DescribeGroupsRequest::default().with_groups(names);
    let _: DescribeGroupsResponse = bench.ask(Api::DescribeGroups, 5, &request);
    for (item, group) in bench.model.asked().iter().zip(groups) {
        let partition = partition_of(group, PARTITIONS);
        assert_eq!(item.at.key, topic.key(partition), "{group}");
        assert_eq!(item.at.log, LogId(partition as u32 % 2));
    }
}

/// A join may take minutes; what comes after it on the connection takes its effect meanwhile.
#[test]
fn a_request_is_handed_over_before_its_answer_is_there() {
    let bench = bench();
    let release = bench.model.hold();
    bench.model.will_answer([Err(CoordinatorRefusal::Loading)]);
    let outcome = bench.call(Api::JoinGroup, 9, &join_request(9));
    let Outcome::Pending(Pending::Later(mut joining)) = outcome else { panic!("not later") };
    assert!(block_on(poll_once(&mut joining)).is_none());
    assert_eq!(bench.model.asked().len(), 1);
    let beat: HeartbeatResponse =
        bench.ask(Api::Heartbeat, 4, &HeartbeatRequest::default().with_group_id(id("g")));
    assert_eq!(beat.error_code, 25);
    release.send(()).unwrap();
    let Some(Finish::Reply(reply)) = block_on(poll_once(&mut joining)) else { panic!("waits") };
    assert_eq!(body::<JoinGroupResponse>(Api::JoinGroup, 9, reply).error_code, 14);
}

#[test]
fn the_limits_of_groups_are_configurations_of_the_broker() {
    use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
    let bench = bench();
    let resource =
        DescribeConfigsResource::default().with_resource_type(4).with_resource_name(text("1"));
    let resource = resource.with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response: DescribeConfigsResponse = bench.ask(Api::DescribeConfigs, 4, &request);
    let configs = &response.results[0].configs;
    for (key, value) in [
        ("group.initial.rebalance.delay.ms", "3000"),
        ("group.min.session.timeout.ms", "6000"),
        ("group.max.session.timeout.ms", "1800000"),
        ("offset.metadata.max.bytes", "4096"),
        ("offsets.retention.minutes", "10080"),
        ("offsets.topic.num.partitions", "4"),
    ] {
        let found = configs.iter().find(|config| config.name.as_str() == key);
        assert_eq!(found.and_then(|config| config.value.as_deref()), Some(value), "{key}");
    }
    for key in ["group.max.size", "group.max.count", "group.metadata.max.bytes"] {
        assert!(configs.iter().any(|config| config.name.as_str() == key), "{key}");
    }
}
