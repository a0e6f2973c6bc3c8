//! JoinGroup (key 11), versions 0 to 9.
//!
//! KIP-62 (rebalance timeout, version 1), KIP-394 (a new member is told its id first, 4), KIP-345
//! (static members, 5), KIP-559 (protocol type, 7), KIP-800 (reason, 8), KIP-814 (a leader that
//! need not assign, 9). The answer waits for the rebalance; nothing of the frame is kept meanwhile.
//!
//! Gaps: the reason is not logged.

use super::groups::{self, output, Refusal};
use super::{Client, Handlers};
use crate::coordinator::{GroupRefusal, GroupRequest, Join, JoinRefusal, Joined, JoinedMember};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use std::rc::Rc;

/// From this version on an answer need not name a protocol.
const NULL_PROTOCOL: i16 = 7;
const SKIP_ASSIGNMENT: i16 = 9;

pub async fn handle(
    on: Rc<Handlers>,
    request: JoinGroupRequest,
    version: i16,
    client: Client,
    client_id: Option<StrBytes>,
) -> JoinGroupResponse {
    let join = join(request, version, client, client_id);
    let member = join.member.clone();
    match serve(&on, join, client).await {
        Ok(Ok(joined)) => response(joined, version),
        Ok(Err(JoinRefusal { refusal, member })) => refused(refusal.into(), member, version),
        Err(refusal) => refused(refusal, member, version),
    }
}

fn join(
    request: JoinGroupRequest,
    version: i16,
    client: Client,
    client_id: Option<StrBytes>,
) -> Join {
    let protocols = request.protocols.iter();
    Join {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        instance: groups::instance(&request.group_instance_id),
        client_id: client_id.map_or(String::new(), |id| id.to_string()),
        client_host: format!("/{}", client.host.to_canonical()),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: (version >= 1).then_some(request.rebalance_timeout_ms),
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.map(|p| (p.name.to_string(), groups::owned(&p.metadata))).collect(),
        two_steps: version >= 4,
        may_skip_assignment: version >= SKIP_ASSIGNMENT,
    }
}

async fn serve(
    on: &Handlers,
    join: Join,
    client: Client,
) -> Result<Result<Joined, JoinRefusal>, Refusal> {
    if join.group.is_empty() {
        return Err(GroupRefusal::EmptyGroupId.into());
    }
    Ok(output!(groups::ask_one(on, client, GroupRequest::Join(join)).await, Join)?)
}

fn response(joined: Joined, version: i16) -> JoinGroupResponse {
    let member = |member: JoinedMember| {
        JoinGroupResponseMember::default()
            .with_member_id(super::text(member.member))
            .with_group_instance_id(member.instance.map(super::text))
            .with_metadata(member.subscription)
    };
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(super::text(joined.protocol_type)))
        .with_protocol_name(Some(super::text(joined.protocol)))
        .with_leader(super::text(joined.leader))
        .with_skip_assignment(joined.skip_assignment && version >= SKIP_ASSIGNMENT)
        .with_member_id(super::text(joined.member))
        .with_members(joined.members.into_iter().map(member).collect())
}

fn refused(refusal: Refusal, member: String, version: i16) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(refusal.code())
        .with_generation_id(-1)
        .with_protocol_type(None)
        .with_protocol_name((version < NULL_PROTOCOL).then(StrBytes::default))
        .with_member_id(super::text(member))
}

#[cfg(test)]
mod tests {
    use super::super::model::CLIENT;
    use super::*;
    use bytes::Bytes;
    use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
    use kafka_protocol::messages::GroupId;

    #[test]
    fn a_join_that_waits_does_not_keep_its_frame() {
        let frame = Bytes::from(b"group, client and subscription".to_vec());
        let text = |range| StrBytes::try_from(frame.slice(range)).unwrap();
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text(0..5))
            .with_metadata(frame.slice(18..));
        let request = JoinGroupRequest::default()
            .with_group_id(GroupId(text(0..5)))
            .with_member_id(text(7..13))
            .with_group_instance_id(Some(text(7..13)))
            .with_protocol_type(text(0..5))
            .with_protocols(vec![protocol]);
        let join = join(request, 9, CLIENT, Some(text(7..13)));
        assert_eq!(join.protocols, [("group".into(), Bytes::from_static(b"subscription"))]);
        assert_eq!((join.group.as_str(), join.client_id.as_str()), ("group", "client"));
        assert!(frame.is_unique());
    }
}
