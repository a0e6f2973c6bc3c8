//! One step of a group: what it may read of the world, and what it decides.
//!
//! Filled by the group's functions, handed by `machine` to the shell as a `Step`.

use crate::coordinator::machine::{GroupMachine, GroupTimer};
use crate::coordinator::record::GroupRecord;
use crate::coordinator::{GroupLimits, GroupOutput, GroupRefusal, JoinRefusal, Joined, Synced};
use crate::state_machine::{Moment, ReplyTo, Step};

pub struct Turn<'a> {
    pub limits: &'a GroupLimits,
    pub at: Moment<'a>,
    pub step: Step<GroupMachine>,
}

impl<'a> Turn<'a> {
    pub fn new(limits: &'a GroupLimits, at: Moment<'a>) -> Turn<'a> {
        Turn { limits, at, step: Step::default() }
    }

    pub fn reply(&mut self, to: ReplyTo, output: GroupOutput) {
        self.step.replies.push((to, output));
    }

    pub fn joined(&mut self, to: ReplyTo, joined: Joined) {
        self.reply(to, GroupOutput::Join(Ok(joined)));
    }

    pub fn refuse_join(&mut self, to: ReplyTo, refusal: GroupRefusal, member: &str) {
        let refusal = JoinRefusal { refusal, member: member.to_string() };
        self.reply(to, GroupOutput::Join(Err(refusal)));
    }

    pub fn synced(&mut self, to: ReplyTo, result: Result<Synced, GroupRefusal>) {
        self.reply(to, GroupOutput::Sync(result));
    }

    pub fn record(&mut self, record: GroupRecord) {
        self.step.records.push(record);
    }

    /// Sets a timer so many milliseconds from now.
    pub fn set_timer(&mut self, timer: GroupTimer, in_ms: u64) {
        let at_ms = self.at.mono_ms.saturating_add(in_ms);
        self.step.timers.push((timer, Some(at_ms)));
    }

    pub fn end_timer(&mut self, timer: GroupTimer) {
        self.step.timers.push((timer, None));
    }
}
