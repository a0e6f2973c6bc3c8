//! Every key of the broker, once: field, type, name, bounds, default, meaning.
//!
//! The table below becomes the struct [`Config`], the list [`KEYS`] and `config/basalt.toml`. A
//! field is its key with dots as underscores. What Kafka has a name for keeps it. A key whose
//! feature is not built yet is marked `planned`: it is read and checked, and `basalt config check`
//! says that it has no effect.

use std::path::PathBuf;

use super::choice::{Advertise, Cleanup, Compression, Flush, TimestampType};
use super::load::Entry;
use super::value::{AddressCounts, HostPort, Kind, Setting};

/// One key. `default` is written as a person would write it.
#[derive(Debug, PartialEq)]
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub meaning: &'static str,
    pub effect: Effect,
}

/// Whether a key does anything in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Live,
    Planned,
}

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const NO_END: i64 = i64::MAX;

const fn count(min: i64, max: i64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: i64, max: i64) -> Kind {
    Kind::Bytes { min, max }
}

const fn millis(min: i64, max: i64) -> Kind {
    Kind::Millis { min, max }
}

macro_rules! keys {
    ($([$section:literal] $($field:ident: $type:ty = $name:literal, $kind:expr, $default:literal,
        $effect:ident, $meaning:literal;)*)*) => {
        /// The effective configuration: defaults < file < flags < `--set`.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(#[doc = $meaning] pub $field: $type,)*)*
            /// Every key in table order, with its value and where that came from.
            pub entries: Vec<Entry>,
        }

        pub static KEYS: &[Key] = &[$($(Key {
            section: $section,
            name: $name,
            kind: $kind,
            default: $default,
            meaning: $meaning,
            effect: Effect::$effect,
        },)*)*];

        impl Config {
            /// `entries` holds one entry per key, in table order.
            pub(super) fn from_entries(entries: Vec<Entry>) -> Config {
                let mut in_order = entries.iter();
                Config { $($($field: typed(in_order.next()),)*)* entries }
            }
        }

        #[cfg(test)]
        const FIELDS: &[&str] = &[$($(stringify!($field),)*)*];
    };
}

/// A key's bounds are within its type's; both stand in one line of the table and a test tries both
/// ends, so a mismatch is an error of the table, never of the user.
fn typed<T: Setting>(entry: Option<&Entry>) -> T {
    match entry.map(|entry| (entry.key.name, T::from_value(&entry.value))) {
        Some((_, Some(value))) => value,
        Some((name, None)) => panic!("the key table gives {name} a type that cannot hold it"),
        None => panic!("the key table has more keys than there are values"),
    }
}

