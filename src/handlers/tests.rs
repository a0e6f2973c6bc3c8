//! The handlers over the model of the cores, request by request, as clients see them.

use super::model::{body, Bench, CLIENT, EPOCH};
use super::{Finish, Outcome, Pending};
use crate::protocol::api::{Api, Request};
use crate::protocol::samples::{self, Dice};
use bytes::Bytes;
use futures_lite::future::{block_on, poll_once};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use shard::batch::{BatchBuilder, NewRecord};
use shard::ids::Timestamp;
use uuid::Uuid;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

fn name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn new_topic(topic: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(3)
}

fn create(bench: &Bench, topic: &str, partitions: i32) -> Uuid {
    let request = CreateTopicsRequest::default().with_topics(vec![new_topic(topic, partitions)]);
    let response: CreateTopicsResponse = bench.ask(Api::CreateTopics, 7, &request);
    assert_eq!(response.topics[0].error_code, 0);
    response.topics[0].topic_id
}

fn batch(timestamp: i64, records: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.push(&NewRecord {
            timestamp: Timestamp(timestamp),
            value: Some(b"value"),
            ..NewRecord::default()
        });
    }
    builder.build().into()
}

fn produce(topic: &str, partitions: &[(i32, Bytes)]) -> ProduceRequest {
    let partition = |(index, records): &(i32, Bytes)| {
        PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
    };
    let topic = TopicProduceData::default()
        .with_name(name(topic))
        .with_partition_data(partitions.iter().map(partition).collect());
    ProduceRequest::default().with_acks(-1).with_timeout_ms(1000).with_topic_data(vec![topic])
}

fn fetch(topic: &str, partitions: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_current_leader_epoch(-1)
            .with_partition_max_bytes(1 << 20)
    };
    let topic = FetchTopic::default()
        .with_topic(name(topic))
        .with_partitions(partitions.iter().map(partition).collect());
    FetchRequest::default().with_max_bytes(1 << 20).with_min_bytes(1).with_topics(vec![topic])
}

fn codes(response: &ProduceResponse) -> Vec<(i32, i16, i64)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.map(|p| (p.index, p.error_code, p.base_offset)).collect()
}

#[test]
fn null_topics_ask_for_all_and_an_empty_list_for_none() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let topics = |version, topics| {
        let request = MetadataRequest::default().with_topics(topics);
        let response: MetadataResponse = bench.ask(Api::Metadata, version, &request);
        assert_eq!(response.brokers.len(), 1);
        if version >= 1 {
            assert_eq!(response.controller_id, response.brokers[0].node_id);
        }
        response.topics.len()
    };
    assert_eq!(topics(0, Some(vec![])), 1);
    assert_eq!(topics(1, Some(vec![])), 0);
    assert_eq!(topics(1, None), 1);
    assert_eq!(topics(13, None), 1);
    assert_eq!(topics(13, Some(vec![])), 0);
}

fn metadata(bench: &Bench, version: i16, asked: &[&str], create: bool) -> MetadataResponse {
    let topic = |n: &&str| MetadataRequestTopic::default().with_name(Some(name(n)));
    let request = MetadataRequest::default()
        .with_topics(Some(asked.iter().map(topic).collect()))
        .with_allow_auto_topic_creation(create);
    bench.ask(Api::Metadata, version, &request)
}

