//! All groups of one partition of `__consumer_offsets`, as one state machine.
//!
//! Finds the group a request is about, makes it when it may be made, and holds the limits on
//! groups and offsets; `sweep` lets them expire. Durable are stored groups and offsets, changed by
//! `replay`; a group's `Classic` is soft and made from what is stored by `loaded`. Maps are
//! ordered: a run is the same each time it is repeated, and no client can choose ids that collide.
//!
//! Not here yet: transactional commits, OffsetDelete, the newer group protocols.

use super::group::{Check, Classic, Turn};
use super::offsets::{Offsets, Place};
use super::record::{GroupRecord, StoredGroup, StoredOffset};
use super::request::{
    Commit, CommittedTopic, DeleteRefusal, FetchOffsets, GroupLimits, GroupOutput, GroupRefusal,
    GroupRequest, GroupState, Join, Leaving, ListFilter, OffsetCommit, Session,
};
use super::sweep::{offset_record, Forgetting};
use super::wire::STRING_MAX;
use crate::state_machine::{Cause, IfRefused, Machine, Moment, ReplyTo, Step};
use shard::ids::Offset;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use uuid::Uuid;

/// The type of group this is, as a filter names it.
const CLASSIC: &str = "classic";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupTimer {
    /// A member, or one that was only told its id, was not heard of.
    Session { group: Arc<str>, member: Arc<str> },
    /// The time to join in a rebalance.
    Joins { group: Arc<str> },
    /// The time to sync after it.
    Syncs { group: Arc<str> },
    /// Offsets are looked through for what has expired.
    Expiry,
    /// Offsets of topics that are gone are deleted, some at a time.
    Forgetting,
}

/// What there is, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub groups: usize,
    pub members: usize,
    pub offsets: usize,
}

#[derive(Debug)]
pub struct GroupMachine {
    limits: Arc<GroupLimits>,
    pub(super) groups: BTreeMap<Arc<str>, Group>,
    /// Which groups have how many offsets of a topic.
    pub(super) topics: BTreeMap<Uuid, BTreeMap<Arc<str>, usize>>,
    offsets: usize,
    /// The group up to which this round of expiry has come.
    pub(super) looked_through: Option<Arc<str>>,
    pub(super) forgetting: VecDeque<Forgetting>,
}

/// How far a group has come in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub group: Arc<str>,
    pub topic: Uuid,
    pub partition: i32,
    /// The next one it reads.
    pub offset: Offset,
}

#[derive(Debug)]
pub struct Group {
    pub(super) stored: Option<StoredGroup>,
    pub(super) offsets: Offsets,
    pub(super) live: Classic,
}

impl Group {
    fn new(id: Arc<str>) -> Group {
        Group { stored: None, offsets: Offsets::default(), live: Classic::new(id) }
    }

    fn is_vacant(&self) -> bool {
        self.stored.is_none() && self.offsets.is_empty() && self.live.is_idle()
    }
}

impl Machine for GroupMachine {
    type Input = GroupRequest;
    type Output = GroupOutput;
    type Record = GroupRecord;
    type Timer = GroupTimer;
    type Effect = Infallible;

    fn fresh_ids(input: &GroupRequest) -> usize {
        match input {
            GroupRequest::Join(join) => usize::from(join.member.is_empty()),
            _ => 0,
        }
    }

    fn step(&mut self, cause: Cause<Self>, at: Moment<'_>) -> Step<Self> {
        let limits = self.limits.clone();
        let mut turn = Turn::new(&limits, at);
        match cause {
            Cause::Request { input, reply_to } => self.request(input, reply_to, &mut turn),
            Cause::Timer(timer) => self.timer(timer, &mut turn),
        }
        turn.step
    }

    fn replay(&mut self, record: GroupRecord) {
        match record {
            GroupRecord::Group { group, value } => {
                if value.is_some() || self.groups.contains_key(&*group) {
                    self.group(&group).stored = value;
                    self.drop_vacant(&group);
                }
            }
            GroupRecord::Offset { group, topic, partition, value: Some(offset) } => {
                self.put_offset(&group, (topic, partition), offset);
            }
            GroupRecord::Offset { group, topic, partition, value: None } => {
                self.remove_offset(&group, &(topic, partition));
                self.drop_vacant(&group);
            }
        }
    }

