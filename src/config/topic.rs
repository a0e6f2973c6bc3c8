//! What a topic may be told: Kafka's topic configurations, and `flush`.
//!
//! [`overrides`] checks what a client gives, [`TopicSettings::resolve`] lays it over the broker's
//! configuration and types what the broker acts on. Unlike the broker's own keys these take plain
//! numbers only, as every Kafka tool writes and reads them.
//!
//! Known gaps: what is marked `Stored` below is checked, kept and described, and changes nothing;
//! its documentation says so to whoever asks for it. Tiered storage cannot be turned on.

use std::collections::BTreeMap;
use std::fmt;

use super::choice::{Cleanup, Compression, Flush, TimestampType};
use super::keys::Config;
use super::nearest::nearest_of;
use super::value::{Setting, Value};

/// No configuration needs more; what is stored per topic has to have a bound.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// How much of a client's text a message repeats.
const SHOWN_CHARS_MAX: usize = 128;

/// The configurations a topic was given, by name; everything else is the broker's default.
pub type Overrides = BTreeMap<String, String>;

/// One topic configuration. The table is [`TOPIC_KEYS`].
#[derive(Debug, PartialEq)]
pub struct TopicKey {
    pub name: &'static str,
    pub rule: Rule,
    /// Kafka's default; the broker's key, where there is one, is asked first.
    pub default: &'static str,
    pub broker: BrokerKey,
    pub effect: TopicEffect,
    pub meaning: &'static str,
}

/// What a value may be. Bounds are inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Bool,
    /// 32 bits.
    Int {
        min: i64,
        max: i64,
    },
    /// 64 bits.
    Long {
        min: i64,
    },
    Double {
        min: f64,
        max: f64,
    },
    Choice(&'static [&'static str]),
    List(&'static [&'static str]),
    /// `*`, or `partition:broker` pairs, or nothing.
    ThrottledReplicas,
}

/// The broker-wide configuration behind a topic's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BrokerKey {
    /// A key of this broker, which gives the default.
    Ours(&'static str),
    /// Kafka's name for it; this broker has no such key.
    Kafkas(&'static str),
    None,
}

/// Whether a configuration does anything here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopicEffect {
    Live,
    /// Checked and kept only; why.
    Stored(&'static str),
}

/// Why a topic configuration was refused. Goes to the client as it is displayed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidConfig {
    #[error("there is no topic configuration {name:?}; did you mean {nearest}?")]
    Unknown { name: String, nearest: &'static str },
    #[error("the value of {name} has {bytes} bytes, more than {VALUE_BYTES_MAX}")]
    TooLong { name: &'static str, bytes: usize },
    #[error("{name} was given without a value")]
    NoValue { name: &'static str },
    #[error("{name} = {value:?} is not allowed; give {rule}")]
    BadValue { name: &'static str, value: String, rule: Rule },
    #[error("min.compaction.lag.ms = {min} must not be above max.compaction.lag.ms = {max}")]
    CompactionLag { min: i64, max: i64 },
    #[error("remote.storage.enable = true: this broker has no tiered storage")]
    TieredStorage,
}

/// The effective configuration of a topic, as far as the broker acts on it.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    pub cleanup: Cleanup,
    /// `None`: for ever. Always `None` for a topic whose cleanup policy does not delete.
    pub retention_ms: Option<i64>,
    /// `None`: all. Always `None` for a topic whose cleanup policy does not delete.
    pub retention_bytes: Option<u64>,
    pub max_message_bytes: i32,
    /// Bounds one batch; segments themselves belong to the log, not to a topic.
    pub segment_bytes: i32,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub flush: Flush,
    pub compression: Compression,
    pub min_insync_replicas: i32,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub delete_retention_ms: i64,
    /// `min.cleanable.dirty.ratio`, in whole percent.
    pub dirty_percent_min: u8,
}

/// Checks what a client gives for a topic, each alone and all together over the broker's defaults.
pub fn overrides<'a>(
    given: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    config: &Config,
) -> Result<Overrides, InvalidConfig> {
    let mut overrides = Overrides::new();
    for (name, value) in given {
        let key = find(name)?;
        let value = value.ok_or(InvalidConfig::NoValue { name: key.name })?.trim();
        if value.len() > VALUE_BYTES_MAX {
            let bytes = value.len();
            return Err(InvalidConfig::TooLong { name: key.name, bytes });
        }
        key.parse(value)?;
        overrides.insert(key.name.to_string(), value.to_string());
    }
    TopicSettings::resolve(&overrides, config)?;
    Ok(overrides)
}

/// The configuration of that name.
pub fn find(name: &str) -> Result<&'static TopicKey, InvalidConfig> {
    let found = TOPIC_KEYS.iter().find(|key| key.name == name);
    found.ok_or_else(|| InvalidConfig::Unknown {
        name: name.chars().take(SHOWN_CHARS_MAX).collect(),
        nearest: nearest_of(name, TOPIC_KEYS.iter().map(|key| key.name)),
    })
}

impl TopicSettings {
    pub fn resolve(overrides: &Overrides, config: &Config) -> Result<TopicSettings, InvalidConfig> {
        let layers = Layers { overrides, config };
        let cleanup: Cleanup = layers.get("cleanup.policy")?;
        let kept = |limit: i64| (cleanup.delete && limit >= 0).then_some(limit);
        if layers.get("remote.storage.enable")? {
            return Err(InvalidConfig::TieredStorage);
        }
        let settings = TopicSettings {
            cleanup,
            retention_ms: kept(layers.get("retention.ms")?),
            retention_bytes: kept(layers.get("retention.bytes")?).map(i64::unsigned_abs),
            max_message_bytes: layers.get("max.message.bytes")?,
            segment_bytes: layers.get("segment.bytes")?,
            timestamp_type: layers.get("message.timestamp.type")?,
            timestamp_before_max_ms: layers.get("message.timestamp.before.max.ms")?,
            timestamp_after_max_ms: layers.get("message.timestamp.after.max.ms")?,
            flush: layers.get("flush")?,
            compression: layers.get("compression.type")?,
            min_insync_replicas: layers.get("min.insync.replicas")?,
            min_compaction_lag_ms: layers.get("min.compaction.lag.ms")?,
            max_compaction_lag_ms: layers.get("max.compaction.lag.ms")?,
            delete_retention_ms: layers.get("delete.retention.ms")?,
            dirty_percent_min: percent(&layers.get::<String>("min.cleanable.dirty.ratio")?),
        };
        let (min, max) = (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms);
        if min > max {
            return Err(InvalidConfig::CompactionLag { min, max });
        }
        Ok(settings)
    }
}

/// A share between 0 and 1, checked before.
fn percent(ratio: &str) -> u8 {
    (ratio.parse::<f64>().unwrap_or(1.0) * 100.0).round() as u8
}

/// A topic's overrides over the broker's configuration over Kafka's defaults.
struct Layers<'a> {
    overrides: &'a Overrides,
    config: &'a Config,
}

