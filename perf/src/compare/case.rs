//! What can be measured, and its names.
//!
//! A produce case is named by what it departs in from 1 partition, 1 producer, acks=1 and no
//! compression: `produce-1KiB-1000p-16x-all-scattered`. `scattered` gives each record a partition
//! of its own, as keys do, where librdkafka otherwise stays with one for 10 ms. With `none`, `lz4`
//! or `zstd` the records are JSON.

use super::peer::Peer;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Lz4,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producing {
    pub bytes: usize,
    pub partitions: u32,
    pub producers: u32,
    /// acks=all, else 1.
    pub is_all: bool,
    pub is_scattered: bool,
    /// Records of JSON, compressed like this by the client.
    pub json: Option<Codec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Produce(Producing),
    /// Records of this size that have just been produced.
    Consume(usize),
    /// End to end at so many records a second.
    Latency(u32),
    /// The same with a linger of 5 ms, which newer clients of Kafka's have by default.
    LingeringLatency(u32),
    /// 16 consumer groups that read one topic at once.
    Groups,
    /// Old records, none of which is in memory.
    CatchUp,
    /// The same, where Basalt has them in table files alone.
    CatchUpTables,
    /// 1,000 consumers that wait for records.
    IdleConsumers,
    /// 2,000 connections that have asked once.
    Connections,
    JavaProduce,
    JavaConsume,
    JavaLatency,
    /// From the start to the first produce.
    Start,
    /// Bytes of JSON records at rest.
    Disk,
}

const SIZES: [(&str, usize); 3] = [("100B", 100), ("1KiB", 1024), ("100KiB", 100 << 10)];

const NAMED: [(&str, Case); 13] = [
    ("groups", Case::Groups),
    ("catch-up", Case::CatchUp),
    ("catch-up-tables", Case::CatchUpTables),
    ("idle-consumers", Case::IdleConsumers),
    ("connections", Case::Connections),
    ("java-produce", Case::JavaProduce),
    ("java-consume", Case::JavaConsume),
    ("java-latency", Case::JavaLatency),
    ("start", Case::Start),
    ("disk", Case::Disk),
    ("latency-1000", Case::Latency(1000)),
    ("latency-50000", Case::Latency(50_000)),
    ("latency-50000-linger", Case::LingeringLatency(50_000)),
];

/// Those the bars are about.
pub const BARS: &[&str] = &[
    "produce-100B",
    "produce-1KiB",
    "produce-1KiB-1000p-all",
    "produce-1KiB-1000p-all-scattered",
    "latency-1000",
    "latency-50000",
    "consume-1KiB",
    "start",
    "disk",
];

/// The others of a run without names.
pub const OTHERS: &[&str] = &[
    "produce-100KiB",
    "latency-50000-linger",
    "produce-1KiB-100p",
    "produce-1KiB-1000p",
    "produce-1KiB-16x",
    "produce-1KiB-1000p-16x-all",
    "produce-100B-all",
    "produce-1KiB-all",
    "produce-100KiB-all",
    "produce-1KiB-none",
    "produce-1KiB-lz4",
    "produce-1KiB-zstd",
    "consume-100B",
    "consume-100KiB",
    "groups",
    "catch-up",
    "catch-up-tables",
    "idle-consumers",
    "connections",
    "java-produce",
    "java-consume",
    "java-latency",
];

/// Every combination of sizes, partitions, producers, acks and codecs.
pub fn matrix() -> Vec<Case> {
    let mut all = Vec::new();
    for (_, bytes) in SIZES {
        for partitions in [1, 100, 1000] {
            for producers in [1, 16] {
                for is_all in [false, true] {
                    for json in [None, Some(Codec::Lz4), Some(Codec::Zstd)] {
                        let is_scattered = false;
                        let one =
                            Producing { bytes, partitions, producers, is_all, is_scattered, json };
                        all.push(Case::Produce(one));
                    }
                }
            }
        }
    }
    all
}

