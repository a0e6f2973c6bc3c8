//! Whole cores over a simulated disk, asked through the door of the last one.

use super::catalog::CATALOG_AT;
use super::front::{
    AppendItem, AppendRefusal, AppendWait, Appending, Cores, Found, GroupItem, PartitionAt,
    PartitionRefusal, ReadData, ReadItem, ReadRequest, Slice, TimeItem, TimeTarget, TrimItem,
    Until, WatchItem,
};
use super::gate::Gate;
use super::*;
use crate::catalog::{Answer, Command, Machine, NewTopic, Record, Rules, Topic};
use crate::catalog::{TopicRef, DEFAULT_VIEW};
use crate::config::Config;
use crate::coordinator::{
    partition_of, Commit, CommitRefusal, Committed, CommittedTopic, FetchOffsets, GroupOutput,
    GroupRequest, OffsetCommit, Session, OFFSETS_TOPIC,
};
use crate::runtime::{self, Stops};
use futures_channel::oneshot;
use futures_lite::future::poll_once;
use shard::batch::{BatchBuilder, BatchHeader, NewRecord, Records};
use shard::disk::sim::{Fault, Op, Rng, SimDisk};
use shard::disk::Disk;
use shard::ids::{LeaderEpoch, LogId, Offset, Timestamp};
use shard::log::{Log, LogSettings, LogSpec, Now};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{mpsc, Arc, Mutex, OnceLock};
use std::time::Instant;
use uuid::Uuid;

fn open_logs(disk: &Arc<dyn Disk>, ids: &[LogId], settings: &LogSettings) -> Vec<(LogId, Log)> {
    ids.iter()
        .map(|id| {
            let spec = LogSpec {
                dir: format!("/data/logs/{id}").into(),
                id: *id,
                cluster: Uuid::nil(),
                run: LeaderEpoch(1),
                settings: settings.clone(),
                salvage: false,
            };
            (*id, Log::open(disk.clone(), spec, 7, Now::default()).expect("opens").0)
        })
        .collect()
}

pub type Body = Box<dyn FnOnce(Door, Gate) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Runs `body` on the last of `cores` cores, each with a log, and stops them when it is done.
fn on_cores(cores: usize, disk: &SimDisk, settings: LogSettings, body: Body) {
    let rules = TableRules {
        settings: Config::default().table_settings(),
        grace_ms: 0,
        coalesced_ms: 0,
        backlog_bytes_max: 1 << 30,
        retention_check_ms: 1_000,
    };
    on_cores_with_tables(cores, disk, (settings, rules), body);
}

/// The same with tables that are kept as said.
pub fn on_cores_with_tables(
    cores: usize,
    disk: &SimDisk,
    (settings, table_rules): (LogSettings, TableRules),
    body: Body,
) {
    // Signals are taken over once in the process.
    static STOPS: OnceLock<Mutex<Stops>> = OnceLock::new();
    let stops = STOPS.get_or_init(|| Mutex::new(Stops::new().expect("signals")));
    let started = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let ids: Vec<LogId> = (0..cores as u32).map(LogId).collect();
    let logs = open_logs(&disk, &ids, &settings);
    let (lanes, threads) = Lanes::start(ids.clone(), 1).expect("threads");
    let (lane, table_threads) = TableLane::start(1).expect("threads");
    let machine = empty_catalog(&ids);
    let image = machine.image();
    let sides = Arc::new(logs.iter().map(|(id, log)| (*id, log.sides())).collect());
    let (mut catalog, mut body, quiet) = (Some(machine), Some(body), Quiet::default());
    // Dropped when the body is done, which ends the other cores.
    let (running, mut ended): (Vec<_>, Vec<_>) =
        (1..cores).map(|_| oneshot::channel::<()>()).unzip();
    let mut running = Some(running);
    let mut starts = Vec::new();
    let (gate, gate_ends) = gate::gate(cores, image.clone(), Path::new("/data"));
    let tables = no_tables(cores, &table_rules, lane);
    let each = logs.into_iter().zip(mesh(cores)).zip(gate_ends).zip(tables);
    for ((((id, log), ends), asks), tables) in each {
        let (to_home, from_home) = home();
        let parts = CoreParts {
            id: id.0 as usize,
            cores,
            logs: vec![(id, log)],
            image: image.clone(),
            settings_of: Arc::new(|topic: &Topic| topic.settings.partition(false)),
            lanes: lanes.clone(),
            home: to_home,
            sides: Arc::clone(&sides),
            started,
            disk: disk.clone(),
            group_limits: Arc::new(Config::default().group_limits()),
            tables,
            shown: gate.shown(),
        };
        let gate = gate.clone();
        let (catalog, quiet) = (catalog.take(), quiet.clone());
        let last = starts.len() + 1 == cores;
        let work = if last { body.take().zip(running.take()) } else { None };
        let over = ended.pop();
        starts.push(move || async move {
            let core = Core::new(parts, catalog);
            let life = Life::begin(core.clone(), (ends, asks), from_home, || true).await;
            if let Some((body, running)) = work {
                body(Door(core), gate).await;
                drop(running);
            } else if let Some(over) = over {
                let _: Result<(), _> = over.await;
            }
            life.end(quiet).await;
        });
    }
    drop(lanes);
    let stops = stops.lock().expect("no test panics while it starts cores");
    let cores = runtime::start(starts, false, &stops).expect("executors");
    drop(stops);
    cores.join().expect("no core died");
    threads.join();
    table_threads.join();
}

