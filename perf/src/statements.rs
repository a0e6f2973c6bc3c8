//! What SQL over a large topic takes, beside DuckDB on the same Parquet files; both give the same
//! answers, or the case fails.
//!
//! Both have all CPUs. Basalt's times are those of its HTTP client, DuckDB's those inside of its
//! process, so what HTTP costs is Basalt's.

use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::load::Load;
use crate::tables::{http, make_topic, metrics, wait_for_rows, with_broker};
use benches::report::{median, Bar, Report};
use serde_json::{json, Value};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TOPIC: &str = "orders";
const PARTITIONS: u64 = 4;
/// Distinct records of each partition.
const DISTINCT: u64 = 100_000;
const SETTINGS: &[&str] =
    &["table.commit.ms=2000", "iceberg.reader.grace.ms=0", "log.retention.check.interval.ms=500"];
/// How often a statement runs in a round.
const TIMES: usize = 5;
/// Files that stay the same for so long are what merging leaves.
const QUIET: Duration = Duration::from_secs(10);
const QUIET_WITHIN: Duration = Duration::from_secs(300);
/// Only Basalt's: the last records of a topic.
const TAIL: &str = "SELECT kafka_partition, kafka_offset, utf8(value) AS text \
                    FROM kafka_topics.orders ORDER BY kafka_offset DESC LIMIT 10";
const DUCKDB_SIDE: &str = include_str!("duckdb_side.py");

/// A statement as Basalt and as DuckDB spell it, over `{t}`.
struct Statement {
    name: &'static str,
    basalt: &'static str,
    duckdb: &'static str,
}

const STATEMENTS: [Statement; 4] = [
    Statement {
        name: "count",
        basalt: "SELECT count(*) AS n, max(kafka_offset) AS last FROM {t}",
        duckdb: "SELECT count(*) AS n, max(kafka_offset) AS last FROM {t}",
    },
    Statement {
        name: "filter",
        basalt: "SELECT count(*) AS n, max(kafka_offset) AS last FROM {t} \
                 WHERE utf8(value) LIKE '%\"kind\":\"refunded\"%'",
        duckdb: "SELECT count(*) AS n, max(kafka_offset) AS last FROM {t} \
                 WHERE decode(value) LIKE '%\"kind\":\"refunded\"%'",
    },
    Statement {
        name: "group by key",
        basalt: "SELECT utf8(key) AS k, count(*) AS n, max(kafka_offset) AS last FROM {t} \
                 GROUP BY 1",
        duckdb: "SELECT decode(key) AS k, count(*) AS n, max(kafka_offset) AS last FROM {t} \
                 GROUP BY 1",
    },
    Statement {
        name: "group by JSON",
        basalt: "SELECT json_get_str(utf8(value), 'kind') AS k, count(*) AS n, \
                 sum(json_get_int(utf8(value), 'cents')) AS cents FROM {t} GROUP BY 1",
        duckdb: "SELECT json_extract_string(decode(value), '$.kind') AS k, count(*) AS n, \
                 sum(CAST(json_extract_string(decode(value), '$.cents') AS BIGINT)) AS cents \
                 FROM {t} GROUP BY 1",
    },
];

/// Loads so many rows once and runs everything `rounds` times; `python` has DuckDB.
pub fn statements(
    starter: &Starter,
    python: &str,
    rows: u64,
    rounds: usize,
) -> Result<Report, PerfError> {
    let mut report = Report::new("sql");
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = format!("sql.threads={cpus}");
    with_broker(starter, &[SETTINGS, &[threads.as_str()]].concat(), |broker, data| {
        make_topic(broker, TOPIC, PARTITIONS as i32)?;
        let load = Load::small(DISTINCT);
        let mut sent = 0;
        for partition in 0..PARTITIONS {
            let enough = rows.div_ceil(PARTITIONS);
            let to = (TOPIC, partition as i32);
            sent += load.send(&broker.address, to, |sent| sent.records >= enough)?.records;
        }
        wait_for_rows(broker, Some(TOPIC), sent)?;
        let files = settled(broker, data)?;
        let case = format!("{sent} rows");
        report.row(&case, "files", files.len() as f64, "");
        let server = Server::at(http(broker)?);
        for _ in 0..rounds {
            report.merge(round(&server, python, &case, &files)?)?;
        }
        Ok(())
    })?;
    Ok(report)
}

