//! Configurations as DescribeConfigs answers them, for topics and for the broker.
//!
//! Everything versions 0 to 4 can ask for is here; the handler leaves out what its version does not
//! carry. A value's synonyms are the layers it could have come from, strongest first; the first one
//! is the value itself, as Kafka orders them.
//!
//! Known gap: the broker's keys are read-only, there is no changing them while it runs.

use super::error::Origin;
use super::keys::{Config, Effect};
use super::load::Entry;
use super::topic::{BrokerKey, Overrides, Rule, TopicKey, TOPIC_KEYS};
use super::value::{HostPort, Kind};

/// The layer a value comes from, with the code Kafka has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Topic,
    StaticBroker,
    Default,
}

/// The type of a value, with the code Kafka has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    Boolean,
    String,
    Int,
    Long,
    Double,
    List,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: &'static str,
    pub value: String,
    pub source: Source,
    pub read_only: bool,
    pub sensitive: bool,
    pub data_type: DataType,
    pub documentation: String,
    pub synonyms: Vec<Synonym>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    pub value: String,
    pub source: Source,
}

/// What the broker is besides its configuration.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: i32,
    pub listening: HostPort,
    pub advertised: HostPort,
}

impl Source {
    pub fn code(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::StaticBroker => 4,
            Source::Default => 5,
        }
    }
}

impl DataType {
    pub fn code(self) -> i8 {
        match self {
            DataType::Boolean => 1,
            DataType::String => 2,
            DataType::Int => 3,
            DataType::Long => 5,
            DataType::Double => 6,
            DataType::List => 7,
        }
    }
}

impl Description {
    /// What version 0 has in place of the source.
    pub fn is_default(&self) -> bool {
        self.source == Source::Default
    }
}

/// Every configuration of a topic, sorted by name.
pub fn describe_topic(overrides: &Overrides, config: &Config) -> Vec<Description> {
    TOPIC_KEYS.iter().map(|key| describe_topic_key(key, overrides, config)).collect()
}

/// Every key of the broker, and what Kafka's tools look for under Kafka's names; sorted by name.
pub fn describe_broker(config: &Config, node: &Node) -> Vec<Description> {
    let keys = config.entries.iter().map(describe_broker_key);
    let mut all: Vec<Description> = keys.chain(kafkas_names(config, node)).collect();
    all.sort_by_key(|description| description.name);
    all
}

fn describe_topic_key(key: &TopicKey, overrides: &Overrides, config: &Config) -> Description {
    let mut synonyms = Vec::new();
    if let Some(value) = overrides.get(key.name) {
        synonyms.push(Synonym { name: key.name, value: value.clone(), source: Source::Topic });
    }
    let default_name = match key.broker {
        BrokerKey::Ours(name) => {
            if let Some(entry) = config.entry(name).filter(|e| e.origin != Origin::Default) {
                let value = entry.value.plain();
                synonyms.push(Synonym { name, value, source: Source::StaticBroker });
            }
            name
        }
        BrokerKey::Kafkas(name) => name,
        BrokerKey::None => key.name,
    };
    synonyms.push(Synonym {
        name: default_name,
        value: key.default.to_string(),
        source: Source::Default,
    });
    Description {
        name: key.name,
        read_only: false,
        data_type: match key.rule {
            Rule::Bool => DataType::Boolean,
            Rule::Int { .. } => DataType::Int,
            Rule::Long { .. } => DataType::Long,
            Rule::Double { .. } => DataType::Double,
            Rule::Choice(_) => DataType::String,
            Rule::List(_) | Rule::ThrottledReplicas => DataType::List,
        },
        documentation: key.documentation(),
        ..described(synonyms)
    }
}

fn describe_broker_key(entry: &Entry) -> Description {
    let key = entry.key;
    let default = key.kind.parse(key.default).map_or(String::new(), |value| value.plain());
    let mut synonyms = Vec::new();
    if entry.origin != Origin::Default {
        let value = entry.value.plain();
        synonyms.push(Synonym { name: key.name, value, source: Source::StaticBroker });
    }
    synonyms.push(Synonym { name: key.name, value: default, source: Source::Default });
    Description {
        name: key.name,
        data_type: match key.kind {
            Kind::Bool => DataType::Boolean,
            Kind::Count { .. } => DataType::Int,
            Kind::Bytes { .. } | Kind::Millis { .. } => DataType::Long,
            Kind::Choices(_) => DataType::List,
            Kind::Choice(_) | Kind::Text | Kind::Path => DataType::String,
            Kind::Address | Kind::AddressOrNone | Kind::AddressCounts => DataType::String,
        },
        documentation: match key.effect {
            Effect::Live => key.meaning.to_string(),
            Effect::Planned => format!("{} No effect in this version.", key.meaning),
        },
        ..described(synonyms)
    }
}

