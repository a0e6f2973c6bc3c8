//! What goes through many groups at once: expiry of offsets, and topics that are gone.
//!
//! Done in slices, each a step of its own, so that neither the core nor a batch of records has to
//! take all of it. Part of `machine`, which steps it by timers.

use super::group::{Retention, Turn};
use super::machine::{Group, GroupMachine, GroupTimer};
use super::offsets::Place;
use super::record::{GroupRecord, StoredOffset};
use super::request::GroupOutput;
use crate::state_machine::{IfRefused, ReplyTo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use uuid::Uuid;

/// How many offsets one step looks at or deletes.
const SLICE: usize = 4096;

/// How long others have their turn between two slices.
const PAUSE_MS: u64 = 1;

/// Topics whose offsets are being deleted.
#[derive(Debug)]
pub struct Forgetting {
    reply_to: ReplyTo,
    topics: BTreeSet<Uuid>,
}

impl GroupMachine {
    /// Looks through some groups for expired offsets and for groups that nothing is left of, and
    /// sets the timer for the next ones.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        turn.step.if_refused = IfRefused::Stay;
        let from = self.looked_through.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked_at = 0;
        let mut last: Option<&Arc<str>> = None;
        for (id, group) in self.groups.range::<Arc<str>, _>((from, Bound::Unbounded)) {
            if looked_at >= SLICE {
                self.looked_through = last.cloned();
                break;
            }
            looked_at += 1 + group.offsets.len() + group.live.members();
            expire_group(id, group, turn);
            last = Some(id);
        }
        let wait_ms = match self.looked_through {
            Some(_) => PAUSE_MS,
            None => turn.limits.offsets_check_ms.max(1) as u64,
        };
        turn.set_timer(GroupTimer::Expiry, wait_ms);
    }

    /// Deletes the offsets of topics in all groups, and answers when none is left.
    pub(super) fn forget(&mut self, topics: &[Uuid], reply_to: ReplyTo, turn: &mut Turn<'_>) {
        let topics = topics.iter().copied().filter(|id| !id.is_nil()).collect();
        self.forgetting.push_back(Forgetting { reply_to, topics });
        // Behind others it has their timer.
        if self.forgetting.len() == 1 {
            self.go_on_forgetting(turn);
        }
    }

    pub(super) fn go_on_forgetting(&mut self, turn: &mut Turn<'_>) {
        turn.step.if_refused = IfRefused::Stay;
        let mut room = SLICE;
        while let Some(first) = self.forgetting.pop_front() {
            if !self.forget_some(&first.topics, &mut room, turn) {
                self.forgetting.push_front(first);
                turn.step.if_refused = IfRefused::Reload;
                turn.set_timer(GroupTimer::Forgetting, PAUSE_MS);
                return;
            }
            turn.reply(first.reply_to, GroupOutput::Forget);
        }
    }

    /// Whether this was all. What is deleted now is not found when it goes on.
    fn forget_some(&self, topics: &BTreeSet<Uuid>, room: &mut usize, turn: &mut Turn<'_>) -> bool {
        for topic in topics {
            for id in self.topics.get(topic).into_iter().flat_map(BTreeMap::keys) {
                let places = self.groups.get(id).map(|group| group.offsets.of_topic(*topic));
                let places = places.unwrap_or_default();
                let fits = places.len() <= *room;
                for place in places.into_iter().take(*room) {
                    turn.record(offset_record(id, place, None));
                    *room -= 1;
                }
                if !fits {
                    return false;
                }
            }
        }
        true
    }
}

fn expire_group(id: &str, group: &Group, turn: &mut Turn<'_>) {
    let retention = group.live.retention();
    if retention == Retention::Kept {
        return;
    }
    let (now, retention_ms) = (turn.at.wall, turn.limits.offsets_retention_ms);
    let mut expired = group.offsets.expired(&retention, now, retention_ms);
    // The rest of a very large group has to wait for the next round.
    expired.truncate(SLICE);
    let is_all = expired.len() == group.offsets.len();
    for place in expired {
        turn.record(offset_record(id, place, None));
    }
    if is_all && group.live.is_idle() && group.stored.is_some() {
        turn.record(GroupRecord::Group { group: id.to_string(), value: None });
    }
}

pub fn offset_record(group: &str, place: Place, value: Option<StoredOffset>) -> GroupRecord {
    let (topic, partition) = place;
    GroupRecord::Offset { group: group.to_string(), topic, partition, value }
}
