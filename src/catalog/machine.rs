//! The catalogue's state and its two moves: `decide` looks, `replay` changes.
//!
//! The shell on core 0 has it decide on a command, appends the records to the catalogue's
//! partition, replays them, waits for the commit, publishes the next picture and sends the reply.
//! At start it replays what the partition holds. Two commands are never decided on the same state:
//! the records of the first are replayed before the second is decided on.

use super::create::{self, CreateOutcome, CreateRefusal, Creation, NewTopic};
use super::delete::{self, DeleteOutcome, TopicRef};
use super::image::{CatalogImage, Topic};
use super::name;
use super::record::{Record, TopicRecord};
use crate::config::topic::{InvalidConfig, Overrides, TopicSettings};
use crate::config::Config;
use crate::coordinator::OFFSETS_TOPIC;
use shard::ids::{LogId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// What the configuration and the data directory say; fixed while the broker runs.
#[derive(Clone, Debug)]
pub struct Rules {
    pub config: Arc<Config>,
    /// Logs that take new partitions; at least one.
    pub logs: Vec<u32>,
    /// Broker ids clients may name in assignments.
    pub brokers: Vec<i32>,
}

/// What a core asks of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    CreateTopics {
        view: u32,
        topics: Vec<NewTopic>,
        validate_only: bool,
    },
    DeleteTopics {
        view: u32,
        topics: Vec<TopicRef>,
    },
    /// Creates `__consumer_offsets` unless it is there.
    OpenGroups {
        view: u32,
    },
    /// A block of producer ids for one core to hand out.
    TakeProducerIds {
        count: u32,
    },
    /// A log holds nothing of these deleted topics any more.
    Purged {
        log: LogId,
        topics: Vec<Uuid>,
    },
}

impl Command {
    /// How many fresh ids `decide` needs.
    pub fn fresh_ids(&self) -> usize {
        match self {
            Command::CreateTopics { topics, .. } => topics.len(),
            Command::OpenGroups { .. } => 1,
            Command::DeleteTopics { .. }
            | Command::TakeProducerIds { .. }
            | Command::Purged { .. } => 0,
        }
    }
}

/// What a command is answered with, once its records have committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Created(Vec<CreateOutcome>),
    Deleted(Vec<DeleteOutcome>),
    GroupsOpened(Result<(), CreateRefusal>),
    ProducerIds(Range<i64>),
    Purged,
}

/// A decision: what to append, and what to answer then.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub records: Vec<Record>,
    pub answer: Answer,
}

/// The whole state of the catalogue.
#[derive(Clone, Debug)]
pub struct Machine {
    rules: Rules,
    /// The settings of a topic that says nothing of itself.
    defaults: Arc<TopicSettings>,
    image: CatalogImage,
    /// (view, collision form) to the name of a topic that has it.
    forms: BTreeMap<(u32, String), String>,
    /// Partitions on each log, of topics that are there.
    load: BTreeMap<u32, usize>,
    tombstones: BTreeMap<Uuid, Tombstone>,
    next_producer_id: i64,
    pub(super) unpublished: Unpublished,
}

/// What replay has changed and the shell has not been told.
#[derive(Clone, Debug, Default)]
pub(super) struct Unpublished {
    pub topics: bool,
    pub removed: Vec<Arc<Topic>>,
}

/// A deleted topic some logs still hold frames of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tombstone {
    view: u32,
    logs: BTreeSet<u32>,
    deleted_ms: i64,
}

impl Machine {
    /// Fails when the broker's defaults for topics contradict one another.
    pub fn new(rules: Rules) -> Result<Machine, InvalidConfig> {
        let defaults = TopicSettings::resolve(&Overrides::new(), &rules.config)?;
        Ok(Machine {
            rules,
            defaults: Arc::new(defaults),
            image: CatalogImage::default(),
            forms: BTreeMap::new(),
            load: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            next_producer_id: 0,
            unpublished: Unpublished::default(),
        })
    }

    /// A machine of the same rules without a topic.
    pub fn emptied(&self) -> Machine {
        Machine {
            rules: self.rules.clone(),
            defaults: self.defaults.clone(),
            image: CatalogImage::default(),
            forms: BTreeMap::new(),
            load: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            next_producer_id: 0,
            unpublished: Unpublished::default(),
        }
    }

    /// Lets all pictures to come be newer than one that was published: a catalogue that is read
    /// anew, after it was rewritten, has seen fewer records.
    pub fn behind(mut self, published: &CatalogImage) -> Machine {
        self.image.version = self.image.version.max(published.version);
        self
    }