fn empty_catalog(logs: &[LogId]) -> Machine {
    let rules = Rules {
        config: Arc::new(Config::default()),
        logs: logs.iter().map(|id| id.0).collect(),
        brokers: vec![1],
    };
    Machine::new(rules).expect("the defaults are right")
}

/// What cores of a broker without any table start with.
fn no_tables(cores: usize, rules: &TableRules, lane: TableLane) -> Vec<TableParts> {
    let throttle = Throttle::new(cores);
    let parts = |_| TableParts {
        manifests: Vec::new(),
        versions: Vec::new(),
        data: "/data".into(),
        rules: rules.clone(),
        lane: lane.clone(),
        throttle: throttle.clone(),
    };
    (0..cores).map(parts).collect()
}

fn body<F: Future<Output = ()> + 'static>(run: impl FnOnce(Door) -> F + Send + 'static) -> Body {
    Box::new(move |door, _| Box::pin(run(door)))
}

pub async fn create(door: &Door, name: &str, partitions: i32) -> Arc<Topic> {
    create_with(door, name, partitions, &[]).await
}

async fn create_with(
    door: &Door,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Arc<Topic> {
    let configs = configs.iter().map(|(key, value)| (key.to_string(), Some(value.to_string())));
    let topic = NewTopic {
        name: name.into(),
        partitions,
        replication_factor: -1,
        configs: configs.collect(),
        ..NewTopic::default()
    };
    let (view, validate_only) = (DEFAULT_VIEW, false);
    let command = Command::CreateTopics { view, topics: vec![topic], validate_only };
    let answer = door.catalog(command).await.expect("the catalogue works");
    assert!(matches!(&answer, Answer::Created(topics) if topics[0].result.is_ok()), "{answer:?}");
    door.image().by_name(DEFAULT_VIEW, name).expect("seen here").clone()
}

pub fn at(topic: &Topic, partition: i32) -> PartitionAt {
    let log = topic.log_of(partition).expect("it has this partition");
    PartitionAt { log, key: topic.key(partition) }
}

pub fn item(door: &Door, at: PartitionAt, value_bytes: usize) -> AppendItem {
    let value = vec![b'x'; value_bytes];
    let timestamp = door.now();
    let mut batch = BatchBuilder::new();
    batch.push(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() });
    let image = door.image();
    let topic = image.by_id(at.key.view, at.key.topic).expect("there");
    let rules = topic.settings.rules(Config::default().decompression_limits(), true);
    AppendItem { at, records: batch.build().into(), rules }
}

pub type Answers = Vec<Result<front::Appended, AppendRefusal>>;

pub async fn all(appending: Appending) -> Answers {
    match appending {
        Appending::Taken(answers) => answers.await,
        Appending::Blocked(taken) => taken.await.await,
    }
}

pub const COMMITTED: AppendWait = AppendWait::Committed { timeout_ms: 20_000 };

fn read(at: PartitionAt, from: i64) -> ReadRequest {
    let item = ReadItem { at, from: Offset(from), bytes_max: 1 << 20 };
    ReadRequest { items: vec![item], bytes_max: 1 << 20, until: Until::HighWatermark }
}