#[test]
fn topics_are_created_when_broker_and_request_say_so() {
    let code = |response: MetadataResponse| response.topics[0].error_code;
    let bench = Bench::new("num.partitions = 3");
    assert_eq!(code(metadata(&bench, 9, &["new"], false)), 3);
    let created = metadata(&bench, 9, &["new", "new", "bad/name", "__consumer_offsets"], true);
    let found: Vec<_> = created.topics.iter().map(|t| (t.error_code, t.partitions.len())).collect();
    assert_eq!(found, [(0, 3), (0, 3), (17, 0), (3, 0)]);
    let partition = &created.topics[0].partitions[0];
    assert_eq!((partition.leader_id.0, partition.leader_epoch), (1, EPOCH));
    assert_eq!(partition.isr_nodes, [BrokerId(1)]);
    assert_eq!(
        code(metadata(&Bench::new("auto.create.topics.enable = false"), 9, &["n"], true)),
        3
    );
    assert_eq!(code(metadata(&bench, 9, &["a.b"], true)), 0);
    assert_eq!(code(metadata(&bench, 9, &["a_b"], true)), 17);
    assert_eq!(code(metadata(&bench, 1, &["old-clients-always-create"], true)), 0);
}

#[test]
fn topics_are_found_by_id_from_version_12_on() {
    let bench = Bench::new("");
    let id = create(&bench, "a", 1);
    let ask = |version, id: Uuid| -> MetadataResponse {
        let topic = MetadataRequestTopic::default().with_name(None).with_topic_id(id);
        let request = MetadataRequest::default().with_topics(Some(vec![topic]));
        bench.ask(Api::Metadata, version, &request)
    };
    let found = ask(12, id);
    assert_eq!(found.topics[0].name, Some(name("a")));
    let unknown = ask(12, Uuid::from_u128(99));
    assert_eq!((unknown.topics[0].error_code, &unknown.topics[0].name), (100, &None));
    assert_eq!(ask(11, id).topics[0].error_code, 42);
    assert_eq!(found.topics[0].topic_authorized_operations, i32::MIN);
}

#[test]
fn created_topics_tell_what_they_are() {
    let bench = Bench::new("");
    let request = CreateTopicsRequest::default().with_topics(vec![
        new_topic("a", 2),
        new_topic("b", 0),
        new_topic("c", -1),
    ]);
    let response: CreateTopicsResponse = bench.ask(Api::CreateTopics, 7, &request);
    let [a, b, c] = &response.topics[..] else { panic!("three topics") };
    assert_eq!((a.error_code, a.num_partitions, a.replication_factor), (0, 2, 1));
    assert!(!a.topic_id.is_nil());
    let configs = a.configs.as_ref().unwrap();
    assert!(configs.iter().any(|config| config.name == *"cleanup.policy"));
    assert_eq!((b.error_code, b.num_partitions), (37, -1));
    assert!(b.error_message.is_some() && b.configs.is_none());
    assert_eq!(c.num_partitions, 1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![new_topic("v", 1)])
        .with_validate_only(true);
    let response: CreateTopicsResponse = bench.ask(Api::CreateTopics, 2, &request);
    assert_eq!(response.topics[0].error_code, 0);
    assert_eq!(metadata(&bench, 9, &["v"], false).topics[0].error_code, 3);
}

#[test]
fn topics_are_deleted_by_name_or_id_and_not_by_both() {
    let bench = Bench::new("");
    let (a, b) = (create(&bench, "a", 1), create(&bench, "b", 1));
    let state =
        |n: Option<&str>, id| DeleteTopicState::default().with_name(n.map(name)).with_topic_id(id);
    let request = DeleteTopicsRequest::default().with_topics(vec![
        state(Some("a"), Uuid::nil()),
        state(Some("a"), a),
        state(None, b),
        state(None, Uuid::nil()),
        state(Some("no"), Uuid::nil()),
        state(None, Uuid::from_u128(77)),
    ]);
    let response: DeleteTopicsResponse = bench.ask(Api::DeleteTopics, 6, &request);
    let codes: Vec<i16> = response.responses.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, 42, 0, 42, 3, 100]);
    assert_eq!(response.responses[2].name, Some(name("b")));
    assert_eq!(response.responses[0].topic_id, a);

    let bench = Bench::new("delete.topic.enable = false");
    create(&bench, "a", 1);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![name("a")]);
    let code = |version| {
        let response: DeleteTopicsResponse = bench.ask(Api::DeleteTopics, version, &request);
        response.responses[0].error_code
    };
    assert_eq!((code(5), code(2)), (73, 42));
}

