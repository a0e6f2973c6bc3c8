//! The oracle of compacted partitions: which records must be there, and which may be gone.
//!
//! It knows nothing of when compaction runs. A record is where it was appended or nowhere; it may
//! be gone when a later one that readers see has its key; the mark of a deleted key may be gone
//! when its time was up, and then all before it that had the key are gone too. The last batch is
//! there.

use crate::history::{Partition, Read, Violation};
use shard::batch::{BatchHeader, Records, HEADER_BYTES};
use shard::ids::{Offset, PartitionKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// One record: where, key, value, time.
pub type Row = (Offset, Vec<u8>, Option<Vec<u8>>, Timestamp);

/// The records of a batch. A marker, which covers a gap in what comes out of a table, is none.
pub fn rows(batch: &[u8]) -> Vec<Row> {
    let header = BatchHeader::parse(batch).expect("read whole");
    if header.attributes.is_control() {
        return Vec::new();
    }
    let records = Records::new(&batch[HEADER_BYTES..], header.record_count);
    let row = |record: shard::batch::Record<'_>| {
        let time = Timestamp(header.base_timestamp.0 + record.timestamp_delta);
        let offset = header.base_offset.plus(i64::from(record.offset_delta));
        let key = record.key.unwrap_or_default().to_vec();
        (offset, key, record.value.map(<[u8]>::to_vec), time)
    };
    records.map(|record| row(record.expect("stored whole"))).collect()
}

/// The records that were read from `from` on, none of which was not appended.
fn found(
    key: PartitionKey,
    partition: &Partition,
    from: Offset,
    read: &[Read],
) -> Result<BTreeMap<Offset, Row>, Violation> {
    let mut found: BTreeMap<Offset, Row> = BTreeMap::new();
    let mut batches = partition.batches.iter();
    for Read { bytes, append_time, from_table } in read {
        let header = BatchHeader::parse(bytes).map_err(|error| gone_wrong(key, &error))?;
        let base = header.base_offset;
        if *from_table {
            let within = |row: &Row| row.0 >= from;
            let rows: Vec<Row> = rows(bytes).into_iter().filter(within).collect();
            let appended = |row: &Row| {
                let batch = partition.batches.iter().find(|batch| batch.end > row.0);
                batch.is_some_and(|batch| self::rows(&batch.bytes).contains(row))
            };
            if !rows.iter().all(appended) {
                return Err(Violation::Changed { key, base });
            }
            let end = header.end_offset();
            let past = partition.batches.partition_point(|batch| batch.end <= end);
            batches = partition.batches[past..].iter();
            found.extend(rows.into_iter().map(|row| (row.0, row)));
            continue;
        }
        let Some(batch) = batches.find(|batch| batch.base == base) else {
            return Err(Violation::Changed { key, base });
        };
        let original = BatchHeader::parse(&batch.bytes).expect("built whole");
        let same = header.end_offset() == batch.end
            && header.producer_id == original.producer_id
            && header.base_sequence == original.base_sequence
            && header.leader_epoch == original.leader_epoch
            && append_time.is_none_or(|time| time == batch.append_time);
        let appended = rows(&batch.bytes);
        let rows = rows(bytes);
        if !same || !rows.iter().all(|row| appended.contains(row)) {
            return Err(Violation::Changed { key, base });
        }
        found.extend(rows.into_iter().map(|row| (row.0, row)));
    }
    Ok(found)
}

/// Holds what was read from `from` up to `until` against what was appended.
pub fn check(
    key: PartitionKey,
    partition: &Partition,
    (from, until): (Offset, Offset),
    read: &[Read],
    lasted: impl Fn(usize) -> i64,
) -> Result<(), Violation> {
    let found = found(key, partition, from, read)?;
    let visible = |end: Offset| end > from && end <= until;
    let last = partition.batches.iter().rfind(|batch| visible(batch.end));
    let read_end = read.last().and_then(|read| BatchHeader::parse(&read.bytes).ok());
    if last.map(|batch| batch.end) != read_end.map(|header| header.end_offset()) {
        let expected = last.map_or(from, |batch| batch.base);
        return Err(Violation::Gap { key, expected, found: None });
    }
    let mut later: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut deleted: BTreeSet<Vec<u8>> = BTreeSet::new();
    for batch in partition.batches.iter().rev().filter(|batch| visible(batch.end)) {
        // Out of a table no row comes that is below the log start.
        let rows = rows(&batch.bytes).into_iter().rev().filter(|row| row.0 >= from);
        for (offset, name, value, _) in rows {
            let is_there = found.contains_key(&offset);
            let is_last = later.insert(name.clone());
            let mark_is_due = value.is_none() && lasted(batch.step) >= delete_retention(partition);
            if is_there && deleted.contains(&name) {
                return Err(Violation::Resurrected { key, offset });
            }
            if !is_there && is_last && !mark_is_due {
                return Err(Violation::Gap { key, expected: offset, found: None });
            }
            if !is_there && is_last {
                deleted.insert(name);
            }
        }
    }
    Ok(())
}

fn delete_retention(partition: &Partition) -> i64 {
    partition.settings.compaction.map_or(0, |compaction| compaction.delete_retention_ms)
}

fn gone_wrong(key: PartitionKey, error: &impl std::fmt::Debug) -> Violation {
    Violation::Failed { call: "read", error: format!("{key}: {error:?}") }
}
