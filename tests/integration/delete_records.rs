//! DeleteRecords: what was deleted is not served again, by any road, through stops and kills.

use crate::broker::{only_own, topic, Broker};
use crate::client::{admin, admin_options, consume, create_topic, produce, records};
use crate::offsets::{ask, EARLIEST, LATEST};
use crate::wire::{self, name, Wire};
use futures_lite::future::block_on;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::DeleteRecordsRequest;
use rdkafka::{Offset, TopicPartitionList};

const VERSION: i16 = 2;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const POLICY_VIOLATION: i16 = 44;

/// Deletes below an offset of partition 0; the low watermark or the error code.
fn delete(wire: &mut Wire, topic: &str, offset: i64) -> Result<i64, i16> {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic =
        DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(20_000);
    let answer = wire.ask(VERSION, &request);
    let partition = &answer.topics[0].partitions[0];
    match (partition.error_code, partition.low_watermark) {
        (0, low_watermark) => Ok(low_watermark),
        (code, low_watermark) => {
            assert_eq!(low_watermark, -1, "no low watermark beside error {code}");
            Err(code)
        }
    }
}

#[test]
fn kafkas_rules_hold_on_the_wire() {
    let broker = Broker::start();
    let (plain, compact) = (topic("delete"), topic("compact"));
    create_topic(&broker.address, &plain, 1, &[]);
    create_topic(&broker.address, &compact, 1, &[("cleanup.policy", "compact")]);
    produce(&broker.address, &plain, &records(100), &[]);
    let wire = &mut Wire::new(&broker);
    assert_eq!(delete(wire, &plain, 0), Ok(0));
    assert_eq!(delete(wire, &plain, 40), Ok(40));
    assert_eq!(delete(wire, &plain, 10), Ok(40));
    assert_eq!(delete(wire, &plain, 101), Err(OFFSET_OUT_OF_RANGE));
    assert_eq!(delete(wire, &plain, -2), Err(OFFSET_OUT_OF_RANGE));
    assert_eq!(delete(wire, &compact, 0), Err(POLICY_VIOLATION));
    assert_eq!(delete(wire, &topic("nowhere"), 0), Err(UNKNOWN_TOPIC_OR_PARTITION));
    assert_eq!(wire::fetch(wire, &plain, 39, 0), Err(OFFSET_OUT_OF_RANGE));
    assert!(wire::fetch(wire, &plain, 40, 0).is_ok_and(|records| !records.is_empty()));
    assert_eq!(delete(wire, &plain, -1), Ok(100));
    assert_eq!(wire::fetch(wire, &plain, 100, 0), Ok(Default::default()));
    assert_eq!(ask(wire, &plain, LATEST).offset, 100);
}

#[test]
fn deleted_records_stay_deleted_through_stops_and_kills() {
    if only_own("deleted_records_stay_deleted_through_stops_and_kills") {
        return;
    }
    for flush in ["commit", "os"] {
        let mut broker = Broker::with(&["--cores", "2", "--flush", flush]);
        // Two topics, since one may be on either core.
        let topics = [topic("kept"), topic("kept")];
        let sent = records(500);
        for topic in &topics {
            create_topic(&broker.address, topic, 1, &[]);
            produce(&broker.address, topic, &sent, &[("batch.num.messages", "10")]);
        }
        for (round, below) in [123, 250, 500].into_iter().enumerate() {
            for topic in &topics {
                assert_eq!(delete(&mut Wire::new(&broker), topic, below), Ok(below));
            }
            match round {
                0 => broker.restart(),
                _ => broker.kill_and_restart(),
            }
            for topic in &topics {
                let wire = &mut Wire::new(&broker);
                assert_eq!(ask(wire, topic, EARLIEST).offset, below, "{flush}, {below}");
                assert_eq!(ask(wire, topic, LATEST).offset, 500, "{flush}, {below}");
                let seen = consume(&broker.address, topic, 1);
                let offsets: Vec<i64> = seen.iter().map(|(place, _)| place.offset).collect();
                assert_eq!(offsets, (below..500).collect::<Vec<_>>(), "{flush}, {below}");
                for (place, record) in &seen {
                    assert_eq!(record, &sent[place.offset as usize], "offset {}", place.offset);
                }
            }
        }
        let places = produce(&broker.address, &topics[0], &records(1), &[]);
        assert_eq!(places[0].offset, 500, "the offsets go on");
    }
}

#[test]
fn librdkafka_deletes_records_of_all_partitions() {
    let broker = Broker::with(&["--cores", "2"]);
    let topic = topic("admin");
    create_topic(&broker.address, &topic, 3, &[]);
    let places = produce(&broker.address, &topic, &records(600), &[]);
    let count = |partition| places.iter().filter(|place| place.partition == partition).count();
    let mut asked = TopicPartitionList::new();
    for (partition, offset) in [(0, Offset::End), (1, Offset::Offset(7)), (2, Offset::Offset(0))] {
        asked.add_partition_offset(&topic, partition, offset).expect("an offset");
    }
    let answer = block_on(admin(&broker.address).delete_records(&asked, &admin_options()));
    let answer = answer.expect("an answer");
    let low = |partition| answer.find_partition(&topic, partition).expect("it was asked").offset();
    assert_eq!(low(0), Offset::Offset(count(0) as i64));
    assert_eq!((low(1), low(2)), (Offset::Offset(7), Offset::Offset(0)));
    let seen = consume(&broker.address, &topic, 3);
    assert_eq!(seen.len(), 600 - count(0) - 7);
}