impl Case {
    /// Whether it says something of this broker: reading is the same under both policies, acks=1
    /// waits for no sync, and tables are made of what is produced.
    pub fn is_for(self, peer: Peer) -> bool {
        if peer == Peer::BasaltLog {
            return matches!(self, Case::Produce(producing) if !producing.is_all);
        }
        match self {
            Case::Produce(producing) => producing.is_all || !peer.syncs(),
            Case::Latency(_) | Case::LingeringLatency(_) => true,
            Case::JavaProduce | Case::JavaLatency => true,
            _ => !peer.syncs(),
        }
    }

    /// Starts brokers of its own.
    pub fn stands_alone(self) -> bool {
        matches!(self, Case::Start | Case::Disk | Case::CatchUp | Case::CatchUpTables)
    }
}

fn size(name: &str) -> Option<usize> {
    SIZES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
}

fn producing(words: &str) -> Option<Producing> {
    let mut words = words.split('-');
    let mut one = Producing {
        bytes: size(words.next()?)?,
        partitions: 1,
        producers: 1,
        is_all: false,
        is_scattered: false,
        json: None,
    };
    for word in words {
        match word {
            "all" => one.is_all = true,
            "scattered" => one.is_scattered = true,
            "none" => one.json = Some(Codec::None),
            "lz4" => one.json = Some(Codec::Lz4),
            "zstd" => one.json = Some(Codec::Zstd),
            _ => {
                if let Some(count) = word.strip_suffix('p') {
                    one.partitions = count.parse().ok().filter(|count| *count > 0)?;
                } else {
                    one.producers = word.strip_suffix('x')?.parse().ok()?;
                }
            }
        }
    }
    // Records of JSON are sent by one kind of producer, which knows no partitions of its own.
    let fits = one.producers > 0 && !(one.json.is_some() && one.is_scattered);
    fits.then_some(one)
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Case, String> {
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, case)| *case);
        let case = named
            .or_else(|| name.strip_prefix("produce-").and_then(producing).map(Case::Produce))
            .or_else(|| name.strip_prefix("consume-").and_then(size).map(Case::Consume));
        case.ok_or_else(|| format!("there is no case {name:?}; --list names those of a run"))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: usize| {
            SIZES.iter().find(|(_, known)| *known == bytes).map_or("?", |(name, _)| *name)
        };
        match self {
            Case::Produce(one) => {
                write!(f, "produce-{}", size(one.bytes))?;
                if one.partitions > 1 {
                    write!(f, "-{}p", one.partitions)?;
                }
                if one.producers > 1 {
                    write!(f, "-{}x", one.producers)?;
                }
                f.write_str(if one.is_all { "-all" } else { "" })?;
                f.write_str(if one.is_scattered { "-scattered" } else { "" })?;
                f.write_str(match one.json {
                    None => "",
                    Some(Codec::None) => "-none",
                    Some(Codec::Lz4) => "-lz4",
                    Some(Codec::Zstd) => "-zstd",
                })
            }
            Case::Consume(bytes) => write!(f, "consume-{}", size(*bytes)),
            named => {
                let name = NAMED.iter().find(|(_, case)| case == named);
                f.write_str(name.map_or("latency", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_that_leads_to_it() {
        let mut all = matrix();
        all.extend(BARS.iter().chain(OTHERS).map(|name| name.parse::<Case>().unwrap()));
        for case in all {
            assert_eq!(case.to_string().parse::<Case>(), Ok(case));
        }
        for name in BARS.iter().chain(OTHERS) {
            assert_eq!(name.parse::<Case>().unwrap().to_string(), *name);
        }
        assert_eq!(matrix().len(), 3 * 3 * 2 * 2 * 3);
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "produce", "produce-7B", "produce-1KiB-0p", "produce-1KiB-x", "consume-"] {
            assert!(name.parse::<Case>().is_err(), "{name}");
        }
    }
}
