//! Basalt: a Kafka-compatible event broker in which every topic is also a table.

pub mod config;
