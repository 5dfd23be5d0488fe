//! EC2's answers about instances: ends, orphans and tags.

use super::*;

#[test]
fn nothing_terminates_before_ec2_was_asked_in_the_same_pass() {
    let seen = input(minutes(5), vec![claim(0, draining(0, minutes(4), Some(minutes(5))))], vec![node(0)]);
    let (plan, _) = planned(&seen);
    assert_eq!(plan.steps[0].after.phase(), ClaimPhase::Drained);
    assert!(plan.asks_ec2 && plan.terminate.is_empty());
}

/// Plans of the same class count it after the Node's end.
#[test]
fn a_claim_keeps_the_storage_that_its_node_reported_last() {
    let check = |reported: Option<i64>, expected: Option<u64>| {
        let before = Claim { storage: Some(20 << 30), ..claim(0, draining(0, minutes(4), Some(minutes(5)))) };
        let capacity = reported.map_or_else(ResourceList::new, |mebi| {
            ResourceList::new().with(ResourceName::EPHEMERAL_STORAGE, Quantity::from_mebi(mebi))
        });
        let nodes = vec![Node { capacity, ..node(0) }];
        let (plan, _) = planned(&input(minutes(5), vec![before], nodes));
        assert_eq!(plan.steps[0].after.phase(), ClaimPhase::Drained);
        assert_eq!(plan.steps[0].after.storage, expected, "{reported:?}");
    };
    check(Some(10 << 10), Some(10 << 30));
    check(None, Some(20 << 30));
}

#[test]
fn terminations_are_repeated_until_ec2_says_so() {
    let at = |state: InstanceState| {
        let seen = input(minutes(5), vec![claim(0, terminating(0, minutes(4)))], vec![not_ready(0)]);
        with_ec2(seen, vec![instance(0, state, EPOCH)])
    };
    assert_eq!(planned(&at(InstanceState::Running)).0.terminate.len(), 1);
    assert_eq!(planned(&at(InstanceState::ShuttingDown)).0.terminate.len(), 0);
    check(&at(InstanceState::ShuttingDown), &[]);
    check(&at(InstanceState::Terminated), &[Decision::Terminated]);
    let (plan, _) = planned(&at(InstanceState::Terminated));
    assert_eq!(plan.steps[0].action.as_ref().unwrap().kind, ActionKind::Finalize);
    // Not listed: believed after the consistency delay.
    let missing = |since| with_ec2(input(minutes(5), vec![claim(0, terminating(0, since))], vec![]), vec![]);
    check(&missing(minutes(4)), &[]);
    check(&missing(minutes(3)), &[Decision::Terminated]);
}

#[test]
fn c122_a_ready_node_vetoes_an_instance_that_is_not_listed() {
    let gone = |state, nodes| with_ec2(input(minutes(9), vec![claim(0, state)], nodes), vec![]);
    check(&gone(initialized(0, minutes(1)), vec![not_ready(0)]), &[Decision::Terminated]);
    check(&gone(initialized(0, minutes(1)), vec![node(0)]), &[]);
    check(&gone(registered(0, minutes(8)), vec![not_ready(0)]), &[]);
    check(&gone(launched(0, minutes(1)), vec![]), &[]);
    let listed = |state| {
        let seen = input(minutes(9), vec![claim(0, initialized(0, minutes(1)))], vec![not_ready(0)]);
        with_ec2(seen, vec![instance(0, state, EPOCH)])
    };
    check(&listed(InstanceState::Running), &[]);
    let mut blind = gone(initialized(0, minutes(1)), vec![]);
    blind.snapshot = Err(Waiting::SnapshotStale { age: SignedDuration::from_secs(91) });
    check(&blind, &[]);
}

