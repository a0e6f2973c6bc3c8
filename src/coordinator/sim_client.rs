//! A consumer in the simulation of `sim`: it obeys the protocol of classic groups and has bad luck.
//!
//! One request at a time. It gives up on answers that do not come and asks again, it goes down
//! without a word and comes back as another process would, with its instance id if it has one.
//! What it consumes rises from what it finds committed.

use super::script::{protocols, subscription};
use super::{
    Commit, Committed, FetchOffsets, GroupOutput, GroupRefusal, GroupRequest, Join, Joined,
    Leaving, OffsetCommit, Session, Sync, WantedTopic,
};
use bytes::Bytes;
use shard::ids::{Offset, Timestamp};
use std::collections::BTreeMap;
use uuid::Uuid;

pub const TOPIC: &str = "t";
pub const PARTITIONS: u8 = 6;

/// Numbers that repeat with their seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Down,
    Joining,
    Syncing,
    Fetching,
    Consuming,
    Leaving,
}

#[derive(Debug)]
pub struct Client {
    pub group: String,
    pub instance: Option<String>,
    /// In no group: it commits as it likes.
    is_simple: bool,
    two_steps: bool,
    may_skip: bool,
    protocols: Vec<(String, Bytes)>,
    doing: Doing,
    pub member: String,
    pub generation: i32,
    joined: Option<Joined>,
    pub partitions: Vec<u8>,
    positions: BTreeMap<i32, i64>,
    /// The number of the request it waits for.
    pub waiting: Option<u64>,
    /// When its next request is delivered at the earliest: requests do not overtake one another.
    pub fifo_ms: u64,
    heartbeat_ms: u64,
    pub is_fenced: bool,
    /// It does not leave by itself any more.
    pub stays: bool,
}

impl Client {
    pub fn new(group: &str, instance: Option<&str>, rng: &mut Rng) -> Client {
        let names: &[&str] = if rng.one_in(2) { &["range", "sticky"] } else { &["range"] };
        Client {
            group: group.into(),
            instance: instance.map(String::from),
            is_simple: false,
            two_steps: rng.one_in(2),
            may_skip: rng.one_in(2),
            protocols: protocols(names),
            doing: Doing::Down,
            member: String::new(),
            generation: -1,
            joined: None,
            partitions: Vec::new(),
            positions: BTreeMap::new(),
            waiting: None,
            fifo_ms: 0,
            heartbeat_ms: 0,
            is_fenced: false,
            stays: false,
        }
    }

    pub fn simple(group: &str, rng: &mut Rng) -> Client {
        let mut client = Client::new(group, None, rng);
        client.is_simple = true;
        client.partitions = vec![0];
        client
    }

    pub fn is_up(&self) -> bool {
        self.doing != Doing::Down
    }

    pub fn is_settled(&self) -> bool {
        matches!(self.doing, Doing::Fetching | Doing::Consuming)
    }

    /// Who it is to the group, whatever its member id.
    pub fn owner(&self) -> String {
        self.instance.clone().unwrap_or_else(|| self.member.clone())
    }

    /// The process dies; nobody is told.
    pub fn crash(&mut self) {
        self.doing = Doing::Down;
        self.waiting = None;
    }

    fn start(&mut self) {
        self.doing = if self.is_simple { Doing::Fetching } else { Doing::Joining };
        self.member.clear();
        self.generation = -1;
        self.is_fenced = false;
        self.positions.clear();
    }

    /// What it asks next, if it asks anything now.
    pub fn ask(&mut self, now_ms: u64, topic_id: Uuid, rng: &mut Rng) -> Option<GroupRequest> {
        if self.doing == Doing::Down {
            self.start();
        }
        match self.doing {
            Doing::Down => None,
            Doing::Joining => Some(self.join(rng)),
            Doing::Syncing => Some(self.sync()),
            Doing::Fetching => Some(self.fetch(topic_id)),
            Doing::Leaving => {
                let leaving = Leaving { member: self.member.clone(), instance: None };
                Some(GroupRequest::Leave { group: self.group.clone(), members: vec![leaving] })
            }
            Doing::Consuming if !self.is_simple && now_ms >= self.heartbeat_ms => {
                self.heartbeat_ms = now_ms + 2_000;
                Some(GroupRequest::Heartbeat(self.session()))
            }
            Doing::Consuming if self.may_leave() && rng.one_in(40) => {
                self.doing = Doing::Leaving;
                self.ask(now_ms, topic_id, rng)
            }
            Doing::Consuming if rng.one_in(3) => Some(self.commit(topic_id, rng)),
            Doing::Consuming => None,
        }
    }

    /// Static members do not say that they go.
    fn may_leave(&self) -> bool {
        !self.is_simple && !self.stays && self.instance.is_none()
    }

