//! The oracle: what was appended, what of it had to survive, and whether what is there is right.
//!
//! It knows nothing of segments, frames or checkpoints: a partition is a list of batches, each with
//! the position at which the log promised it. `reopened` is the heart: after a crash a partition
//! must be a prefix of what was appended, long enough to hold all that was promised.

use crate::batches::{placed, Sender};
use crate::compacted::{self, rows, Row};
use shard::batch::BatchHeader;
use shard::ids::{LeaderEpoch, Offset, PartitionKey, Position, Timestamp};
use shard::log::{Appended, Flush, PartitionSettings};
use shard::partition::Offsets;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Kafka's window of batches by which retries are recognised.
const RETRY_WINDOW: usize = 5;

/// How the process before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// In order, everything synced.
    Stopped,
    /// Killed; the kernel kept its cache.
    Killed,
    /// With the power.
    Crashed,
}

/// What the oracle holds against a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// A batch that was promised is gone, and with it all after it.
    Lost { key: PartitionKey, promised_end: Offset, log_end: Offset },
    /// More is there than was ever appended in the history the log is on.
    Ghost { key: PartitionKey, appended_end: Offset, log_end: Offset },
    /// Other bytes than those appended there.
    Changed { key: PartitionKey, base: Offset },
    /// A batch does not start where the one before ended, or does not come at all.
    Gap { key: PartitionKey, expected: Offset, found: Option<Offset> },
    /// The frame around a batch carries another broker time.
    AppendTime { key: PartitionKey, base: Offset, expected: Timestamp, found: Timestamp },
    /// The log start is below what was promised or above what was asked.
    LogStart { key: PartitionKey, promised: Offset, asked: Offset, found: Offset },
    /// Consumers see more or less than is committed.
    HighWatermark { key: PartitionKey, expected: Offset, found: Offset },
    /// A retry of a batch was not answered with its place.
    Retry { key: PartitionKey, sender: Sender, expected: Option<Offset>, found: String },
    /// The end of a leader epoch.
    Epoch { key: PartitionKey, asked: LeaderEpoch, expected: Answer, found: Answer },
    /// The record found by a time, or for none the one with the greatest.
    Time { key: PartitionKey, asked: Option<Timestamp>, expected: Place, found: Place },
    /// A deleted key's record is there again.
    Resurrected { key: PartitionKey, offset: Offset },
    /// A partition nobody ever attached.
    Stranger { key: PartitionKey },
    /// The log did not open.
    Refused { error: String },
    /// A call failed that had no reason to.
    Failed { call: &'static str, error: String },
}

type Answer = Option<(LeaderEpoch, Offset)>;
type Place = Option<(Offset, Timestamp)>;

/// One appended batch.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base: Offset,
    pub end: Offset,
    /// As it must be read.
    pub bytes: Vec<u8>,
    /// Of each of its records, by the producer's clock.
    pub timestamp: Timestamp,
    pub append_time: Timestamp,
    pub epoch: LeaderEpoch,
    pub sender: Sender,
    /// Which of the history's times had come.
    pub step: usize,
    /// Promised once the log is committed up to here; none when that has happened.
    pending: Option<Position>,
}

/// One partition.
#[derive(Clone, Debug)]
pub struct Partition {
    pub settings: PartitionSettings,
    /// All that was appended and has not been lost, oldest first, also below the log start.
    pub batches: Vec<Batch>,
    /// The log start that was promised, and those asked for since with where they are promised.
    pub log_start: Offset,
    raised: VecDeque<(Offset, Position)>,
}

impl Partition {
    pub fn log_end(&self) -> Offset {
        self.batches.last().map_or(Offset(0), |batch| batch.end)
    }

    /// End of what a power loss must not take.
    pub fn promised_end(&self) -> Offset {
        let promised = self.batches.iter().take_while(|batch| batch.pending.is_none());
        promised.last().map_or(Offset(0), |batch| batch.end)
    }

    /// The highest log start anybody asked for.
    fn log_start_asked(&self) -> Offset {
        self.raised.back().map_or(self.log_start, |(offset, _)| *offset)
    }

    pub fn high_watermark(&self) -> Offset {
        match self.settings.flush {
            Flush::Commit => self.promised_end().max(self.log_start_asked()),
            Flush::Interval | Flush::Os => self.log_end(),
        }
    }

