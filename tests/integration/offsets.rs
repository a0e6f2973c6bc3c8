//! Offsets by time and by name, epochs and their ends.

use crate::broker::{only_own, topic, Broker};
use crate::client::{
    begin_ms, consumer, create_topic, produce, records, CODECS, PATIENCE, STEP_MS,
};
use crate::wire::{self, name, Wire, NOBODY};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, OffsetForLeaderEpochRequest};
use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

pub const EARLIEST: i64 = -2;
pub const LATEST: i64 = -1;
const MAX_TIMESTAMP: i64 = -3;
const OFFSET_OUT_OF_RANGE: i16 = 1;

pub fn ask(wire: &mut Wire, topic: &str, timestamp: i64) -> ListOffsetsPartitionResponse {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request =
        ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = wire.ask(7, &request);
    answer.topics[0].partitions[0].clone()
}

#[test]
fn a_time_leads_to_its_exact_record() {
    let broker = Broker::start();
    for codec in CODECS {
        let topic = topic(&format!("times-{codec}"));
        create_topic(&broker.address, &topic, 1, &[]);
        let settings = [("compression.codec", codec), ("batch.num.messages", "100")];
        produce(&broker.address, &topic, &records(1_000), &settings);
        let consumer = consumer(&broker.address);
        let check = |timestamp_ms: i64, expect: Offset| {
            let mut asked = TopicPartitionList::new();
            let at = Offset::Offset(timestamp_ms);
            asked.add_partition_offset(&topic, 0, at).expect("an offset");
            let found = consumer.offsets_for_times(asked, PATIENCE).expect("an answer");
            let seen = found.find_partition(&topic, 0).expect("the partition").offset();
            assert_eq!(seen, expect, "{codec} at {timestamp_ms}");
        };
        check(0, Offset::Offset(0));
        check(begin_ms(), Offset::Offset(0));
        for number in [1, 99, 100, 101, 500, 998, 999] {
            let at = begin_ms() + number * STEP_MS;
            check(at, Offset::Offset(number));
            check(at - STEP_MS + 1, Offset::Offset(number));
        }
        check(begin_ms() + 1_000 * STEP_MS, Offset::End);
    }
}

#[test]
fn special_times_name_the_ends_and_the_latest_record() {
    let broker = Broker::start();
    let topic = topic("special");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    for timestamp in [EARLIEST, LATEST] {
        let seen = ask(&mut wire, &topic, timestamp);
        assert_eq!((seen.error_code, seen.offset, seen.timestamp), (0, 0, -1), "{timestamp}");
    }
    let seen = ask(&mut wire, &topic, MAX_TIMESTAMP);
    assert_eq!((seen.error_code, seen.offset, seen.timestamp), (0, -1, -1));
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["a", "b", "c"], NOBODY)), Ok(0));
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["d"], NOBODY)), Ok(3));
    for (timestamp, offset) in [(EARLIEST, 0), (LATEST, 4), (MAX_TIMESTAMP, 2)] {
        let seen = ask(&mut wire, &topic, timestamp);
        assert_eq!((seen.error_code, seen.offset), (0, offset), "{timestamp}");
    }
}

#[test]
fn a_fetch_outside_the_log_is_out_of_range() {
    let broker = Broker::start();
    let topic = topic("range");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["a", "b"], NOBODY)), Ok(0));
    assert!(wire::fetch(&mut wire, &topic, 2, 0).expect("the end is inside").is_empty());
    for offset in [-5, 3, 1_000] {
        assert_eq!(wire::fetch(&mut wire, &topic, offset, 0), Err(OFFSET_OUT_OF_RANGE), "{offset}");
    }
}

#[test]
fn leader_epochs_rise_at_each_start_and_remember_their_ends() {
    if only_own("leader_epochs_rise_at_each_start_and_remember_their_ends") {
        return;
    }
    let mut broker = Broker::start();
    let topic = topic("epochs");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut epochs: Vec<i32> = Vec::new();
    for round in 0..3 {
        let mut wire = Wire::new(&broker);
        let base = i64::from(round) * 2;
        let batch = wire::batch(&["a", "b"], NOBODY);
        assert_eq!(wire::produce(&mut wire, &topic, batch), Ok(base));
        let epoch = ask(&mut wire, &topic, LATEST).leader_epoch;
        assert!(epochs.last().is_none_or(|last| *last < epoch), "{epochs:?} then {epoch}");
        epochs.push(epoch);
        for (number, epoch) in epochs.iter().enumerate() {
            let end = (number as i64 + 1) * 2;
            assert_eq!(epoch_end(&mut wire, &topic, *epoch), (*epoch, end), "round {round}");
        }
        drop(wire);
        broker.kill_and_restart();
    }
}

/// The epoch that answers for the asked one and where it ends.
fn epoch_end(wire: &mut Wire, topic: &str, epoch: i32) -> (i32, i64) {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_leader_epoch(epoch);
    let topic =
        OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic]);
    let answer = wire.ask(4, &request);
    let end = &answer.topics[0].partitions[0];
    assert_eq!(end.error_code, 0);
    (end.leader_epoch, end.end_offset)
}
