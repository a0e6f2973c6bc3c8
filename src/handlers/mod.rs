//! One file per Kafka API: from a decoded request to asks of the cores and a reply.
//!
//! `Handlers::call` is the way in for every frame of every connection of a core. A request takes
//! its effect during that call, or during the first poll of the future it returns, so requests of
//! one connection take effect in their order; replies may come later. Handlers know API versions
//! and Kafka's rules and no sockets, logs or runtimes: those are behind `cores::front`.

mod api_versions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod fetch;
mod find_coordinator;
#[cfg(test)]
mod group_tests;
mod groups;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod lookup;
#[cfg(test)]
mod member_tests;
mod metadata;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_groups;
mod offset_commit;
mod offset_fetch;
mod offset_for_leader_epoch;
#[cfg(test)]
mod offset_tests;
mod produce;
mod sync_group;
#[cfg(test)]
mod tests;

use crate::config::describe::Node;
use crate::config::Config;
use crate::cores::front::Cores;
use crate::protocol::api::{Api, Request};
use crate::protocol::header::ReplyHeader;
pub use crate::protocol::outcome::{Finish, Outcome, Pending};
use crate::protocol::reply::{Reply, ReplyError};
use crate::protocol::request::{self, Decoded, Incoming};
use bytes::Bytes;
use kafka_protocol::protocol::{Encodable, StrBytes};
use shard::ids::{LeaderEpoch, LogId};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The broker view of the listener the connection came in at.
    pub view: u32,
    /// The address it comes from.
    pub host: IpAddr,
}

/// The brokers clients see, and who leads what. The same on every core while the broker runs.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub id: String,
    /// One, or one per core.
    pub nodes: Vec<Node>,
    /// The id of a node in `nodes`: admin clients wait for a controller they can reach.
    pub controller: i32,
    /// The node that leads the partitions of each log.
    pub leaders: Vec<i32>,
    /// The leader epoch of every partition: the broker's start counter.
    pub leader_epoch: LeaderEpoch,
}

impl Cluster {
    pub fn leader_of(&self, log: LogId) -> i32 {
        self.leaders.get(log.0 as usize).copied().unwrap_or(self.controller)
    }

    /// The node that a core is, or is part of.
    pub fn node_of(&self, core: usize) -> i32 {
        self.nodes.get(core).map_or(self.controller, |node| node.id)
    }
}

/// All handlers of a core and what they share.
pub struct Handlers {
    cores: Rc<dyn Cores>,
    config: Arc<Config>,
    cluster: Arc<Cluster>,
    /// The node this core is, or is part of.
    node: i32,
    /// Producer ids this core may hand out.
    producer_ids: RefCell<Range<i64>>,
    requests: Vec<(Api, Cell<u64>)>,
}

impl Handlers {
    /// The handlers of core number `core`.
    pub fn new(
        cores: Rc<dyn Cores>,
        config: Arc<Config>,
        cluster: Arc<Cluster>,
        core: usize,
    ) -> Rc<Handlers> {
        Rc::new(Handlers {
            cores,
            config,
            node: cluster.node_of(core),
            cluster,
            producer_ids: RefCell::new(0..0),
            requests: Api::ALL.iter().map(|api| (*api, Cell::new(0))).collect(),
        })
    }

