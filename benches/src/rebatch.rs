//! Bench `rebatch`: what one worker needs to make record batches of a table file again.
//!
//! A partition is read from its beginning in fetches of 1 MiB, nothing being cached but the open
//! file; then fetches at random offsets are timed one by one. Rates are per second of the worker's
//! time on a CPU, as in `columnarise`.

use crate::columnarise::write;
use crate::counters::thread_usage;
use crate::drive::nanoseconds;
use crate::events::Events;
use crate::hash::Hash;
use crate::report::{Bar, Report};
use crate::BenchError;
use shard::batch::BatchHeader;
use shard::disk::RealDisk;
use shard::ids::Offset;
use shard::table::cache::Blocks;
use shard::table::memory::keep_buffers;
use shard::table::rebatch::{rebatch, Want};
use shard::table::TableFile;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const RATE: Bar = Bar::AtLeast(500.0);
const FETCH_BYTES: usize = 1 << 20;
const RANDOM_FETCHES: i64 = 200;

pub fn run(dir: &Path, bytes: u64) -> Result<Report, BenchError> {
    let mut report = Report::new("rebatch: JSON of 300 bytes, fetches of 1 MiB".to_string());
    keep_buffers();
    let events = Events::new(bytes);
    let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
    let file = write(&RealDisk, folder.path(), &events)?;
    let mut hash = Hash::default();
    // Less than a block: nothing is read twice.
    let blocks = Blocks::new(Arc::new(RealDisk), 0);
    let (started, before) = (Instant::now(), thread_usage());
    let read = read_all(&blocks, &file, events.records, &mut hash)?;
    let (elapsed, cpu) = (started.elapsed(), thread_usage().cpu - before.cpu);
    let megabytes = read as f64 / 1e6;
    report.held(("one worker", "batches"), megabytes / cpu.as_secs_f64(), "MB/s", RATE);
    report.row("one worker", "by the clock", megabytes / elapsed.as_secs_f64(), "MB/s");
    let mut fetches = nanoseconds();
    for fetch in 0..RANDOM_FETCHES {
        let from = Offset(fetch * 7919 * 104_729 % events.records);
        let started = Instant::now();
        let bytes = rebatch(&blocks, &file, &want(from))?;
        fetches.saturating_record(started.elapsed().as_nanos() as u64);
        hash.number(bytes.len() as i64);
    }
    report.latency("random fetch", "1 MiB", &fetches);
    report.hash = Some(hash.0);
    Ok(report)
}

fn want(from: Offset) -> Want {
    Want { partition: 0, from, bytes_max: FETCH_BYTES, whole_first: true }
}

/// Reads the partition as a consumer does; returns how many bytes came.
fn read_all(
    blocks: &Blocks,
    file: &TableFile,
    records: i64,
    hash: &mut Hash,
) -> Result<u64, BenchError> {
    let mut at = Offset(0);
    let mut read = 0;
    while at.0 < records {
        let bytes = rebatch(blocks, file, &want(at))?;
        let mut rest = &bytes[..];
        let before = at;
        while !rest.is_empty() {
            let split = BatchHeader::split(rest);
            let (header, _, behind) = split.map_err(|_| BenchError::ReadBack { offset: at.0 })?;
            hash.number(i64::from(header.crc));
            at = header.end_offset();
            rest = behind;
        }
        if at <= before {
            return Err(BenchError::ReadBack { offset: at.0 });
        }
        read += bytes.len() as u64;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_reads_all_records() {
        let dir = tempfile::tempdir().unwrap();
        let report = run(dir.path(), 3 << 20).unwrap();
        assert_eq!(report.rows.len(), 6);
        assert_eq!(report.hash, run(dir.path(), 3 << 20).unwrap().hash);
    }
}
