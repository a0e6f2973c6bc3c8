//! `rdkafka_performance`: found, or built from the sources the rdkafka-sys package ships; and run.
//!
//! The sources are copied out of cargo's registry into the target directory and built there, once
//! for each version. `RDKAFKA_PERFORMANCE=path` names one that is there already.

use crate::error::PerfError;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONFIGURE: &[&str] =
    &["--disable-ssl", "--disable-gssapi", "--disable-sasl", "--disable-curl", "--disable-zstd"];

/// Of one run of a client.
const SECONDS_MAX: &str = "900";

/// The program, ready to run.
#[derive(Clone, Debug)]
pub struct Tool {
    pub path: PathBuf,
}

/// What a run of the program reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub messages: u64,
    pub seconds: f64,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.messages as f64 / self.seconds.max(1e-3)
    }
}

/// What to produce.
#[derive(Clone, Copy, Debug)]
pub struct Produce<'a> {
    pub topic: &'a str,
    /// `None` lets the client's partitioner choose.
    pub partition: Option<i32>,
    pub messages: u64,
    pub bytes: usize,
    /// −1 is all.
    pub acks: i32,
    /// Messages per second; `None` is as fast as it goes.
    pub rate: Option<u64>,
    pub settings: &'a [&'a str],
}

impl Tool {
    /// The one in the environment, or one that is built now or was before.
    pub fn find() -> Result<Tool, PerfError> {
        if let Some(path) = std::env::var_os("RDKAFKA_PERFORMANCE") {
            return Ok(Tool { path: path.into() });
        }
        let metadata = cargo_metadata()?;
        let (version, sources) = rdkafka_sources(&metadata).ok_or(PerfError::NoSources)?;
        let target = metadata.get("target_directory").and_then(Value::as_str);
        let target = target.ok_or(PerfError::NoSources)?;
        let build = Path::new(target).join("basalt-perf").join(format!("librdkafka-{version}"));
        let path = build.join("examples").join("rdkafka_performance");
        if !path.exists() {
            eprintln!("building rdkafka_performance in {} (once)", build.display());
            self::build(&sources, &build)?;
        }
        Ok(Tool { path })
    }

    pub fn produce(&self, broker: &str, what: &Produce<'_>) -> Result<Outcome, PerfError> {
        let mut command = self.command("-P", broker, what.topic);
        command.args(["-s", &what.bytes.to_string(), "-c", &what.messages.to_string()]);
        command.args(["-a", &what.acks.to_string(), "-X", "linger.ms=5"]);
        if let Some(partition) = what.partition {
            command.args(["-p", &partition.to_string()]);
        }
        if let Some(rate) = what.rate {
            command.args(["-r", &rate.to_string()]);
        }
        for setting in what.settings {
            command.args(["-X", setting]);
        }
        let said = output(&mut command)?;
        let outcome = produced(&said).ok_or(PerfError::NoSummary { said })?;
        complete(outcome, what.messages)
    }

    /// Consumes so many messages of partition 0 from its start.
    pub fn consume(&self, broker: &str, topic: &str, count: u64) -> Result<Outcome, PerfError> {
        let mut command = self.command("-C", broker, topic);
        command.args(["-p", "0", "-o", "beginning", "-c", &count.to_string()]);
        let said = output(&mut command)?;
        let outcome = consumed(&said).ok_or(PerfError::NoSummary { said })?;
        complete(outcome, count)
    }

    /// Consumes so many messages as the only member of a new group; from joining to the last one.
    pub fn consume_as(
        &self,
        broker: &str,
        (group, topic): (&str, &str),
        count: u64,
    ) -> Result<Outcome, PerfError> {
        let mut command = bounded(&self.path);
        command.args(["-G", group, "-q", "-b", broker, "-t", topic, "-c", &count.to_string()]);
        command.args(["-X", "auto.offset.reset=earliest"]);
        let said = output(&mut command)?;
        let outcome = consumed(&said).ok_or(PerfError::NoSummary { said })?;
        complete(outcome, count)
    }

    fn command(&self, mode: &str, broker: &str, topic: &str) -> Command {
        let mut command = bounded(&self.path);
        command.args([mode, "-q", "-b", broker, "-t", topic]);
        command
    }
}

/// A command that is ended when it takes too long: a client waits for ever for what never comes.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(program);
    command
}

fn complete(outcome: Outcome, wanted: u64) -> Result<Outcome, PerfError> {
    let delivered = outcome.messages;
    // A consumer may be handed a few more in its last batch.
    if delivered < wanted {
        return Err(PerfError::Lost { delivered, wanted });
    }
    Ok(outcome)
}

