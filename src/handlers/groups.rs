//! What the group handlers share: where coordinators live, how they are asked, what a refusal is.
//!
//! A group's coordinator lives on the partition of `__consumer_offsets` its id hashes to. Where
//! that topic is not there no group is either, and whoever asks is told to look for the coordinator
//! again: FindCoordinator makes the topic.

use super::{lookup, Client, Handlers};
use crate::catalog::Topic;
use crate::coordinator::{partition_of, GroupRefusal, GroupRequest, OFFSETS_TOPIC};
use crate::cores::front::{CoordinatorRefusal, GroupAnswer, GroupItem, PartitionAt};
use crate::errors::KafkaError;
use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use std::sync::Arc;

/// Why a group request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Coordinator(#[from] CoordinatorRefusal),
    #[error("{0}")]
    Group(#[from] GroupRefusal),
}

impl Refusal {
    pub fn code(self) -> i16 {
        match self {
            Refusal::Coordinator(refusal) => refusal.code().code(),
            Refusal::Group(refusal) => refusal.code().code(),
        }
    }
}

/// What an answer says to a request of its kind. One of another kind says nothing.
macro_rules! output {
    ($answer:expr, $kind:ident) => {
        match $answer {
            Ok(crate::coordinator::GroupOutput::$kind(outcome)) => Ok(outcome),
            Ok(_) => Err(crate::cores::front::CoordinatorRefusal::NotHere),
            Err(refusal) => Err(refusal),
        }
    };
}
pub(super) use output;

/// Has the coordinators take one request for each group; the answers come in their order. When
/// this has been polled once, all of them are handed over.
pub async fn ask(on: &Handlers, client: Client, requests: Vec<GroupRequest>) -> Vec<GroupAnswer> {
    let count = requests.len();
    match locate(on, client, requests) {
        Some(items) => on.cores.groups(items).await,
        None => vec![Err(CoordinatorRefusal::NotHere); count],
    }
}

pub async fn ask_one(on: &Handlers, client: Client, request: GroupRequest) -> GroupAnswer {
    ask(on, client, vec![request]).await.pop().unwrap_or(Err(CoordinatorRefusal::NotHere))
}

/// The requests and where they go; `None` when there is no place for them.
fn locate(on: &Handlers, client: Client, requests: Vec<GroupRequest>) -> Option<Vec<GroupItem>> {
    let image = on.cores.image();
    let topic = image.by_name(client.view, OFFSETS_TOPIC)?;
    let item = |request: GroupRequest| {
        let at = coordinator_of(topic, request.group()?)?;
        Some(GroupItem { at, request })
    };
    requests.into_iter().map(item).collect()
}

/// Where the coordinator of a group lives, by the topic of the groups.
pub fn coordinator_of(topic: &Topic, group: &str) -> Option<PartitionAt> {
    lookup::partition(topic, partition_of(group, topic.partitions())).ok()
}

/// The topic of the groups, if it is there.
pub fn topic(on: &Handlers, client: Client) -> Option<Arc<Topic>> {
    on.cores.image().by_name(client.view, OFFSETS_TOPIC).cloned()
}

/// A group id for those who are in the group. Consumers that only commit offsets may leave it
/// empty, members may not.
pub fn members_group(id: &str) -> Result<String, GroupRefusal> {
    match id.is_empty() {
        true => Err(GroupRefusal::EmptyGroupId),
        false => Ok(id.to_string()),
    }
}

/// A member of a group that is not there is told what it would be told in an empty one.
pub fn as_member(refusal: GroupRefusal) -> GroupRefusal {
    match refusal {
        GroupRefusal::UnknownGroup => GroupRefusal::UnknownMember,
        refusal => refusal,
    }
}

pub fn instance(id: &Option<StrBytes>) -> Option<String> {
    id.as_ref().map(|id| id.to_string())
}

/// A copy: a slice of the frame would keep the whole of it as long as the group lives.
pub fn owned(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
