//! What a log's directory holds: its chain of segments and its checkpoint, before any replay.
//!
//! The newest segment with a header leads back over the links to the oldest. Files that no link
//! leads to are leftovers of abandoned branches; prepared files without a header were never used.

use super::checkpoint::{self, Checkpoint};
use super::header::{parse_segment_name, segment_name, HeaderError, SegmentHeader};
use super::header::{FRAMES_START, SEGMENT_HEADER_BYTES};
use super::scan::Scanner;
use super::settings::LogSpec;
use super::side::parse_side_name;
use crate::disk::{Disk, ReadFile};
use crate::ids::{Position, SegmentNumber};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a log is not opened. Nothing has been changed on the disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{doing} {}: {error}", path.display())]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    #[error("{} is a file of another {what}", path.display())]
    Foreign { path: PathBuf, what: &'static str },
    #[error("{}: {error}", path.display())]
    Version { path: PathBuf, error: HeaderError },
    #[error(
        "{} is damaged at byte {at}, although the log was recorded as durable up to {mark}; \
         restore the file, or cut the log there with `basalt log salvage`",
        path.display()
    )]
    Damaged { path: PathBuf, at: u32, mark: Position },
    #[error(
        "{} is missing, although {} follows it; restore the file, or go on without it with \
         `basalt log salvage`",
        path.display(),
        successor.display()
    )]
    Missing { path: PathBuf, successor: PathBuf },
}

/// One segment of the chain.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub header: SegmentHeader,
    pub path: PathBuf,
    pub file_bytes: u64,
    /// Where the successor says it ends; `None` for the newest.
    pub end: Option<u32>,
}

pub(super) struct Chain {
    /// Oldest first.
    pub links: Vec<Link>,
    pub checkpoint: Option<Checkpoint>,
    /// Ids of the checkpoint files in force.
    pub checkpoint_files: Vec<u64>,
    /// Greater than every number and id ever used.
    pub next_number: SegmentNumber,
    pub next_checkpoint: u64,
    /// Files that are to go once the log is open.
    pub leftovers: Vec<PathBuf>,
    /// Numbers of the side files there are.
    pub sides: Vec<u64>,
}

/// Names the path in an I/O error.
pub(super) fn io_error<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |error| OpenError::Io { doing, path: path.to_path_buf(), error }
}

/// Reads the directory. Changes nothing.
pub(super) fn read_chain(disk: &dyn Disk, spec: &LogSpec) -> Result<Chain, OpenError> {
    let dir = &spec.dir;
    let entries = disk.list(dir).map_err(io_error("listing", dir))?;
    let mut segments = BTreeMap::new();
    let mut checkpoints = Vec::new();
    let mut indexes = Vec::new();
    let mut leftovers = Vec::new();
    let mut sides = Vec::new();
    let mut next_number = 1;
    for entry in &entries {
        let path = dir.join(&entry.name);
        if let Some(number) = parse_segment_name(&entry.name) {
            next_number = next_number.max(number.0 + 1);
            match read_header(disk, spec, number, &path)? {
                Some(header) => {
                    segments.insert(number, (header, path, entry.bytes));
                }
                None => leftovers.push(path),
            }
        } else if let Some(id) = checkpoint::parse_name(&entry.name) {
            checkpoints.push(id);
        } else if let Some(file) = parse_side_name(&entry.name) {
            sides.push(file);
        } else if let Some(stem) = entry.name.strip_suffix(".idx") {
            indexes.push((parse_segment_name(&format!("{stem}.seg")), path));
        } else if entry.name.ends_with(".tmp") {
            leftovers.push(path);
        }
    }
    let (checkpoint, checkpoint_files) = read_checkpoints(disk, spec, &checkpoints)?;
    let links = follow(disk, &segments, checkpoint.as_ref(), spec)?;
    let used = |number: &SegmentNumber| links.iter().any(|link| link.header.number == *number);
    leftovers.extend(segments.iter().filter(|(n, _)| !used(n)).map(|(_, s)| s.1.clone()));
    let orphans = indexes.into_iter().filter(|(number, _)| !number.as_ref().is_some_and(used));
    leftovers.extend(orphans.map(|(_, path)| path));
    let unused = checkpoints.iter().filter(|id| !checkpoint_files.contains(id));
    leftovers.extend(unused.map(|&id| dir.join(checkpoint::name(id))));
    let next_checkpoint = checkpoints.iter().max().map_or(1, |id| id + 1);
    let next_number = SegmentNumber(next_number);
    Ok(Chain {
        links,
        checkpoint,
        checkpoint_files,
        next_number,
        next_checkpoint,
        leftovers,
        sides,
    })
}

