//! OffsetFetch (key 9), versions 1 to 9.
//!
//! KIP-88 (null topics ask for all, version 2), KIP-320 (leader epoch, 5), KIP-447 (stable offsets,
//! 7: all are, as there are no transactions), KIP-709 (several groups, 8), KIP-848 (member and its
//! epoch, 9). What was committed for a topic that was deleted since is no longer answered, whether
//! or not there is a new topic of that name. A partition without an offset is no error.
//!
//! Gaps: version 10 (topic ids), which the codec lacks; members of the new protocol.

use super::groups::{self, output};
use super::{lookup, Client, Handlers};
use crate::coordinator::{Committed, CommittedTopic, FetchOffsets, GroupRequest, WantedTopic};
use crate::cores::front::GroupAnswer;
use crate::errors::KafkaError;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use std::collections::HashMap;
use std::rc::Rc;

/// From this version on a request names any number of groups.
const MANY: i16 = 8;
/// Before this version only partitions have error codes.
const TOP_LEVEL_ERROR: i16 = 2;

/// What is wanted of a group.
struct Wanted {
    group: GroupId,
    member: Option<(String, i32)>,
    /// None for all.
    topics: Option<Vec<WantedPartitions>>,
}

struct WantedPartitions {
    topic: TopicName,
    partitions: Vec<i32>,
}

/// What was found of a topic: partitions and their offsets.
struct Found {
    topic: TopicName,
    partitions: Vec<(i32, Option<Committed>)>,
}

pub async fn handle(
    on: Rc<Handlers>,
    request: OffsetFetchRequest,
    version: i16,
    client: Client,
) -> OffsetFetchResponse {
    let wanted = wanted(request, version);
    let requests = wanted.iter().map(|wanted| fetch(&on, client, wanted)).collect();
    let answers = groups::ask(&on, client, requests).await;
    let found = |(wanted, answer)| found(&on, client, wanted, answer);
    let mut results = wanted.iter().zip(answers).map(found);
    let response = OffsetFetchResponse::default();
    if version >= MANY {
        let groups = wanted.iter().zip(results).map(|(wanted, result)| group(wanted, result));
        return response.with_groups(groups.collect());
    }
    match results.next() {
        Some(Ok(found)) => response.with_topics(topics(found)),
        Some(Err(code)) if version < TOP_LEVEL_ERROR => {
            response.with_topics(refused(&wanted, code))
        }
        Some(Err(code)) => response.with_error_code(code),
        None => response,
    }
}

fn wanted(request: OffsetFetchRequest, version: i16) -> Vec<Wanted> {
    if version >= MANY {
        return request.groups.into_iter().map(wanted_group).collect();
    }
    let topic = |it: OffsetFetchRequestTopic| WantedPartitions {
        topic: it.name,
        partitions: it.partition_indexes,
    };
    let topics = request.topics.map(|topics| topics.into_iter().map(topic).collect());
    vec![Wanted { group: request.group_id, member: None, topics }]
}

fn wanted_group(group: OffsetFetchRequestGroup) -> Wanted {
    // Administrators say neither; members of the new protocol say both.
    let member = match (group.member_id, group.member_epoch) {
        (None, ..0) => None,
        (id, epoch) => Some((id.unwrap_or_default().to_string(), epoch)),
    };
    let topic = |it: OffsetFetchRequestTopics| WantedPartitions {
        topic: it.name,
        partitions: it.partition_indexes,
    };
    let topics = group.topics.map(|topics| topics.into_iter().map(topic).collect());
    Wanted { group: group.group_id, member, topics }
}

/// The request to the coordinator: for topics that are there.
fn fetch(on: &Handlers, client: Client, wanted: &Wanted) -> GroupRequest {
    let image = on.cores.image();
    let known = |wanted: &WantedPartitions| {
        let topic = lookup::topic(&image, client.view, &wanted.topic, None).ok()?;
        Some(WantedTopic {
            topic: topic.name.to_string(),
            topic_id: topic.id,
            partitions: wanted.partitions.clone(),
        })
    };
    GroupRequest::Fetch(FetchOffsets {
        group: wanted.group.to_string(),
        member: wanted.member.clone(),
        topics: wanted.topics.as_ref().map(|topics| topics.iter().filter_map(known).collect()),
    })
}

