//! What is known of rows without reading them, in the words of DataFusion.
//!
//! Of a stretch of a partition its offsets are bounded by what it covers, and of a file the number
//! of rows is known. No row need stand on a bound: offsets of removed records, markers and aborted
//! transactions are covered and are no rows. So a piece's bounds are exact where they serve to skip
//! it, and of the whole scan, where `min` and `max` would come out of them, they are not. Counts
//! are exact when no row of a file is below the log start, and only then does `count(*)` come out
//! of them.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use shard::ids::Offset;
use shard::table::schema::{column, visible_columns};
use shard::table::FileFacts;

/// Offsets that are covered, of one or more partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    partitions: (i32, i32),
    /// Both inclusive; empty when the first is behind the last.
    offsets: (i64, i64),
    rows: Precision<usize>,
    bytes: usize,
}

impl Covered {
    /// Nothing yet of one partition, and no count of its rows.
    pub fn new(partition: i32) -> Covered {
        let rows = Precision::Absent;
        Covered {
            partitions: (partition, partition),
            offsets: (i64::MAX, i64::MIN),
            rows,
            bytes: 0,
        }
    }

    /// All of a file.
    pub fn file(facts: &FileFacts) -> Covered {
        let first = facts.parts.first().map_or(0, |part| part.partition);
        let mut covered = Covered::new(first);
        for part in &facts.parts {
            covered.partitions.1 = covered.partitions.1.max(part.partition);
            covered.cover(part.first, Offset(part.end.0.saturating_sub(1)));
        }
        covered.rows = Precision::Exact(usize::try_from(facts.rows()).unwrap_or(usize::MAX));
        covered.bytes = usize::try_from(facts.raw_bytes()).unwrap_or(usize::MAX);
        covered
    }

    pub fn cover(&mut self, first: Offset, last: Offset) {
        self.offsets = (self.offsets.0.min(first.0), self.offsets.1.max(last.0));
    }

    /// A guess of the rows, for plans alone.
    pub fn about(mut self, rows: u64, bytes: u64) -> Covered {
        self.rows = Precision::Inexact(usize::try_from(rows).unwrap_or(usize::MAX));
        self.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self
    }

    /// As a part of a file that is cut into pieces.
    pub fn piece_of(mut self, pieces: usize) -> Covered {
        let rows = self.rows.get_value().copied().unwrap_or(0) / pieces.max(1);
        self.bytes /= pieces.max(1);
        self.rows = Precision::Inexact(rows);
        self
    }

    /// For pruning: every row lies within the bounds.
    pub fn bounds(&self) -> Statistics {
        self.statistics(Precision::Exact)
    }

    /// For plans: no row need stand on a bound.
    pub fn estimate(&self) -> Statistics {
        self.statistics(Precision::Inexact)
    }

    fn statistics(&self, bounded: fn(ScalarValue) -> Precision<ScalarValue>) -> Statistics {
        let unknown = ColumnStatistics::new_unknown;
        let mut columns: Vec<ColumnStatistics> =
            (0..visible_columns()).map(|_| unknown()).collect();
        let bound = |column: &mut ColumnStatistics, least: ScalarValue, most: ScalarValue| {
            column.null_count = Precision::Exact(0);
            column.min_value = bounded(least);
            column.max_value = bounded(most);
        };
        let (least, most) = self.partitions;
        if let Some(partition) = columns.get_mut(column::PARTITION) {
            bound(partition, ScalarValue::Int32(Some(least)), ScalarValue::Int32(Some(most)));
        }
        let (first, last) = self.offsets;
        if let Some(offset) = columns.get_mut(column::OFFSET).filter(|_| first <= last) {
            bound(offset, ScalarValue::Int64(Some(first)), ScalarValue::Int64(Some(last)));
        }
        Statistics {
            num_rows: self.rows,
            total_byte_size: Precision::Inexact(self.bytes),
            column_statistics: columns,
        }
    }
}

/// Of a whole scan: the sum of its pieces, whose counts must all be exact to be so.
pub fn sum(pieces: &[Covered]) -> Statistics {
    let zero = Precision::Exact(0);
    let rows = pieces.iter().fold(zero, |sum, piece| sum.add(&piece.rows));
    let bytes = pieces.iter().map(|piece| piece.bytes).sum();
    let mut all = Covered::new(pieces.iter().map(|piece| piece.partitions.0).min().unwrap_or(0));
    for piece in pieces {
        all.partitions.1 = all.partitions.1.max(piece.partitions.1);
        all.cover(Offset(piece.offsets.0), Offset(piece.offsets.1));
    }
    (all.rows, all.bytes) = (rows, bytes);
    all.estimate()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard::ids::Timestamp;
    use shard::table::{FileId, Part};

    fn facts(parts: &[(i32, i64, i64)]) -> FileFacts {
        let part = |&(partition, first, end): &(i32, i64, i64)| Part {
            partition,
            first: Offset(first),
            end: Offset(end),
            rows: (end - first) as u64,
            raw_bytes: 10,
            min_timestamp: Timestamp(-1),
            max_timestamp: Timestamp(-1),
            max_append_time: Timestamp(-1),
        };
        let parts = parts.iter().map(part).collect();
        FileFacts { id: FileId(1), bytes: 5, created: Timestamp(0), parts }
    }

    #[test]
    fn counts_are_exact_as_long_as_all_are() {
        let files = [facts(&[(0, 0, 10), (1, 5, 8)]), facts(&[(0, 10, 12)])];
        let files = files.each_ref().map(Covered::file);
        let whole = sum(&files);
        assert_eq!(whole.num_rows, Precision::Exact(15));
        let offsets = &whole.column_statistics[column::OFFSET];
        assert_eq!(offsets.max_value, Precision::Inexact(ScalarValue::Int64(Some(11))));
        let hot = Covered::new(2).about(3, 100);
        assert_eq!(sum(&[files[0], hot]).num_rows, Precision::Inexact(16));
        assert_eq!(sum(&[]).num_rows, Precision::Exact(0));
    }
}
