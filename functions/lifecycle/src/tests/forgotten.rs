//! Ended claims: when they are deleted, and their launches with them.

use super::*;

#[test]
fn an_ended_claim_is_looked_at_again_only_while_its_node_may_be_there_unseen() {
    let check = |ended_at, nodes: Vec<Node>, expires: bool, expected: (usize, Timestamp)| {
        let mut seen = input(minutes(5), vec![claim(0, terminated(0, ended_at))], nodes);
        if expires {
            seen.expiring.insert(name(0));
        }
        let (plan, _) = planned(&seen);
        assert_eq!((plan.forgotten.len(), plan.wake_at), expected, "{:?}", seen.snapshot);
    };
    // Nothing is due before the next audit.
    let later = minutes(15);
    check(minutes(4), vec![], false, (1, later));
    // The snapshot is as old as its end: the agent's next heartbeat decides.
    check(minutes(5), vec![], false, (0, minutes(6)));
    // The Node is seen to be there, so that its end will be.
    check(minutes(4), vec![not_ready(0)], false, (0, later));
    // It is forgotten already.
    check(minutes(5), vec![], true, (0, later));
}

#[test]
fn a_launch_is_forgotten_with_the_last_of_its_claims() {
    let check = |other: Option<ClaimState>, expires: bool, expected: usize| {
        let mut claims = vec![claim(0, terminated(0, minutes(8)))];
        claims.extend(other.clone().map(|state| claim(1, state)));
        let mut seen = with_launch(input(minutes(9), claims, vec![]), settled());
        for launch in seen.launches.values_mut() {
            launch.claims.push(LaunchClaim { name: name(1), pods: vec![] });
        }
        if expires {
            seen.expiring.insert(name(1));
        }
        let (plan, _) = planned(&seen);
        let forgotten = plan.forgotten.iter().any(|forgotten| forgotten.claim.name == name(0));
        assert_eq!((forgotten, plan.launches.len()), (true, expected), "{other:?}");
    };
    check(Some(terminated(1, minutes(8))), false, 1);
    check(Some(terminated(1, minutes(8))), true, 1);
    check(None, false, 1);
    check(Some(launched(1, minutes(8))), false, 0);
    // The snapshot is too old to prove that its Node doesn't exist.
    check(Some(terminated(1, minutes(9))), false, 0);
}
