//! What consumer groups cost: committers, heartbeats of many groups, the first record of a new one.
//!
//! Committers and heartbeating members speak the protocol themselves, one connection each, so that
//! the measured broker and not a client library is what is busy. The first record is librdkafka's.

use crate::cases::Target;
use crate::error::PerfError;
use crate::wire::{frame, Wire};
use benches::counters::cpu_seconds;
use benches::report::{Bar, Report};
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    FetchRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::time::{Duration, Instant};

const COMMITTERS: usize = 64;
pub const COMMIT_VERSION: i16 = 7;
const JOIN_VERSION: i16 = 3;
const SYNC_VERSION: i16 = 2;
const HEARTBEAT_VERSION: i16 = 2;
const OFFSET_FETCH_VERSION: i16 = 5;
const FETCH_VERSION: i16 = 4;
/// What clients do by default.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Turns in which the members' heartbeats of one interval are sent.
const TURNS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(60);

/// 64 committers, each with a commit under way all the time, under the broker's flush policy.
pub fn commits(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("commits");
    let address = &at.broker.address;
    open_groups(address)?;
    let per_second = at.with_topic(COMMITTERS as i32, "commit", |topic| {
        let mut wires = (0..COMMITTERS)
            .map(|number| Ok((Wire::to(address)?, commit(topic, number)?)))
            .collect::<Result<Vec<(Wire, Bytes)>, PerfError>>()?;
        turn_of_commits(&mut wires)?;
        let before = cpu_seconds(at.broker.pid)?;
        let started = Instant::now();
        let mut count = 0;
        while started.elapsed() < Duration::from_secs(at.scale.seconds) {
            count += turn_of_commits(&mut wires)?;
        }
        let per_second = count as f64 / started.elapsed().as_secs_f64();
        let cpu = (cpu_seconds(at.broker.pid)? - before) * 1e6 / count.max(1) as f64;
        Ok((per_second, cpu))
    })?;
    let case = "OffsetCommit, 64 committers, commit";
    report.held((case, "rate"), per_second.0, "1/s", Bar::AtLeast(20_000.0));
    report.row(case, "CPU", per_second.1, "CPU-s/M");
    Ok(report)
}

/// One commit of each committer.
fn turn_of_commits(wires: &mut [(Wire, Bytes)]) -> Result<usize, PerfError> {
    for (wire, request) in wires.iter_mut() {
        wire.send(request)?;
    }
    for (wire, _) in wires.iter_mut() {
        let answer = wire.receive::<OffsetCommitRequest>(COMMIT_VERSION)?;
        let codes = answer.topics.iter().flat_map(|topic| &topic.partitions);
        for code in codes.map(|partition| partition.error_code) {
            refuse_error("OffsetCommit", code)?;
        }
    }
    Ok(wires.len())
}

pub fn commit(topic: &str, number: usize) -> Result<Bytes, PerfError> {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(number as i32)
        .with_committed_offset(number as i64 + 1)
        .with_committed_metadata(Some(StrBytes::default()));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(&format!("committer-{number}"))))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    frame(COMMIT_VERSION, &request)
}

/// 1,000 groups of 5 members that heartbeat every 3 seconds, each on a connection of its own.
pub fn heartbeats(at: &Target<'_>) -> Result<Report, PerfError> {
    let (groups, members) = (at.scale.groups, 5);
    let mut report = Report::new("heartbeats");
    let address = &at.broker.address;
    open_groups(address)?;
    let mut all = join_all(address, groups, members)?;
    let mut turns = beat(&mut all, HEARTBEAT_INTERVAL)?;
    let before = cpu_seconds(at.broker.pid)?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(at.scale.seconds) {
        turns += beat(&mut all, HEARTBEAT_INTERVAL)?;
    }
    let took = started.elapsed().as_secs_f64();
    let share = (cpu_seconds(at.broker.pid)? - before) / took * 100.0;
    let case = format!("{groups} groups of {members} members, idle but for heartbeats");
    report.held((&case, "CPU"), share, "% of a core", Bar::AtMost(10.0));
    report.row(&case, "heartbeats", turns as f64, "");
    Ok(report)
}