    /// Whether the settings let everything between the two log starts go: each batch by its age,
    /// or because enough bytes are left behind it.
    fn may_retain_from(&self, start: Offset, to: Offset, now: Timestamp, slack: u64) -> bool {
        let PartitionSettings { retention_ms, retention_bytes, .. } = self.settings;
        let mut left = slack;
        for batch in self.batches.iter().rev().take_while(|batch| batch.end > start) {
            let old = retention_ms.is_some_and(|ms| batch.timestamp.0 < now.0 - ms);
            let surplus = retention_bytes.is_some_and(|limit| left >= limit);
            if batch.end <= to && !old && !surplus {
                return false;
            }
            left += batch.bytes.len() as u64;
        }
        true
    }

    /// The batches a reader may see.
    pub fn visible(&self) -> impl Iterator<Item = &Batch> {
        let (start, until) = (self.log_start_asked(), self.high_watermark());
        self.batches.iter().filter(move |batch| batch.end > start && batch.end <= until)
    }

    /// Whether consumers may see the batch, and its producer may be told.
    pub fn is_visible(&self, batch: &Batch) -> bool {
        batch.end <= self.high_watermark()
    }

    /// The first visible record that `wanted` accepts by its time, as offset and time.
    pub fn find(&self, wanted: impl Fn(Timestamp) -> bool) -> Option<(Offset, Timestamp)> {
        let batch = self.visible().find(|batch| wanted(batch.timestamp))?;
        Some((batch.base.max(self.log_start_asked()), batch.timestamp))
    }

    /// The batches by which each producer's retries are recognised.
    pub fn retries(&self) -> BTreeMap<i64, VecDeque<&Batch>> {
        let mut producers: BTreeMap<i64, VecDeque<&Batch>> = BTreeMap::new();
        for batch in self.batches.iter().filter(|batch| batch.sender.id >= 0) {
            let window = producers.entry(batch.sender.id).or_default();
            if window.back().is_some_and(|last| last.sender.epoch != batch.sender.epoch) {
                window.clear();
            }
            if window.len() == RETRY_WINDOW {
                window.pop_front();
            }
            window.push_back(batch);
        }
        producers
    }

