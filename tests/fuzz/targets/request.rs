//! Bodies of offered APIs: the first two bytes choose API and version, the rest is the body.
//!
//! What the guard lets pass must decode to its last byte, within the memory the guard promised.
//! Run with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz request -- -malloc_limit_mb=64`.
#![no_main]

use basalt::protocol::api::Api;
use basalt::protocol::request::{self, Close};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [api, version, body @ ..] = input else { return };
    let api = Api::ALL[usize::from(*api) % Api::ALL.len()];
    let row = api.row();
    let versions = row.version_max - row.version_min + 1;
    let version = row.version_min + i16::from(*version) % versions;
    let mut frame = Vec::with_capacity(body.len() + 16);
    frame.extend(row.key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend([0, 0, 0, 7, 0xff, 0xff]);
    if row.is_flexible(version) {
        frame.push(0);
    }
    frame.extend(body);
    let read = request::read(&Bytes::from(frame), 32 << 20);
    assert!(!matches!(read, Err(Close::Undecodable { .. })), "{read:?}");
});