impl Layers<'_> {
    fn get<T: Setting>(&self, name: &str) -> Result<T, InvalidConfig> {
        let key = find(name)?;
        let default = key.broker_default(self.config);
        let text = self.overrides.get(name).map_or(default.as_str(), String::as_str);
        T::from_value(&key.parse(text)?).ok_or_else(|| key.bad(text))
    }
}

impl TopicKey {
    /// What the topic gets when it says nothing.
    pub fn broker_default(&self, config: &Config) -> String {
        match self.broker {
            BrokerKey::Ours(name) => {
                config.entry(name).map_or(self.default.to_string(), |entry| entry.value.plain())
            }
            BrokerKey::Kafkas(_) | BrokerKey::None => self.default.to_string(),
        }
    }

    /// Whether single words may be added to and taken from it.
    pub fn is_list(&self) -> bool {
        matches!(self.rule, Rule::List(_) | Rule::ThrottledReplicas)
    }

    pub fn parse(&self, text: &str) -> Result<Value, InvalidConfig> {
        self.rule.parse(text.trim()).ok_or_else(|| self.bad(text))
    }

    /// The meaning, and that it has no effect where that is so.
    pub fn documentation(&self) -> String {
        match self.effect {
            TopicEffect::Live => self.meaning.to_string(),
            TopicEffect::Stored(why) => {
                format!("{} Accepted and stored without effect: {why}.", self.meaning)
            }
        }
    }

    fn bad(&self, text: &str) -> InvalidConfig {
        InvalidConfig::BadValue {
            name: self.name,
            value: text.chars().take(SHOWN_CHARS_MAX).collect(),
            rule: self.rule,
        }
    }
}

