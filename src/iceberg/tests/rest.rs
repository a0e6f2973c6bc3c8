//! The catalogue over HTTP, as clients call it.

use super::*;
use crate::iceberg::{router, Catalogue, Settings};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tokio::runtime::Runtime;

/// A catalogue that is served, on a runtime of its own.
struct Served {
    address: SocketAddr,
    tables: Arc<MadeTables>,
    _runtime: Runtime,
    folder: Folder,
}

impl Served {
    fn new() -> Served {
        let tables = Arc::new(MadeTables::default());
        let settings = Settings { reader_grace_ms: 60_000 };
        let catalogue = Catalogue::new(tables.clone(), Arc::new(RealDisk), settings);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let listening = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(listening).expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = axum::Router::new().nest("/iceberg", router(catalogue));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Served { address, tables, _runtime: runtime, folder: Folder::new() }
    }

    fn add(&self, name: &str, rows: i64) {
        let mut table = MadeTable::new(&self.folder.0);
        if rows > 0 {
            table.append(&[0], rows);
        }
        self.tables.add(name, table);
    }

    fn change(&self, name: &str, work: impl Fn(&mut MadeTable)) {
        let mut tables = self.tables.0.lock().expect("not poisoned");
        tables.iter_mut().filter(|(known, _)| **known == *name).for_each(|(_, it)| work(it));
    }

    fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        let head = "Host: basalt\r\nConnection: close\r\nContent-Length: 2";
        write!(stream, "{method} /iceberg{path} HTTP/1.1\r\n{head}\r\n\r\n{{}}").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = if body.is_empty() { Value::Null } else { json_of(body) };
        (status.expect("a status"), body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

fn json_of(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

const TABLES: &str = "/v1/namespaces/kafka_topics/tables";

#[test]
fn readers_find_their_way_to_a_table() {
    let served = Served::new();
    served.add("lava", 30);
    served.add("Ash.x_y-z", 0);
    let config = served.get("/v1/config?warehouse=default");
    let endpoints = config["endpoints"].as_array().expect("endpoints");
    let only_reads = |endpoint: &Value| {
        let text = endpoint.as_str().expect("text");
        text.starts_with("GET ") || text.starts_with("HEAD ")
    };
    assert!(endpoints.len() == 6 && endpoints.iter().all(only_reads), "{config}");
    assert_eq!(served.get("/v1/namespaces"), json!({"namespaces": [["kafka_topics"]]}));
    let nested = served.get("/v1/namespaces?parent=kafka_topics");
    assert_eq!(nested, json!({"namespaces": []}));
    assert_eq!(served.get("/v1/namespaces/kafka_topics")["namespace"], json!(["kafka_topics"]));
    let names = |name: &str| json!({"namespace": ["kafka_topics"], "name": name});
    let all = json!({"identifiers": [names("Ash.x_y-z"), names("lava")]});
    assert_eq!(served.get(TABLES), all);
    let table = served.get(&format!("{TABLES}/lava"));
    assert_eq!(table["metadata"]["snapshots"][0]["summary"]["total-records"], "30");
    assert_eq!(table["metadata"]["format-version"], 2);
    let location = table["metadata-location"].as_str().expect("text");
    let path = location.strip_prefix("file://").expect("a location");
    assert_eq!(json_of(&fs::read_to_string(path).expect("read")), table["metadata"]);
    let empty = served.get(&format!("{TABLES}/Ash.x_y-z"));
    assert_eq!(empty["metadata"]["current-snapshot-id"], Value::Null);
    for path in ["/v1/namespaces/kafka_topics", &format!("{TABLES}/lava")] {
        assert_eq!(served.ask("HEAD", path), (204, Value::Null), "{path}");
    }
}

#[test]
fn snapshots_come_all_or_as_references_name_them() {
    let served = Served::new();
    served.add("lava", 30);
    served.get(&format!("{TABLES}/lava"));
    served.change("lava", |table| table.append(&[0], 5));
    let all = served.get(&format!("{TABLES}/lava?snapshots=all"));
    assert_eq!(all["metadata"]["snapshots"].as_array().map(Vec::len), Some(2));
    let named = served.get(&format!("{TABLES}/lava?snapshots=refs"));
    let snapshots = named["metadata"]["snapshots"].as_array().expect("snapshots");
    let newest = &named["metadata"]["current-snapshot-id"];
    assert_eq!(snapshots.iter().map(|it| &it["snapshot-id"]).collect::<Vec<_>>(), [newest]);
    assert_eq!(snapshots[0]["summary"]["total-records"], "35");
}

#[test]
fn tables_come_in_pages_that_miss_none() {
    let served = Served::new();
    let names: Vec<String> = (0..25).map(|number| format!("topic-{number:02}")).collect();
    names.iter().rev().for_each(|name| served.add(name, 0));
    let (mut token, mut found) = (String::new(), Vec::new());
    loop {
        let page = served.get(&format!("{TABLES}?pageToken={token}&pageSize=10"));
        let here = page["identifiers"].as_array().expect("identifiers");
        assert!(here.len() <= 10);
        found.extend(here.iter().map(|it| it["name"].as_str().expect("text").to_string()));
        match page["next-page-token"].as_str() {
            Some(next) => token = next.into(),
            None => break,
        }
    }
    assert_eq!(found, names);
}

#[test]
fn whatever_is_not_there_or_writes_is_refused_in_words() {
    let served = Served::new();
    served.add("lava", 1);
    served.add("deleted-below", 10);
    served.change("deleted-below", |table| table.start_at(0, shard::ids::Offset(3)));
    let elsewhere = "/v1/namespaces/a%1Fb/tables/lava";
    let cases = [
        ("GET", "/v1/config?warehouse=s3://x", 404, "NotFoundException", "no warehouse s3://x"),
        ("GET", "/v1/namespaces?parent=a", 404, "NoSuchNamespaceException", "no namespace a;"),
        ("GET", elsewhere, 404, "NoSuchNamespaceException", "no namespace a.b;"),
        ("GET", &format!("{TABLES}/ash"), 404, "NoSuchTableException", "no topic ash"),
        ("GET", &format!("{TABLES}/lava?snapshots=x"), 400, "BadRequestException", "neither"),
        ("GET", &format!("{TABLES}?pageToken=&pageSize=x"), 400, "BadRequestException", "digit"),
        ("GET", "/v1/namespaces/kafka_topics/views", 404, "NotFoundException", "no /v1/"),
        ("GET", &format!("{TABLES}/deleted-below"), 503, "ServiceUnavailable", "at offset 3"),
        ("POST", "/v1/namespaces", 406, "UnsupportedOperation", "read-only"),
        ("POST", TABLES, 406, "UnsupportedOperation", "through Kafka"),
        ("POST", &format!("{TABLES}/lava"), 406, "UnsupportedOperation", "through Kafka"),
        ("DELETE", &format!("{TABLES}/lava"), 406, "UnsupportedOperation", "DELETE /v1"),
        ("POST", "/v1/transactions/commit", 406, "UnsupportedOperation", "through Kafka"),
    ];
    for (method, path, status, kind, words) in cases {
        let (got, body) = served.ask(method, path);
        let error = &body["error"];
        let is_right = got == status
            && error["code"] == status
            && error["type"].as_str().is_some_and(|text| text.starts_with(kind))
            && error["message"].as_str().is_some_and(|text| text.contains(words));
        assert!(is_right, "{method} {path}: {got} {body}");
    }
    for path in [&format!("{TABLES}/ash"), "/v1/namespaces/other"] {
        assert_eq!(served.ask("HEAD", path).0, 404, "{path}");
    }
}

#[test]
fn many_readers_at_once_see_one_history() {
    let served = Served::new();
    served.add("lava", 10);
    let path = format!("{TABLES}/lava");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| drop(served.get(&path))));
        }
        (0..10).for_each(|_| served.change("lava", |table| table.append(&[0], 1)));
    });
    let table = served.get(&path);
    let snapshots = table["metadata"]["snapshots"].as_array().expect("snapshots");
    let rows = |it: &Value| it["summary"]["total-records"].as_str().and_then(|n| n.parse().ok());
    let rows: Vec<u64> = snapshots.iter().filter_map(rows).collect();
    assert_eq!(rows.iter().max(), Some(&20));
    assert!(snapshots.len() <= 11, "{rows:?}");
}