/// The header of a segment file; `None` when it was never used.
fn read_header(
    disk: &dyn Disk,
    spec: &LogSpec,
    number: SegmentNumber,
    path: &Path,
) -> Result<Option<SegmentHeader>, OpenError> {
    let file = disk.open(path).map_err(io_error("opening", path))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    match read_whole(&*file, 0, &mut bytes) {
        Ok(true) => {}
        // Cut short while it was being prepared.
        Ok(false) => return Ok(None),
        Err(_) if spec.salvage => return Ok(None),
        Err(error) => return Err(io_error("reading", path)(error)),
    }
    let header = match SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(HeaderError::Blank) => return Ok(None),
        // A header lies in one sector, which a power loss leaves old or new: this is damage, and
        // the newest segment has no successor that would miss it.
        Err(HeaderError::Damaged) if spec.salvage => return Ok(None),
        Err(HeaderError::Damaged) => {
            let (path, mark) = (path.to_path_buf(), Position { segment: number, offset: 0 });
            return Err(OpenError::Damaged { path, at: 0, mark });
        }
        Err(error @ HeaderError::Version(_)) => {
            return Err(OpenError::Version { path: path.to_path_buf(), error });
        }
    };
    for (wrong, what) in [
        (header.cluster != spec.cluster, "cluster"),
        (header.log != spec.id, "log"),
        (header.number != number, "segment number"),
    ] {
        if wrong {
            return Err(OpenError::Foreign { path: path.to_path_buf(), what });
        }
    }
    Ok(Some(header))
}

/// Every segment file with a header.
type Headed = BTreeMap<SegmentNumber, (SegmentHeader, PathBuf, u64)>;

/// Walks from the newest segment back to the oldest one there is.
fn follow(
    disk: &dyn Disk,
    segments: &Headed,
    checkpoint: Option<&Checkpoint>,
    spec: &LogSpec,
) -> Result<Vec<Link>, OpenError> {
    let covered = checkpoint.map(|checkpoint| checkpoint.header.covered.segment);
    let mut newest = segments.keys().next_back().copied();
    let mut links = Vec::new();
    while let Some(number) = newest {
        let (walked, missing) = walk(segments, number, covered);
        links = walked;
        let Some(missing) = missing.filter(|_| !spec.salvage) else { break };
        // Segments started between two syncs reach the disk in any order: one that was never
        // durable may be lost while its successor is not. They go together.
        if covered == Some(missing) || was_durable(disk, &links, missing)? {
            let path = spec.dir.join(segment_name(missing));
            let successor = links.last().map(|link| link.path.clone()).unwrap_or_default();
            return Err(OpenError::Missing { path, successor });
        }
        links.clear();
        newest = segments.range(..missing).next_back().map(|(number, _)| *number);
    }
    links.reverse();
    let newest = links.last().map(|link| link.header.number);
    if let Some(covered) = covered.filter(|&c| newest.is_none_or(|newest| newest < c)) {
        if !spec.salvage {
            let path = spec.dir.join(segment_name(covered));
            let mark = Position { segment: covered, offset: FRAMES_START };
            return Err(OpenError::Damaged { path, at: 0, mark });
        }
    }
    Ok(links)
}

