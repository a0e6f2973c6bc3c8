//! CreateTopics (key 19), versions 2 to 7.
//!
//! KIP-4, KIP-464 (−1 for the broker's defaults), KIP-525 (configurations in the answer, version
//! 5), KIP-516 (topic id, version 7). What is refused is decided by the catalogue. Any usual
//! replication factor is accepted and answered as 1: there is one copy.
//!
//! Gaps: the timeout does not matter, creation never waits for other brokers.

use super::{Client, Handlers};
use crate::catalog::{Answer, Command, CreateOutcome, Created, NewTopic};
use crate::config::describe::{describe_topic, Description};
use crate::cores::front::CatalogDown;
use crate::errors::KafkaError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use std::rc::Rc;
use uuid::Uuid;

pub async fn handle(
    on: Rc<Handlers>,
    request: CreateTopicsRequest,
    client: Client,
) -> CreateTopicsResponse {
    let validate_only = request.validate_only;
    let topics = request.topics.iter().map(new_topic).collect();
    let command = Command::CreateTopics { view: client.view, topics, validate_only };
    let results = match on.cores.catalog(command).await {
        Ok(Answer::Created(outcomes)) => {
            outcomes.into_iter().map(|outcome| result(&on, outcome, validate_only)).collect()
        }
        Ok(_) | Err(CatalogDown) => {
            let refused = |topic: CreatableTopic| refused(topic.name, CatalogDown.code().code());
            request.topics.into_iter().map(refused).collect()
        }
    };
    CreateTopicsResponse::default().with_topics(results)
}

fn new_topic(topic: &CreatableTopic) -> NewTopic {
    let assignments = topic.assignments.iter().map(|assignment| {
        let brokers = assignment.broker_ids.iter().map(|broker| broker.0);
        (assignment.partition_index, brokers.collect())
    });
    let config = |text: &StrBytes| text.to_string();
    let configs = topic.configs.iter().map(|c| (config(&c.name), c.value.as_ref().map(config)));
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn result(on: &Handlers, outcome: CreateOutcome, validate_only: bool) -> CreatableTopicResult {
    let name = TopicName(super::text(outcome.name));
    match outcome.result {
        Ok(created) => created_result(on, name, created, validate_only),
        Err(refusal) => {
            refused(name, refusal.code().code()).with_error_message(Some(super::text(refusal)))
        }
    }
}

fn created_result(
    on: &Handlers,
    name: TopicName,
    created: Created,
    validate_only: bool,
) -> CreatableTopicResult {
    let configs = describe_topic(&created.configs, &on.config);
    CreatableTopicResult::default()
        .with_name(name)
        .with_topic_id(if validate_only { Uuid::nil() } else { created.id })
        .with_num_partitions(created.partitions)
        .with_replication_factor(1)
        .with_configs(Some(configs.into_iter().map(config).collect()))
}

fn config(description: Description) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(StrBytes::from_static_str(description.name))
        .with_value(Some(super::text(description.value)))
        .with_read_only(description.read_only)
        .with_config_source(description.source.code())
        .with_is_sensitive(description.sensitive)
}

fn refused(name: TopicName, code: i16) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(name)
        .with_error_code(code)
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(None)
}
