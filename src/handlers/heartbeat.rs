//! Heartbeat (key 12), versions 0 to 4.
//!
//! KIP-345 (static members, version 3). Tells a member whether it still is one, and whether it has
//! to join again.
//!
//! Gaps: none known.

use super::groups::{self, output, Refusal};
use super::{Client, Handlers};
use crate::coordinator::{GroupRequest, Session};
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use std::rc::Rc;

pub async fn handle(
    on: Rc<Handlers>,
    request: HeartbeatRequest,
    client: Client,
) -> HeartbeatResponse {
    let code = serve(&on, request, client).await.err().map_or(0, Refusal::code);
    HeartbeatResponse::default().with_error_code(code)
}

async fn serve(on: &Handlers, request: HeartbeatRequest, client: Client) -> Result<(), Refusal> {
    let session = Session {
        group: groups::members_group(&request.group_id)?,
        member: request.member_id.to_string(),
        instance: groups::instance(&request.group_instance_id),
        generation: request.generation_id,
    };
    let answer = groups::ask_one(on, client, GroupRequest::Heartbeat(session)).await;
    Ok(output!(answer, Heartbeat)?.map_err(groups::as_member)?)
}
