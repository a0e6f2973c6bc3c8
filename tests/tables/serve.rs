//! A catalogue with one topic, `made`, whose table changes as it is told: for readers of Iceberg
//! without a broker around them.
//!
//! Prints `ready http=ADDRESS`, then takes a command a line and answers `done`:
//! `append PARTITION[,PARTITION…] COUNT`, `merge`, `compact`, `drop` (the oldest file),
//! `start PARTITION OFFSET`, and `rows`, which prints the rows there should be as
//! tests/tables/rows.py has them.

#[path = "../../src/iceberg/made.rs"]
mod made;

use basalt::iceberg::{router, Catalogue, FreshenError, Settings, Tables, Topic};
use futures::future::{ready, BoxFuture, FutureExt};
use made::{record, MadeTable};
use serde_json::{json, Value};
use shard::disk::RealDisk;
use shard::ids::{Offset, Timestamp};
use shard::table::Version;
use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use uuid::Uuid;

const NAME: &str = "made";

struct One(Mutex<MadeTable>);

impl One {
    fn table(&self) -> MutexGuard<'_, MadeTable> {
        self.0.lock().expect("not poisoned")
    }
}

impl Tables for One {
    fn names(&self) -> Vec<Arc<str>> {
        vec![NAME.into()]
    }

    fn find(&self, name: &str) -> Option<Topic> {
        let table = self.table();
        let topic = Topic { id: table.topic, name: NAME.into(), table: table.dir.clone() };
        (name == NAME).then_some(topic)
    }

    fn freshen(&self, _: Uuid) -> BoxFuture<'static, Result<Arc<Version>, FreshenError>> {
        ready(Ok(self.table().version())).boxed()
    }
}

/// Microseconds, unless databases have no such time.
fn micros(time: Timestamp) -> Option<i64> {
    (time.0 >= 0).then(|| time.0.checked_mul(1000)).flatten()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn row(partition: i32, offset: i64) -> Value {
    let made = record(partition, offset);
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| hex(bytes));
    let header = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| json!([hex(name), text(value)]);
    let headers: Vec<Value> = made.headers.iter().map(header).collect();
    let times = (micros(made.append_time), micros(made.timestamp));
    json!([partition, offset, text(&made.key), text(&made.value), headers, times.0, times.1])
}

fn obey(table: &mut MadeTable, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["append", partitions, count] => {
            let partitions: Vec<i32> =
                partitions.split(',').map(|one| one.parse().expect("a number")).collect();
            table.append(&partitions, count.parse().expect("a number"));
        }
        ["merge"] => table.merge(),
        ["compact"] => table.compact(),
        ["drop"] => table.drop_oldest(),
        ["start", partition, offset] => {
            let start = Offset(offset.parse().expect("a number"));
            table.start_at(partition.parse().expect("a number"), start);
        }
        ["rows"] => {
            for (partition, offset) in table.rows() {
                println!("{}", row(partition, offset));
            }
        }
        _ => panic!("{command} is no command"),
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let tables = Arc::new(One(Mutex::new(MadeTable::new(Path::new(&dir)))));
    let settings = Settings { reader_grace_ms: 600_000 };
    let catalogue = Catalogue::new(tables.clone(), Arc::new(RealDisk), settings);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listening = tokio::net::TcpListener::bind("127.0.0.1:0");
    let listener = runtime.block_on(listening).expect("a port");
    println!("ready http={}", listener.local_addr().expect("an address"));
    let app = axum::Router::new().nest("/iceberg", router(catalogue));
    runtime.spawn(async move { axum::serve(listener, app).await });
    for command in std::io::stdin().lock().lines() {
        obey(&mut tables.table(), &command.expect("a line"));
        println!("done");
    }
}
