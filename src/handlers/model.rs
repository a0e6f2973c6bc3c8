//! A model of the cores for handler tests: partitions are vectors of batches, nothing blocks.
//!
//! Time stands still but for `advance`, which also fires the timers; `watch` and `timer` resolve
//! when a test makes them. The catalogue and the coordinators behind it are the real machines; to
//! coordinators the answers of a script can be given instead.

use super::model_groups::ModelGroups;
use super::{Client, Cluster, Finish, Handlers, Outcome, Pending};
use crate::catalog::{Answer, CatalogImage, Command, Machine, Rules};
use crate::config::describe::Node;
use crate::config::{Config, HostPort};
use crate::cores::front::*;
use crate::protocol::api::Api;
use crate::protocol::reply::{Piece, Reply};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_channel::oneshot;
use futures_lite::future;
use kafka_protocol::messages::RequestHeader;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use shard::batch::{validate, Scratch};
use shard::ids::{LeaderEpoch, LogId, Offset, PartitionKey, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// The leader epoch of the model's broker.
pub const EPOCH: i32 = 5;

/// Who asks, and what it calls itself.
pub const CLIENT: Client = Client { view: 0, host: IpAddr::V4(Ipv4Addr::LOCALHOST) };
pub const CLIENT_ID: &str = "bench";

#[derive(Default)]
struct ModelPartition {
    /// Base offset, end offset, timestamp of the first record, bytes.
    batches: Vec<(i64, i64, i64, Bytes)>,
    start: i64,
    end: i64,
}

/// The cores, in one place.
pub struct Model {
    machine: RefCell<Machine>,
    partitions: RefCell<HashMap<PartitionKey, ModelPartition>>,
    now: Cell<i64>,
    timers: RefCell<Vec<(i64, oneshot::Sender<()>)>>,
    watchers: RefCell<Vec<oneshot::Sender<()>>>,
    ids: Cell<u128>,
    /// How long appends are held back.
    pub throttle_ms: Cell<u32>,
    /// While set, appends are blocked.
    blocked: RefCell<Option<oneshot::Receiver<()>>>,
    groups: RefCell<ModelGroups>,
    /// What the coordinators were asked, and what they will answer instead of deciding themselves.
    asked: RefCell<Vec<GroupItem>>,
    answers: RefCell<VecDeque<GroupAnswer>>,
    /// While set, the next answers of coordinators are held.
    held: RefCell<Option<oneshot::Receiver<()>>>,
}

/// A broker of one core over the model, and a client of it.
pub struct Bench {
    pub model: Rc<Model>,
    pub handlers: Rc<Handlers>,
}

impl Bench {
    pub fn new(config: &str) -> Bench {
        Bench::of_nodes(config, 1, 0)
    }

    /// What clients see at one core of a broker that shows itself as so many nodes.
    pub fn of_nodes(config: &str, nodes: i32, core: usize) -> Bench {
        let config = Arc::new(Config::from_toml(Path::new("test"), config).unwrap());
        let rules = Rules { config: config.clone(), logs: vec![0, 1], brokers: vec![1] };
        let model = Rc::new(Model {
            machine: RefCell::new(Machine::new(rules).unwrap()),
            partitions: RefCell::default(),
            now: Cell::new(1_000),
            timers: RefCell::default(),
            watchers: RefCell::default(),
            ids: Cell::new(0),
            throttle_ms: Cell::new(0),
            blocked: RefCell::default(),
            groups: RefCell::new(ModelGroups::new(config.group_limits())),
            asked: RefCell::default(),
            answers: RefCell::default(),
            held: RefCell::default(),
        });
        let address = HostPort::parse("broker.test:9092").unwrap();
        let node = |id: i32| {
            let address = address.with_port(9091 + id as u16);
            Node { id, listening: address.clone(), advertised: address }
        };
        let cluster = Cluster {
            id: "model".into(),
            nodes: (1..=nodes).map(node).collect(),
            controller: 1,
            leaders: vec![1, nodes],
            leader_epoch: LeaderEpoch(EPOCH),
        };
        let handlers = Handlers::new(model.clone(), config, Arc::new(cluster), core);
        Bench { model, handlers }
    }

    /// Hands a request to the broker and returns what became of it.
    pub fn call<Q: Encodable>(&self, api: Api, version: i16, request: &Q) -> Outcome {
        let mut frame = BytesMut::new();
        let header = RequestHeader::default()
            .with_request_api_key(api.row().key)
            .with_request_api_version(version)
            .with_correlation_id(7)
            .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
        let flexible = api.row().is_flexible(version);
        header.encode(&mut frame, if flexible { 2 } else { 1 }).unwrap();
        request.encode(&mut frame, version).unwrap();
        self.handlers.call(frame.freeze(), CLIENT)
    }

    /// Hands over a request that is answered without waiting.
    pub fn ask<Q: Encodable, S: Decodable>(&self, api: Api, version: i16, request: &Q) -> S {
        match self.call(api, version, request) {
            Outcome::Pending(Pending::Ready(reply)) => body(api, version, reply),
            Outcome::Pending(Pending::Later(mut later)) => {
                let finish = future::block_on(future::poll_once(&mut later));
                match finish {
                    Some(Finish::Reply(reply)) => body(api, version, reply),
                    Some(Finish::Nothing | Finish::Close) => panic!("{api:?} has no reply"),
                    None => panic!("{api:?} waits"),
                }
            }
            Outcome::Pending(Pending::Nothing) | Outcome::Blocked(_) | Outcome::Close => {
                panic!("{api:?} is not answered")
            }
        }
    }
}

fn fire(sender: oneshot::Sender<()>) {
    // Whoever waited may have gone.
    let _ = sender.send(());
}

async fn fired(receiver: oneshot::Receiver<()>) {
    let _ = receiver.await;
}

/// The body of a reply, to its last byte.
pub fn body<S: Decodable>(api: Api, version: i16, reply: Reply) -> S {
    let mut bytes = BytesMut::new();
    for piece in &reply.pieces {
        let Piece::Bytes(piece) = piece else { panic!("the model has no maps") };
        bytes.put_slice(piece);
    }
    let mut bytes = bytes.freeze();
    assert_eq!(bytes.get_i32() as usize, bytes.len());
    assert_eq!(bytes.get_i32(), 7);
    if api.row().is_flexible(version) && api != Api::ApiVersions {
        assert_eq!(bytes.get_u8(), 0);
    }
    let body = S::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty());
    body
}

