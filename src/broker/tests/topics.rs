//! What clients know of topics and their records: a topic is an id, a partition a list of batches.
//!
//! What was acknowledged or seen is certain; what was only asked for may be there or not, until a
//! broker that starts has shown which.

use super::{broken, ensure, Check, Violation};
use crate::catalog::{CatalogImage, Topic, DEFAULT_VIEW};
use crate::cores::front::PartitionAt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// A batch somebody sent: its records all have this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub stamp: u64,
    pub records: i32,
    pub value_bytes: usize,
}

#[derive(Debug)]
pub struct Part {
    pub at: PartitionAt,
    /// Everything that was sent, in order.
    pub sent: BTreeMap<u64, Sent>,
    /// What is certain, by base offset.
    pub firm: BTreeMap<i64, Sent>,
    /// Where the log starts at least, and at most.
    pub start_promised: i64,
    pub start_asked: i64,
    /// What this life has shown.
    pub start_shown: i64,
}

impl Part {
    pub fn firm_end(&self) -> i64 {
        let last = self.firm.last_key_value();
        last.map_or(0, |(base, sent)| base + i64::from(sent.records)).max(self.start_promised)
    }

    /// A batch is known to be there.
    pub fn make_firm(&mut self, base: i64, sent: Sent) -> Check {
        let end = base + i64::from(sent.records);
        let before = self.firm.range(..end).next_back();
        match before {
            Some((at, other)) if *at == base && *other == sent => return Ok(()),
            Some((at, other)) if at + i64::from(other.records) > base => {
                return broken(format!("{}: {other:?} at {at} and {sent:?} at {base}", self.at.key))
            }
            Some(_) | None => {}
        }
        self.firm.insert(base, sent);
        Ok(())
    }

    pub fn see_start(&mut self, log_start: i64) -> Check {
        let least = self.start_promised.max(self.start_shown);
        let most = self.start_asked.max(least);
        ensure((least..=most).contains(&log_start), || {
            format!("{} starts at {log_start}, not within {least}..={most}", self.at.key)
        })?;
        self.start_shown = log_start;
        Ok(())
    }

    pub fn promise_start(&mut self, log_start: i64) {
        self.start_promised = self.start_promised.max(log_start);
        self.start_shown = self.start_shown.max(log_start);
        let promised = self.start_promised;
        self.firm.retain(|base, sent| base + i64::from(sent.records) > promised);
    }

    /// All batches that were read from the log start to the high watermark.
    pub fn see_records(&mut self, start: i64, end: i64, read: &[(i64, Sent)]) -> Check {
        let key = self.at.key;
        ensure(end >= self.firm_end(), || {
            format!("{key} ends at {end}, {:?} is certain", self.firm.last_key_value())
        })?;
        let mut next = None;
        for (base, sent) in read {
            let known = self.sent.get(&sent.stamp);
            ensure(known == Some(sent), || format!("{key}: {sent:?} was read, {known:?} sent"))?;
            let follows = next.map_or(*base <= start, |(offset, _)| offset == *base);
            let ascends = next.is_none_or(|(_, stamp)| stamp < sent.stamp);
            ensure(follows && ascends, || format!("{key}: {sent:?} at {base} behind {next:?}"))?;
            next = Some((base + i64::from(sent.records), sent.stamp));
        }
        let read_end = next.map_or(start, |(offset, _)| offset);
        ensure(read_end == end, || format!("{key}: read up to {read_end} of {start}..{end}"))?;
        for (base, sent) in self.firm.range(..) {
            let is_needed = base + i64::from(sent.records) > start;
            ensure(!is_needed || read.contains(&(*base, *sent)), || {
                format!("{key}: {sent:?} at {base} is certain, read from {start}: {read:?}")
            })?;
        }
        read.iter().try_for_each(|(base, sent)| self.make_firm(*base, *sent))
    }
}

#[derive(Debug)]
pub struct TopicModel {
    pub name: String,
    /// Deletions that were asked for and may have happened.
    pub deletions: u32,
    pub parts: Vec<Part>,
}

/// A creation without an outcome.
#[derive(Debug)]
struct Creating {
    number: u64,
    name: String,
    partitions: i32,
    id: Option<Uuid>,
}

#[derive(Debug, Default)]
pub struct Topics {
    pub there: BTreeMap<Uuid, TopicModel>,
    /// Of topics that are gone for good.
    pub gone: BTreeMap<Uuid, String>,
    creating: Vec<Creating>,
    /// Ids that creations were answered with.
    acknowledged: BTreeSet<Uuid>,
    producer_ids_end: i64,
}

impl Topics {
    pub fn may_be_going(&self, id: Uuid) -> bool {
        self.there.get(&id).is_none_or(|topic| topic.deletions > 0)
    }

