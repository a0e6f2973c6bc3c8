//! Threads that run cores: one glommio executor each, started together and joined at the end.
//!
//! `probe` finds out beforehand what would make an executor panic, `Stop` turns signals and the
//! death of a core into one event for `main`. Facts about glommio this file and `net` lean on:
//! tasks that are pending when an executor ends leak, so a core's body awaits all of its tasks; the
//! executor looks at sockets only when no task is ready; the preempt timer keeps its default,
//! because short ones can put a core to sleep with tasks that are ready.

use glommio::{LocalExecutor, LocalExecutorBuilder, Placement};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use std::future::Future;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

/// Memory each ring registers: the least, since files are not read through the ring.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// What the rings of one core lock, as glommio demands it.
const MEMLOCK_BYTES_MIN: u64 = 512 << 10;

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(
        "locked memory is limited to {have_bytes} bytes and each core needs {need_bytes}: \
         run `ulimit -l unlimited` first, or set LimitMEMLOCK=infinity (systemd) or \
         --ulimit memlock=-1 (docker)"
    )]
    Memlock { have_bytes: u64, need_bytes: u64 },
    #[error(
        "io_uring is not available ({0}): a container's default profile denies it, start it with \
         --security-opt seccomp=unconfined; otherwise set the sysctl kernel.io_uring_disabled=0"
    )]
    IoUring(String),
    #[error("cannot start a core's thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot make the executor of core {core}: {reason}")]
    Executor { core: usize, reason: String },
    #[error("cannot block or await signals: {0}")]
    Signals(#[source] io::Error),
    #[error("core {0} died")]
    CoreDied(usize),
}

/// Fails with what to do about it if executors cannot run here.
pub fn probe() -> Result<(), RuntimeError> {
    let (have_bytes, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((u64::MAX, u64::MAX));
    if have_bytes < MEMLOCK_BYTES_MIN {
        return Err(RuntimeError::Memlock { have_bytes, need_bytes: MEMLOCK_BYTES_MIN });
    }
    // glommio panics where io_uring is denied. Nothing else runs yet, so the hook that would print
    // the panic can be put aside for a moment.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = thread::spawn(|| executor(None).map(drop).map_err(|error| error.to_string()));
    let outcome = outcome.join();
    std::panic::set_hook(hook);
    match outcome {
        Ok(made) => made.map_err(RuntimeError::IoUring),
        Err(panic) => Err(RuntimeError::IoUring(panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic").to_string()
}

fn executor(cpu: Option<usize>) -> glommio::Result<LocalExecutor, ()> {
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    LocalExecutorBuilder::new(placement).io_memory(IO_MEMORY_BYTES).make()
}

/// Raises the limit of open files to what the system allows; every connection is one.
pub fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            tracing::warn!(soft, hard, %error, "the limit of open files stays as it is");
        }
    }
}

/// The CPUs this process may use.
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    #[test]
    fn cores_run_and_end_and_a_dead_one_is_told() {
        probe().expect("io_uring");
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
