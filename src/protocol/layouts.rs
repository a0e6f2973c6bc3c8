//! The layouts of the requests offered: one table that drives the frame guard.
//!
//! A layout lists the fields of a request in wire order, each with the versions it is in. It says
//! what the guard must know and no more: how to step over a field, where a null is allowed, and how
//! much memory the decoder takes for one element of an array. The tests of `guard` hold each layout
//! to the codec for each version offered, in both directions.

use kafka_protocol::messages as m;
use std::mem::size_of;
use Kind::{Array, Bool, Bytes, Int16, Int32, Int64, Int8, Text, Uuid};

/// The fields of a request, of an array element or of a struct in a tagged field.
#[derive(Debug)]
pub struct Layout {
    pub fields: &'static [Field],
    /// Tagged fields the decoder knows; all others are skipped by their length.
    pub tagged: &'static [(u32, Field)],
    /// Bytes the decoded form takes by itself, without what it points to.
    pub memory_bytes: usize,
    /// A bare element (a string or number in an array) has no tagged fields of its own.
    pub bare: bool,
}

/// One field and the versions in which it is there.
#[derive(Debug)]
pub struct Field {
    pub kind: Kind,
    pub since: i16,
    pub until: i16,
    /// From this version on the field may be null.
    pub null_since: i16,
}

/// How a field is written.
#[derive(Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    /// UTF-8 with an int16 length, or a compact one in flexible versions.
    Text,
    /// Record data with an int32 length, or a compact one in flexible versions.
    Bytes,
    Array(&'static Layout),
    Struct(&'static Layout),
}

const NEVER: i16 = i16::MAX;

const fn layout<T>(fields: &'static [Field]) -> Layout {
    Layout { fields, tagged: &[], memory_bytes: size_of::<T>(), bare: false }
}

const fn bare<T>(fields: &'static [Field]) -> Layout {
    Layout { fields, tagged: &[], memory_bytes: size_of::<T>(), bare: true }
}

const fn is(kind: Kind) -> Field {
    Field { kind, since: 0, until: NEVER, null_since: NEVER }
}

impl Layout {
    const fn tagged(self, tagged: &'static [(u32, Field)]) -> Layout {
        Layout { fields: self.fields, tagged, memory_bytes: self.memory_bytes, bare: self.bare }
    }
}

impl Field {
    /// Present from `version` on.
    const fn since(mut self, version: i16) -> Field {
        self.since = version;
        self
    }

    /// Present up to and including `version`.
    const fn until(mut self, version: i16) -> Field {
        self.until = version;
        self
    }

    const fn nullable(mut self) -> Field {
        self.null_since = 0;
        self
    }

    const fn nullable_since(mut self, version: i16) -> Field {
        self.null_since = version;
        self
    }

    pub fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }
}

static TEXTS: Layout = bare::<m::TopicName>(&[is(Text)]);
static INTS: Layout = bare::<i32>(&[is(Int32)]);

pub static PRODUCE: Layout = layout::<m::ProduceRequest>(&[
    is(Text).nullable(), // transactional_id
    is(Int16),           // acks
    is(Int32),           // timeout_ms
    is(Array(&PRODUCE_TOPIC)),
]);
static PRODUCE_TOPIC: Layout = layout::<m::produce_request::TopicProduceData>(&[
    is(Text).until(12), // name
    is(Uuid).since(13), // topic_id
    is(Array(&PRODUCE_PARTITION)),
]);
static PRODUCE_PARTITION: Layout = layout::<m::produce_request::PartitionProduceData>(&[
    is(Int32),            // index
    is(Bytes).nullable(), // records
]);

