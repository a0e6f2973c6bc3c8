//! What a partition knows of its producers: the last five batches of each, and open transactions.
//!
//! Asked before an append (`check`), told after it and in recovery (`apply`). It recognises a
//! batch sent again, refuses gaps and old epochs, and knows where the first open transaction
//! starts. As in Apache Kafka, a producer that is not known (any more) may begin with any
//! sequence number. Time comes in: the broker's, not the producer's, which could be anything.
//!
//! Gap: whether a transaction was begun with its coordinator is not checked here.
//!
//! Kept in checkpoints, little-endian; no producer is no bytes. Each producer, by ascending id:
//!
//! | bytes         | field                                                          |
//! |---------------|----------------------------------------------------------------|
//! | 0             | format, 1 (once, before the first producer)                    |
//! | 0..8          | producer id                                                    |
//! | 8..10         | producer epoch                                                 |
//! | 10..14        | epoch of the coordinator that wrote the last marker, −1: none  |
//! | 14..22        | broker time of the last append                                 |
//! | 22..30        | first offset of the open transaction, −1: none                 |
//! | 30            | how many batches follow, 0 to 5, oldest first                  |
//! | 31 + 24n (8)  | base offset                                                    |
//! | 39 + 24n (8)  | broker time of the append                                      |
//! | 47 + 24n (4)  | first sequence                                                 |
//! | 51 + 24n (4)  | last sequence                                                  |

use super::damage::{Fields, StateDamage};
use crate::batch::{sequence_plus, BatchHeader};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};

const FORMAT: u8 = 1;

/// How many batches of a producer are recognised when sent again.
pub const BATCHES_KEPT: usize = 5;
/// How many transactions may be open in a partition at once: their producers are never evicted.
pub const OPEN_TRANSACTIONS_MAX: usize = 10_000;

/// What an append of a batch would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    New,
    /// It is in the log already.
    Duplicate {
        base_offset: Offset,
        last_offset: Offset,
        append_time: Timestamp,
    },
}

/// Why a batch must not be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    #[error("producer {producer_id} sent sequence {got}, expected {expected}")]
    OutOfOrder { producer_id: ProducerId, expected: i32, got: i32 },
    #[error("producer {producer_id} has epoch {current}, the batch {got}")]
    StaleEpoch { producer_id: ProducerId, current: ProducerEpoch, got: ProducerEpoch },
    #[error("producer {producer_id} has a transaction open since offset {first}")]
    TransactionOpen { producer_id: ProducerId, first: Offset },
    #[error("{open} transactions are open in the partition")]
    TooManyTransactions { open: usize },
    #[error("producer {producer_id}: coordinator epoch {got} is older than {current}")]
    StaleCoordinator { producer_id: ProducerId, current: i32, got: i32 },
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub producer_id: ProducerId,
    /// The offset of its first record in this partition.
    pub first: Offset,
    /// The offset of the marker.
    pub marker: Offset,
}

