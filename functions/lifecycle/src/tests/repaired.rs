//! Nodes that stay unhealthy, where the gate `NodeRepair` is open.

use super::*;
use tenon_domain::api::node::NodeCondition;

/// So many Nodes of the pool, of which the first ones have had a condition since the tenth minute.
fn sick(now: Timestamp, (all, bad): (usize, usize), condition: (&str, &str)) -> LifecycleInput {
    let claims = (0..all).map(|n| claim(n, initialized(n, minutes(1)))).collect();
    let nodes = (0..all).map(|n| {
        let mut node = node(n);
        node.meta.labels.insert("karpenter.sh/nodepool".to_owned(), "default".to_owned());
        if n < bad {
            let (kind, status) = (condition.0.to_owned(), condition.1.to_owned());
            node.conditions.push(NodeCondition { kind, status, since: Some(minutes(10)) });
        }
        node
    });
    let mut input = input(now, claims, nodes.collect());
    input.node_repair = FeatureGate::Enabled;
    input.audit.at = Some(now);
    input
}

/// The number of Nodes that are drained, and what is told.
fn drained(input: &LifecycleInput) -> (usize, Vec<String>) {
    let (plan, report) = planned(input);
    let drains =
        plan.steps.iter().filter(|step| step.after.state.removal() == Some(RemovalReason::Unhealthy));
    (drains.count(), told(report))
}

#[test]
fn a_node_is_replaced_when_its_condition_has_lasted_for_the_peers_time() {
    let check = |condition: (&str, &str), lasts: i64| {
        let before = sick(minutes(10 + lasts) - SignedDuration::from_secs(1), (1, 1), condition);
        assert_eq!(drained(&before).0, 0, "{condition:?} before {lasts} minutes");
        let plan = planned(&before).0;
        assert_eq!(plan.wake_at, minutes(10 + lasts).min(before.now + crate::AUDIT_EVERY));
        // An audit that comes first doesn't hide it.
        let early = sick(minutes(12), (1, 1), condition);
        assert_eq!(
            (plan.due_at, planned(&early).0.due_at),
            (Some(minutes(10 + lasts)), Some(minutes(10 + lasts)))
        );
        assert_eq!(drained(&sick(minutes(10 + lasts), (1, 1), condition)).0, 1, "{condition:?}");
    };
    check(("Ready", "False"), 30);
    check(("Ready", "Unknown"), 30);
    check(("AcceleratedHardwareReady", "False"), 10);
    for kind in ["StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady"] {
        check((kind, "False"), 30);
    }
    for fine in [("AcceleratedHardwareReady", "Unknown"), ("MemoryPressure", "True"), ("Ready", "True")] {
        assert_eq!(drained(&sick(minutes(120), (1, 1), fine)).0, 0, "{fine:?}");
    }
}

#[test]
fn a_closed_gate_repairs_nothing() {
    let mut input = sick(minutes(120), (1, 1), ("KernelReady", "False"));
    input.node_repair = FeatureGate::Disabled;
    assert_eq!(drained(&input), (0, Vec::new()));
}

#[test]
fn unhealthy_nodes_go_within_two_minutes_and_with_a_deadline() {
    let (plan, _) = planned(&sick(minutes(40), (1, 1), ("KernelReady", "False")));
    let ClaimState::Draining { deadline, .. } = plan.steps[0].after.state else { panic!("{:?}", plan.steps) };
    assert_eq!(deadline, Some(minutes(42)));
    let message = &plan.steps[0].journal[0].message;
    assert!(
        message.ends_with(
            "condition KernelReady of Node `ip-10-0-0-0.ec2.internal` has been False for 30 minutes"
        ) || message.contains("has been False for 30 minutes"),
        "{message}"
    );
}

