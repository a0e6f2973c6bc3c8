//! The members of one group: who they are, which protocols they have in common, what they take.
//!
//! `Roster` keeps in one place what follows from its members (instance ids, how many support a
//! protocol, how many wait for the end of a rebalance, bytes), so that no request counts them
//! anew. It answers nobody and sets no timer; that is for `classic`, `join` and `rebalance`.

use crate::coordinator::record::StoredMember;
use crate::coordinator::request::JoinedMember;
use crate::coordinator::Join;
use crate::state_machine::ReplyTo;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member's id: `<client id or instance id>-<uuid>`.
pub type MemberId = Arc<str>;

#[derive(Clone, Debug, Default)]
pub struct Member {
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    /// Name and subscription, the most wanted first, no name twice.
    protocols: Vec<(String, Bytes)>,
    assignment: Bytes,
    /// The join that is answered when the rebalance is over.
    joining: Option<ReplyTo>,
    /// The sync that is answered when the leader has assigned.
    pub syncing: Option<ReplyTo>,
    /// It has never completed a join: it may be gone and nobody would know.
    pub is_new: bool,
    pub session: Deadline,
}

/// When a session ends. Heartbeats only move the end; the timer is moved when it fires.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    pub at_ms: u64,
    pub timer_ms: Option<u64>,
}

impl Member {
    pub fn from_join(join: &Join) -> Member {
        let mut member = Member {
            instance: join.instance.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            ..Member::default()
        };
        member.take(join);
        member
    }

    /// A static member under a new id keeps what it was assigned.
    pub fn with_assignment_of(self, old: &Member) -> Member {
        Member { assignment: old.assignment.clone(), ..self }
    }

    /// What each join tells anew.
    fn take(&mut self, join: &Join) {
        self.session_timeout_ms = join.session_timeout_ms;
        self.rebalance_timeout_ms =
            join.rebalance_timeout_ms.unwrap_or(join.session_timeout_ms).max(0);
        self.protocols = unique(&join.protocols);
    }

    pub fn from_stored(stored: &StoredMember, protocol: &str) -> Member {
        let rebalance_timeout_ms = match stored.rebalance_timeout_ms {
            ..0 => stored.session_timeout_ms,
            timeout_ms => timeout_ms,
        };
        Member {
            instance: stored.instance.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            session_timeout_ms: stored.session_timeout_ms,
            rebalance_timeout_ms,
            protocols: vec![(protocol.to_string(), stored.subscription.clone())],
            assignment: stored.assignment.clone(),
            ..Member::default()
        }
    }

    pub fn to_stored(&self, id: &str, protocol: &str) -> StoredMember {
        StoredMember {
            member: id.to_string(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.subscription(protocol),
            assignment: self.assignment.clone(),
        }
    }

    pub fn subscription(&self, protocol: &str) -> Bytes {
        let entry = self.protocols.iter().find(|(name, _)| name == protocol);
        entry.map(|(_, subscription)| subscription.clone()).unwrap_or_default()
    }

    pub fn assignment(&self) -> &Bytes {
        &self.assignment
    }

    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Whether its protocols are what a join says, so that nothing changes by it.
    pub fn has_protocols(&self, protocols: &[(String, Bytes)]) -> bool {
        self.protocols == protocols || self.protocols == unique(protocols)
    }

    fn bytes(&self) -> usize {
        protocol_bytes(&self.protocols) + self.assignment.len()
    }
}

/// A protocol named twice counts where it stands first.
fn unique(protocols: &[(String, Bytes)]) -> Vec<(String, Bytes)> {
    let mut seen = BTreeSet::new();
    protocols.iter().filter(|(name, _)| seen.insert(name.as_str())).cloned().collect()
}

pub fn protocol_bytes(protocols: &[(String, Bytes)]) -> usize {
    protocols.iter().map(|(name, subscription)| name.len() + subscription.len()).sum()
}

#[derive(Clone, Debug, Default)]
pub struct Roster {
    members: BTreeMap<MemberId, Member>,
    by_instance: BTreeMap<String, MemberId>,
    /// How many members support a protocol.
    supporters: BTreeMap<String, usize>,
    /// How many wait for the end of a rebalance.
    joining: usize,
    /// Subscriptions, names of protocols and assignments.
    bytes: usize,
}

impl Roster {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn joining(&self) -> usize {
        self.joining
    }

