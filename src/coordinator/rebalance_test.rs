//! Scripts of rebalances: who waits for whom, how long, and what everyone is told.

use super::script::{join, protocols, rejoin, session, synced, Script};
use super::{GroupRefusal, GroupRequest, Join, Joined, Leaving, Sync};
use bytes::Bytes;

use GroupRefusal::{
    GroupFull, IllegalGeneration, InconsistentProtocol, MemberIdRequired, MetadataTooLarge,
    RebalanceInProgress, SessionTimeout, TooManyGroups, UnknownMember,
};

fn leaving(member: &str) -> Leaving {
    Leaving { member: member.into(), instance: None }
}

#[test]
fn the_first_rebalance_waits_for_others() {
    let mut script = Script::new();
    let a = script.new_member();
    script.tick(2_999);
    assert_eq!(script.state(), "PreparingRebalance");
    let b = script.new_member();
    // Somebody came: three seconds more.
    script.tick(3_000);
    assert_eq!(script.state(), "PreparingRebalance");
    script.tick(1);
    assert_eq!(script.state(), "CompletingRebalance");
    let (a, b) = (script.joined(a), script.joined(b));
    assert_eq!((a.generation, b.generation), (1, 1));
    assert_eq!((&a.leader, &b.leader), (&a.member, &a.member));
    assert_eq!((a.members.len(), b.members.len()), (2, 0));
    assert_eq!((&*a.protocol_type, &*a.protocol), ("consumer", "range"));
    let expect = "c-00000000-0000-0000-0000-000000000001";
    assert_eq!(a.member, expect);
}

#[test]
fn the_first_rebalance_is_prolonged_up_to_the_rebalance_timeout() {
    let mut script = Script::new();
    let short = || Join { rebalance_timeout_ms: Some(10_000), ..join() };
    let first = script.send_join(short());
    for at_ms in 1..=9 {
        script.tick(1_000);
        script.send_join(short());
        assert_eq!(script.state(), "PreparingRebalance", "{at_ms} s");
    }
    script.tick(1_000);
    assert_eq!(script.joined(first).members.len(), 10);
}

#[test]
fn version_0_waits_as_long_as_the_session() {
    let mut script = Script::with(|limits| limits.initial_rebalance_delay_ms = 0);
    script.stable(1);
    let old = Join { rebalance_timeout_ms: None, session_timeout_ms: 7_000, ..join() };
    let to = script.send_join(old);
    // The member that is there has a larger timeout, which counts; it does not join again.
    script.tick(10_000);
    let joined = script.joined(to);
    assert_eq!(joined.members.len(), 1, "the other one's session is over");
    script.assign(&joined.member, joined.generation, vec![]).unwrap();
    let late = script.new_member();
    for _ in 0..6 {
        script.tick(1_000);
        assert_eq!(script.heartbeat(&joined.member, 2), Err(RebalanceInProgress));
    }
    assert_eq!(script.answer(late), None, "60 seconds is the larger timeout");
    script.send_join(Join { member: joined.member, rebalance_timeout_ms: None, ..join() });
    assert_eq!(script.joined(late).generation, 3);
}

#[test]
fn members_join_in_two_steps_and_ids_that_are_not_used_end() {
    let mut script = Script::new();
    let two_steps = || Join { two_steps: true, ..join() };
    let to = script.send_join(two_steps());
    let (refusal, id) = script.join_refused(to);
    assert_eq!(refusal, MemberIdRequired);
    assert_eq!(id, "c-00000000-0000-0000-0000-000000000001");
    assert_eq!(script.state(), "Empty");
    let to = script.send_join(Join { two_steps: true, ..rejoin(&id) });
    script.tick(3_000);
    let joined = script.joined(to);
    assert_eq!(joined.member, id);
    assert_eq!(script.assign(&id, 1, vec![id.clone()]), Ok(synced(&id)));
    // A second id is given out and never used: the group waits for it in a rebalance.
    let to = script.send_join(two_steps());
    let (_, pending) = script.join_refused(to);
    assert_eq!(script.heartbeat(&pending, 1), Err(UnknownMember));
    let to = script.send_join(rejoin(&id));
    assert_eq!(script.state(), "PreparingRebalance");
    script.tick(9_999);
    assert_eq!(script.answer(to), None);
    script.tick(1);
    assert_eq!(script.joined(to).generation, 2);
    let to = script.send_join(rejoin(&pending));
    assert_eq!(script.join_refused(to), (UnknownMember, pending));
}

