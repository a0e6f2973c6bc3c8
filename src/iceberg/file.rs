//! What Iceberg wants to know of a table file, from the file's own footer.
//!
//! Readers prune by bounds, and some answer `max(kafka_offset)` from them alone: bounds are given
//! only where the file states them exactly.

use super::error::IcebergError;
use super::schema::{OFFSET, PARTITION, SORT_ORDER, TIMESTAMP_BROKER, TIMESTAMP_PRODUCER};
use super::store::Store;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::statistics::Statistics;
use shard::table::file::FileReader;
use shard::table::TableFile;
use std::collections::HashMap;

/// Describes a file for a manifest.
pub fn describe(store: &Store, file: &TableFile) -> Result<DataFile, IcebergError> {
    let opened = FileReader::open(store.disk(), &file.path)?;
    let footer = opened.metadata();
    let columns = columns(footer);
    let of = |value: fn(&Column) -> Option<u64>| -> HashMap<i32, u64> {
        columns.iter().filter_map(|(&id, column)| Some((id, value(column)?))).collect()
    };
    let bounds = |end: fn(&Bounds) -> i64| -> HashMap<i32, Datum> {
        let datum =
            |(&id, column): (&i32, &Column)| Some((id, datum(id, end(column.bounds.as_ref()?))?));
        columns.iter().filter_map(datum).collect()
    };
    let starts = footer.row_groups().iter().map(|group| group.columns().first().map(start));
    Ok(DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(store.data_location(file.facts.id))
        .file_format(DataFileFormat::Parquet)
        .record_count(file.facts.rows())
        .file_size_in_bytes(file.facts.bytes)
        .column_sizes(of(|column| Some(column.bytes)))
        .value_counts(of(|column| Some(column.values)))
        .null_value_counts(of(|column| column.nulls))
        .lower_bounds(bounds(|bounds| bounds.min))
        .upper_bounds(bounds(|bounds| bounds.max))
        .split_offsets(starts.collect())
        .sort_order_id(SORT_ORDER)
        .build()?)
}

/// The least and the greatest value.
#[derive(Clone, Copy)]
struct Bounds {
    min: i64,
    max: i64,
}

/// Of a column with a field id, over all row groups.
#[derive(Default)]
struct Column {
    bytes: u64,
    values: u64,
    /// `None` when a row group does not say.
    nulls: Option<u64>,
    /// `None` when there is no value, or a row group does not say exactly.
    bounds: Option<Bounds>,
    is_vague: bool,
}

fn columns(footer: &ParquetMetaData) -> HashMap<i32, Column> {
    let mut columns: HashMap<i32, Column> = HashMap::new();
    for chunk in footer.row_groups().iter().flat_map(|group| group.columns()) {
        let info = chunk.column_descr().self_type().get_basic_info();
        if info.has_id() && info.id() <= super::schema::LAST {
            let fresh = || Column { nulls: Some(0), ..Column::default() };
            note(columns.entry(info.id()).or_insert_with(fresh), chunk);
        }
    }
    columns
}

fn note(column: &mut Column, chunk: &ColumnChunkMetaData) {
    column.bytes += u64::try_from(chunk.compressed_size()).unwrap_or(0);
    column.values += u64::try_from(chunk.num_values()).unwrap_or(0);
    let statistics = chunk.statistics();
    let nulls = statistics.and_then(Statistics::null_count_opt);
    column.nulls = column.nulls.zip(nulls).map(|(sum, more)| sum + more);
    let has_values = nulls != u64::try_from(chunk.num_values()).ok();
    match statistics.and_then(exact_bounds) {
        Some(more) if !column.is_vague => {
            let sum = column.bounds.unwrap_or(more);
            column.bounds = Some(Bounds { min: sum.min.min(more.min), max: sum.max.max(more.max) });
        }
        None if has_values => {
            column.is_vague = true;
            column.bounds = None;
        }
        _ => {}
    }
}

fn exact_bounds(statistics: &Statistics) -> Option<Bounds> {
    if !(statistics.min_is_exact() && statistics.max_is_exact()) {
        return None;
    }
    match statistics {
        Statistics::Int32(of) => {
            Some(Bounds { min: i64::from(*of.min_opt()?), max: i64::from(*of.max_opt()?) })
        }
        Statistics::Int64(of) => Some(Bounds { min: *of.min_opt()?, max: *of.max_opt()? }),
        _ => None,
    }
}

fn datum(id: i32, value: i64) -> Option<Datum> {
    match id {
        TIMESTAMP_BROKER | TIMESTAMP_PRODUCER => Some(Datum::timestamptz_micros(value)),
        PARTITION => Some(Datum::int(i32::try_from(value).ok()?)),
        OFFSET => Some(Datum::long(value)),
        _ => None,
    }
}

/// Where a row group begins.
fn start(chunk: &ColumnChunkMetaData) -> i64 {
    chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())
}
