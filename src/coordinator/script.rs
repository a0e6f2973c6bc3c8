//! Drives a `GroupMachine` in tests as the shell does: appends, replays, answers, fires timers.
//!
//! Time is virtual. Records go through their bytes. A request that is answered twice, a record
//! that does not survive its bytes or a missing answer is a panic.

use super::record::GroupRecord;
use super::{
    Commit, CommitRefusal, Committed, CommittedTopic, FetchOffsets, GroupLimits, GroupMachine,
    GroupOutput, GroupRefusal, GroupRequest, GroupTimer, Join, JoinRefusal, Joined, OffsetCommit,
    Session, Sync, Synced, WantedTopic,
};
use crate::state_machine::{Cause, Durable, Machine, Moment, Pair, ReplyTo, Step};
use bytes::Bytes;
use shard::ids::{Offset, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// The wall clock when the clock that never jumps stands at 0.
pub const WALL: i64 = 1_000_000_000;
pub const GROUP: &str = "g";

pub fn limits() -> GroupLimits {
    GroupLimits {
        session_timeout_ms: (6_000, 1_800_000),
        initial_rebalance_delay_ms: 3_000,
        members_max: 100,
        groups_max: 10,
        metadata_bytes_max: 10_000,
        offsets_max: 5,
        offset_metadata_bytes_max: 10,
        offsets_retention_ms: 604_800_000,
        offsets_check_ms: 600_000,
    }
}

pub struct Script {
    pub machine: GroupMachine,
    limits: Arc<GroupLimits>,
    pub now_ms: u64,
    pub ids: u128,
    asked: u64,
    answers: BTreeMap<ReplyTo, GroupOutput>,
    pub timers: BTreeMap<GroupTimer, u64>,
    /// What lies in the partition.
    pub log: Vec<Pair>,
}

impl Script {
    pub fn new() -> Script {
        Script::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut GroupLimits)) -> Script {
        let mut limits = limits();
        change(&mut limits);
        let limits = Arc::new(limits);
        let machine = GroupMachine::new(limits.clone());
        let mut script = Script {
            machine,
            limits,
            now_ms: 0,
            ids: 0,
            asked: 0,
            answers: BTreeMap::new(),
            timers: BTreeMap::new(),
            log: Vec::new(),
        };
        script.restart();
        script
    }

    pub fn wall(&self) -> Timestamp {
        Timestamp(WALL + self.now_ms as i64)
    }

    /// The process starts again and finds what is in the log.
    pub fn restart(&mut self) {
        self.machine = GroupMachine::new(self.limits.clone());
        for pair in &self.log {
            self.machine.replay(decode(pair));
        }
        self.timers.clear();
        let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &[] };
        let step = self.machine.loaded(at);
        self.take(step);
    }

    fn take(&mut self, step: Step<GroupMachine>) {
        for record in step.records {
            let pair = record.to_pair();
            assert_eq!(decode(&pair), record);
            self.machine.replay(record);
            self.log.push(pair);
        }
        for (to, output) in step.replies {
            assert!(to.0 <= self.asked, "an answer to nobody");
            assert_eq!(self.answers.insert(to, output), None, "answered twice");
        }
        for (timer, at_ms) in step.timers {
            match at_ms {
                Some(at_ms) => self.timers.insert(timer, at_ms),
                None => self.timers.remove(&timer),
            };
        }
    }

    fn step(&mut self, cause: Cause<GroupMachine>, ids: usize) {
        let mut next = || {
            self.ids += 1;
            Uuid::from_u128(self.ids)
        };
        let ids: Vec<Uuid> = (0..ids).map(|_| next()).collect();
        let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &ids };
        let step = self.machine.step(cause, at);
        self.take(step);
    }

    /// Asks; the answer may come later.
    pub fn send(&mut self, input: GroupRequest) -> ReplyTo {
        self.asked += 1;
        let reply_to = ReplyTo(self.asked);
        let ids = GroupMachine::fresh_ids(&input);
        self.step(Cause::Request { input, reply_to }, ids);
        reply_to
    }

    /// Asks what has to be answered at once.
    pub fn ask(&mut self, input: GroupRequest) -> GroupOutput {
        let to = self.send(input);
        self.answer(to).expect("an answer at once")
    }

    pub fn answer(&mut self, to: ReplyTo) -> Option<GroupOutput> {
        self.answers.remove(&to)
    }

    /// Lets time pass and fires what is due, in its order.
    pub fn tick(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        loop {
            let due = self.timers.iter().filter(|(_, at_ms)| **at_ms <= end_ms);
            let Some((timer, at_ms)) = due.min_by_key(|(_, at_ms)| **at_ms) else { break };
            let (timer, at_ms) = (timer.clone(), *at_ms);
            self.timers.remove(&timer);
            self.now_ms = self.now_ms.max(at_ms);
            self.step(Cause::Timer(timer), 0);
        }
        self.now_ms = end_ms;
    }

    // What tests ask.

    pub fn send_join(&mut self, join: Join) -> ReplyTo {
        self.send(GroupRequest::Join(join))
    }

    pub fn joined(&mut self, to: ReplyTo) -> Joined {
        match self.answer(to) {
            Some(GroupOutput::Join(Ok(joined))) => joined,
            other => panic!("not joined: {other:?}"),
        }
    }

    pub fn join_refused(&mut self, to: ReplyTo) -> (GroupRefusal, String) {
        match self.answer(to) {
            Some(GroupOutput::Join(Err(JoinRefusal { refusal, member }))) => (refusal, member),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// A new member joins in one step; its request waits.
    pub fn new_member(&mut self) -> ReplyTo {
        self.send_join(join())
    }

    /// A group of so many members, stable in its first generation, each with its own name as its
    /// assignment. The leader is the first.
    pub fn stable(&mut self, members: usize) -> Vec<String> {
        let asked: Vec<ReplyTo> = (0..members).map(|_| self.new_member()).collect();
        self.tick(6_000);
        let joined: Vec<Joined> = asked.into_iter().map(|to| self.joined(to)).collect();
        self.sync_all(&joined)
    }

    /// All sync, the leader last. The members' ids, the leader's first.
    pub fn sync_all(&mut self, joined: &[Joined]) -> Vec<String> {
        let leader = joined.iter().find(|it| it.member == it.leader).expect("a leader");
        let mut ids: Vec<String> = joined.iter().map(|joined| joined.member.clone()).collect();
        ids.retain(|id| *id != leader.leader);
        let generation = leader.generation;
        let held: Vec<_> = ids.iter().map(|id| (id, self.send_sync(id, generation))).collect();
        let members = leader.members.iter().map(|it| it.member.clone());
        let assigned = self.assign(&leader.member, generation, members.collect());
        assert_eq!(assigned, Ok(synced(&leader.leader)));
        for (id, to) in held {
            assert_eq!(self.synced(to), Ok(synced(id)));
        }
        ids.insert(0, leader.leader.clone());
        ids
    }

    pub fn send_sync(&mut self, member: &str, generation: i32) -> ReplyTo {
        let session = session(member, generation);
        self.send(GroupRequest::Sync(Sync { session, ..Sync::default() }))
    }

    pub fn synced(&mut self, to: ReplyTo) -> Result<Synced, GroupRefusal> {
        match self.answer(to) {
            Some(GroupOutput::Sync(result)) => result,
            other => panic!("no sync: {other:?}"),
        }
    }

    /// The leader's sync: each member is assigned its own name.
    pub fn assign(
        &mut self,
        leader: &str,
        generation: i32,
        members: Vec<String>,
    ) -> Result<Synced, GroupRefusal> {
        let assignments = members.into_iter().map(|id| (id.clone(), Bytes::from(id))).collect();
        let session = session(leader, generation);
        let sync = Sync { session, assignments, ..Sync::default() };
        let to = self.send(GroupRequest::Sync(sync));
        self.synced(to)
    }

    pub fn heartbeat(&mut self, member: &str, generation: i32) -> Result<(), GroupRefusal> {
        self.beat(session(member, generation))
    }

    pub fn beat(&mut self, session: Session) -> Result<(), GroupRefusal> {
        match self.ask(GroupRequest::Heartbeat(session)) {
            GroupOutput::Heartbeat(result) => result,
            other => panic!("no heartbeat: {other:?}"),
        }
    }

    pub fn leave(&mut self, members: Vec<super::Leaving>) -> Vec<Result<(), GroupRefusal>> {
        match self.ask(GroupRequest::Leave { group: GROUP.into(), members }) {
            GroupOutput::Leave(Ok(results)) => results,
            other => panic!("no leave: {other:?}"),
        }
    }

    pub fn commit(
        &mut self,
        session: Session,
        offsets: Vec<OffsetCommit>,
    ) -> Result<Vec<Result<(), CommitRefusal>>, GroupRefusal> {
        match self.ask(GroupRequest::Commit(Commit { session, offsets })) {
            GroupOutput::Commit(result) => result,
            other => panic!("no commit: {other:?}"),
        }
    }

    pub fn fetch(&mut self, topics: Option<Vec<WantedTopic>>) -> Vec<CommittedTopic> {
        let fetch = FetchOffsets { group: GROUP.into(), member: None, topics };
        match self.ask(GroupRequest::Fetch(fetch)) {
            GroupOutput::Fetch(Ok(topics)) => topics,
            other => panic!("no offsets: {other:?}"),
        }
    }

    /// Offset by topic and partition, of everything the group has committed.
    pub fn offsets(&mut self) -> Vec<(String, i32, i64)> {
        let of = |topic: CommittedTopic| {
            let name = topic.topic;
            let partitions = topic.partitions.into_iter();
            partitions.map(move |(partition, committed)| {
                (name.clone(), partition, committed.expect("committed").offset.0)
            })
        };
        self.fetch(None).into_iter().flat_map(of).collect()
    }

    pub fn describe(&mut self) -> Option<super::Described> {
        match self.ask(GroupRequest::Describe { group: GROUP.into() }) {
            GroupOutput::Describe(described) => described,
            other => panic!("no description: {other:?}"),
        }
    }

    /// The group's state by name; "Dead" if there is none.
    pub fn state(&mut self) -> &'static str {
        self.describe().map_or("Dead", |described| described.state.name())
    }
}

