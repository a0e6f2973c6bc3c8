//! One scan of a topic: Parquet files and slices of batches, in one source DataFusion plans with.
//!
//! DataFusion's Parquet source does what it does best: prune row groups and pages, push projections
//! and limits down, and read in the order a sort wants. This source wraps it and takes the pieces
//! that are no whole Parquet files (hot batches, files that reach below the log start) out of its
//! hands; those come from `slice`, under the same projection and the same pruning by statistics.

use super::slice::{Slice, SliceRows};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_optimizer::pruning::FilePruner;
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::sync::Arc;

/// The source of a topic's rows.
#[derive(Clone)]
pub struct TopicSource {
    parquet: Arc<dyn FileSource>,
    batch_rows: usize,
}

impl TopicSource {
    pub fn new(parquet: Arc<dyn FileSource>) -> TopicSource {
        TopicSource { parquet, batch_rows: 8192 }
    }

    fn with(&self, parquet: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(TopicSource { parquet, batch_rows: self.batch_rows })
    }
}

impl FileSource for TopicSource {
    fn create_file_opener(
        &self,
        _: Arc<dyn ObjectStore>,
        _: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        Err(DataFusionError::Internal("topics are read in morsels".into()))
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let schema = self.table_schema().table_schema().clone();
        let all = (0..schema.fields().len()).collect::<Vec<_>>();
        let whole = || ProjectionExprs::from_indices(&all, &schema);
        let projection = self.projection().cloned().unwrap_or_else(whole);
        let reading =
            Reading { projection, predicate: self.filter(), schema, batch_rows: self.batch_rows };
        let parquet = self.parquet.create_morselizer(store, config, partition)?;
        Ok(Box::new(TopicMorselizer { parquet, reading: Arc::new(reading) }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.parquet.table_schema()
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(TopicSource { parquet: self.parquet.with_batch_size(batch_rows), batch_rows })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.parquet.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.parquet.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.parquet.metrics()
    }

    fn file_type(&self) -> &str {
        "topic"
    }

    fn fmt_extra(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parquet.fmt_extra(kind, f)
    }

    /// The provider cuts files into pieces itself, and slices cannot be cut by bytes.
    fn supports_repartitioning(&self) -> bool {
        false
    }

    fn repartitioned(
        &self,
        _: usize,
        _: usize,
        _: Option<LexOrdering>,
        _: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        Ok(None)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_filters(filters, config)?;
        let updated_node = pushed.updated_node.map(|parquet| self.with(parquet));
        Ok(FilterPushdownPropagation { filters: pushed.filters, updated_node })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_sort(order, properties)?;
        pushed.try_map(|parquet| Ok(self.with(parquet)))
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.parquet.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_projection(projection)?;
        Ok(pushed.map(|parquet| self.with(parquet)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.parquet.apply_expressions(f)
    }
}

/// What is wanted of every slice.
pub struct Reading {
    pub projection: ProjectionExprs,
    pub predicate: Option<Arc<dyn PhysicalExpr>>,
    pub schema: SchemaRef,
    pub batch_rows: usize,
}

impl Reading {
    /// Whether statistics alone say that no row of `file` is wanted.
    pub fn prunes(&self, file: &PartitionedFile) -> Result<bool> {
        let Some(predicate) = self.predicate.clone() else { return Ok(false) };
        let pruner = FilePruner::try_new(predicate, &self.schema, file, Count::new());
        pruner.map_or(Ok(false), |mut pruner| pruner.should_prune())
    }
}

struct TopicMorselizer {
    parquet: Box<dyn Morselizer>,
    reading: Arc<Reading>,
}

impl fmt::Debug for TopicMorselizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicMorselizer").finish_non_exhaustive()
    }
}

impl Morselizer for TopicMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        match file.extension::<Slice>().cloned() {
            None => self.parquet.plan_file(file),
            Some(slice) => {
                Ok(Box::new(SlicePlanner { slice, file, reading: self.reading.clone() }))
            }
        }
    }
}

/// A slice about to be read.
struct SlicePlanner {
    slice: Slice,
    file: PartitionedFile,
    reading: Arc<Reading>,
}

impl fmt::Debug for SlicePlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlicePlanner").field("slice", &self.slice).finish_non_exhaustive()
    }
}

impl MorselPlanner for SlicePlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        if self.reading.prunes(&self.file)? {
            return Ok(None);
        }
        Ok(Some(MorselPlan::new().with_morsels(vec![Box::new(SliceMorsel(*self))])))
    }
}

struct SliceMorsel(SlicePlanner);

impl fmt::Debug for SliceMorsel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Morsel for SliceMorsel {
    /// Reads as it goes: the query threads are there to be blocked.
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        match SliceRows::open(&self.0.slice, self.0.reading) {
            Ok(rows) => stream::iter(rows).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}
