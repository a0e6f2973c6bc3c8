//! The records of `__consumer_offsets`: groups and committed offsets in Apache Kafka's own layout,
//! so that tools which read the topic (Kafka's formatters, Burrow) understand it.
//!
//! Written are, as Kafka 4.1 and later write them, offsets in version 4 and groups in version 3;
//! read is every version there has been. A value of null deletes its key. Keys of other kinds
//! (newer protocols, transactions) are passed over. Never decides anything: that is `machine`.
//!
//! ```text
//! key of an offset    int16 1 (or 0), string group, string topic, int32 partition
//! value, version 4    int16 4, int64 offset, int32 leader epoch, compact string metadata,
//!                     int64 commit time, tags: 0 = uuid topic id, 10000 = int64 expiry time
//! value, version 0    int16 0, int64 offset, string metadata, int64 commit time
//!        version 1    … and int64 expiry time
//!        version 3    … and int32 leader epoch between offset and metadata; no expiry time
//!
//! key of a group      int16 2, string group
//! value, version 3    int16 3, string protocol type, int32 generation, nullable string protocol,
//!                     nullable string leader, int64 time of the last change of state,
//!                     int32 count of members, for each:
//!                       string member id, nullable string instance id, string client id,
//!                       string client host, int32 rebalance timeout, int32 session timeout,
//!                       bytes subscription, bytes assignment
//!        before 3     without the instance id; before 2 without the time; before 1 without the
//!                     rebalance timeout; version 4 has compact lengths and tags
//!
//! 0001 0001 67 0006 6f7264657273 00000003           key: group g, topic orders, partition 3
//! 0004 000000000000002a 00000007 02 6d 00000000000003e8 01 00 10 …   offset 42, epoch 7, "m"
//! ```
//!
//! A client of OffsetCommit 2 to 4 may ask for its own retention. Kafka then writes version 1,
//! which has no room for epoch and topic id; here the expiry time stands in a tag that Kafka's
//! reader skips. A topic id of zero means that the writer knew none.

use super::wire::{self, Reader, WireError};
use crate::state_machine::{Durable, Pair};
use bytes::{BufMut, Bytes};
use shard::ids::{Offset, Timestamp};
use thiserror::Error;
use uuid::Uuid;

const LEGACY_OFFSET: i16 = 0;
const OFFSET: i16 = 1;
const GROUP: i16 = 2;

const OFFSET_VERSION: i16 = 4;
const GROUP_VERSION: i16 = 3;
/// The newest version of both values that is read.
const VERSION_MAX: i16 = 4;

const TOPIC_ID_TAG: u32 = 0;
const EXPIRY_TAG: u32 = 10_000;

/// One change of a group or of an offset; `None` deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    Group { group: String, value: Option<StoredGroup> },
    Offset { group: String, topic: String, partition: i32, value: Option<StoredOffset> },
}

/// A group as of its last completed rebalance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGroup {
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
    /// When its state last changed; -1 in old records.
    pub since: Timestamp,
    pub members: Vec<StoredMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMember {
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// -1 in old records.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    pub offset: Offset,
    pub leader_epoch: i32,
    pub metadata: String,
    pub time: Timestamp,
    /// When it expires, if the client asked for a time of its own.
    pub expires: Option<Timestamp>,
    pub topic_id: Uuid,
}

/// Bytes in `__consumer_offsets` that are not a record of a known layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("a record without a key")]
    NoKey,
    #[error("the key is damaged: {0}")]
    Key(WireError),
    #[error("the value is damaged: {0}")]
    Value(WireError),
    #[error("a value of version {0}, which this version does not know")]
    Version(i16),
}

impl Durable for GroupRecord {
    type Error = RecordError;

    fn to_pair(&self) -> Pair {
        let (key, value) = match self {
            GroupRecord::Group { group, value } => {
                (group_key(group), value.as_ref().map(StoredGroup::to_bytes))
            }
            GroupRecord::Offset { group, topic, partition, value } => {
                let value = value.as_ref().map(StoredOffset::to_bytes);
                (offset_key(group, topic, *partition), value)
            }
        };
        Pair { key: Some(key), value }
    }

    fn from_pair(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let mut key = Reader::new(key.ok_or(RecordError::NoKey)?);
        match key.int16().map_err(RecordError::Key)? {
            LEGACY_OFFSET | OFFSET => {
                let (group, topic, partition) = read_offset_key(key).map_err(RecordError::Key)?;
                let value = value.map(StoredOffset::from_bytes).transpose()?;
                Ok(Some(GroupRecord::Offset { group, topic, partition, value }))
            }
            GROUP => {
                let group = read_group_key(key).map_err(RecordError::Key)?;
                let value = value.map(StoredGroup::from_bytes).transpose()?;
                Ok(Some(GroupRecord::Group { group, value }))
            }
            _ => Ok(None),
        }
    }
}

fn offset_key(group: &str, topic: &str, partition: i32) -> Bytes {
    let mut key = Vec::with_capacity(10 + group.len() + topic.len());
    key.put_i16(OFFSET);
    wire::put_string(&mut key, group);
    wire::put_string(&mut key, topic);
    key.put_i32(partition);
    key.into()
}

fn read_offset_key(mut key: Reader<'_>) -> Result<(String, String, i32), WireError> {
    let read = (key.string()?, key.string()?, key.int32()?);
    key.end()?;
    Ok(read)
}