impl Rule {
    fn parse(&self, text: &str) -> Option<Value> {
        match *self {
            Rule::Bool => match text.to_ascii_lowercase().as_str() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            Rule::Int { min, max } => {
                let number = i64::from(text.parse::<i32>().ok()?);
                (min..=max).contains(&number).then_some(Value::Number(number))
            }
            Rule::Long { min } => {
                let number = text.parse::<i64>().ok()?;
                (number >= min).then_some(Value::Number(number))
            }
            Rule::Double { min, max } => {
                let number = text.parse::<f64>().ok()?;
                (min..=max).contains(&number).then(|| Value::Text(text.to_string()))
            }
            Rule::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_string())),
            Rule::List(words) => {
                let chosen: Vec<String> = text.split(',').map(|w| w.trim().to_string()).collect();
                let known = chosen.iter().all(|word| words.contains(&word.as_str()));
                known.then_some(Value::Words(chosen))
            }
            Rule::ThrottledReplicas => {
                let number = |part: &str| part.parse::<u32>().is_ok();
                let pair = |part: &str| {
                    part.trim().split_once(':').is_some_and(|(p, b)| number(p) && number(b))
                };
                let valid = matches!(text, "" | "*") || text.split(',').all(pair);
                valid.then(|| Value::Text(text.to_string()))
            }
        }
    }
}

/// What is allowed, for a message.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rule::Bool => write!(f, "true or false"),
            Rule::Int { min, max: MAX_INT } => write!(f, "a whole number of at least {min}"),
            Rule::Int { min, max } => write!(f, "a whole number from {min} to {max}"),
            Rule::Long { min } => write!(f, "a whole number of at least {min}"),
            Rule::Double { min, max } => write!(f, "a number from {min} to {max}"),
            Rule::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Rule::List(words) => {
                write!(f, "one or more of {}, separated by commas", words.join(", "))
            }
            Rule::ThrottledReplicas => {
                write!(f, "*, or partition:broker pairs separated by commas")
            }
        }
    }
}

const MAX_INT: i64 = i32::MAX as i64;
const MAX_LONG: &str = "9223372036854775807";

const fn int(min: i64) -> Rule {
    Rule::Int { min, max: MAX_INT }
}

const fn long(min: i64) -> Rule {
    Rule::Long { min }
}

const OWN_SEGMENTS: TopicEffect =
    TopicEffect::Stored("segments hold many topics and are set for the whole broker");
const OWN_FLUSH: TopicEffect = TopicEffect::Stored("flush decides when records are synced");
const KEPT_AS_SENT: TopicEffect = TopicEffect::Stored("batches are kept as the producer sent them");
const ONE_COPY: TopicEffect = TopicEffect::Stored("there is one copy of each partition");
const NO_TIERS: TopicEffect = TopicEffect::Stored("there is no tiered storage");

macro_rules! topic_keys {
    ($($name:literal, $rule:expr, $default:expr, $broker:expr, $effect:expr,
        $meaning:literal;)*) => {
        /// Every topic configuration, by name.
        pub static TOPIC_KEYS: &[TopicKey] = &[$(TopicKey {
            name: $name,
            rule: $rule,
            default: $default,
            broker: $broker,
            effect: $effect,
            meaning: $meaning,
        },)*];
    };
}

use BrokerKey::{Kafkas, Ours};
use TopicEffect::Live;

