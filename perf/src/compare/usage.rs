//! What a broker uses while a client works: CPU, memory, and what it writes.

use crate::error::PerfError;
use benches::counters::{anonymous_bytes, cpu_seconds, dirtied_bytes, Device};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Before a run the last one's work in the background comes to its end, and behind a run its own,
/// which counts.
const SETTLE: Duration = Duration::from_millis(1200);
/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// `st_blocks` are of this size.
const BLOCK_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Seconds of all its threads.
    pub cpu: f64,
    /// Seconds on the clock, of the run alone.
    pub took: f64,
    /// The most anonymous memory, in bytes.
    pub memory: u64,
    /// Bytes of pages it made dirty.
    pub dirtied: u64,
    /// Bytes its device was told to write, by everyone.
    pub device: Option<u64>,
}

/// Runs something against a broker and watches the broker.
pub fn watch<T>(
    pid: u32,
    data: &Path,
    run: impl FnOnce() -> Result<T, PerfError>,
) -> Result<(T, Usage), PerfError> {
    let device = Device::under(data);
    std::thread::sleep(SETTLE);
    let on_device = written(device.as_ref())?;
    let (cpu, dirtied) = (cpu_seconds(pid)?, dirtied_bytes(pid)?);
    let is_over = AtomicBool::new(false);
    let (outcome, took, memory) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| most_memory(pid, &is_over));
        let started = Instant::now();
        let outcome = run();
        let took = started.elapsed().as_secs_f64();
        std::thread::sleep(SETTLE);
        is_over.store(true, Ordering::Relaxed);
        (outcome, took, memory.join())
    });
    let outcome = outcome?;
    let memory = memory.map_err(|_| PerfError::Answer("no look at memory".to_string()))??;
    let (cpu, dirtied) = (cpu_seconds(pid)? - cpu, dirtied_bytes(pid)? - dirtied);
    let device = match (written(device.as_ref())?, on_device) {
        (Some(after), Some(before)) => Some(after - before),
        _ => None,
    };
    Ok((outcome, Usage { cpu, took, memory, dirtied, device }))
}

fn most_memory(pid: u32, is_over: &AtomicBool) -> Result<u64, PerfError> {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        most = most.max(anonymous_bytes(pid)?);
        std::thread::sleep(INTERVAL);
    }
    Ok(most)
}

/// What has been written by now, with what waits in the page cache.
fn written(device: Option<&Device>) -> Result<Option<u64>, PerfError> {
    let Some(device) = device else { return Ok(None) };
    Command::new("sync").status().map_err(PerfError::run("sync"))?;
    Ok(Some(device.written_bytes()?))
}

/// Bytes that the files under a directory have on the disk, and how long they are.
pub fn disk_bytes(path: &Path) -> Result<(u64, u64), PerfError> {
    let about = fs::symlink_metadata(path).map_err(PerfError::file(path))?;
    if !about.is_dir() {
        return Ok((about.blocks() * BLOCK_BYTES, about.len()));
    }
    let mut sum = (0, 0);
    for entry in fs::read_dir(path).map_err(PerfError::file(path))? {
        let inside = disk_bytes(&entry.map_err(PerfError::file(path))?.path())?;
        sum = (sum.0 + inside.0, sum.1 + inside.1);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let run = || {
            let held = vec![1u8; 4 << 20];
            fs::write(dir.path().join("file"), &held).map_err(PerfError::file(dir.path()))?;
            Ok(held.len())
        };
        let (length, used) = watch(std::process::id(), dir.path(), run).unwrap();
        assert!(used.memory > 0 && used.took > 0.0, "{used:?}");
        let (allocated, long) = disk_bytes(dir.path()).unwrap();
        assert!(allocated > 0 && long as usize == length, "{allocated} {long}");
    }
}
