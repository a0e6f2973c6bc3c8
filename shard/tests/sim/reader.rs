//! What clients ask of a partition, asked in full: its batches, its retries, its epochs.

use crate::batches::{build, placed, Outline};
use crate::compacted::rows;
use crate::history::{Partition, Read, Violation};
use shard::batch::{BatchHeader, Valid, HEADER_BYTES};
use shard::disk::sim::{Rng, SimDisk};
use shard::disk::{Disk, SharedBytes};
use shard::ids::{DenseId, LeaderEpoch, Offset, PartitionKey, Timestamp};
use shard::log::{Appended, Kind, Log, Now, ReadAsk, Scanner, SegmentHeader, TimeTarget, Until};
use shard::log::{FRAMES_START, FRAME_HEADER_BYTES};
use std::collections::BTreeMap;
use std::path::Path;

/// Where the frame header holds the broker's time.
const APPEND_TIME_AT: usize = 32;

fn failed(call: &'static str, error: impl std::fmt::Debug) -> Violation {
    Violation::Failed { call, error: format!("{error:?}") }
}

/// Reads from the log start to the high watermark in steps of random size.
pub fn whole(
    log: &Log,
    id: DenseId,
    disk: &SimDisk,
    rng: &mut Rng,
) -> Result<(Offset, Vec<Read>), Violation> {
    let from = log.offsets(id).map_or(Offset(0), |offsets| offsets.log_start);
    let mut at = from;
    let mut all = Vec::new();
    loop {
        let bytes_max = rng.between(1, 200_000) as usize;
        let ask = ReadAsk { from: at, bytes_max, whole_first: true, until: Until::HighWatermark };
        let plan = log.plan_read(id, &ask).map_err(|error| failed("plan_read", error))?;
        let mut step: Vec<Read> = Vec::new();
        for slice in &plan.slices {
            step.push(warm(slice, disk)?);
        }
        let hot_start = log.table_ends(id).map_or(Offset(0), |ends| ends.hot_start);
        if let Some(cold) = plan.cold {
            let bytes = cold.run().map_err(|error| failed("cold read", error))?;
            split(&bytes, at < hot_start, &mut step)?;
        }
        let Some(last) = step.last() else { return Ok((from, all)) };
        let header = BatchHeader::parse(&last.bytes).map_err(|error| failed("read", error))?;
        if header.end_offset() <= at {
            return Err(failed("read", header));
        }
        at = header.end_offset();
        all.append(&mut step);
    }
}

/// A slice of a map, read at its place in the file together with the frame in front of it.
fn warm(slice: &SharedBytes, disk: &SimDisk) -> Result<Read, Violation> {
    let (path, at) = slice.place();
    let mut bytes = vec![0; FRAME_HEADER_BYTES + slice.len()];
    let read =
        disk.open(path).and_then(|file| file.read_at(at - FRAME_HEADER_BYTES as u64, &mut bytes));
    if read.as_ref().ok() != Some(&bytes.len()) {
        return Err(failed("warm read", read));
    }
    let batch = bytes.split_off(FRAME_HEADER_BYTES);
    let time = bytes[APPEND_TIME_AT..].first_chunk().map(|ms| Timestamp(i64::from_le_bytes(*ms)));
    Ok(Read { bytes: batch, append_time: time, from_table: false })
}

fn split(mut bytes: &[u8], from_table: bool, into: &mut Vec<Read>) -> Result<(), Violation> {
    while !bytes.is_empty() {
        let (_, body, rest) = BatchHeader::split(bytes).map_err(|error| failed("split", error))?;
        let batch = bytes[..HEADER_BYTES + body.len()].to_vec();
        into.push(Read { bytes: batch, append_time: None, from_table });
        bytes = rest;
    }
    Ok(())
}

/// Sends the batches of each producer's window again, and one with a gap in its sequence.
pub fn retries(
    log: &mut Log,
    id: DenseId,
    partition: &Partition,
    key: PartitionKey,
    now: Now,
) -> Result<(), Violation> {
    for window in partition.retries().into_values() {
        for batch in &window {
            let sent = placed(&batch.bytes, Offset(0), LeaderEpoch(-1));
            let valid = Valid::built(&sent).expect("kept as it was built");
            let answer = log.append(id, &valid, now);
            // A retry is not acknowledged before the batch it repeats would be.
            let early = |a: Appended| a.committed && !partition.is_visible(batch);
            let right =
                answer.is_ok_and(|a| a.duplicate && a.base_offset == batch.base && !early(a));
            if !right {
                let (sender, expected) = (batch.sender, Some(batch.base));
                let found = format!("{answer:?}");
                return Err(Violation::Retry { key, sender, expected, found });
            }
        }
        let Some(last) = window.back() else { continue };
        let records = (last.end.0 - last.base.0) as i32;
        let mut sender = last.sender;
        sender.base_sequence += records + 7;
        let outline = Outline { sender, records: 1, body_bytes: 8, time: now.wall, keyed: false };
        let sent = build(&outline, &mut Rng::new(0));
        let valid = Valid::built(&sent).expect("the simulation builds whole batches");
        let answer = log.append(id, &valid, now);
        if answer.is_ok() {
            let found = format!("{answer:?}");
            return Err(Violation::Retry { key, sender, expected: None, found });
        }
    }
    Ok(())
}

/// Asks for the end of each epoch, where the log start has not cut the history.
pub fn epochs(
    log: &Log,
    id: DenseId,
    partition: &Partition,
    key: PartitionKey,
) -> Result<(), Violation> {
    if partition.log_start > Offset(0) {
        return Ok(());
    }
    for batch in &partition.batches {
        let asked = batch.epoch;
        let (expected, found) = (partition.end_of_epoch(asked), log.end_of_epoch(id, asked));
        if expected != found {
            return Err(Violation::Epoch { key, asked, expected, found });
        }
    }
    Ok(())
}