    /// Subscriptions, names of protocols and assignments of all members but one.
    pub fn bytes_without(&self, id: &str) -> usize {
        self.bytes - self.members.get(id).map_or(0, Member::bytes)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members.iter()
    }

    pub fn ids(&self) -> Vec<MemberId> {
        self.members.keys().cloned().collect()
    }

    pub fn get(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// For what `Roster` keeps no count of.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    /// The id as it is shared with timers.
    pub fn id(&self, id: &str) -> Option<MemberId> {
        self.members.get_key_value(id).map(|(id, _)| id.clone())
    }

    pub fn of_instance(&self, instance: &str) -> Option<&MemberId> {
        self.by_instance.get(instance)
    }

    pub fn add(&mut self, id: MemberId, member: Member) {
        if let Some(instance) = &member.instance {
            self.by_instance.insert(instance.clone(), id.clone());
        }
        self.count_in(&member);
        let before = self.members.insert(id, member);
        assert!(before.is_none(), "a member is added once");
    }

    pub fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.count_out(&member);
        if let Some(instance) = &member.instance {
            self.by_instance.remove(instance);
        }
        Some(member)
    }

    fn count_in(&mut self, member: &Member) {
        for (name, _) in &member.protocols {
            *self.supporters.entry(name.clone()).or_default() += 1;
        }
        self.joining += usize::from(member.is_joining());
        self.bytes += member.bytes();
    }

    fn count_out(&mut self, member: &Member) {
        for (name, _) in &member.protocols {
            let count = self.supporters.get_mut(name).expect("counted when it came");
            *count -= 1;
            if *count == 0 {
                self.supporters.remove(name);
            }
        }
        self.joining -= usize::from(member.is_joining());
        self.bytes -= member.bytes();
    }

    /// Takes over what a join says. What the member waited for before is handed back.
    pub fn rejoin(&mut self, id: &str, join: &Join, reply_to: ReplyTo) -> Option<ReplyTo> {
        let mut member = self.members.remove(id)?;
        self.count_out(&member);
        member.take(join);
        let before = member.joining.replace(reply_to);
        self.count_in(&member);
        self.members.insert(id.into(), member);
        before
    }

    /// Makes a member wait for the end of the rebalance.
    pub fn hold_join(&mut self, id: &str, reply_to: ReplyTo) {
        let member = self.members.get_mut(id).expect("a member that joins is there");
        if member.joining.replace(reply_to).is_none() {
            self.joining += 1;
        }
    }

    /// Whom to answer that a member's join is over.
    pub fn end_join(&mut self, id: &str) -> Option<ReplyTo> {
        let reply_to = self.members.get_mut(id)?.joining.take()?;
        self.joining -= 1;
        Some(reply_to)
    }

    /// Gives every member its assignment; an empty one to those the leader left out.
    pub fn assign(&mut self, mut assignments: BTreeMap<&str, Bytes>) {
        for (id, member) in &mut self.members {
            self.bytes -= member.assignment.len();
            member.assignment = assignments.remove(&**id).unwrap_or_default();
            self.bytes += member.assignment.len();
        }
    }

    /// Whether every member supports the protocol; any protocol if there is no member.
    pub fn supports(&self, protocol: &str) -> bool {
        self.supporters.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// The protocol most members want most among those that all support; between equals the
    /// first by name. None without members.
    pub fn choose_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let wanted = member.protocols.iter().find(|(name, _)| self.supports(name));
            let (name, _) = wanted.expect("no member is let in without a common protocol");
            *votes.entry(name).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.to_string())
    }

    /// The largest of the members' rebalance timeouts.
    pub fn rebalance_timeout_ms(&self) -> u64 {
        let timeouts = self.members.values().map(|member| member.rebalance_timeout_ms);
        timeouts.max().map_or(0, |timeout_ms| timeout_ms.max(0) as u64)
    }

    /// What the leader is told of the members.
    pub fn joined(&self, protocol: &str) -> Vec<JoinedMember> {
        let joined = |(id, member): (&MemberId, &Member)| JoinedMember {
            member: id.to_string(),
            instance: member.instance.clone(),
            subscription: member.subscription(protocol),
        };
        self.members.iter().map(joined).collect()
    }
}
