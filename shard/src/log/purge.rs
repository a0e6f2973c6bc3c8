//! When nothing of a deleted topic is left in a log.
//!
//! The catalogue keeps a tombstone of a deleted topic as long as some log may hold frames of it, so
//! that they are never taken for those of a topic that is there. A log that is asked reports the
//! topic once a checkpoint without its partitions is written and no segment names it: a worker
//! looks into the indexes, at each round of retention. What is asked is forgotten with the process
//! and asked again at the next start.

use super::carry::{list, Place};
use super::engine::Log;
use super::jobs::Work;
use crate::disk::Disk;
use crate::ids::SegmentNumber;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uuid::Uuid;

/// How far the checkpoint is with a topic's detached partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    BeingWritten,
    Written,
}

#[derive(Debug)]
struct Leaving {
    stage: Stage,
    /// No later segment names it.
    last: SegmentNumber,
}

/// Deleted topics whose end is to be reported.
#[derive(Debug, Default)]
pub(super) struct Purge {
    topics: BTreeMap<Uuid, Leaving>,
    is_looking: bool,
}

impl Purge {
    /// A checkpoint begins, and knows of all that was detached before.
    pub fn checkpoint_begins(&mut self) {
        self.turn(Stage::Asked, Stage::BeingWritten);
    }

    pub fn checkpoint_ended(&mut self, written: bool) {
        let next = if written { Stage::Written } else { Stage::Asked };
        self.turn(Stage::BeingWritten, next);
    }

    fn turn(&mut self, from: Stage, to: Stage) {
        let leaving = self.topics.values_mut().filter(|leaving| leaving.stage == from);
        leaving.for_each(|leaving| leaving.stage = to);
    }

    /// A worker found these in no segment.
    pub fn looked(&mut self, gone: Vec<Uuid>) -> Vec<Uuid> {
        self.is_looking = false;
        gone.into_iter().filter(|topic| self.topics.remove(topic).is_some()).collect()
    }
}

impl Log {
    /// Asks for a report when the log holds nothing of a deleted topic any more. Its partitions
    /// have been detached.
    pub fn report_purged(&mut self, topic: Uuid) {
        let open = self.open.number;
        let last = match self.open.index.is_empty() {
            true => SegmentNumber(open.0.saturating_sub(1)),
            false => open,
        };
        self.purge.topics.insert(topic, Leaving { stage: Stage::Asked, last });
        self.checkpoints.want();
    }

    /// Has a worker look for topics that may be gone.
    pub(super) fn look_for_purged(&mut self) {
        let open = self.open.number;
        let is_due = |leaving: &Leaving| leaving.stage == Stage::Written && leaving.last < open;
        let due = self.purge.topics.iter().filter(|(_, leaving)| is_due(leaving));
        let topics: BTreeSet<Uuid> = due.map(|(topic, _)| *topic).collect();
        if topics.is_empty() || self.purge.is_looking {
            return;
        }
        self.purge.is_looking = true;
        let data = self.segments.iter().filter(|sealed| !sealed.is_hollow());
        let places = data.map(|sealed| Place {
            number: sealed.stamp.number,
            epoch: sealed.stamp.epoch,
            index: sealed.index.clone(),
        });
        let places = places.collect();
        self.push_job(Work::LookForTopics { places, topics });
    }
}

/// Of the topics those that no segment names. Blocks. An index that cannot be read may name all.
pub(super) fn unnamed(
    disk: &dyn Disk,
    dir: &Path,
    places: &[Place],
    mut topics: BTreeSet<Uuid>,
) -> Vec<Uuid> {
    for place in places {
        let Ok(summaries) = list(disk, dir, place) else { return Vec::new() };
        for summary in summaries {
            topics.remove(&summary.key.topic);
        }
    }
    topics.into_iter().collect()
}
