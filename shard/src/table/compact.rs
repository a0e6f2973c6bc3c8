//! Compaction of a table: the last row of each key stays (cleanup.policy=compact).
//!
//! As Apache Kafka's cleaner: the keys of what no compaction has gone through are gathered with
//! their last offsets, bounded in memory; then everything up to where that came is gone through
//! from the log start, and a row whose key has a later one goes, as does a row without a key. First
//! only keys are read, for a file from which nothing goes is not written again. The mark of a
//! deleted key (a row without a value) goes once a compaction has gone through it
//! `delete_retention_ms` ago: whoever had begun to read before can still see it. Offsets of rows
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
//! Gaps: the files are written in one go, and need as much space again until they are. Marks past
//! their time go with the next compaction only. A table with a damaged file among what is to be
//! gone through is not compacted.

use super::job::{JobError, Piece, Readers, Site, Written};
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
use std::sync::Arc;

/// What a key takes in memory besides its bytes.
const KEY_BYTES: usize = 64;
/// Rows that waited for their lag are told apart to so many steps of it.
const LAG_STEPS: i64 = 8;

/// What compaction is to know of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// By groups that share partitions, in an order in which the parts of each ascend.
    files: Vec<Vec<FileId>>,
    /// All that is in them, in order of partition and offset.
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
    let groups = before(version, &touched);
    let files: Vec<Arc<TableFile>> = groups.iter().flatten().cloned().collect();
    if files.iter().any(|file| version.is_spoiled(file.facts.id)) {
        return None;
    }
    tracing::debug!(topic = %version.topic, clean, dirty, "a table is to be compacted");
    Some(Compact {
        files: groups
            .iter()
            .map(|files| files.iter().map(|file| file.facts.id).collect())
            .collect(),
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
    let end = old_enough.last().map_or(start, |at| at.part.end.max(start));
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
        let mut keys = Keys { partitions: BTreeMap::new(), at: None };
        let mut room = self.buffer_bytes;
        // Those with little that is new first, so that one with much never keeps them waiting.
        let mut spans: Vec<(i32, Span)> =
            self.spans.iter().map(|(partition, span)| (*partition, *span)).collect();
        spans.sort_by_key(|(_, span)| span.end.0 - span.clean_end.0);
        for (partition, span) in spans {
            let mut known = Known { span, last: HashMap::new() };
            if span.clean_end < span.end {
                known.gather(self.pieces_of(partition), &mut room, site)?;
            }
            keys.partitions.insert(partition, known);
        }
        let touched = keys.touched(&self.pieces, site)?;
        let mut add = Written::new(site);
        let mut remove = Vec::new();
        let goes_along =
            |one: &FileId, next: &FileId| touched.contains(one) == touched.contains(next);
        let stretches = self.files.iter().flat_map(|files| files.chunk_by(goes_along));
        for stretch in stretches.filter(|files| files.iter().any(|file| touched.contains(file))) {
            let pieces = self.pieces.iter();
            let pieces = pieces.filter(|piece| stretch.contains(&piece.at.file.facts.id));
            let pieces: Vec<Piece> = pieces.cloned().collect();
            add.extend(rewrite(site, &pieces, self.file_bytes_max, &mut keys)?);
            remove.extend(stretch);
        }
        let through = keys.partitions.iter();
        let compacted = through.map(|(partition, known)| (*partition, known.span.end)).collect();
        let (add, starts) = (add.into_files(), self.starts);
        Ok(Edit { add, remove, starts, compacted, now: site.now })
    }

    fn pieces_of(&self, partition: i32) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| piece.at.part.partition == partition)
    }

    /// How much it reads, in raw bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.at.part.raw_bytes).sum()
    }
}

/// What is known of a partition's keys.
struct Known {
    /// Its end is where the memory was used up.
    span: Span,
    /// The last offset of each key of what is new.
    last: HashMap<Box<[u8]>, i64>,
}

impl Known {
    /// Takes in the keys of what is new, as far as there is room.
    fn gather<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a Piece>,
        room: &mut usize,
        site: &Site<'_>,
    ) -> Result<(), JobError> {
        let Span { clean_end, end, .. } = self.span;
        self.span.end = clean_end;
        let mut readers = Readers::new(site.disk);
        let is_new = |piece: &&Piece| piece.at.part.end > clean_end && piece.at.part.first < end;
        for piece in pieces.filter(is_new) {
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
                    if *room == 0 {
                        self.span.end = Offset(offset);
                        return Ok(());
                    }
                    *room = room.saturating_sub(key.len() + KEY_BYTES);
                    self.last.insert(key.into(), offset);
                }
            }
        }
        self.span.end = end;
        Ok(())
    }

    /// Whether a row stays.
    fn stays(&self, offset: i64, key: Option<&[u8]>, is_mark: bool) -> bool {
        if offset >= self.span.end.0 {
            return true;
        }
        let Some(key) = key else { return false };
        let is_old_mark = is_mark && offset < self.span.marks_end.0;
        !is_old_mark && self.last.get(key).is_none_or(|last| *last <= offset)
    }
}

/// The sieve: what is known of all partitions.
struct Keys {
    partitions: BTreeMap<i32, Known>,
    /// The one at hand.
    at: Option<i32>,
}

impl Keys {
    /// The files from which a row goes.
    fn touched(&self, pieces: &[Piece], site: &Site<'_>) -> Result<BTreeSet<FileId>, JobError> {
        let mut touched = BTreeSet::new();
        let mut readers = Readers::new(site.disk);
        for piece in pieces {
            let (file, part) = (&piece.at.file, &piece.at.part);
            let Some(known) = self.partitions.get(&part.partition) else { continue };
            if touched.contains(&file.facts.id) || piece.from >= known.span.end {
                continue;
            }
            let mut columns = vec![column::KEY, column::OFFSET];
            if piece.from < known.span.marks_end {
                columns.insert(1, column::VALUE);
            }
            let scan = piece.scan(piece.from, known.span.end, columns);
            for rows in readers.get(file)?.read(&scan)? {
                site.go_on()?;
                if !known.mask(&rows?).iter().all(|stays| *stays) {
                    touched.insert(file.facts.id);
                    break;
                }
            }
        }
        Ok(touched)
    }
}

impl Known {
    /// Which rows stay. Without values nothing is a mark.
    fn mask(&self, rows: &RecordBatch) -> Vec<bool> {
        let binary = |name: &str| Some(rows.column_by_name(name)?.as_binary::<i32>());
        let (keys, values) = (binary("key"), binary("value"));
        let offsets =
            rows.column_by_name("kafka_offset").map(|all| all.as_primitive::<Int64Type>());
        let offsets = offsets.map(|all| &all.values()[..]).unwrap_or_default();
        let stays = |(row, &offset): (usize, &i64)| {
            let key = keys.filter(|keys| keys.is_valid(row)).map(|keys| keys.value(row));
            self.stays(offset, key, values.is_some_and(|values| values.is_null(row)))
        };
        offsets.iter().enumerate().map(stays).collect()
    }
}

impl Sieve for Keys {
    fn begin(&mut self, partition: i32) {
        self.at = Some(partition);
    }

    fn sift(&mut self, rows: RecordBatch) -> Result<RecordBatch, JobError> {
        let known = self.at.and_then(|partition| self.partitions.get(&partition));
        match known.map(|known| known.mask(&rows)) {
            Some(mask) => Ok(filter_record_batch(&rows, &BooleanArray::from(mask))?),
            None => Ok(rows),
        }
    }
}
