//! Basalt and Apache Kafka side by side: the same work on each in turn, on one machine.
//!
//! `peer` starts the brokers, `case` says what can be measured and how it is called, `work` and
//! `standing` measure one case on one broker, `bars` takes the ratios of a round, `page` shows all
//! of it. A round starts each broker on an empty directory, warms it up and measures every case;
//! the next round goes through them the other way round. Only one broker runs at a time.

pub mod bars;
pub mod case;
pub mod codec;
pub mod java;
pub mod kafka;
pub mod page;
pub mod peer;
pub mod plot;
pub mod results;
pub mod rounds;
pub mod standing;
pub mod usage;
pub mod work;
