//! Reading what the log has let go of: batches and look-ups by time out of a partition's table.
//!
//! Planned on the core as the parts of one version, which keeps their files from being removed; the
//! files are opened and read on a worker. A read that finds no row left in a part goes on into the
//! next one, and returns at least a gap batch: a reader always gets on.

use super::cold::ColdError;
use super::seek::{Found, TimeTarget};
use crate::batch::BatchHeader;
use crate::ids::Offset;
use crate::partition::Partition;
use crate::table::cache::Blocks;
use crate::table::rebatch::{rebatch, Want};
use crate::table::seek::{find_latest, find_time};
use crate::table::{Part, PartAt, TableFile};
use bytes::Bytes;
use std::sync::Arc;

/// Parts taken along for one read: small ones of a table that is seldom written.
const PARTS_MAX: usize = 32;

/// A read of what is only in a table.
#[derive(Clone)]
pub(super) struct TableRead {
    blocks: Arc<Blocks>,
    partition: i32,
    /// In offset order; the first has the wanted offset or begins behind it.
    parts: Vec<PartAt>,
}

impl std::fmt::Debug for TableRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.parts.first().map(|at| at.file.path.display());
        match path {
            Some(path) => write!(f, "{path}-{}", self.partition),
            None => write!(f, "nothing"),
        }
    }
}

impl TableRead {
    /// The read of an offset that is below what the log still has.
    pub fn plan(partition: &Partition, from: Offset, blocks: &Arc<Blocks>) -> Option<TableRead> {
        if from >= partition.hot_start() {
            return None;
        }
        let number = partition.key.partition;
        let parts = partition.table.as_ref()?.parts(number);
        let first = parts.partition_point(|at| at.part.end <= from);
        let cold = |at: &&PartAt| at.part.first < partition.hot_start();
        let parts = parts.get(first..).unwrap_or_default().iter();
        let parts: Vec<PartAt> = parts.take_while(cold).take(PARTS_MAX).cloned().collect();
        let read = TableRead { blocks: blocks.clone(), partition: number, parts };
        (!read.parts.is_empty()).then_some(read)
    }

    pub fn ahead(&self, bytes_max: usize) -> ReadAhead {
        ReadAhead { table: self.clone(), bytes_max }
    }

    /// Reads the batches. Blocks.
    pub fn read(
        &self,
        from: Offset,
        (bytes_max, whole_first): (usize, bool),
    ) -> Result<Bytes, ColdError> {
        let mut batches: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        for (at, PartAt { file, part }) in self.parts.iter().enumerate() {
            if part.end <= from {
                continue;
            }
            let want = Want {
                partition: self.partition,
                from,
                bytes_max: bytes_max.saturating_sub(bytes),
                whole_first: whole_first && batches.is_empty(),
            };
            let read = rebatch(&self.blocks, file, &want)?;
            if read.is_empty() {
                break;
            }
            let (end, records) = summed_up(&read);
            if records == 0 && end >= part.end && at + 1 < self.parts.len() {
                continue;
            }
            bytes += read.len();
            batches.push(read);
            if end < part.end {
                break;
            }
        }
        Ok(match batches.len() {
            1 => batches.remove(0),
            _ => batches.concat().into(),
        })
    }
}

/// Makes ready what follows a read, for a reader that goes on.
#[derive(Debug)]
pub struct ReadAhead {
    table: TableRead,
    bytes_max: usize,
}

impl ReadAhead {
    /// `read` is what the read gave. Only one that was cut short by its bound will go on at once.
    /// Blocks.
    pub fn run(self, read: &[u8]) {
        if read.len() < self.bytes_max / 2 {
            return;
        }
        let (from, _) = summed_up(read);
        if let Err(error) = self.table.read(from, (self.bytes_max, true)) {
            // Whoever wants it will hear of it.
            tracing::debug!(%error, "nothing is read ahead");
        }
    }
}

/// Where batches end, and how many records that are rows are in them.
fn summed_up(mut bytes: &[u8]) -> (Offset, i64) {
    let (mut end, mut records) = (Offset(0), 0);
    while let Ok((header, _, rest)) = BatchHeader::split(bytes) {
        end = header.end_offset();
        if !header.attributes.is_control() {
            records += i64::from(header.record_count);
        }
        bytes = rest;
    }
    (end, records)
}

