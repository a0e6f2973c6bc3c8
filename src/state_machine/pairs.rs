//! The records of a machine's partition, in batches as they lie in the log.
//!
//! Writing: the records of one step are one batch, so that a step is kept whole or not at all.
//! Reading serves the load of every machine, the catalogue's before the cores run included.

use super::contract::{Durable, Pair};
use bytes::Bytes;
use shard::batch::{
    expand, BatchBuilder, BatchError, BatchHeader, Expander, Limits, Malformed, NewRecord, Records,
};
use shard::ids::{Offset, Timestamp};

/// Why the records of a machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("a batch is damaged: {0}")]
    Batch(#[from] BatchError),
    #[error("a record is damaged: {0:?}")]
    Malformed(Malformed),
    #[error("the record at offset {offset} is not readable: {reason}")]
    Record { offset: Offset, reason: String },
}

/// The batch with the records of one step.
pub fn batch_of(pairs: &[Pair], now: Timestamp) -> Bytes {
    let mut batch = BatchBuilder::new();
    for pair in pairs {
        batch.push(&NewRecord {
            timestamp: now,
            key: pair.key.as_deref(),
            value: pair.value.as_deref(),
            ..NewRecord::default()
        });
    }
    batch.build().into()
}

/// Gives the records of whole batches to `replay`. Returns the offset behind the last batch, none
/// if there is no batch. Records below `from` are passed over: a batch is read whole even where the
/// partition starts within it.
pub fn read_batches<R: Durable>(
    mut bytes: &[u8],
    from: Offset,
    mut replay: impl FnMut(R),
) -> Result<Option<Offset>, Unreadable> {
    let mut end = None;
    let mut expander = Expander::default();
    while !bytes.is_empty() {
        let (header, body, rest) = BatchHeader::split(bytes)?;
        if let Some(codec) = header.attributes.codec().filter(|_| !header.attributes.is_control()) {
            let records = expand(codec, body, &Limits::default(), &mut expander)?;
            for record in Records::new(records, header.record_count) {
                let record = record.map_err(Unreadable::Malformed)?;
                let offset = Offset(header.base_offset.0 + i64::from(record.offset_delta));
                if offset < from {
                    continue;
                }
                match R::from_pair(record.key, record.value) {
                    Ok(Some(record)) => replay(record),
                    Ok(None) => {}
                    Err(error) => {
                        return Err(Unreadable::Record { offset, reason: error.to_string() })
                    }
                }
            }
        }
        end = Some(header.end_offset());
        bytes = rest;
    }
    Ok(end)
}