#[test]
fn partitions_of_a_produce_fail_each_on_its_own() {
    let bench = Bench::new("");
    create(&bench, "a", 2);
    let mut broken = batch(1_000, 1).to_vec();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let partitions =
        [(0, batch(1_000, 3)), (1, broken.into()), (2, batch(1_000, 1)), (1, batch(1_000, 1))];
    let response: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &partitions));
    assert_eq!(codes(&response), [(0, 0, 0), (1, 2, -1), (2, 3, -1), (1, 0, 0)]);
    assert_eq!(response.responses[0].partition_responses[0].log_append_time_ms, -1);
    let response: ProduceResponse = bench.ask(Api::Produce, 9, &produce("no", &partitions[..1]));
    assert_eq!(codes(&response), [(0, 3, -1)]);
    assert_eq!((bench.model.end_of("a", 0), bench.model.end_of("a", 1)), (3, 1));
}

#[test]
fn a_produce_by_id_finds_its_topic() {
    let bench = Bench::new("");
    let id = create(&bench, "a", 1);
    let ask = |id| -> ProduceResponse {
        let mut request = produce("", &[(0, batch(1_000, 1))]);
        request.topic_data[0].topic_id = id;
        bench.ask(Api::Produce, 13, &request)
    };
    assert_eq!(codes(&ask(id)), [(0, 0, 0)]);
    assert_eq!(codes(&ask(Uuid::from_u128(9))), [(0, 100, -1)]);
}

#[test]
fn what_produce_refuses() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let code = |version, request: ProduceRequest| -> i16 {
        let response: ProduceResponse = bench.ask(Api::Produce, version, &request);
        response.responses[0].partition_responses[0].error_code
    };
    let one = |records: Bytes| produce("a", &[(0, records)]);
    assert_eq!(code(9, one(batch(1_000, 1)).with_acks(2)), 21);
    assert_eq!(code(3, one(Bytes::new())), 87);
    let two = [batch(1_000, 1), batch(1_000, 1)].concat();
    assert_eq!(code(3, one(two.into())), 87);
    let id = Some(TransactionalId(text("t")));
    assert_eq!(code(9, one(batch(1_000, 1)).with_transactional_id(id)), 48);
    let large = NewRecord { value: Some(&[0; 2_000_000]), ..NewRecord::default() };
    let mut builder = BatchBuilder::new();
    builder.push(&large);
    assert_eq!(code(9, one(builder.build().into())), 10);
    assert_eq!(code(9, one(batch(5_000_000, 1))), 32);
    assert_eq!(bench.model.end_of("a", 0), 0);
}

#[test]
fn acks_0_has_no_reply_and_an_error_closes_the_connection() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let finish = |request: ProduceRequest| match bench.call(Api::Produce, 9, &request) {
        Outcome::Pending(Pending::Later(later)) => match block_on(later) {
            Finish::Nothing => "nothing",
            Finish::Close => "close",
            Finish::Reply(_) => "reply",
        },
        Outcome::Close => "close",
        Outcome::Pending(_) | Outcome::Blocked(_) => "other",
    };
    assert_eq!(finish(produce("a", &[(0, batch(1_000, 1))]).with_acks(0)), "nothing");
    assert_eq!(bench.model.end_of("a", 0), 1);
    assert_eq!(finish(produce("a", &[(0, Bytes::new())]).with_acks(0)), "close");
    assert_eq!(finish(produce("no", &[(0, batch(1_000, 1))]).with_acks(0)), "close");
}

