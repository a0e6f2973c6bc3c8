//! Committed offsets and internal topics through their handlers, over scripted coordinators.

use super::group_tests::{
    bench, code_of, create, delete, find, id, name, scripted, text, versions,
};
use super::model::Bench;
use crate::coordinator::*;
use crate::cores::front::{CoordinatorRefusal, GroupAnswer};
use crate::protocol::api::Api;
use bytes::Bytes;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use shard::ids::{Offset, Timestamp};
use uuid::Uuid;

pub(super) fn commit_request(version: i16, topics: &[(&str, &[i32])]) -> OffsetCommitRequest {
    let partition = |index: &i32| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(*index)
            .with_committed_offset(i64::from(*index) + 100)
            .with_committed_metadata((*index > 0).then(|| text("note")));
        match version >= 6 {
            true => partition.with_committed_leader_epoch(5),
            false => partition,
        }
    };
    let topic = |(topic, partitions): &(&str, &[i32])| {
        OffsetCommitRequestTopic::default()
            .with_name(name(topic))
            .with_partitions(partitions.iter().map(partition).collect())
    };
    let mut request = OffsetCommitRequest::default()
        .with_group_id(id("g"))
        .with_generation_id_or_member_epoch(3)
        .with_member_id(text("m"))
        .with_topics(topics.iter().map(topic).collect());
    if version <= 4 {
        request = request.with_retention_time_ms(i64::from(version) * 1000);
    }
    request
}

fn commit(
    bench: &Bench,
    version: i16,
    topics: &[(&str, &[i32])],
    answers: impl IntoIterator<Item = GroupAnswer>,
) -> (OffsetCommitResponse, Vec<GroupRequest>) {
    scripted(bench, (Api::OffsetCommit, version), &commit_request(version, topics), answers)
}

pub(super) fn commit_codes(response: &OffsetCommitResponse) -> Vec<i16> {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

#[test]
fn partitions_that_are_there_are_committed_under_the_id_of_their_topic() {
    let bench = bench();
    let topic_id = create(&bench, "a", 2);
    for version in versions(Api::OffsetCommit) {
        let topics: &[(&str, &[i32])] = &[("no", &[0]), ("a", &[1, 7, 0])];
        let results = vec![Err(CommitRefusal::MetadataTooLarge), Ok(())];
        let answer = Ok(GroupOutput::Commit(Ok(results)));
        let (response, asked) = commit(&bench, version, topics, [answer]);
        assert_eq!(commit_codes(&response), [3, 12, 3, 0], "v{version}");
        let order: Vec<(&str, i32)> = response
            .topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), p.partition_index)))
            .collect();
        assert_eq!(order, [("no", 0), ("a", 1), ("a", 7), ("a", 0)]);
        let offset = |partition: i32, metadata: &str| OffsetCommit {
            topic: "a".into(),
            topic_id,
            partition,
            committed: Committed {
                offset: Offset(i64::from(partition) + 100),
                leader_epoch: if version >= 6 { 5 } else { -1 },
                metadata: metadata.into(),
                time: Timestamp(1_000),
            },
            retention_ms: (version <= 4).then(|| i64::from(version) * 1000),
        };
        let session =
            Session { group: "g".into(), member: "m".into(), instance: None, generation: 3 };
        let offsets = vec![offset(1, "note"), offset(0, "")];
        assert_eq!(asked, [GroupRequest::Commit(Commit { session, offsets })]);
    }
}

#[test]
fn a_commit_refused_as_a_whole_fails_in_each_partition() {
    let bench = bench();
    create(&bench, "a", 2);
    for version in versions(Api::OffsetCommit) {
        let unknown = if version >= 9 { 69 } else { 22 };
        for (refusal, code) in [
            (GroupRefusal::UnknownGroup, unknown),
            (GroupRefusal::IllegalGeneration, 22),
            (GroupRefusal::UnknownMember, 25),
            (GroupRefusal::RebalanceInProgress, 27),
            (GroupRefusal::FencedInstance, 82),
        ] {
            let answer = Ok(GroupOutput::Commit(Err(refusal)));
            let (response, _) = commit(&bench, version, &[("a", &[0, 9, 1])], [answer]);
            assert_eq!(commit_codes(&response), [code, 3, code], "v{version} {refusal:?}");
        }
    }
    let (response, asked) = commit(&bench, 9, &[("no", &[0]), ("a", &[])], []);
    assert_eq!((commit_codes(&response), asked.len()), (vec![3], 0));
}

