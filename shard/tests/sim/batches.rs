//! Record batches as producers of the simulation send them.
//!
//! The first record's value is filler around a number that no other batch carries: the log never
//! looks at records, and the oracle compares bytes.

use shard::batch::{place, BatchBuilder, NewRecord, Rules, TimestampRule};
use shard::disk::sim::Rng;
use shard::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

/// Who sends, and the sequence of the first record; no producer id means not idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub id: i64,
    pub epoch: i16,
    pub base_sequence: i32,
}

impl Sender {
    pub const NOBODY: Sender = Sender { id: -1, epoch: -1, base_sequence: -1 };
}

/// A batch to be built.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    pub sender: Sender,
    pub records: i32,
    pub body_bytes: usize,
    pub time: Timestamp,
    /// Each record has one of a few keys, and some are marks of deleted ones.
    pub keyed: bool,
}

pub fn build(outline: &Outline, rng: &mut Rng) -> Vec<u8> {
    let Sender { id, epoch, base_sequence } = outline.sender;
    let number = rng.number();
    let mut value = vec![number as u8; outline.body_bytes.max(8)];
    if let Some(start) = value.first_chunk_mut() {
        *start = number.to_le_bytes();
    }
    let mut builder =
        BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), base_sequence);
    let timestamp = outline.time;
    if outline.keyed {
        for _ in 0..outline.records {
            let key = [b'k', rng.below(12) as u8];
            let value = (!rng.one_in(5)).then_some(&value[..outline.body_bytes / 4]);
            builder.push(&NewRecord { timestamp, key: Some(&key), value, headers: &[] });
        }
        return builder.build();
    }
    builder.push(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() });
    for _ in 1..outline.records {
        builder.push(&NewRecord { timestamp, key: Some(b"k"), ..NewRecord::default() });
    }
    builder.build()
}

/// What a topic of the simulation allows: everything.
pub fn rules() -> Rules {
    Rules {
        message_bytes_max: usize::MAX,
        timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
        keys_required: false,
        zstd_allowed: true,
        limits: Default::default(),
    }
}

/// What the broker makes of a sent batch: offset and leader epoch are assigned.
pub fn placed(sent: &[u8], base: Offset, epoch: LeaderEpoch) -> Vec<u8> {
    let mut bytes = sent.to_vec();
    place(&mut bytes, base, epoch);
    bytes
}
