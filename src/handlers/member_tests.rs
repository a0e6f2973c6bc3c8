//! Whole lives of group members in every version, through handlers and the real coordinators.

use super::group_tests::{bench, create, delete, id, name, text, versions};
use super::model::{body, Bench};
use super::{Finish, Outcome, Pending};
use crate::protocol::api::Api;
use bytes::Bytes;
use futures_lite::future::{block_on, poll_once};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable};

/// More than any version of any API here.
const NEWEST: i16 = 9;

/// A client that speaks each API in one version, or in the nearest there is.
struct Client<'a> {
    bench: &'a Bench,
    version: i16,
    member: String,
    generation: i32,
}

impl<'a> Client<'a> {
    fn new(bench: &'a Bench, version: i16) -> Client<'a> {
        Client { bench, version, member: String::new(), generation: -1 }
    }

    fn version(&self, api: Api) -> i16 {
        self.version.clamp(api.row().version_min, api.row().version_max)
    }

    fn ask<Q: Encodable, S: Decodable>(&self, api: Api, request: &Q) -> S {
        self.bench.ask(api, self.version(api), request)
    }

    fn join_request(&self) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(Bytes::from_static(b"subscription"));
        let request = JoinGroupRequest::default()
            .with_group_id(id("g"))
            .with_member_id(text(&self.member))
            .with_session_timeout_ms(10_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        match self.version >= 1 {
            true => request.with_rebalance_timeout_ms(60_000),
            false => request,
        }
    }

    /// Joins; `during` is what has to happen meanwhile.
    fn join(&mut self, during: impl FnOnce()) -> JoinGroupResponse {
        let version = self.version(Api::JoinGroup);
        if version >= 4 && self.member.is_empty() {
            let told: JoinGroupResponse = self.ask(Api::JoinGroup, &self.join_request());
            assert_eq!((told.error_code, told.generation_id), (79, -1));
            self.member = told.member_id.to_string();
        }
        let outcome = self.bench.call(Api::JoinGroup, version, &self.join_request());
        let Outcome::Pending(Pending::Later(mut later)) = outcome else { panic!("not later") };
        assert!(block_on(poll_once(&mut later)).is_none(), "v{version} does not wait");
        during();
        let Some(Finish::Reply(reply)) = block_on(poll_once(&mut later)) else { panic!("waits") };
        let joined: JoinGroupResponse = body(Api::JoinGroup, version, reply);
        assert_eq!(joined.error_code, 0, "v{version}");
        self.member = joined.member_id.to_string();
        self.generation = joined.generation_id;
        joined
    }

    fn sync(&self) -> SyncGroupResponse {
        let assignment = SyncGroupRequestAssignment::default()
            .with_member_id(text(&self.member))
            .with_assignment(Bytes::from_static(b"all"));
        let mut request = SyncGroupRequest::default()
            .with_group_id(id("g"))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member))
            .with_assignments(vec![assignment]);
        if self.version >= 5 {
            request = request
                .with_protocol_type(Some(text("consumer")))
                .with_protocol_name(Some(text("range")));
        }
        self.ask(Api::SyncGroup, &request)
    }

    fn heartbeat(&self) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(id("g"))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member));
        self.ask::<_, HeartbeatResponse>(Api::Heartbeat, &request).error_code
    }

    fn commit(&self, topic: &str, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(id("g"))
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(text(&self.member))
            .with_topics(vec![topic]);
        let response: OffsetCommitResponse = self.ask(Api::OffsetCommit, &request);
        response.topics[0].partitions[0].error_code
    }

    /// The committed offsets of partitions 0 and 1.
    fn committed(&self, topic: &str) -> Vec<i64> {
        let request = OffsetFetchRequest::default();
        if self.version(Api::OffsetFetch) < 8 {
            let topic = OffsetFetchRequestTopic::default()
                .with_name(name(topic))
                .with_partition_indexes(vec![0, 1]);
            let request = request.with_group_id(id("g")).with_topics(Some(vec![topic]));
            let response: OffsetFetchResponse = self.ask(Api::OffsetFetch, &request);
            return response.topics[0].partitions.iter().map(|p| p.committed_offset).collect();
        }
        let topic = OffsetFetchRequestTopics::default()
            .with_name(name(topic))
            .with_partition_indexes(vec![0, 1]);
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(id("g"))
            .with_topics(Some(vec![topic]));
        let request = request.with_groups(vec![group]);
        let response: OffsetFetchResponse = self.ask(Api::OffsetFetch, &request);
        let topic = &response.groups[0].topics[0];
        topic.partitions.iter().map(|p| p.committed_offset).collect()
    }

    fn leave(&self) -> i16 {
        let request = LeaveGroupRequest::default().with_group_id(id("g"));
        if self.version < 3 {
            let request = request.with_member_id(text(&self.member));
            return self.ask::<_, LeaveGroupResponse>(Api::LeaveGroup, &request).error_code;
        }
        let member = MemberIdentity::default().with_member_id(text(&self.member));
        let response: LeaveGroupResponse =
            self.ask(Api::LeaveGroup, &request.with_members(vec![member]));
        assert_eq!(response.error_code, 0);
        response.members[0].error_code
    }

    fn described(&self) -> describe_groups_response::DescribedGroup {
        let request = DescribeGroupsRequest::default().with_groups(vec![id("g")]);
        let response: DescribeGroupsResponse = self.ask(Api::DescribeGroups, &request);
        response.groups[0].clone()
    }

    fn listed(&self) -> Vec<String> {
        let response: ListGroupsResponse = self.ask(Api::ListGroups, &ListGroupsRequest::default());
        response.groups.iter().map(|group| group.group_id.to_string()).collect()
    }

    fn delete(&self) -> i16 {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![id("g")]);
        let response: DeleteGroupsResponse = self.ask(Api::DeleteGroups, &request);
        response.results[0].error_code
    }
}