fn decode(pair: &Pair) -> GroupRecord {
    let read = GroupRecord::from_pair(pair.key.as_deref(), pair.value.as_deref());
    read.expect("a record that was written").expect("of a known kind")
}

pub fn session(member: &str, generation: i32) -> Session {
    Session { group: GROUP.into(), member: member.into(), instance: None, generation }
}

/// A new member of the group, in one step.
pub fn join() -> Join {
    Join {
        group: GROUP.into(),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: Some(60_000),
        protocol_type: "consumer".into(),
        protocols: protocols(&["range"]),
        ..Join::default()
    }
}

/// The member joins again.
pub fn rejoin(member: &str) -> Join {
    Join { member: member.into(), ..join() }
}

pub fn protocols(names: &[&str]) -> Vec<(String, Bytes)> {
    names.iter().map(|name| (name.to_string(), subscription(&["t"]))).collect()
}

/// What a consumer of these topics sends.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, topics.len() as u8];
    for topic in topics {
        bytes.extend([0, topic.len() as u8]);
        bytes.extend(topic.as_bytes());
    }
    bytes.extend([0; 4]);
    bytes.into()
}

pub fn synced(member: &str) -> Synced {
    Synced {
        protocol_type: "consumer".into(),
        protocol: "range".into(),
        assignment: Bytes::from(member.to_string()),
    }
}

/// The id of a topic in tests.
pub fn topic_id(topic: &str) -> Uuid {
    Uuid::from_u128(u128::from(topic.as_bytes()[0]))
}

pub fn offset(topic: &str, partition: i32, offset: i64) -> OffsetCommit {
    OffsetCommit {
        topic: topic.into(),
        topic_id: topic_id(topic),
        partition,
        committed: Committed {
            offset: Offset(offset),
            leader_epoch: 3,
            metadata: "m".into(),
            time: Timestamp(-1),
        },
        retention_ms: None,
    }
}
