//! A core from its first to its last moment: the tasks behind the connections, and the stop.
//!
//! Tasks: one per other core that serves its messages, one that takes finished jobs, one that looks
//! after the logs whenever something happened or is due, one that fires the timers of its machines,
//! one that has tables written, one that serves threads that are no cores, one that looks how far
//! groups are behind, one that turns the loop now and then. All of them are ended and awaited
//! before the executor is left: what is pending then would leak.

use super::core::Core;
use super::gate::{self, GateEnd};
use super::jobs::Home;
use super::lag::keep_lags;
use super::mesh::Ends;
use futures_lite::StreamExt;
use glommio::timer::Timer;
use glommio::Task;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How often a core with requests in flight turns its loop at least. It bounds what an executor
/// that went to sleep with tasks ready costs, and is the measure of stalls.
const BUSY_TICK: Duration = Duration::from_millis(10);
/// The same when nothing is going on.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// How often the logs are looked after when nothing calls for it …
const UPKEEP_TICK: Duration = Duration::from_millis(50);
/// … and at most.
const UPKEEP_MIN: Duration = Duration::from_micros(50);
/// How often the catalogue's keeper looks whether it holds an old segment.
const CATALOG_TICK: Duration = Duration::from_secs(1);
/// How long a stopping core waits for the others beyond the grace of its connections.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The background tasks of a core.
pub struct Life {
    core: Rc<Core>,
    mesh: Vec<Task<()>>,
    home: Task<()>,
    upkeep: Task<()>,
    pulse: Task<()>,
    catalog: Task<()>,
    machines: Task<()>,
    tables: Task<()>,
    gate: Task<()>,
    lags: Task<()>,
}

/// Counts the cores that will ask nothing more of others.
#[derive(Clone, Debug, Default)]
pub struct Quiet(Arc<AtomicUsize>);

impl Life {
    /// Connects the core with the others and starts its tasks. All cores have to do so at the same
    /// time. `is_busy` says whether requests have come since it was last asked.
    pub async fn begin(
        core: Rc<Core>,
        (ends, gate): (Ends, GateEnd),
        home: Home,
        is_busy: impl Fn() -> bool + 'static,
    ) -> Life {
        let (links, receivers) = ends.connect().await;
        core.connect(links);
        core.open_coordinators();
        let mesh = receivers.into_iter().map(|receiver| {
            let core = core.clone();
            glommio::spawn_local(async move {
                while let Some(ask) = receiver.recv().await {
                    core.serve(ask);
                }
            })
        });
        Life {
            mesh: mesh.collect(),
            home: glommio::spawn_local(take_home(core.clone(), home)),
            upkeep: glommio::spawn_local(look_after(core.clone())),
            pulse: glommio::spawn_local(pulse(core.clone(), is_busy)),
            catalog: glommio::spawn_local(keep_catalog_young(core.clone())),
            machines: glommio::spawn_local(core.clone().keep_time()),
            tables: glommio::spawn_local(core.clone().keep_tables()),
            gate: glommio::spawn_local(gate::serve(core.clone(), gate)),
            lags: glommio::spawn_local(keep_lags(core.clone())),
            core,
        }
    }

    /// Ends the core, whose connections are gone: waits until no core asks for anything any more,
    /// brings the logs to a clean stop and ends the tasks.
    pub async fn end(self, quiet: Quiet) {
        let core = self.core;
        let deadline = Instant::now() + STOP_PATIENCE;
        quiet.0.fetch_add(1, Ordering::SeqCst);
        while quiet.0.load(Ordering::SeqCst) < core.cores() && Instant::now() < deadline {
            Timer::new(BUSY_TICK).await;
        }
        self.upkeep.cancel().await;
        self.pulse.cancel().await;
        self.catalog.cancel().await;
        self.machines.cancel().await;
        self.lags.cancel().await;
        self.gate.cancel().await;
        self.tables.cancel().await;
        core.end_tables();
        while !core.stop_step() && Instant::now() < deadline {
            core.upkeep_done().await;
        }
        core.end_machines().await;
        if let Some(links) = core.links() {
            links.close();
        }
        for task in self.mesh {
            task.cancel().await;
        }
        self.home.cancel().await;
    }
}

async fn take_home(core: Rc<Core>, mut home: Home) {
    while let Some(finished) = home.next().await {
        core.finish(finished);
    }
}

async fn look_after(core: Rc<Core>) {
    loop {
        let due = core.tend().map_or(UPKEEP_TICK, Duration::from_micros);
        let timer = Timer::new(due.clamp(UPKEEP_MIN, UPKEEP_TICK));
        Wait { core: &core, timer }.await;
    }
}

/// Keeps the catalogue, on the core that has it, out of old segments.
async fn keep_catalog_young(core: Rc<Core>) {
    loop {
        Timer::new(CATALOG_TICK).await;
        core.rewrite_catalog().await;
    }
}

/// Turns the core's loop while requests are in flight, and notes how late it comes to do so.
async fn pulse(core: Rc<Core>, is_busy: impl Fn() -> bool) {
    loop {
        let tick = if is_busy() || core.appends_wait() { BUSY_TICK } else { IDLE_TICK };
        let set = Instant::now();
        Timer::new(tick).await;
        core.metrics.stalled(set.elapsed().saturating_sub(tick));
        core.expire();
    }
}

/// Until something happened or time is up.
struct Wait<'a> {
    core: &'a Core,
    timer: Timer,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.upkeep.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Pin::new(&mut self.timer).poll(cx).map(|_| ())
    }
}

impl Core {
    /// After the next finished job.
    async fn upkeep_done(&self) {
        Wait { core: self, timer: Timer::new(BUSY_TICK) }.await;
    }
}