#[test]
fn a_member_of_each_version_lives_and_leaves() {
    for version in 0..=NEWEST {
        let bench = bench();
        create(&bench, "a", 2);
        let mut member = Client::new(&bench, version);
        let joined = member.join(|| bench.model.advance(3_000));
        assert_eq!((joined.generation_id, joined.members.len()), (1, 1), "v{version}");
        assert_eq!((&joined.leader, &joined.member_id), (&joined.member_id, &joined.leader));
        let synced = member.sync();
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
        assert_eq!(member.heartbeat(), 0);
        assert_eq!(member.commit("a", 7), 0);
        assert_eq!(member.committed("a"), [7, -1]);
        let described = member.described();
        assert_eq!(described.group_state.as_str(), "Stable");
        assert_eq!(described.members[0].client_host.as_str(), "/127.0.0.1");
        assert_eq!(member.listed(), ["g"]);
        assert_eq!(member.delete(), 68);
        assert_eq!(member.leave(), 0);
        assert_eq!((member.leave(), member.heartbeat()), (25, 25));
        assert_eq!(member.delete(), 0);
        assert_eq!(member.committed("a"), [-1, -1]);
        assert!(member.listed().is_empty());
        let gone = member.described();
        let code = if member.version(Api::DescribeGroups) >= 6 { 69 } else { 0 };
        assert_eq!((gone.error_code, gone.group_state.as_str()), (code, "Dead"));
        let lost = if member.version(Api::OffsetCommit) >= 9 { 69 } else { 22 };
        assert_eq!(member.commit("a", 8), lost, "v{version}");
    }
}

#[test]
fn members_of_different_versions_are_one_group() {
    let bench = bench();
    for version in versions(Api::JoinGroup) {
        let mut old = Client::new(&bench, version);
        let mut new = Client::new(&bench, NEWEST);
        old.join(|| bench.model.advance(3_000));
        assert_eq!(old.sync().error_code, 0);
        // The newcomer waits until the other has joined again.
        let mut rejoined = None;
        let joined = new.join(|| {
            assert_eq!(old.heartbeat(), 27);
            let request = old.join_request();
            let response: JoinGroupResponse = old.ask(Api::JoinGroup, &request);
            rejoined = Some(response);
        });
        let rejoined = rejoined.expect("an answer");
        assert_eq!(joined.generation_id, rejoined.generation_id, "v{version}");
        assert_eq!(rejoined.members.len(), 2);
        assert_eq!(joined.leader, rejoined.member_id);
        for member in [&old, &new] {
            assert_eq!(member.leave(), 0);
        }
    }
}

/// What was committed for a topic that was deleted is not told of the new one, whether or not the
/// coordinator has forgotten it yet.
#[test]
fn offsets_do_not_outlive_their_topic() {
    let bench = bench();
    let simple = Client::new(&bench, NEWEST);
    for round in 0..3 {
        create(&bench, "a", 2);
        assert_eq!(simple.committed("a"), [-1, -1], "round {round}");
        assert_eq!(simple.commit("a", round), 0);
        assert_eq!(simple.committed("a"), [round, -1]);
        delete(&bench, "a");
    }
}
