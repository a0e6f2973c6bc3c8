//! Iceberg: each topic as a table that Spark, Trino, DuckDB, Polars and others read.
//!
//! A leaf: it asks for a version of a topic's table through [`Tables`] (`live` in a broker). From the
//! version it derives Iceberg v2 metadata and answers as a read-only REST catalogue:
//!
//! `rest` (HTTP) → `catalogue` (one load at a time per table) → `table` (snapshots brought up to a
//! version) → `next` (the metadata to come) → `change` (what happened), `snapshot` (written down),
//! `file` (what a Parquet file says of itself), `manifest`, `schema` → `store` (metadata files).
//!
//! Data files are never written here, and metadata is never the truth: it can be thrown away.
//!
//! Gaps: readers need the broker's file system (`file://` locations); one view is one catalogue;
//! a restart ends time travel to snapshots whose files were replaced; Iceberg's snapshots are made
//! when somebody loads the table, so there is none for times when nobody did.

mod catalogue;
mod change;
mod error;
mod file;
mod live;
#[cfg(test)]
mod made;
mod manifest;
mod next;
mod rest;
mod schema;
mod snapshot;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, Settings};
pub use error::IcebergError;
pub use rest::router;

use crate::catalog::DEFAULT_VIEW;
use crate::config::Config;
use crate::cores::gate::Gate;
use axum::Router;
use futures::future::BoxFuture;
use shard::disk::Disk;
use shard::table::Version;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

/// Where the catalogue is served.
const AT: &str = "/iceberg";

/// The catalogue of a broker's topics, at its place.
pub fn of_broker(config: &Config, disk: Arc<dyn Disk>, gate: Gate) -> Router {
    let settings = Settings { reader_grace_ms: config.iceberg_reader_grace_ms.unsigned_abs() };
    let tables = Arc::new(live::Live { gate, view: DEFAULT_VIEW });
    Router::new().nest(AT, router(Catalogue::new(tables, disk, settings)))
}

/// A topic that is a table.
#[derive(Clone, Debug)]
pub struct Topic {
    pub id: Uuid,
    pub name: Arc<str>,
    /// The directory of its table, which need not be there yet.
    pub table: PathBuf,
}

/// Where tables come from: the broker, or a directory in tests. Topics are those of one view, and
/// internal ones are not among them.
pub trait Tables: Send + Sync + 'static {
    /// The names of all topics, in any order.
    fn names(&self) -> Vec<Arc<str>>;
    fn find(&self, name: &str) -> Option<Topic>;
    /// The newest version of the topic's table, once all rows that were committed when this was
    /// called (or a moment before) are in its files, and none below the log start are.
    fn freshen(&self, topic: Uuid) -> BoxFuture<'static, Result<Arc<Version>, FreshenError>>;
}

#[derive(Debug, thiserror::Error)]
pub enum FreshenError {
    #[error("the topic was deleted")]
    Gone,
    #[error("its newest rows could not be put into its table: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}
