//! The one table of APIs the broker offers: key, versions, layout, decoder.
//!
//! ApiVersions answers from it, the frame guard and the decoder are driven by it, and metrics are
//! counted by its rows. A version is in the table only when the request is decoded *and* its
//! response encoded: the ranges are those of the codec's message types, intersected. To offer one
//! more API, add its layout to `layouts` and a line to `offered!`.

use super::layouts::{self, Layout};
use kafka_protocol::messages;
use kafka_protocol::protocol::{Decodable, Message};

/// What the table says of one API.
#[derive(Debug)]
pub struct Row {
    pub key: i16,
    pub name: &'static str,
    pub version_min: i16,
    pub version_max: i16,
    /// From this version on, requests and responses carry tagged fields and compact lengths.
    pub flexible_from: i16,
    pub layout: &'static Layout,
}

impl Row {
    pub fn offers(&self, version: i16) -> bool {
        (self.version_min..=self.version_max).contains(&version)
    }

    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }
}

/// The smallest version both message types have.
const fn lowest<Q: Message, S: Message>() -> i16 {
    let (request, response) = (Q::VERSIONS.min, S::VERSIONS.min);
    if request > response {
        request
    } else {
        response
    }
}

/// The largest version both message types have.
const fn highest<Q: Message, S: Message>() -> i16 {
    let (request, response) = (Q::VERSIONS.max, S::VERSIONS.max);
    if request < response {
        request
    } else {
        response
    }
}

macro_rules! offered {
    ($($name:ident = $key:literal, flexible $flexible:literal, $layout:path,
        $request:ident => $response:ident;)*) => {
        /// An API the broker offers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Api {
            $($name,)*
        }

        /// A decoded request.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($name(messages::$request),)*
        }

        impl Api {
            pub const ALL: &'static [Api] = &[$(Api::$name,)*];

            pub fn row(self) -> &'static Row {
                match self {
                    $(Api::$name => {
                        const ROW: Row = Row {
                            key: $key,
                            name: stringify!($name),
                            version_min: lowest::<messages::$request, messages::$response>(),
                            version_max: highest::<messages::$request, messages::$response>(),
                            flexible_from: $flexible,
                            layout: &$layout,
                        };
                        &ROW
                    })*
                }
            }

            pub fn of_key(key: i16) -> Option<Api> {
                match key {
                    $($key => Some(Api::$name),)*
                    _ => None,
                }
            }
        }

        impl Request {
            pub fn api(&self) -> Api {
                match self {
                    $(Request::$name(_) => Api::$name,)*
                }
            }

            /// Decodes a body that has passed the frame guard. `None` when the codec refuses it.
            pub(super) fn decode(api: Api, body: &mut bytes::Bytes, version: i16) -> Option<Self> {
                match api {
                    $(Api::$name => messages::$request::decode(body, version)
                        .ok()
                        .map(Request::$name),)*
                }
            }
        }
    };
}