#[test]
fn c074_what_ec2_stops_or_terminates_goes() {
    let listed = |state| {
        let seen = input(minutes(9), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
        with_ec2(seen, vec![instance(0, state, EPOCH)])
    };
    check(&listed(InstanceState::Stopping), &[Decision::Draining]);
    check(&listed(InstanceState::Stopped), &[Decision::Draining]);
    check(
        &listed(InstanceState::ShuttingDown),
        &[Decision::Draining, Decision::Drained, Decision::Terminating],
    );
    check(&listed(InstanceState::Terminated), &[Decision::Terminated]);
    let (plan, _) = planned(&listed(InstanceState::Terminated));
    assert_eq!(plan.steps[0].after.state.removal(), Some(RemovalReason::InstanceTerminated));
    assert!(plan.steps[0].loses_room());
}

#[test]
fn c079_an_instance_that_nobody_owns_goes_after_its_grace() {
    let seen = |launched_at, nodes| {
        with_launch(
            with_ec2(
                input(minutes(9), vec![], nodes),
                vec![instance(0, InstanceState::Running, launched_at)],
            ),
            settled(),
        )
    };
    let orphans = |input: &LifecycleInput| planned(input).0.audit.orphans.len();
    assert_eq!(orphans(&seen(minutes(1), vec![])), 1);
    assert_eq!(orphans(&seen(minutes(4), vec![])), 1);
    assert_eq!(orphans(&seen(minutes(4) + SignedDuration::from_secs(1), vec![])), 0);
    assert_eq!(orphans(&seen(minutes(5), vec![])), 0);
    assert_eq!(orphans(&seen(minutes(1), vec![node(0)])), 0);
    let requested = LaunchState::Requested { attempts: 0, not_before: EPOCH };
    assert_eq!(orphans(&with_launch(seen(minutes(1), vec![]), requested)), 0);
    let mut claimed = seen(minutes(1), vec![]);
    claimed.claims.insert(name(0), claim(0, launched(0, minutes(1))));
    assert_eq!(orphans(&claimed), 0);
    let mut written_since = seen(minutes(1), vec![]);
    let owner = InstanceOwner { instance: id(0), cluster: cluster(), claim: name(0), offering: None };
    written_since.ec2.as_mut().unwrap().owners.insert(id(0), owner);
    assert_eq!(orphans(&written_since), 0);
    let mut blind = seen(minutes(1), vec![]);
    blind.snapshot = Err(Waiting::SnapshotMissing);
    assert_eq!(orphans(&blind), 0);
    let (plan, _) = planned(&seen(minutes(1), vec![]));
    assert_eq!(plan.audit.journal[0].decision, Decision::OrphanTerminated);
}

#[test]
fn c079_an_instance_that_nobody_owns_is_left_alone_for_five_minutes_after_its_launch_settled() {
    let check = |settled_at: Timestamp, orphans: usize| {
        let launched = vec![instance(0, InstanceState::Running, minutes(1))];
        let settled = LaunchState::Settled { at: settled_at, instances: 1 };
        let seen = with_launch(with_ec2(input(minutes(20), vec![], vec![]), launched), settled);
        assert_eq!(planned(&seen).0.audit.orphans.len(), orphans, "settled at {settled_at}");
    };
    let second = SignedDuration::from_secs(1);
    check(minutes(2), 1);
    check(minutes(15), 1);
    check(minutes(15) + second, 0);
    check(minutes(20), 0);
}

#[test]
fn c079_five_go_in_an_hour_and_then_a_person_is_asked() {
    let orphans = (0..100).map(|n| instance(n, InstanceState::Running, EPOCH)).collect();
    let first = with_launch(with_ec2(input(minutes(9), vec![], vec![]), orphans), settled());
    let (plan, _) = planned(&first);
    assert_eq!((plan.audit.orphans.len(), plan.audit.journal.len(), &plan.audit.halt), (5, 5, &None));
    let left = (0..100).map(|n| instance(n, InstanceState::Running, EPOCH)).collect();
    let mut second = with_launch(with_ec2(input(minutes(10), vec![], vec![]), left), settled());
    second.audit = plan.audit.record.unwrap();
    let (plan, report) = planned(&second);
    assert!(plan.audit.halt.is_some() && plan.audit.orphans.is_empty());
    assert_eq!(told(report), ["TableRestored"]);
    // The halt stays: nothing is terminated, and it isn't written again.
    second.halt = plan.audit.halt;
    let (plan, _) = planned(&second);
    assert!(plan.audit.halt.is_none() && plan.audit.orphans.is_empty());
}

#[test]
fn a_restored_table_kills_nothing() {
    let mut seen = with_ec2(
        input(minutes(9), vec![claim(1, draining(1, minutes(1), Some(minutes(2))))], vec![]),
        vec![instance(0, InstanceState::Running, EPOCH), instance(1, InstanceState::Running, EPOCH)],
    );
    seen.ec2.as_mut().unwrap().unknown_launches.insert("launch-1".to_owned());
    let (plan, _) = planned(&seen);
    let halt = plan.audit.halt.unwrap();
    assert!(halt.reason.contains(id(0).as_str()), "{}", halt.reason);
    assert!(plan.terminate.is_empty() && plan.audit.orphans.is_empty());
    assert!(plan.steps.iter().all(|step| step.after.phase() < ClaimPhase::Terminating));
    // Earlier terminations wait too.
    let mut told = with_ec2(
        input(minutes(9), vec![claim(1, terminating(1, minutes(1)))], vec![]),
        vec![instance(1, InstanceState::Running, EPOCH)],
    );
    told.halt = Some(Halt { since: EPOCH, reason: String::new() });
    assert!(planned(&told).0.terminate.is_empty());
}

#[test]
fn missing_tags_are_repaired() {
    let bare = Instance { tags: Tags::new(), ..instance(0, InstanceState::Running, EPOCH) };
    let (plan, _) =
        planned(&with_ec2(input(minutes(9), vec![claim(0, launched(0, minutes(1)))], vec![]), vec![bare]));
    assert_eq!(
        plan.audit.tags[&id(0)].get(tenon_domain::tags::CLAIM).map(String::as_str),
        Some(name(0).as_str())
    );
    let whole = vec![instance(0, InstanceState::Running, EPOCH)];
    let (plan, _) =
        planned(&with_ec2(input(minutes(9), vec![claim(0, launched(0, minutes(1)))], vec![]), whole));
    assert!(plan.audit.tags.is_empty());
}

#[test]
fn a_claim_is_forgotten_once_its_node_is_gone() {
    let ended =
        |nodes| with_launch(input(minutes(9), vec![claim(0, terminated(0, minutes(8)))], nodes), settled());
    assert_eq!(planned(&ended(vec![not_ready(0)])).0.forgotten.len(), 0);
    let (plan, _) = planned(&ended(vec![]));
    assert_eq!((plan.forgotten.len(), plan.launches.len()), (1, 1));
    let mut again = ended(vec![]);
    again.expiring.insert(name(0));
    let (plan, _) = planned(&again);
    assert_eq!((plan.forgotten.len(), plan.launches.len()), (0, 0));
}
