//! Nodes that join: their registration, their initialisation, and instances that never join.

use super::*;

#[test]
fn c116_a_node_is_told_to_register_and_then_is() {
    let unregistered =
        Node { meta: ObjectMeta::default(), taints: vec![Taint::unregistered()], ..not_ready(0) };
    let hash = Some("11148166120438674859".parse().unwrap());
    let hashed = Claim { class_hash: hash, ..claim(0, launched(0, minutes(1))) };
    let seen = input(minutes(2), vec![hashed], vec![unregistered]);
    let (plan, _) = planned(&seen);
    assert_eq!(plan.steps, vec![]);
    let [(_, action)] = plan.actions.as_slice() else { panic!("{:?}", plan.actions) };
    assert_eq!((action.kind, action.number), (ActionKind::Register, 3));
    assert_eq!(action.provider_id.as_deref(), Some(format!("aws:///us-east-1a/{}", id(0)).as_str()));
    assert_eq!(action.taints, pool().template.taints);
    assert_eq!(action.startup_taints, pool().template.startup_taints);
    let annotations = [
        ("karpenter.k8s.aws/ec2nodeclass-hash".to_owned(), "11148166120438674859".to_owned()),
        ("karpenter.k8s.aws/ec2nodeclass-hash-version".to_owned(), "v6".to_owned()),
    ];
    assert_eq!(action.annotations, BTreeMap::from(annotations));
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("karpenter.k8s.aws/instance-tenancy", "default"),
        ("team", "web"),
    ] {
        assert_eq!(action.labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    // A finding is told once.
    let mut told = input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![not_ready(1)]);
    told.actions.insert(name(0), action.clone());
    assert_eq!(planned(&told).0.actions, vec![]);
    // A Node without the label isn't registered, whatever its taints; one with it and without the taint is.
    check(
        &input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![not_ready(0)]),
        &[Decision::Registered],
    );
    let ready = input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![node(0)]);
    check(&ready, &[Decision::Registered, Decision::Initialized]);
}

#[test]
fn several_nodes_of_one_instance_need_a_person() {
    let twice = input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![node(0), node(0)]);
    let (plan, report) = planned(&twice);
    assert_eq!((plan.steps.len(), told(report)), (0, vec!["SeveralNodes".to_owned()]));
}

#[test]
fn a_node_is_initialized_when_nothing_is_missing() {
    let check = |node: Node, expected: &[Decision]| {
        assert_eq!(
            phases(&input(minutes(2), vec![claim(0, registered(0, minutes(1)))], vec![node])),
            expected
        );
    };
    check(node(0), &[Decision::Initialized]);
    check(not_ready(0), &[]);
    check(Node { taints: vec![Taint::new("cni", TaintEffect::NoSchedule)], ..node(0) }, &[]);
    check(
        Node { taints: vec![Taint::new("node.kubernetes.io/not-ready", TaintEffect::NoSchedule)], ..node(0) },
        &[],
    );
    check(Node { allocatable: ResourceList::new(), ..node(0) }, &[]);
}

#[test]
fn c115_registration_is_timed_from_the_launch() {
    let at = |now, nodes, instances: Vec<Instance>| {
        with_ec2(input(now, vec![claim(0, launched(0, minutes(10)))], nodes), instances)
    };
    let running = || vec![instance(0, InstanceState::Running, minutes(10))];
    check(&at(minutes(24), vec![], running()), &[]);
    let late = at(minutes(25), vec![], running());
    check(&late, &[Decision::Terminating]);
    let (plan, _) = planned(&late);
    assert_eq!(plan.terminate.get(&name(0)), Some(&id(0)));
    assert_eq!(plan.steps[0].after.state.removal(), Some(RemovalReason::RegistrationTimeout));
    assert!(plan.steps[0].loses_room());
    assert_eq!(plan.steps[0].journal[0].details.get("console"), None);
    let mut read = late;
    read.consoles = Some(BTreeMap::from([(id(0), "nodeadm: failed".to_owned())]));
    let record = planned(&read).0.steps.remove(0).journal.remove(0);
    assert_eq!(record.details.get("console").map(String::as_str), Some("nodeadm: failed"));
    assert!(
        record.message.ends_with("; this record has the end of its console output"),
        "{}",
        record.message
    );
    // A Ready Node that the agent hasn't registered isn't lost for the agent's sake.
    let unregistered = Node { meta: ObjectMeta::default(), ..node(0) };
    check(&at(minutes(25), vec![unregistered], running()), &[]);
    // An old snapshot doesn't show whether a Node joined; an agent that never reported shows that none did.
    let mut blind = at(minutes(25), vec![], running());
    blind.snapshot = Err(Waiting::SnapshotStale { age: SignedDuration::from_secs(91) });
    check(&blind, &[]);
    blind.snapshot = Err(Waiting::SnapshotMissing);
    check(&blind, &[Decision::Terminating]);
}

#[test]
fn c115_two_failures_of_the_latest_four_are_unhealthy() {
    let failed = |n| ClaimState::Terminated {
        instance: Some(held(n)),
        node: None,
        reason: RemovalReason::RegistrationTimeout,
        at: minutes(20),
    };
    let health = |states: Vec<ClaimState>| {
        let claims = states.into_iter().enumerate().map(|(n, state)| claim(n, state)).collect();
        let (plan, _) = planned(&input(minutes(30), claims, vec![]));
        let healthy = PoolConditionType::NodeRegistrationHealthy;
        plan.pools[0].conditions.iter().find(|c| c.condition == healthy).unwrap().status
    };
    assert_eq!(health(vec![]), ConditionStatus::Unknown);
    assert_eq!(health(vec![failed(0)]), ConditionStatus::Unknown);
    assert_eq!(health(vec![failed(0), failed(1)]), ConditionStatus::False);
    assert_eq!(health(vec![failed(0), initialized(1, minutes(1))]), ConditionStatus::True);
}
