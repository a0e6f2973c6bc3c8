//! OffsetForLeaderEpoch (key 23), versions 2 to 4.
//!
//! KIP-279, KIP-320. Answers the largest epoch not above the asked one and where it ends, −1/−1
//! when there is none; consumers find out by it whether what they read was cut off.
//!
//! Gaps: none known; there are no followers, so the replica id does not matter.

use super::{lookup, Client, Handlers};
use crate::cores::front::PartitionAt;
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use shard::ids::LeaderEpoch;
use std::rc::Rc;

pub async fn handle(
    on: Rc<Handlers>,
    request: OffsetForLeaderEpochRequest,
    client: Client,
) -> OffsetForLeaderEpochResponse {
    let (mut items, mut topics) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let mut slots = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let slot = locate(&on, client.view, topic, partition).map(|at| {
                items.push((at, LeaderEpoch(partition.leader_epoch)));
                items.len() - 1
            });
            slots.push((partition.partition, slot));
        }
        topics.push((topic.topic.clone(), slots));
    }
    let found = on.cores.end_of_epoch(items).await;
    let answer = |(partition, slot): (i32, Result<usize, RequestFault>)| {
        let end = EpochEndOffset::default().with_partition(partition);
        let found = match slot {
            Err(fault) => return end.with_error_code(fault.code().code()),
            Ok(index) => found.get(index),
        };
        match found {
            Some(Ok(Some((epoch, offset)))) => {
                end.with_leader_epoch(epoch.0).with_end_offset(offset.0)
            }
            Some(Ok(None)) => end,
            Some(Err(refusal)) => end.with_error_code(refusal.code().code()),
            None => end.with_error_code(RequestFault::UnknownPartition.code().code()),
        }
    };
    let topics = topics.into_iter().map(|(name, slots)| {
        OffsetForLeaderTopicResult::default()
            .with_topic(name)
            .with_partitions(slots.into_iter().map(answer).collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn locate(
    on: &Handlers,
    view: u32,
    topic: &OffsetForLeaderTopic,
    partition: &OffsetForLeaderPartition,
) -> Result<PartitionAt, RequestFault> {
    let image = on.cores.image();
    let topic = lookup::topic(&image, view, &topic.topic, None)?;
    let at = lookup::partition(topic, partition.partition)?;
    lookup::leader_epoch(&on.cluster, partition.current_leader_epoch)?;
    Ok(at)
}
