//! The client of one life: asks at random, several requests at a time, and holds every answer
//! against what it knows.
//!
//! Requests are asked in the order of their numbers and their answers taken in the same order. In a
//! life without a fault every refusal is one too many.

use super::groups::Groups;
use super::topics::{Part, Topics};
use super::{broken, ensure, Check, Tally, NUMBER_STEP};
use crate::catalog::{Command, DEFAULT_VIEW};
use crate::coordinator::{partition_of, GroupOutput, GroupRequest, OFFSETS_TOPIC};
use crate::cores::front::{AppendRefusal, CoordinatorRefusal, Cores, GroupItem, PartitionAt};
use crate::cores::front::{Later, PartitionRefusal};
use crate::cores::gate::Gate;
use crate::cores::Door;
use crate::runtime;
use shard::disk::sim::{Rng, SimDisk};
use shard::disk::Disk;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// What files may take together when the disk is not to be full.
pub const CAPACITY_BYTES: u64 = 64 << 20;
/// Far beyond what any answer takes: one that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known over all lives.
#[derive(Debug, Default)]
pub struct Model {
    pub topics: Topics,
    pub groups: Groups,
    pub number: u64,
    pub tally: Tally,
}

/// What a client is to do in its life.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub requests: u64,
    /// Requests in flight.
    pub window: usize,
    /// Something goes wrong in this life, or may.
    pub is_faulty: bool,
    /// The client goes without waiting for what it asked last, and the broker ends.
    pub leaves: bool,
    /// Requests during which the disk is full.
    pub full: Option<(u64, u64)>,
}

pub struct Client {
    pub door: Door,
    pub gate: Gate,
    pub disk: SimDisk,
    pub model: RefCell<Model>,
    pub rng: RefCell<Rng>,
    /// Something has been refused; what a broker that is whole must do need not happen any more.
    pub refused: Cell<bool>,
    plan: Plan,
}

/// Runs a life's requests and returns what is known now.
pub async fn live(
    (door, gate): (Door, Gate),
    disk: SimDisk,
    model: Model,
    plan: Plan,
) -> (Model, Check) {
    let client = Rc::new(Client {
        door,
        gate,
        disk,
        model: RefCell::new(model),
        rng: RefCell::new(Rng::new(plan.seed)),
        refused: Cell::new(false),
        plan,
    });
    let outcome = client.run().await;
    (client.model.take(), outcome)
}

impl Client {
    async fn run(self: &Rc<Self>) -> Check {
        let image = self.door.image();
        self.model.borrow_mut().topics.start(&image)?;
        if !self.open_groups().await? {
            return Ok(());
        }
        self.look_at_all(true).await?;
        let mut open: VecDeque<Later<Check>> = VecDeque::new();
        for request in 0..self.plan.requests {
            self.fill_disk(request);
            while open.len() >= self.plan.window {
                self.answered(&mut open).await?;
            }
            let asked = within(self.ask_at_random()).await?;
            open.push_back(asked);
        }
        if self.plan.leaves {
            return Ok(());
        }
        while !open.is_empty() {
            self.answered(&mut open).await?;
        }
        self.look_at_all(false).await
    }

    async fn answered(&self, open: &mut VecDeque<Later<Check>>) -> Check {
        match open.pop_front() {
            Some(first) => within(first).await?,
            None => Ok(()),
        }
    }

    fn fill_disk(&self, request: u64) {
        let Some((from, to)) = self.plan.full else { return };
        if request == from {
            let space = self.disk.space(Path::new("/data/logs/0"));
            let Ok(space) = space else { return };
            let used = space.total_bytes - space.free_bytes;
            self.disk.set_capacity(used + self.rng.borrow_mut().below(100_000));
        } else if request == to {
            self.disk.set_capacity(CAPACITY_BYTES);
        }
    }

    /// The number of the next request.
    pub fn number(&self) -> u64 {
        let mut model = self.model.borrow_mut();
        model.number += NUMBER_STEP;
        model.number
    }