    fn session(&self) -> Session {
        Session {
            group: self.group.clone(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            generation: self.generation,
        }
    }

    fn join(&mut self, rng: &mut Rng) -> GroupRequest {
        // Now and then a subscription changes.
        if rng.one_in(10) {
            let topics: &[&str] = if rng.one_in(2) { &[TOPIC] } else { &[TOPIC, "u"] };
            self.protocols[0].1 = subscription(topics);
        }
        GroupRequest::Join(Join {
            group: self.group.clone(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            client_id: "c".into(),
            client_host: "/h".into(),
            session_timeout_ms: 6_000,
            rebalance_timeout_ms: Some(8_000 + 4_000 * rng.below(3) as i32),
            protocol_type: "consumer".into(),
            protocols: self.protocols.clone(),
            two_steps: self.two_steps,
            may_skip_assignment: self.may_skip,
        })
    }

    /// The leader shares the partitions out among those it was told of.
    fn sync(&mut self) -> GroupRequest {
        let mut shares: Vec<(String, Vec<u8>)> = Vec::new();
        let joined = self.joined.as_ref().expect("it has joined");
        if joined.leader == self.member && !joined.skip_assignment {
            let members = joined.members.iter().map(|it| (it.member.clone(), Vec::new()));
            shares = members.collect();
            let count = shares.len();
            for partition in 0..PARTITIONS {
                shares[usize::from(partition) % count].1.push(partition);
            }
        }
        let share = |(member, partitions): (String, Vec<u8>)| (member, Bytes::from(partitions));
        GroupRequest::Sync(Sync {
            session: self.session(),
            protocol_type: Some("consumer".into()),
            protocol: Some(joined.protocol.clone()),
            assignments: shares.into_iter().map(share).collect(),
        })
    }

    fn fetch(&self, topic_id: Uuid) -> GroupRequest {
        let partitions = self.partitions.iter().map(|it| i32::from(*it)).collect();
        let topic = WantedTopic { topic: TOPIC.into(), topic_id, partitions };
        let topics = Some(vec![topic]);
        GroupRequest::Fetch(FetchOffsets { group: self.group.clone(), member: None, topics })
    }

    fn commit(&mut self, topic_id: Uuid, rng: &mut Rng) -> GroupRequest {
        let mut offsets = Vec::new();
        for (partition, position) in &mut self.positions {
            *position += 1 + rng.below(3) as i64;
            offsets.push(OffsetCommit {
                topic: TOPIC.into(),
                topic_id,
                partition: *partition,
                committed: Committed {
                    offset: Offset(*position),
                    leader_epoch: 0,
                    metadata: String::new(),
                    time: Timestamp(-1),
                },
                retention_ms: None,
            });
        }
        GroupRequest::Commit(Commit { session: self.session(), offsets })
    }

    /// An answer has come. How long until it goes on.
    pub fn hear(&mut self, output: GroupOutput, rng: &mut Rng) -> u64 {
        self.waiting = None;
        let refusal = match output {
            GroupOutput::Join(Ok(joined)) => {
                self.member = joined.member.clone();
                self.generation = joined.generation;
                self.joined = Some(joined);
                self.doing = Doing::Syncing;
                return rng.below(500);
            }
            GroupOutput::Join(Err(refused)) => {
                if refused.refusal == GroupRefusal::MemberIdRequired {
                    self.member = refused.member;
                    return rng.below(500);
                }
                refused.refusal
            }
            GroupOutput::Sync(Ok(synced)) => {
                self.partitions = synced.assignment.to_vec();
                self.doing = Doing::Fetching;
                return 0;
            }
            GroupOutput::Fetch(topics) => {
                let topics = topics.expect("offsets are told");
                let of = |(partition, committed): &(i32, Option<Committed>)| {
                    (*partition, committed.as_ref().map_or(0, |committed| committed.offset.0))
                };
                self.positions = topics[0].partitions.iter().map(of).collect();
                self.doing = Doing::Consuming;
                return rng.below(500);
            }
            GroupOutput::Heartbeat(Ok(())) | GroupOutput::Commit(Ok(_)) => {
                return 200 + rng.below(800);
            }
            GroupOutput::Leave(_) => {
                self.crash();
                return rng.below(20_000);
            }
            GroupOutput::Heartbeat(Err(refusal))
            | GroupOutput::Sync(Err(refusal))
            | GroupOutput::Commit(Err(refusal)) => refusal,
            other => panic!("an answer to nothing it asked: {other:?}"),
        };
        self.refused(refusal, rng)
    }

    fn refused(&mut self, refusal: GroupRefusal, rng: &mut Rng) -> u64 {
        match refusal {
            GroupRefusal::UnknownMember => self.member.clear(),
            GroupRefusal::RebalanceInProgress | GroupRefusal::IllegalGeneration => {}
            GroupRefusal::FencedInstance => {
                self.crash();
                self.is_fenced = true;
                return 20_000 + rng.below(20_000);
            }
            GroupRefusal::UnknownGroup => self.member.clear(),
            other => panic!("a client that obeys is told {other}"),
        }
        if !self.is_simple {
            self.doing = Doing::Joining;
        }
        rng.below(1_000)
    }

    /// No answer: it connects anew and asks again.
    pub fn give_up(&mut self) {
        self.waiting = None;
        if self.is_simple {
            self.doing = Doing::Fetching;
        }
    }
}
