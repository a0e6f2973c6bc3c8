//! A core: its logs, where its partitions are, and the functions that serve asks.
//!
//! The same functions serve the core's own connections and the messages of other cores. Nothing
//! here awaits: a log is borrowed, asked and given back within a call. Where a partition is stands
//! in `routes`, what is done for the logs between asks in `upkeep`.

use super::alarms::Alarms;
use super::append::Group;
use super::arrivals::Arrivals;
use super::ask::{
    AppendAnswer, Ask, EpochAnswer, EpochItem, Item, OffsetsAnswer, ReadAnswer, TimeAnswer,
};
use super::cold::ColdBytes;
use super::front::{
    AppendRefusal, AppendWait, PartitionAt, PartitionRefusal, ReadRequest, TimeItem, Touched,
    WatchItem,
};
use super::gate::Shown;
use super::groups::Coordinator;
use super::host::{Host, Request};
use super::jobs::{Lanes, ToHome};
use super::machines::Wakes;
use super::mesh::Links;
use super::notify::Notify;
use super::routes::Route;
use super::tables::{TableParts, Tables};
use super::watch::Watcher;
use crate::catalog::{CatalogImage, Machine, Topic};
use crate::coordinator::GroupLimits;
use crate::metrics::{CoreMetrics, GroupLag};
use crate::state_machine::Shell;
use futures_channel::oneshot;
use rustc_hash::FxHashMap;
use shard::batch::Scratch;
use shard::disk::Disk;
use shard::ids::{DenseId, LogId, PartitionKey, Timestamp};
use shard::log::{self, Flush, Log, Now, PartitionSettings, ReadAsk, Sides};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How the catalogue's partition is kept, whatever topics are told.
pub const CATALOG_SETTINGS: PartitionSettings = PartitionSettings {
    flush: Flush::Commit,
    retention_ms: None,
    retention_bytes: None,
    internal: true,
    compaction: None,
};

/// What a topic's configuration means to a log.
pub type SettingsOf = Arc<dyn Fn(&Topic) -> PartitionSettings + Send + Sync>;

/// What a core is made of; it travels to the core's thread.
pub struct CoreParts {
    pub id: usize,
    pub cores: usize,
    /// The logs with `log % cores == id`, in their order.
    pub logs: Vec<(LogId, Log)>,
    pub image: Arc<CatalogImage>,
    pub settings_of: SettingsOf,
    pub lanes: Lanes,
    pub home: ToHome,
    /// Where the large batches of each log go.
    pub sides: Arc<BTreeMap<LogId, Arc<Sides>>>,
    /// The start of the monotonic clock the logs were opened with.
    pub started: Instant,
    /// Where the logs are, for reads of the broker's own.
    pub disk: Arc<dyn Disk>,
    pub group_limits: Arc<GroupLimits>,
    pub tables: TableParts,
    /// Shows threads that are no cores what the catalogue holds.
    pub shown: Shown,
}

pub struct Core {
    id: usize,
    cores: usize,
    pub(super) hosts: Vec<RefCell<Host>>,
    pub(super) routes: RefCell<FxHashMap<PartitionKey, Route>>,
    pub(super) image: RefCell<Arc<CatalogImage>>,
    pub(super) settings_of: SettingsOf,
    links: OnceCell<Links>,
    /// The catalogue, on the core that keeps it.
    pub(super) catalog: RefCell<Option<Rc<Shell<Machine>>>>,
    /// The coordinators of groups on this core's partitions of `__consumer_offsets`.
    pub(super) groups: RefCell<FxHashMap<PartitionKey, Rc<Coordinator>>>,
    pub(super) group_limits: Arc<GroupLimits>,
    /// How far those groups are behind, as of the last look.
    pub(super) lags: RefCell<Arc<[GroupLag]>>,
    /// Wakes the machines of this core.
    pub(super) wakes: Wakes,
    pub(super) tables: Tables,
    pub(super) shown: Shown,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) lanes: Lanes,
    pub(super) home: ToHome,
    sides: Arc<BTreeMap<LogId, Arc<Sides>>>,
    started: Instant,
    pub(super) scratch: RefCell<Scratch>,
    /// Timers of requests, which a stop ends early.
    pub(super) alarms: Alarms,
    /// The tasks of the machines, which end with the core.
    pub(super) tasks: Alarms,
    /// Wakes the upkeep of the logs.
    pub(super) upkeep: Notify,
    pub metrics: CoreMetrics,
    pub cold: ColdBytes,
    /// Takes connections of other cores.
    pub arrivals: Arrivals,
    /// The cores the request that is being served is about.
    pub touched: Cell<Touched>,
}

