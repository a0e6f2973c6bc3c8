//! Look-ups by time in a table file, for ListOffsets.
//!
//! Stands beside `rebatch`: the version has named the file (by the times of its parts), this names
//! the record. Reads only the columns of offsets and times, and of the pages before the record no
//! more than it must. Blocks.

use super::cache::Blocks;
use super::error::{Damage, TableError};
use super::file::{FileReader, Scan};
use super::schema::column;
use super::TableFile;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::log::Found;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, Int8Type};
use arrow_array::RecordBatch;
use std::ops::Range;

/// The first record of a partition among these offsets whose timestamp is at least `time`.
pub fn find_time(
    blocks: &Blocks,
    file: &TableFile,
    partition: i32,
    time: Timestamp,
    offsets: Range<Offset>,
) -> Result<Option<Found>, TableError> {
    let reader = blocks.reader(file)?;
    let mut found = None;
    each_row(&reader, partition, offsets, |row| {
        found = (row.timestamp >= time).then_some(Found::from(row));
        found.is_none()
    })?;
    Ok(found)
}

/// The first record with the largest timestamp of a partition among these offsets; where the
/// broker's clock was stamped, the last one of those that share it, as in Kafka.
pub fn find_latest(
    blocks: &Blocks,
    file: &TableFile,
    partition: i32,
    offsets: Range<Offset>,
) -> Result<Option<Found>, TableError> {
    let reader = blocks.reader(file)?;
    let mut found: Option<Row> = None;
    each_row(&reader, partition, offsets, |row| {
        let is_later = found.is_none_or(|best| {
            row.timestamp > best.timestamp
                || (row.timestamp == best.timestamp && row.is_append_time && best.is_append_time)
        });
        if is_later {
            found = Some(row);
        }
        true
    })?;
    Ok(found.map(Found::from))
}

/// A row as a look-up sees it.
#[derive(Clone, Copy)]
struct Row {
    offset: Offset,
    timestamp: Timestamp,
    is_append_time: bool,
    leader_epoch: LeaderEpoch,
}

impl From<Row> for Found {
    fn from(row: Row) -> Found {
        let Row { offset, timestamp, leader_epoch, .. } = row;
        Found { offset, timestamp, leader_epoch }
    }
}

/// Shows the rows of a range of offsets until it is told to stop.
fn each_row(
    reader: &FileReader,
    partition: i32,
    offsets: Range<Offset>,
    mut show: impl FnMut(Row) -> bool,
) -> Result<(), TableError> {
    let columns =
        vec![column::OFFSET, column::TIMESTAMP_MS, column::TIMESTAMP_TYPE, column::LEADER_EPOCH];
    let (from, until) = (offsets.start, offsets.end);
    for batch in reader.read(&Scan { from, until, columns, ..Scan::all(partition) })? {
        let batch = batch?;
        let Some(rows) = rows_of(&batch) else {
            let damage = Damage::Missing("columns of a table");
            return Err(TableError::damaged(reader.path(), damage));
        };
        for row in rows {
            if !show(row) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn rows_of(batch: &RecordBatch) -> Option<impl Iterator<Item = Row> + '_> {
    let [offset, timestamp, kind, epoch] = batch.columns() else { return None };
    let offset = offset.as_primitive_opt::<Int64Type>()?.values().iter();
    let timestamp = timestamp.as_primitive_opt::<Int64Type>()?.values().iter();
    let kind = kind.as_primitive_opt::<Int8Type>()?.values().iter();
    let epoch = epoch.as_primitive_opt::<Int32Type>()?.values().iter();
    let rows = offset.zip(timestamp).zip(kind.zip(epoch));
    Some(rows.map(|((&offset, &timestamp), (&kind, &epoch))| Row {
        offset: Offset(offset),
        timestamp: Timestamp(timestamp),
        is_append_time: kind != 0,
        leader_epoch: LeaderEpoch(epoch),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{place, BatchBuilder, NewRecord};
    use crate::disk::sim::SimDisk;
    use crate::table::file::{Covered, FileWriter};
    use crate::table::rows::RowsBuilder;
    use crate::table::{file_path, FileId};
    use std::path::Path;
    use std::sync::Arc;

    /// Partition 1 with records at 10, 12, 14… of these times.
    fn file(disk: &SimDisk, times: &[i64], is_append_time: bool) -> TableFile {
        let mut rows = RowsBuilder::new();
        for (offset, time) in (10..).step_by(2).zip(times) {
            let time = Timestamp(*time);
            let mut batch = BatchBuilder::new();
            if is_append_time {
                batch = batch.appended_at(time);
            }
            batch.push(&NewRecord { timestamp: time, ..Default::default() });
            let mut batch = batch.build();
            place(&mut batch, Offset(offset), LeaderEpoch(3));
            rows.push(1, Timestamp(0), &batch).unwrap();
        }
        let (table, id) = (Path::new("/t"), FileId(1));
        let mut writer = FileWriter::create(disk, table, id, Timestamp(0)).unwrap();
        writer.add(&rows.finish().unwrap()).unwrap();
        let (first, end) = (Offset(10), Offset(10 + 2 * times.len() as i64));
        let part = Covered { partition: 1, first, end, raw_bytes: 0 };
        TableFile { facts: writer.finish(&[part]).unwrap(), path: file_path(table, id) }
    }

    #[test]
    fn records_are_found_by_their_time() {
        let disk = SimDisk::new(1);
        let file = file(&disk, &[50, 40, 70, 60, 70], false);
        let blocks = Blocks::new(Arc::new(disk), 1 << 20);
        let check = |time: i64, from: i64, expect: Option<(i64, i64)>| {
            let range = Offset(from)..Offset(i64::MAX);
            let found = find_time(&blocks, &file, 1, Timestamp(time), range).unwrap();
            assert!(found.is_none_or(|found| found.leader_epoch == LeaderEpoch(3)));
            assert_eq!(found.map(|found| (found.offset.0, found.timestamp.0)), expect);
        };
        check(0, 0, Some((10, 50)));
        check(51, 0, Some((14, 70)));
        check(60, 15, Some((16, 60)));
        check(61, 15, Some((18, 70)));
        check(71, 0, None);
        check(0, 19, None);
        let latest = |from: i64, until: i64| {
            find_latest(&blocks, &file, 1, Offset(from)..Offset(until)).unwrap()
        };
        assert_eq!(latest(0, 99).map(|found| found.offset), Some(Offset(14)));
        assert_eq!(latest(15, 99).map(|found| found.offset), Some(Offset(18)));
        assert_eq!(latest(0, 14).map(|found| found.offset), Some(Offset(10)));
        assert_eq!(latest(20, 99), None);
        assert!(find_latest(&blocks, &file, 2, Offset(0)..Offset(99)).is_err());
    }

    #[test]
    fn with_append_time_the_last_of_the_latest_is_named() {
        let disk = SimDisk::new(1);
        let file = file(&disk, &[40, 70, 70, 60], true);
        let blocks = Blocks::new(Arc::new(disk), 1 << 20);
        let latest = find_latest(&blocks, &file, 1, Offset(0)..Offset(99)).unwrap();
        assert_eq!(latest.map(|found| found.offset), Some(Offset(14)));
    }
}