/// A member and its heartbeat.
struct Member {
    wire: Wire,
    heartbeat: Bytes,
}

fn join_all(address: &str, groups: usize, members: usize) -> Result<Vec<Member>, PerfError> {
    let stamp = std::process::id();
    let group = |number: usize| format!("heartbeat-{stamp}-{}", number / members);
    let mut wires = Vec::with_capacity(groups * members);
    for number in 0..groups * members {
        let mut wire = Wire::to(address)?;
        wire.send(&frame(JOIN_VERSION, &join(&group(number)))?)?;
        wires.push(wire);
    }
    let mut joined = Vec::with_capacity(wires.len());
    for (number, wire) in wires.iter_mut().enumerate() {
        let answer = wire.receive::<JoinGroupRequest>(JOIN_VERSION)?;
        refuse_error("JoinGroup", answer.error_code)?;
        let mut sync = SyncGroupRequest::default()
            .with_group_id(GroupId(text(&group(number))))
            .with_generation_id(answer.generation_id)
            .with_member_id(answer.member_id.clone());
        if answer.leader == answer.member_id {
            let assign = |member: &StrBytes| {
                SyncGroupRequestAssignment::default()
                    .with_member_id(member.clone())
                    .with_assignment(Bytes::from_static(b"assigned"))
            };
            sync.assignments = answer.members.iter().map(|m| assign(&m.member_id)).collect();
        }
        wire.send(&frame(SYNC_VERSION, &sync)?)?;
        joined.push((answer.generation_id, answer.member_id));
    }
    let mut all = Vec::with_capacity(wires.len());
    for (number, (mut wire, (generation, member))) in wires.into_iter().zip(joined).enumerate() {
        let answer = wire.receive::<SyncGroupRequest>(SYNC_VERSION)?;
        refuse_error("SyncGroup", answer.error_code)?;
        let heartbeat = HeartbeatRequest::default()
            .with_group_id(GroupId(text(&group(number))))
            .with_generation_id(generation)
            .with_member_id(member);
        all.push(Member { wire, heartbeat: frame(HEARTBEAT_VERSION, &heartbeat)? });
    }
    Ok(all)
}

fn join(group: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(StrBytes::from_static_str("range"))
        .with_metadata(Bytes::from_static(&[0; 32]));
    JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(45_000)
        .with_rebalance_timeout_ms(60_000)
        .with_protocol_type(StrBytes::from_static_str("basalt-perf"))
        .with_protocols(vec![protocol])
}

/// One heartbeat of every member, spread over the interval; returns how many.
fn beat(all: &mut [Member], interval: Duration) -> Result<usize, PerfError> {
    let started = Instant::now();
    let share = all.len().div_ceil(TURNS).max(1);
    for (turn, members) in all.chunks_mut(share).enumerate() {
        let due = interval * turn as u32 / TURNS as u32;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        for member in members.iter_mut() {
            member.wire.send(&member.heartbeat)?;
        }
        for member in members {
            let answer = member.wire.receive::<HeartbeatRequest>(HEARTBEAT_VERSION)?;
            refuse_error("Heartbeat", answer.error_code)?;
        }
    }
    std::thread::sleep(interval.saturating_sub(started.elapsed()));
    Ok(all.len())
}

