//! What clients know of groups: who committed what and when, and what of it was acknowledged.
//!
//! Each commit has a stamp of its own, sent as its text, so that a committed offset says whose it
//! is. What a read may find follows from all that was asked before it: the last acknowledged
//! change, or any later one that may have happened.

use super::topics::Topics;
use super::{ensure, Check};
use crate::coordinator::{CommittedTopic, Listed};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A partition of a topic with this id.
pub type Key = (Uuid, i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Commit(Key, u64),
    /// The group is no more.
    Delete,
    /// A member joined: the group is there whatever it has committed.
    Member,
    /// A read has shown this.
    Seen(Key, Option<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    what: What,
    is_certain: bool,
}

#[derive(Debug, Default)]
struct Group {
    /// In the order in which they were asked for.
    events: BTreeMap<u64, Event>,
    /// The last generation a member was given an assignment of.
    generation: i32,
}

impl Group {
    /// What the group may have committed when a read was asked for.
    fn possible(&self, key: Key, at: u64) -> Vec<Option<u64>> {
        let mut possible = vec![None];
        for event in self.events.range(..at).map(|(_, event)| event) {
            let value = match event.what {
                What::Commit(of, stamp) if of == key => Some(stamp),
                What::Seen(of, value) if of == key => value,
                What::Delete => None,
                What::Commit(..) | What::Seen(..) | What::Member => continue,
            };
            if event.is_certain {
                possible.clear();
            }
            possible.push(value);
        }
        possible
    }

    fn keys(&self) -> Vec<Key> {
        let key = |event: &Event| match event.what {
            What::Commit(key, _) => Some(key),
            What::Delete | What::Member | What::Seen(..) => None,
        };
        let mut keys: Vec<Key> = self.events.values().filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    /// Topics nobody may have offsets of any more, and since which request.
    forgotten: BTreeMap<Uuid, u64>,
}

impl Groups {
    fn ask(&mut self, at: u64, group: &str, what: What) {
        let group = self.groups.entry(group.to_string()).or_default();
        group.events.insert(at, Event { what, is_certain: false });
    }

    pub fn ask_commit(&mut self, at: u64, group: &str, key: Key) {
        self.ask(at, group, What::Commit(key, at));
    }

    pub fn ask_delete(&mut self, at: u64, group: &str) {
        self.ask(at, group, What::Delete);
    }

    pub fn ask_join(&mut self, at: u64, group: &str) {
        self.ask(at, group, What::Member);
    }

    /// What was asked for at this time has happened, or has not.
    pub fn answered(&mut self, at: u64, group: &str, has_happened: bool) {
        let group = self.groups.get_mut(group).expect("it was asked");
        if !has_happened {
            group.events.remove(&at);
        } else if let Some(event) = group.events.get_mut(&at) {
            event.is_certain = true;
        }
    }

    pub fn forgotten(&mut self, topic: Uuid, at: u64) {
        self.forgotten.entry(topic).or_insert(at);
    }

    pub fn joined(&self, at: u64, group: &str, generation: i32) -> Check {
        let known = &self.groups[group];
        let was_deleted = known.events.range(..at).any(|(_, event)| event.what == What::Delete);
        ensure(was_deleted || generation > known.generation, || {
            format!("{group} is at generation {generation} and was at {}", known.generation)
        })
    }

    pub fn synced(&mut self, group: &str, generation: i32) {
        let group = self.groups.get_mut(group).expect("joined");
        group.generation = group.generation.max(generation);
    }

    /// No deletion was possible, since there is no such group.
    pub fn unknown(&self, at: u64, group: &str, topics: &Topics) -> Check {
        let known = &self.groups[group];
        for key in known.keys().into_iter().filter(|key| !topics.may_be_going(key.0)) {
            let possible = known.possible(key, at);
            ensure(possible.contains(&None), || format!("{group} is lost: {key:?} {possible:?}"))?;
        }
        Ok(())
    }

    /// Topics that are gone and of which the group was said to have offsets.
    pub fn dead<'a>(
        &'a self,
        topics: &'a Topics,
        found: &'a [CommittedTopic],
    ) -> impl Iterator<Item = Uuid> + 'a {
        let ids = found.iter().map(|topic| topic.topic_id);
        ids.filter(|id| topics.gone.contains_key(id))
    }

    /// What a read of all offsets of a group, or of one topic, has found.
    pub fn see(
        &mut self,
        (at, group): (u64, &str),
        topics: &Topics,
        only: Option<Uuid>,
        found: &[CommittedTopic],
    ) -> Check {
        let mut values: BTreeMap<Key, u64> = BTreeMap::new();
        for topic in found {
            let name = topics.there.get(&topic.topic_id).map(|topic| &topic.name);
            let name = name.or(topics.gone.get(&topic.topic_id));
            ensure(name == Some(&topic.topic), || format!("{group}: {topic:?} is of {name:?}"))?;
            for (partition, committed) in &topic.partitions {
                let Some(committed) = committed else { continue };
                let stamp = committed.metadata.parse::<u64>().unwrap_or(0);
                ensure(committed.offset.0 as u64 == stamp, || format!("{group}: {committed:?}"))?;
                values.insert((topic.topic_id, *partition), stamp);
            }
        }
        let mut keys: Vec<Key> = values.keys().copied().collect();
        let known = self.groups.entry(group.to_string()).or_default();
        keys.extend(known.keys());
        keys.sort_unstable();
        keys.dedup();
        for key in keys.into_iter().filter(|key| only.is_none_or(|only| key.0 == only)) {
            let value = values.get(&key).copied();
            let is_forgotten = self.forgotten.get(&key.0).is_some_and(|since| *since < at);
            ensure(!(is_forgotten && value.is_some()), || {
                format!("{group} has {value:?} of {key:?}, a topic that was deleted")
            })?;
            let possible = known.possible(key, at);
            let may_miss = value.is_none() && topics.may_be_going(key.0);
            ensure(may_miss || possible.contains(&value), || {
                let events = &known.events;
                format!("{group} has {value:?} of {key:?} at {at}, not {possible:?}: {events:?}")
            })?;
            if !may_miss {
                // Just before the read: it has a number of its own.
                let seen = Event { what: What::Seen(key, value), is_certain: true };
                known.events.insert(at + values_below(&known.events, at), seen);
            }
        }
        Ok(())
    }

    /// The groups of a partition, which are to be all of those `of` it.
    pub fn see_list(
        &self,
        at: u64,
        topics: &Topics,
        listed: &[Listed],
        of: impl Fn(&str) -> bool,
    ) -> Check {
        for (name, group) in self.groups.iter().filter(|(name, _)| of(name)) {
            let is_listed = listed.iter().any(|listed| listed.group == *name);
            let last = group.events.range(..at).rev();
            let last = last
                .map(|(_, event)| event)
                .find(|event| !matches!(event.what, What::Seen(_, None)));
            let was_deleted =
                last.is_none_or(|event| event.what == What::Delete && event.is_certain);
            ensure(!(was_deleted && is_listed), || format!("{name} was deleted: {listed:?}"))?;
            let has = |key: &Key| {
                !topics.may_be_going(key.0) && !group.possible(*key, at).contains(&None)
            };
            let is_there = group.keys().iter().any(has);
            ensure(!is_there || is_listed, || format!("{name} has offsets: {listed:?}"))?;
        }
        Ok(())
    }
}

/// Numbers are far apart, so that what one read has seen fits between two.
fn values_below(events: &BTreeMap<u64, Event>, at: u64) -> u64 {
    events.range(at..at + super::NUMBER_STEP).count() as u64
}
