//! Nodes that no claim owns, and whose instance is gone.

use serde_json::json;

use super::ended::{pass, report};
use super::*;
use crate::strays::StrayPlan;

/// A Node that an uninstalled Karpenter left.
fn stray() -> Node {
    let mut node = not_ready(0);
    node.meta.labels.insert(labels::NODEPOOL.to_owned(), "default".to_owned());
    node.meta.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    node
}

fn deleted(mut node: Node) -> Node {
    node.meta.deleted_at = Some(minutes(29));
    node
}

#[test]
fn a_stray_is_told_and_loses_its_finalizer_once_it_is_deleted() {
    let check = |node: Node, claims: Vec<Claim>, gone: bool, expected: (usize, &[&str])| {
        let gone = gone.then(|| id(0)).into_iter().collect();
        let (plan, report) =
            planned(&LifecycleInput { gone, ..input(minutes(30), claims, vec![node.clone()]) });
        let told: Vec<String> = told(report);
        let told: Vec<&str> = told.iter().map(String::as_str).filter(|why| *why == "InstanceGone").collect();
        assert_eq!((plan.strays.released.len(), told.as_slice()), expected, "{node:?}");
    };
    check(stray(), vec![], true, (0, &["InstanceGone"]));
    check(deleted(stray()), vec![], true, (1, &["InstanceGone"]));
    // Its instance exists, or EC2 gave no answer.
    check(deleted(stray()), vec![], false, (0, &[]));
    // A claim sees to its Node itself.
    check(deleted(stray()), vec![claim(0, initialized(0, minutes(1)))], true, (0, &[]));
    check(Node { readiness: Readiness::Ready, ..deleted(stray()) }, vec![], true, (0, &[]));
    let mut young = deleted(stray());
    young.meta.created_at = Some(minutes(29));
    check(young, vec![], true, (0, &[]));
    let mut foreign = deleted(stray());
    foreign.meta.labels.clear();
    check(foreign, vec![], true, (0, &[]));
}

#[test]
fn a_halt_keeps_strays() {
    let halt = Some(Halt { since: EPOCH, reason: "restored".to_owned() });
    let gone = BTreeSet::from([id(0)]);
    let seen = input(minutes(30), vec![], vec![deleted(stray())]);
    assert_eq!(planned(&LifecycleInput { gone, halt, ..seen }).0.strays, StrayPlan::default());
}

#[test]
fn the_agent_releases_a_deleted_stray_and_its_action_goes_with_it() {
    let (world, lifecycle) = (world_with(&[]), Lifecycle::new());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "stray", "deletionTimestamp": "2026-01-01T00:01:00Z",
            "finalizers": ["karpenter.sh/termination"], "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"providerID": "aws:///us-east-1a/i-0dddddddddddddddd"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    pass(&world, 60);
    report(&world, 1, vec![node]);
    sweep(&world, &lifecycle);
    let key = keys::action(&cluster(), &"stray-i-0dddddddddddddddd".parse().unwrap());
    let action = NodeAction::from_item(&world.table.peek(&key).unwrap()).unwrap();
    assert_eq!((action.kind, action.node.as_deref()), (ActionKind::Finalize, Some("stray")));
    assert!(world.signals.take().contains(&RungBell::Agent(cluster())));
    pass(&world, 10);
    report(&world, 2, vec![]);
    sweep(&world, &lifecycle);
    assert_eq!(world.table.peek(&key), None);
}