/// The producers of a partition. Without any it is one empty pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    table: Option<Box<Table>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    /// By ascending id.
    producers: Vec<(ProducerId, Box<Producer>)>,
    /// Open ones, and ended ones whose marker is not yet known to be committed; by first offset.
    transactions: Vec<Transaction>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: ProducerEpoch,
    coordinator_epoch: i32,
    last_append: Timestamp,
    open: Option<Offset>,
    /// Oldest first.
    batches: [Batch; BATCHES_KEPT],
    batch_count: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Batch {
    base_offset: Offset,
    append_time: Timestamp,
    first_sequence: i32,
    last_sequence: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transaction {
    first: Offset,
    producer_id: ProducerId,
    marker: Option<Offset>,
}

impl Producers {
    pub fn is_empty(&self) -> bool {
        self.table.is_none()
    }

    pub fn count(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.producers.len())
    }

    /// What appending the batch would mean. Batches without a producer are always new.
    pub fn check(&self, header: &BatchHeader) -> Result<Verdict, ProducerError> {
        if !header.has_producer() {
            return Ok(Verdict::New);
        }
        let opens = header.attributes.is_transactional() && !header.attributes.is_control();
        let producer = self.find(header.producer_id);
        if let Some(producer) = producer {
            if let Some(batch) = producer.duplicate_of(header) {
                return Ok(batch.verdict());
            }
            producer.check(header)?;
        }
        if opens && producer.is_none_or(|producer| producer.open.is_none()) {
            let open = self.open_transactions();
            if open >= OPEN_TRANSACTIONS_MAX {
                return Err(ProducerError::TooManyTransactions { open });
            }
        }
        Ok(Verdict::New)
    }

    /// Whether a coordinator of this epoch may write a marker for the producer.
    pub fn check_coordinator(&self, id: ProducerId, epoch: i32) -> Result<(), ProducerError> {
        match self.find(id) {
            Some(producer) if epoch < producer.coordinator_epoch => {
                Err(ProducerError::StaleCoordinator {
                    producer_id: id,
                    current: producer.coordinator_epoch,
                    got: epoch,
                })
            }
            _ => Ok(()),
        }
    }

    /// The batch lies at `base_offset` since `now`. A control batch ends the producer's open
    /// transaction. At most `producers_max` producers without an open transaction are kept: of
    /// those, the ones silent for longest go.
    pub fn apply(
        &mut self,
        header: &BatchHeader,
        base_offset: Offset,
        now: Timestamp,
        producers_max: usize,
    ) -> Option<Ended> {
        if !header.has_producer() {
            return None;
        }
        let id = header.producer_id;
        let table = self.table.get_or_insert_default();
        let producer = table.entry(id, producers_max);
        producer.advance(header, base_offset, now);
        if header.attributes.is_control() {
            let first = producer.open.take()?;
            table.close(first, base_offset);
            return Some(Ended { producer_id: id, first, marker: base_offset });
        }
        if header.attributes.is_transactional() && producer.open.is_none() {
            producer.open = Some(base_offset);
            table.open(base_offset, id);
        }
        None
    }

    /// Remembers the coordinator that wrote the marker just applied.
    pub fn set_coordinator(&mut self, id: ProducerId, epoch: i32) {
        if let Some(producer) = self.find_mut(id) {
            producer.coordinator_epoch = epoch;
        }
    }

    /// Forgets producers without an open transaction that were silent for `expiry_ms`.
    pub fn expire(&mut self, now: Timestamp, expiry_ms: i64) {
        let Some(table) = &mut self.table else {
            return;
        };
        let silent = |last: Timestamp| now.0.saturating_sub(last.0) >= expiry_ms;
        table
            .producers
            .retain(|(_, producer)| producer.open.is_some() || !silent(producer.last_append));
        table.producers.shrink_to_fit();
        if table.producers.is_empty() && table.transactions.is_empty() {
            self.table = None;
        }
    }

    /// Where the first open transaction starts.
    pub fn first_open_offset(&self) -> Option<Offset> {
        let table = self.table.as_ref()?;
        let open = table.transactions.iter().find(|transaction| transaction.marker.is_none())?;
        Some(open.first)
    }

    /// Where the first transaction starts that is open, or whose marker is not below the high
    /// watermark: a reader of committed records stops there, since a lost marker would undo what
    /// it read.
    pub fn first_undecided(&self, high_watermark: Offset) -> Option<Offset> {
        let table = self.table.as_ref()?;
        let undecided = |transaction: &&Transaction| {
            transaction.marker.is_none_or(|marker| marker >= high_watermark)
        };
        Some(table.transactions.iter().find(undecided)?.first)
    }

    /// Markers below the high watermark are committed: their transactions are done with.
    pub fn settle(&mut self, high_watermark: Offset) {
        if let Some(table) = &mut self.table {
            table.transactions.retain(|transaction| {
                transaction.marker.is_none_or(|marker| marker >= high_watermark)
            });
        }
    }

    fn open_transactions(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.transactions.len())
    }

    fn find(&self, id: ProducerId) -> Option<&Producer> {
        let table = self.table.as_ref()?;
        let at = table.producers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        table.producers.get(at).map(|(_, producer)| producer.as_ref())
    }

    fn find_mut(&mut self, id: ProducerId) -> Option<&mut Producer> {
        let table = self.table.as_mut()?;
        let at = table.producers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        table.producers.get_mut(at).map(|(_, producer)| producer.as_mut())
    }
}

