//! Snapshots as Prometheus reads them (text format 0.0.4).

use super::{Snapshot, TableCounts, Times};
use std::fmt::Write;

/// One metric: name, kind, meaning, and its lines.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    fn begin<'a>(out: &'a mut String, name: &'static str, kind: &str, meaning: &str) -> Family<'a> {
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    fn line(&mut self, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.out, "{}{{{labels}}} {value}", self.name);
    }
}

/// All cores' snapshots as one text.
pub fn prometheus(cores: &[Snapshot]) -> String {
    let mut out = String::new();
    type Number = fn(&Snapshot) -> u64;
    let numbers: [(&str, &str, &str, Number); 16] = [
        ("basalt_connections", "gauge", "Live connections.", |core| core.connections),
        ("basalt_connections_accepted_total", "counter", "Connections taken.", |c| c.accepted),
        ("basalt_connections_refused_total", "counter", "Connections over a limit.", |c| c.refused),
        ("basalt_connections_overdue_total", "counter", "Idle or stalled ones closed.", |c| {
            c.overdue
        }),
        ("basalt_connections_moved_in_total", "counter", "Come from other cores.", |c| c.moved_in),
        ("basalt_connections_moved_out_total", "counter", "Gone to other cores.", |c| c.moved_out),
        ("basalt_connections_held_bytes", "gauge", "Requests and unsent answers.", |c| {
            c.held_bytes
        }),
        ("basalt_requests_pending", "gauge", "Requests without an answer.", |core| core.pending),
        ("basalt_received_bytes_total", "counter", "Bytes from clients.", |core| core.bytes_in),
        ("basalt_groups", "gauge", "Consumer groups.", |core| core.groups),
        ("basalt_group_members", "gauge", "Members of groups.", |core| core.group_members),
        ("basalt_committed_offsets", "gauge", "Partitions with an offset of a group.", |core| {
            core.committed_offsets
        }),
        ("basalt_sent_bytes_total", "counter", "Bytes to clients.", |core| core.bytes_out),
        ("basalt_waiting_bytes", "gauge", "Records in no table file yet.", |c| c.waiting_bytes),
        ("basalt_throttle_ms", "gauge", "What produces wait for the sake of tables.", |core| {
            core.throttle_ms
        }),
        ("basalt_table_failures_total", "counter", "Tries to write a table that failed.", |core| {
            core.table_failures
        }),
    ];
    for (name, kind, meaning, number) in numbers {
        let mut family = Family::begin(&mut out, name, kind, meaning);
        for core in cores {
            family.line(&format!("core=\"{}\"", core.core), number(core));
        }
    }
    requests(&mut out, cores);
    logs(&mut out, cores);
    tables(&mut out, cores);
    lags(&mut out, cores);
    let meaning = "How much later than meant a core turned its loop.";
    times(&mut out, "basalt_loop_stall_seconds", meaning, cores, |core| core.stalls);
    let meaning = "How long a sync of a log took.";
    times(&mut out, "basalt_sync_seconds", meaning, cores, |core| core.syncs);
    let meaning = "How long a slice of relocation or compaction held a core.";
    times(&mut out, "basalt_relocation_slice_seconds", meaning, cores, |core| core.slices);
    out
}

fn requests(out: &mut String, cores: &[Snapshot]) {
    let name = "basalt_requests_total";
    let mut family = Family::begin(out, name, "counter", "Requests taken, by API.");
    for core in cores {
        for (api, count) in core.requests.iter().filter(|(_, count)| *count > 0) {
            family.line(&format!("core=\"{}\",api=\"{api}\"", core.core), count);
        }
    }
}

fn logs(out: &mut String, cores: &[Snapshot]) {
    type Number = fn(&super::LogCounts) -> u64;
    let numbers: [(&str, &str, Number); 7] = [
        ("basalt_log_segments", "Segments of a log.", |log| log.segments),
        ("basalt_log_bytes", "Bytes of a log.", |log| log.bytes),
        ("basalt_log_unsynced_bytes", "Bytes not on stable storage.", |log| log.unsynced_bytes),
        ("basalt_log_relocated_bytes_total", "Bytes stored to empty segments.", |log| {
            log.relocated_bytes
        }),
        ("basalt_log_cleaned_bytes_total", "Bytes compaction went through.", |log| {
            log.cleaned_bytes
        }),
        ("basalt_log_kept_bytes_total", "Bytes compaction left.", |log| log.kept_bytes),
        ("basalt_log_failed", "1 when a log has failed.", |log| u64::from(log.failed)),
    ];
    for (name, meaning, number) in numbers {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let mut family = Family::begin(out, name, kind, meaning);
        for core in cores {
            for log in &core.logs {
                let labels = format!("core=\"{}\",log=\"{}\"", core.core, log.log);
                family.line(&labels, number(log));
            }
        }
    }
}

