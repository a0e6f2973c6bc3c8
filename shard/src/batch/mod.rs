//! Record batches of Kafka's format v2: reading, checking and building them.
//!
//! A produce request's bytes come in through [`validate`], which proves a [`Valid`] batch; the log
//! writes its header (with the assigned offset) and its body. Everything read here may come from a
//! hostile client or a damaged disk: no function panics on any bytes or allocates beyond a limit.
//! Knows no Kafka error codes; the broker maps [`BatchError`] to them.

mod builder;
mod codec;
mod error;
mod header;
mod lookup;
mod marker;
mod records;
mod rewrite;
mod validate;

#[cfg(test)]
pub use builder::empty_batch;
pub use builder::{place, BatchBuilder, NewRecord};
pub use codec::{compress, expand, Expander, Limits};
pub use error::{BatchError, Malformed, RecordErrors, RecordFault, RecordProblem};
pub use header::{crc32c, sequence_plus, Attributes, BatchHeader, Codec, HEADER_BYTES};
pub use lookup::{find_latest, find_time, Found};
pub use marker::{gap_batch, Marker, MarkerKind};
pub use records::{Header, Headers, Record, Records};
pub use rewrite::{each_key, emptied, rewrite, Keyed, Rest};
pub use validate::{validate, Rules, Scratch, TimestampRule, Valid};