/// Runs a command to its end and returns what it wrote to standard output.
pub fn output(command: &mut Command) -> Result<String, PerfError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let result = command.stdin(Stdio::null()).output().map_err(PerfError::run(&program))?;
    let said = String::from_utf8_lossy(&result.stdout).into_owned();
    if result.status.success() {
        return Ok(said);
    }
    let said = said + &String::from_utf8_lossy(&result.stderr);
    Err(PerfError::Failed { program, status: result.status, said })
}

/// `% 10 messages produced (… bytes), 10 delivered (…) in 5ms: 2000 msgs/s and …`.
fn produced(said: &str) -> Option<Outcome> {
    let line = said.lines().rev().find(|line| line.contains(" messages produced "))?;
    let messages = number_before(line, " delivered ")?;
    let ms = number_before(line, "ms: ")?;
    Some(Outcome { messages, seconds: ms as f64 / 1000.0 })
}

/// `% 10 messages (… bytes) consumed in 5ms: 2000 msgs/s …`.
fn consumed(said: &str) -> Option<Outcome> {
    let line = said.lines().rev().find(|line| line.contains(" consumed in "))?;
    let messages = number_before(line, " messages ")?;
    let ms = number_before(line, "ms: ")?;
    Some(Outcome { messages, seconds: ms as f64 / 1000.0 })
}

fn number_before(line: &str, mark: &str) -> Option<u64> {
    let (before, _) = line.split_once(mark)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn cargo_metadata() -> Result<Value, PerfError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Packages of other platforms need not be there.
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let platform = format!("{}-unknown-linux-{libc}", std::env::consts::ARCH);
    command.args(["metadata", "--format-version", "1", "--filter-platform", &platform]);
    command.args(["--locked", "--offline"]);
    // The checkout this was built from, where it still is; else where it is run.
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    if home.is_dir() {
        command.current_dir(home);
    }
    Ok(serde_json::from_str(&output(&mut command)?)?)
}

/// Version and folder of the librdkafka that rdkafka-sys brings.
fn rdkafka_sources(metadata: &Value) -> Option<(String, PathBuf)> {
    let packages = metadata.get("packages")?.as_array()?;
    let text = |package: &Value, key: &str| Some(package.get(key)?.as_str()?.to_string());
    let is_it = |package: &&Value| text(package, "name").as_deref() == Some("rdkafka-sys");
    let package = packages.iter().find(is_it)?;
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let sources = manifest.parent()?.join("librdkafka");
    let version = text(package, "version")?;
    let version = version.rsplit('+').next()?.to_string();
    sources.join("configure").exists().then_some((version, sources))
}

fn build(sources: &Path, into: &Path) -> Result<(), PerfError> {
    let fresh = into.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(PerfError::file(&fresh))?;
    }
    copy(sources, &fresh)?;
    let run = |program: &str, arguments: &[&str]| {
        output(Command::new(program).args(arguments).current_dir(&fresh))
    };
    run("./configure", CONFIGURE)?;
    run("make", &["-j2", "-C", "src", "librdkafka.a"])?;
    run("make", &["-C", "examples", "rdkafka_performance"])?;
    if into.exists() {
        fs::remove_dir_all(into).map_err(PerfError::file(into))?;
    }
    fs::rename(&fresh, into).map_err(PerfError::file(into))
}

fn copy(from: &Path, to: &Path) -> Result<(), PerfError> {
    fs::create_dir_all(to).map_err(PerfError::file(to))?;
    for entry in fs::read_dir(from).map_err(PerfError::file(from))? {
        let entry = entry.map_err(PerfError::file(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            // The tests and packages of librdkafka are most of it and not needed.
            if ![OsStr::new("tests"), OsStr::new("packaging")].contains(&&*entry.file_name()) {
                copy(&path, &target)?;
            }
        } else {
            fs::copy(&path, &target).map_err(PerfError::file(&path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let said = "noise\n% 10 messages produced (1000 bytes), 9 delivered (offset 8, 1 failed) \
                    in 5ms: 1800 msgs/s and 1.80 MB/s, 0 produce failures, 0 in queue, no \
                    compression\n";
        assert_eq!(produced(said), Some(Outcome { messages: 9, seconds: 0.005 }));
        assert!(matches!(
            complete(produced(said).unwrap(), 10),
            Err(PerfError::Lost { delivered: 9, wanted: 10 })
        ));
        let said = "% 7 messages (700 bytes) consumed in 20ms: 350 msgs/s (0.03 MB/s)\n";
        assert_eq!(consumed(said), Some(Outcome { messages: 7, seconds: 0.02 }));
        assert_eq!((produced(said), consumed("")), (None, None));
    }

    #[test]
    fn the_sources_are_where_cargo_says() {
        let (version, sources) = rdkafka_sources(&cargo_metadata().unwrap()).unwrap();
        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
        assert!(sources.join("examples").join("rdkafka_performance.c").exists());
    }
}
