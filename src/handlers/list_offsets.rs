//! ListOffsets (key 2), versions 1 to 10.
//!
//! KIP-79, KIP-98 (isolation level, 2), KIP-320 (leader epoch, 4), KIP-734 (greatest timestamp,
//! 7), KIP-405 (local log start, 8), KIP-1005 (tiered, 9). By time the answer is the exact record:
//! the first at or after the asked time that the reader may see, or −1 without an error.
//!
//! Known difference: there are no followers, so a replica id does not widen what is seen; Kafka
//! answers the log end to one. Gaps: version 11 is not offered by the codec.

use super::{lookup, Client, Handlers};
use crate::cores::front::{
    Found, Offsets, PartitionAt, PartitionRefusal, TimeItem, TimeTarget, Until,
};
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use shard::ids::Timestamp;
use std::collections::HashSet;
use std::rc::Rc;

/// From this version on answers carry a leader epoch.
const EPOCHS: i16 = 4;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const GREATEST_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// What a timestamp in a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Latest,
    Earliest,
    /// There is no tiered storage.
    Nothing,
    Time(TimeTarget),
}

/// Where the answer for one partition comes from.
enum Slot {
    Fault(RequestFault),
    Nothing,
    Offsets { index: usize, latest: bool },
    Time { index: usize },
}

/// The asks of a request, as they are collected.
#[derive(Default)]
struct Asks {
    offsets: Vec<PartitionAt>,
    times: Vec<TimeItem>,
}

pub async fn handle(
    on: Rc<Handlers>,
    request: ListOffsetsRequest,
    version: i16,
    client: Client,
) -> ListOffsetsResponse {
    let until = match request.isolation_level {
        1 => Until::LastStable,
        _ => Until::HighWatermark,
    };
    let (mut asks, mut topics) = (Asks::default(), Vec::new());
    let twice = named_twice(&request);
    for topic in &request.topics {
        let mut slots = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let slot = if twice.contains(&(topic.name.as_str(), index)) {
                Slot::Fault(RequestFault::PartitionTwice)
            } else {
                let wanted = wanted(partition.timestamp, version);
                let at =
                    wanted.and_then(|wanted| Ok((wanted, locate(&on, client, topic, partition)?)));
                at.map_or_else(Slot::Fault, |(wanted, at)| asks.add(wanted, at, until))
            };
            slots.push((index, slot));
        }
        topics.push((topic.name.clone(), slots));
    }
    let offsets = on.cores.offsets(asks.offsets).await;
    let times = on.cores.find_time(asks.times).await;
    let topics = topics.into_iter().map(|(name, slots)| {
        let answer = |(index, slot)| {
            let mut response = answer(index, slot, until, &offsets, &times);
            if version < EPOCHS {
                response.leader_epoch = -1;
            }
            response
        };
        ListOffsetsTopicResponse::default()
            .with_name(name)
            .with_partitions(slots.into_iter().map(answer).collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn wanted(timestamp: i64, version: i16) -> Result<Wanted, RequestFault> {
    match timestamp {
        LATEST => Ok(Wanted::Latest),
        EARLIEST => Ok(Wanted::Earliest),
        GREATEST_TIMESTAMP if version >= 7 => Ok(Wanted::Time(TimeTarget::Greatest)),
        EARLIEST_LOCAL if version >= 8 => Ok(Wanted::Earliest),
        LATEST_TIERED if version >= 9 => Ok(Wanted::Nothing),
        time if time >= 0 => Ok(Wanted::Time(TimeTarget::AtOrAfter(Timestamp(time)))),
        _ => Err(RequestFault::SpecialTimestamp),
    }
}

fn named_twice(request: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen = HashSet::new();
    let all = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|p| (topic.name.as_str(), p.partition_index))
    });
    all.filter(|partition| !seen.insert(*partition)).collect()
}

fn locate(
    on: &Handlers,
    client: Client,
    topic: &ListOffsetsTopic,
    partition: &ListOffsetsPartition,
) -> Result<PartitionAt, RequestFault> {
    let image = on.cores.image();
    let topic = lookup::topic(&image, client.view, &topic.name, None)?;
    let at = lookup::partition(topic, partition.partition_index)?;
    lookup::leader_epoch(&on.cluster, partition.current_leader_epoch)?;
    Ok(at)
}

impl Asks {
    fn add(&mut self, wanted: Wanted, at: PartitionAt, until: Until) -> Slot {
        match wanted {
            Wanted::Latest | Wanted::Earliest => {
                self.offsets.push(at);
                let latest = wanted == Wanted::Latest;
                Slot::Offsets { index: self.offsets.len() - 1, latest }
            }
            Wanted::Nothing => Slot::Nothing,
            Wanted::Time(target) => {
                self.times.push(TimeItem { at, target, until });
                Slot::Time { index: self.times.len() - 1 }
            }
        }
    }
}

fn answer(
    partition: i32,
    slot: Slot,
    until: Until,
    offsets: &[Result<Offsets, PartitionRefusal>],
    times: &[Result<Option<Found>, PartitionRefusal>],
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse::default().with_partition_index(partition);
    let refused = |code: i16| nothing.clone().with_error_code(code);
    match slot {
        Slot::Fault(fault) => refused(fault.code().code()),
        Slot::Nothing => nothing,
        Slot::Offsets { index, latest } => match offsets.get(index) {
            Some(Ok(offsets)) if latest => {
                nothing.with_offset(offsets.end(until).0).with_leader_epoch(offsets.leader_epoch.0)
            }
            Some(Ok(offsets)) => nothing.with_offset(offsets.log_start.0),
            Some(Err(refusal)) => refused(refusal.code().code()),
            None => refused(RequestFault::UnknownPartition.code().code()),
        },
        Slot::Time { index } => match times.get(index) {
            Some(Ok(Some(found))) => nothing
                .with_offset(found.offset.0)
                .with_timestamp(found.timestamp.0)
                .with_leader_epoch(found.leader_epoch.0),
            Some(Ok(None)) => nothing,
            Some(Err(refusal)) => refused(refusal.code().code()),
            None => refused(RequestFault::UnknownPartition.code().code()),
        },
    }
}
