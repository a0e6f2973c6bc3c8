//! The state of one classic group, and the requests of members that are in it.
//!
//! ```text
//! Empty ── join ──> PreparingRebalance ── all joined, or time is up ──> CompletingRebalance
//!   ^                    ^      ^                                          │          │
//!   │ nobody left        │      └── join, leave, lost member, no sync ─────┘          │ leader's
//!   └────────────────────┤                                                            v sync
//!                        └── join, leave, lost member ────────────────────────────  Stable
//! ```
//!
//! Driven by `machine`. Never touches committed offsets, and decides nothing by itself: time
//! comes with each turn.

use super::member::{Member, MemberId, Roster};
use super::subscription;
use super::turn::Turn;
use crate::coordinator::machine::GroupTimer;
use crate::coordinator::record::{GroupRecord, StoredGroup};
use crate::coordinator::{
    Described, DescribedMember, GroupOutput, GroupRefusal, GroupState, Leaving, Listed, Session,
    Sync, Synced,
};
use crate::state_machine::ReplyTo;
use bytes::Bytes;
use shard::ids::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The protocol type of consumers, whose subscriptions can be read.
const CONSUMER: &str = "consumer";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Empty,
    Preparing(Preparing),
    Completing,
    Stable,
}

/// How a rebalance waits for its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparing {
    /// Members were there already: it ends as soon as all of them have joined.
    Again,
    /// The group was empty: it waits for others to come, longer while they do.
    First { delay_ms: u64, left_ms: u64, somebody_came: bool },
}

#[derive(Clone, Debug)]
pub struct Classic {
    pub(super) id: Arc<str>,
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<MemberId>,
    pub(super) roster: Roster,
    /// Ids that were given to clients who have not joined with them yet.
    pub(super) pending: BTreeSet<MemberId>,
    /// Members that have not synced in this generation.
    pub(super) unsynced: BTreeSet<MemberId>,
    /// When the state last changed; none in old records.
    pub(super) since: Option<Timestamp>,
}

impl Classic {
    pub fn new(id: Arc<str>) -> Classic {
        Classic {
            id,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            roster: Roster::default(),
            pending: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            since: None,
        }
    }

    /// A group as it was stored: with members it is stable, and they have a full session.
    pub fn load(id: Arc<str>, stored: &StoredGroup, turn: &mut Turn<'_>) -> Classic {
        let mut group = Classic::new(id);
        group.generation = stored.generation;
        group.protocol_type = Some(stored.protocol_type.clone()).filter(|name| !name.is_empty());
        group.since = (stored.since.0 != -1).then_some(stored.since);
        if stored.members.is_empty() {
            return group;
        }
        let protocol = stored.protocol.clone().unwrap_or_default();
        for member in &stored.members {
            let id: MemberId = member.member.as_str().into();
            if group.roster.get(&id).is_none() {
                group.roster.add(id.clone(), Member::from_stored(member, &protocol));
                group.touch(&id, turn);
            }
        }
        let leader = stored.leader.as_deref().and_then(|leader| group.roster.id(leader));
        group.leader = leader.or_else(|| group.roster.ids().into_iter().next());
        group.protocol = Some(protocol);
        group.phase = Phase::Stable;
        group
    }

