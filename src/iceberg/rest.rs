//! The REST catalogue: the calls that readers make, and a clear refusal for all others.
//!
//! Covers `config`, namespaces (there is one, `kafka_topics`), tables in pages, and loading a table
//! with all its snapshots or only those that a reference names. Answers say which calls there are,
//! so that clients do not try to write, and errors have the form that Iceberg's clients print.
//!
//! Gaps: no authentication of its own, no credentials or signed reads (the header that asks for
//! them is passed over), no scan planning in the broker, no views, no `ETag`.

use super::catalogue::{Catalogue, LoadError};
use super::error::IcebergError;
use super::table::Loaded;
use super::{FreshenError, Topic};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{header, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// The one namespace: the schema that SQL knows topics by.
const NAMESPACE: &str = "kafka_topics";
/// The view whose topics these are, as clients may name it.
const WAREHOUSE: &str = "default";
const PAGE_MAX: usize = 1_000;

const ENDPOINTS: [&str; 6] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
];

type Shared = State<Arc<Catalogue>>;

/// The catalogue's routes, to be nested where it is served.
pub fn router(catalogue: Arc<Catalogue>) -> Router {
    Router::new()
        .route("/v1/config", get(config))
        .route("/v1/namespaces", get(namespaces))
        .route("/v1/namespaces/{namespace}", get(namespace).head(has_namespace))
        .route("/v1/namespaces/{namespace}/tables", get(tables))
        .route("/v1/namespaces/{namespace}/tables/{table}", get(load).head(has_table))
        .method_not_allowed_fallback(no_such_call)
        .fallback(no_such_call)
        .with_state(catalogue)
}

/// A refusal, as Iceberg's clients expect it.
struct Refusal {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, message: String) -> Refusal {
        Refusal { status, kind, message }
    }

    fn no_namespace(name: &str) -> Refusal {
        let message = format!("there is no namespace {name}; topics are in {NAMESPACE}");
        Refusal::new(StatusCode::NOT_FOUND, "NoSuchNamespaceException", message)
    }

    fn no_table(name: &str) -> Refusal {
        let message = format!("there is no topic {name}");
        Refusal::new(StatusCode::NOT_FOUND, "NoSuchTableException", message)
    }

    fn bad_query(message: String) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestException", message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.status.as_u16();
        let error = json!({"message": self.message, "type": self.kind, "code": code});
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Refusal {
        Refusal::bad_query(rejection.body_text())
    }
}

type Answer<T = Json<Value>> = Result<T, Refusal>;
type Asked<T> = Result<Query<T>, QueryRejection>;

async fn no_such_call(method: Method, uri: Uri) -> Refusal {
    let path = uri.path();
    if method == Method::GET || method == Method::HEAD {
        let message = format!("there is no {path} in this catalogue");
        return Refusal::new(StatusCode::NOT_FOUND, "NotFoundException", message);
    }
    let message = format!(
        "tables of topics are read-only here: rows are written through Kafka ({method} {path})"
    );
    Refusal::new(StatusCode::NOT_ACCEPTABLE, "UnsupportedOperationException", message)
}

#[derive(Deserialize)]
struct ConfigQuery {
    warehouse: Option<String>,
}