    fn loaded(&mut self, at: Moment<'_>) -> Step<Self> {
        let limits = self.limits.clone();
        let mut turn = Turn::new(&limits, at);
        for (id, group) in &mut self.groups {
            if let Some(stored) = &group.stored {
                group.live = Classic::load(id.clone(), stored, &mut turn);
                group.live.shrink(&mut turn);
            }
        }
        turn.set_timer(GroupTimer::Expiry, limits.offsets_check_ms.max(1) as u64);
        turn.step
    }
}

impl GroupMachine {
    pub fn new(limits: Arc<GroupLimits>) -> GroupMachine {
        GroupMachine {
            limits,
            groups: BTreeMap::new(),
            topics: BTreeMap::new(),
            offsets: 0,
            looked_through: None,
            forgetting: VecDeque::new(),
        }
    }

    /// The ids of all topics that offsets are committed of.
    pub fn topics(&self) -> BTreeSet<Uuid> {
        self.topics.keys().copied().filter(|id| !id.is_nil()).collect()
    }

    /// Where groups stand in topics that are known by their ids, of as many groups as have no more
    /// than `most` offsets together.
    pub fn positions(&self, most: usize) -> Vec<Position> {
        let mut positions = Vec::new();
        for (group, state) in &self.groups {
            if positions.len() + state.offsets.len() > most {
                break;
            }
            let known = state.offsets.iter().filter(|(_, _, offset)| !offset.topic_id.is_nil());
            positions.extend(known.map(|(_, partition, offset)| Position {
                group: group.clone(),
                topic: offset.topic_id,
                partition,
                offset: offset.offset,
            }));
        }
        positions
    }

    pub fn counts(&self) -> Counts {
        Counts {
            groups: self.groups.len(),
            members: self.groups.values().map(|group| group.live.members()).sum(),
            offsets: self.offsets,
        }
    }

    fn request(&mut self, input: GroupRequest, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        match input {
            GroupRequest::Join(join) => self.join(&join, reply_to, turn),
            GroupRequest::Sync(sync) => {
                let id = sync.session.group.clone();
                match self.live(&id) {
                    Ok(group) => group.sync(sync, reply_to, turn),
                    Err(refusal) => turn.synced(reply_to, Err(refusal)),
                }
            }
            GroupRequest::Heartbeat(session) => {
                let result = self.heartbeat(&session, turn);
                turn.reply(reply_to, GroupOutput::Heartbeat(result));
            }
            GroupRequest::Leave { group, members } => {
                let result = self.leave(&group, &members, turn);
                turn.reply(reply_to, GroupOutput::Leave(result));
            }
            GroupRequest::Commit(commit) => self.commit(commit, reply_to, turn),
            GroupRequest::Fetch(fetch) => {
                turn.reply(reply_to, GroupOutput::Fetch(Ok(self.fetch(&fetch))));
            }
            GroupRequest::Describe { group } => {
                let described = self.groups.get(&*group).map(|group| group.live.describe());
                turn.reply(reply_to, described.unwrap_or(GroupOutput::Describe(None)));
            }
            GroupRequest::Delete { group } => {
                let result = self.delete(&group, turn);
                turn.reply(reply_to, GroupOutput::Delete(result));
            }
            GroupRequest::List(filter) => turn.reply(reply_to, self.list(&filter)),
            GroupRequest::Forget { topics } => self.forget(&topics, reply_to, turn),
        }
    }