fn round(
    server: &Server,
    python: &str,
    case: &str,
    files: &[PathBuf],
) -> Result<Report, PerfError> {
    let mut report = Report::new("sql");
    let (ms, rows) = server.timed(TAIL)?;
    if rows.len() != 10 {
        return Err(PerfError::Answer(format!("{TAIL}: {} rows", rows.len())));
    }
    report.held((case, "last 10 by offset"), ms, "ms", Bar::AtMost(50.0));
    let theirs = match duckdb(python, files) {
        Ok(theirs) => Some(theirs),
        // What is not there is told; what answers has to make sense.
        Err(error @ (PerfError::Run { .. } | PerfError::Failed { .. })) => {
            let said = error.to_string();
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            report.note(format!("DuckDB was not run: {last}"));
            None
        }
        Err(error) => return Err(error),
    };
    for (number, statement) in STATEMENTS.iter().enumerate() {
        let (ms, rows) = server.timed(&statement.basalt.replace("{t}", "kafka_topics.orders"))?;
        report.row(case, &format!("{}, Basalt", statement.name), ms, "ms");
        let Some(theirs) = &theirs else { continue };
        let (their_ms, their_rows) = result(theirs, number)?;
        if sorted(&rows) != sorted(&their_rows) {
            let name = statement.name;
            return Err(PerfError::Answer(format!("{name}: other rows than DuckDB's")));
        }
        report.row(case, &format!("{}, DuckDB", statement.name), their_ms, "ms");
        let metric = format!("{}, Basalt to DuckDB", statement.name);
        report.held((case, &metric), ms / their_ms.max(1e-3), "×", Bar::AtMost(1.5));
    }
    if let Some(version) = theirs.as_ref().and_then(|t| t.get("version")?.as_str()) {
        report.note(format!("DuckDB {version}; both have all CPUs, and gave the same rows"));
    }
    Ok(report)
}

/// The files of the only table there is, once merging has come to rest.
fn settled(broker: &Broker, data: &Path) -> Result<Vec<PathBuf>, PerfError> {
    let (started, mut since) = (Instant::now(), Instant::now());
    let mut known = Vec::new();
    loop {
        let files = files(&data.join("tables"))?;
        let told: f64 = metrics(broker)?.values("basalt_table_files", Some(TOPIC)).sum();
        // Others are still being written, or wait to be removed.
        if files != known || files.len() as f64 != told {
            (known, since) = (files, Instant::now());
        }
        if since.elapsed() > QUIET {
            return Ok(known);
        }
        if started.elapsed() > QUIET_WITHIN {
            let said = format!("{} files, and {told} in the table", known.len());
            return Err(PerfError::Answer(said));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Every Parquet file below a directory, in order.
fn files(dir: &Path) -> Result<Vec<PathBuf>, PerfError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(PerfError::file(dir))? {
        let path = entry.map_err(PerfError::file(dir))?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// A broker's SQL over HTTP.
struct Server {
    agent: ureq::Agent,
    url: String,
}

impl Server {
    fn at(address: &str) -> Server {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Server { agent, url: format!("http://{address}/sql") }
    }

    /// The rows of a statement.
    fn rows(&self, sql: &str) -> Result<Vec<Value>, PerfError> {
        let failed = |error: ureq::Error| PerfError::Answer(format!("{sql}: {error}"));
        let mut answer = self.agent.post(&self.url).send(sql).map_err(failed)?;
        let text = answer.body_mut().read_to_string().map_err(failed)?;
        if answer.status().as_u16() != 200 {
            return Err(PerfError::Answer(format!("{sql}: {text}")));
        }
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    /// Its median time over some runs, of which the first is not counted.
    fn timed(&self, sql: &str) -> Result<(f64, Vec<Value>), PerfError> {
        let mut rows = self.rows(sql)?;
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let started = Instant::now();
            rows = self.rows(sql)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok((median(&times), rows))
    }
}

/// Runs all statements in DuckDB.
fn duckdb(python: &str, files: &[PathBuf]) -> Result<Value, PerfError> {
    let ask = json!({
        "files": files,
        "statements": STATEMENTS.iter().map(|statement| statement.duckdb).collect::<Vec<_>>(),
        "rounds": TIMES + 1,
    });
    let mut command = Command::new(python);
    command.args(["-c", DUCKDB_SIDE]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(PerfError::run(python))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended reads nothing; its status says why.
        let _ = stdin.write_all(ask.to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(PerfError::run(python))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let program = python.to_string();
        return Err(PerfError::Failed { program, status: output.status, said });
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Median time and rows of one statement; the first run is not counted.
fn result(theirs: &Value, number: usize) -> Result<(f64, Vec<Value>), PerfError> {
    let missing = || PerfError::Answer("DuckDB's answer has not every statement".to_string());
    let result = theirs.get("results").and_then(|all| all.get(number)).ok_or_else(missing)?;
    let list = |key| result.get(key).and_then(Value::as_array).ok_or_else(missing);
    let times: Vec<f64> = list("ms")?.iter().skip(1).filter_map(Value::as_f64).collect();
    Ok((median(&times), list("rows")?.clone()))
}

/// Rows as text in one order: objects have their names sorted.
fn sorted(rows: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = rows.iter().map(Value::to_string).collect();
    all.sort();
    all
}
