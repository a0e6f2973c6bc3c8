//! The topics of a running broker as tables: one view of its catalogue, asked through the gate.
//!
//! A load within a second of another may share its work, so what it shows may be that old. Internal
//! topics stay in the log and are no tables here.

use super::{FreshenError, Tables, Topic};
use crate::catalog::{self, TopicLookup};
use crate::cores::gate::{Gate, GateError};
use futures::future::{ready, BoxFuture, FutureExt};
use shard::table::Version;
use std::sync::Arc;
use uuid::Uuid;

pub struct Live {
    pub gate: Gate,
    pub view: u32,
}

impl Tables for Live {
    fn names(&self) -> Vec<Arc<str>> {
        let image = self.gate.image();
        let topics = image.topics(self.view).filter(|topic| !topic.is_internal());
        topics.map(|topic| topic.name.clone()).collect()
    }

    fn find(&self, name: &str) -> Option<Topic> {
        let image = self.gate.image();
        let found: &Arc<catalog::Topic> = image.find(self.view, TopicLookup::Name(name))?;
        (!found.is_internal()).then(|| Topic {
            id: found.id,
            name: found.name.clone(),
            table: self.gate.table_dir(found.id),
        })
    }

    fn freshen(&self, topic: Uuid) -> BoxFuture<'static, Result<Arc<Version>, FreshenError>> {
        let image = self.gate.image();
        let Some(found) = image.find(self.view, TopicLookup::Id(topic)) else {
            return ready(Err(FreshenError::Gone)).boxed();
        };
        let fresh = self.gate.freshen(found);
        let refused = |error| match error {
            GateError::Unknown => FreshenError::Gone,
            other => FreshenError::Failed(Box::new(other)),
        };
        async move { fresh.await.map_err(refused) }.boxed()
    }
}
