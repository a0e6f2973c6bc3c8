//! What runs on one core: its state, its listener with all connections, and their orderly end.

use crate::catalog::Machine;
use crate::config::{Advertise, Config};
use crate::cores::front::{Parcel, Touched};
use crate::cores::gate::GateEnd;
use crate::cores::{Core, CoreParts, Door, Ends, Home, Life, Quiet};
use crate::handlers::{Client, Cluster, Handlers};
use crate::metrics::{Board, Snapshot};
use crate::net::{self, Admission, ConnInfo, CoreNet, Limits, Service};
use crate::protocol::outcome::{CoreFuture, Outcome};
use crate::runtime::{within, Background};
use bytes::Bytes;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// How often connections are looked over and counts put on the board.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Tables, of which there may be many, are counted anew every so many times.
const TABLES_TICKS: u64 = 5;

/// All a core takes along to its thread.
pub struct CoreStart {
    pub parts: CoreParts,
    /// For core 0, which keeps the catalogue.
    pub catalog: Option<Machine>,
    pub ends: (Ends, GateEnd),
    pub home: Home,
    pub quiet: Quiet,
    pub listener: TcpListener,
    pub limits: Limits,
    pub admission: Arc<Admission>,
    pub config: Arc<Config>,
    pub cluster: Arc<Cluster>,
    pub board: Board,
    /// Told when the core serves.
    pub ready: mpsc::Sender<()>,
    /// Resolves when the core is to stop.
    pub stop: oneshot::Receiver<()>,
}

/// The core, from its first task to its last.
pub async fn run(start: CoreStart) {
    let grace = Duration::from_millis(start.config.shutdown_grace_ms.unsigned_abs());
    let core = Core::new(start.parts, start.catalog);
    core.cold.set_max(start.limits.core_held_bytes_max / 2);
    let net = CoreNet::new(start.limits, start.admission);
    let life = {
        let net = net.clone();
        let seen = Cell::new(0);
        // Long polls that just wait do not count.
        let is_busy = move || {
            let requests = net.counters().requests;
            seen.replace(requests) != requests
        };
        Life::begin(core.clone(), start.ends, start.home, is_busy).await
    };
    let door = Rc::new(Door(core.clone()));
    // Elsewhere clients know the owners and go there themselves.
    let moves = start.config.advertise == Advertise::One;
    let handlers = Handlers::new(door, start.config, start.cluster, core.id());
    let service = Rc::new(Kafka { handlers: handlers.clone(), core: core.clone(), moves });
    {
        let (service, net) = (service.clone(), net.clone());
        core.arrivals.open(move |parcel| net::adopt(parcel, &service, &net));
    }
    let accepting = Background::spawn(net::serve(start.listener, service, net.clone()));
    let housekeeping = keep_house(&core, &net, handlers, start.board);
    // The starter is gone only if the process is ending already.
    let _ = start.ready.send(());
    drop(start.ready);

    let _ = start.stop.await;
    accepting.stop().await;
    core.arrivals.close();
    net.drain();
    core.ring_alarms();
    core.release_groups();
    if within(grace, net.emptied()).await.is_none() {
        tracing::warn!(connections = net.connections(), "closing connections that did not end");
        net.close();
        net.emptied().await;
    }
    housekeeping.stop().await;
    life.end(start.quiet).await;
}

fn keep_house(
    core: &Rc<Core>,
    net: &Rc<CoreNet>,
    handlers: Rc<Handlers>,
    board: Board,
) -> Background {
    let (core, net, started) = (core.clone(), net.clone(), Instant::now());
    let (ticks, tables) = (Cell::new(0u64), RefCell::new(core.table_counts()));
    Background::every(HOUSEKEEPING, move || {
        net.sweep(started.elapsed().as_millis() as u64);
        let counters = net.counters();
        let groups = core.group_counts();
        if ticks.replace(ticks.get() + 1) % TABLES_TICKS == 0 {
            *tables.borrow_mut() = core.table_counts();
        }
        board.put(Snapshot {
            connections: net.connections() as u64,
            accepted: counters.accepted,
            refused: counters.refused,
            overdue: counters.overdue,
            moved_in: counters.moved_in,
            moved_out: counters.moved_out,
            held_bytes: net.held().bytes() as u64,
            pending: net.held().pending as u64,
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
            requests: handlers.requests().collect(),
            tables: tables.borrow().clone(),
            groups: groups.groups as u64,
            group_members: groups.members as u64,
            committed_offsets: groups.offsets as u64,
            ..core.counts()
        });
    })
}

/// Kafka's protocol on the connections of a core.
struct Kafka {
    handlers: Rc<Handlers>,
    core: Rc<Core>,
    /// Connections go to the core of their data.
    moves: bool,
}

impl Service for Kafka {
    fn call(&self, frame: Bytes, conn: &Rc<ConnInfo>) -> Outcome {
        self.core.touched.take();
        let client = Client { view: crate::catalog::DEFAULT_VIEW, host: conn.peer.ip() };
        self.handlers.call(frame, client)
    }

    fn touched(&self) -> Touched {
        match self.moves {
            true => self.core.touched.take(),
            false => Touched::Nothing,
        }
    }

    fn hand_over(&self, core: usize, parcel: Parcel) -> CoreFuture<Result<(), Parcel>> {
        self.core.hand_over(core, parcel)
    }
}
