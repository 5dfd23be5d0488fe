//! The steps of commands that are active.

use super::*;
use tenon_domain::catalog::{Availability, Unavailability};
use tenon_planning::disruption::{UndoCause, UndoneCommand};

fn launch_failed() -> ClaimState {
    let failure = tenon_domain::claim::LaunchFailure {
        reason: "InsufficientCapacityError".to_owned(),
        message: String::new(),
    };
    ClaimState::LaunchFailed { at: at(-5), failure }
}

fn undone(world: &DisruptionInput) -> Option<UndoCause> {
    match &plan(world).0.advances.first()?.step {
        CommandStep::Undo { candidates, cause } => {
            assert_eq!(candidates.as_slice(), [claim_name(0)]);
            Some(cause.clone())
        }
        CommandStep::Drain { .. } | CommandStep::Replace { .. } | CommandStep::Finish => None,
    }
}

/// The same world in which EC2 refused all capacity and may be asked again then.
fn exhausted(mut world: DisruptionInput, until: i64) -> DisruptionInput {
    let gone = Unavailability::Exhausted { until: at(until), last_resort_at: at(until + 120) };
    for pool in &mut world.world.pools {
        for offering in Arc::make_mut(&mut pool.types).iter_mut().flat_map(|one| &mut one.offerings) {
            offering.availability = Availability::Unavailable(gone.clone());
        }
    }
    world
}

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
    let failed = launch_failed;
    let (again, _) = plan(&commanded(failed(), 1, -1));
    let CommandStep::Replace { failed: gone, plan: replacement, attempts, not_before, .. } =
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
fn a_command_ends_once_its_candidates_are_terminating_without_pods() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let with = |state: ClaimState| {
        let mut world = commanded(ready.clone(), 0, -20);
        world.commands[0].state = CommandState::Draining { since: at(-10) };
        world.claims[0].claim.state = state;
        world
    };
    let left = |mut world: DisruptionInput| {
        world.claims[0].node = None;
        world
    };
    let advances = |world: DisruptionInput| plan(&world).0.advances;
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
    assert!(advances(with(draining)).is_empty());
    assert!(advances(with(terminating.clone())).is_empty(), "its deadline passed, and it has pods");
    assert_eq!(advances(left(with(terminating)))[0].step, CommandStep::Finish);
    assert_eq!(advances(with(terminated))[0].step, CommandStep::Finish);
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

#[test]
fn c113_a_command_without_a_replacement_is_undone_and_waits_longer_each_time() {
    let since = |seconds: i64, reason: RemovalReason, before: usize| {
        let mut world = commanded(launch_failed(), 3, -20);
        world.claims[0].claim.drift.as_mut().unwrap().since = at(-9000);
        world.commands[0].reason = reason;
        world.commands[0].state =
            CommandState::Replacing { since: at(seconds), attempts: 3, not_before: at(-20), unplanned: 0 };
        let earlier = UndoneCommand { claim: claim_name(0), reason, drifted_to: None, at: at(-5000) };
        world.undone = vec![earlier; before];
        undone(&world)
    };
    let again = |seconds| Some(UndoCause::NotReplaced { again: at(seconds) });
    for reason in [RemovalReason::Drifted, RemovalReason::Expired] {
        assert_eq!(since(-599, reason, 0), None);
        assert_eq!(since(-600, reason, 0), again(600));
        assert_eq!(since(-600, reason, 2), again(2400));
        assert_eq!(since(-600, reason, 9), again(7200));
    }
}

#[test]
fn a_command_isnt_undone_while_another_replacement_starts() {
    let started = ClaimState::Launched { instance: instance(2, NEW), at: at(-10) };
    let ready = ClaimState::Initialized { instance: instance(2, NEW), node: node_name(2), at: at(-1) };
    let over = || Some(UndoCause::NotReplaced { again: at(600) });
    for (state, expected) in
        [(started, None), (ready, over()), (ClaimState::Planned, None), (launch_failed(), over())]
    {
        let mut world = commanded(launch_failed(), 3, -20);
        let mut other = settled(2, NEW, Vec::new());
        other.node = other.node.filter(|_| state.node().is_some());
        other.claim.state = state;
        other.claim.role = CommandRole::Replacement(world.commands[0].id.clone());
        world.commands[0].replacements.push(claim_name(2));
        world.commands[0].state =
            CommandState::Replacing { since: at(-600), attempts: 3, not_before: at(-20), unplanned: 0 };
        world.claims.push(other);
        assert_eq!(undone(&world), expected);
    }
}