keys! {
["Data"]
data_dir: PathBuf = "data.dir", Kind::Path, "./basalt-data", Live,
    "The directory that holds the logs and everything else the broker keeps. One broker at a \
     time.";
reserve_bytes: Option<u64> = "reserve.bytes", bytes(-1, NO_END), "-1", Planned,
    "Disk space set aside for the broker's own records, so that deletions and retention still work \
     when the disk is full. -1: the larger of 16MiB and one segment. Never more than 1/8 of the \
     file system.";

["Clients"]
listen: HostPort = "listen", Kind::Address, "127.0.0.1:9092", Live,
    "Where Kafka clients connect. Port 0 takes a free one. With advertise = \"per-core\" this is \
     core 0, and core N listens on this port + N.";
advertised: Option<HostPort> = "advertised", Kind::AddressOrNone, "", Live,
    "The address clients are told to connect to, when it is not the one listened on (containers, \
     port mappings). Port 0 stands for the port listened on. With advertise = \"per-core\" core N \
     has this port + N. Needed when listening on every interface.";
advertise: Advertise = "advertise", Kind::Choice(Advertise::NAMES), "one", Live,
    "one: clients see one broker and any port mapping works. per-core: clients see every core as \
     a broker of its own and go straight to the core that owns a partition.";
http: Option<HostPort> = "http", Kind::AddressOrNone, "127.0.0.1:8092", Live,
    "Where HTTP is served: /metrics, /healthz and /readyz for operators, /sql for queries, \
     /iceberg for readers of tables. Port 0 takes a free one. Empty: nowhere.";
pg: Option<HostPort> = "pg", Kind::AddressOrNone, "127.0.0.1:5433", Live,
    "Where clients of PostgreSQL (psql, Grafana, drivers) connect to query topics. Port 0 takes a \
     free one. Empty: nowhere.";

["Threads"]
cores: u32 = "cores", count(0, 256), "0", Live,
    "Threads that serve clients and own logs, pinned when there are as many CPUs. 0: the CPUs \
     less a quarter of them (rounded up), at least 1.";
workers: u32 = "workers", count(0, 256), "0", Live,
    "Threads at low priority for jobs of the logs, and as many at ordinary priority for cold reads \
     and large batches. 0: as many as CPUs are left beside the cores, at least 1.";
shutdown_grace_ms: i64 = "shutdown.grace.ms", millis(0, HOUR), "10s", Live,
    "How long a stopping broker waits for requests it has begun, before it closes connections.";
log_level: String = "log.level", Kind::Text, "info", Live,
    "What the broker says about itself on standard error: error, warn, info, debug, trace, or a \
     filter per module like \"info,basalt::net=debug\".";

["Durability"]
flush: Flush = "flush", Kind::Choice(Flush::NAMES), "commit", Live,
    "When acks=all is answered and records become visible, for topics that do not say it \
     themselves. commit: after a sync, survives a power cut. interval: at the append, a sync \
     follows within flush.interval.ms. os: at the append, as Apache Kafka does by default; \
     survives a killed process, not a power cut.";
flush_interval_ms: i64 = "flush.interval.ms", millis(1, MINUTE), "100ms", Live,
    "With flush = \"interval\": the longest time an answered record may be without a sync.";
log_background_sync_ms: i64 = "log.background.sync.ms", millis(1, HOUR), "1s", Live,
    "With flush = \"os\": a sync starts at least this often while there is something to sync.";
log_background_sync_bytes: u64 = "log.background.sync.bytes", bytes(MIB, GIB), "64MiB", Live,
    "With flush = \"os\": a sync starts at the latest when so many bytes of a log are not synced.";
log_unsynced_max_bytes: u64 = "log.unsynced.max.bytes", bytes(64 * KIB, GIB), "16MiB", Live,
    "With flush = \"commit\": bytes of a log that may wait for a sync before produces are held \
     back. More means more throughput and slower answers.";
log_unsynced_relaxed_max_bytes: u64 = "log.unsynced.relaxed.max.bytes", bytes(64 * KIB, 16 * GIB),
    "256MiB", Live,
    "The same bound for a log on which nothing waits for syncs.";
log_sync_interval_min_us: u64 = "log.sync.interval.min.us", count(0, 1_000_000), "1_000", Live,
    "The least time between the starts of two syncs of a log, in microseconds, so that at a low \
     rate they share pages.";
log_sync_stall_ms: i64 = "log.sync.stall.ms", millis(10, HOUR), "1s", Live,
    "When a sync takes longer than this, produces to its log wait until it is done.";
log_mark_idle_ms: i64 = "log.mark.idle.ms", millis(1, HOUR), "200ms", Live,
    "A log that has been idle for this long after a sync writes down how far it is durable.";

["Log"]
log_segment_bytes: u64 = "log.segment.bytes", bytes(MIB, GIB), "256MiB", Live,
    "The full size of a segment file. A log holds the batches of many partitions, so this is not \
     Kafka's per-partition segment.bytes. Segments are smaller while the log or the disk is small.";
log_segment_initial_bytes: u64 = "log.segment.initial.bytes", bytes(64 * KIB, GIB), "8MiB", Live,
    "The size of a new log's first segment; the following ones double up to log.segment.bytes.";
log_prefault_bytes: u64 = "log.prefault.bytes", bytes(64 * KIB, 256 * MIB), "32MiB", Live,
    "How far ahead of the end of a log its memory is made ready, at most.";
log_warm_bytes: u64 = "log.warm.bytes", bytes(MIB, 64 * GIB), "256MiB", Live,
    "The last bytes of each log are sent to consumers straight from mapped memory; older ones are \
     read from the disk by a worker.";
log_inline_max_bytes: u64 = "log.inline.max.bytes", bytes(64 * KIB, 256 * MIB), "4MiB", Live,
    "Larger batches are checked, written and synced by a worker into a file of their own.";
log_index_cache_bytes: u64 = "log.index.cache.bytes", bytes(MIB, 64 * GIB), "64MiB", Planned,
    "Memory for the indexes of sealed segments, over all cores.";
log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms", millis(100, DAY),
    "5min", Live,
    "How often a log looks for records that retention no longer keeps.";
log_relocate_live_percent: u32 = "log.relocate.live.percent", count(0, 50), "25", Live,
    "A segment is emptied when no more of it is alive than this percentage: that is copied to the \
     end of the log, so that topics with little data or long retention hold no old segment back. 0 \
     turns that off.";
log_relocate_bandwidth_percent: u32 = "log.relocate.bandwidth.percent", count(1, 100), "10", Live,
    "What this copying and compaction may add to what is appended, in percent.";
log_relocate_min_bytes_per_second: u64 = "log.relocate.min.bytes.per.second", bytes(KIB, NO_END),
    "1MiB", Live,
    "What they may write in a second, for each log, when that is more.";
log_cleaner_dedupe_buffer_size: u64 = "log.cleaner.dedupe.buffer.size",
    bytes(MIB, 64 * GIB), "64MiB", Live,
    "Memory for the keys of one compaction. What has more new keys than fit is compacted in parts. \
     Each log compacts one partition at a time.";

["Tables"]
hot_bytes: u64 = "hot.bytes", bytes(0, NO_END), "8GiB", Live,
    "How much recent history is kept as raw log after it has become part of a table, over all \
     logs.";
hot_ms: i64 = "hot.ms", millis(0, NO_END), "24h", Live,
    "How long recent history is kept as raw log after it has become part of a table.";
table_commit_bytes: u64 = "table.commit.bytes", bytes(KIB, 64 * GIB), "64MiB", Live,
    "The records of a topic that are in no table file yet are written into one when they have so \
     many bytes in the log. SQL sees them either way.";
table_commit_ms: i64 = "table.commit.ms", millis(1, NO_END), "15min", Live,
    "They are written at the latest when the oldest of them has this age; earlier when the log \
     needs their room, or an Iceberg reader asks.";
table_file_max_bytes: u64 = "table.file.max.bytes", bytes(64 * KIB, 64 * GIB), "512MiB", Live,
    "Small files of a table are merged until one holds so many bytes of records, as they are in \
     the log.";
table_backlog_bytes: u64 = "table.backlog.bytes", bytes(MIB, NO_END), "2GiB", Live,
    "When the records of a core that are in no table file yet come to more than this, writing \
     files takes precedence, and producers are slowed down.";
table_cache_bytes: u64 = "table.cache.bytes", bytes(MIB, 64 * GIB), "64MiB", Live,
    "Memory for batches that were made again from table files, so that several consumers of the \
     same old records share the work.";
table_workers: u32 = "table.workers", count(0, 256), "0", Live,
    "Threads at the lowest priority that write and merge table files. 0: as many as workers.";
iceberg_reader_grace_ms: i64 = "iceberg.reader.grace.ms", millis(0, NO_END), "10min", Live,
    "How long table files stay after others have taken their place, for readers that have begun \
     with the old ones.";

["SQL"]
sql_memory_bytes: u64 = "sql.memory.bytes", bytes(16 * MIB, NO_END), "512MiB", Live,
    "Memory all queries together may use; beyond it they put data on the disk.";
sql_spill_bytes: u64 = "sql.spill.bytes", bytes(0, NO_END), "4GiB", Live,
    "What queries may put on the disk; one that needs more ends with an error.";
sql_timeout_ms: i64 = "sql.timeout.ms", millis(1, NO_END), "5min", Live,
    "The longest time a query may run.";
sql_concurrency: u32 = "sql.concurrency", count(1, 10_000), "8", Live,
    "Queries that run at the same time; others wait a little, then end with an error.";
sql_threads: u32 = "sql.threads", count(0, 256), "0", Live,
    "Threads that run queries. 0: as many as CPUs are left beside the cores, at least 1.";

["Topics"]
auto_create_topics_enable: bool = "auto.create.topics.enable", Kind::Bool, "true", Live,
    "Whether a client that asks for a topic that is not there creates it.";
delete_topic_enable: bool = "delete.topic.enable", Kind::Bool, "true", Live,
    "Whether clients may delete topics.";
num_partitions: i32 = "num.partitions", count(1, 10_000), "1", Live,
    "Partitions of a topic whose creator does not say how many.";
default_replication_factor: i32 = "default.replication.factor", count(1, 32_767), "1", Live,
    "Taken when a topic's creator does not say. There is one copy whatever it says: accepted for \
     tools that expect it.";
partitions_max: u32 = "partitions.max", count(1, 10_000_000), "200_000", Live,
    "Partitions the broker may hold; topics that would pass it are refused.";
topic_partitions_max: i32 = "topic.partitions.max", count(1, 1_000_000), "100_000", Live,
    "Partitions one topic may have.";

["Topic defaults"]
log_cleanup_policy: Cleanup = "log.cleanup.policy", Kind::Choices(Cleanup::NAMES), "delete", Live,
    "What happens to old records. delete: they go by age and size. compact: each key's last stays.";
log_retention_ms: Option<i64> = "log.retention.ms", millis(-1, NO_END), "7d", Live,
    "How long records are kept. -1: for ever.";
log_retention_bytes: Option<i64> = "log.retention.bytes", bytes(-1, NO_END), "-1", Live,
    "How many bytes of each partition are kept. -1: all.";
message_max_bytes: i32 = "message.max.bytes", bytes(0, GIB), "1_048_588", Live,
    "The largest batch a producer may send, as it is on the wire.";
log_message_timestamp_type: TimestampType = "log.message.timestamp.type",
    Kind::Choice(TimestampType::NAMES), "CreateTime", Live,
    "CreateTime: the producer's clock. LogAppendTime: the broker's, at the append.";
log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms",
    millis(0, NO_END), "9223372036854775807", Live,
    "How far a producer's timestamp may lie in the past.";
log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms",
    millis(0, NO_END), "1h", Live,
    "How far a producer's timestamp may lie in the future.";
compression_type: Compression = "compression.type", Kind::Choice(Compression::NAMES), "producer",
    Planned,
    "The codec of stored batches. Batches are kept as the producer sent them, whatever it says.";
min_insync_replicas: i32 = "min.insync.replicas", count(1, 32_767), "1", Planned,
    "Copies that acks=all asks for. There is one copy: accepted for tools that expect it.";

["Groups"]
offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions", count(1, 10_000), "50", Live,
    "Partitions of __consumer_offsets, which spread groups over the cores. Counts when the topic \
     is made, at the first use of a group.";
group_initial_rebalance_delay_ms: i64 = "group.initial.rebalance.delay.ms", millis(0, HOUR), "3s",
    Live,
    "How long the first rebalance of an empty group waits for more members; each of them prolongs \
     it, up to the group's rebalance timeout.";
group_min_session_timeout_ms: i64 = "group.min.session.timeout.ms", millis(1, HOUR), "6s", Live,
    "The shortest session timeout a member may ask for.";
group_max_session_timeout_ms: i64 = "group.max.session.timeout.ms", millis(1, DAY), "30min", Live,
    "The longest session timeout a member may ask for.";
group_max_size: u32 = "group.max.size", count(1, 1_000_000), "10_000", Live,
    "Members one group may have.";
group_max_count: u32 = "group.max.count", count(1, 10_000_000), "10_000", Live,
    "Groups each partition of __consumer_offsets may have; new ones beyond it are refused.";
group_metadata_max_bytes: u64 = "group.metadata.max.bytes", bytes(KIB, GIB), "16MiB", Live,
    "What the subscriptions and assignments of all members of one group may come to.";
group_offsets_max: u32 = "group.offsets.max", count(1, 10_000_000), "200_000", Live,
    "Partitions one group may have committed offsets of.";
offset_metadata_max_bytes: u32 = "offset.metadata.max.bytes", count(0, 1_000_000), "4_096", Live,
    "The text a client may commit with an offset, in bytes.";
offsets_retention_minutes: u32 = "offsets.retention.minutes", count(1, 2_147_483_647), "10_080",
    Live,
    "How long offsets are kept after their group has become empty, or after the last commit of \
     consumers that are in no group.";
offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms", millis(1, DAY),
    "10min", Live,
    "How often offsets that are kept no longer are looked for.";

["Limits"]
socket_request_max_bytes: u64 = "socket.request.max.bytes", bytes(64 * KIB, 2 * GIB - 1),
    "100MiB", Live,
    "The largest request. A connection that announces more is closed.";
connection_unauthenticated_max_bytes: u64 = "connection.unauthenticated.max.bytes",
    bytes(4 * KIB, 16 * MIB), "64KiB", Planned,
    "The largest request before a client has authenticated, where it has to.";
max_connections: u32 = "max.connections", count(1, 1_000_000), "10_000", Live,
    "Connections the broker holds, over all cores; more are closed at once. Lower when the process \
     may not open so many files.";
max_connections_per_ip: Option<u32> = "max.connections.per.ip", count(-1, 1_000_000), "-1", Live,
    "Connections from one address, over all cores. -1: no limit of its own.";
max_connections_per_ip_overrides: AddressCounts = "max.connections.per.ip.overrides",
    Kind::AddressCounts, "", Live,
    "Addresses with another limit than max.connections.per.ip, like \"10.0.0.7:500,[::1]:20\". \
     Addresses, not names.";
connections_max_idle_ms: Option<i64> = "connections.max.idle.ms", millis(-1, NO_END), "10min",
    Live,
    "A connection without a request for this long is closed. -1: never.";
connection_setup_ms: i64 = "connection.setup.ms", millis(100, HOUR), "10s", Live,
    "A new connection whose first request is neither complete nor well under way by then is \
     closed.";
connection_stall_ms: i64 = "connection.stall.ms", millis(100, HOUR), "1min", Live,
    "A connection that owes the rest of a request, or has replies to take, and moves less than \
     64KiB in this time is closed.";
connection_requests_max: u32 = "connection.requests.max", count(1, 100_000), "1_000", Live,
    "Requests of one connection that may be waiting for their replies; the rest is not read yet.";
connection_held_bytes: u64 = "connection.held.bytes", bytes(64 * KIB, 4 * GIB), "64MiB", Live,
    "Bytes of one connection's requests, partly received ones included, and unsent replies beyond \
     which nothing more is read from it. One request is always let in.";
core_held_bytes: u64 = "core.held.bytes", bytes(MIB, 64 * GIB), "512MiB", Live,
    "The same bound for all connections of a core together. When half of it is used, each \
     connection has an even share of the other half; larger requests are then received one by one.";
fetch_max_bytes: u64 = "fetch.max.bytes", bytes(KIB, GIB), "55MiB", Live,
    "The most records one fetch is answered with, whatever the client asks for. The first batch is \
     always sent whole.";
message_decompressed_max_bytes: u64 = "message.decompressed.max.bytes",
    bytes(64 * KIB, 64 * GIB), "128MiB", Live,
    "What the records of one batch may come to when decompressed; a batch beyond it is refused.";
message_decompressed_ratio_max: u32 = "message.decompressed.ratio.max", count(1, 1_000_000),
    "1_100", Live,
    "How many times its size a compressed batch may grow when it comes to more than 2MiB.";
producer_id_expiration_ms: i64 = "producer.id.expiration.ms", millis(1, NO_END), "1d", Live,
    "A partition forgets an idempotent producer that has not written to it for this long.";
producers_max_per_partition: u32 = "producers.max.per.partition", count(1, 10_000_000), "10_000",
    Live,
    "Idempotent producers one partition remembers; beyond it those longest silent are forgotten.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;

    #[test]
    fn a_field_is_its_key_with_underscores() {
        for (key, field) in KEYS.iter().zip(FIELDS) {
            assert_eq!(key.name.replace(['.', '-'], "_"), **field);
        }
    }

    #[test]
    fn names_are_unique_and_meanings_are_sentences() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(key.meaning.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn both_ends_of_all_bounds_fit_the_fields() {
        let at = |end: fn(i64, i64) -> i64| {
            let entry = |key: &'static Key| {
                let text = match key.kind {
                    Kind::Count { min, max }
                    | Kind::Bytes { min, max }
                    | Kind::Millis { min, max } => end(min, max).to_string(),
                    Kind::Choice(words) | Kind::Choices(words) => {
                        words[end(0, words.len() as i64 - 1) as usize].to_string()
                    }
                    _ => key.default.to_string(),
                };
                let value = key.kind.parse(&text).unwrap();
                Entry { key, value, text, origin: Origin::Default }
            };
            Config::from_entries(KEYS.iter().map(entry).collect())
        };
        assert_eq!(at(|min, _| min).log_retention_ms, None);
        assert_eq!(at(|_, max| max).log_retention_ms, Some(i64::MAX));
    }
}
