//! The boot order, and the way back.
//!
//! Lock and machine are checked by `preflight`. Then: the start counter, all logs, the catalogue
//! out of log 0, tables, threads for blocking work, cores with their listeners, and one line on
//! standard output when all of them serve. A stop runs backwards: connections are answered and
//! closed, logs synced and marked, threads joined.

mod data;
mod logs;
mod serving;
mod tables;
#[cfg(test)]
mod tests;

use crate::banner::{self, Facts};
use crate::catalog::{CatalogImage, Machine, Rules, Topic};
use crate::config::describe::Node;
use crate::config::topic::InvalidConfig;
use crate::config::{Advertise, Config, HostPort, Threads};
use crate::cores::gate::{gate, Gate, GateEnd, Shown};
use crate::cores::{home, mesh, CoreParts, Lanes, Quiet, SettingsOf};
use crate::cores::{TableLane, TableParts, Throttle};
use crate::handlers::Cluster;
use crate::http::{HttpError, Service, Serving};
use crate::metrics::Board;
use crate::net::{self, Admission, BindError, Limits};
use crate::preflight::{self, Cleared};
use crate::runtime::{self, RuntimeError, Stop, Stops};
use data::{Data, DataError};
use futures_channel::oneshot;
pub use logs::{report, salvage, LogsError};
use serving::CoreStart;
use shard::disk::{check_folio, Disk, FolioCheck, RealDisk};
use shard::ids::LogId;
use shard::log::Log;
use shard::table::Manifest;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{mpsc, Arc};
use std::time::Instant;
use tables::TablesError;

