//! Iceberg: each topic as a table that Spark, Trino, DuckDB, Polars and others read.
//!
//! A leaf: it asks for a version of a topic's table through [`Tables`] and knows no core. From the
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

use futures::future::BoxFuture;
use shard::table::Version;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

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
    /// called are in its files, and none below the log start are.
    fn freshen(&self, topic: Uuid) -> BoxFuture<'static, Result<Arc<Version>, FreshenError>>;
}

#[derive(Debug, thiserror::Error)]
pub enum FreshenError {
    #[error("the topic was deleted")]
    Gone,
    #[error("its newest rows could not be put into its table: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}
