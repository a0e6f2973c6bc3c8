//! What checking a produced batch costs: nanoseconds a record and bytes a second.
//!
//! `cargo run --release -p basalt-shard --example batch_cost [codec]`. Prints a hash of the
//! results, so that two builds can be seen to have done the same work.

use std::hint::black_box;
use std::time::Instant;

use shard::batch::{
    validate, BatchBuilder, Codec, Limits, NewRecord, Records, Rules, Scratch, TimestampRule,
    HEADER_BYTES,
};
use shard::ids::Timestamp;

fn batch(codec: Codec, record_bytes: usize, batch_bytes: usize) -> (Vec<u8>, i32) {
    let mut batch = BatchBuilder::new().codec(codec);
    let mut seed = 1u64;
    while batch.bytes() < batch_bytes {
        let value: Vec<u8> = (0..record_bytes)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                b'a' + (seed >> 60) as u8
            })
            .collect();
        let timestamp = Timestamp(1_700_000_000_000 + i64::from(batch.record_count() / 10));
        batch.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] });
    }
    let count = batch.record_count();
    (batch.build(), count)
}

/// The least time of several rounds, in nanoseconds a call.
fn least_ns(mut work: impl FnMut()) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..50 {
            work();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / 50.0);
    }
    least
}

fn main() {
    let rules = Rules {
        message_bytes_max: 1 << 24,
        timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
        keys_required: false,
        zstd_allowed: true,
        limits: Limits::default(),
    };
    let now = Timestamp(1_700_000_000_000);
    let mut scratch = Scratch::default();
    let mut hash = 0u32;
    println!("codec  record  batch bytes  records  crc ns/r  walk ns/r  whole ns/r     GB/s");
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for (record, bytes) in
            [(100, 16 << 10), (100, 256 << 10), (1024, 16 << 10), (1024, 1 << 20)]
        {
            let (data, count) = batch(codec, record, bytes);
            let per = f64::from(count);
            let crc = least_ns(|| {
                black_box(shard::batch::crc32c(&[black_box(&data[21..])]));
            });
            let walk = match codec {
                Codec::None => least_ns(|| {
                    let mut sum = 0i64;
                    let records = Records::new(black_box(&data[HEADER_BYTES..]), count);
                    let read = records.visit(|record| sum += i64::from(record.offset_delta));
                    black_box((sum, read.is_ok()));
                }),
                _ => f64::NAN,
            };
            let whole = least_ns(|| {
                let valid = validate(black_box(&data), &rules, now, &mut scratch);
                black_box(valid.is_ok());
            });
            if let Ok(valid) = validate(&data, &rules, now, &mut scratch) {
                hash = hash.rotate_left(5) ^ valid.header().crc;
            }
            let rate = per * record as f64 / whole;
            println!(
                "{:6} {record:6} {:12} {count:8} {:9.2} {:10.2} {:11.2} {rate:8.2}",
                format!("{codec:?}"),
                data.len(),
                crc / per,
                walk / per,
                whole / per,
            );
        }
    }
    println!("hash {hash:08x}");
}