    /// The picture to publish.
    pub fn image(&self) -> Arc<CatalogImage> {
        Arc::new(self.image.clone())
    }

    /// Deleted topics `log` may still hold frames of.
    pub fn unpurged(&self, log: LogId) -> impl Iterator<Item = Uuid> + '_ {
        let holds = move |tombstone: &Tombstone| tombstone.logs.contains(&log.0);
        self.tombstones.iter().filter(move |(_, t)| holds(t)).map(|(id, _)| *id)
    }

    /// Decides on a command. `ids` are `command.fresh_ids()` ids nobody has used.
    pub fn decide(&self, command: &Command, now: Timestamp, ids: &[Uuid]) -> Decision {
        match command {
            Command::CreateTopics { view, topics, validate_only } => {
                let (topics, outcomes) = create::create(&self.creation(*view, now), topics, ids);
                let records = topics.into_iter().filter(|_| !validate_only).map(Record::Topic);
                Decision { records: records.collect(), answer: Answer::Created(outcomes) }
            }
            Command::OpenGroups { view } => self.open_groups(*view, now, ids),
            Command::DeleteTopics { view, topics } => {
                let (gone, outcomes) = delete::delete(*view, &self.image, topics);
                let records = gone.iter().map(|topic| deleted_record(topic, now)).collect();
                Decision { records, answer: Answer::Deleted(outcomes) }
            }
            Command::TakeProducerIds { count } => {
                let next = self.next_producer_id.saturating_add(i64::from(*count));
                let answer = Answer::ProducerIds(self.next_producer_id..next);
                Decision { records: vec![Record::ProducerIds { next }], answer }
            }
            Command::Purged { log, topics } => {
                let holds = |id: &&Uuid| {
                    self.tombstones.get(id).is_some_and(|stone| stone.logs.contains(&log.0))
                };
                let purged = |id: &Uuid| Record::TopicPurged { id: *id, log: log.0 };
                let records = topics.iter().filter(holds).map(purged).collect();
                Decision { records, answer: Answer::Purged }
            }
        }
    }

    fn creation(&self, view: u32, now: Timestamp) -> Creation<'_> {
        Creation {
            view,
            image: &self.image,
            forms: &self.forms,
            rules: &self.rules,
            load: &self.load,
            now_ms: now.0,
        }
    }

    /// The topic of the groups is made at their first use. It may pass the limit on partitions no
    /// more than any other.
    fn open_groups(&self, view: u32, now: Timestamp, ids: &[Uuid]) -> Decision {
        let topic = NewTopic {
            name: OFFSETS_TOPIC.to_string(),
            partitions: self.rules.config.offsets_topic_num_partitions,
            replication_factor: -1,
            configs: vec![("cleanup.policy".to_string(), Some("compact".to_string()))],
            ..NewTopic::default()
        };
        let (topics, mut outcomes) = create::create(&self.creation(view, now), &[topic], ids);
        let result = match outcomes.pop().map(|outcome| outcome.result) {
            Some(Err(CreateRefusal::Exists { .. }) | Ok(_)) | None => Ok(()),
            Some(Err(refusal)) => Err(refusal),
        };
        let records = topics.into_iter().map(Record::Topic).collect();
        Decision { records, answer: Answer::GroupsOpened(result) }
    }

    /// Applies a record: the one way state changes. Replaying a record again changes nothing.
    pub fn replay(&mut self, record: &Record) {
        match record {
            Record::Topic(topic) => self.add(topic),
            Record::TopicDeleted { view, id, logs, deleted_ms } => {
                self.drop_topic(*id);
                if !logs.is_empty() {
                    let logs = logs.iter().copied().collect();
                    let stone = Tombstone { view: *view, logs, deleted_ms: *deleted_ms };
                    self.tombstones.insert(*id, stone);
                }
            }
            Record::TopicPurged { id, log } => {
                if let Some(stone) = self.tombstones.get_mut(id) {
                    stone.logs.remove(log);
                    if stone.logs.is_empty() {
                        self.tombstones.remove(id);
                    }
                }
            }
            Record::ProducerIds { next } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
        }
        self.image.version += 1;
    }

    /// The records that make the present state, to rewrite the catalogue's partition with.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut topics: Vec<&Arc<Topic>> = self.image.every_topic().collect();
        topics.sort_by_key(|topic| (topic.created_ms, topic.id));
        let stone = |(id, stone): (&Uuid, &Tombstone)| Record::TopicDeleted {
            view: stone.view,
            id: *id,
            logs: stone.logs.iter().copied().collect(),
            deleted_ms: stone.deleted_ms,
        };
        let mut records = vec![Record::ProducerIds { next: self.next_producer_id }];
        records.extend(self.tombstones.iter().map(stone));
        records.extend(topics.into_iter().map(|topic| Record::Topic(topic_record(topic))));
        records
    }

    fn add(&mut self, topic: &TopicRecord) {
        if self.image.by_id(topic.view, topic.id).is_some() {
            return;
        }
        self.unpublished.topics = true;
        for log in &topic.logs {
            *self.load.entry(*log).or_default() += 1;
        }
        if let Some(form) = name::collision_form(&topic.name) {
            self.forms.insert((topic.view, form), topic.name.clone());
        }
        self.image.insert(Topic {
            view: topic.view,
            id: topic.id,
            name: topic.name.as_str().into(),
            logs: topic.logs.iter().copied().map(LogId).collect(),
            configs: topic.configs.clone(),
            settings: self.settings(&topic.configs),
            created_ms: topic.created_ms,
        });
    }

    /// A setting that was checked when it was given may contradict a broker that was configured
    /// anew since; the topic then follows the broker.
    fn settings(&self, overrides: &Overrides) -> Arc<TopicSettings> {
        if overrides.is_empty() {
            return self.defaults.clone();
        }
        match TopicSettings::resolve(overrides, &self.rules.config) {
            Ok(settings) => Arc::new(settings),
            Err(_) => self.defaults.clone(),
        }
    }

    fn drop_topic(&mut self, id: Uuid) {
        let Some(topic) = self.image.remove(id) else { return };
        self.unpublished.topics = true;
        self.unpublished.removed.push(topic.clone());
        for log in &topic.logs {
            if let Some(count) = self.load.get_mut(&log.0) {
                *count -= 1;
            }
        }
        if let Some(form) = name::collision_form(&topic.name) {
            self.forms.remove(&(topic.view, form));
        }
    }
}

