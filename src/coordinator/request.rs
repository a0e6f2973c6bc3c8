//! What handlers ask of a group's coordinator, and what it answers: Kafka's meaning without its
//! versions. Handlers translate to and from the wire; the machine sees only this.
//!
//! Offsets name their topic by name *and* id: an offset of a topic that was deleted and made again
//! is not an offset of the new one.

use bytes::Bytes;
use shard::ids::{Offset, Timestamp};
use uuid::Uuid;

/// Limits and times, each with its configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
    pub session_timeout_ms: (i64, i64),
    /// `group.initial.rebalance.delay.ms`: how long the first rebalance of an empty group waits.
    pub initial_rebalance_delay_ms: i64,
    /// `group.max.size`: members of one group.
    pub members_max: usize,
    /// `group.max.count`: groups of one partition of `__consumer_offsets`.
    pub groups_max: usize,
    /// `group.metadata.max.bytes`: subscriptions and assignments of all members of a group.
    pub metadata_bytes_max: usize,
    /// `group.offsets.max`: partitions a group has committed offsets of.
    pub offsets_max: usize,
    /// `offset.metadata.max.bytes`: the text committed with one offset.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_check_ms: i64,
}

/// One request to the coordinator of a group, or of all groups of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRequest {
    Join(Join),
    Sync(Sync),
    Heartbeat(Session),
    Leave {
        group: String,
        members: Vec<Leaving>,
    },
    Commit(Commit),
    Fetch(FetchOffsets),
    Describe {
        group: String,
    },
    Delete {
        group: String,
    },
    /// All groups of the partition that pass the filter.
    List(ListFilter),
    /// These topics are gone: their offsets go from all groups of the partition.
    Forget {
        topics: Vec<Uuid>,
    },
}

/// The answer to a request, in the variant of its name.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutput {
    Join(Result<Joined, JoinRefusal>),
    Sync(Result<Synced, GroupRefusal>),
    Heartbeat(Result<(), GroupRefusal>),
    /// One for each member asked about, also when the group is not there; refused as a whole for
    /// an empty group id.
    Leave(Result<Vec<Result<(), GroupRefusal>>, GroupRefusal>),
    /// One for each offset, in their order; refused as a whole by the member's state.
    Commit(Result<Vec<Result<(), CommitRefusal>>, GroupRefusal>),
    Fetch(Result<Vec<CommittedTopic>, FetchRefusal>),
    /// None when there is no such group.
    Describe(Option<Described>),
    Delete(Result<(), DeleteRefusal>),
    List(Vec<Listed>),
    Forget,
}

/// Who a member says it is. A simple consumer that commits has neither: empty id, generation -1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub group: String,
    pub member: String,
    /// The instance id of a static member (KIP-345).
    pub instance: Option<String>,
    pub generation: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    pub group: String,
    /// Empty for a member that is new or has only an instance id.
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    /// The address the client comes from, as Kafka shows it: `/127.0.0.1`.
    pub client_host: String,
    pub session_timeout_ms: i32,
    /// Version 0 has none: the session timeout is meant.
    pub rebalance_timeout_ms: Option<i32>,
    pub protocol_type: String,
    /// Name and subscription, the most wanted first.
    pub protocols: Vec<(String, Bytes)>,
    /// A new dynamic member is first told its id and joins again with it (KIP-394, version 4).
    pub two_steps: bool,
    /// The client understands that a leader need not assign anew (KIP-814, version 9).
    pub may_skip_assignment: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: String,
    pub member: String,
    pub skip_assignment: bool,
    /// For the leader alone; empty for all others.
    pub members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    pub member: String,
    pub instance: Option<String>,
    pub subscription: Bytes,
}

/// Why a join failed, and the member id the answer carries with it: the new one for
/// `MemberIdRequired`, none for `GroupFull` and for members that were removed while they waited,
/// else the one that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefusal {
    pub refusal: GroupRefusal,
    pub member: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    pub session: Session,
    /// Told from version 5 on, and then checked.
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    /// From the leader; empty from others.
    pub assignments: Vec<(String, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    pub protocol_type: String,
    pub protocol: String,
    pub assignment: Bytes,
}

