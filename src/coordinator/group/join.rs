//! Every way into a group: new members in one step or two, members that come back, static members
//! that take the place of what they were before a restart (KIP-345).
//!
//! Ends by starting a rebalance, by waiting for the one under way, or, where nothing changes, by an
//! answer at once. Kafka names no member in the answers that a new member has to start over with.

use super::classic::{Classic, Phase, Preparing};
use super::member::{protocol_bytes, Member, MemberId};
use super::turn::Turn;
use crate::coordinator::machine::GroupTimer;
use crate::coordinator::wire::STRING_MAX;
use crate::coordinator::{GroupLimits, GroupRefusal, Join, Joined};
use crate::state_machine::ReplyTo;
use std::sync::Arc;

/// How long a new member may wait for the end of a rebalance. It knows no id to send heartbeats
/// with, so nobody would notice that it is gone; if it is not, it joins again.
const NEW_MEMBER_WAIT_MS: u64 = 300_000;

impl Classic {
    pub fn join(&mut self, join: &Join, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        if !self.has_room(join, turn.limits) {
            turn.refuse_join(reply_to, GroupRefusal::GroupFull, "");
            if self.remove(&join.member, turn) || self.drop_pending(&join.member, turn) {
                self.maybe_complete(turn);
            }
            return;
        }
        if let Err(refusal) = self.check_protocols(join, turn.limits) {
            turn.refuse_join(reply_to, refusal, &join.member);
        } else if join.member.is_empty() {
            self.join_new(join, reply_to, turn);
        } else {
            self.join_known(join, reply_to, turn);
        }
    }

    /// While a rebalance collects members, those who have joined count: if the group was larger
    /// than is allowed, the last to come have to go.
    fn has_room(&self, join: &Join, limits: &GroupLimits) -> bool {
        let takes_over =
            join.instance.as_deref().is_some_and(|id| self.roster.of_instance(id).is_some());
        let known = self.roster.get(&join.member);
        match self.phase {
            Phase::Empty => true,
            Phase::Preparing(_) => {
                known.is_some_and(Member::is_joining) || self.roster.joining() < limits.members_max
            }
            Phase::Completing | Phase::Stable => {
                takes_over || known.is_some() || self.roster.len() < limits.members_max
            }
        }
    }

    fn check_protocols(&self, join: &Join, limits: &GroupLimits) -> Result<(), GroupRefusal> {
        let is_new = self.phase == Phase::Empty;
        let same_type = is_new || self.protocol_type.as_deref() == Some(&join.protocol_type);
        let one_for_all =
            is_new || join.protocols.iter().any(|(name, _)| self.roster.supports(name));
        if join.protocol_type.is_empty() || join.protocols.is_empty() || !same_type || !one_for_all
        {
            return Err(GroupRefusal::InconsistentProtocol);
        }
        let names = join.protocols.iter().map(|(name, _)| name.as_str());
        let mut strings = names.chain([&*join.protocol_type, &join.client_host, &join.client_id]);
        let instance = join.instance.as_deref().and_then(|id| self.roster.of_instance(id));
        let own = instance.map_or(&*join.member, |id| &**id);
        let bytes = self.roster.bytes_without(own) + protocol_bytes(&join.protocols);
        if bytes > limits.metadata_bytes_max || strings.any(|text| text.len() > STRING_MAX) {
            return Err(GroupRefusal::MetadataTooLarge);
        }
        Ok(())
    }

    fn join_new(&mut self, join: &Join, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        let id = match new_member_id(join, turn) {
            Some(id) => id,
            None => return turn.refuse_join(reply_to, GroupRefusal::MetadataTooLarge, ""),
        };
        let before = join.instance.as_deref().and_then(|id| self.roster.of_instance(id)).cloned();
        match before {
            Some(before) => self.take_over(&before, id, (join, reply_to), turn),
            None if join.two_steps && join.instance.is_none() => {
                self.tell_id(id, (join, reply_to), turn);
            }
            None => self.add(id, (join, reply_to), turn),
        }
    }

    /// The first of two steps: a client that never comes back leaves no member behind.
    fn tell_id(&mut self, id: MemberId, by: (&Join, ReplyTo), turn: &mut Turn<'_>) {
        let (join, reply_to) = by;
        if self.pending.len() >= turn.limits.members_max {
            return turn.refuse_join(reply_to, GroupRefusal::GroupFull, "");
        }
        let timer = GroupTimer::Session { group: self.id.clone(), member: id.clone() };
        turn.set_timer(timer, join.session_timeout_ms.max(0) as u64);
        turn.refuse_join(reply_to, GroupRefusal::MemberIdRequired, &id);
        self.pending.insert(id);
    }

