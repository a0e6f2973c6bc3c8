//! DescribeGroups (key 15), versions 0 to 6.
//!
//! KIP-430 (authorized operations, version 3), KIP-345 (instance ids, 4), KIP-1043 (a group that is
//! not there is GROUP_ID_NOT_FOUND with a text, 6; before it is a dead group and no error).
//!
//! Gaps: groups of the new protocols.

use super::groups::{self, output};
use super::{Client, Handlers, GROUP_OPERATIONS};
use crate::coordinator::{Described, DescribedMember, GroupRefusal, GroupRequest, GroupState};
use crate::cores::front::GroupAnswer;
use crate::errors::KafkaError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use kafka_protocol::protocol::StrBytes;
use std::rc::Rc;

/// From this version on an unknown group is an error, and errors have a text.
const UNKNOWN_GROUP: i16 = 6;

pub async fn handle(
    on: Rc<Handlers>,
    request: DescribeGroupsRequest,
    version: i16,
    client: Client,
) -> DescribeGroupsResponse {
    let describe = |group: &GroupId| GroupRequest::Describe { group: group.to_string() };
    let requests = request.groups.iter().map(describe).collect();
    let answers = groups::ask(&on, client, requests).await;
    let told = |(id, answer): (GroupId, GroupAnswer)| {
        let group = described(answer, version).with_group_id(id);
        match request.include_authorized_operations && group.error_code == 0 {
            true => group.with_authorized_operations(GROUP_OPERATIONS),
            false => group,
        }
    };
    let groups = request.groups.into_iter().zip(answers).map(told).collect();
    DescribeGroupsResponse::default().with_groups(groups)
}

fn described(answer: GroupAnswer, version: i16) -> DescribedGroup {
    match output!(answer, Describe) {
        Ok(Some(group)) => known(group),
        Ok(None) => {
            let dead = StrBytes::from_static_str(GroupState::Dead.name());
            let group = DescribedGroup::default().with_group_state(dead);
            match version >= UNKNOWN_GROUP {
                true => refused(group, GroupRefusal::UnknownGroup, version),
                false => group,
            }
        }
        Err(refusal) => refused(DescribedGroup::default(), refusal, version),
    }
}

fn known(group: Described) -> DescribedGroup {
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(group.state.name()))
        .with_protocol_type(super::text(group.protocol_type))
        .with_protocol_data(super::text(group.protocol))
        .with_members(group.members.into_iter().map(member).collect())
}

fn member(member: DescribedMember) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(super::text(member.member))
        .with_group_instance_id(member.instance.map(super::text))
        .with_client_id(super::text(member.client_id))
        .with_client_host(super::text(member.client_host))
        .with_member_metadata(member.subscription)
        .with_member_assignment(member.assignment)
}

fn refused(
    group: DescribedGroup,
    error: impl KafkaError + ToString,
    version: i16,
) -> DescribedGroup {
    let message = (version >= UNKNOWN_GROUP).then(|| super::text(error.to_string()));
    group.with_error_code(error.code().code()).with_error_message(message)
}