#[test]
fn a_door_serves_partitions_of_its_own_and_of_other_cores_alike() {
    let disk = SimDisk::new(1);
    on_cores(
        2,
        &disk,
        LogSettings::default(),
        body(|door| async move {
            let topic = create(&door, "t", 2).await;
            let (one, other) = (at(&topic, 0), at(&topic, 1));
            assert_ne!(one.log, other.log);
            for base in 0..3 {
                let items = [other, one, other].map(|at| item(&door, at, 100)).to_vec();
                let bases: Vec<i64> = all(door.append(items, COMMITTED))
                    .await
                    .into_iter()
                    .map(|answer| answer.expect("appended").base_offset.0)
                    .collect();
                assert_eq!(bases, [2 * base, base, 2 * base + 1]);
            }
            for (at, end) in [(one, 3), (other, 6)] {
                let offsets = door.offsets(vec![at]).await.remove(0).expect("known");
                assert_eq!((offsets.log_start.0, offsets.high_watermark.0), (0, end));
                let data = door.read(read(at, 1)).await.remove(0).expect("in range");
                assert_eq!(data.slices.len() as i64, end - 1);
                let beyond = door.read(read(at, end + 1)).await.remove(0);
                assert_eq!(beyond.err(), Some(PartitionRefusal::OutOfRange));
                let found = door.find_time(vec![TimeItem {
                    at,
                    target: TimeTarget::AtOrAfter(Timestamp(0)),
                    until: Until::HighWatermark,
                }]);
                let found = found.await.remove(0).expect("known");
                assert!(matches!(found, Some(Found { offset: Offset(0), .. })), "{found:?}");
                let epoch = door.end_of_epoch(vec![(at, LeaderEpoch(1))]).await.remove(0);
                assert_eq!(epoch, Ok(Some((LeaderEpoch(1), Offset(end)))));
            }
        }),
    );
}

#[test]
fn a_long_poll_wakes_when_any_partition_grows_or_goes() {
    let disk = SimDisk::new(2);
    on_cores(
        2,
        &disk,
        LogSettings::default(),
        body(|door| async move {
            let topic = create(&door, "t", 2).await;
            let places = [at(&topic, 0), at(&topic, 1)];
            let watch = |seen: [i64; 2]| {
                let items = places.iter().zip(seen);
                let items = items.map(|(at, seen)| WatchItem {
                    at: *at,
                    seen: Offset(seen),
                    until: Until::HighWatermark,
                });
                door.watch(items.collect())
            };
            for (grows, seen) in [(0, [0, 0]), (1, [1, 0])] {
                let mut waiting = watch(seen);
                assert!(poll_once(&mut waiting).await.is_none());
                let appended =
                    all(door.append(vec![item(&door, places[grows], 10)], COMMITTED)).await;
                assert!(appended[0].is_ok());
                waiting.await;
            }
            watch([0, 1]).await;
            let waiting = watch([1, 1]);
            let topics = vec![TopicRef::Name("t".into())];
            let command = Command::DeleteTopics { view: DEFAULT_VIEW, topics };
            door.catalog(command).await.expect("the catalogue works");
            waiting.await;
            let gone = door.offsets(places.to_vec()).await;
            assert!(gone.iter().all(|answer| *answer == Err(PartitionRefusal::Unknown)));
        }),
    );
}

#[test]
fn a_trim_is_on_stable_storage_when_it_is_answered_whatever_the_flush_policy() {
    let disk = SimDisk::new(6);
    let powered = disk.clone();
    let (lost_power, crashes) = mpsc::channel();
    // No sync but one that somebody waits for.
    let settings = LogSettings { background_sync_ms: 3_600_000, ..LogSettings::default() };
    let run = body(|door| async move {
        let topic = create_with(&door, "t", 2, &[("flush", "os")]).await;
        for at in [at(&topic, 0), at(&topic, 1)] {
            for _ in 0..4 {
                assert!(all(door.append(vec![item(&door, at, 10)], COMMITTED)).await[0].is_ok());
            }
            let trim = |below: Option<i64>| {
                door.trim(vec![TrimItem { at, below: below.map(Offset) }], 20_000)
            };
            assert_eq!(trim(Some(3)).await, [Ok(Offset(3))]);
            assert_eq!(trim(Some(1)).await, [Ok(Offset(3))], "it never goes down");
            let above = AppendRefusal::AboveHighWatermark(Offset(4));
            assert_eq!(trim(Some(5)).await, [Err(above)]);
            let offsets = door.offsets(vec![at]).await.remove(0).expect("known");
            assert_eq!((offsets.log_start.0, offsets.high_watermark.0), (3, 4));
            assert!(all(door.append(vec![item(&door, at, 10)], COMMITTED)).await[0].is_ok());
            assert_eq!(trim(None).await, [Ok(Offset(5))]);
        }
        // What no sync covers may be gone now, by chance.
        for seed in 0..8 {
            lost_power.send(powered.fork().crash(&mut Rng::new(seed))).expect("the test waits");
        }
    });
    on_cores(2, &disk, settings.clone(), run);
    for crashed in crashes {
        let disk: Arc<dyn Disk> = Arc::new(crashed);
        for (_, log) in open_logs(&disk, &[LogId(0), LogId(1)], &settings) {
            let of_topic = log.partitions().filter(|(_, key)| *key != CATALOG_AT.key);
            let starts = of_topic.filter_map(|(id, _)| log.offsets(id));
            assert_eq!(starts.map(|offsets| offsets.log_start.0).collect::<Vec<_>>(), [5]);
        }
    }
}

