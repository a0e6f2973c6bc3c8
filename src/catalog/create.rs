//! What CreateTopics may and may not do, decided without changing anything.
//!
//! Called by `Machine::step`. The checks stand in Kafka's order, so that a request with several
//! faults is told the same one. Any usual replication factor is accepted, as tools ask for 3 and
//! there is one copy whatever they ask.

use super::image::CatalogImage;
use super::machine::Rules;
use super::name::{self, NameProblem};
use super::placement;
use super::record::TopicRecord;
use crate::config::topic::{self, InvalidConfig, Overrides};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use thiserror::Error;
use uuid::Uuid;

/// Replication factors above this are not usual: somebody mistyped.
const USUAL_REPLICATION_MAX: i16 = 15;

/// A topic a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    /// −1 for the broker's default.
    pub partitions: i32,
    /// −1 for the broker's default.
    pub replication_factor: i16,
    /// Partition index and broker ids, when the client places the partitions itself.
    pub assignments: Vec<(i32, Vec<i32>)>,
    pub configs: Vec<(String, Option<String>)>,
}

/// What became of one topic of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateOutcome {
    pub name: String,
    pub result: Result<Created, CreateRefusal>,
}

/// A topic that is there now, or would be if the request was to validate only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: Uuid,
    pub partitions: i32,
    pub configs: Overrides,
}

/// Why a topic was not created. The text goes to the client.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CreateRefusal {
    #[error("the request names this topic more than once")]
    Duplicate,
    #[error("{0}")]
    Name(NameProblem),
    #[error(
        "topic '{name}' collides with existing topic '{other}': they differ in '.' and '_' alone"
    )]
    Collision { name: String, other: String },
    #[error("topic '{name}' already exists")]
    Exists { name: String },
    #[error("a topic needs at least one partition, not {0}")]
    Partitions(i32),
    #[error("a replication factor must be between 1 and {USUAL_REPLICATION_MAX} or -1, not {0}")]
    Replication(i16),
    #[error("with assignments, partitions and replication factor must be -1")]
    AssignmentWithCounts,
    #[error("assignments must name partitions 0 to n-1 once and known brokers once each")]
    Assignment,
    #[error("{0}")]
    Config(InvalidConfig),
    #[error("{name} is given more than once")]
    ConfigTwice { name: String },
    #[error("the topic would have {partitions} partitions, {partitions_max} are allowed")]
    TooManyForTopic { partitions: i32, partitions_max: i32 },
    #[error("the broker would have {partitions} partitions, {partitions_max} are allowed")]
    TooManyForBroker { partitions: usize, partitions_max: usize },
}

/// Decides on a whole request. `ids` are fresh, one for each topic of the request.
pub(super) fn create(
    creation: &Creation<'_>,
    topics: &[NewTopic],
    ids: &[Uuid],
) -> (Vec<TopicRecord>, Vec<CreateOutcome>) {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for topic in topics {
        *times.entry(&topic.name).or_default() += 1;
    }
    let mut batch = Batch { records: Vec::new(), forms: BTreeMap::new(), partitions: 0 };
    let mut outcomes = Vec::with_capacity(topics.len());
    let mut told = BTreeSet::new();
    for (topic, id) in topics.iter().zip(ids) {
        if times.get(topic.name.as_str()).is_some_and(|times| *times > 1) {
            if told.insert(&topic.name) {
                let result = Err(CreateRefusal::Duplicate);
                outcomes.push(CreateOutcome { name: topic.name.clone(), result });
            }
            continue;
        }
        let result = creation.one(&mut batch, topic, *id);
        outcomes.push(CreateOutcome { name: topic.name.clone(), result });
    }
    (creation.placed(batch.records), outcomes)
}

/// What the decision looks at.
pub(super) struct Creation<'a> {
    pub view: u32,
    pub image: &'a CatalogImage,
    /// Collision form to name, of the view's topics.
    pub forms: &'a BTreeMap<(u32, String), String>,
    pub rules: &'a Rules,
    pub load: &'a BTreeMap<u32, usize>,
    pub now_ms: i64,
}

/// What earlier topics of the same request have taken.
struct Batch {
    records: Vec<(TopicRecord, usize)>,
    forms: BTreeMap<String, String>,
    partitions: usize,
}

