//! LZ4 frames as Kafka's clients write and read them: one frame of independent blocks.
//!
//! Own framing over the block codec, because a frame decoder that allots whole blocks costs 4 MiB
//! of zeroing for a frame of twenty bytes. All checksums present are verified, since consumers do.
//!
//! | bytes | field                                                                             |
//! |-------|-----------------------------------------------------------------------------------|
//! | 4     | magic `04 22 4d 18`                                                               |
//! | 1     | flags: version 01 (bits 7–6), independent blocks (5), block checksums (4), content size (3), content checksum (2), 0, 0 |
//! | 1     | block size (bits 6–4): 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB              |
//! | 0, 8  | content size, if flagged                                                          |
//! | 1     | second byte of XXH32 over flags to content size                                   |
//! | …     | blocks: u32 length (top bit: stored as is), bytes, XXH32 of them if flagged       |
//! | 4     | end mark 0, then XXH32 of the content if flagged                                  |

use twox_hash::XxHash32;

use super::{Failure, Output};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
/// In a block's length: the block is not compressed.
const STORED: u32 = 1 << 31;
/// No block expands more than this, plus a few bytes.
const RATIO_MAX: usize = 255;

pub(super) fn expand(body: &[u8], output: &mut Output, limit: usize) -> Result<usize, Failure> {
    let mut input = Input(body);
    let frame = Frame::read(&mut input)?;
    let mut written = 0;
    loop {
        let length = input.u32()?;
        if length == 0 {
            break;
        }
        let block = input.take((length & !STORED) as usize)?;
        if block.len() > frame.block_bytes_max {
            return Err(Failure::Corrupt);
        }
        if frame.flags & BLOCK_CHECKSUMS != 0 && input.u32()? != XxHash32::oneshot(0, block) {
            return Err(Failure::Corrupt);
        }
        let left = limit - written;
        if length & STORED != 0 {
            if block.len() > left {
                return Err(Failure::Limit);
            }
            output.exact(written, block.len()).copy_from_slice(block);
            written += block.len();
            continue;
        }
        let most = block.len().saturating_mul(RATIO_MAX).saturating_add(64);
        let room = most.min(frame.block_bytes_max);
        match lz4_flex::block::decompress_into(block, output.exact(written, room.min(left))) {
            Ok(count) => written += count,
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if left < room => {
                return Err(Failure::Limit);
            }
            Err(_) => return Err(Failure::Corrupt),
        }
    }
    frame.check_content(output.written(written), &mut input)?;
    Ok(written)
}

struct Frame {
    flags: u8,
    block_bytes_max: usize,
    content_bytes: Option<u64>,
}

impl Frame {
    fn read(input: &mut Input<'_>) -> Result<Frame, Failure> {
        if input.take(4)? != MAGIC {
            return Err(Failure::Corrupt);
        }
        let descriptor = input.0;
        let [flags, sizes] = *input.array::<2>()?;
        let known = BLOCK_CHECKSUMS | CONTENT_SIZE | CONTENT_CHECKSUM;
        if flags & !known != VERSION | INDEPENDENT {
            return Err(Failure::Corrupt);
        }
        let block_bytes_max = match sizes {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(Failure::Corrupt),
        };
        let content_bytes = match flags & CONTENT_SIZE {
            0 => None,
            _ => Some(u64::from_le_bytes(*input.array::<8>()?)),
        };
        let (descriptor, _) = descriptor.split_at(descriptor.len() - input.0.len());
        let [check] = *input.array::<1>()?;
        if check != header_check(descriptor) {
            return Err(Failure::Corrupt);
        }
        Ok(Frame { flags, block_bytes_max, content_bytes })
    }

    fn check_content(&self, content: &[u8], input: &mut Input<'_>) -> Result<(), Failure> {
        let checked = self.flags & CONTENT_CHECKSUM != 0;
        let wrong_check = checked && input.u32()? != XxHash32::oneshot(0, content);
        let wrong_size = self.content_bytes.is_some_and(|bytes| bytes != content.len() as u64);
        if wrong_check || wrong_size || !input.0.is_empty() {
            return Err(Failure::Corrupt);
        }
        Ok(())
    }
}

fn header_check(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Failure> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Failure::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Failure> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Failure::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Failure> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// As blocks of 64 KiB without optional checksums, like the Java client.
pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    let descriptor = [VERSION | INDEPENDENT, 0x40];
    out.extend(MAGIC);
    out.extend(descriptor);
    out.push(header_check(&descriptor));
    for block in records.chunks(64 << 10) {
        let compressed = lz4_flex::block::compress(block);
        let (length, bytes) = match compressed.len() < block.len() {
            true => (compressed.len() as u32, compressed.as_slice()),
            false => (block.len() as u32 | STORED, block),
        };
        out.extend(length.to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out.extend([0; 4]);
}
