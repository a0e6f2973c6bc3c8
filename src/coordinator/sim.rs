//! A simulation: consumers with bad luck, a coordinator that starts again, and what must hold.
//!
//! Requests and answers are late or lost, appends are refused, the process ends and may lose what
//! was not committed (answers to that were never sent). Checked at each step: every request is
//! answered once and in time; no partition has two owners in a generation, all are owned in a
//! stable group, one leads; generations and committed offsets do not fall; what was acknowledged
//! stays; what replay makes of the log, also of the compacted log, is what lives. In the end the
//! troubles stop, and all groups have to become stable.
//!
//! `BASALT_SIM_SEED=<seed> cargo test --lib coordinator::sim` repeats one run,
//! `BASALT_SIM_SEEDS=<count>` runs more than the few of a normal test.

use super::record::{GroupRecord, StoredOffset};
use super::script::{limits, WALL};
use super::sim_client::{Client, Rng, PARTITIONS, TOPIC};
use super::{
    DescribedMember, GroupLimits, GroupMachine, GroupOutput, GroupRequest, GroupState, GroupTimer,
    Joined,
};
use crate::state_machine::{Cause, Durable, IfRefused, Machine, Moment, Pair, ReplyTo, Step};
use shard::ids::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

const SEEDS: u64 = 24;
const TROUBLE_MS: u64 = 400_000;
const CALM_MS: u64 = 150_000;
/// The longest a request may be held: the largest rebalance timeout, and the first rebalance's
/// delay.
const HELD_MS_MAX: u64 = 16_000 + 3_000;
const RETENTION_MS: i64 = 10_000;
const SESSION_MS: u64 = 6_000;

enum Event {
    Ask { client: usize, life: u32, number: u64, request: GroupRequest },
    Answer { client: usize, number: u64, output: GroupOutput },
    Wake { client: usize },
    GiveUp { client: usize, number: u64 },
    Commit,
    Trouble,
}

struct Asked {
    client: usize,
    number: u64,
    request: GroupRequest,
    owner: String,
    since_ms: u64,
}

/// How often something happened, so that a run that meets nothing is noticed.
type Seen = BTreeMap<&'static str, u64>;