    pub fn below(&self, end: u64) -> u64 {
        self.rng.borrow_mut().below(end)
    }

    /// Fine in a life in which something goes wrong.
    pub fn refused(&self, what: &str, why: &dyn std::fmt::Debug) -> Check {
        self.refused.set(true);
        self.model.borrow_mut().tally.refused += 1;
        ensure(self.plan.is_faulty, || format!("{what} was refused: {why:?}"))
    }

    pub fn is_faulty(&self) -> bool {
        self.plan.is_faulty
    }

    /// False when the catalogue is down.
    async fn open_groups(&self) -> Result<bool, super::Violation> {
        let number = self.number();
        let partitions = super::GROUP_PARTITIONS;
        if self.door.image().by_name(DEFAULT_VIEW, OFFSETS_TOPIC).is_none() {
            let topics = &mut self.model.borrow_mut().topics;
            topics.ask_create(number, OFFSETS_TOPIC, partitions);
        }
        let command = Command::OpenGroups { view: DEFAULT_VIEW };
        match within(self.door.catalog(command)).await? {
            Ok(_) => {
                let image = self.door.image();
                self.model.borrow_mut().topics.see(&image)?;
                let is_there = image.by_name(DEFAULT_VIEW, OFFSETS_TOPIC).is_some();
                ensure(is_there, || "groups are open without a topic".to_string())?;
                Ok(true)
            }
            Err(down) => self.refused("opening groups", &down).map(|()| false),
        }
    }

    /// Where the coordinator of a group is.
    pub fn coordinator(&self, group: &str) -> PartitionAt {
        self.coordinators()[partition_of(group, super::GROUP_PARTITIONS) as usize]
    }

    pub fn coordinators(&self) -> Vec<PartitionAt> {
        let model = self.model.borrow();
        let topic = model.topics.there.values().find(|topic| topic.name == OFFSETS_TOPIC);
        topic.expect("groups are open").parts.iter().map(|part| part.at).collect()
    }

    /// Has a coordinator take a request, now.
    pub fn group(
        &self,
        at: PartitionAt,
        request: GroupRequest,
    ) -> Later<Result<GroupOutput, CoordinatorRefusal>> {
        let answers = self.door.groups(vec![GroupItem { at, request }]);
        Box::pin(async move { answers.await.pop().expect("one answer") })
    }

    pub fn append_refused(&self, at: PartitionAt, why: &AppendRefusal) -> Check {
        match why {
            AppendRefusal::Unknown => {
                let is_going = self.model.borrow().topics.may_be_going(at.key.topic);
                ensure(is_going, || format!("{} is not there", at.key))
            }
            AppendRefusal::DiskFull | AppendRefusal::LogFailed => self.refused("an append", why),
            AppendRefusal::AboveHighWatermark(_) => Ok(()),
            _ => broken(format!("an append to {}: {why:?}", at.key)),
        }
    }

    pub fn read_refused(&self, at: PartitionAt, why: PartitionRefusal) -> Check {
        match why {
            PartitionRefusal::Unknown => self.append_refused(at, &AppendRefusal::Unknown),
            PartitionRefusal::OutOfRange => broken(format!("{} out of range", at.key)),
            PartitionRefusal::Unreadable => self.refused("a read", &why),
        }
    }

    /// Changes what is known of a partition, if its topic is still known.
    pub fn with_part(&self, at: PartitionAt, change: impl FnOnce(&mut Part) -> Check) -> Check {
        let mut model = self.model.borrow_mut();
        match model.topics.part(at.key.topic, at.key.partition) {
            Some(part) => change(part),
            None => Ok(()),
        }
    }
}

pub async fn within<T>(work: impl std::future::Future<Output = T>) -> Result<T, super::Violation> {
    let answer = runtime::within(PATIENCE, work).await;
    answer.ok_or_else(|| super::Violation("no answer".to_string()))
}
