//! One life of a broker: its logs opened and its catalogue read as `serve` does it, its cores run
//! until the client on one of them is done, and all of it ended in order.
//!
//! How the life ends for the disk is the caller's business.

use crate::broker::data::Data;
use crate::broker::logs::{self, LogsError, Opened};
use crate::broker::{machine, tables, ServeError};
use crate::catalog::{Machine, Topic};
use crate::config::Config;
use crate::cores::gate::{gate, Gate, GateEnd};
use crate::cores::{home, mesh, Core, CoreParts, Door, Lanes, Life, Quiet, CATALOG_AT};
use crate::cores::{TableLane, TableParts, TableRules, Throttle};
use crate::runtime::{self, Background, Stops};
use futures_channel::oneshot;
use shard::disk::sim::SimDisk;
use shard::disk::Disk;
use shard::ids::{LeaderEpoch, LogId, PartitionKey};
use shard::log::{Log, LogSettings};
use shard::table::Manifest;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often core 0 looks whether its catalogue should be written anew. A life is short.
const REWRITE_TICK: Duration = Duration::from_millis(3);

/// The data directory of all lives.
pub const DATA: &str = "/data";

/// What a life is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    pub cores: usize,
    pub logs: u32,
    /// The core the client is on.
    pub client_on: usize,
    pub run: i32,
    pub settings: LogSettings,
    pub config: Arc<Config>,
}

pub type Body = Box<dyn FnOnce(Door, Gate) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// What opening the logs came across.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    pub copied_frames: u64,
    pub segments: u64,
    /// Partitions of topics the catalogue knows nothing of: their records would never go.
    pub strays: u64,
}

/// The logs and the catalogue, as the broker has them before its cores start.
pub struct Open {
    logs: Vec<(LogId, Log)>,
    machine: Machine,
    manifests: Vec<Manifest>,
    started: Instant,
    pub found: Found,
}

pub fn open(disk: &SimDisk, shape: &Shape) -> Result<Open, ServeError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let started = Instant::now();
    let dir = |log: u32| (LogId(log), PathBuf::from(format!("{DATA}/logs/{log}")));
    let data = Data {
        cluster: Uuid::from_u128(0xba5a_1700),
        run: LeaderEpoch(shape.run),
        logs: (0..shape.logs).map(dir).collect(),
    };
    let mut opened = logs::open(&disk, &data, &shape.settings, (started, false))?;
    let mut machine = machine(&shape.config, &data, shape.cores)?;
    logs::read_catalog(&*disk, &mut opened[0].log, &mut machine).map_err(LogsError::from)?;
    logs::drop_deleted(&mut opened, &machine);
    let manifests = tables::open(&disk, Path::new(DATA), &machine.image())?;
    tables::tell_logs(&mut opened, &tables::versions(&manifests));
    logs::refuse_missing(&opened, &machine)?;
    let mut found = Found::default();
    let image = machine.image();
    for Opened { recovered, log, .. } in &opened {
        let is_known = |key: &PartitionKey| {
            *key == CATALOG_AT.key || image.by_id(key.view, key.topic).is_some()
        };
        found.strays += log.partitions().filter(|(_, key)| !is_known(key)).count() as u64;
        found.copied_frames += recovered.copied_frames;
        found.segments += recovered.segments as u64;
    }
    let logs = opened.into_iter().map(|opened| (opened.id, opened.log)).collect();
    Ok(Open { logs, machine, manifests, started, found })
}

/// Runs the cores until `body` is done.
pub fn run(disk: &SimDisk, shape: &Shape, open: Open, body: Body) {
    // Signals are taken over once.
    static STOPS: OnceLock<Mutex<Stops>> = OnceLock::new();
    let stops = STOPS.get_or_init(|| Mutex::new(Stops::new().expect("signals")));
    let ids: Vec<LogId> = open.logs.iter().map(|(id, _)| *id).collect();
    let (lanes, threads) = Lanes::start(ids, 1).expect("threads");
    let (lane, table_threads) = TableLane::start(1).expect("threads");
    let starts = starts(disk, shape, open, (lanes, lane, body));
    let stops = stops.lock().unwrap_or_else(PoisonError::into_inner);
    let cores = runtime::start(starts, false, &stops).expect("executors");
    drop(stops);
    cores.join().expect("no core died");
    threads.join();
    table_threads.join();
}

