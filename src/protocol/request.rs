//! From a frame to a decoded request, or to the reason why the connection must close.
//!
//! Called by the reader of a connection for each frame, before any handler. An API or version that
//! is not offered closes the connection, as its layout would have to be guessed; ApiVersions of an
//! unknown version alone is answered, in version 0, so that newer clients can fall back.

use super::api::Api;
use super::guard::{self, Refused};
use super::header::{Peek, ReplyHeader};
use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use thiserror::Error;

pub use super::api::Request;

/// A request a handler can serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub header: ReplyHeader,
    pub client_id: Option<StrBytes>,
    pub request: Request,
}

/// What a frame asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    Request(Box<Decoded>),
    /// ApiVersions in a version that is not offered: the reply is version 0 with error 35.
    ApiVersionsTooNew(ReplyHeader),
}

/// Why a connection must close. The numbers go into the log, never the bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Close {
    #[error("a frame of {bytes} bytes is shorter than a request header")]
    TooShort { bytes: usize },
    #[error("api key {key} is not offered")]
    UnknownApi { key: i16 },
    #[error("{api:?} version {version} is not offered")]
    UnknownVersion { api: Api, version: i16 },
    #[error("{api:?} version {version}: {refused}")]
    Refused { api: Api, version: i16, refused: Refused },
    #[error("{api:?} version {version} passed the guard but not the decoder")]
    Undecodable { api: Api, version: i16 },
}

/// Reads one frame, given without its length prefix. Record data stays a slice of it.
/// `memory_budget` bounds what the decoded form may take beside the frame.
pub fn read(frame: &Bytes, memory_budget: usize) -> Result<Incoming, Close> {
    let peek = Peek::read(frame).ok_or(Close::TooShort { bytes: frame.len() })?;
    let api = Api::of_key(peek.api_key).ok_or(Close::UnknownApi { key: peek.api_key })?;
    let (version, correlation_id) = (peek.api_version, peek.correlation_id);
    let row = api.row();
    if !row.offers(version) {
        if api == Api::ApiVersions {
            let header = ReplyHeader { api, version: 0, correlation_id };
            return Ok(Incoming::ApiVersionsTooNew(header));
        }
        return Err(Close::UnknownVersion { api, version });
    }
    let passed = guard::check(frame, row, version, memory_budget)
        .map_err(|refused| Close::Refused { api, version, refused })?;
    let mut body = frame.slice(passed.body_at..passed.body_end);
    let request = Request::decode(api, &mut body, version)
        .filter(|_| body.is_empty())
        .ok_or(Close::Undecodable { api, version })?;
    let client_id =
        passed.client_id.and_then(|(from, to)| StrBytes::from_utf8(frame.slice(from..to)).ok());
    let header = ReplyHeader { api, version, correlation_id };
    Ok(Incoming::Request(Box::new(Decoded { header, client_id, request })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(key: i16, version: i16, rest: &[u8]) -> Bytes {
        let mut frame = Vec::new();
        frame.extend(key.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend(7i32.to_be_bytes());
        frame.extend(rest);
        frame.into()
    }

    #[test]
    fn unknown_apis_and_versions_close_the_connection() {
        let check = |frame: Bytes, expect| assert_eq!(read(&frame, 1 << 20), Err(expect));
        check(Bytes::from_static(&[0, 18, 0]), Close::TooShort { bytes: 3 });
        check(frame(4, 0, &[]), Close::UnknownApi { key: 4 });
        check(frame(-1, 0, &[]), Close::UnknownApi { key: -1 });
        check(frame(0, 2, &[]), Close::UnknownVersion { api: Api::Produce, version: 2 });
        check(frame(1, 19, &[]), Close::UnknownVersion { api: Api::Fetch, version: 19 });
        check(frame(3, -1, &[]), Close::UnknownVersion { api: Api::Metadata, version: -1 });
    }

    #[test]
    fn api_versions_of_any_unknown_version_is_answered_in_version_0() {
        for version in [5, 99, i16::MAX, -1] {
            let header = ReplyHeader { api: Api::ApiVersions, version: 0, correlation_id: 7 };
            let incoming = read(&frame(18, version, &[0xff, 0xff, 0xff]), 0);
            assert_eq!(incoming, Ok(Incoming::ApiVersionsTooNew(header)));
        }
    }

    #[test]
    fn all_topics_as_librdkafka_asks_for_them_are_read() {
        for version in 9..=13 {
            // No client id, no tags; a count of four bytes, then the flags and no tags.
            let flags: &[u8] = if version <= 10 { &[1, 0, 0] } else { &[1, 0] };
            let rest = [&[0xff, 0xff, 0, 0, 0, 0, 0], flags, &[0]].concat();
            let incoming = read(&frame(3, version, &rest), 1 << 20);
            let Ok(Incoming::Request(decoded)) = incoming else { panic!("{incoming:?}") };
            let Request::Metadata(request) = decoded.request else { panic!("{decoded:?}") };
            assert_eq!(request.topics, None);
            let longer = frame(3, version, &[&rest[..], &[0; 3]].concat());
            assert!(matches!(read(&longer, 1 << 20), Err(Close::Refused { .. })));
        }
    }

    #[test]
    fn a_request_carries_its_header_and_client_id() {
        let incoming = read(&frame(18, 0, &[0, 2, b'm', b'e']), 1 << 20);
        let Ok(Incoming::Request(decoded)) = incoming else { panic!("{incoming:?}") };
        assert_eq!(decoded.client_id.as_deref(), Some("me"));
        assert_eq!(decoded.header.correlation_id, 7);
        assert_eq!(decoded.request.api(), Api::ApiVersions);
    }
}