pub static FETCH: Layout = layout::<m::FetchRequest>(&[
    is(Int32).until(14), // replica_id
    is(Int32),           // max_wait_ms
    is(Int32),           // min_bytes
    is(Int32),           // max_bytes
    is(Int8),            // isolation_level
    is(Int32).since(7),  // session_id
    is(Int32).since(7),  // session_epoch
    is(Array(&FETCH_TOPIC)),
    is(Array(&FETCH_FORGOTTEN)).since(7),
    is(Text).since(11), // rack_id
])
.tagged(&[
    (0, is(Text).nullable()), // cluster_id
    (1, is(Kind::Struct(&FETCH_REPLICA_STATE)).since(15)),
]);
static FETCH_TOPIC: Layout = layout::<m::fetch_request::FetchTopic>(&[
    is(Text).until(12), // topic
    is(Uuid).since(13), // topic_id
    is(Array(&FETCH_PARTITION)),
]);
static FETCH_PARTITION: Layout = layout::<m::fetch_request::FetchPartition>(&[
    is(Int32),           // partition
    is(Int32).since(9),  // current_leader_epoch
    is(Int64),           // fetch_offset
    is(Int32).since(12), // last_fetched_epoch
    is(Int64).since(5),  // log_start_offset
    is(Int32),           // partition_max_bytes
])
.tagged(&[
    (0, is(Uuid).since(17)),  // replica_directory_id
    (1, is(Int64).since(18)), // high_watermark
]);
static FETCH_FORGOTTEN: Layout = layout::<m::fetch_request::ForgottenTopic>(&[
    is(Text).until(12), // topic
    is(Uuid).since(13), // topic_id
    is(Array(&INTS)),   // partitions
]);
static FETCH_REPLICA_STATE: Layout = layout::<m::fetch_request::ReplicaState>(&[
    is(Int32), // replica_id
    is(Int64), // replica_epoch
]);

pub static LIST_OFFSETS: Layout = layout::<m::ListOffsetsRequest>(&[
    is(Int32),         // replica_id
    is(Int8).since(2), // isolation_level
    is(Array(&LIST_OFFSET_FETCH_TOPIC)),
    is(Int32).since(10), // timeout_ms
]);
static LIST_OFFSET_FETCH_TOPIC: Layout = layout::<m::list_offsets_request::ListOffsetsTopic>(&[
    is(Text), // name
    is(Array(&LIST_OFFSETS_PARTITION)),
]);
static LIST_OFFSETS_PARTITION: Layout = layout::<m::list_offsets_request::ListOffsetsPartition>(&[
    is(Int32),          // partition_index
    is(Int32).since(4), // current_leader_epoch
    is(Int64),          // timestamp
]);

pub static METADATA: Layout = layout::<m::MetadataRequest>(&[
    is(Array(&METADATA_TOPIC)).nullable_since(1),
    is(Bool).since(4),           // allow_auto_topic_creation
    is(Bool).since(8).until(10), // include_cluster_authorized_operations
    is(Bool).since(8),           // include_topic_authorized_operations
]);
static METADATA_TOPIC: Layout = layout::<m::metadata_request::MetadataRequestTopic>(&[
    is(Uuid).since(10),          // topic_id
    is(Text).nullable_since(10), // name
]);

pub static OFFSET_COMMIT: Layout = layout::<m::OffsetCommitRequest>(&[
    is(Text),                     // group_id
    is(Int32),                    // generation_id_or_member_epoch
    is(Text),                     // member_id
    is(Text).since(7).nullable(), // group_instance_id
    is(Int64).until(4),           // retention_time_ms
    is(Array(&COMMIT_TOPIC)),
]);
static COMMIT_TOPIC: Layout = layout::<m::offset_commit_request::OffsetCommitRequestTopic>(&[
    is(Text), // name
    is(Array(&COMMIT_PARTITION)),
]);
static COMMIT_PARTITION: Layout =
    layout::<m::offset_commit_request::OffsetCommitRequestPartition>(&[
        is(Int32),           // partition_index
        is(Int64),           // committed_offset
        is(Int32).since(6),  // committed_leader_epoch
        is(Text).nullable(), // committed_metadata
    ]);

