//! Scripts of committed offsets: who may commit in which state, limits, expiry, deleted topics.

use super::script::{join, offset, rejoin, session, subscription, topic_id, Script, GROUP, WALL};
use super::{
    CommitRefusal, Committed, CommittedTopic, GroupOutput, GroupRefusal, GroupRequest, Join,
    Leaving, OffsetCommit, Session, WantedTopic,
};
use shard::ids::{Offset, Timestamp};
use uuid::Uuid;

use GroupRefusal::{
    IllegalGeneration, RebalanceInProgress, TooManyGroups, UnknownGroup, UnknownMember,
};

const DAY_MS: u64 = 86_400_000;

/// A consumer that is in no group.
fn simple() -> Session {
    session("", -1)
}

fn wanted(topic: &str, topic_id: Uuid, partitions: &[i32]) -> Option<Vec<WantedTopic>> {
    Some(vec![WantedTopic { topic: topic.into(), topic_id, partitions: partitions.to_vec() }])
}

#[test]
fn who_may_commit_in_which_state() {
    let mut script = Script::new();
    let one = || vec![offset("t", 0, 1)];
    let done = Ok(vec![Ok(())]);
    assert_eq!(script.commit(session("m", 3), one()), Err(UnknownGroup));
    assert_eq!(script.commit(session("", 0), one()), Err(UnknownGroup));
    assert_eq!(script.state(), "Dead");
    assert_eq!(script.commit(simple(), one()), done);
    assert_eq!(script.state(), "Empty");
    assert_eq!(script.commit(session("m", -1), one()), done, "whatever it calls itself");
    assert_eq!(script.commit(session("m", 3), one()), Err(UnknownMember));
    let to = script.new_member();
    assert_eq!(script.commit(simple(), one()), Err(UnknownMember), "preparing");
    script.tick(3_000);
    let id = script.joined(to).member;
    assert_eq!(script.commit(session(&id, 1), one()), Err(RebalanceInProgress), "completing");
    assert_eq!(script.commit(session(&id, 0), one()), Err(IllegalGeneration));
    assert_eq!(script.commit(simple(), one()), Err(UnknownMember));
    script.assign(&id, 1, vec![]).unwrap();
    assert_eq!(script.commit(session(&id, 1), one()), done, "stable");
    assert_eq!(script.commit(session(&id, 2), one()), Err(IllegalGeneration));
    assert_eq!(script.commit(session(&id, -1), one()), Err(IllegalGeneration));
    assert_eq!(script.commit(session("stranger", 1), one()), Err(UnknownMember));
    assert_eq!(script.commit(simple(), one()), Err(UnknownMember));
    script.new_member();
    assert_eq!(script.commit(session(&id, 1), one()), done, "preparing, of the last generation");
}

#[test]
fn offsets_are_told_as_they_were_committed() {
    let mut script = Script::new();
    assert_eq!(script.fetch(None), []);
    let id = topic_id("t");
    let none = |topic: &str, topic_id| CommittedTopic {
        topic: topic.into(),
        topic_id,
        partitions: vec![(0, None), (7, None)],
    };
    assert_eq!(script.fetch(wanted("t", id, &[0, 7])), [none("t", id)], "no such group");
    script.tick(5);
    script.commit(simple(), vec![offset("t", 0, 41), offset("t", 0, 42)]).unwrap();
    let committed = Committed {
        offset: Offset(42),
        leader_epoch: 3,
        metadata: "m".into(),
        time: Timestamp(WALL + 5),
    };
    let some = CommittedTopic {
        topic: "t".into(),
        topic_id: id,
        partitions: vec![(0, Some(committed.clone())), (7, None)],
    };
    assert_eq!(script.fetch(wanted("t", id, &[0, 7])), [some]);
    let all = CommittedTopic {
        topic: "t".into(),
        topic_id: id,
        partitions: vec![(0, Some(committed.clone()))],
    };
    assert_eq!(script.fetch(None), std::slice::from_ref(&all));
    script.restart();
    assert_eq!(script.fetch(None), [all]);
    // A topic that has been made anew has no offsets.
    let new = Uuid::from_u128(99);
    assert_eq!(script.fetch(wanted("t", new, &[0, 7])), [none("t", new)]);
    assert_eq!(script.fetch(wanted("other", id, &[0, 7])), [none("other", id)]);
    script.commit(simple(), vec![OffsetCommit { topic_id: new, ..offset("t", 1, 5) }]).unwrap();
    let ids: Vec<Uuid> = script.fetch(None).into_iter().map(|topic| topic.topic_id).collect();
    assert_eq!(ids, [new, id]);
    // Whoever wrote no id meant the topic of that name.
    script
        .commit(simple(), vec![OffsetCommit { topic_id: Uuid::nil(), ..offset("t", 0, 6) }])
        .unwrap();
    let told = script.fetch(wanted("t", new, &[0])).remove(0).partitions.remove(0).1;
    assert_eq!(told.map(|committed| committed.offset), Some(Offset(6)));
}

