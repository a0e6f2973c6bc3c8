//! Metadata (key 3), versions 0 to 13.
//!
//! KIP-4, KIP-204 (auto-creation flag, version 4), KIP-430 (authorized operations, 8), KIP-516
//! (topic ids, 10), KIP-1102 (rebootstrap, 13). Null topics ask for all of the view, an empty list
//! for none; version 0 has no null and asks for all with an empty list. A topic that is created on
//! the way is answered as created, not as unknown. The controller is always a listed broker.
//!
//! Gaps: no racks; REBOOTSTRAP_REQUIRED is never needed.

use super::{lookup, Client, Cluster, Handlers, CLUSTER_OPERATIONS, TOPIC_OPERATIONS};
use crate::catalog::{is_internal, name_problem, Answer, Command, NewTopic, Topic};
use crate::config::describe::Node;
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use std::collections::HashMap;
use std::rc::Rc;
use uuid::Uuid;

pub async fn handle(
    on: Rc<Handlers>,
    request: MetadataRequest,
    version: i16,
    client: Client,
) -> MetadataResponse {
    let ask = Ask { version, client, operations: request.include_topic_authorized_operations };
    let topics = match &request.topics {
        Some(topics) if version > 0 || !topics.is_empty() => {
            let create = on.config.auto_create_topics_enable && request.allow_auto_topic_creation;
            let refused = match create {
                true => create_missing(&on, &ask, topics).await,
                false => HashMap::new(),
            };
            ask.named(&on, topics, &refused)
        }
        Some(_) | None => ask.all(&on),
    };
    let mut response = MetadataResponse::default()
        .with_brokers(on.cluster.nodes.iter().map(broker).collect())
        .with_cluster_id(Some(super::text(&on.cluster.id)))
        .with_controller_id(BrokerId(on.cluster.controller))
        .with_topics(topics);
    if request.include_cluster_authorized_operations {
        response = response.with_cluster_authorized_operations(CLUSTER_OPERATIONS);
    }
    response
}

struct Ask {
    version: i16,
    client: Client,
    operations: bool,
}

impl Ask {
    fn all(&self, on: &Handlers) -> Vec<MetadataResponseTopic> {
        let image = on.cores.image();
        image.topics(self.client.view).map(|topic| self.found(&on.cluster, topic)).collect()
    }

    fn named(
        &self,
        on: &Handlers,
        topics: &[MetadataRequestTopic],
        refused: &HashMap<String, i16>,
    ) -> Vec<MetadataResponseTopic> {
        let image = on.cores.image();
        let answer = |topic: &MetadataRequestTopic| {
            let (name, id) = self.name_and_id(topic)?;
            let found = lookup::topic(&image, self.client.view, name, id)?;
            Ok(self.found(&on.cluster, found))
        };
        let or_fault = |topic: &MetadataRequestTopic| {
            answer(topic).unwrap_or_else(|fault: RequestFault| {
                let name = topic.name.as_ref().map_or("", |name| name.as_str());
                let code = refused.get(name).copied().unwrap_or(fault.code().code());
                MetadataResponseTopic::default()
                    .with_name(topic.name.clone().or_else(|| self.name_of_unknown()))
                    .with_topic_id(topic.topic_id)
                    .with_error_code(code)
            })
        };
        topics.iter().map(or_fault).collect()
    }

    /// A topic asked by id that is not there has a null name where the version has one.
    fn name_of_unknown(&self) -> Option<TopicName> {
        (self.version < 12).then(TopicName::default)
    }

    fn name_and_id<'a>(
        &self,
        topic: &'a MetadataRequestTopic,
    ) -> Result<(&'a str, Option<Uuid>), RequestFault> {
        match (&topic.name, topic.topic_id.is_nil()) {
            (Some(name), true) if name_problem(name).is_some() => Err(RequestFault::TopicName),
            (Some(name), true) => Ok((name.as_str(), None)),
            _ if self.version < 12 => Err(RequestFault::TopicIdTooEarly),
            (None, true) => Err(RequestFault::NameAndId),
            (_, false) => Ok(("", Some(topic.topic_id))),
        }
    }

    fn found(&self, cluster: &Cluster, topic: &Topic) -> MetadataResponseTopic {
        let partition = |index: i32| {
            let leader =
                topic.log_of(index).map_or(cluster.controller, |log| cluster.leader_of(log));
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(cluster.leader_epoch.0)
                .with_replica_nodes(vec![BrokerId(leader)])
                .with_isr_nodes(vec![BrokerId(leader)])
        };
        let mut response = MetadataResponseTopic::default()
            .with_name(Some(TopicName(super::text(&topic.name))))
            .with_topic_id(topic.id)
            .with_is_internal(topic.is_internal())
            .with_partitions((0..topic.partitions()).map(partition).collect());
        if self.operations {
            response = response.with_topic_authorized_operations(TOPIC_OPERATIONS);
        }
        response
    }
}

/// Creates the topics that are named and not there. Returns the codes of those that could not be.
/// Topics the broker itself will keep are not for clients to create by asking.
async fn create_missing(
    on: &Handlers,
    ask: &Ask,
    topics: &[MetadataRequestTopic],
) -> HashMap<String, i16> {
    let view = ask.client.view;
    let image = on.cores.image();
    let mut missing: Vec<String> = topics
        .iter()
        .filter_map(|topic| topic.name.as_ref())
        .filter(|name| name_problem(name).is_none() && !is_internal(name))
        .filter(|name| image.by_name(view, name).is_none())
        .map(|name| name.to_string())
        .collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return HashMap::new();
    }
    let new = |name: &String| NewTopic {
        name: name.clone(),
        partitions: -1,
        replication_factor: -1,
        ..NewTopic::default()
    };
    let topics = missing.iter().map(new).collect();
    let command = Command::CreateTopics { view, topics, validate_only: false };
    match on.cores.catalog(command).await {
        Ok(Answer::Created(outcomes)) => outcomes
            .into_iter()
            .filter_map(|outcome| Some((outcome.name, outcome.result.err()?.code().code())))
            .collect(),
        Ok(_) | Err(_) => HashMap::new(),
    }
}

fn broker(node: &Node) -> MetadataResponseBroker {
    MetadataResponseBroker::default()
        .with_node_id(BrokerId(node.id))
        .with_host(super::text(&node.advertised.host))
        .with_port(i32::from(node.advertised.port))
}
