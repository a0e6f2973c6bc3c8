//! The partitions of a log, by dense id and by key.
//!
//! `Log` owns one; recovery fills it. Ids are given in order and never twice.

use crate::ids::{DenseId, PartitionKey};
use crate::partition::Partition;
use rustc_hash::FxHashMap;

/// The partitions of a log by dense id and key.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    /// Boxed, so that the id of a partition that was never used here costs 8 bytes.
    slots: Vec<Option<Box<Partition>>>,
    by_key: FxHashMap<PartitionKey, DenseId>,
}

impl Partitions {
    pub fn get(&self, id: DenseId) -> Option<&Partition> {
        self.slots.get(id.0 as usize)?.as_deref()
    }

    pub fn get_mut(&mut self, id: DenseId) -> Option<&mut Partition> {
        self.slots.get_mut(id.0 as usize)?.as_deref_mut()
    }

    pub fn find(&self, key: &PartitionKey) -> Option<DenseId> {
        self.by_key.get(key).copied()
    }

    pub fn insert(&mut self, id: DenseId, partition: Partition) {
        let at = id.0 as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        self.by_key.insert(partition.key, id);
        let before = self.slots[at].replace(Box::new(partition));
        assert!(before.is_none(), "a dense id is given once");
    }

    pub fn remove(&mut self, id: DenseId) -> Option<Partition> {
        let partition = self.slots.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(&partition.key);
        Some(*partition)
    }

    pub fn iter(&self) -> impl Iterator<Item = (DenseId, &Partition)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| Some((DenseId(at as u32), slot.as_deref()?)))
    }

    /// The number the next partition gets.
    pub fn next_dense(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn reserve_below(&mut self, next_dense: u32) {
        if self.slots.len() < next_dense as usize {
            self.slots.resize_with(next_dense as usize, || None);
        }
    }
}
