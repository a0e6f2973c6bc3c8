//! Scripts of members: sessions, heartbeats, leaving, descriptions, lists, and restarts.

use super::script::{join, rejoin, session, subscription, Script, GROUP};
use super::{
    DeleteRefusal, DescribedMember, GroupOutput, GroupRefusal, GroupRequest, GroupState, Join,
    Leaving, ListFilter, Session,
};

use GroupRefusal::{
    EmptyGroupId, IllegalGeneration, RebalanceInProgress, UnknownGroup, UnknownMember,
};

fn leaving(member: &str, instance: Option<&str>) -> Leaving {
    Leaving { member: member.into(), instance: instance.map(String::from) }
}

#[test]
fn heartbeats_in_each_state() {
    let mut script = Script::new();
    assert_eq!(script.heartbeat("m", 0), Err(UnknownMember), "no group");
    assert_eq!(script.beat(Session::default()), Err(EmptyGroupId));
    let to = script.new_member();
    script.tick(3_000);
    let id = script.joined(to).member;
    assert_eq!(script.heartbeat(&id, 1), Ok(()), "completing");
    script.assign(&id, 1, vec![]).unwrap();
    assert_eq!(script.heartbeat(&id, 1), Ok(()), "stable");
    assert_eq!(script.heartbeat(&id, 0), Err(IllegalGeneration));
    assert_eq!(script.heartbeat(&id, 2), Err(IllegalGeneration));
    assert_eq!(script.heartbeat("stranger", 1), Err(UnknownMember));
    let instance = Some("i".to_string());
    assert_eq!(script.beat(Session { instance, ..session(&id, 1) }), Err(UnknownMember));
    script.new_member();
    assert_eq!(script.heartbeat(&id, 1), Err(RebalanceInProgress), "preparing");
    assert_eq!(script.heartbeat(&id, 0), Err(IllegalGeneration));
}

#[test]
fn a_session_ends_without_a_sign_of_life() {
    let mut script = Script::new();
    let ids = script.stable(2);
    script.tick(9_000);
    assert_eq!(script.heartbeat(&ids[0], 1), Ok(()));
    script.tick(999);
    assert_eq!(script.state(), "Stable");
    script.tick(1);
    assert_eq!(script.state(), "PreparingRebalance");
    assert_eq!(script.heartbeat(&ids[1], 1), Err(UnknownMember));
    assert_eq!(script.heartbeat(&ids[0], 1), Err(RebalanceInProgress));
    script.tick(9_999);
    assert_eq!(script.state(), "PreparingRebalance");
    script.tick(1);
    assert_eq!(script.state(), "Empty");
}

#[test]
fn joins_syncs_and_commits_are_signs_of_life() {
    let check = |live: fn(&mut Script, &str)| {
        let mut script = Script::new();
        let id = script.stable(1).remove(0);
        script.tick(9_000);
        live(&mut script, &id);
        script.tick(9_999);
        assert_eq!(script.machine.counts().members, 1);
        script.tick(1);
        assert_eq!(script.machine.counts().members, 0);
    };
    check(|script, id| assert_eq!(script.heartbeat(id, 1), Ok(())));
    check(|script, id| assert_eq!(script.commit(session(id, 1), vec![]), Ok(vec![])));
    check(|script, id| {
        let to = script.send_sync(id, 1);
        assert!(script.synced(to).is_ok());
    });
    check(|script, id| {
        let to = script.send_join(rejoin(id));
        assert_eq!(script.joined(to).generation, 2);
    });
    let mut script = Script::new();
    let ids = script.stable(2);
    script.tick(9_000);
    script.heartbeat(&ids[0], 1).unwrap();
    let to = script.send_join(rejoin(&ids[1]));
    script.joined(to);
    script.tick(9_999);
    assert_eq!(script.machine.counts().members, 2);
}

#[test]
fn heartbeats_set_no_timers() {
    let mut script = Script::new();
    let id = script.stable(1).remove(0);
    let timers = script.timers.clone();
    for _ in 0..6 {
        script.tick(1_000);
        script.heartbeat(&id, 1).unwrap();
        assert_eq!(script.timers, timers);
    }
}

