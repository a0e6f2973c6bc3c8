//! Threads for blocking work, and how its outcome comes back to a core.
//!
//! A sync thread per log, because syncs decide the latency of acks=all; one thread that prepares
//! segments and pages; a few workers at low priority for jobs of logs that can wait; as many
//! foreground threads at ordinary priority for what a request waits for, so that a consumer of old
//! data is held up neither by a job that takes long nor by what else the machine does. Cores submit
//! and are woken with the outcome; they never wait here themselves. A panic in a job is an outcome
//! too. Nothing here looks into a job.

use futures_channel::{mpsc as home, oneshot};
use shard::ids::LogId;
use shard::log::{Done, Job, Lane};
use std::collections::BTreeMap;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Nice value of the workers: they yield to cores and syncs, and still move on a busy machine.
const WORKER_NICE: i32 = 10;
/// Closures that may wait for a foreground thread; more are refused.
const QUEUED_MAX: usize = 4096;

type Errand = Box<dyn FnOnce() + Send>;

/// A job that has been run.
#[derive(Debug)]
pub struct Finished {
    pub log: LogId,
    pub done: Done,
}

/// Where a core takes finished jobs from. Holds no more than the jobs its logs have in flight.
pub type Home = home::UnboundedReceiver<Finished>;
/// Where threads put them.
pub type ToHome = home::UnboundedSender<Finished>;

/// The ends of a core's way home.
pub fn home() -> (ToHome, Home) {
    home::unbounded()
}

/// The way to the threads.
#[derive(Clone, Debug)]
pub struct Lanes {
    sync: BTreeMap<u32, mpsc::Sender<Errand>>,
    prepare: mpsc::Sender<Errand>,
    worker: mpsc::Sender<Errand>,
    foreground: mpsc::Sender<Errand>,
    queued: Arc<AtomicUsize>,
}

/// Why a closure was not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    #[error("too much work is waiting already")]
    Overloaded,
    #[error("the work panicked or the broker is stopping")]
    Lost,
}

/// The threads, to be joined after all `Lanes` are gone.
#[derive(Debug)]
pub struct Threads(Vec<thread::JoinHandle<()>>);

impl Threads {
    pub(super) fn of(threads: Vec<thread::JoinHandle<()>>) -> Threads {
        Threads(threads)
    }

    pub fn join(self) {
        for thread in self.0 {
            // Panics of errands are caught inside.
            let _ = thread.join();
        }
    }
}

impl Lanes {
    /// Starts the threads. Not to be called on a core's thread: they would share its CPU.
    pub fn start(
        logs: impl IntoIterator<Item = LogId>,
        workers: usize,
    ) -> io::Result<(Lanes, Threads)> {
        let mut threads = Vec::new();
        let mut sync = BTreeMap::new();
        for log in logs {
            let (sender, errands) = mpsc::channel();
            threads.push(spawn(format!("sync-{log}"), errands)?);
            sync.insert(log.0, sender);
        }
        let (prepare, errands) = mpsc::channel();
        threads.push(spawn("prepare".into(), errands)?);
        let worker = pool("worker", workers, Some(WORKER_NICE), &mut threads)?;
        let foreground = pool("foreground", workers, None, &mut threads)?;
        let lanes = Lanes { sync, prepare, worker, foreground, queued: Arc::default() };
        Ok((lanes, Threads(threads)))
    }

    /// Runs a job of a log on a thread of its lane; its outcome arrives at `home`.
    ///
    /// # Panics
    /// When the log has no sync thread: the logs of `start` are all there are.
    pub fn submit(&self, log: LogId, job: Job, home: &ToHome) {
        let lane = job.lane();
        let home = home.clone();
        let errand = Box::new(move || {
            let started = Instant::now();
            let run = catch_unwind(AssertUnwindSafe(|| job.run()));
            let done = run.unwrap_or_else(|_| Done::panicked()).timed(started.elapsed());
            // The core is gone when the broker is dying; nobody is left to be told.
            let _ = home.unbounded_send(Finished { log, done });
        });
        let sender = match lane {
            Lane::Sync => self.sync.get(&log.0).expect("a sync thread for each log"),
            Lane::Prepare => &self.prepare,
            Lane::Worker => &self.worker,
        };
        // Threads end only after the last sender is gone.
        let _ = sender.send(errand);
    }

