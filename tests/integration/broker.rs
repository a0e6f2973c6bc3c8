//! A `basalt` process under test: started on a free port with a data directory of its own,
//! waited for, stopped or killed by its id, never left behind.
//!
//! Waiting is always for a line or the end of the process's output, bounded in time; what the
//! process wrote to its standard error is part of each failure's message.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// Many brokers run at the same time.
pub const FREE_HTTP: [&str; 2] = ["--http", "127.0.0.1:0"];
pub const FREE_PG: [&str; 2] = ["--pg", "127.0.0.1:0"];

const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// Ports below the range the system hands out, so that nobody takes one between two starts.
const PORTS: std::ops::Range<u32> = 12_000..32_000;

/// A directory that goes away with its owner.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            remove_old();
        }
        let name = format!("broker-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// What failed tests of processes that are gone have left to look at.
fn remove_old() {
    let dirs = std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")).into_iter().flatten().flatten();
    for dir in dirs {
        let name = dir.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix("broker-").and_then(|rest| rest.split('-').next());
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A broker whose cores have ports of their own takes the next ones too.
const PORTS_EACH: u32 = 4;

pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_mul(148);
    for _ in 0..span {
        let step = NEXT.fetch_add(PORTS_EACH, Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(step) % span;
        let is_free = |port: u32| TcpListener::bind(("127.0.0.1", port as u16)).is_ok();
        if (port..port + PORTS_EACH).all(is_free) {
            return port as u16;
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// The address of a broker that runs already, if the tests are pointed at one.
pub fn external() -> Option<String> {
    std::env::var("BASALT_TEST_BOOTSTRAP").ok()
}

/// Whether a test that needs a process of our own has to be left out; says so.
pub fn only_own(test: &str) -> bool {
    if external().is_some() {
        eprintln!("{test}: not run against a broker of somebody else's");
    }
    external().is_some()
}

/// A started process and what it says.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    /// Ends when all of the standard error is in `errors`.
    error_reader: Option<JoinHandle<()>>,
}

impl Process {
    pub fn start(arguments: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_basalt"));
        command.args(arguments);
        Process::spawn(command)
    }

    /// A process that may open so many files and no more, as under `ulimit -n`.
    pub fn start_with_files(files: u32, arguments: &[&str]) -> Process {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$@\"");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_basalt")]).args(arguments);
        Process::spawn(command)
    }

    fn spawn(mut command: Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker's binary");
        let output = child.stdout.take().expect("a pipe");
        let mut error_output = child.stderr.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = errors.clone();
        let error_reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = error_output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                kept.lock().expect("no panic holds it").push_str(&text);
            }
        });
        Process { child, lines, errors, error_reader: Some(error_reader) }
    }

    /// The first line that begins with `prefix`.
    pub fn line(&mut self, prefix: &str, within: Duration) -> String {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with(prefix) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.fail(&format!("no `{prefix}` in {within:?}"))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.reap();
                    self.fail(&format!("ended, no `{prefix}`"))
                }
            }
        }
    }

    /// The status after the process has ended by itself or by a signal sent before.
    pub fn end(&mut self, within: Duration) -> ExitStatus {
        self.output(within).0
    }

    /// The status, and what the process wrote to its standard output.
    pub fn output(&mut self, within: Duration) -> (ExitStatus, String) {
        let deadline = Instant::now() + within;
        let mut output = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => output += &(line + "\n"),
                Err(RecvTimeoutError::Timeout) => {
                    self.fail(&format!("still runs after {within:?}"))
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        (self.reap(), output)
    }

    /// Waits for a process whose output has ended, and for all it said.
    fn reap(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("a status");
        if let Some(reader) = self.error_reader.take() {
            reader.join().expect("a reader that does not panic");
        }
        status
    }

    pub fn signal(&self, signal: i32) {
        let id = self.child.id() as i32;
        // SAFETY: a plain system call; the child is not reaped before `end`, so the id is its own.
        let outcome = unsafe { libc::kill(id, signal) };
        assert_eq!(outcome, 0, "signal {signal} to {id}");
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn errors(&self) -> String {
        self.errors.lock().expect("no panic holds it").clone()
    }

    fn fail(&self, what: &str) -> ! {
        panic!("broker {}: {what}\n{}", self.child.id(), self.errors());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("broker {} said:\n{}", self.child.id(), self.errors());
        }
    }
}

