//! The coordinators of consumer groups: one machine for each partition of `__consumer_offsets`, on
//! the core that owns the partition.
//!
//! A coordinator opens when its core sees the partition and answers "loading" until it has read it.
//! An offset is committed for the topic that is there when the coordinator takes it: it may have
//! been deleted, or made again, since the handler looked.

use super::core::Core;
use super::door::Door;
use super::front::{CoordinatorRefusal, Cores, GroupAnswer, GroupItem, PartitionAt};
use super::machines::Home;
use crate::catalog::Topic;
use crate::coordinator::{
    CommitRefusal, Counts, GroupMachine, GroupOutput, GroupRequest, OFFSETS_TOPIC,
};
use crate::state_machine::{Shell, Submitted, Unavailable};
use futures_channel::oneshot;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

pub(super) type Coordinator = Shell<GroupMachine>;

impl Core {
    /// Opens the coordinators of all partitions this core owns and has not opened.
    pub(super) fn open_coordinators(self: &Rc<Self>) {
        let image = self.image();
        for topic in image.topics_named(OFFSETS_TOPIC) {
            for partition in 0..topic.partitions() {
                let Some(log) = topic.log_of(partition) else { continue };
                let at = PartitionAt { log, key: topic.key(partition) };
                let is_open = self.groups.borrow().contains_key(&at.key);
                if self.owner(log) == self.id() && !is_open {
                    self.open_coordinator(at);
                }
            }
        }
    }

    fn open_coordinator(self: &Rc<Self>, at: PartitionAt) {
        let limits = self.group_limits.clone();
        let home = Home {
            core: self.clone(),
            at,
            name: format!("{OFFSETS_TOPIC}-{}", at.key.partition),
            empty: Box::new(move || GroupMachine::new(limits.clone())),
            loaded: forget_the_dead,
            perform: |_, never| match never {},
        };
        let offsets = self.offsets(&[at]).pop();
        let is_new = matches!(offsets, Some(Ok(offsets)) if offsets.log_start == offsets.log_end);
        let shell = match is_new {
            true => Shell::active(Rc::new(home), GroupMachine::new(self.group_limits.clone())),
            false => Shell::loading(Rc::new(home)),
        };
        self.groups.borrow_mut().insert(at.key, shell);
    }

    /// Closes the coordinators on a topic that is gone.
    pub(super) fn close_coordinators(&self, topic: &Topic) {
        for partition in 0..topic.partitions() {
            if let Some(shell) = self.groups.borrow_mut().remove(&topic.key(partition)) {
                shell.close();
            }
        }
    }

    /// Has the coordinators of this core take requests, now; the answers may take their time.
    pub(super) fn coordinate(
        self: &Rc<Self>,
        items: Vec<GroupItem>,
    ) -> impl Future<Output = Vec<GroupAnswer>> {
        let asked: Vec<Asked> = items.into_iter().map(|item| self.ask_coordinator(item)).collect();
        async move {
            let mut answers = Vec::with_capacity(asked.len());
            for asked in asked {
                answers.push(asked.answer().await);
            }
            answers
        }
    }

    fn ask_coordinator(&self, item: GroupItem) -> Asked {
        let shell = self.groups.borrow().get(&item.at.key).cloned();
        let Some(shell) = shell else { return Asked { submitted: None, dead: Vec::new() } };
        let mut request = item.request;
        let dead = match &mut request {
            GroupRequest::Commit(commit) => {
                let image = self.image();
                let is_there = |id: Uuid| image.by_id(item.at.key.view, id).is_some();
                let places = commit.offsets.iter().enumerate();
                let dead = places.filter(|(_, offset)| !is_there(offset.topic_id));
                let dead: Vec<usize> = dead.map(|(place, _)| place).collect();
                commit.offsets.retain(|offset| is_there(offset.topic_id));
                dead
            }
            _ => Vec::new(),
        };
        Asked { submitted: Some(shell.submit(request)), dead }
    }

