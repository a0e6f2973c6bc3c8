//! `basalt log dump` and `basalt log salvage`: the logs of a broker that does not run.
//!
//! A dump reads and changes nothing. A salvage opens every log and cuts it where it is damaged,
//! which a start never does; whoever asks for it has decided to go on without what is lost.

use crate::broker::{report, LogsError};
use crate::preflight::{DataLock, Refusal};
use shard::batch::BatchHeader;
use shard::disk::{Disk, RealDisk};
use shard::log::{
    parse_segment_name, Frame, HeaderError, Kind, Scanner, SegmentHeader, FRAMES_START,
    SEGMENT_HEADER_BYTES,
};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a log could not be looked into or mended.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} holds no segment files: name a segment, or a folder such as DATA/logs/0",
        .0.display()
    )]
    NoSegments(PathBuf),
    #[error("{} is no segment: {source}", path.display())]
    Header { path: PathBuf, source: HeaderError },
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Locked(#[from] Refusal),
    #[error(transparent)]
    Logs(#[from] LogsError),
}

/// Prints the frames of a segment file, or of all segments of a log's folder.
pub fn dump(path: &Path, out: &mut dyn Write) -> Result<(), InspectError> {
    let read = |source| InspectError::Read { path: path.to_path_buf(), source };
    if !path.is_dir() {
        return dump_segment(path, out);
    }
    let entries = RealDisk.list(path).map_err(read)?;
    let segments = entries.iter().filter(|entry| parse_segment_name(&entry.name).is_some());
    let segments: Vec<PathBuf> = segments.map(|entry| path.join(&entry.name)).collect();
    if segments.is_empty() {
        return Err(InspectError::NoSegments(path.to_path_buf()));
    }
    for segment in segments {
        match dump_segment(&segment, out) {
            // Prepared for later and not begun.
            Err(InspectError::Header { source: HeaderError::Blank, .. }) => {
                writeln!(out, "{}: not begun", segment.display())?;
            }
            other => other?,
        }
    }
    Ok(())
}

fn dump_segment(path: &Path, out: &mut dyn Write) -> Result<(), InspectError> {
    let read = |source| InspectError::Read { path: path.to_path_buf(), source };
    let file = RealDisk.open(path).map_err(read)?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let count = file.read_at(0, &mut bytes).map_err(read)?;
    if count < SEGMENT_HEADER_BYTES {
        return Err(read(io::ErrorKind::UnexpectedEof.into()));
    }
    let header = SegmentHeader::decode(&bytes)
        .map_err(|source| InspectError::Header { path: path.to_path_buf(), source })?;
    writeln!(out, "{}", path.display())?;
    writeln!(
        out,
        "log={} segment={} epoch={:016x} run={} first_sequence={} cluster={}",
        header.log,
        header.number,
        header.epoch,
        header.run,
        header.first_sequence,
        header.cluster.simple(),
    )?;
    if let Some(before) = header.predecessor {
        writeln!(
            out,
            "after segment={} epoch={:016x} end={}",
            before.number, before.epoch, before.end
        )?;
    }
    if let Some(next) = header.hollow {
        writeln!(out, "hollow next_sequence={next}")?;
        return Ok(());
    }
    let mut scanner = Scanner::new(&*file, header.epoch, FRAMES_START, header.first_sequence);
    while let Some(frame) = scanner.next_frame().map_err(read)? {
        dump_frame(&frame, out)?;
    }
    writeln!(out, "end at={} next_sequence={}", scanner.end(), scanner.next_sequence())?;
    if let Some(beyond) = scanner.look_beyond().map_err(read)? {
        writeln!(
            out,
            "beyond at={} end={} mark={} (frames behind one that is not whole)",
            beyond.first_at, beyond.end, beyond.mark
        )?;
    }
    Ok(())
}

fn dump_frame(frame: &Frame<'_>, out: &mut dyn Write) -> io::Result<()> {
    let header = &frame.header;
    write!(
        out,
        "at={} sequence={} kind={:?} partition={} bytes={} time={} mark={}",
        frame.at,
        header.sequence,
        header.kind,
        header.partition,
        header.payload_bytes,
        header.append_time,
        header.mark,
    )?;
    let batch = match header.kind {
        Kind::Data | Kind::Side => BatchHeader::parse(frame.payload).ok(),
        Kind::Bind | Kind::LogStart | Kind::Mark | Kind::Gap => None,
    };
    if let Some(batch) = batch {
        write!(
            out,
            " base={} last={} records={} leader_epoch={} producer={}/{} first_sequence={}",
            batch.base_offset,
            batch.last_offset(),
            batch.record_count,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )?;
    } else if header.kind == Kind::LogStart {
        write!(out, " log_start={}", header.base_offset)?;
    } else if header.kind == Kind::Gap {
        write!(out, " gap_from={}", header.base_offset)?;
    }
    if let Some(carried) = header.carried {
        write!(out, " carried_from={} cleaned={}", carried.from, carried.cleaned)?;
    }
    writeln!(out)
}

/// Opens each log of a data directory, cutting what is damaged, and says what was lost.
pub fn salvage(dir: &Path) -> Result<(), InspectError> {
    let lock = DataLock::take(dir)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    for (log, recovered) in crate::broker::salvage(&disk, dir)? {
        report(log, &recovered);
    }
    drop(lock);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_is_told_so() {
        let check = |path: &Path, expect: &str| {
            let error = dump(path, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        let dir = std::env::temp_dir().join(format!("basalt-inspect-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&dir).unwrap();
        check(&dir, "holds no segment files");
        check(&dir.join("gone"), "cannot read");
        let file = dir.join("text");
        std::fs::write(&file, [b'x'; 4096]).unwrap();
        check(&file, "is no segment");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
