//! The files of a log as a damaged or foreign disk could return them.
//!
//! The first byte chooses the file: raw bytes behind a right segment header, frames whose sums are
//! right but whose fields are not, an index, a checkpoint. The log must open or say why not: no
//! panic, and no memory beyond what the files hold. Run with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz segment -- -malloc_limit_mb=64`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shard::batch::{BatchBuilder, NewRecord};
use shard::disk::sim::SimDisk;
use shard::disk::Disk;
use shard::ids::{DenseId, LeaderEpoch, LogId, Offset, Position};
use shard::ids::{SegmentNumber, Sequence, Timestamp};
use shard::log::{segment_name, Carried, FrameHeader, Kind, Log, LogSettings, LogSpec, Now};
use shard::log::{SegmentHeader, FRAMES_START};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

const EPOCH: u64 = 77;
const DIR: &str = "/log";

fuzz_target!(|input: &[u8]| {
    let [choice, data @ ..] = input else { return };
    let disk = SimDisk::new(1);
    let dir = Path::new(DIR);
    disk.create_dir(dir).expect("a fresh disk");
    let put = |name: &str, bytes: &[u8]| {
        disk.publish(&dir.join(name), bytes).expect("a fresh disk");
    };
    match choice & 3 {
        0 => put(&segment_name(SegmentNumber(1)), &segment(data)),
        1 => put(&segment_name(SegmentNumber(1)), &segment(&frames(data))),
        2 => {
            put(&segment_name(SegmentNumber(1)), &segment(&[]));
            put("00000000000000000001.idx", data);
        }
        _ => put("checkpoint-00000000000000000001", data),
    }
    let settings = LogSettings {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        ..LogSettings::default()
    };
    let spec = LogSpec {
        dir: PathBuf::from(DIR),
        id: LogId(0),
        cluster: Uuid::nil(),
        run: LeaderEpoch(2),
        settings,
        salvage: choice & 4 != 0,
    };
    let now = Now { wall: Timestamp(1_700_000_000_000), mono_us: 0 };
    if let Ok((log, _)) = Log::open(Arc::new(disk), spec, 9, now) {
        for (id, _) in log.partitions() {
            let offsets = log.offsets(id).expect("listed");
            assert!(offsets.log_start <= offsets.log_end);
        }
    }
});

fn segment(frames: &[u8]) -> Vec<u8> {
    let header = SegmentHeader {
        log: LogId(0),
        cluster: Uuid::nil(),
        number: SegmentNumber(1),
        epoch: EPOCH,
        predecessor: None,
        run: LeaderEpoch(1),
        first_sequence: Sequence(1),
        created: Timestamp(0),
        mark: Position::default(),
        hollow: None,
    };
    let mut bytes = header.encode().to_vec();
    bytes.resize(FRAMES_START as usize, 0);
    bytes.extend(frames);
    bytes
}

/// Frames with right sequences and sums whose other fields are the fuzzer's.
fn frames(mut data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sequence = 1;
    while let Some((fields, rest)) = data.split_first_chunk::<8>() {
        data = rest;
        let base = Offset(i64::from(i16::from_le_bytes([fields[2], fields[3]])));
        let (kind, payload) = match fields[0] % 6 {
            0 => (Kind::Data, batch(base, fields)),
            1 => (Kind::Bind, vec![fields[4] % 3; 24]),
            2 => (Kind::LogStart, Vec::new()),
            3 => (Kind::Mark, Vec::new()),
            4 => (Kind::Gap, i64::from(fields[4]).to_le_bytes().to_vec()),
            _ => (Kind::Side, [&batch(base, fields)[..61], &[fields[5]; 11]].concat()),
        };
        let from = Offset(base.0.saturating_sub(i64::from(fields[5] % 8)).max(0));
        let carried = (fields[0] >= 128).then_some(Carried { from, cleaned: fields[0] >= 192 });
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind,
            sequence: Sequence(sequence),
            partition: DenseId(u32::from(fields[1] % 4)),
            leader_epoch: LeaderEpoch(i32::from(fields[6] as i8)),
            base_offset: base,
            append_time: Timestamp(0),
            mark: Position {
                segment: SegmentNumber(u64::from(fields[7] % 3)),
                offset: FRAMES_START + u32::from(fields[7]) * 8,
            },
            carried: carried.filter(|_| matches!(kind, Kind::Data | Kind::Side)),
        };
        let covered = header.covered_bytes();
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend(header.encode(EPOCH, &payload[..covered]));
        out.extend(payload);
        sequence += 1;
    }
    out
}

fn batch(base: Offset, fields: &[u8; 8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..=fields[4] % 4 {
        builder.push(&NewRecord { value: Some(&fields[..]), ..NewRecord::default() });
    }
    let mut batch = builder.build();
    shard::batch::place(&mut batch, base, LeaderEpoch(1));
    batch
}
