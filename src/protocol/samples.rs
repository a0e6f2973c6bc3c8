//! Requests made up for tests: what clients could send, in every version, seeded.
//!
//! Two sources that know nothing of each other: `request` fills the codec's own structs and has the
//! codec encode them; `wire` writes bytes by a layout of the table. The guard must walk the first
//! to its last byte, the codec must decode the second to its last byte.

use super::api::{Api, Request};
use super::group_samples as groups;
use super::layouts::{Field, Kind, Layout};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable, StrBytes};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A small generator of choices (splitmix64): the same seed gives the same choices.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn number(&mut self) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as i64
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() as u64 % end
    }

    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn maybe<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        self.flip().then(|| make(self))
    }

    /// None to three of something, rarely two hundred (a compact count of two bytes).
    pub fn some<T>(&mut self, mut make: impl FnMut(&mut Dice) -> T) -> Vec<T> {
        let count = if self.below(40) == 0 { 200 } else { self.below(4) };
        (0..count).map(|_| make(self)).collect()
    }

    pub fn text(&mut self) -> StrBytes {
        let length = if self.below(20) == 0 { 300 } else { self.below(12) };
        let letter = |dice: &mut Dice| ['a', '.', 'ß', '語', '0'][dice.below(5) as usize];
        StrBytes::from_string((0..length).map(|_| letter(self)).collect())
    }

    pub fn bytes(&mut self) -> Bytes {
        let length = if self.below(10) == 0 { 500 } else { self.below(20) };
        (0..length).map(|_| self.number() as u8).collect()
    }

    pub fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.number() as u64, self.number() as u64)
    }

    /// Tagged fields nobody knows, from `first` on.
    pub fn tags(&mut self, version: i16, flexible: i16, first: i32) -> BTreeMap<i32, Bytes> {
        if version < flexible || self.below(3) > 0 {
            return BTreeMap::new();
        }
        let tag = |dice: &mut Dice| (first + dice.below(300) as i32, dice.bytes());
        self.some(tag).into_iter().collect()
    }
}

/// A frame (without its length) around a body.
pub fn frame(dice: &mut Dice, api: Api, version: i16, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    let header = RequestHeader::default()
        .with_request_api_key(api.row().key)
        .with_request_api_version(version)
        .with_correlation_id(dice.number() as i32)
        .with_client_id(dice.maybe(Dice::text));
    let flexible = api.row().is_flexible(version);
    let header = match flexible {
        true => header.with_unknown_tagged_fields(dice.tags(2, 2, 0)),
        false => header,
    };
    header.encode(&mut frame, if flexible { 2 } else { 1 }).expect("a header");
    frame.put_slice(body);
    frame.freeze()
}

/// The body of a request as the codec writes it, and the request itself.
pub fn request(dice: &mut Dice, api: Api, version: i16) -> (Request, Bytes) {
    let mut out = BytesMut::new();
    macro_rules! encoded {
        ($name:ident, $make:expr) => {{
            let made = $make;
            made.encode(&mut out, version).expect("a request of this version");
            (Request::$name(made), out.freeze())
        }};
    }
    match api {
        Api::Produce => encoded!(Produce, produce(dice, version)),
        Api::Fetch => encoded!(Fetch, fetch(dice, version)),
        Api::ListOffsets => encoded!(ListOffsets, list_offsets(dice, version)),
        Api::Metadata => encoded!(Metadata, metadata(dice, version)),
        Api::OffsetCommit => encoded!(OffsetCommit, groups::offset_commit(dice, version)),
        Api::OffsetFetch => encoded!(OffsetFetch, groups::offset_fetch(dice, version)),
        Api::FindCoordinator => encoded!(FindCoordinator, find_coordinator(dice, version)),
        Api::JoinGroup => encoded!(JoinGroup, groups::join_group(dice, version)),
        Api::Heartbeat => encoded!(Heartbeat, groups::heartbeat(dice, version)),
        Api::LeaveGroup => encoded!(LeaveGroup, groups::leave_group(dice, version)),
        Api::SyncGroup => encoded!(SyncGroup, groups::sync_group(dice, version)),
        Api::DescribeGroups => encoded!(DescribeGroups, groups::describe_groups(dice, version)),
        Api::ListGroups => encoded!(ListGroups, groups::list_groups(dice, version)),
        Api::ApiVersions => encoded!(ApiVersions, api_versions(dice, version)),
        Api::CreateTopics => encoded!(CreateTopics, create_topics(dice, version)),
        Api::DeleteTopics => encoded!(DeleteTopics, delete_topics(dice, version)),
        Api::DeleteRecords => encoded!(DeleteRecords, delete_records(dice, version)),
        Api::InitProducerId => encoded!(InitProducerId, init_producer_id(dice, version)),
        Api::OffsetForLeaderEpoch => encoded!(OffsetForLeaderEpoch, epochs(dice, version)),
        Api::DescribeConfigs => encoded!(DescribeConfigs, describe_configs(dice, version)),
        Api::DeleteGroups => encoded!(DeleteGroups, groups::delete_groups(dice, version)),
        Api::DescribeCluster => encoded!(DescribeCluster, describe_cluster(dice, version)),
    }
}