    /// The broker's time in the frame of a batch, if it is one of those that count.
    pub fn check_frame(
        &self,
        key: PartitionKey,
        payload: &[u8],
        found: Timestamp,
    ) -> Result<(), Violation> {
        let base = payload.first_chunk().map(|base| Offset(i64::from_be_bytes(*base)));
        let batch = self.batches.binary_search_by_key(&base, |batch| Some(batch.base)).ok();
        match batch.map(|at| &self.batches[at]).filter(|batch| batch.bytes == payload) {
            Some(batch) if batch.append_time != found => {
                let (base, expected) = (batch.base, batch.append_time);
                Err(Violation::AppendTime { key, base, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Holds a batch that was made again out of rows, from `at` on, against what was appended. Says
    /// where it ends.
    fn check_rows(&self, key: PartitionKey, at: Offset, read: &Read) -> Result<Offset, Violation> {
        let changed = Violation::Changed { key, base: at };
        let Ok(header) = BatchHeader::parse(&read.bytes) else { return Err(changed) };
        let end = header.end_offset();
        let within = |row: &Row| row.0 >= at && row.0 < end;
        let covered = self.batches.iter().filter(|batch| batch.end > at && batch.base < end);
        let epoch = header.leader_epoch;
        let same_epoch = covered.clone().all(|batch| batch.epoch == epoch);
        let expected: Vec<Row> = covered.flat_map(|b| rows(&b.bytes)).filter(within).collect();
        let found: Vec<Row> = rows(&read.bytes).into_iter().filter(within).collect();
        match found == expected && (same_epoch || found.is_empty()) && end > at {
            true => Ok(end),
            false => Err(changed),
        }
    }

    /// Kafka's answer to where `asked` ends, for partitions whose log start never moved.
    pub fn end_of_epoch(&self, asked: LeaderEpoch) -> Answer {
        let epoch =
            self.batches.iter().map(|batch| batch.epoch).take_while(|e| *e <= asked).last()?;
        let next = self.batches.iter().find(|batch| batch.epoch > epoch);
        Some((epoch, next.map_or(self.log_end(), |batch| batch.base)))
    }
}

/// Everything clients did and were told.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub partitions: BTreeMap<PartitionKey, Partition>,
    /// Of deleted topics.
    pub detached: BTreeSet<PartitionKey>,
    /// The first batch of each partition that the last crash un-wrote.
    pub lost: BTreeMap<PartitionKey, Batch>,
    /// What the broker's clock showed, as it went on and jumped.
    pub walls: Vec<i64>,
}

/// What was sent and what the log answered.
pub struct Sent<'a> {
    pub bytes: &'a [u8],
    pub sender: Sender,
    pub timestamp: Timestamp,
    pub time: Timestamp,
    pub epoch: LeaderEpoch,
}

impl History {
    pub fn attach(&mut self, key: PartitionKey, settings: PartitionSettings) {
        let partition = Partition {
            settings,
            batches: Vec::new(),
            log_start: Offset(0),
            raised: VecDeque::new(),
        };
        self.partitions.insert(key, partition);
    }

    pub fn detach(&mut self, key: PartitionKey) {
        self.partitions.remove(&key);
        self.detached.insert(key);
    }

    fn of(&mut self, key: PartitionKey) -> &mut Partition {
        self.partitions.get_mut(&key).expect("the simulation attached it")
    }

    pub fn appended(
        &mut self,
        key: PartitionKey,
        sent: &Sent<'_>,
        answer: &Appended,
    ) -> Result<(), Violation> {
        let step = self.walls.len();
        let partition = self.of(key);
        let expected = partition.log_end();
        if answer.base_offset != expected {
            return Err(Violation::Gap { key, expected, found: Some(answer.base_offset) });
        }
        partition.batches.push(Batch {
            base: answer.base_offset,
            end: answer.last_offset.plus(1),
            bytes: placed(sent.bytes, answer.base_offset, sent.epoch),
            timestamp: sent.timestamp,
            append_time: sent.time,
            epoch: sent.epoch,
            sender: sent.sender,
            step,
            pending: Some(answer.position),
        });
        Ok(())
    }

    pub fn raised(&mut self, key: PartitionKey, to: Offset, at: Position) {
        let partition = self.of(key);
        if to > partition.log_start_asked() {
            partition.raised.push_back((to, at));
        }
    }

    /// The log start as the log shows it: above what was asked only by retention, and then with
    /// good reason, about `slack_bytes` of which the log may be wrong. `at` is the log's end, which
    /// is not before what makes the start durable.
    pub fn started(
        &mut self,
        key: PartitionKey,
        found: Offset,
        (now, at): (Timestamp, Position),
        slack_bytes: u64,
    ) -> Result<(), Violation> {
        let partition = self.of(key);
        let (promised, asked) = (partition.log_start, partition.log_start_asked());
        let may_go = || partition.may_retain_from(asked, found, now, slack_bytes);
        if found < asked || (found > asked && !may_go()) {
            return Err(Violation::LogStart { key, promised, asked, found });
        }
        self.raised(key, found, at);
        Ok(())
    }

    /// The offsets a client is told.
    pub fn offsets(&self, key: PartitionKey, offsets: &Offsets) -> Result<(), Violation> {
        let partition = &self.partitions[&key];
        let (expected, found) = (partition.high_watermark(), offsets.high_watermark);
        if found != expected || offsets.last_stable != expected {
            return Err(Violation::HighWatermark { key, expected, found });
        }
        let (appended_end, log_end) = (partition.log_end(), offsets.log_end);
        if log_end != appended_end {
            return Err(Violation::Ghost { key, appended_end, log_end });
        }
        Ok(())
    }

    /// The log that holds `keys` is committed up to here: a promise.
    pub fn committed(&mut self, keys: &[PartitionKey], to: Position) {
        for key in keys {
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            for batch in partition.batches.iter_mut().rev() {
                match batch.pending {
                    None => break,
                    Some(at) if at <= to => batch.pending = None,
                    Some(_) => {}
                }
            }
            while partition.raised.front().is_some_and(|(_, at)| *at <= to) {
                let raised = partition.raised.pop_front();
                partition.log_start = raised.map_or(partition.log_start, |(offset, _)| offset);
            }
        }
    }

    /// Holds a partition that was opened again against what it had been, and goes on from there:
    /// what survived is promised from now on, what did not is forgotten.
    pub fn reopened(
        &mut self,
        key: PartitionKey,
        (log_start, log_end): (Offset, Offset),
        ended: Ended,
    ) -> Result<(), Violation> {
        let partition = self.of(key);
        let promised_end = match ended {
            Ended::Crashed => partition.promised_end(),
            Ended::Stopped | Ended::Killed => partition.log_end(),
        };
        if log_end < promised_end {
            return Err(Violation::Lost { key, promised_end, log_end });
        }
        let appended_end = partition.log_end();
        if log_end > appended_end.max(partition.log_start_asked()) {
            return Err(Violation::Ghost { key, appended_end, log_end });
        }
        let asked = partition.log_start_asked();
        let promised = match ended {
            Ended::Crashed => partition.log_start,
            Ended::Stopped | Ended::Killed => asked,
        };
        if log_start < promised || log_start > asked {
            return Err(Violation::LogStart { key, promised, asked, found: log_start });
        }
        let kept = partition.batches.partition_point(|batch| batch.end <= log_end);
        let lost = partition.batches.split_off(kept);
        match lost.into_iter().next() {
            Some(batch) => self.lost.insert(key, batch),
            None => self.lost.remove(&key),
        };
        let partition = self.of(key);
        if partition.log_end() != log_end {
            let (expected, found) = (partition.log_end(), Some(log_end));
            return Err(Violation::Gap { key, expected, found });
        }
        partition.batches.iter_mut().for_each(|batch| batch.pending = None);
        partition.log_start = log_start;
        partition.raised.clear();
        Ok(())
    }

    /// Holds what a reader got from `from` up to the high watermark against what was appended.
    pub fn read(&self, key: PartitionKey, from: Offset, batches: &[Read]) -> Result<(), Violation> {
        let partition = &self.partitions[&key];
        let until = partition.high_watermark();
        if partition.settings.compaction.is_some() {
            let lasted = |step: usize| {
                let since = self.walls.get(step.saturating_sub(1)..).unwrap_or_default();
                let (least, most) = (since.iter().min(), since.iter().max());
                most.copied().unwrap_or(0) - least.copied().unwrap_or(0)
            };
            return compacted::check(key, partition, (from, until), batches, lasted);
        }
        self.read_until(key, (from, until), batches)
    }

    /// The same up to `until`, of a partition that is not compacted.
    pub fn read_until(
        &self,
        key: PartitionKey,
        (from, until): (Offset, Offset),
        batches: &[Read],
    ) -> Result<(), Violation> {
        let partition = &self.partitions[&key];
        let mut at = from;
        for read in batches {
            if read.from_table {
                at = partition.check_rows(key, at, read)?;
                continue;
            }
            let Some(batch) = partition.batches.iter().find(|b| b.end > at && b.end <= until)
            else {
                let found = Offset(-1);
                return Err(Violation::HighWatermark { key, expected: until, found });
            };
            at = batch.end;
            let expected = batch.base;
            if read.bytes[..8] != expected.0.to_be_bytes() {
                let base = read.bytes.first_chunk().map(|base| Offset(i64::from_be_bytes(*base)));
                return Err(Violation::Gap { key, expected, found: base });
            }
            if read.bytes != batch.bytes {
                return Err(Violation::Changed { key, base: expected });
            }
            if let Some(found) = read.append_time.filter(|time| *time != batch.append_time) {
                let (base, expected) = (batch.base, batch.append_time);
                return Err(Violation::AppendTime { key, base, expected, found });
            }
        }
        match partition.batches.iter().find(|batch| batch.end > at && batch.end <= until) {
            Some(batch) => Err(Violation::Gap { key, expected: batch.base, found: None }),
            None => Ok(()),
        }
    }
}

/// A batch as a reader got it.
#[derive(Debug)]
pub struct Read {
    pub bytes: Vec<u8>,
    /// From the frame around the batch, where the reader can see it.
    pub append_time: Option<Timestamp>,
    /// Made again out of rows, and cut otherwise than it was appended.
    pub from_table: bool,
}
