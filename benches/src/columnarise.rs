//! Bench `columnarise`: what one worker needs to make a table file of raw batches.
//!
//! Everything from the batch as the log holds it (checksum, records) to the synced, renamed file.
//! The rate is per second of the worker's time on a CPU, which other work on the machine does not
//! change; the rate by the clock stands beside it.

use crate::counters::thread_usage;
use crate::drive::RECORD_TIME;
use crate::events::Events;
use crate::hash::Hash;
use crate::report::{Bar, Report};
use crate::BenchError;
use shard::disk::{Disk, RealDisk};
use shard::ids::Offset;
use shard::table::file::{Covered, FileWriter};
use shard::table::memory::keep_buffers;
use shard::table::rows::RowsBuilder;
use shard::table::{file_path, FileFacts, FileId, TableFile};
use std::path::Path;
use std::time::Instant;

const RATE: Bar = Bar::AtLeast(250.0);
/// Bytes of the file to bytes in the log.
const SHARE: Bar = Bar::AtMost(0.25);

pub fn run(dir: &Path, bytes: u64) -> Result<Report, BenchError> {
    let mut report = Report::new("columnarise: JSON of 300 bytes, batches of 64 KiB".to_string());
    keep_buffers();
    let events = Events::new(bytes);
    let folder = tempfile::tempdir_in(dir).map_err(BenchError::file(dir))?;
    let (started, before) = (Instant::now(), thread_usage());
    let file = write(&RealDisk, folder.path(), &events)?;
    let (elapsed, cpu) = (started.elapsed(), thread_usage().cpu - before.cpu);
    let megabytes = events.bytes as f64 / 1e6;
    report.held(("one worker", "raw bytes"), megabytes / cpu.as_secs_f64(), "MB/s", RATE);
    report.row("one worker", "by the clock", megabytes / elapsed.as_secs_f64(), "MB/s");
    let share = file.facts.bytes as f64 / events.bytes as f64;
    report.held(("file", "bytes to raw bytes"), share, "", SHARE);
    report.row("file", "bytes", file.facts.bytes as f64 / 1e6, "MB");
    let mut hash = Hash::default();
    hash.number(file.facts.rows() as i64);
    hash.number(events.bytes as i64);
    report.hash = Some(hash.0);
    Ok(report)
}

/// The table file of all events, partition 0.
pub fn write(disk: &dyn Disk, table: &Path, events: &Events) -> Result<TableFile, BenchError> {
    let id = FileId(1);
    let mut writer = FileWriter::create(disk, table, id, RECORD_TIME)?;
    let mut rows = RowsBuilder::new();
    for batch in &events.batches {
        rows.push(0, RECORD_TIME, batch)?;
        if rows.bytes() >= RowsBuilder::GOOD_BYTES {
            writer.add(&rows.finish()?)?;
        }
    }
    writer.add(&rows.finish()?)?;
    let (first, end) = (Offset(0), Offset(events.records));
    let covered = Covered { partition: 0, first, end, raw_bytes: events.bytes };
    let facts: FileFacts = writer.finish(&[covered])?;
    Ok(TableFile { path: file_path(table, id), facts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_makes_a_file_of_all_records() {
        let dir = tempfile::tempdir().unwrap();
        let report = run(dir.path(), 1 << 20).unwrap();
        assert_eq!(report.rows.len(), 4);
        assert_eq!(report.hash, run(dir.path(), 1 << 20).unwrap().hash);
    }
}