impl Creation<'_> {
    fn one(&self, batch: &mut Batch, topic: &NewTopic, id: Uuid) -> Result<Created, CreateRefusal> {
        self.check_name(batch, &topic.name)?;
        let configs = self.check_configs(topic)?;
        let partitions = self.check_partitions(topic)?;
        let count = usize::try_from(partitions).unwrap_or(0);
        let total = self.image.partition_count() + batch.partitions + count;
        let partitions_max = self.rules.config.partitions_max as usize;
        if total > partitions_max {
            return Err(CreateRefusal::TooManyForBroker { partitions: total, partitions_max });
        }
        batch.partitions += count;
        if let Some(form) = name::collision_form(&topic.name) {
            batch.forms.insert(form, topic.name.clone());
        }
        let record = TopicRecord {
            view: self.view,
            id,
            name: topic.name.clone(),
            logs: Vec::new(),
            configs: configs.clone(),
            created_ms: self.now_ms,
        };
        batch.records.push((record, count));
        Ok(Created { id, partitions, configs })
    }

    fn check_name(&self, batch: &Batch, name: &str) -> Result<(), CreateRefusal> {
        if self.image.by_name(self.view, name).is_some() {
            return Err(CreateRefusal::Exists { name: name.to_string() });
        }
        name::check(name).map_err(CreateRefusal::Name)?;
        let Some(form) = name::collision_form(name) else { return Ok(()) };
        let in_batch = batch.forms.get(&form);
        match in_batch.or_else(|| self.forms.get(&(self.view, form))) {
            Some(other) => {
                Err(CreateRefusal::Collision { name: name.to_string(), other: other.clone() })
            }
            None => Ok(()),
        }
    }

    fn check_configs(&self, new: &NewTopic) -> Result<Overrides, CreateRefusal> {
        let mut seen = BTreeSet::new();
        if let Some((name, _)) = new.configs.iter().find(|(name, _)| !seen.insert(name)) {
            return Err(CreateRefusal::ConfigTwice { name: name.clone() });
        }
        let given = new.configs.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        topic::overrides(given, &self.rules.config).map_err(CreateRefusal::Config)
    }

    fn check_partitions(&self, topic: &NewTopic) -> Result<i32, CreateRefusal> {
        let partitions = if topic.assignments.is_empty() {
            match topic.replication_factor {
                -1 | 1..=USUAL_REPLICATION_MAX => {}
                factor => return Err(CreateRefusal::Replication(factor)),
            }
            match topic.partitions {
                -1 => self.rules.config.num_partitions,
                partitions if partitions < 1 => return Err(CreateRefusal::Partitions(partitions)),
                partitions => partitions,
            }
        } else {
            self.check_assignments(topic)?
        };
        let partitions_max = self.rules.config.topic_partitions_max;
        if partitions > partitions_max {
            return Err(CreateRefusal::TooManyForTopic { partitions, partitions_max });
        }
        Ok(partitions)
    }

    /// Brokers a client names must be listed ones; where the partitions go is decided here all the
    /// same, as every broker a client sees is a core of this one.
    fn check_assignments(&self, topic: &NewTopic) -> Result<i32, CreateRefusal> {
        if topic.partitions != -1 || topic.replication_factor != -1 {
            return Err(CreateRefusal::AssignmentWithCounts);
        }
        let mut seen = BTreeSet::new();
        for (partition, brokers) in &topic.assignments {
            let distinct: BTreeSet<_> = brokers.iter().collect();
            let known = brokers.iter().all(|broker| self.rules.brokers.contains(broker));
            if brokers.is_empty() || distinct.len() < brokers.len() || !known {
                return Err(CreateRefusal::Assignment);
            }
            seen.insert(*partition);
        }
        let count = i32::try_from(topic.assignments.len()).unwrap_or(i32::MAX);
        let dense = seen.first() == Some(&0) && seen.last() == Some(&(count - 1));
        match dense && seen.len() == topic.assignments.len() {
            true => Ok(count),
            false => Err(CreateRefusal::Assignment),
        }
    }

    /// Chooses the logs of all new partitions of the request at once.
    fn placed(&self, records: Vec<(TopicRecord, usize)>) -> Vec<TopicRecord> {
        let total = records.iter().map(|(_, count)| count).sum();
        let mut logs = placement::place(total, &self.rules.logs, self.load).into_iter();
        let place = |(record, count): (TopicRecord, usize)| TopicRecord {
            logs: logs.by_ref().take(count).collect(),
            ..record
        };
        records.into_iter().map(place).collect()
    }
}