#[test]
fn what_joins_are_refused() {
    let mut script = Script::with(|limits| {
        limits.groups_max = 2;
        limits.members_max = 2;
    });
    let ids = script.stable(2);
    let other = script.send_join(Join { group: "h".into(), ..join() });
    script.tick(3_000);
    script.joined(other);
    let mut check = |join: Join, refusal: GroupRefusal, member: &str| {
        let to = script.send_join(join);
        assert_eq!(script.join_refused(to), (refusal, member.to_string()));
    };
    let group = |group: &str| Join { group: group.into(), ..join() };
    check(group(""), GroupRefusal::EmptyGroupId, "");
    check(group("new"), TooManyGroups, "");
    check(group(&"x".repeat(40_000)), MetadataTooLarge, "");
    check(Join { member: "m".into(), ..group("new") }, UnknownMember, "m");
    check(Join { session_timeout_ms: 5_999, ..join() }, SessionTimeout, "");
    check(Join { session_timeout_ms: 1_800_001, ..join() }, SessionTimeout, "");
    check(rejoin("stranger"), GroupFull, "");
    check(join(), GroupFull, "");
    let there = rejoin(&ids[1]);
    let check_there = |change: fn(&mut Join), refusal: GroupRefusal, script: &mut Script| {
        let mut join = there.clone();
        change(&mut join);
        let to = script.send_join(join);
        assert_eq!(script.join_refused(to), (refusal, there.member.clone()));
    };
    check_there(|join| join.protocols = vec![], InconsistentProtocol, &mut script);
    check_there(|join| join.protocol_type = "connect".into(), InconsistentProtocol, &mut script);
    check_there(|join| join.protocol_type = String::new(), InconsistentProtocol, &mut script);
    check_there(|join| join.protocols = protocols(&["sticky"]), InconsistentProtocol, &mut script);
    check_there(|join| join.instance = Some("i".into()), UnknownMember, &mut script);
    let much = |join: &mut Join| join.protocols = vec![("range".into(), vec![0; 10_000].into())];
    check_there(much, MetadataTooLarge, &mut script);
    assert_eq!(script.state(), "Stable", "a refused join changes nothing");
    // The group's own subscription does not count twice.
    let nearly = |join: &mut Join| join.protocols = vec![("range".into(), vec![0; 9_800].into())];
    let mut large = there.clone();
    nearly(&mut large);
    let to = script.send_join(large.clone());
    script.send_join(rejoin(&ids[0]));
    assert_eq!(script.joined(to).generation, 2);
    script.send_join(large);
    assert_eq!(script.state(), "CompletingRebalance", "joined again, with what it has");
}

#[test]
fn a_new_group_needs_protocols() {
    let mut script = Script::new();
    for bad in
        [Join { protocol_type: String::new(), ..join() }, Join { protocols: vec![], ..join() }]
    {
        let to = script.send_join(bad);
        assert_eq!(script.join_refused(to), (InconsistentProtocol, String::new()));
    }
    assert_eq!(script.state(), "Dead", "and is not there without them");
    assert_eq!(script.machine.counts(), super::Counts::default());
}

#[test]
fn most_votes_choose_among_the_common_protocols() {
    let mut script = Script::new();
    let of = |names: &[&str]| Join { protocols: protocols(names), ..join() };
    let asked = [
        script.send_join(of(&["only-mine", "range", "sticky"])),
        script.send_join(of(&["sticky", "range"])),
        script.send_join(of(&["sticky", "range", "sticky"])),
    ];
    script.tick(6_000);
    for to in asked {
        assert_eq!(script.joined(to).protocol, "sticky");
    }
}