/// Looks for records by time: before, among and after those there are, and the greatest.
pub fn times(
    log: &Log,
    id: DenseId,
    partition: &Partition,
    key: PartitionKey,
    (disk, rng): (&SimDisk, &mut Rng),
) -> Result<(), Violation> {
    if partition.settings.compaction.is_some() {
        return times_of_rest(log, id, (key, partition), disk, rng);
    }
    let find = |target| {
        let seek = log.plan_time(id, target, Until::HighWatermark);
        let found = seek.map_or(Ok(None), |seek| seek.run());
        let found = found.map_err(|error| failed("time seek", error))?;
        Ok(found.map(|found| (found.offset, found.timestamp)))
    };
    let mut asked: Vec<Timestamp> = partition.batches.iter().map(|b| b.timestamp).collect();
    asked.sort();
    asked.dedup();
    asked.push(Timestamp(i64::MAX));
    for _ in 0..3 {
        let time = asked[rng.below(asked.len() as u64) as usize];
        for time in [Timestamp(time.0 - 1), time] {
            let expected = partition.find(|found| found >= time);
            let found = find(TimeTarget::AtOrAfter(time))?;
            if found != expected {
                return Err(Violation::Time { key, asked: Some(time), expected, found });
            }
        }
    }
    let greatest = partition.visible().map(|batch| batch.timestamp).max();
    let expected = partition.find(|found| Some(found) == greatest);
    let found = find(TimeTarget::Greatest)?;
    if found != expected {
        return Err(Violation::Time { key, asked: None, expected, found });
    }
    Ok(())
}

/// The same of a compacted partition, whose records are those that are read. A part of its table
/// may go on where the log has more: a record that only the log has may then be found as well.
fn times_of_rest(
    log: &Log,
    id: DenseId,
    (key, partition): (PartitionKey, &Partition),
    disk: &SimDisk,
    rng: &mut Rng,
) -> Result<(), Violation> {
    let is_split = log.table_ends(id).is_some_and(|ends| ends.hot_start > partition.log_start);
    let appended = |found: (Offset, Timestamp)| {
        let batch = partition.batches.iter().find(|batch| batch.end > found.0);
        batch.is_some_and(|batch| batch.base <= found.0 && batch.timestamp == found.1)
    };
    let (from, batches) = whole(log, id, disk, rng)?;
    let rows: Vec<_> = batches.iter().flat_map(|read| rows(&read.bytes)).collect();
    let rows: Vec<_> = rows.into_iter().filter(|row| row.0 >= from).collect();
    let find = |target| {
        let seek = log.plan_time(id, target, Until::HighWatermark);
        let found = seek.map_or(Ok(None), |seek| seek.run());
        found.map_err(|error| failed("time seek", error))
    };
    let greatest = rows.iter().map(|row| row.3).max();
    for asked in rows.iter().map(|row| row.3).take(3).map(Some).chain([None]) {
        let target = asked.map_or(TimeTarget::Greatest, TimeTarget::AtOrAfter);
        let matches = |time| asked.map_or(Some(time) == greatest, |asked| time >= asked);
        let expected = rows.iter().find(|row| matches(row.3)).map(|row| (row.0, row.3));
        let found = find(target)?.map(|found| (found.offset, found.timestamp));
        let is_better = found.zip(expected).is_some_and(|(found, expected)| match target {
            TimeTarget::AtOrAfter(time) => found.1 >= time && found.0 <= expected.0,
            TimeTarget::Greatest => found.1 >= expected.1,
        });
        if found != expected && !(is_split && is_better && found.is_some_and(appended)) {
            return Err(Violation::Time { key, asked, expected, found });
        }
    }
    Ok(())
}

/// The frames of all segments of a log, held against the broker's time of each batch. A frame of
/// an abandoned branch carries other bytes than the batch at its offset, and is passed over.
pub fn append_times(
    disk: &SimDisk,
    dir: &Path,
    partitions: &BTreeMap<PartitionKey, Partition>,
) -> Result<(), Violation> {
    let files = disk.files().into_iter().filter(|path| path.starts_with(dir));
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "seg")) {
        let bytes = disk.cached(&path).unwrap_or_default();
        let header = bytes.first_chunk().map(SegmentHeader::decode);
        let Some(Ok(header)) = header else { continue };
        let file = disk.open(&path).map_err(|error| failed("open", error))?;
        let mut scanner = Scanner::new(&*file, header.epoch, FRAMES_START, header.first_sequence);
        let mut bound: BTreeMap<DenseId, &[u8]> = BTreeMap::new();
        while let Some(frame) = scanner.next_frame().map_err(|error| failed("scan", error))? {
            let at = frame.at as usize + FRAME_HEADER_BYTES;
            let payload = &bytes[at..at + frame.payload.len()];
            match frame.header.kind {
                Kind::Bind => drop(bound.insert(frame.header.partition, payload)),
                Kind::Data => {
                    let topic = bound.get(&frame.header.partition).map(|bind| &bind[4..20]);
                    let of =
                        |(key, _): &(&PartitionKey, _)| Some(&key.topic.as_bytes()[..]) == topic;
                    let Some((&key, partition)) = partitions.iter().find(of) else { continue };
                    partition.check_frame(key, payload, frame.header.append_time)?;
                }
                Kind::LogStart | Kind::Mark | Kind::Side | Kind::Gap => {}
            }
        }
    }
    Ok(())
}
