//! Which statements are let through: those that only read topics.
//!
//! Everything is parsed first and refused by its kind, before anything is planned. A query is
//! looked into at every depth, because PostgreSQL lets `INSERT`, `UPDATE`, `DELETE` and `SELECT …
//! INTO` stand inside of one. What comes behind (the planner of `admission`) refuses plans that
//! write once more.

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{Query, Select, SetExpr, Statement, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use std::ops::ControlFlow;

/// Why a statement is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is no statement")]
    Empty,
    #[error("one statement at a time; this text has {0}")]
    Several(usize),
    #[error("{0}")]
    Syntax(String),
    #[error(
        "{0} is refused: tables are topics, and queries only read them (SELECT, EXPLAIN, SHOW, \
         DESCRIBE); produce to the topic to add rows"
    )]
    Writes(String),
}

/// What `SHOW TABLES` shows: topics, not the catalogue tables kept for PostgreSQL's clients.
const TOPICS: &str = "SELECT table_catalog, table_schema, table_name, table_type \
     FROM information_schema.tables \
     WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 3";

/// Parses a text of one statement that reads.
pub fn read_only(sql: &str) -> Result<Parsed, Refused> {
    match one(sql)? {
        Parsed::Statement(show) if show.to_string() == "SHOW TABLES" => one(TOPICS),
        statement => check(&statement).map(|()| statement),
    }
}

fn one(sql: &str) -> Result<Parsed, Refused> {
    let syntax = |error: &dyn std::fmt::Display| Refused::Syntax(error.to_string());
    let builder = DFParserBuilder::new(sql).with_dialect(&PostgreSqlDialect {});
    let mut parser: DFParser<'_> = builder.build().map_err(|error| syntax(&error))?;
    let mut statements = parser.parse_statements().map_err(|error| syntax(&error))?;
    let count = statements.len();
    match (statements.pop_front(), count) {
        (None, _) => Err(Refused::Empty),
        (Some(one), 1) => Ok(one),
        _ => Err(Refused::Several(count)),
    }
}

fn check(parsed: &Parsed) -> Result<(), Refused> {
    match parsed {
        Parsed::Statement(statement) => check_statement(statement),
        Parsed::Explain(explain) => check(&explain.statement),
        Parsed::CreateExternalTable(_) => Err(Refused::Writes("CREATE EXTERNAL TABLE".into())),
        Parsed::CopyTo(_) => Err(Refused::Writes("COPY".into())),
        Parsed::Reset(_) => Err(Refused::Writes("RESET".into())),
    }
}

/// Refuses a statement that does more than read.
pub fn check_statement(statement: &Statement) -> Result<(), Refused> {
    match statement {
        Statement::Query(_) => match statement.visit(&mut Writing) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(what) => Err(Refused::Writes(what)),
        },
        Statement::Explain { statement, .. } => check_statement(statement),
        Statement::ExplainTable { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowDatabases { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowFunctions { .. } => Ok(()),
        other => Err(Refused::Writes(verb(other))),
    }
}

/// The first words of a statement, which name it.
fn verb(statement: &Statement) -> String {
    let text = statement.to_string();
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let named = words.take_while(|word| word.chars().all(|c| c.is_ascii_uppercase()));
    let named: Vec<&str> = named.take(2).collect();
    if named.is_empty() {
        "this statement".into()
    } else {
        named.join(" ")
    }
}

/// Looks for what writes inside of queries.
struct Writing;

impl Visitor for Writing {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        body(&query.body)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        match select.into {
            Some(_) => ControlFlow::Break("SELECT INTO".into()),
            None => ControlFlow::Continue(()),
        }
    }
}

fn body(set: &SetExpr) -> ControlFlow<String> {
    match set {
        SetExpr::Insert(_) => ControlFlow::Break("INSERT".into()),
        SetExpr::Update(_) => ControlFlow::Break("UPDATE".into()),
        SetExpr::Delete(_) => ControlFlow::Break("DELETE".into()),
        SetExpr::Merge(_) => ControlFlow::Break("MERGE".into()),
        SetExpr::SetOperation { left, right, .. } => {
            body(left)?;
            body(right)
        }
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) | SetExpr::Table(_) => {
            ControlFlow::Continue(())
        }
    }
}

/// The same once more on what was planned: `None` when the plan only reads.
pub fn plan_writes(plan: &LogicalPlan) -> Option<&'static str> {
    let here = match plan {
        LogicalPlan::Dml(_) => Some("a plan that changes a table"),
        LogicalPlan::Ddl(_) => Some("a plan that creates or drops"),
        LogicalPlan::Copy(_) => Some("COPY"),
        LogicalPlan::Statement(_) => Some("a plan that changes the session"),
        _ => None,
    };
    here.or_else(|| plan.inputs().into_iter().find_map(plan_writes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(sql: &str) -> String {
        match read_only(sql) {
            Err(Refused::Writes(what)) => what,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn what_reads_is_let_through() {
        for sql in [
            "SELECT 1",
            "select * from kafka_topics.\"a.b\" where kafka_offset > 3 order by 1 desc limit 3;",
            "WITH a AS (SELECT 1 AS x) SELECT x FROM a UNION ALL SELECT 2",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE VERBOSE SELECT 1",
            "SHOW TABLES",
            "SHOW COLUMNS FROM t",
            "DESCRIBE t",
            "VALUES (1), (2)",
            "SHOW datafusion.execution.batch_size",
        ] {
            assert!(read_only(sql).is_ok(), "{sql}: {:?}", read_only(sql));
        }
    }

    #[test]
    fn what_writes_is_refused_by_name() {
        assert_eq!(refused("INSERT INTO t VALUES (1)"), "INSERT INTO");
        assert_eq!(refused("DROP TABLE t"), "DROP TABLE");
        assert_eq!(refused("CREATE TABLE t AS SELECT 1"), "CREATE TABLE");
        assert_eq!(refused("CREATE VIEW v AS SELECT 1"), "CREATE VIEW");
        assert_eq!(refused("SET datafusion.execution.batch_size = 1"), "SET");
        assert_eq!(refused("SELECT 1 INTO t"), "SELECT INTO");
        assert_eq!(refused("SELECT * FROM (SELECT 1 INTO t) a"), "SELECT INTO");
        assert_eq!(
            refused("WITH a AS (INSERT INTO t VALUES (1) RETURNING x) SELECT * FROM a"),
            "INSERT"
        );
        assert_eq!(refused("EXPLAIN INSERT INTO t VALUES (1)"), "INSERT INTO");
        let file = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/etc/passwd'";
        assert_eq!(refused(file), "CREATE EXTERNAL TABLE");
        assert_eq!(refused("COPY (SELECT 1) TO '/tmp/x'"), "COPY");
        assert_eq!(refused("DELETE FROM t"), "DELETE FROM");
        assert_eq!(refused("TRUNCATE t"), "TRUNCATE");
        assert_eq!(refused("PREPARE p AS SELECT 1"), "PREPARE");
    }

    #[test]
    fn one_statement_at_a_time() {
        assert!(matches!(read_only(""), Err(Refused::Empty)));
        assert!(matches!(read_only(" ; "), Err(Refused::Empty)));
        assert!(matches!(read_only("SELECT 1; DROP TABLE t"), Err(Refused::Several(2))));
        assert!(matches!(read_only("SELEC 1"), Err(Refused::Syntax(_))));
    }
}
