//! Tables: what the log holds of a topic, again as columns, in files that never change.
//!
//! `version` is what a table consists of at one moment, as readers hold it. The batches of a
//! partition enter a table in order; below its table end everything is in files, and the log may
//! let go of it. Like the log, tables are driven from outside: work goes out as values that a
//! worker runs, and the outcome comes back.
//!
//! Invariants: the ranges of a partition follow one another without a hole; a file that a version
//! names is durable before the version is; what a reader's version names stays readable as long as
//! it holds the version.

pub mod cache;
mod error;
pub mod file;
pub mod memory;
pub mod rebatch;
pub mod rows;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod seek;
mod version;

pub use error::{Damage, TableError};
pub use version::{file_path, FileFacts, FileId, Part, PartAt, TableFile, Version};