pub static OFFSET_FETCH: Layout = layout::<m::OffsetFetchRequest>(&[
    is(Text).until(7), // group_id
    is(Array(&OFFSET_FETCH_TOPIC)).until(7).nullable_since(2),
    is(Array(&OFFSET_FETCH_GROUP)).since(8),
    is(Bool).since(7), // require_stable
]);
static OFFSET_FETCH_TOPIC: Layout = layout::<m::offset_fetch_request::OffsetFetchRequestTopic>(&[
    is(Text),         // name
    is(Array(&INTS)), // partition_indexes
]);
static OFFSET_FETCH_GROUP: Layout = layout::<m::offset_fetch_request::OffsetFetchRequestGroup>(&[
    is(Text),                     // group_id
    is(Text).since(9).nullable(), // member_id
    is(Int32).since(9),           // member_epoch
    is(Array(&OFFSET_FETCH_GROUP_TOPIC)).nullable(),
]);
static OFFSET_FETCH_GROUP_TOPIC: Layout =
    layout::<m::offset_fetch_request::OffsetFetchRequestTopics>(&[
        is(Text),         // name
        is(Array(&INTS)), // partition_indexes
    ]);

pub static FIND_COORDINATOR: Layout = layout::<m::FindCoordinatorRequest>(&[
    is(Text).until(3),          // key
    is(Int8).since(1),          // key_type
    is(Array(&TEXTS)).since(4), // coordinator_keys
]);

pub static JOIN_GROUP: Layout = layout::<m::JoinGroupRequest>(&[
    is(Text),                     // group_id
    is(Int32),                    // session_timeout_ms
    is(Int32).since(1),           // rebalance_timeout_ms
    is(Text),                     // member_id
    is(Text).since(5).nullable(), // group_instance_id
    is(Text),                     // protocol_type
    is(Array(&JOIN_PROTOCOL)),
    is(Text).since(8).nullable(), // reason
]);
static JOIN_PROTOCOL: Layout = layout::<m::join_group_request::JoinGroupRequestProtocol>(&[
    is(Text),  // name
    is(Bytes), // metadata
]);

pub static HEARTBEAT: Layout = layout::<m::HeartbeatRequest>(&[
    is(Text),                     // group_id
    is(Int32),                    // generation_id
    is(Text),                     // member_id
    is(Text).since(3).nullable(), // group_instance_id
]);

pub static LEAVE_GROUP: Layout = layout::<m::LeaveGroupRequest>(&[
    is(Text),          // group_id
    is(Text).until(2), // member_id
    is(Array(&LEAVING_MEMBER)).since(3),
]);
static LEAVING_MEMBER: Layout = layout::<m::leave_group_request::MemberIdentity>(&[
    is(Text),                     // member_id
    is(Text).nullable(),          // group_instance_id
    is(Text).since(5).nullable(), // reason
]);

pub static SYNC_GROUP: Layout = layout::<m::SyncGroupRequest>(&[
    is(Text),                     // group_id
    is(Int32),                    // generation_id
    is(Text),                     // member_id
    is(Text).since(3).nullable(), // group_instance_id
    is(Text).since(5).nullable(), // protocol_type
    is(Text).since(5).nullable(), // protocol_name
    is(Array(&SYNC_ASSIGNMENT)),
]);
static SYNC_ASSIGNMENT: Layout = layout::<m::sync_group_request::SyncGroupRequestAssignment>(&[
    is(Text),  // member_id
    is(Bytes), // assignment
]);

pub static DESCRIBE_GROUPS: Layout = layout::<m::DescribeGroupsRequest>(&[
    is(Array(&TEXTS)),
    is(Bool).since(3), // include_authorized_operations
]);

pub static LIST_GROUPS: Layout = layout::<m::ListGroupsRequest>(&[
    is(Array(&TEXTS)).since(4), // states_filter
    is(Array(&TEXTS)).since(5), // types_filter
]);

pub static API_VERSIONS: Layout = layout::<m::ApiVersionsRequest>(&[
    is(Text).since(3), // client_software_name
    is(Text).since(3), // client_software_version
]);