type Main = Pin<Box<dyn Future<Output = ()>>>;
type Start = Box<dyn FnOnce() -> Main + Send>;

fn starts(
    disk: &SimDisk,
    shape: &Shape,
    open: Open,
    (lanes, lane, body): (Lanes, TableLane, Body),
) -> Vec<Start> {
    let Open { logs, machine, manifests, started, .. } = open;
    let (image, throttle) = (machine.image(), Throttle::new(shape.cores));
    let versions = tables::versions(&manifests);
    let kept = tables::by_keeper(manifests, &image, shape.cores);
    let parts = |manifests| TableParts {
        manifests,
        versions: versions.clone(),
        data: DATA.into(),
        rules: TableRules { coalesced_ms: 0, grace_ms: 0, ..tables::rules(&shape.config) },
        lane: lane.clone(),
        throttle: throttle.clone(),
    };
    let mut kept: Vec<TableParts> = kept.into_iter().map(parts).rev().collect();
    let (gate, gate_ends) = gate(shape.cores, image.clone(), Path::new(DATA));
    let sides = Arc::new(logs.iter().map(|(id, log)| (*id, log.sides())).collect());
    let hosted = hosted(logs, shape.cores);
    let (mut catalog, mut body, quiet) = (Some(machine), Some(body), Quiet::default());
    // Dropped when the body is done, which ends the other cores.
    let (running, mut ended): (Vec<_>, Vec<_>) =
        (1..shape.cores).map(|_| oneshot::channel::<()>()).unzip();
    let mut running = Some(running);
    let each = hosted.into_iter().zip(mesh(shape.cores)).zip(gate_ends).enumerate();
    let start = |(id, ((logs, ends), asks)): (usize, ((_, crate::cores::Ends), GateEnd))| {
        let (to_home, from_home) = home();
        let parts = CoreParts {
            id,
            cores: shape.cores,
            logs,
            image: image.clone(),
            settings_of: Arc::new(|topic: &Topic| topic.settings.partition(topic.is_internal())),
            lanes: lanes.clone(),
            home: to_home,
            sides: Arc::clone(&sides),
            started,
            disk: Arc::new(disk.clone()),
            group_limits: Arc::new(shape.config.group_limits()),
            tables: kept.pop().expect("for each core"),
            shown: gate.shown(),
        };
        let gate = gate.clone();
        let (catalog, quiet) = (catalog.take(), quiet.clone());
        let work = if id == shape.client_on { body.take().zip(running.take()) } else { None };
        let over = if work.is_none() { ended.pop() } else { None };
        let main = move || -> Main {
            Box::pin(async move {
                let core = Core::new(parts, catalog);
                let life = Life::begin(core.clone(), (ends, asks), from_home, || true).await;
                let rewrites = (id == 0).then(|| keep_rewriting(Door(core.clone())));
                if let Some((body, running)) = work {
                    body(Door(core), gate).await;
                    drop(running);
                } else if let Some(over) = over {
                    let _: Result<(), _> = over.await;
                }
                if let Some(rewrites) = rewrites {
                    rewrites.stop().await;
                }
                life.end(quiet).await;
            })
        };
        Box::new(main) as Start
    };
    each.map(start).collect()
}

/// The logs of each core.
fn hosted(logs: Vec<(LogId, Log)>, cores: usize) -> Vec<Vec<(LogId, Log)>> {
    let mut hosted: Vec<Vec<(LogId, Log)>> = (0..cores).map(|_| Vec::new()).collect();
    for (id, log) in logs {
        hosted[id.0 as usize % cores].push((id, log));
    }
    hosted
}

fn keep_rewriting(door: Door) -> Background {
    Background::spawn(async move {
        loop {
            runtime::within(REWRITE_TICK, std::future::pending::<()>()).await;
            door.0.rewrite_catalog().await;
        }
    })
}
