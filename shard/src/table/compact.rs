//! Compaction of a table: the last row of each key stays (cleanup.policy=compact).
//!
//! As Apache Kafka's cleaner, by partition: the keys of what no compaction has gone through are
//! gathered with their last offsets, bounded in memory; then everything up to where that came is
//! gone through from the log start, and a row whose key has a later one goes, as does a row without
//! a key. The mark of a deleted key (a row without a value) goes once a compaction has gone through
//! it `delete_retention_ms` ago: whoever had begun to read before can still see it. Offsets of rows
//! that go stay covered.
//!
//! Worked example: rows 0:a=1, 1:b=1, 2:a=2 | 3:b=∅, 4:c=1, where a compaction has left 1:b=1 and
//! 2:a=2 of those before the bar. The keys from 3 on are b→3 and c→4; what stays is 2:a=2, 3:b=∅,
//! 4:c=1, and a day later, with something new to compact, 3:b=∅ goes.
//!
//! Rows that came within the least lag are neither gathered nor dropped. It is told by parts: one
//! whose newest row is too young waits as a whole, so files of different ages are not merged then
//! (`class`).
//!
//! Gaps: all files up to the last that is old enough are written again in one go, also those from
//! which nothing goes, and need as much space again until they are. Marks past their time go with
//! the next compaction only. A table with a damaged file among those is not compacted.

use super::job::{JobError, Piece, Readers, Site};
use super::manifest::Edit;
use super::merge::{listed, pieces_of, start_of, LogStarts};
use super::plan::{before, TableSettings};
use super::rewrite::{rewrite, Sieve};
use super::schema::column;
use super::version::{FileId, PartAt, TableFile, Version};
use crate::ids::{Offset, Timestamp};
use crate::log::Compaction;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a key takes in memory besides its bytes.
const KEY_BYTES: usize = 64;
/// Rows that waited for their lag are told apart to so many steps of it.
const LAG_STEPS: i64 = 8;

/// What compaction is to know of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Span {
    /// An earlier compaction went through everything below.
    clean_end: Offset,
    /// This one is to go through everything below.
    end: Offset,
    /// Marks of deleted keys below it go.
    marks_end: Offset,
}

/// One compaction of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    replaces: Vec<FileId>,
    pieces: Vec<Piece>,
    spans: BTreeMap<i32, Span>,
    starts: Vec<(i32, Offset)>,
    buffer_bytes: usize,
    file_bytes_max: u64,
}

/// The compaction of a table that is due, if one is.
pub fn compaction_due(
    version: &Version,
    starts: &LogStarts,
    compaction: &Compaction,
    settings: &TableSettings,
    now: Timestamp,
) -> Option<Compact> {
    let (mut clean, mut dirty) = (0u64, 0u64);
    let mut is_late = false;
    let mut spans = BTreeMap::new();
    let mut touched = BTreeSet::new();
    for partition in version.partitions() {
        let parts = version.parts(partition);
        let span = span_of(version, starts, partition, (compaction, now));
        let is_dirty = |at: &&PartAt| {
            // A part without rows has no age.
            at.part.rows > 0 && at.part.end > span.clean_end && at.part.end <= span.end
        };
        for at in parts.iter().filter(|at| at.part.end <= span.clean_end.max(span.end)) {
            let new = new_bytes(at, span.clean_end);
            clean = clean.saturating_add(at.part.raw_bytes - new);
            dirty = dirty.saturating_add(new);
        }
        let oldest = parts.iter().find(is_dirty).map(|at| at.part.max_append_time);
        is_late |=
            oldest.is_some_and(|oldest| now.0.saturating_sub(oldest.0) >= compaction.lag_max_ms);
        touched
            .extend(parts.iter().filter(|at| at.part.end <= span.end).map(|at| at.file.facts.id));
        spans.insert(partition, span);
    }
    let share = dirty.saturating_mul(100);
    let is_much = share >= (clean + dirty).saturating_mul(compaction.dirty_percent_min.into());
    if dirty == 0 || !(is_much || is_late) {
        return None;
    }
    let files = before(version, &touched);
    if files.iter().any(|file| version.is_spoiled(file.facts.id)) {
        return None;
    }
    tracing::debug!(topic = %version.topic, clean, dirty, "a table is to be compacted");
    Some(Compact {
        replaces: files.iter().map(|file| file.facts.id).collect(),
        pieces: pieces_of(version, starts, &files),
        spans,
        starts: listed(starts),
        buffer_bytes: settings.compaction_buffer_bytes,
        file_bytes_max: settings.file_bytes_max,
    })
}

fn span_of(
    version: &Version,
    starts: &LogStarts,
    partition: i32,
    (compaction, now): (&Compaction, Timestamp),
) -> Span {
    let cutoff = Timestamp(now.0.saturating_sub(compaction.lag_min_ms));
    let done = version.compacted(partition);
    let start = start_of(version, starts, partition);
    let clean_end = done.last().map_or(start, |last| last.end.max(start));
    let old_enough =
        version.parts(partition).iter().take_while(|at| at.part.max_append_time <= cutoff);
    let end = old_enough.last().map_or(start, |at| at.part.end);
    let long_ago = done
        .iter()
        .rev()
        .find(|one| now.0.saturating_sub(one.at.0) >= compaction.delete_retention_ms);
    Span { clean_end, end, marks_end: long_ago.map_or(Offset(0), |one| one.end) }
}