pub static CREATE_TOPICS: Layout = layout::<m::CreateTopicsRequest>(&[
    is(Array(&CREATE_TOPIC)),
    is(Int32), // timeout_ms
    is(Bool),  // validate_only
]);
static CREATE_TOPIC: Layout = layout::<m::create_topics_request::CreatableTopic>(&[
    is(Text),  // name
    is(Int32), // num_partitions
    is(Int16), // replication_factor
    is(Array(&CREATE_ASSIGNMENT)),
    is(Array(&CREATE_CONFIG)),
]);
static CREATE_ASSIGNMENT: Layout =
    layout::<m::create_topics_request::CreatableReplicaAssignment>(&[
        is(Int32),        // partition_index
        is(Array(&INTS)), // broker_ids
    ]);
static CREATE_CONFIG: Layout = layout::<m::create_topics_request::CreatableTopicConfig>(&[
    is(Text),            // name
    is(Text).nullable(), // value
]);

pub static DELETE_TOPICS: Layout = layout::<m::DeleteTopicsRequest>(&[
    is(Array(&DELETE_TOPIC)).since(6),
    is(Array(&TEXTS)).until(5), // topic_names
    is(Int32),                  // timeout_ms
]);
static DELETE_TOPIC: Layout = layout::<m::delete_topics_request::DeleteTopicState>(&[
    is(Text).nullable(), // name
    is(Uuid),            // topic_id
]);

pub static DELETE_RECORDS: Layout = layout::<m::DeleteRecordsRequest>(&[
    is(Array(&DELETE_RECORDS_TOPIC)),
    is(Int32), // timeout_ms
]);
static DELETE_RECORDS_TOPIC: Layout = layout::<m::delete_records_request::DeleteRecordsTopic>(&[
    is(Text), // name
    is(Array(&DELETE_RECORDS_PARTITION)),
]);
static DELETE_RECORDS_PARTITION: Layout =
    layout::<m::delete_records_request::DeleteRecordsPartition>(&[
        is(Int32), // partition_index
        is(Int64), // offset
    ]);

pub static INIT_PRODUCER_ID: Layout = layout::<m::InitProducerIdRequest>(&[
    is(Text).nullable(), // transactional_id
    is(Int32),           // transaction_timeout_ms
    is(Int64).since(3),  // producer_id
    is(Int16).since(3),  // producer_epoch
]);

pub static OFFSET_FOR_LEADER_EPOCH: Layout = layout::<m::OffsetForLeaderEpochRequest>(&[
    is(Int32).since(3), // replica_id
    is(Array(&EPOCH_TOPIC)),
]);
static EPOCH_TOPIC: Layout = layout::<m::offset_for_leader_epoch_request::OffsetForLeaderTopic>(&[
    is(Text), // topic
    is(Array(&EPOCH_PARTITION)),
]);
static EPOCH_PARTITION: Layout =
    layout::<m::offset_for_leader_epoch_request::OffsetForLeaderPartition>(&[
        is(Int32), // partition
        is(Int32), // current_leader_epoch
        is(Int32), // leader_epoch
    ]);

pub static DESCRIBE_CONFIGS: Layout = layout::<m::DescribeConfigsRequest>(&[
    is(Array(&CONFIG_RESOURCE)),
    is(Bool),          // include_synonyms
    is(Bool).since(3), // include_documentation
]);
static CONFIG_RESOURCE: Layout = layout::<m::describe_configs_request::DescribeConfigsResource>(&[
    is(Int8),                     // resource_type
    is(Text),                     // resource_name
    is(Array(&TEXTS)).nullable(), // configuration_keys
]);

pub static DELETE_GROUPS: Layout = layout::<m::DeleteGroupsRequest>(&[
    is(Array(&TEXTS)), // groups_names
]);

pub static DESCRIBE_CLUSTER: Layout = layout::<m::DescribeClusterRequest>(&[
    is(Bool),          // include_cluster_authorized_operations
    is(Int8).since(1), // endpoint_type
    is(Bool).since(2), // include_fenced_brokers
]);