    pub fn part(&mut self, id: Uuid, partition: i32) -> Option<&mut Part> {
        self.there.get_mut(&id)?.parts.get_mut(partition as usize)
    }

    pub fn ask_create(&mut self, number: u64, name: &str, partitions: i32) {
        self.creating.push(Creating { number, name: name.to_string(), partitions, id: None });
    }

    /// The outcome of a creation: the id, after the picture with it was seen, or none when it was
    /// refused.
    pub fn created(&mut self, number: u64, id: Option<Uuid>) -> Check {
        let at = self.creating.iter().position(|creating| creating.number == number);
        let creating = self.creating.remove(at.expect("it was asked for in this life"));
        let Some(id) = id else { return Ok(()) };
        ensure(self.acknowledged.insert(id), || format!("{creating:?} got {id}, as one before"))?;
        ensure(self.there.contains_key(&id) || self.gone.contains_key(&id), || {
            format!("{creating:?} was answered with {id}, which is not seen")
        })
    }

    pub fn ask_delete(&mut self, id: Uuid) {
        if let Some(topic) = self.there.get_mut(&id) {
            topic.deletions += 1;
        }
    }

    pub fn deleted(&mut self, id: Uuid, image: &CatalogImage) -> Check {
        ensure(image.by_id(DEFAULT_VIEW, id).is_none(), || {
            format!("{id} was deleted and is seen")
        })?;
        self.forget(id);
        Ok(())
    }

    /// A deletion was refused because there is no such topic.
    pub fn not_deleted(&mut self, id: Uuid) -> Check {
        let deletions = self.there.get(&id).map_or(2, |topic| topic.deletions);
        ensure(deletions > 1, || format!("{id} is there and cannot be deleted"))
    }

    fn forget(&mut self, id: Uuid) {
        if let Some(topic) = self.there.remove(&id) {
            self.gone.insert(id, topic.name);
        }
    }

    pub fn producer_ids(&mut self, from: i64, to: i64) -> Check {
        let end = self.producer_ids_end;
        ensure(from >= end && to > from, || format!("producer ids {from}..{to} after {end}"))?;
        self.producer_ids_end = to;
        Ok(())
    }

    /// Looks at the topics a core sees.
    pub fn see(&mut self, image: &CatalogImage) -> Check {
        for topic in image.topics(DEFAULT_VIEW) {
            ensure(!self.gone.contains_key(&topic.id), || format!("{} came back", topic.id))?;
            match self.there.get(&topic.id) {
                Some(known) => {
                    let is_same = known.name == *topic.name && places(topic) == ats(known);
                    ensure(is_same, || format!("{topic:?} was {known:?}"))?;
                }
                None => self.meet(topic)?,
            }
        }
        let is_missing = |id: &&Uuid| image.by_id(DEFAULT_VIEW, **id).is_none();
        let missing: Vec<Uuid> = self.there.keys().filter(is_missing).copied().collect();
        for id in missing {
            let topic = &self.there[&id];
            ensure(topic.deletions > 0, || format!("the topic {} ({id}) is lost", topic.name))?;
            self.forget(id);
        }
        Ok(())
    }

    /// A broker has started: what it shows is how it is.
    pub fn start(&mut self, image: &CatalogImage) -> Check {
        self.see(image)?;
        self.creating.clear();
        for topic in self.there.values_mut() {
            topic.deletions = 0;
            topic.parts.iter_mut().for_each(|part| part.start_shown = part.start_promised);
        }
        Ok(())
    }

    fn meet(&mut self, topic: &Arc<Topic>) -> Check {
        let is_it = |it: &&mut Creating| {
            it.name == *topic.name && it.partitions == topic.partitions() && it.id.is_none()
        };
        let Some(creating) = self.creating.iter_mut().find(is_it) else {
            return Err(Violation(format!("nobody made {topic:?}, {:?}", self.creating)));
        };
        creating.id = Some(topic.id);
        let part = |at: PartitionAt| Part {
            at,
            sent: BTreeMap::new(),
            firm: BTreeMap::new(),
            start_promised: 0,
            start_asked: 0,
            start_shown: 0,
        };
        let parts = places(topic).into_iter().map(part).collect();
        let model = TopicModel { name: topic.name.to_string(), deletions: 0, parts };
        self.there.insert(topic.id, model);
        Ok(())
    }
}

fn places(topic: &Topic) -> Vec<PartitionAt> {
    let place = |partition| {
        let log = topic.log_of(partition).expect("it has this partition");
        PartitionAt { log, key: topic.key(partition) }
    };
    (0..topic.partitions()).map(place).collect()
}

fn ats(topic: &TopicModel) -> Vec<PartitionAt> {
    topic.parts.iter().map(|part| part.at).collect()
}
