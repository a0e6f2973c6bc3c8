//! Queries over topics of a running broker, through `basalt sql` and bare HTTP.
//!
//! What a produce request was answered for is in the very next query, wherever the rows are by
//! then: in the log, in table files, or half in each.

use crate::broker::{connect, only_own, topic, Broker, Process, NOTHING_HOT, SMALL_SEGMENTS};
use crate::client::{create_topic, placed, produce, records, Place, Record, CODECS};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::ExitStatus;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 3;
/// Files of tables are written all the time, and the log keeps next to nothing.
const EAGER: [&str; 6] = [
    "--set",
    "table.commit.bytes=16KiB",
    "--set",
    "table.commit.ms=100ms",
    "--set",
    "iceberg.reader.grace.ms=0",
];

/// The arguments of a broker that writes tables all the time.
fn eager() -> Vec<&'static str> {
    [&SMALL_SEGMENTS[..], &NOTHING_HOT, &EAGER].concat()
}

/// What `basalt sql` says and how it ends.
fn ask(broker: &Broker, format: &str, statement: &str) -> (ExitStatus, String, String) {
    let http = broker.service("http");
    let mut process = Process::start(&["sql", "--format", format, "--http", http, statement]);
    let (status, output) = process.output(SOON);
    (status, output, process.errors())
}

fn lines(broker: &Broker, statement: &str) -> Vec<Value> {
    let (status, output, errors) = ask(broker, "json", statement);
    assert!(status.success(), "{statement}: {errors}");
    output.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn count(broker: &Broker, statement: &str) -> i64 {
    let rows = lines(broker, statement);
    rows[0].get("n").and_then(Value::as_i64).unwrap_or_else(|| panic!("{statement}: {rows:?}"))
}

fn hex(bytes: Option<&Vec<u8>>) -> Value {
    let digits = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.map(digits).map_or(Value::Null, Value::String)
}

/// A record as a row of its topic.
fn row(place: &Place, record: &Record) -> Value {
    let header = |(name, value): &(String, Option<Vec<u8>>)| {
        let name = name.clone().into_bytes();
        serde_json::json!({ "key": hex(Some(&name)), "value": hex(value.as_ref()) })
    };
    serde_json::json!({
        "p": place.partition,
        "o": place.offset,
        "key": hex(record.key.as_ref()),
        "value": hex(record.value.as_ref()),
        "ms": record.timestamp_ms,
        "headers": record.headers.iter().map(header).collect::<Vec<_>>(),
    })
}

fn every_row_at_once(arguments: &[&str]) {
    let mut broker = Broker::with(arguments);
    let topic = topic("rows");
    create_topic(&broker.address, &topic, PARTITIONS, &[]);
    let all = format!(
        "SELECT kafka_partition AS p, kafka_offset AS o, key, value, \
         arrow_cast(timestamp_producer, 'Int64') / 1000 AS ms, headers FROM \"{topic}\" \
         ORDER BY kafka_partition, kafka_offset"
    );
    let counted = format!("SELECT count(*) AS n FROM \"default\".kafka_topics.\"{topic}\"");
    let mut expected: Vec<(Place, Record)> = Vec::new();
    for codec in CODECS {
        for _ in 0..4 {
            let sent = records(120);
            let settings = [("compression.codec", codec), ("batch.num.messages", "30")];
            let places = produce(&broker.address, &topic, &sent, &settings);
            expected.extend(placed(&places, &sent));
            assert_eq!(count(&broker, &counted), expected.len() as i64, "{codec}");
        }
        expected.sort_by_key(|(place, _)| *place);
        let rows: Vec<Value> = expected.iter().map(|(place, record)| row(place, record)).collect();
        assert_eq!(lines(&broker, &all), rows, "{codec}");
    }
    broker.kill_and_restart();
    let rows: Vec<Value> = expected.iter().map(|(place, record)| row(place, record)).collect();
    assert_eq!(lines(&broker, &all), rows, "after a kill");
}

#[test]
fn a_row_is_there_once_its_produce_is_answered() {
    if !only_own("a_row_is_there_once_its_produce_is_answered") {
        every_row_at_once(&["--cores", "2"]);
    }
}

#[test]
fn a_row_is_there_once_while_it_moves_into_files() {
    if !only_own("a_row_is_there_once_while_it_moves_into_files") {
        every_row_at_once(&[&["--cores", "2"][..], &eager()].concat());
    }
}

#[test]
fn a_statement_that_fails_says_why_and_ends_with_1() {
    if only_own("a_statement_that_fails_says_why_and_ends_with_1") {
        return;
    }
    let broker = Broker::start();
    let fails = |statement: &str, why: &str| {
        let (status, output, errors) = ask(&broker, "table", statement);
        assert_eq!((status.code(), output.as_str()), (Some(1), ""), "{statement}: {errors}");
        assert!(errors.contains(why), "{statement}: {errors}");
    };
    fails("SELEC 1", "SELEC");
    fails("SELECT * FROM nothing", "nothing");
    fails("DROP TABLE t", "is refused: tables are topics");
    fails("SELECT 1; SELECT 2", "one statement at a time");
    let (status, output, _) = ask(&broker, "table", "SELECT 1 AS one, 'x' AS two");
    assert!(status.success());
    let table =
        "+-----+-----+\n| one | two |\n+-----+-----+\n| 1   | x   |\n+-----+-----+\n1 row\n";
    assert_eq!(output, table);
    let (_, output, _) = ask(&broker, "csv", "SELECT 1 AS one, NULL AS two");
    assert_eq!(output, "one,two\n1,\n");
    let internal = lines(&broker, "SELECT table_name FROM information_schema.tables");
    assert!(internal.iter().any(|row| row["table_name"] == "pg_class"), "{internal:?}");
}

#[test]
fn http_answers_probes_and_chooses_formats() {
    if only_own("http_answers_probes_and_chooses_formats") {
        return;
    }
    let broker = Broker::start();
    let exchange = |request: &str| {
        let mut stream = connect(broker.service("http"));
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let get = |path: &str| exchange(&format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n"));
    assert!(get("/healthz").starts_with("HTTP/1.0 200"));
    assert!(get("/readyz").starts_with("HTTP/1.0 200"));
    assert!(get("/metrics").contains("basalt_connections{core=\"0\"}"));
    assert!(get("/nothing").starts_with("HTTP/1.0 404"));
    let post = |accept: &str, sql: &str| {
        let bytes = sql.len();
        let head = format!("POST /sql HTTP/1.0\r\nAccept: {accept}\r\nContent-Length: {bytes}");
        exchange(&format!("{head}\r\n\r\n{sql}"))
    };
    assert!(post("*/*", "SELECT 1 AS a").ends_with("\r\n\r\n{\"a\":1}\n"));
    assert!(post("text/csv", "SELECT 1 AS a").ends_with("\r\n\r\na\n1\n"));
    assert!(post("image/png", "SELECT 1").starts_with("HTTP/1.0 406"));
    assert!(post("*/*", "DELETE FROM t").starts_with("HTTP/1.0 403"));
    let unknown = post("*/*", "SELECT * FROM t");
    assert!(unknown.starts_with("HTTP/1.0 400") && unknown.contains("{\"error\":"), "{unknown}");
}
