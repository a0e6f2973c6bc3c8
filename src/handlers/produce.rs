//! Produce (key 0), versions 3 to 13.
//!
//! KIP-98 (batch v2), KIP-110 (zstd, 7), KIP-467 (record errors, 8), KIP-516 (topic ids, 13). One
//! batch per partition; partitions fail each on its own. The appends take effect during the call,
//! in the order of requests; with acks=all the answer waits for the commit, with acks=0 there is
//! none and any error closes the connection. Topics are not created here, and no client writes to
//! internal ones, whatever it calls itself. When tables do not keep up with a core, appends to its
//! partitions wait, up to a second, and the answer tells the client (KIP-219's throttle time).
//!
//! Gaps: transactions (batches of one are refused with INVALID_TXN_STATE). The tags of version 10
//! that name the leader are not needed: every core serves every partition.

use super::{finished, lookup, Client, Finish, Handlers, Outcome, Pending};
use crate::catalog::{CatalogImage, Topic};
use crate::config::Config;
use crate::cores::front::{AppendItem, AppendRefusal, AppendWait, Appended, Appending};
use crate::cores::front::{Cores, Later};
use crate::errors::{KafkaError, RequestFault};
use crate::protocol::header::ReplyHeader;
use crate::protocol::reply::Reply;
use bytes::Bytes;
use kafka_protocol::messages::produce_request::TopicProduceData;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use shard::batch::{BatchError, BatchHeader, RecordErrors, RecordFault};
use shard::ids::LogId;
use uuid::Uuid;

/// From this version on topics are named by their ids.
const BY_ID: i16 = 13;

/// What the appends came to, in the order of their items.
type Results = Vec<Result<Appended, AppendRefusal>>;

pub fn handle(
    on: &Handlers,
    request: ProduceRequest,
    header: ReplyHeader,
    client: Client,
) -> Outcome {
    let wait = match request.acks {
        -1 => AppendWait::Committed { timeout_ms: u64::try_from(request.timeout_ms).unwrap_or(0) },
        _ => AppendWait::Appended,
    };
    let (items, mut plan) = plan(on, request, header, client);
    if items.is_empty() {
        return match plan.finish(Vec::new()) {
            Finish::Reply(reply) => Outcome::Pending(Pending::Ready(reply)),
            Finish::Nothing => Outcome::Pending(Pending::Nothing),
            Finish::Close => Outcome::Close,
        };
    }
    let logs: Vec<LogId> = items.iter().map(|item| item.at.log).collect();
    plan.throttle_ms = on.cores.throttle_ms(&logs);
    if plan.throttle_ms > 0 {
        // Until then nothing more is taken from the connection.
        let cores = on.cores.clone();
        return Outcome::Blocked(Box::pin(async move {
            cores.timer(u64::from(plan.throttle_ms)).await;
            append(&*cores, items, wait, plan)
        }));
    }
    append(&*on.cores, items, wait, plan)
}

fn append(cores: &dyn Cores, items: Vec<AppendItem>, wait: AppendWait, plan: Plan) -> Outcome {
    match cores.append(items, wait) {
        Appending::Taken(results) => plan.pending(results),
        Appending::Blocked(taken) => {
            Outcome::Blocked(Box::pin(async move { plan.pending(taken.await) }))
        }
    }
}

/// Which append answers which partition, while the appends are under way.
struct Plan {
    header: ReplyHeader,
    acks: i16,
    /// The appends were held back, and the client should hold back itself.
    throttle_ms: u32,
    topics: Vec<PlannedTopic>,
}

struct PlannedTopic {
    name: TopicName,
    id: Uuid,
    /// Partition, and the place of its item or why there is none.
    partitions: Vec<(i32, Result<usize, RequestFault>)>,
}

/// Sorts out what can be appended.
fn plan(
    on: &Handlers,
    request: ProduceRequest,
    header: ReplyHeader,
    client: Client,
) -> (Vec<AppendItem>, Plan) {
    let version = header.version;
    let fault = if !(-1..=1).contains(&request.acks) {
        Some(RequestFault::Acks)
    } else {
        request.transactional_id.is_some().then_some(RequestFault::NoTransaction)
    };
    let (image, mut items, mut topics) = (on.cores.image(), Vec::new(), Vec::new());
    for topic in request.topic_data {
        let found = match fault {
            Some(fault) => Err(fault),
            None => find(&image, client, &topic, version),
        };
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for partition in topic.partition_data {
            let records = partition.records.unwrap_or_default();
            let item =
                found.and_then(|topic| item(&on.config, topic, partition.index, records, version));
            let place = item.map(|item| {
                items.push(item);
                items.len() - 1
            });
            partitions.push((partition.index, place));
        }
        topics.push(PlannedTopic { name: owned(&topic.name), id: topic.topic_id, partitions });
    }
    (items, Plan { header, acks: request.acks, throttle_ms: 0, topics })
}