offered! {
    Produce = 0, flexible 9, layouts::PRODUCE, ProduceRequest => ProduceResponse;
    Fetch = 1, flexible 12, layouts::FETCH, FetchRequest => FetchResponse;
    ListOffsets = 2, flexible 6, layouts::LIST_OFFSETS, ListOffsetsRequest => ListOffsetsResponse;
    Metadata = 3, flexible 9, layouts::METADATA, MetadataRequest => MetadataResponse;
    OffsetCommit = 8, flexible 8, layouts::OFFSET_COMMIT,
        OffsetCommitRequest => OffsetCommitResponse;
    OffsetFetch = 9, flexible 6, layouts::OFFSET_FETCH, OffsetFetchRequest => OffsetFetchResponse;
    FindCoordinator = 10, flexible 3, layouts::FIND_COORDINATOR,
        FindCoordinatorRequest => FindCoordinatorResponse;
    JoinGroup = 11, flexible 6, layouts::JOIN_GROUP, JoinGroupRequest => JoinGroupResponse;
    Heartbeat = 12, flexible 4, layouts::HEARTBEAT, HeartbeatRequest => HeartbeatResponse;
    LeaveGroup = 13, flexible 4, layouts::LEAVE_GROUP, LeaveGroupRequest => LeaveGroupResponse;
    SyncGroup = 14, flexible 4, layouts::SYNC_GROUP, SyncGroupRequest => SyncGroupResponse;
    DescribeGroups = 15, flexible 5, layouts::DESCRIBE_GROUPS,
        DescribeGroupsRequest => DescribeGroupsResponse;
    ListGroups = 16, flexible 3, layouts::LIST_GROUPS, ListGroupsRequest => ListGroupsResponse;
    ApiVersions = 18, flexible 3, layouts::API_VERSIONS, ApiVersionsRequest => ApiVersionsResponse;
    CreateTopics = 19, flexible 5, layouts::CREATE_TOPICS,
        CreateTopicsRequest => CreateTopicsResponse;
    DeleteTopics = 20, flexible 4, layouts::DELETE_TOPICS,
        DeleteTopicsRequest => DeleteTopicsResponse;
    DeleteRecords = 21, flexible 2, layouts::DELETE_RECORDS,
        DeleteRecordsRequest => DeleteRecordsResponse;
    InitProducerId = 22, flexible 2, layouts::INIT_PRODUCER_ID,
        InitProducerIdRequest => InitProducerIdResponse;
    OffsetForLeaderEpoch = 23, flexible 4, layouts::OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
    DescribeConfigs = 32, flexible 4, layouts::DESCRIBE_CONFIGS,
        DescribeConfigsRequest => DescribeConfigsResponse;
    DeleteGroups = 42, flexible 2, layouts::DELETE_GROUPS,
        DeleteGroupsRequest => DeleteGroupsResponse;
    DescribeCluster = 60, flexible 0, layouts::DESCRIBE_CLUSTER,
        DescribeClusterRequest => DescribeClusterResponse;
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::ApiKey;

    #[test]
    fn the_offered_versions() {
        let table: Vec<String> = Api::ALL
            .iter()
            .map(|api| api.row())
            .map(|r| format!("{} {} {}-{}", r.key, r.name, r.version_min, r.version_max))
            .collect();
        let expect = [
            "0 Produce 3-13",
            "1 Fetch 4-18",
            "2 ListOffsets 1-10",
            "3 Metadata 0-13",
            "8 OffsetCommit 2-9",
            "9 OffsetFetch 1-9",
            "10 FindCoordinator 0-6",
            "11 JoinGroup 0-9",
            "12 Heartbeat 0-4",
            "13 LeaveGroup 0-5",
            "14 SyncGroup 0-5",
            "15 DescribeGroups 0-6",
            "16 ListGroups 0-5",
            "18 ApiVersions 0-4",
            "19 CreateTopics 2-7",
            "20 DeleteTopics 1-6",
            "21 DeleteRecords 0-2",
            "22 InitProducerId 0-5",
            "23 OffsetForLeaderEpoch 2-4",
            "32 DescribeConfigs 1-4",
            "42 DeleteGroups 0-2",
            "60 DescribeCluster 0-2",
        ];
        assert_eq!(table, expect);
    }

    #[test]
    fn keys_and_flexible_versions_are_those_of_the_codec() {
        for api in Api::ALL.iter().copied() {
            let row = api.row();
            assert_eq!(Api::of_key(row.key), Some(api));
            let key = ApiKey::try_from(row.key).expect("the codec knows the key");
            assert_eq!(format!("{key:?}"), row.name);
            for version in row.version_min..=row.version_max {
                let expect = if row.is_flexible(version) { 2 } else { 1 };
                assert_eq!(key.request_header_version(version), expect, "{api:?} v{version}");
            }
            let reply =
                if api == Api::ApiVersions || !row.is_flexible(row.version_max) { 0 } else { 1 };
            assert_eq!(key.response_header_version(row.version_max), reply, "{api:?}");
        }
        assert_eq!(Api::of_key(-1), None);
        assert_eq!(Api::of_key(4), None);
    }
}
