//! A topic as a table: what a scan of it reads.
//!
//! The table itself holds nothing. Each scan takes the moment of the topic its query sees, and
//! plans the files and batches of that moment as one source. Files that reach below the log start,
//! whose first rows nobody may see any more, are read as slices like batches; all others by
//! DataFusion's Parquet reader, cut into pieces so that several threads can read one.

use super::admission::Taken;
use super::files::{Files, Readers, TablePiece};
use super::slice::{Slice, SliceOf};
use super::snapshots::{PartitionSnapshot, SnapshotError, Snapshots, TopicSnapshot};
use super::source::TopicSource;
use super::statistics::{self, Covered};
use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use shard::ids::Offset;
use shard::table::schema::{storage_schema, visible_columns};
use shard::table::TableFile;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The name under which DataFusion looks for a store it is never to read from.
pub const STORE: &str = "basalt://tables";
/// Files are cut into pieces of about this size, so that threads share the work of a large one.
const PIECE_BYTES: u64 = 8 << 20;
/// A guess of what a record takes in the log, for plans alone.
const RECORD_BYTES: u64 = 100;

/// The columns of every topic's table.
pub fn table_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let all = storage_schema();
        let visible = all.fields().iter().take(visible_columns()).cloned();
        Arc::new(Schema::new(visible.collect::<Vec<_>>()))
    });
    SCHEMA.clone()
}

/// The table of one topic.
#[derive(Debug)]
pub struct TopicTable {
    pub source: Arc<dyn Snapshots>,
    pub topic: String,
    pub files: Arc<Files>,
}

impl From<SnapshotError> for DataFusionError {
    fn from(error: SnapshotError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

#[async_trait]
impl TableProvider for TopicTable {
    fn schema(&self) -> SchemaRef {
        table_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Files and blocks are pruned by what their statistics say; each row is looked at again.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let taken = session.config().get_extension::<Taken>().unwrap_or_default();
        let snapshot = taken.of(&self.source, &self.topic).await?;
        let threads = session.config().target_partitions();
        let pieces = pieces(&snapshot, &self.files);
        let facts: Vec<Covered> = pieces.iter().filter_map(|piece| piece.adds).collect();
        let parquet = ParquetSource::new(table_schema())
            .with_table_parquet_options(session.table_options().parquet.clone())
            .with_parquet_file_reader_factory(Arc::new(Readers(self.files.clone())));
        let source: Arc<dyn FileSource> = Arc::new(TopicSource::new(Arc::new(parquet)));
        let groups = deal(pieces.into_iter().map(Piece::into_file).collect(), threads);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::parse(STORE)?, source)
            .with_file_groups(groups)
            .with_statistics(statistics::sum(&facts))
            .with_limit(limit)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Something to read, and what is known of it.
struct Piece {
    covered: Covered,
    /// What it adds to what is known of the whole; a file adds that once, with its first piece.
    adds: Option<Covered>,
    name: String,
    bytes: u64,
    what: What,
}

enum What {
    File { file: Arc<TableFile>, range: Option<(i64, i64)> },
    Slice(Slice),
}

impl Piece {
    fn into_file(self) -> PartitionedFile {
        let file = PartitionedFile::new(self.name, self.bytes)
            .with_statistics(Arc::new(self.covered.bounds()));
        match self.what {
            What::Slice(slice) => file.with_extension(slice),
            What::File { file: table, range } => {
                let file = file.with_extension(TablePiece(table));
                match range {
                    Some((start, end)) => file.with_range(start, end),
                    None => file,
                }
            }
        }
    }
}

/// Everything a scan reads, oldest files first, batches last.
fn pieces(snapshot: &TopicSnapshot, files: &Arc<Files>) -> Vec<Piece> {
    let partitions: BTreeMap<i32, &PartitionSnapshot> =
        snapshot.partitions.iter().map(|partition| (partition.partition, partition)).collect();
    let mut pieces = Vec::new();
    for file in snapshot.version.files() {
        if is_whole(file, &partitions) {
            cut(file, &mut pieces);
        } else {
            let slices = visible(file, &partitions, files).into_iter();
            pieces.extend(slices.map(|slice| piece_of(slice, file.facts.rows())));
        }
    }
    for partition in &snapshot.partitions {
        if let Some(hot) = partition.hot.clone().filter(|_| partition.hot_from < partition.end) {
            let (partition, from, end) = (partition.partition, partition.hot_from, partition.end);
            let rows = hot.bytes() / RECORD_BYTES;
            let of = SliceOf::Batches(hot);
            pieces.push(piece_of(Slice { partition, from, end, of }, rows));
        }
    }
    pieces
}

fn piece_of(slice: Slice, rows: u64) -> Piece {
    let mut covered = Covered::new(slice.partition).about(rows, slice.bytes());
    covered.cover(slice.from, Offset(slice.end.0.saturating_sub(1)));
    let name = format!("batches/{}/{}", slice.partition, slice.from);
    let (adds, bytes) = (Some(covered), slice.bytes());
    Piece { covered, adds, name, bytes, what: What::Slice(slice) }
}

/// Whether every row of a file is to be seen.
fn is_whole(file: &TableFile, partitions: &BTreeMap<i32, &PartitionSnapshot>) -> bool {
    file.facts.parts.iter().all(|part| {
        part.rows == 0
            || partitions
                .get(&part.partition)
                .is_some_and(|seen| part.first >= seen.log_start && part.end <= seen.hot_from)
    })
}

/// What is to be seen of a file that is not wholly so.
fn visible(
    file: &Arc<TableFile>,
    partitions: &BTreeMap<i32, &PartitionSnapshot>,
    files: &Arc<Files>,
) -> Vec<Slice> {
    let mut slices = Vec::new();
    for part in file.facts.parts.iter().filter(|part| part.rows > 0) {
        let Some(seen) = partitions.get(&part.partition) else { continue };
        let (from, end) = (part.first.max(seen.log_start), part.end.min(seen.hot_from));
        if from < end {
            let of = SliceOf::File(file.clone(), files.clone());
            slices.push(Slice { partition: part.partition, from, end, of });
        }
    }
    slices
}

fn cut(file: &Arc<TableFile>, pieces: &mut Vec<Piece>) {
    let bytes = file.facts.bytes;
    let count = (bytes / PIECE_BYTES).max(1);
    let whole = Covered::file(&file.facts);
    let name = format!("tables/{}", file.facts.id);
    let edge = |piece: u64| i64::try_from(bytes * piece / count).unwrap_or(i64::MAX);
    for piece in 0..count {
        let (covered, range) = match count {
            1 => (whole, None),
            _ => (whole.piece_of(count as usize), Some((edge(piece), edge(piece + 1)))),
        };
        let (adds, name) = ((piece == 0).then_some(whole), name.clone());
        let what = What::File { file: file.clone(), range };
        pieces.push(Piece { covered, adds, name, bytes, what });
    }
}

/// Deals pieces out to threads; they share what the others have not begun.
fn deal(pieces: Vec<PartitionedFile>, threads: usize) -> Vec<FileGroup> {
    let hands = threads.min(pieces.len()).max(1);
    let mut groups: Vec<Vec<PartitionedFile>> = (0..hands).map(|_| Vec::new()).collect();
    for (number, piece) in pieces.into_iter().enumerate() {
        if let Some(group) = groups.get_mut(number % hands) {
            group.push(piece);
        }
    }
    groups.into_iter().map(FileGroup::new).collect()
}
