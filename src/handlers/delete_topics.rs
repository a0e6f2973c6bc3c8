//! DeleteTopics (key 20), versions 1 to 6.
//!
//! KIP-4, KIP-516 (topic ids, version 6). A topic is gone for every core when the answer is sent,
//! so its name may be used again at once.
//!
//! Gaps: the timeout does not matter, deletion never waits for other brokers.

use super::{Client, Handlers};
use crate::catalog::{Answer, Command, DeleteOutcome, TopicRef};
use crate::cores::front::CatalogDown;
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use std::rc::Rc;
use uuid::Uuid;

/// How a request names one topic.
#[derive(Clone)]
struct Named {
    name: Option<TopicName>,
    id: Uuid,
}

pub async fn handle(
    on: Rc<Handlers>,
    request: DeleteTopicsRequest,
    version: i16,
    client: Client,
) -> DeleteTopicsResponse {
    let named = named(request);
    if !on.config.delete_topic_enable {
        let fault = match version {
            3.. => RequestFault::DeletionDisabled,
            _ => RequestFault::DeletionDisabledOld,
        };
        return response(named.iter().map(|topic| refused(topic, &fault)).collect());
    }
    let topics: Vec<TopicRef> = named.iter().filter_map(|named| reference(named).ok()).collect();
    let command = Command::DeleteTopics { view: client.view, topics };
    let mut outcomes = match on.cores.catalog(command).await {
        Ok(Answer::Deleted(outcomes)) => outcomes.into_iter(),
        Ok(_) | Err(CatalogDown) => Vec::new().into_iter(),
    };
    let answer = |named: &Named| match reference(named) {
        Err(fault) => refused(named, &fault),
        Ok(_) => match outcomes.next() {
            Some(outcome) => result(named, outcome),
            None => result_of(named).with_error_code(CatalogDown.code().code()),
        },
    };
    response(named.iter().map(answer).collect())
}

fn named(request: DeleteTopicsRequest) -> Vec<Named> {
    let by_name = request.topic_names.into_iter();
    let by_name = by_name.map(|name| Named { name: Some(name), id: Uuid::nil() });
    let either = request.topics.into_iter();
    by_name.chain(either.map(|topic| Named { name: topic.name, id: topic.topic_id })).collect()
}

fn reference(named: &Named) -> Result<TopicRef, RequestFault> {
    match (&named.name, named.id.is_nil()) {
        (Some(name), true) => Ok(TopicRef::Name(name.to_string())),
        (None, false) => Ok(TopicRef::Id(named.id)),
        (Some(_), false) | (None, true) => Err(RequestFault::NameAndId),
    }
}

fn result(named: &Named, outcome: DeleteOutcome) -> DeletableTopicResult {
    match outcome.result {
        Ok(gone) => DeletableTopicResult::default()
            .with_name(Some(TopicName(super::text(gone.name))))
            .with_topic_id(gone.id),
        Err(refusal) => refused(named, &refusal),
    }
}

fn result_of(named: &Named) -> DeletableTopicResult {
    DeletableTopicResult::default().with_name(named.name.clone()).with_topic_id(named.id)
}

fn refused(named: &Named, error: &(impl KafkaError + ToString)) -> DeletableTopicResult {
    result_of(named)
        .with_error_code(error.code().code())
        .with_error_message(Some(super::text(error.to_string())))
}

fn response(results: Vec<DeletableTopicResult>) -> DeleteTopicsResponse {
    DeleteTopicsResponse::default().with_responses(results)
}
