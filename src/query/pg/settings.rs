//! What a session is asked about itself in the middle of a query.
//!
//! Drivers and dashboards look for names of settings and schemas before they ask anything else.
//! What is set with `SET` is kept by `session`; here are the functions, which know the defaults.

use crate::query::catalog::TOPICS_SCHEMA;
use datafusion::arrow::array::{ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{plan_err, ScalarValue};
use datafusion::logical_expr::{create_udf, ColumnarValue, ScalarUDF, Volatility};
use std::sync::Arc;

/// Settings by name: the version whose protocol and catalogue are spoken, and what never changes.
const SETTINGS: [(&str, &str); 9] = [
    ("client_encoding", "UTF8"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("search_path", TOPICS_SCHEMA),
    ("server_encoding", "UTF8"),
    ("server_version", "16.6"),
    ("server_version_num", "160006"),
    ("standard_conforming_strings", "on"),
    ("transaction_read_only", "on"),
];

/// `current_setting(name)`.
pub fn current_setting() -> ScalarUDF {
    let find = |arguments: &[ColumnarValue]| {
        let Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) = arguments.first() else {
            return plan_err!("current_setting takes the name of a setting");
        };
        match SETTINGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, value)) => Ok(ColumnarValue::Scalar(ScalarValue::from(*value))),
            None => plan_err!("unrecognized configuration parameter \"{name}\""),
        }
    };
    let text = vec![DataType::Utf8];
    create_udf("current_setting", text, DataType::Utf8, Volatility::Stable, Arc::new(find))
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
