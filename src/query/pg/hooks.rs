//! Which statements of a PostgreSQL session do what.
//!
//! Clients set things and open transactions before they ask anything. What has a meaning here (the
//! time zone, formats, `statement_timeout`, transactions without effect, cursors) goes on to the
//! hooks of a crate; other settings are taken and forgotten; what would change how queries run, or
//! change data, is refused.

use super::errors;
use crate::query::guard;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, ParamValues};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    visit_expressions, visit_relations, Declare, DeclareType, Expr, ObjectName, SelectItem, Set,
    SetExpr, Statement,
};
use datafusion_postgres::arrow_pg::datatypes::df;
use datafusion_postgres::hooks::HookClient;
use datafusion_postgres::QueryHook;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::results::{Response, Tag};
use pgwire::api::stmt::StoredStatement;
use pgwire::api::store::PortalStore;
use pgwire::api::ClientInfo;
use pgwire::error::{PgWireError, PgWireResult};
use std::ops::ControlFlow;
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

/// The answer to a driver that looks for primary keys and indexes. It takes their arrays of columns
/// apart with a function that gives several rows for one, which cannot be planned; but there are no
/// indexes here, so that nothing but the names of its columns is to be answered.
fn no_indexes(statement: &Statement) -> Option<LogicalPlan> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let expands = visit_expressions(statement, |expression| match expression {
        Expr::Function(call) => named(&call.name, "_pg_expandarray"),
        _ => ControlFlow::Continue(()),
    });
    let reads = visit_relations(statement, |relation| named(relation, "pg_index"));
    if expands.is_continue() || reads.is_continue() {
        return None;
    }
    let fields = select.projection.iter().map(|item| {
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias,
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last()?,
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => name,
            _ => return None,
        };
        Some(Field::new(name.value.to_lowercase(), DataType::Utf8, true))
    });
    let fields: Vec<Field> = fields.collect::<Option<_>>()?;
    let schema = Arc::new(DFSchema::try_from(Schema::new(fields)).ok()?);
    Some(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }))
}

/// Ends a visit at a name, with a schema before it or without.
fn named(found: &ObjectName, wanted: &str) -> ControlFlow<()> {
    let last = found.0.last().and_then(|part| part.as_ident());
    match last.is_some_and(|name| name.value.eq_ignore_ascii_case(wanted)) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

async fn answer_empty(plan: LogicalPlan, session: &SessionContext) -> PgWireResult<Response> {
    let failed = |error: DataFusionError| errors::told(PgWireError::ApiError(Box::new(error)));
    let frame = session.execute_logical_plan(plan).await.map_err(failed)?;
    Ok(Response::Query(df::encode_dataframe(frame, &Format::UnifiedText, None).await?))
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
        if let Some(plan) = no_indexes(statement) {
            return Some(answer_empty(plan, session).await);
        }
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
            Fate::GoesOn => no_indexes(statement).map(Ok),
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
    fn who_looks_for_indexes_is_told_the_columns() {
        let columns = |sql: &str| {
            let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).expect("a statement");
            let plan = no_indexes(&parsed[0])?;
            Some(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
        };
        let names = |names: [&str; 2]| Some(names.map(String::from).to_vec());
        let keys = "SELECT result.TABLE_NAME, result.k AS KEY_SEQ FROM (SELECT TABLE_NAME, \
                    (information_schema._pg_expandarray(i.indkey)).n AS k FROM \
                    pg_catalog.pg_index i) result";
        assert_eq!(columns(keys), names(["table_name", "key_seq"]));
        assert_eq!(columns("SELECT a, b FROM pg_catalog.pg_index"), None);
        assert_eq!(columns("SELECT '_pg_expandarray()', b FROM t"), None);
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
