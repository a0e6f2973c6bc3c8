//! SQL over topics: every topic is a table from the moment a produce to it is answered.
//!
//! A leaf: nothing of the broker below depends on it. A statement comes in through a front door
//! (`http`, `pg`), `guard` lets through what only reads, DataFusion plans it against `catalog`, and
//! `admission` lets the plan run on the query threads within the `limits`. A scan reads the files
//! of a table version and the raw batches behind it, both of one moment (`provider`, `source`,
//! `slice`, `files`). Queries never run on a core, and cannot stop one.

mod admission;
mod catalog;
mod ending;
mod files;
mod functions;
mod guard;
mod limits;
mod live;
pub mod pg;
mod provider;
pub mod results;
mod slice;
pub mod snapshots;
mod source;
mod statistics;
#[cfg(test)]
mod tests;

pub use guard::Refused;
pub use limits::{Exceeded, Settings};
pub use live::Live;

use crate::catalog::DEFAULT_VIEW;
use crate::config::Config;
use crate::cores::gate::Gate;
use admission::Admission;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::object_store::memory::InMemory;
use datafusion::prelude::{SessionConfig, SessionContext};
use files::Files;
use limits::Limits;
use shard::disk::Disk;
use snapshots::Snapshots;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Consumers of memory an error names when there is none left.
const NAMED_CONSUMERS: usize = 3;
/// How long a query waits for a place.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);
/// Nice value of the query threads.
const QUERY_NICE: i32 = 10;

/// Why a statement gave no rows, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error("there is no view {0:?}")]
    NoView(String),
    #[error("{0}")]
    Failed(String),
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> QueryError {
        if let Some(exceeded) = limits::exceeded(&error) {
            return QueryError::Exceeded(exceeded);
        }
        match error.find_root() {
            DataFusionError::External(other) => match other.downcast_ref::<Refused>() {
                Some(refused) => QueryError::Refused(refused.clone()),
                None => QueryError::Failed(other.to_string()),
            },
            root => QueryError::Failed(root.strip_backtrace()),
        }
    }
}

/// A view of the broker, and how queries see its topics.
pub struct View {
    pub name: String,
    pub topics: Arc<dyn Snapshots>,
}

/// What queries run on.
pub struct Place {
    pub disk: Arc<dyn Disk>,
    /// Where large sorts and joins put what does not fit into memory; emptied at the start.
    pub spill_dir: PathBuf,
    /// For what is kept of the footers of files.
    pub footer_bytes: usize,
}

/// Runs queries. Dropping it ends those that run.
pub struct Engine {
    base: SessionContext,
    views: Vec<String>,
    /// `None` once it was told to stop.
    threads: Option<Runtime>,
}

