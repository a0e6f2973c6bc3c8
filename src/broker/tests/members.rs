//! Requests about groups, and the look at everything there is.

use super::client::{within, Client};
use super::{broken, ensure, Check, Violation};
use crate::coordinator::{
    partition_of, Commit, CommitRefusal, Committed, CommittedTopic, DeleteRefusal, FetchOffsets,
    GroupOutput, GroupRequest, Join, Leaving, ListFilter, OffsetCommit, Session, Sync, WantedTopic,
};
use crate::cores::front::{CoordinatorRefusal, Cores, Later, PartitionAt};
use shard::ids::{Offset, Timestamp};
use std::rc::Rc;
use uuid::Uuid;

const GROUPS: u64 = 6;

impl Client {
    /// One request; what is sent is sent when this resolves.
    pub async fn ask_at_random(self: &Rc<Self>) -> Later<Check> {
        let (dice, part) = (self.below(100), self.random_part());
        match (dice, part) {
            (..=3, _) | (_, None) => self.create(),
            (4..=6, _) => self.delete().unwrap_or_else(|| self.create()),
            (7, _) => self.take_producer_ids(),
            (8..=49, Some(at)) => self.produce(at).await,
            (50..=53, Some(at)) => self.trim(at),
            (54..=58, Some(at)) => Box::pin(self.clone().read(at)),
            (59..=64, Some(at)) => self.freshen(at),
            (65..=66, Some(at)) => self.snapshot(at),
            (67..=79, Some(at)) => {
                let group = self.random_group();
                let session = Session { group, generation: -1, ..Session::default() };
                self.commit(session, at)
            }
            (80..=88, Some(at)) => self.fetch(self.below(2) == 0, at),
            (89..=91, _) => self.delete_group(),
            (92..=93, _) => {
                let coordinators = self.coordinators();
                self.list(coordinators[self.below(coordinators.len() as u64) as usize])
            }
            (_, Some(at)) => Box::pin(self.clone().be_member(at)),
        }
    }

    fn random_group(&self) -> String {
        format!("group-{}", self.below(GROUPS))
    }

    fn commit(self: &Rc<Self>, session: Session, at: PartitionAt) -> Later<Check> {
        let (number, key) = (self.number(), (at.key.topic, at.key.partition));
        let group = session.group.clone();
        self.model.borrow_mut().groups.ask_commit(number, &group, key);
        let request = GroupRequest::Commit(self.offset(session, key, number));
        let answer = self.group(self.coordinator(&group), request);
        let client = self.clone();
        Box::pin(async move {
            let outcomes = match answer.await {
                Ok(GroupOutput::Commit(outcomes)) => outcomes,
                Ok(other) => return broken(format!("{other:?} for a commit")),
                Err(why) => return client.coordinator_refused("a commit", why),
            };
            let model = &mut *client.model.borrow_mut();
            let first = outcomes.map(|outcomes| outcomes.into_iter().next());
            let is_done = first == Ok(Some(Ok(())));
            model.groups.answered(number, &group, is_done);
            model.tally.committed += u64::from(is_done);
            let is_unknown = first == Ok(Some(Err(CommitRefusal::UnknownTopic)));
            ensure(!is_unknown || model.topics.may_be_going(key.0), || {
                format!("no offset is committed for {key:?}, which is there")
            })
        })
    }

    fn offset(&self, session: Session, (topic_id, partition): (Uuid, i32), number: u64) -> Commit {
        let model = self.model.borrow();
        let name = model.topics.there.get(&topic_id).map(|topic| topic.name.clone());
        let committed = Committed {
            offset: Offset(number as i64),
            leader_epoch: -1,
            metadata: number.to_string(),
            time: Timestamp(0),
        };
        let topic = name.unwrap_or_default();
        let offset = OffsetCommit { topic, topic_id, partition, committed, retention_ms: None };
        Commit { session, offsets: vec![offset] }
    }

    fn coordinator_refused(&self, what: &str, why: CoordinatorRefusal) -> Check {
        self.model.borrow_mut().tally.loading += u64::from(why == CoordinatorRefusal::Loading);
        self.model.borrow_mut().tally.not_kept += u64::from(why == CoordinatorRefusal::NotKept);
        self.refused(what, &why)
    }

