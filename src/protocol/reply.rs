//! A reply ready to be sent: its length, its header and its body as a list of pieces.
//!
//! Most replies are one piece. A fetch has many: its record data are slices of mapped segments or
//! of read buffers and are not copied on their way to the socket. Made by the handlers, sent by
//! `net::send`; nothing here reads what a shared piece points to.

use super::header::ReplyHeader;
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;
use shard::disk::SharedBytes;
use thiserror::Error;

/// Bytes in one place in memory.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Bytes),
    Shared(SharedBytes),
}

impl Piece {
    pub fn len(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Shared(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A whole frame: length prefix, header, body.
#[derive(Clone, Debug)]
pub struct Reply {
    pub pieces: Vec<Piece>,
    /// The sum of the pieces.
    pub bytes: usize,
}

/// A reply that cannot be sent; the connection closes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    #[error("{0:?} cannot be encoded")]
    NotEncodable(ReplyHeader),
    #[error("{header:?} would take {bytes} bytes, more than a frame can hold")]
    TooLong { header: ReplyHeader, bytes: usize },
}

impl Reply {
    /// Encodes a response as one piece.
    pub fn encode<T: Encodable>(header: ReplyHeader, body: &T) -> Result<Reply, ReplyError> {
        let not_encodable = |_| ReplyError::NotEncodable(header);
        let body_bytes = body.compute_size(header.version).map_err(not_encodable)?;
        let mut frame = begin(header, body_bytes)?;
        body.encode(&mut frame, header.version).map_err(not_encodable)?;
        Ok(Reply { bytes: frame.len(), pieces: vec![Piece::Bytes(frame.freeze())] })
    }
}

/// The length prefix and header of a reply whose body takes `body_bytes`. The buffer has room for
/// the body.
pub(super) fn begin(header: ReplyHeader, body_bytes: usize) -> Result<BytesMut, ReplyError> {
    let bytes = header_bytes(header) + body_bytes;
    let length = i32::try_from(bytes).map_err(|_| ReplyError::TooLong { header, bytes })?;
    let mut frame = BytesMut::with_capacity(4 + bytes);
    frame.put_i32(length);
    frame.put_i32(header.correlation_id);
    if header.has_tags() {
        frame.put_u8(0);
    }
    Ok(frame)
}

pub(super) fn header_bytes(header: ReplyHeader) -> usize {
    4 + usize::from(header.has_tags())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::api::Api;
    use kafka_protocol::messages::{ApiVersionsResponse, FetchResponse, MetadataResponse};

    fn bytes(reply: &Reply) -> Vec<u8> {
        assert_eq!(reply.bytes, reply.pieces.iter().map(Piece::len).sum::<usize>());
        let Piece::Bytes(bytes) = &reply.pieces[0] else { panic!("one piece of bytes") };
        bytes.to_vec()
    }

    #[test]
    fn a_flexible_reply_has_tags_in_its_header_but_for_api_versions() {
        let header = ReplyHeader { api: Api::ApiVersions, version: 3, correlation_id: 9 };
        let reply = Reply::encode(header, &ApiVersionsResponse::default()).unwrap();
        // length, correlation id, error, empty compact array, throttle time, no tags
        let expect = [0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(bytes(&reply), expect);

        let header = ReplyHeader { api: Api::Metadata, version: 12, correlation_id: 9 };
        let reply = bytes(&Reply::encode(header, &MetadataResponse::default()).unwrap());
        assert_eq!(reply[..9], [0, 0, 0, (reply.len() - 4) as u8, 0, 0, 0, 9, 0]);
    }

    #[test]
    fn a_field_the_version_lacks_is_an_error_and_not_a_guess() {
        let header = ReplyHeader { api: Api::Fetch, version: 4, correlation_id: 9 };
        let body = FetchResponse::default().with_session_id(129);
        assert!(Reply::encode(header, &body).is_err());
    }
}
