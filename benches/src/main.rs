//! The command line of the engine's benches: sizes in, tables and JSON out.
//!
//! `basalt-benches all` measures everything a release is held to. Some benches need a process of
//! their own, to be killed or to start with a clean heap; it is this program with a hidden command.

use benches::load::Load;
use benches::recovery::Fill;
use benches::report::{write_json, Report};
use benches::validation::Size;
use benches::{
    append, columnarise, commits, device, partitions, rebatch, recovery, relocation, validation,
    BenchError,
};
use clap::{Parser, Subcommand};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Benches of Basalt's storage engine.
#[derive(Parser)]
struct Cli {
    /// Where logs are made; a real file system. Created if needed.
    #[arg(long, global = true, default_value = "target/bench-data")]
    dir: PathBuf,
    /// Writes the reports there as JSON.
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    /// Rounds of each bench; the table shows medians.
    #[arg(long, global = true, default_value_t = 1)]
    rounds: usize,
    /// Pins the appending thread to this CPU.
    #[arg(long, global = true)]
    pin: Option<usize>,
    /// Ends with status 1 when a median misses its bar.
    #[arg(long, global = true)]
    strict: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand, Clone)]
enum Bench {
    /// One append on the core while syncs run: at a rate, and flat out.
    Append {
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// MB/s; the flat-out run comes on top.
        #[arg(long, default_value_t = 100)]
        rate: u64,
    },
    /// Device bytes per appended byte.
    Device {
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// MB/s, several with commas.
        #[arg(long, value_delimiter = ',', default_values_t = [10, 100])]
        rates: Vec<u64>,
    },
    /// Opening a hot log after a kill, cached and cold.
    Recovery {
        #[arg(long, default_value_t = 4096)]
        mib: u64,
        #[arg(long, default_value_t = 1024)]
        frame_bytes: usize,
    },
    /// Checking a produced batch, per record.
    Validation {
        #[arg(long, default_value_t = 256)]
        batch_kib: usize,
    },
    /// Opening a log with very many partitions.
    Partitions {
        #[arg(long, default_value_t = 100_000)]
        count: u32,
    },
    /// Offset commits on a compacted partition, and its restart.
    Commits {
        #[arg(long, default_value_t = 10_000_000)]
        count: u64,
        #[arg(long, default_value_t = 100)]
        keys: u64,
    },
    /// What relocation costs the producers beside it.
    Relocation {
        #[arg(long, default_value_t = 20.0)]
        seconds: f64,
        /// MB/s.
        #[arg(long, default_value_t = 50)]
        rate: u64,
    },
    /// Making a table file of raw batches.
    Columnarise {
        #[arg(long, default_value_t = 256)]
        mib: u64,
    },
    /// Making record batches of a table file again.
    Rebatch {
        #[arg(long, default_value_t = 256)]
        mib: u64,
    },
    /// All of them with their default sizes.
    All,
    /// Fills a log and waits to be killed.
    #[command(hide = true)]
    Fill {
        log: PathBuf,
        #[arg(long)]
        bytes: u64,
        #[arg(long)]
        frame_bytes: usize,
    },
    /// Measures one log of many partitions and prints the report as JSON.
    #[command(hide = true)]
    MeasurePartitions {
        log: PathBuf,
        #[arg(long)]
        count: u32,
        #[arg(long)]
        case: String,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("basalt-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False when a bar was missed and that matters.
fn run(cli: &Cli) -> Result<bool, BenchError> {
    match &cli.bench {
        Bench::Fill { log, bytes, frame_bytes } => {
            return wait_filled(log, Fill::of(*bytes, *frame_bytes)).map(|()| true);
        }
        Bench::MeasurePartitions { log, count, case } => {
            let report = partitions::measure_here(log, *count, case)?;
            println!("{}", serde_json::to_string(&report)?);
            return Ok(true);
        }
        _ => {}
    }
    std::fs::create_dir_all(&cli.dir).map_err(BenchError::file(&cli.dir))?;
    if let Some(id) = cli.pin {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let mut reports: Vec<Report> = Vec::new();
    for bench in chosen(&cli.bench) {
        let mut report = once(&cli.dir, &bench)?;
        for _ in 1..cli.rounds {
            report.merge(once(&cli.dir, &bench)?)?;
        }
        println!("{}", report.table());
        reports.push(report);
    }
    if let Some(path) = &cli.json {
        write_json(path, &reports)?;
    }
    let missed: usize = reports.iter().map(|report| report.missed().count()).sum();
    Ok(missed == 0 || !cli.strict)
}

fn chosen(bench: &Bench) -> Vec<Bench> {
    match bench {
        Bench::All => vec![
            Bench::Append { seconds: 10.0, rate: 100 },
            Bench::Device { seconds: 10.0, rates: vec![10, 100] },
            Bench::Recovery { mib: 4096, frame_bytes: 1024 },
            Bench::Validation { batch_kib: 256 },
            Bench::Partitions { count: 100_000 },
            Bench::Commits { count: 10_000_000, keys: 100 },
            Bench::Relocation { seconds: 20.0, rate: 50 },
            Bench::Columnarise { mib: 256 },
            Bench::Rebatch { mib: 256 },
        ],
        one => vec![one.clone()],
    }
}

fn once(dir: &Path, bench: &Bench) -> Result<Report, BenchError> {
    match bench {
        Bench::Append { seconds, rate } => {
            let rates = [Some(rate * 1_000_000), None];
            append::run(dir, &rates.map(|rate| Load::seconds(*seconds, rate)))
        }
        Bench::Device { seconds, rates } => {
            let rates = rates.iter().map(|rate| Some(rate * 1_000_000));
            let loads: Vec<Load> = rates.map(|rate| Load::seconds(*seconds, rate)).collect();
            device::run(dir, &loads)
        }
        Bench::Recovery { mib, frame_bytes } => {
            recovery::run(dir, Fill::of(mib << 20, *frame_bytes), &fill_and_kill)
        }
        Bench::Validation { batch_kib } => {
            validation::run(Size { batch_bytes: batch_kib << 10, calls: 200 })
        }
        Bench::Partitions { count } => partitions::run(dir, *count, &measure_elsewhere),
        Bench::Commits { count, keys } => commits::run(dir, *count, *keys),
        Bench::Relocation { seconds, rate } => relocation::run(dir, *seconds, rate * 1_000_000),
        Bench::Columnarise { mib } => columnarise::run(dir, mib << 20),
        Bench::Rebatch { mib } => rebatch::run(dir, mib << 20),
        Bench::All | Bench::Fill { .. } | Bench::MeasurePartitions { .. } => {
            Ok(Report::new("nothing"))
        }
    }
}

fn this_program() -> Result<Command, BenchError> {
    let path = std::env::current_exe().map_err(BenchError::file("/proc/self/exe"))?;
    Ok(Command::new(path))
}

/// Has another process fill the log, and kills it.
fn fill_and_kill(dir: &Path, fill: Fill) -> Result<(), BenchError> {
    let mut command = this_program()?;
    command.arg("fill").arg(dir);
    command.args(["--bytes", &fill.bytes.to_string()]);
    command.args(["--frame-bytes", &fill.frame_bytes.to_string()]);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(BenchError::file("basalt-benches fill"))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let read = BufReader::new(out).read_line(&mut line);
        read.map_err(BenchError::file("basalt-benches fill"))?;
    }
    let killed = child.kill().and_then(|()| child.wait());
    killed.map_err(BenchError::file("basalt-benches fill"))?;
    if line.trim() == "filled" {
        Ok(())
    } else {
        Err(BenchError::Child(line))
    }
}

/// The other side: fills, says so and waits for its end (or that of its parent).
fn wait_filled(log: &Path, fill: Fill) -> Result<(), BenchError> {
    let rig = recovery::fill(log, fill)?;
    let mut out = std::io::stdout();
    let said = writeln!(out, "filled").and_then(|()| out.flush());
    said.map_err(BenchError::file("stdout"))?;
    let mut line = String::new();
    // Ends when the parent does; until then the parent kills this process.
    let _ = std::io::stdin().read_line(&mut line);
    drop(rig);
    Ok(())
}

/// Has a fresh process measure a log of many partitions.
fn measure_elsewhere(dir: &Path, count: u32, case: &str) -> Result<Report, BenchError> {
    let mut command = this_program()?;
    command.arg("measure-partitions").arg(dir);
    command.args(["--count", &count.to_string(), "--case", case]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(BenchError::file("basalt-benches measure-partitions"))?;
    if !output.status.success() {
        return Err(BenchError::Child(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
