//! From what happened inside to the Kafka error code a client sees: the one place.
//!
//! Every refusal of the layers below and every fault a handler finds has its line here; the matches
//! are exhaustive, so a new way to fail does not compile until it has a code. The test prints the
//! whole table.

use crate::catalog::{CreateRefusal, DeleteRefusal};
use crate::coordinator::{self, CommitRefusal, FetchRefusal, GroupRefusal};
use crate::cores::front::{AppendRefusal, CatalogDown, CoordinatorRefusal, PartitionRefusal};
use kafka_protocol::ResponseError as Code;
use shard::batch::BatchError;
use thiserror::Error;

/// What has a Kafka error code.
pub trait KafkaError {
    fn code(&self) -> Code;
}

/// What a handler itself finds wrong with a request. The text goes to the client where the version
/// has room for it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestFault {
    #[error("the broker does not offer this version of ApiVersions")]
    ApiVersionsTooNew,
    #[error("client software name and version must be letters, digits, '-' and '.'")]
    ClientSoftware,
    #[error("there is no such topic")]
    UnknownTopic,
    #[error("there is no topic with this id")]
    UnknownTopicId,
    #[error("the topic has no such partition")]
    UnknownPartition,
    #[error("not a topic name")]
    TopicName,
    #[error("this version names topics by name alone")]
    TopicIdTooEarly,
    #[error("name a topic either by its name or by its id")]
    NameAndId,
    #[error("the broker does not let topics be deleted")]
    DeletionDisabled,
    #[error("the broker does not let topics be deleted")]
    DeletionDisabledOld,
    #[error("acks must be -1, 0 or 1")]
    Acks,
    #[error("the producer is in no transaction: this version serves none")]
    NoTransaction,
    #[error("a batch of {bytes} bytes is larger than segment.bytes, {bytes_max}")]
    OverSegmentBytes { bytes: usize, bytes_max: usize },
    #[error("the leader epoch is older than the partition's")]
    OldLeaderEpoch,
    #[error("the leader epoch is newer than the partition's")]
    NewLeaderEpoch,
    #[error("the broker keeps no fetch sessions")]
    FetchSession,
    #[error("the request names this partition more than once")]
    PartitionTwice,
    #[error("this version does not know this special timestamp")]
    SpecialTimestamp,
    #[error("a transactional id cannot be empty")]
    EmptyTransactionalId,
    #[error("producer id and epoch are given both or not at all")]
    HalfProducer,
    #[error("no producer ids can be had now")]
    NoProducerIds,
    #[error("the topic of the groups, __consumer_offsets, cannot be made now")]
    NoOffsetsTopic,
    #[error("the broker alone writes to its internal topics and deletes of them")]
    InternalTopic,
    #[error("transactions are not served by this version of the broker")]
    NoTransactions,
    #[error("share groups are not served by this version of the broker")]
    NoShareGroups,
    #[error("no coordinator is of this type")]
    CoordinatorType,
    #[error("the controller does not listen here")]
    ControllerEndpoint,
    #[error("there is no such type of endpoint")]
    EndpointType,
    #[error("an offset cannot be negative but for -1, the high watermark")]
    NegativeOffset,
    #[error("the topic's cleanup.policy does not delete")]
    KeepsRecords,
    #[error("configurations of this type of resource are not kept")]
    ResourceType,
    #[error("there is no broker of this id")]
    UnknownBroker,
}

