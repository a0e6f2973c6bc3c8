//! ListGroups (key 16), versions 0 to 5.
//!
//! KIP-518 (filter by state, version 4), KIP-848 (type of a group and a filter by it, 5). Lists the
//! groups whose coordinators are on the node that is asked: all of them when the broker shows
//! itself as one, those of one core when it shows each core, since clients ask all nodes and put
//! the answers together. A filter of a name nobody knows matches nothing; case does not matter.
//!
//! Gaps: groups of the new protocols.

use super::groups::{self, output};
use super::{lookup, Client, Handlers};
use crate::coordinator::{GroupRequest, ListFilter, Listed};
use crate::cores::front::{CoordinatorRefusal, GroupItem};
use crate::errors::KafkaError;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;
use std::rc::Rc;

pub async fn handle(
    on: Rc<Handlers>,
    request: ListGroupsRequest,
    client: Client,
) -> ListGroupsResponse {
    let response = ListGroupsResponse::default();
    match serve(&on, request, client).await {
        Ok(groups) => response.with_groups(groups.into_iter().map(listed).collect()),
        Err(refusal) => response.with_error_code(refusal.code().code()),
    }
}

async fn serve(
    on: &Handlers,
    request: ListGroupsRequest,
    client: Client,
) -> Result<Vec<Listed>, CoordinatorRefusal> {
    let mut groups = Vec::new();
    for answer in on.cores.groups(items(on, request, client)).await {
        groups.extend(output!(answer, List)?);
    }
    Ok(groups)
}

fn items(on: &Handlers, request: ListGroupsRequest, client: Client) -> Vec<GroupItem> {
    let Some(topic) = groups::topic(on, client) else {
        return Vec::new();
    };
    let lower = |names: Vec<StrBytes>| names.iter().map(|name| name.to_lowercase()).collect();
    let filter =
        ListFilter { states: lower(request.states_filter), types: lower(request.types_filter) };
    let partitions = (0..topic.partitions()).filter_map(|p| lookup::partition(&topic, p).ok());
    let here = partitions.filter(|at| on.cluster.leader_of(at.log) == on.node);
    here.map(|at| GroupItem { at, request: GroupRequest::List(filter.clone()) }).collect()
}

fn listed(group: Listed) -> ListedGroup {
    ListedGroup::default()
        .with_group_id(GroupId(super::text(group.group)))
        .with_protocol_type(super::text(group.protocol_type))
        .with_group_state(StrBytes::from_static_str(group.state.name()))
        .with_group_type(StrBytes::from_static_str("classic"))
}
