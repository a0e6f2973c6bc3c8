//! Where partitions are on a core, and what a new picture of the catalogue changes about that.
//!
//! A partition is attached to its log when it is first asked for, so a topic without traffic costs
//! nothing here. Nothing awaits.

use super::core::{Core, CATALOG_SETTINGS};
use super::front::PartitionAt;
use crate::catalog::{ImageChange, CATALOG_PARTITION};
use shard::ids::{DenseId, LogId, PartitionKey};
use std::rc::Rc;

/// Where a partition is on this core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub host: usize,
    pub id: DenseId,
}

impl Core {
    /// Gives the partitions the logs know from before their settings, so that retention works on
    /// those nobody asks for.
    pub(super) fn attach_kept(&self) {
        for at in 0..self.hosts.len() {
            let kept: Vec<PartitionKey> =
                self.hosts[at].borrow().log.partitions().map(|(_, key)| key).collect();
            let log = self.hosts[at].borrow().id;
            let known = |key: &PartitionKey| self.route(PartitionAt { log, key: *key }).is_some();
            let strays: Vec<PartitionKey> = kept.into_iter().filter(|key| !known(key)).collect();
            if let Some(first) = strays.first() {
                let partitions = strays.len();
                tracing::warn!(%log, partitions, %first, "kept without a topic in the catalogue");
            }
        }
    }

    /// Where a partition is; attaches it to its log at the first time.
    pub(super) fn route(&self, at: PartitionAt) -> Option<Route> {
        if let Some(route) = self.routes.borrow().get(&at.key) {
            return Some(*route);
        }
        let (log, settings) = if at.key == CATALOG_PARTITION {
            (LogId(0), CATALOG_SETTINGS)
        } else {
            let image = self.image.borrow();
            let topic = image.by_id(at.key.view, at.key.topic)?;
            (topic.log_of(at.key.partition)?, (self.settings_of)(topic))
        };
        let host = self.hosts.iter().position(|host| host.borrow().id == log)?;
        let id = self.hosts[host].borrow_mut().log.attach(at.key, settings);
        if let Some(version) = self.tables.version(at.key.topic) {
            self.hosts[host].borrow_mut().set_table(id, version);
        }
        let route = Route { host, id };
        self.routes.borrow_mut().insert(at.key, route);
        Some(route)
    }

    /// Looks at topics through a new picture from now on.
    pub(super) fn adopt(self: &Rc<Self>, change: ImageChange) {
        if change.image.version >= self.image.borrow().version {
            *self.image.borrow_mut() = change.image;
        }
        for topic in change.removed {
            self.close_coordinators(&topic);
            for partition in 0..topic.partitions() {
                let route = self.routes.borrow_mut().remove(&topic.key(partition));
                if let Some(at) = route {
                    self.hosts[at.host].borrow_mut().detach(at.id);
                    self.tables.backlog.borrow_mut().forget(at);
                }
            }
            self.drop_table(&topic);
            for host in &self.hosts {
                let mut host = host.borrow_mut();
                if topic.logs.contains(&host.id) {
                    host.report_purged(topic.id);
                }
            }
        }
        self.open_coordinators();
        self.upkeep.notify();
    }
}
