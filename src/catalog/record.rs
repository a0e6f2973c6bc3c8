//! The records the catalogue is made of, as they lie in its partition.
//!
//! JSON with a version, one record each; written by `Machine::step`, read at start. A record of a
//! newer version stops the start: to guess what it means could lose topics.
//!
//! ```text
//! {"v":1,"topic":{"view":0,"id":"…","name":"orders","logs":[0,1,0],"configs":{},"created_ms":…}}
//! {"v":1,"topic_deleted":{"view":0,"id":"…","logs":[0,1],"deleted_ms":…}}
//! {"v":1,"topic_purged":{"id":"…","log":0}}
//! {"v":1,"producer_ids":{"next":2000}}
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use uuid::Uuid;

/// The version written today.
const VERSION: u32 = 1;

/// One change of the catalogue.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    Topic(TopicRecord),
    /// A topic is gone; its frames may still lie in these logs.
    TopicDeleted {
        view: u32,
        id: Uuid,
        logs: Vec<u32>,
        deleted_ms: i64,
    },
    /// A log holds nothing of a deleted topic any more.
    TopicPurged {
        id: Uuid,
        log: u32,
    },
    /// All producer ids below `next` may have been given to clients.
    ProducerIds {
        next: i64,
    },
}

/// A topic as it was created.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TopicRecord {
    pub view: u32,
    pub id: Uuid,
    pub name: String,
    /// The log of each partition, from its first offset on.
    pub logs: Vec<u32>,
    /// What the topic says of itself; all else follows the broker's defaults.
    pub configs: BTreeMap<String, String>,
    pub created_ms: i64,
}

/// Bytes in the catalogue's partition that are not a record of this version.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error("a catalogue record is not readable: {0}")]
    Unreadable(serde_json::Error),
    #[error("a catalogue record of version {0} was written by a newer Basalt")]
    Newer(u32),
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    #[serde(flatten)]
    record: &'a Record,
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

impl Record {
    pub fn to_bytes(&self) -> Vec<u8> {
        let written = Written { v: VERSION, record: self };
        serde_json::to_vec(&written).expect("a record of strings and numbers is JSON")
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Record, RecordError> {
        let versioned: Versioned =
            serde_json::from_slice(bytes).map_err(RecordError::Unreadable)?;
        if versioned.v > VERSION {
            return Err(RecordError::Newer(versioned.v));
        }
        serde_json::from_value(versioned.rest.into()).map_err(RecordError::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> Record {
        Record::Topic(TopicRecord {
            view: 0,
            id: Uuid::from_u128(7),
            name: "orders".into(),
            logs: vec![0, 1, 0],
            configs: [("retention.ms".to_string(), "1000".to_string())].into(),
            created_ms: 5,
        })
    }

    #[test]
    fn the_form_of_each_record() {
        let check = |record: Record, expect: &str| {
            assert_eq!(String::from_utf8(record.to_bytes()).unwrap(), expect);
            assert_eq!(Record::from_bytes(expect.as_bytes()).unwrap(), record);
        };
        let id = Uuid::from_u128(7);
        check(
            topic(),
            "{\"v\":1,\"topic\":{\"view\":0,\"id\":\"00000000-0000-0000-0000-000000000007\",\
             \"name\":\"orders\",\"logs\":[0,1,0],\"configs\":{\"retention.ms\":\"1000\"},\
             \"created_ms\":5}}",
        );
        check(
            Record::TopicDeleted { view: 0, id, logs: vec![0], deleted_ms: 9 },
            "{\"v\":1,\"topic_deleted\":{\"view\":0,\
             \"id\":\"00000000-0000-0000-0000-000000000007\",\"logs\":[0],\"deleted_ms\":9}}",
        );
        check(
            Record::TopicPurged { id, log: 3 },
            "{\"v\":1,\"topic_purged\":{\"id\":\"00000000-0000-0000-0000-000000000007\",\
             \"log\":3}}",
        );
        check(Record::ProducerIds { next: 9 }, "{\"v\":1,\"producer_ids\":{\"next\":9}}");
    }

    #[test]
    fn newer_and_broken_records_are_refused() {
        let newer = Record::from_bytes(b"{\"v\":2,\"producer_ids\":{\"next\":9}}");
        assert!(matches!(newer, Err(RecordError::Newer(2))));
        for bytes in ["", "{}", "{\"v\":1}", "{\"v\":1,\"other\":{}}", "{\"producer_ids\":1}"] {
            let read = Record::from_bytes(bytes.as_bytes());
            assert!(matches!(read, Err(RecordError::Unreadable(_))), "{bytes}: {read:?}");
        }
    }
}
