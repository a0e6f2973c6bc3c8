//! The tables somebody has loaded lately, each brought up to date by one load at a time.
//!
//! A load first asks for a fresh version (which costs nothing when there are no new rows), then
//! waits for its turn with the table and derives metadata on a blocking thread. What is kept for
//! readers is let go by a task that runs as long as there is something to let go; a table nobody
//! has loaded for a grace period takes no memory.

use super::error::IcebergError;
use super::store::Store;
use super::table::{Loaded, Table};
use super::{FreshenError, Tables, Topic};
use shard::disk::Disk;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Mutex as Turn;
use tokio::task::{spawn_blocking, JoinError};
use uuid::Uuid;

/// How often what may go is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// For how long what a reader was shown stays readable.
    pub reader_grace_ms: u64,
}

/// Why a table cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Fresh(#[from] FreshenError),
    #[error(transparent)]
    Derived(#[from] IcebergError),
    #[error("the load did not come to its end: {0}")]
    Ended(#[from] JoinError),
}

/// `None` until it was loaded once.
type Slot = Arc<Turn<Option<Table>>>;

pub struct Catalogue {
    tables: Arc<dyn Tables>,
    disk: Arc<dyn Disk>,
    settings: Settings,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    slots: HashMap<Uuid, Slot>,
    is_swept: bool,
}

impl Catalogue {
    pub fn new(tables: Arc<dyn Tables>, disk: Arc<dyn Disk>, settings: Settings) -> Arc<Catalogue> {
        Arc::new(Catalogue { tables, disk, settings, known: Mutex::default() })
    }

    /// The names of all tables, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names = self.tables.names();
        names.sort_unstable();
        names
    }

    pub fn find(&self, name: &str) -> Option<Topic> {
        self.tables.find(name)
    }

    /// The metadata of a topic's table with every row that is committed now.
    pub async fn load(self: &Arc<Self>, topic: &Topic) -> Result<Loaded, LoadError> {
        let asked_ms = now_ms();
        let version = self.tables.freshen(topic.id).await?;
        let slot = self.known().slots.entry(topic.id).or_default().clone();
        self.keep_sweeping();
        let mut turn = slot.lock_owned().await;
        let (disk, topic) = (self.disk.clone(), topic.clone());
        let grace_ms = i64::try_from(self.settings.reader_grace_ms).unwrap_or(i64::MAX);
        let load = move || -> Result<Loaded, IcebergError> {
            let now_ms = now_ms();
            let mut table = match turn.take() {
                Some(table) => table,
                None => {
                    let store = Store::new(disk, &topic.table)?;
                    Table::open(store, topic.id, grace_ms, now_ms)?
                }
            };
            let loaded = table.load(&version, asked_ms, now_ms);
            *turn = Some(table);
            loaded
        };
        Ok(spawn_blocking(load).await??)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_sweeping(self: &Arc<Self>) {
        if std::mem::replace(&mut self.known().is_swept, true) {
            return;
        }
        let catalogue = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                match catalogue.upgrade() {
                    Some(catalogue) if catalogue.sweep().await => {}
                    _ => return,
                }
            }
        });
    }

    /// Lets go of what readers need no longer; whether there is anything to come back for.
    async fn sweep(self: &Arc<Self>) -> bool {
        let slots: Vec<(Uuid, Slot)> =
            self.known().slots.iter().map(|(id, slot)| (*id, slot.clone())).collect();
        for (topic, slot) in slots {
            let mut turn = slot.clone().lock_owned().await;
            let swept = spawn_blocking(move || {
                let has_more = turn.as_mut().is_some_and(|table| table.sweep(now_ms()));
                if !has_more {
                    *turn = None;
                }
                has_more
            });
            if !matches!(swept.await, Ok(false)) {
                continue;
            }
            let mut known = self.known();
            // Two: the map's and this one. Nobody can take another while the map is locked.
            if Arc::strong_count(&slot) == 2 {
                known.slots.remove(&topic);
            }
        }
        let mut known = self.known();
        known.is_swept = !known.slots.is_empty();
        known.is_swept
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