struct World {
    rng: Rng,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    limits: Arc<GroupLimits>,
    machine: GroupMachine,
    timers: BTreeMap<GroupTimer, u64>,
    log: Vec<Pair>,
    committed: usize,
    /// Answers that wait for the log to be committed so far.
    outbox: Vec<(usize, ReplyTo, GroupOutput)>,
    asked: BTreeMap<ReplyTo, Asked>,
    replies: u64,
    ids: u128,
    life: u32,
    clients: Vec<Client>,
    topic_id: Uuid,
    calm: bool,
    /// The process ends right after the next append, before it is committed.
    ends_next: bool,
    owners: BTreeMap<(String, i32), BTreeMap<u8, String>>,
    leaders: BTreeMap<(String, u32, i32), String>,
    /// When each member was last heard of, or answered.
    heard: BTreeMap<String, u64>,
    /// The last generation each member was told in this life of the coordinator.
    told: BTreeMap<String, i32>,
    /// The highest generation of a group that was synced.
    settled: BTreeMap<String, i32>,
    acknowledged: BTreeMap<(String, i32, Uuid), i64>,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng(seed);
        let mut limits = limits();
        limits.offsets_retention_ms = RETENTION_MS;
        limits.offsets_check_ms = 1_000;
        limits.offsets_max = 100;
        let limits = Arc::new(limits);
        let mut clients = Vec::new();
        for group in ["g1", "g2"] {
            let count = 1 + rng.below(4);
            for number in 0..count {
                // Sometimes two have the same instance id.
                let instance = format!("{group}-{}", number / (1 + rng.below(2)));
                let instance = rng.one_in(2).then_some(&*instance);
                clients.push(Client::new(group, instance, &mut rng));
            }
        }
        clients.push(Client::simple("simple", &mut rng));
        let mut world = World {
            rng,
            now_ms: 0,
            queue: BTreeMap::new(),
            events: 0,
            machine: GroupMachine::new(limits.clone()),
            limits,
            timers: BTreeMap::new(),
            log: Vec::new(),
            committed: 0,
            outbox: Vec::new(),
            asked: BTreeMap::new(),
            replies: 0,
            ids: 1,
            life: 0,
            clients,
            topic_id: Uuid::from_u128(u128::MAX),
            calm: false,
            ends_next: false,
            owners: BTreeMap::new(),
            leaders: BTreeMap::new(),
            heard: BTreeMap::new(),
            told: BTreeMap::new(),
            settled: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            seen: Seen::new(),
        };
        world.load();
        for client in 0..world.clients.len() {
            let in_ms = world.rng.below(10_000);
            world.after(in_ms, Event::Wake { client });
        }
        world.after(1, Event::Commit);
        world.after(5_000, Event::Trouble);
        world
    }

    fn after(&mut self, in_ms: u64, event: Event) {
        self.events += 1;
        self.queue.insert((self.now_ms + in_ms, self.events), event);
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn wall(&self) -> Timestamp {
        Timestamp(WALL + self.now_ms as i64)
    }

    /// Something goes wrong, about once in so many times.
    fn trouble(&mut self, one_in: u64) -> bool {
        !self.calm && self.rng.one_in(one_in)
    }

    /// How long a message is under way.
    fn delay(&mut self) -> u64 {
        let most_ms = if self.trouble(30) { 3_000 } else { 20 };
        self.rng.below(most_ms)
    }

    fn run(mut self) -> Seen {
        self.run_until(TROUBLE_MS);
        self.calm = true;
        self.clients.iter_mut().for_each(|client| client.stays = true);
        self.run_until(TROUBLE_MS + CALM_MS);
        self.check_settled();
        self.seen
    }

    fn run_until(&mut self, end_ms: u64) {
        loop {
            let event_ms = self.queue.keys().next().map_or(u64::MAX, |key| key.0);
            let timer = self.timers.iter().min_by_key(|(_, at_ms)| **at_ms);
            let timer = timer.map(|(timer, at_ms)| (timer.clone(), *at_ms));
            let timer_ms = timer.as_ref().map_or(u64::MAX, |timer| timer.1);
            if event_ms.min(timer_ms) > end_ms {
                break;
            }
            self.now_ms = self.now_ms.max(event_ms.min(timer_ms));
            match timer {
                Some((timer, at_ms)) if at_ms <= event_ms => {
                    self.timers.remove(&timer);
                    self.step(Cause::Timer(timer), 0);
                }
                _ => {
                    let (_, event) = self.queue.pop_first().expect("it was there");
                    self.take(event);
                }
            }
            self.check_held();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Wake { client } => self.wake(client),
            // Connections end with the process.
            Event::Ask { life, .. } if life != self.life => {}
            Event::Ask { client, number, request, .. } => self.deliver(client, number, request),
            Event::Answer { client, number, output } => {
                if self.clients[client].waiting == Some(number) {
                    let in_ms = self.clients[client].hear(output, &mut self.rng);
                    self.rest(client, in_ms);
                }
            }
            Event::GiveUp { client, number } => {
                if self.clients[client].waiting == Some(number) {
                    self.saw("given up");
                    self.clients[client].give_up();
                    self.after(0, Event::Wake { client });
                }
            }
            Event::Commit => {
                self.commit();
                let in_ms = 1 + self.rng.below(30);
                self.after(in_ms, Event::Commit);
            }
            Event::Trouble => {
                if !self.calm {
                    self.make_trouble();
                    let in_ms = 1_000 + self.rng.below(10_000);
                    self.after(in_ms, Event::Trouble);
                }
            }
        }
    }

    /// A client goes on in a while, or goes down for a while.
    fn rest(&mut self, client: usize, in_ms: u64) {
        if self.clients[client].is_fenced {
            self.saw("fenced");
            if self.calm {
                return;
            }
        }
        self.after(in_ms, Event::Wake { client });
    }

    fn wake(&mut self, client: usize) {
        if self.clients[client].waiting.is_some() {
            return;
        }
        if self.clients[client].is_up() && self.trouble(150) {
            self.saw("crash");
            self.clients[client].crash();
            let in_ms = 500 + self.rng.below(30_000);
            return self.after(in_ms, Event::Wake { client });
        }
        let Some(request) = self.clients[client].ask(self.now_ms, self.topic_id, &mut self.rng)
        else {
            let in_ms = 100 + self.rng.below(900);
            return self.after(in_ms, Event::Wake { client });
        };
        self.events += 1;
        let number = self.events;
        self.clients[client].waiting = Some(number);
        let patience_ms = match &request {
            GroupRequest::Join(_) | GroupRequest::Sync(_) => 20_000,
            _ => 2_000,
        };
        let hasty = self.trouble(20);
        self.after(if hasty { 50 } else { patience_ms }, Event::GiveUp { client, number });
        let late_ms = self.delay();
        let at_ms = self.clients[client].fifo_ms.max(self.now_ms + late_ms);
        self.clients[client].fifo_ms = at_ms;
        if !self.trouble(60) {
            let life = self.life;
            self.after(at_ms - self.now_ms, Event::Ask { client, life, number, request });
        }
    }

    fn deliver(&mut self, client: usize, number: u64, request: GroupRequest) {
        self.replies += 1;
        let reply_to = ReplyTo(self.replies);
        let ids = GroupMachine::fresh_ids(&request);
        let owner = self.clients[client].owner();
        self.heard.insert(self.clients[client].member.clone(), self.now_ms);
        let (since_ms, input) = (self.now_ms, request.clone());
        self.asked.insert(reply_to, Asked { client, number, request, owner, since_ms });
        self.step(Cause::Request { input, reply_to }, ids);
    }

    /// What the shell does.
    fn step(&mut self, cause: Cause<GroupMachine>, ids: usize) {
        let ids: Vec<Uuid> = (0..ids as u128).map(|id| Uuid::from_u128(self.ids + id)).collect();
        self.ids += ids.len() as u128;
        let is_expiry = matches!(cause, Cause::Timer(GroupTimer::Expiry));
        let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &ids };
        let before = self.rng.one_in(16).then(|| self.machine.durable());
        let step = self.machine.step(cause, at);
        let holds = before.is_none_or(|before| before == self.machine.durable());
        assert!(holds, "a step changed durable state");
        if !step.records.is_empty() && self.trouble(80) {
            return self.refuse(step);
        }
        for record in &step.records {
            self.check_record(record, is_expiry);
        }
        let appends = !step.records.is_empty();
        self.append(step.records);
        self.set_timers(step.timers);
        for (to, output) in step.replies {
            assert!(self.asked.contains_key(&to), "an answer to nobody: {output:?}");
            assert!(self.outbox.iter().all(|held| held.1 != to), "answered twice: {output:?}");
            let member = match &output {
                GroupOutput::Join(Ok(joined)) => &joined.member,
                _ => &self.clients[self.asked[&to].client].member,
            };
            self.heard.insert(member.clone(), self.now_ms);
            self.outbox.push((self.log.len(), to, output));
        }
        self.check_groups();
        if appends && std::mem::take(&mut self.ends_next) {
            self.lose_tail();
        }
    }

    fn append(&mut self, records: Vec<GroupRecord>) {
        for record in records {
            self.log.push(record.to_pair());
            self.machine.replay(record.clone());
            if let GroupRecord::Group { group, value: None } = record {
                assert_eq!(self.describe(&group), None, "nothing is left of {group}");
            }
        }
    }

    fn set_timers(&mut self, timers: Vec<(GroupTimer, Option<u64>)>) {
        for (timer, at_ms) in timers {
            match at_ms {
                Some(at_ms) => self.timers.insert(timer, at_ms),
                None => self.timers.remove(&timer),
            };
        }
    }

    /// The log took nothing: those who were to be answered hear that it failed.
    fn refuse(&mut self, step: Step<GroupMachine>) {
        for (to, _) in &step.replies {
            assert!(self.asked.remove(to).is_some(), "an answer to nobody");
        }
        match step.if_refused {
            IfRefused::Stay => {
                self.saw("refused, stays");
                self.set_timers(step.timers);
            }
            IfRefused::Reload => {
                self.saw("refused, reloads");
                self.restart(self.log.len());
            }
        }
    }

    fn commit(&mut self) {
        self.committed = self.log.len();
        for (_, to, output) in std::mem::take(&mut self.outbox) {
            let asked = self.asked.remove(&to).expect("checked when it was answered");
            self.check_answer(&asked, &output);
            let late_ms = self.delay();
            if self.trouble(60) {
                self.saw("lost answer");
                continue;
            }
            let (client, number) = (asked.client, asked.number);
            self.after(late_ms, Event::Answer { client, number, output });
        }
    }

    fn make_trouble(&mut self) {
        match self.rng.below(8) {
            0 => {
                self.saw("restart");
                self.restart(self.log.len());
            }
            1 => self.ends_next = true,
            2 => {
                // The topic is made anew.
                let old = self.topic_id;
                self.topic_id = Uuid::from_u128(old.as_u128() - 1);
                self.replies += 1;
                let reply_to = ReplyTo(self.replies);
                let input = GroupRequest::Forget { topics: vec![old] };
                let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &[] };
                let step = self.machine.step(Cause::Request { input, reply_to }, at);
                for record in &step.records {
                    self.check_record(record, false);
                }
                self.append(step.records);
                self.saw("topic made anew");
                assert!(!self.machine.topics().contains(&old), "it is forgotten");
            }
            3 => {
                // Everybody is away for so long that offsets expire.
                if self.rng.one_in(3) {
                    self.queue.retain(|_, event| !matches!(event, Event::Wake { .. }));
                    for client in 0..self.clients.len() {
                        self.clients[client].crash();
                        let in_ms = 90_000 + self.rng.below(10_000);
                        self.after(in_ms, Event::Wake { client });
                    }
                    self.saw("all away");
                }
            }
            _ => {}
        }
    }

    /// Some of what was not committed is gone, and so are the answers that waited for it.
    fn lose_tail(&mut self) {
        let open = (self.log.len() - self.committed) as u64;
        let keep = self.committed + self.rng.below(open + 1) as usize;
        self.saw(if keep < self.log.len() { "lost tail" } else { "restart" });
        self.restart(keep);
    }

    fn restart(&mut self, keep: usize) {
        self.log.truncate(keep);
        self.outbox.clear();
        self.asked.clear();
        self.load();
    }

    fn load(&mut self) {
        self.life += 1;
        self.told.clear();
        self.committed = self.log.len();
        self.timers.clear();
        self.machine = replayed(&self.limits, self.log.iter());
        let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &[] };
        let step = self.machine.loaded(at);
        assert!(step.records.is_empty() && step.replies.is_empty());
        self.set_timers(step.timers);
        self.heard.clear();
        self.check_groups();
    }

    // What must hold.

    fn check_held(&self) {
        let is_sent = |to: &ReplyTo| self.outbox.iter().any(|held| held.1 == *to);
        for (to, asked) in &self.asked {
            let held_ms = self.now_ms - asked.since_ms;
            let is_late = held_ms > HELD_MS_MAX && !is_sent(to);
            assert!(!is_late, "held for {held_ms} ms: {:?}", asked.request);
        }
    }

    fn check_record(&mut self, record: &GroupRecord, is_expiry: bool) {
        let GroupRecord::Offset { group, topic, partition, value } = record else {
            if let GroupRecord::Group { group, value: None } = record {
                self.saw("group vanished");
                self.owners.retain(|key, _| key.0 != *group);
                self.leaders.retain(|key, _| key.0 != *group);
                self.settled.remove(group);
            }
            return;
        };
        assert_eq!(topic, TOPIC);
        let before = self.machine.committed(group, topic, *partition).cloned();
        let id = value.as_ref().map(|value| value.topic_id);
        self.acknowledged
            .retain(|key, _| key.0 != *group || key.1 != *partition || Some(key.2) == id);
        match value {
            Some(value) => check_rise(before.as_ref(), value),
            None => {
                let before = before.expect("what is deleted is there");
                if is_expiry {
                    self.saw("offset expired");
                    let age_ms = self.wall().0 - before.time.0;
                    assert!(age_ms >= RETENTION_MS, "expired after {age_ms} ms");
                    assert_eq!(self.state(group), Some(GroupState::Empty), "it is read");
                }
            }
        }
    }

    fn describe(&mut self, group: &str) -> Option<super::Described> {
        let input = GroupRequest::Describe { group: group.into() };
        let at = Moment { wall: self.wall(), mono_ms: self.now_ms, ids: &[] };
        let cause = Cause::Request { input, reply_to: ReplyTo(0) };
        match self.machine.step(cause, at).replies.pop() {
            Some((_, GroupOutput::Describe(described))) => described,
            other => panic!("no description: {other:?}"),
        }
    }

    fn state(&mut self, group: &str) -> Option<GroupState> {
        self.describe(group).map(|described| described.state)
    }

    fn check_groups(&mut self) {
        for group in ["g1", "g2"] {
            let Some(described) = self.describe(group) else { continue };
            if described.state != GroupState::Stable {
                continue;
            }
            self.check_stable(group, &described.members);
        }
        for ((group, partition, topic_id), offset) in &self.acknowledged {
            let stored = self.machine.committed(group, TOPIC, *partition);
            let holds = stored
                .is_some_and(|stored| stored.offset.0 >= *offset || stored.topic_id != *topic_id);
            assert!(holds, "{group} {partition}: {offset} was acknowledged, {stored:?} is there");
        }
        if self.rng.one_in(100) {
            self.check_log();
        }
    }

    fn check_stable(&mut self, group: &str, members: &[DescribedMember]) {
        let mut owned: Vec<u8> =
            members.iter().flat_map(|member| member.assignment.to_vec()).collect();
        owned.sort();
        let all: Vec<u8> = (0..PARTITIONS).collect();
        assert_eq!(owned, all, "partitions owned in {group}");
        let stored = self.machine.stored(group).expect("a stable group is stored");
        let stored: Vec<&str> = stored.members.iter().map(|it| &*it.member).collect();
        let live: Vec<&str> = members.iter().map(|it| &*it.member).collect();
        assert_eq!(stored, live, "members of {group} in its record and in life");
        for member in members {
            let heard_ms = *self.heard.entry(member.member.clone()).or_insert(self.now_ms);
            let silent_ms = self.now_ms - heard_ms;
            assert!(silent_ms <= SESSION_MS, "{} is silent for {silent_ms} ms", member.member);
        }
    }

    /// What a restart would find.
    fn check_log(&self) {
        let live = self.machine.durable();
        let again = replayed(&self.limits, self.log.iter());
        assert!(live == again.durable(), "replay makes another state");
        assert_eq!(self.machine.topics(), again.topics());
        assert_eq!(self.machine.counts().offsets, again.counts().offsets);
        let twice = replayed(&self.limits, self.log.iter().chain(&self.log));
        assert!(live == twice.durable(), "replaying twice makes another state");
        let mut last = BTreeMap::new();
        for (at, pair) in self.log.iter().enumerate() {
            last.insert(pair.key.clone(), at);
        }
        let kept: BTreeSet<usize> = last.into_values().collect();
        let compact = kept.into_iter().map(|at| &self.log[at]);
        let compact = compact.filter(|pair| pair.value.is_some());
        let compact = replayed(&self.limits, compact);
        assert!(live == compact.durable(), "the compacted log makes another state");
    }

    fn check_answer(&mut self, asked: &Asked, output: &GroupOutput) {
        match (&asked.request, output) {
            (GroupRequest::Join(join), GroupOutput::Join(Ok(joined))) => {
                let group = join.group.clone();
                let owner = join.instance.clone().unwrap_or_else(|| joined.member.clone());
                self.check_joined(group, owner, joined);
            }
            (GroupRequest::Sync(sync), GroupOutput::Sync(Ok(synced))) => {
                self.saw("synced");
                let (group, generation) = (sync.session.group.clone(), sync.session.generation);
                let settled = self.settled.entry(group.clone()).or_insert(generation);
                *settled = generation.max(*settled);
                let owners = self.owners.entry((group, generation)).or_default();
                for partition in &synced.assignment {
                    let owner = owners.entry(*partition).or_insert_with(|| asked.owner.clone());
                    assert_eq!(*owner, asked.owner, "owners of {partition} in {generation}");
                }
            }
            (GroupRequest::Commit(commit), GroupOutput::Commit(Ok(results))) => {
                self.saw("committed");
                for (offset, result) in commit.offsets.iter().zip(results) {
                    assert_eq!(*result, Ok(()));
                    let group = commit.session.group.clone();
                    let key = (group, offset.partition, offset.topic_id);
                    let stored = self.machine.committed(&key.0, TOPIC, offset.partition);
                    // It may have expired or been forgotten since.
                    if stored.is_some_and(|stored| stored.topic_id == offset.topic_id) {
                        self.acknowledged.insert(key, offset.committed.offset.0);
                    }
                }
            }
            _ => {}
        }
    }

    fn check_joined(&mut self, group: String, owner: String, joined: &Joined) {
        let (member, generation) = (joined.member.clone(), joined.generation);
        let told = self.told.insert(member.clone(), generation).unwrap_or(0);
        assert!(told <= generation, "{member} was told {told}, then {generation}");
        let settled = self.settled.get(&group).copied().unwrap_or(0);
        assert!(settled <= generation, "{group} was at {settled}, then {generation}");
        if joined.leader != member {
            assert!(joined.members.is_empty(), "only the leader is told of the members");
            return;
        }
        if joined.skip_assignment {
            self.saw("leader came back");
        }
        assert!(joined.members.iter().any(|it| it.member == member));
        let leader =
            self.leaders.entry((group, self.life, generation)).or_insert_with(|| owner.clone());
        assert_eq!(*leader, owner, "leaders of {generation}");
    }

    /// After the troubles everybody who is up is in, and consumes.
    fn check_settled(&mut self) {
        self.check_log();
        for group in ["g1", "g2"] {
            let clients = self.clients.iter().filter(|it| it.group == group && it.is_up());
            let up: Vec<&Client> = clients.collect();
            let generation = up.first().map_or(0, |client| client.generation);
            let mut owned = Vec::new();
            for client in &up {
                let is_in = client.is_settled() && client.generation == generation;
                assert!(is_in, "{group} at {generation}: {client:?}");
                owned.extend(client.partitions.iter().copied());
            }
            owned.sort();
            let all: Vec<u8> = (0..PARTITIONS).collect();
            assert!(up.is_empty() || owned == all, "{group}: {owned:?} is consumed");
            self.saw("settled");
        }
    }
}

