//! HTTP, and the small runtime that serves it: metrics, health, queries, the Iceberg catalogue.
//!
//! A leaf on threads of its own; it knows no core and can stop none. It answers from the moment the
//! broker starts, so that a probe sees a broker that recovers: `/healthz` says that the process
//! lives, `/readyz` that clients are served. What needs the cores is added when they are up
//! ([`Serving::open`]) and answers 503 before.
//!
//! | path       | answers                                                                    |
//! |------------|----------------------------------------------------------------------------|
//! | `/healthz` | 200 as long as the process lives                                           |
//! | `/readyz`  | 200 when the broker serves, 503 before                                     |
//! | `/metrics` | what the cores count, for Prometheus                                       |
//! | `/sql`     | POST a statement, see `sql`                                                |

mod client;
#[cfg(feature = "sql")]
mod sql;
#[cfg(feature = "sql")]
pub mod terminal;

pub use client::stats;
#[cfg(feature = "sql")]
pub use sql::router as sql;

use crate::metrics::{prometheus, Board, Snapshot};
use axum::extract::{Request, State};
use axum::http::{header, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tower_service::Service as _;

/// Threads of the service: they move bytes; queries have threads of their own.
const THREADS: usize = 2;
/// How long requests in flight may take to end at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the service's threads cannot be started: {0}")]
    Threads(#[source] io::Error),
    #[error("{address} cannot be bound: {source}")]
    Bind { address: SocketAddr, source: io::Error },
}

/// The runtime of everything that is served beside Kafka. Dropping it ends what it serves.
pub struct Service {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Service {
    pub fn start() -> Result<Service, HttpError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("service")
            .enable_all()
            .build()
            .map_err(HttpError::Threads)?;
        let handle = runtime.handle().clone();
        Ok(Service { runtime: Some(runtime), handle })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Binds `address` and answers there until the service ends.
    pub fn serve(&self, address: SocketAddr, boards: Vec<Board>) -> Result<Serving, HttpError> {
        let failed = |source: io::Error| HttpError::Bind { address, source };
        let listener = self.handle.block_on(TcpListener::bind(address)).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let state = Front { boards: boards.into(), late: Arc::default() };
        let late = state.late.clone();
        let router = router(state);
        self.handle.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "HTTP is no longer served");
            }
        });
        Ok(Serving { address: bound, late })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOP_PATIENCE);
        }
    }
}

/// What answers at an address.
pub struct Serving {
    address: SocketAddr,
    late: Arc<OnceLock<Router>>,
}

impl Serving {
    /// The address bound, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds what needs the cores; from now on the broker is ready.
    pub fn open(&self, more: impl IntoIterator<Item = Router>) {
        let more = more.into_iter().fold(Router::new(), Router::merge);
        if self.late.set(more).is_err() {
            tracing::error!("HTTP was opened twice");
        }
    }
}

/// What the service knows from the start, and what comes when the cores are up.
#[derive(Clone)]
struct Front {
    boards: Arc<[Board]>,
    late: Arc<OnceLock<Router>>,
}

fn router(front: Front) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(late)
        .with_state(front)
}

async fn ready(State(front): State<Front>) -> Response {
    match front.late.get() {
        Some(_) => "ready\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response(),
    }
}

async fn metrics(State(front): State<Front>) -> Response {
    let cores: Vec<Snapshot> = front.boards.iter().map(Board::get).collect();
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, prometheus(&cores)).into_response()
}

async fn late(State(front): State<Front>, request: Request) -> Response {
    let Some(router) = front.late.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the broker is starting\n").into_response();
    };
    match router.clone().call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_stats_reads() {
        let board = Board::default();
        board.put(Snapshot { core: 0, connections: 12, ..Snapshot::default() });
        let service = Service::start().expect("threads");
        let address = "127.0.0.1:0".parse().expect("address");
        let serving = service.serve(address, vec![board]).expect("a free port");
        let at = serving.address().to_string();
        let text = stats(&at).expect("answered");
        assert!(text.contains("basalt_connections{core=\"0\"} 12\n"), "{text}");
        let get = |path: &str| client::get(&at, path).expect("answered").0;
        assert_eq!((get("/healthz"), get("/readyz"), get("/more")), (200, 503, 503));
        serving.open([Router::new().route("/more", get_more())]);
        assert_eq!((get("/healthz"), get("/readyz"), get("/more")), (200, 200, 200));
        assert_eq!(get("/less"), 404);
    }

    fn get_more() -> axum::routing::MethodRouter {
        axum::routing::get(|| async { "more" })
    }
}
