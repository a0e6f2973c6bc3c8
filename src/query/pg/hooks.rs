//! Which statements of a PostgreSQL session do what.
//!
//! Clients set things and open transactions before they ask anything. What has a meaning here (the
//! time zone, formats, `statement_timeout`, transactions without effect, cursors) goes on to the
//! hooks of a crate; other settings are taken and forgotten; what would change how queries run, or
//! change data, is refused.

use super::errors;
use crate::query::catalog::TOPICS_SCHEMA;
use crate::query::guard;
use async_trait::async_trait;
use datafusion::arrow::array::{ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, ParamValues, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    create_udf, ColumnarValue, EmptyRelation, LogicalPlan, ScalarUDF, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Declare, DeclareType, Set, Statement};
use datafusion_postgres::arrow_pg::datatypes::df;
use datafusion_postgres::hooks::HookClient;
use datafusion_postgres::QueryHook;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::results::{Response, Tag};
use pgwire::api::stmt::StoredStatement;
use pgwire::api::store::PortalStore;
use pgwire::api::ClientInfo;
use pgwire::error::{PgWireError, PgWireResult};
use std::sync::Arc;

/// Settings whose new value has a meaning; the crate's hook keeps them with the connection.
const KEPT: [&str; 8] = [
    "statement_timeout",
    "datestyle",
    "bytea_output",
    "intervalstyle",
    "application_name",
    "extra_float_digits",
    "search_path",
    "timezone",
];

/// The first hook: nothing that writes gets past it.
pub struct ReadOnly;

/// What is to become of a statement.
enum Fate {
    /// It reads, or a later hook knows it.
    GoesOn,
    /// It is answered with this tag and has no effect.
    Ignored(&'static str),
    Refused(guard::Refused),
}

fn fate(statement: &Statement) -> Fate {
    match statement {
        Statement::Set(set) => fate_of_set(set),
        Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Fetch { .. }
        | Statement::Close { .. } => Fate::GoesOn,
        Statement::Declare { stmts } => {
            let queries = stmts.iter().filter_map(|declared| declared.for_query.clone());
            let mut checked = queries.map(|query| guard::check_statement(&Statement::Query(query)));
            match checked.find_map(Result::err) {
                Some(refused) => Fate::Refused(refused),
                None => Fate::GoesOn,
            }
        }
        Statement::Discard { .. } => Fate::Ignored("DISCARD ALL"),
        Statement::Deallocate { .. } => Fate::Ignored("DEALLOCATE"),
        Statement::Reset { .. } => Fate::Ignored("RESET"),
        Statement::UNLISTEN { .. } => Fate::Ignored("UNLISTEN"),
        Statement::ShowStatus { .. } | Statement::ShowCatalogs { .. } => Fate::GoesOn,
        other => match guard::check_statement(other) {
            Ok(()) => Fate::GoesOn,
            Err(refused) => Fate::Refused(refused),
        },
    }
}

fn fate_of_set(set: &Set) -> Fate {
    match set {
        Set::SetTimeZone { .. } => Fate::GoesOn,
        Set::SingleAssignment { variable, .. } => {
            let name = variable.to_string().to_lowercase().replace('"', "");
            if KEPT.contains(&name.as_str()) {
                Fate::GoesOn
            } else if name.starts_with("datafusion.") {
                Fate::Refused(guard::Refused::Writes(format!("SET {name}")))
            } else {
                Fate::Ignored("SET")
            }
        }
        Set::MultipleAssignments { .. } | Set::ParenthesizedAssignments { .. } => {
            Fate::Refused(guard::Refused::Writes("SET of several things".into()))
        }
        _ => Fate::Ignored("SET"),
    }
}

/// Opens cursors. Unlike the crate's own way of it this one keeps the plan with the cursor, so that
/// a client that asks what the rows will be like is told; drivers crash when they are not.
async fn declare(
    stmts: &[Declare],
    session: &SessionContext,
    client: &dyn HookClient,
) -> PgWireResult<Response> {
    let failed = |error: DataFusionError| errors::told(PgWireError::ApiError(Box::new(error)));
    for declared in stmts {
        let is_cursor = declared.declare_type == Some(DeclareType::Cursor);
        let query = declared.for_query.clone().filter(|_| is_cursor);
        let (Some(name), Some(query)) = (declared.names.first(), query) else {
            return Err(errors::coded("42601", "DECLARE is for cursors over a query"));
        };
        let (name, text) = (name.value.clone(), query.to_string());
        let statement = Statement::Query(query);
        let parsed = Parsed::Statement(Box::new(statement.clone()));
        let plan = session.state().statement_to_plan(parsed).await.map_err(failed)?;
        let frame = session.execute_logical_plan(plan.clone()).await.map_err(failed)?;
        let rows = df::encode_dataframe(frame, &Format::UnifiedText, None).await?;
        let stored = StoredStatement::new(name.clone(), (text, Some((statement, plan))), vec![]);
        let portal = Portal::new_cursor(name, Arc::new(stored));
        portal.start(rows).await;
        client.portal_store().put_portal(Arc::new(portal));
    }
    Ok(Response::Execution(Tag::new("DECLARE CURSOR")))
}

impl ReadOnly {
    /// The whole answer to a statement that no later hook is to see.
    async fn answer_with(
        statement: &Statement,
        session: &SessionContext,
        client: &dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        match (ReadOnly::answer(statement), statement) {
            (None, Statement::Declare { stmts }) => Some(declare(stmts, session, client).await),
            (answer, _) => answer,
        }
    }