/// The raw bytes of a part from an offset on, about.
fn new_bytes(at: &PartAt, from: Offset) -> u64 {
    let part = &at.part;
    let offsets = (part.end.0 - part.first.0).max(1) as u128;
    let new = (part.end.0 - part.first.max(from).0).max(0) as u128;
    (u128::from(part.raw_bytes) * new / offsets) as u64
}

/// Tells apart files that are not to be merged while a table is compacted: those that have been
/// gone through, those that could be, and the younger ones by their age.
pub fn class(version: &Version, file: &TableFile, compaction: &Compaction, now: Timestamp) -> i64 {
    let clean_end = |partition| version.compacted(partition).last().map(|last| last.end);
    let parts = &file.facts.parts;
    if parts.iter().all(|part| clean_end(part.partition).is_some_and(|end| part.end <= end)) {
        return -2;
    }
    let newest = parts.iter().map(|part| part.max_append_time.0).max().unwrap_or(-1);
    if newest <= now.0.saturating_sub(compaction.lag_min_ms) {
        return -1;
    }
    newest / (compaction.lag_min_ms / LAG_STEPS).max(1)
}

impl Compact {
    /// Does the work. Blocks.
    pub fn run(self, site: &mut Site<'_>) -> Result<Edit, JobError> {
        let bytes_max = self.file_bytes_max;
        let mut keys = Keys {
            pieces: &self.pieces,
            spans: &self.spans,
            buffer_bytes: self.buffer_bytes,
            last: HashMap::new(),
            span: Span::default(),
            done: Vec::new(),
        };
        let add = rewrite(site, &self.pieces, bytes_max, &mut keys)?;
        let compacted = keys.done;
        let Compact { replaces: remove, starts, .. } = self;
        Ok(Edit { add, remove, starts, compacted, now: site.now })
    }

    /// How much it reads, in raw bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.at.part.raw_bytes).sum()
    }
}

/// The sieve: the last offset of each key of one partition.
struct Keys<'a> {
    pieces: &'a [Piece],
    spans: &'a BTreeMap<i32, Span>,
    buffer_bytes: usize,
    last: HashMap<Box<[u8]>, i64>,
    /// Of the partition at hand; its end is where the memory was used up.
    span: Span,
    /// Partitions and how far they were gone through.
    done: Vec<(i32, Offset)>,
}

impl Sieve for Keys<'_> {
    fn begin(&mut self, partition: i32, site: &Site<'_>) -> Result<(), JobError> {
        self.last.clear();
        self.span = self.spans.get(&partition).cloned().unwrap_or_default();
        if self.span.clean_end < self.span.end {
            self.span.end = self.gather(partition, site)?;
        }
        self.done.push((partition, self.span.end));
        Ok(())
    }

    fn sift(&mut self, rows: RecordBatch) -> Result<RecordBatch, JobError> {
        let offsets = rows.column(column::OFFSET).as_primitive::<Int64Type>().values();
        let keys = rows.column(column::KEY).as_binary::<i32>();
        let values = rows.column(column::VALUE);
        let (end, marks_end) = (self.span.end.0, self.span.marks_end.0);
        let stays = |(row, &offset): (usize, &i64)| {
            if offset >= end {
                return true;
            }
            if keys.is_null(row) || (values.is_null(row) && offset < marks_end) {
                return false;
            }
            self.last.get(keys.value(row)).is_none_or(|last| *last <= offset)
        };
        let mask: Vec<bool> = offsets.iter().enumerate().map(stays).collect();
        Ok(filter_record_batch(&rows, &BooleanArray::from(mask))?)
    }
}

impl Keys<'_> {
    /// Takes in the keys of what is new, as far as the memory goes; says how far that is.
    fn gather(&mut self, partition: i32, site: &Site<'_>) -> Result<Offset, JobError> {
        let Span { clean_end, end, .. } = self.span;
        let mut readers = Readers::new(site.disk);
        let mut bytes = 0;
        for piece in self.pieces.iter().filter(|piece| piece.at.part.partition == partition) {
            let part = &piece.at.part;
            if part.end <= clean_end || part.first >= end {
                continue;
            }
            let scan = piece.scan(clean_end, end, vec![column::KEY, column::OFFSET]);
            for rows in readers.get(&piece.at.file)?.read(&scan)? {
                site.go_on()?;
                let rows = rows?;
                let keys = rows.column(0).as_binary::<i32>();
                let offsets = rows.column(1).as_primitive::<Int64Type>().values();
                for (key, &offset) in keys.iter().zip(offsets) {
                    let Some(key) = key else { continue };
                    if let Some(last) = self.last.get_mut(key) {
                        *last = offset;
                        continue;
                    }
                    if bytes >= self.buffer_bytes && !self.last.is_empty() {
                        return Ok(Offset(offset));
                    }
                    bytes += key.len() + KEY_BYTES;
                    self.last.insert(key.into(), offset);
                }
            }
        }
        Ok(end)
    }
}
