//! Scripts of static members (KIP-345): coming back, fencing, administration.

use super::script::{join, protocols, rejoin, session, Script};
use super::{GroupRefusal, Join, Joined, Leaving, Session};

use GroupRefusal::{FencedInstance, InconsistentProtocol, RebalanceInProgress, UnknownMember};

fn static_join(instance: &str) -> Join {
    Join { instance: Some(instance.into()), may_skip_assignment: true, ..join() }
}

fn static_session(instance: &str, member: &str, generation: i32) -> Session {
    Session { instance: Some(instance.into()), ..session(member, generation) }
}

/// A stable group of two static members, `a` the leader.
fn stable(script: &mut Script) -> [Joined; 2] {
    let asked = ["a", "b"].map(|instance| script.send_join(static_join(instance)));
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    assert_eq!(joined[0].member, format!("a-{}", uuid::Uuid::from_u128(script.ids - 1)));
    assert_eq!(joined[0].leader, joined[0].member);
    assert_eq!(joined[0].members[1].instance.as_deref(), Some("b"));
    script.sync_all(&joined);
    joined
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut script = Script::new();
    let [_, old] = stable(&mut script);
    let to = script.send_join(static_join("b"));
    let new = script.joined(to);
    assert_eq!(script.state(), "Stable");
    assert_ne!(new.member, old.member);
    assert_eq!(new, Joined { member: new.member.clone(), ..old.clone() });
    let to = script.send_sync(&new.member, 1);
    assert_eq!(script.synced(to).unwrap().assignment, old.member, "what it was assigned before");
    // Who has the old id hears so on every call.
    let check = |result: Result<(), GroupRefusal>| assert_eq!(result, Err(FencedInstance));
    let fenced = static_session("b", &old.member, 1);
    check(script.beat(fenced.clone()));
    check(script.commit(fenced.clone(), vec![]).map(|_| ()));
    let to = script
        .send(super::GroupRequest::Sync(super::Sync { session: fenced, ..super::Sync::default() }));
    check(script.synced(to).map(|_| ()));
    let to = script.send_join(Join { member: old.member.clone(), ..static_join("b") });
    let (refusal, member) = script.join_refused(to);
    check(Err(refusal));
    assert_eq!(member, old.member);
    let leaving = Leaving { member: old.member.clone(), instance: Some("b".into()) };
    check(script.leave(vec![leaving])[0]);
    assert_eq!(script.heartbeat(&old.member, 1), Err(UnknownMember));
    assert_eq!(script.beat(static_session("b", &new.member, 1)), Ok(()));
    // The new id is stored, the old session's timer is gone.
    script.restart();
    assert_eq!(script.beat(static_session("b", &new.member, 1)), Ok(()));
    assert_eq!(script.beat(static_session("b", &old.member, 1)), Err(FencedInstance));
}

#[test]
fn a_leader_that_comes_back_need_not_assign() {
    let mut script = Script::new();
    let [old, _] = stable(&mut script);
    let to = script.send_join(static_join("a"));
    let new = script.joined(to);
    assert!(new.skip_assignment);
    assert_eq!(new.leader, new.member);
    assert_eq!(new.members.len(), 2);
    // Before version 9 it is not told that it leads.
    let to = script.send_join(Join { may_skip_assignment: false, ..static_join("a") });
    let newer = script.joined(to);
    assert!(!newer.skip_assignment && newer.members.is_empty());
    assert_eq!(newer.leader, new.member);
    assert_ne!(newer.member, new.member);
    assert_ne!(new.member, old.member);
    // And leads all the same: to join again starts a rebalance.
    let to = script.send_join(Join { member: newer.member.clone(), ..static_join("a") });
    assert_eq!(script.state(), "PreparingRebalance");
    assert_eq!(script.answer(to), None);
}

#[test]
fn another_protocol_starts_a_rebalance() {
    let mut script = Script::new();
    let both =
        |instance| Join { protocols: protocols(&["range", "sticky"]), ..static_join(instance) };
    let asked = ["a", "b"].map(|instance| script.send_join(both(instance)));
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    script.sync_all(&joined);
    let to = script.send_join(Join { protocols: protocols(&["sticky"]), ..static_join("b") });
    assert_eq!(script.state(), "PreparingRebalance");
    let again = script.send_join(Join { member: joined[0].member.clone(), ..both("a") });
    assert_eq!(script.joined(to).protocol, "sticky");
    script.joined(again);
    let to = script.send_join(Join { protocols: protocols(&["other"]), ..static_join("b") });
    assert_eq!(script.join_refused(to), (InconsistentProtocol, String::new()));
}