impl Model {
    /// Lets time pass and fires the timers that are due.
    pub fn advance(&self, ms: i64) {
        self.now.set(self.now.get() + ms);
        let due = |(at, _): &mut (i64, _)| *at <= self.now.get();
        let fired: Vec<_> = self.timers.borrow_mut().extract_if(.., due).collect();
        fired.into_iter().for_each(|(_, timer)| fire(timer));
        self.groups.borrow_mut().fire(self.now.get());
    }

    /// Blocks the next append until the sender is used.
    pub fn block(&self) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        *self.blocked.borrow_mut() = Some(receiver);
        sender
    }

    /// What the coordinators answer next, one for each request to them.
    pub fn will_answer(&self, answers: impl IntoIterator<Item = GroupAnswer>) {
        self.answers.borrow_mut().extend(answers);
    }

    /// What the coordinators were asked since the last call.
    pub fn asked(&self) -> Vec<GroupItem> {
        self.asked.take()
    }

    fn decide(&self, item: GroupItem) -> Later<GroupAnswer> {
        match self.answers.borrow_mut().pop_front() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(self.groups.borrow_mut().ask(item, self.now.get())),
        }
    }

    /// Holds the next answers of coordinators until the sender is used.
    pub fn hold(&self) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        *self.held.borrow_mut() = Some(receiver);
        sender
    }

    pub fn end_of(&self, topic: &str, partition: i32) -> i64 {
        let key = self.image().by_name(0, topic).unwrap().key(partition);
        self.partitions.borrow().get(&key).map_or(0, |partition| partition.end)
    }

    fn is_there(&self, at: &PartitionAt) -> bool {
        self.image().by_id(at.key.view, at.key.topic).is_some()
    }

    fn append_one(&self, item: &AppendItem) -> Result<Appended, AppendRefusal> {
        if !self.is_there(&item.at) {
            return Err(AppendRefusal::Unknown);
        }
        let now = self.now();
        let valid = validate(&item.records, &item.rules, now, &mut Scratch::default());
        let valid = valid.map_err(AppendRefusal::Batch)?;
        let mut partitions = self.partitions.borrow_mut();
        let partition = partitions.entry(item.at.key).or_default();
        let base = partition.end;
        let mut batch = valid.header_bytes(Offset(base), LeaderEpoch(EPOCH)).to_vec();
        batch.extend(valid.body());
        partition.end = base + i64::from(valid.header().last_offset_delta) + 1;
        let time = valid.header().base_timestamp.0;
        partition.batches.push((base, partition.end, time, batch.into()));
        let append_time = valid.append_time();
        Ok(Appended { base_offset: Offset(base), log_start: Offset(0), append_time })
    }

    fn append_all(&self, items: &[AppendItem]) -> Later<Vec<Result<Appended, AppendRefusal>>> {
        let results: Vec<_> = items.iter().map(|item| self.append_one(item)).collect();
        self.watchers.borrow_mut().drain(..).for_each(fire);
        Box::pin(async move { results })
    }

    fn offsets_of(&self, at: &PartitionAt) -> Result<Offsets, PartitionRefusal> {
        if !self.is_there(at) {
            return Err(PartitionRefusal::Unknown);
        }
        let partitions = self.partitions.borrow();
        let (start, end) = partitions.get(&at.key).map_or((0, 0), |at| (at.start, at.end));
        Ok(Offsets {
            log_start: Offset(start),
            last_stable: Offset(end),
            high_watermark: Offset(end),
            log_end: Offset(end),
            leader_epoch: LeaderEpoch(EPOCH),
        })
    }

    fn read_one(&self, item: &ReadItem) -> Result<ReadData, PartitionRefusal> {
        let offsets = self.offsets_of(&item.at)?;
        if item.from.0 < 0 || item.from > offsets.log_end {
            return Err(PartitionRefusal::OutOfRange);
        }
        let partitions = self.partitions.borrow();
        let batches = partitions.get(&item.at.key).map_or(&[][..], |p| &p.batches[..]);
        let (mut slices, mut left) = (Vec::new(), item.bytes_max);
        for (_, end, _, bytes) in batches {
            if *end > item.from.0 && (slices.is_empty() || bytes.len() <= left) {
                left = left.saturating_sub(bytes.len());
                slices.push(Slice::Cold(bytes.clone()));
            }
        }
        Ok(ReadData { offsets, slices, aborted: Vec::new() })
    }

    fn trim_one(&self, item: &TrimItem) -> Result<Offset, AppendRefusal> {
        let offsets = self.offsets_of(&item.at).map_err(|_| AppendRefusal::Unknown)?;
        let to = item.below.unwrap_or(offsets.high_watermark);
        if to > offsets.high_watermark {
            return Err(AppendRefusal::AboveHighWatermark(offsets.high_watermark));
        }
        let mut partitions = self.partitions.borrow_mut();
        let partition = partitions.entry(item.at.key).or_default();
        partition.start = partition.start.max(to.0);
        Ok(Offset(partition.start))
    }

    fn time_of(&self, item: &TimeItem) -> Result<Option<Found>, PartitionRefusal> {
        self.offsets_of(&item.at)?;
        let partitions = self.partitions.borrow();
        let batches = partitions.get(&item.at.key).map_or(&[][..], |p| &p.batches[..]);
        let found = match item.target {
            TimeTarget::AtOrAfter(time) => batches.iter().find(|batch| batch.2 >= time.0),
            TimeTarget::Greatest => batches.iter().rev().max_by_key(|batch| batch.2),
        };
        Ok(found.map(|batch| Found {
            offset: Offset(batch.0),
            timestamp: Timestamp(batch.2),
            leader_epoch: LeaderEpoch(EPOCH),
        }))
    }
}