#[test]
fn a_busy_log_takes_all_appends_in_their_order() {
    let settings = LogSettings { unsynced_bytes_max: 64 << 10, ..LogSettings::default() };
    let disk = SimDisk::new(3);
    on_cores(
        2,
        &disk,
        settings,
        body(|door| async move {
            let topic = create(&door, "t", 2).await;
            for at in [at(&topic, 0), at(&topic, 1)] {
                let mut blocked = 0;
                let appends: Vec<Appending> = (0..40)
                    .map(|_| door.append(vec![item(&door, at, 10_000)], COMMITTED))
                    .inspect(|append| {
                        blocked += usize::from(matches!(append, Appending::Blocked(_)))
                    })
                    .collect();
                let here = door.0.owner(at.log) == door.0.id();
                assert_eq!(blocked > 10, here, "{blocked} of 40 appends were held back");
                for (base, append) in appends.into_iter().enumerate() {
                    let answer = all(append).await.remove(0).expect("appended");
                    assert_eq!(answer.base_offset.0, base as i64);
                }
            }
        }),
    );
}

#[test]
fn old_records_are_cut_short_when_a_core_holds_many_and_nobody_waits() {
    let disk = SimDisk::new(7);
    let settings = LogSettings {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        warm_bytes: 0,
        ..LogSettings::default()
    };
    let run = body(|door| async move {
        let topic = create(&door, "t", 1).await;
        let at = at(&topic, 0);
        for _ in 0..40 {
            assert!(all(door.append(vec![item(&door, at, 9_000)], COMMITTED)).await[0].is_ok());
        }
        let read = async |from| {
            let data = door.read(read(at, from)).await.remove(0).expect("in range");
            assert!(data.slices.iter().all(|slice| matches!(slice, Slice::Cold(_))), "warm");
            data
        };
        let bytes = |data: &ReadData| data.slices.iter().map(Slice::len).sum::<usize>();
        // A segment's worth, with room for nearly two.
        let whole = bytes(&read(0).await);
        assert!(whole > 40_000, "{whole}");
        door.0.cold.set_max(whole * 2 - 10_000);
        let kept = [read(0).await, read(0).await];
        assert_eq!(bytes(&kept[0]), whole);
        let cut = bytes(&kept[1]);
        assert!((1..whole).contains(&cut), "{cut} of {whole}");
        for from in 0..3 {
            let one = read(from).await;
            assert!((9_000..18_000).contains(&bytes(&one)), "a batch at least");
        }
        drop(kept);
        assert_eq!(bytes(&read(0).await), whole);
    });
    on_cores(1, &disk, settings, run);
}

#[test]
fn a_failed_sync_fails_those_who_wait_and_leaves_committed_records_readable() {
    let disk = SimDisk::new(4);
    let faulty = disk.clone();
    on_cores(
        1,
        &disk,
        LogSettings::default(),
        body(|door| async move {
            let topic = create(&door, "t", 1).await;
            let at = at(&topic, 0);
            let append = |bytes| door.append(vec![item(&door, at, bytes)], COMMITTED);
            assert!(all(append(10)).await[0].is_ok());
            faulty.inject(Fault::Fail { op: Op::SyncMap, after: 0, errno: 5 });
            let waiting = [append(20), append(30)];
            for append in waiting {
                assert_eq!(all(append).await, [Err(AppendRefusal::LogFailed)]);
            }
            assert_eq!(all(append(40)).await, [Err(AppendRefusal::LogFailed)]);
            let data = door.read(read(at, 0)).await.remove(0).expect("readable");
            assert_eq!((data.slices.len(), data.offsets.high_watermark.0), (1, 1));
            assert!(door.0.counts().logs[0].failed);
            let command = Command::TakeProducerIds { count: 1 };
            assert!(door.catalog(command).await.is_err());
        }),
    );
}

