//! The numbers of the log that are easily confused, each as a type of its own.
//!
//! Used by every layer of the engine and by the broker above it. Nothing here does I/O.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The place of a record in its partition, counted from 0.
    Offset(i64)
}
number! {
    /// The number of a partition within its log, dense from 0, never given twice in one log.
    DenseId(u32)
}
number! {
    /// The number of a log within a data directory.
    LogId(u32)
}
number! {
    /// The leader epoch of a partition: the broker's start counter when a batch was appended.
    LeaderEpoch(i32)
}
number! {
    /// The number of a segment within its log. A number is never used twice.
    SegmentNumber(u64)
}
number! {
    /// The place of a frame in the order of its log, without gaps.
    Sequence(u64)
}
number! {
    /// A producer that numbers its batches. −1 stands for none, as in Kafka.
    ProducerId(i64)
}
number! {
    /// The incarnation of a producer; a higher one fences all lower ones.
    ProducerEpoch(i16)
}
number! {
    /// Milliseconds since 1970-01-01 UTC. −1 stands for no timestamp, as in Kafka.
    Timestamp(i64)
}

impl Offset {
    /// The offset `count` records on.
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0 + count)
    }
}

/// A place in a log: a byte of a segment. Ordered as the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub segment: SegmentNumber,
    pub offset: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

/// What a partition is to the whole broker: stable across restarts, logs and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The broker view, 0 for the default one.
    pub view: u32,
    /// The topic's id; a topic made again has another one.
    pub topic: uuid::Uuid,
    /// The partition index within the topic.
    pub partition: i32,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}-{}", self.view, self.topic, self.partition)
    }
}
