//! Claims whose Nodes join, drain and end: when they count as registered, and the time of the next look.

use super::*;
use tenon_domain::evidence::HEARTBEAT_EVERY;

use crate::TERMINATION_POLL;

/// When to look again where nothing is due before the next audit.
fn next_audit(seen: &LifecycleInput) -> Timestamp {
    seen.now + crate::AUDIT_EVERY
}

#[test]
fn a_node_is_registered_by_its_label_once_the_taint_of_its_boot_is_gone() {
    let check = |label: &str, taints: Vec<Taint>, expected: &[Decision]| {
        let labels = BTreeMap::from([(labels::REGISTERED.to_owned(), label.to_owned())]);
        let meta = ObjectMeta { labels, ..node(0).meta };
        let joined = Node { meta, taints: taints.clone(), ..node(0) };
        let seen = input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![joined]);
        assert_eq!(phases(&seen), expected, "{label} {taints:?}");
    };
    let joined = [Decision::Registered, Decision::Initialized];
    let dedicated = || Taint::new("dedicated", TaintEffect::NoSchedule);
    check("true", vec![], &joined);
    check("true", vec![dedicated()], &joined);
    check("true", vec![Taint::unregistered()], &[]);
    check("true", vec![dedicated(), Taint::unregistered()], &[]);
    check("false", vec![], &[]);
}

#[test]
fn c115_a_node_that_is_neither_registered_nor_ready_in_time_is_given_up() {
    let seen = |readiness| {
        let joined = Node { meta: ObjectMeta::default(), readiness, ..node(0) };
        let seen = input(minutes(25), vec![claim(0, launched(0, minutes(10)))], vec![joined]);
        with_ec2(seen, vec![instance(0, InstanceState::Running, minutes(10))])
    };
    let late = seen(Readiness::NotReady);
    check(&late, &[Decision::Terminating]);
    let (plan, report) = planned(&late);
    assert_eq!(plan.steps[0].after.state.removal(), Some(RemovalReason::RegistrationTimeout));
    assert_eq!(told(report), [""; 0]);
    let hangs = seen(Readiness::Ready);
    check(&hangs, &[]);
    assert_eq!(told(planned(&hangs).1), ["NotRegistered"]);
}

#[test]
fn a_drain_that_is_seen_is_looked_at_again_when_it_is_due() {
    let check = |deadline: Option<Timestamp>, nodes: Vec<Node>, expected: Option<Timestamp>| {
        // The snapshot is as old as the drain: without the Node it shows nothing.
        let seen = input(minutes(5), vec![claim(0, draining(0, minutes(5), deadline))], nodes);
        assert_eq!(phases(&seen), []);
        assert_eq!(planned(&seen).0.wake_at, expected.unwrap_or_else(|| next_audit(&seen)), "{deadline:?}");
    };
    let soon = minutes(5) + HEARTBEAT_EVERY;
    check(None, vec![node(0)], None);
    check(Some(minutes(6)), vec![node(0)], Some(minutes(6)));
    check(None, vec![], Some(soon));
    check(Some(minutes(6)), vec![], Some(soon));
    let sooner = minutes(5) + SignedDuration::from_secs(10);
    check(Some(sooner), vec![], Some(sooner));
}

#[test]
fn an_instance_that_terminates_is_looked_at_every_half_minute() {
    let seen = || input(minutes(5), vec![claim(0, terminating(0, minutes(4)))], vec![not_ready(0)]);
    let running = vec![instance(0, InstanceState::Running, EPOCH)];
    for seen in [seen(), with_ec2(seen(), running)] {
        let (plan, _) = planned(&seen);
        assert_eq!((plan.asks_ec2, plan.wake_at), (true, minutes(5) + TERMINATION_POLL));
    }
}

#[test]
fn a_missing_agent_is_waited_for_by_claims_that_live_and_by_nothing_else() {
    let check = |claims: Vec<Claim>, waits: bool| {
        let mut seen = input(minutes(5), claims, vec![]);
        let stale = Waiting::SnapshotStale { age: SignedDuration::from_secs(91) };
        seen.snapshot = Err(stale.clone());
        let (plan, report) = planned(&seen);
        let expected = waits.then(|| stale.into_str().to_owned());
        assert_eq!(told(report), expected.into_iter().collect::<Vec<_>>());
        assert_eq!(plan.wake_at, if waits { minutes(6) } else { next_audit(&seen) });
    };
    check(vec![claim(0, initialized(0, minutes(1)))], true);
    check(vec![claim(0, initialized(0, minutes(1))), claim(1, terminated(1, minutes(4)))], true);
    check(vec![claim(0, terminated(0, minutes(4)))], false);
    check(vec![], false);
}

#[test]
fn a_node_that_stays_uninitialised_is_told_with_why_after_some_minutes() {
    let check = |now: Timestamp, expected: &[&str]| {
        let seen = input(now, vec![claim(0, registered(0, minutes(1)))], vec![not_ready(0)]);
        assert_eq!(told(planned(&seen).1), expected, "{now}");
    };
    check(minutes(2), &[]);
    check(minutes(10), &["NotInitialized"]);
}

#[test]
fn a_node_that_is_never_initialised_is_given_up_with_what_is_missing() {
    let seen = |now| input(now, vec![claim(0, registered(0, minutes(1)))], vec![not_ready(0)]);
    let (waits, _) = planned(&seen(minutes(30)));
    assert_eq!((waits.steps.len(), waits.wake_at), (0, minutes(31)));
    let (plan, _) = planned(&seen(minutes(31)));
    let step = &plan.steps[0];
    assert_eq!(step.after.state.removal(), Some(RemovalReason::InitializationTimeout));
    assert_eq!(
        step.journal[0].message,
        format!(
            "draining NodeClaim `{}` (initialization timeout): 30 minutes after it registered, Node `{}` isn't Ready",
            step.after.name,
            step.after.state.node().unwrap()
        )
    );
    let lacked = format!("Node `{}` isn't Ready", step.after.state.node().unwrap());
    assert_eq!(step.after.lacked, Some(lacked));
}
