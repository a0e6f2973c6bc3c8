//! Bench `recovery`: how long a log takes to open after a kill, from a warm and from a cold cache.
//!
//! A filler appends the hot log, lets it settle, appends close to 64 MiB more that no mark covers
//! and is ended without a word. Its process is another one, killed, when the bench runs as a
//! program; under test it is this one, and the log is dropped.

use crate::drive::{batch_of_frame, Rig};
use crate::hash::Hash;
use crate::report::{Bar, Report};
use crate::BenchError;
use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};
use shard::batch::Valid;
use shard::ids::Offset;
use shard::log::{Flush, LogSettings};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

/// What a filler leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub bytes: u64,
    /// Of these, what no mark covers at the end.
    pub unmarked_bytes: u64,
    pub frame_bytes: usize,
}

impl Fill {
    /// So many bytes with the mark as far behind as the background syncs let it be.
    pub fn of(bytes: u64, frame_bytes: usize) -> Fill {
        let unmarked_bytes = (bytes / 4).min(63 << 20);
        Fill { bytes, unmarked_bytes, frame_bytes }
    }

    pub fn frames(&self) -> u64 {
        self.bytes / self.frame_bytes as u64
    }
}

/// Fills a log in a directory and ends without stopping it.
pub type Filler<'a> = &'a dyn Fn(&Path, Fill) -> Result<(), BenchError>;

/// Fills the log in `dir` and hands the rig back, the unmarked rest still unsynced.
pub fn fill(dir: &Path, fill: Fill) -> Result<Rig, BenchError> {
    let (mut rig, _) = Rig::open(dir, 1, LogSettings::default())?;
    let id = rig.attach(0, Flush::Os);
    let batch = batch_of_frame(fill.frame_bytes);
    let valid = Valid::built(&batch).map_err(|_| BenchError::ReadBack { offset: 0 })?;
    let marked = (fill.bytes - fill.unmarked_bytes) / fill.frame_bytes as u64;
    for frame in 0..fill.frames() {
        if frame == marked {
            rig.settle()?;
        }
        rig.append(id, &valid)?;
        rig.turn()?;
    }
    Ok(rig)
}

/// The same in this process: what was not synced is in the cache, as after a kill.
pub fn fill_here(dir: &Path, size: Fill) -> Result<(), BenchError> {
    fill(dir, size).map(drop)
}

/// Bars in seconds for 4 GiB.
const BARS: [(bool, f64); 2] = [(false, 4.0), (true, 8.0)];

pub fn run(dir: &Path, size: Fill, filler: Filler<'_>) -> Result<Report, BenchError> {
    let mut report = Report::new(format!(
        "recovery: {} MiB of {} B frames after a kill, {} MiB beyond the mark",
        size.bytes >> 20,
        size.frame_bytes,
        size.unmarked_bytes >> 20
    ));
    let mut hash = Hash::default();
    for (cold, seconds_max) in BARS {
        let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
        filler(folder.path(), size)?;
        if cold {
            drop_from_cache(folder.path())?;
        }
        let started = Instant::now();
        let (mut rig, recovered) = Rig::open(folder.path(), 2, LogSettings::default())?;
        let seconds = started.elapsed().as_secs_f64();
        let id = rig.attach(0, Flush::Os);
        let end = rig.log.offsets(id).map_or(Offset(0), |offsets| offsets.log_end);
        let case = if cold { "cold" } else { "cached" };
        report.held((case, "open"), seconds, "s", Bar::AtMost(seconds_max));
        report.row(case, "copied", recovered.copied_bytes as f64 / (1 << 20) as f64, "MiB");
        report.row(case, "frames read", recovered.frames as f64, "");
        report.row(case, "segments", recovered.segments as f64, "");
        if end.0 != size.frames() as i64 {
            return Err(BenchError::ReadBack { offset: end.0 });
        }
        let from = Offset((end.0 - 4096).max(0));
        rig.read_back(id, from, &mut hash)?;
        hash.number(end.0);
        rig.stop()?;
    }
    report.hash = Some(hash.0);
    Ok(report)
}

/// Writes the files of `dir` out and lets the kernel forget their pages.
fn drop_from_cache(dir: &Path) -> Result<(), BenchError> {
    for entry in std::fs::read_dir(dir).map_err(BenchError::file(dir))? {
        let path = entry.map_err(BenchError::file(dir))?.path();
        let file = File::open(&path).map_err(BenchError::file(&path))?;
        file.sync_all().map_err(BenchError::file(&path))?;
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(file.as_raw_fd(), 0, 0, advice)
            .map_err(std::io::Error::from)
            .map_err(BenchError::file(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_log_is_recovered_whole() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let report = run(folder.path(), Fill::of(4 << 20, 1024), &fill_here).unwrap();
        let copied = report.rows.iter().find(|row| row.metric == "copied").unwrap();
        assert!(copied.median() > 0.0, "{copied:?}");
    }
}