#[test]
fn a_pause_gives_the_node_back_whatever_its_replacement_does() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let launched = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    for replacement in [launch_failed(), ClaimState::Planned, launched, ready] {
        for reason in [RemovalReason::Drifted, RemovalReason::Expired, RemovalReason::Underutilized] {
            let mut world = commanded(replacement.clone(), 3, -20);
            world.commands[0].reason = reason;
            let pool = world.pools[0].name.clone();
            for by in [DisruptionPause::Annotation, DisruptionPause::Setting] {
                world.paused.insert(pool.clone(), by);
                assert_eq!(undone(&world), Some(UndoCause::Paused { pool: pool.clone(), by }), "{reason:?}");
            }
        }
    }
}

#[test]
fn c113_what_is_no_longer_drifted_stays_whatever_its_replacement_does() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let launched = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    for replacement in [launch_failed(), ClaimState::Planned, launched, ready] {
        let mut world = commanded(replacement, 0, -20);
        assert_eq!(undone(&world), None);
        // The class passes over the new image.
        world.classes[0].images[0].id = ImageId::parse(OLD).unwrap();
        assert_eq!(undone(&world), Some(UndoCause::NoLongerDrifted));
        // Expiry doesn't end.
        world.commands[0].reason = RemovalReason::Expired;
        assert_eq!(undone(&world), None);
        world.commands[0].reason = RemovalReason::Drifted;
        world.classes[0].readiness = ClassReadiness::NotReady;
        assert_eq!(undone(&world), None, "nothing is known");
    }
}

#[test]
fn a_requirement_that_is_given_back_ends_the_drift_of_a_node_that_the_world_no_longer_has() {
    let mut world = commanded(ClaimState::Planned, 0, -20);
    let node = world.claims[0].node.as_mut().unwrap();
    node.labels.insert("team".to_owned(), "a".to_owned());
    let name = node.name.clone();
    world.world.nodes.retain(|known| known.name != name);
    world.classes[0].images[0].id = ImageId::parse(OLD).unwrap();
    world.pools[0].template.requirements.add(Requirement::one_of("team", ["b"]));
    assert_eq!(undone(&world), None);
    world.pools[0].template.requirements =
        tenon_domain::requirement::Requirements::from_iter([Requirement::one_of("team", ["a", "b"])]);
    assert_eq!(undone(&world), Some(UndoCause::NoLongerDrifted));
}

#[test]
fn a_command_whose_replacement_was_refused_asks_ec2_again_once_that_is_due() {
    let (asks, report) = plan(&exhausted(commanded(launch_failed(), 1, -1), -10));
    let CommandStep::Replace { failed, plan: replacement, attempts, not_before, .. } = &asks.advances[0].step
    else {
        panic!("{asks:?}")
    };
    assert_eq!((failed.as_slice(), *attempts, *not_before), ([claim_name(1)].as_slice(), 1, at(0)));
    assert!(replacement.claims.len() == 1 && replacement.claims[0].asks_only());
    assert_eq!(refusals(&report), BTreeMap::new());
    let (waits, report) = plan(&exhausted(commanded(launch_failed(), 4, -1), 40));
    assert!(waits.is_empty());
    assert_eq!(waits.wake_at, Some(at(40)));
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
}

#[test]
fn of_candidates_that_nothing_is_available_for_one_at_a_time_asks_ec2() {
    let two =
        || cluster(vec![drifted(0, -300, busy(0)), drifted(1, -200, busy(1))], BudgetNodes::Percent(100));
    let (one, report) = plan(&exhausted(two(), -10));
    assert_eq!(candidates(&one), [claim_name(0).to_string()]);
    assert!(one.commands[0].replacement.claims[0].asks_only());
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
    assert_eq!(plan(&exhausted(two(), 40)).0.commands, []);
    // Another command waits for the answer, until it is undone.
    let others = |mut world: DisruptionInput| {
        let others = cluster(vec![drifted(3, -30, busy(3))], BudgetNodes::Percent(100));
        world.claims.extend(others.claims);
        world.world.nodes.extend(others.world.nodes);
        world
    };
    assert_eq!(plan(&others(exhausted(commanded(ClaimState::Planned, 0, -20), -10))).0.commands, []);
    let mut over = others(exhausted(commanded(launch_failed(), 3, -20), -10));
    over.commands[0].state =
        CommandState::Replacing { since: at(-600), attempts: 3, not_before: at(-20), unplanned: 0 };
    assert_eq!(candidates(&plan(&over).0), [claim_name(3).to_string()]);
}