fn check_rise(before: Option<&StoredOffset>, value: &StoredOffset) {
    let before = before.filter(|before| before.topic_id == value.topic_id);
    let falls = before.is_some_and(|before| before.offset > value.offset);
    assert!(!falls, "a committed offset fell from {before:?} to {value:?}");
}

fn replayed<'a>(limits: &Arc<GroupLimits>, log: impl Iterator<Item = &'a Pair>) -> GroupMachine {
    let mut machine = GroupMachine::new(limits.clone());
    for pair in log {
        let record = GroupRecord::from_pair(pair.key.as_deref(), pair.value.as_deref());
        machine.replay(record.expect("it was written").expect("of a known kind"));
    }
    machine
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn consumers_with_bad_luck() {
    let only = number("BASALT_SIM_SEED");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..number("BASALT_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = Seen::new();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        match run {
            Ok(counts) => {
                for (what, count) in counts {
                    *seen.entry(what).or_default() += count;
                }
            }
            Err(panic) => {
                eprintln!("failed with BASALT_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{seen:?}");
    let all = [
        "all away",
        "committed",
        "crash",
        "fenced",
        "given up",
        "group vanished",
        "leader came back",
        "lost answer",
        "lost tail",
        "offset expired",
        "refused, reloads",
        "refused, stays",
        "restart",
        "settled",
        "synced",
        "topic made anew",
    ];
    let met: Vec<&str> = seen.keys().copied().collect();
    assert!(only.is_some() || met == all, "the runs have met {met:?}");
}
