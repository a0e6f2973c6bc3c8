//! Basalt: a Kafka-compatible event broker in which every topic is also a table.
//!
<<<<<<< HEAD
//! Layers, each naming only those below it: `net`, `protocol`, `handlers`, `cores`, `shard`.
=======
//! The data path reads from top to bottom: `net` takes frames off a connection, the handlers turn
//! requests into asks, `cores` carries them to the core that owns the partition, and the engine
//! crate `shard` keeps the bytes. Imports point down only.
>>>>>>> main

pub mod banner;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod cores;
<<<<<<< HEAD
pub mod metrics;
=======
>>>>>>> main
pub mod net;
pub mod protocol;
pub mod runtime;