#[test]
fn a_member_more_starts_a_rebalance_that_waits_for_all() {
    let mut script = Script::new();
    let ids = script.stable(2);
    let new = script.new_member();
    assert_eq!(script.state(), "PreparingRebalance");
    assert_eq!(script.heartbeat(&ids[0], 1), Err(RebalanceInProgress));
    let to = script.send_sync(&ids[0], 1);
    assert_eq!(script.synced(to), Err(RebalanceInProgress));
    let again = ids.iter().map(|id| script.send_join(rejoin(id))).collect::<Vec<_>>();
    let mut joined: Vec<Joined> = again.into_iter().map(|to| script.joined(to)).collect();
    joined.push(script.joined(new));
    assert!(joined.iter().all(|joined| joined.generation == 2 && joined.leader == ids[0]));
    script.sync_all(&joined);
    assert_eq!(script.state(), "Stable");
}

#[test]
fn who_does_not_join_again_goes_at_the_end_of_the_largest_rebalance_timeout() {
    let mut script = Script::new();
    let ids = script.stable(2);
    let new = script.send_join(Join { rebalance_timeout_ms: Some(1_000), ..join() });
    let other = script.send_join(rejoin(&ids[1]));
    for _ in 0..59 {
        script.tick(1_000);
        // The leader is alive and does not join: it is still revoking, say.
        assert_eq!(script.heartbeat(&ids[0], 1), Err(RebalanceInProgress));
    }
    assert_eq!(script.answer(new), None);
    script.tick(1_000);
    let (new, other) = (script.joined(new), script.joined(other));
    assert_eq!((new.generation, other.generation), (2, 2));
    assert_eq!(new.leader, other.leader);
    assert_ne!(new.leader, ids[0], "another leads");
    assert_eq!(script.heartbeat(&ids[0], 1), Err(UnknownMember));
    assert_eq!(new.members.len() + other.members.len(), 2);
}

#[test]
fn who_does_not_sync_goes_at_the_end_of_the_rebalance_timeout() {
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    let to = script.send_sync(&joined[1].member, 1);
    // The group becomes stable without the third, which sends heartbeats and never syncs.
    script.assign(&joined[0].member, 1, vec![]).unwrap();
    assert_eq!(script.synced(to), Ok(synced("")), "left out by the leader");
    for at_s in 0..60 {
        assert_eq!(script.heartbeat(&joined[2].member, 1), Ok(()), "{at_s} s");
        assert_eq!(script.heartbeat(&joined[0].member, 1), Ok(()));
        assert_eq!(script.heartbeat(&joined[1].member, 1), Ok(()));
        script.tick(1_000);
    }
    assert_eq!(script.state(), "PreparingRebalance");
    assert_eq!(script.heartbeat(&joined[2].member, 1), Err(UnknownMember));
    assert_eq!(script.heartbeat(&joined[0].member, 1), Err(RebalanceInProgress));
}

#[test]
fn a_leader_that_does_not_sync_goes_and_another_is_chosen() {
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    let to = script.send_sync(&joined[1].member, 1);
    script.tick(10_000);
    // Its session ended; the one that waits is not expected to send heartbeats.
    assert_eq!(script.synced(to), Err(RebalanceInProgress));
    let to = script.send_join(rejoin(&joined[1].member));
    let joined = script.joined(to);
    assert_eq!((joined.generation, &joined.leader), (2, &joined.member));
}

#[test]
fn a_rebalance_fails_the_syncs_that_are_held() {
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    let held = script.send_sync(&joined[1].member, 1);
    script.new_member();
    assert_eq!(script.synced(held), Err(RebalanceInProgress));
    assert_eq!(script.state(), "PreparingRebalance");
}

