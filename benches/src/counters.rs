//! What the kernel counts of a process, a thread and a block device.
//!
//! Nothing here is exact about causes: a device counts the writes of everyone who uses it, and
//! `/proc/PID/io` counts pages when they become dirty, whatever the device is asked to write later.

use crate::BenchError;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeVal;
use nix::unistd::{sysconf, SysconfVar};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECTOR_BYTES: u64 = 512;

fn read(path: impl AsRef<Path>) -> Result<String, BenchError> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(BenchError::file(path))
}

/// CPU time of all threads of a process, ended ones included, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64, BenchError> {
    let text = read(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&text).unwrap_or(0);
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Ok(ticks as f64 / per_second as f64)
}

/// User and system time of `/proc/PID/stat`. The command's name may hold anything, even `)`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Anonymous memory of a process that is in RAM, in bytes.
pub fn anonymous_bytes(pid: u32) -> Result<u64, BenchError> {
    Ok(field(&read(format!("/proc/{pid}/status"))?, "RssAnon:") << 10)
}

/// Bytes of pages that a process made dirty.
pub fn dirtied_bytes(pid: u32) -> Result<u64, BenchError> {
    Ok(field(&read(format!("/proc/{pid}/io"))?, "write_bytes:"))
}

/// The number after `name`, 0 when there is none.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The block device under a directory.
#[derive(Clone, Debug)]
pub struct Device {
    stat: PathBuf,
    pub name: String,
}

impl Device {
    /// `None` where there is no block device, as on tmpfs or overlayfs.
    pub fn under(dir: &Path) -> Option<Device> {
        let number = fs::metadata(dir).ok()?.dev();
        let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let name = fs::canonicalize(&link).ok()?.file_name()?.to_string_lossy().into_owned();
        Some(Device { stat: link.join("stat"), name })
    }

    /// Bytes written to the device since the machine started, by everyone.
    pub fn written_bytes(&self) -> Result<u64, BenchError> {
        let text = read(&self.stat)?;
        let sectors = text.split_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
        Ok(sectors.unwrap_or(0) * SECTOR_BYTES)
    }
}

/// What happened to the calling thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Page faults that needed no disk.
    pub faults: i64,
    /// How often the thread was put aside for another one.
    pub preempted: i64,
    /// Time on a CPU, in user space and in the kernel.
    pub cpu: Duration,
}

pub fn thread_usage() -> ThreadUsage {
    match getrusage(UsageWho::RUSAGE_THREAD) {
        Ok(usage) => ThreadUsage {
            faults: usage.minor_page_faults(),
            preempted: usage.involuntary_context_switches(),
            cpu: duration(usage.user_time()) + duration(usage.system_time()),
        },
        Err(_) => ThreadUsage::default(),
    }
}

fn duration(time: TimeVal) -> Duration {
    let (seconds, micros) = (time.tv_sec().max(0) as u64, time.tv_usec().max(0) as u64);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_are_counted_from_behind_the_name() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 700 42 0 0 20 0 3 0 99";
        assert_eq!(cpu_ticks(stat), Some(742));
        assert_eq!(cpu_ticks("12 (x"), None);
        assert_eq!(field("VmRSS:\t9 kB\nRssAnon:\t   1234 kB\n", "RssAnon:"), 1234);
        assert_eq!(field("", "RssAnon:"), 0);
    }

    #[test]
    fn this_process_is_measured() {
        let pid = std::process::id();
        let held = vec![1u8; 8 << 20];
        assert!(anonymous_bytes(pid).unwrap() > held.len() as u64 / 2);
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        assert!(dirtied_bytes(pid).is_ok());
        assert!(thread_usage().faults > 0);
    }
}