impl Core {
    /// `catalog` for core 0 alone.
    pub fn new(parts: CoreParts, catalog: Option<Machine>) -> Rc<Core> {
        let hosts = parts.logs.into_iter().map(|(id, log)| RefCell::new(Host::new(id, log)));
        let tables = Tables::new(parts.tables, &parts.image);
        let core = Core {
            id: parts.id,
            cores: parts.cores,
            hosts: hosts.collect(),
            routes: RefCell::default(),
            image: RefCell::new(parts.image),
            settings_of: parts.settings_of,
            links: OnceCell::new(),
            catalog: RefCell::default(),
            groups: RefCell::default(),
            group_limits: parts.group_limits,
            lags: RefCell::default(),
            wakes: Wakes::default(),
            tables,
            shown: parts.shown,
            disk: parts.disk,
            lanes: parts.lanes,
            home: parts.home,
            sides: parts.sides,
            started: parts.started,
            scratch: RefCell::default(),
            alarms: Alarms::default(),
            tasks: Alarms::default(),
            upkeep: Notify::default(),
            metrics: CoreMetrics::default(),
            cold: ColdBytes::default(),
            arrivals: Arrivals::default(),
            touched: Cell::default(),
        };
        core.attach_kept();
        let core = Rc::new(core);
        if let Some(catalog) = catalog {
            core.keep_catalog(catalog);
        }
        core
    }

    pub(super) fn connect(&self, links: Links) {
        assert!(self.links.set(links).is_ok(), "a core is connected once");
    }

    pub(super) fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    pub fn id(&self) -> usize {
        self.id
    }

    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The core a log is on.
    pub fn owner(&self, log: LogId) -> usize {
        log.0 as usize % self.cores
    }

    pub fn image(&self) -> Arc<CatalogImage> {
        self.image.borrow().clone()
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mono = self.started.elapsed();
        Now { wall: Timestamp(wall.as_millis() as i64), mono_us: mono.as_micros() as u64 }
    }

    /// Where a batch of this size for this log has to be written before it is appended; `None`
    /// when it goes into the log itself.
    pub(super) fn side_of(&self, log: LogId, batch_bytes: usize) -> Option<Arc<Sides>> {
        let sides = self.sides.get(&log)?;
        sides.is_large(batch_bytes).then(|| sides.clone())
    }

    /// Sends an ask to another core.
    pub(super) fn send(&self, core: usize, ask: Ask) {
        match self.links.get() {
            Some(links) => links.send(core, ask),
            // Not connected yet: the asker sees that no answer comes.
            None => drop(ask),
        }
    }

    /// Serves a message of another core.
    pub(super) fn serve(self: &Rc<Self>, ask: Ask) {
        // Askers that are gone need no answer, so what `send` returns is of no interest.
        match ask {
            Ask::Append { items, wait, reply } => drop(self.append(items, wait, Some(reply))),
            Ask::Read { ask, reply } => drop(reply.send(self.read(ask))),
            Ask::Watch { items, reply } => drop(self.watch(&items, Some(reply))),
            Ask::Offsets { items, reply } => drop(reply.send(self.offsets(&items))),
            Ask::Time { items, reply } => drop(reply.send(self.time(&items))),
            Ask::EpochEnd { items, reply } => drop(reply.send(self.epoch_end(&items))),
            // The connection of an asker that is gone closes.
            Ask::Connection { parcel, reply } => drop(reply.send(self.arrivals.take(parcel))),
            Ask::Catalog { command, reply } => self.serve_catalog(command, reply),
            Ask::Groups { items, reply } => self.serve_groups(items, reply),
            Ask::Hot { topic, reply } => drop(reply.send(self.hot(&topic))),
            Ask::Share { ask, reply } => drop(reply.send(self.share(&ask))),
            Ask::News { items } => self.hear(items),
            Ask::Table { version } => self.adopt_table(version),
            Ask::Freshen { topic, reply } => self.freshen(&topic, reply),
            Ask::Image { change, reply } => {
                self.adopt(change);
                let _ = reply.send(());
            }
        }
    }