fn produce(dice: &mut Dice, version: i16) -> ProduceRequest {
    use produce_request::{PartitionProduceData, TopicProduceData};
    let partition = |dice: &mut Dice| {
        PartitionProduceData::default()
            .with_index(dice.number() as i32)
            .with_records(dice.maybe(Dice::bytes))
            .with_unknown_tagged_fields(dice.tags(version, 9, 0))
    };
    let topic = |dice: &mut Dice| {
        let topic = TopicProduceData::default()
            .with_partition_data(dice.some(partition))
            .with_unknown_tagged_fields(dice.tags(version, 9, 0));
        match version >= 13 {
            true => topic.with_topic_id(dice.uuid()),
            false => topic.with_name(TopicName(dice.text())),
        }
    };
    ProduceRequest::default()
        .with_transactional_id(dice.maybe(|dice| TransactionalId(dice.text())))
        .with_acks(dice.number() as i16)
        .with_timeout_ms(dice.number() as i32)
        .with_topic_data(dice.some(topic))
        .with_unknown_tagged_fields(dice.tags(version, 9, 0))
}

fn fetch(dice: &mut Dice, version: i16) -> FetchRequest {
    use fetch_request::{ForgottenTopic, ReplicaState};
    let forgotten = |dice: &mut Dice| {
        let topic = ForgottenTopic::default()
            .with_partitions(dice.some(|dice| dice.number() as i32))
            .with_unknown_tagged_fields(dice.tags(version, 12, 0));
        match version >= 13 {
            true => topic.with_topic_id(dice.uuid()),
            false => topic.with_topic(TopicName(dice.text())),
        }
    };
    let mut request = FetchRequest::default()
        .with_max_wait_ms(dice.number() as i32)
        .with_min_bytes(dice.number() as i32)
        .with_max_bytes(dice.number() as i32)
        .with_isolation_level(dice.number() as i8)
        .with_topics(dice.some(|dice| fetch_topic(dice, version)))
        .with_unknown_tagged_fields(dice.tags(version, 12, 2));
    if version <= 14 {
        request = request.with_replica_id(BrokerId(dice.number() as i32));
    } else if dice.flip() {
        let state = ReplicaState::default()
            .with_replica_id(BrokerId(dice.number() as i32))
            .with_replica_epoch(dice.number())
            .with_unknown_tagged_fields(dice.tags(version, 12, 0));
        request = request.with_replica_state(state);
    }
    if version >= 7 {
        request = request
            .with_session_id(dice.number() as i32)
            .with_session_epoch(dice.number() as i32)
            .with_forgotten_topics_data(dice.some(forgotten));
    }
    if version >= 11 {
        request = request.with_rack_id(dice.text());
    }
    if version >= 12 {
        request = request.with_cluster_id(dice.maybe(Dice::text));
    }
    request
}