fn topic_record(topic: &Topic) -> TopicRecord {
    TopicRecord {
        view: topic.view,
        id: topic.id,
        name: topic.name.to_string(),
        logs: topic.logs.iter().map(|log| log.0).collect(),
        configs: topic.configs.clone(),
        created_ms: topic.created_ms,
    }
}

fn deleted_record(topic: &Topic, now: Timestamp) -> Record {
    let logs: BTreeSet<u32> = topic.logs.iter().map(|log| log.0).collect();
    Record::TopicDeleted {
        view: topic.view,
        id: topic.id,
        logs: logs.into_iter().collect(),
        deleted_ms: now.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::create::{CreateRefusal, Created};
    use crate::catalog::delete::DeleteRefusal;
    use std::path::Path;

    #[test]
    fn a_catalogue_that_is_read_anew_publishes_newer_pictures() {
        let mut script = Script::new();
        for number in 0..4 {
            script.create(vec![topic(&format!("t{number}"))]);
        }
        script.delete(&(0..3).map(|n| TopicRef::Name(format!("t{n}"))).collect::<Vec<_>>());
        let published = script.machine.image();
        let mut again = script.machine.emptied().behind(&published);
        script.machine.snapshot().iter().for_each(|record| again.replay(record));
        assert!(again.image().version > published.version);
        assert!(again.image().by_name(0, "t3").is_some());
    }

    struct Script {
        machine: Machine,
        ids: u128,
    }

    impl Script {
        fn new() -> Script {
            let text = "num.partitions = 3\ntopic.partitions.max = 10\npartitions.max = 20";
            let config = Config::from_toml(Path::new("test"), text).unwrap();
            let rules = Rules { config: Arc::new(config), logs: vec![0, 1], brokers: vec![1] };
            Script { machine: Machine::new(rules).unwrap(), ids: 0 }
        }

        fn run(&mut self, command: Command) -> Answer {
            let ids: Vec<Uuid> = (0..command.fresh_ids())
                .map(|_| {
                    self.ids += 1;
                    Uuid::from_u128(self.ids)
                })
                .collect();
            let step = self.machine.decide(&command, Timestamp(7), &ids);
            for record in &step.records {
                let bytes = record.to_bytes();
                self.machine.replay(&Record::from_bytes(&bytes).unwrap());
            }
            step.answer
        }

        fn create(&mut self, topics: Vec<NewTopic>) -> Vec<Result<Created, CreateRefusal>> {
            let command = Command::CreateTopics { view: 0, topics, validate_only: false };
            let Answer::Created(outcomes) = self.run(command) else { panic!("other answer") };
            outcomes.into_iter().map(|outcome| outcome.result).collect()
        }

        fn delete(&mut self, topics: &[TopicRef]) -> Vec<Result<String, DeleteRefusal>> {
            let command = Command::DeleteTopics { view: 0, topics: topics.to_vec() };
            let Answer::Deleted(outcomes) = self.run(command) else { panic!("other answer") };
            let name = |outcome: DeleteOutcome| outcome.result.map(|gone| gone.name.to_string());
            outcomes.into_iter().map(name).collect()
        }
    }

    fn topic(name: &str) -> NewTopic {
        NewTopic { name: name.into(), partitions: -1, replication_factor: -1, ..Default::default() }
    }

    #[test]
    fn what_create_topics_refuses() {
        let mut script = Script::new();
        assert!(script.create(vec![topic("there"), topic("a.b")]).iter().all(Result::is_ok));
        let check = |new: NewTopic, expect: CreateRefusal| {
            assert_eq!(Script::create(&mut clone(&script), vec![new]), [Err(expect)]);
        };
        let with = |change: fn(&mut NewTopic)| {
            let mut new = topic("new");
            change(&mut new);
            new
        };
        check(topic("there"), CreateRefusal::Exists { name: "there".into() });
        let other = "a.b".to_string();
        check(topic("a_b"), CreateRefusal::Collision { name: "a_b".into(), other });
        check(topic(""), CreateRefusal::Name(name::NameProblem::Empty));
        check(with(|t| t.partitions = 0), CreateRefusal::Partitions(0));
        check(with(|t| t.partitions = -2), CreateRefusal::Partitions(-2));
        check(with(|t| t.replication_factor = 0), CreateRefusal::Replication(0));
        check(with(|t| t.replication_factor = 16), CreateRefusal::Replication(16));
        let (partitions, partitions_max) = (11, 10);
        let too_many = CreateRefusal::TooManyForTopic { partitions, partitions_max };
        check(with(|t| t.partitions = 11), too_many);
        let no_value = InvalidConfig::NoValue { name: "retention.ms" };
        check(
            with(|t| t.configs = vec![("retention.ms".into(), None)]),
            CreateRefusal::Config(no_value),
        );
        check(
            with(|t| t.configs = vec![("flush".into(), None); 2]),
            CreateRefusal::ConfigTwice { name: "flush".into() },
        );
        let with_counts = |t: &mut NewTopic| {
            t.assignments = vec![(0, vec![1])];
            t.partitions = 1;
        };
        check(with(with_counts), CreateRefusal::AssignmentWithCounts);
        for bad in [(1, vec![1]), (0, vec![]), (0, vec![2]), (0, vec![1, 1])] {
            let mut new = topic("new");
            new.assignments = vec![bad];
            check(new, CreateRefusal::Assignment);
        }
    }

    fn clone(script: &Script) -> Script {
        Script { machine: script.machine.clone(), ids: script.ids }
    }

    #[test]
    fn defaults_usual_replication_and_settings_are_taken() {
        let mut script = Script::new();
        let mut new = topic("a");
        new.replication_factor = 3;
        new.configs = vec![("retention.ms".into(), Some("5".into()))];
        let mut assigned = topic("b");
        assigned.assignments = vec![(1, vec![1]), (0, vec![1])];
        let created = script.create(vec![new, assigned]);
        let configs = Overrides::from([("retention.ms".to_string(), "5".to_string())]);
        let first = Created { id: Uuid::from_u128(1), partitions: 3, configs };
        assert_eq!(created[0], Ok(first));
        assert_eq!(created[1].as_ref().map(|created| created.partitions), Ok(2));
        let image = script.machine.image();
        let logs = |name| image.by_name(0, name).unwrap().logs.clone();
        assert_eq!(logs("a"), [LogId(0), LogId(1), LogId(0)]);
        assert_eq!(logs("b"), [LogId(1), LogId(0)]);
        let retention = |name| image.by_name(0, name).unwrap().settings.retention_ms;
        assert_eq!((retention("a"), retention("b")), (Some(5), Some(604_800_000)));
    }

    #[test]
    fn a_request_is_checked_against_itself() {
        let mut script = Script::new();
        let outcome = script.create(vec![topic("x"), topic("y"), topic("x"), topic("y.z")]);
        assert_eq!(outcome[0], Err(CreateRefusal::Duplicate));
        assert_eq!(outcome.len(), 3, "a name is answered once");
        assert!(outcome[1].is_ok() && outcome[2].is_ok());
        let outcome = script.create(vec![topic("p.q"), topic("p_q")]);
        assert!(outcome[0].is_ok());
        assert!(matches!(outcome[1], Err(CreateRefusal::Collision { .. })));
        let many = |name| NewTopic { partitions: 6, ..topic(name) };
        let outcome = script.create(vec![many("m"), many("n")]);
        assert!(outcome[0].is_ok());
        let (partitions, partitions_max) = (21, 20);
        let expect = CreateRefusal::TooManyForBroker { partitions, partitions_max };
        assert_eq!(outcome[1], Err(expect));
    }

    #[test]
    fn validate_only_changes_nothing() {
        let mut script = Script::new();
        let topics = vec![topic("a"), topic("")];
        let answer = script.run(Command::CreateTopics { view: 0, topics, validate_only: true });
        let Answer::Created(outcomes) = answer else { panic!("other answer") };
        assert!(outcomes[0].result.is_ok() && outcomes[1].result.is_err());
        assert_eq!(script.machine.image().topic_count(), 0);
        assert_eq!(script.machine.image().version, 0);
    }

    #[test]
    fn topics_are_deleted_by_name_or_id() {
        let mut script = Script::new();
        script.create(vec![topic("a.1"), topic("b"), topic("c")]);
        let id = script.machine.image().by_name(0, "b").unwrap().id;
        let name = |name: &str| TopicRef::Name(name.into());
        let gone =
            script.delete(&[name("a.1"), TopicRef::Id(id), name("no"), TopicRef::Id(Uuid::nil())]);
        let expect = [
            Ok("a.1".to_string()),
            Ok("b".to_string()),
            Err(DeleteRefusal::UnknownName),
            Err(DeleteRefusal::UnknownId),
        ];
        assert_eq!(gone, expect);
        let id = script.machine.image().by_name(0, "c").unwrap().id;
        let gone = script.delete(&[name("c"), TopicRef::Id(id)]);
        assert_eq!(gone, [Err(DeleteRefusal::Duplicate), Err(DeleteRefusal::Duplicate)]);
        assert_eq!(script.machine.image().topic_count(), 1);
        assert!(script.create(vec![topic("a_1"), topic("b")]).iter().all(Result::is_ok));
    }

    #[test]
    fn a_tombstone_lasts_until_every_log_has_purged_the_topic() {
        let mut script = Script::new();
        script.create(vec![topic("a")]);
        let id = Uuid::from_u128(1);
        script.delete(&[TopicRef::Id(id)]);
        let unpurged = |script: &Script, log| script.machine.unpurged(LogId(log)).count();
        assert_eq!((unpurged(&script, 0), unpurged(&script, 1)), (1, 1));
        script.run(Command::Purged { log: LogId(0), topics: vec![id, Uuid::nil()] });
        assert_eq!((unpurged(&script, 0), unpurged(&script, 1)), (0, 1));
        script.run(Command::Purged { log: LogId(1), topics: vec![id] });
        assert_eq!(script.machine.snapshot(), [Record::ProducerIds { next: 0 }]);
    }

    #[test]
    fn producer_ids_are_never_given_twice() {
        let mut script = Script::new();
        let take = Command::TakeProducerIds { count: 1000 };
        assert_eq!(script.run(take.clone()), Answer::ProducerIds(0..1000));
        assert_eq!(script.run(take.clone()), Answer::ProducerIds(1000..2000));
        let snapshot = script.machine.snapshot();
        let mut again = Script::new();
        snapshot.iter().for_each(|record| again.machine.replay(record));
        assert_eq!(again.run(take), Answer::ProducerIds(2000..3000));
    }

    #[test]
    fn a_snapshot_makes_the_same_state() {
        let mut script = Script::new();
        script.create(vec![topic("a.x"), topic("b"), topic("c")]);
        script.delete(&[TopicRef::Name("b".into())]);
        script.run(Command::TakeProducerIds { count: 5 });
        let snapshot = script.machine.snapshot();
        let mut again = Script::new();
        for record in snapshot.iter().chain(&snapshot) {
            again.machine.replay(record);
        }
        assert_eq!(again.machine.snapshot(), snapshot);
        assert_eq!(again.machine.load, script.machine.load);
        assert_eq!(again.machine.forms, script.machine.forms);
        let topics = |script: &Script| script.machine.image().topic_count();
        assert_eq!(topics(&again), topics(&script));
    }
}
