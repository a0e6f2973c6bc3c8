//! Basalt: a Kafka-compatible event broker in which every topic is also a table.

pub mod banner;
pub mod cli;
pub mod config;
pub mod preflight;
