//! Rebalances: how they start, whom they wait for, when they end, and what happens to members
//! that do not join, do not sync or are not heard of any more.
//!
//! ```text
//! rebalance ──> (Empty: wait group.initial.rebalance.delay.ms, longer while members come)
//!           ──> (else: until all members have joined, at most the largest rebalance timeout)
//!           ──> complete: members that did not join go, generation + 1, leader and protocol
//!           ──> leader's sync, at most the rebalance timeout; members that did not sync go
//! ```

use super::classic::{Classic, Phase, Preparing};
use super::turn::Turn;
use crate::coordinator::machine::GroupTimer;
use crate::coordinator::GroupRefusal;
use std::collections::BTreeMap;

/// A client may ask for a rebalance timeout of nothing; waiting anew takes at least this long.
const WAIT_AGAIN_MS_MIN: u64 = 1000;

impl Classic {
    /// Starts a rebalance, or goes on with the one under way.
    pub(super) fn rebalance(&mut self, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::Preparing(_) => self.maybe_complete(turn),
            Phase::Empty => self.prepare_first(turn),
            Phase::Completing | Phase::Stable => self.prepare_again(turn),
        }
    }

    fn prepare_first(&mut self, turn: &mut Turn<'_>) {
        let delay_ms = turn.limits.initial_rebalance_delay_ms.max(0) as u64;
        let left_ms = self.roster.rebalance_timeout_ms().saturating_sub(delay_ms);
        let first = Preparing::First { delay_ms, left_ms, somebody_came: false };
        self.enter(Phase::Preparing(first), turn);
        turn.set_timer(GroupTimer::Joins { group: self.id.clone() }, delay_ms);
    }

    fn prepare_again(&mut self, turn: &mut Turn<'_>) {
        for id in self.roster.ids() {
            let member = self.roster.get_mut(&id).expect("an id of the roster");
            if let Some(reply_to) = member.syncing.take() {
                turn.synced(reply_to, Err(GroupRefusal::RebalanceInProgress));
                self.touch(&id, turn);
            }
        }
        self.unsynced.clear();
        turn.end_timer(GroupTimer::Syncs { group: self.id.clone() });
        self.enter(Phase::Preparing(Preparing::Again), turn);
        if self.has_all() {
            self.complete(turn);
        } else {
            self.wait_for_joins(turn);
        }
    }

    /// More members were stored than are allowed now: those that join last have to go.
    pub fn shrink(&mut self, turn: &mut Turn<'_>) {
        if self.phase == Phase::Stable && self.roster.len() > turn.limits.members_max {
            self.prepare_again(turn);
        }
    }

    fn wait_for_joins(&mut self, turn: &mut Turn<'_>) {
        let timer = GroupTimer::Joins { group: self.id.clone() };
        turn.set_timer(timer, self.roster.rebalance_timeout_ms());
    }

    /// Whether nobody is missing who is in the group or is about to be.
    fn has_all(&self) -> bool {
        self.roster.joining() == self.roster.len() && self.pending.is_empty()
    }

    pub(super) fn maybe_complete(&mut self, turn: &mut Turn<'_>) {
        if self.phase == Phase::Preparing(Preparing::Again) && self.has_all() {
            self.complete(turn);
        }
    }

    /// The time to join is over.
    pub fn joins_ended(&mut self, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::Preparing(Preparing::First { delay_ms, left_ms, somebody_came: true })
                if left_ms > 0 =>
            {
                let more_ms = left_ms.min(turn.limits.initial_rebalance_delay_ms.max(0) as u64);
                let left_ms = left_ms.saturating_sub(delay_ms);
                self.phase = Phase::Preparing(Preparing::First {
                    delay_ms: more_ms,
                    left_ms,
                    somebody_came: false,
                });
                turn.set_timer(GroupTimer::Joins { group: self.id.clone() }, more_ms);
            }
            Phase::Preparing(_) => self.complete(turn),
            Phase::Empty | Phase::Completing | Phase::Stable => {}
        }
    }

    /// Ends the collection of members: the next generation begins.
    fn complete(&mut self, turn: &mut Turn<'_>) {
        turn.end_timer(GroupTimer::Joins { group: self.id.clone() });
        self.remove_missing(turn);
        if self.roster.is_empty() {
            return self.become_empty(turn);
        }
        if !self.elect() {
            // Static members alone, none of which has come back: they have their sessions.
            let wait_ms = self.roster.rebalance_timeout_ms().max(WAIT_AGAIN_MS_MIN);
            return turn.set_timer(GroupTimer::Joins { group: self.id.clone() }, wait_ms);
        }
        self.generation = self.generation.saturating_add(1);
        self.protocol = self.roster.choose_protocol();
        self.roster.assign(BTreeMap::new());
        self.enter(Phase::Completing, turn);
        for id in self.roster.ids() {
            if let Some(reply_to) = self.roster.end_join(&id) {
                self.answer_join(&id, reply_to, turn);
            }
            self.roster.get_mut(&id).expect("an id of the roster").is_new = false;
            self.touch(&id, turn);
            self.unsynced.insert(id);
        }
        let timer = GroupTimer::Syncs { group: self.id.clone() };
        turn.set_timer(timer, self.roster.rebalance_timeout_ms());
    }

    /// Static members that are missing keep their place.
    fn remove_missing(&mut self, turn: &mut Turn<'_>) {
        let missing: Vec<_> = self
            .roster
            .iter()
            .filter(|(_, member)| !member.is_joining() && member.instance.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in missing {
            self.remove(&id, turn);
        }
    }

    /// Keeps the leader if it has joined, else takes another who has. Whether there is one.
    fn elect(&mut self) -> bool {
        let joined = |id: &str| self.roster.get(id).is_some_and(|member| member.is_joining());
        if self.leader.as_deref().is_some_and(joined) {
            return true;
        }
        let mut members = self.roster.iter().filter(|(_, member)| member.is_joining());
        let Some((next, _)) = members.next() else { return false };
        self.leader = Some(next.clone());
        true
    }

    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.generation = self.generation.saturating_add(1);
        self.protocol = None;
        self.leader = None;
        self.enter(Phase::Empty, turn);
        turn.record(self.to_record());
    }

    /// Goes on after members have left by themselves.
    pub(super) fn after_leave(&mut self, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::Completing | Phase::Stable => self.prepare_again(turn),
            Phase::Preparing(_) => self.maybe_complete(turn),
            Phase::Empty => {}
        }
    }

    /// The time to sync is over: who has not done so is taken for lost.
    pub fn syncs_ended(&mut self, turn: &mut Turn<'_>) {
        let is_due = matches!(self.phase, Phase::Completing | Phase::Stable);
        if !is_due || self.unsynced.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.unsynced) {
            self.remove(&id, turn);
        }
        self.prepare_again(turn);
    }

    /// A session's timer fired: nothing was heard, or something was and the timer is moved.
    pub fn session_ended(&mut self, id: &str, turn: &mut Turn<'_>) {
        if self.pending.remove(id) {
            return self.complete_if_all(turn);
        }
        let Some(member) = self.roster.get_mut(id) else { return };
        member.session.timer_ms = None;
        let left_ms = member.session.at_ms.saturating_sub(turn.at.mono_ms);
        if left_ms > 0 {
            return self.touch_for(id, left_ms, turn);
        }
        // Who waits for the group cannot be expected to send heartbeats; a new member that waits
        // too long starts over.
        let waits = member.is_joining() || member.syncing.is_some();
        if waits && !member.is_new {
            return;
        }
        self.remove(id, turn);
        match self.phase {
            Phase::Completing | Phase::Stable => self.prepare_again(turn),
            Phase::Preparing(_) => self.complete_if_all(turn),
            Phase::Empty => {}
        }
    }

    /// After a loss. Unlike members that leave, it ends even the first rebalance.
    fn complete_if_all(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.phase, Phase::Preparing(_)) && self.has_all() {
            self.complete(turn);
        }
    }
}