    /// Requests served so far, by API.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.requests.iter().map(|(api, count)| (api.row().name, count.get()))
    }

    /// Serves one frame, given without its length prefix.
    pub fn call(self: &Rc<Self>, frame: Bytes, client: Client) -> Outcome {
        match request::read(&frame, DECODED_BYTES_MAX) {
            Ok(Incoming::Request(decoded)) => {
                self.count(decoded.header.api);
                self.dispatch(*decoded, client)
            }
            Ok(Incoming::ApiVersionsTooNew(header)) => {
                self.count(header.api);
                ready(header, &api_versions::too_new())
            }
            Err(close) => {
                tracing::info!(%close, "closing a connection");
                Outcome::Close
            }
        }
    }

    fn count(&self, api: Api) {
        if let Some((_, count)) = self.requests.iter().find(|(counted, _)| *counted == api) {
            count.set(count.get() + 1);
        }
    }

    fn dispatch(self: &Rc<Self>, decoded: Decoded, client: Client) -> Outcome {
        let Decoded { header, client_id, request } = decoded;
        let (on, version) = (self.clone(), header.version);
        match request {
            Request::ApiVersions(r) => ready(header, &api_versions::handle(&r, version)),
            Request::Metadata(r) => later(header, metadata::handle(on, r, version, client)),
            Request::Produce(r) => produce::handle(self, r, header, client),
            Request::Fetch(r) => finish(fetch::handle(on, r, header, client)),
            Request::ListOffsets(r) => later(header, list_offsets::handle(on, r, version, client)),
            Request::OffsetForLeaderEpoch(r) => {
                later(header, offset_for_leader_epoch::handle(on, r, client))
            }
            Request::CreateTopics(r) => later(header, create_topics::handle(on, r, client)),
            Request::DeleteTopics(r) => {
                later(header, delete_topics::handle(on, r, version, client))
            }
            Request::InitProducerId(r) => later(header, init_producer_id::handle(on, r)),
            Request::DescribeConfigs(r) => {
                ready(header, &describe_configs::handle(self, &r, version, client))
            }
            Request::DescribeCluster(r) => ready(header, &describe_cluster::handle(self, &r)),
            Request::FindCoordinator(r) => {
                later(header, find_coordinator::handle(on, r, version, client))
            }
            Request::JoinGroup(r) => {
                later(header, join_group::handle(on, r, version, client, client_id))
            }
            Request::SyncGroup(r) => later(header, sync_group::handle(on, r, version, client)),
            Request::Heartbeat(r) => later(header, heartbeat::handle(on, r, client)),
            Request::LeaveGroup(r) => later(header, leave_group::handle(on, r, version, client)),
            Request::OffsetCommit(r) => {
                later(header, offset_commit::handle(on, r, version, client))
            }
            Request::OffsetFetch(r) => later(header, offset_fetch::handle(on, r, version, client)),
            Request::DescribeGroups(r) => {
                later(header, describe_groups::handle(on, r, version, client))
            }
            Request::DeleteRecords(r) => later(header, delete_records::handle(on, r, client)),
            Request::ListGroups(r) => later(header, list_groups::handle(on, r, client)),
            Request::DeleteGroups(r) => later(header, delete_groups::handle(on, r, client)),
        }
    }
}

/// No request may decode to more beside its frame. Enough for a fetch of 300,000 partitions.
const DECODED_BYTES_MAX: usize = 32 << 20;

fn ready<T: Encodable>(header: ReplyHeader, body: &T) -> Outcome {
    match Reply::encode(header, body) {
        Ok(reply) => Outcome::Pending(Pending::Ready(reply)),
        Err(error) => {
            not_sent(error);
            Outcome::Close
        }
    }
}

fn later<T: Encodable>(header: ReplyHeader, body: impl Future<Output = T> + 'static) -> Outcome {
    finish(async move { finished(Reply::encode(header, &body.await)) })
}

fn finish(work: impl Future<Output = Finish> + 'static) -> Outcome {
    Outcome::Pending(Pending::Later(Box::pin(work)))
}

fn finished(reply: Result<Reply, ReplyError>) -> Finish {
    match reply {
        Ok(reply) => Finish::Reply(reply),
        Err(error) => {
            not_sent(error);
            Finish::Close
        }
    }
}

fn not_sent(error: ReplyError) {
    tracing::error!(%error, "a reply was not sent; closing its connection");
}

/// Text for a client.
fn text(text: impl ToString) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

/// What "authorized operations" are when clients do not ask for them.
const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// All operations on a topic: read, write, create, delete, alter, describe, and both on configs.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// All operations on a group: read, delete, describe, and both on configs.
const GROUP_OPERATIONS: i32 = 0b1101_0100_1000;
/// All operations on the cluster: create, alter, describe, cluster action, both on configs, and
/// idempotent write.
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
