//! Reading what is to be carried to the log's tail. Runs on a worker; blocks.
//!
//! `Log` names runs, here their frames are read and checked, and become items that the core only
//! has to store: verbatim, or as compaction leaves them. The core never reads a segment, the worker
//! never writes one. What is damaged stays where it is: carrying it would make it look whole.

use super::chain::read_whole;
use super::clean::{is_kept_whole, Keys, Pass};
use super::directory::{Directory, IndexError};
use super::header::{index_name, segment_name};
use super::index::{BatchEntry, SegmentIndex, Summary, GAP_FRAME_BYTES};
use super::read::wanted;
use super::side::side_name;
use super::whole::{whole_frame, WholeFrame};
use crate::batch::{emptied, BatchHeader, Expander, Rest, HEADER_BYTES};
use crate::disk::{Disk, ReadFile};
use crate::ids::{DenseId, LeaderEpoch, Offset, SegmentNumber, Timestamp};
use crate::partition::{Run, RunKind};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Frames are read until what is made of them comes to so much …
const LOAD_BYTES: u64 = 1 << 20;
/// … or they themselves do.
const READ_BYTES: u64 = 16 << 20;
/// What is read in one go of frames that lie no further apart than this.
const WINDOW_BYTES: usize = 256 << 10;
const BETWEEN_BYTES: u64 = 4 << 10;

/// A segment to read from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub number: SegmentNumber,
    pub epoch: u64,
    /// None when it has to be read from its file.
    pub index: Option<Arc<SegmentIndex>>,
}

/// A run to be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub id: DenseId,
    pub run: Run,
}

/// What is still to be read: runs in the order of (partition, offset).
#[derive(Debug)]
pub(super) struct Load {
    pub places: Vec<Place>,
    pub sources: VecDeque<Source>,
    /// None: everything is carried as it is.
    pub pass: Option<Arc<Pass>>,
    /// A batch before this was kept whole: what deletes records in it has to stay too.
    marks_stay: bool,
    /// Read already and nothing left of it; the next item stands for it too.
    gone: Option<Gone>,
    /// What was read so far.
    pub read_bytes: u64,
}

/// Offsets of which nothing is left.
#[derive(Clone, Copy, Debug)]
struct Gone {
    id: DenseId,
    segment: SegmentNumber,
    from: Offset,
    end: Offset,
    source_bytes: (u64, u64),
}

/// One frame to be written at the tail.
#[derive(Debug)]
pub(super) struct Item {
    pub id: DenseId,
    /// Where what it stands for has been.
    pub segment: SegmentNumber,
    pub kind: RunKind,
    /// It stands for these offsets.
    pub from: Offset,
    pub end: Offset,
    /// None: no batch is left there.
    pub batch: Option<Batch>,
    /// Bytes of the batches it stands for, and of their frames.
    pub source_bytes: (u64, u64),
}

#[derive(Debug)]
pub(super) struct Batch {
    pub header: BatchHeader,
    /// What follows the header in the frame: records, or the rest of a side frame's payload.
    pub rest: Vec<u8>,
    pub side: Option<u64>,
    pub leader_epoch: LeaderEpoch,
    pub append_time: Timestamp,
}

/// Why a segment cannot be emptied.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("reading segment {segment}: {error}")]
    Io { segment: SegmentNumber, error: io::Error },
    #[error("the index of segment {0} is damaged")]
    Index(SegmentNumber),
    #[error("{} is not the batch that segment {segment} says it is", path.display())]
    Side { segment: SegmentNumber, path: PathBuf },
    #[error("the frame at byte {at} of segment {segment} is damaged and stays there")]
    Damaged { segment: SegmentNumber, at: u32 },
}

impl CarryError {
    pub(super) fn segment(&self) -> SegmentNumber {
        match self {
            CarryError::Io { segment, .. }
            | CarryError::Index(segment)
            | CarryError::Side { segment, .. }
            | CarryError::Damaged { segment, .. } => *segment,
        }
    }

    fn io(segment: SegmentNumber) -> impl Fn(io::Error) -> CarryError {
        move |error| CarryError::Io { segment, error }
    }

    fn index(segment: SegmentNumber) -> impl Fn(IndexError) -> CarryError {
        move |error| match error {
            IndexError::Io(error) => CarryError::Io { segment, error },
            IndexError::Damaged => CarryError::Index(segment),
        }
    }
}

