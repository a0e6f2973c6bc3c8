//! Cuts the bytes of a connection into frames: a length (i32, big endian) and as many bytes.
//!
//! Frames are slices of the receive buffer, not copies. The buffer grows with the bytes that have
//! arrived, never with an announced length alone, and goes back to a pool of the core while the
//! connection has nothing to receive: an idle connection owns no buffer, and a busy core keeps
//! receiving into memory that is still in the processor's cache.

use bytes::{Buf, Bytes, BytesMut};
use std::cell::RefCell;

/// The least room offered to the kernel, and the size of a fresh buffer.
pub const READ_BYTES_MIN: usize = 64 << 10;
/// Buffers up to this size are kept for the next connection.
const POOLED_BYTES_MAX: usize = 2 << 20;
/// Buffers kept by a core.
const POOLED_BUFFERS_MAX: usize = 8;
const PREFIX_BYTES: usize = 4;

/// Why a connection's bytes cannot be cut any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame announces a length of {0} bytes")]
    Negative(i32),
    #[error("a frame announces {bytes} bytes, {bytes_max} are allowed")]
    TooLarge { bytes: usize, bytes_max: usize },
}

/// Receive buffers of one core that no connection is using.
#[derive(Debug, Default)]
pub struct BufferPool {
    free: RefCell<Vec<BytesMut>>,
}

impl BufferPool {
    fn take(&self) -> BytesMut {
        let pooled = self.free.borrow_mut().pop();
        pooled.unwrap_or_else(|| BytesMut::with_capacity(READ_BYTES_MIN))
    }

    fn put(&self, buffer: BytesMut) {
        let mut free = self.free.borrow_mut();
        if buffer.capacity() <= POOLED_BYTES_MAX && free.len() < POOLED_BUFFERS_MAX {
            free.push(buffer);
        }
    }
}

/// The received and not yet cut bytes of one connection.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: BytesMut,
}

impl From<BytesMut> for FrameBuffer {
    /// Goes on with what was received before.
    fn from(bytes: BytesMut) -> FrameBuffer {
        FrameBuffer { bytes }
    }
}

impl FrameBuffer {
    /// The next whole frame without its length, if it has arrived.
    pub fn next(&mut self, frame_bytes_max: usize) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced(frame_bytes_max)? else {
            return Ok(None);
        };
        if self.bytes.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX_BYTES);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// The buffer with room for at least one more byte, and how many to receive into it.
    ///
    /// The rest of a large frame is received alone, so that the frame after it starts at the front
    /// of the buffer: then its start need not be moved there.
    pub fn prepare(&mut self, pool: &BufferPool) -> (&mut BytesMut, usize) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        }
        let missing = match self.announced(usize::MAX) {
            Ok(Some(length)) => (PREFIX_BYTES + length).saturating_sub(self.bytes.len()),
            Ok(None) | Err(_) => 0,
        };
        let grown = self.bytes.len().max(READ_BYTES_MIN);
        self.ensure(if missing == 0 { READ_BYTES_MIN } else { missing.min(grown) });
        let spare = self.bytes.capacity() - self.bytes.len();
        let wanted = if missing >= READ_BYTES_MIN { missing } else { spare };
        (&mut self.bytes, wanted)
    }

    /// Memory the bytes that are not cut yet keep.
    pub fn held_bytes(&self) -> usize {
        if self.bytes.is_empty() {
            0
        } else {
            self.bytes.capacity()
        }
    }

    /// What has been received and not cut.
    pub fn into_rest(self) -> BytesMut {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives the buffer back if nothing is in it.
    pub fn release(&mut self, pool: &BufferPool) {
        if !self.bytes.is_empty() || self.bytes.capacity() == 0 {
            return;
        }
        let mut buffer = std::mem::take(&mut self.bytes);
        // Fails while a frame cut from it lives on; then the frame's owner frees the memory.
        if buffer.try_reclaim(READ_BYTES_MIN) {
            pool.put(buffer);
        }
    }

    fn announced(&self, frame_bytes_max: usize) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.bytes.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let announced = i32::from_be_bytes(*prefix);
        let bytes = usize::try_from(announced).map_err(|_| FrameError::Negative(announced))?;
        if bytes > frame_bytes_max {
            return Err(FrameError::TooLarge { bytes, bytes_max: frame_bytes_max });
        }
        Ok(Some(bytes))
    }

    /// Makes room for `additional` bytes, in place if the frames cut before are gone.
    fn ensure(&mut self, additional: usize) {
        if self.bytes.try_reclaim(additional) {
            return;
        }
        // Not `reserve`, which would carry along the dead bytes in front of ours. A power of two,
        // so that frames of nearly the same size find room in it for good.
        let capacity = (self.bytes.len() + additional).next_power_of_two();
        let mut larger = BytesMut::with_capacity(capacity);
        larger.extend_from_slice(&self.bytes);
        self.bytes = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut all = (body.len() as i32).to_be_bytes().to_vec();
        all.extend_from_slice(body);
        all
    }

    /// Feeds `input` in pieces of `step` bytes and returns the frames that come out.
    fn cut(input: &[u8], step: usize) -> Result<Vec<Bytes>, FrameError> {
        let (pool, mut buffer, mut frames) =
            (BufferPool::default(), FrameBuffer::default(), vec![]);
        for piece in input.chunks(step) {
            for byte in piece.chunks(1) {
                buffer.prepare(&pool).0.extend_from_slice(byte);
            }
            while let Some(frame) = buffer.next(1 << 20)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let bodies: Vec<Vec<u8>> = [0, 1, 5, 300, 70_000]
            .iter()
            .map(|&n| (0..n).map(|i| (i % 251) as u8).collect())
            .collect();
        let input: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        for step in [1, 3, 7, 4096, input.len()] {
            assert_eq!(cut(&input, step).expect("valid"), bodies);
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert_eq!(cut(&(-1i32).to_be_bytes(), 1), Err(FrameError::Negative(-1)));
        let bytes = (1 << 20) + 1;
        let refused = FrameError::TooLarge { bytes, bytes_max: 1 << 20 };
        assert_eq!(cut(&(bytes as i32).to_be_bytes(), 4), Err(refused));
    }

    #[test]
    fn the_buffer_grows_with_what_arrived_not_with_what_was_announced() {
        let (pool, mut buffer) = (BufferPool::default(), FrameBuffer::default());
        buffer.prepare(&pool).0.extend_from_slice(&i32::MAX.to_be_bytes());
        assert!(buffer.prepare(&pool).0.capacity() <= 2 * READ_BYTES_MIN);
    }

    #[test]
    fn a_buffer_is_used_again_once_its_frames_are_gone() {
        let (pool, mut buffer) = (BufferPool::default(), FrameBuffer::default());
        let address = buffer.prepare(&pool).0.as_ptr();
        for _ in 0..100 {
            buffer.prepare(&pool).0.extend_from_slice(&framed(&[7; 1000]));
            assert_eq!(buffer.next(1 << 20).expect("valid").expect("whole").len(), 1000);
            buffer.release(&pool);
            assert_eq!(buffer.prepare(&pool).0.as_ptr(), address);
        }
    }
}
