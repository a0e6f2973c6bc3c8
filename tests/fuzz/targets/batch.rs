//! Record batches as a producer could send them, or a damaged disk return them.
//!
//! The first byte chooses what a topic allows and whether length, magic and checksum are put right,
//! so that the checks behind them are reached; the rest is the batch. Nothing may panic or take
//! more memory than the limits say, and both ways to walk records must see the same.
//! Run with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz batch -- -malloc_limit_mb=64`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shard::batch::{
    crc32c, find_latest, find_time, validate, BatchHeader, Expander, Limits, Records, Rules,
    Scratch, TimestampRule, Valid,
};
use shard::ids::{LeaderEpoch, Offset, Timestamp};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const LIMITS: Limits = Limits { bytes_max: 4 << 20, ratio_max: 1100, ratio_free_bytes: 1 << 16 };

fuzz_target!(|input: &[u8]| {
    let [choice, data @ ..] = input else { return };
    let mut data = data.to_vec();
    if choice & 1 != 0 {
        put_right(&mut data);
    }
    let rules = Rules {
        message_bytes_max: 1 << 20,
        timestamps: match choice & 2 {
            0 => TimestampRule::Append,
            _ => TimestampRule::Create { before_max_ms: i64::MAX, after_max_ms: 3_600_000 },
        },
        keys_required: choice & 4 != 0,
        zstd_allowed: choice & 8 != 0,
        limits: LIMITS,
    };
    if let Ok(valid) = validate(&data, &rules, NOW, &mut Scratch::default()) {
        let mut stored = valid.header_bytes(Offset(7), LeaderEpoch(3)).to_vec();
        stored.extend(valid.body());
        Valid::built(&stored).expect("what is stored is a batch");
        look_up(&stored);
    }
    look_up(&data);
    walk(&data);
});

/// Length, magic and checksum as they must be for these bytes.
fn put_right(data: &mut [u8]) {
    if data.len() < 61 {
        return;
    }
    let length = (data.len() - 12) as i32;
    data[8..12].copy_from_slice(&length.to_be_bytes());
    data[16] = 2;
    let crc = crc32c(&[&data[21..]]);
    data[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn look_up(batch: &[u8]) {
    let _ = find_latest(batch, &LIMITS, &mut Expander::default());
    let _ = find_time(batch, NOW, Offset(0), &LIMITS, &mut Expander::default());
}

/// The iterator and the visitor, over the same bytes as plain records.
fn walk(data: &[u8]) {
    let Ok((header, body, _)) = BatchHeader::split(data) else { return };
    let records = Records::new(body, header.record_count);
    let mut visited = Vec::new();
    let fault = records.clone().visit(|record| visited.push(*record)).err();
    let mut iterated = Vec::new();
    let mut ended = None;
    for (index, record) in records.enumerate() {
        match record {
            Ok(record) => iterated.push(record),
            Err(malformed) => ended = Some((index as i32, malformed)),
        }
    }
    assert_eq!(visited, iterated);
    assert_eq!(fault, ended);
}