    /// Makes appends, all on this core, take their effect.
    pub(super) fn append(
        &self,
        items: Vec<Item>,
        wait: AppendWait,
        remote: Option<oneshot::Sender<Vec<AppendAnswer>>>,
    ) -> Rc<Group> {
        let now = self.now();
        let group = Group::new(items.len(), wait, now.mono_us, remote);
        for (index, item) in items.into_iter().enumerate() {
            match self.route(item.at) {
                Some(Route { host, id }) => {
                    let request = Request { group: group.clone(), index, id, batch: item.batch };
                    let scratch = &mut *self.scratch.borrow_mut();
                    self.hosts[host].borrow_mut().append(request, scratch, now);
                }
                None => group.place(index, Err(AppendRefusal::Unknown), false),
            }
        }
        self.upkeep.notify();
        group
    }

    pub(super) fn read(&self, ask: ReadRequest) -> Vec<ReadAnswer> {
        let mut left = ask.bytes_max;
        let mut found = false;
        let mut answers = Vec::with_capacity(ask.items.len());
        for item in &ask.items {
            let answer = self.route(item.at).ok_or(PartitionRefusal::Unknown).and_then(|route| {
                let ask = ReadAsk {
                    from: item.from,
                    bytes_max: item.bytes_max.min(left),
                    whole_first: !found,
                    until: ask.until,
                };
                let plan = self.hosts[route.host].borrow().log.plan_read(route.id, &ask);
                plan.map_err(|error| match error {
                    log::ReadError::Unknown => PartitionRefusal::Unknown,
                    log::ReadError::OutOfRange { .. } => PartitionRefusal::OutOfRange,
                })
            });
            if let Ok(plan) = &answer {
                found |= plan.bytes > 0;
                left = left.saturating_sub(plan.bytes);
            }
            answers.push(answer);
        }
        answers
    }

    /// Watches partitions of this core; fires at once if one has grown already.
    pub(super) fn watch(
        &self,
        items: &[WatchItem],
        remote: Option<oneshot::Sender<()>>,
    ) -> Rc<Watcher> {
        let watcher = Watcher::new(remote);
        for item in items {
            let Some(route) = self.route(item.at) else {
                watcher.fire();
                break;
            };
            let mut host = self.hosts[route.host].borrow_mut();
            let end = host.log.offsets(route.id).map(|offsets| offsets.end(item.until));
            if end.is_none_or(|end| end > item.seen) {
                watcher.fire();
                break;
            }
            host.watchers.add(route.id, &watcher, item.seen);
        }
        watcher
    }

    pub(super) fn offsets(&self, items: &[PartitionAt]) -> Vec<OffsetsAnswer> {
        self.look(items, |item| *item, |log, id, _| log.offsets(id))
    }

    pub(super) fn time(&self, items: &[TimeItem]) -> Vec<TimeAnswer> {
        self.look(
            items,
            |item| item.at,
            |log, id, item| {
                log.offsets(id)?;
                Some(log.plan_time(id, item.target, item.until))
            },
        )
    }

    pub(super) fn epoch_end(&self, items: &[EpochItem]) -> Vec<EpochAnswer> {
        self.look(
            items,
            |item| item.0,
            |log, id, item| {
                log.offsets(id)?;
                Some(log.end_of_epoch(id, item.1))
            },
        )
    }

    fn look<I, T>(
        &self,
        items: &[I],
        at: impl Fn(&I) -> PartitionAt,
        ask: impl Fn(&Log, DenseId, &I) -> Option<T>,
    ) -> Vec<Result<T, PartitionRefusal>> {
        let one = |item: &I| {
            let route = self.route(at(item))?;
            ask(&self.hosts[route.host].borrow().log, route.id, item)
        };
        items.iter().map(|item| one(item).ok_or(PartitionRefusal::Unknown)).collect()
    }
}