fn fetch_topic(dice: &mut Dice, version: i16) -> fetch_request::FetchTopic {
    use fetch_request::{FetchPartition, FetchTopic};
    let partition = |dice: &mut Dice| {
        let mut partition = FetchPartition::default()
            .with_partition(dice.number() as i32)
            .with_current_leader_epoch(dice.number() as i32)
            .with_fetch_offset(dice.number())
            .with_log_start_offset(dice.number())
            .with_partition_max_bytes(dice.number() as i32)
            .with_unknown_tagged_fields(dice.tags(version, 12, 2));
        if version >= 12 {
            partition = partition.with_last_fetched_epoch(dice.number() as i32);
        }
        if version >= 17 && dice.flip() {
            partition = partition.with_replica_directory_id(dice.uuid());
        }
        if version >= 18 && dice.flip() {
            partition = partition.with_high_watermark(dice.number());
        }
        partition
    };
    let topic = FetchTopic::default()
        .with_partitions(dice.some(partition))
        .with_unknown_tagged_fields(dice.tags(version, 12, 0));
    match version >= 13 {
        true => topic.with_topic_id(dice.uuid()),
        false => topic.with_topic(TopicName(dice.text())),
    }
}

fn list_offsets(dice: &mut Dice, version: i16) -> ListOffsetsRequest {
    use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    let partition = |dice: &mut Dice| {
        ListOffsetsPartition::default()
            .with_partition_index(dice.number() as i32)
            .with_current_leader_epoch(dice.number() as i32)
            .with_timestamp(dice.number())
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let topic = |dice: &mut Dice| {
        ListOffsetsTopic::default()
            .with_name(TopicName(dice.text()))
            .with_partitions(dice.some(partition))
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let level = if version >= 2 { dice.number() as i8 } else { 0 };
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(dice.number() as i32))
        .with_isolation_level(level)
        .with_topics(dice.some(topic))
        .with_timeout_ms(dice.number() as i32)
        .with_unknown_tagged_fields(dice.tags(version, 6, 0))
}

fn metadata(dice: &mut Dice, version: i16) -> MetadataRequest {
    use metadata_request::MetadataRequestTopic;
    let topic = |dice: &mut Dice| {
        let topic = MetadataRequestTopic::default()
            .with_name(Some(TopicName(dice.text())))
            .with_unknown_tagged_fields(dice.tags(version, 9, 0));
        match version >= 10 && dice.flip() {
            true => topic.with_topic_id(dice.uuid()).with_name(None),
            false => topic,
        }
    };
    let topics = dice.some(topic);
    let mut request = MetadataRequest::default()
        .with_topics(if version >= 1 { dice.maybe(|_| topics) } else { Some(topics) })
        .with_allow_auto_topic_creation(version < 4 || dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 9, 0));
    if version >= 8 {
        request = request.with_include_topic_authorized_operations(dice.flip());
    }
    if (8..=10).contains(&version) {
        request = request.with_include_cluster_authorized_operations(dice.flip());
    }
    request
}

fn find_coordinator(dice: &mut Dice, version: i16) -> FindCoordinatorRequest {
    let mut request =
        FindCoordinatorRequest::default().with_unknown_tagged_fields(dice.tags(version, 3, 0));
    if version >= 1 {
        request = request.with_key_type(dice.number() as i8);
    }
    match version >= 4 {
        true => request.with_coordinator_keys(dice.some(Dice::text)),
        false => request.with_key(dice.text()),
    }
}

fn api_versions(dice: &mut Dice, version: i16) -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(dice.text())
        .with_client_software_version(dice.text())
        .with_unknown_tagged_fields(dice.tags(version, 3, 0))
}

