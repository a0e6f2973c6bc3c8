//! What queries may use, so that they never take from the log what it needs.
//!
//! Memory and spilled bytes are limits of DataFusion's pools; here are the number of queries that
//! run at once, the time each may take, and the words an error says when a limit was met: each
//! names the configuration key that sets it.

use datafusion::error::DataFusionError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of all queries of a broker.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub memory_bytes: usize,
    pub spill_bytes: u64,
    pub timeout: Duration,
    pub concurrency: usize,
    /// How long a query waits for others to end before it is refused.
    pub patience: Duration,
    pub threads: usize,
}

/// A limit that was met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    #[error(
        "{running} queries are running, which is as many as may (sql.concurrency), and none ended \
         within {} ms", .waited.as_millis()
    )]
    Concurrency { running: usize, waited: Duration },
    #[error("the query ran longer than {} ms (sql.timeout.ms)", .0.as_millis())]
    Time(Duration),
    #[error("the query needs more memory than there is for queries (sql.memory.bytes): {0}")]
    Memory(String),
    #[error("the query spilled more than it may (sql.spill.bytes): {0}")]
    Spill(String),
}

/// Lets queries in, a few at a time.
#[derive(Debug)]
pub struct Limits {
    settings: Settings,
    running: Arc<Semaphore>,
}

/// A query that was let in; others are when it is dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    pub deadline: Instant,
}

impl Limits {
    pub fn new(settings: Settings) -> Limits {
        Limits { settings, running: Arc::new(Semaphore::new(settings.concurrency)) }
    }

    pub fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Waits for a place, for a short time.
    pub async fn admit(&self) -> Result<Permit, Exceeded> {
        let waited = self.settings.patience.min(self.settings.timeout);
        let place = self.running.clone().acquire_owned();
        match tokio::time::timeout(waited, place).await {
            Ok(Ok(permit)) => {
                let deadline = Instant::now() + self.settings.timeout;
                Ok(Permit { _permit: permit, deadline })
            }
            // The semaphore is never closed; a closed one would let nobody in either.
            Ok(Err(_)) | Err(_) => {
                Err(Exceeded::Concurrency { running: self.settings.concurrency, waited })
            }
        }
    }
}

impl From<Exceeded> for DataFusionError {
    fn from(exceeded: Exceeded) -> DataFusionError {
        DataFusionError::External(Box::new(exceeded))
    }
}

/// The limit an error of DataFusion tells of, if it is one.
pub fn exceeded(error: &DataFusionError) -> Option<Exceeded> {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(text) => {
            let first = text.lines().next().unwrap_or_default().to_string();
            match text.contains("disk") && !text.contains("Failed to allocate") {
                true => Some(Exceeded::Spill(first)),
                false => Some(Exceeded::Memory(first)),
            }
        }
        DataFusionError::External(other) => other.downcast_ref::<Exceeded>().cloned(),
        _ => None,
    }
}
