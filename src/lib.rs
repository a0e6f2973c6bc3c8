//! Basalt: a Kafka-compatible event broker in which every topic is also a table.
//!
//! The data path reads from top to bottom: `net` takes frames off a connection, the handlers turn
//! requests into asks, `cores` carries them to the core that owns the partition, and the engine
//! crate `shard` keeps the bytes. Imports point down only.

pub mod banner;
pub mod broker;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod coordinator;
pub mod cores;
pub mod errors;
pub mod handlers;
pub mod http;
#[cfg(feature = "iceberg")]
pub mod iceberg;
pub mod inspect;
pub mod metrics;
pub mod net;
pub mod preflight;
pub mod protocol;
#[cfg(feature = "sql")]
pub mod query;
pub mod runtime;
pub mod state_machine;
