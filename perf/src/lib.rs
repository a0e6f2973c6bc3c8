//! Running brokers measured from outside, with librdkafka as the client: what `basalt-perf` and
//! `compare` share.

pub mod beside;
pub mod broker;
pub mod cases;
pub mod compare;
pub mod connections;
pub mod error;
pub mod flood;
pub mod groups;
pub mod idle;
pub mod latency;
pub mod load;
pub mod metrics;
pub mod old_reads;
pub mod statements;
pub mod table_memory;
pub mod tables;
pub mod tool;
pub mod topics;
pub mod trickle;
pub mod wire;
