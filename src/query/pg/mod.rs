//! The PostgreSQL wire protocol: psql, Grafana, DBeaver and drivers without anything to install.
//!
//! A front door like `POST /sql`: the protocol and PostgreSQL's own catalogue tables come from
//! crates, statements pass `hooks` (what reads is planned, what sets is taken note of, everything
//! else refused), and every plan passes `admission`. A connection is a session of its own; a client
//! that goes away ends its query. There are no passwords: whoever reaches the port may read.
//!
//! Gaps: no TLS; sessions of views other than the first are chosen by the database's name, and any
//! other name gets the first view; parameters of prepared statements have the types the plan
//! infers; subqueries for one value that depend on the row outside have to aggregate, so that
//! JDBC's `getTypeInfo` fails; a `search_path` that was SET is shown, and has no effect.

mod errors;
mod hooks;
mod session;
mod settings;

use super::{Engine, QueryError};
use datafusion::prelude::SessionContext;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::context::PgCatalogContextProvider;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use pgwire::api::ConnectionManager;
use pgwire::tokio::process_socket;
use session::Handlers;
use std::io;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Connections at once; more are closed at the door.
const CONNECTIONS_MAX: usize = 256;

/// PostgreSQL's own catalogue, as its tools look into it.
pub fn add_catalog(session: &SessionContext, view: &str) -> Result<(), QueryError> {
    setup_pg_catalog(session, view, NoRoles).map_err(|error| QueryError::from(*error))?;
    session.register_udf(settings::current_schema());
    session.register_udf(settings::current_schemas());
    session.register_udf(settings::current_setting());
    Ok(())
}

/// Nobody has a role here.
#[derive(Clone, Debug)]
struct NoRoles;

impl PgCatalogContextProvider for NoRoles {}

/// Answers PostgreSQL clients at `listener` until the runtime ends.
pub fn start(
    listener: std::net::TcpListener,
    engine: Arc<Engine>,
    on: &Handle,
) -> Result<(), QueryError> {
    let failed = |error: io::Error| QueryError::Failed(format!("PostgreSQL clients: {error}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let _on = on.enter();
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    on.spawn(serve(listener, engine));
    Ok(())
}

async fn serve(listener: TcpListener, engine: Arc<Engine>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = Arc::new(ConnectionManager::new());
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "a PostgreSQL client could not be accepted");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(most = CONNECTIONS_MAX, "a PostgreSQL client too many");
            continue;
        };
        let (engine, connections) = (engine.clone(), connections.clone());
        tokio::spawn(async move {
            if let Err(error) = talk(socket, &engine, connections).await {
                tracing::debug!(%error, "a PostgreSQL client is gone");
            }
            drop(place);
        });
    }
}

/// One connection, to its end or until the client is gone.
async fn talk(
    socket: TcpStream,
    engine: &Arc<Engine>,
    connections: Arc<ConnectionManager>,
) -> io::Result<()> {
    let socket = socket.into_std()?;
    let watched = TcpStream::from_std(socket.try_clone()?)?;
    let socket = TcpStream::from_std(socket)?;
    let handlers = Handlers::new(engine.clone(), connections).map_err(io::Error::other)?;
    let talk = std::pin::pin!(process_socket(socket, None, Arc::new(handlers)));
    let gone = std::pin::pin!(closed(&watched));
    match futures::future::select(talk, gone).await {
        futures::future::Either::Left((ended, _)) => ended,
        futures::future::Either::Right((ended, _)) => ended,
    }
}

/// Resolves when the other side has closed the connection, which nobody would see while a query
/// runs: the protocol reads on only when it has answered.
async fn closed(socket: &TcpStream) -> io::Result<()> {
    loop {
        let ready = socket.ready(Interest::READABLE).await?;
        if ready.is_read_closed() {
            return Ok(());
        }
        // Data the protocol will read: wait for the next thing to happen.
        let again = || Err::<(), io::Error>(io::ErrorKind::WouldBlock.into());
        match socket.try_io(Interest::READABLE, again) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
