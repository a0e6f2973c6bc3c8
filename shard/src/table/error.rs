//! What can go wrong with a table's files.
//!
//! Returned by everything that writes or reads them. A damaged file is told apart from a disk that
//! fails: the first concerns the offsets of that file, the second may pass.

use crate::ids::Offset;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The bytes are not what was written.
    #[error("{} is damaged: {damage}", path.display())]
    Damaged { path: PathBuf, damage: Damage },
    /// Rows were added that do not follow the ones before them, or are outside the covered range.
    #[error("{}: row {partition}/{offset} is out of place", path.display())]
    OutOfPlace { path: PathBuf, partition: i32, offset: Offset },
    /// Columns that are not the ones of a table.
    #[error("{}: columns do not fit: {reason}", path.display())]
    Columns { path: PathBuf, reason: String },
    /// Asked for a partition the file has nothing of.
    #[error("{} has no partition {partition}", path.display())]
    NoPartition { path: PathBuf, partition: i32 },
}

/// How a file's bytes contradict what was written.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("{bytes} bytes are no table file")]
    Short { bytes: u64 },
    #[error("the file ends in no Parquet footer")]
    Footer,
    #[error("the footer names no {0}")]
    Missing(&'static str),
    #[error("format {0} is not known")]
    Format(String),
    #[error("the checksum of the footer is {computed:08x}, the file says {stored}")]
    Tail { stored: String, computed: u32 },
    #[error("the checksum of block {block} is {computed:08x}, the footer says {stored:08x}")]
    Block { block: u64, stored: u32, computed: u32 },
    #[error("bytes {from} to {to} are outside the data")]
    Range { from: u64, to: u64 },
    #[error("{got} rows where the footer promises {expected}")]
    Rows { expected: u64, got: u64 },
    #[error("{bytes} bytes, {expected} were written")]
    Length { bytes: u64, expected: u64 },
    #[error("{0}")]
    Parquet(String),
}

impl TableError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> TableError + '_ {
        |source| TableError::Io { path: path.to_path_buf(), source }
    }

    pub(super) fn damaged(path: &Path, damage: Damage) -> TableError {
        TableError::Damaged { path: path.to_path_buf(), damage }
    }
}
