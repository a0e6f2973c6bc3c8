//! Which rows queries see, and what they read for it.

use super::*;

#[test]
fn files_and_batches_are_one_table() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 3000), (1, 0, 50)]), bench.file(&[(0, 3000, 4000)])];
    bench.topic("t", files, &[(0, 0, 4100), (1, 0, 60), (2, 5, 9)]);
    let counts = "SELECT kafka_partition, count(*) AS n, min(kafka_offset) AS least, \
                  max(kafka_offset) AS most FROM t GROUP BY 1 ORDER BY 1";
    let expected = "\
+-----------------+------+-------+------+
| kafka_partition | n    | least | most |
+-----------------+------+-------+------+
| 0               | 4100 | 0     | 4099 |
| 1               | 60   | 0     | 59   |
| 2               | 4    | 5     | 8    |
+-----------------+------+-------+------+";
    assert_eq!(bench.shown(counts), expected);
    assert_eq!(bench.number("SELECT count(*) FROM kafka_topics.t"), 4164);
    assert_eq!(bench.number("SELECT count(*) FROM \"default\".kafka_topics.t"), 4164);
    assert_eq!(bench.number("SELECT count(DISTINCT (kafka_partition, kafka_offset)) FROM t"), 4164);
    let sum: i64 = (0..4100).sum::<i64>() + (0..60).sum::<i64>() + (5 + 6 + 7 + 8);
    assert_eq!(bench.number("SELECT sum(json_get_int(utf8(value), 'n')) FROM t"), sum);
    assert_eq!(bench.number("SELECT sum((value->>'n')::bigint) FROM t"), sum);
}

#[test]
fn a_row_has_all_its_columns_from_either_side() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 11)])];
    bench.topic("t", files, &[(0, 0, 13)]);
    let rows = "SELECT utf8(key) AS key, CAST(value AS VARCHAR) AS value, timestamp_producer, \
                headers, kafka_offset FROM t WHERE kafka_offset >= 10 ORDER BY kafka_offset";
    let expected = "\
+-----+----------------------+----------------------+---------+--------------+
| key | value                | timestamp_producer   | headers | kafka_offset |
+-----+----------------------+----------------------+---------+--------------+
|     | {\"n\":10,\"kind\":\"k1\"} | 2026-05-28T20:26:50Z | []      | 10           |
| 11  | {\"n\":11,\"kind\":\"k2\"} | 2026-05-28T20:26:51Z | []      | 11           |
| 12  | {\"n\":12,\"kind\":\"k0\"} | 2026-05-28T20:26:52Z | []      | 12           |
+-----+----------------------+----------------------+---------+--------------+";
    assert_eq!(bench.shown(rows), expected);
    let of_time = "SELECT count(*) FROM t WHERE timestamp_producer >= to_timestamp_millis";
    let at = START_MS + 11_000;
    assert_eq!(bench.number(&format!("{of_time}({at})")), 2);
    let buckets = "SELECT count(*) FROM (SELECT date_bin(INTERVAL '5 seconds', \
                   timestamp_producer) AS b FROM t GROUP BY b)";
    assert_eq!(bench.number(buckets), 3);
}

#[test]
fn rows_below_the_log_start_are_not_served() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 1000), (1, 0, 100)]), bench.file(&[(0, 1000, 1500)])];
    bench.topic("t", files, &[(0, 700, 1510), (1, 0, 100)]);
    assert_eq!(bench.number("SELECT count(*) FROM t"), 810 + 100);
    assert_eq!(bench.number("SELECT min(kafka_offset) FROM t WHERE kafka_partition = 0"), 700);
    assert_eq!(bench.number("SELECT count(*) FROM t WHERE kafka_offset < 700"), 100);
    assert_eq!(bench.number("SELECT count(*) FROM t WHERE kafka_offset = 700"), 1);
}

#[test]
fn a_partition_whose_records_went_is_empty() {
    let bench = Bench::new();
    bench.topic("t", vec![], &[(0, 9, 9)]);
    assert_eq!(bench.number("SELECT count(*) FROM t"), 0);
    assert!(bench.shown("SELECT * FROM t").contains("kafka_offset"));
}

