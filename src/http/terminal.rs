//! `basalt sql`: one statement to a running broker, its rows on standard output.
//!
//! A table for people is collected first, so that columns fit, and cut off at a number of rows; the
//! other formats are passed on as they come. Bytes that are UTF-8 are shown as text in a table.

use super::client::{ask, Answer};
use crate::query::results::Format;
use arrow::array::{ArrayRef, AsArray, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::util::pretty::pretty_format_batches;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Rows a table shows at most.
const TABLE_ROWS_MAX: usize = 10_000;
/// The longest error that is shown.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// How rows are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    #[default]
    Table,
    Rows(Format),
}

/// Why there are no rows, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no broker answers at {address} ({source}): is --http set there?")]
    Unreachable { address: String, source: io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("the answer broke off, so the rows are not all there are: {0}")]
    BrokeOff(#[source] io::Error),
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[from] ArrowError),
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

/// Runs a statement at `address` and writes its rows.
pub fn run(address: &str, sql: &str, shown: Shown, out: &mut impl Write) -> Result<(), AskError> {
    let format = match shown {
        Shown::Table => Format::Arrow,
        Shown::Rows(format) => format,
    };
    let unreachable = |source| AskError::Unreachable { address: address.into(), source };
    let Answer { status, mut body } =
        ask(address, sql, format.media_type()).map_err(unreachable)?;
    if status != 200 {
        return Err(AskError::Refused(reason(status, &mut body)));
    }
    match shown {
        Shown::Table => table(body, out),
        Shown::Rows(_) => pass(&mut body, out),
    }
}

/// What a refusal says.
fn reason(status: u16, body: &mut impl Read) -> String {
    let mut text = String::new();
    let read = body.take(ERROR_BYTES_MAX).read_to_string(&mut text);
    let said = serde_json::from_str::<serde_json::Value>(&text).ok();
    let said = said.and_then(|said| Some(said.get("error")?.as_str()?.to_string()));
    match (read, said) {
        (_, Some(said)) => said,
        (Ok(_), None) => format!("status {status}: {}", text.trim()),
        (Err(error), None) => format!("status {status} ({error})"),
    }
}

fn pass(body: &mut impl Read, out: &mut impl Write) -> Result<(), AskError> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = body.read(&mut chunk).map_err(AskError::BrokeOff)?;
        match chunk.get(..read).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => out.write_all(bytes).map_err(AskError::Output)?,
            None => return out.flush().map_err(AskError::Output),
        }
    }
}

fn table(body: impl Read, out: &mut impl Write) -> Result<(), AskError> {
    let stream = StreamReader::try_new(body, None)?;
    let schema = stream.schema();
    let mut batches = Vec::new();
    let (mut shown, mut rows) = (0, 0);
    for batch in stream {
        let batch = batch?;
        rows += batch.num_rows();
        let here = batch.num_rows().min(TABLE_ROWS_MAX - shown);
        if here > 0 {
            shown += here;
            batches.push(readable(&batch.slice(0, here))?);
        }
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    let text = pretty_format_batches(&batches)?;
    let end = match rows {
        1 => "1 row".to_string(),
        rows if rows > shown => {
            format!("{rows} rows, the first {shown} shown; --format csv has all")
        }
        rows => format!("{rows} rows"),
    };
    writeln!(out, "{text}\n{end}").and_then(|()| out.flush()).map_err(AskError::Output)
}

/// Bytes as text where they are, as hexadecimal digits otherwise.
fn readable(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        match field.data_type() {
            DataType::Binary => {
                fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
                columns.push(texts(column));
            }
            _ => {
                fields.push(field.clone());
                columns.push(column.clone());
            }
        }
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn texts(column: &ArrayRef) -> ArrayRef {
    let mut texts = StringBuilder::new();
    for bytes in column.as_binary::<i32>() {
        match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
            None => texts.append_null(),
            Some((Ok(text), _)) => texts.append_value(text),
            Some((Err(_), bytes)) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                texts.append_value(format!("\\x{digits}"));
            }
        }
    }
    Arc::new(texts.finish())
}