    fn timer(&mut self, timer: GroupTimer, turn: &mut Turn<'_>) {
        let id = match &timer {
            GroupTimer::Session { group, .. }
            | GroupTimer::Joins { group }
            | GroupTimer::Syncs { group } => group.clone(),
            GroupTimer::Expiry => return self.expire(turn),
            GroupTimer::Forgetting => return self.go_on_forgetting(turn),
        };
        let Some(group) = self.groups.get_mut(&id) else { return };
        match &timer {
            GroupTimer::Session { member, .. } => group.live.session_ended(member, turn),
            GroupTimer::Joins { .. } => group.live.joins_ended(turn),
            GroupTimer::Syncs { .. } => group.live.syncs_ended(turn),
            GroupTimer::Expiry | GroupTimer::Forgetting => {}
        }
        self.forget_idle(&id, turn);
    }

    fn join(&mut self, join: &Join, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        if let Err(refusal) = self.check_join(join) {
            turn.refuse_join(reply_to, refusal, &join.member);
            return;
        }
        self.group(&join.group).live.join(join, reply_to, turn);
        self.forget_idle(&join.group, turn);
    }

    fn check_join(&self, join: &Join) -> Check {
        let (least_ms, most_ms) = self.limits.session_timeout_ms;
        if join.group.is_empty() {
            return Err(GroupRefusal::EmptyGroupId);
        }
        if !(least_ms..=most_ms).contains(&i64::from(join.session_timeout_ms)) {
            return Err(GroupRefusal::SessionTimeout);
        }
        if self.groups.contains_key(&*join.group) {
            return Ok(());
        }
        if !join.member.is_empty() {
            return Err(GroupRefusal::UnknownMember);
        }
        self.check_new_group(&join.group)
    }

    fn check_new_group(&self, id: &str) -> Check {
        if id.len() > STRING_MAX {
            return Err(GroupRefusal::MetadataTooLarge);
        }
        if self.groups.len() >= self.limits.groups_max {
            return Err(GroupRefusal::TooManyGroups);
        }
        Ok(())
    }

    /// A group that is there, for those who claim to be its members.
    fn live(&mut self, id: &str) -> Result<&mut Classic, GroupRefusal> {
        if id.is_empty() {
            return Err(GroupRefusal::EmptyGroupId);
        }
        self.groups.get_mut(id).map(|group| &mut group.live).ok_or(GroupRefusal::UnknownMember)
    }

    fn heartbeat(&mut self, session: &Session, turn: &mut Turn<'_>) -> Check {
        self.live(&session.group)?.heartbeat(session, turn)
    }