/// Puts an answer into the order and the names of what was wanted.
fn found(
    on: &Handlers,
    client: Client,
    wanted: &Wanted,
    answer: GroupAnswer,
) -> Result<Vec<Found>, i16> {
    let committed = output!(answer, Fetch).map_err(|refusal| refusal.code().code())?;
    let committed = committed.map_err(|refusal| refusal.code().code())?;
    let image = on.cores.image();
    let is_current = |topic: &CommittedTopic| {
        let current = image.by_name(client.view, &topic.topic);
        current.is_some_and(|current| current.id == topic.topic_id)
    };
    let current = committed.into_iter().filter(is_current);
    match &wanted.topics {
        None => Ok(current.filter_map(all_of).collect()),
        Some(topics) => {
            let offsets = by_partition(current);
            Ok(topics.iter().map(|wanted| those_of(wanted, &offsets)).collect())
        }
    }
}

/// All that was committed of a topic.
fn all_of(topic: CommittedTopic) -> Option<Found> {
    let mut partitions = topic.partitions;
    partitions.retain(|(_, offset)| offset.is_some());
    let topic = TopicName(super::text(topic.topic));
    (!partitions.is_empty()).then_some(Found { topic, partitions })
}

/// Offsets by topic and partition. A topic that was asked for twice is answered twice.
type Offsets = HashMap<String, HashMap<i32, Committed>>;

fn by_partition(topics: impl Iterator<Item = CommittedTopic>) -> Offsets {
    let mut offsets = Offsets::new();
    for topic in topics {
        let partitions = topic.partitions.into_iter();
        let known = partitions.filter_map(|(index, offset)| Some((index, offset?)));
        offsets.entry(topic.topic).or_default().extend(known);
    }
    offsets
}

/// The partitions that are wanted of a topic, in their order.
fn those_of(wanted: &WantedPartitions, offsets: &Offsets) -> Found {
    let of_topic = offsets.get(wanted.topic.as_str());
    let one = |index: &i32| (*index, of_topic.and_then(|known| known.get(index)).cloned());
    Found { topic: wanted.topic.clone(), partitions: wanted.partitions.iter().map(one).collect() }
}

fn topics(found: Vec<Found>) -> Vec<OffsetFetchResponseTopic> {
    let partition = |(index, committed): (i32, Option<Committed>)| {
        let (offset, epoch, metadata) = told(committed);
        OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
    };
    let topic = |found: Found| {
        OffsetFetchResponseTopic::default()
            .with_name(found.topic)
            .with_partitions(found.partitions.into_iter().map(partition).collect())
    };
    found.into_iter().map(topic).collect()
}

fn refused(wanted: &[Wanted], code: i16) -> Vec<OffsetFetchResponseTopic> {
    let nothing = |wanted: &WantedPartitions| those_of(wanted, &Offsets::new());
    let named = wanted.iter().flat_map(|wanted| &wanted.topics).flatten();
    let mut topics = topics(named.map(nothing).collect());
    let partitions = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    partitions.for_each(|partition| partition.error_code = code);
    topics
}

fn group(wanted: &Wanted, result: Result<Vec<Found>, i16>) -> OffsetFetchResponseGroup {
    let partition = |(index, committed): (i32, Option<Committed>)| {
        let (offset, epoch, metadata) = told(committed);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
    };
    let topic = |found: Found| {
        OffsetFetchResponseTopics::default()
            .with_name(found.topic)
            .with_partitions(found.partitions.into_iter().map(partition).collect())
    };
    let group = OffsetFetchResponseGroup::default().with_group_id(wanted.group.clone());
    match result {
        Ok(found) => group.with_topics(found.into_iter().map(topic).collect()),
        Err(code) => group.with_error_code(code),
    }
}

/// Offset, leader epoch and metadata as clients are told.
fn told(committed: Option<Committed>) -> (i64, i32, StrBytes) {
    match committed {
        Some(it) => (it.offset.0, it.leader_epoch, super::text(it.metadata)),
        None => (-1, -1, StrBytes::default()),
    }
}
