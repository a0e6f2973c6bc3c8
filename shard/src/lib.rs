//! Basalt's storage engine: the log of a core, its partitions and their tables.
//!
//! The engine is driven from outside: time comes in, work goes out as jobs that a caller runs on
//! threads of its own. It knows no sockets, requests, Kafka error codes, async runtime or clock,
//! and runs whole in one thread under a simulated disk.

pub mod batch;
pub mod disk;
pub mod ids;
pub mod log;
pub mod partition;
pub mod table;
