//! The configuration of the broker and of its topics.
//!
//! [`Config`] is built once at start from defaults, a TOML file, flags and `--set`; [`KEYS`] lists
//! every key with its bounds and meaning. [`topic`] knows what a topic may be told, checks it and
//! resolves it over the broker's defaults; [`describe`] turns both into what DescribeConfigs
//! answers. Nothing here does I/O but reading the file, and nothing knows requests or error codes.

mod choice;
pub mod describe;
mod engine;
mod error;
mod example;
mod keys;
mod load;
mod nearest;
mod threads;
pub mod topic;
mod units;
mod value;

pub use choice::{Advertise, Cleanup, Compression, Flush, TimestampType};
pub use error::{BadView, ConfigError, ConfigErrors, Conflict, Origin};
pub use keys::{Config, Effect, Key, KEYS};
pub use load::{Entry, Sources};
pub use threads::Threads;
pub use value::{AddressCounts, BadValue, HostPort, Kind, Value};

#[cfg(test)]
mod load_test;
#[cfg(test)]
mod topic_test;