    /// In a group that is not there nobody is a member, as Kafka puts it.
    fn leave(
        &mut self,
        id: &str,
        members: &[Leaving],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<Check>, GroupRefusal> {
        match self.live(id) {
            Ok(group) => {
                let results = group.leave(members, turn);
                self.forget_idle(id, turn);
                Ok(results)
            }
            Err(GroupRefusal::UnknownMember) => {
                Ok(vec![Err(GroupRefusal::UnknownMember); members.len()])
            }
            Err(refusal) => Err(refusal),
        }
    }

    fn commit(&mut self, commit: Commit, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        turn.step.if_refused = IfRefused::Stay;
        let result = self.check_commit(&commit.session, turn);
        let result = result.map(|()| {
            let none = Offsets::default();
            let group = &*commit.session.group;
            let offsets = self.groups.get(group).map_or(&none, |group| &group.offsets);
            let mut added = 0;
            let mut accept = |commit: OffsetCommit| {
                let accepted = offsets.accept(commit, &mut added, turn.limits, turn.at.wall)?;
                turn.record(offset_record(group, accepted.0, Some(accepted.1)));
                Ok(())
            };
            commit.offsets.into_iter().map(&mut accept).collect()
        });
        turn.reply(reply_to, GroupOutput::Commit(result));
    }

    /// An empty group id is Kafka's oldest simple consumer.
    fn check_commit(&mut self, session: &Session, turn: &mut Turn<'_>) -> Check {
        match self.groups.get_mut(&*session.group) {
            Some(group) => group.live.commit(session, turn),
            None if session.generation < 0 => self.check_new_group(&session.group),
            None => Err(GroupRefusal::UnknownGroup),
        }
    }

    /// Members of classic groups say nothing of themselves here that could be checked.
    fn fetch(&self, fetch: &FetchOffsets) -> Vec<CommittedTopic> {
        let none = Offsets::default();
        let offsets = self.groups.get(&*fetch.group).map_or(&none, |group| &group.offsets);
        match &fetch.topics {
            Some(topics) => topics.iter().map(|topic| offsets.wanted(topic)).collect(),
            None => offsets.all(),
        }
    }

    fn delete(&mut self, id: &str, turn: &mut Turn<'_>) -> Result<(), DeleteRefusal> {
        let group = self.groups.get_mut(id).ok_or(DeleteRefusal::UnknownGroup)?;
        if group.live.state() != GroupState::Empty {
            return Err(DeleteRefusal::NotEmpty);
        }
        if group.live.is_idle() {
            turn.step.if_refused = IfRefused::Stay;
        }
        group.live.drop_all_pending(turn);
        for (topic, partition, _) in group.offsets.iter() {
            turn.record(offset_record(id, (topic.to_string(), partition), None));
        }
        if group.stored.is_some() {
            turn.record(GroupRecord::Group { group: id.to_string(), value: None });
        }
        self.forget_idle(id, turn);
        Ok(())
    }

    fn list(&self, filter: &ListFilter) -> GroupOutput {
        let passes = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let groups = self.groups.values().map(|group| group.live.list());
        let groups = groups.filter(|group| passes(&filter.states, group.state.name()));
        let is_type = passes(&filter.types, CLASSIC);
        GroupOutput::List(groups.filter(|_| is_type).collect())
    }

    fn group(&mut self, id: &str) -> &mut Group {
        if !self.groups.contains_key(id) {
            let id: Arc<str> = id.into();
            self.groups.insert(id.clone(), Group::new(id));
        }
        self.groups.get_mut(id).expect("it is there now")
    }

    fn put_offset(&mut self, id: &str, place: Place, offset: StoredOffset) {
        let topic = offset.topic_id;
        let group = self.group(id);
        let id = group.live.id();
        match group.offsets.put(place, offset).map(|before| before.topic_id) {
            Some(before) if before == topic => return,
            Some(before) => self.count_out(&id, before),
            None => self.offsets += 1,
        }
        *self.topics.entry(topic).or_default().entry(id).or_default() += 1;
    }

    fn remove_offset(&mut self, id: &str, place: &Place) {
        let group = self.groups.get_mut(id);
        if let Some(before) = group.and_then(|group| group.offsets.remove(place)) {
            self.offsets -= 1;
            self.count_out(id, before.topic_id);
        }
    }

    fn count_out(&mut self, id: &str, topic: Uuid) {
        let groups = self.topics.get_mut(&topic).expect("counted when it was committed");
        let count = groups.get_mut(id).expect("counted when it was committed");
        *count -= 1;
        if *count == 0 {
            groups.remove(id);
            if groups.is_empty() {
                self.topics.remove(&topic);
            }
        }
    }

    fn drop_vacant(&mut self, id: &str) {
        if self.groups.get(id).is_some_and(Group::is_vacant) {
            self.groups.remove(id);
        }
    }

    /// A group that nothing was ever stored of goes with its last member, unless this very step
    /// stores something.
    fn forget_idle(&mut self, id: &str, turn: &Turn<'_>) {
        if turn.step.records.is_empty() {
            self.drop_vacant(id);
        }
    }
}

#[cfg(test)]
impl GroupMachine {
    /// All durable state, by group.
    pub fn durable(&self) -> Vec<(String, String)> {
        let state = |(id, group): (&Arc<str>, &Group)| {
            (id.to_string(), format!("{:?} {:?}", group.stored, group.offsets))
        };
        let is_durable =
            |(_, group): &(_, &Group)| group.stored.is_some() || !group.offsets.is_empty();
        self.groups.iter().filter(is_durable).map(state).collect()
    }

    pub fn stored(&self, group: &str) -> Option<&StoredGroup> {
        self.groups.get(group)?.stored.as_ref()
    }

    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<&StoredOffset> {
        self.groups.get(group)?.offsets.get(topic, partition)
    }
}