fn fetched(topic: &str, topic_id: Uuid, partitions: &[(i32, Option<i64>)]) -> CommittedTopic {
    let committed = |offset: i64| Committed {
        offset: Offset(offset),
        leader_epoch: 5,
        metadata: "note".into(),
        time: Timestamp(1),
    };
    let partitions = partitions.iter().map(|(index, offset)| (*index, offset.map(committed)));
    CommittedTopic { topic: topic.into(), topic_id, partitions: partitions.collect() }
}

/// Topic, partition, offset, leader epoch, metadata, error.
type Row = (String, i32, i64, i32, String, i16);

fn rows(response: &OffsetFetchResponse) -> Vec<Row> {
    let mut rows = Vec::new();
    for topic in &response.topics {
        for p in &topic.partitions {
            let metadata = p.metadata.as_ref().map_or("null", |metadata| metadata.as_str());
            let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
            let row =
                (topic.name.to_string(), p.partition_index, offset, epoch, metadata, p.error_code);
            rows.push((row.0, row.1, row.2, row.3, row.4.to_string(), row.5));
        }
    }
    rows
}

fn row(topic: &str, partition: i32, offset: i64, epoch: i32, metadata: &str) -> Row {
    (topic.into(), partition, offset, epoch, metadata.into(), 0)
}