#[test]
fn every_codec_makes_rows() {
    let bench = Bench::new();
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let raw = (0..).zip(codecs).map(|(number, codec)| batch(number * 10, 10, codec));
    let hot: Arc<dyn Hot> = Arc::new(Raw(raw.collect()));
    let (log_start, hot_from, end) = (Offset(0), Offset(0), Offset(50));
    let partition = PartitionSnapshot { partition: 0, log_start, hot_from, end, hot: Some(hot) };
    let snapshot = TopicSnapshot { version: Arc::default(), partitions: vec![partition] };
    bench.topics.0.lock().unwrap().insert("t".into(), snapshot);
    assert_eq!(bench.number("SELECT count(DISTINCT value) FROM t"), 50);
}

#[test]
fn a_count_over_files_reads_none_of_their_rows() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 3000)])];
    bench.topic("t", files, &[(0, 0, 3000)]);
    let plan = bench.shown("EXPLAIN SELECT count(*) FROM t");
    assert!(plan.contains("PlaceholderRowExec"), "{plan}");
    assert_eq!(bench.number("SELECT count(*) FROM t"), 3000);
}

#[test]
fn predicates_skip_files_and_blocks() {
    let mut bench = Bench::new();
    let files = vec![
        bench.file(&[(0, 0, 3000)]),
        bench.file(&[(0, 3000, 6000)]),
        bench.file(&[(1, 0, 3000)]),
    ];
    bench.topic("t", files, &[(0, 0, 6000), (1, 0, 3000)]);
    let sql = "SELECT count(value) FROM t WHERE kafka_partition = 0 AND kafka_offset = 4321";
    assert_eq!(bench.number(sql), 1);
    let plan = bench.shown(&format!("EXPLAIN ANALYZE {sql}"));
    assert!(plan.contains("files_ranges_pruned_statistics=3 total → 1 matched"), "{plan}");
    assert!(plan.contains("page_index_rows_pruned"), "{plan}");
}

#[test]
fn the_newest_rows_come_without_reading_the_old_ones() {
    let mut bench = Bench::new();
    let files = (0..8).map(|n| bench.file(&[(0, n * 2000, (n + 1) * 2000)])).collect();
    bench.topic("t", files, &[(0, 0, 16_000)]);
    let sql = "SELECT kafka_offset, value FROM t ORDER BY kafka_offset DESC LIMIT 3";
    let shown = bench.shown(&format!("SELECT min(kafka_offset) FROM ({sql})"));
    assert!(shown.contains("15997"), "{shown}");
    let plan = bench.shown(&format!("EXPLAIN ANALYZE {sql}"));
    assert!(plan.contains("TopK"), "{plan}");
}

#[test]
fn a_limit_stops_reading() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 3000)])];
    bench.topic("t", files, &[(0, 0, 100_000)]);
    assert_eq!(bench.number("SELECT count(*) FROM (SELECT value FROM t LIMIT 17)"), 17);
}

#[test]
fn names_are_listed_and_unknown_ones_refused() {
    let bench = Bench::new();
    bench.topic("orders", vec![], &[(0, 0, 0)]);
    bench.topic("Mixed.Case-1", vec![], &[(0, 0, 3)]);
    let names = bench.shown(
        "SELECT table_catalog, table_schema, table_name FROM information_schema.tables \
         WHERE table_schema = 'kafka_topics' ORDER BY 3",
    );
    assert!(names.contains("| default       | kafka_topics | Mixed.Case-1 |"), "{names}");
    let shown = bench.shown("SHOW TABLES");
    assert!(shown.contains("orders") && !shown.contains("information_schema"), "{shown}");
    assert_eq!(bench.number("SELECT count(*) FROM \"Mixed.Case-1\""), 3);
    assert!(bench.shown("DESCRIBE orders").contains("timestamp_broker"));
    let unknown = bench.refusal("SELECT * FROM nothing");
    assert!(unknown.contains("nothing"), "{unknown}");
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let mut bench = Bench::new();
    let files = vec![bench.file(&[(0, 0, 3000)]), bench.file(&[(0, 3000, 3100)])];
    let path = files[0].path.clone();
    bench.topic("t", files, &[(0, 0, 3100)]);
    bench.disk.damage(&path, 200, &[0xff; 64]);
    let said = bench.refusal("SELECT count(DISTINCT value) FROM t");
    assert!(said.contains("0000000000000001.parquet"), "{said}");
    let rest = "SELECT count(value) FROM t WHERE kafka_offset >= 3000";
    assert_eq!(bench.number(rest), 100);
}
