//! What a broker needs of the machine, checked before anything starts.
//!
//! Each check answers at once, and what is missing becomes one line that says what to do: the
//! executors and the log would fail on the same things later, with a panic or a signal. Runs first
//! in `serve`, before listeners and threads; the data directory stays locked as long as the
//! [`DataLock`] it returns lives.
//!
//! Known gaps: a name in `listen` is looked up and may take as long as the resolver does. Between
//! the check of a port and listening on it another process may take it.

mod data_dir;
mod limits;
mod ports;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Config;

pub use data_dir::DataLock;

/// What a broker goes on with.
#[derive(Debug)]
pub struct Cleared {
    pub lock: DataLock,
    pub listen: SocketAddr,
    pub http: Option<SocketAddr>,
    /// `None` too in a build that has no SQL.
    pub pg: Option<SocketAddr>,
    /// As many connections as may be open at the same time.
    pub connections_max: u32,
    /// One line each; the broker starts all the same.
    pub warnings: Vec<String>,
}

/// Why a broker cannot start here, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(
        "io_uring is denied, as containers do by default: allow it (docker and podman: \
         --security-opt seccomp=unconfined, or a profile with io_uring_setup, io_uring_enter and \
         io_uring_register)"
    )]
    RingDenied,
    #[error(
        "io_uring is switched off on this machine (kernel.io_uring_disabled = {setting}): switch \
         it on with: sysctl -w kernel.io_uring_disabled=0"
    )]
    RingDisabled { setting: String },
    #[error("this kernel has no io_uring, or a sandbox hides it: Basalt needs Linux 5.8 or later")]
    RingMissing,
    #[error("this kernel's io_uring cannot {operation}: Basalt needs Linux 5.8 or later")]
    RingTooOld { operation: &'static str },
    #[error("io_uring cannot be set up: {source}")]
    Ring { source: io::Error },
    #[error(
        "only {kib} KiB of memory may be locked, io_uring needs {needed} KiB: raise it (ulimit -l \
         {needed}; docker and podman: --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity)",
        needed = limits::MEMLOCK_BYTES_MIN / 1024
    )]
    MemlockTooLow { kib: u64 },
    #[error(
        "the data directory {} is in use by {}: stop it, or choose another with --data-dir DIR",
        dir.display(), holder(.pid)
    )]
    Locked { dir: PathBuf, pid: Option<u32> },
    #[error(
        "the data directory {} cannot be used: {source}; choose another with --data-dir DIR",
        dir.display()
    )]
    DataDir { dir: PathBuf, source: io::Error },
    #[error(
        "the file system of {} ({name}) cannot set space aside for a file: put the data on ext4 or \
         XFS with --data-dir DIR",
        dir.display()
    )]
    NoFallocate { dir: PathBuf, name: &'static str },
    #[error(
        "{address} is in use: stop what listens there, or choose another with {flag} HOST:PORT"
    )]
    PortInUse { address: SocketAddr, flag: &'static str },
    #[error("cannot listen on {address}: {source}; choose another with {flag} HOST:PORT")]
    Listen { address: String, flag: &'static str, source: io::Error },
    #[error(
        "{cores} cores need a port each from {first} on, and 65535 is the last: choose a lower one \
         or fewer --cores"
    )]
    PortRange { first: u16, cores: usize },
}

fn holder(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_string(),
    }
}

/// All checks, in the order in which their failures matter to who reads them.
pub fn check(config: &Config, cores: usize) -> Result<Cleared, Refusal> {
    let mut warnings = Vec::new();
    limits::check_memlock()?;
    limits::check_ring()?;
    let (connections_max, few) = limits::raise_open_files(config.max_connections);
    warnings.extend(few);
    let lock = DataLock::take(&config.data_dir)?;
    warnings.extend(data_dir::check_file_system(&config.data_dir)?);
    let listen = ports::resolve(&config.listen, "--listen")?;
    for address in ports::addresses(config, listen, cores)? {
        ports::check_port(address, "--listen")?;
    }
    let http = ports::service(config.http.as_ref(), "--http")?;
    let pg = ports::service(config.pg.as_ref().filter(|_| cfg!(feature = "sql")), "--pg")?;
    Ok(Cleared { lock, listen, http, pg, connections_max, warnings })
}

/// The kernel's release, like "6.18.44", for the banner.
pub fn kernel_release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match text.trim() {
        "" => "unknown".to_string(),
        release => release.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostPort;

    #[test]
    fn a_machine_fit_for_tests_is_cleared() {
        let scratch = data_dir::Scratch::new("cleared");
        let config = Config {
            data_dir: scratch.dir().to_path_buf(),
            listen: HostPort::parse("localhost:0").unwrap(),
            http: HostPort::parse("127.0.0.1:0"),
            pg: None,
            ..Config::default()
        };
        let cleared = check(&config, 1).unwrap();
        assert!(cleared.listen.ip().is_loopback());
        assert!((1..=config.max_connections).contains(&cleared.connections_max));
        assert_eq!(cleared.http, Some("127.0.0.1:0".parse().unwrap()));
        let left: Vec<_> = std::fs::read_dir(scratch.dir()).unwrap().collect();
        assert_eq!(left.len(), 1, "only the lock stays: {left:?}");
        assert_ne!(kernel_release(), "");
    }
}
