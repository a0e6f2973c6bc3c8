//! Where retention wants the log start of a partition.
//!
//! Asked by the rounds of `keeping`. The records of a partition are weighed from the oldest on:
//! what is in the table alone part by part, sealed segments run by run, the open one batch by
//! batch. Each goes if it is old by its records' times, or if enough bytes are left behind it; the
//! first one that stays ends it. Bytes are those of the batches as they were in the log, for the
//! table too.
//!
//! Worked example: parts 0..100 and 100..250 of 40 bytes each, hot from 200; runs 200..300 and
//! 300..400 of 50 bytes each. The partition is 40 + 27 + 100 bytes (two thirds of the second part
//! lie below 200). Under a limit of 127 or less the first part goes: so much is left.

use super::engine::Log;
use super::index::BatchEntry;
use super::read::wanted;
use crate::ids::{DenseId, Offset, Timestamp};
use crate::partition::{Partition, Run, RunKind};

/// What goes or stays as a whole.
struct Piece {
    end: Offset,
    max_timestamp: Timestamp,
    bytes: u64,
}

impl Log {
    /// Where retention wants the log start, when that is above where it is.
    pub(super) fn retention_target(
        &self,
        id: DenseId,
        partition: &Partition,
        now: Timestamp,
    ) -> Option<Offset> {
        let settings = partition.settings;
        let cutoff = settings.retention_ms.map(|ms| now.0.saturating_sub(ms));
        // The first run counts batches that are below the log start already.
        let start = partition.hot_start();
        let first = partition.runs.first().filter(|run| run.segment == self.open.number);
        let below = first.map_or(&[][..], |run| self.open_entries(id, run));
        let below = below.iter().take_while(|entry| entry.end() <= start);
        let past: u64 = below.map(|entry| u64::from(entry.batch_bytes)).sum();
        let cold = cold_pieces(partition);
        let mut bytes = partition.runs.batch_bytes().saturating_sub(past);
        bytes += cold.iter().map(|piece| piece.bytes).sum::<u64>();
        let mut target = partition.log_start();
        let mut goes = |piece: &Piece| {
            let old = cutoff.is_some_and(|cutoff| (0..cutoff).contains(&piece.max_timestamp.0));
            let left = bytes.saturating_sub(piece.bytes);
            let surplus = settings.retention_bytes.is_some_and(|limit| left >= limit);
            if (old || surplus) && piece.end <= partition.high_watermark() {
                bytes = left;
                target = target.max(piece.end);
                return true;
            }
            false
        };
        let all_cold = cold.iter().all(&mut goes);
        let runs = partition.runs.iter().filter(|run| all_cold && run.kind != RunKind::Gap);
        'runs: for run in runs {
            if run.segment == self.open.number {
                let entries = self.open_entries(id, run).iter();
                for entry in entries.filter(|entry| entry.end() > start) {
                    if !goes(&Piece::of_batch(entry)) {
                        break 'runs;
                    }
                }
            } else if !goes(&Piece::of_run(run)) {
                break;
            }
        }
        (target > partition.log_start()).then_some(target)
    }

    /// The batches of a run in the open segment.
    fn open_entries(&self, id: DenseId, run: &Run) -> &[BatchEntry] {
        wanted(self.open.index.entries(id, run.base), run.base, run.end)
    }
}

impl Piece {
    fn of_run(run: &Run) -> Piece {
        Piece { end: run.end, max_timestamp: run.max_timestamp, bytes: run.batch_bytes }
    }

    fn of_batch(entry: &BatchEntry) -> Piece {
        let bytes = u64::from(entry.batch_bytes);
        Piece { end: entry.end(), max_timestamp: entry.max_timestamp, bytes }
    }
}

/// What of a partition is in the table alone. Parts without rows are in nobody's way.
fn cold_pieces(partition: &Partition) -> Vec<Piece> {
    let Some(version) = &partition.table else { return Vec::new() };
    let (from, until) = (partition.log_start(), partition.hot_start());
    let parts = version.parts(partition.key.partition).iter().map(|at| at.part);
    let cold = parts.filter(|part| part.end > from && part.first < until && part.rows > 0);
    let piece = |part: crate::table::Part| {
        let (first, end) = (part.first.max(from), part.end.min(until));
        let offsets = (part.end.0 - part.first.0).max(1) as u128;
        let share = u128::from(part.raw_bytes) * (end.0 - first.0).max(0) as u128 / offsets;
        Piece { end, max_timestamp: part.max_timestamp, bytes: share as u64 }
    };
    cold.map(piece).collect()
}
