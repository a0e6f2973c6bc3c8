//! Requests about topics and records.

use super::client::Client;
use super::topics::{Part, Sent};
use super::{broken, ensure, Check, Violation};
use crate::catalog::{Answer, Command, NewTopic, TopicRef, DEFAULT_VIEW};
use crate::coordinator::OFFSETS_TOPIC;
use crate::cores::front::{
    AppendItem, AppendRefusal, AppendWait, Appending, Cores, Later, PartitionAt, ReadItem,
    ReadRequest, Slice, TrimItem, Until,
};
use crate::cores::gate::{GateError, PartitionSnapshot};
use crate::cores::CATALOG_AT;
use shard::batch::{BatchBuilder, BatchHeader, Limits, NewRecord, Records, Rules, TimestampRule};
use shard::disk::Disk;
use shard::ids::Offset;
use std::io;
use std::rc::Rc;

/// No client waits this long.
const TIMEOUT_MS: u64 = 120_000;
const READ_BYTES: usize = 100_000;
const RULES: Rules = Rules {
    message_bytes_max: 1 << 20,
    timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
    keys_required: false,
    zstd_allowed: true,
    limits: Limits { bytes_max: 1 << 20, ratio_max: usize::MAX, ratio_free_bytes: usize::MAX },
};

impl Client {
    /// A partition of a topic that is, or was a moment ago.
    pub fn random_part(&self) -> Option<PartitionAt> {
        let model = self.model.borrow();
        let topics = model.topics.there.values().filter(|topic| topic.name != OFFSETS_TOPIC);
        let parts: Vec<PartitionAt> =
            topics.flat_map(|topic| &topic.parts).map(|part| part.at).collect();
        let at = self.below(parts.len() as u64) as usize;
        parts.get(at).copied()
    }

    pub fn create(self: &Rc<Self>) -> Later<Check> {
        let (number, name) = (self.number(), format!("topic-{}", self.below(5)));
        let partitions = 1 + self.below(3) as i32;
        self.model.borrow_mut().topics.ask_create(number, &name, partitions);
        let topic = NewTopic { name, partitions, replication_factor: -1, ..NewTopic::default() };
        let (view, topics) = (DEFAULT_VIEW, vec![topic]);
        let answer =
            self.door.catalog(Command::CreateTopics { view, topics, validate_only: false });
        let client = self.clone();
        Box::pin(async move {
            let id = match answer.await {
                Ok(Answer::Created(outcomes)) => {
                    outcomes.first().and_then(|it| it.result.as_ref().ok()).map(|it| it.id)
                }
                Ok(other) => return broken(format!("{other:?} for a creation")),
                Err(down) => return client.refused("a creation", &down),
            };
            let (image, model) = (client.door.image(), &mut *client.model.borrow_mut());
            model.topics.see(&image)?;
            model.tally.created += u64::from(id.is_some());
            model.topics.created(number, id)
        })
    }

    pub fn delete(self: &Rc<Self>) -> Option<Later<Check>> {
        let id = self.random_part()?.key.topic;
        self.model.borrow_mut().topics.ask_delete(id);
        let topics = vec![TopicRef::Id(id)];
        let answer = self.door.catalog(Command::DeleteTopics { view: DEFAULT_VIEW, topics });
        let client = self.clone();
        Some(Box::pin(async move {
            let is_deleted = match answer.await {
                Ok(Answer::Deleted(outcomes)) => outcomes.iter().all(|it| it.result.is_ok()),
                Ok(other) => return broken(format!("{other:?} for a deletion")),
                Err(down) => return client.refused("a deletion", &down),
            };
            let (image, now) = (client.door.image(), client.number());
            let model = &mut *client.model.borrow_mut();
            if !is_deleted {
                return model.topics.not_deleted(id);
            }
            model.tally.deleted += 1;
            if !client.is_faulty() {
                model.groups.forgotten(id, now);
            }
            model.topics.deleted(id, &image)?;
            model.topics.see(&image)
        }))
    }

    pub fn take_producer_ids(self: &Rc<Self>) -> Later<Check> {
        let answer = self.door.catalog(Command::TakeProducerIds { count: 10 });
        let client = self.clone();
        Box::pin(async move {
            match answer.await {
                Ok(Answer::ProducerIds(ids)) => {
                    client.model.borrow_mut().topics.producer_ids(ids.start, ids.end)
                }
                Ok(other) => broken(format!("{other:?} for producer ids")),
                Err(down) => client.refused("producer ids", &down),
            }
        })
    }