#[test]
fn more_than_a_fifth_of_a_pool_or_of_the_cluster_isnt_repaired() {
    let check = |nodes: (usize, usize), repaired: usize| {
        let (drains, told) = drained(&sick(minutes(40), nodes, ("Ready", "Unknown")));
        assert_eq!(drains, repaired, "{nodes:?}");
        let blocked = if repaired == 0 { vec!["NodeRepairBlocked".to_owned()] } else { Vec::new() };
        assert_eq!(told, blocked, "{nodes:?}");
    };
    check((1, 1), 1);
    check((5, 1), 1);
    check((5, 2), 0);
    check((6, 2), 2);
    check((10, 2), 2);
    check((10, 3), 0);
    // Nodes that aren't Tenon's count in the cluster.
    let strangers = |more: usize, bad: usize| {
        with_snapshot(sick(minutes(40), (5, 1), ("Ready", "Unknown")), |snapshot| {
            for n in 0..more {
                let mut stranger = snapshot.nodes[0].clone();
                stranger.meta.labels.clear();
                stranger.provider_id = None;
                stranger.conditions.retain(|_| n < bad);
                snapshot.nodes.push(stranger);
            }
        })
    };
    assert_eq!(drained(&strangers(5, 1)).0, 1);
    assert_eq!(drained(&strangers(5, 2)), (0, vec!["NodeRepairBlocked".to_owned()]));
}

/// Its Node has been deleted since the second minute, and a pod holds the drain.
fn held_drain(now: Timestamp, nodes: (usize, usize), deadline: Option<Timestamp>) -> LifecycleInput {
    let mut input = sick(now, nodes, ("AcceleratedHardwareReady", "False"));
    let state = ClaimState::Draining {
        instance: held(0),
        node: Some(node_name(0)),
        reason: RemovalReason::Deleted,
        at: minutes(2),
        deadline,
    };
    input.claims.insert(name(0), claim(0, state));
    input
}

#[test]
fn a_drain_that_began_before_ends_like_that_of_a_repair() {
    let (plan, report) = planned(&held_drain(minutes(19), (1, 1), None));
    assert!(plan.steps.is_empty() && told(report).is_empty());
    assert_eq!(plan.wake_at, minutes(20));
    let (plan, _) = planned(&held_drain(minutes(20), (1, 1), None));
    let step = &plan.steps[0];
    let ClaimState::Draining { reason, at, deadline, .. } = &step.after.state else { panic!("{step:?}") };
    assert_eq!((*reason, *at, *deadline), (RemovalReason::Unhealthy, minutes(2), Some(minutes(22))));
    assert_eq!(step.after.revision, step.before.revision + 1);
    assert_eq!(step.action.as_ref().map(|action| action.deadline), Some(Some(minutes(22))));
    let message = &step.journal[0].message;
    assert!(
        message.starts_with("the drain of NodeClaim `default-00000` ends at 2026-01-01T00:22:00Z: "),
        "{message}"
    );
    // Again, it ends no later.
    let mut again = held_drain(minutes(21), (1, 1), None);
    again.claims.insert(name(0), step.after.clone());
    assert!(planned(&again).0.steps.is_empty());
}

#[test]
fn a_drain_that_ends_earlier_anyway_isnt_forced_nor_one_of_too_many() {
    assert!(planned(&held_drain(minutes(20), (1, 1), Some(minutes(21)))).0.steps.is_empty());
    let forced = |nodes, deadline| {
        let (plan, report) = planned(&held_drain(minutes(20), nodes, deadline));
        let mut findings: Vec<Finding> = Vec::new();
        report.deliver(&mut findings);
        let told = findings.iter().map(|finding| finding.names.len()).sum::<usize>();
        (plan.steps.iter().filter(|step| step.after.name == name(0)).count(), told)
    };
    assert_eq!(forced((5, 1), None), (1, 0));
    // Both claims are told, also the one that drains; unless that ends earlier.
    assert_eq!(forced((5, 2), None), (0, 2));
    assert_eq!(forced((5, 2), Some(minutes(21))), (0, 1));
}
