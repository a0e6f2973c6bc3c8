//! What topics may be told and what comes of it, over what the broker was told.

use std::path::Path;

use super::topic::*;
use super::*;

fn broker(text: &str) -> Config {
    Config::from_toml(Path::new("t"), text).unwrap()
}

fn given(pairs: &[(&str, &str)], config: &Config) -> Result<Overrides, InvalidConfig> {
    overrides(pairs.iter().map(|(name, value)| (*name, Some(*value))), config)
}

fn settings(pairs: &[(&str, &str)], config: &Config) -> TopicSettings {
    TopicSettings::resolve(&given(pairs, config).unwrap(), config).unwrap()
}

#[test]
fn the_table_is_sorted_and_its_defaults_are_legal() {
    let config = Config::default();
    for pair in TOPIC_KEYS.windows(2) {
        assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
    }
    for key in TOPIC_KEYS {
        key.parse(key.default).unwrap();
        key.parse(&key.broker_default(&config)).unwrap();
        assert!(key.meaning.ends_with('.'), "{}", key.name);
        match key.broker {
            BrokerKey::Ours(name) => {
                let entry = config.entry(name).unwrap();
                assert_eq!(entry.value.plain(), key.default, "{}", key.name);
            }
            // log.segment.bytes is a key here too, of another thing.
            BrokerKey::Kafkas(name) => {
                assert!(config.entry(name).is_none() || name == "log.segment.bytes", "{name}")
            }
            BrokerKey::None => {}
        }
    }
}

#[test]
fn whatever_the_broker_may_be_told_is_legal_for_its_topics() {
    for key in TOPIC_KEYS {
        let BrokerKey::Ours(name) = key.broker else {
            continue;
        };
        let texts: Vec<String> = match Config::default().entry(name).unwrap().key.kind {
            Kind::Count { min, max } | Kind::Bytes { min, max } | Kind::Millis { min, max } => {
                vec![min.to_string(), max.to_string()]
            }
            Kind::Choice(words) | Kind::Choices(words) => {
                words.iter().map(|word| word.to_string()).collect()
            }
            kind => panic!("{name} is {kind}"),
        };
        for text in texts {
            key.parse(&text).unwrap();
        }
    }
}

#[test]
fn defaults_are_kafkas() {
    let defaults = settings(&[], &Config::default());
    assert_eq!(defaults.cleanup, Cleanup { delete: true, compact: false });
    assert_eq!(defaults.retention_ms, Some(604_800_000));
    assert_eq!(defaults.retention_bytes, None);
    assert_eq!(defaults.max_message_bytes, 1_048_588);
    assert_eq!(defaults.segment_bytes, 1 << 30);
    assert_eq!(defaults.timestamp_type, TimestampType::CreateTime);
    assert_eq!(defaults.timestamp_after_max_ms, 3_600_000);
    assert_eq!(defaults.timestamp_before_max_ms, i64::MAX);
    assert_eq!(defaults.flush, Flush::Commit);
}

#[test]
fn a_topic_goes_before_the_broker() {
    let config = broker("flush = \"os\"\nlog.retention.ms = \"1d\"\nmessage.max.bytes = 1000");
    let plain = settings(&[], &config);
    assert_eq!(plain.flush, Flush::Os);
    assert_eq!(plain.retention_ms, Some(86_400_000));
    let own = settings(
        &[("flush", "commit"), ("retention.ms", " -1 "), ("max.message.bytes", "2000")],
        &config,
    );
    assert_eq!(own.flush, Flush::Commit);
    assert_eq!(own.retention_ms, None);
    assert_eq!(own.max_message_bytes, 2000);
}

#[test]
fn retention_is_for_topics_that_delete() {
    let config = Config::default();
    let policy =
        |policy| settings(&[("cleanup.policy", policy), ("retention.bytes", "5")], &config);
    assert_eq!(policy("compact").retention_bytes, None);
    assert_eq!(policy("compact").retention_ms, None);
    assert_eq!(policy("compact, delete").retention_bytes, Some(5));
    assert!(policy("compact, delete").cleanup.compact);
}

#[test]
fn what_is_refused_says_why() {
    for (name, value, expect) in [
        (
            "retention.msec",
            "1",
            "there is no topic configuration \"retention.msec\"; did you mean retention.ms?",
        ),
        (
            "retention.ms",
            "7d",
            "retention.ms = \"7d\" is not allowed; give a whole number of at least -1",
        ),
        (
            "retention.ms",
            "-2",
            "retention.ms = \"-2\" is not allowed; give a whole number of at least -1",
        ),
        (
            "max.message.bytes",
            "2147483648",
            "max.message.bytes = \"2147483648\" is not allowed; give a whole number of at least 0",
        ),
        (
            "compression.gzip.level",
            "10",
            "compression.gzip.level = \"10\" is not allowed; give a whole number from -1 to 9",
        ),
        (
            "cleanup.policy",
            "",
            "cleanup.policy = \"\" is not allowed; give one or more of compact, delete, separated \
             by commas",
        ),
        (
            "min.cleanable.dirty.ratio",
            "NaN",
            "min.cleanable.dirty.ratio = \"NaN\" is not allowed; give a number from 0 to 1",
        ),
        ("flush", "never", "flush = \"never\" is not allowed; give one of commit, interval, os"),
        (
            "leader.replication.throttled.replicas",
            "1-2",
            "leader.replication.throttled.replicas = \"1-2\" is not allowed; give *, or \
             partition:broker pairs separated by commas",
        ),
        ("preallocate", "1", "preallocate = \"1\" is not allowed; give true or false"),
        (
            "remote.storage.enable",
            "true",
            "remote.storage.enable = true: this broker has no tiered storage",
        ),
        (
            "min.compaction.lag.ms",
            "9223372036854775807",
            "min.compaction.lag.ms = 9223372036854775807 must not be above max.compaction.lag.ms \
             = 5",
        ),
    ] {
        let mut pairs = vec![(name, value)];
        if name == "min.compaction.lag.ms" {
            pairs.push(("max.compaction.lag.ms", "5"));
        }
        let error = given(&pairs, &Config::default()).unwrap_err();
        assert_eq!(error.to_string(), expect);
    }
}

#[test]
fn no_value_and_too_much_of_one_are_refused() {
    let error = overrides([("flush", None)], &Config::default()).unwrap_err();
    assert_eq!(error.to_string(), "flush was given without a value");
    let long = "0:1,".repeat(5000);
    let name = "leader.replication.throttled.replicas";
    let error = given(&[(name, &long)], &Config::default()).unwrap_err();
    assert!(error.to_string().ends_with("has 20000 bytes, more than 16384"), "{error}");
    let error = find(&long).unwrap_err().to_string();
    assert!(error.len() < 250, "{error}");
}

#[test]
fn what_is_accepted() {
    for (name, value) in [
        ("preallocate", "TRUE"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1, 1:2"),
        ("follower.replication.throttled.replicas", ""),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("compression.zstd.level", "-5"),
        ("min.insync.replicas", "2"),
        ("segment.bytes", "+14"),
    ] {
        let kept = given(&[(name, value)], &Config::default()).unwrap();
        assert_eq!(kept.get(name).map(String::as_str), Some(value));
    }
}

#[test]
fn stored_only_configurations_say_so() {
    let documentation = find("segment.ms").unwrap().documentation();
    assert!(documentation.contains("Accepted and stored without effect: "), "{documentation}");
    let documentation = find("retention.ms").unwrap().documentation();
    assert!(!documentation.contains("without effect"), "{documentation}");
}
