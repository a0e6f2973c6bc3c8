//! Bench `append`: what one append costs the core while syncs run, at a rate and flat out.
//!
//! The bar is on the append alone. `turn` is what the core does beside appends for the log's sake:
//! finished jobs, what is due, new jobs. Both are what a core's loop may stand still for.

use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::BenchError;
use std::path::Path;

/// One append at p99.9, in microseconds, at 100 MB/s.
const APPEND_US: Bar = Bar::AtMost(50.0);
const BAR_RATE: u64 = 100_000_000;

pub fn run(dir: &Path, loads: &[Load]) -> Result<Report, BenchError> {
    let mut report = Report::new("append: 1 KiB frames, every append waits for a sync");
    let mut hash = crate::hash::Hash::default();
    for load in loads {
        let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
        let cost = load::run(folder.path(), load)?;
        hash.number(cost.hash.0 as i64);
        let case = load.name();
        let seconds = cost.elapsed.as_secs_f64().max(1e-9);
        report.row(&case, "appended", load.bytes() as f64 / 1e6 / seconds, "MB/s");
        report.latency(&case, "append", &cost.appends);
        if load.rate == Some(BAR_RATE) {
            report.hold(&case, "append p99.9", APPEND_US);
        }
        report.row(&case, "appends put aside", put_aside(&cost), "");
        let undisturbed = cost.undisturbed.value_at_quantile(0.999) as f64 / 1e3;
        report.row(&case, "append p99.9, not put aside", undisturbed, "µs");
        report.latency(&case, "turn", &cost.turns);
        report.row(&case, "page faults in appends", cost.faults as f64, "");
        report.row(&case, "times busy", cost.busy as f64, "");
        let share = cost.busy_time.as_secs_f64() / seconds * 100.0;
        report.row(&case, "time busy", share, "%");
        report.row(&case, "syncs per second", cost.syncs.len() as f64 / seconds, "");
        for (name, quantile) in [("sync p50", 0.5), ("sync p99", 0.99)] {
            report.row(&case, name, cost.syncs.value_at_quantile(quantile) as f64 / 1e3, "µs");
        }
    }
    report.hash = Some(hash.0);
    Ok(report)
}

/// Appends during which the kernel ran another thread on the core's CPU.
fn put_aside(cost: &load::Cost) -> f64 {
    (cost.appends.len() - cost.undisturbed.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_measures_and_repeats_its_result() {
        let folder = tempfile::tempdir().unwrap();
        let loads = [Load::seconds(0.01, Some(50_000_000)), Load::seconds(0.005, None)];
        let first = run(folder.path(), &loads).unwrap();
        let mut again = run(folder.path(), &loads).unwrap();
        again.merge(first).unwrap();
        let values = |metric: &str| {
            let rows = again.rows.iter().filter(|row| row.metric == metric);
            rows.map(|row| row.values.len()).collect::<Vec<_>>()
        };
        assert_eq!(values("append p99.9"), [2, 2]);
        assert_eq!(values("syncs per second"), [2, 2]);
    }
}