    /// Serves the requests of another core.
    pub(super) fn serve_groups(
        self: &Rc<Self>,
        items: Vec<GroupItem>,
        reply: oneshot::Sender<Vec<GroupAnswer>>,
    ) {
        let answers = self.coordinate(items);
        glommio::spawn_local(async move {
            // An asker that is gone needs no answer.
            let _ = reply.send(answers.await);
        })
        .detach();
    }

    /// Has all coordinators forget the offsets of topics that are gone.
    pub(super) async fn forget_topics(self: Rc<Self>, topics: Vec<Uuid>) {
        let image = self.image();
        let request = || GroupRequest::Forget { topics: topics.clone() };
        let on = |topic: &Arc<Topic>| {
            let at = |partition| {
                let log = topic.log_of(partition)?;
                let at = PartitionAt { log, key: topic.key(partition) };
                Some(GroupItem { at, request: request() })
            };
            (0..topic.partitions()).filter_map(at).collect::<Vec<_>>()
        };
        let items: Vec<GroupItem> = image.topics_named(OFFSETS_TOPIC).flat_map(on).collect();
        for answer in Door(self).groups(items).await {
            match answer {
                // One that loads looks for topics that are gone itself when it has.
                Ok(_) | Err(CoordinatorRefusal::Loading) => {}
                Err(refusal) => {
                    // No group is told them all the same: they are offsets of another topic id.
                    tracing::warn!(%refusal, "offsets of a deleted topic stay until a restart");
                }
            }
        }
    }

    /// What the coordinators of this core hold.
    pub fn group_counts(&self) -> Counts {
        let groups = self.groups.borrow();
        let counts = groups.values().filter_map(|shell| shell.look(GroupMachine::counts));
        counts.fold(Counts::default(), |all, counts| Counts {
            groups: all.groups + counts.groups,
            members: all.members + counts.members,
            offsets: all.offsets + counts.offsets,
        })
    }

    /// Answers all who wait for a rebalance: the broker stops.
    pub fn release_groups(&self) {
        self.groups.borrow().values().for_each(|shell| shell.release());
    }
}

/// A request a coordinator has taken.
struct Asked {
    submitted: Option<Submitted<GroupMachine>>,
    /// The places of committed offsets whose topic is not there.
    dead: Vec<usize>,
}

impl Asked {
    async fn answer(self) -> GroupAnswer {
        let Some(submitted) = self.submitted else { return Err(CoordinatorRefusal::NotHere) };
        let answer = match submitted.await {
            Ok(answer) => answer.map_err(refusal),
            Err(oneshot::Canceled) => Err(CoordinatorRefusal::NotHere),
        };
        match answer {
            Ok(GroupOutput::Commit(Ok(mut outcomes))) => {
                for place in self.dead {
                    outcomes.insert(place.min(outcomes.len()), Err(CommitRefusal::UnknownTopic));
                }
                Ok(GroupOutput::Commit(Ok(outcomes)))
            }
            answer => answer,
        }
    }
}

fn refusal(unavailable: Unavailable) -> CoordinatorRefusal {
    match unavailable {
        Unavailable::Loading => CoordinatorRefusal::Loading,
        Unavailable::Down => CoordinatorRefusal::NotHere,
        Unavailable::NotKept => CoordinatorRefusal::NotKept,
    }
}

/// A broker that ended between the deletion of a topic and that of its offsets left them behind,
/// and a coordinator that was loading was not told of it.
fn forget_the_dead(core: &Rc<Core>, at: PartitionAt, shell: &Rc<Coordinator>) {
    let image = core.image();
    let is_there = |id: &Uuid| image.by_id(at.key.view, *id).is_some();
    let Some(committed) = shell.look(GroupMachine::topics) else { return };
    let topics: Vec<Uuid> = committed.into_iter().filter(|id| !is_there(id)).collect();
    if !topics.is_empty() {
        // Refused, they stay until the next start: no group is told them.
        drop(shell.submit(GroupRequest::Forget { topics }));
    }
}
