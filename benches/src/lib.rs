//! Benches of the storage engine, each a function from a size to a report.
//!
//! `drive` runs a log with its jobs on threads of their own, as the broker does; `load` appends to
//! it at a rate; `events` makes the records tables are measured with; the benches (`append`,
//! `device`, `recovery`, `validation`, `partitions`, `commits`, `relocation`, `columnarise`,
//! `rebatch`) say what is measured. `report` and `counters` serve the tools in
//! `perf/` too. No bench asserts a time.

pub mod append;
pub mod columnarise;
pub mod commits;
pub mod counters;
pub mod device;
pub mod drive;
pub mod error;
pub mod events;
pub mod hash;
pub mod load;
pub mod partitions;
pub mod rebatch;
pub mod recovery;
pub mod relocation;
pub mod report;
pub mod validation;

pub use error::BenchError;
