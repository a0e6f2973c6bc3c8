//! The committed offsets of one group: looked up, limited, and chosen for expiry.
//!
//! Changed by `machine` alone, when a record is replayed. An offset belongs to a topic's id: what
//! was committed for a topic that has been made anew since is not told. Transactional commits are
//! not here yet.

use super::group::Retention;
use super::record::StoredOffset;
use super::request::{
    CommitRefusal, Committed, CommittedTopic, GroupLimits, OffsetCommit, WantedTopic,
};
use super::wire::STRING_MAX;
use shard::ids::Timestamp;
use std::collections::BTreeMap;
use uuid::Uuid;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    topics: BTreeMap<String, BTreeMap<i32, StoredOffset>>,
    len: usize,
}

/// The topic and partition of an offset.
pub type Place = (String, i32);

impl Offsets {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &StoredOffset)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(|(partition, offset)| (&**topic, *partition, offset))
        })
    }

    pub fn get(&self, topic: &str, partition: i32) -> Option<&StoredOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Returns what stood there.
    pub fn put(&mut self, place: Place, offset: StoredOffset) -> Option<StoredOffset> {
        let (topic, partition) = place;
        let before = match self.topics.get_mut(&topic) {
            Some(partitions) => partitions.insert(partition, offset),
            None => self.topics.entry(topic).or_default().insert(partition, offset),
        };
        self.len += usize::from(before.is_none());
        before
    }

    pub fn remove(&mut self, place: &Place) -> Option<StoredOffset> {
        let (topic, partition) = place;
        let partitions = self.topics.get_mut(topic)?;
        let before = partitions.remove(partition)?;
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
        self.len -= 1;
        Some(before)
    }

    /// What is to be stored for a commit. `added` counts the partitions that are new in its
    /// request.
    pub fn accept(
        &self,
        commit: OffsetCommit,
        added: &mut usize,
        limits: &GroupLimits,
        now: Timestamp,
    ) -> Result<(Place, StoredOffset), CommitRefusal> {
        if commit.topic.len() > STRING_MAX {
            return Err(CommitRefusal::UnknownTopic);
        }
        let Committed { offset, leader_epoch, metadata, .. } = commit.committed;
        if metadata.len() > limits.offset_metadata_bytes_max {
            return Err(CommitRefusal::MetadataTooLarge);
        }
        if self.get(&commit.topic, commit.partition).is_none() {
            if self.len + *added >= limits.offsets_max {
                return Err(CommitRefusal::TooManyOffsets);
            }
            *added += 1;
        }
        let expires = commit.retention_ms.map(|ms| Timestamp(now.0.saturating_add(ms)));
        let topic_id = commit.topic_id;
        let stored = StoredOffset { offset, leader_epoch, metadata, time: now, expires, topic_id };
        Ok(((commit.topic, commit.partition), stored))
    }

    /// Everything, by topic. A name stands twice if offsets of an older topic of that name are
    /// still there.
    pub fn all(&self) -> Vec<CommittedTopic> {
        let mut topics: BTreeMap<(&str, Uuid), Vec<_>> = BTreeMap::new();
        for (topic, partition, offset) in self.iter() {
            let partitions = topics.entry((topic, offset.topic_id)).or_default();
            partitions.push((partition, Some(committed(offset))));
        }
        let topic = |((topic, topic_id), partitions): ((&str, Uuid), Vec<_>)| CommittedTopic {
            topic: topic.to_string(),
            topic_id,
            partitions,
        };
        topics.into_iter().map(topic).collect()
    }

    pub fn wanted(&self, wanted: &WantedTopic) -> CommittedTopic {
        let of = |partition: &i32| {
            let offset = self.get(&wanted.topic, *partition);
            let offset = offset.filter(|offset| is_same(offset.topic_id, wanted.topic_id));
            (*partition, offset.map(committed))
        };
        CommittedTopic {
            topic: wanted.topic.clone(),
            topic_id: wanted.topic_id,
            partitions: wanted.partitions.iter().map(of).collect(),
        }
    }

    pub fn of_topic(&self, topic_id: Uuid) -> Vec<Place> {
        let is_its = |(_, _, offset): &(&str, i32, &StoredOffset)| offset.topic_id == topic_id;
        self.iter().filter(is_its).map(|(topic, partition, _)| (topic.into(), partition)).collect()
    }

    /// Those whose time is over.
    pub fn expired(&self, retention: &Retention, now: Timestamp, retention_ms: i64) -> Vec<Place> {
        let is_over = |topic: &str, offset: &StoredOffset| {
            let since = match retention {
                Retention::Kept => return false,
                Retention::SinceCommit { spared } if spared.contains(topic) => return false,
                Retention::SinceCommit { .. } => offset.time,
                // Kafka counts from when the group became empty even for what a simple consumer
                // committed since; that would lose a fresh commit.
                Retention::SinceEmpty(since) => {
                    since.map_or(offset.time, |since| since.max(offset.time))
                }
            };
            let end = offset.expires.unwrap_or(Timestamp(since.0.saturating_add(retention_ms)));
            now >= end
        };
        self.iter()
            .filter(|(topic, _, offset)| is_over(topic, offset))
            .map(|(topic, partition, _)| (topic.to_string(), partition))
            .collect()
    }
}

/// Records of Kafka before 4.1 name no id: any topic of the name is meant.
fn is_same(stored: Uuid, wanted: Uuid) -> bool {
    stored == wanted || stored.is_nil() || wanted.is_nil()
}

fn committed(offset: &StoredOffset) -> Committed {
    Committed {
        offset: offset.offset,
        leader_epoch: offset.leader_epoch,
        metadata: offset.metadata.clone(),
        time: offset.time,
    }
}
