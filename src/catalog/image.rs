//! The topics as every core sees them: an immutable picture with look-ups by name and by id.
//!
//! A picture is shared by all cores and replaced, never changed. Its maps are split into buckets
//! behind references, so that the next picture copies the one bucket a change touches and not
//! 100,000 topics. Every look-up says which view asks: a topic of another view is not there.

use crate::config::topic::{Overrides, TopicSettings};
use shard::ids::{LogId, PartitionKey};
use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use uuid::Uuid;

/// Few enough to copy at each change, many enough that a bucket is small.
const BUCKETS: usize = 256;

/// A topic of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    pub view: u32,
    pub id: Uuid,
    pub name: Arc<str>,
    /// The log of each partition.
    pub logs: Vec<LogId>,
    /// What the topic says of itself; all else follows the broker's defaults.
    pub configs: Overrides,
    /// What follows from that and the broker's configuration.
    pub settings: Arc<TopicSettings>,
    pub created_ms: i64,
}

impl Topic {
    pub fn partitions(&self) -> i32 {
        i32::try_from(self.logs.len()).unwrap_or(i32::MAX)
    }

    /// The log of a partition; `None` when the topic has no such partition.
    pub fn log_of(&self, partition: i32) -> Option<LogId> {
        self.logs.get(usize::try_from(partition).ok()?).copied()
    }

    pub fn key(&self, partition: i32) -> PartitionKey {
        PartitionKey { view: self.view, topic: self.id, partition }
    }

    pub fn is_internal(&self) -> bool {
        super::is_internal(&self.name)
    }
}

/// A new picture of the catalogue, and the topics it has lost.
#[derive(Clone, Debug)]
pub struct ImageChange {
    pub image: Arc<CatalogImage>,
    pub removed: Vec<Arc<Topic>>,
}

/// How a request names a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicLookup<'a> {
    Name(&'a str),
    Id(Uuid),
}

/// All topics at one moment.
#[derive(Clone, Debug, Default)]
pub struct CatalogImage {
    /// Rises with each change.
    pub version: u64,
    by_name: BTreeMap<u32, Buckets<Arc<str>>>,
    by_id: Buckets<Uuid>,
    topics: usize,
    partitions: usize,
}

impl CatalogImage {
    pub fn find(&self, view: u32, topic: TopicLookup<'_>) -> Option<&Arc<Topic>> {
        match topic {
            TopicLookup::Name(name) => self.by_name(view, name),
            TopicLookup::Id(id) => self.by_id(view, id),
        }
    }

    pub fn by_name(&self, view: u32, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(&view)?.get(name)
    }

    pub fn by_id(&self, view: u32, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id).filter(|topic| topic.view == view)
    }

    /// The topic of an id in whatever view: for the broker's own housekeeping.
    pub fn of_any_view(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// The topics of this name, one of each view that has it.
    pub fn topics_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<Topic>> {
        self.by_name.values().filter_map(move |names| names.get(name))
    }

    /// All topics of a view, in no particular order.
    pub fn topics(&self, view: u32) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.values().filter(move |topic| topic.view == view)
    }

    /// All topics of all views: for start and for housekeeping, not for answering clients.
    pub fn every_topic(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.values()
    }

    pub fn topic_count(&self) -> usize {
        self.topics
    }

    pub fn partition_count(&self) -> usize {
        self.partitions
    }

    pub(super) fn insert(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        self.topics += 1;
        self.partitions += topic.logs.len();
        let names = self.by_name.entry(topic.view).or_default();
        names.insert(topic.name.clone(), topic.clone());
        self.by_id.insert(topic.id, topic);
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Arc<Topic>> {
        let topic = self.by_id.remove(&id)?;
        if let Some(names) = self.by_name.get_mut(&topic.view) {
            names.remove(&*topic.name);
        }
        self.topics -= 1;
        self.partitions -= topic.logs.len();
        Some(topic)
    }
}

/// A map in buckets that are shared between pictures until one of them changes. Clients choose
/// names, so the hash is keyed.
#[derive(Clone, Debug)]
struct Buckets<K> {
    buckets: Vec<Arc<HashMap<K, Arc<Topic>>>>,
    chooser: RandomState,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Buckets { buckets: vec![Arc::default(); BUCKETS], chooser: RandomState::new() }
    }
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    fn bucket<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        self.chooser.hash_one(key) as usize % BUCKETS
    }

    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&Arc<Topic>>
    where
        K: Borrow<Q>,
    {
        self.buckets.get(self.bucket(key))?.get(key)
    }

    fn insert(&mut self, key: K, topic: Arc<Topic>) {
        let bucket = self.bucket(&key);
        Arc::make_mut(&mut self.buckets[bucket]).insert(key, topic);
    }

    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<Arc<Topic>>
    where
        K: Borrow<Q>,
    {
        let bucket = self.bucket(key);
        Arc::make_mut(&mut self.buckets[bucket]).remove(key)
    }

    fn values(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.buckets.iter().flat_map(|bucket| bucket.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn topic(view: u32, number: u128) -> Topic {
        let settings = TopicSettings::resolve(&Overrides::new(), &Config::default());
        Topic {
            view,
            id: Uuid::from_u128(number),
            name: format!("t{number}").into(),
            logs: vec![LogId(0), LogId(1)],
            configs: Overrides::new(),
            settings: Arc::new(settings.unwrap()),
            created_ms: 0,
        }
    }

    #[test]
    fn look_ups_see_their_view_alone() {
        let mut image = CatalogImage::default();
        image.insert(topic(0, 1));
        image.insert(topic(1, 2));
        assert!(image.by_name(0, "t1").is_some());
        assert!(image.by_name(1, "t1").is_none());
        assert!(image.by_id(0, Uuid::from_u128(2)).is_none());
        assert!(image.by_id(1, Uuid::from_u128(2)).is_some());
        assert_eq!(image.topics(1).count(), 1);
        assert_eq!((image.topic_count(), image.partition_count()), (2, 4));
    }

    #[test]
    fn a_picture_taken_does_not_change() {
        let mut image = CatalogImage::default();
        (0..1000).for_each(|number| image.insert(topic(0, number)));
        let before = image.clone();
        image.remove(Uuid::from_u128(3)).unwrap();
        image.insert(topic(0, 1000));
        assert!(before.by_name(0, "t3").is_some() && before.by_name(0, "t1000").is_none());
        assert!(image.by_name(0, "t3").is_none() && image.by_name(0, "t1000").is_some());
        assert_eq!(image.topic_count(), 1000);
        assert_eq!(image.topics(0).count(), 1000);
        let largest = image.by_id.buckets.iter().map(|bucket| bucket.len()).max();
        assert!(largest < Some(40), "buckets are uneven: {largest:?}");
    }

    #[test]
    fn a_partition_outside_the_topic_has_no_log() {
        let topic = topic(0, 1);
        assert_eq!(topic.log_of(1), Some(LogId(1)));
        assert_eq!(topic.log_of(2), None);
        assert_eq!(topic.log_of(-1), None);
    }
}
