//! Bench `validation`: what checking a produced batch costs, in nanoseconds per record.
//!
//! Records of 100 B and 1 KiB of text, in batches as librdkafka fills them at a linger of some
//! milliseconds, plain and compressed. The time of a round is the least of many calls.

use crate::drive::RECORD_TIME;
use crate::hash::Hash;
use crate::report::Report;
use crate::BenchError;
use shard::batch::{
    validate, BatchBuilder, Codec, Limits, NewRecord, Rules, Scratch, TimestampRule,
};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub batch_bytes: usize,
    pub calls: usize,
}

pub fn run(size: Size) -> Result<Report, BenchError> {
    let mut report = Report::new(format!(
        "validation: batches of {} KiB before compression",
        size.batch_bytes >> 10
    ));
    let rules = rules();
    let mut scratch = Scratch::default();
    let mut hash = Hash::default();
    for record_bytes in [100, 1024] {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let (batch, records) = text_batch(codec, record_bytes, size.batch_bytes);
            let mut least = u128::MAX;
            for _ in 0..size.calls {
                let started = Instant::now();
                let valid = validate(black_box(&batch), &rules, RECORD_TIME, &mut scratch);
                black_box(valid.is_ok());
                least = least.min(started.elapsed().as_nanos());
            }
            let valid = validate(&batch, &rules, RECORD_TIME, &mut scratch)
                .map_err(|_| BenchError::ReadBack { offset: 0 })?;
            hash.number(i64::from(valid.header().crc));
            hash.number(i64::from(records));
            let case = format!("{record_bytes} B {codec:?}").to_lowercase();
            let per_record = least as f64 / f64::from(records);
            report.row(&case, "one record", per_record, "ns");
            let rate = f64::from(records) * record_bytes as f64 / least.max(1) as f64;
            report.row(&case, "values", rate, "GB/s");
        }
    }
    report.hash = Some(hash.0);
    Ok(report)
}

fn rules() -> Rules {
    Rules {
        message_bytes_max: 1 << 24,
        timestamps: TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: i64::MAX },
        keys_required: false,
        zstd_allowed: true,
        limits: Limits::default(),
    }
}

const WORDS: [&str; 16] = [
    "order", "status", "paid", "customer", "eu-west", "amount", "sensor", "lava", "basalt",
    "column", "pending", "invoice", "true", "null", "currency", "EUR",
];

/// A batch of records with values of pseudo-random words, numbers and the marks of JSON.
fn text_batch(codec: Codec, record_bytes: usize, batch_bytes: usize) -> (Vec<u8>, i32) {
    let mut builder = BatchBuilder::new().codec(codec);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut value = String::new();
    while builder.bytes() < batch_bytes {
        value.clear();
        while value.len() < record_bytes {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let word = WORDS[(state >> 60) as usize];
            let _ = write!(value, "\"{word}\": {}, ", state >> 40);
        }
        value.truncate(record_bytes);
        builder.push(&NewRecord {
            timestamp: RECORD_TIME,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    let records = builder.record_count();
    (builder.build(), records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_checks_every_codec() {
        let size = Size { batch_bytes: 8 << 10, calls: 2 };
        let first = run(size).unwrap();
        assert_eq!(first.rows.len(), 12);
        assert_eq!(first.hash, run(size).unwrap().hash);
    }
}