    /// Reads what a random group has committed, of one topic or of all.
    fn fetch(self: &Rc<Self>, of_all: bool, at: PartitionAt) -> Later<Check> {
        let (number, group) = (self.number(), self.random_group());
        let only = (!of_all).then_some(at.key.topic);
        let answer = self.group(self.coordinator(&group), self.fetch_request(&group, only));
        let client = self.clone();
        Box::pin(async move {
            match fetched(answer.await)? {
                Ok(found) => client.see_offsets((number, &group), only, &found),
                Err(why) => client.coordinator_refused("a look at offsets", why),
            }
        })
    }

    fn fetch_request(&self, group: &str, only: Option<Uuid>) -> GroupRequest {
        let model = self.model.borrow();
        let wanted = |id: Uuid| {
            let topic = model.topics.there.get(&id)?;
            let partitions = (0..topic.parts.len() as i32).collect();
            Some(WantedTopic { topic: topic.name.clone(), topic_id: id, partitions })
        };
        let topics = only.map(|id| wanted(id).into_iter().collect());
        GroupRequest::Fetch(FetchOffsets { group: group.to_string(), member: None, topics })
    }

    fn see_offsets(
        &self,
        asked: (u64, &str),
        only: Option<Uuid>,
        found: &[CommittedTopic],
    ) -> Check {
        let model = &mut *self.model.borrow_mut();
        model.topics.see(&self.door.image())?;
        model.tally.fetched += 1;
        model.groups.see(asked, &model.topics, only, found)
    }

    fn delete_group(self: &Rc<Self>) -> Later<Check> {
        let (number, group) = (self.number(), self.random_group());
        self.model.borrow_mut().groups.ask_delete(number, &group);
        let request = GroupRequest::Delete { group: group.clone() };
        let answer = self.group(self.coordinator(&group), request);
        let client = self.clone();
        Box::pin(async move {
            let result = match answer.await {
                Ok(GroupOutput::Delete(result)) => result,
                Ok(other) => return broken(format!("{other:?} for a deletion")),
                Err(why) => return client.coordinator_refused("a deletion of a group", why),
            };
            let model = &mut *client.model.borrow_mut();
            model.tally.groups_deleted += u64::from(result.is_ok());
            model.groups.answered(number, &group, result.is_ok());
            match result {
                Err(DeleteRefusal::UnknownGroup) => {
                    model.groups.unknown(number, &group, &model.topics)
                }
                Ok(()) | Err(DeleteRefusal::EmptyGroupId | DeleteRefusal::NotEmpty) => Ok(()),
            }
        })
    }

    fn list(self: &Rc<Self>, at: PartitionAt) -> Later<Check> {
        let number = self.number();
        let answer = self.group(at, GroupRequest::List(ListFilter::default()));
        let client = self.clone();
        Box::pin(async move {
            let listed = match answer.await {
                Ok(GroupOutput::List(listed)) => listed,
                Ok(other) => return broken(format!("{other:?} for a list")),
                Err(why) => return client.coordinator_refused("a list of groups", why),
            };
            let is_here =
                |group: &str| partition_of(group, super::GROUP_PARTITIONS) == at.key.partition;
            let model = &*client.model.borrow();
            model.groups.see_list(number, &model.topics, &listed, is_here)
        })
    }