/// The value is that of the strongest layer; callers fill in the rest.
fn described(synonyms: Vec<Synonym>) -> Description {
    let first = synonyms.first();
    Description {
        name: first.map_or("", |synonym| synonym.name),
        value: first.map_or(String::new(), |synonym| synonym.value.clone()),
        source: first.map_or(Source::Default, |synonym| synonym.source),
        read_only: true,
        sensitive: false,
        data_type: DataType::String,
        documentation: String::new(),
        synonyms,
    }
}

fn kafkas_names(config: &Config, node: &Node) -> Vec<Description> {
    let id = node.id.to_string();
    let directory = config.data_dir.display().to_string();
    [
        ("advertised.listeners", DataType::List, format!("PLAINTEXT://{}", node.advertised)),
        ("broker.id", DataType::Int, id.clone()),
        ("listeners", DataType::List, format!("PLAINTEXT://{}", node.listening)),
        ("log.dirs", DataType::List, directory),
        ("node.id", DataType::Int, id),
    ]
    .into_iter()
    .map(|(name, data_type, value)| Description {
        data_type,
        documentation: "Kafka's name for what Basalt has under another one.".to_string(),
        ..described(vec![Synonym { name, value, source: Source::StaticBroker }])
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::topic::overrides;
    use crate::config::KEYS;

    fn layers(description: &Description) -> Vec<(&str, &str, i8)> {
        let layer = |s: &'static str, v, c: Source| (s, v, c.code());
        let all = description.synonyms.iter();
        all.map(|s| layer(s.name, s.value.as_str(), s.source)).collect()
    }

    fn find<'a>(all: &'a [Description], name: &str) -> &'a Description {
        all.iter().find(|description| description.name == name).unwrap()
    }

    #[test]
    fn synonyms_are_the_layers_strongest_first() {
        let config = Config::from_toml(Path::new("t"), "log.retention.ms = \"1d\"").unwrap();
        let own = overrides([("retention.ms", Some("5")), ("segment.ms", Some("9"))], &config);
        let all = describe_topic(&own.unwrap(), &config);
        assert_eq!(all.len(), TOPIC_KEYS.len());
        for (name, value, expect) in [
            (
                "retention.ms",
                "5",
                &[
                    ("retention.ms", "5", 1),
                    ("log.retention.ms", "86400000", 4),
                    ("log.retention.ms", "604800000", 5),
                ][..],
            ),
            ("segment.ms", "9", &[("segment.ms", "9", 1), ("log.roll.ms", "604800000", 5)]),
            ("max.message.bytes", "1048588", &[("message.max.bytes", "1048588", 5)]),
            (
                "leader.replication.throttled.replicas",
                "",
                &[("leader.replication.throttled.replicas", "", 5)],
            ),
        ] {
            let description = find(&all, name);
            assert_eq!(description.value, value);
            assert_eq!(layers(description), expect);
            assert_eq!(description.is_default(), expect[0].2 == 5);
            assert!(!description.read_only && !description.sensitive);
        }
    }

    #[test]
    fn types_have_kafkas_codes() {
        let all = describe_topic(&Overrides::new(), &Config::default());
        for (name, code) in [
            ("preallocate", 1),
            ("compression.type", 2),
            ("max.message.bytes", 3),
            ("retention.ms", 5),
            ("min.cleanable.dirty.ratio", 6),
            ("cleanup.policy", 7),
        ] {
            assert_eq!(find(&all, name).data_type.code(), code, "{name}");
        }
    }

    #[test]
    fn the_broker_lists_its_keys_and_kafkas_names() {
        let config = Config::from_toml(Path::new("t"), "num.partitions = 3").unwrap();
        let address = HostPort::parse("h:1").unwrap();
        let node = Node { id: 1, listening: address.clone(), advertised: address };
        let all = describe_broker(&config, &node);
        assert_eq!(all.len(), KEYS.len() + 5);
        assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(all.iter().all(|description| description.read_only));
        let partitions = find(&all, "num.partitions");
        assert_eq!(layers(partitions), [("num.partitions", "3", 4), ("num.partitions", "1", 5)]);
        assert_eq!(find(&all, "log.retention.ms").value, "604800000");
        assert_eq!(find(&all, "listeners").value, "PLAINTEXT://h:1");
        assert!(find(&all, "reserve.bytes").documentation.contains("No effect in this version"));
    }
}
