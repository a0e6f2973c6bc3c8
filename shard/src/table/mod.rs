//! Tables: what the log holds of a topic, again as columns, in files that never change.
//!
//! `version` is what a table consists of at one moment, as readers hold it; `manifest` makes one
//! version out of another, on the disk; `plan` says what is to be done, `store` where tables are.
//! `rows` makes columns of batches, `file` keeps them, `rebatch` makes batches again and `cache`
//! shares those; `seek` finds a record by its time. The jobs are `columnarise`, `merge` and
//! `compact`, carried by `rewrite` and `job`; `upkeep` says which is next.
//!
//! The batches of a partition enter a table in order; below its table end everything is in files,
//! and the log may let go of it. Like the log, tables are driven from outside: work goes out as
//! values that a worker runs, and the outcome comes back.
//!
//! Invariants: the ranges of a partition follow one another without a hole; a file that a version
//! names is durable before the version is; what a reader's version names stays readable as long as
//! it holds the version.

pub mod cache;
mod columnarise;
mod compact;
mod error;
pub mod file;
mod job;
mod manifest;
pub mod memory;
mod merge;
mod plan;
pub mod rebatch;
mod rewrite;
pub mod rows;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod seek;
mod store;
mod upkeep;
mod version;

pub use columnarise::{columnarise, Batches, Source};
pub use compact::Compact;
pub use error::{Damage, TableError};
pub use job::{JobError, Site};
pub use manifest::{Damage as ManifestDamage, Edit, Expired, Manifest, ManifestError};
pub use merge::{trim_due, LogStarts, Rewrite};
pub use plan::{columnarise_due, Due, Pending, TableSettings};
pub use store::{list_tables, remove_table, table_dir, StoreError};
pub use upkeep::{unlink, upkeep_due, Upkeep};
pub use version::{file_path, Compacted, FileFacts, FileId, Part, PartAt, TableFile, Version};
