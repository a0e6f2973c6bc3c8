//! The layouts of `record` against bytes that Apache Kafka 4.4's own classes wrote.

use super::record::{GroupRecord, RecordError, StoredGroup, StoredMember, StoredOffset};
use super::wire::WireError;
use crate::state_machine::{Durable, Pair};
use bytes::Bytes;
use shard::ids::{Offset, Timestamp};
use uuid::Uuid;

const KEY_V0: &str = "000000016700066f726465727300000003";
const KEY_V1: &str = "000100016700066f726465727300000003";
const GROUP_KEY: &str = "0002000167";
const ID: Uuid = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(key: &str, value: &str) -> GroupRecord {
    GroupRecord::from_pair(Some(&bytes(key)), Some(&bytes(value))).unwrap().unwrap()
}

fn offset_record(value: Option<StoredOffset>) -> GroupRecord {
    GroupRecord::Offset { group: "g".into(), topic: "orders".into(), partition: 3, value }
}

fn offset(leader_epoch: i32, expires: Option<i64>, topic_id: Uuid) -> GroupRecord {
    offset_record(Some(StoredOffset {
        offset: Offset(42),
        leader_epoch,
        metadata: "m".into(),
        time: Timestamp(1000),
        expires: expires.map(Timestamp),
        topic_id,
    }))
}

fn group(since: i64, rebalance_timeout_ms: i32, instance: Option<&str>) -> GroupRecord {
    let member = StoredMember {
        member: "m-1".into(),
        instance: instance.map(String::from),
        client_id: "c".into(),
        client_host: "/h".into(),
        rebalance_timeout_ms,
        session_timeout_ms: 6000,
        subscription: Bytes::from_static(&[1, 2]),
        assignment: Bytes::from_static(&[3]),
    };
    let value = StoredGroup {
        protocol_type: "consumer".into(),
        generation: 5,
        protocol: Some("range".into()),
        leader: Some("m-1".into()),
        since: Timestamp(since),
        members: vec![member],
    };
    GroupRecord::Group { group: "g".into(), value: Some(value) }
}

#[test]
fn every_version_of_an_offset_is_read() {
    let check = |value: &str, expect: GroupRecord| {
        assert_eq!(read(KEY_V0, value), expect);
        assert_eq!(read(KEY_V1, value), expect);
    };
    let nil = Uuid::nil();
    check("0000000000000000002a00016d00000000000003e8", offset(-1, None, nil));
    check(
        "0001000000000000002a00016d00000000000003e800000000000007d0",
        offset(-1, Some(2000), nil),
    );
    check("0002000000000000002a00016d00000000000003e8", offset(-1, None, nil));
    check("0003000000000000002a0000000700016d00000000000003e8", offset(7, None, nil));
}

#[test]
fn offsets_are_written_as_kafka_writes_them() {
    let check = |record: GroupRecord, value: &str| {
        let pair = record.to_pair();
        assert_eq!(hex(&pair.key.unwrap()), KEY_V1);
        assert_eq!(hex(&pair.value.unwrap()), value);
        assert_eq!(read(KEY_V1, value), record);
    };
    check(
        offset(7, None, ID),
        "0004000000000000002a00000007026d00000000000003e80100100102030405060708090a0b0c0d0e0f10",
    );
    check(offset(-1, None, Uuid::nil()), "0004000000000000002affffffff026d00000000000003e800");
    // Not Kafka's: its reader takes the second tag for one it does not know and goes on.
    let expiry = "904e0800000000000007d0";
    let text =
        "0004000000000000002a00000007026d00000000000003e80200100102030405060708090a0b0c0d0e0f10";
    check(offset(7, Some(2000), ID), &format!("{text}{expiry}"));
}