/// Segments are small and what is to go goes at once.
pub const SMALL_SEGMENTS: [&str; 8] = [
    "--set",
    "log.inline.max.bytes=256KiB",
    "--set",
    "log.retention.check.interval.ms=100",
    "--set",
    "log.segment.bytes=1MiB",
    "--set",
    "log.segment.initial.bytes=1MiB",
];
/// With them, the log keeps next to nothing of what is in files of tables.
pub const NOTHING_HOT: [&str; 4] = ["--set", "hot.bytes=0", "--set", "hot.ms=0"];

/// A broker that answers: our own process, or the one the tests are pointed at.
pub struct Broker {
    process: Option<Process>,
    pub address: String,
    pub data: TempDir,
    arguments: Vec<String>,
    /// What the process said when it was ready.
    ready: String,
}

impl Broker {
    pub fn start() -> Broker {
        Broker::with(&[])
    }

    /// A broker with additional arguments.
    pub fn with(arguments: &[&str]) -> Broker {
        let data = TempDir::new();
        let address = external().unwrap_or_else(|| format!("127.0.0.1:{}", free_port()));
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let ready = String::new();
        let mut broker = Broker { process: None, address, data, arguments, ready };
        broker.start_again();
        broker
    }

    fn start_again(&mut self) {
        if external().is_some() {
            return;
        }
        let data = self.data.path().to_str().expect("a path of UTF-8").to_string();
        let mut arguments = vec!["serve", "--data-dir", &data, "--listen", &self.address];
        arguments.extend(self.arguments.iter().map(String::as_str));
        for [flag, value] in [["--cores", "1"], FREE_HTTP, FREE_PG] {
            if !self.arguments.iter().any(|argument| argument == flag) {
                arguments.extend([flag, value]);
            }
        }
        let mut process = Process::start(&arguments);
        let line = process.line("ready ", READY_WITHIN);
        assert!(line.contains(&format!("kafka={}", self.address)), "{line}");
        self.process = Some(process);
        self.ready = line;
    }

    /// Where a process of our own serves `http` or `pg`.
    pub fn service(&self, name: &str) -> &str {
        let mut words = self.ready.split(' ').filter_map(|word| word.split_once('='));
        let found = words.find_map(|(key, address)| (key == name).then_some(address));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.ready))
    }

    /// Arguments for the next start.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
    }

    /// Stops with SIGTERM and starts again on the same data.
    pub fn restart(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(libc::SIGTERM);
            let status = process.end(STOPS_WITHIN);
            assert!(status.success(), "a clean stop ends with {status}:\n{}", process.errors());
        }
        self.start_again();
    }

    /// Ends with SIGKILL and starts again on the same data.
    pub fn kill_and_restart(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(libc::SIGKILL);
            process.end(STOPS_WITHIN);
        }
        self.start_again();
    }

    /// Starts a broker that was stopped.
    pub fn start_stopped(&mut self) {
        self.start_again();
    }

    /// Ends with SIGTERM for good.
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("a process of our own");
        process.signal(libc::SIGTERM);
        process.end(STOPS_WITHIN)
    }

    /// Of a process of our own.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// What a process of our own has said on its standard error.
    pub fn errors(&self) -> String {
        self.process.as_ref().map(Process::errors).unwrap_or_default()
    }

    pub fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// Resident memory of the broker's process, 0 for somebody else's.
    pub fn resident_bytes(&self) -> u64 {
        let Some(process) = &self.process else {
            return 0;
        };
        let path = format!("/proc/{}/statm", process.id());
        let text = std::fs::read_to_string(path).expect("the process runs");
        let pages: u64 = text.split(' ').nth(1).expect("a field").parse().expect("a number");
        pages * 4096
    }
}

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listening broker");
    stream.set_nodelay(true).expect("an option of the socket");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("an option of the socket");
    stream
}

/// A name no other test and no earlier run has used.
pub fn topic(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}
