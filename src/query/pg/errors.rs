//! Errors as PostgreSQL's clients know them: a code of five characters and one sentence.
//!
//! | code  | when                                                          |
//! |-------|---------------------------------------------------------------|
//! | 25006 | the statement does more than read                             |
//! | 42601 | it cannot be parsed                                           |
//! | 42000 | it cannot be planned: an unknown name, types that do not fit  |
//! | 53300 | as many queries run as may                                    |
//! | 53200 | there is no memory left for it                                |
//! | 53400 | it spilled more than it may                                   |
//! | 57014 | it ran longer than it may, or was cancelled                   |
//! | 58000 | a file or the log could not be read, or something else failed |

use crate::query::{Exceeded, QueryError, Refused};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use pgwire::error::{ErrorInfo, PgWireError};

/// An error with its code.
pub fn coded(code: &str, text: &str) -> PgWireError {
    let info = ErrorInfo::new("ERROR".into(), code.into(), text.into());
    PgWireError::UserError(Box::new(info))
}

pub fn timed_out() -> PgWireError {
    coded("57014", "canceling statement due to statement timeout")
}

pub fn refused(refused: &Refused) -> PgWireError {
    let code = match refused {
        Refused::Writes(_) => "25006",
        Refused::Empty | Refused::Several(_) | Refused::Syntax(_) => "42601",
    };
    coded(code, &refused.to_string())
}

/// What an error of the layers below is to a client.
pub fn told(error: PgWireError) -> PgWireError {
    let PgWireError::ApiError(inner) = error else { return error };
    let inner = match inner.downcast::<DataFusionError>() {
        Ok(error) => return of_query(*error),
        Err(other) => other,
    };
    match inner.downcast::<ParserError>() {
        Ok(error) => coded("42601", &error.to_string()),
        Err(other) => coded("58000", &other.to_string()),
    }
}

fn of_query(error: DataFusionError) -> PgWireError {
    let code = match error.find_root() {
        DataFusionError::SQL(..) => "42601",
        DataFusionError::Plan(_) | DataFusionError::SchemaError(..) => "42000",
        DataFusionError::NotImplemented(_) => "0A000",
        _ => "58000",
    };
    match QueryError::from(error) {
        QueryError::Refused(error) => refused(&error),
        QueryError::Exceeded(error) => {
            let code = match &error {
                Exceeded::Concurrency { .. } => "53300",
                Exceeded::Time(_) => "57014",
                Exceeded::Memory(_) => "53200",
                Exceeded::Spill(_) => "53400",
            };
            coded(code, &error.to_string())
        }
        error @ (QueryError::NoView(_) | QueryError::Failed(_)) => coded(code, &error.to_string()),
    }
}
