//! The columns of every table, in memory and in files.
//!
//! The visible ones are what queries and other engines see; the hidden ones behind them hold what
//! is needed to make a record's batch again exactly. `rows` fills these columns from batches,
//! `file` stores them, `rebatch` reads them back. Field ids are those of the Iceberg schema and
//! never change their meaning.
//!
//! | column               | type                                | id | holds                          |
//! |----------------------|-------------------------------------|----|--------------------------------|
//! | `key`                | binary?                             | 1  | null is not empty              |
//! | `value`              | binary?                             | 2  | null is not empty              |
//! | `timestamp_broker`   | timestamp µs UTC?                   | 3  | the broker's clock at append   |
//! | `timestamp_producer` | timestamp µs UTC?                   | 4  | what the producer stamped      |
//! | `headers`            | list of struct                      | 5  | in order, repeats kept         |
//! | (element)            | struct                              | 8  |                                |
//! | `key` in it          | binary                              | 9  | raw bytes, UTF-8 or not        |
//! | `value` in it        | binary?                             | 10 |                                |
//! | `kafka_partition`    | int32                               | 6  |                                |
//! | `kafka_offset`       | int64                               | 7  |                                |
//! | `_timestamp_ms`      | int64                               | 11 | as consumers see it            |
//! | `_timestamp_type`    | int8                                | 12 | 0 producer's time, 1 broker's  |
//! | `_append_time_ms`    | int64                               | 13 | the broker's clock at append   |
//! | `_leader_epoch`      | int32                               | 14 | of the batch                   |
//! | `_codec`             | int8                                | 15 | attribute bits of the batch    |
//!
//! The two timestamp columns are null where there is no time (−1) and outside the years 1 to 9999,
//! which is what clients of databases can express; the exact numbers are in the hidden columns.

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Columns by their place in the schema.
pub mod column {
    pub const KEY: usize = 0;
    pub const VALUE: usize = 1;
    pub const TIMESTAMP_BROKER: usize = 2;
    pub const TIMESTAMP_PRODUCER: usize = 3;
    pub const HEADERS: usize = 4;
    pub const PARTITION: usize = 5;
    pub const OFFSET: usize = 6;
    pub const TIMESTAMP_MS: usize = 7;
    pub const TIMESTAMP_TYPE: usize = 8;
    pub const APPEND_TIME_MS: usize = 9;
    pub const LEADER_EPOCH: usize = 10;
    pub const CODEC: usize = 11;
    /// How many there are.
    pub const ALL: usize = 12;
}

/// The metadata key by which Parquet writers and readers know a field's id.
pub const FIELD_ID_KEY: &str = "PARQUET:field_id";

/// How many columns, from the first, are for everybody.
pub const fn visible_columns() -> usize {
    column::TIMESTAMP_MS
}

/// The schema of all table files and of the rows of a log.
pub fn storage_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(build);
    SCHEMA.clone()
}

/// The element of the headers' list, and the fields of the struct it is.
pub(super) fn header_element() -> (FieldRef, Fields) {
    let fields = Fields::from(vec![
        field("key", DataType::Binary, false, 9),
        field("value", DataType::Binary, true, 10),
    ]);
    let element = field("element", DataType::Struct(fields.clone()), false, 8);
    (Arc::new(element), fields)
}

/// The time zone of the timestamp columns.
pub(super) const ZONE: &str = "UTC";

fn build() -> SchemaRef {
    let timestamp = || DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()));
    let (element, _) = header_element();
    let fields = vec![
        field("key", DataType::Binary, true, 1),
        field("value", DataType::Binary, true, 2),
        field("timestamp_broker", timestamp(), true, 3),
        field("timestamp_producer", timestamp(), true, 4),
        field("headers", DataType::List(element), false, 5),
        field("kafka_partition", DataType::Int32, false, 6),
        field("kafka_offset", DataType::Int64, false, 7),
        field("_timestamp_ms", DataType::Int64, false, 11),
        field("_timestamp_type", DataType::Int8, false, 12),
        field("_append_time_ms", DataType::Int64, false, 13),
        field("_leader_epoch", DataType::Int32, false, 14),
        field("_codec", DataType::Int8, false, 15),
    ];
    Arc::new(Schema::new(fields))
}

fn field(name: &str, data_type: DataType, nullable: bool, id: i32) -> Field {
    let metadata = HashMap::from([(FIELD_ID_KEY.to_string(), id.to_string())]);
    Field::new(name, data_type, nullable).with_metadata(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_where_the_constants_say() {
        let schema = storage_schema();
        let check = |at: usize, name: &str| assert_eq!(schema.field(at).name(), name);
        check(column::KEY, "key");
        check(column::VALUE, "value");
        check(column::TIMESTAMP_BROKER, "timestamp_broker");
        check(column::TIMESTAMP_PRODUCER, "timestamp_producer");
        check(column::HEADERS, "headers");
        check(column::PARTITION, "kafka_partition");
        check(column::OFFSET, "kafka_offset");
        check(column::TIMESTAMP_MS, "_timestamp_ms");
        check(column::TIMESTAMP_TYPE, "_timestamp_type");
        check(column::APPEND_TIME_MS, "_append_time_ms");
        check(column::LEADER_EPOCH, "_leader_epoch");
        check(column::CODEC, "_codec");
        assert_eq!(schema.fields().len(), column::ALL);
        let is_hidden = |field: &FieldRef| field.name().starts_with('_');
        assert_eq!(schema.fields().iter().position(is_hidden), Some(visible_columns()));
    }

    #[test]
    fn every_field_has_an_id_of_its_own() {
        let schema = storage_schema();
        let (element, inner) = header_element();
        let all = schema.fields().iter().chain([&element]).chain(inner.iter());
        let mut ids: Vec<i32> =
            all.map(|field| field.metadata()[FIELD_ID_KEY].parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=15).collect::<Vec<i32>>());
    }
}
