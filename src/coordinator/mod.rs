//! The coordinators: consumer groups and their committed offsets, as pure state machines.
//!
//! Each partition of `__consumer_offsets` has one `GroupMachine` with all groups whose ids hash to
//! it. The machine knows no API versions, no Kafka error codes and no clock; handlers translate
//! requests into what is in `request`, the shell of `state_machine` drives it.

mod group;
mod machine;
mod offsets;
mod record;
mod request;
mod sweep;
mod wire;

#[cfg(test)]
mod members_test;
#[cfg(test)]
mod offsets_test;
#[cfg(test)]
mod rebalance_test;
#[cfg(test)]
mod record_test;
#[cfg(test)]
mod script;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod sim_client;
#[cfg(test)]
mod static_test;

pub use machine::{Counts, GroupMachine, GroupTimer, Position};
pub use record::{GroupRecord, RecordError, StoredGroup, StoredMember, StoredOffset};
pub use request::{
    Commit, CommitRefusal, Committed, CommittedTopic, DeleteRefusal, Described, DescribedMember,
    FetchOffsets, FetchRefusal, GroupLimits, GroupOutput, GroupRefusal, GroupRequest, GroupState,
    Join, JoinRefusal, Joined, JoinedMember, Leaving, ListFilter, Listed, OffsetCommit, Session,
    Sync, Synced, WantedTopic,
};

/// The internal topic with groups and their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The partition of `__consumer_offsets` that has a group: Java's hash of the id without its sign,
/// as Apache Kafka does it, so that tools find the group where they look.
pub fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash = group
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_lie_where_kafka_puts_them() {
        // Java: "a".hashCode() = 97, "group" = 98629247, "polygenelubricants" = Integer.MIN_VALUE.
        for (group, partition) in [("", 0), ("a", 47), ("group", 47), ("polygenelubricants", 0)] {
            assert_eq!(partition_of(group, 50), partition, "{group}");
        }
        // Two UTF-16 units: 0xd83c * 31 + 0xdf0b.
        assert_eq!(partition_of("\u{1f30b}", 50), 35);
    }
}