fn create_topics(dice: &mut Dice, version: i16) -> CreateTopicsRequest {
    use create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
    let assignment = |dice: &mut Dice| {
        CreatableReplicaAssignment::default()
            .with_partition_index(dice.number() as i32)
            .with_broker_ids(dice.some(|dice| BrokerId(dice.number() as i32)))
            .with_unknown_tagged_fields(dice.tags(version, 5, 0))
    };
    let config = |dice: &mut Dice| {
        CreatableTopicConfig::default()
            .with_name(dice.text())
            .with_value(dice.maybe(Dice::text))
            .with_unknown_tagged_fields(dice.tags(version, 5, 0))
    };
    let topic = |dice: &mut Dice| {
        CreatableTopic::default()
            .with_name(TopicName(dice.text()))
            .with_num_partitions(dice.number() as i32)
            .with_replication_factor(dice.number() as i16)
            .with_assignments(dice.some(assignment))
            .with_configs(dice.some(config))
            .with_unknown_tagged_fields(dice.tags(version, 5, 0))
    };
    CreateTopicsRequest::default()
        .with_topics(dice.some(topic))
        .with_timeout_ms(dice.number() as i32)
        .with_validate_only(dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 5, 0))
}

fn delete_topics(dice: &mut Dice, version: i16) -> DeleteTopicsRequest {
    use delete_topics_request::DeleteTopicState;
    let topic = |dice: &mut Dice| {
        DeleteTopicState::default()
            .with_name(dice.maybe(|dice| TopicName(dice.text())))
            .with_topic_id(dice.uuid())
            .with_unknown_tagged_fields(dice.tags(version, 6, 0))
    };
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(dice.number() as i32)
        .with_unknown_tagged_fields(dice.tags(version, 4, 0));
    match version >= 6 {
        true => request.with_topics(dice.some(topic)),
        false => request.with_topic_names(dice.some(|dice| TopicName(dice.text()))),
    }
}

fn delete_records(dice: &mut Dice, version: i16) -> DeleteRecordsRequest {
    use delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    let partition = |dice: &mut Dice| {
        DeleteRecordsPartition::default()
            .with_partition_index(dice.number() as i32)
            .with_offset(dice.number())
            .with_unknown_tagged_fields(dice.tags(version, 2, 0))
    };
    let topic = |dice: &mut Dice| {
        DeleteRecordsTopic::default()
            .with_name(TopicName(dice.text()))
            .with_partitions(dice.some(partition))
            .with_unknown_tagged_fields(dice.tags(version, 2, 0))
    };
    DeleteRecordsRequest::default()
        .with_topics(dice.some(topic))
        .with_timeout_ms(dice.number() as i32)
        .with_unknown_tagged_fields(dice.tags(version, 2, 0))
}

fn init_producer_id(dice: &mut Dice, version: i16) -> InitProducerIdRequest {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(dice.maybe(|dice| TransactionalId(dice.text())))
        .with_transaction_timeout_ms(dice.number() as i32)
        .with_unknown_tagged_fields(dice.tags(version, 2, 0));
    match version >= 3 {
        true => request
            .with_producer_id(ProducerId(dice.number()))
            .with_producer_epoch(dice.number() as i16),
        false => request,
    }
}

fn epochs(dice: &mut Dice, version: i16) -> OffsetForLeaderEpochRequest {
    use offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    let partition = |dice: &mut Dice| {
        OffsetForLeaderPartition::default()
            .with_partition(dice.number() as i32)
            .with_current_leader_epoch(dice.number() as i32)
            .with_leader_epoch(dice.number() as i32)
            .with_unknown_tagged_fields(dice.tags(version, 4, 0))
    };
    let topic = |dice: &mut Dice| {
        OffsetForLeaderTopic::default()
            .with_topic(TopicName(dice.text()))
            .with_partitions(dice.some(partition))
            .with_unknown_tagged_fields(dice.tags(version, 4, 0))
    };
    let replica = if version >= 3 { dice.number() as i32 } else { -2 };
    OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(replica))
        .with_topics(dice.some(topic))
        .with_unknown_tagged_fields(dice.tags(version, 4, 0))
}

