//! Very many topics that each get a record now and then: do their files stay few, and is the
//! broker all but idle?
//!
//! First rounds in which every partition gets one record and every topic a file of them. Then the
//! rate at which that would go on by default: each topic once in 15 minutes, one after the other,
//! and each at once a file.

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::load::{one_each, taken};
use crate::tables::{metrics, wait_for_rows, with_broker};
use crate::topics::Topics;
use crate::wire::Wire;
use benches::counters::cpu_seconds;
use benches::report::{Bar, Report};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PARTITIONS: i32 = 10;
/// Files each topic would have if they were never merged.
const ROUNDS: u64 = 20;
/// In which every topic is written once by default: `table.commit.ms`.
const DEFAULT_COMMIT: Duration = Duration::from_secs(15 * 60);
const SETTINGS: &[&str] = &["table.commit.ms=1000"];
/// Requests without an answer.
const UNDER_WAY: usize = 16;
/// What was written last has settled.
const SETTLE: Duration = Duration::from_secs(5);

/// So many topics of ten partitions; CPU is looked at for `seconds`.
pub fn trickle(starter: &Starter, topics: u32, seconds: u64) -> Result<Report, PerfError> {
    let mut report = Report::new("trickle");
    let names: Vec<String> = (0..topics).map(|number| format!("trickle-{number}")).collect();
    let case = format!("{topics} topics of {PARTITIONS} partitions");
    with_broker(starter, SETTINGS, |broker, _| {
        Topics::at(&broker.address)?.create_all(&names, PARTITIONS)?;
        let each = u64::from(topics) * PARTITIONS.unsigned_abs() as u64;
        let started = Instant::now();
        for round in 1..=ROUNDS {
            send_round(broker, &names)?;
            wait_for_rows(broker, None, round * each)?;
            eprintln!("{round} of {ROUNDS} files for each topic");
        }
        let per_round = started.elapsed().as_secs_f64() / ROUNDS as f64;
        report.row(&case, "a file for each topic", per_round, "s");
        std::thread::sleep(SETTLE);
        let time = Duration::from_secs(seconds);
        let cpu = cpu_of(broker, || {
            std::thread::sleep(time);
            Ok(())
        })?;
        report.held((&case, "CPU, nothing comes"), cpu, "%", Bar::AtMost(2.0));
        let cpu = cpu_of(broker, || steadily(broker, &names, time))?;
        report.held((&case, "CPU, a trickle"), cpu, "%", Bar::AtMost(2.0));
        let now = metrics(broker)?;
        let most = now.values("basalt_table_files", None).fold(0.0, f64::max);
        let case = format!("{case}, {ROUNDS} files each");
        // Files of one size are merged when there are eight of them, so are those that come of it.
        report.held((&case, "files of a topic, at most"), most, "", Bar::AtMost(16.0));
        let files: f64 = now.values("basalt_table_files", None).sum();
        report.row(&case, "files of a topic, mean", files / f64::from(topics.max(1)), "");
        Ok(())
    })?;
    Ok(report)
}

/// A record for each partition of each topic.
fn send_round(broker: &Broker, names: &[String]) -> Result<(), PerfError> {
    let mut wire = Wire::to(&broker.address)?;
    for some in names.chunks(UNDER_WAY) {
        for name in some {
            wire.send(&one_each(name, PARTITIONS, now_ms())?)?;
        }
        some.iter().try_for_each(|_| taken(&mut wire))?;
    }
    Ok(())
}

/// One topic after the other at the rate that follows from the default.
fn steadily(broker: &Broker, names: &[String], time: Duration) -> Result<(), PerfError> {
    let mut wire = Wire::to(&broker.address)?;
    let interval = DEFAULT_COMMIT / names.len().max(1) as u32;
    let started = Instant::now();
    for (number, name) in (0..).zip(names.iter().cycle()) {
        let due = interval * number;
        if due >= time {
            break;
        }
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        wire.send(&one_each(name, PARTITIONS, now_ms())?)?;
        taken(&mut wire)?;
    }
    std::thread::sleep(time.saturating_sub(started.elapsed()));
    Ok(())
}

/// Percent of a CPU that the broker takes meanwhile.
fn cpu_of(broker: &Broker, run: impl FnOnce() -> Result<(), PerfError>) -> Result<f64, PerfError> {
    let (before, started) = (cpu_seconds(broker.pid)?, Instant::now());
    run()?;
    Ok((cpu_seconds(broker.pid)? - before) * 100.0 / started.elapsed().as_secs_f64())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
