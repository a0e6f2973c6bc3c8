//! The rings and limits the executors need, asked for before they do.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use super::Refusal;
use crate::runtime::RING_ENTRIES;

/// What glommio asks for.
pub(super) const MEMLOCK_BYTES_MIN: u64 = 512 << 10;
/// What is asked for when it has to be raised anyway.
const MEMLOCK_BYTES_WANTED: u64 = 8 << 20;
/// Files a process may open at most on most kernels (fs.nr_open).
const NOFILE_MAX: u64 = 1 << 20;
/// Files a broker needs beside its connections: segments, rings, event descriptors.
const NOFILE_OWN: u64 = 1024;

/// Asks for one ring as the executors will, and for the operations they use.
pub(super) fn check_ring() -> Result<(), Refusal> {
    let ring = io_uring::IoUring::new(RING_ENTRIES).map_err(ring_refusal)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(ring_refusal)?;
    use io_uring::opcode;
    for (code, operation) in [
        (opcode::PollAdd::CODE, "wait for sockets"),
        (opcode::Accept::CODE, "accept connections"),
        (opcode::Connect::CODE, "connect"),
        (opcode::LinkTimeout::CODE, "time out"),
        (opcode::Fallocate::CODE, "allocate files"),
        (opcode::OpenAt::CODE, "open files"),
        (opcode::Statx::CODE, "look at files"),
        (opcode::Read::CODE, "read"),
        (opcode::Write::CODE, "write"),
        (opcode::Send::CODE, "send"),
        (opcode::Recv::CODE, "receive"),
    ] {
        if !probe.is_supported(code) {
            return Err(Refusal::RingTooOld { operation });
        }
    }
    Ok(())
}

fn ring_refusal(source: io::Error) -> Refusal {
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    ring_refusal_of(source, setting.unwrap_or_default().trim())
}

fn ring_refusal_of(source: io::Error, disabled: &str) -> Refusal {
    match Errno::from_io_error(&source) {
        Some(Errno::PERM | Errno::ACCESS) if !matches!(disabled, "" | "0") => {
            Refusal::RingDisabled { setting: disabled.to_string() }
        }
        Some(Errno::PERM | Errno::ACCESS) => Refusal::RingDenied,
        Some(Errno::NOSYS) => Refusal::RingMissing,
        Some(Errno::NOMEM) => Refusal::MemlockTooLow { kib: memlock_bytes() / 1024 },
        _ => Refusal::Ring { source },
    }
}

/// The executors insist on the limit even where the kernel no longer does (since 5.12 rings count
/// as ordinary memory), and for root as well; so it is raised as far as this process may.
pub(super) fn check_memlock() -> Result<(), Refusal> {
    if memlock_bytes() < MEMLOCK_BYTES_MIN {
        let hard = rustix::process::getrlimit(Resource::Memlock).maximum;
        let raised = hard.map_or(MEMLOCK_BYTES_WANTED, |hard| hard.max(MEMLOCK_BYTES_WANTED));
        for (current, maximum) in [(Some(raised), Some(raised)), (hard, hard)] {
            // Refused above the hard limit without privilege; what was reached is looked at below.
            if rustix::process::setrlimit(Resource::Memlock, Rlimit { current, maximum }).is_ok() {
                break;
            }
        }
    }
    match memlock_bytes() {
        bytes if bytes < MEMLOCK_BYTES_MIN => Err(Refusal::MemlockTooLow { kib: bytes / 1024 }),
        _ => Ok(()),
    }
}

fn memlock_bytes() -> u64 {
    rustix::process::getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Raises the number of files that may be open to the hard limit. Returns how many connections fit
/// beside the broker's own files, so that these can be opened whatever clients do, and a warning
/// when that is fewer than asked for.
pub(super) fn raise_open_files(connections: u32) -> (u32, Option<String>) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let target = limit.maximum.unwrap_or(NOFILE_MAX).min(NOFILE_MAX);
    let current = limit.current.unwrap_or(u64::MAX);
    if current < target {
        let raised = Rlimit { current: Some(target), maximum: limit.maximum };
        // A refusal shows in the number read back.
        let _refused = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    let files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    fitting(files, connections)
}

fn fitting(files: u64, connections: u32) -> (u32, Option<String>) {
    let needed = u64::from(connections) + NOFILE_OWN;
    if files >= needed {
        return (connections, None);
    }
    let own = NOFILE_OWN.min(files / 2);
    let fit = u32::try_from(files - own).map_or(connections, |fit| fit.clamp(1, connections));
    let warning = format!(
        "only {files} files may be open, max.connections = {connections} needs {needed}: {fit} \
         connections are taken; raise it (ulimit -n {needed}; systemd: LimitNOFILE={needed})"
    );
    (fit, Some(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_rings_becomes_advice() {
        for (errno, disabled, expect) in [
            (Errno::PERM, "0", "io_uring is denied, as containers do"),
            (Errno::PERM, "", "io_uring is denied, as containers do"),
            (Errno::PERM, "2", "io_uring is switched off on this machine"),
            (Errno::NOSYS, "", "this kernel has no io_uring"),
            (Errno::NOMEM, "0", "only "),
            (Errno::INVAL, "0", "io_uring cannot be set up: "),
        ] {
            let line = ring_refusal_of(errno.into(), disabled).to_string();
            assert!(line.starts_with(expect) && !line.contains('\n'), "{line}");
        }
        let low = Refusal::MemlockTooLow { kib: 64 }.to_string();
        assert!(low.starts_with("only 64 KiB of memory may be locked, io_uring needs 512 KiB: "));
        assert!(low.contains("ulimit -l 512;"), "{low}");
    }

    #[test]
    fn few_open_files_are_a_warning() {
        assert_eq!(fitting(30_000, 20_000), (20_000, None));
        for (files, connections, fit) in [
            (1024, 20_000, 512),
            (4096, 20_000, 3072),
            (64, 100, 32),
            (1, 100, 1),
            (1100, 100, 100),
        ] {
            let (fits, warning) = fitting(files, connections);
            assert_eq!(fits, fit, "{files} files");
            let (warning, needed) = (warning.unwrap(), u64::from(connections) + 1024);
            for part in [format!("only {files} files"), needed.to_string(), format!("{fit} conn")] {
                assert!(warning.contains(&part), "no {part} in: {warning}");
            }
        }
    }
}
