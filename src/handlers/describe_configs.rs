//! DescribeConfigs (key 32), versions 1 to 4.
//!
//! KIP-133, KIP-226 (sources and synonyms), KIP-569 (types and documentation, version 3). Topics
//! and brokers; of the keys asked for those that exist are answered, null asks for all. The name ""
//! of a broker stands for defaults of the whole cluster that were set at run time: there are none.
//!
//! Gaps: loggers, client metrics and groups have no configurations here.

use super::{Client, Handlers};
use crate::config::describe::{describe_broker, describe_topic, Description, Synonym};
use crate::errors::{KafkaError, RequestFault};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub fn handle(
    on: &Handlers,
    request: &DescribeConfigsRequest,
    version: i16,
    client: Client,
) -> DescribeConfigsResponse {
    let result = |resource: &DescribeConfigsResource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match describe(on, resource, client) {
            Ok(descriptions) => {
                let asked = descriptions.into_iter().filter(|d| is_asked(resource, d.name));
                let shown = asked.map(|d| shown(d, request, version));
                result.with_configs(shown.collect())
            }
            Err(fault) => result
                .with_error_code(fault.code().code())
                .with_error_message(Some(super::text(fault))),
        }
    };
    DescribeConfigsResponse::default().with_results(request.resources.iter().map(result).collect())
}

fn describe(
    on: &Handlers,
    resource: &DescribeConfigsResource,
    client: Client,
) -> Result<Vec<Description>, RequestFault> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => {
            let image = on.cores.image();
            let topic = image.by_name(client.view, name).ok_or(RequestFault::UnknownTopic)?;
            Ok(describe_topic(&topic.configs, &on.config))
        }
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER => {
            let mut nodes = on.cluster.nodes.iter();
            let node = nodes.find(|node| node.id.to_string() == name);
            Ok(describe_broker(&on.config, node.ok_or(RequestFault::UnknownBroker)?))
        }
        _ => Err(RequestFault::ResourceType),
    }
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    }
}

fn shown(
    description: Description,
    request: &DescribeConfigsRequest,
    version: i16,
) -> DescribeConfigsResourceResult {
    let mut result = DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(description.name))
        .with_read_only(description.read_only)
        .with_config_source(description.source.code())
        .with_is_sensitive(description.sensitive);
    if !description.sensitive {
        result = result.with_value(Some(super::text(description.value)));
    }
    if request.include_synonyms && !description.sensitive {
        result = result.with_synonyms(description.synonyms.into_iter().map(synonym).collect());
    }
    if version >= 3 {
        result = result.with_config_type(description.data_type.code());
        if request.include_documentation {
            result = result.with_documentation(Some(super::text(description.documentation)));
        }
    }
    result
}

fn synonym(synonym: Synonym) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_static_str(synonym.name))
        .with_value(Some(super::text(synonym.value)))
        .with_source(synonym.source.code())
}
