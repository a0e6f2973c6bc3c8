//! Threads that write and merge table files: work of seconds, which nobody is answered by.
//!
//! Apart from the workers, so that a read never waits behind a file that is being written. Each
//! piece of work runs on a thread of its own that begins with the niceness it deserves then: a
//! thread may lower its priority, and without privileges never raise it again. As many pieces run
//! at a time as the lane has slots; those who submit keep the rest, and may change their minds.

use crate::cores::jobs::{Threads, WorkError};
use futures_channel::oneshot;
use shard::table::memory::keep_buffers;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use std::thread;

/// The niceness of work that can wait for everything else.
pub const IDLE: i32 = 19;

type Work = Box<dyn FnOnce() + Send>;

/// The way to the threads.
#[derive(Clone, Debug)]
pub struct TableLane {
    work: mpsc::Sender<(i32, Work)>,
    slots: usize,
    ending: Ending,
}

/// Told to work under way when the broker stops: what is not finished then is done again later.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TableLane {
    /// Starts the slots. Not to be called on a core's thread: they would share its CPU.
    pub fn start(slots: usize) -> io::Result<(TableLane, Threads)> {
        keep_buffers();
        let slots = slots.max(1);
        let (work, queue) = mpsc::channel::<(i32, Work)>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::with_capacity(slots);
        for number in 0..slots {
            let queue = queue.clone();
            let named = thread::Builder::new().name(format!("tables-{number}"));
            threads.push(named.spawn(move || run_all(number, &queue))?);
        }
        let lane = TableLane { work, slots, ending: Ending::default() };
        Ok((lane, Threads::of(threads)))
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Runs a closure as nice as said.
    pub async fn run<T: Send + 'static>(
        &self,
        nice: i32,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let (sender, outcome) = oneshot::channel();
        let ending = self.ending.clone();
        let work = Box::new(move || {
            if !ending.has_begun() {
                // An asker that is gone needs no answer.
                let _ = sender.send(run());
            }
        });
        let _ = self.work.send((nice, work));
        outcome.await.map_err(|oneshot::Canceled| WorkError::Lost)
    }
}

fn run_all(slot: usize, queue: &Mutex<mpsc::Receiver<(i32, Work)>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((nice, work)) = next else { return };
        let run = move || {
            if let Err(error) = rustix::process::setpriority_process(None, nice) {
                tracing::debug!(%error, nice, "a table is written at ordinary priority");
            }
            work();
        };
        let started = thread::Builder::new().name(format!("table-job-{slot}")).spawn(run);
        // The asker of work that panicked or never began is told by the answer that does not come.
        match started.map(thread::JoinHandle::join) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("work on a table panicked"),
            Err(error) => tracing::error!(%error, "no thread to write a table"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).expect("a number")
    }

    #[test]
    fn each_piece_of_work_has_its_own_niceness_and_a_panic_loses_only_itself() {
        let (lane, threads) = TableLane::start(1).expect("threads");
        let ours = niceness();
        assert_eq!(block_on(lane.run(IDLE, niceness)), Ok(IDLE));
        assert_eq!(block_on(lane.run(ours, niceness)), Ok(ours), "the next begins afresh");
        let lost: Result<(), _> = block_on(lane.run(IDLE, || panic!("planted")));
        assert_eq!(lost, Err(WorkError::Lost));
        assert_eq!(block_on(lane.run(IDLE, || 1)), Ok(1));
        lane.ending().begin();
        assert_eq!(block_on(lane.run(IDLE, || 1)), Err(WorkError::Lost), "nothing begins any more");
        drop(lane);
        threads.join();
    }
}
