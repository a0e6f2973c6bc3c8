//! The broker under measurement: started here and ended by its pid, or one that runs already.

use crate::error::PerfError;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Ports a broker with an address for each core may take.
const CORE_PORTS: u16 = 4;
/// Where ports are looked for.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
const STOPPED_WITHIN: Duration = Duration::from_secs(120);

/// How to start Basalt.
#[derive(Clone, Debug)]
pub struct Starter {
    pub binary: PathBuf,
    /// Data directories are made in here.
    pub root: PathBuf,
    /// More arguments for `basalt serve`.
    pub flags: Vec<String>,
}

/// A broker that answers.
#[derive(Debug)]
pub struct Broker {
    pub address: String,
    pub pid: u32,
    /// Where `/metrics` is.
    pub http: Option<String>,
    /// From the start of the process to its ready line.
    pub ready: Duration,
    child: Option<Child>,
}

impl Starter {
    /// The same with more keys of the configuration set.
    pub fn with(&self, settings: &[&str]) -> Starter {
        let more = settings.iter().flat_map(|setting| ["--set".to_string(), setting.to_string()]);
        Starter { flags: self.flags.iter().cloned().chain(more).collect(), ..self.clone() }
    }

    /// A data directory of its own, gone when the value is dropped.
    pub fn data_dir(&self) -> Result<tempfile::TempDir, PerfError> {
        fs::create_dir_all(&self.root).map_err(PerfError::file(&self.root))?;
        tempfile::tempdir_in(&self.root).map_err(PerfError::file(&self.root))
    }

    /// Starts a broker on `data` and waits until it is ready.
    pub fn start(&self, data: &Path) -> Result<Broker, PerfError> {
        if !self.binary.exists() {
            return Err(PerfError::NoBroker { path: self.binary.clone() });
        }
        let (address, http) = free_addresses()?;
        let log = self.root.join("broker.log");
        let errors = File::create(&log).map_err(PerfError::file(&log))?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--data-dir").arg(data);
        command.args(["--listen", &address, "--http", &http, "--pg", "127.0.0.1:0"]);
        command.args(&self.flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let started = Instant::now();
        let program = self.binary.display().to_string();
        let mut child = command.spawn().map_err(PerfError::run(program))?;
        let ready = ready_line(&mut child).recv_timeout(READY_WITHIN).is_ok();
        let pid = child.id();
        let (ready_after, child) = (started.elapsed(), Some(child));
        let broker = Broker { address, pid, http: Some(http), ready: ready_after, child };
        if ready {
            return Ok(broker);
        }
        drop(broker);
        Err(PerfError::NotReady { said: fs::read_to_string(&log).unwrap_or_default() })
    }
}

/// Reads the broker's output to its end, and says when the ready line has come.
fn ready_line(child: &mut Child) -> Receiver<()> {
    let (sender, receiver) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line.starts_with("ready ") {
                    // Nobody listens any more when this came too late.
                    let _ = sender.send(());
                }
            }
        });
    }
    receiver
}

/// Two addresses nobody listens on right now; behind the first there is room for the ports of more
/// cores. Below the ports the system gives to clients, of which thousands may just have been used.
pub fn free_addresses() -> Result<(String, String), PerfError> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = std::process::id() as u16 % PORTS;
    for _ in 0..PORTS / (CORE_PORTS + 1) {
        let taken = TAKEN.fetch_add(CORE_PORTS + 1, Ordering::Relaxed);
        let port = FIRST_PORT + begin.wrapping_add(taken) % PORTS;
        if (port..=port + CORE_PORTS).all(is_free) {
            return Ok((format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + CORE_PORTS)));
        }
    }
    Err(PerfError::Answer(format!("no {CORE_PORTS} free ports in a row")))
}

impl Broker {
    /// One that was started by somebody else.
    pub fn running(address: String, pid: u32, http: Option<String>) -> Broker {
        Broker { address, pid, http, ready: Duration::ZERO, child: None }
    }

    /// One that was started here and answers; ended when the value is dropped.
    pub fn of_child(address: String, child: Child, ready: Duration) -> Broker {
        Broker { address, pid: child.id(), http: None, ready, child: Some(child) }
    }

    /// The same, ready after this time.
    pub fn ready_after(mut self, ready: Duration) -> Broker {
        self.ready = ready;
        self
    }

    /// Asks the broker to stop and waits for its end.
    pub fn stop(mut self) -> Result<(), PerfError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let _ = kill(Pid::from_raw(self.pid as i32), Signal::SIGTERM);
        let since = Instant::now();
        while since.elapsed() < STOPPED_WITHIN {
            if child.try_wait().map_err(PerfError::run("wait"))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
        Err(PerfError::NotStopped { pid: self.pid, seconds: STOPPED_WITHIN.as_secs() })
    }

    /// Ends the broker without a word, as `kill -9` does.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
