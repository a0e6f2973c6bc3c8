//! Opens the tables of all topics. Blocks; runs before any core, when the catalogue has been read.
//!
//! What belongs to no topic is removed: the broker ended before it had removed a deleted topic's
//! files. The logs are told what the tables consist of before anything asks them for records, and
//! only then is it known whether records are missing.

use super::logs::Opened;
use crate::catalog::{CatalogImage, Topic};
use crate::config::Config;
use crate::cores::gate::keeper;
use crate::cores::TableRules;
use shard::disk::Disk;
use shard::table::cache::Blocks;
use shard::table::{list_tables, remove_table, table_dir};
use shard::table::{Manifest, ManifestError, StoreError, Version};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use uuid::Uuid;

/// Tables opened at the same time. Each is a few small files.
const THREADS: usize = 8;

/// Iceberg's readers load a table more than once for one query.
const COALESCED_MS: u64 = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    #[error("the tables cannot be listed, or one of a deleted topic not removed: {0}")]
    Store(#[from] StoreError),
    #[error(
        "the table of topic {name} ({topic}) cannot be opened: {source}; restore its files from a \
         copy, or delete the topic with the broker that has them"
    )]
    Open { name: String, topic: Uuid, source: ManifestError },
    #[error("a thread that opened tables died")]
    Died,
}

/// Opens the table of every topic that has one.
pub fn open(
    disk: &Arc<dyn Disk>,
    data: &Path,
    image: &CatalogImage,
) -> Result<Vec<Manifest>, TablesError> {
    let mut known = Vec::new();
    for topic in list_tables(&**disk, data)? {
        match image.of_any_view(topic) {
            Some(topic) => known.push(topic.clone()),
            None => {
                tracing::info!(%topic, "removing the table of a topic that is not there any more");
                remove_table(&**disk, data, topic)?;
            }
        }
    }
    let todo = Mutex::new(known);
    thread::scope(|scope| {
        let open = || scope.spawn(|| open_some(&**disk, data, &todo));
        let threads: Vec<_> = (0..THREADS).map(|_| open()).collect();
        let mut manifests = Vec::new();
        for thread in threads {
            manifests.extend(thread.join().map_err(|_| TablesError::Died)??);
        }
        Ok(manifests)
    })
}

/// The versions of all tables in a data directory whose catalogue need not be readable, by topic.
pub fn all_versions(disk: &dyn Disk, data: &Path) -> Result<Vec<Arc<Version>>, TablesError> {
    let mut manifests = Vec::new();
    for topic in list_tables(disk, data)? {
        let open = Manifest::open(disk, &table_dir(data, topic), topic);
        let (manifest, _) = open.map_err(|source| {
            let name = "of an unknown name".to_string();
            TablesError::Open { name, topic, source }
        })?;
        manifests.push(manifest);
    }
    Ok(versions(&manifests))
}

/// Opens tables as long as there are any to do.
fn open_some(
    disk: &dyn Disk,
    data: &Path,
    todo: &Mutex<Vec<Arc<Topic>>>,
) -> Result<Vec<Manifest>, TablesError> {
    let mut opened = Vec::new();
    loop {
        let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(topic) = next else { return Ok(opened) };
        let open = Manifest::open(disk, &table_dir(data, topic.id), topic.id);
        let (manifest, _) = open.map_err(|source| {
            let name = topic.name.to_string();
            TablesError::Open { name, topic: topic.id, source }
        })?;
        opened.push(manifest);
    }
}

/// The tables each core keeps.
pub fn by_keeper(
    manifests: Vec<Manifest>,
    image: &CatalogImage,
    cores: usize,
) -> Vec<Vec<Manifest>> {
    let mut kept: Vec<Vec<Manifest>> = (0..cores).map(|_| Vec::new()).collect();
    for manifest in manifests {
        let topic = image.of_any_view(manifest.version().topic);
        if let Some(keeps) = topic.and_then(|topic| kept.get_mut(keeper(topic, cores))) {
            keeps.push(manifest);
        }
    }
    kept
}

/// How tables are kept, in the words of the configuration.
pub fn rules(config: &Config) -> TableRules {
    TableRules {
        coalesced_ms: COALESCED_MS,
        settings: config.table_settings(),
        grace_ms: config.iceberg_reader_grace_ms,
        backlog_bytes_max: config.table_backlog_bytes,
        retention_check_ms: config.log_retention_check_interval_ms.unsigned_abs(),
    }
}

/// Tells the logs what the tables of their partitions consist of.
pub fn tell_logs(opened: &mut [Opened], versions: &[Arc<Version>]) {
    let of_topic = |topic: Uuid| {
        let at = versions.binary_search_by_key(&topic, |version| version.topic);
        at.ok().and_then(|at| versions.get(at))
    };
    for Opened { log, .. } in opened {
        let all: Vec<_> = log.partitions().collect();
        for (id, key) in all {
            if let Some(version) = of_topic(key.topic) {
                log.set_table(id, version.clone());
            }
        }
    }
}

/// Has all logs share the memory for what is made of table files again.
pub fn share_blocks(opened: &mut [Opened], disk: &Arc<dyn Disk>, bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let blocks = Arc::new(Blocks::new(disk.clone(), bytes));
    for Opened { log, .. } in opened {
        log.set_blocks(blocks.clone());
    }
}

/// The versions in force, by topic.
pub fn versions(manifests: &[Manifest]) -> Vec<Arc<Version>> {
    let mut versions: Vec<_> =
        manifests.iter().map(|manifest| manifest.version().clone()).collect();
    versions.sort_unstable_by_key(|version| version.topic);
    versions
}
