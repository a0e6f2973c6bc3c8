//! Fetch (key 1), versions 4 to 18.
//!
//! KIP-74 (the first batch whole), KIP-98 (isolation level), KIP-227 (sessions, version 7: session
//! id 0 is always answered, so clients send full fetches), KIP-320 (leader epoch, 9), KIP-516
//! (topic ids, 13). A fetch with nothing to give waits until `min_bytes` are there or `max_wait_ms`
//! is over; an error in any partition is answered at once. Record data are not copied.
//!
//! Gaps: no sessions are kept, so an incremental fetch is told to start over; the diverging epoch
//! of KIP-595 is never answered: consumers find a cut-off log by OffsetForLeaderEpoch. No preferred
//! replica, as there are no replicas.

use super::{finished, lookup, Client, Finish, Handlers};
use crate::catalog::{CatalogImage, Topic};
use crate::cores::front::{
    PartitionRefusal, ReadData, ReadItem, ReadRequest, Slice, Until, WatchItem,
};
use crate::errors::{KafkaError, RequestFault};
use crate::protocol::fetch_reply::{FetchReply, PartitionReply, TopicReply};
use crate::protocol::header::ReplyHeader;
use crate::protocol::reply::Piece;
use futures_lite::future;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use shard::ids::Offset;
use std::rc::Rc;
use uuid::Uuid;

/// From this version on topics are named by their ids.
const BY_ID: i16 = 13;
const READ_COMMITTED: i8 = 1;

type Results = Vec<Result<ReadData, PartitionRefusal>>;

pub async fn handle(
    on: Rc<Handlers>,
    request: FetchRequest,
    header: ReplyHeader,
    client: Client,
) -> Finish {
    // Only a session this broker never gave has an id and an epoch above 0.
    if request.session_id != 0 && request.session_epoch > 0 {
        let error_code = RequestFault::FetchSession.code().code();
        return finished(FetchReply { error_code, ..Default::default() }.encode(header));
    }
    let plan = Plan::make(&on, &request, header.version, client);
    let wait = Wait {
        bytes_min: usize::try_from(request.min_bytes).unwrap_or(0),
        ms: u64::try_from(request.max_wait_ms).unwrap_or(0),
    };
    let results = plan.read_enough(&on, wait).await;
    finished(plan.reply(results).encode(header))
}

/// How long a fetch may wait, and for how much.
#[derive(Clone, Copy)]
struct Wait {
    bytes_min: usize,
    ms: u64,
}

/// What is to be read and where it goes in the answer.
struct Plan {
    items: Vec<ReadItem>,
    bytes_max: usize,
    until: Until,
    topics: Vec<PlannedTopic>,
}

struct PlannedTopic {
    name: TopicName,
    id: Uuid,
    /// Partition, and the place of its item or why there is none.
    partitions: Vec<(i32, Result<usize, RequestFault>)>,
}

