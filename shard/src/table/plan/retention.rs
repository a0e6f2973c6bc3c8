//! How far retention may raise a log start over what is in the table.
//!
//! As in the log: rows go with the whole part they are in once its newest is too old, or once what
//! is kept without it still is as much as is wanted. Counted are raw bytes, in the table and in the
//! log, so that a topic keeps the same rows whatever form they have.

use crate::ids::{Offset, Timestamp};
use crate::table::PartAt;

/// What retention keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Rows with older timestamps go.
    pub ms: Option<i64>,
    /// Older rows go when more raw bytes than this are kept.
    pub bytes: Option<u64>,
}

/// Where the log start may go, given the parts of a partition from it on, when that is higher than
/// the first part. What is at or behind `hot_start` is in the log, which has `log_bytes` of it.
pub fn retention(
    parts: &[PartAt],
    hot_start: Offset,
    log_bytes: u64,
    kept: &Kept,
    now: Timestamp,
) -> Option<Offset> {
    let cutoff = kept.ms.map(|ms| now.0.saturating_sub(ms));
    let in_table = || parts.iter().filter(|at| at.part.first < hot_start);
    let weigh = |at: &PartAt| {
        // Of a part that reaches into what the log has, the share below.
        let offsets = (at.part.end.0 - at.part.first.0).max(1) as u128;
        let below = (hot_start.min(at.part.end).0 - at.part.first.0).max(0) as u128;
        (u128::from(at.part.raw_bytes) * below / offsets) as u64
    };
    let mut bytes = in_table().map(weigh).fold(log_bytes, u64::saturating_add);
    let mut target = None;
    for at in in_table() {
        let left = bytes.saturating_sub(weigh(at));
        let is_old = cutoff.is_some_and(|cutoff| (0..cutoff).contains(&at.part.max_timestamp.0));
        let is_surplus = kept.bytes.is_some_and(|limit| left >= limit);
        if !is_old && !is_surplus {
            break;
        }
        bytes = left;
        target = Some(at.part.end.min(hot_start));
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{file_path, FileFacts, FileId, Part, TableFile};
    use std::path::Path;
    use std::sync::Arc;

    /// Parts of 100 offsets and 1000 raw bytes each, by their newest timestamps.
    fn parts(times: &[i64]) -> Vec<PartAt> {
        let part = |(&time, n): (&i64, i64)| {
            let part = Part {
                partition: 0,
                first: Offset(n * 100),
                end: Offset(n * 100 + 100),
                rows: 100,
                raw_bytes: 1000,
                min_timestamp: Timestamp(time),
                max_timestamp: Timestamp(time),
                max_append_time: Timestamp(time),
            };
            let id = FileId(n as u64);
            let facts = FileFacts { id, bytes: 1, created: Timestamp(0), parts: vec![part] };
            let path = file_path(Path::new("t"), id);
            PartAt { file: Arc::new(TableFile { facts, path }), part }
        };
        times.iter().zip(0..).map(part).collect()
    }

    #[test]
    fn whole_parts_go_by_age_and_by_size() {
        let check = |times: &[i64], hot: i64, log_bytes, (ms, bytes), expect: Option<i64>| {
            let kept = Kept { ms, bytes };
            let target = retention(&parts(times), Offset(hot), log_bytes, &kept, Timestamp(1000));
            assert_eq!(target, expect.map(Offset), "{times:?} {hot} {kept:?}");
        };
        let times = [100, 200, 300];
        check(&times, 300, 0, (None, None), None);
        check(&times, 300, 0, (Some(750), None), Some(200));
        check(&times, 300, 0, (Some(0), None), Some(300));
        check(&times, 250, 0, (Some(0), None), Some(250));
        check(&[100, 900, 100], 300, 0, (Some(500), None), Some(100));
        check(&[-1, 100], 200, 0, (Some(500), None), None);
        check(&times, 300, 0, (None, Some(2000)), Some(100));
        check(&times, 300, 0, (None, Some(2001)), None);
        check(&times, 300, 1500, (None, Some(2000)), Some(200));
        check(&times, 150, 1500, (None, Some(1999)), Some(100));
        check(&times, 150, 9000, (None, Some(1999)), Some(150));
        check(&[], 0, 9000, (None, Some(10)), None);
    }
}