#[test]
fn a_shorter_session_counts_at_once() {
    let mut script = Script::new();
    let to = script.send_join(Join { session_timeout_ms: 100_000, ..join() });
    script.tick(3_000);
    let id = script.joined(to).member;
    script.send_join(Join { session_timeout_ms: 6_000, ..rejoin(&id) });
    script.assign(&id, 1, vec![]).unwrap();
    let to = script.send_join(Join { session_timeout_ms: 6_000, ..rejoin(&id) });
    assert_eq!(script.joined(to).generation, 2);
    script.assign(&id, 2, vec![]).unwrap();
    script.tick(6_000);
    assert_eq!(script.machine.counts().members, 0);
}

#[test]
fn members_leave() {
    let mut script = Script::new();
    let ids = script.stable(3);
    assert_eq!(
        script.leave(vec![
            leaving("stranger", None),
            leaving(&ids[1], None),
            leaving("", Some("i")),
            leaving("", None),
            leaving(&ids[2], Some("i")),
            leaving(&ids[1], None),
        ]),
        [
            Err(UnknownMember),
            Ok(()),
            Err(UnknownMember),
            Err(UnknownMember),
            Err(UnknownMember),
            Err(UnknownMember)
        ]
    );
    assert_eq!(script.state(), "PreparingRebalance");
    let asked = [&ids[0], &ids[2]].map(|id| script.send_join(rejoin(id)));
    assert_eq!(asked.map(|to| script.joined(to).generation), [2, 2]);
    assert_eq!(script.leave(vec![leaving("stranger", None)]), [Err(UnknownMember)]);
    assert_eq!(script.state(), "CompletingRebalance", "nobody left");
    // A rebalance does not wait for who has left.
    let new = script.new_member();
    script.send_join(rejoin(&ids[0]));
    assert_eq!(script.answer(new), None);
    assert_eq!(script.leave(vec![leaving(&ids[2], None)]), [Ok(())]);
    assert_eq!(script.joined(new).generation, 3);
}

#[test]
fn leaving_answers_what_the_member_waits_for() {
    let mut script = Script::new();
    let asked = [script.new_member(), script.new_member()];
    script.tick(6_000);
    let joined = asked.map(|to| script.joined(to));
    let held = script.send_sync(&joined[1].member, 1);
    assert_eq!(script.leave(vec![leaving(&joined[1].member, None)]), [Ok(())]);
    assert_eq!(script.synced(held), Err(UnknownMember));
    let held = script.new_member();
    let id = format!("c-{}", uuid::Uuid::from_u128(script.ids));
    assert_eq!(script.leave(vec![leaving(&id, None)]), [Ok(())]);
    assert_eq!(script.join_refused(held), (UnknownMember, String::new()));
}

#[test]
fn who_was_told_an_id_may_leave() {
    let mut script = Script::new();
    let to = script.send_join(Join { two_steps: true, ..join() });
    let (_, pending) = script.join_refused(to);
    assert_eq!(script.leave(vec![leaving(&pending, None)]), [Ok(())]);
    assert_eq!(script.state(), "Dead");
    assert_eq!(script.timers.len(), 1, "the one for expiry");
    assert_eq!(script.leave(vec![leaving(&pending, None)]), [Err(UnknownMember)]);
    let empty = GroupRequest::Leave { group: String::new(), members: vec![] };
    assert_eq!(script.ask(empty), GroupOutput::Leave(Err(EmptyGroupId)));
}

#[test]
fn a_description_shows_what_is_settled() {
    let mut script = Script::new();
    assert_eq!(script.describe(), None);
    let ids = script.stable(1);
    let described = script.describe().unwrap();
    let member = DescribedMember {
        member: ids[0].clone(),
        instance: None,
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        subscription: subscription(&["t"]),
        assignment: ids[0].clone().into(),
    };
    assert_eq!(described.state, GroupState::Stable);
    assert_eq!((&*described.protocol_type, &*described.protocol), ("consumer", "range"));
    assert_eq!(described.members, [member.clone()]);
    script.new_member();
    let described = script.describe().unwrap();
    assert_eq!(described.state, GroupState::PreparingRebalance);
    assert_eq!((&*described.protocol_type, &*described.protocol), ("consumer", ""));
    let bare = DescribedMember {
        subscription: bytes::Bytes::new(),
        assignment: bytes::Bytes::new(),
        ..member
    };
    assert_eq!(described.members[0], bare);
}