impl Table {
    /// The producer of this id, made if there is none.
    fn entry(&mut self, id: ProducerId, producers_max: usize) -> &mut Producer {
        let found = self.producers.binary_search_by_key(&id, |&(id, _)| id);
        let at = match found {
            Ok(at) => at,
            Err(_) => {
                if self.producers.len() >= producers_max {
                    self.evict();
                }
                let at = self.producers.partition_point(|&(other, _)| other < id);
                if self.producers.capacity() == 0 {
                    // Most partitions have one producer.
                    self.producers.reserve_exact(1);
                }
                self.producers.insert(at, (id, Box::default()));
                at
            }
        };
        &mut self.producers[at].1
    }

    /// Forgets the longest silent sixteenth, so that a flood of ids costs little for each.
    fn evict(&mut self) {
        let idle = self.producers.iter().filter(|(_, producer)| producer.open.is_none());
        let mut ages: Vec<_> = idle.map(|(id, producer)| (producer.last_append, *id)).collect();
        if ages.is_empty() {
            return;
        }
        let last = ages.len() / 16;
        let (_, &mut limit, _) = ages.select_nth_unstable(last);
        self.producers.retain(|(id, producer)| {
            producer.open.is_some() || (producer.last_append, *id) > limit
        });
    }

    fn open(&mut self, first: Offset, producer_id: ProducerId) {
        let at = self.transactions.partition_point(|other| other.first <= first);
        let transaction = Transaction { first, producer_id, marker: None };
        self.transactions.insert(at, transaction);
    }

    fn close(&mut self, first: Offset, marker: Offset) {
        let at = self.transactions.partition_point(|other| other.first < first);
        if let Some(transaction) = self.transactions.get_mut(at) {
            transaction.marker = Some(marker);
        }
    }
}

impl Default for Producer {
    fn default() -> Producer {
        Producer {
            epoch: ProducerEpoch(-1),
            coordinator_epoch: -1,
            last_append: Timestamp(-1),
            open: None,
            batches: [Batch::default(); BATCHES_KEPT],
            batch_count: 0,
        }
    }
}

impl Producer {
    fn batches(&self) -> &[Batch] {
        &self.batches[..usize::from(self.batch_count)]
    }

    /// The batch that `header` repeats.
    fn duplicate_of(&self, header: &BatchHeader) -> Option<&Batch> {
        if header.producer_epoch != self.epoch || header.attributes.is_control() {
            return None;
        }
        let (first, last) = (header.base_sequence, header.last_sequence());
        self.batches()
            .iter()
            .find(|batch| batch.first_sequence == first && batch.last_sequence == last)
    }

    fn check(&self, header: &BatchHeader) -> Result<(), ProducerError> {
        let producer_id = header.producer_id;
        if header.producer_epoch < self.epoch {
            return Err(ProducerError::StaleEpoch {
                producer_id,
                current: self.epoch,
                got: header.producer_epoch,
            });
        }
        if header.attributes.is_control() {
            return Ok(());
        }
        // The broker's own transactional records carry no sequence.
        let got = header.base_sequence;
        let expected = self.expected(header.producer_epoch);
        if got >= 0 && got != expected {
            return Err(ProducerError::OutOfOrder { producer_id, expected, got });
        }
        match self.open {
            Some(first) if !header.attributes.is_transactional() => {
                Err(ProducerError::TransactionOpen { producer_id, first })
            }
            _ => Ok(()),
        }
    }

    /// The next sequence number under `epoch`: a newer epoch starts at 0.
    fn expected(&self, epoch: ProducerEpoch) -> i32 {
        match self.batches().last() {
            Some(last) if epoch == self.epoch => sequence_plus(last.last_sequence, 1),
            _ => 0,
        }
    }

