//! What the engine keeps for each partition.

pub mod epochs;
pub mod producers;
