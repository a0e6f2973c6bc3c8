//! Topics and partitions as requests name them, and the leader epoch a client believes in.

use super::Cluster;
use crate::catalog::{CatalogImage, Topic};
use crate::cores::front::PartitionAt;
use crate::errors::RequestFault;
use std::sync::Arc;
use uuid::Uuid;

/// A topic named by its id where the version does so, by its name before.
pub fn topic<'a>(
    image: &'a CatalogImage,
    view: u32,
    name: &str,
    id: Option<Uuid>,
) -> Result<&'a Arc<Topic>, RequestFault> {
    match id {
        Some(id) => image.by_id(view, id).ok_or(RequestFault::UnknownTopicId),
        None => image.by_name(view, name).ok_or(RequestFault::UnknownTopic),
    }
}

pub fn partition(topic: &Topic, partition: i32) -> Result<PartitionAt, RequestFault> {
    let log = topic.log_of(partition).ok_or(RequestFault::UnknownPartition)?;
    Ok(PartitionAt { log, key: topic.key(partition) })
}

/// Checks the leader epoch a request names; −1 names none.
pub fn leader_epoch(cluster: &Cluster, asked: i32) -> Result<(), RequestFault> {
    let current = cluster.leader_epoch.0;
    match asked {
        -1 => Ok(()),
        asked if asked < current => Err(RequestFault::OldLeaderEpoch),
        asked if asked > current => Err(RequestFault::NewLeaderEpoch),
        _ => Ok(()),
    }
}
