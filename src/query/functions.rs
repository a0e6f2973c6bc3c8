//! Functions on the bytes of records, beside those DataFusion brings.
//!
//! `utf8(bytes)` is the text of a key or value, NULL where the bytes are no UTF-8: unlike a cast it
//! never ends a query over one strange record. JSON functions come from a crate of their own; they
//! take text, and its operators (`value->>'name'`) take the bytes of records too.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    create_udf, ColumnarValue, Expr, ExprSchemable, ScalarUDF, Volatility,
};
use datafusion::prelude::DataFrame;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion_functions_json::udfs;
use std::sync::Arc;

/// `utf8(bytes)`.
pub fn utf8() -> ScalarUDF {
    let run = |arguments: &[ColumnarValue]| -> Result<ColumnarValue> {
        let scalar = arguments.iter().all(|one| matches!(one, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let texts: Vec<ArrayRef> = arrays.iter().map(texts).collect::<Result<_>>()?;
        let empty = || Arc::new(StringBuilder::new().finish()) as ArrayRef;
        let text = texts.into_iter().next().unwrap_or_else(empty);
        match scalar {
            true => Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(
                &text, 0,
            )?)),
            false => Ok(ColumnarValue::Array(text)),
        }
    };
    create_udf("utf8", vec![DataType::Binary], DataType::Utf8, Volatility::Immutable, Arc::new(run))
}

/// Lets the JSON operators take bytes as the text they are.
#[derive(Debug)]
pub struct JsonOfBytes;

impl ExprPlanner for JsonOfBytes {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Arrow, LongArrow, Question};
        let is_json = matches!(expr.op, Arrow | LongArrow | Question);
        if is_json && expr.left.get_type(schema)? == DataType::Binary {
            expr.left = utf8().call(vec![expr.left]);
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// What JSON holds may be of any type (`value->'name'`): in results it is text.
pub fn plain(frame: DataFrame) -> Result<DataFrame> {
    let is_union = |field: &Field| matches!(field.data_type(), DataType::Union(..));
    if !frame.schema().iter().any(|(_, field)| is_union(field)) {
        return Ok(frame);
    }
    let columns: Vec<Expr> = frame
        .schema()
        .iter()
        .map(|(table, field)| {
            let column = Expr::Column(Column::new(table.cloned(), field.name()));
            match is_union(field) {
                true => udfs::json_union_to_text_udf().call(vec![column]).alias(field.name()),
                false => column,
            }
        })
        .collect();
    frame.select(columns)
}

fn texts(bytes: &ArrayRef) -> Result<ArrayRef> {
    let bytes = match bytes.data_type() {
        DataType::Binary => bytes.clone(),
        _ => cast(bytes, &DataType::Binary)?,
    };
    let bytes = bytes.as_binary::<i32>();
    let mut texts = StringBuilder::with_capacity(bytes.len(), bytes.values().len());
    for one in bytes {
        texts.append_option(one.and_then(|bytes| std::str::from_utf8(bytes).ok()));
    }
    Ok(Arc::new(texts.finish()))
}