    /// Resolves when the batch has its place, or waits for it in order.
    pub async fn produce(self: &Rc<Self>, at: PartitionAt) -> Later<Check> {
        let value_bytes = match self.below(40) {
            0 => 40_000,
            _ => 8 + self.below(4000) as usize,
        };
        let records = 1 + self.below(3) as i32;
        let sent = Sent { stamp: self.number(), records, value_bytes };
        let known = self.with_part(at, |part| {
            part.sent.insert(sent.stamp, sent);
            Ok(())
        });
        let records = batch(self.door.now(), sent).into();
        let items = vec![AppendItem { at, records, rules: RULES }];
        let wait = AppendWait::Committed { timeout_ms: TIMEOUT_MS };
        let answers = match self.door.append(items, wait) {
            Appending::Taken(answers) => answers,
            Appending::Blocked(placed) => placed.await,
        };
        let client = self.clone();
        Box::pin(async move {
            known?;
            match answers.await.remove(0) {
                Ok(appended) => {
                    client.model.borrow_mut().tally.produced += 1;
                    client.with_part(at, |part| part.make_firm(appended.base_offset.0, sent))
                }
                Err(why) => client.append_refused(at, &why),
            }
        })
    }

    pub fn trim(self: &Rc<Self>, at: PartitionAt) -> Later<Check> {
        let mut to = 0;
        let asked = self.with_part(at, |part| {
            let length = (part.firm_end() - part.start_shown).max(0) as u64;
            to = part.start_shown + self.below(length + 1) as i64;
            part.start_asked = part.start_asked.max(to);
            Ok(())
        });
        let item = TrimItem { at, below: Some(Offset(to)) };
        let answer = self.door.trim(vec![item], TIMEOUT_MS);
        let client = self.clone();
        Box::pin(async move {
            asked?;
            match answer.await.remove(0) {
                Ok(log_start) => client.with_part(at, |part| {
                    // Later trims may have been seen already.
                    part.promise_start(log_start.0);
                    ensure(log_start.0 <= part.start_asked, || format!("{at:?} at {log_start}"))
                }),
                Err(why) => client.append_refused(at, &why),
            }
        })
    }

    /// Reads a whole partition.
    pub async fn read(self: Rc<Self>, at: PartitionAt) -> Check {
        let offsets = match self.door.offsets(vec![at]).await.remove(0) {
            Ok(offsets) => offsets,
            Err(why) => return self.read_refused(at, why),
        };
        let (start, end) = (offsets.log_start.0, offsets.high_watermark.0);
        self.with_part(at, |part| part.see_start(start))?;
        let (mut from, mut found) = (start, Found::default());
        while from < end {
            let item = ReadItem { at, from: Offset(from), bytes_max: READ_BYTES };
            let until = Until::HighWatermark;
            let ask = ReadRequest { items: vec![item], bytes_max: READ_BYTES, until };
            let data = match self.door.read(ask).await.remove(0) {
                Ok(data) => data,
                // Trimmed since.
                Err(_)
                    if self.door.offsets(vec![at]).await[0]
                        .is_ok_and(|now| now.log_start.0 > from) =>
                {
                    return Ok(())
                }
                Err(why) => return self.read_refused(at, why),
            };
            let is_empty = data.slices.is_empty();
            for slice in &data.slices {
                match self.bytes_of(slice) {
                    Ok(bytes) => found.take(&bytes)?,
                    // Its segment has been emptied since: the next read finds the bytes elsewhere.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) => return self.refused("a read", &error),
                }
            }
            if is_empty && found.end <= from {
                return broken(format!("{} has nothing at {from}, below {end}", at.key));
            }
            from = found.end.max(from);
        }
        let is_within = |(base, sent): &(i64, Sent)| {
            let sent_end = base + i64::from(sent.records);
            sent_end > start && sent_end <= end
        };
        found.batches.retain(is_within);
        self.model.borrow_mut().tally.read += found.batches.len() as u64;
        self.with_part(at, |part| {
            if start < part.start_promised {
                // Trimmed since.
                return Ok(());
            }
            found.complete_first(part, start);
            part.see_records(start, end, &found.batches)
        })
    }

    fn bytes_of(&self, slice: &Slice) -> io::Result<Vec<u8>> {
        match slice {
            Slice::Warm(shared) => {
                let (path, at) = shared.place();
                let mut bytes = vec![0; shared.len()];
                match self.disk.open(path)?.read_at(at, &mut bytes)? {
                    count if count == bytes.len() => Ok(bytes),
                    // The segment has been hollowed out.
                    _ => Err(io::ErrorKind::NotFound.into()),
                }
            }
            Slice::Cold(bytes) => Ok(bytes.to_vec()),
        }
    }

    /// Has a topic written into files.
    pub fn freshen(self: &Rc<Self>, at: PartitionAt) -> Later<Check> {
        let Some(topic) = self.door.image().of_any_view(at.key.topic).cloned() else {
            return Box::pin(async { Ok(()) });
        };
        let client = self.clone();
        let mut certain = 0;
        let known = self.with_part(at, |part| {
            certain = part.firm_end();
            Ok(())
        });
        let answer = self.gate.freshen(&topic);
        Box::pin(async move {
            known?;
            match answer.await {
                Ok(version) => {
                    let end = version.table_end(at.key.partition).map_or(0, |end| end.0);
                    client.model.borrow_mut().tally.written += u64::from(version.number > 0);
                    client.with_part(at, |part| {
                        // What has been trimmed need never have been in a file.
                        ensure(end.max(part.start_asked) >= certain, || {
                            format!("{} in files to {end} of {certain}", at.key)
                        })
                    })
                }
                Err(GateError::Unknown) => client.append_refused(at, &AppendRefusal::Unknown),
                Err(why) => client.refused("a table", &why),
            }
        })
    }