impl Plan {
    fn make(on: &Handlers, request: &FetchRequest, version: i16, client: Client) -> Plan {
        let image = on.cores.image();
        let asked = usize::try_from(request.max_bytes).unwrap_or(0);
        let allowed = usize::try_from(on.config.fetch_max_bytes).unwrap_or(usize::MAX);
        let mut plan = Plan {
            items: Vec::new(),
            bytes_max: asked.min(allowed),
            until: match request.isolation_level {
                READ_COMMITTED => Until::LastStable,
                _ => Until::HighWatermark,
            },
            topics: Vec::with_capacity(request.topics.len()),
        };
        for topic in &request.topics {
            let found = find(&image, client, topic, version);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let item = found.and_then(|topic| item(on, topic, partition));
                let place = item.map(|item| {
                    plan.items.push(item);
                    plan.items.len() - 1
                });
                partitions.push((partition.partition, place));
            }
            let planned =
                PlannedTopic { name: topic.topic.clone(), id: topic.topic_id, partitions };
            plan.topics.push(planned);
        }
        plan
    }

    /// Reads until there is enough, an error, or no time left.
    async fn read_enough(&self, on: &Handlers, wait: Wait) -> Results {
        let faulty = self.topics.iter().flat_map(|topic| &topic.partitions).any(|p| p.1.is_err());
        let mut results = self.read(on).await;
        if faulty || wait.ms == 0 || self.items.is_empty() {
            return results;
        }
        let mut timer = on.cores.timer(wait.ms);
        while is_short(&results, wait.bytes_min) {
            let moved = on.cores.watch(self.watched(&results));
            let moved = async {
                moved.await;
                true
            };
            let over = async {
                (&mut timer).await;
                false
            };
            let goes_on = future::or(moved, over).await;
            results = self.read(on).await;
            if !goes_on {
                break;
            }
        }
        results
    }

    async fn read(&self, on: &Handlers) -> Results {
        if self.items.is_empty() {
            return Vec::new();
        }
        let (items, bytes_max) = (self.items.clone(), self.bytes_max);
        on.cores.read(ReadRequest { items, bytes_max, until: self.until }).await
    }

    fn watched(&self, results: &Results) -> Vec<WatchItem> {
        let watch = |(item, result): (&ReadItem, &Result<ReadData, PartitionRefusal>)| {
            let seen = result.as_ref().ok()?.offsets.end(self.until);
            Some(WatchItem { at: item.at, seen, until: self.until })
        };
        self.items.iter().zip(results).filter_map(watch).collect()
    }

    fn reply(self, results: Results) -> FetchReply {
        let mut results: Vec<_> = results.into_iter().map(Some).collect();
        // Owners do not know of one another, so what is over the limit is left out here; the first
        // partition with data goes out whatever its size.
        let (mut left, mut is_first) = (self.bytes_max, true);
        let mut partition = |index: i32, place: Result<usize, RequestFault>| {
            let place = match place {
                Ok(place) => place,
                Err(fault) => return refused(index, &fault),
            };
            let data = match results.get_mut(place).and_then(Option::take) {
                Some(Ok(data)) => data,
                Some(Err(refusal)) => return refused(index, &refusal),
                None => return refused(index, &PartitionRefusal::Unknown),
            };
            let mut reply = found(index, data, self.until);
            let bytes = reply.records_bytes();
            if bytes > left && !is_first {
                reply.records.clear();
            } else if bytes > 0 {
                left = left.saturating_sub(bytes);
                is_first = false;
            }
            reply
        };
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter();
            let partitions = partitions.map(|(index, place)| partition(index, place)).collect();
            TopicReply { name: topic.name, id: topic.id, partitions }
        });
        FetchReply { topics: topics.collect(), ..FetchReply::default() }
    }
}

fn find<'a>(
    image: &'a CatalogImage,
    client: Client,
    topic: &FetchTopic,
    version: i16,
) -> Result<&'a Topic, RequestFault> {
    let id = (version >= BY_ID).then_some(topic.topic_id);
    lookup::topic(image, client.view, &topic.topic, id).map(|topic| &**topic)
}

fn item(
    on: &Handlers,
    topic: &Topic,
    partition: &FetchPartition,
) -> Result<ReadItem, RequestFault> {
    let at = lookup::partition(topic, partition.partition)?;
    lookup::leader_epoch(&on.cluster, partition.current_leader_epoch)?;
    Ok(ReadItem {
        at,
        from: Offset(partition.fetch_offset),
        bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
    })
}

/// Whether a reader that can wait should. An error is never waited with.
fn is_short(results: &Results, bytes_min: usize) -> bool {
    let mut bytes = 0;
    for result in results {
        match result {
            Ok(data) => bytes += data.slices.iter().map(Slice::len).sum::<usize>(),
            Err(_) => return false,
        }
    }
    bytes < bytes_min
}

fn found(index: i32, data: ReadData, until: Until) -> PartitionReply {
    let piece = |slice| match slice {
        Slice::Warm(bytes) => Piece::Shared(bytes),
        Slice::Cold(bytes) => Piece::Bytes(bytes),
    };
    let aborted = data.aborted.iter().map(|(producer, first)| (*producer, first.0));
    PartitionReply {
        index,
        high_watermark: data.offsets.high_watermark.0,
        last_stable: data.offsets.last_stable.0,
        log_start: data.offsets.log_start.0,
        aborted: (until == Until::LastStable).then(|| aborted.collect()),
        records: data.slices.into_iter().map(piece).collect(),
        ..PartitionReply::default()
    }
}

fn refused(index: i32, error: &impl KafkaError) -> PartitionReply {
    PartitionReply { index, error_code: error.code().code(), ..PartitionReply::default() }
}
