//! Snappy as Kafka's clients write it: one raw block, or the framing of the Java client.
//!
//! librdkafka writes a raw block. The Java client writes xerial's stream: the bytes
//! `82 "SNAPPY" 00`, two big-endian i32 version numbers, then chunks of a big-endian i32 length
//! and a raw block each. A stream may start anew between chunks.

use std::io;

use super::{Failure, Output};

/// The first bytes of a xerial stream; the versions follow.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSIONS_BYTES: usize = 8;
/// A copy of 64 bytes takes three: no block expands more than this.
const RATIO_MAX: usize = 22;

pub(super) fn expand(body: &[u8], output: &mut Output, limit: usize) -> Result<usize, Failure> {
    let mut written = 0;
    let Some(mut left) = after_stream_header(body)? else {
        block(body, output, &mut written, limit)?;
        return Ok(written);
    };
    while !left.is_empty() {
        if let Some(rest) = after_stream_header(left)? {
            left = rest;
            continue;
        }
        let (length, rest) = left.split_first_chunk::<4>().ok_or(Failure::Corrupt)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Failure::Corrupt)?;
        let (chunk, rest) = rest.split_at_checked(length).ok_or(Failure::Corrupt)?;
        block(chunk, output, &mut written, limit)?;
        left = rest;
    }
    Ok(written)
}

/// What follows a stream header; `None` if there is none.
fn after_stream_header(bytes: &[u8]) -> Result<Option<&[u8]>, Failure> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        return Ok(None);
    };
    rest.get(VERSIONS_BYTES..).map(Some).ok_or(Failure::Corrupt)
}

fn block(
    block: &[u8],
    output: &mut Output,
    written: &mut usize,
    limit: usize,
) -> Result<(), Failure> {
    let claimed = snap::raw::decompress_len(block).map_err(|_| Failure::Corrupt)?;
    if claimed > block.len().saturating_mul(RATIO_MAX) {
        return Err(Failure::Corrupt);
    }
    if claimed > limit - *written {
        return Err(Failure::Limit);
    }
    let room = output.exact(*written, claimed);
    let count = snap::raw::Decoder::new().decompress(block, room).map_err(|_| Failure::Corrupt)?;
    *written += count;
    Ok(())
}

/// As one raw block.
pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend(snap::raw::Encoder::new().compress_vec(records)?);
    Ok(())
}