impl Engine {
    /// What the configuration of a broker says, over its topics.
    pub fn of_broker(
        config: &Config,
        disk: Arc<dyn Disk>,
        gate: Gate,
    ) -> Result<Engine, QueryError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let settings = Settings {
            memory_bytes: bytes(config.sql_memory_bytes),
            spill_bytes: config.sql_spill_bytes,
            timeout: Duration::from_millis(config.sql_timeout_ms.unsigned_abs()),
            concurrency: config.sql_concurrency as usize,
            patience: QUEUE_PATIENCE,
            threads: match config.sql_threads {
                0 => cpus.saturating_sub(config.threads(cpus).cores).max(1),
                some => some as usize,
            },
        };
        let place = Place {
            disk: disk.clone(),
            spill_dir: config.data_dir.join("spill"),
            footer_bytes: bytes(config.table_cache_bytes),
        };
        let topics = Arc::new(Live { gate, view: DEFAULT_VIEW, disk });
        Engine::start(settings, place, vec![View { name: "default".into(), topics }])
    }

    pub fn start(settings: Settings, place: Place, views: Vec<View>) -> Result<Engine, QueryError> {
        let threads = Builder::new_multi_thread()
            .worker_threads(settings.threads)
            .thread_name("query")
            .on_thread_start(yield_to_cores)
            .enable_time()
            .build()
            .map_err(|error| QueryError::Failed(format!("no query threads: {error}")))?;
        let files = Arc::new(Files::new(place.disk.clone(), place.footer_bytes));
        let limits = Arc::new(Limits::new(settings));
        let first = views.first().map_or("default", |view| view.name.as_str()).to_string();
        let state = SessionStateBuilder::new()
            .with_config(session_config(&settings, &first))
            .with_runtime_env(runtime(&settings, &place)?)
            .with_default_features()
            .with_query_planner(Arc::new(Admission::new(limits, threads.handle().clone())))
            .build();
        let mut base = SessionContext::new_with_state(state);
        for view in &views {
            let topics = catalog::catalog(view.topics.clone(), files.clone())?;
            base.register_catalog(&view.name, topics);
        }
        pg::add_catalog(&base, &first)?;
        base.register_udf(functions::utf8());
        base.register_expr_planner(Arc::new(functions::JsonOfBytes))?;
        datafusion_functions_json::register_all(&mut base)?;
        let views = views.into_iter().map(|view| view.name).collect();
        Ok(Engine { base, views, threads: Some(threads) })
    }

    /// A session of a view. What is set in it ends with it.
    pub fn session(&self, view: Option<&str>) -> Result<SessionContext, QueryError> {
        let mut state = self.base.state();
        if let Some(view) = view {
            if !self.views.iter().any(|known| known == view) {
                return Err(QueryError::NoView(view.into()));
            }
            state.config_mut().options_mut().catalog.default_catalog = view.into();
        }
        Ok(SessionContext::new_with_state(state))
    }

    /// Runs one statement that reads.
    pub async fn run(&self, sql: &str) -> Result<Rows, QueryError> {
        let statement = guard::read_only(sql)?;
        let session = self.session(None)?;
        let state = session.state();
        let plan = state.statement_to_plan(statement).await?;
        let frame = functions::plain(session.execute_logical_plan(plan).await?)?;
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let batches = frame.execute_stream().await?;
        Ok(Rows { schema, batches })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// The rows of a statement, as they come.
pub struct Rows {
    pub schema: SchemaRef,
    pub batches: SendableRecordBatchStream,
}

/// Queries run at a priority that lets cores and syncs go first.
fn yield_to_cores() {
    if let Err(error) = rustix::process::setpriority_process(None, QUERY_NICE) {
        tracing::warn!(%error, "a query thread keeps its ordinary priority");
    }
}

fn session_config(settings: &Settings, view: &str) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(settings.threads)
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(view, catalog::TOPICS_SCHEMA);
    let options = config.options_mut();
    options.sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
    options.execution.time_zone = Some("UTC".into());
    config
}

/// Memory and spill space shared by all queries; no store that could reach a file or a URL.
fn runtime(settings: &Settings, place: &Place) -> Result<Arc<RuntimeEnv>, QueryError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        QueryError::Failed(format!("{what} {}: {error}", place.spill_dir.display()))
    };
    match std::fs::remove_dir_all(&place.spill_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("cannot empty", &error));
        }
        _ => {}
    }
    std::fs::create_dir_all(&place.spill_dir).map_err(|error| failed("cannot make", &error))?;
    let disk = match settings.spill_bytes {
        0 => DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
        bytes => DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![place.spill_dir.clone()]))
            .with_max_temp_directory_size(bytes),
    };
    let named = NonZeroUsize::new(NAMED_CONSUMERS).unwrap_or(NonZeroUsize::MIN);
    let pool = TrackConsumersPool::new(FairSpillPool::new(settings.memory_bytes), named);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .build()?;
    let parse = |url: &str| Url::parse(url).map_err(|error| QueryError::Failed(error.to_string()));
    runtime.deregister_object_store(&parse("file:///")?)?;
    runtime.register_object_store(&parse(provider::STORE)?, Arc::new(InMemory::new()));
    Ok(Arc::new(runtime))
}