#[test]
fn a_blocked_append_blocks_the_connection() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let release = bench.model.block();
    let outcome = bench.call(Api::Produce, 9, &produce("a", &[(0, batch(1_000, 1))]));
    let Outcome::Blocked(mut blocked) = outcome else { panic!("not blocked") };
    assert!(block_on(poll_once(&mut blocked)).is_none());
    release.send(()).unwrap();
    let Outcome::Pending(Pending::Later(later)) = block_on(blocked) else { panic!("not later") };
    let Finish::Reply(reply) = block_on(later) else { panic!("no reply") };
    let response: ProduceResponse = body(Api::Produce, 9, reply);
    assert_eq!(codes(&response), [(0, 56, -1)]);
}

#[test]
fn appends_are_held_back_as_long_as_tables_do_not_keep_up_and_the_client_is_told() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    bench.model.throttle_ms.set(300);
    let outcome = bench.call(Api::Produce, 9, &produce("a", &[(0, batch(1_000, 1))]));
    let Outcome::Blocked(mut blocked) = outcome else { panic!("not blocked") };
    assert!(block_on(poll_once(&mut blocked)).is_none());
    bench.model.advance(299);
    assert!(block_on(poll_once(&mut blocked)).is_none());
    assert_eq!(bench.model.end_of("a", 0), 0, "nothing is appended yet");
    bench.model.advance(1);
    let Outcome::Pending(Pending::Later(later)) = block_on(blocked) else { panic!("not later") };
    let Finish::Reply(reply) = block_on(later) else { panic!("no reply") };
    let response: ProduceResponse = body(Api::Produce, 9, reply);
    assert_eq!((codes(&response), response.throttle_time_ms), (vec![(0, 0, 0)], 300));
    bench.model.throttle_ms.set(0);
    let request = produce("a", &[(0, batch(1_000, 1))]);
    let response: ProduceResponse = bench.ask(Api::Produce, 9, &request);
    assert_eq!((codes(&response), response.throttle_time_ms), (vec![(0, 0, 1)], 0));
}

#[test]
fn a_fetch_returns_batches_and_offsets() {
    let bench = Bench::new("");
    create(&bench, "a", 2);
    let records = batch(1_000, 2);
    let _: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &[(0, records.clone())]));
    for version in [4, 11, 12] {
        let request = fetch("a", &[(0, 1), (1, 0)]);
        let response: FetchResponse = bench.ask(Api::Fetch, version, &request);
        let [first, second] = &response.responses[0].partitions[..] else { panic!("two") };
        assert_eq!((first.error_code, first.high_watermark), (0, 2));
        assert_eq!(first.records.as_ref().unwrap().len(), records.len());
        assert_eq!((second.error_code, second.high_watermark), (0, 0));
        assert_eq!(second.records, Some(Bytes::new()));
        assert!(first.aborted_transactions.is_none());
    }
    let request = fetch("a", &[(0, 0)]).with_isolation_level(1);
    let response: FetchResponse = bench.ask(Api::Fetch, 12, &request);
    assert_eq!(response.responses[0].partitions[0].aborted_transactions, Some(vec![]));
}

#[test]
fn a_fetch_is_limited_over_all_partitions_but_for_its_first_batch() {
    let bench = Bench::new("");
    create(&bench, "a", 2);
    let partitions = [(0, batch(1_000, 9)), (1, batch(1_000, 9))];
    let _: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &partitions));
    let lengths = |bytes_max| -> Vec<usize> {
        let request = fetch("a", &[(0, 0), (1, 0)]).with_max_bytes(bytes_max);
        let response: FetchResponse = bench.ask(Api::Fetch, 12, &request);
        let partitions = response.responses[0].partitions.iter();
        partitions.map(|p| p.records.as_ref().unwrap().len()).collect()
    };
    let bytes = partitions[0].1.len();
    assert_eq!(lengths(1), [bytes, 0]);
    assert_eq!(lengths(2 * bytes as i32 - 1), [bytes, 0]);
    assert_eq!(lengths(2 * bytes as i32), [bytes, bytes]);
}

