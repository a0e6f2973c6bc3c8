//! Reading a segment file frame by frame, trusting nothing in it.
//!
//! Used by recovery and by `basalt log dump`. Reads through buffers, never through a map, so a bad
//! sector is an error here and not a signal. A frame is accepted only when it stands where the
//! writer may have put it, carries the next sequence and is whole; anything else ends the scan.

use super::frame::{
    next_page, next_slot, sum_is_right, FrameHeader, Kind, FRAME_HEADER_BYTES, SLOT_BYTES,
};
use crate::batch::BatchHeader;
use crate::disk::ReadFile;
use crate::ids::{Position, Sequence};
use std::io;

/// How much is read at a time.
const WINDOW_BYTES: usize = 4 << 20;

/// A whole frame.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Where it starts in the segment.
    pub at: u32,
    pub header: FrameHeader,
    pub payload: &'a [u8],
}

impl Frame<'_> {
    pub fn end(&self) -> u32 {
        self.at + self.header.frame_bytes() as u32
    }
}

/// Walks the frames of one segment in order.
pub struct Scanner<'a> {
    file: &'a dyn ReadFile,
    epoch: u64,
    /// Frames end at or before this byte.
    limit: u32,
    /// End of the last accepted frame.
    end: u32,
    next: Sequence,
    window: Vec<u8>,
    window_at: u32,
}

/// What was found behind the end of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The greatest durable mark in any frame found there.
    pub mark: Position,
    /// Where the first such frame starts.
    pub first_at: u32,
    /// Where the last such frame ends.
    pub end: u64,
}

impl<'a> Scanner<'a> {
    /// Starts at `from`, where the frame with sequence `next` is expected.
    pub fn new(file: &'a dyn ReadFile, epoch: u64, from: u32, next: Sequence) -> Scanner<'a> {
        let window = Vec::new();
        Scanner { file, epoch, limit: u32::MAX, end: from, next, window, window_at: 0 }
    }

    /// Accepts no frame that ends after `limit`.
    pub fn until(mut self, limit: u32) -> Scanner<'a> {
        self.limit = limit;
        self
    }