/// One member that leaves, or is removed by its instance id with an empty member id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    pub member: String,
    pub instance: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    pub session: Session,
    pub offsets: Vec<OffsetCommit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    pub topic: String,
    pub topic_id: Uuid,
    pub partition: i32,
    pub committed: Committed,
    /// The client's own retention (versions 2 to 4), when it asks for one.
    pub retention_ms: Option<i64>,
}

/// A committed offset. The commit time is set by the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: Offset,
    /// -1 when the client knows none.
    pub leader_epoch: i32,
    pub metadata: String,
    pub time: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchOffsets {
    pub group: String,
    /// Member id and member epoch, from version 9 on: only the new protocol's members have them.
    pub member: Option<(String, i32)>,
    /// None for everything the group has committed.
    pub topics: Option<Vec<WantedTopic>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTopic {
    pub topic: String,
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

/// Committed offsets of a topic; `None` for a partition without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedTopic {
    pub topic: String,
    pub topic_id: Uuid,
    pub partitions: Vec<(i32, Option<Committed>)>,
}

/// Kafka's names for what a classic group may be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Dead,
}

impl GroupState {
    /// As clients show it.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub state: GroupState,
    /// Empty for a group that only commits offsets.
    pub protocol_type: String,
    /// Empty unless the group is stable.
    pub protocol: String,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// Both empty unless the group is stable.
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// Which groups to list; names in lower case, empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    pub states: Vec<String>,
    pub types: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub group: String,
    pub protocol_type: String,
    pub state: GroupState,
}

/// Why a member is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupRefusal {
    #[error("a group id cannot be empty")]
    EmptyGroupId,
    #[error("there is no such group")]
    UnknownGroup,
    #[error("the group has no such member")]
    UnknownMember,
    #[error("join again with the member id of this answer")]
    MemberIdRequired,
    #[error("another member has taken over this instance id")]
    FencedInstance,
    #[error("the group is at another generation")]
    IllegalGeneration,
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    #[error("the session timeout is outside what the broker allows")]
    SessionTimeout,
    #[error("no protocol in common with the members of the group")]
    InconsistentProtocol,
    #[error("the group has as many members as group.max.size allows")]
    GroupFull,
    #[error("there are as many groups as group.max.count allows")]
    TooManyGroups,
    #[error("subscriptions and assignments exceed group.metadata.max.bytes")]
    MetadataTooLarge,
}

/// Why one offset was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefusal {
    #[error("the topic is not there")]
    UnknownTopic,
    #[error("the text with the offset exceeds offset.metadata.max.bytes")]
    MetadataTooLarge,
    #[error("the group has committed as many partitions as group.offsets.max allows")]
    TooManyOffsets,
}

/// Why a group's offsets are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchRefusal {
    #[error("the group has no such member")]
    UnknownMember,
    #[error("the member epoch is not the current one")]
    StaleEpoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefusal {
    #[error("a group id cannot be empty")]
    EmptyGroupId,
    #[error("there is no such group")]
    UnknownGroup,
    #[error("the group has members")]
    NotEmpty,
}

impl GroupRequest {
    /// The group it is about; none for requests to all groups of a partition.
    pub fn group(&self) -> Option<&str> {
        match self {
            GroupRequest::Join(join) => Some(&join.group),
            GroupRequest::Sync(sync) => Some(&sync.session.group),
            GroupRequest::Heartbeat(session) => Some(&session.group),
            GroupRequest::Commit(commit) => Some(&commit.session.group),
            GroupRequest::Fetch(fetch) => Some(&fetch.group),
            GroupRequest::Leave { group, .. }
            | GroupRequest::Describe { group }
            | GroupRequest::Delete { group } => Some(group),
            GroupRequest::List(_) | GroupRequest::Forget { .. } => None,
        }
    }
}