#[test]
fn what_fetch_refuses_it_refuses_at_once() {
    let bench = Bench::new("");
    let id = create(&bench, "a", 1);
    let code = |version, request: FetchRequest| -> i16 {
        let request = request.with_max_wait_ms(10_000);
        let response: FetchResponse = bench.ask(Api::Fetch, version, &request);
        response.responses[0].partitions[0].error_code
    };
    assert_eq!(code(12, fetch("a", &[(0, 1)])), 1);
    assert_eq!(code(12, fetch("a", &[(1, 0)])), 3);
    assert_eq!(code(12, fetch("no", &[(0, 0)])), 3);
    let with_epoch = |epoch| {
        let mut request = fetch("a", &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        request
    };
    assert_eq!(code(12, with_epoch(EPOCH - 1)), 74);
    assert_eq!(code(12, with_epoch(EPOCH + 1)), 75);
    let by_id = |id| {
        let mut request = fetch("", &[(0, 1)]);
        request.topics[0].topic_id = id;
        request
    };
    assert_eq!(code(13, by_id(Uuid::from_u128(5))), 100);
    assert_eq!(code(13, by_id(id)), 1);
    let session = FetchRequest::default().with_session_id(3).with_session_epoch(1);
    let response: FetchResponse = bench.ask(Api::Fetch, 12, &session);
    assert_eq!((response.error_code, response.session_id), (70, 0));
}

#[test]
fn a_fetch_waits_for_bytes_or_for_its_time() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let request = fetch("a", &[(0, 0)]).with_max_wait_ms(500);
    let start = || match bench.call(Api::Fetch, 12, &request) {
        Outcome::Pending(Pending::Later(mut later)) => {
            assert!(block_on(poll_once(&mut later)).is_none());
            later
        }
        _ => panic!("not later"),
    };
    let length = |finish| {
        let Some(Finish::Reply(reply)) = finish else { panic!("no reply") };
        let response: FetchResponse = body(Api::Fetch, 12, reply);
        response.responses[0].partitions[0].records.as_ref().unwrap().len()
    };
    let mut waiting = start();
    bench.model.advance(499);
    assert!(block_on(poll_once(&mut waiting)).is_none());
    bench.model.advance(1);
    assert_eq!(length(block_on(poll_once(&mut waiting))), 0);
    let mut waiting = start();
    let records = batch(1_000, 1);
    let _: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &[(0, records.clone())]));
    assert_eq!(length(block_on(poll_once(&mut waiting))), records.len());
}

#[test]
fn offsets_by_special_timestamp_and_by_time() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    for timestamp in [1_000, 3_000, 2_000] {
        let request = produce("a", &[(0, batch(timestamp, 2))]);
        let _: ProduceResponse = bench.ask(Api::Produce, 9, &request);
    }
    let ask = |version, timestamp| {
        let partition =
            ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
        let topic =
            ListOffsetsTopic::default().with_name(name("a")).with_partitions(vec![partition]);
        // Some clients name a replica where there is none.
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(0));
        let request = request.with_topics(vec![topic]);
        let response: ListOffsetsResponse = bench.ask(Api::ListOffsets, version, &request);
        let partition = &response.topics[0].partitions[0];
        (partition.error_code, partition.offset, partition.timestamp)
    };
    assert_eq!(ask(1, -1), (0, 6, -1));
    assert_eq!(ask(1, -2), (0, 0, -1));
    assert_eq!(ask(7, -3), (0, 2, 3_000));
    assert_eq!(ask(8, -4), (0, 0, -1));
    assert_eq!(ask(9, -5), (0, -1, -1));
    assert_eq!(ask(5, 1_001), (0, 2, 3_000));
    assert_eq!(ask(5, 3_001), (0, -1, -1));
    for (version, timestamp) in [(6, -3), (7, -4), (8, -5), (10, -6), (10, i64::MIN)] {
        assert_eq!(ask(version, timestamp).0, 35, "v{version} {timestamp}");
    }
}

