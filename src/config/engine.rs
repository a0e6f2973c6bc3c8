//! The configuration in the terms of the engine and of the coordinators.
//!
//! These take plain settings and know no keys; here each of its settings is given the key it
//! comes from, in one place for boot, for new topics and for changed ones.

use crate::coordinator::GroupLimits;
use shard::batch::{Limits, Rules, TimestampRule};
use shard::log::{Compaction, LogSettings, PartitionSettings};
use shard::table::TableSettings;

use super::choice::{Flush, TimestampType};
use super::keys::Config;
use super::topic::TopicSettings;

impl Config {
    pub fn log_settings(&self) -> LogSettings {
        LogSettings {
            segment_bytes_min: bounded(self.log_segment_initial_bytes),
            segment_bytes_max: bounded(self.log_segment_bytes),
            inline_bytes_max: in_memory(self.log_inline_max_bytes),
            warm_bytes: self.log_warm_bytes,
            hot_bytes: self.hot_bytes,
            hot_ms: self.hot_ms,
            unsynced_bytes_max: self.log_unsynced_max_bytes,
            unsynced_bytes_max_relaxed: self.log_unsynced_relaxed_max_bytes,
            flush_interval_ms: self.flush_interval_ms.unsigned_abs(),
            background_sync_ms: self.log_background_sync_ms.unsigned_abs(),
            background_sync_bytes: self.log_background_sync_bytes,
            sync_interval_min_us: self.log_sync_interval_min_us,
            mark_idle_ms: self.log_mark_idle_ms.unsigned_abs(),
            sync_stall_ms: self.log_sync_stall_ms.unsigned_abs(),
            prefault_bytes_max: bounded(self.log_prefault_bytes),
            retention_check_ms: self.log_retention_check_interval_ms.unsigned_abs(),
            relocate_live_percent_max: self.log_relocate_live_percent,
            relocate_bandwidth_percent: self.log_relocate_bandwidth_percent,
            cleaner_buffer_bytes: in_memory(self.log_cleaner_dedupe_buffer_size),
            relocate_bytes_per_second_min: self.log_relocate_min_bytes_per_second,
            producers_max: self.producers_max_per_partition as usize,
            producer_expiry_ms: self.producer_id_expiration_ms,
        }
    }

    pub fn table_settings(&self) -> TableSettings {
        TableSettings {
            commit_bytes: self.table_commit_bytes,
            commit_ms: self.table_commit_ms,
            file_bytes_max: self.table_file_max_bytes,
            compaction_buffer_bytes: in_memory(self.log_cleaner_dedupe_buffer_size),
            ..TableSettings::default()
        }
    }

    pub fn group_limits(&self) -> GroupLimits {
        GroupLimits {
            session_timeout_ms: (
                self.group_min_session_timeout_ms,
                self.group_max_session_timeout_ms,
            ),
            initial_rebalance_delay_ms: self.group_initial_rebalance_delay_ms,
            members_max: self.group_max_size as usize,
            groups_max: self.group_max_count as usize,
            metadata_bytes_max: in_memory(self.group_metadata_max_bytes),
            offsets_max: self.group_offsets_max as usize,
            offset_metadata_bytes_max: self.offset_metadata_max_bytes as usize,
            offsets_retention_ms: i64::from(self.offsets_retention_minutes) * 60_000,
            offsets_check_ms: self.offsets_retention_check_interval_ms,
        }
    }

    /// What a batch may come to when it is decompressed.
    pub fn decompression_limits(&self) -> Limits {
        Limits {
            bytes_max: in_memory(self.message_decompressed_max_bytes),
            ratio_max: self.message_decompressed_ratio_max as usize,
            ..Limits::default()
        }
    }
}

impl TopicSettings {
    /// For a partition of the topic; `internal` for the broker's own topics.
    ///
    /// Those are compacted and lose nothing by time or size, whatever somebody who made one of them
    /// by hand has asked for: the state of the broker lies in them.
    pub fn partition(&self, internal: bool) -> PartitionSettings {
        let compacts = self.cleanup.compact || internal;
        PartitionSettings {
            flush: self.flush.into(),
            retention_ms: self.retention_ms.filter(|_| !internal),
            retention_bytes: self.retention_bytes.filter(|_| !internal),
            internal,
            compaction: compacts.then_some(Compaction {
                dirty_percent_min: self.dirty_percent_min,
                lag_min_ms: self.min_compaction_lag_ms,
                lag_max_ms: self.max_compaction_lag_ms,
                delete_retention_ms: self.delete_retention_ms,
            }),
        }
    }