    /// Joins a group, syncs, commits an offset and, mostly, leaves.
    async fn be_member(self: Rc<Self>, at: PartitionAt) -> Check {
        let group = self.random_group();
        let coordinator = self.coordinator(&group);
        let number = self.number();
        self.model.borrow_mut().groups.ask_join(number, &group);
        let join = GroupRequest::Join(joining(&group));
        let joined = match self.group(coordinator, join).await {
            Ok(GroupOutput::Join(Ok(joined))) => joined,
            Ok(GroupOutput::Join(Err(_))) => return Ok(()),
            Ok(other) => return broken(format!("{other:?} for a join")),
            Err(why) => return self.coordinator_refused("a join", why),
        };
        let generation = joined.generation;
        self.model.borrow().groups.joined(number, &group, generation)?;
        let assign = |it: &crate::coordinator::JoinedMember| (it.member.clone(), "all".into());
        let assignments = joined.members.iter().map(assign).collect();
        let member = joined.member;
        let session = Session { group: group.clone(), member, instance: None, generation };
        let sync = Sync { session: session.clone(), assignments, ..Sync::default() };
        match self.group(coordinator, GroupRequest::Sync(sync)).await {
            Ok(GroupOutput::Sync(Ok(_))) => {}
            Ok(GroupOutput::Sync(Err(_))) => return Ok(()),
            Ok(other) => return broken(format!("{other:?} for a sync")),
            Err(why) => return self.coordinator_refused("a sync", why),
        }
        {
            let model = &mut *self.model.borrow_mut();
            model.groups.synced(&group, generation);
            model.tally.synced += 1;
        }
        self.commit(session.clone(), at).await?;
        if self.below(4) == 0 {
            return Ok(());
        }
        let members = vec![Leaving { member: session.member, instance: None }];
        match self.group(coordinator, GroupRequest::Leave { group, members }).await {
            Ok(_) => Ok(()),
            Err(why) => self.coordinator_refused("a leave", why),
        }
    }

    /// Looks at all topics, records and offsets. At the start of a life coordinators may load and
    /// have yet to forget what died with the life before.
    pub async fn look_at_all(self: &Rc<Self>, is_start: bool) -> Check {
        let refusals = self.model.borrow().tally.refused;
        self.note_catalog().await;
        for number in 0..GROUPS {
            within(self.look_at_group(&format!("group-{number}"), is_start)).await??;
        }
        for at in self.coordinators() {
            within(self.list(at)).await??;
        }
        let topics = |model: &super::client::Model| {
            let parts = model.topics.there.values().flat_map(|topic| &topic.parts);
            parts.map(|part| part.at).collect::<Vec<_>>()
        };
        let coordinators = self.coordinators();
        let all = topics(&self.model.borrow());
        for at in all {
            if coordinators.contains(&at) {
                continue;
            }
            if is_start {
                let offsets = self.door.offsets(vec![at]).await.remove(0);
                let start = offsets.map(|offsets| offsets.log_start.0);
                self.with_part(at, |part| {
                    start.map_or(Ok(()), |start| part.see_start(start))?;
                    part.promise_start(start.unwrap_or(0));
                    Ok(())
                })?;
            }
            within(self.clone().read(at)).await??;
        }
        let model = &mut *self.model.borrow_mut();
        if is_start && model.tally.refused == refusals {
            let now = model.number;
            model.topics.gone.keys().for_each(|id| model.groups.forgotten(*id, now));
        }
        Ok(())
    }

    async fn look_at_group(self: &Rc<Self>, group: &str, is_start: bool) -> Check {
        loop {
            let number = self.number();
            let answer = self.group(self.coordinator(group), self.fetch_request(group, None));
            match fetched(answer.await)? {
                Ok(found) => {
                    let is_dead = {
                        let model = self.model.borrow();
                        let mut dead = model.groups.dead(&model.topics, &found);
                        dead.next().is_some()
                    };
                    if !(is_start && is_dead && !self.refused.get()) {
                        return self.see_offsets((number, group), None, &found);
                    }
                }
                Err(CoordinatorRefusal::Loading) if is_start => {}
                Err(why) => return self.coordinator_refused("a look at a group", why),
            }
            self.door.timer(1).await;
        }
    }
}

fn joining(group: &str) -> Join {
    Join {
        group: group.to_string(),
        client_id: "simulation".to_string(),
        client_host: "/127.0.0.1".to_string(),
        session_timeout_ms: 200,
        rebalance_timeout_ms: Some(20),
        protocol_type: "consumer".to_string(),
        protocols: vec![("range".to_string(), "subscription".into())],
        ..Join::default()
    }
}

type Fetched = Result<Vec<CommittedTopic>, CoordinatorRefusal>;

fn fetched(answer: Result<GroupOutput, CoordinatorRefusal>) -> Result<Fetched, Violation> {
    match answer {
        Ok(GroupOutput::Fetch(Ok(found))) => Ok(Ok(found)),
        Ok(other) => Err(Violation(format!("{other:?} for a look at offsets"))),
        Err(why) => Ok(Err(why)),
    }
}
