//! What DeleteTopics may and may not do, decided without changing anything.
//!
//! Called by `Machine::step`. A deleted topic leaves a tombstone until every log has purged it:
//! frames of a topic id that has neither record nor tombstone would be kept for ever.

use super::image::{CatalogImage, Topic, TopicLookup};
use std::collections::BTreeSet;
use std::sync::Arc;
use thiserror::Error;
use uuid::Uuid;

/// A topic as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef {
    Name(String),
    Id(Uuid),
}

impl TopicRef {
    pub fn lookup(&self) -> TopicLookup<'_> {
        match self {
            TopicRef::Name(name) => TopicLookup::Name(name),
            TopicRef::Id(id) => TopicLookup::Id(*id),
        }
    }
}

/// What became of one topic of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOutcome {
    pub topic: TopicRef,
    pub result: Result<Deleted, DeleteRefusal>,
}

/// A topic that is gone, with both of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub id: Uuid,
    pub name: Arc<str>,
}

/// Why a topic was not deleted. The text goes to the client.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DeleteRefusal {
    #[error("there is no topic of this name")]
    UnknownName,
    #[error("there is no topic with this id")]
    UnknownId,
    #[error("the request names this topic more than once")]
    Duplicate,
}

/// Decides on a whole request: the topics to delete and the outcomes in the order of the request.
pub(super) fn delete(
    view: u32,
    image: &CatalogImage,
    topics: &[TopicRef],
) -> (Vec<Arc<Topic>>, Vec<DeleteOutcome>) {
    let (twice, mut gone) = (named_twice(view, image, topics), Vec::new());
    let decide = |topic: &TopicRef| {
        let found = image.find(view, topic.lookup());
        let result = match (found, topic) {
            (Some(found), _) if twice.contains(&found.id) => Err(DeleteRefusal::Duplicate),
            (Some(found), _) => {
                gone.push(found.clone());
                Ok(Deleted { id: found.id, name: found.name.clone() })
            }
            (None, TopicRef::Name(_)) => Err(DeleteRefusal::UnknownName),
            (None, TopicRef::Id(_)) => Err(DeleteRefusal::UnknownId),
        };
        DeleteOutcome { topic: topic.clone(), result }
    };
    let outcomes = topics.iter().map(decide).collect();
    (gone, outcomes)
}

/// Topics a request names more than once, be it by name and by id.
fn named_twice(view: u32, image: &CatalogImage, topics: &[TopicRef]) -> BTreeSet<Uuid> {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for topic in topics {
        match image.find(view, topic.lookup()) {
            Some(found) if !seen.insert(found.id) => {
                twice.insert(found.id);
            }
            Some(_) | None => {}
        }
    }
    twice
}