    fn answer(statement: &Statement) -> Option<PgWireResult<Response>> {
        match fate(statement) {
            Fate::GoesOn => None,
            Fate::Ignored(tag) => Some(Ok(Response::Execution(Tag::new(tag)))),
            Fate::Refused(refused) => Some(Err(errors::refused(&refused))),
        }
    }
}

#[async_trait]
impl QueryHook for ReadOnly {
    async fn handle_simple_query(
        &self,
        statement: &Statement,
        session: &SessionContext,
        client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        ReadOnly::answer_with(statement, session, client).await
    }

    async fn handle_extended_parse_query(
        &self,
        statement: &Statement,
        _session: &SessionContext,
        _client: &(dyn ClientInfo + Send + Sync),
    ) -> Option<PgWireResult<LogicalPlan>> {
        let nothing = || {
            let schema = Arc::new(DFSchema::empty());
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema })
        };
        match fate(statement) {
            Fate::GoesOn => None,
            Fate::Ignored(_) => Some(Ok(nothing())),
            Fate::Refused(refused) => Some(Err(errors::refused(&refused))),
        }
    }

    async fn handle_extended_query(
        &self,
        statement: &Statement,
        _plan: &LogicalPlan,
        _parameters: &ParamValues,
        session: &SessionContext,
        client: &mut dyn HookClient,
    ) -> Option<PgWireResult<Response>> {
        ReadOnly::answer_with(statement, session, client).await
    }
}

/// `current_schema()`: where a topic's name alone is looked for.
pub fn current_schema() -> ScalarUDF {
    let here = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::from(TOPICS_SCHEMA)));
    create_udf("current_schema", vec![], DataType::Utf8, Volatility::Stable, Arc::new(here))
}

/// `current_schemas(implicit)`.
pub fn current_schemas() -> ScalarUDF {
    let here = |arguments: &[ColumnarValue]| {
        let implicit = ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)));
        let mut schemas = ListBuilder::new(StringBuilder::new());
        schemas.values().append_value(TOPICS_SCHEMA);
        if arguments.first().is_some_and(|asked| asked.to_string() == implicit.to_string()) {
            schemas.values().append_value("information_schema");
            schemas.values().append_value("pg_catalog");
        }
        schemas.append(true);
        Ok(ColumnarValue::Scalar(ScalarValue::List(Arc::new(schemas.finish()))))
    };
    let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
    create_udf("current_schemas", vec![DataType::Boolean], list, Volatility::Stable, Arc::new(here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn of(sql: &str) -> &'static str {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).expect("a statement");
        match fate(&parsed[0]) {
            Fate::GoesOn => "goes on",
            Fate::Ignored(tag) => tag,
            Fate::Refused(_) => "refused",
        }
    }

    #[test]
    fn what_clients_say_at_the_start_is_taken() {
        assert_eq!(of("SET extra_float_digits = 3"), "goes on");
        assert_eq!(of("SET application_name = 'PostgreSQL JDBC Driver'"), "goes on");
        assert_eq!(of("SET TIME ZONE 'UTC'"), "goes on");
        assert_eq!(of("SET client_min_messages = warning"), "SET");
        assert_eq!(of("BEGIN"), "goes on");
        assert_eq!(of("COMMIT"), "goes on");
        assert_eq!(of("DISCARD ALL"), "DISCARD ALL");
        assert_eq!(of("DECLARE c CURSOR FOR SELECT 1"), "goes on");
        assert_eq!(of("SHOW transaction_isolation"), "goes on");
    }

    #[test]
    fn what_would_change_something_is_refused() {
        assert_eq!(of("SET datafusion.execution.batch_size = 1"), "refused");
        assert_eq!(of("INSERT INTO t VALUES (1)"), "refused");
        assert_eq!(of("CREATE TABLE t (a int)"), "refused");
        assert_eq!(of("COPY t TO '/tmp/x'"), "refused");
        assert_eq!(of("DECLARE c CURSOR FOR SELECT 1 INTO x"), "refused");
        assert_eq!(of("PREPARE p AS INSERT INTO t VALUES (1)"), "refused");
    }
}