/// What a segment holds, dead or alive.
pub(super) fn list(disk: &dyn Disk, dir: &Path, place: &Place) -> Result<Vec<Summary>, CarryError> {
    if let Some(index) = &place.index {
        return Ok(index.summaries());
    }
    let directory = open_index(disk, dir, place.number)?.1;
    Ok(directory.summaries().copied().collect())
}

type IndexFile = (Arc<dyn ReadFile>, Directory);

fn open_index(disk: &dyn Disk, dir: &Path, number: SegmentNumber) -> Result<IndexFile, CarryError> {
    let file = disk.open(&dir.join(index_name(number))).map_err(CarryError::io(number))?;
    let directory = Directory::read(&*file).map_err(CarryError::index(number))?;
    Ok((file, directory))
}

/// An opened segment.
struct Opened<'a> {
    place: &'a Place,
    file: Arc<dyn ReadFile>,
    index_file: Option<IndexFile>,
    window: Window,
}

/// What was read last of a segment. Frames that follow one another are read many at a time, others
/// alone.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Vec<u8>,
    /// Where the last frame ended.
    end: u64,
}

impl Window {
    /// The bytes of a frame; `None` when the file ends before.
    fn frame(&mut self, file: &dyn ReadFile, at: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let follows = (self.end..=self.end + BETWEEN_BYTES).contains(&at);
        self.end = at + count as u64;
        let held = self.at..=self.at + self.bytes.len() as u64;
        if !(held.contains(&at) && held.contains(&self.end)) {
            let ahead = if follows { WINDOW_BYTES.max(count) } else { count };
            self.bytes.resize(ahead, 0);
            self.at = at;
            let mut done = 0;
            while done < count {
                match file.read_at(at + done as u64, &mut self.bytes[done..])? {
                    0 => return Ok(None),
                    read => done += read,
                }
            }
            self.bytes.truncate(done);
        }
        let from = (at - self.at) as usize;
        Ok(self.bytes.get(from..from + count))
    }
}

impl Load {
    pub fn new(places: Vec<Place>, sources: VecDeque<Source>, pass: Option<Arc<Pass>>) -> Load {
        Load { places, sources, pass, marks_stay: false, gone: None, read_bytes: 0 }
    }

    /// Reads the next items. Blocks. Runs that have been read to their end leave `sources`.
    pub fn run(&mut self, disk: &dyn Disk, dir: &Path) -> Result<Vec<Item>, CarryError> {
        let Load { places, sources, pass, marks_stay, gone, read_bytes } = self;
        let mut reader = Reader { disk, dir, places, opened: None, expander: Expander::default() };
        let mut made = Made { items: Vec::new(), gone: gone.take(), bytes: 0 };
        let mut read = 0;
        while let Some(source) = sources.front_mut() {
            if made.bytes >= LOAD_BYTES || read >= READ_BYTES {
                break;
            }
            if source.run.kind == RunKind::Gap {
                made.nothing(source, source.run.end, (0, GAP_FRAME_BYTES));
                sources.pop_front();
                continue;
            }
            let entries = reader.entries(source)?;
            let entries = wanted(&entries, source.run.base, source.run.end);
            let mut left = entries.iter();
            for entry in left.by_ref() {
                let weight = (u64::from(entry.batch_bytes), entry.frame_bytes());
                read += weight.0;
                match reader.carry(source, entry, pass.as_deref(), marks_stay)? {
                    Some(item) => made.item(source, Item { source_bytes: weight, ..item }),
                    None => made.nothing(source, entry.end(), weight),
                }
                source.run.base = entry.end();
                if made.bytes >= LOAD_BYTES || read >= READ_BYTES {
                    break;
                }
            }
            if left.as_slice().is_empty() {
                sources.pop_front();
            }
        }
        *read_bytes += read;
        *gone = made.gone.take();
        if sources.is_empty() {
            made.items.extend(gone.take().map(gap_item));
        }
        Ok(made.items)
    }

    /// Whether nothing is left to be read.
    pub fn is_over(&self) -> bool {
        self.sources.is_empty()
    }

