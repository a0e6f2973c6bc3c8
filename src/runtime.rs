//! Threads that run cores: one glommio executor each, started together and joined at the end.
//!
//! `Stops` turns signals and the death of a core into one event for the broker, `Background` is a
//! task that has to be ended. What would make an executor panic, `preflight` has ruled out. Facts
//! about glommio this file, `net` and `cores` lean on: tasks that are pending when an executor ends
//! leak, so a core's body awaits all of its tasks; the executor looks at sockets only when no task
//! is ready; the preempt timer keeps its default, because short ones can put a core to sleep with
//! tasks that are ready.

use glommio::timer::Timer;
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement};
use nix::sys::signal::{SigSet, Signal};
use std::future::Future;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Memory each ring registers: the least, since files are not read through the ring.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of each ring. The kernel keeps the sockets that are waited for in a table whose size
/// follows from this, and the executor has it searched whenever it goes to sleep and wakes: with
/// glommio's 128 entries 5,000 quiet connections are searched in 8 lists, with these in 64.
pub const RING_ENTRIES: u32 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot start a core's thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot make the executor of core {core}: {reason}")]
    Executor { core: usize, reason: String },
    #[error("cannot block or await signals: {0}")]
    Signals(#[source] io::Error),
    #[error("core {0} died")]
    CoreDied(usize),
}

fn executor(cpu: Option<usize>) -> glommio::Result<LocalExecutor, ()> {
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    let builder = LocalExecutorBuilder::new(placement).io_memory(IO_MEMORY_BYTES);
    builder.ring_depth(RING_ENTRIES as usize).make()
}

/// Why the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Signal(&'static str),
    CoreDied(usize),
}

/// Where `main` waits for the end.
#[derive(Debug)]
pub struct Stops {
    sender: mpsc::Sender<Stop>,
    receiver: mpsc::Receiver<Stop>,
}

impl Stops {
    /// Blocks SIGTERM and SIGINT in this thread and those it will start, and takes them over. To be
    /// called before any other thread starts.
    pub fn new() -> Result<Stops, RuntimeError> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.thread_block().map_err(|error| RuntimeError::Signals(error.into()))?;
        let (sender, receiver) = mpsc::channel();
        let forward = sender.clone();
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                if forward.send(Stop::Signal(signal.as_str())).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait).map_err(RuntimeError::Thread)?;
        Ok(Stops { sender, receiver })
    }

    pub fn wait(&self) -> Stop {
        // The sender in `self` keeps the channel open.
        self.receiver.recv().unwrap_or(Stop::Signal("SIGTERM"))
    }
}

/// The threads of all cores.
#[derive(Debug)]
pub struct Cores {
    threads: Vec<thread::JoinHandle<bool>>,
}

/// Starts `bodies.len()` cores. Each body runs on its core's thread and makes the future that is
/// the core; the core ends when that future does. With `pin`, each core gets a CPU of its own if
/// there are enough. No body runs unless all executors could be made.
pub fn start<B, F>(bodies: Vec<B>, pin: bool, stops: &Stops) -> Result<Cores, RuntimeError>
where
    B: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let pin = pin && cpus.len() >= bodies.len();
    let mut threads = Vec::new();
    let mut gates = Vec::new();
    let (made_sender, made) = mpsc::channel();
    for (core, body) in bodies.into_iter().enumerate() {
        let cpu = cpus.get(core).filter(|_| pin).map(|cpu| cpu.id);
        let (gate, open) = mpsc::channel::<()>();
        let (made, died) = (made_sender.clone(), stops.sender.clone());
        let run = move || {
            let executor = match executor(cpu) {
                Ok(executor) => executor,
                Err(error) => {
                    let _ =
                        made.send(Some(RuntimeError::Executor { core, reason: error.to_string() }));
                    return false;
                }
            };
            let _ = made.send(None);
            if open.recv().is_err() {
                return true;
            }
            let whole = catch_unwind(AssertUnwindSafe(|| executor.run(body()))).is_ok();
            if !whole {
                tracing::error!(core, "a core died");
                let _ = died.send(Stop::CoreDied(core));
                // Its tasks may hold wakers of dead tasks: leave them alone.
                std::mem::forget(executor);
            }
            whole
        };
        let named = thread::Builder::new().name(format!("core-{core}"));
        threads.push(named.spawn(run).map_err(RuntimeError::Thread)?);
        gates.push(gate);
    }
    for _ in 0..threads.len() {
        if let Ok(Some(error)) = made.recv() {
            return Err(error);
        }
    }
    gates.iter().for_each(|gate| {
        let _ = gate.send(());
    });
    Ok(Cores { threads })
}

impl Cores {
    /// Waits for the end of all cores that live.
    pub fn join(self) -> Result<(), RuntimeError> {
        let mut outcome = Ok(());
        for (core, thread) in self.threads.into_iter().enumerate() {
            if !matches!(thread.join(), Ok(true)) {
                outcome = Err(RuntimeError::CoreDied(core));
            }
        }
        outcome
    }
}

/// A task of a core that runs until it is stopped.
#[derive(Debug)]
pub struct Background(glommio::Task<()>);

impl Background {
    pub fn spawn(work: impl Future<Output = ()> + 'static) -> Background {
        Background(glommio::spawn_local(work))
    }

    /// Calls `work` again and again with `rest` in between.
    pub fn every(rest: Duration, mut work: impl FnMut() + 'static) -> Background {
        Background::spawn(async move {
            loop {
                Timer::new(rest).await;
                work();
            }
        })
    }

    /// Returns when the task is gone.
    pub async fn stop(self) {
        self.0.cancel().await;
    }
}

/// What `work` comes to, unless it takes longer than `time`.
pub async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let timer = async {
        Timer::new(time).await;
        None
    };
    futures_lite::future::or(async { Some(work.await) }, timer).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    #[test]
    fn cores_run_and_end_and_a_dead_one_is_told() {
        let stops = Stops::new().expect("signals");
        let ran = Arc::new(AtomicUsize::new(0));
        let bodies: Vec<_> = (0..2)
            .map(|core| {
                let ran = ran.clone();
                move || async move {
                    ran.fetch_add(1, Ordering::Relaxed);
                    assert_ne!(core, 1, "planted");
                }
            })
            .collect();
        let cores = start(bodies, true, &stops).expect("executors");
        assert_eq!(stops.wait(), Stop::CoreDied(1));
        assert!(matches!(cores.join(), Err(RuntimeError::CoreDied(1))));
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }
}