#[test]
fn lists_are_filtered_without_case() {
    let mut script = Script::new();
    script.stable(1);
    let simple = Session { group: "simple".into(), generation: -1, ..Session::default() };
    script.commit(simple, vec![super::script::offset("t", 0, 1)]).unwrap();
    let mut list = |states: &[&str], types: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let filter = ListFilter { states: owned(states), types: owned(types) };
        let GroupOutput::List(listed) = script.ask(GroupRequest::List(filter)) else { panic!() };
        let name = |listed: super::Listed| (listed.group, listed.protocol_type, listed.state);
        listed.into_iter().map(name).collect::<Vec<_>>()
    };
    let group = (GROUP.to_string(), "consumer".to_string(), GroupState::Stable);
    let simple = ("simple".to_string(), String::new(), GroupState::Empty);
    assert_eq!(list(&[], &[]), [group.clone(), simple.clone()]);
    assert_eq!(list(&["stable"], &["classic"]), std::slice::from_ref(&group));
    assert_eq!(list(&["Empty", "STABLE"], &["Classic", "consumer"]), [group, simple]);
    assert_eq!(list(&["dead"], &[]), []);
    assert_eq!(list(&[], &["consumer"]), []);
}

#[test]
fn only_empty_groups_are_deleted() {
    let mut script = Script::new();
    let delete = |script: &mut Script| {
        let GroupOutput::Delete(result) = script.ask(GroupRequest::Delete { group: GROUP.into() })
        else {
            panic!("other answer")
        };
        result
    };
    assert_eq!(delete(&mut script), Err(DeleteRefusal::UnknownGroup));
    let ids = script.stable(1);
    script.commit(session(&ids[0], 1), vec![super::script::offset("t", 0, 1)]).unwrap();
    assert_eq!(delete(&mut script), Err(DeleteRefusal::NotEmpty));
    script.leave(vec![leaving(&ids[0], None)]);
    let to = script.send_join(Join { two_steps: true, ..join() });
    let (_, pending) = script.join_refused(to);
    assert_eq!(delete(&mut script), Ok(()));
    assert_eq!(script.state(), "Dead");
    assert_eq!(script.machine.counts(), super::Counts::default());
    let to = script.send_join(rejoin(&pending));
    assert_eq!(script.join_refused(to), (UnknownMember, pending));
    script.restart();
    assert_eq!(script.machine.counts(), super::Counts::default());
    assert_eq!(script.commit(session("m", 0), vec![]), Err(UnknownGroup));
}

#[test]
fn a_restart_finds_the_group_as_its_leader_assigned_it() {
    let mut script = Script::new();
    let ids = script.stable(2);
    let before = script.describe();
    script.tick(9_000);
    script.restart();
    assert_eq!(script.describe(), before);
    script.tick(9_999);
    assert_eq!(script.heartbeat(&ids[0], 1), Ok(()), "a full session from the start on");
    script.tick(1);
    assert_eq!(script.state(), "PreparingRebalance", "the other has gone");
    // A rebalance that was not stored: the generation before is there again.
    let to = script.send_join(rejoin(&ids[0]));
    assert_eq!(script.joined(to).generation, 2);
    script.restart();
    assert_eq!(script.state(), "Stable");
    assert_eq!(script.heartbeat(&ids[0], 2), Err(IllegalGeneration));
    let asked = [&ids[0], &ids[1]].map(|id| script.send_join(rejoin(id)));
    let joined = asked.map(|to| script.joined(to));
    assert_eq!(joined[0].leader, ids[0], "the leader is stored, too");
    assert_eq!(script.sync_all(&joined), ids);
    script.leave(ids.iter().map(|id| leaving(id, None)).collect());
    script.restart();
    assert_eq!(script.state(), "Empty");
    let to = script.new_member();
    script.tick(3_000);
    assert_eq!(script.joined(to).generation, 4);
}