#[test]
fn commits_are_limited() {
    let mut script = Script::with(|limits| limits.groups_max = 1);
    let long = |bytes: usize| {
        let mut commit = offset("t", 0, 1);
        commit.committed.metadata = "x".repeat(bytes);
        commit
    };
    let too_long = Err(CommitRefusal::MetadataTooLarge);
    let results = script.commit(simple(), vec![long(11), long(10), long(11)]).unwrap();
    assert_eq!(results, [too_long, Ok(()), too_long]);
    let many = (0..7).map(|partition| offset("t", partition, 1)).collect();
    let results = script.commit(simple(), many).unwrap();
    let full = Err(CommitRefusal::TooManyOffsets);
    assert_eq!(results, [Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), full, full]);
    assert_eq!(script.commit(simple(), vec![offset("t", 4, 2)]), Ok(vec![Ok(())]));
    assert_eq!(script.machine.counts().offsets, 5);
    let other = Session { group: "other".into(), ..simple() };
    assert_eq!(script.commit(other, vec![offset("t", 0, 1)]), Err(TooManyGroups));
    let far = OffsetCommit { topic: "t".repeat(40_000), ..offset("t", 0, 1) };
    assert_eq!(script.commit(simple(), vec![far]), Ok(vec![Err(CommitRefusal::UnknownTopic)]));
}

#[test]
fn a_commit_of_nothing_makes_no_group() {
    let mut script = Script::new();
    assert_eq!(script.commit(simple(), vec![]), Ok(vec![]));
    assert_eq!(script.state(), "Dead");
    // The oldest consumers commit for a group without a name.
    let nameless = Session { group: String::new(), ..simple() };
    assert_eq!(script.commit(nameless, vec![offset("t", 0, 1)]), Ok(vec![Ok(())]));
    assert_eq!(script.machine.counts().groups, 1);
}

#[test]
fn offsets_of_a_simple_group_expire_after_their_commit() {
    let mut script = Script::new();
    script.commit(simple(), vec![offset("t", 0, 1), offset("u", 0, 1)]).unwrap();
    script.tick(DAY_MS);
    script.commit(simple(), vec![offset("t", 0, 2)]).unwrap();
    script.tick(6 * DAY_MS - 1);
    assert_eq!(script.offsets().len(), 2);
    script.tick(600_000);
    assert_eq!(script.offsets(), [("t".to_string(), 0, 2)]);
    script.tick(DAY_MS);
    assert_eq!(script.offsets(), []);
    assert_eq!(script.state(), "Dead", "and the group goes with the last");
    script.restart();
    assert_eq!(script.machine.counts(), super::Counts::default());
}