#[test]
fn every_version_of_a_group_is_read_and_version_3_written() {
    let head = "0008636f6e73756d657200000005000572616e676500036d2d31";
    let member = "00036d2d31";
    let tail = "0000177000000002010200000001 03".replace(' ', "");
    let check = |value: String, expect: GroupRecord| assert_eq!(read(GROUP_KEY, &value), expect);
    check(format!("0000{head}00000001{member}00016300022f68{tail}"), group(-1, -1, None));
    let rebalance = "0000ea60";
    let client = "00016300022f68";
    check(format!("0001{head}00000001{member}{client}{rebalance}{tail}"), group(-1, 60_000, None));
    let since = "00000000000003e8";
    check(
        format!("0002{head}{since}00000001{member}{client}{rebalance}{tail}"),
        group(1000, 60_000, None),
    );
    let v3 = format!("0003{head}{since}00000001{member}000169{client}{rebalance}{tail}");
    check(v3.clone(), group(1000, 60_000, Some("i")));
    check(
        "000409636f6e73756d6572000000050672616e6765046d2d3100000000000003e802046d2d31\
         02690263032f680000ea600000177003010202030000"
            .replace(' ', ""),
        group(1000, 60_000, Some("i")),
    );
    let pair = group(1000, 60_000, Some("i")).to_pair();
    assert_eq!(hex(&pair.key.unwrap()), GROUP_KEY);
    assert_eq!(hex(&pair.value.unwrap()), v3);
}

#[test]
fn an_empty_group_has_neither_protocol_nor_leader() {
    let value = StoredGroup {
        protocol_type: "consumer".into(),
        generation: 6,
        since: Timestamp(9),
        ..StoredGroup::default()
    };
    let record = GroupRecord::Group { group: "g".into(), value: Some(value) };
    let expect = "00030008636f6e73756d657200000006ffffffff000000000000000900000000";
    assert_eq!(hex(&record.to_pair().value.unwrap()), expect);
    assert_eq!(read(GROUP_KEY, expect), record);
}

#[test]
fn a_null_value_deletes() {
    let check = |record: GroupRecord, key: &str| {
        assert_eq!(record.to_pair(), Pair { key: Some(bytes(key).into()), value: None });
        assert_eq!(GroupRecord::from_pair(Some(&bytes(key)), None), Ok(Some(record)));
    };
    check(offset_record(None), KEY_V1);
    check(GroupRecord::Group { group: "g".into(), value: None }, GROUP_KEY);
}

#[test]
fn other_kinds_are_passed_over_and_damage_is_told() {
    let check = |key: &str, value: &str, expect: Result<Option<GroupRecord>, RecordError>| {
        assert_eq!(GroupRecord::from_pair(Some(&bytes(key)), Some(&bytes(value))), expect);
    };
    check("0003000167", "0000", Ok(None));
    check("7fff", "", Ok(None));
    assert_eq!(GroupRecord::from_pair(None, None), Err(RecordError::NoKey));
    let short = |wanted, left| WireError::Short { wanted, left };
    check("00", "", Err(RecordError::Key(short(2, 1))));
    check("000200026700", "", Err(RecordError::Value(short(2, 0))));
    check("00020001670000", "", Err(RecordError::Key(WireError::LeftOver(2))));
    check(GROUP_KEY, "0005", Err(RecordError::Version(5)));
    check(GROUP_KEY, "ffff", Err(RecordError::Version(-1)));
    check(KEY_V1, "0000000000000000002a", Err(RecordError::Value(short(2, 0))));
    let long = "0000000000000000002a00016d00000000000003e8ff";
    check(KEY_V1, long, Err(RecordError::Value(WireError::LeftOver(1))));
}

/// Every value with a byte cut off is damage, and no cut or flipped byte is a panic.
#[test]
fn cut_and_flipped_records() {
    for record in [offset(7, Some(1), ID), group(1000, 60_000, Some("i"))] {
        let pair = record.to_pair();
        let (key, value) = (pair.key.unwrap(), pair.value.unwrap());
        for cut in 0..value.len() {
            assert!(GroupRecord::from_pair(Some(&key), Some(&value[..cut])).is_err());
        }
        for cut in 0..key.len() {
            assert!(GroupRecord::from_pair(Some(&key[..cut]), Some(&value)).is_err());
        }
        for bit in 0..value.len() * 8 {
            let mut flipped = value.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = GroupRecord::from_pair(Some(&key), Some(&flipped));
        }
    }
}
