//! What the broker knows of the Kafka protocol's bytes, without disks or shards.

pub mod reply;
