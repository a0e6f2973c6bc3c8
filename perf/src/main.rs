//! `basalt-perf`: measures a running broker from outside, with librdkafka as the client.
//!
//! Starts Basalt on a temporary data directory, or takes a broker that runs already
//! (`--bootstrap` and `--pid`), Basalt or not. Prints a table with bars and verdicts; `--json`
//! writes it to a file.

use benches::report::{write_json, Report};
use clap::{Parser, ValueEnum};
use perf::broker::{Broker, Starter};
use perf::cases::{self, Scale, Target};
use perf::error::PerfError;
use perf::{
    beside, connections, flood, groups, idle, old_reads, statements, table_memory, tool, trickle,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures a running broker with librdkafka.
#[derive(Parser)]
struct Cli {
    /// What to measure; without any, everything that fits the target but for the cases of tables.
    cases: Vec<Case>,
    /// Rounds of each case; the table shows medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The broker to start; the one beside this program by default.
    #[arg(long)]
    basalt: Option<PathBuf>,
    /// Where data directories are made; a real file system.
    #[arg(long, default_value = "target/perf-data")]
    dir: PathBuf,
    /// Arguments of `basalt serve`.
    #[arg(long, default_value = "--cores 1 --flush os", allow_hyphen_values = true)]
    flags: String,
    /// Measures a broker that runs already.
    #[arg(long, requires = "pid")]
    bootstrap: Option<String>,
    /// Its process.
    #[arg(long)]
    pid: Option<u32>,
    /// Where it serves /metrics; says that it is Basalt.
    #[arg(long, requires = "bootstrap")]
    http: Option<String>,
    /// Messages of 1 KiB in a run.
    #[arg(long, default_value_t = 1_000_000)]
    large: u64,
    /// Messages of 100 B in a run.
    #[arg(long, default_value_t = 5_000_000)]
    small: u64,
    /// Seconds of the cases that run at a rate.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Messages of 1 KiB a second in the comparison of partition counts.
    #[arg(long, default_value_t = 20_000)]
    rate: u64,
    /// Partitions of the idle broker.
    #[arg(long, default_value_t = 100_000)]
    partitions: u32,
    /// Groups of five members that heartbeat.
    #[arg(long, default_value_t = 1_000)]
    groups: usize,
    /// Commits of the flood.
    #[arg(long, default_value_t = 10_000_000)]
    commits: u64,
    /// Of them a second, at most.
    #[arg(long, default_value_t = 40_000)]
    commit_rate: u64,
    /// Connections that do nothing.
    #[arg(long, default_value_t = 5_000)]
    connections: usize,
    /// MB of records that old reads read.
    #[arg(long, default_value_t = 1_000)]
    megabytes: u64,
    /// Rows that statements read.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// A Python that has DuckDB.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Topics of the trickle, of ten partitions each.
    #[arg(long, default_value_t = 1_000)]
    topics: u32,
    /// GB that become table files while memory is looked at.
    #[arg(long, default_value_t = 10.0)]
    gigabytes: f64,
    /// Writes the report there as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Ends with status 1 when a median misses its bar.
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// 1 KiB and 100 B, acks=1 with os and acks=all with commit.
    Produce,
    /// 1 KiB, hot.
    Consume,
    /// 1,000 partitions against one.
    Partitions,
    /// End to end at 1,000 messages a second.
    Latency,
    /// Time a core does not turn its loop.
    Stalls,
    /// Memory and start of idle brokers.
    Idle,
    /// 64 committers of offsets.
    Commits,
    /// Many groups that only heartbeat.
    Heartbeats,
    /// Millions of commits over few keys, and a restart.
    Flood,
    /// How soon a new group and its second member have records.
    FirstRecord,
    /// Memory and CPU of connections that do nothing.
    IdleConnections,
    /// Two producers find their cores behind one address.
    Follow,
    /// Consuming from table files, against hot.
    OldReads,
    /// Producing while table files are made, against while none are.
    BesideTables,
    /// Statements over a large topic, and DuckDB on the same files.
    Sql,
    /// Files and CPU of many topics with few records.
    Trickle,
    /// Memory while very much becomes table files.
    TableMemory,
}

/// Cases that have brokers of their own, and run only when they are named.
const TABLES: [Case; 5] =
    [Case::OldReads, Case::BesideTables, Case::Sql, Case::Trickle, Case::TableMemory];

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("basalt-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False when a bar was missed and that matters.
fn run(cli: &Cli) -> Result<bool, PerfError> {
    let tool = tool::Tool::find()?;
    if cli.bootstrap.is_some() && cli.cases.iter().any(|case| TABLES.contains(case)) {
        return Err(PerfError::OwnBrokers);
    }
    let mut report = match (&cli.bootstrap, cli.pid) {
        (Some(address), Some(pid)) => {
            let is_basalt = cli.http.is_some();
            let broker = Broker::running(address.clone(), pid, cli.http.clone());
            let mut report = rounds(cli, &tool, &broker, is_basalt)?;
            if is_basalt && wanted(cli, Case::Stalls) {
                let target = Target::new(&broker, &tool, scale(cli), is_basalt)?;
                report.merge(cases::stalls(&target, "os")?)?;
            }
            report
        }
        _ => own_broker(cli, &tool)?,
    };
    report.name = match &cli.bootstrap {
        Some(address) => format!("broker at {address}"),
        None => format!("basalt serve {}", cli.flags),
    };
    report.note("one partition and linger 5 ms unless a case says otherwise; medians of rounds");
    println!("{}", report.table());
    let missed = report.missed().count();
    if let Some(path) = &cli.json {
        write_json(path, &[report])?;
    }
    Ok(missed == 0 || !cli.strict)
}

fn own_broker(cli: &Cli, tool: &tool::Tool) -> Result<Report, PerfError> {
    let beside = std::env::current_exe().map_err(PerfError::file("/proc/self/exe"))?;
    let binary = cli.basalt.clone().unwrap_or_else(|| beside.with_file_name("basalt"));
    let flags = cli.flags.split_whitespace().map(str::to_string).collect();
    let starter = Starter { binary, root: cli.dir.clone(), flags };
    let mut report = Report::new("basalt");
    if wanted(cli, Case::Idle) {
        for _ in 0..cli.rounds {
            report.merge(idle::empty(&starter)?)?;
        }
        report.merge(idle::many(&starter, cli.partitions)?)?;
    }
    if wanted(cli, Case::Stalls) {
        for _ in 0..cli.rounds {
            for flush in ["os", "commit"] {
                report.merge(fresh_stalls(cli, tool, &starter, flush)?)?;
            }
        }
    }
    if wanted(cli, Case::Flood) {
        report.merge(flood::flood(&starter, cli.commits, cli.commit_rate)?)?;
    }
    for _ in 0..cli.rounds {
        if wanted(cli, Case::IdleConnections) {
            report.merge(connections::idle(&starter, cli.connections)?)?;
        }
        if wanted(cli, Case::Follow) {
            report.merge(connections::follow(&starter, tool, cli.large)?)?;
        }
    }
    report.merge(tables(cli, tool, &starter)?)?;
    let own = [Case::Idle, Case::Stalls, Case::Flood, Case::IdleConnections, Case::Follow];
    let others = |case: &Case| !own.contains(case) && !TABLES.contains(case);
    if cli.cases.is_empty() || cli.cases.iter().any(others) {
        let data = starter.data_dir()?;
        let broker = starter.start(data.path())?;
        report.merge(rounds(cli, tool, &broker, true)?)?;
        broker.stop()?;
    }
    Ok(report)
}

/// The cases of tables that are named.
fn tables(cli: &Cli, tool: &tool::Tool, starter: &Starter) -> Result<Report, PerfError> {
    let named = |case| cli.cases.contains(&case);
    let mut report = Report::new("tables");
    // The rows stay: loading them takes longer than the statements.
    if named(Case::Sql) {
        report.merge(statements::statements(starter, &cli.python, cli.rows, cli.rounds)?)?;
    }
    for _ in 0..cli.rounds {
        if named(Case::OldReads) {
            report.merge(old_reads::old_reads(starter, tool, cli.megabytes)?)?;
        }
        if named(Case::BesideTables) {
            let megabytes = cli.large * 1024 / 1_000_000;
            report.merge(beside::beside(starter, cli.seconds, megabytes)?)?;
        }
        if named(Case::Trickle) {
            report.merge(trickle::trickle(starter, cli.topics, cli.seconds)?)?;
        }
        if named(Case::TableMemory) {
            report.merge(table_memory::table_memory(starter, cli.gigabytes)?)?;
        }
    }
    Ok(report)
}

/// The stalls of a broker that has seen no other load.
fn fresh_stalls(
    cli: &Cli,
    tool: &tool::Tool,
    starter: &Starter,
    flush: &str,
) -> Result<Report, PerfError> {
    let data = starter.data_dir()?;
    let broker = starter.start(data.path())?;
    let report = cases::stalls(&Target::new(&broker, tool, scale(cli), true)?, flush)?;
    broker.stop()?;
    Ok(report)
}

fn scale(cli: &Cli) -> Scale {
    Scale {
        large: cli.large,
        small: cli.small,
        seconds: cli.seconds,
        rate: cli.rate,
        groups: cli.groups,
    }
}

fn wanted(cli: &Cli, case: Case) -> bool {
    cli.cases.is_empty() || cli.cases.contains(&case)
}

fn rounds(
    cli: &Cli,
    tool: &tool::Tool,
    broker: &Broker,
    is_basalt: bool,
) -> Result<Report, PerfError> {
    let target = Target::new(broker, tool, scale(cli), is_basalt)?;
    let mut report = Report::new("rounds");
    type Round = fn(&Target<'_>) -> Result<Report, PerfError>;
    let all: [(Case, Round); 8] = [
        (Case::Produce, cases::produce),
        (Case::Consume, cases::consume),
        (Case::Partitions, cases::partitions),
        (Case::Latency, cases::end_to_end),
        (Case::Commits, groups::commits),
        (Case::Heartbeats, groups::heartbeats),
        (Case::FirstRecord, groups::first_record),
        (Case::Idle, cases::memory),
    ];
    for round in 0..cli.rounds {
        eprintln!("round {} of {}", round + 1, cli.rounds);
        for (case, measure) in all {
            // Where Basalt is started here, how it idles is measured on brokers of its own.
            if wanted(cli, case) && (case != Case::Idle || cli.bootstrap.is_some()) {
                report.merge(measure(&target)?)?;
            }
        }
    }
    Ok(report)
}
