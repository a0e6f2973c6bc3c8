//! Coordinators for handler tests: the real machines, with a partition that is never lost.
//!
//! Records are replayed and forgotten, ids count up, timers fire when a test lets time pass.

use crate::coordinator::{GroupLimits, GroupMachine, GroupOutput, GroupTimer};
use crate::cores::front::{CoordinatorRefusal, GroupAnswer, GroupItem};
use crate::state_machine::{Cause, Machine, Moment, ReplyTo, Step};
use futures_channel::oneshot;
use shard::ids::{PartitionKey, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use uuid::Uuid;

pub struct ModelGroups {
    limits: Arc<GroupLimits>,
    machines: HashMap<PartitionKey, GroupMachine>,
    waiting: BTreeMap<ReplyTo, oneshot::Sender<GroupOutput>>,
    timers: Vec<(u64, PartitionKey, GroupTimer)>,
    asked: u64,
    ids: u128,
}

impl ModelGroups {
    pub fn new(limits: GroupLimits) -> ModelGroups {
        ModelGroups {
            limits: Arc::new(limits),
            machines: HashMap::new(),
            waiting: BTreeMap::new(),
            timers: Vec::new(),
            asked: 0,
            ids: 0,
        }
    }

    /// Has a machine take the request now; the answer may come when others have asked, or later.
    pub fn ask(&mut self, item: GroupItem, now_ms: i64) -> impl Future<Output = GroupAnswer> {
        let (sender, receiver) = oneshot::channel();
        self.asked += 1;
        let reply_to = ReplyTo(self.asked);
        self.waiting.insert(reply_to, sender);
        let ids: Vec<Uuid> = (0..GroupMachine::fresh_ids(&item.request))
            .map(|_| {
                self.ids += 1;
                Uuid::from_u128(self.ids)
            })
            .collect();
        let cause = Cause::Request { input: item.request, reply_to };
        self.step(item.at.key, cause, now_ms, &ids);
        async move { receiver.await.map_err(|_| CoordinatorRefusal::NotHere) }
    }

    /// Fires what is due.
    pub fn fire(&mut self, now_ms: i64) {
        let due = |(at, _, _): &mut (u64, _, _)| *at <= now_ms as u64;
        let due: Vec<_> = self.timers.extract_if(.., due).collect();
        for (_, key, timer) in due {
            self.step(key, Cause::Timer(timer), now_ms, &[]);
        }
    }

    fn step(&mut self, key: PartitionKey, cause: Cause<GroupMachine>, now_ms: i64, ids: &[Uuid]) {
        let limits = &self.limits;
        let machine = self.machines.entry(key).or_insert_with(|| GroupMachine::new(limits.clone()));
        let at = Moment { wall: Timestamp(now_ms), mono_ms: now_ms as u64, ids };
        let Step { records, replies, timers, .. } = machine.step(cause, at);
        records.into_iter().for_each(|record| machine.replay(record));
        for (to, output) in replies {
            // Whoever asked may have gone.
            let _ = self.waiting.remove(&to).expect("an answer to nobody").send(output);
        }
        for (timer, at_ms) in timers {
            self.timers.retain(|(_, of, set)| (of, set) != (&key, &timer));
            self.timers.extend(at_ms.map(|at_ms| (at_ms, key, timer)));
        }
    }
}
