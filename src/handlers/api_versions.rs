//! ApiVersions (key 18), versions 0 to 4.
//!
//! KIP-35, KIP-511 (client software name and version). Answers from the table in `protocol::api`,
//! also before authentication. An unknown version is answered in version 0 with error 35 and the
//! versions of ApiVersions itself, so that the client tries again with one of them.
//!
//! Gaps: no features are supported or finalized; version 5 is not offered by the codec.

use crate::errors::{KafkaError, RequestFault};
use crate::protocol::api::Api;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

pub fn handle(request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
    let fits = |text: &str| version < 3 || is_software(text);
    if !fits(&request.client_software_name) || !fits(&request.client_software_version) {
        let code = RequestFault::ClientSoftware.code().code();
        return ApiVersionsResponse::default().with_error_code(code);
    }
    ApiVersionsResponse::default().with_api_keys(Api::ALL.iter().copied().map(offer).collect())
}

/// The answer to a version nobody knows.
pub fn too_new() -> ApiVersionsResponse {
    ApiVersionsResponse::default()
        .with_error_code(RequestFault::ApiVersionsTooNew.code().code())
        .with_api_keys(vec![offer(Api::ApiVersions)])
}

fn offer(api: Api) -> ApiVersion {
    let row = api.row();
    ApiVersion::default()
        .with_api_key(row.key)
        .with_min_version(row.version_min)
        .with_max_version(row.version_max)
}

/// `[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?`
fn is_software(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names() {
        for (text, expect) in [
            ("librdkafka", true),
            ("apache-kafka-java", true),
            ("2.4.0", true),
            ("a", true),
            ("", false),
            ("-a", false),
            ("a.", false),
            ("a b", false),
            ("ä", false),
        ] {
            assert_eq!(is_software(text), expect, "{text:?}");
        }
    }

    #[test]
    fn the_name_is_looked_at_from_version_3_on() {
        let request = ApiVersionsRequest::default();
        assert_eq!(handle(&request, 2).error_code, 0);
        assert_eq!(handle(&request, 3).error_code, 42);
        assert_eq!(handle(&request, 0).api_keys.len(), Api::ALL.len());
    }
}
