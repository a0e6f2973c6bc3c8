//! What the log knows of the tables of its partitions, and what it has that is in none.
//!
//! Whoever keeps a table says what it consists of, at the start and after each change; from then on
//! the log may let go of what is in it (`cooling`). In the other direction the log says which
//! partitions were appended to, and how much of each waits for its table. Only what is on stable
//! storage is offered: a table must not know more than a log that lost its power.
//!
//! After a start the checkpoint says from where a partition is hot. Should a segment be lost whose
//! records are all in the table, it is hot from behind that hole; what the table does not explain
//! is missing.

use super::engine::Log;
use super::feed::share;
use crate::ids::{DenseId, Offset, PartitionKey, Timestamp};
use crate::partition::Partition;
use crate::table::cache::Blocks;
use crate::table::Version;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// How the records of a partition are spread over table and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEnds {
    /// From here on everything is in the log.
    pub hot_start: Offset,
    /// Below it everything is in the table.
    pub table_end: Offset,
}

/// What of a partition is to go into its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub key: PartitionKey,
    /// The table's end.
    pub from: Offset,
    /// The end of what is decided, committed and on stable storage; `from` when there is nothing.
    pub until: Offset,
    /// What the batches in between take, about.
    pub bytes: u64,
    /// The broker's clock when the oldest record came that is in no table, decided or not; rather
    /// too early than too late.
    pub since: Option<Timestamp>,
}

impl Log {
    /// Says what the table of a partition consists of. One that is older than what is known
    /// changes nothing.
    pub fn set_table(&mut self, id: DenseId, version: Arc<Version>) {
        let Some(partition) = self.partitions.get_mut(id) else { return };
        let known = partition.table.as_ref().map(|known| known.number);
        if known.is_some_and(|known| known > version.number) {
            return;
        }
        let number = partition.key.partition;
        let start = version.starts().get(&number).copied().unwrap_or(Offset(0));
        let table_end = version.table_end(number).unwrap_or(Offset(0)).max(partition.table_end());
        if table_end > partition.log_end() {
            // The log has lost what its table has: offsets are never given twice.
            partition.advance(partition.log_start(), table_end, table_end);
        }
        let gone = match start > partition.log_start() {
            true => partition.raise_log_start(start),
            false => Vec::new(),
        };
        partition.table = Some(version);
        let hot_start = explained(partition, table_end);
        if partition.settings.compaction.is_some() && table_end > partition.table_end() {
            self.mover.seek_cleaning();
        }
        let cooled = partition.advance_table(hot_start, table_end);
        gone.iter().for_each(|run| self.release(run));
        self.cooled(id, cooled);
        self.let_go(id);
    }

    /// Has what is read out of tables shared with others.
    pub fn set_blocks(&mut self, blocks: Arc<Blocks>) {
        self.blocks = blocks;
    }

    /// Where table and log of a partition meet.
    pub fn table_ends(&self, id: DenseId) -> Option<TableEnds> {
        let partition = self.partitions.get(id)?;
        let (hot_start, table_end) = (partition.hot_start(), partition.table_end());
        Some(TableEnds { hot_start, table_end })
    }

    /// Ranges of a partition that are neither in the log nor in the table it was told of.
    pub fn missing(&self, id: DenseId) -> Vec<Range<Offset>> {
        let holes = self.partitions.get(id).map_or(Vec::new(), Partition::holes);
        holes.into_iter().map(|(from, end)| from..end).collect()
    }

    /// The partitions that were appended to since the last call, or found in the log at the start;
    /// none of the broker's own, which have no tables.
    pub fn take_fresh(&mut self) -> Vec<DenseId> {
        let fresh = std::mem::take(&mut self.fresh);
        for &id in &fresh {
            if let Some(partition) = self.partitions.get_mut(id) {
                partition.fresh = false;
            }
        }
        fresh
    }

    /// What of a partition waits for its table.
    pub fn pending(&self, id: DenseId) -> Option<Pending> {
        let partition = self.partitions.get(id)?;
        let from = partition.table_end();
        let durable = self.durable_end(id, partition);
        let until = partition.last_stable().min(durable).max(from);
        let runs = partition.runs.iter().rev().take_while(|run| run.end > from);
        let bytes = runs.map(|run| share(run, from, until)).sum();
        let since = partition.arrivals.since();
        Some(Pending { key: partition.key, from, until, bytes, since })
    }

    /// Every batch of a partition before it is on stable storage, whatever its flush policy says.
    fn durable_end(&self, id: DenseId, partition: &Partition) -> Offset {
        let durable = self.commit.durable();
        if partition.last_position <= durable {
            return partition.log_end();
        }
        for run in partition.runs.iter().rev() {
            match run.segment.cmp(&durable.segment) {
                Ordering::Less => return run.end,
                Ordering::Equal => {
                    let index = self.index_of(run.segment);
                    let entries = index.map_or(&[][..], |index| index.entries(id, run.base));
                    let end = |at: u64| at <= u64::from(durable.offset);
                    let within = entries.partition_point(|entry| {
                        end(u64::from(entry.frame_start()) + entry.frame_bytes())
                    });
                    let last = within.checked_sub(1).and_then(|last| entries.get(last));
                    if let Some(last) = last {
                        return last.end().min(run.end);
                    }
                }
                Ordering::Greater => {}
            }
        }
        partition.log_start()
    }
}

/// Where a partition is hot from, whose table ends at `table_end`: behind the last hole that this
/// explains.
fn explained(partition: &Partition, table_end: Offset) -> Offset {
    let holes = partition.holes();
    match holes.iter().rfind(|(from, _)| *from < table_end) {
        Some((_, end)) => partition.hot_start_behind(*end.min(&table_end)).min(table_end),
        None => partition.hot_start(),
    }
}
