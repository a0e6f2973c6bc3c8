//! Compaction: the last record of each key stays. When it is due, what it knows, what it leaves.
//!
//! As Apache Kafka's cleaner: the keys of what is new are gathered with their last offsets, bounded
//! in memory; then everything up to where that came is gone through from the log start, and a
//! record whose key has a later one goes. The mark of a deleted key stays until the horizon its
//! batch was given when compaction first saw it: whoever had begun to read before can still see it.
//! A batch without records leaves a gap; the last one of the partition stays, empty.
//!
//! Only sealed segments are cleaned, so a partition is at most its clean part, as much again (at
//! the usual half) and what lies in the open segment. Never touched: what readers of committed
//! records cannot see yet, and what is younger than the least lag, by the broker's clock.
//!
//! Gaps: batches of transactions and control batches stay as they are and hide nothing, for it is
//! not known here which were aborted. A batch in a file of its own stays or goes as a whole. The
//! marks behind a batch that is kept whole stay as long as it, or what they deleted would be back.
//! `lag_max_ms` begins when a segment is sealed.

use super::settings::Compaction;
use crate::batch::{each_key, rewrite, BatchError, BatchHeader, Expander, Keyed, Rest};
use crate::ids::{Offset, Timestamp};
use crate::partition::{Run, RunKind};
use std::collections::HashMap;

/// What a key takes in memory besides its bytes.
const KEY_BYTES: usize = 64;

/// Whether a partition whose sealed runs these are is to be cleaned now.
pub fn is_due<'a>(
    runs: impl Iterator<Item = &'a Run>,
    compaction: &Compaction,
    now: Timestamp,
) -> bool {
    let (mut clean, mut dirty) = (0u64, 0u64);
    let mut oldest: Option<Timestamp> = None;
    for run in runs {
        match run.kind {
            RunKind::Cleaned | RunKind::Gap => clean += run.batch_bytes,
            RunKind::Appended | RunKind::Carried => {
                dirty += run.batch_bytes;
                oldest = Some(oldest.map_or(run.max_timestamp, |t| t.min(run.max_timestamp)));
            }
        }
    }
    let share = dirty.saturating_mul(100);
    let is_much = share >= (clean + dirty).saturating_mul(compaction.dirty_percent_min.into());
    let is_late =
        oldest.is_some_and(|oldest| now.0.saturating_sub(oldest.0) >= compaction.lag_max_ms);
    dirty > 0 && (is_much || is_late)
}

/// The last offset of each key in what is new.
#[derive(Debug)]
pub struct Keys {
    last: HashMap<Box<[u8]>, Offset>,
    bytes: usize,
    bytes_max: usize,
    /// Frames younger than this are not looked at.
    pub younger_than: Timestamp,
    /// All batches before this offset have been looked at.
    pub until: Offset,
    /// Nothing more is taken in.
    pub is_full: bool,
}

impl Keys {
    pub fn new(from: Offset, bytes_max: usize, younger_than: Timestamp) -> Keys {
        let last = HashMap::new();
        Keys { last, bytes: 0, bytes_max, younger_than, until: from, is_full: false }
    }

    /// Takes in a batch, unless the memory is used up; then nothing of it counts.
    pub fn add(
        &mut self,
        header: &BatchHeader,
        body: &[u8],
        expander: &mut Expander,
    ) -> Result<(), BatchError> {
        if is_kept_whole(header) {
            self.until = header.end_offset();
            return Ok(());
        }
        let (bytes_max, before) = (self.bytes_max, self.last.len());
        let (last, bytes) = (&mut self.last, &mut self.bytes);
        each_key(header, body, expander, |seen| {
            let Some(key) = seen.key else { return };
            match last.get_mut(key) {
                Some(offset) => *offset = seen.offset,
                None => {
                    *bytes += key.len() + KEY_BYTES;
                    last.insert(key.into(), seen.offset);
                }
            }
        })?;
        // A batch is taken in whole, so the bound is passed by at most one: what is known of it
        // is right all the same.
        self.until = header.end_offset();
        self.is_full = self.bytes >= bytes_max && before > 0;
        Ok(())
    }
}

/// One compaction of a partition.
#[derive(Debug)]
pub struct Pass {
    pub keys: Keys,
    pub now: Timestamp,
    pub delete_retention_ms: i64,
    /// The batch that ends here stays, for readers to come to the end.
    pub log_end: Offset,
}

impl Pass {
    /// What is left of a batch. With `marks_stay`, marks of deleted keys are not among what goes.
    pub fn clean(
        &self,
        (header, body): (&BatchHeader, &[u8]),
        marks_stay: bool,
        expander: &mut Expander,
    ) -> Result<Rest, BatchError> {
        if is_kept_whole(header) {
            return Ok(Rest::Same);
        }
        let marks_go = !marks_stay && header.horizon().is_some_and(|horizon| horizon <= self.now);
        let horizon = Timestamp(self.now.0.saturating_add(self.delete_retention_ms));
        let keep = |seen: &Keyed<'_>| {
            let Some(key) = seen.key else { return false };
            let is_last = self.keys.last.get(key).is_none_or(|last| *last <= seen.offset);
            is_last && !(seen.is_tombstone && marks_go)
        };
        rewrite(header, body, horizon, expander, keep)
    }
}

/// Whether nothing may go of a batch.
pub fn is_kept_whole(header: &BatchHeader) -> bool {
    header.attributes.is_control() || header.attributes.is_transactional()
}

#[cfg(test)]
mod tests;