    /// Reads keys. Blocks. True when all sources were read or no more can be taken in.
    pub fn gather(
        &mut self,
        keys: &mut Keys,
        disk: &dyn Disk,
        dir: &Path,
    ) -> Result<bool, CarryError> {
        let Load { places, sources, .. } = self;
        let mut reader = Reader { disk, dir, places, opened: None, expander: Expander::default() };
        let mut read = 0;
        while let Some(source) = sources.front_mut() {
            if source.run.kind == RunKind::Gap {
                keys.until = source.run.end;
                sources.pop_front();
                continue;
            }
            let entries = reader.entries(source)?;
            for entry in wanted(&entries, source.run.base, source.run.end) {
                if keys.is_full || !reader.gather(source, entry, keys)? {
                    return Ok(true);
                }
                source.run.base = entry.end();
                read += u64::from(entry.batch_bytes);
                if read >= READ_BYTES {
                    return Ok(false);
                }
            }
            sources.pop_front();
        }
        Ok(true)
    }
}

/// Items as they are made.
struct Made {
    items: Vec<Item>,
    gone: Option<Gone>,
    bytes: u64,
}

impl Made {
    /// Nothing is left of a run from its base up to `end`.
    fn nothing(&mut self, source: &Source, end: Offset, (batch, frame): (u64, u64)) {
        let (id, segment, from) = (source.id, source.run.segment, source.run.base);
        match self.gone.as_mut().filter(|gone| gone.id == id && gone.end == from) {
            Some(gone) => {
                gone.end = end;
                gone.segment = segment;
                gone.source_bytes.0 += batch;
                gone.source_bytes.1 += frame;
            }
            None => {
                let source_bytes = (batch, frame);
                let gone = self.gone.replace(Gone { id, segment, from, end, source_bytes });
                self.items.extend(gone.map(gap_item));
            }
        }
    }

    /// An item that begins at the base of its run, or with what is gone before it.
    fn item(&mut self, source: &Source, mut item: Item) {
        item.from = source.run.base;
        match self.gone.take_if(|gone| gone.id == item.id && gone.end == item.from) {
            Some(gone) => {
                item.from = gone.from;
                item.source_bytes.0 += gone.source_bytes.0;
                item.source_bytes.1 += gone.source_bytes.1;
            }
            None => self.items.extend(self.gone.take().map(gap_item)),
        }
        self.bytes += item.batch.as_ref().map_or(0, |batch| batch.rest.len() as u64);
        self.items.push(item);
    }
}

fn gap_item(gone: Gone) -> Item {
    let Gone { id, segment, from, end, source_bytes } = gone;
    Item { id, segment, kind: RunKind::Gap, from, end, batch: None, source_bytes }
}

/// The segments being read, one open at a time.
struct Reader<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    places: &'a [Place],
    opened: Option<Opened<'a>>,
    expander: Expander,
}

