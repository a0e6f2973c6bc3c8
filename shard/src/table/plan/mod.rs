//! What is to be done for a table: pure questions, asked of a version and of what the log says.
//!
//! Nothing here touches a disk or a clock. The core that keeps a table asks; the answers are jobs
//! (`columnarise`, `merge`, `compact`) that a worker runs and an edit of the manifest ends.

mod neighbours;

pub(super) use neighbours::{before, small_neighbours};

use crate::ids::{Offset, Timestamp};

/// How a table is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Rows become a file when they come to this many raw bytes …
    pub commit_bytes: u64,
    /// … or when the oldest has waited this long.
    pub commit_ms: i64,
    /// Files grow by merging up to this many raw bytes.
    pub file_bytes_max: u64,
    /// So many neighbours of one size are merged into one.
    pub merge_files: usize,
    /// Memory for the keys of one compaction. Bytes.
    pub compaction_buffer_bytes: usize,
}

impl Default for TableSettings {
    fn default() -> TableSettings {
        TableSettings {
            commit_bytes: 64 << 20,
            commit_ms: 15 * 60 * 1000,
            file_bytes_max: 512 << 20,
            merge_files: 8,
            compaction_buffer_bytes: 64 << 20,
        }
    }
}

/// What of a partition is in the log and could be in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub partition: i32,
    /// The table end.
    pub from: Offset,
    /// The last stable offset.
    pub until: Offset,
    /// What the batches between take.
    pub bytes: u64,
    /// The broker's clock at the first append among them.
    pub since: Option<Timestamp>,
}

/// When rows are to become a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Now,
    /// Not before, unless more comes in.
    At(Timestamp),
    /// There is nothing to do.
    Never,
}

/// When the pending rows of a topic are to become a file.
pub fn columnarise_due(pending: &[Pending], settings: &TableSettings, now: Timestamp) -> Due {
    let waiting = || pending.iter().filter(|pending| pending.from < pending.until);
    let Some(oldest) = waiting().map(|pending| pending.since.unwrap_or(now)).min() else {
        return Due::Never;
    };
    let bytes = waiting().fold(0u64, |sum, pending| sum.saturating_add(pending.bytes));
    let at = Timestamp(oldest.0.saturating_add(settings.commit_ms));
    if bytes >= settings.commit_bytes || at <= now {
        Due::Now
    } else {
        Due::At(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_a_file_when_they_are_many_or_old() {
        let settings = TableSettings { commit_bytes: 100, commit_ms: 10, ..Default::default() };
        let pending = |from: i64, until: i64, bytes, oldest| Pending {
            partition: 0,
            from: Offset(from),
            until: Offset(until),
            bytes,
            since: Some(Timestamp(oldest)),
        };
        let check = |pending: &[Pending], expect| {
            assert_eq!(columnarise_due(pending, &settings, Timestamp(1000)), expect);
        };
        check(&[], Due::Never);
        check(&[pending(5, 5, 0, 0)], Due::Never);
        check(&[pending(5, 6, 10, 995)], Due::At(Timestamp(1005)));
        check(&[pending(5, 6, 10, 990)], Due::Now);
        check(&[pending(5, 6, 50, 999), pending(0, 9, 50, 998)], Due::Now);
        check(&[pending(5, 6, 50, 999), pending(7, 7, 50, 0)], Due::At(Timestamp(1009)));
    }
}
