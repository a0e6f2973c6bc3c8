//! The columns of a topic's table, and the metadata of a table without a snapshot.
//!
//! Field ids are those the table files carry; the hidden columns of the files, which only the
//! broker needs, are not named here, and readers pass over them. Written as JSON, because the
//! builder of the metadata would number the fields anew.

use super::error::IcebergError;
use iceberg::spec::TableMetadata;
use serde_json::{json, Value};
use uuid::Uuid;

/// Field ids of the columns with bounds.
pub const TIMESTAMP_BROKER: i32 = 3;
pub const TIMESTAMP_PRODUCER: i32 = 4;
pub const PARTITION: i32 = 6;
pub const OFFSET: i32 = 7;
/// The greatest one, nested fields included.
pub const LAST: i32 = 10;
/// Rows of a file stand in this order: by partition, then by offset.
pub const SORT_ORDER: i32 = 1;
/// How many earlier metadata files a metadata file names.
pub const LOG_MAX: usize = 10;

fn column(id: i32, name: &str, kind: &Value, required: bool, doc: &str) -> Value {
    json!({"id": id, "name": name, "type": kind, "required": required, "doc": doc})
}

fn columns() -> Vec<Value> {
    let header = json!({
        "type": "struct",
        "fields": [
            column(9, "key", &json!("binary"), true, "the name, as bytes"),
            column(10, "value", &json!("binary"), false, "null is not empty"),
        ],
    });
    let headers =
        json!({"type": "list", "element-id": 8, "element-required": true, "element": header});
    let time = json!("timestamptz");
    vec![
        column(1, "key", &json!("binary"), false, "the key of the record; null is not empty"),
        column(2, "value", &json!("binary"), false, "the value of the record; null is not empty"),
        column(TIMESTAMP_BROKER, "timestamp_broker", &time, false, "when the broker took it"),
        column(TIMESTAMP_PRODUCER, "timestamp_producer", &time, false, "as the producer said"),
        column(5, "headers", &headers, true, "in order, repeated names kept"),
        column(PARTITION, "kafka_partition", &json!("int"), true, "the partition of the topic"),
        column(OFFSET, "kafka_offset", &json!("long"), true, "the offset in the partition"),
    ]
}

fn sorted_by(source: i32) -> Value {
    json!({
        "transform": "identity",
        "source-id": source,
        "direction": "asc",
        "null-order": "nulls-first",
    })
}

/// The metadata of a table nobody has looked at yet.
pub fn empty(topic: Uuid, location: &str, now_ms: i64) -> Result<TableMetadata, IcebergError> {
    let order = [sorted_by(PARTITION), sorted_by(OFFSET)];
    let schema = json!({
        "type": "struct",
        "schema-id": 0,
        "identifier-field-ids": [PARTITION, OFFSET],
        "fields": columns(),
    });
    Ok(serde_json::from_value(json!({
        "format-version": 2,
        "table-uuid": topic,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": LAST,
        "current-schema-id": 0,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": SORT_ORDER,
        "sort-orders": [{"order-id": SORT_ORDER, "fields": order}],
        "properties": {
            "comment": "A topic. Written through Kafka; read-only here.",
            "write.metadata.previous-versions-max": LOG_MAX.to_string(),
        },
    }))?)
}