impl<'a> Reader<'a> {
    fn opened(&mut self, number: SegmentNumber) -> Result<&mut Opened<'a>, CarryError> {
        if self.opened.as_ref().is_none_or(|opened| opened.place.number != number) {
            let place = self.places.iter().find(|place| place.number == number);
            let place = place.ok_or(CarryError::Index(number))?;
            self.opened = Some(open(self.disk, self.dir, place)?);
        }
        self.opened.as_mut().ok_or(CarryError::Index(number))
    }

    /// The batches of the stretch a run is in.
    fn entries(&mut self, source: &Source) -> Result<Vec<BatchEntry>, CarryError> {
        self.opened(source.run.segment)?.entries(source)
    }

    fn read(&mut self, source: &Source, entry: &BatchEntry) -> Result<Batch, CarryError> {
        self.opened(source.run.segment)?.read(source.id, entry)
    }

    /// The records of a batch, from its file when it has one.
    fn body(&self, source: &Source, batch: &Batch) -> Result<Vec<u8>, CarryError> {
        let segment = source.run.segment;
        let Some(file) = batch.side else { return Ok(batch.rest.clone()) };
        let path = self.dir.join(side_name(file));
        let file = self.disk.open(&path).map_err(CarryError::io(segment))?;
        let mut body = vec![0; batch.header.bytes().saturating_sub(HEADER_BYTES)];
        let read = read_whole(&*file, HEADER_BYTES as u64, &mut body);
        let whole = read.map_err(CarryError::io(segment))?;
        if whole && batch.header.crc_with(&body) == batch.header.crc {
            return Ok(body);
        }
        Err(CarryError::Side { segment, path })
    }

    /// What a frame becomes; `None` when compaction leaves nothing of it.
    fn carry(
        &mut self,
        source: &Source,
        entry: &BatchEntry,
        pass: Option<&Pass>,
        marks_stay: &mut bool,
    ) -> Result<Option<Item>, CarryError> {
        let mut batch = self.read(source, entry)?;
        let kind = match (source.run.kind, pass) {
            (RunKind::Cleaned, _) | (_, Some(_)) => RunKind::Cleaned,
            _ => RunKind::Carried,
        };
        if let Some(pass) = pass {
            let body = self.body(source, &batch)?;
            match pass.clean((&batch.header, &body), *marks_stay, &mut self.expander) {
                Ok(Rest::Nothing) if entry.end() < pass.log_end => return Ok(None),
                Ok(Rest::Nothing) => {
                    batch = Batch {
                        header: emptied(&batch.header),
                        rest: Vec::new(),
                        side: None,
                        ..batch
                    };
                }
                Ok(Rest::Some(header, rest)) if batch.side.is_none() => {
                    batch = Batch { header, rest, ..batch };
                }
                // Of a batch in a file of its own an earlier compaction may have left too much.
                Ok(Rest::Some(..) | Rest::Same) => {
                    *marks_stay |= batch.side.is_some() || is_kept_whole(&batch.header);
                }
                Err(error) => {
                    *marks_stay = true;
                    let (segment, at) = (source.run.segment, entry.frame_start());
                    tracing::warn!(%segment, at, %error, "a batch is not compacted");
                }
            }
        }
        let (id, segment) = (source.id, source.run.segment);
        let (from, end, source_bytes) = (entry.base, entry.end(), (0, 0));
        Ok(Some(Item { id, segment, kind, from, end, batch: Some(batch), source_bytes }))
    }

    /// Takes in the keys of a frame; false when it is too young.
    fn gather(
        &mut self,
        source: &Source,
        entry: &BatchEntry,
        keys: &mut Keys,
    ) -> Result<bool, CarryError> {
        let batch = self.read(source, entry)?;
        if batch.append_time > keys.younger_than {
            return Ok(false);
        }
        let body = self.body(source, &batch)?;
        if let Err(error) = keys.add(&batch.header, &body, &mut self.expander) {
            let (segment, at) = (source.run.segment, entry.frame_start());
            tracing::warn!(%segment, at, %error, "the keys of a batch are not known");
            keys.until = entry.end();
        }
        Ok(true)
    }
}

fn open<'a>(disk: &dyn Disk, dir: &Path, place: &'a Place) -> Result<Opened<'a>, CarryError> {
    let number = place.number;
    let file = disk.open(&dir.join(segment_name(number))).map_err(CarryError::io(number))?;
    let index_file = match place.index {
        Some(_) => None,
        None => Some(open_index(disk, dir, number)?),
    };
    Ok(Opened { place, file, index_file, window: Window::default() })
}

impl Opened<'_> {
    fn entries(&self, source: &Source) -> Result<Vec<BatchEntry>, CarryError> {
        let (id, base) = (source.id, source.run.base);
        if let Some((file, directory)) = &self.index_file {
            let entries = directory.entries(&**file, id, base);
            return entries.map_err(CarryError::index(self.place.number));
        }
        let index = self.place.index.as_ref();
        Ok(index.map_or(Vec::new(), |index| index.entries(id, base).to_vec()))
    }

    /// Reads one frame.
    fn read(&mut self, id: DenseId, entry: &BatchEntry) -> Result<Batch, CarryError> {
        let (segment, epoch) = (self.place.number, self.place.epoch);
        let at = u64::from(entry.frame_start());
        let frame = self.window.frame(&*self.file, at, entry.frame_bytes() as usize);
        let frame = frame.map_err(CarryError::io(segment))?;
        let batch = frame.and_then(|frame| check(id, epoch, entry, frame));
        batch.ok_or(CarryError::Damaged { segment, at: entry.frame_start() })
    }
}

/// The batch in a frame that is whole and what the index says it is.
fn check(id: DenseId, epoch: u64, entry: &BatchEntry, frame: &[u8]) -> Option<Batch> {
    let WholeFrame { frame, batch, rest, side } = whole_frame(id, epoch, entry, frame)?;
    let (leader_epoch, append_time) = (frame.leader_epoch, frame.append_time);
    Some(Batch { header: batch, rest: rest.to_vec(), side, leader_epoch, append_time })
}
