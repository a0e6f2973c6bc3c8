//! Reading what the log has let go of: batches and look-ups by time out of a partition's table.
//!
//! Planned on the core as the parts of one version, which keeps their files from being removed; the
//! files are opened and read on a worker. A read that finds no row left in a part goes on into the
//! next one, and returns at least an empty batch: a reader always gets on.

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

    /// Reads the batches. Blocks.
    pub fn read(
        &self,
        from: Offset,
        (bytes_max, whole_first): (usize, bool),
    ) -> Result<Bytes, ColdError> {
        let mut batches: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        for (at, PartAt { file, part }) in self.parts.iter().enumerate() {
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

/// Where batches end, and how many records are in them.
fn summed_up(mut bytes: &[u8]) -> (Offset, i64) {
    let (mut end, mut records) = (Offset(0), 0);
    while let Ok((header, _, rest)) = BatchHeader::split(bytes) {
        end = header.end_offset();
        records += i64::from(header.record_count);
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
        let (blocks, file, partition) = (&self.blocks, &self.file, self.part.partition);
        let found = match target {
            TimeTarget::AtOrAfter(time) => find_time(blocks, file, partition, time, from..until)?,
            TimeTarget::Greatest => find_latest(blocks, file, partition, from..until)?,
        };
        Ok(found.map(|found| Found {
            offset: found.offset,
            timestamp: found.timestamp,
            leader_epoch: found.leader_epoch,
        }))
    }
}