#[test]
fn joins_that_change_nothing() {
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    // Answers may have been lost: the generation that is being completed is told again.
    for before in &joined {
        let to = script.send_join(rejoin(&before.member));
        assert_eq!(script.joined(to), *before);
    }
    let ids = script.sync_all(&joined);
    let to = script.send_join(rejoin(&ids[1]));
    assert_eq!(script.joined(to), joined[1], "a follower of a stable group");
    assert_eq!(script.state(), "Stable");
    let to = script.send_sync(&ids[1], 1);
    assert_eq!(script.synced(to), Ok(synced(&ids[1])));
}

#[test]
fn joins_that_start_a_rebalance() {
    let check = |change: fn(&[String]) -> Join| {
        let mut script = Script::new();
        let ids = script.stable(2);
        let join = change(&ids);
        let member = join.member.clone();
        let to = script.send_join(join);
        assert_eq!(script.state(), "PreparingRebalance");
        for id in ids.iter().filter(|id| **id != member) {
            script.send_join(rejoin(id));
        }
        assert_eq!(script.joined(to).generation, 2);
    };
    check(|ids| rejoin(&ids[0]));
    check(|ids| Join { protocols: protocols(&["range", "new"]), ..rejoin(&ids[1]) });
    check(|_| join());
    // While the leader is awaited, a member with another subscription does so, too.
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    let changed = Join {
        protocols: vec![("range".into(), Bytes::from_static(b"new"))],
        ..rejoin(&joined[1].member)
    };
    let held = script.send_sync(&joined[1].member, 1);
    script.send_join(changed);
    assert_eq!(script.synced(held), Err(RebalanceInProgress));
    assert_eq!(script.state(), "PreparingRebalance");
}

#[test]
fn a_member_that_asks_twice_is_answered_twice() {
    let mut script = Script::new();
    let ids = script.stable(2);
    let first = script.send_join(rejoin(&ids[0]));
    let second = script.send_join(rejoin(&ids[0]));
    assert_eq!(script.join_refused(first), (RebalanceInProgress, ids[0].clone()));
    let other = script.send_join(rejoin(&ids[1]));
    assert_eq!(script.joined(second).generation, 2);
    script.joined(other);
    let first = script.send_sync(&ids[1], 2);
    let second = script.send_sync(&ids[1], 2);
    assert_eq!(script.synced(first), Err(RebalanceInProgress));
    script.assign(&ids[0], 2, ids.clone()).unwrap();
    assert_eq!(script.synced(second), Ok(synced(&ids[1])));
}

#[test]
fn a_sync_is_checked() {
    let mut script = Script::new();
    let ids = script.stable(2);
    let mut check = |sync: Sync, expect: GroupRefusal| {
        let to = script.send(GroupRequest::Sync(sync));
        assert_eq!(script.synced(to), Err(expect));
    };
    let of = |session| Sync { session, ..Sync::default() };
    check(of(super::Session { group: "no".into(), ..session("m", 1) }), UnknownMember);
    check(of(super::Session::default()), GroupRefusal::EmptyGroupId);
    check(of(session("stranger", 1)), UnknownMember);
    check(of(session(&ids[0], 0)), IllegalGeneration);
    check(of(session(&ids[0], 2)), IllegalGeneration);
    let with = |protocol_type: Option<&str>, protocol: Option<&str>| Sync {
        protocol_type: protocol_type.map(String::from),
        protocol: protocol.map(String::from),
        ..of(session(&ids[0], 1))
    };
    check(with(Some("connect"), None), InconsistentProtocol);
    check(with(Some("consumer"), Some("sticky")), InconsistentProtocol);
    let to = script.send(GroupRequest::Sync(with(Some("consumer"), Some("range"))));
    assert_eq!(script.synced(to), Ok(synced(&ids[0])));
    let instance = Some("i".to_string());
    let static_session = super::Session { instance, ..session(&ids[0], 1) };
    let to = script.send(GroupRequest::Sync(of(static_session)));
    assert_eq!(script.synced(to), Err(UnknownMember));
}

