//! The brokers that are compared: each product with the page cache and with a sync before the
//! acknowledgement, and Basalt as a log alone, as Kafka makes no tables.

use super::kafka::Kafka;
use crate::broker::{Broker, Starter};
use crate::error::PerfError;
use crate::tables::NO_FILES;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    BasaltOs,
    BasaltCommit,
    /// `os`, and nothing becomes a table file meanwhile.
    BasaltLog,
    Kafka,
    /// `log.flush.interval.messages=1`.
    KafkaFlush,
}

/// In the order of the first round.
pub const PEERS: [Peer; 5] =
    [Peer::Kafka, Peer::BasaltOs, Peer::BasaltLog, Peer::KafkaFlush, Peer::BasaltCommit];

/// Basalt and what it is held against.
pub const PAIRS: [(Peer, Peer); 3] = [
    (Peer::BasaltOs, Peer::Kafka),
    (Peer::BasaltLog, Peer::Kafka),
    (Peer::BasaltCommit, Peer::KafkaFlush),
];

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Peer::BasaltOs => "Basalt, os",
            Peer::BasaltCommit => "Basalt, commit",
            Peer::BasaltLog => "Basalt, os, no tables",
            Peer::Kafka => "Kafka",
            Peer::KafkaFlush => "Kafka, flush.messages=1",
        }
    }

    pub fn is_basalt(self) -> bool {
        matches!(self, Peer::BasaltOs | Peer::BasaltCommit | Peer::BasaltLog)
    }

    /// An acknowledgement says that the record is on stable storage.
    pub fn syncs(self) -> bool {
        matches!(self, Peer::BasaltCommit | Peer::KafkaFlush)
    }
}

/// How to start them.
#[derive(Clone, Debug)]
pub struct Products {
    pub basalt: Starter,
    pub kafka: Kafka,
}

impl Products {
    /// Starts one on `data`; `settings` are Basalt's keys.
    pub fn start(&self, peer: Peer, data: &Path, settings: &[&str]) -> Result<Broker, PerfError> {
        match peer {
            Peer::Kafka => self.kafka.start(data, false),
            Peer::KafkaFlush => self.kafka.start(data, true),
            Peer::BasaltOs | Peer::BasaltCommit | Peer::BasaltLog => {
                let files = if peer == Peer::BasaltLog { NO_FILES } else { &[] };
                let mut starter = self.basalt.with(settings).with(files);
                let flush = if peer.syncs() { "commit" } else { "os" };
                starter.flags.extend(["--flush", flush].map(str::to_string));
                starter.start(data)
            }
        }
    }

    /// A data directory of its own, gone when the value is dropped.
    pub fn data_dir(&self) -> Result<tempfile::TempDir, PerfError> {
        self.basalt.data_dir()
    }
}
