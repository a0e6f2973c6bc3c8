//! FindCoordinator (key 10), versions 0 to 6.
//!
//! KIP-699 (many keys, version 4), KIP-932 (share type, version 6). The coordinator of a group is
//! the node that leads its partition of `__consumer_offsets`; the topic is made when it is missing,
//! so whoever looks for a coordinator finds one. Old consumers that only commit offsets look for
//! that of the empty group. For transactions and share groups there is UNSUPPORTED_VERSION, which
//! ends the attempt at once.
//!
//! Gaps: transactions and share groups.

use super::{groups, Client, Handlers};
use crate::catalog::{Answer, Command, Topic};
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use std::rc::Rc;
use std::sync::Arc;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// From this version on a request names any number of keys.
const MANY: i16 = 4;

pub async fn handle(
    on: Rc<Handlers>,
    request: FindCoordinatorRequest,
    version: i16,
    client: Client,
) -> FindCoordinatorResponse {
    let keys = match version >= MANY {
        true => request.coordinator_keys,
        false => vec![request.key],
    };
    let topic = match request.key_type {
        GROUP if keys.is_empty() => return FindCoordinatorResponse::default(),
        GROUP => open(&on, client).await,
        TRANSACTION => Err(RequestFault::NoTransactions),
        SHARE if version >= 6 => Err(RequestFault::NoShareGroups),
        _ => Err(RequestFault::CoordinatorType),
    };
    let found = |key| coordinator(&on, &topic, key);
    let mut coordinators = keys.into_iter().map(found);
    if version >= MANY {
        return FindCoordinatorResponse::default().with_coordinators(coordinators.collect());
    }
    let Some(one) = coordinators.next() else {
        return FindCoordinatorResponse::default();
    };
    FindCoordinatorResponse::default()
        .with_error_code(one.error_code)
        .with_error_message(one.error_message)
        .with_node_id(one.node_id)
        .with_host(one.host)
        .with_port(one.port)
}

/// The topic of the groups, made if it is not there.
async fn open(on: &Handlers, client: Client) -> Result<Arc<Topic>, RequestFault> {
    if let Some(topic) = groups::topic(on, client) {
        return Ok(topic);
    }
    match on.cores.catalog(Command::OpenGroups { view: client.view }).await {
        Ok(Answer::GroupsOpened(Ok(()))) => {}
        Ok(Answer::GroupsOpened(Err(refusal))) => {
            tracing::error!(%refusal, "the topic of the groups cannot be made");
        }
        Ok(_) | Err(_) => tracing::error!("the topic of the groups cannot be made"),
    }
    groups::topic(on, client).ok_or(RequestFault::NoOffsetsTopic)
}

fn coordinator(
    on: &Handlers,
    topic: &Result<Arc<Topic>, RequestFault>,
    key: StrBytes,
) -> Coordinator {
    let located = topic.as_ref().map_err(|fault| *fault).and_then(|topic| {
        let at = groups::coordinator_of(topic, &key).ok_or(RequestFault::NoOffsetsTopic)?;
        let leader = on.cluster.leader_of(at.log);
        let node = on.cluster.nodes.iter().find(|node| node.id == leader);
        node.ok_or(RequestFault::NoOffsetsTopic)
    });
    let coordinator = Coordinator::default().with_key(key);
    match located {
        Ok(node) => coordinator
            .with_node_id(BrokerId(node.id))
            .with_host(super::text(&node.advertised.host))
            .with_port(i32::from(node.advertised.port)),
        Err(fault) => coordinator
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(fault.code().code())
            .with_error_message(Some(super::text(fault))),
    }
}
