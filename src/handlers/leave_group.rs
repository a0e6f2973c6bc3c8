//! LeaveGroup (key 13), versions 0 to 5.
//!
//! KIP-345 (several members, each answered for itself, version 3; administrators remove static
//! members by their instance ids alone), KIP-800 (reason, 5).
//!
//! Gaps: the reason is not logged.

use super::groups::{self, output, Refusal};
use super::{Client, Handlers};
use crate::coordinator::{GroupRefusal, GroupRequest, Leaving};
use crate::errors::KafkaError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use std::rc::Rc;

/// From this version on a request names any number of members.
const MANY: i16 = 3;

pub async fn handle(
    on: Rc<Handlers>,
    request: LeaveGroupRequest,
    version: i16,
    client: Client,
) -> LeaveGroupResponse {
    let members: Vec<Leaving> = match version >= MANY {
        true => request.members.iter().map(leaving).collect(),
        false => vec![Leaving { member: request.member_id.to_string(), instance: None }],
    };
    let response = LeaveGroupResponse::default();
    match serve(&on, &request.group_id, &members, client).await {
        Err(refusal) => response.with_error_code(refusal.code()),
        Ok(codes) if version >= MANY => {
            response.with_members(members.into_iter().zip(codes).map(left).collect())
        }
        Ok(codes) => response.with_error_code(codes.first().copied().unwrap_or(0)),
    }
}

fn leaving(member: &MemberIdentity) -> Leaving {
    Leaving {
        member: member.member_id.to_string(),
        instance: groups::instance(&member.group_instance_id),
    }
}

/// The code of each member.
async fn serve(
    on: &Handlers,
    group: &str,
    members: &[Leaving],
    client: Client,
) -> Result<Vec<i16>, Refusal> {
    let group = groups::members_group(group)?;
    let request = GroupRequest::Leave { group, members: members.to_vec() };
    match output!(groups::ask_one(on, client, request).await, Leave)? {
        Ok(results) => Ok(results.into_iter().map(code).collect()),
        Err(GroupRefusal::UnknownGroup) => {
            Ok(members.iter().map(|_| code(Err(GroupRefusal::UnknownMember))).collect())
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn code(result: Result<(), GroupRefusal>) -> i16 {
    result.err().map_or(0, |refusal| groups::as_member(refusal).code().code())
}

fn left((member, code): (Leaving, i16)) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(super::text(member.member))
        .with_group_instance_id(member.instance.map(super::text))
        .with_error_code(code)
}