/// A name of its own. The one in the request is a slice of the frame it came in: kept until the
/// reply, it would keep the records' memory, and the connection could not receive into it again.
fn owned(name: &TopicName) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

fn find<'a>(
    image: &'a CatalogImage,
    client: Client,
    topic: &TopicProduceData,
    version: i16,
) -> Result<&'a Topic, RequestFault> {
    let id = (version >= BY_ID).then_some(topic.topic_id);
    let found = lookup::topic(image, client.view, &topic.name, id)?;
    match found.is_internal() {
        true => Err(RequestFault::InternalTopic),
        false => Ok(found),
    }
}

fn item(
    config: &Config,
    topic: &Topic,
    partition: i32,
    records: Bytes,
    version: i16,
) -> Result<AppendItem, RequestFault> {
    let at = lookup::partition(topic, partition)?;
    let bytes_max = usize::try_from(topic.settings.segment_bytes).unwrap_or(0);
    if records.len() > bytes_max {
        return Err(RequestFault::OverSegmentBytes { bytes: records.len(), bytes_max });
    }
    let transactional = |header: BatchHeader| header.attributes.is_transactional();
    if BatchHeader::parse(&records).is_ok_and(transactional) {
        return Err(RequestFault::NoTransaction);
    }
    let zstd_allowed = version >= 7;
    let rules = topic.settings.rules(config.decompression_limits(), zstd_allowed);
    Ok(AppendItem { at, records, rules })
}

impl Plan {
    fn pending(self, results: Later<Results>) -> Outcome {
        super::finish(async move { self.finish(results.await) })
    }

    fn finish(self, results: Results) -> Finish {
        let header = self.header;
        if self.acks == 0 {
            let faults = self.topics.iter().flat_map(|topic| &topic.partitions);
            let failed = faults.filter(|(_, place)| place.is_err()).count()
                + results.iter().filter(|result| result.is_err()).count();
            return if failed == 0 { Finish::Nothing } else { Finish::Close };
        }
        let topics = self.topics.into_iter().map(|topic| {
            let partition = |(index, place)| partition_response(index, place, &results);
            TopicProduceResponse::default()
                .with_name(topic.name)
                .with_topic_id(topic.id)
                .with_partition_responses(topic.partitions.into_iter().map(partition).collect())
        });
        let throttle_ms = i32::try_from(self.throttle_ms).unwrap_or(i32::MAX);
        let response = ProduceResponse::default()
            .with_responses(topics.collect())
            .with_throttle_time_ms(throttle_ms);
        finished(Reply::encode(header, &response))
    }
}

fn partition_response(
    index: i32,
    place: Result<usize, RequestFault>,
    results: &Results,
) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index);
    let result = match &place {
        Err(fault) => return refused(response, fault),
        Ok(place) => results.get(*place),
    };
    match result {
        Some(Ok(appended)) => response
            .with_base_offset(appended.base_offset.0)
            .with_log_append_time_ms(appended.append_time.map_or(-1, |time| time.0))
            .with_log_start_offset(appended.log_start.0),
        Some(Err(refusal)) => refused(response, refusal).with_record_errors(record_errors(refusal)),
        None => refused(response, &AppendRefusal::LogFailed),
    }
}

fn refused(
    response: PartitionProduceResponse,
    error: &(impl KafkaError + ToString),
) -> PartitionProduceResponse {
    response
        .with_error_code(error.code().code())
        .with_base_offset(-1)
        .with_error_message(Some(super::text(error.to_string())))
}

/// The records a batch was refused for; none when it was refused as a whole.
fn record_errors(refusal: &AppendRefusal) -> Vec<BatchIndexAndErrorMessage> {
    let AppendRefusal::Batch(BatchError::Records(errors) | BatchError::Timestamps(errors)) =
        refusal
    else {
        return Vec::new();
    };
    let RecordErrors { listed, .. } = errors;
    let message = |fault: &RecordFault| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(fault.index)
            .with_batch_index_error_message(Some(super::text(fault.problem)))
    };
    listed.iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_name_does_not_keep_its_frame() {
        let frame = Bytes::from(b"topic and then records".to_vec());
        let name = TopicName(StrBytes::try_from(frame.slice(..5)).unwrap());
        let kept = owned(&name);
        drop(name);
        assert_eq!(&**kept, "topic");
        assert!(frame.is_unique());
    }
}
