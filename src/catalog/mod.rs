//! The catalogue: which topics there are, where their partitions lie, which producer ids are given.
//!
//! A pure state machine. `Machine::decide` looks at a command and answers with records and a reply;
//! `Machine::replay` alone changes state, at run time after the records are appended and at start
//! from the internal partition they live in. Core 0 owns the machine; all cores look topics up in
//! the immutable `CatalogImage` it publishes. Nothing here does I/O, reads a clock, draws a random
//! number or knows a Kafka error code.

mod create;
mod delete;
mod driven;
mod image;
mod machine;
mod name;
mod placement;
mod record;

pub use create::{CreateOutcome, CreateRefusal, Created, NewTopic};
pub use delete::{DeleteOutcome, DeleteRefusal, Deleted, TopicRef};
pub use image::{CatalogImage, ImageChange, Topic, TopicLookup};
pub use machine::{Answer, Command, Decision, Machine, Rules};
pub use name::{is_internal, name_problem, NameProblem};
pub use record::{Record, RecordError, TopicRecord};

use shard::ids::PartitionKey;
use uuid::Uuid;

/// The view clients see when the configuration names none.
pub const DEFAULT_VIEW: u32 = 0;

/// The partition in log 0 that holds the catalogue's records. Its topic has no name and no client
/// sees it.
pub const CATALOG_PARTITION: PartitionKey =
    PartitionKey { view: DEFAULT_VIEW, topic: Uuid::from_u128(1), partition: 0 };
