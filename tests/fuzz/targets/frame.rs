//! Whole frames as a socket could deliver them: any API, any version, any bytes.
//!
//! Run with `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz frame -- -malloc_limit_mb=64`.
#![no_main]

use basalt::protocol::request;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let _ = request::read(&Bytes::copy_from_slice(frame), 32 << 20);
});
