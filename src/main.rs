//! The `basalt` binary: runs what the command line asks for.
//!
//! Whatever goes wrong ends in one line on standard error that says what to do, and status 1.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

#[cfg(feature = "sql")]
use basalt::cli::RowFormat;
use basalt::cli::{Cli, Command, ConfigCommand, LogCommand, ServeArgs};
use basalt::config::{Config, ConfigErrors};
use basalt::inspect::{self, InspectError};
use basalt::{broker, http, preflight};
use clap::Parser;
use tracing_subscriber::EnvFilter;

/// What to print before ending with status 1; one line each.
type Failure = Vec<String>;

fn main() -> ExitCode {
    let ended = match Cli::parse().command() {
        Command::Serve(args) => serve(&args),
        Command::Config { command: ConfigCommand::Check { file } } => check(&file),
        Command::Config { command: ConfigCommand::Show { explain, serve } } => {
            show(&serve, explain)
        }
        Command::Stats { http } => stats(&http),
        #[cfg(feature = "sql")]
        Command::Sql { statement, format, http } => sql(&statement, format, &http),
        Command::Log { command: LogCommand::Dump { path } } => dump(&path),
        Command::Log { command: LogCommand::Salvage { dir } } => salvage(&dir),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(lines) => {
            for line in lines {
                eprintln!("basalt: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = Config::load(&args.sources()).map_err(|errors| vec![errors.to_string()])?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = config.threads(cpus);
    let one_line = |error: &dyn std::error::Error| vec![error.to_string()];
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| one_line(&error))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    log.try_init().map_err(|error| vec![error.to_string()])?;
    let cleared = preflight::check(&config, threads.cores).map_err(|error| one_line(&error))?;
    for warning in config.warnings().iter().chain(&cleared.warnings) {
        eprintln!("basalt: warning: {warning}");
    }
    broker::serve(config, threads, cleared).map_err(|error| one_line(&error))
}

fn stats(address: &str) -> Result<(), Failure> {
    let text = http::stats(address).map_err(|error| {
        vec![format!("no broker tells its metrics at {address} ({error}): is --http set there?")]
    })?;
    print(&text)
}

#[cfg(feature = "sql")]
fn sql(statement: &str, format: RowFormat, address: &str) -> Result<(), Failure> {
    use basalt::http::terminal::{self, AskError, Shown};
    use basalt::query::results::Format;
    let shown = match format {
        RowFormat::Table => Shown::Table,
        RowFormat::Csv => Shown::Rows(Format::Csv),
        RowFormat::Json => Shown::Rows(Format::Json),
        RowFormat::Arrow => Shown::Rows(Format::Arrow),
    };
    match terminal::run(address, statement, shown, &mut std::io::stdout().lock()) {
        Err(AskError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(|error| vec![error.to_string()]),
    }
}

fn check(file: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| vec![format!("cannot read {}: {error}", file.display())])?;
    let config = Config::from_toml(file, &text).map_err(|errors| every(&errors))?;
    for warning in config.warnings() {
        eprintln!("basalt: warning: {warning}");
    }
    print(&format!("{}: ok\n", file.display()))
}

fn show(args: &ServeArgs, explain: bool) -> Result<(), Failure> {
    let config = Config::load(&args.sources()).map_err(|errors| every(&errors))?;
    print(&if explain { config.explain() } else { config.show() })
}

fn every(errors: &ConfigErrors) -> Failure {
    errors.iter().map(|error| error.to_string()).collect()
}

/// A reader that closed the pipe has seen enough.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(vec![format!("cannot write to standard output: {error}")])
        }
        _ => Ok(()),
    }
}

fn dump(path: &Path) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let ended = inspect::dump(path, &mut out);
    match ended.and_then(|()| Ok(out.flush()?)) {
        Err(InspectError::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(vec![error.to_string()]),
        Ok(()) => Ok(()),
    }
}

fn salvage(dir: &Path) -> Result<(), Failure> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    inspect::salvage(dir).map_err(|error| vec![error.to_string()])
}
