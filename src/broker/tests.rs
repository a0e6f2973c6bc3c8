//! Whole brokers under the simulated disk: the real logs, catalogue, coordinators and cores,
//! several lives of them on one disk, with crashes, failing syncs and full disks at random.
//!
//! What was acknowledged must be there in all later lives, and so must what any life has shown;
//! what was asked for without an answer may be there or not. Requests and faults come from the
//! seed, while threads run as they like: a run that fails need not fail again.
//! `BASALT_SIM_SEED=<seed> cargo test --lib broker::tests` repeats a seed,
//! `BASALT_SIM_SEEDS=<count>` runs more than a normal test does.
//!
//! Gaps: the start counter and the cluster id, which do not lie on the simulated disk; idempotent
//! producers, retention and flush policies, which the simulation of single logs has; connections.

mod client;
mod data;
mod groups;
mod life;
mod members;
mod topics;

use crate::config::Config;
use client::{Model, Plan, CAPACITY_BYTES};
use life::Shape;
use shard::disk::sim::{Fault, Op, Rng, SimDisk};
use shard::log::LogSettings;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex};

/// Histories of a normal test, and lives of each.
const SEEDS: u64 = 40;
const LIVES: i32 = 5;
const GROUP_PARTITIONS: i32 = 3;
/// Between the numbers of two requests.
const NUMBER_STEP: u64 = 1000;

/// What a broker did that it must not do.
#[derive(Debug)]
pub struct Violation(pub String);

pub type Check = Result<(), Violation>;

fn broken(what: String) -> Check {
    Err(Violation(what))
}

fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Check {
    if is_so {
        return Ok(());
    }
    broken(what())
}

/// What the histories went through, so that a simulation that does nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub lives: u64,
    pub not_opened: u64,
    pub stopped: u64,
    pub refused: u64,
    /// Requests that found a coordinator that was loaded anew, or made it so.
    pub loading: u64,
    pub not_kept: u64,
    pub created: u64,
    pub deleted: u64,
    pub produced: u64,
    pub read: u64,
    pub committed: u64,
    pub fetched: u64,
    pub synced: u64,
    pub groups_deleted: u64,
    /// Times a topic was asked for in files and had some.
    pub written: u64,
    /// Lives that found a catalogue that had been written anew.
    pub rewritten: u64,
    pub copied_frames: u64,
    pub segments: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.lives += other.lives;
        self.not_opened += other.not_opened;
        self.stopped += other.stopped;
        self.refused += other.refused;
        self.loading += other.loading;
        self.not_kept += other.not_kept;
        self.created += other.created;
        self.deleted += other.deleted;
        self.produced += other.produced;
        self.read += other.read;
        self.committed += other.committed;
        self.fetched += other.fetched;
        self.synced += other.synced;
        self.groups_deleted += other.groups_deleted;
        self.written += other.written;
        self.rewritten += other.rewritten;
        self.copied_frames += other.copied_frames;
        self.segments += other.segments;
    }
}

fn config() -> Config {
    let text = format!(
        "offsets.topic.num.partitions = {GROUP_PARTITIONS}\n\
         group.initial.rebalance.delay.ms = 0\ngroup.min.session.timeout.ms = 1\n"
    );
    Config::from_toml(Path::new("simulation"), &text).expect("a right configuration")
}

fn settings(rng: &mut Rng) -> LogSettings {
    LogSettings {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10 << rng.below(3),
        inline_bytes_max: 30_000,
        hot_bytes: [0, 100 << 10, 1 << 30][rng.below(3) as usize],
        warm_bytes: [0, 100 << 10, 1 << 30][rng.below(3) as usize],
        unsynced_bytes_max: 32 << 10 << rng.below(4),
        unsynced_bytes_max_relaxed: 1 << 20,
        background_sync_ms: 20,
        background_sync_bytes: 200 << 10,
        sync_interval_min_us: [0, 1_000][rng.below(2) as usize],
        mark_idle_ms: [1, 200][rng.below(2) as usize],
        retention_check_ms: 20,
        relocate_live_percent_max: [25, 60, 90][rng.below(3) as usize],
        relocate_bytes_per_second_min: 1 << 30,
        ..LogSettings::default()
    }
}

