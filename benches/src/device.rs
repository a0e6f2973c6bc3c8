//! Bench `device`: bytes the device writes for each byte appended, under `Flush::Commit`.
//!
//! Two counts, neither perfect. The device's own counter is the truth, but holds what everyone else
//! wrote to it in the same time: run on a quiet machine, or on a file system of its own (a
//! loop-mounted image). The process's count of dirtied pages belongs to it alone; it misses the
//! journal and counts a page that is made dirty again although one write carries both changes.

use crate::counters::{dirtied_bytes, Device};
use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::BenchError;
use std::path::Path;

/// Device bytes per appended byte at a rate in bytes per second.
const BARS: [(u64, f64); 2] = [(10_000_000, 6.0), (100_000_000, 1.4)];

pub fn run(dir: &Path, loads: &[Load]) -> Result<Report, BenchError> {
    let mut report = Report::new("device: bytes written per byte appended, 1 KiB frames, commit");
    let mut hash = crate::hash::Hash::default();
    let device = Device::under(dir);
    match &device {
        Some(device) => report.note(format!("device {}: everyone's writes count", device.name)),
        None => report.note("no block device under the directory: only dirtied pages are known"),
    }
    for load in loads {
        let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
        let pid = std::process::id();
        let dirtied_before = dirtied_bytes(pid)?;
        let device_before = device.as_ref().map(Device::written_bytes).transpose()?;
        let cost = load::run(folder.path(), load)?;
        let dirtied = dirtied_bytes(pid)? - dirtied_before;
        let device_after = device.as_ref().map(Device::written_bytes).transpose()?;
        hash.number(cost.hash.0 as i64);
        let case = load.name();
        let appended = load.bytes() as f64;
        let bar = BARS.iter().find(|(rate, _)| load.rate == Some(*rate));
        if let (Some(before), Some(after)) = (device_before, device_after) {
            let row = report.row(&case, "device", (after - before) as f64 / appended, "B/B");
            row.bar = bar.map(|(_, most)| Bar::AtMost(*most));
        }
        report.row(&case, "pages made dirty", dirtied as f64 / appended, "B/B");
        let seconds = cost.elapsed.as_secs_f64().max(1e-9);
        report.row(&case, "appended", appended / 1e6 / seconds, "MB/s");
        report.row(&case, "syncs per second", cost.syncs.len() as f64 / seconds, "");
    }
    report.hash = Some(hash.0);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_counts_at_least_what_was_appended() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let report = run(folder.path(), &[Load::seconds(0.05, Some(10_000_000))]).unwrap();
        let row = report.rows.iter().find(|row| row.metric == "pages made dirty").unwrap();
        // Overlay and memory file systems count nothing.
        assert!(row.median() >= 0.9 || row.median() == 0.0, "{row:?}");
        assert!(report.hash.is_some());
    }
}
