//! Tables on the simulated disk: the rows of a table are the records of the log, whatever happens.
//!
//! Random histories of appends, columnarising, merging, compaction, trimming and log starts that
//! rise, with failing calls and crashes at every disk operation. After each step the rows that are
//! read are those of a model: none missing, none twice, and those compaction may drop are dropped.
//! Whoever holds an older version can still read it; what nobody needs goes. A failing run prints
//! its seed: `BASALT_SIM_SEED=<seed> cargo test -p basalt-shard --test tables` repeats it alone.
//!
//! Gap: aborted transactions; `rows` has the tests of those.

mod machine;
mod model;

use machine::{Machine, Shape};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs `each` for all seeds on all processors; prints the seed of the first failure.
fn for_seeds(seeds: u64, each: impl Fn(u64) + Sync) {
    let only = number("BASALT_SIM_SEED");
    let seeds = number("BASALT_SIM_SEEDS").unwrap_or(seeds);
    let next = AtomicU64::new(only.unwrap_or(0));
    let end = only.map_or(seeds, |seed| seed + 1);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return;
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| each(seed))) {
                    eprintln!("failed with BASALT_SIM_SEED={seed}");
                    next.store(end, Ordering::Relaxed);
                    resume_unwind(panic);
                }
            });
        }
    });
}

#[test]
fn rows_are_the_records_of_the_log_while_calls_fail_and_processes_die() {
    for_seeds(SEEDS, |seed| {
        let mut machine = Machine::new(Shape { seed, faults: true });
        machine.run(60);
    });
}

#[test]
fn a_history_does_what_it_is_meant_to() {
    let mut seen = machine::Tally::default();
    for seed in 0..20 {
        let mut machine = Machine::new(Shape { seed, faults: false });
        machine.run(60);
        seen.add(machine.tally());
    }
    let machine::Tally { files, merges, compactions, trims, dropped_rows, unlinked, held } = seen;
    for (what, count) in [
        ("files", files),
        ("merges", merges),
        ("compactions", compactions),
        ("trims", trims),
        ("dropped rows", dropped_rows),
        ("unlinked", unlinked),
        ("held versions read", held),
    ] {
        assert!(count >= 10, "{what}: {count}");
    }
}

#[test]
fn a_power_loss_at_any_disk_operation_loses_no_row() {
    for_seeds(3, |seed| {
        let mut whole = Machine::new(Shape { seed, faults: false });
        whole.run(25);
        for stop_at in 0..whole.ops() {
            let mut machine = Machine::new(Shape { seed, faults: false });
            machine.stop_at(stop_at);
            machine.run(25);
        }
    });
}
