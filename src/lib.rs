//! The broker: from sockets to the engine in `shard`, and back.
//!
//! Layers, each naming only those below it: `net`, `protocol`, `handlers`, `cores`, `shard`.

pub mod catalog;
pub mod protocol;