#[test]
fn no_append_is_forgotten_while_a_busy_task_keeps_the_core_awake() {
    let disk = SimDisk::new(5);
    let run = body(|door| async move {
        let topic = create(&door, "t", 1).await;
        let at = at(&topic, 0);
        let busy = {
            let door = door.clone();
            runtime::Background::spawn(async move {
                loop {
                    all(door.append(vec![item(&door, at, 10)], AppendWait::Appended)).await;
                    futures_lite::future::yield_now().await;
                }
            })
        };
        for _ in 0..10 {
            let started = Instant::now();
            assert!(all(door.append(vec![item(&door, at, 10)], COMMITTED)).await[0].is_ok());
            let took = started.elapsed();
            assert!(took.as_secs() < 2, "an append waited for {took:?}");
        }
        busy.stop().await;
    });
    on_cores(1, &disk, LogSettings::default(), run);
}

/// Asks the coordinator of a group, wherever it is.
async fn ask_group(door: &Door, request: GroupRequest) -> GroupOutput {
    let topic = door.image().by_name(DEFAULT_VIEW, OFFSETS_TOPIC).expect("opened").clone();
    let group = request.group().expect("a request to one group").to_string();
    let at = at(&topic, partition_of(&group, topic.partitions()));
    let answers = door.groups(vec![GroupItem { at, request }]).await;
    answers.into_iter().next().expect("one answer").expect("the coordinator answers")
}

fn commit(group: &str, topic: &Topic, offset: i64) -> GroupRequest {
    let committed = Committed {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
        time: Timestamp(0),
    };
    let offset = OffsetCommit {
        topic: topic.name.to_string(),
        topic_id: topic.id,
        partition: 0,
        committed,
        retention_ms: None,
    };
    let session = Session { group: group.to_string(), generation: -1, ..Session::default() };
    GroupRequest::Commit(Commit { session, offsets: vec![offset] })
}

async fn all_committed(door: &Door, group: &str) -> Vec<CommittedTopic> {
    let fetch = FetchOffsets { group: group.to_string(), member: None, topics: None };
    match ask_group(door, GroupRequest::Fetch(fetch)).await {
        GroupOutput::Fetch(Ok(topics)) => topics,
        other => panic!("{other:?}"),
    }
}

/// The tombstones that a start would find in the catalogue now.
async fn tombstones(door: &Door, disk: &SimDisk) -> usize {
    let config = Arc::new(Config::default());
    let rules = Rules { config, logs: vec![0, 1], brokers: vec![1] };
    let mut machine = Machine::new(rules).expect("the defaults are right");
    let offsets = door.offsets(vec![CATALOG_AT]).await;
    let mut from = offsets[0].as_ref().expect("it is there").log_start.0;
    loop {
        let data = door.read(read(CATALOG_AT, from)).await;
        let mut bytes = Vec::new();
        for slice in &data[0].as_ref().expect("readable").slices {
            match slice {
                front::Slice::Cold(cold) => bytes.extend_from_slice(cold),
                front::Slice::Warm(warm) => {
                    let (path, at) = warm.place();
                    let from = bytes.len();
                    bytes.resize(from + warm.len(), 0);
                    let file = disk.open(path).expect("there");
                    assert_eq!(file.read_at(at, &mut bytes[from..]).unwrap(), warm.len());
                }
            }
        }
        let mut rest = &bytes[..];
        if rest.is_empty() {
            return (0..2).map(|log| machine.unpurged(LogId(log)).count()).sum();
        }
        while !rest.is_empty() {
            let (header, body, behind) = BatchHeader::split(rest).expect("whole");
            for record in Records::new(body, header.record_count) {
                let value = record.expect("whole").value.expect("a record");
                machine.replay(&Record::from_bytes(value).expect("a record of ours"));
            }
            (from, rest) = (header.end_offset().0, behind);
        }
    }
}