/// From joining to the first record of a new group, and to the share of its second member: on the
/// wire, where nothing but the broker takes its time, and as librdkafka's users see it.
pub fn first_record(at: &Target<'_>) -> Result<Report, PerfError> {
    let mut report = Report::new("first record");
    let address = &at.broker.address;
    open_groups(address)?;
    let (bare, first, second) = at.with_topic(2, "commit", |topic| {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", address).create()?;
        for partition in 0..2 {
            let record = BaseRecord::<(), [u8]>::to(topic).partition(partition).payload(b"x");
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(PATIENCE)?;
        let bare = first_on_the_wire(address, topic)?;
        let group = format!("first-{topic}");
        let started = Instant::now();
        let one = member(address, &group, topic)?;
        wait_until(&one, &one, || Ok(None::<()>))?;
        let first = started.elapsed();
        let started = Instant::now();
        let two = member(address, &group, topic)?;
        wait_until(&two, &one, || {
            let assigned = one.assignment()?.count() == 1 && two.assignment()?.count() == 1;
            Ok(assigned.then_some(()))
        })?;
        Ok((bare, first, started.elapsed()))
    })?;
    let bar = Bar::AtMost(3100.0);
    let case = "a new group on the wire";
    report.held((case, "join to first record"), bare.as_secs_f64() * 1e3, "ms", bar);
    let case = "a new group of librdkafka, heartbeats every 500 ms";
    report.row(case, "subscribe to first record", first.as_secs_f64() * 1e3, "ms");
    let bar = Bar::AtMost(1000.0);
    report.held((case, "second member: to its share"), second.as_secs_f64() * 1e3, "ms", bar);
    Ok(report)
}

/// From the JoinGroup of a new group's first member to a fetch's first record.
fn first_on_the_wire(address: &str, topic: &str) -> Result<Duration, PerfError> {
    let group = format!("bare-{topic}");
    let mut wire = Wire::to(address)?;
    let started = Instant::now();
    let joined = wire.ask(JOIN_VERSION, &join(&group))?;
    refuse_error("JoinGroup", joined.error_code)?;
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(joined.member_id.clone())
        .with_assignment(Bytes::from_static(b"assigned"));
    let sync = SyncGroupRequest::default()
        .with_group_id(GroupId(text(&group)))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id)
        .with_assignments(vec![assignment]);
    refuse_error("SyncGroup", wire.ask(SYNC_VERSION, &sync)?.error_code)?;
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partition_indexes(vec![0]);
    let offsets = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(&group)))
        .with_topics(Some(vec![wanted]));
    refuse_error("OffsetFetch", wire.ask(OFFSET_FETCH_VERSION, &offsets)?.error_code)?;
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let wanted =
        FetchTopic::default().with_topic(TopicName(text(topic))).with_partitions(vec![partition]);
    let fetch = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![wanted]);
    let answer = wire.ask(FETCH_VERSION, &fetch)?;
    let records = answer.responses.iter().flat_map(|topic| &topic.partitions);
    match records.filter_map(|partition| partition.records.as_ref()).any(|r| !r.is_empty()) {
        true => Ok(started.elapsed()),
        false => Err(PerfError::Answer("the first fetch brought no record".to_string())),
    }
}

fn member(address: &str, group: &str, topic: &str) -> Result<BaseConsumer, PerfError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("heartbeat.interval.ms", "500")
        .create()?;
    consumer.subscribe(&[topic])?;
    Ok(consumer)
}

/// Polls until `is_done`, or until the watched consumer has a record.
fn wait_until<T>(
    watched: &BaseConsumer,
    other: &BaseConsumer,
    is_done: impl Fn() -> Result<Option<T>, PerfError>,
) -> Result<(), PerfError> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let is_alone = std::ptr::eq(watched, other);
        if let Some(record) = watched.poll(Duration::from_millis(5)) {
            record?;
            if is_alone {
                return Ok(());
            }
        }
        if !is_alone {
            if let Some(record) = other.poll(Duration::ZERO) {
                record?;
            }
        }
        if is_done()?.is_some() {
            return Ok(());
        }
    }
    Err(PerfError::Answer("no record or no share of the partitions within a minute".to_string()))
}

/// Waits until groups have a coordinator: the first use makes its topic.
pub fn open_groups(address: &str) -> Result<(), PerfError> {
    let started = Instant::now();
    let request = FindCoordinatorRequest::default().with_key(text("any"));
    loop {
        let answer = Wire::to(address)?.ask(0, &request)?;
        if answer.error_code == 0 {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return refuse_error("FindCoordinator", answer.error_code);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn refuse_error(api: &str, code: i16) -> Result<(), PerfError> {
    match code {
        0 => Ok(()),
        code => Err(PerfError::Answer(format!("{api}: error {code}"))),
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_string())
}