#[test]
fn offsets_of_a_group_expire_after_it_became_empty() {
    let mut script = Script::new();
    let to = script.send_join(Join { session_timeout_ms: 1_800_000, ..join() });
    script.tick(3_000);
    let id = script.joined(to).member;
    script.assign(&id, 1, vec![]).unwrap();
    script.commit(session(&id, 1), vec![offset("t", 0, 1)]).unwrap();
    for _ in 0..10 * 48 {
        script.tick(1_799_999);
        script.heartbeat(&id, 1).unwrap();
    }
    assert_eq!(script.offsets().len(), 1, "it has members");
    script.leave(vec![Leaving { member: id, instance: None }]);
    script.restart();
    script.tick(7 * DAY_MS - 600_000);
    assert_eq!(script.offsets().len(), 1);
    script.tick(1_200_000);
    assert_eq!(script.offsets(), []);
    assert_eq!(script.state(), "Dead");
}

#[test]
fn what_is_committed_after_the_group_became_empty_has_its_full_time() {
    let mut script = Script::new();
    let ids = script.stable(1);
    script.commit(session(&ids[0], 1), vec![offset("t", 0, 1), offset("t", 1, 1)]).unwrap();
    script.leave(vec![Leaving { member: ids[0].clone(), instance: None }]);
    script.tick(6 * DAY_MS);
    script.commit(simple(), vec![offset("t", 0, 2)]).unwrap();
    script.tick(2 * DAY_MS);
    assert_eq!(script.offsets(), [("t".to_string(), 0, 2)]);
    script.tick(6 * DAY_MS);
    assert_eq!(script.state(), "Dead");
}

#[test]
fn a_group_with_members_loses_only_offsets_of_topics_it_does_not_read() {
    let run = |protocol_type: &str, bytes: bytes::Bytes| {
        let mut script = Script::with(|limits| limits.session_timeout_ms.1 = i64::MAX);
        let protocols = vec![("range".to_string(), bytes)];
        let forever = Join {
            session_timeout_ms: i32::MAX,
            protocol_type: protocol_type.into(),
            protocols,
            ..join()
        };
        let to = script.send_join(forever);
        script.tick(3_000);
        let id = script.joined(to).member;
        script.assign(&id, 1, vec![]).unwrap();
        script.commit(session(&id, 1), vec![offset("t", 0, 1), offset("u", 0, 2)]).unwrap();
        script.tick(8 * DAY_MS);
        assert_eq!(script.state(), "Stable");
        script.offsets()
    };
    let (t, u) = (("t".to_string(), 0, 1), ("u".to_string(), 0, 2));
    assert_eq!(run("consumer", subscription(&["t"])), [t.clone()]);
    assert_eq!(run("consumer", subscription(&[])), []);
    assert_eq!(run("consumer", subscription(&["t", "u"])), [t.clone(), u.clone()]);
    assert_eq!(run("consumer", bytes::Bytes::from_static(b"?")), [t.clone(), u.clone()]);
    assert_eq!(run("connect", subscription(&["t"])), [t, u], "who knows what it means");
}

#[test]
fn a_client_may_ask_for_its_own_retention() {
    let mut script = Script::new();
    let kept = |partition, retention_ms| OffsetCommit {
        retention_ms: Some(retention_ms),
        ..offset("t", partition, 1)
    };
    let offsets = vec![kept(0, 1_000), kept(1, 30 * DAY_MS as i64), offset("t", 2, 1)];
    script.commit(simple(), offsets).unwrap();
    script.restart();
    script.tick(600_000);
    let partitions = |script: &mut Script| {
        script.offsets().into_iter().map(|(_, partition, _)| partition).collect::<Vec<_>>()
    };
    assert_eq!(partitions(&mut script), [1, 2]);
    script.tick(8 * DAY_MS);
    assert_eq!(partitions(&mut script), [1]);
    script.tick(30 * DAY_MS);
    assert_eq!(script.state(), "Dead");
}

#[test]
fn an_empty_group_without_offsets_goes_at_the_next_look() {
    let mut script = Script::new();
    let ids = script.stable(1);
    script.leave(vec![Leaving { member: ids[0].clone(), instance: None }]);
    script.tick(590_000);
    assert_eq!(script.state(), "Empty");
    let to = script.send_join(Join { two_steps: true, ..join() });
    let (_, id) = script.join_refused(to);
    script.tick(4_001);
    assert_eq!(script.state(), "Empty", "somebody is about to join");
    let to = script.send_join(rejoin(&id));
    script.tick(3_000);
    assert_eq!(script.joined(to).generation, 3);
    script.tick(1_200_000);
    assert_eq!(script.state(), "Dead");
}

