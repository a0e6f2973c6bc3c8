//! The key somebody most likely meant.
//!
//! First what Kafka calls things that have another name here, then the fewest typing mistakes.
//! Used for error messages only.

/// Kafka's names for what Basalt has under another one.
const KAFKA_WORDS: &[(&str, &str)] = &[
    ("advertised.host.name", "advertised"),
    ("advertised.listeners", "advertised"),
    ("flush.ms", "flush.interval.ms"),
    ("host.name", "listen"),
    ("listeners", "listen"),
    ("log.dir", "data.dir"),
    ("log.dirs", "data.dir"),
    ("log.flush.interval.messages", "flush"),
    ("log.flush.interval.ms", "flush"),
    ("log.retention.hours", "log.retention.ms"),
    ("log.retention.minutes", "log.retention.ms"),
    ("max.message.bytes", "message.max.bytes"),
    ("num.io.threads", "cores"),
    ("num.network.threads", "cores"),
    ("num.replica.fetchers", "cores"),
    ("port", "listen"),
    ("queued.max.request.bytes", "core.held.bytes"),
    ("queued.max.requests", "connection.requests.max"),
    ("transactional.id.expiration.ms", "producer.id.expiration.ms"),
];

/// No key is longer.
const NAME_LENGTH_MAX: usize = 64;

/// The nearest of `names` to `wanted`; the first of several equally near.
pub fn nearest(wanted: &str, names: impl Iterator<Item = &'static str>) -> &'static str {
    let wanted = wanted.to_ascii_lowercase().replace(['_', '-'], ".");
    if let Some((_, ours)) = KAFKA_WORDS.iter().find(|(theirs, _)| *theirs == wanted) {
        return ours;
    }
    nearest_of(&wanted, names)
}

/// The one of `names` with the fewest typing mistakes to `wanted`. A client's text may be long,
/// and the work grows with its length.
pub fn nearest_of(wanted: &str, names: impl Iterator<Item = &'static str>) -> &'static str {
    let wanted: String = wanted.chars().take(NAME_LENGTH_MAX).collect();
    names.min_by_key(|name| strsim::osa_distance(&wanted, name)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;

    #[test]
    fn nearest_keys() {
        for (wanted, expect) in [
            ("log.segment.byte", "log.segment.bytes"),
            ("LOG_SEGMENT_BYTES", "log.segment.bytes"),
            ("core", "cores"),
            ("data-dir", "data.dir"),
            ("datadir", "data.dir"),
            ("flsh", "flush"),
            ("log.dirs", "data.dir"),
            ("retention.ms", "log.retention.ms"),
            ("advertised.listeners", "advertised"),
        ] {
            assert_eq!(nearest(wanted, KEYS.iter().map(|key| key.name)), expect, "{wanted}");
        }
    }

    #[test]
    fn every_kafka_word_leads_to_a_key() {
        for (theirs, ours) in KAFKA_WORDS {
            assert!(KEYS.iter().any(|key| key.name == *ours), "{ours}");
            assert!(KEYS.iter().all(|key| key.name != *theirs), "{theirs} is a key");
        }
    }
}