#[test]
fn records_are_deleted_up_to_an_offset_by_kafkas_rules() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    create(&bench, "__consumer_offsets", 1);
    let compact = new_topic("compact", 1).with_configs(vec![CreatableTopicConfig::default()
        .with_name(text("cleanup.policy"))
        .with_value(Some(text("compact")))]);
    let request = CreateTopicsRequest::default().with_topics(vec![compact]);
    let _: CreateTopicsResponse = bench.ask(Api::CreateTopics, 7, &request);
    let _: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &[(0, batch(1_000, 6))]));
    let ask = |version, topic, partition, offset| {
        let partition =
            DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
        let topic =
            DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
        let response: DeleteRecordsResponse = bench.ask(Api::DeleteRecords, version, &request);
        let partition = &response.topics[0].partitions[0];
        (partition.error_code, partition.low_watermark)
    };
    assert_eq!(ask(0, "a", 0, 2), (0, 2));
    assert_eq!(ask(1, "a", 0, 1), (0, 2), "below the log start nothing changes");
    for offset in [7, -2, i64::MIN, i64::MAX] {
        assert_eq!(ask(2, "a", 0, offset), (1, -1), "{offset}");
    }
    assert_eq!(ask(2, "a", 1, 0), (3, -1));
    assert_eq!(ask(2, "no", 0, 0), (3, -1));
    assert_eq!(ask(2, "compact", 0, 0), (44, -1));
    assert_eq!(ask(2, "__consumer_offsets", 0, 0), (17, -1));
    assert_eq!(ask(2, "a", 0, -1), (0, 6));
}

#[test]
fn a_partition_named_twice_is_an_invalid_request() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(name("a"))
        .with_partitions(vec![partition.clone(), partition]);
    let request = ListOffsetsRequest::default().with_topics(vec![topic]);
    let response: ListOffsetsResponse = bench.ask(Api::ListOffsets, 3, &request);
    let codes: Vec<i16> = response.topics[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [42, 42]);
}

#[test]
fn the_end_of_an_epoch() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let _: ProduceResponse = bench.ask(Api::Produce, 9, &produce("a", &[(0, batch(1_000, 4))]));
    let ask = |current, epoch| {
        let partition = OffsetForLeaderPartition::default()
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic =
            OffsetForLeaderTopic::default().with_topic(name("a")).with_partitions(vec![partition]);
        let request = OffsetForLeaderEpochRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic]);
        let response: OffsetForLeaderEpochResponse =
            bench.ask(Api::OffsetForLeaderEpoch, 3, &request);
        let partition = &response.topics[0].partitions[0];
        (partition.error_code, partition.leader_epoch, partition.end_offset)
    };
    assert_eq!(ask(-1, EPOCH), (0, EPOCH, 4));
    assert_eq!(ask(EPOCH, EPOCH + 1), (0, -1, -1));
    assert_eq!(ask(EPOCH - 1, EPOCH), (74, -1, -1));
}

#[test]
fn producer_ids_are_new_each_time() {
    let bench = Bench::new("");
    let ask = |request: InitProducerIdRequest| {
        let response: InitProducerIdResponse = bench.ask(Api::InitProducerId, 3, &request);
        (response.error_code, response.producer_id.0, response.producer_epoch)
    };
    let plain = || InitProducerIdRequest::default().with_transactional_id(None);
    for expect in 0..1_001 {
        assert_eq!(ask(plain()), (0, expect, 0));
    }
    let with_id = |id: &str| plain().with_transactional_id(Some(TransactionalId(text(id))));
    assert_eq!(ask(with_id("t")), (35, -1, -1));
    assert_eq!(ask(with_id("")), (42, -1, -1));
    assert_eq!(ask(plain().with_producer_id(ProducerId(4))), (42, -1, -1));
}

