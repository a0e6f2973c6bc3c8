//! `compare`: Basalt beside Apache Kafka on this machine. `perf/compare` builds it, has Kafka's
//! jars fetched and starts it.

use clap::Parser;
use perf::broker::Starter;
use perf::compare::case::{matrix, Case, BARS, OTHERS};
use perf::compare::kafka::Kafka;
use perf::compare::peer::Products;
use perf::compare::results::Results;
use perf::compare::rounds::Plan;
use perf::compare::work::Scale;
use perf::error::PerfError;
use perf::tool::Tool;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Basalt and Apache Kafka in turn, and prints ratios beside their bars.
#[derive(Parser)]
struct Cli {
    /// What to measure, by name; without any, all that --list shows. `bars` are those with bars.
    cases: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The cases with bars, one short round.
    #[arg(long)]
    quick: bool,
    /// Every combination of record size, partitions, producers, acks and codec.
    #[arg(long)]
    matrix: bool,
    /// Prints the names of cases.
    #[arg(long)]
    list: bool,
    /// Seconds of each run.
    #[arg(long)]
    seconds: Option<u64>,
    /// MB a run sends at most.
    #[arg(long)]
    megabytes: Option<u64>,
    /// Partitions of the start that is timed.
    #[arg(long)]
    partitions: Option<u32>,
    /// Where compare.json and compare.html go.
    #[arg(long, default_value = "target/compare")]
    out: PathBuf,
    /// Adds rounds to those that are there.
    #[arg(long)]
    add: bool,
    /// Basalt's binary; the one beside this program by default.
    #[arg(long)]
    basalt: Option<PathBuf>,
    /// More arguments of `basalt serve`.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// The folder with the jars of org.apache.kafka:kafka_2.13.
    #[arg(long)]
    kafka_jars: PathBuf,
    /// The folder with the jars of org.apache.kafka:kafka-tools.
    #[arg(long)]
    kafka_tools: PathBuf,
    /// Where data directories are made; a real file system.
    #[arg(long, default_value = "target/perf-data")]
    dir: PathBuf,
    /// Ends with status 1 when a median misses its bar.
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False when a case failed, or a bar was missed and that matters.
fn run(cli: &Cli) -> Result<bool, PerfError> {
    if cli.list {
        BARS.iter().chain(OTHERS).for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let cases = cases(cli)?;
    let beside = std::env::current_exe().map_err(PerfError::file("/proc/self/exe"))?;
    let basalt = Starter {
        binary: cli.basalt.clone().unwrap_or_else(|| beside.with_file_name("basalt")),
        root: cli.dir.clone(),
        flags: cli.flags.split_whitespace().map(str::to_string).collect(),
    };
    let (jars, tools) = (cli.kafka_jars.clone(), cli.kafka_tools.clone());
    let plan = Plan {
        products: Products { basalt, kafka: Kafka { jars, tools, root: cli.dir.clone() } },
        tool: Tool::find()?,
        cases,
        scale: scale(cli),
        warm_up_seconds: if cli.quick { 6 } else { 15 },
    };
    let mut results = if cli.add { Results::read(&cli.out)? } else { Results::default() };
    notes(cli, &plan).into_iter().for_each(|note| results.ratios.note(note));
    let rounds = if cli.quick { 1 } else { cli.rounds };
    let failed = plan.run(rounds, &mut results, |results| results.write(&cli.out))?;
    println!("{}", results.text());
    println!("{}", cli.out.join("compare.html").display());
    let bars = results.bars();
    let missed = bars.missed().count();
    Ok(failed == 0 && (missed == 0 || !cli.strict))
}

/// What a reader of the figures should know.
fn notes(cli: &Cli, plan: &Plan) -> Vec<String> {
    let heap = "Kafka with the heap (1 GB) and collector (G1) of its own script";
    let scale = plan.scale;
    vec![
        format!("{heap}; basalt serve {} --flush os or commit", cli.flags.trim()),
        format!(
            "runs of {} s or {} MB after {} s of warming up; clients on the same machine; linger \
             5 ms, 0 for latency",
            scale.seconds,
            scale.bytes_max / 1_000_000,
            plan.warm_up_seconds
        ),
        "CPU and memory are of the broker's process; `written` is what the device wrote, for \
         everyone, with a sync at the end"
            .to_string(),
    ]
}

fn cases(cli: &Cli) -> Result<Vec<Case>, PerfError> {
    let mut names: Vec<&str> = cli.cases.iter().map(String::as_str).collect();
    if names.is_empty() && !cli.matrix {
        names = if cli.quick { vec!["bars"] } else { BARS.iter().chain(OTHERS).copied().collect() };
    }
    let mut cases = if cli.matrix { matrix() } else { Vec::new() };
    for name in names {
        let some = if name == "bars" { BARS } else { std::slice::from_ref(&name) };
        for name in some {
            let case: Case = name.parse().map_err(PerfError::Answer)?;
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
    }
    Ok(cases)
}

fn scale(cli: &Cli) -> Scale {
    let pick = |quick: u64, full: u64| if cli.quick { quick } else { full };
    Scale {
        seconds: cli.seconds.unwrap_or(pick(2, 6)),
        bytes_max: cli.megabytes.unwrap_or(pick(300, 1500)) * 1_000_000,
        read_bytes: pick(100, 400) * 1_000_000,
        rest_bytes: pick(64, 512) * 1_000_000,
        partitions: cli.partitions.unwrap_or(10_000),
    }
}