/// Why a broker did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("an address bound cannot be told: {0}")]
    Address(#[source] io::Error),
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error("the topic defaults contradict each other: {0}")]
    Defaults(#[from] InvalidConfig),
    #[error("threads cannot be started: {0}")]
    Threads(#[source] io::Error),
    #[error(transparent)]
    Tables(#[from] TablesError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[cfg(feature = "sql")]
    #[error("queries cannot be run: {0}")]
    Queries(#[from] crate::query::QueryError),
    #[error("a core did not come up")]
    NotUp,
}

/// Runs a broker until it is told to stop.
pub fn serve(config: Config, threads: Threads, cleared: Cleared) -> Result<(), ServeError> {
    let stops = Stops::new()?;
    let config = Arc::new(config);
    let started = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let data = Data::open(&*disk, &config.data_dir, threads.cores)?;
    let port_per_core = config.advertise == Advertise::PerCore;
    let listeners = net::bind(cleared.listen, threads.cores, port_per_core)?;
    let bound = addresses(&listeners)?;
    let OnDisk { logs, machine, manifests } = open(&disk, &config, &data, &threads, started)?;
    let (lanes, workers) = Lanes::start(data.logs.iter().map(|(id, _)| *id), threads.workers)
        .map_err(ServeError::Threads)?;
    let (table_lane, table_threads) =
        TableLane::start(threads.tables).map_err(ServeError::Threads)?;
    let boards: Vec<Board> = (0..threads.cores).map(|_| Board::default()).collect();
    let services = Services::start(&cleared, &boards)?;
    let cluster = Arc::new(cluster(&config, &data, &bound));
    let (ready, up) = mpsc::channel();
    let admission = admission(&config, cleared.connections_max);
    let boot = Boot {
        disk: disk.clone(),
        config: &config,
        data: &data,
        cluster,
        lanes,
        table_lane,
        manifests,
        boards,
        admission,
        ready,
        started,
    };
    let (gate, gate_ends) = gate(threads.cores, machine.image(), &config.data_dir);
    let fronts = listeners.into_iter().zip(gate_ends).collect();
    let (starts, stoppers) = boot.starts(logs, machine, fronts, gate.shown());
    let bodies = starts.into_iter().map(|start| move || serving::run(start)).collect();
    let cores = runtime::start(bodies, threads.pinned, &stops)?;
    for _ in 0..threads.cores {
        up.recv().map_err(|_| ServeError::NotUp)?;
    }
    services.open(&config, &disk, gate)?;
    announce(&config, &bound, &threads, &services);
    watch_folios(&config);

    let stop = stops.wait();
    match stop {
        Stop::Signal(signal) => tracing::info!(signal, "stopping"),
        Stop::CoreDied(core) => tracing::error!(core, "stopping because a core died"),
    }
    drop(services);
    for stopper in stoppers {
        // A core that died does not listen.
        let _ = stopper.send(());
    }
    let ended = cores.join();
    workers.join();
    table_threads.join();
    drop(cleared.lock);
    Ok(ended?)
}

/// What the data directory holds, open.
struct OnDisk {
    logs: Vec<(LogId, Log)>,
    machine: Machine,
    manifests: Vec<Manifest>,
}

/// Opens the logs, reads the catalogue out of them, then opens the tables it knows of.
fn open(
    disk: &Arc<dyn Disk>,
    config: &Arc<Config>,
    data: &Data,
    threads: &Threads,
    started: Instant,
) -> Result<OnDisk, ServeError> {
    let mut logs = logs::open(disk, data, &config.log_settings(), (started, false))?;
    logs.iter().for_each(|opened| report(opened.id, &opened.recovered));
    let mut machine = machine(config, data, threads.cores)?;
    if let Some(first) = logs.first_mut() {
        logs::read_catalog(&**disk, &mut first.log, &mut machine).map_err(LogsError::from)?;
    }
    logs::drop_deleted(&mut logs, &machine);
    let manifests = tables::open(disk, &config.data_dir, &machine.image())?;
    tables::share_blocks(&mut logs, disk, config.table_cache_bytes);
    tables::tell_logs(&mut logs, &tables::versions(&manifests));
    logs::refuse_missing(&logs, &machine)?;
    let logs = logs.into_iter().map(|opened| (opened.id, opened.log)).collect();
    Ok(OnDisk { logs, machine, manifests })
}

fn addresses(listeners: &[TcpListener]) -> Result<Vec<SocketAddr>, ServeError> {
    let addresses: io::Result<Vec<_>> = listeners.iter().map(TcpListener::local_addr).collect();
    addresses.map_err(ServeError::Address)
}

fn machine(config: &Arc<Config>, data: &Data, cores: usize) -> Result<Machine, ServeError> {
    let brokers = match config.advertise {
        Advertise::One => vec![1],
        Advertise::PerCore => (1..=cores as i32).collect(),
    };
    let logs = data.logs.iter().map(|(id, _)| id.0).collect();
    Ok(Machine::new(Rules { config: config.clone(), logs, brokers })?)
}

/// What clients are told: one broker, or each core as one.
fn cluster(config: &Config, data: &Data, bound: &[SocketAddr]) -> Cluster {
    let node = |core: usize, address: &SocketAddr| {
        let number = u16::try_from(core).unwrap_or(u16::MAX);
        Node {
            id: core as i32 + 1,
            listening: config.listen.with_port(address.port()),
            advertised: config.advertised_at(number, address.port()),
        }
    };
    let shown = match config.advertise {
        Advertise::One => 1,
        Advertise::PerCore => bound.len(),
    };
    let nodes = bound.iter().take(shown).enumerate().map(|(core, at)| node(core, at));
    let leader = |log: &LogId| match config.advertise {
        Advertise::One => 1,
        Advertise::PerCore => (log.0 as usize % bound.len()) as i32 + 1,
    };
    Cluster {
        id: data.cluster.simple().to_string(),
        nodes: nodes.collect(),
        controller: 1,
        leaders: data.logs.iter().map(|(id, _)| leader(id)).collect(),
        leader_epoch: data.run,
    }
}

/// What all cores are made from.
struct Boot<'a> {
    disk: Arc<dyn Disk>,
    config: &'a Arc<Config>,
    data: &'a Data,
    cluster: Arc<Cluster>,
    lanes: Lanes,
    table_lane: TableLane,
    manifests: Vec<Manifest>,
    boards: Vec<Board>,
    admission: Arc<Admission>,
    ready: mpsc::Sender<()>,
    started: Instant,
}

impl Boot<'_> {
    /// What each core starts with, and what stops it.
    fn starts(
        mut self,
        logs: Vec<(LogId, Log)>,
        machine: Machine,
        fronts: Vec<(TcpListener, GateEnd)>,
        shown: Shown,
    ) -> (Vec<CoreStart>, Vec<oneshot::Sender<()>>) {
        let cores = fronts.len();
        let image = machine.image();
        let sides: BTreeMap<_, _> = logs.iter().map(|(id, log)| (*id, log.sides())).collect();
        let sides = Arc::new(sides);
        let settings_of: SettingsOf =
            Arc::new(|topic: &Topic| topic.settings.partition(topic.is_internal()));
        let mut catalog = Some(machine);
        let group_limits = Arc::new(self.config.group_limits());
        let mut hosted: Vec<Vec<(LogId, Log)>> = (0..cores).map(|_| Vec::new()).collect();
        for (id, log) in logs {
            hosted[id.0 as usize % cores].push((id, log));
        }
        let tables = self.table_parts(&image, cores);
        let boards = std::mem::take(&mut self.boards);
        let quiet = Quiet::default();
        let mut stoppers = Vec::with_capacity(cores);
        let each = hosted.into_iter().zip(mesh(cores)).zip(fronts).zip(boards).zip(tables);
        let starts = each.enumerate().map(|(id, ((((logs, ends), front), board), tables))| {
            let (to_home, home) = home();
            let (stopper, stop) = oneshot::channel();
            stoppers.push(stopper);
            let parts = CoreParts {
                id,
                cores,
                logs,
                image: image.clone(),
                settings_of: settings_of.clone(),
                lanes: self.lanes.clone(),
                home: to_home,
                sides: sides.clone(),
                started: self.started,
                disk: self.disk.clone(),
                group_limits: group_limits.clone(),
                tables,
                shown: shown.clone(),
            };
            let (listener, gate) = front;
            CoreStart {
                parts,
                catalog: catalog.take(),
                ends: (ends, gate),
                home,
                quiet: quiet.clone(),
                listener,
                limits: limits(self.config),
                admission: self.admission.clone(),
                config: self.config.clone(),
                cluster: self.cluster.clone(),
                board,
                ready: self.ready.clone(),
                stop,
            }
        });
        let starts = starts.collect();
        tracing::debug!(run = self.data.run.0, "cores are about to start");
        (starts, stoppers)
    }

    fn table_parts(&mut self, image: &CatalogImage, cores: usize) -> Vec<TableParts> {
        let (versions, throttle) = (tables::versions(&self.manifests), Throttle::new(cores));
        let shares = tables::by_keeper(std::mem::take(&mut self.manifests), image, cores);
        let parts = |manifests| TableParts {
            manifests,
            versions: versions.clone(),
            data: self.config.data_dir.clone(),
            rules: tables::rules(self.config),
            lane: self.table_lane.clone(),
            throttle: throttle.clone(),
        };
        shares.into_iter().map(parts).collect()
    }
}

fn admission(config: &Config, connections_max: u32) -> Arc<Admission> {
    let per_ip = config.max_connections_per_ip.map_or(usize::MAX, |most| most as usize);
    let overrides = config.max_connections_per_ip_overrides.iter();
    let overrides = overrides.map(|(ip, most)| (*ip, *most as usize)).collect();
    Admission::new(connections_max as usize, per_ip, overrides)
}

fn limits(config: &Config) -> Limits {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Limits {
        frame_bytes_max: bytes(config.socket_request_max_bytes),
        pending_max: config.connection_requests_max as usize,
        held_bytes_max: bytes(config.connection_held_bytes),
        core_held_bytes_max: bytes(config.core_held_bytes),
        setup_ms: config.connection_setup_ms.unsigned_abs(),
        idle_ms: config.connections_max_idle_ms.map_or(u64::MAX, i64::unsigned_abs),
        stalled_ms: config.connection_stall_ms.unsigned_abs(),
    }
}

/// Finds out on a thread of its own what one stored byte makes the device write here. Nobody waits
/// for the answer; it is a line for the operator.
fn watch_folios(config: &Config) {
    let dir = config.data_dir.clone();
    let check = move || match check_folio(&dir) {
        Ok(FolioCheck::Large { dirty_bytes }) => tracing::warn!(
            dirty_bytes,
            "one stored byte makes the device write this much: under flush=commit it will write \
             many times what is produced; another file system or kernel may do better"
        ),
        Ok(FolioCheck::Page { .. } | FolioCheck::Unknown) => {}
        Err(error) => {
            tracing::warn!(%error, "what a store costs on this disk could not be measured")
        }
    };
    if let Err(error) = std::thread::Builder::new().name("folio-check".into()).spawn(check) {
        tracing::warn!(%error, "what a store costs on this disk was not measured");
    }
}

/// What listens beside Kafka. Ends when dropped: before the cores, which it asks.
struct Services {
    service: Service,
    http: Option<Serving>,
    pg: Option<(TcpListener, SocketAddr)>,
}

impl Services {
    /// Binds everything; HTTP says from now on that the broker is starting.
    fn start(cleared: &Cleared, boards: &[Board]) -> Result<Services, ServeError> {
        let service = Service::start()?;
        let http = cleared.http.map(|address| service.serve(address, boards.to_vec()));
        let listen = |address: SocketAddr| {
            let bind = |source| HttpError::Bind { address, source };
            let listener = TcpListener::bind(address).map_err(bind)?;
            let bound = listener.local_addr().map_err(bind)?;
            Ok::<_, HttpError>((listener, bound))
        };
        let pg = cleared.pg.map(listen).transpose()?;
        Ok(Services { http: http.transpose()?, pg, service })
    }

    /// Lets in those who ask the cores, which are up.
    fn open(&self, config: &Config, disk: &Arc<dyn Disk>, gate: Gate) -> Result<(), ServeError> {
        #[cfg(feature = "iceberg")]
        let tables = Some(crate::iceberg::of_broker(config, disk.clone(), gate.clone()));
        #[cfg(not(feature = "iceberg"))]
        let tables = None;
        #[cfg(feature = "sql")]
        let queries = Some(self.open_queries(config, disk.clone(), gate.clone())?);
        #[cfg(not(feature = "sql"))]
        let queries = None;
        drop(gate);
        if let Some(http) = &self.http {
            http.open([tables, queries].into_iter().flatten());
        }
        Ok(())
    }

    #[cfg(feature = "sql")]
    fn open_queries(
        &self,
        config: &Config,
        disk: Arc<dyn Disk>,
        gate: Gate,
    ) -> Result<axum::Router, ServeError> {
        use crate::query::{pg, Engine};
        let engine = Arc::new(Engine::of_broker(config, disk, gate)?);
        if let Some((listener, _)) = &self.pg {
            let listener = listener.try_clone().map_err(ServeError::Threads)?;
            pg::start(listener, engine.clone(), self.service.handle())?;
        }
        Ok(crate::http::sql(engine))
    }
}

fn announce(config: &Config, bound: &[SocketAddr], threads: &Threads, services: &Services) {
    let port = bound.first().map_or(0, SocketAddr::port);
    let listening: HostPort = config.listen.with_port(port);
    let shown = |at: &Option<HostPort>, bound: Option<SocketAddr>| {
        Some(at.as_ref()?.with_port(bound?.port()))
    };
    let http = services.http.as_ref().map(Serving::address);
    let pg = services.pg.as_ref().map(|(_, address)| *address);
    let (http, pg) = (shown(&config.http, http), shown(&config.pg, pg));
    let kernel = preflight::kernel_release();
    let facts = Facts {
        config,
        listening: &listening,
        http: http.as_ref(),
        pg: pg.as_ref(),
        cores: threads.cores,
        pinned: threads.pinned,
        kernel: &kernel,
        pid: std::process::id(),
    };
    let mut out = io::stdout().lock();
    let written = write!(out, "{}", banner::banner(&facts))
        .and_then(|()| writeln!(out, "{}", banner::ready(&facts)))
        .and_then(|()| out.flush());
    if let Err(error) = written {
        tracing::warn!(%error, "nobody reads what the broker says");
    }
}