    fn advance(&mut self, header: &BatchHeader, base_offset: Offset, now: Timestamp) {
        if header.producer_epoch != self.epoch {
            self.epoch = header.producer_epoch;
            self.batches = Default::default();
            self.batch_count = 0;
        }
        self.last_append = now;
        if header.attributes.is_control() || header.base_sequence < 0 {
            return;
        }
        if usize::from(self.batch_count) == BATCHES_KEPT {
            self.batches.rotate_left(1);
            self.batch_count -= 1;
        }
        self.batches[usize::from(self.batch_count)] = Batch {
            base_offset,
            append_time: now,
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
        };
        self.batch_count += 1;
    }
}

impl Batch {
    fn verdict(&self) -> Verdict {
        let more = self.last_sequence.wrapping_sub(self.first_sequence) & i32::MAX;
        Verdict::Duplicate {
            base_offset: self.base_offset,
            last_offset: Offset(self.base_offset.0.saturating_add(i64::from(more))),
            append_time: self.append_time,
        }
    }
}

impl Producers {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, producer) in self.table.iter().flat_map(|table| &table.producers) {
            if out.is_empty() {
                out.push(FORMAT);
            }
            out.extend(id.0.to_le_bytes());
            out.extend(producer.epoch.0.to_le_bytes());
            out.extend(producer.coordinator_epoch.to_le_bytes());
            out.extend(producer.last_append.0.to_le_bytes());
            out.extend(producer.open.map_or(-1, |first| first.0).to_le_bytes());
            out.push(producer.batch_count);
            for batch in producer.batches() {
                out.extend(batch.base_offset.0.to_le_bytes());
                out.extend(batch.append_time.0.to_le_bytes());
                out.extend(batch.first_sequence.to_le_bytes());
                out.extend(batch.last_sequence.to_le_bytes());
            }
        }
        out
    }

    /// Ended transactions are not kept: what a checkpoint holds is committed.
    pub fn decode(bytes: &[u8]) -> Result<Producers, StateDamage> {
        if bytes.is_empty() {
            return Ok(Producers::default());
        }
        let mut fields = Fields(bytes);
        match fields.u8()? {
            FORMAT => {}
            other => return Err(StateDamage::Version(other)),
        }
        let mut table = Table::default();
        let mut before = ProducerId(-1);
        while !fields.0.is_empty() {
            let (id, producer) = decode_producer(&mut fields)?;
            if id <= before {
                return Err(StateDamage::Field);
            }
            before = id;
            if let Some(first) = producer.open {
                table.open(first, id);
            }
            table.producers.push((id, Box::new(producer)));
        }
        if table.producers.is_empty() {
            return Err(StateDamage::Length);
        }
        Ok(Producers { table: Some(Box::new(table)) })
    }
}

fn decode_producer(fields: &mut Fields<'_>) -> Result<(ProducerId, Producer), StateDamage> {
    let id = ProducerId(fields.i64()?);
    let mut producer = Producer {
        epoch: ProducerEpoch(fields.i16()?),
        coordinator_epoch: fields.i32()?,
        last_append: Timestamp(fields.i64()?),
        open: match fields.i64()? {
            -1 => None,
            first => Some(Offset(first)),
        },
        ..Producer::default()
    };
    let batch_count = fields.u8()?;
    if usize::from(batch_count) > BATCHES_KEPT || producer.open.is_some_and(|open| open.0 < 0) {
        return Err(StateDamage::Field);
    }
    producer.batch_count = batch_count;
    for batch in &mut producer.batches[..usize::from(batch_count)] {
        *batch = Batch {
            base_offset: Offset(fields.i64()?),
            append_time: Timestamp(fields.i64()?),
            first_sequence: fields.i32()?,
            last_sequence: fields.i32()?,
        };
        if batch.base_offset.0 < 0 || batch.first_sequence < 0 || batch.last_sequence < 0 {
            return Err(StateDamage::Field);
        }
    }
    Ok((id, producer))
}

#[cfg(test)]
mod tests;
