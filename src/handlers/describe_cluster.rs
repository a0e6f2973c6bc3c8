//! DescribeCluster (key 60), versions 0 to 2.
//!
//! KIP-700, KIP-919 (endpoint type, version 1), KIP-1073 (fenced brokers, version 2; none is ever
//! fenced). Lists the same brokers as Metadata.
//!
//! Gaps: no controller listens apart from the brokers.

use super::{Handlers, CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED};
use crate::config::describe::Node;
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub fn handle(on: &Handlers, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    let fault = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some(RequestFault::ControllerEndpoint),
        _ => Some(RequestFault::EndpointType),
    };
    if let Some(fault) = fault {
        return DescribeClusterResponse::default()
            .with_error_code(fault.code().code())
            .with_error_message(Some(super::text(fault)))
            .with_cluster_authorized_operations(OPERATIONS_NOT_ASKED);
    }
    let operations = match request.include_cluster_authorized_operations {
        true => CLUSTER_OPERATIONS,
        false => OPERATIONS_NOT_ASKED,
    };
    DescribeClusterResponse::default()
        .with_cluster_id(super::text(&on.cluster.id))
        .with_controller_id(BrokerId(on.cluster.controller))
        .with_brokers(on.cluster.nodes.iter().map(broker).collect())
        .with_cluster_authorized_operations(operations)
}

fn broker(node: &Node) -> DescribeClusterBroker {
    DescribeClusterBroker::default()
        .with_broker_id(BrokerId(node.id))
        .with_host(super::text(&node.advertised.host))
        .with_port(i32::from(node.advertised.port))
}
