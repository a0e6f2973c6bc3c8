//! The head of a request: who asks for what, read without trusting a byte of it.
//!
//! The codec's own header reader panics on short frames and loses the correlation id of an API it
//! does not know, so the first eight bytes are read here. Layout of a frame without its length:
//!
//! ```text
//! 00 03 | 00 09 | 00 00 00 07 | 00 04 'r' 'd' 'k' 'a' | 00       | body
//! key     version correlation   client_id (int16 length  tagged fields, in flexible
//!                               in every version)        versions only
//! ```

use super::api::Api;

/// The first eight bytes of a frame: present in every request of every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
}

impl Peek {
    pub const BYTES: usize = 8;

    /// `None` when the frame is shorter than a header can be.
    pub fn read(frame: &[u8]) -> Option<Peek> {
        let head = frame.first_chunk::<{ Peek::BYTES }>()?;
        let [k0, k1, v0, v1, c0, c1, c2, c3] = *head;
        Some(Peek {
            api_key: i16::from_be_bytes([k0, k1]),
            api_version: i16::from_be_bytes([v0, v1]),
            correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
        })
    }
}

/// What the reply must know of the request it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    pub api: Api,
    pub version: i16,
    pub correlation_id: i32,
}

impl ReplyHeader {
    /// Flexible replies carry tagged fields in their header, except ApiVersions: its reader does
    /// not yet know what the broker speaks.
    pub fn has_tags(&self) -> bool {
        self.api != Api::ApiVersions && self.api.row().is_flexible(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_have_no_header() {
        for bytes in 0..Peek::BYTES {
            assert_eq!(Peek::read(&vec![0; bytes]), None);
        }
        let frame = [0, 3, 0, 9, 0, 0, 1, 7, 0xff, 0xff];
        let expect = Peek { api_key: 3, api_version: 9, correlation_id: 263 };
        assert_eq!(Peek::read(&frame), Some(expect));
    }

    #[test]
    fn only_api_versions_is_flexible_without_header_tags() {
        let tags = |api, version| ReplyHeader { api, version, correlation_id: 0 }.has_tags();
        assert!(!tags(Api::ApiVersions, 0));
        assert!(!tags(Api::ApiVersions, 4));
        assert!(!tags(Api::Metadata, 8));
        assert!(tags(Api::Metadata, 9));
        assert!(tags(Api::DescribeCluster, 0));
    }
}