#[test]
fn configurations_of_topics_and_brokers() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let ask = |kind, of: &str, keys: Option<Vec<StrBytes>>| {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(of))
            .with_configuration_keys(keys);
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .with_include_synonyms(true);
        let response: DescribeConfigsResponse = bench.ask(Api::DescribeConfigs, 4, &request);
        (response.results[0].error_code, response.results[0].configs.clone())
    };
    let (code, configs) = ask(2, "a", None);
    assert_eq!(code, 0);
    assert!(configs.len() > 20 && configs.iter().all(|config| !config.synonyms.is_empty()));
    let (_, one) = ask(2, "a", Some(vec![text("retention.ms"), text("no.such")]));
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].value, Some(text("604800000")));
    assert_eq!(one[0].config_source, 5);
    assert_eq!(ask(2, "no", None).0, 3);
    assert!(ask(4, "1", None).1.len() > 20);
    assert_eq!(ask(4, "2", None).0, 42);
    assert_eq!(ask(4, "", None), (0, vec![]));
    assert_eq!(ask(8, "1", None).0, 42);
}

#[test]
fn the_cluster_and_the_coordinators_it_lacks() {
    let bench = Bench::new("");
    let describe = |kind| -> DescribeClusterResponse {
        let request = DescribeClusterRequest::default().with_endpoint_type(kind);
        bench.ask(Api::DescribeCluster, 1, &request)
    };
    let found = describe(1);
    assert_eq!((found.error_code, found.controller_id.0, found.brokers.len()), (0, 1, 1));
    assert_eq!((describe(2).error_code, describe(3).error_code), (114, 115));
    let code = |version, kind| {
        let mut request = FindCoordinatorRequest::default();
        if version > 0 {
            request = request.with_key_type(kind);
        }
        if version >= 4 {
            request = request.with_coordinator_keys(vec![text("g")]);
        }
        let response: FindCoordinatorResponse = bench.ask(Api::FindCoordinator, version, &request);
        let one = response.coordinators.first();
        one.map_or(response.error_code, |coordinator| coordinator.error_code)
    };
    assert_eq!((code(3, 1), code(4, 1)), (35, 35));
    assert_eq!((code(5, 2), code(6, 2), code(6, 3)), (42, 35, 42));
}

#[test]
fn requests_are_counted_by_api() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    let count = bench.handlers.requests().find(|(name, _)| *name == "CreateTopics");
    assert_eq!(count, Some(("CreateTopics", 1)));
}

#[test]
fn what_is_not_a_request_closes_the_connection() {
    let bench = Bench::new("");
    for frame in [&[][..], &[0, 4, 0, 0, 0, 0, 0, 1, 0xff, 0xff], &[0; 9]] {
        let outcome = bench.handlers.call(Bytes::copy_from_slice(frame), CLIENT);
        assert!(matches!(outcome, Outcome::Close));
    }
}

/// Whatever a client asks in whatever version, what the handlers answer can be encoded.
#[test]
fn every_answer_fits_its_version() {
    let bench = Bench::new("");
    create(&bench, "a", 1);
    for api in Api::ALL.iter().copied() {
        for version in api.row().version_min..=api.row().version_max {
            for seed in 0..40 {
                let mut dice = Dice::new(seed);
                let (request, body) = samples::request(&mut dice, api, version);
                let frame = samples::frame(&mut dice, api, version, &body);
                let closes = match &request {
                    Request::Produce(produce) => produce.acks == 0,
                    _ => false,
                };
                let outcome = bench.handlers.call(frame, CLIENT);
                let replied = match outcome {
                    Outcome::Pending(Pending::Ready(_)) => true,
                    Outcome::Pending(Pending::Later(mut later)) => {
                        let first = block_on(poll_once(&mut later));
                        bench.model.advance(i64::from(i32::MAX));
                        let finish = first.or_else(|| block_on(poll_once(&mut later)));
                        matches!(finish, Some(Finish::Reply(_)))
                    }
                    Outcome::Pending(Pending::Nothing) | Outcome::Blocked(_) => false,
                    Outcome::Close => false,
                };
                assert!(replied || closes, "{api:?} v{version} seed {seed}");
            }
        }
    }
}
