//! FindCoordinator (key 10), versions 0 to 6.
//!
//! KIP-699 (many keys, version 4), KIP-932 (share type, version 6). There are no coordinators yet,
//! and clients are told so in a way they can live with: for groups COORDINATOR_NOT_AVAILABLE, which
//! a consumer that was assigned its partitions retries quietly in the background; for transactions
//! and share groups UNSUPPORTED_VERSION, which ends the attempt at once.
//!
//! Gaps: consumer groups, transactions and share groups.

use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

pub fn handle(request: &FindCoordinatorRequest, version: i16) -> FindCoordinatorResponse {
    let fault = match request.key_type {
        0 => RequestFault::NoGroups,
        1 => RequestFault::NoTransactions,
        2 if version >= 6 => RequestFault::NoShareGroups,
        _ => RequestFault::CoordinatorType,
    };
    let (code, message) = (fault.code().code(), Some(super::text(fault)));
    if version < 4 {
        return FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_node_id(BrokerId(-1))
            .with_port(-1);
    }
    let none = |key: &StrBytes| {
        Coordinator::default()
            .with_key(key.clone())
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(code)
            .with_error_message(message.clone())
    };
    let coordinators = request.coordinator_keys.iter().map(none).collect();
    FindCoordinatorResponse::default().with_coordinators(coordinators)
}
