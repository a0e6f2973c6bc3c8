//! One PostgreSQL connection: the handlers the protocol calls.
//!
//! Parsing, planning and the encoding of rows are those of a crate, over a session of the engine.
//! Around them: rows can be cancelled and end at the client's `statement_timeout` while they are
//! sent, and errors say what they are (`errors`).

use super::errors;
use super::hooks::ReadOnly;
use crate::query::catalog::TOPICS_SCHEMA;
use crate::query::{Engine, QueryError};
use async_trait::async_trait;
use datafusion_postgres::hooks::cursor::CursorStatementHook;
use datafusion_postgres::hooks::set_show::SetShowHook;
use datafusion_postgres::hooks::transactions::TransactionStatementHook;
use datafusion_postgres::DfSessionService;
use futures::stream::{self, StreamExt};
use futures::Sink;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::auth::StartupHandler;
use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::portal::Portal;
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{QueryResponse, Response};
use pgwire::api::store::PortalStore;
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionHandle, ConnectionManager, ErrorHandler,
    PgWireServerHandlers,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Where the crate's `SET statement_timeout` leaves its milliseconds.
const STATEMENT_TIMEOUT: &str = "statement_timeout_ms";

/// What a connection answers with.
pub struct Handlers {
    session: Arc<Session>,
    startup: Arc<Startup>,
    cancel: Arc<DefaultCancelHandler>,
}

impl Handlers {
    pub fn new(
        engine: Arc<Engine>,
        connections: Arc<ConnectionManager>,
    ) -> Result<Handlers, QueryError> {
        let context = Arc::new(engine.session(None)?);
        let hooks: Vec<Arc<dyn datafusion_postgres::QueryHook>> = vec![
            Arc::new(ReadOnly),
            Arc::new(CursorStatementHook),
            Arc::new(SetShowHook),
            Arc::new(TransactionStatementHook),
        ];
        let service = DfSessionService::new_with_hooks(context, hooks);
        let cancel = Arc::new(DefaultCancelHandler::new(connections.clone()));
        let session = Arc::new(Session { service });
        Ok(Handlers { session, startup: Arc::new(Startup(connections)), cancel })
    }
}

impl PgWireServerHandlers for Handlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        self.session.clone()
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        self.session.clone()
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        self.startup.clone()
    }

    fn error_handler(&self) -> Arc<impl ErrorHandler> {
        Arc::new(Telling)
    }

    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        self.cancel.clone()
    }
}

/// Everybody is let in.
struct Startup(Arc<ConnectionManager>);

#[async_trait]
impl NoopStartupHandler for Startup {
    fn connection_manager(&self) -> Option<Arc<ConnectionManager>> {
        Some(self.0.clone())
    }

    async fn post_startup<C>(
        &self,
        client: &mut C,
        _message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let path = || TOPICS_SCHEMA.to_string();
        client.metadata_mut().entry("search_path".to_string()).or_insert_with(path);
        Ok(())
    }
}

/// Errors on their way out.
struct Telling;

impl ErrorHandler for Telling {
    fn on_error<C>(&self, _client: &C, error: &mut PgWireError)
    where
        C: ClientInfo,
    {
        let met = std::mem::replace(error, PgWireError::QueryCanceled);
        *error = errors::told(met);
    }
}

struct Session {
    service: DfSessionService,
}

#[async_trait]
impl SimpleQueryHandler for Session {
    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let responses = SimpleQueryHandler::do_query(&self.service, client, query).await?;
        Ok(responses.into_iter().map(|response| watched(response, client)).collect())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Session {
    type Statement = <DfSessionService as ExtendedQueryHandler>::Statement;
    type QueryParser = <DfSessionService as ExtendedQueryHandler>::QueryParser;

    fn query_parser(&self) -> Arc<Self::QueryParser> {
        self.service.query_parser()
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Self::Statement>,
        rows_max: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let response =
            ExtendedQueryHandler::do_query(&self.service, client, portal, rows_max).await?;
        Ok(watched(response, client))
    }
}

/// The same rows, which end with an error when they are cancelled or take too long.
fn watched<C: ClientInfo>(response: Response, client: &C) -> Response {
    let Response::Query(query) = response else { return response };
    let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
    let handle = handle.map(|handle| (*handle).clone());
    let timeout = client.metadata().get(STATEMENT_TIMEOUT);
    let timeout = timeout.and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let QueryResponse { command_tag, row_schema, data_rows, .. } = query;
    let rows = Watched { rows: data_rows, handle, timeout };
    let mut response = QueryResponse::new(row_schema, rows.into_stream());
    response.set_command_tag(&command_tag);
    Response::Query(response)
}

struct Watched<S> {
    rows: S,
    handle: Option<Arc<ConnectionHandle>>,
    timeout: Option<Duration>,
}

impl<S> Watched<S>
where
    S: futures::Stream<Item = PgWireResult<DataRow>> + Unpin + Send + 'static,
{
    fn into_stream(self) -> impl futures::Stream<Item = PgWireResult<DataRow>> + Send {
        let Watched { rows, handle, timeout } = self;
        stream::once(async move {
            let ended = ending(handle, timeout).await;
            stream::unfold((rows, Some(ended)), |(mut rows, ended)| async move {
                let mut ended = ended?;
                match futures::future::select(rows.next(), &mut ended).await {
                    futures::future::Either::Left((row, _)) => Some((row?, (rows, Some(ended)))),
                    futures::future::Either::Right((error, _)) => Some((Err(error), (rows, None))),
                }
            })
        })
        .flatten()
    }
}

type Ending = std::pin::Pin<Box<dyn std::future::Future<Output = PgWireError> + Send>>;

/// Resolves when rows that are being sent are to end early.
async fn ending(handle: Option<Arc<ConnectionHandle>>, timeout: Option<Duration>) -> Ending {
    let cancelled = match handle {
        Some(handle) => Some(handle.start_query().await),
        None => None,
    };
    Box::pin(async move {
        let cancelled = async {
            // A later query of the connection takes the place of this one's canceller.
            let is_told = match cancelled {
                Some(cancelled) => cancelled.await.is_ok(),
                None => false,
            };
            if !is_told {
                std::future::pending::<()>().await;
            }
        };
        let cancelled = std::pin::pin!(cancelled);
        let late = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let late = std::pin::pin!(late);
        match futures::future::select(cancelled, late).await {
            futures::future::Either::Left(_) => PgWireError::QueryCanceled,
            futures::future::Either::Right(_) => errors::timed_out(),
        }
    })
}