fn describe_configs(dice: &mut Dice, version: i16) -> DescribeConfigsRequest {
    use describe_configs_request::DescribeConfigsResource;
    let resource = |dice: &mut Dice| {
        DescribeConfigsResource::default()
            .with_resource_type(dice.number() as i8)
            .with_resource_name(dice.text())
            .with_configuration_keys(dice.maybe(|dice| dice.some(Dice::text)))
            .with_unknown_tagged_fields(dice.tags(version, 4, 0))
    };
    DescribeConfigsRequest::default()
        .with_resources(dice.some(resource))
        .with_include_synonyms(dice.flip())
        .with_include_documentation(version >= 3 && dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 4, 0))
}

fn describe_cluster(dice: &mut Dice, version: i16) -> DescribeClusterRequest {
    DescribeClusterRequest::default()
        .with_include_cluster_authorized_operations(dice.flip())
        .with_endpoint_type(if version >= 1 { dice.number() as i8 } else { 1 })
        .with_include_fenced_brokers(version >= 2 && dice.flip())
        .with_unknown_tagged_fields(dice.tags(version, 0, 0))
}

/// Bytes written by a layout of the table: every field it says is there, nulls where it allows.
pub fn wire(dice: &mut Dice, api: Api, version: i16) -> Bytes {
    let row = api.row();
    let mut wire = Wire { dice, version, flexible: row.is_flexible(version), out: BytesMut::new() };
    wire.layout(row.layout);
    wire.out.freeze()
}

struct Wire<'a> {
    dice: &'a mut Dice,
    version: i16,
    flexible: bool,
    out: BytesMut,
}

impl Wire<'_> {
    fn layout(&mut self, layout: &Layout) {
        let version = self.version;
        for field in layout.fields.iter().filter(|field| field.is_in(version)) {
            self.field(field);
        }
        if self.flexible && !layout.bare {
            self.tags(layout.tagged);
        }
    }

    fn tags(&mut self, known: &[(u32, Field)]) {
        let mut fields = BTreeMap::new();
        let version = self.version;
        for (tag, field) in known.iter().filter(|(_, field)| field.is_in(version)) {
            if self.dice.flip() {
                let outer = std::mem::take(&mut self.out);
                self.field(field);
                fields.insert(*tag, std::mem::replace(&mut self.out, outer).freeze());
            }
        }
        fields.extend(self.dice.tags(1, 1, 100).into_iter().map(|(tag, v)| (tag as u32, v)));
        self.varint(fields.len());
        for (tag, value) in fields {
            self.varint(tag as usize);
            self.varint(value.len());
            self.out.put_slice(&value);
        }
    }

    fn field(&mut self, field: &Field) {
        let null = self.version >= field.null_since && self.dice.flip();
        match field.kind {
            Kind::Bool => self.out.put_u8(self.dice.below(2) as u8),
            Kind::Int8 => self.out.put_i8(self.dice.number() as i8),
            Kind::Int16 => self.out.put_i16(self.dice.number() as i16),
            Kind::Int32 => self.out.put_i32(self.dice.number() as i32),
            Kind::Int64 => self.out.put_i64(self.dice.number()),
            Kind::Uuid => self.out.put_slice(self.dice.uuid().as_bytes()),
            Kind::Struct(layout) => self.layout(layout),
            Kind::Text | Kind::Bytes | Kind::Array(_) if null => self.length(&field.kind, None),
            Kind::Text => {
                let text = self.dice.text();
                self.length(&field.kind, Some(text.len()));
                self.out.put_slice(text.as_bytes());
            }
            Kind::Bytes => {
                let bytes = self.dice.bytes();
                self.length(&field.kind, Some(bytes.len()));
                self.out.put_slice(&bytes);
            }
            Kind::Array(element) => {
                let count = self.dice.some(|_| ()).len();
                self.length(&field.kind, Some(count));
                (0..count).for_each(|_| self.layout(element));
            }
        }
    }

    fn length(&mut self, kind: &Kind, length: Option<usize>) {
        match (self.flexible, kind) {
            (true, _) => self.varint(length.map_or(0, |length| length + 1)),
            (false, Kind::Text) => self.out.put_i16(length.map_or(-1, |length| length as i16)),
            (false, _) => self.out.put_i32(length.map_or(-1, |length| length as i32)),
        }
    }

    fn varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }
}
