//! The words some keys choose from, each set a closed enum.
//!
//! `Flush::NAMES` is what the key table allows, `Flush::named` reads a word, `name` writes it: the
//! three cannot drift apart. The meanings are documented at the keys.

use super::value::{Setting, Value};

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$word_doc:meta])* $variant:ident = $word:literal),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $name { $($(#[$word_doc])* $variant),* }

            impl $name {
                pub const NAMES: &'static [&'static str] = &[$($word),*];

                pub fn named(word: &str) -> Option<$name> {
                    match word {
                        $($word => Some($name::$variant),)*
                        _ => None,
                    }
                }

                pub fn name(self) -> &'static str {
                    match self { $($name::$variant => $word),* }
                }
            }

            impl Setting for $name {
                fn from_value(value: &Value) -> Option<Self> {
                    match value {
                        Value::Text(word) => $name::named(word),
                        _ => None,
                    }
                }
            }
        )*
    };
}

choices! {
    /// When a produce with acks=all is answered and its records become visible.
    Flush {
        /// After a sync of the log covers it: survives a power cut.
        Commit = "commit",
        /// At the append; a sync follows within `flush.interval.ms`.
        Interval = "interval",
        /// At the append; a sync follows in the background.
        Os = "os",
    }

    /// What Metadata tells clients about the cores.
    Advertise {
        /// One Kafka broker that answers for every core.
        One = "one",
        /// Every core as a Kafka broker with a port of its own.
        PerCore = "per-core",
    }

    /// Which clock a record's timestamp comes from.
    TimestampType {
        CreateTime = "CreateTime",
        LogAppendTime = "LogAppendTime",
    }

    /// The codec a topic's batches are meant to have.
    Compression {
        Uncompressed = "uncompressed",
        Zstd = "zstd",
        Lz4 = "lz4",
        Snappy = "snappy",
        Gzip = "gzip",
        /// As the producer sent them.
        Producer = "producer",
    }
}

/// What happens to old records: dropped by age and size, reduced to the last one per key, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cleanup {
    pub delete: bool,
    pub compact: bool,
}

impl Cleanup {
    pub const NAMES: &'static [&'static str] = &["compact", "delete"];
}

impl Setting for Cleanup {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Words(words) = value else {
            return None;
        };
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        Some(Cleanup { delete: has("delete"), compact: has("compact") })
    }
}
