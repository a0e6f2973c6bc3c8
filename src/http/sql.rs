//! `POST /sql`: the body is one statement, the answer its rows.
//!
//! `Accept` chooses JSON with one object a line (what comes without one), CSV or an Arrow stream.
//! An error before the first row is a status and a JSON object with `error`; an error behind it
//! breaks the answer off, so that a client never takes a part for the whole. A client that goes
//! away ends its query.
//!
//! | status | meaning                                                                        |
//! |--------|--------------------------------------------------------------------------------|
//! | 200    | rows follow                                                                    |
//! | 400    | the statement cannot be run: syntax, an unknown name, an error while running   |
//! | 403    | the statement does more than read                                              |
//! | 406    | no format of `Accept` is known                                                 |
//! | 429    | as many queries run as may                                                     |
//! | 422    | the query needs more time, memory or spill space than it may have              |

use crate::query::results::{Format, Writer};
use crate::query::{Engine, Exceeded, QueryError, Refused, Rows};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::{stream, Stream, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;

/// The longest statement.
const STATEMENT_BYTES_MAX: usize = 1 << 20;

/// The routes of queries.
pub fn router(engine: Arc<Engine>) -> Router {
    Router::new()
        .route("/sql", post(run))
        .layer(DefaultBodyLimit::max(STATEMENT_BYTES_MAX))
        .with_state(engine)
}

async fn run(State(engine): State<Arc<Engine>>, headers: HeaderMap, sql: String) -> Response {
    let accept = headers.get(header::ACCEPT).map(|value| value.to_str().unwrap_or("?"));
    let Some(format) = Format::accepted(accept) else {
        let known = Format::MEDIA.map(|(_, name)| name).join(", ");
        return refused(StatusCode::NOT_ACCEPTABLE, &format!("rows come as {known}"));
    };
    let first = match begin(&engine, &sql, format).await {
        Ok(first) => first,
        Err(error) => return refused(status(&error), &error.to_string()),
    };
    let kind = [(header::CONTENT_TYPE, format.media_type())];
    (kind, Body::from_stream(chunks(first))).into_response()
}

fn refused(status: StatusCode, reason: &str) -> Response {
    (status, Json(serde_json::json!({ "error": reason }))).into_response()
}

fn status(error: &QueryError) -> StatusCode {
    match error {
        QueryError::Refused(Refused::Writes(_)) => StatusCode::FORBIDDEN,
        QueryError::Refused(_) | QueryError::NoView(_) | QueryError::Failed(_) => {
            StatusCode::BAD_REQUEST
        }
        QueryError::Exceeded(Exceeded::Concurrency { .. }) => StatusCode::TOO_MANY_REQUESTS,
        QueryError::Exceeded(_) => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// An answer that has begun.
struct Answer {
    rows: Rows,
    /// `None` when all is written or something failed.
    writer: Option<Writer>,
    ready: VecDeque<Vec<u8>>,
}

/// Runs a statement up to its first rows, so that what fails at once has a status.
async fn begin(engine: &Engine, sql: &str, format: Format) -> Result<Answer, QueryError> {
    let mut rows = engine.run(sql).await?;
    let failed = |error: &dyn std::fmt::Display| QueryError::Failed(error.to_string());
    let mut writer = Writer::new(format, &rows.schema).map_err(|error| failed(&error))?;
    let mut ready = VecDeque::new();
    if let Some(batch) = rows.batches.next().await {
        ready.push_back(writer.batch(&batch?).map_err(|error| failed(&error))?);
    }
    Ok(Answer { rows, writer: Some(writer), ready })
}

fn chunks(answer: Answer) -> impl Stream<Item = Result<Bytes, QueryError>> {
    stream::unfold(answer, |mut answer| async move {
        loop {
            match answer.ready.pop_front() {
                Some(chunk) if chunk.is_empty() => continue,
                Some(chunk) => return Some((Ok(Bytes::from(chunk)), answer)),
                None => {}
            }
            let mut writer = answer.writer.take()?;
            let written = match answer.rows.batches.next().await {
                Some(Ok(batch)) => {
                    let written = writer.batch(&batch);
                    answer.writer = Some(writer);
                    written
                }
                Some(Err(error)) => {
                    answer.writer = None;
                    return Some((Err(error.into()), answer));
                }
                None => writer.finish(),
            };
            match written {
                Ok(chunk) => answer.ready.push_back(chunk),
                Err(error) => {
                    answer.writer = None;
                    return Some((Err(QueryError::Failed(error.to_string())), answer));
                }
            }
        }
    })
}