impl KafkaError for RequestFault {
    fn code(&self) -> Code {
        match self {
            RequestFault::ApiVersionsTooNew => Code::UnsupportedVersion,
            RequestFault::ClientSoftware => Code::InvalidRequest,
            RequestFault::UnknownTopic => Code::UnknownTopicOrPartition,
            RequestFault::UnknownTopicId => Code::UnknownTopicId,
            RequestFault::UnknownPartition => Code::UnknownTopicOrPartition,
            RequestFault::TopicName => Code::InvalidTopicException,
            RequestFault::TopicIdTooEarly => Code::InvalidRequest,
            RequestFault::NameAndId => Code::InvalidRequest,
            RequestFault::DeletionDisabled => Code::TopicDeletionDisabled,
            RequestFault::DeletionDisabledOld => Code::InvalidRequest,
            RequestFault::Acks => Code::InvalidRequiredAcks,
            RequestFault::NoTransaction => Code::InvalidTxnState,
            RequestFault::OverSegmentBytes { .. } => Code::RecordListTooLarge,
            RequestFault::OldLeaderEpoch => Code::FencedLeaderEpoch,
            RequestFault::NewLeaderEpoch => Code::UnknownLeaderEpoch,
            RequestFault::FetchSession => Code::FetchSessionIdNotFound,
            RequestFault::PartitionTwice => Code::InvalidRequest,
            RequestFault::SpecialTimestamp => Code::UnsupportedVersion,
            RequestFault::EmptyTransactionalId => Code::InvalidRequest,
            RequestFault::HalfProducer => Code::InvalidRequest,
            RequestFault::NoProducerIds => Code::CoordinatorNotAvailable,
            RequestFault::NoOffsetsTopic => Code::CoordinatorNotAvailable,
            RequestFault::InternalTopic => Code::InvalidTopicException,
            RequestFault::NoTransactions => Code::UnsupportedVersion,
            RequestFault::NoShareGroups => Code::UnsupportedVersion,
            RequestFault::CoordinatorType => Code::InvalidRequest,
            RequestFault::ControllerEndpoint => Code::MismatchedEndpointType,
            RequestFault::EndpointType => Code::UnsupportedEndpointType,
            RequestFault::NegativeOffset => Code::OffsetOutOfRange,
            RequestFault::KeepsRecords => Code::PolicyViolation,
            RequestFault::ResourceType => Code::InvalidRequest,
            RequestFault::UnknownBroker => Code::InvalidRequest,
        }
    }
}

impl KafkaError for BatchError {
    fn code(&self) -> Code {
        match self {
            BatchError::Empty => Code::InvalidRecord,
            BatchError::Truncated { .. } => Code::CorruptMessage,
            BatchError::Length { .. } => Code::CorruptMessage,
            BatchError::Several { .. } => Code::InvalidRecord,
            BatchError::Magic(_) => Code::InvalidRecord,
            BatchError::Crc { .. } => Code::CorruptMessage,
            BatchError::TooLarge { .. } => Code::MessageTooLarge,
            BatchError::BaseOffset(_) => Code::InvalidRecord,
            BatchError::Count { .. } => Code::InvalidRecord,
            BatchError::Control => Code::InvalidRecord,
            BatchError::Producer { .. } => Code::InvalidRecord,
            BatchError::TransactionWithoutProducer => Code::InvalidRecord,
            BatchError::UnknownCodec(_) => Code::UnsupportedCompressionType,
            BatchError::ZstdTooEarly => Code::UnsupportedCompressionType,
            BatchError::Compression(_) => Code::InvalidRecord,
            BatchError::Expansion { .. } => Code::MessageTooLarge,
            BatchError::Records(_) => Code::InvalidRecord,
            BatchError::Timestamps(_) => Code::InvalidTimestamp,
        }
    }
}

impl KafkaError for AppendRefusal {
    fn code(&self) -> Code {
        match self {
            AppendRefusal::Unknown => Code::UnknownTopicOrPartition,
            AppendRefusal::Batch(error) => error.code(),
            AppendRefusal::OutOfOrderSequence => Code::OutOfOrderSequenceNumber,
            AppendRefusal::StaleProducerEpoch => Code::InvalidProducerEpoch,
            AppendRefusal::TooLargeForSegment { .. } => Code::RecordListTooLarge,
            AppendRefusal::AboveHighWatermark(_) => Code::OffsetOutOfRange,
            AppendRefusal::DiskFull => Code::KafkaStorageError,
            AppendRefusal::LogFailed => Code::KafkaStorageError,
            AppendRefusal::TimedOut => Code::RequestTimedOut,
        }
    }
}

