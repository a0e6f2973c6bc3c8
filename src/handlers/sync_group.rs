//! SyncGroup (key 14), versions 0 to 5.
//!
//! KIP-345 (static members, version 3), KIP-559 (protocol type and name, 5: both must be told, and
//! must be those of the group). The answer waits for the leader's assignment; nothing of the frame
//! is kept meanwhile.
//!
//! Gaps: none known.

use super::groups::{self, output, Refusal};
use super::{Client, Handlers};
use crate::coordinator::{GroupRefusal, GroupRequest, Session, Sync, Synced};
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use std::rc::Rc;

/// From this version on members say by which protocol they were assigned.
const NAMES_PROTOCOL: i16 = 5;

pub async fn handle(
    on: Rc<Handlers>,
    request: SyncGroupRequest,
    version: i16,
    client: Client,
) -> SyncGroupResponse {
    let response = SyncGroupResponse::default();
    match serve(&on, request, version, client).await {
        Ok(synced) => response
            .with_protocol_type(Some(super::text(synced.protocol_type)))
            .with_protocol_name(Some(super::text(synced.protocol)))
            .with_assignment(synced.assignment),
        Err(refusal) => response.with_error_code(refusal.code()),
    }
}

async fn serve(
    on: &Handlers,
    request: SyncGroupRequest,
    version: i16,
    client: Client,
) -> Result<Synced, Refusal> {
    let sync = sync(request, version)?;
    let answer = groups::ask_one(on, client, GroupRequest::Sync(sync)).await;
    Ok(output!(answer, Sync)?.map_err(groups::as_member)?)
}

fn sync(request: SyncGroupRequest, version: i16) -> Result<Sync, GroupRefusal> {
    let session = Session {
        group: groups::members_group(&request.group_id)?,
        member: request.member_id.to_string(),
        instance: groups::instance(&request.group_instance_id),
        generation: request.generation_id,
    };
    let names_both = request.protocol_type.is_some() && request.protocol_name.is_some();
    if version >= NAMES_PROTOCOL && !names_both {
        return Err(GroupRefusal::InconsistentProtocol);
    }
    let assignments = request.assignments.iter();
    Ok(Sync {
        session,
        protocol_type: request.protocol_type.map(|name| name.to_string()),
        protocol: request.protocol_name.map(|name| name.to_string()),
        assignments: assignments
            .map(|a| (a.member_id.to_string(), groups::owned(&a.assignment)))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
    use kafka_protocol::messages::GroupId;
    use kafka_protocol::protocol::StrBytes;

    #[test]
    fn a_sync_that_waits_does_not_keep_its_frame() {
        let frame = Bytes::from(b"group, member and assignment".to_vec());
        let text = |range| StrBytes::try_from(frame.slice(range)).unwrap();
        let assignment = SyncGroupRequestAssignment::default()
            .with_member_id(text(7..13))
            .with_assignment(frame.slice(18..));
        let request = SyncGroupRequest::default()
            .with_group_id(GroupId(text(0..5)))
            .with_member_id(text(7..13))
            .with_assignments(vec![assignment]);
        let sync = sync(request, 4).unwrap();
        assert_eq!(sync.assignments, [("member".into(), Bytes::from_static(b"assignment"))]);
        assert!(frame.is_unique());
    }
}
