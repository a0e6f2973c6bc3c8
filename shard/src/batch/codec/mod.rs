//! Expands the records of a compressed batch, within limits, and compresses own ones.
//!
//! Between the header and the records: `expand` is given a batch's body and returns its records in
//! a buffer that is kept and reused. Whatever the input claims, it writes at most the limit for
//! an input of its size, and refuses data behind the compressed stream. It accepts what Kafka's
//! own clients can read back and nothing else, so that no producer can poison a topic:
//! concatenated gzip members and zstd frames, snappy raw or in the framing of the Java client,
//! one LZ4 frame of independent blocks with correct checksums.

mod lz4;
mod snappy;

use std::io::{self, Read, Write};

use super::error::BatchError;
use super::header::Codec;

/// How much a compressed batch may expand to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No batch expands to more.
    pub bytes_max: usize,
    /// Nor to more than this many times its compressed size…
    pub ratio_max: usize,
    /// …unless it stays below this.
    pub ratio_free_bytes: usize,
}

impl Default for Limits {
    /// Above what gzip (1,032), LZ4 (255) and snappy (22) can reach at all: the ratio bounds zstd.
    fn default() -> Limits {
        Limits { bytes_max: 128 << 20, ratio_max: 1100, ratio_free_bytes: 2 << 20 }
    }
}

impl Limits {
    /// The most that `compressed` bytes may become.
    pub fn for_input(&self, compressed: usize) -> usize {
        let by_ratio = compressed.saturating_mul(self.ratio_max);
        by_ratio.max(self.ratio_free_bytes).min(self.bytes_max)
    }
}

/// Why a stream did not expand.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Its output would pass the limit.
    Limit,
    /// It is not a whole, correct stream of its codec.
    Corrupt,
}

/// The buffer records are expanded into, and codec state worth keeping.
#[derive(Default)]
pub struct Expander {
    output: Output,
    zstd: Option<zstd::zstd_safe::DCtx<'static>>,
}

impl Expander {
    /// A large buffer is given back after use; below this it is kept.
    const KEPT_BYTES: usize = 4 << 20;

    /// To be called when the expanded records are no longer needed.
    pub fn shrink(&mut self) {
        if self.output.bytes.len() > Self::KEPT_BYTES {
            self.output.bytes.truncate(Self::KEPT_BYTES);
            self.output.bytes.shrink_to_fit();
        }
    }
}

/// The records of a batch with this body: the body itself, or expanded into the buffer.
pub fn expand<'a>(
    codec: Codec,
    body: &'a [u8],
    limits: &Limits,
    expander: &'a mut Expander,
) -> Result<&'a [u8], BatchError> {
    let limit = limits.for_input(body.len());
    let output = &mut expander.output;
    let expanded = match codec {
        Codec::None => return Ok(body),
        // Some codecs would take this for nothing compressed; readers would not.
        _ if body.is_empty() => Err(Failure::Corrupt),
        Codec::Gzip => gunzip(body, output, limit),
        Codec::Snappy => snappy::expand(body, output, limit),
        Codec::Lz4 => lz4::expand(body, output, limit),
        Codec::Zstd => unzstd(body, output, limit, &mut expander.zstd),
    };
    match expanded {
        Ok(bytes) => Ok(output.written(bytes)),
        Err(Failure::Limit) => Err(BatchError::Expansion { bytes_max: limit }),
        Err(Failure::Corrupt) => Err(BatchError::Compression(codec)),
    }
}

/// A buffer that grows on demand and stays initialised, so that reuse costs no zeroing.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
}

impl Output {
    /// The least step of growth.
    const STEP_BYTES: usize = 64 << 10;

    /// The bytes from `at`, at least `room` of them, growing no further than needed.
    fn from(&mut self, at: usize, room: usize) -> &mut [u8] {
        let needed = at.saturating_add(room);
        if self.bytes.len() < needed {
            self.bytes.reserve_exact(needed - self.bytes.len());
            self.bytes.resize(needed, 0);
        }
        &mut self.bytes[at..]
    }

    /// Exactly `room` bytes from `at`.
    fn exact(&mut self, at: usize, room: usize) -> &mut [u8] {
        &mut self.from(at, room)[..room]
    }

    fn written(&self, bytes: usize) -> &[u8] {
        &self.bytes[..bytes]
    }
}

fn gunzip(body: &[u8], output: &mut Output, limit: usize) -> Result<usize, Failure> {
    let mut stream = flate2::bufread::MultiGzDecoder::new(body);
    let mut written = 0;
    loop {
        // One byte beyond the limit shows that there is more.
        let left = limit.saturating_add(1) - written;
        let step = written.max(Output::STEP_BYTES).min(left);
        let room = output.from(written, step);
        let room_bytes = room.len().min(left);
        match stream.read(&mut room[..room_bytes]) {
            Ok(0) => return Ok(written),
            Ok(count) => written += count,
            Err(_) => return Err(Failure::Corrupt),
        }
        if written > limit {
            return Err(Failure::Limit);
        }
    }
}

fn unzstd(
    body: &[u8],
    output: &mut Output,
    limit: usize,
    context: &mut Option<zstd::zstd_safe::DCtx<'static>>,
) -> Result<usize, Failure> {
    if !zstd_window_is_usual(body) {
        return Err(Failure::Corrupt);
    }
    // The bound follows from the block headers and is at most a block off for each block.
    let bound = zstd::zstd_safe::decompress_bound(body).map_err(|_| Failure::Corrupt)?;
    let room = usize::try_from(bound).unwrap_or(usize::MAX).min(limit);
    let context = match context {
        Some(context) => context,
        None => context.insert(zstd::zstd_safe::DCtx::try_create().ok_or(Failure::Limit)?),
    };
    match context.decompress(output.exact(0, room), body) {
        Ok(written) => Ok(written),
        Err(_) if bound > limit as u64 => Err(Failure::Limit),
        Err(_) => Err(Failure::Corrupt),
    }
}

/// Clients read streams with windows of up to 2^27 bytes; a frame that asks for more would be
/// accepted here, where the output buffer is the window, and could never be consumed.
fn zstd_window_is_usual(frame: &[u8]) -> bool {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    const WINDOW_LOG_MAX: u8 = 27;
    match *frame {
        [0x28, 0xb5, 0x2f, 0xfd, descriptor, window, ..] if descriptor & SINGLE_SEGMENT == 0 => {
            let (exponent, mantissa) = (window >> 3, window & 7);
            10 + exponent < WINDOW_LOG_MAX || (10 + exponent == WINDOW_LOG_MAX && mantissa == 0)
        }
        _ => true,
    }
}

/// Appends `records` to `out` as `codec` stores them, in the forms every client reads.
pub fn compress(codec: Codec, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => out.extend_from_slice(records),
        Codec::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            gzip.write_all(records)?;
            gzip.finish()?;
        }
        Codec::Snappy => snappy::compress(records, out)?,
        Codec::Lz4 => lz4::compress(records, out),
        Codec::Zstd => out.extend(zstd::bulk::compress(records, 3)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