impl Cores for Model {
    fn image(&self) -> Arc<CatalogImage> {
        self.machine.borrow().image()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.get())
    }

    fn timer(&self, ms: u64) -> Later<()> {
        let (sender, receiver) = oneshot::channel();
        self.timers.borrow_mut().push((self.now.get() + ms as i64, sender));
        Box::pin(fired(receiver))
    }

    fn throttle_ms(&self, _logs: &[LogId]) -> u32 {
        self.throttle_ms.get()
    }

    // The outer future is the block, the inner one the results.
    #[allow(clippy::async_yields_async)]
    fn append(&self, items: Vec<AppendItem>, _wait: AppendWait) -> Appending {
        match self.blocked.borrow_mut().take() {
            None => Appending::Taken(self.append_all(&items)),
            Some(blocked) => Appending::Blocked(Box::pin(async move {
                fired(blocked).await;
                let results = vec![Err(AppendRefusal::DiskFull); items.len()];
                Box::pin(std::future::ready(results)) as Later<_>
            })),
        }
    }

    fn trim(
        &self,
        items: Vec<TrimItem>,
        _timeout_ms: u64,
    ) -> Later<Vec<Result<Offset, AppendRefusal>>> {
        let results: Vec<_> = items.iter().map(|item| self.trim_one(item)).collect();
        Box::pin(async move { results })
    }

    fn read(&self, ask: ReadRequest) -> Later<Vec<Result<ReadData, PartitionRefusal>>> {
        let results: Vec<_> = ask.items.iter().map(|item| self.read_one(item)).collect();
        Box::pin(async move { results })
    }

    fn watch(&self, _items: Vec<WatchItem>) -> Later<()> {
        let (sender, receiver) = oneshot::channel();
        self.watchers.borrow_mut().push(sender);
        Box::pin(fired(receiver))
    }

    fn offsets(&self, items: Vec<PartitionAt>) -> Later<Vec<Result<Offsets, PartitionRefusal>>> {
        let results: Vec<_> = items.iter().map(|at| self.offsets_of(at)).collect();
        Box::pin(async move { results })
    }

    fn find_time(
        &self,
        items: Vec<TimeItem>,
    ) -> Later<Vec<Result<Option<Found>, PartitionRefusal>>> {
        let results: Vec<_> = items.iter().map(|item| self.time_of(item)).collect();
        Box::pin(async move { results })
    }

    fn end_of_epoch(
        &self,
        items: Vec<(PartitionAt, LeaderEpoch)>,
    ) -> Later<Vec<Result<Option<(LeaderEpoch, Offset)>, PartitionRefusal>>> {
        let end = |(at, epoch): &(PartitionAt, LeaderEpoch)| {
            let offsets = self.offsets_of(at)?;
            Ok((epoch.0 == EPOCH).then_some((*epoch, offsets.log_end)))
        };
        let results: Vec<_> = items.iter().map(end).collect();
        Box::pin(async move { results })
    }

    fn catalog(&self, command: Command) -> Later<Result<Answer, CatalogDown>> {
        let fresh = |_| {
            self.ids.set(self.ids.get() + 1);
            Uuid::from_u128(self.ids.get())
        };
        let ids: Vec<Uuid> = (0..command.fresh_ids()).map(fresh).collect();
        let step = self.machine.borrow().decide(&command, self.now(), &ids);
        step.records.iter().for_each(|record| self.machine.borrow_mut().replay(record));
        Box::pin(async move { Ok(step.answer) })
    }

    fn groups(&self, items: Vec<GroupItem>) -> Later<Vec<GroupAnswer>> {
        self.asked.borrow_mut().extend(items.iter().cloned());
        let answers: Vec<Later<GroupAnswer>> = items.into_iter().map(|i| self.decide(i)).collect();
        let held = self.held.borrow_mut().take();
        Box::pin(async move {
            if let Some(held) = held {
                fired(held).await;
            }
            let mut all = Vec::with_capacity(answers.len());
            for answer in answers {
                all.push(answer.await);
            }
            all
        })
    }
}