    /// End of the last accepted frame, or where the scan started.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The sequence after that of the last accepted frame.
    pub fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// The next whole frame, `None` at the end.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        let slot = next_slot(self.end);
        let page = next_page(self.end);
        let mut found = self.check(slot)?.map(|header| (slot, header));
        if found.is_none() && page != slot {
            found = self.check(page)?.map(|header| (page, header));
        }
        let Some((at, header)) = found else {
            return Ok(None);
        };
        self.end = at + header.frame_bytes() as u32;
        self.next = Sequence(self.next.0 + 1);
        let from = (at - self.window_at) as usize + FRAME_HEADER_BYTES;
        let payload = &self.window[from..from + header.payload_bytes as usize];
        Ok(Some(Frame { at, header, payload }))
    }

    /// The header of a whole frame at `at` with the expected sequence. Its bytes are in the window.
    fn check(&mut self, at: u32) -> io::Result<Option<FrameHeader>> {
        let Some(raw) = self.peek_header(at)? else {
            return Ok(None);
        };
        let Some(header) = FrameHeader::parse(&raw) else {
            return Ok(None);
        };
        if header.sequence != self.next || !self.fits(at, &header) {
            return Ok(None);
        }
        if !self.fill(at, header.frame_bytes() as usize)? {
            return Ok(None);
        }
        let from = (at - self.window_at) as usize + FRAME_HEADER_BYTES;
        let payload = &self.window[from..from + header.payload_bytes as usize];
        let whole = sum_is_right(&raw, self.epoch, &payload[..header.covered_bytes()])
            && (header.kind != Kind::Data || batch_is_whole(payload));
        Ok(whole.then_some(header))
    }

    fn fits(&self, at: u32, header: &FrameHeader) -> bool {
        u64::from(at) + header.frame_bytes() <= u64::from(self.limit)
    }

    fn peek_header(&mut self, at: u32) -> io::Result<Option<[u8; FRAME_HEADER_BYTES]>> {
        if !self.fill(at, FRAME_HEADER_BYTES)? {
            return Ok(None);
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window[from..].first_chunk().copied())
    }

    /// Makes `[at, at + count)` present in the window; false when the file ends before.
    fn fill(&mut self, at: u32, count: usize) -> io::Result<bool> {
        let have = self.window_at as usize + self.window.len();
        if at >= self.window_at && at as usize + count <= have {
            return Ok(true);
        }
        let left = u64::from(self.limit).min(self.file.len()?).saturating_sub(u64::from(at));
        if count as u64 > left {
            return Ok(false);
        }
        // Keep what is there of the wanted range: frames are read once, not twice.
        let kept = if at >= self.window_at && (at as usize) < have {
            self.window.drain(..(at - self.window_at) as usize);
            self.window.len()
        } else {
            self.window.clear();
            0
        };
        self.window_at = at;
        self.window.resize(count.max(WINDOW_BYTES).min(left as usize), 0);
        let mut done = kept;
        while done < self.window.len() {
            let read = self.file.read_at(u64::from(at) + done as u64, &mut self.window[done..]);
            match read {
                Ok(0) => break,
                Ok(read) => done += read,
                // A bad sector behind what is asked for is met when it is asked for.
                Err(_) if done >= count => break,
                Err(error) => return Err(error),
            }
        }
        self.window.truncate(done);
        Ok(done >= count)
    }

    /// Looks at every slot behind the end for frames of this segment: they are there after a lost
    /// or damaged page, and their marks say whether what is missing had been durable.
    pub fn look_beyond(&mut self) -> io::Result<Option<Beyond>> {
        let mut beyond: Option<Beyond> = None;
        let mut at = next_slot(self.end);
        while let Some(raw) = self.peek_header(at)? {
            match self.frame_beyond(at, &raw)? {
                Some(header) => {
                    let first_at = beyond.map_or(at, |seen| seen.first_at);
                    let mark = beyond.map_or(header.mark, |seen| seen.mark.max(header.mark));
                    let end = u64::from(at) + header.frame_bytes();
                    beyond = Some(Beyond { mark, first_at, end });
                    at = next_slot(at + header.frame_bytes() as u32);
                }
                None => at = self.next_written_slot(at + SLOT_BYTES),
            }
        }
        Ok(beyond)
    }

    /// The first slot in the window from `at` on that is not all zero (no frame starts with zeros,
    /// its kind stands there), or the first one behind the window.
    fn next_written_slot(&self, at: u32) -> u32 {
        let from = (at - self.window_at) as usize;
        let (slots, _) = self.window.get(from..).unwrap_or_default().as_chunks::<8>();
        let zeros = slots.iter().take_while(|slot| **slot == [0; 8]).count();
        at + zeros as u32 * SLOT_BYTES
    }

    fn frame_beyond(
        &mut self,
        at: u32,
        raw: &[u8; FRAME_HEADER_BYTES],
    ) -> io::Result<Option<FrameHeader>> {
        let Some(header) = FrameHeader::parse(raw) else {
            return Ok(None);
        };
        if header.sequence < self.next || !self.fits(at, &header) {
            return Ok(None);
        }
        if !self.fill(at, FRAME_HEADER_BYTES + header.covered_bytes())? {
            return Ok(None);
        }
        let from = (at - self.window_at) as usize + FRAME_HEADER_BYTES;
        let covered = &self.window[from..from + header.covered_bytes()];
        Ok(sum_is_right(raw, self.epoch, covered).then_some(header))
    }
}

/// Whether the bytes are one record batch with the right length and sum.
fn batch_is_whole(payload: &[u8]) -> bool {
    let Ok((header, body, rest)) = BatchHeader::split(payload) else {
        return false;
    };
    rest.is_empty() && header.crc_with(body) == header.crc
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros(u64);

    impl ReadFile for Zeros {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0)
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let count = into.len().min((self.0 - offset.min(self.0)) as usize);
            into[..count].fill(0);
            Ok(count)
        }
    }

    #[test]
    fn nothing_is_found_in_zeros() {
        let file = Zeros(64 << 20);
        let mut scanner = Scanner::new(&file, 1, 4096, Sequence(1));
        assert!(scanner.next_frame().unwrap().is_none());
        assert_eq!(scanner.look_beyond().unwrap(), None);
    }
}
