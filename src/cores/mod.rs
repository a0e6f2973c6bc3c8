//! The cores of the broker and what passes between them.
//!
//! `front` is what handlers may ask, `door` the answer to it over real cores. `core` owns logs and
//! serves asks, each log at home in a `host`, partitions found by `routes`, what is due done in
//! `upkeep`; `ask` and `mesh` are the messages between cores, `gate` those of other threads,
//! `gather` splits requests and joins answers; `append` and `watch` are those who wait. `jobs` runs
//! what blocks, `tables` has topics written as tables, held back by `throttle` when they do not
//! keep up. `machines` is where state machines live, `catalog` and `groups` are those there are,
//! `lag` says how far groups are behind; `arrivals` passes connections on, `cold` bounds what is
//! read from the disk, `life` starts and ends a core's tasks.

mod alarms;
mod append;
mod arrivals;
mod ask;
mod catalog;
mod cold;
mod core;
mod counts;
mod door;
pub mod front;
pub mod gate;
mod gather;
mod groups;
mod host;
mod jobs;
mod lag;
mod life;
mod machines;
mod mesh;
mod notify;
mod routes;
mod tables;
#[cfg(test)]
mod tests;
mod throttle;
mod upkeep;
mod watch;

pub use catalog::CATALOG_AT;
pub use core::{Core, CoreParts, SettingsOf, CATALOG_SETTINGS};
pub use door::Door;
pub use jobs::{home, Finished, Home, Lanes, Threads, ToHome, WorkError};
pub use life::{Life, Quiet};
pub use mesh::{mesh, Ends};
pub use tables::{TableLane, TableParts, TableRules};
pub use throttle::Throttle;