fn tables(out: &mut String, cores: &[Snapshot]) {
    type Number = fn(&TableCounts) -> u64;
    let numbers: [(&str, &str, Number); 5] = [
        ("basalt_table_files", "Files of a topic's table.", |table| table.files),
        ("basalt_table_bytes", "Bytes of those files.", |table| table.bytes),
        ("basalt_table_rows", "Rows in those files.", |table| table.rows),
        ("basalt_table_waiting_bytes", "Records of a topic in no file yet.", |table| {
            table.waiting_bytes
        }),
        ("basalt_table_failing", "Tries to write the table that failed in a row.", |table| {
            table.failing
        }),
    ];
    let all = || cores.iter().flat_map(|core| core.tables.iter());
    let labels = |table: &TableCounts| format!("topic=\"{}\"", table.topic);
    for (name, meaning, number) in numbers {
        let mut family = Family::begin(out, name, "gauge", meaning);
        all().for_each(|table| family.line(&labels(table), number(table)));
    }
    let (name, meaning) = ("basalt_table_age_seconds", "Age of the oldest record in no file yet.");
    let mut family = Family::begin(out, name, "gauge", meaning);
    all().for_each(|table| family.line(&labels(table), table.waiting_ms as f64 / 1e3));
}

fn lags(out: &mut String, cores: &[Snapshot]) {
    let meaning = "Records between what a group has committed and the end of a topic.";
    let mut family = Family::begin(out, "basalt_group_lag", "gauge", meaning);
    for lag in cores.iter().flat_map(|core| core.lags.iter()) {
        let (group, topic) = (escaped(&lag.group), &lag.topic);
        family.line(&format!("group=\"{group}\",topic=\"{topic}\""), lag.records);
    }
}

/// Groups are called what clients like.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn times(
    out: &mut String,
    name: &'static str,
    meaning: &str,
    cores: &[Snapshot],
    of: fn(&Snapshot) -> Times,
) {
    let mut family = Family::begin(out, name, "summary", meaning);
    let seconds = |us: u64| us as f64 / 1e6;
    for core in cores {
        let (number, times) = (core.core, of(core));
        for (quantile, us) in [
            ("0.5", times.p50_us),
            ("0.99", times.p99_us),
            ("0.999", times.p999_us),
            ("1", times.max_us),
        ] {
            let labels = format!("core=\"{number}\",quantile=\"{quantile}\"");
            family.line(&labels, seconds(us));
        }
        let _ = writeln!(family.out, "{name}_sum{{core=\"{number}\"}} {}", seconds(times.sum_us));
        let _ = writeln!(family.out, "{name}_count{{core=\"{number}\"}} {}", times.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{CoreMetrics, GroupLag, LogCounts};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_core_as_prometheus_reads_it() {
        let metrics = CoreMetrics::default();
        metrics.synced(Duration::from_micros(1500));
        let core = Snapshot {
            core: 1,
            connections: 3,
            requests: vec![("Produce", 7), ("Fetch", 0)],
            logs: vec![LogCounts { log: 5, unsynced_bytes: 9, ..LogCounts::default() }],
            tables: Arc::new([TableCounts {
                topic: "orders".into(),
                files: 3,
                bytes: 70,
                rows: 9,
                waiting_bytes: 20,
                waiting_ms: 1_500,
                failing: 0,
            }]),
            waiting_bytes: 20,
            lags: Arc::new([GroupLag {
                group: "a \"b\"\n".into(),
                topic: "orders".into(),
                records: 4,
            }]),
            ..metrics.snapshot()
        };
        let text = prometheus(&[core]);
        for line in [
            "# TYPE basalt_connections gauge",
            "basalt_connections{core=\"1\"} 3",
            "basalt_requests_total{core=\"1\",api=\"Produce\"} 7",
            "basalt_log_unsynced_bytes{core=\"1\",log=\"5\"} 9",
            "basalt_sync_seconds_count{core=\"1\"} 1",
            "basalt_waiting_bytes{core=\"1\"} 20",
            "basalt_table_rows{topic=\"orders\"} 9",
            "basalt_group_lag{group=\"a \\\"b\\\"\\n\",topic=\"orders\"} 4",
            "basalt_table_age_seconds{topic=\"orders\"} 1.5",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in:\n{text}");
        }
        assert!(!text.contains("Fetch"));
    }
}