/// What goes wrong in a life. Some of it before a core runs.
fn inject(disk: &SimDisk, rng: &mut Rng, requests: u64) -> (bool, Option<(u64, u64)>) {
    let sometime = |rng: &mut Rng| rng.below(2 * requests);
    match rng.below(8) {
        0 | 1 => (false, None),
        2 => {
            disk.inject(Fault::Stop { at: disk.ops() + rng.below(40) });
            (true, None)
        }
        3 | 4 => {
            disk.inject(Fault::Stop { at: disk.ops() + sometime(rng) });
            (true, None)
        }
        5 | 6 => {
            let op = [Op::SyncMap, Op::SyncMap, Op::CreateMap, Op::Append, Op::Sync, Op::Rename];
            let op = op[rng.below(6) as usize];
            disk.inject(Fault::Fail { op, after: rng.below(20), errno: 5 });
            (true, None)
        }
        _ => {
            let from = rng.below(requests);
            (true, Some((from, from + rng.below(requests))))
        }
    }
}

/// Lives of a broker on one disk.
fn history(seed: u64) -> Tally {
    let mut rng = Rng::new(seed);
    let mut disk = SimDisk::new(rng.number());
    let config = Arc::new(config());
    let (mut logs, mut model) = (rng.between(1, 3) as u32, Model::default());
    for run in 1..=LIVES {
        let cores = rng.between(1, 2) as usize;
        logs = logs.max(cores as u32);
        let shape = Shape {
            cores,
            logs,
            client_on: rng.below(cores as u64) as usize,
            run,
            settings: settings(&mut rng),
            config: config.clone(),
        };
        disk.set_capacity(CAPACITY_BYTES);
        let requests = rng.between(40, 150);
        let is_last = run == LIVES;
        let (is_faulty, full) =
            if is_last { (false, None) } else { inject(&disk, &mut rng, requests) };
        let window = rng.between(1, 12) as usize;
        let leaves = !is_last && rng.one_in(4);
        let plan = Plan { seed: rng.number(), requests, window, is_faulty, leaves, full };
        let outcome;
        (model, outcome) = live(&disk, &shape, model, plan.clone());
        if let Err(Violation(what)) = outcome {
            for event in disk.trace().iter().rev().take(20).rev() {
                println!("{:?} {} {:?}", event.op, event.path.display(), event.verdict);
            }
            println!("life {run} of {cores} cores and {logs} logs: {plan:?}");
            panic!("{what}");
        }
        model.tally.stopped += u64::from(disk.is_stopped());
        // A generator of its own: what it is asked depends on what threads have written.
        let mut fate = rng.split();
        disk = if fate.one_in(3) { disk.kill() } else { disk.crash(&mut fate) };
    }
    model.tally
}

fn live(disk: &SimDisk, shape: &Shape, mut model: Model, plan: Plan) -> (Model, Check) {
    model.tally.lives += 1;
    let open = match life::open(disk, shape) {
        Ok(open) => open,
        Err(error) => {
            model.tally.not_opened += 1;
            return (model, ensure(plan.is_faulty, || format!("not opened: {error}")));
        }
    };
    if open.found.strays > 0 {
        return (model, broken(format!("{:?}", open.found)));
    }
    model.tally.copied_frames += open.found.copied_frames;
    model.tally.segments += open.found.segments;
    let (sender, outcome) = mpsc::channel();
    let clients = disk.clone();
    let body: life::Body = Box::new(move |door, gate| {
        Box::pin(async move {
            let outcome = client::live((door, gate), clients, model, plan).await;
            sender.send(outcome).expect("the test waits");
        })
    });
    life::run(disk, shape, open, body);
    outcome.recv().expect("the client came to its end")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn brokers_that_crash_keep_what_was_promised_and_what_was_seen() {
    let only = number("BASALT_SIM_SEED");
    let seeds = number("BASALT_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(only.unwrap_or(0));
    let end = only.map_or(seeds, |seed| seed + 1);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return;
                }
                match catch_unwind(AssertUnwindSafe(|| history(seed))) {
                    Ok(tally) => total.lock().expect("no panic inside").add(&tally),
                    Err(panic) => {
                        eprintln!("failed with BASALT_SIM_SEED={seed}");
                        next.store(end, Ordering::Relaxed);
                        resume_unwind(panic);
                    }
                }
            });
        }
    });
    let tally = total.into_inner().expect("no panic inside");
    println!("{tally:?}");
    if only.is_none() {
        let Tally { stopped, deleted, committed, synced, rewritten, written, .. } = tally;
        let least = stopped.min(deleted).min(committed).min(synced).min(rewritten).min(written);
        assert!(least > seeds / 4, "{tally:?}");
    }
}