#[test]
fn assignments_are_limited() {
    let mut script = Script::new();
    let to = script.new_member();
    script.tick(3_000);
    let id = script.joined(to).member;
    let with = |bytes: usize| Sync {
        session: session(&id, 1),
        assignments: vec![(id.clone(), vec![0; bytes].into())],
        ..Sync::default()
    };
    let to = script.send(GroupRequest::Sync(with(10_000)));
    assert_eq!(script.synced(to), Err(MetadataTooLarge));
    assert_eq!(script.state(), "CompletingRebalance");
    let to = script.send(GroupRequest::Sync(with(9_000)));
    assert!(script.synced(to).is_ok());
    let to = script.send(GroupRequest::Sync(with(9_000)));
    assert!(script.synced(to).is_ok(), "again, and it is not counted twice");
    let to = script.send_join(rejoin(&id));
    assert_eq!(script.joined(to).generation, 2, "the old assignment does not count any more");
    let to = script.send(GroupRequest::Sync(Sync { session: session(&id, 2), ..with(9_000) }));
    assert!(script.synced(to).is_ok());
}

#[test]
fn a_new_member_that_waits_five_minutes_starts_over() {
    let mut script = Script::new();
    let ids = script.stable(1);
    let long = Join { rebalance_timeout_ms: Some(600_000), ..join() };
    let to = script.send_join(long);
    for _ in 0..299 {
        script.tick(1_000);
        assert_eq!(script.heartbeat(&ids[0], 1), Err(RebalanceInProgress));
    }
    assert_eq!(script.answer(to), None);
    script.tick(1_000);
    assert_eq!(script.join_refused(to), (UnknownMember, String::new()));
    // One that was there before may wait on.
    let to = script.send_join(rejoin(&ids[0]));
    assert_eq!(script.joined(to).generation, 2);
}

#[test]
fn a_group_that_all_have_left_is_empty() {
    let mut script = Script::new();
    let ids = script.stable(2);
    assert_eq!(script.leave(vec![leaving(&ids[0]), leaving(&ids[1])]), [Ok(()), Ok(())]);
    assert_eq!(script.state(), "Empty");
    assert_eq!(script.machine.counts().members, 0);
    assert_eq!(script.heartbeat(&ids[0], 1), Err(UnknownMember));
    // The next generation does not repeat the number of the last.
    let to = script.new_member();
    script.tick(3_000);
    assert_eq!(script.joined(to).generation, 3);
}

#[test]
fn the_first_rebalance_may_lose_its_only_member() {
    let mut script = Script::new();
    let to = script.new_member();
    let id = "c-00000000-0000-0000-0000-000000000001";
    assert_eq!(script.leave(vec![leaving(id)]), [Ok(())]);
    assert_eq!(script.join_refused(to), (UnknownMember, String::new()));
    assert_eq!(script.state(), "PreparingRebalance");
    script.tick(3_000);
    assert_eq!(script.state(), "Empty");
    script.tick(600_000);
    assert_eq!(script.state(), "Dead");
}

#[test]
fn members_over_the_limit_go_when_they_join_last() {
    let mut script = Script::new();
    let ids = script.stable(3);
    let log = std::mem::take(&mut script.log);
    let mut script = Script::with(|limits| limits.members_max = 2);
    script.log = log;
    script.restart();
    assert_eq!(script.state(), "PreparingRebalance");
    let asked: Vec<_> = ids.iter().map(|id| script.send_join(rejoin(id))).collect();
    assert_eq!(script.joined(asked[0]).generation, 2);
    assert_eq!(script.joined(asked[1]).generation, 2);
    assert_eq!(script.join_refused(asked[2]), (GroupFull, String::new()));
    assert_eq!(script.heartbeat(&ids[2], 2), Err(UnknownMember));
}