#[test]
fn a_takeover_answers_what_the_old_member_waits_for() {
    let mut script = Script::new();
    let asked = ["a", "b"].map(|instance| script.send_join(static_join(instance)));
    // While members are collected.
    let again = script.send_join(static_join("b"));
    let (refusal, _) = script.join_refused(asked[1]);
    assert_eq!(refusal, FencedInstance);
    script.tick(6_000);
    let joined = [asked[0], again].map(|to| script.joined(to));
    assert_eq!(joined[0].members.len(), 2);
    // While the leader is awaited: all join again, since it may assign to the old id.
    let instance = Some("b".to_string());
    let sync = super::Sync {
        session: Session { instance, ..session(&joined[1].member, 1) },
        ..super::Sync::default()
    };
    let held = script.send(super::GroupRequest::Sync(sync));
    let again = script.send_join(static_join("b"));
    assert_eq!(script.synced(held), Err(FencedInstance));
    assert_eq!(script.state(), "PreparingRebalance");
    let to = script.send_join(Join { member: joined[0].member.clone(), ..static_join("a") });
    assert_eq!(script.joined(to).generation, 2);
    assert_eq!(script.joined(again).generation, 2);
}

#[test]
fn static_members_that_are_away_keep_their_place_in_a_rebalance() {
    let mut script = Script::new();
    let [a, b] = stable(&mut script);
    let to = script.send_join(Join { session_timeout_ms: 1_000_000, ..static_join("a") });
    let a2 = script.joined(to);
    let long = Join { session_timeout_ms: 1_000_000, ..static_join("b") };
    let to = script.send_join(long.clone());
    let b2 = script.joined(to);
    // A dynamic member comes; the static ones say nothing.
    let new = script.new_member();
    script.tick(60_000);
    let joined = script.joined(new);
    assert_eq!(joined.generation, 2);
    assert_eq!(joined.members.len(), 3, "a and b are still in it");
    assert_eq!(joined.leader, joined.member, "but do not lead");
    script.assign(&joined.member, 2, vec![a2.member.clone(), b2.member.clone()]).unwrap();
    // One of them is back in time.
    let to = script.send_join(long);
    let b3 = script.joined(to);
    assert_eq!(b3.generation, 2);
    let to = script.send_sync(&b3.member, 2);
    assert_eq!(script.synced(to).unwrap().assignment, b2.member);
    // The other never syncs.
    for _ in 0..60 {
        let _ = script.heartbeat(&joined.member, 2);
        let _ = script.heartbeat(&b3.member, 2);
        script.tick(1_000);
    }
    assert_eq!(script.state(), "PreparingRebalance");
    assert_eq!(script.heartbeat(&a2.member, 2), Err(UnknownMember));
    assert_eq!(script.heartbeat(&b3.member, 2), Err(RebalanceInProgress));
    assert_ne!(a.member, b.member);
}

#[test]
fn an_administrator_removes_by_instance() {
    let mut script = Script::new();
    let [a, _] = stable(&mut script);
    let leaving = Leaving { member: String::new(), instance: Some("b".into()) };
    assert_eq!(script.leave(vec![leaving.clone(), leaving]), [Ok(()), Err(UnknownMember)]);
    let to = script.send_join(Join { member: a.member.clone(), ..static_join("a") });
    assert_eq!(script.joined(to).members.len(), 1);
    let to = script.send_join(rejoin(&a.member));
    assert_eq!(script.joined(to).member, a.member, "known by its member id alone");
}

#[test]
fn a_full_group_takes_its_static_members_back() {
    let mut script = Script::with(|limits| limits.members_max = 2);
    stable(&mut script);
    let to = script.send_join(static_join("c"));
    assert_eq!(script.join_refused(to), (GroupRefusal::GroupFull, String::new()));
    let to = script.send_join(static_join("b"));
    script.joined(to);
}

#[test]
fn nobody_of_a_static_group_comes_back_to_a_rebalance() {
    let mut script = Script::new();
    let none = |instance| Join {
        rebalance_timeout_ms: Some(0),
        session_timeout_ms: 30_000,
        ..static_join(instance)
    };
    let asked = ["a", "b", "c"].map(|instance| script.send_join(none(instance)));
    script.tick(9_000);
    let joined = asked.map(|to| script.joined(to));
    script.tick(0);
    // Nobody has synced in no time at all: all are out, and no timer runs in circles.
    assert_eq!(script.state(), "Empty");
    assert_eq!(script.heartbeat(&joined[0].member, 1), Err(UnknownMember));
    let asked = ["a", "b"].map(|instance| script.send_join(static_join(instance)));
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    script.sync_all(&joined);
    script.leave(vec![Leaving { member: joined[1].member.clone(), instance: None }]);
    script.tick(10_000);
    assert_eq!(script.state(), "Empty", "the one that was left is lost");
}
