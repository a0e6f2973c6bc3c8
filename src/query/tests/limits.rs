//! What queries may not do, and what they may use.

use super::*;

#[test]
fn nothing_writes_or_reaches_outside() {
    let bench = Bench::new();
    bench.topic("t", vec![], &[(0, 0, 3)]);
    for sql in [
        "INSERT INTO t VALUES (1)",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "COPY t TO '/tmp/out.parquet'",
        "SELECT * INTO x FROM t",
        "SET datafusion.execution.target_partitions = 100",
    ] {
        let said = bench.refusal(sql);
        assert!(said.contains("is refused: tables are topics"), "{sql}: {said}");
    }
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"file:///etc/passwd\"",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
    ] {
        let said = bench.refusal(sql);
        assert!(!said.contains("root:"), "{sql}: {said}");
    }
}

#[test]
fn a_query_that_takes_too_long_ends() {
    let settings = Settings { timeout: Duration::from_millis(200), ..settings() };
    let bench = Bench::with(settings);
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000)";
    let said = bench.refusal(endless);
    assert!(said.contains("(sql.timeout.ms)"), "{said}");
}

#[test]
fn a_query_that_needs_too_much_memory_ends() {
    let settings = Settings { memory_bytes: 2 << 20, spill_bytes: 0, ..settings() };
    let bench = Bench::with(settings);
    let sql = "SELECT count(*) FROM (SELECT value, count(*) FROM generate_series(1, 3000000) \
               GROUP BY value)";
    let said = bench.refusal(sql);
    assert!(said.contains("(sql.memory.bytes)"), "{said}");
}

#[test]
fn too_many_queries_wait_and_are_refused() {
    let settings = Settings { concurrency: 1, patience: Duration::from_millis(100), ..settings() };
    let bench = Bench::with(settings);
    let said = block_on(async {
        let held = bench
            .engine
            .run("SELECT * FROM generate_series(1, 100000000)")
            .await
            .expect("the only place");
        let refused = bench.ask("SELECT 2").await.expect_err("no place");
        drop(held);
        bench.ask("SELECT 3").await.expect("the place is free again");
        refused.to_string()
    });
    assert!(said.contains("(sql.concurrency)"), "{said}");
}

#[test]
fn a_query_nobody_waits_for_is_given_up() {
    let bench = Bench::with(Settings { concurrency: 1, ..settings() });
    let endless =
        "SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000)";
    block_on(async {
        let mut rows = bench.engine.run(endless).await.expect("the only place");
        let first = tokio::time::timeout(Duration::from_millis(200), rows.batches.next()).await;
        assert!(first.is_err(), "it does not end by itself");
        drop(rows);
        bench.ask("SELECT 1").await.expect("the place is free again");
    });
}

/// Joins that find nothing among 10^11 pairs: their filter is all they ever call.
const FRUITLESS: [&str; 2] = [
    "SELECT count(*) FROM generate_series(1, 300000) a, generate_series(1, 300000) b \
     WHERE a.value + b.value = 0",
    "SELECT count(*) FROM generate_series(1, 300000) a JOIN generate_series(1, 300000) b \
     ON a.value % 2 = b.value % 2 AND a.value + b.value = 0",
];

#[test]
fn a_join_that_finds_nothing_ends_at_the_deadline() {
    for sql in FRUITLESS {
        let settings = Settings { timeout: Duration::from_millis(500), ..settings() };
        let said = Bench::with(settings).refusal(sql);
        assert!(said.contains("(sql.timeout.ms)"), "{said}");
    }
}

#[test]
fn a_join_that_finds_nothing_is_given_up() {
    let bench = Bench::with(Settings { concurrency: 1, threads: 1, ..settings() });
    block_on(async {
        for sql in FRUITLESS {
            let mut rows = bench.engine.run(sql).await.expect("the only place");
            let first = tokio::time::timeout(Duration::from_secs(1), rows.batches.next()).await;
            assert!(first.is_err(), "it does not end by itself");
            drop(rows);
            bench.ask("SELECT 1").await.expect("its thread is free again");
        }
    });
}
