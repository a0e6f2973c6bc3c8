//! Tables of real files, loaded as readers do.

mod loads;
mod rest;

use super::made::MadeTable;
use super::store::Store;
use super::table::{Loaded, Table};
use super::{FreshenError, Tables, Topic};
use futures::future::{ready, BoxFuture, FutureExt};
use shard::disk::RealDisk;
use shard::table::Version;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let dir = std::env::temp_dir().join(format!("basalt-iceberg-{}", Uuid::new_v4()));
        fs::create_dir(&dir).expect("a folder for the test");
        Folder(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Topics whose tables are made by hand.
#[derive(Default)]
struct MadeTables(Mutex<Vec<(Arc<str>, MadeTable)>>);

impl MadeTables {
    fn add(&self, name: &str, table: MadeTable) {
        self.0.lock().expect("not poisoned").push((name.into(), table));
    }
}

impl Tables for MadeTables {
    fn names(&self) -> Vec<Arc<str>> {
        self.0.lock().expect("not poisoned").iter().map(|(name, _)| name.clone()).collect()
    }

    fn find(&self, name: &str) -> Option<Topic> {
        let tables = self.0.lock().expect("not poisoned");
        let (name, table) = tables.iter().find(|(known, _)| **known == *name)?;
        Some(Topic { id: table.topic, name: name.clone(), table: table.dir.clone() })
    }

    fn freshen(&self, topic: Uuid) -> BoxFuture<'static, Result<Arc<Version>, FreshenError>> {
        let tables = self.0.lock().expect("not poisoned");
        let found = tables.iter().find(|(_, table)| table.topic == topic);
        let version = found.map(|(_, table)| table.version()).ok_or(FreshenError::Gone);
        ready(version).boxed()
    }
}

const GRACE_MS: i64 = 600_000;
/// When tests begin.
const NOON: i64 = 1_800_000_000_000;

fn open(made: &MadeTable, now_ms: i64) -> Table {
    let store = Store::new(Arc::new(RealDisk), &made.dir).expect("a plain path");
    Table::open(store, made.topic, GRACE_MS, now_ms).expect("opened")
}

/// What a load at this time shows.
fn load(table: &mut Table, made: &MadeTable, at_ms: i64) -> Loaded {
    table.load(&made.version(), at_ms, at_ms).expect("loaded")
}

/// The rows that the newest snapshot says it has, and how many snapshots there are.
fn seen(loaded: &Loaded) -> (u64, usize) {
    let newest = loaded.metadata.current_snapshot().expect("a snapshot");
    let rows = &newest.summary().additional_properties["total-records"];
    (rows.parse().expect("a number"), loaded.metadata.snapshots().len())
}

/// The metadata files of a table.
fn metadata_files(table: &Path) -> Vec<String> {
    let read = fs::read_dir(table.join("metadata")).expect("metadata");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    read.map(name).collect()
}
