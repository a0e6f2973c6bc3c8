//! Rows as bytes for those who asked: JSON lines, CSV or an Arrow stream.
//!
//! Batches go in one by one, and bytes come out as soon as there are some: nothing is collected.
//! Bytes of records are hexadecimal digits in JSON and CSV (`utf8(value)` gives text); in an Arrow
//! stream they are what they are.

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use std::sync::Arc;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object a line, NULL as null.
    Json,
    /// With a line of names at the top.
    Csv,
    /// Arrow's stream of record batches.
    Arrow,
}

impl Format {
    pub const MEDIA: [(Format, &'static str); 3] = [
        (Format::Json, "application/x-ndjson"),
        (Format::Csv, "text/csv"),
        (Format::Arrow, "application/vnd.apache.arrow.stream"),
    ];

    pub fn media_type(self) -> &'static str {
        let named = Format::MEDIA.iter().find(|(format, _)| *format == self);
        named.map_or("application/octet-stream", |(_, name)| name)
    }

    /// The first format of an Accept header that is known; JSON lines when any will do.
    pub fn accepted(header: Option<&str>) -> Option<Format> {
        let Some(header) = header else { return Some(Format::Json) };
        header.split(',').find_map(|range| {
            let name = range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            match name.as_str() {
                "*/*" | "application/*" | "application/json" | "application/jsonl" | "" => {
                    Some(Format::Json)
                }
                "text/*" => Some(Format::Csv),
                name => {
                    let known = Format::MEDIA.iter().find(|(_, media)| *media == name);
                    known.map(|(format, _)| *format)
                }
            }
        })
    }
}

/// Writes the batches of one result.
pub enum Writer {
    Json,
    Csv { schema: SchemaRef, with_names: bool },
    Arrow(Box<datafusion::arrow::ipc::writer::StreamWriter<Vec<u8>>>),
}

impl Writer {
    pub fn new(format: Format, schema: &SchemaRef) -> Result<Writer, ArrowError> {
        Ok(match format {
            Format::Json => Writer::Json,
            Format::Csv => Writer::Csv { schema: schema.clone(), with_names: true },
            Format::Arrow => {
                let stream = datafusion::arrow::ipc::writer::StreamWriter::try_new(vec![], schema);
                Writer::Arrow(Box::new(stream?))
            }
        })
    }

    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        match self {
            Writer::Json => {
                use arrow::json::writer::{LineDelimited, WriterBuilder};
                let lines = WriterBuilder::new().with_explicit_nulls(true);
                let mut lines = lines.build::<_, LineDelimited>(Vec::new());
                lines.write(batch)?;
                lines.finish()?;
                Ok(lines.into_inner())
            }
            Writer::Csv { with_names, .. } => {
                let mut bytes = Vec::new();
                let names = std::mem::take(with_names);
                let lines = arrow::csv::WriterBuilder::new().with_header(names);
                lines.build(&mut bytes).write(&flat(batch)?)?;
                Ok(bytes)
            }
            Writer::Arrow(stream) => {
                stream.write(batch)?;
                Ok(std::mem::take(stream.get_mut()))
            }
        }
    }

    /// What stands behind the last batch.
    pub fn finish(mut self) -> Result<Vec<u8>, ArrowError> {
        match &mut self {
            Writer::Json | Writer::Csv { with_names: false, .. } => Ok(Vec::new()),
            Writer::Csv { schema, .. } => {
                let none = RecordBatch::new_empty(schema.clone());
                self.batch(&none)
            }
            Writer::Arrow(stream) => {
                stream.finish()?;
                Ok(std::mem::take(stream.get_mut()))
            }
        }
    }
}

/// Lists and structs as text: CSV has no other way to hold them.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if field.data_type().is_nested() {
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(displayed(column)?);
        } else {
            fields.push(field.clone());
            columns.push(column.clone());
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn displayed(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
    let mut texts = StringBuilder::new();
    for row in 0..column.len() {
        match column.is_null(row) {
            true => texts.append_null(),
            false => texts.append_value(formatter.value(row).try_to_string()?),
        }
    }
    Ok(Arc::new(texts.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{BinaryArray, Int64Array};

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let bytes: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a\xff"), None]));
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("b", bytes, true)])
            .expect("columns of one length")
    }

    fn written(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
        let schema = batch().schema();
        let mut writer = Writer::new(format, &schema).expect("a writer");
        let mut bytes = Vec::new();
        for batch in batches {
            bytes.extend(writer.batch(batch).expect("written"));
        }
        bytes.extend(writer.finish().expect("finished"));
        bytes
    }

    #[test]
    fn formats_hold_the_same_rows() {
        let json = String::from_utf8(written(Format::Json, &[batch()])).expect("text");
        assert_eq!(json, "{\"n\":1,\"b\":\"61ff\"}\n{\"n\":null,\"b\":null}\n");
        let csv = String::from_utf8(written(Format::Csv, &[batch(), batch()])).expect("text");
        assert_eq!(csv, "n,b\n1,61ff\n,\n1,61ff\n,\n");
        let arrow = written(Format::Arrow, &[batch(), batch()]);
        let read = datafusion::arrow::ipc::reader::StreamReader::try_new(&arrow[..], None);
        let rows: usize = read.expect("a stream").map(|read| read.expect("whole").num_rows()).sum();
        assert_eq!(rows, 4);
    }

    #[test]
    fn no_rows_still_have_names() {
        assert_eq!(written(Format::Csv, &[]), b"n,b\n");
        assert_eq!(written(Format::Json, &[]), b"");
        assert!(!written(Format::Arrow, &[]).is_empty());
    }

    #[test]
    fn accept_headers_choose_the_first_known() {
        let check = |header: Option<&str>, format| assert_eq!(Format::accepted(header), format);
        check(None, Some(Format::Json));
        check(Some("*/*"), Some(Format::Json));
        check(Some("text/html, text/csv;q=0.9"), Some(Format::Csv));
        check(Some("application/vnd.apache.arrow.stream"), Some(Format::Arrow));
        check(Some("image/png"), None);
    }
}
