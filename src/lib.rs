//! Basalt: a Kafka-compatible event broker in which every topic is also a table.
//!
//! Layers, each naming only those below it: `net`, `protocol`, `handlers`, `cores`, `shard`.

pub mod banner;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod cores;
pub mod errors;
pub mod handlers;
pub mod protocol;