async fn config(asked: Asked<ConfigQuery>) -> Answer {
    let Query(asked) = asked?;
    let warehouse = asked.warehouse.unwrap_or_default();
    if !matches!(warehouse.as_str(), "" | WAREHOUSE) {
        let message = format!("there is no warehouse {warehouse}; leave it out or say {WAREHOUSE}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, "NotFoundException", message));
    }
    // Java clients report what they read unless told otherwise.
    let defaults = json!({"rest-metrics-reporting-enabled": "false"});
    Ok(Json(json!({"defaults": defaults, "overrides": {}, "endpoints": ENDPOINTS})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    parent: Option<String>,
    page_token: Option<String>,
    page_size: Option<usize>,
}

async fn namespaces(asked: Asked<Page>) -> Answer {
    let Query(asked) = asked?;
    match asked.parent.as_deref() {
        None | Some("") => Ok(Json(json!({"namespaces": [[NAMESPACE]]}))),
        Some(NAMESPACE) => Ok(Json(json!({"namespaces": []}))),
        Some(other) => Err(Refusal::no_namespace(other)),
    }
}

fn check_namespace(name: &str) -> Answer<()> {
    match name {
        NAMESPACE => Ok(()),
        _ => Err(Refusal::no_namespace(&name.replace('\u{1f}', "."))),
    }
}

async fn namespace(Path(name): Path<String>) -> Answer {
    check_namespace(&name)?;
    Ok(Json(json!({"namespace": [NAMESPACE], "properties": {}})))
}

async fn has_namespace(Path(name): Path<String>) -> Answer<StatusCode> {
    check_namespace(&name).map(|()| StatusCode::NO_CONTENT)
}

/// All tables, or a page of them when the client knows pages. The token is the last name seen, so
/// a topic that comes or goes meanwhile disturbs no one.
async fn tables(
    State(catalogue): Shared,
    Path(namespace): Path<String>,
    asked: Asked<Page>,
) -> Answer {
    check_namespace(&namespace)?;
    let Query(asked) = asked?;
    let names = catalogue.names();
    let identifier = |name: &Arc<str>| json!({"namespace": [NAMESPACE], "name": &**name});
    let Some(token) = asked.page_token else {
        let all: Vec<Value> = names.iter().map(identifier).collect();
        return Ok(Json(json!({ "identifiers": all })));
    };
    let size = asked.page_size.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    let rest = names.iter().skip(names.partition_point(|name| **name <= *token));
    let page: Vec<&Arc<str>> = rest.take(size + 1).collect();
    let next = if page.len() > size { page.get(size - 1) } else { None };
    let shown: Vec<Value> = page.iter().take(size).map(|name| identifier(name)).collect();
    Ok(Json(json!({"identifiers": shown, "next-page-token": next.map(|name| &***name)})))
}

fn find(catalogue: &Catalogue, namespace: &str, name: &str) -> Answer<Topic> {
    check_namespace(namespace)?;
    catalogue.find(name).ok_or_else(|| Refusal::no_table(name))
}

async fn has_table(
    State(catalogue): Shared,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer<StatusCode> {
    find(&catalogue, &namespace, &name).map(|_| StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct LoadQuery {
    snapshots: Option<String>,
}

async fn load(
    State(catalogue): Shared,
    Path((namespace, name)): Path<(String, String)>,
    asked: Asked<LoadQuery>,
) -> Answer<Response> {
    let topic = find(&catalogue, &namespace, &name)?;
    let Query(asked) = asked?;
    let only_named = match asked.snapshots.as_deref() {
        None | Some("all" | "") => false,
        Some("refs") => true,
        Some(other) => {
            let message = format!("snapshots={other} is neither all nor refs");
            return Err(Refusal::bad_query(message));
        }
    };
    let loaded = catalogue.load(&topic).await.map_err(|error| refuse_load(&topic, &error))?;
    let body = describe(loaded, only_named).map_err(|error| {
        let error = LoadError::from(IcebergError::from(error));
        refuse_load(&topic, &error)
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn describe(loaded: Loaded, only_named: bool) -> serde_json::Result<String> {
    let mut metadata = serde_json::to_value(&loaded.metadata)?;
    if only_named {
        keep_named(&mut metadata);
    }
    let answer = json!({"metadata-location": loaded.location, "metadata": metadata, "config": {}});
    serde_json::to_string(&answer)
}

/// Keeps the snapshots that a reference names; clients ask again when they want the others.
fn keep_named(metadata: &mut Value) {
    let refs = metadata.get("refs").and_then(Value::as_object);
    let named: HashSet<i64> = refs
        .into_iter()
        .flat_map(|refs| refs.values())
        .filter_map(|reference| reference.get("snapshot-id")?.as_i64())
        .collect();
    if let Some(snapshots) = metadata.get_mut("snapshots").and_then(Value::as_array_mut) {
        let id = |snapshot: &Value| snapshot.get("snapshot-id").and_then(Value::as_i64);
        snapshots.retain(|snapshot| id(snapshot).is_some_and(|id| named.contains(&id)));
    }
}

fn refuse_load(topic: &Topic, error: &LoadError) -> Refusal {
    let name = &topic.name;
    match error {
        LoadError::Fresh(FreshenError::Gone) => return Refusal::no_table(name),
        LoadError::Fresh(FreshenError::Failed(_))
        | LoadError::Derived(IcebergError::Untrimmed { .. }) => {
            tracing::warn!(topic = %name, %error, "a table is not fit for readers of iceberg now");
            let message = format!("topic {name} cannot be read as a table now: {error}");
            return Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailableException",
                message,
            );
        }
        LoadError::Derived(_) | LoadError::Ended(_) => {}
    }
    tracing::warn!(topic = %name, %error, "iceberg metadata of a table cannot be made");
    let message = format!("topic {name} cannot be read as a table: {error}");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
}
