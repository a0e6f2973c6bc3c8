//! What a table should hold: the log's records in maps, and compaction by its definition.
//!
//! Ten times simpler than the table: no files, no parts, nothing that could be half done.

use std::collections::{BTreeMap, HashMap};

/// A record, as far as a table's readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp: i64,
    pub append_time: i64,
}

/// The rows of one partition that are in the table, and more that were.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    pub rows: BTreeMap<i64, Row>,
    /// When a compaction first went through a row.
    gone_through: BTreeMap<i64, i64>,
}

impl Partition {
    /// A compaction went through everything of `[start, end)`; returns how many rows it dropped.
    pub fn compact(&mut self, start: i64, end: i64, now: i64, delete_retention_ms: i64) -> usize {
        let before = self.rows.len();
        let mut last: HashMap<Vec<u8>, i64> = HashMap::new();
        for (offset, row) in self.rows.range(start..end) {
            if let Some(key) = &row.key {
                last.insert(key.clone(), *offset);
            }
        }
        let gone_through = &self.gone_through;
        self.rows.retain(|offset, row| {
            if !(start..end).contains(offset) {
                return true;
            }
            let Some(key) = &row.key else { return false };
            let is_due = |since: &i64| now - since >= delete_retention_ms;
            let is_old_mark = row.value.is_none() && gone_through.get(offset).is_some_and(is_due);
            last.get(key) == Some(offset) && !is_old_mark
        });
        for offset in self.rows.range(start..end).map(|(offset, _)| *offset) {
            self.gone_through.entry(offset).or_insert(now);
        }
        before - self.rows.len()
    }
}