fn group_key(group: &str) -> Bytes {
    let mut key = Vec::with_capacity(4 + group.len());
    key.put_i16(GROUP);
    wire::put_string(&mut key, group);
    key.into()
}

fn read_group_key(mut key: Reader<'_>) -> Result<String, WireError> {
    let group = key.string()?;
    key.end()?;
    Ok(group)
}

/// The version of a value, and the reader of what follows it.
fn versioned(value: &[u8]) -> Result<(i16, Reader<'_>), RecordError> {
    let mut reader = Reader::new(value);
    let version = reader.int16().map_err(RecordError::Value)?;
    if !(0..=VERSION_MAX).contains(&version) {
        return Err(RecordError::Version(version));
    }
    if version >= 4 {
        reader.compact();
    }
    Ok((version, reader))
}

impl StoredOffset {
    fn to_bytes(&self) -> Bytes {
        let mut value = Vec::with_capacity(64 + self.metadata.len());
        value.put_i16(OFFSET_VERSION);
        value.put_i64(self.offset.0);
        value.put_i32(self.leader_epoch);
        let length = u32::try_from(self.metadata.len()).expect("limited when it was committed");
        wire::put_varint(&mut value, length + 1);
        value.put_slice(self.metadata.as_bytes());
        value.put_i64(self.time.0);
        let has_id = !self.topic_id.is_nil();
        wire::put_varint(&mut value, u32::from(has_id) + u32::from(self.expires.is_some()));
        if has_id {
            wire::put_varint(&mut value, TOPIC_ID_TAG);
            wire::put_varint(&mut value, 16);
            value.put_slice(self.topic_id.as_bytes());
        }
        if let Some(expires) = self.expires {
            wire::put_varint(&mut value, EXPIRY_TAG);
            wire::put_varint(&mut value, 8);
            value.put_i64(expires.0);
        }
        value.into()
    }

    fn from_bytes(value: &[u8]) -> Result<StoredOffset, RecordError> {
        let (version, reader) = versioned(value)?;
        StoredOffset::read(version, reader).map_err(RecordError::Value)
    }

    fn read(version: i16, mut reader: Reader<'_>) -> Result<StoredOffset, WireError> {
        let offset = Offset(reader.int64()?);
        let leader_epoch = if version >= 3 { reader.int32()? } else { -1 };
        let metadata = reader.string()?;
        let time = Timestamp(reader.int64()?);
        let expiry = if version == 1 { reader.int64()? } else { -1 };
        let mut expires = (expiry != -1).then_some(Timestamp(expiry));
        let mut topic_id = Uuid::nil();
        reader.tagged(|tag, mut field| {
            match tag {
                TOPIC_ID_TAG => topic_id = field.uuid()?,
                EXPIRY_TAG => expires = Some(Timestamp(field.int64()?)),
                _ => return Ok(()),
            }
            field.end()
        })?;
        reader.end()?;
        Ok(StoredOffset { offset, leader_epoch, metadata, time, expires, topic_id })
    }
}

impl StoredGroup {
    fn to_bytes(&self) -> Bytes {
        let mut value = Vec::new();
        value.put_i16(GROUP_VERSION);
        wire::put_string(&mut value, &self.protocol_type);
        value.put_i32(self.generation);
        wire::put_nullable_string(&mut value, self.protocol.as_deref());
        wire::put_nullable_string(&mut value, self.leader.as_deref());
        value.put_i64(self.since.0);
        let count = i32::try_from(self.members.len()).expect("members are limited");
        value.put_i32(count);
        for member in &self.members {
            wire::put_string(&mut value, &member.member);
            wire::put_nullable_string(&mut value, member.instance.as_deref());
            wire::put_string(&mut value, &member.client_id);
            wire::put_string(&mut value, &member.client_host);
            value.put_i32(member.rebalance_timeout_ms);
            value.put_i32(member.session_timeout_ms);
            wire::put_bytes(&mut value, &member.subscription);
            wire::put_bytes(&mut value, &member.assignment);
        }
        value.into()
    }

    fn from_bytes(value: &[u8]) -> Result<StoredGroup, RecordError> {
        let (version, reader) = versioned(value)?;
        StoredGroup::read(version, reader).map_err(RecordError::Value)
    }

    fn read(version: i16, mut reader: Reader<'_>) -> Result<StoredGroup, WireError> {
        let mut group = StoredGroup {
            protocol_type: reader.string()?,
            generation: reader.int32()?,
            protocol: reader.nullable_string()?,
            leader: reader.nullable_string()?,
            since: Timestamp(if version >= 2 { reader.int64()? } else { -1 }),
            members: Vec::new(),
        };
        for _ in 0..reader.entries()? {
            group.members.push(StoredMember::read(version, &mut reader)?);
        }
        reader.tagged(|_, _| Ok(()))?;
        reader.end()?;
        Ok(group)
    }
}

impl StoredMember {
    fn read(version: i16, reader: &mut Reader<'_>) -> Result<StoredMember, WireError> {
        let member = StoredMember {
            member: reader.string()?,
            instance: if version >= 3 { reader.nullable_string()? } else { None },
            client_id: reader.string()?,
            client_host: reader.string()?,
            rebalance_timeout_ms: if version >= 1 { reader.int32()? } else { -1 },
            session_timeout_ms: reader.int32()?,
            subscription: reader.bytes()?,
            assignment: reader.bytes()?,
        };
        reader.tagged(|_, _| Ok(()))?;
        Ok(member)
    }
}