    /// Runs a closure that somebody waits for on a foreground thread.
    pub async fn work<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        if self.queued.load(Ordering::Relaxed) >= QUEUED_MAX {
            return Err(WorkError::Overloaded);
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = oneshot::channel();
        let queued = self.queued.clone();
        let errand = Box::new(move || {
            queued.fetch_sub(1, Ordering::Relaxed);
            // Nobody waits any more when the connection is gone: then the work is not done either.
            if !sender.is_canceled() {
                let _ = sender.send(run());
            }
        });
        let _ = self.foreground.send(errand);
        outcome.await.map_err(|_| WorkError::Lost)
    }

    /// Runs a closure on a foreground thread if nothing waits for one; otherwise it is dropped.
    pub fn offer(&self, run: impl FnOnce() + Send + 'static) {
        if self.queued.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        let queued = self.queued.clone();
        let errand = Box::new(move || {
            queued.fetch_sub(1, Ordering::Relaxed);
            run();
        });
        let _ = self.foreground.send(errand);
    }
}

fn spawn(name: String, errands: mpsc::Receiver<Errand>) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || {
        while let Ok(errand) = errands.recv() {
            run(errand);
        }
    })
}

/// Threads that take errands from one queue.
fn pool(
    name: &str,
    count: usize,
    nice: Option<i32>,
    threads: &mut Vec<thread::JoinHandle<()>>,
) -> io::Result<mpsc::Sender<Errand>> {
    let (sender, errands) = mpsc::channel::<Errand>();
    let errands = Arc::new(Mutex::new(errands));
    for number in 0..count.max(1) {
        let errands = errands.clone();
        let named = thread::Builder::new().name(format!("{name}-{number}"));
        threads.push(named.spawn(move || work(&errands, nice))?);
    }
    Ok(sender)
}

fn work(errands: &Mutex<mpsc::Receiver<Errand>>, nice: Option<i32>) {
    if let Some(Err(error)) = nice.map(|nice| rustix::process::setpriority_process(None, nice)) {
        tracing::warn!(%error, "a worker keeps its ordinary priority");
    }
    loop {
        let next = errands.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(errand) => run(errand),
            Err(mpsc::RecvError) => return,
        }
    }
}

fn run(errand: Errand) {
    if catch_unwind(AssertUnwindSafe(errand)).is_err() {
        tracing::error!("a piece of work panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;
    use std::time::Duration;

    #[test]
    fn work_comes_back_and_a_panic_loses_only_itself() {
        let (lanes, threads) = Lanes::start([LogId(0)], 1).expect("threads");
        assert_eq!(block_on(lanes.work(|| 6 * 7)), Ok(42));
        let lost: Result<(), _> = block_on(lanes.work(|| panic!("planted")));
        assert_eq!(lost, Err(WorkError::Lost));
        assert_eq!(block_on(lanes.work(|| 1)), Ok(1));
        assert_eq!(lanes.queued.load(Ordering::Relaxed), 0);
        drop(lanes);
        threads.join();
    }

    #[test]
    fn nobody_waits_for_a_job_that_takes_long() {
        let (lanes, threads) = Lanes::start([LogId(0)], 1).expect("threads");
        let (end, ended) = mpsc::channel::<()>();
        lanes.worker.send(Box::new(move || assert!(ended.recv().is_err()))).expect("a worker");
        let (done, is_done) = mpsc::channel();
        lanes.offer(move || done.send(()).expect("somebody waits"));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(()));
        drop(end);
        drop(lanes);
        threads.join();
    }
}
