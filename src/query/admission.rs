//! The gate every plan passes: who may run, what each query sees, where it runs.
//!
//! DataFusion asks a session's planner for each plan that is to be executed, whichever front door
//! the statement came through. Here that planner lets the query in (`limits`), gives it one moment
//! of each topic it names, plans it, and wraps the plan so that it runs on the query threads, ends
//! at its deadline, and is given up when nobody takes its rows any more. Nothing else executes
//! plans.

use super::ending::{watched, Over};
use super::guard;
use super::limits::{Exceeded, Limits, Permit};
use super::snapshots::{SnapshotError, Snapshots, TopicSnapshot};
use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    execute_stream, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use futures::StreamExt;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Batches that wait for whoever takes the rows.
const AHEAD: usize = 2;

/// The moments a query has taken so far, by view and topic: a topic named twice is seen once.
#[derive(Debug, Default)]
pub struct Taken(Mutex<HashMap<(usize, String), Arc<TopicSnapshot>>>);

impl Taken {
    /// The moment of a topic that this query sees.
    pub async fn of(
        &self,
        source: &Arc<dyn Snapshots>,
        topic: &str,
    ) -> Result<Arc<TopicSnapshot>, SnapshotError> {
        let key = (Arc::as_ptr(source).cast::<()>() as usize, topic.to_string());
        if let Some(taken) = self.lock().get(&key) {
            return Ok(taken.clone());
        }
        let gone = || SnapshotError { topic: topic.into(), reason: "it was deleted".into() };
        let fresh = Arc::new(source.snapshot(topic).await?.ok_or_else(gone)?);
        Ok(self.lock().entry(key).or_insert(fresh).clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(usize, String), Arc<TopicSnapshot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The planner of all sessions.
#[derive(Debug)]
pub struct Admission {
    limits: Arc<Limits>,
    threads: Handle,
}

impl Admission {
    pub fn new(limits: Arc<Limits>, threads: Handle) -> Admission {
        Admission { limits, threads }
    }
}

#[async_trait]
impl QueryPlanner for Admission {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(what) = guard::plan_writes(plan) {
            return Err(guard::Refused::Writes(what.into()).into());
        }
        let permit = self.limits.admit().await?;
        let foreign = || DataFusionError::Internal("a session of another kind".into());
        let state = session.as_any().downcast_ref::<SessionState>().ok_or_else(foreign)?;
        let mut state = state.clone();
        let taken = Arc::new(Taken::default());
        state.config_mut().set_extension(taken.clone());
        let planned = DefaultPhysicalPlanner::default();
        let planned = planned.create_physical_plan(plan, &state);
        let deadline = permit.deadline.into();
        let planned = tokio::time::timeout_at(deadline, planned).await;
        let inner = planned.map_err(|_| Exceeded::Time(self.limits.timeout()))??;
        let over = Arc::new(Over::new(permit.deadline, self.limits.timeout()));
        let inner = inner.transform_up(|plan| yielding(plan, &over)).data()?;
        let held = Arc::new(Held { permit, over, _taken: taken });
        Ok(Arc::new(Admitted::new(inner, held, self)))
    }
}

/// Joins make many batches of one they have read, without ever waiting: here they let go of their
/// thread now and then, so that a query can be ended; what makes none is ended by its filter.
fn yielding(
    plan: Arc<dyn ExecutionPlan>,
    over: &Arc<Over>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if plan.name().contains("Join") || plan.name() == "UnnestExec" {
        let plan = watched(plan, over)?;
        return Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan))));
    }
    Ok(Transformed::no(plan))
}

impl From<guard::Refused> for DataFusionError {
    fn from(refused: guard::Refused) -> DataFusionError {
        DataFusionError::External(Box::new(refused))
    }
}

/// What a query holds until it is over.
#[derive(Debug)]
struct Held {
    permit: Permit,
    over: Arc<Over>,
    /// Keeps the files of the versions it reads.
    _taken: Arc<Taken>,
}

/// The root of an admitted plan.
#[derive(Debug)]
struct Admitted {
    inner: Arc<dyn ExecutionPlan>,
    held: Arc<Held>,
    limits: Arc<Limits>,
    threads: Handle,
}

impl Admitted {
    fn new(inner: Arc<dyn ExecutionPlan>, held: Arc<Held>, admission: &Admission) -> Admitted {
        let inner = match inner.output_partitioning().partition_count() {
            1 => inner,
            _ => Arc::new(CoalescePartitionsExec::new(inner)) as Arc<dyn ExecutionPlan>,
        };
        let (limits, threads) = (admission.limits.clone(), admission.threads.clone());
        Admitted { inner, held, limits, threads }
    }
}

impl DisplayAs for Admitted {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdmittedExec")
    }
}

impl ExecutionPlan for Admitted {
    fn name(&self) -> &str {
        "AdmittedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let none = || DataFusionError::Internal("a root without an input".into());
        let inner = children.into_iter().next().ok_or_else(none)?;
        let (held, limits) = (self.held.clone(), self.limits.clone());
        Ok(Arc::new(Admitted { inner, held, limits, threads: self.threads.clone() }))
    }

    /// Required by the trait still, and called by nobody who calls the one above.
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (sender, batches) = mpsc::channel(AHEAD);
        let (inner, held) = (self.inner.clone(), self.held.clone());
        let (timeout, over) = (self.limits.timeout(), self.held.over.clone());
        let task = self.threads.spawn(async move {
            let deadline = held.permit.deadline.into();
            let run = tokio::time::timeout_at(deadline, pour(inner, context, sender)).await;
            drop(held);
            run.map_err(|_| Exceeded::Time(timeout))
        });
        let rows = Rows { batches, task: Some(Task(task, over)) };
        let stream = futures::stream::unfold(rows, |mut rows| async move {
            rows.next().await.map(|batch| (batch, rows))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

type Batch = Result<RecordBatch>;

/// Runs a plan and hands its batches over, until it ends or nobody wants them.
async fn pour(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>, to: mpsc::Sender<Batch>) {
    let mut stream = match execute_stream(plan, context) {
        Ok(stream) => stream,
        Err(error) => {
            let _ = to.send(Err(error)).await;
            return;
        }
    };
    while let Some(batch) = stream.next().await {
        let failed = batch.is_err();
        if to.send(batch).await.is_err() || failed {
            return;
        }
    }
}

/// A task that ends when nobody waits for it any more.
struct Task(JoinHandle<Result<(), Exceeded>>, Arc<Over>);

impl Drop for Task {
    fn drop(&mut self) {
        self.1.give_up();
        self.0.abort();
    }
}

/// The receiving end of a running query.
struct Rows {
    batches: mpsc::Receiver<Batch>,
    task: Option<Task>,
}

impl Rows {
    async fn next(&mut self) -> Option<Batch> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        // The end of the rows is the end of the query only if it came to its end.
        let mut task = self.task.take()?;
        match (&mut task.0).await {
            Ok(Ok(())) => None,
            Ok(Err(exceeded)) => Some(Err(exceeded.into())),
            Err(error) => Some(Err(DataFusionError::Execution(format!(
                "the query was given up: {}",
                if error.is_panic() { "it met a defect in the broker" } else { "it was stopped" }
            )))),
        }
    }
}