impl KafkaError for PartitionRefusal {
    fn code(&self) -> Code {
        match self {
            PartitionRefusal::Unknown => Code::UnknownTopicOrPartition,
            PartitionRefusal::OutOfRange => Code::OffsetOutOfRange,
            PartitionRefusal::Unreadable => Code::KafkaStorageError,
        }
    }
}

impl KafkaError for CatalogDown {
    fn code(&self) -> Code {
        let CatalogDown = self;
        Code::KafkaStorageError
    }
}

impl KafkaError for CreateRefusal {
    fn code(&self) -> Code {
        match self {
            CreateRefusal::Duplicate => Code::InvalidRequest,
            CreateRefusal::Name(_) => Code::InvalidTopicException,
            CreateRefusal::Collision { .. } => Code::InvalidTopicException,
            CreateRefusal::Exists { .. } => Code::TopicAlreadyExists,
            CreateRefusal::Partitions(_) => Code::InvalidPartitions,
            CreateRefusal::Replication(_) => Code::InvalidReplicationFactor,
            CreateRefusal::AssignmentWithCounts => Code::InvalidRequest,
            CreateRefusal::Assignment => Code::InvalidReplicaAssignment,
            CreateRefusal::Config(_) => Code::InvalidConfig,
            CreateRefusal::ConfigTwice { .. } => Code::InvalidConfig,
            CreateRefusal::TooManyForTopic { .. } => Code::InvalidPartitions,
            CreateRefusal::TooManyForBroker { .. } => Code::PolicyViolation,
        }
    }
}

impl KafkaError for DeleteRefusal {
    fn code(&self) -> Code {
        match self {
            DeleteRefusal::UnknownName => Code::UnknownTopicOrPartition,
            DeleteRefusal::UnknownId => Code::UnknownTopicId,
            DeleteRefusal::Duplicate => Code::InvalidRequest,
        }
    }
}

impl KafkaError for CoordinatorRefusal {
    fn code(&self) -> Code {
        match self {
            CoordinatorRefusal::NotHere => Code::NotCoordinator,
            CoordinatorRefusal::Loading => Code::CoordinatorLoadInProgress,
            CoordinatorRefusal::NotKept => Code::CoordinatorNotAvailable,
        }
    }
}

/// What members are told of a group that is not there depends on the API and its version.
impl KafkaError for GroupRefusal {
    fn code(&self) -> Code {
        match self {
            GroupRefusal::EmptyGroupId => Code::InvalidGroupId,
            GroupRefusal::UnknownGroup => Code::GroupIdNotFound,
            GroupRefusal::UnknownMember => Code::UnknownMemberId,
            GroupRefusal::MemberIdRequired => Code::MemberIdRequired,
            GroupRefusal::FencedInstance => Code::FencedInstanceId,
            GroupRefusal::IllegalGeneration => Code::IllegalGeneration,
            GroupRefusal::RebalanceInProgress => Code::RebalanceInProgress,
            GroupRefusal::SessionTimeout => Code::InvalidSessionTimeout,
            GroupRefusal::InconsistentProtocol => Code::InconsistentGroupProtocol,
            GroupRefusal::GroupFull => Code::GroupMaxSizeReached,
            GroupRefusal::TooManyGroups => Code::GroupMaxSizeReached,
            GroupRefusal::MetadataTooLarge => Code::GroupMaxSizeReached,
        }
    }
}

impl KafkaError for CommitRefusal {
    fn code(&self) -> Code {
        match self {
            CommitRefusal::UnknownTopic => Code::UnknownTopicOrPartition,
            CommitRefusal::MetadataTooLarge => Code::OffsetMetadataTooLarge,
            CommitRefusal::TooManyOffsets => Code::InvalidCommitOffsetSize,
        }
    }
}

impl KafkaError for FetchRefusal {
    fn code(&self) -> Code {
        match self {
            FetchRefusal::UnknownMember => Code::UnknownMemberId,
            FetchRefusal::StaleEpoch => Code::StaleMemberEpoch,
        }
    }
}

