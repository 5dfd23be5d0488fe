//! The steps of commands that are active.

use super::*;

#[test]
fn candidates_drain_once_their_replacements_are_initialised_and_not_before() {
    let launched = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    let (waits, _) = plan(&commanded(launched, 0, -20));
    assert!(waits.is_empty());
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let (drains, _) = plan(&commanded(ready, 0, -20));
    assert_eq!(drains.advances[0].step, CommandStep::Drain { candidates: vec![claim_name(0)] });
}

#[test]
fn with_two_replacements_candidates_drain_once_both_are_initialised() {
    let ready = |index| ClaimState::Initialized {
        instance: instance(index, NEW),
        node: node_name(index),
        at: at(-1),
    };
    let world = |second: ClaimState| {
        let mut world = commanded(ready(1), 0, -20);
        let mut other = settled(2, NEW, Vec::new());
        other.node = other.node.filter(|_| second.node().is_some());
        other.claim.state = second;
        other.claim.role = CommandRole::Replacement(world.commands[0].id.clone());
        world.commands[0].replacements.push(claim_name(2));
        world.claims.push(other);
        world
    };
    let starts = [
        ClaimState::Planned,
        ClaimState::Launched { instance: instance(2, NEW), at: at(-10) },
        ClaimState::Registered { instance: instance(2, NEW), node: node_name(2), at: at(-5) },
    ];
    for state in starts {
        let (waits, _) = plan(&world(state.clone()));
        assert!(waits.is_empty(), "{state:?}: {waits:?}");
    }
    let (drains, _) = plan(&world(ready(2)));
    assert_eq!(drains.advances[0].step, CommandStep::Drain { candidates: vec![claim_name(0)] });
}

#[test]
fn c113_a_failed_replacement_is_replaced_after_a_back_off() {
    let failed = || ClaimState::LaunchFailed {
        at: at(-5),
        failure: tenon_domain::claim::LaunchFailure {
            reason: "InsufficientCapacityError".to_owned(),
            message: String::new(),
        },
    };
    let (again, _) = plan(&commanded(failed(), 1, -1));
    let CommandStep::Replace { failed: gone, plan: replacement, attempts, not_before } =
        &again.advances[0].step
    else {
        panic!("{again:?}")
    };
    assert_eq!((gone.as_slice(), replacement.claims.len(), *attempts), ([claim_name(1)].as_slice(), 1, 2));
    assert_eq!(*not_before, at(20));
    assert_eq!(plan(&commanded(failed(), 1, 0)).0.advances.len(), 1, "its time has come");
    let (later, _) = plan(&commanded(failed(), 1, 15));
    assert!(later.is_empty());
    assert_eq!(later.wake_at, Some(at(15)));
}

#[test]
fn a_command_without_candidates_ends() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let mut world = commanded(ready, 0, -20);
    world.claims.remove(0);
    assert_eq!(plan(&world).0.advances[0].step, CommandStep::Finish);
}

#[test]
fn a_command_ends_once_its_candidates_instances_are_gone() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let with = |state: ClaimState| {
        let mut world = commanded(ready.clone(), 0, -20);
        world.commands[0].state = CommandState::Draining { since: at(-10) };
        world.claims[0].claim.state = state;
        plan(&world).0.advances
    };
    let draining = ClaimState::Draining {
        instance: instance(0, OLD),
        node: Some(node_name(0)),
        reason: RemovalReason::Drifted,
        at: at(-5),
        deadline: None,
    };
    let terminating = ClaimState::Terminating {
        instance: instance(0, OLD),
        node: None,
        reason: RemovalReason::Drifted,
        at: at(-5),
    };
    let terminated = ClaimState::Terminated {
        instance: Some(instance(0, OLD)),
        node: None,
        reason: RemovalReason::Drifted,
        at: at(-5),
    };
    assert!(with(draining).is_empty());
    assert!(with(terminating).is_empty());
    assert_eq!(with(terminated)[0].step, CommandStep::Finish);
}

#[test]
fn candidates_whose_pods_are_gone_drain_without_their_replacement_where_their_nodes_are_seen() {
    let launched = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    let mut world = commanded(launched, 0, -20);
    world.claims[0].node.as_mut().unwrap().pods.clear();
    assert_eq!(plan(&world).0.advances[0].step, CommandStep::Drain { candidates: vec![claim_name(0)] });
    world.claims[0].node = None;
    assert!(plan(&world).0.is_empty());
}