    fn add(&mut self, id: MemberId, by: (&Join, ReplyTo), turn: &mut Turn<'_>) {
        let (join, reply_to) = by;
        if self.roster.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Phase::Preparing(Preparing::First { somebody_came, .. }) = &mut self.phase {
            *somebody_came = true;
        }
        let mut member = Member::from_join(join);
        member.is_new = true;
        self.roster.add(id.clone(), member);
        self.roster.hold_join(&id, reply_to);
        self.leader.get_or_insert_with(|| id.clone());
        self.touch_for(&id, NEW_MEMBER_WAIT_MS, turn);
        self.rebalance(turn);
    }

    fn join_known(&mut self, join: &Join, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        let id = join.member.as_str();
        // An id that was told in the first step was told to a member without an instance id.
        if join.instance.is_none() && self.drop_pending(id, turn) {
            self.add(id.into(), (join, reply_to), turn);
            return;
        }
        if let Err(refusal) = self.check_member(id, join.instance.as_deref()) {
            turn.refuse_join(reply_to, refusal, id);
            return;
        }
        let is_same = self.roster.get(id).is_some_and(|it| it.has_protocols(&join.protocols));
        let changes = match self.phase {
            Phase::Empty | Phase::Preparing(_) => true,
            // The answer to its join was lost.
            Phase::Completing => !is_same,
            // A leader asks for a new assignment by joining, say when a topic has grown.
            Phase::Stable => !is_same || self.leader.as_deref() == Some(id),
        };
        if !changes {
            self.touch(id, turn);
            self.answer_join(id, reply_to, turn);
            return;
        }
        if let Some(before) = self.roster.rejoin(id, join, reply_to) {
            turn.refuse_join(before, GroupRefusal::RebalanceInProgress, id);
        }
        self.rebalance(turn);
    }

    /// A static member is there again under a new id; who has the old one is fenced.
    fn take_over(
        &mut self,
        before: &MemberId,
        id: MemberId,
        by: (&Join, ReplyTo),
        turn: &mut Turn<'_>,
    ) {
        let (join, reply_to) = by;
        let old_leader = self.leader.clone();
        self.replace(before, &id, join, turn);
        self.touch(&id, turn);
        match self.phase {
            Phase::Stable if self.roster.choose_protocol() == self.protocol => {
                turn.record(self.to_record());
                let mut joined = self.joined(&id);
                if join.may_skip_assignment {
                    joined.skip_assignment = self.leader.as_ref() == Some(&id);
                } else {
                    // Who is not told that it leads does not assign anew.
                    joined.leader = old_leader.as_deref().unwrap_or_default().to_string();
                    joined.members.clear();
                }
                turn.joined(reply_to, joined);
            }
            Phase::Empty | Phase::Preparing(_) | Phase::Completing | Phase::Stable => {
                self.roster.hold_join(&id, reply_to);
                self.rebalance(turn);
            }
        }
    }

    fn replace(&mut self, before: &MemberId, id: &MemberId, join: &Join, turn: &mut Turn<'_>) {
        let fenced = GroupRefusal::FencedInstance;
        if let Some(reply_to) = self.roster.end_join(before) {
            turn.refuse_join(reply_to, fenced, before);
        }
        let old = self.roster.remove(before).expect("instance ids are those of members");
        if let Some(reply_to) = old.syncing {
            turn.synced(reply_to, Err(fenced));
        }
        self.end_session(before, &old, turn);
        self.roster.add(id.clone(), Member::from_join(join).with_assignment_of(&old));
        if self.leader.as_ref() == Some(before) {
            self.leader = Some(id.clone());
        }
        if self.unsynced.remove(before) {
            self.unsynced.insert(id.clone());
        }
    }

    /// Answers with the present generation.
    pub(super) fn answer_join(&self, id: &str, reply_to: ReplyTo, turn: &mut Turn<'_>) {
        turn.joined(reply_to, self.joined(id));
    }

    fn joined(&self, id: &str) -> Joined {
        let leader = self.leader.as_deref().unwrap_or_default();
        let protocol = self.protocol.clone().unwrap_or_default();
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            leader: leader.to_string(),
            member: id.to_string(),
            skip_assignment: false,
            members: if leader == id { self.roster.joined(&protocol) } else { Vec::new() },
            protocol,
        }
    }
}

/// `<client id or instance id>-<uuid>`; none if that is longer than a record can hold.
fn new_member_id(join: &Join, turn: &Turn<'_>) -> Option<MemberId> {
    let fresh = turn.at.ids.first().expect("a join without a member id has a fresh id");
    let prefix = join.instance.as_ref().unwrap_or(&join.client_id);
    let id = format!("{prefix}-{fresh}");
    (id.len() <= STRING_MAX).then(|| Arc::from(id))
}
