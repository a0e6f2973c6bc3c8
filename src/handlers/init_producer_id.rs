//! InitProducerId (key 22), versions 0 to 5.
//!
//! KIP-98, KIP-360 (producer id and epoch, version 3). For idempotent producers alone: without a
//! transactional id every call gets an id nobody has had, with epoch 0. Cores take ids from the
//! catalogue in blocks, so a core answers most calls by itself.
//!
//! Gaps: transactional ids (KIP-98, KIP-447, KIP-890) are refused with UNSUPPORTED_VERSION.

use super::Handlers;
use crate::catalog::{Answer, Command};
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use std::rc::Rc;

/// Ids a core takes at once. Those not handed out are lost when the broker stops.
const BLOCK: u32 = 1000;

pub async fn handle(on: Rc<Handlers>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let response = InitProducerIdResponse::default();
    match serve(&on, &request).await {
        Ok(id) => response.with_producer_id(ProducerId(id)).with_producer_epoch(0),
        Err(fault) => response
            .with_error_code(fault.code().code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

async fn serve(on: &Handlers, request: &InitProducerIdRequest) -> Result<i64, RequestFault> {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return Err(RequestFault::EmptyTransactionalId),
        Some(_) => return Err(RequestFault::NoTransactions),
        None => {}
    }
    if (request.producer_id.0 == -1) != (request.producer_epoch == -1) {
        return Err(RequestFault::HalfProducer);
    }
    if let Some(id) = on.producer_ids.borrow_mut().next() {
        return Ok(id);
    }
    match on.cores.catalog(Command::TakeProducerIds { count: BLOCK }).await {
        Ok(Answer::ProducerIds(mut block)) => {
            let id = block.next().ok_or(RequestFault::NoProducerIds)?;
            // Another call may have refilled meanwhile; the shorter block is given up.
            let mut held = on.producer_ids.borrow_mut();
            if held.end - held.start < block.end - block.start {
                *held = block;
            }
            Ok(id)
        }
        Ok(_) | Err(_) => Err(RequestFault::NoProducerIds),
    }
}
