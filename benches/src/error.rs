//! Why a bench did not come to an end.

use shard::log::{AppendError, Failure, OpenError};
use shard::table::rows::RowsError;
use shard::table::TableError;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("opening the log: {0}")]
    Open(#[from] OpenError),
    #[error("appending: {0}")]
    Append(#[from] AppendError),
    #[error("a job of the log: {0}")]
    Job(#[from] Failure),
    #[error("making rows: {0}")]
    Rows(#[from] RowsError),
    #[error("a table file: {0}")]
    Table(#[from] TableError),
    #[error("a thread of the log has gone")]
    Lane,
    #[error("the log has been busy for {seconds} s")]
    Stuck { seconds: u64 },
    #[error("batch {offset} does not read back")]
    ReadBack { offset: i64 },
    #[error("the helper process ended early: {0}")]
    Child(String),
    #[error("a report is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("rounds of one bench gave different results: {first:016x} and {other:016x}")]
    Different { first: u64, other: u64 },
}

impl BenchError {
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> BenchError {
        let path = path.into();
        move |source| BenchError::File { path, source }
    }
}
