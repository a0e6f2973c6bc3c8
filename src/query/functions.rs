//! Functions on the bytes of records, beside those DataFusion brings.
//!
//! `utf8(bytes)` is the text of a key or value, NULL where the bytes are no UTF-8: unlike a cast it
//! never ends a query over one strange record. JSON functions come from a crate of their own.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{create_udf, ColumnarValue, ScalarUDF, Volatility};
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
