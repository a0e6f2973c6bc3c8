//! DeleteGroups (key 42), versions 0 to 2.
//!
//! KIP-229. Groups without members are deleted with all they have committed, each on its own. A
//! group that is named twice is answered once.
//!
//! Gaps: none known.

use super::groups::{self, output};
use super::{Client, Handlers};
use crate::coordinator::GroupRequest;
use crate::cores::front::GroupAnswer;
use crate::errors::KafkaError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};
use std::collections::HashSet;
use std::rc::Rc;

pub async fn handle(
    on: Rc<Handlers>,
    request: DeleteGroupsRequest,
    client: Client,
) -> DeleteGroupsResponse {
    let mut seen = HashSet::new();
    let mut ids = request.groups_names;
    ids.retain(|id| seen.insert(id.clone()));
    let delete = |id: &GroupId| GroupRequest::Delete { group: id.to_string() };
    let answers = groups::ask(&on, client, ids.iter().map(delete).collect()).await;
    let result = |(id, answer): (GroupId, GroupAnswer)| {
        DeletableGroupResult::default().with_group_id(id).with_error_code(code(answer))
    };
    let results = ids.into_iter().zip(answers).map(result).collect();
    DeleteGroupsResponse::default().with_results(results)
}

fn code(answer: GroupAnswer) -> i16 {
    match output!(answer, Delete) {
        Ok(Ok(())) => 0,
        Ok(Err(refusal)) => refusal.code().code(),
        Err(refusal) => refusal.code().code(),
    }
}
