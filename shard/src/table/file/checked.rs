//! Reads of a table file's data, each byte verified.
//!
//! Between Parquet's reader and the disk: whatever is asked for is read in whole blocks whose
//! checksums the footer has, and handed on only when they agree. So the decoders above never see
//! a byte that was not written. Errors pass Parquet's reader as text only, so they are kept aside
//! and put in its place by [`unwrapped`].

use super::tail::{Checksums, BLOCK_BYTES};
use crate::batch::crc32c;
use crate::disk::ReadFile;
use crate::table::error::{Damage, TableError};
use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The data part of an open file.
pub(super) struct Checked {
    pub path: PathBuf,
    pub file: Arc<dyn ReadFile>,
    pub checksums: Checksums,
}

impl Checked {
    /// The bytes `[from, to)` of the data.
    pub fn read(&self, from: u64, to: u64) -> Result<Bytes, TableError> {
        let data_bytes = self.checksums.data_bytes;
        if from > to || to > data_bytes {
            return Err(TableError::damaged(&self.path, Damage::Range { from, to }));
        }
        let first = from / BLOCK_BYTES;
        let start = first * BLOCK_BYTES;
        let end = to.next_multiple_of(BLOCK_BYTES).min(data_bytes);
        let bytes = read_exactly(&self.path, &*self.file, start, end)?;
        for (block, chunk) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
            let stored = self.checksums.blocks.get(block as usize).copied().unwrap_or_default();
            let computed = crc32c(&[chunk]);
            if stored != computed {
                let damage = Damage::Block { block, stored, computed };
                return Err(TableError::damaged(&self.path, damage));
            }
        }
        Ok(Bytes::from(bytes).slice((from - start) as usize..(to - start) as usize))
    }
}

/// The bytes `[from, to)` of a file that must have them.
pub(super) fn read_exactly(
    path: &Path,
    file: &dyn ReadFile,
    from: u64,
    to: u64,
) -> Result<Vec<u8>, TableError> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize];
    let mut read = 0;
    while let Some(into) = bytes.get_mut(read..).filter(|into| !into.is_empty()) {
        match file.read_at(from + read as u64, into).map_err(TableError::io(path))? {
            0 => return Err(TableError::damaged(path, Damage::Range { from, to })),
            count => read += count,
        }
    }
    Ok(bytes)
}

/// What one scan reads through: keeps the blocks it saw last, since the pages of narrow columns
/// share them.
pub(super) struct Window {
    checked: Arc<Checked>,
    recent: Arc<Mutex<Vec<(u64, Bytes)>>>,
    failure: Failure,
}

/// What went wrong below Parquet's reader, whose own errors are only text.
pub(super) type Failure = Arc<Mutex<Option<TableError>>>;

impl Window {
    /// Enough for the columns of a table to have one each.
    const KEPT: usize = 24;

    pub fn new(checked: Arc<Checked>) -> Window {
        Window { checked, recent: Arc::default(), failure: Failure::default() }
    }

    pub fn failure(&self) -> Failure {
        self.failure.clone()
    }

    fn failed(&self, error: TableError) -> io::Error {
        let text = error.to_string();
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        io::Error::other(text)
    }

    fn bytes(&self, from: u64, to: u64) -> Result<Bytes, TableError> {
        let first = from / BLOCK_BYTES;
        if from >= to || (to - 1) / BLOCK_BYTES != first {
            return self.checked.read(from, to);
        }
        let block = self.block(first)?;
        let (start, end) = (from % BLOCK_BYTES, (to - 1) % BLOCK_BYTES + 1);
        if end > block.len() as u64 {
            return Err(TableError::damaged(&self.checked.path, Damage::Range { from, to }));
        }
        Ok(block.slice(start as usize..end as usize))
    }

    fn block(&self, number: u64) -> Result<Bytes, TableError> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = recent.iter().position(|(have, _)| *have == number) {
            let seen = recent.remove(at);
            let bytes = seen.1.clone();
            recent.push(seen);
            return Ok(bytes);
        }
        let from = number.saturating_mul(BLOCK_BYTES);
        let to = from.saturating_add(BLOCK_BYTES).min(self.checked.checksums.data_bytes);
        let bytes = self.checked.read(from, to.max(from))?;
        if recent.len() >= Self::KEPT {
            recent.remove(0);
        }
        recent.push((number, bytes.clone()));
        Ok(bytes)
    }
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.checked.checksums.data_bytes
    }
}

impl ChunkReader for Window {
    type T = WindowRead;

    fn get_read(&self, start: u64) -> Result<WindowRead, ParquetError> {
        let window = Window {
            checked: self.checked.clone(),
            recent: self.recent.clone(),
            failure: self.failure.clone(),
        };
        Ok(WindowRead { window, at: start, rest: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64);
        self.bytes(start, end).map_err(|error| ParquetError::from(self.failed(error)))
    }
}

/// Reads the data from a place on, block by block.
pub(super) struct WindowRead {
    window: Window,
    at: u64,
    rest: Bytes,
}

impl Read for WindowRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() && self.at < self.window.len() {
            let block = self.window.block(self.at / BLOCK_BYTES);
            let block = block.map_err(|error| self.window.failed(error))?;
            let skip = ((self.at % BLOCK_BYTES) as usize).min(block.len());
            self.rest = block.slice(skip..);
            self.at += self.rest.len() as u64;
        }
        let count = into.len().min(self.rest.len());
        self.rest.copy_to_slice(into.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

/// The error of a table that stands behind an error of Parquet's; any other is damage.
pub(super) fn unwrapped(path: &Path, failure: &Failure, error: ParquetError) -> TableError {
    let behind = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    behind.unwrap_or_else(|| TableError::damaged(path, Damage::Parquet(error.to_string())))
}