#[test]
fn expiry_goes_through_many_offsets_in_slices() {
    let mut script = Script::with(|limits| {
        limits.groups_max = 100;
        limits.offsets_max = 1_000;
    });
    for group in 0..20 {
        let session = Session { group: format!("g{group:02}"), ..simple() };
        let offsets = (0..1_000).map(|partition| offset("t", partition, 1)).collect();
        script.commit(session, offsets).unwrap();
    }
    assert_eq!(script.machine.counts().offsets, 20_000);
    script.tick(8 * DAY_MS);
    assert_eq!(script.machine.counts(), super::Counts::default());
    let timers: Vec<_> = script.timers.values().collect();
    assert_eq!(timers.len(), 1, "and the next round is on its way: {timers:?}");
}

#[test]
fn offsets_of_topics_that_are_gone_are_forgotten_in_all_groups() {
    let mut script = Script::new();
    let other = || Session { group: "other".into(), ..simple() };
    script.commit(simple(), vec![offset("t", 0, 1), offset("u", 0, 1)]).unwrap();
    script.commit(other(), vec![offset("t", 5, 1)]).unwrap();
    let (t, u) = (topic_id("t"), topic_id("u"));
    assert_eq!(script.machine.topics(), [t, u].into());
    let forget = |topics: &[Uuid]| GroupRequest::Forget { topics: topics.to_vec() };
    assert_eq!(script.ask(forget(&[t, t, Uuid::nil()])), GroupOutput::Forget);
    assert_eq!(script.offsets(), [("u".to_string(), 0, 1)]);
    assert_eq!(script.machine.topics(), [u].into());
    assert_eq!(script.machine.counts().groups, 1, "the other group had nothing else");
    // Of a topic made anew the new offsets stay.
    let new = Uuid::from_u128(99);
    script.commit(simple(), vec![OffsetCommit { topic_id: new, ..offset("u", 0, 3) }]).unwrap();
    assert_eq!(script.machine.topics(), [new].into());
    script.ask(forget(&[u]));
    assert_eq!(script.offsets(), [("u".to_string(), 0, 3)]);
    script.restart();
    assert_eq!(script.machine.topics(), [new].into());
    assert_eq!(script.offsets(), [(("u").to_string(), 0, 3)]);
}

#[test]
fn a_refused_append_of_offsets_or_expiry_leaves_the_machine_as_it_was() {
    use crate::state_machine::{Cause, IfRefused, Machine, Moment, ReplyTo};
    let mut script = Script::new();
    script.commit(simple(), vec![offset("t", 0, 1)]).unwrap();
    let mut refused = |cause: Cause<super::GroupMachine>| {
        let at = Moment { wall: Timestamp(i64::MAX), mono_ms: 0, ids: &[] };
        let step = script.machine.step(cause, at);
        assert!(!step.records.is_empty());
        step.if_refused
    };
    let reply_to = ReplyTo(0);
    let input = GroupRequest::Commit(super::Commit {
        session: Session { group: "new".into(), ..simple() },
        offsets: vec![offset("t", 0, 2)],
    });
    assert_eq!(refused(Cause::Request { input, reply_to }), IfRefused::Stay);
    let input = GroupRequest::Forget { topics: vec![topic_id("t")] };
    assert_eq!(refused(Cause::Request { input, reply_to }), IfRefused::Stay);
    let input = GroupRequest::Delete { group: GROUP.into() };
    assert_eq!(refused(Cause::Request { input, reply_to }), IfRefused::Stay);
    assert_eq!(refused(Cause::Timer(super::GroupTimer::Expiry)), IfRefused::Stay);
    assert_eq!(script.offsets(), [("t".to_string(), 0, 1)]);
    assert_eq!(script.machine.counts().groups, 1);
}
