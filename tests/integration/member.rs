//! A member of a consumer group on a bare socket: each step of the protocol by itself.
//!
//! Answers that ask for patience (a coordinator that loads or moves) are waited out where a test
//! does not look at them, by asking again within a bounded time.

use crate::broker::Broker;
use crate::client::PATIENCE;
use crate::wire::{name, Wire};
use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use std::time::Instant;

pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
pub const NOT_COORDINATOR: i16 = 16;
pub const UNKNOWN_MEMBER_ID: i16 = 25;
pub const REBALANCE_IN_PROGRESS: i16 = 27;
pub const MEMBER_ID_REQUIRED: i16 = 79;
pub const FENCED_INSTANCE_ID: i16 = 82;

const JOIN: i16 = 9;
const SYNC: i16 = 5;
const HEARTBEAT: i16 = 4;
const COMMIT: i16 = 9;
const FETCH: i16 = 9;

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

pub fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

/// Whether a coordinator asks for patience.
fn is_not_ready(code: i16) -> bool {
    matches!(code, COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR)
}

/// Asks again until the code of the answer does not ask for patience.
pub fn when_ready<T>(mut ask: impl FnMut() -> (T, i16)) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (answer, code) = ask();
        if !is_not_ready(code) {
            return answer;
        }
        assert!(Instant::now() < deadline, "the coordinator still answers {code}");
    }
}

/// Node id and address of a group's coordinator.
pub fn find(wire: &mut Wire, group: &str) -> (i32, String) {
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]);
    when_ready(|| {
        let answer = wire.ask(4, &request);
        let one = &answer.coordinators[0];
        assert!(one.error_code == 0 || is_not_ready(one.error_code), "{one:?}");
        ((one.node_id.0, format!("{}:{}", one.host.as_str(), one.port)), one.error_code)
    })
}

pub struct Member {
    pub wire: Wire,
    pub group: String,
    pub id: String,
    pub instance: Option<String>,
    pub generation: i32,
    pub session_timeout_ms: i32,
}

impl Member {
    /// Somebody who would like to be in the group, connected to its coordinator.
    pub fn new(broker: &Broker, group: &str) -> Member {
        let (_, address) = find(&mut Wire::new(broker), group);
        Member {
            wire: Wire::to(&address),
            group: group.to_string(),
            id: String::new(),
            instance: None,
            generation: -1,
            session_timeout_ms: 30_000,
        }
    }

    /// A member that is in the group, alone, and has assigned itself "all".
    pub fn alone(broker: &Broker, group: &str) -> Member {
        let mut member = Member::new(broker, group);
        member.enter();
        member
    }

    /// Joins and, as the leader, assigns "all" to each member.
    pub fn enter(&mut self) {
        let joined = self.join();
        assert_eq!(joined.error_code, 0);
        let members: Vec<String> =
            joined.members.iter().map(|member| member.member_id.to_string()).collect();
        assert_eq!(self.sync(&members), Ok(Bytes::from_static(b"all")));
    }

    pub fn join_request(&self) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(Bytes::from_static(b"subscription"));
        JoinGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_session_timeout_ms(self.session_timeout_ms)
            .with_rebalance_timeout_ms(30_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol])
    }

    /// Gets a member id and asks to join with it; the answer is not waited for.
    pub fn send_join(&mut self) {
        if self.id.is_empty() && self.instance.is_none() {
            let request = self.join_request();
            let answer = when_ready(|| {
                let answer = self.wire.ask(JOIN, &request);
                let code = answer.error_code;
                (answer, code)
            });
            assert_eq!(answer.error_code, MEMBER_ID_REQUIRED);
            self.id = answer.member_id.to_string();
        }
        let request = self.join_request();
        self.wire.send(JOIN, &request);
    }

    /// The answer to `send_join`.
    pub fn joined(&mut self) -> JoinGroupResponse {
        let (_, answer) = self.wire.receive::<JoinGroupRequest>(JOIN);
        if answer.error_code == 0 {
            self.id = answer.member_id.to_string();
            self.generation = answer.generation_id;
        }
        answer
    }

    pub fn join(&mut self) -> JoinGroupResponse {
        when_ready(|| {
            self.send_join();
            let answer = self.joined();
            let code = answer.error_code;
            (answer, code)
        })
    }

    /// Asks for the assignment; a leader brings one for each member. The answer is not waited for.
    pub fn send_sync(&mut self, members: &[String]) {
        let assignment = |member: &String| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(member))
                .with_assignment(Bytes::from_static(b"all"))
        };
        let request = SyncGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(members.iter().map(assignment).collect());
        self.wire.send(SYNC, &request);
    }

    /// The assignment, or the error code.
    pub fn synced(&mut self) -> Result<Bytes, i16> {
        let (_, answer): (i32, SyncGroupResponse) = self.wire.receive::<SyncGroupRequest>(SYNC);
        match answer.error_code {
            0 => Ok(answer.assignment),
            code => Err(code),
        }
    }

    pub fn sync(&mut self, members: &[String]) -> Result<Bytes, i16> {
        self.send_sync(members);
        self.synced()
    }

    pub fn heartbeat(&mut self) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text));
        self.wire.ask(HEARTBEAT, &request).error_code
    }

    /// Commits an offset of partition 0; the error code.
    pub fn commit(&mut self, topic: &str, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_topics(vec![topic]);
        when_ready(|| {
            let code = self.wire.ask(COMMIT, &request).topics[0].partitions[0].error_code;
            (code, code)
        })
    }
}

/// The offsets groups have committed for partition 0 of a topic, all in one request; −1 for none.
pub fn committed(wire: &mut Wire, groups: &[String], topic: &str) -> Vec<i64> {
    let wanted = |group: &String| {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(name(topic))
            .with_partition_indexes(vec![0]);
        OffsetFetchRequestGroup::default()
            .with_group_id(group_id(group))
            .with_topics(Some(vec![topic]))
    };
    let request = OffsetFetchRequest::default().with_groups(groups.iter().map(wanted).collect());
    when_ready(|| {
        let answer = wire.ask(FETCH, &request);
        let code = answer.groups.iter().map(|group| group.error_code).find(|code| *code != 0);
        let ids: Vec<&str> = answer.groups.iter().map(|group| group.group_id.as_str()).collect();
        assert_eq!(ids, groups);
        let offset = |group: &_| -> i64 {
            let group: &kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup =
                group;
            group.topics.first().map_or(-1, |topic| topic.partitions[0].committed_offset)
        };
        (answer.groups.iter().map(offset).collect(), code.unwrap_or(0))
    })
}