/// The links from `newest` back, and the one that should be there and is not.
fn walk(
    segments: &Headed,
    newest: SegmentNumber,
    covered: Option<SegmentNumber>,
) -> (Vec<Link>, Option<SegmentNumber>) {
    let mut links = Vec::new();
    let mut next = segments.get(&newest);
    let mut end = None;
    while let Some((header, path, file_bytes)) = next {
        links.push(Link { header: *header, path: path.clone(), file_bytes: *file_bytes, end });
        let Some(before) = header.predecessor else { break };
        next = segments.get(&before.number).filter(|(h, _, _)| h.epoch == before.epoch);
        // Retention removes the oldest segments, and only those before the checkpoint.
        let may_be_gone = covered.is_some_and(|covered| before.number < covered);
        if next.is_none() && !may_be_gone {
            return (links, Some(before.number));
        }
        end = Some(before.end);
    }
    (links, None)
}

/// Whether a segment or frame behind `number` says that it had been durable.
fn was_durable(disk: &dyn Disk, behind: &[Link], number: SegmentNumber) -> Result<bool, OpenError> {
    for link in behind {
        let header = &link.header;
        if header.mark.segment >= number {
            return Ok(true);
        }
        let file = open_link(disk, link)?;
        let mut scanner = Scanner::new(&*file, header.epoch, FRAMES_START, header.first_sequence);
        let beyond = scanner.look_beyond().map_err(io_error("reading", &link.path))?;
        if beyond.is_some_and(|beyond| beyond.mark.segment >= number) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The newest base that can be read, with the deltas that follow it.
fn read_checkpoints(
    disk: &dyn Disk,
    spec: &LogSpec,
    ids: &[u64],
) -> Result<(Option<Checkpoint>, Vec<u64>), OpenError> {
    let mut whole: Option<Checkpoint> = None;
    let mut files = Vec::new();
    for &id in ids {
        let path = spec.dir.join(checkpoint::name(id));
        let file = disk.open(&path).map_err(io_error("opening", &path))?;
        let Ok(bytes) = read_all(&*file) else {
            tracing::warn!(path = %path.display(), "a checkpoint cannot be read");
            continue;
        };
        let Ok(read) = checkpoint::decode(&bytes) else {
            tracing::warn!(path = %path.display(), "a checkpoint is damaged");
            continue;
        };
        if read.header.log != spec.id {
            return Err(OpenError::Foreign { path, what: "log" });
        }
        match read.header.delta_to {
            None => {
                whole = Some(read);
                files = vec![id];
            }
            Some(before) if files.last() == Some(&before) => {
                if let Some(whole) = &mut whole {
                    add_delta(whole, read);
                    files.push(id);
                }
            }
            Some(_) => {}
        }
    }
    Ok((whole, files))
}

fn add_delta(whole: &mut Checkpoint, delta: Checkpoint) {
    let mut entries: BTreeMap<_, _> =
        std::mem::take(&mut whole.entries).into_iter().map(|entry| (entry.dense, entry)).collect();
    entries.extend(delta.entries.into_iter().map(|entry| (entry.dense, entry)));
    whole.entries = entries.into_values().collect();
    whole.header.covered = delta.header.covered;
    whole.header.next_dense = delta.header.next_dense;
    whole.header.id = delta.header.id;
}

fn read_all(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    if !read_whole(file, 0, &mut bytes)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Fills `into`; false when the file ends before.
pub(super) fn read_whole(file: &dyn ReadFile, at: u64, into: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < into.len() {
        let read = file.read_at(at + done as u64, &mut into[done..])?;
        if read == 0 {
            return Ok(false);
        }
        done += read;
    }
    Ok(true)
}

/// Opens the file of a link.
pub(super) fn open_link(disk: &dyn Disk, link: &Link) -> Result<Arc<dyn ReadFile>, OpenError> {
    disk.open(&link.path).map_err(io_error("opening", &link.path))
}