/// A part in which a record may be found by its time.
pub(super) struct TablePlace {
    blocks: Arc<Blocks>,
    file: Arc<TableFile>,
    pub part: Part,
}

impl TablePlace {
    pub fn new(blocks: &Arc<Blocks>, at: &PartAt) -> TablePlace {
        TablePlace { blocks: blocks.clone(), file: at.file.clone(), part: at.part }
    }

    /// The record sought among those of `[from, until)`. Blocks.
    pub fn find(
        &self,
        target: TimeTarget,
        from: Offset,
        until: Offset,
    ) -> Result<Option<Found>, ColdError> {
        let (partition, offsets) = (self.part.partition, from..until);
        Ok(match target {
            TimeTarget::AtOrAfter(time) => {
                find_time(&self.blocks, &self.file, partition, time, offsets)?
            }
            TimeTarget::Greatest => find_latest(&self.blocks, &self.file, partition, offsets)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{place, BatchBuilder, NewRecord};
    use crate::disk::sim::SimDisk;
    use crate::disk::Disk;
    use crate::ids::{LeaderEpoch, Timestamp};
    use crate::table::file::{Covered, FileWriter};
    use crate::table::rows::RowsBuilder;
    use crate::table::{file_path, FileId};
    use std::path::Path;

    /// A part `first..end` with one record at its start, if it is to have one.
    fn part(disk: &SimDisk, first: i64, end: i64, has_record: bool) -> PartAt {
        let (table, id) = (Path::new("/t"), FileId(first as u64));
        let mut writer = FileWriter::create(disk, table, id, Timestamp(0)).unwrap();
        if has_record {
            let mut batch = BatchBuilder::new();
            batch.push(&NewRecord { value: Some(b"v"), ..Default::default() });
            let mut batch = batch.build();
            place(&mut batch, Offset(first), LeaderEpoch(0));
            let mut rows = RowsBuilder::new();
            rows.push(0, Timestamp(0), &batch).unwrap();
            writer.add(&rows.finish().unwrap()).unwrap();
        }
        let (first, end) = (Offset(first), Offset(end));
        let facts = writer.finish(&[Covered { partition: 0, first, end, raw_bytes: 0 }]).unwrap();
        let part = facts.parts[0];
        PartAt { file: Arc::new(TableFile { path: file_path(table, id), facts }), part }
    }

    #[test]
    fn a_read_goes_on_over_parts_without_records() {
        let disk = SimDisk::new(1);
        let parts = vec![
            part(&disk, 0, 10, true),
            part(&disk, 10, 20, false),
            part(&disk, 20, 30, true),
            part(&disk, 30, 40, false),
        ];
        let blocks = Arc::new(Blocks::new(Arc::new(disk), 1 << 20));
        let read = TableRead { blocks, partition: 0, parts };
        let check = |from: i64, bytes_max: usize, expect: (i64, i64)| {
            let (end, records) = summed_up(&read.read(Offset(from), (bytes_max, true)).unwrap());
            assert_eq!((end.0, records), expect, "from {from}");
        };
        check(0, 1 << 20, (40, 2));
        check(0, 1, (10, 1));
        check(5, 1 << 20, (40, 1));
        check(12, 1 << 20, (40, 1));
        check(25, 1 << 20, (40, 0));
        check(33, 1 << 20, (40, 0));
        assert!(read.read(Offset(40), (1, true)).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_went_with_its_topic_is_no_damage() {
        let disk = SimDisk::new(1);
        let parts = vec![part(&disk, 0, 10, true)];
        let blocks = Arc::new(Blocks::new(Arc::new(disk.clone()), 1 << 20));
        let read = TableRead { blocks, partition: 0, parts };
        disk.remove(&read.parts[0].file.path).unwrap();
        let outcome = read.read(Offset(0), (100, true));
        assert!(matches!(outcome, Err(ColdError::Removed)), "{outcome:?}");
    }
}
