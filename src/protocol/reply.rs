//! The bytes of one answer, as pieces that are sent without being put together.
//!
//! Handlers build a reply, `net` sends it. A piece is either memory of the process or a slice of a
//! mapped segment, which only the kernel reads.

use bytes::Bytes;
use shard::disk::SharedBytes;

/// One run of bytes of a reply.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Bytes),
    Shared(SharedBytes),
}

impl Piece {
    pub fn len(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Shared(shared) => shared.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A whole answer, its length prefix included, in sending order.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub pieces: Vec<Piece>,
}
