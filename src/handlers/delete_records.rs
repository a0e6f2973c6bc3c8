//! DeleteRecords (key 21), versions 0 to 2.
//!
//! KIP-107. Moves the log start of partitions up; answered with the new one once that is on stable
//! storage, so what was deleted does not come back after a power cut. −1 stands for the high
//! watermark. What lies below the log start already is deleted already.
//!
//! Known difference: a partition named twice is served and answered twice, in order; Kafka keeps
//! the last.

use super::{lookup, Client, Handlers};
use crate::cores::front::TrimItem;
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use shard::ids::Offset;
use std::rc::Rc;

const HIGH_WATERMARK: i64 = -1;
/// Answered beside an error.
const NO_LOW_WATERMARK: i64 = -1;

pub async fn handle(
    on: Rc<Handlers>,
    request: DeleteRecordsRequest,
    client: Client,
) -> DeleteRecordsResponse {
    let (mut items, mut topics) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let mut slots = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let slot = item(&on, client, topic, partition).map(|item| {
                items.push(item);
                items.len() - 1
            });
            slots.push((partition.partition_index, slot));
        }
        topics.push((topic.name.clone(), slots));
    }
    let timeout_ms = u64::try_from(request.timeout_ms).unwrap_or(0);
    let trimmed = on.cores.trim(items, timeout_ms).await;
    let answer = |(partition, slot): (i32, Result<usize, RequestFault>)| {
        let result = DeleteRecordsPartitionResult::default().with_partition_index(partition);
        let refused =
            |code: i16| result.clone().with_low_watermark(NO_LOW_WATERMARK).with_error_code(code);
        match slot.map(|index| trimmed.get(index)) {
            Ok(Some(Ok(log_start))) => result.with_low_watermark(log_start.0),
            Ok(Some(Err(refusal))) => refused(refusal.code().code()),
            Ok(None) => refused(RequestFault::UnknownPartition.code().code()),
            Err(fault) => refused(fault.code().code()),
        }
    };
    let topics = topics.into_iter().map(|(name, slots)| {
        DeleteRecordsTopicResult::default()
            .with_name(name)
            .with_partitions(slots.into_iter().map(answer).collect())
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn item(
    on: &Handlers,
    client: Client,
    topic: &DeleteRecordsTopic,
    partition: &DeleteRecordsPartition,
) -> Result<TrimItem, RequestFault> {
    let image = on.cores.image();
    let topic = lookup::topic(&image, client.view, &topic.name, None)?;
    let at = lookup::partition(topic, partition.partition_index)?;
    if topic.is_internal() {
        return Err(RequestFault::InternalTopic);
    }
    if !topic.settings.cleanup.delete {
        return Err(RequestFault::KeepsRecords);
    }
    let below = match partition.offset {
        HIGH_WATERMARK => None,
        offset if offset < 0 => return Err(RequestFault::NegativeOffset),
        offset => Some(Offset(offset)),
    };
    Ok(TrimItem { at, below })
}
