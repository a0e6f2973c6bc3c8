//! Tables: what the log holds of a topic, again as columns, in files that never change.
//!
//! `version` is what a table consists of at one moment, as readers hold it; `manifest` makes one
//! version out of another, on the disk; `plan` says what is to be done, `store` where tables are. The batches of a
//! partition enter a table in order; below its table end everything is in files, and the log may
//! let go of it. Like the log, tables are driven from outside: work goes out as values that a
//! worker runs, and the outcome comes back.
//!
//! Invariants: the ranges of a partition follow one another without a hole; a file that a version
//! names is durable before the version is; what a reader's version names stays readable as long as
//! it holds the version.

mod error;
pub mod file;
mod manifest;
mod plan;
pub mod rows;
pub mod schema;
mod store;
mod version;

pub use error::{Damage, TableError};
pub use manifest::{Damage as ManifestDamage, Edit, Expired, Manifest, ManifestError};
pub use plan::{columnarise_due, Due, Pending, TableSettings};
pub use store::{list_tables, remove_table, table_dir, StoreError};
pub use version::{file_path, Compacted, FileFacts, FileId, Part, PartAt, TableFile, Version};