#[test]
fn a_candidate_whose_command_was_undone_rests_while_others_go() {
    let mut world =
        cluster(vec![drifted(0, -300, busy(0)), drifted(1, -200, busy(1))], BudgetNodes::Percent(50));
    let target = world.claims[0].claim.drift.as_ref().unwrap().target();
    let of = |seconds| UndoneCommand {
        claim: claim_name(0),
        reason: RemovalReason::Drifted,
        drifted_to: Some(target.clone()),
        at: at(seconds),
    };
    world.undone = vec![of(-60)];
    let (others, report) = plan(&world);
    assert_eq!(candidates(&others), [claim_name(1).to_string()]);
    assert_eq!(others.wake_at, Some(at(540)));
    assert_eq!(refusals(&report), BTreeMap::from([("NotReplacedLately", 1)]));
    // Without pods it needs no replacement.
    let mut empty = world.clone();
    empty.claims[0].node.as_mut().unwrap().pods.clear();
    assert_eq!(candidates(&plan(&empty).0), [claim_name(0).to_string()]);
    // Nor where another node has room for its pods.
    let mut roomy = world.clone();
    let spare = cluster(vec![settled(2, NEW, Vec::new())], BudgetNodes::Percent(50));
    roomy.claims.extend(spare.claims);
    roomy.world.nodes.extend(spare.world.nodes);
    assert_eq!(candidates(&plan(&roomy).0)[0], claim_name(0).to_string());
    world.undone = vec![of(-600)];
    assert_eq!(candidates(&plan(&world).0), [claim_name(0).to_string()]);
    // Its present drift is a later one.
    world.undone = vec![of(-301)];
    assert_eq!(candidates(&plan(&world).0), [claim_name(0).to_string()]);
    // Or one to something else, as after another edit; an older release's command doesn't say what it was for.
    let other = Some("other".to_owned());
    for (drifted_to, first) in [(other, 0), (None, 1)] {
        world.undone = vec![UndoneCommand { drifted_to, ..of(-60) }];
        assert_eq!(candidates(&plan(&world).0), [claim_name(first).to_string()]);
    }
}

#[test]
fn a_candidate_that_needs_two_new_nodes_asks_ec2_for_one_first() {
    let large = || {
        let pods = [busy(0), busy(1)].concat();
        cluster(vec![drifted(0, -300, pods)], BudgetNodes::Percent(100))
    };
    let (asks, report) = plan(&exhausted(large(), -10));
    let command = &asks.commands[0];
    assert_eq!((command.replacement.claims.len(), command.unplanned), (1, 1));
    assert!(command.replacement.claims[0].asks_only());
    assert_eq!(refusals(&report), BTreeMap::new());
    assert_eq!(plan(&exhausted(large(), 40)).0.commands, []);
    let (both, _) = plan(&large());
    assert_eq!((both.commands[0].replacement.claims.len(), both.commands[0].unplanned), (2, 0));
}

/// A command whose candidate has two pods, and a replacement for one of them.
fn half_replaced(replacement: ClaimState, since: i64) -> DisruptionInput {
    let mut world = commanded(replacement, 0, -20);
    world.claims[0].node.as_mut().unwrap().pods.extend(busy(9));
    world.commands[0].state =
        CommandState::Replacing { since: at(since), attempts: 0, not_before: at(-20), unplanned: 1 };
    world
}

#[test]
fn after_the_answer_the_other_replacements_are_planned_and_the_candidate_drains_with_all() {
    let ready = || ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let step = |world: &DisruptionInput| plan(world).0.advances.into_iter().next().map(|one| one.step);
    let planned = |world: &DisruptionInput| match step(world) {
        Some(CommandStep::Replace { failed, plan, unplanned, .. }) => {
            Some((failed.len(), plan.claims.len(), unplanned))
        }
        Some(CommandStep::Drain { .. } | CommandStep::Undo { .. } | CommandStep::Finish) | None => None,
    };
    assert_eq!(step(&half_replaced(ClaimState::Planned, -20)), None, "EC2 hasn't answered");
    assert_eq!(planned(&half_replaced(ready(), -20)), Some((0, 1, 0)), "one pod has its room");
    assert_eq!(planned(&half_replaced(launch_failed(), -20)), Some((1, 2, 0)));
    // While EC2 has nothing, one is asked for at a time.
    assert_eq!(planned(&exhausted(half_replaced(launch_failed(), -20), -10)), Some((1, 1, 1)));
    assert_eq!(planned(&exhausted(half_replaced(ready(), -20), -10)), Some((0, 1, 0)));
    let (waits, report) = plan(&exhausted(half_replaced(ready(), -20), 40));
    assert!(waits.advances.is_empty());
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
}

#[test]
fn a_command_with_a_part_of_its_replacements_is_undone_after_ten_minutes() {
    let ready = || ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let starts = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    assert_eq!(undone(&exhausted(half_replaced(ready(), -599), 40)), None);
    let over = Some(UndoCause::NotReplaced { again: at(600) });
    assert_eq!(undone(&exhausted(half_replaced(ready(), -600), -10)), over);
    assert_eq!(undone(&exhausted(half_replaced(starts, -600), -10)), None);
    // Another node of the pool doesn't ask meanwhile.
    let others = cluster(vec![drifted(3, -30, busy(3))], BudgetNodes::Percent(100));
    let mut world = half_replaced(ready(), -20);
    world.claims.extend(others.claims);
    world.world.nodes.extend(others.world.nodes);
    assert_eq!(plan(&exhausted(world, -10)).0.commands, []);
}
