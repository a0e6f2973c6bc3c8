//! Rewriting: rows of some files into new ones that stand for the same offsets.
//!
//! Merging, trimming and compaction are this with different sieves. Rows go by in order of
//! partition and offset, a few megabytes at a time; a new file is begun when one has become large
//! enough. Raw bytes follow the rows: those of a part are spread evenly over its rows.
//!
//! Worked example: parts 0/0..50 and 0/50..90 of two files, with a sieve that drops row 89, become
//! one part 0/0..90: every offset stays covered, whether or not it has a row.

use super::file::{Covered, FileWriter};
use super::job::{JobError, Piece, Readers, Site, Written};
use super::schema::column;
use super::version::FileFacts;
use crate::ids::{Offset, Timestamp};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::RecordBatch;

/// Decides which rows stay.
pub(super) trait Sieve {
    /// The next rows are of this partition.
    fn begin(&mut self, partition: i32);
    fn sift(&mut self, rows: RecordBatch) -> Result<RecordBatch, JobError>;
}

/// Lets every row through.
pub(super) struct All;

impl Sieve for All {
    fn begin(&mut self, _: i32) {}

    fn sift(&mut self, rows: RecordBatch) -> Result<RecordBatch, JobError> {
        Ok(rows)
    }
}

/// Writes what the sieve leaves of the pieces, which are in order of partition and offset and
/// without holes. Files have about `bytes_max` raw bytes at most.
pub(super) fn rewrite(
    site: &mut Site<'_>,
    pieces: &[Piece],
    bytes_max: u64,
    sieve: &mut dyn Sieve,
) -> Result<Vec<FileFacts>, JobError> {
    // The order of files by age stays that of their rows.
    let created = pieces.iter().map(|piece| piece.at.file.facts.created).max();
    let created = created.unwrap_or(site.now);
    let mut out = Output { created, bytes_max, current: None, done: Written::new(site) };
    out.write(site, pieces, sieve)?;
    Ok(out.done.into_files())
}

struct Output<'a> {
    created: Timestamp,
    bytes_max: u64,
    current: Option<Current<'a>>,
    done: Written<'a>,
}

/// The file being written.
struct Current<'a> {
    writer: FileWriter<'a>,
    covered: Vec<Covered>,
    raw_bytes: u64,
}

impl<'a> Output<'a> {
    fn write(
        &mut self,
        site: &mut Site<'a>,
        pieces: &[Piece],
        sieve: &mut dyn Sieve,
    ) -> Result<(), JobError> {
        let mut readers = Readers::new(site.disk);
        let mut partition = None;
        for piece in pieces {
            let part = &piece.at.part;
            if partition != Some(part.partition) {
                sieve.begin(part.partition);
                partition = Some(part.partition);
            }
            self.cover(site, part.partition, piece.from, piece.from)?;
            let mut share = Share { bytes: part.raw_bytes, rows: part.rows, done: 0 };
            let all = piece.scan(piece.from, part.end, (0..column::ALL).collect());
            for rows in readers.get(&piece.at.file)?.read(&all)? {
                site.go_on()?;
                let rows = rows?;
                let bytes = share.next(rows.num_rows() as u64);
                self.make_room(site, part.partition, bytes, &rows)?;
                self.add(sieve, rows, bytes)?;
            }
            self.cover(site, part.partition, piece.from, part.end)?;
        }
        self.end_file()
    }

    /// The current file stands for the partition's offsets up to `end`, from `first` on if it had
    /// none of them.
    fn cover(
        &mut self,
        site: &mut Site<'a>,
        partition: i32,
        first: Offset,
        end: Offset,
    ) -> Result<(), JobError> {
        let current = match &mut self.current {
            Some(current) => current,
            none => {
                let id = (site.next_id)();
                let writer = FileWriter::create(site.disk, site.dir, id, self.created)?;
                none.insert(Current { writer, covered: Vec::new(), raw_bytes: 0 })
            }
        };
        match current.covered.last_mut().filter(|last| last.partition == partition) {
            Some(last) => last.end = last.end.max(end),
            None => current.covered.push(Covered { partition, first, end, raw_bytes: 0 }),
        }
        Ok(())
    }

    /// Begins another file in front of these rows when with them the current one would be too
    /// large.
    fn make_room(
        &mut self,
        site: &mut Site<'a>,
        partition: i32,
        bytes: u64,
        rows: &RecordBatch,
    ) -> Result<(), JobError> {
        let used = self.current.as_ref().map_or(0, |current| current.raw_bytes);
        let offsets = rows.column(column::OFFSET).as_primitive::<Int64Type>().values();
        let Some(&offset) = offsets.first() else { return Ok(()) };
        if used == 0 || used.saturating_add(bytes) <= self.bytes_max {
            return Ok(());
        }
        self.cover(site, partition, Offset(offset), Offset(offset))?;
        self.end_file()?;
        self.cover(site, partition, Offset(offset), Offset(offset))
    }

    fn add(
        &mut self,
        sieve: &mut dyn Sieve,
        rows: RecordBatch,
        bytes: u64,
    ) -> Result<(), JobError> {
        let all = rows.num_rows() as u64;
        let left = sieve.sift(rows)?;
        let bytes = (u128::from(bytes) * left.num_rows() as u128 / u128::from(all.max(1))) as u64;
        let Some(current) = &mut self.current else { return Ok(()) };
        current.raw_bytes += bytes;
        if let Some(last) = current.covered.last_mut() {
            last.raw_bytes += bytes;
        }
        Ok(current.writer.add(&left)?)
    }

    fn end_file(&mut self) -> Result<(), JobError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        // A file that was full before the first row of a partition stands for none of it.
        current.covered.retain(|covered| covered.first < covered.end);
        self.done.extend([current.writer.finish(&current.covered)?]);
        Ok(())
    }
}

/// The raw bytes of a part, spread over its rows.
struct Share {
    bytes: u64,
    rows: u64,
    done: u64,
}

impl Share {
    fn until(&self, rows: u64) -> u64 {
        let rows = u128::from(rows.min(self.rows));
        (u128::from(self.bytes) * rows / u128::from(self.rows.max(1))) as u64
    }

    /// Those of the next rows.
    fn next(&mut self, rows: u64) -> u64 {
        let before = self.until(self.done);
        self.done += rows;
        self.until(self.done) - before
    }
}
