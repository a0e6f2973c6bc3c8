//! Made-up requests of the group APIs, as `samples` has them for the others.

use super::samples::Dice;
use kafka_protocol::messages::*;

pub fn offset_commit(dice: &mut Dice, version: i16) -> OffsetCommitRequest {
    use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let partition = |dice: &mut Dice| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(dice.number() as i32)
            .with_committed_offset(dice.number())
            .with_committed_metadata(dice.maybe(Dice::text))
            .with_unknown_tagged_fields(dice.tags(version, 8, 0));
        match version >= 6 {
            true => partition.with_committed_leader_epoch(dice.number() as i32),
            false => partition,
        }
    };
    let topic = |dice: &mut Dice| {
        OffsetCommitRequestTopic::default()
            .with_name(TopicName(dice.text()))
            .with_partitions(dice.some(partition))
            .with_unknown_tagged_fields(dice.tags(version, 8, 0))
    };
    let mut request = OffsetCommitRequest::default()
        .with_group_id(GroupId(dice.text()))
        .with_generation_id_or_member_epoch(dice.number() as i32)
        .with_member_id(dice.text())
        .with_topics(dice.some(topic))
        .with_unknown_tagged_fields(dice.tags(version, 8, 0));
    if version >= 7 {
        request = request.with_group_instance_id(dice.maybe(Dice::text));
    }
    if version <= 4 {
        request = request.with_retention_time_ms(dice.number());
    }
    request
}

pub fn offset_fetch(dice: &mut Dice, version: i16) -> OffsetFetchRequest {
    use offset_fetch_request::OffsetFetchRequestTopic;
    let topic = |dice: &mut Dice| {
        OffsetFetchRequestTopic::default()
            .with_name(TopicName(dice.text()))
            .with_partition_indexes(dice.some(|dice| dice.number() as i32))
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let request = OffsetFetchRequest::default()
        .with_require_stable(version >= 7 && dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 6, 0));
    if version >= 8 {
        return request.with_groups(dice.some(|dice| offset_fetch_group(dice, version)));
    }
    let topics = dice.some(topic);
    request.with_group_id(GroupId(dice.text())).with_topics(if version >= 2 {
        dice.maybe(|_| topics)
    } else {
        Some(topics)
    })
}

fn offset_fetch_group(
    dice: &mut Dice,
    version: i16,
) -> offset_fetch_request::OffsetFetchRequestGroup {
    use offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    let topic = |dice: &mut Dice| {
        OffsetFetchRequestTopics::default()
            .with_name(TopicName(dice.text()))
            .with_partition_indexes(dice.some(|dice| dice.number() as i32))
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(dice.text()))
        .with_topics(dice.maybe(|dice| dice.some(topic)))
        .with_unknown_tagged_fields(dice.tags(version, 6, 0));
    match version >= 9 {
        true => {
            group.with_member_id(dice.maybe(Dice::text)).with_member_epoch(dice.number() as i32)
        }
        false => group,
    }
}

pub fn join_group(dice: &mut Dice, version: i16) -> JoinGroupRequest {
    use join_group_request::JoinGroupRequestProtocol;
    let protocol = |dice: &mut Dice| {
        JoinGroupRequestProtocol::default()
            .with_name(dice.text())
            .with_metadata(dice.bytes())
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let mut request = JoinGroupRequest::default()
        .with_group_id(GroupId(dice.text()))
        .with_session_timeout_ms(dice.number() as i32)
        .with_member_id(dice.text())
        .with_protocol_type(dice.text())
        .with_protocols(dice.some(protocol))
        .with_unknown_tagged_fields(dice.tags(version, 6, 0));
    if version >= 1 {
        request = request.with_rebalance_timeout_ms(dice.number() as i32);
    }
    if version >= 5 {
        request = request.with_group_instance_id(dice.maybe(Dice::text));
    }
    if version >= 8 {
        request = request.with_reason(dice.maybe(Dice::text));
    }
    request
}

pub fn heartbeat(dice: &mut Dice, version: i16) -> HeartbeatRequest {
    let request = HeartbeatRequest::default()
        .with_group_id(GroupId(dice.text()))
        .with_generation_id(dice.number() as i32)
        .with_member_id(dice.text())
        .with_unknown_tagged_fields(dice.tags(version, 4, 0));
    match version >= 3 {
        true => request.with_group_instance_id(dice.maybe(Dice::text)),
        false => request,
    }
}

pub fn leave_group(dice: &mut Dice, version: i16) -> LeaveGroupRequest {
    use leave_group_request::MemberIdentity;
    let member = |dice: &mut Dice| {
        let member = MemberIdentity::default()
            .with_member_id(dice.text())
            .with_group_instance_id(dice.maybe(Dice::text))
            .with_unknown_tagged_fields(dice.tags(version, 4, 0));
        match version >= 5 {
            true => member.with_reason(dice.maybe(Dice::text)),
            false => member,
        }
    };
    let request = LeaveGroupRequest::default()
        .with_group_id(GroupId(dice.text()))
        .with_unknown_tagged_fields(dice.tags(version, 4, 0));
    match version >= 3 {
        true => request.with_members(dice.some(member)),
        false => request.with_member_id(dice.text()),
    }
}

pub fn sync_group(dice: &mut Dice, version: i16) -> SyncGroupRequest {
    use sync_group_request::SyncGroupRequestAssignment;
    let assignment = |dice: &mut Dice| {
        SyncGroupRequestAssignment::default()
            .with_member_id(dice.text())
            .with_assignment(dice.bytes())
            .with_unknown_tagged_fields(dice.tags(version, 4, 0))
    };
    let mut request = SyncGroupRequest::default()
        .with_group_id(GroupId(dice.text()))
        .with_generation_id(dice.number() as i32)
        .with_member_id(dice.text())
        .with_assignments(dice.some(assignment))
        .with_unknown_tagged_fields(dice.tags(version, 4, 0));
    if version >= 3 {
        request = request.with_group_instance_id(dice.maybe(Dice::text));
    }
    if version >= 5 {
        request = request
            .with_protocol_type(dice.maybe(Dice::text))
            .with_protocol_name(dice.maybe(Dice::text));
    }
    request
}

pub fn describe_groups(dice: &mut Dice, version: i16) -> DescribeGroupsRequest {
    DescribeGroupsRequest::default()
        .with_groups(dice.some(|dice| GroupId(dice.text())))
        .with_include_authorized_operations(version >= 3 && dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 5, 0))
}

pub fn list_groups(dice: &mut Dice, version: i16) -> ListGroupsRequest {
    let mut request =
        ListGroupsRequest::default().with_unknown_tagged_fields(dice.tags(version, 3, 0));
    if version >= 4 {
        request = request.with_states_filter(dice.some(Dice::text));
    }
    if version >= 5 {
        request = request.with_types_filter(dice.some(Dice::text));
    }
    request
}

pub fn delete_groups(dice: &mut Dice, version: i16) -> DeleteGroupsRequest {
    DeleteGroupsRequest::default()
        .with_groups_names(dice.some(|dice| GroupId(dice.text())))
        .with_unknown_tagged_fields(dice.tags(version, 2, 0))
}
