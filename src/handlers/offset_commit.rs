//! OffsetCommit (key 8), versions 2 to 9.
//!
//! KIP-211 (the broker alone says how long offsets are kept, version 5), KIP-320 (leader epoch, 6),
//! KIP-345 (static members, 7), KIP-848 (other codes for groups that are not there, 9). Partitions
//! that are not there fail each on its own; all others go to the coordinator together, under the
//! id of their topic.
//!
//! Gaps: version 10 (topic ids), which the codec lacks; members of the new protocol.

use super::groups::{self, output, Refusal};
use super::{lookup, Client, Handlers};
use crate::coordinator::{
    Commit, CommitRefusal, Committed, GroupRefusal, GroupRequest, OffsetCommit, Session,
};
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};
use shard::ids::{Offset, Timestamp};
use std::rc::Rc;

/// From this version on members of a group that is not there are told so.
const UNKNOWN_GROUP: i16 = 9;

/// Which offset of the request to the coordinator answers which partition.
struct Plan {
    topics: Vec<PlannedTopic>,
    offsets: Vec<OffsetCommit>,
}

struct PlannedTopic {
    name: TopicName,
    /// Partition, and the place of its offset or why there is none.
    partitions: Vec<(i32, Result<usize, RequestFault>)>,
}

type Outcome = Result<Vec<Result<(), CommitRefusal>>, Refusal>;

pub async fn handle(
    on: Rc<Handlers>,
    request: OffsetCommitRequest,
    version: i16,
    client: Client,
) -> OffsetCommitResponse {
    let Plan { topics, offsets } = plan(&on, &request, client);
    let outcome = match offsets.is_empty() {
        true => Ok(Vec::new()),
        false => serve(&on, Commit { session: session(&request), offsets }, version, client).await,
    };
    let partition = |(index, place): (i32, Result<usize, RequestFault>)| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(code(place, &outcome))
    };
    let topics = topics.into_iter().map(|topic| {
        OffsetCommitResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(topic.partitions.into_iter().map(partition).collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn plan(on: &Handlers, request: &OffsetCommitRequest, client: Client) -> Plan {
    let (image, now) = (on.cores.image(), on.cores.now());
    let retention_ms = Some(request.retention_time_ms).filter(|ms| *ms != -1);
    let mut plan = Plan { topics: Vec::new(), offsets: Vec::new() };
    for topic in &request.topics {
        let found = lookup::topic(&image, client.view, &topic.name, None);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let place = found.and_then(|found| {
                lookup::partition(found, index)?;
                plan.offsets.push(OffsetCommit {
                    topic: found.name.to_string(),
                    topic_id: found.id,
                    partition: index,
                    committed: committed(partition, now),
                    retention_ms,
                });
                Ok(plan.offsets.len() - 1)
            });
            partitions.push((index, place));
        }
        plan.topics.push(PlannedTopic { name: topic.name.clone(), partitions });
    }
    plan
}

fn committed(partition: &OffsetCommitRequestPartition, time: Timestamp) -> Committed {
    let metadata = partition.committed_metadata.as_ref();
    Committed {
        offset: Offset(partition.committed_offset),
        leader_epoch: partition.committed_leader_epoch,
        metadata: metadata.map_or(String::new(), |metadata| metadata.to_string()),
        time,
    }
}

fn session(request: &OffsetCommitRequest) -> Session {
    Session {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        instance: groups::instance(&request.group_instance_id),
        generation: request.generation_id_or_member_epoch,
    }
}

async fn serve(on: &Handlers, commit: Commit, version: i16, client: Client) -> Outcome {
    let answer = groups::ask_one(on, client, GroupRequest::Commit(commit)).await;
    output!(answer, Commit)?.map_err(|refusal| match refusal {
        GroupRefusal::UnknownGroup if version < UNKNOWN_GROUP => {
            GroupRefusal::IllegalGeneration.into()
        }
        refusal => refusal.into(),
    })
}

fn code(place: Result<usize, RequestFault>, outcome: &Outcome) -> i16 {
    let place = match place {
        Ok(place) => place,
        Err(fault) => return fault.code().code(),
    };
    match outcome {
        Err(refusal) => refusal.code(),
        Ok(results) => match results.get(place) {
            Some(Ok(())) => 0,
            Some(Err(refusal)) => refusal.code().code(),
            None => RequestFault::UnknownPartition.code().code(),
        },
    }
}
