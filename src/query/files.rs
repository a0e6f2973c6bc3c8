//! How queries read table files: through the engine's readers, which prove every byte.
//!
//! Reads block; they happen on the query threads, which exist for that. A file never changes and
//! its name is never used again, so a reader stays right for as long as it is kept; those used
//! longest ago are closed first. A damaged file is an error that names it, never fewer rows.

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::{ready, BoxFuture, FutureExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use shard::disk::Disk;
use shard::table::file::FileReader;
use shard::table::{TableError, TableFile};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Readers that stay open at most, whatever they take in memory.
const OPEN_MAX: usize = 256;

/// Opens table files and keeps them open for the next query.
pub struct Files {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

/// Readers by the path of their file.
struct Open {
    readers: HashMap<PathBuf, (FileReader, u64)>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    /// Keeps readers of up to `bytes_max`.
    pub fn new(disk: Arc<dyn Disk>, bytes_max: usize) -> Files {
        let open = Open { readers: HashMap::new(), bytes: 0, bytes_max, clock: 0 };
        Files { disk, open: Mutex::new(open) }
    }

    /// A reader of a file. Blocks.
    pub fn reader(&self, file: &TableFile) -> Result<FileReader, TableError> {
        if let Some(reader) = self.lock().get(&file.path) {
            return Ok(reader);
        }
        let reader = FileReader::open(&*self.disk, &file.path)?;
        self.lock().put(&file.path, reader.clone());
        Ok(reader)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn get(&mut self, path: &Path) -> Option<FileReader> {
        self.clock += 1;
        let (reader, used) = self.readers.get_mut(path)?;
        *used = self.clock;
        Some(reader.clone())
    }

    fn put(&mut self, path: &Path, reader: FileReader) {
        self.clock += 1;
        self.bytes += reader.memory_bytes();
        if let Some((old, _)) = self.readers.insert(path.to_path_buf(), (reader, self.clock)) {
            self.bytes -= old.memory_bytes();
        }
        while self.readers.len() > OPEN_MAX || self.bytes > self.bytes_max && self.readers.len() > 1
        {
            let oldest = self.readers.iter().min_by_key(|(_, (_, used))| *used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else { return };
            if let Some((gone, _)) = self.readers.remove(&path) {
                self.bytes -= gone.memory_bytes();
            }
        }
    }
}

/// What a scan's file stands for, carried along by DataFusion.
#[derive(Clone, Debug)]
pub struct TablePiece(pub Arc<TableFile>);

/// Makes readers for DataFusion's Parquet source.
#[derive(Clone, Debug)]
pub struct Readers(pub Arc<Files>);

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        _partition: usize,
        file: PartitionedFile,
        _hint: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let strange = || DataFusionError::Internal("a file that is no table file".into());
        let piece = file.extension::<TablePiece>().ok_or_else(strange)?;
        Ok(Box::new(Proved(self.0.reader(&piece.0).map_err(failed)?)))
    }
}

/// An error of a table file as DataFusion carries it.
pub fn failed(error: TableError) -> DataFusionError {
    DataFusionError::Execution(error.to_string())
}

/// A reader as DataFusion's Parquet source wants it.
struct Proved(FileReader);

impl Proved {
    fn read(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        self.0.bytes(range).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

impl AsyncFileReader for Proved {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        ready(self.read(range)).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        ready(ranges.into_iter().map(|range| self.read(range)).collect()).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        ready(Ok(self.0.metadata().clone())).boxed()
    }
}
