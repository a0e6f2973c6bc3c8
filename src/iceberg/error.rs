//! What can go wrong between a table and its Iceberg metadata.

use iceberg::spec::DataFileBuilderError;
use shard::ids::Offset;
use shard::table::TableError;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum IcebergError {
    #[error("{path}: {source}")]
    Disk { path: PathBuf, source: io::Error },
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("{path} cannot be named in metadata: it is not UTF-8, or not absolute")]
    Path { path: PathBuf },
    #[error("the metadata does not fit together: {0}")]
    Metadata(#[from] iceberg::Error),
    #[error(transparent)]
    TableFile(#[from] TableError),
    #[error("a data file cannot be described: {0}")]
    DataFile(#[from] DataFileBuilderError),
    #[error("the metadata is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "partition {partition} begins at offset {start} and a file of the table still has rows \
         below it; they are being removed, try again"
    )]
    Untrimmed { partition: i32, start: Offset },
}