    pub fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing(_) => GroupState::PreparingRebalance,
            Phase::Completing => GroupState::CompletingRebalance,
            Phase::Stable => GroupState::Stable,
        }
    }

    pub fn id(&self) -> Arc<str> {
        self.id.clone()
    }

    pub fn members(&self) -> usize {
        self.roster.len()
    }

    /// Whether nobody is in it and nobody is about to be.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Empty && self.pending.is_empty()
    }

    pub(super) fn enter(&mut self, phase: Phase, turn: &Turn<'_>) {
        self.phase = phase;
        self.since = Some(turn.at.wall);
    }

    /// Whether a member is who it says it is.
    pub(super) fn check_member(&self, id: &str, instance: Option<&str>) -> Check {
        if let Some(instance) = instance {
            match self.roster.of_instance(instance) {
                None => return Err(GroupRefusal::UnknownMember),
                Some(current) if **current != *id => return Err(GroupRefusal::FencedInstance),
                Some(_) => {}
            }
        }
        match self.roster.get(id) {
            Some(_) => Ok(()),
            None => Err(GroupRefusal::UnknownMember),
        }
    }

    fn check_session(&self, session: &Session) -> Check {
        self.check_member(&session.member, session.instance.as_deref())?;
        if session.generation == self.generation {
            return Ok(());
        }
        Err(GroupRefusal::IllegalGeneration)
    }

    pub fn heartbeat(&mut self, session: &Session, turn: &mut Turn<'_>) -> Check {
        self.check_session(session)?;
        self.touch(&session.member, turn);
        match self.phase {
            Phase::Preparing(_) => Err(GroupRefusal::RebalanceInProgress),
            // A member that knows the generation may be quicker than the leader.
            Phase::Empty | Phase::Completing | Phase::Stable => Ok(()),
        }
    }

    /// Whether offsets may be committed. A commit is a sign of life, too.
    pub fn commit(&mut self, session: &Session, turn: &mut Turn<'_>) -> Check {
        if session.generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        let says_who =
            session.generation >= 0 || !session.member.is_empty() || session.instance.is_some();
        if !says_who {
            return Err(GroupRefusal::UnknownMember);
        }
        self.check_session(session)?;
        if self.phase == Phase::Completing {
            return Err(GroupRefusal::RebalanceInProgress);
        }
        self.touch(&session.member, turn);
        Ok(())
    }

    pub fn sync(&mut self, sync: Sync, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        if let Err(refusal) = self.check_sync(&sync, turn) {
            turn.synced(reply_to, Err(refusal));
            return;
        }
        let id = &*sync.session.member;
        self.touch(id, turn);
        if self.unsynced.remove(id) && self.unsynced.is_empty() {
            turn.end_timer(GroupTimer::Syncs { group: self.id.clone() });
        }
        if self.phase == Phase::Stable {
            self.answer_sync(id, reply_to, turn);
            return;
        }
        let member = self.roster.get_mut(id).expect("checked above");
        if let Some(before) = member.syncing.replace(reply_to) {
            turn.synced(before, Err(GroupRefusal::RebalanceInProgress));
        }
        if self.leader.as_deref() == Some(id) {
            self.assign(&sync.assignments, turn);
        }
    }

    fn check_sync(&self, sync: &Sync, turn: &Turn<'_>) -> Check {
        self.check_session(&sync.session)?;
        let differs = |said: &Option<String>, is: &Option<String>| {
            said.is_some() && is.is_some() && said != is
        };
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(GroupRefusal::InconsistentProtocol);
        }
        if matches!(self.phase, Phase::Preparing(_)) {
            return Err(GroupRefusal::RebalanceInProgress);
        }
        let assigned: usize = sync.assignments.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.phase == Phase::Completing
            && self.roster.bytes() + assigned > turn.limits.metadata_bytes_max
        {
            return Err(GroupRefusal::MetadataTooLarge);
        }
        Ok(())
    }

    /// The leader has assigned: the group is stored, and all who wait hear of it.
    fn assign(&mut self, assignments: &[(String, Bytes)], turn: &mut Turn<'_>) {
        let by_member: BTreeMap<&str, Bytes> =
            assignments.iter().map(|(id, bytes)| (id.as_str(), bytes.clone())).collect();
        self.roster.assign(by_member);
        turn.record(self.to_record());
        self.enter(Phase::Stable, turn);
        for id in self.roster.ids() {
            let member = self.roster.get_mut(&id).expect("an id of the roster");
            if let Some(reply_to) = member.syncing.take() {
                self.touch(&id, turn);
                self.answer_sync(&id, reply_to, turn);
            }
        }
    }

    fn answer_sync(&self, id: &str, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        let assignment = self.roster.get(id).map(|member| member.assignment().clone());
        let synced = Synced {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment: assignment.unwrap_or_default(),
        };
        turn.synced(reply_to, Ok(synced));
    }

    pub fn leave(&mut self, members: &[Leaving], turn: &mut Turn<'_>) -> Vec<Check> {
        let results: Vec<Check> =
            members.iter().map(|leaving| self.leave_one(leaving, turn)).collect();
        if results.iter().any(Result::is_ok) {
            self.after_leave(turn);
        }
        results
    }

    fn leave_one(&mut self, leaving: &Leaving, turn: &mut Turn<'_>) -> Check {
        let id = match &leaving.instance {
            // An administrator names the instance alone.
            Some(instance) if leaving.member.is_empty() => {
                self.roster.of_instance(instance).cloned().ok_or(GroupRefusal::UnknownMember)?
            }
            _ => leaving.member.as_str().into(),
        };
        if self.drop_pending(&id, turn) {
            return Ok(());
        }
        if !leaving.member.is_empty() {
            self.check_member(&id, leaving.instance.as_deref())?;
        }
        match self.remove(&id, turn) {
            true => Ok(()),
            false => Err(GroupRefusal::UnknownMember),
        }
    }

    /// Ends the wait for a member that was told its id. Whether there was one.
    pub(super) fn drop_pending(&mut self, id: &str, turn: &mut Turn<'_>) -> bool {
        let Some(id) = self.pending.take(id) else { return false };
        turn.end_timer(GroupTimer::Session { group: self.id.clone(), member: id });
        true
    }

    pub fn drop_all_pending(&mut self, turn: &mut Turn<'_>) {
        for member in std::mem::take(&mut self.pending) {
            turn.end_timer(GroupTimer::Session { group: self.id.clone(), member });
        }
    }

    /// Takes a member out. What it waits for is answered: if it is still there, it joins anew.
    pub(super) fn remove(&mut self, id: &str, turn: &mut Turn<'_>) -> bool {
        let Some(id) = self.roster.id(id) else { return false };
        if let Some(reply_to) = self.roster.end_join(&id) {
            turn.refuse_join(reply_to, GroupRefusal::UnknownMember, "");
        }
        let member = self.roster.remove(&id).expect("it was there a line above");
        if let Some(reply_to) = member.syncing {
            turn.synced(reply_to, Err(GroupRefusal::UnknownMember));
        }
        self.end_session(&id, &member, turn);
        self.unsynced.remove(&id);
        if self.leader.as_ref() == Some(&id) {
            self.leader = self.roster.ids().into_iter().next();
        }
        true
    }

    pub(super) fn end_session(&self, id: &MemberId, member: &Member, turn: &mut Turn<'_>) {
        if member.session.timer_ms.is_some() {
            let member = id.clone();
            turn.end_timer(GroupTimer::Session { group: self.id.clone(), member });
        }
    }

    /// A sign of life: the session has its full length again.
    pub(super) fn touch(&mut self, id: &str, turn: &mut Turn<'_>) {
        let timeout_ms = self.roster.get(id).map_or(0, |member| member.session_timeout_ms);
        self.touch_for(id, timeout_ms.max(0) as u64, turn);
    }

    /// The timer stays where it is unless it would fire too late; when it fires too early, it is
    /// set to the end as it is then. So heartbeats and commits cost no timer.
    pub(super) fn touch_for(&mut self, id: &str, timeout_ms: u64, turn: &mut Turn<'_>) {
        let Some(member_id) = self.roster.id(id) else { return };
        let member = self.roster.get_mut(id).expect("its id was found a line above");
        let session = &mut member.session;
        session.at_ms = turn.at.mono_ms.saturating_add(timeout_ms);
        if session.timer_ms.is_none_or(|timer_ms| timer_ms > session.at_ms) {
            session.timer_ms = Some(session.at_ms);
            let timer = GroupTimer::Session { group: self.id.clone(), member: member_id };
            turn.set_timer(timer, timeout_ms);
        }
    }

    pub(super) fn to_record(&self) -> GroupRecord {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.roster.iter().map(|(id, member)| member.to_stored(id, protocol));
        let value = StoredGroup {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().map(str::to_string),
            since: self.since.unwrap_or(Timestamp(-1)),
            members: members.collect(),
        };
        GroupRecord::Group { group: self.id.to_string(), value: Some(value) }
    }

    pub fn describe(&self) -> GroupOutput {
        let is_stable = self.phase == Phase::Stable;
        let protocol = self.protocol.clone().filter(|_| is_stable).unwrap_or_default();
        let member = |(id, member): (&MemberId, &Member)| DescribedMember {
            member: id.to_string(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            subscription: if is_stable { member.subscription(&protocol) } else { Bytes::new() },
            assignment: if is_stable { member.assignment().clone() } else { Bytes::new() },
        };
        GroupOutput::Describe(Some(Described {
            state: self.state(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: self.roster.iter().map(member).collect(),
            protocol,
        }))
    }

    pub fn list(&self) -> Listed {
        Listed {
            group: self.id.to_string(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state(),
        }
    }

    /// From when on the retention of an offset counts.
    pub fn retention(&self) -> Retention {
        match (&self.protocol_type, self.phase) {
            (None, _) => Retention::SinceCommit { spared: BTreeSet::new() },
            (Some(_), Phase::Empty) => Retention::SinceEmpty(self.since),
            (Some(_), Phase::Stable) => match self.subscribed() {
                Some(spared) => Retention::SinceCommit { spared },
                None => Retention::Kept,
            },
            (Some(_), Phase::Preparing(_) | Phase::Completing) => Retention::Kept,
        }
    }

    /// The topics its members read, if it is a group of consumers and they can be told.
    fn subscribed(&self) -> Option<BTreeSet<String>> {
        if self.protocol_type.as_deref() != Some(CONSUMER) {
            return None;
        }
        let protocol = self.protocol.as_deref()?;
        let mut subscribed = BTreeSet::new();
        for (_, member) in self.roster.iter() {
            subscribed.extend(subscription::topics(&member.subscription(protocol))?);
        }
        Some(subscribed)
    }
}

pub type Check = Result<(), GroupRefusal>;

/// What a group's state means for the age of its offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retention {
    /// From the commit on, but for the topics that are still read.
    SinceCommit { spared: BTreeSet<String> },
    /// From when the last member was gone, or from a later commit.
    SinceEmpty(Option<Timestamp>),
    /// None expires for now.
    Kept,
}
