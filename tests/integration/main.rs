//! Whole brokers under real clients: each test starts a `basalt` process of its own on a free
//! port and speaks to it through librdkafka or through a bare socket.
//!
//! `BASALT_TEST_BOOTSTRAP=HOST:PORT` runs the scenarios against a broker that already runs, Apache
//! Kafka for one, to prove the scenarios themselves; what needs a process of our own then says
//! that it was not run. Gaps: transactions come with the broker's own.

mod broker;
mod client;
mod connections;
mod damage;
mod delete_records;
mod group_offsets;
mod groups;
mod hostile;
mod long_poll;
mod member;
mod moves;
mod offsets;
mod per_core;
mod process;
mod produce;
mod restart;
mod retention;
mod round_trip;
#[cfg(feature = "sql")]
mod sql;
mod tables;
mod topics;
mod wire;