    /// Looks at a topic as queries do: files and log without a hole or an overlap.
    pub fn snapshot(self: &Rc<Self>, at: PartitionAt) -> Later<Check> {
        let Some(topic) = self.door.image().of_any_view(at.key.topic).cloned() else {
            return Box::pin(async { Ok(()) });
        };
        let client = self.clone();
        let mut certain = 0;
        let known = self.with_part(at, |part| {
            certain = part.firm_end();
            Ok(())
        });
        let answer = self.gate.snapshot(topic);
        Box::pin(async move {
            known?;
            let snapshot = match answer.await {
                Ok(snapshot) => snapshot,
                Err(GateError::Unknown) => {
                    return client.append_refused(at, &AppendRefusal::Unknown)
                }
                Err(why) => return client.refused("a snapshot", &why),
            };
            let of = |part: &&PartitionSnapshot| part.partition == at.key.partition;
            let Some(part) = snapshot.partitions.iter().find(of) else {
                return broken(format!("{} is in no snapshot", at.key));
            };
            let (start, hot_from, end) = (part.log_start.0, part.hot_from.0, part.end.0);
            let in_order = start <= hot_from && hot_from <= end && end >= certain;
            let parts = snapshot.version.parts(at.key.partition);
            let first = parts.first().map_or(hot_from, |at| at.part.first.0);
            let last = parts.last().map_or(hot_from, |at| at.part.end.0);
            let hot = part.hot.as_ref().map_or(hot_from..hot_from, |hot| hot.from.0..hot.until.0);
            let whole = (first <= start || start == hot_from)
                && last.max(start) >= hot_from
                && hot.start <= hot_from
                && hot.end.max(hot_from) >= end;
            ensure(in_order && whole, || {
                format!(
                    "{}: {start} {hot_from} {end}, {certain} certain: {parts:?} {hot:?}",
                    at.key
                )
            })
        })
    }

    pub async fn note_catalog(&self) {
        let offsets = self.door.offsets(vec![CATALOG_AT]).await.remove(0);
        if offsets.is_ok_and(|offsets| offsets.log_start > Offset(0)) {
            self.model.borrow_mut().tally.rewritten += 1;
        }
    }
}

fn batch(now: shard::ids::Timestamp, sent: Sent) -> Vec<u8> {
    let mut value = sent.stamp.to_be_bytes().to_vec();
    value.resize(sent.value_bytes, sent.stamp as u8);
    let mut batch = BatchBuilder::new();
    for _ in 0..sent.records {
        batch.push(&NewRecord { timestamp: now, value: Some(&value), ..NewRecord::default() });
    }
    batch.build()
}

/// What was found by reading, as what its records say was sent. Records that come out of a table
/// are in other batches than they were sent in.
#[derive(Debug, Default)]
struct Found {
    batches: Vec<(i64, Sent)>,
    /// Everything before it has been seen.
    end: i64,
}

impl Found {
    fn take(&mut self, mut bytes: &[u8]) -> Check {
        let damaged = |what: &dyn std::fmt::Debug| Violation(format!("damaged: {what:?}"));
        while !bytes.is_empty() {
            let (header, body, rest) =
                BatchHeader::split(bytes).map_err(|error| damaged(&error))?;
            for record in Records::new(body, header.record_count) {
                let record = record.map_err(|error| damaged(&error))?;
                let offset = header.base_offset.0 + i64::from(record.offset_delta);
                self.take_record(offset, record.value.unwrap_or_default())
                    .map_err(|_| damaged(&header))?;
            }
            self.end = self.end.max(header.end_offset().0);
            bytes = rest;
        }
        Ok(())
    }

    fn take_record(&mut self, offset: i64, value: &[u8]) -> Check {
        let stamp = value.first_chunk().map_or(0, |stamp| u64::from_be_bytes(*stamp));
        let filler = value.iter().skip(8).all(|byte| *byte == stamp as u8);
        ensure(filler, || "a record of nobody's".to_string())?;
        if offset < self.end && !self.batches.is_empty() {
            // A block of a table may begin before what was asked for.
            return Ok(());
        }
        match self.batches.last_mut() {
            Some((base, sent))
                if sent.stamp == stamp
                    && *base + i64::from(sent.records) == offset
                    && sent.value_bytes == value.len() =>
            {
                sent.records += 1;
            }
            _ => {
                let sent = Sent { stamp, records: 1, value_bytes: value.len() };
                self.batches.push((offset, sent));
            }
        }
        Ok(())
    }

    /// A table does not keep what lies below the log start, also of a batch that lies across.
    fn complete_first(&mut self, part: &Part, start: i64) {
        let Some((base, found)) = self.batches.first_mut() else { return };
        let Some(sent) = part.sent.get(&found.stamp) else { return };
        let cut = i64::from(sent.records - found.records);
        if cut > 0 && *base <= start && start > 0 {
            *base -= cut;
            found.records = sent.records;
        }
    }
}