impl KafkaError for coordinator::DeleteRefusal {
    fn code(&self) -> Code {
        match self {
            coordinator::DeleteRefusal::EmptyGroupId => Code::InvalidGroupId,
            coordinator::DeleteRefusal::UnknownGroup => Code::GroupIdNotFound,
            coordinator::DeleteRefusal::NotEmpty => Code::NonEmptyGroup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NameProblem;
    use crate::config::topic::InvalidConfig;
    use shard::batch::{Codec, RecordErrors};
    use shard::ids::{Offset, ProducerEpoch, ProducerId};
    use std::fmt::Debug;

    fn lines<E: KafkaError + Debug>(out: &mut String, errors: Vec<E>) {
        let name = std::any::type_name::<E>();
        out.push_str(&format!("[{}]\n", name.rsplit("::").next().unwrap_or_default()));
        for error in errors {
            let text = format!("{error:?}");
            let name = text.split([' ', '(', '{']).next().unwrap_or_default();
            out.push_str(&format!("{name} {}\n", error.code().code()));
        }
    }

    fn faults() -> Vec<RequestFault> {
        use RequestFault::*;
        let over = OverSegmentBytes { bytes: 2, bytes_max: 1 };
        vec![
            ApiVersionsTooNew,
            ClientSoftware,
            UnknownTopic,
            UnknownTopicId,
            UnknownPartition,
            TopicName,
            TopicIdTooEarly,
            NameAndId,
            DeletionDisabled,
            DeletionDisabledOld,
            Acks,
            NoTransaction,
            over,
            OldLeaderEpoch,
            NewLeaderEpoch,
            FetchSession,
            PartitionTwice,
            SpecialTimestamp,
            EmptyTransactionalId,
            HalfProducer,
            NoProducerIds,
            NoOffsetsTopic,
            InternalTopic,
            NoTransactions,
            NoShareGroups,
            CoordinatorType,
            ControllerEndpoint,
            EndpointType,
            NegativeOffset,
            KeepsRecords,
            ResourceType,
            UnknownBroker,
        ]
    }

    fn batch_errors() -> Vec<BatchError> {
        use BatchError::*;
        let producer = Producer {
            producer_id: ProducerId(1),
            producer_epoch: ProducerEpoch(0),
            base_sequence: -1,
        };
        vec![
            Empty,
            Truncated { needed: 2, got: 1 },
            Length { declared: 1 },
            Several { batch: 1, got: 2 },
            Magic(1),
            Crc { stored: 1, computed: 2 },
            TooLarge { bytes: 2, bytes_max: 1 },
            BaseOffset(1),
            Count { record_count: 1, last_offset_delta: 1 },
            Control,
            producer,
            TransactionWithoutProducer,
            UnknownCodec(7),
            ZstdTooEarly,
            Compression(Codec::Gzip),
            Expansion { bytes_max: 1 },
            Records(RecordErrors::default()),
            Timestamps(RecordErrors::default()),
        ]
    }

    fn create_refusals() -> Vec<CreateRefusal> {
        use CreateRefusal::*;
        let name = String::new;
        vec![
            Duplicate,
            Name(NameProblem::Empty),
            Collision { name: name(), other: name() },
            Exists { name: name() },
            Partitions(0),
            Replication(0),
            AssignmentWithCounts,
            Assignment,
            Config(InvalidConfig::TieredStorage),
            ConfigTwice { name: name() },
            TooManyForTopic { partitions: 2, partitions_max: 1 },
            TooManyForBroker { partitions: 2, partitions_max: 1 },
        ]
    }

    fn group_lines(out: &mut String) {
        use CoordinatorRefusal as C;
        lines(out, vec![C::NotHere, C::Loading, C::NotKept]);
        use GroupRefusal as G;
        lines(
            out,
            vec![
                G::EmptyGroupId,
                G::UnknownGroup,
                G::UnknownMember,
                G::MemberIdRequired,
                G::FencedInstance,
                G::IllegalGeneration,
                G::RebalanceInProgress,
                G::SessionTimeout,
                G::InconsistentProtocol,
                G::GroupFull,
                G::TooManyGroups,
                G::MetadataTooLarge,
            ],
        );
        use CommitRefusal as O;
        lines(out, vec![O::UnknownTopic, O::MetadataTooLarge, O::TooManyOffsets]);
        lines(out, vec![FetchRefusal::UnknownMember, FetchRefusal::StaleEpoch]);
        use coordinator::DeleteRefusal as D;
        lines(out, vec![D::EmptyGroupId, D::UnknownGroup, D::NotEmpty]);
    }

    #[test]
    fn the_table() {
        let mut out = String::new();
        lines(&mut out, faults());
        lines(&mut out, batch_errors());
        let segment = AppendRefusal::TooLargeForSegment { bytes: 2, bytes_max: 1 };
        use AppendRefusal as A;
        lines(
            &mut out,
            vec![
                A::Unknown,
                A::OutOfOrderSequence,
                A::StaleProducerEpoch,
                segment,
                A::AboveHighWatermark(Offset(1)),
                A::DiskFull,
                A::LogFailed,
                A::TimedOut,
            ],
        );
        use PartitionRefusal as P;
        lines(&mut out, vec![P::Unknown, P::OutOfRange, P::Unreadable]);
        lines(&mut out, vec![CatalogDown]);
        lines(&mut out, create_refusals());
        use DeleteRefusal as D;
        lines(&mut out, vec![D::UnknownName, D::UnknownId, D::Duplicate]);
        group_lines(&mut out);
        print!("{out}");
        assert_eq!(out, TABLE);
    }

    const TABLE: &str = "\
[RequestFault]
ApiVersionsTooNew 35
ClientSoftware 42
UnknownTopic 3
UnknownTopicId 100
UnknownPartition 3
TopicName 17
TopicIdTooEarly 42
NameAndId 42
DeletionDisabled 73
DeletionDisabledOld 42
Acks 21
NoTransaction 48
OverSegmentBytes 18
OldLeaderEpoch 74
NewLeaderEpoch 75
FetchSession 70
PartitionTwice 42
SpecialTimestamp 35
EmptyTransactionalId 42
HalfProducer 42
NoProducerIds 15
NoOffsetsTopic 15
InternalTopic 17
NoTransactions 35
NoShareGroups 35
CoordinatorType 42
ControllerEndpoint 114
EndpointType 115
NegativeOffset 1
KeepsRecords 44
ResourceType 42
UnknownBroker 42
[BatchError]
Empty 87
Truncated 2
Length 2
Several 87
Magic 87
Crc 2
TooLarge 10
BaseOffset 87
Count 87
Control 87
Producer 87
TransactionWithoutProducer 87
UnknownCodec 76
ZstdTooEarly 76
Compression 87
Expansion 10
Records 87
Timestamps 32
[AppendRefusal]
Unknown 3
OutOfOrderSequence 45
StaleProducerEpoch 47
TooLargeForSegment 18
AboveHighWatermark 1
DiskFull 56
LogFailed 56
TimedOut 7
[PartitionRefusal]
Unknown 3
OutOfRange 1
Unreadable 56
[CatalogDown]
CatalogDown 56
[CreateRefusal]
Duplicate 42
Name 17
Collision 17
Exists 36
Partitions 37
Replication 38
AssignmentWithCounts 42
Assignment 39
Config 40
ConfigTwice 40
TooManyForTopic 37
TooManyForBroker 44
[DeleteRefusal]
UnknownName 3
UnknownId 100
Duplicate 42
[CoordinatorRefusal]
NotHere 16
Loading 14
NotKept 15
[GroupRefusal]
EmptyGroupId 24
UnknownGroup 69
UnknownMember 25
MemberIdRequired 79
FencedInstance 82
IllegalGeneration 22
RebalanceInProgress 27
SessionTimeout 26
InconsistentProtocol 23
GroupFull 81
TooManyGroups 81
MetadataTooLarge 81
[CommitRefusal]
UnknownTopic 3
MetadataTooLarge 12
TooManyOffsets 28
[FetchRefusal]
UnknownMember 25
StaleEpoch 113
[DeleteRefusal]
EmptyGroupId 24
UnknownGroup 69
NotEmpty 68
";
}
