//! How queries read table files: through the engine's disk, footers kept.
//!
//! Reads block; they happen on the query threads, which exist for that. A file never changes and its
//! name is never used again, so what is known of its footer stays right for as long as it is kept.
//! Bytes of files are outside bytes: whatever does not parse is an error that names the file.

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::{BoxFuture, FutureExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use shard::disk::{Disk, ReadFile};
use shard::table::TableFile;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a reader asks for at the end of a file at first: most footers are smaller.
const FOOTER_GUESS_BYTES: usize = 64 << 10;

/// Opens table files and keeps what their footers say.
pub struct Files {
    disk: Arc<dyn Disk>,
    footers: Mutex<Footers>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    /// Keeps footers of up to `bytes_max`.
    pub fn new(disk: Arc<dyn Disk>, bytes_max: usize) -> Files {
        let kept = HashMap::new();
        Files { disk, footers: Mutex::new(Footers { kept, bytes: 0, bytes_max, clock: 0 }) }
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    fn kept(&self, path: &Path) -> Option<Arc<ParquetMetaData>> {
        self.footers.lock().unwrap_or_else(PoisonError::into_inner).get(path)
    }

    fn keep(&self, path: &Path, footer: Arc<ParquetMetaData>) {
        self.footers.lock().unwrap_or_else(PoisonError::into_inner).put(path, footer);
    }
}

/// Footers by the path of their file; the ones used longest ago go first.
struct Footers {
    kept: HashMap<PathBuf, (Arc<ParquetMetaData>, u64)>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

impl Footers {
    fn get(&mut self, path: &Path) -> Option<Arc<ParquetMetaData>> {
        self.clock += 1;
        let (footer, used) = self.kept.get_mut(path)?;
        *used = self.clock;
        Some(footer.clone())
    }

    fn put(&mut self, path: &Path, footer: Arc<ParquetMetaData>) {
        self.clock += 1;
        self.bytes += footer.memory_size();
        if let Some((old, _)) = self.kept.insert(path.to_path_buf(), (footer, self.clock)) {
            self.bytes -= old.memory_size();
        }
        while self.bytes > self.bytes_max && self.kept.len() > 1 {
            let oldest = self.kept.iter().min_by_key(|(_, (_, used))| *used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else { return };
            if let Some((gone, _)) = self.kept.remove(&path) {
                self.bytes -= gone.memory_size();
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
        let file = piece.0.clone();
        let open = self.0.disk.open(&file.path);
        let handle = open.map_err(|error| unreadable(&file.path, error))?;
        Ok(Box::new(Reader { files: self.0.clone(), file, handle }))
    }
}

fn unreadable(path: &Path, error: impl fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("table file {}: {error}", path.display()))
}

/// One open file.
struct Reader {
    files: Arc<Files>,
    file: Arc<TableFile>,
    handle: Arc<dyn ReadFile>,
}

impl Reader {
    fn read(&self, range: &Range<u64>) -> parquet::errors::Result<Bytes> {
        let path = self.file.path.display();
        let damaged = |why: String| ParquetError::General(format!("table file {path}: {why}"));
        let length = self.file.facts.bytes;
        if range.start > range.end || range.end > length {
            return Err(damaged(format!("bytes {range:?} of {length} are asked for")));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = range.start + filled as u64;
            let into = bytes.get_mut(filled..).unwrap_or_default();
            match self.handle.read_at(at, into).map_err(|error| damaged(error.to_string()))? {
                0 => return Err(damaged(format!("it ends at {at}"))),
                more => filled += more,
            }
        }
        Ok(bytes.into())
    }

    async fn footer(&mut self) -> parquet::errors::Result<Arc<ParquetMetaData>> {
        if let Some(kept) = self.files.kept(&self.file.path) {
            return Ok(kept);
        }
        let reader = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_prefetch_hint(Some(FOOTER_GUESS_BYTES));
        let length = self.file.facts.bytes;
        let path = self.file.path.clone();
        let footer = reader.load_and_finish(&mut *self, length).await.map_err(|error| {
            ParquetError::General(format!("table file {}: {error}", path.display()))
        })?;
        let footer = Arc::new(footer);
        self.files.keep(&path, footer.clone());
        Ok(footer)
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        futures::future::ready(self.read(&range)).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        futures::future::ready(ranges.iter().map(|range| self.read(range)).collect()).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        self.footer().boxed()
    }
}