#[test]
fn coordinators_live_with_their_partitions_and_forget_topics_that_go() {
    let run = body(|door| async move {
        let opened = door.catalog(Command::OpenGroups { view: DEFAULT_VIEW }).await;
        assert_eq!(opened, Ok(Answer::GroupsOpened(Ok(()))));
        let (goes, stays) = (create(&door, "goes", 1).await, create(&door, "stays", 1).await);
        let groups: Vec<String> = (0..20).map(|number| format!("group-{number}")).collect();
        for group in &groups {
            for topic in [&goes, &stays] {
                let outcome = ask_group(&door, commit(group, topic, 7)).await;
                assert_eq!(outcome, GroupOutput::Commit(Ok(vec![Ok(())])));
            }
        }
        let command = Command::DeleteTopics {
            view: DEFAULT_VIEW,
            topics: vec![TopicRef::Name("goes".to_string())],
        };
        door.catalog(command).await.expect("the catalogue works");
        let again = create(&door, "goes", 1).await;
        for group in &groups {
            let left = all_committed(&door, group).await;
            assert_eq!(left.len(), 1, "{left:?}");
            assert_eq!(left[0].topic_id, stays.id);
            // Looked up before the deletion, taken after it.
            let mut late = commit(group, &stays, 8);
            let GroupRequest::Commit(both) = &mut late else { unreachable!() };
            let GroupRequest::Commit(dead) = commit(group, &goes, 9) else { unreachable!() };
            both.offsets.splice(0..0, dead.offsets);
            let outcome = ask_group(&door, late).await;
            let expect = vec![Err(CommitRefusal::UnknownTopic), Ok(())];
            assert_eq!(outcome, GroupOutput::Commit(Ok(expect)));
        }
        assert_ne!(again.id, goes.id);
    });
    on_cores(2, &SimDisk::new(11), LogSettings::default(), run);
}

#[test]
fn a_core_ends_with_a_machine_that_never_gets_any_further() {
    let (answers, answer) = oneshot::channel::<()>();
    let run = body(|door| async move {
        let held = door.0.clone();
        door.0.spawn(Box::pin(async move {
            let _: Result<(), _> = answer.await;
            drop(held);
        }));
        futures_lite::future::yield_now().await;
    });
    // The threads of the cores' work end when no core is left: this would wait for ever.
    on_cores(1, &SimDisk::new(12), LogSettings::default(), run);
    assert!(answers.is_canceled());
}

#[test]
fn a_segment_that_goes_while_it_is_read_is_read_where_its_records_are_now() {
    let settings =
        LogSettings { segment_bytes_min: 64 << 10, warm_bytes: 0, ..LogSettings::default() };
    let disk = SimDisk::new(13);
    let faulty = disk.clone();
    let run = body(|door| async move {
        let topic = create(&door, "t", 1).await;
        let at = at(&topic, 0);
        for _ in 0..10 {
            assert!(all(door.append(vec![item(&door, at, 10_000)], COMMITTED)).await[0].is_ok());
        }
        // The file is gone at the first try and still when it is looked for, as when its last
        // batches were carried on.
        let gone = || {
            for after in [0, 1] {
                faulty.inject(Fault::Fail { op: Op::Open, after, errno: 2 });
            }
        };
        gone();
        let data = door.read(read(at, 0)).await.remove(0).expect("readable");
        assert!(matches!(data.slices[..], [front::Slice::Cold(_)]));
        gone();
        let chunk = door.0.read_internal(at, None).await.expect("readable");
        assert!(!chunk.bytes.is_empty());
    });
    on_cores(1, &disk, settings, run);
}

#[test]
fn a_tombstone_goes_when_no_log_holds_anything_of_the_topic() {
    let disk = SimDisk::new(6);
    let settings = LogSettings {
        segment_bytes_min: 128 << 10,
        segment_bytes_max: 128 << 10,
        retention_check_ms: 1,
        ..LogSettings::default()
    };
    let seen = disk.clone();
    let run = body(|door| async move {
        let goes = create(&door, "goes", 2).await;
        let stays = create_with(&door, "stays", 2, &[("retention.bytes", "100000")]).await;
        let items = |topic: &Topic, bytes| -> Vec<AppendItem> {
            (0..2).map(|partition| item(&door, at(topic, partition), bytes)).collect()
        };
        let put = async |topic: &Topic, bytes| {
            let answers = all(door.append(items(topic, bytes), COMMITTED)).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        };
        put(&goes, 10).await;
        let (view, topics) = (DEFAULT_VIEW, vec![TopicRef::Name("goes".into())]);
        let deleted = door.catalog(Command::DeleteTopics { view, topics }).await;
        assert!(matches!(deleted, Ok(Answer::Deleted(_))), "{deleted:?}");
        assert_eq!(tombstones(&door, &seen).await, 2, "one for each log");
        for round in 0..3_000 {
            put(&stays, 4_000).await;
            if round % 50 == 0 && tombstones(&door, &seen).await == 0 {
                return;
            }
        }
        panic!("the tombstones stay");
    });
    on_cores(2, &disk, settings, run);
}