fn fetch_request(topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequest {
    let topic = |(topic, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopic::default()
            .with_name(name(topic))
            .with_partition_indexes(partitions.to_vec())
    };
    OffsetFetchRequest::default()
        .with_group_id(id("g"))
        .with_topics(topics.map(|topics| topics.iter().map(topic).collect()))
}

#[test]
fn offsets_come_back_in_the_order_they_were_asked_for() {
    let bench = bench();
    let topic_id = create(&bench, "a", 3);
    for version in 1..=7 {
        let request = fetch_request(Some(&[("no", &[4]), ("a", &[2, 0, 1])]));
        let answer = Ok(vec![fetched("a", topic_id, &[(0, Some(7)), (1, None), (2, Some(9))])]);
        let (response, asked): (OffsetFetchResponse, _) = scripted(
            &bench,
            (Api::OffsetFetch, version),
            &request,
            [Ok(GroupOutput::Fetch(answer))],
        );
        let epoch = if version >= 5 { 5 } else { -1 };
        let expect = [
            row("no", 4, -1, -1, ""),
            row("a", 2, 9, epoch, "note"),
            row("a", 0, 7, epoch, "note"),
            row("a", 1, -1, -1, ""),
        ];
        assert_eq!(rows(&response), expect, "v{version}");
        let wanted = WantedTopic { topic: "a".into(), topic_id, partitions: vec![2, 0, 1] };
        let fetch = FetchOffsets { group: "g".into(), member: None, topics: Some(vec![wanted]) };
        assert_eq!(asked, [GroupRequest::Fetch(fetch)]);
    }
}

#[test]
fn a_topic_named_twice_is_answered_twice() {
    let bench = bench();
    let topic_id = create(&bench, "a", 2);
    let request = fetch_request(Some(&[("a", &[1]), ("a", &[0])]));
    let found = |index, offset| fetched("a", topic_id, &[(index, Some(offset))]);
    let answer = Ok(GroupOutput::Fetch(Ok(vec![found(1, 9), found(0, 7)])));
    let (response, _): (OffsetFetchResponse, _) =
        scripted(&bench, (Api::OffsetFetch, 5), &request, [answer]);
    assert_eq!(rows(&response), [row("a", 1, 9, 5, "note"), row("a", 0, 7, 5, "note")]);
}

#[test]
fn offsets_of_a_deleted_topic_are_not_told_under_its_name() {
    let bench = bench();
    let old = create(&bench, "a", 1);
    delete(&bench, "a");
    let new = create(&bench, "a", 1);
    let other = create(&bench, "b", 1);
    assert_ne!(old, new);
    let all = |id| {
        Ok(GroupOutput::Fetch(Ok(vec![
            fetched("a", id, &[(0, Some(7)), (1, None)]),
            fetched("b", other, &[(0, None)]),
            fetched("gone", Uuid::from_u128(99), &[(0, Some(1))]),
        ])))
    };
    for version in 2..=7 {
        let ask = |topics, id| {
            let request = fetch_request(topics);
            let (response, _): (OffsetFetchResponse, _) =
                scripted(&bench, (Api::OffsetFetch, version), &request, [all(id)]);
            rows(&response)
        };
        let epoch = if version >= 5 { 5 } else { -1 };
        assert_eq!(ask(None, old), []);
        assert_eq!(ask(None, new), [row("a", 0, 7, epoch, "note")]);
        assert_eq!(ask(Some(&[("a", &[0])]), old), [row("a", 0, -1, -1, "")]);
    }
}

#[test]
fn an_error_stands_where_the_version_has_room_for_it() {
    let bench = bench();
    create(&bench, "a", 1);
    for version in 1..=7 {
        let request = fetch_request(Some(&[("a", &[0]), ("no", &[1])]));
        let (response, _): (OffsetFetchResponse, _) = scripted(
            &bench,
            (Api::OffsetFetch, version),
            &request,
            [Err(CoordinatorRefusal::Loading)],
        );
        let codes: Vec<i16> = rows(&response).iter().map(|row| row.5).collect();
        match version {
            1 => assert_eq!((codes, response.error_code), (vec![14, 14], 0)),
            _ => assert_eq!((codes, response.error_code), (vec![], 14), "v{version}"),
        }
    }
}

#[test]
fn several_groups_are_fetched_with_one_request() {
    let bench = bench();
    let topic_id = create(&bench, "a", 1);
    let wanted = |group: &str, topics: Option<&[i32]>| {
        let topics = topics.map(|partitions| {
            vec![OffsetFetchRequestTopics::default()
                .with_name(name("a"))
                .with_partition_indexes(partitions.to_vec())]
        });
        OffsetFetchRequestGroup::default().with_group_id(id(group)).with_topics(topics)
    };
    for version in [8, 9] {
        let mut groups = vec![wanted("g", None), wanted("h", Some(&[0, 1])), wanted("i", None)];
        if version >= 9 {
            groups[2] = groups[2].clone().with_member_id(Some(text("m"))).with_member_epoch(4);
        }
        let request = OffsetFetchRequest::default().with_groups(groups).with_require_stable(true);
        let answers = [
            Ok(GroupOutput::Fetch(Ok(vec![fetched("a", topic_id, &[(0, Some(7))])]))),
            Ok(GroupOutput::Fetch(Ok(vec![fetched("a", topic_id, &[(0, Some(8)), (1, None)])]))),
            Ok(GroupOutput::Fetch(Err(FetchRefusal::StaleEpoch))),
        ];
        let (response, asked): (OffsetFetchResponse, _) =
            scripted(&bench, (Api::OffsetFetch, version), &request, answers);
        let told: Vec<(&str, i16, Vec<i64>)> = response
            .groups
            .iter()
            .map(|group| {
                let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
                let offsets = partitions.map(|partition| partition.committed_offset).collect();
                (group.group_id.as_str(), group.error_code, offsets)
            })
            .collect();
        let expect = [("g", 0, vec![7]), ("h", 0, vec![8, -1]), ("i", 113, vec![])];
        assert_eq!(told, expect, "v{version}");
        let members: Vec<_> = asked
            .iter()
            .map(|request| match request {
                GroupRequest::Fetch(fetch) => fetch.member.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        let third = (version >= 9).then(|| ("m".to_string(), 4));
        assert_eq!(members, [None, None, third]);
    }
}

#[test]
fn nobody_but_the_broker_writes_to_internal_topics() {
    let bench = bench();
    for topic in ["__transaction_state", "__share_group_state"] {
        create(&bench, topic, 1);
    }
    let partition = PartitionProduceData::default().with_records(Some(Bytes::new()));
    let topic = |topic: &str| {
        TopicProduceData::default()
            .with_name(name(topic))
            .with_partition_data(vec![partition.clone()])
    };
    let topics = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_topic_data(topics.into_iter().map(topic).collect());
    let response: ProduceResponse = bench.ask(Api::Produce, 9, &request);
    let codes: Vec<i16> =
        response.responses.iter().map(|topic| topic.partition_responses[0].error_code).collect();
    assert_eq!(codes, [17; 3]);
}

#[test]
fn the_topic_of_the_groups_can_be_deleted_and_comes_back() {
    let bench = bench();
    delete(&bench, OFFSETS_TOPIC);
    assert_eq!(code_of(&bench, Api::Heartbeat), 16);
    assert_eq!(find(&bench, 3, 0, &["g"]).error_code, 0);
}