topic_keys! {
"cleanup.policy", Rule::List(Cleanup::NAMES), "delete", Ours("log.cleanup.policy"), Live,
    "What happens to old records: delete drops them by age and size, compact keeps the last record \
     of each key and asks for a key in every record.";
"compression.gzip.level", Rule::Int { min: -1, max: 9 }, "-1", Kafkas("compression.gzip.level"),
    KEPT_AS_SENT, "The level when the broker compresses with gzip.";
"compression.lz4.level", Rule::Int { min: 1, max: 17 }, "9", Kafkas("compression.lz4.level"),
    KEPT_AS_SENT, "The level when the broker compresses with lz4.";
"compression.type", Rule::Choice(Compression::NAMES), "producer", Ours("compression.type"),
    KEPT_AS_SENT, "The codec of stored batches.";
"compression.zstd.level", Rule::Int { min: -131_072, max: 22 }, "3",
    Kafkas("compression.zstd.level"), KEPT_AS_SENT,
    "The level when the broker compresses with zstd.";
"delete.retention.ms", long(0), "86400000", Kafkas("log.cleaner.delete.retention.ms"),
    Live, "How long the mark of a deleted key stays after compaction has first seen it.";
"file.delete.delay.ms", long(0), "60000", Kafkas("log.segment.delete.delay.ms"), OWN_SEGMENTS,
    "How long a file stays after its deletion was decided.";
"flush", Rule::Choice(Flush::NAMES), "commit", Ours("flush"), Live,
    "When acks=all is answered and records become visible. commit: after a sync, survives a power \
     cut. interval: at the append, a sync follows soon. os: at the append, as Apache Kafka does \
     by default; survives a killed process, not a power cut.";
"flush.messages", long(1), MAX_LONG, Kafkas("log.flush.interval.messages"), OWN_FLUSH,
    "Records after which Kafka syncs a partition.";
"flush.ms", long(0), MAX_LONG, Kafkas("log.flush.interval.ms"), OWN_FLUSH,
    "Time after which Kafka syncs a partition.";
"follower.replication.throttled.replicas", Rule::ThrottledReplicas, "", BrokerKey::None, ONE_COPY,
    "Replicas whose copying is throttled at the followers.";
"index.interval.bytes", int(0), "4096", Kafkas("log.index.interval.bytes"), OWN_SEGMENTS,
    "Bytes between two entries of a segment's index.";
"leader.replication.throttled.replicas", Rule::ThrottledReplicas, "", BrokerKey::None, ONE_COPY,
    "Replicas whose copying is throttled at the leader.";
"local.retention.bytes", long(-2), "-2", Kafkas("log.local.retention.bytes"), NO_TIERS,
    "Bytes of a tiered partition kept on the broker's own disk.";
"local.retention.ms", long(-2), "-2", Kafkas("log.local.retention.ms"), NO_TIERS,
    "How long records of a tiered topic are kept on the broker's own disk.";
"max.compaction.lag.ms", long(1), MAX_LONG, Kafkas("log.cleaner.max.compaction.lag.ms"),
    Live, "The longest time a record waits for compaction once its segment is full.";
"max.message.bytes", int(0), "1048588", Ours("message.max.bytes"), Live,
    "The largest batch a producer may send, as it is on the wire.";
"message.downconversion.enable", Rule::Bool, "true", Kafkas("log.message.downconversion.enable"),
    TopicEffect::Stored("records are served in the current format only"),
    "Whether records are converted for consumers that ask for an older format.";
"message.timestamp.after.max.ms", long(0), "3600000", Ours("log.message.timestamp.after.max.ms"),
    Live, "How far a producer's timestamp may lie in the future of the broker's clock.";
"message.timestamp.before.max.ms", long(0), MAX_LONG, Ours("log.message.timestamp.before.max.ms"),
    Live, "How far a producer's timestamp may lie in the past of the broker's clock.";
"message.timestamp.type", Rule::Choice(TimestampType::NAMES), "CreateTime",
    Ours("log.message.timestamp.type"), Live,
    "Whether a record's timestamp is the producer's (CreateTime) or the broker's at the append \
     (LogAppendTime).";
"min.cleanable.dirty.ratio", Rule::Double { min: 0.0, max: 1.0 }, "0.5",
    Kafkas("log.cleaner.min.cleanable.ratio"), Live,
    "The share of a partition that must be new before compaction looks at it.";
"min.compaction.lag.ms", long(0), "0", Kafkas("log.cleaner.min.compaction.lag.ms"), Live,
    "The shortest time a record is safe from compaction.";
"min.insync.replicas", int(1), "1", Ours("min.insync.replicas"), ONE_COPY,
    "Copies that must have a record before acks=all is answered.";
"preallocate", Rule::Bool, "false", Kafkas("log.preallocate"), OWN_SEGMENTS,
    "Whether the disk space of a segment is taken when it is created.";
"remote.storage.enable", Rule::Bool, "false", Kafkas("remote.log.storage.system.enable"), Live,
    "Whether old segments move to tiered storage, which this broker does not have: only false is \
     accepted.";
"retention.bytes", long(-1), "-1", Ours("log.retention.bytes"), Live,
    "Bytes of a partition that are kept when the cleanup policy deletes; -1 for all.";
"retention.ms", long(-1), "604800000", Ours("log.retention.ms"), Live,
    "How long records are kept when the cleanup policy deletes; -1 for ever.";
"segment.bytes", int(14), "1073741824", Kafkas("log.segment.bytes"), Live,
    "The largest batch that fits, whatever max.message.bytes says. Segments themselves hold many \
     topics and are set for the whole broker.";
"segment.index.bytes", int(4), "10485760", Kafkas("log.index.size.max.bytes"), OWN_SEGMENTS,
    "The size of a segment's index.";
"segment.jitter.ms", long(0), "0", Kafkas("log.roll.jitter.ms"), OWN_SEGMENTS,
    "A random part taken off segment.ms.";
"segment.ms", long(1), "604800000", Kafkas("log.roll.ms"), OWN_SEGMENTS,
    "Time after which a segment is closed though it is not full.";
"unclean.leader.election.enable", Rule::Bool, "false", Kafkas("unclean.leader.election.enable"),
    ONE_COPY, "Whether a replica that lacks records may become leader.";
}