    /// What a produced batch is held to. `zstd_allowed` depends on the request's version.
    pub fn rules(&self, limits: Limits, zstd_allowed: bool) -> Rules {
        Rules {
            message_bytes_max: usize::try_from(self.max_message_bytes).unwrap_or(0),
            timestamps: match self.timestamp_type {
                TimestampType::LogAppendTime => TimestampRule::Append,
                TimestampType::CreateTime => TimestampRule::Create {
                    before_max_ms: self.timestamp_before_max_ms,
                    after_max_ms: self.timestamp_after_max_ms,
                },
            },
            keys_required: self.cleanup.compact,
            zstd_allowed,
            limits,
        }
    }
}

impl From<Flush> for shard::log::Flush {
    fn from(flush: Flush) -> shard::log::Flush {
        match flush {
            Flush::Commit => shard::log::Flush::Commit,
            Flush::Interval => shard::log::Flush::Interval,
            Flush::Os => shard::log::Flush::Os,
        }
    }
}

/// The keys' bounds are below; a test tries their upper ends.
fn bounded(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::topic::Overrides;
    use crate::config::{Kind, KEYS};

    #[test]
    fn the_defaults_are_the_engines() {
        let config = Config::default();
        assert_eq!(config.log_settings(), LogSettings::default());
        assert_eq!(config.table_settings(), TableSettings::default());
        let (ours, engines) = (config.decompression_limits(), Limits::default());
        assert_eq!((ours.bytes_max, ours.ratio_max), (engines.bytes_max, engines.ratio_max));
    }

    #[test]
    fn sizes_the_engine_keeps_in_32_bits_have_bounds_that_fit() {
        for name in ["log.segment.bytes", "log.segment.initial.bytes", "log.prefault.bytes"] {
            let key = KEYS.iter().find(|key| key.name == name).unwrap();
            let Kind::Bytes { max, .. } = key.kind else { panic!("{name}") };
            assert!(max <= i64::from(u32::MAX), "{name}");
        }
    }

    #[test]
    fn a_topics_settings_reach_its_partitions_and_batches() {
        let config = Config::default();
        let mut given = Overrides::new();
        for (name, value) in [
            ("cleanup.policy", "compact,delete"),
            ("flush", "os"),
            ("retention.bytes", "10"),
            ("max.message.bytes", "20"),
            ("min.cleanable.dirty.ratio", "0.29"),
            ("delete.retention.ms", "7"),
        ] {
            given.insert(name.to_string(), value.to_string());
        }
        let settings = TopicSettings::resolve(&given, &config).unwrap();
        let partition = settings.partition(false);
        assert_eq!(partition.flush, shard::log::Flush::Os);
        assert_eq!(partition.retention_bytes, Some(10));
        let compaction =
            Compaction { dirty_percent_min: 29, delete_retention_ms: 7, ..Compaction::default() };
        assert_eq!(partition.compaction, Some(compaction));
        let plain = TopicSettings::resolve(&Overrides::new(), &config).unwrap();
        assert_eq!(plain.partition(false).compaction, None);
        assert_eq!(partition.retention_ms, Some(604_800_000));
        given.insert("cleanup.policy".into(), "delete".into());
        let own = TopicSettings::resolve(&given, &config).unwrap().partition(true);
        assert_eq!((own.retention_ms, own.retention_bytes), (None, None));
        assert!(own.compaction.is_some(), "nothing of the broker's own is lost");
        let rules = settings.rules(config.decompression_limits(), true);
        assert_eq!((rules.message_bytes_max, rules.keys_required), (20, true));
        assert_eq!(
            rules.timestamps,
            TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: 3_600_000 }
        );
        given.insert("message.timestamp.type".into(), "LogAppendTime".into());
        let settings = TopicSettings::resolve(&given, &config).unwrap();
        let rules = settings.rules(config.decompression_limits(), false);
        assert_eq!(rules.timestamps, TimestampRule::Append);
    }
}
