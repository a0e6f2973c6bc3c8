//! Ends queries that are inside of a join.
//!
//! Behind `admission`. A join that finds next to nothing reads on within one step: its thread never
//! comes back to where a task ends at its deadline or because nobody wants it any more. What a join
//! does call all the time is its filter, so filters of joins ask first whether the query is over.
//!
//! Worked example: `a JOIN b ON a.x + b.x = 0` over ten million rows each evaluates its filter on
//! 10^14 pairs before it has a row; without this, one such statement kept its thread for good.

use super::limits::Exceeded;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether a query is over.
#[derive(Debug)]
pub struct Over {
    deadline: Instant,
    timeout: Duration,
    is_given_up: AtomicBool,
}

impl Over {
    pub fn new(deadline: Instant, timeout: Duration) -> Over {
        Over { deadline, timeout, is_given_up: AtomicBool::new(false) }
    }

    /// Nobody wants its rows any more.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err(DataFusionError::Execution("the query was given up".into()));
        }
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(Exceeded::Time(self.timeout).into()),
        }
    }
}

/// A join whose filter asks; anything else as it is.
pub fn watched(plan: Arc<dyn ExecutionPlan>, over: &Arc<Over>) -> Result<Arc<dyn ExecutionPlan>> {
    let watch = |filter: &JoinFilter| {
        let watch = Watch { filter: filter.expression().clone(), over: over.clone() };
        let columns = filter.column_indices().to_vec();
        Some(JoinFilter::new(Arc::new(watch), columns, filter.schema().clone()))
    };
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        if let Some(filter) = join.filter() {
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(watch(filter));
            return Ok(Arc::new(join.build()?));
        }
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if let Some(filter) = join.filter() {
            return Ok(Arc::new(join.builder().with_filter(watch(filter)).build()?));
        }
    }
    Ok(plan)
}

/// A filter that fails once its query is over.
#[derive(Debug)]
struct Watch {
    filter: Arc<dyn PhysicalExpr>,
    over: Arc<Over>,
}

impl PartialEq for Watch {
    fn eq(&self, other: &Watch) -> bool {
        self.filter.eq(&other.filter) && Arc::ptr_eq(&self.over, &other.over)
    }
}

impl Eq for Watch {}

impl Hash for Watch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.filter.hash(state);
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.filter)
    }
}

impl PhysicalExpr for Watch {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.over.check()?;
        self.filter.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.filter.return_field(schema)
    }

    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.filter.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.filter.nullable(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.filter]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let none = || DataFusionError::Internal("a filter without an expression".into());
        let filter = children.into_iter().next().ok_or_else(none)?;
        Ok(Arc::new(Watch { filter, over: self.over.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt_sql(f)
    }
}
