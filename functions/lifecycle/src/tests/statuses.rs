//! Status checks and scheduled events of instances.

use super::*;
use serde_json::json;
use tenon_domain::api::node::NodeCondition;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{ScheduledEvent, ScheduledEventCode, StatusCheck};
use tenon_table::items::ToldFindings;
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, HealthEvent, Impairment};

use super::ended::{launch_instance, pass, report};
use crate::statuses::FailedCheck;

/// So many Nodes of the pool, of whose instances the first ones have failed a check since the tenth minute.
fn impaired(now: Timestamp, (all, bad): (usize, usize)) -> LifecycleInput {
    let claims = (0..all).map(|n| claim(n, initialized(n, minutes(1)))).collect();
    let nodes = (0..all).map(|n| {
        let mut node = node(n);
        node.meta.labels.insert("karpenter.sh/nodepool".to_owned(), "default".to_owned());
        node
    });
    let mut input = input(now, claims, nodes.collect());
    let failed = FailedCheck { check: StatusCheck::System, since: Some(minutes(10)) };
    let impaired = (0..bad).map(|n| (id(n), failed)).collect();
    input.statuses = Some(StatusView { impaired, ..StatusView::default() });
    input
}

fn drains(input: &LifecycleInput) -> usize {
    let (plan, _) = planned(input);
    plan.steps.iter().filter(|step| step.after.state.removal() == Some(RemovalReason::Unhealthy)).count()
}

#[test]
fn an_instance_that_fails_a_check_for_two_minutes_is_replaced_with_the_gate_closed() {
    let early = impaired(minutes(12) - SignedDuration::from_secs(1), (1, 1));
    assert_eq!((drains(&early), planned(&early).0.wake_at), (0, minutes(12)));
    let (plan, _) = planned(&impaired(minutes(12), (1, 1)));
    // Its kubelet reports, so pods have the time of a stopped instance.
    let ClaimState::Draining { deadline, .. } = plan.steps[0].after.state else { panic!("{:?}", plan.steps) };
    assert_eq!(deadline, Some(minutes(14)));
    let message = &plan.steps[0].journal[0].message;
    let why = format!("instance `{}` has failed its system status check for 2 minutes", id(0));
    assert!(message.ends_with(&why), "{message}");
}

#[test]
fn pods_of_a_kubelet_that_is_gone_as_well_get_no_time() {
    let silent =
        with_snapshot(impaired(minutes(12), (1, 1)), |seen| seen.nodes[0].readiness = Readiness::NotReady);
    check(&silent, &[Decision::Draining, Decision::Drained]);
    assert!(planned(&silent).0.asks_ec2);
    let seen = with_ec2(silent, vec![instance(0, InstanceState::Running, EPOCH)]);
    check(&seen, &[Decision::Draining, Decision::Drained, Decision::Terminating]);
}

#[test]
fn a_fifth_of_the_nodes_may_be_unhealthy_by_checks_and_conditions_together() {
    let check = |nodes: (usize, usize), expected: usize| {
        let input = impaired(minutes(12), nodes);
        assert_eq!(drains(&input), expected, "{nodes:?}");
        let blocked = if expected == 0 { vec!["NodeRepairBlocked".to_owned()] } else { Vec::new() };
        assert_eq!(told(planned(&input).1), blocked, "{nodes:?}");
    };
    check((5, 1), 1);
    check((5, 2), 0);
    check((6, 2), 2);
    // The condition of one of five Nodes is bad: of the Node whose instance fails its check, or of another.
    let with_condition = |of: usize, gate: FeatureGate| {
        let mut input = with_snapshot(impaired(minutes(12), (5, 1)), |seen| {
            let (kind, status) = ("KernelReady".to_owned(), "False".to_owned());
            seen.nodes[of].conditions.push(NodeCondition { kind, status, since: Some(minutes(11)) });
        });
        input.node_repair = gate;
        drains(&input)
    };
    assert_eq!(with_condition(0, FeatureGate::Enabled), 1);
    assert_eq!(with_condition(1, FeatureGate::Enabled), 0);
    assert_eq!(with_condition(1, FeatureGate::Disabled), 1);
}

#[test]
fn a_check_without_a_time_fails_since_it_was_first_seen() {
    let failed = FailedCheck { check: StatusCheck::Instance, since: None };
    let at = |now: Timestamp, known: &[(InstanceId, Timestamp)]| {
        let mut input = impaired(now, (1, 0));
        let impaired = BTreeMap::from([(id(0), failed), (id(7), failed)]);
        input.statuses = Some(StatusView { impaired, ..StatusView::default() });
        input.audit.impaired = known.iter().cloned().collect();
        input
    };
    let first = at(minutes(20), &[]);
    assert_eq!((drains(&first), planned(&first).0.wake_at), (0, minutes(22)));
    // Only an instance of the cluster is remembered.
    let record = planned(&first).0.audit.record.unwrap();
    assert_eq!(record.impaired, BTreeMap::from([(id(0), minutes(20))]));
    assert_eq!(record.at, first.audit.at);
    let second = at(minutes(22), &[(id(0), minutes(20))]);
    assert_eq!((drains(&second), planned(&second).0.audit.record), (1, None));
}

#[test]
fn an_old_snapshot_replaces_nobody() {
    let mut blind = impaired(minutes(30), (1, 1));
    blind.snapshot = Err(Waiting::SnapshotStale { age: SignedDuration::from_secs(91) });
    check(&blind, &[]);
}

#[test]
fn a_scheduled_event_is_recorded_once_and_acted_on_as_one_of_aws_health() {
    let scheduled = |starts_at: Timestamp| {
        let mut input = impaired(minutes(12), (1, 0));
        let code = ScheduledEventCode::InstanceRetirement;
        let event = ScheduledEvent { code, starts_at: Some(starts_at) };
        input.statuses.as_mut().unwrap().scheduled.insert(id(0), event);
        input
    };
    let far = minutes(12) + SignedDuration::from_hours(72);
    let input = scheduled(far);
    check(&input, &[Decision::Announced]);
    let announced = planned(&input).0.steps.remove(0).after;
    assert_eq!(announced.announced.unwrap().starts_at, Some(far));
    let mut again = scheduled(far);
    again.claims.insert(name(0), announced);
    check(&again, &[]);
    let near = scheduled(minutes(12) + SignedDuration::from_hours(3));
    check(&near, &[Decision::Announced, Decision::Draining]);
    let (plan, _) = planned(&near);
    let after = &plan.steps[0].after.state;
    assert_eq!(after.removal(), Some(RemovalReason::ScheduledChange));
    // Pods stay until they are replaced, as far as that time allows.
    assert_eq!(after.holds_pods_until(), Some(minutes(12) + SignedDuration::from_hours(3)));
}

/// The region's sweep.
fn region_sweep(world: &FunctionWorld) {
    block_on(Lifecycle::new().handle(world, &WakeScope::Region, &[WakeCause::Sweep])).unwrap();
}

/// What the region is told of calls that EC2 refuses.
fn refused(world: &FunctionWorld) -> Vec<String> {
    let key = keys::region_told(&"us-east-1".parse().unwrap(), tenon_domain::wake::FunctionName::Lifecycle);
    let told: Option<ToldFindings> = world.table.peek(&key).map(|item| from_item(&key, &item).unwrap());
    told.into_iter().flat_map(|told| told.findings).map(|finding| finding.message).collect()
}

#[test]
fn a_denied_call_is_told_with_its_right_and_a_throttled_one_is_repeated() {
    let world = world_with(&[]);
    let error = Ec2Error::Throttled { action: "DescribeInstanceStatus".to_owned() };
    let (call, when) = (Call::DescribeInstanceStatus, FaultWhen::Next(1));
    world.ec2.inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    region_sweep(&world);
    assert_eq!(refused(&world), Vec::<String>::new());
    world.ec2.deny(call, "because no identity-based policy allows it");
    region_sweep(&world);
    world.table.reset_meter();
    region_sweep(&world);
    assert_eq!(world.table.meter().total().write_units, 0, "told once an hour");
    let told = refused(&world);
    let start = "not replacing nodes of Region `us-east-1` whose instances fail status checks: ";
    let end = "allow function `lifecycle` the action `ec2:DescribeInstanceStatus`";
    assert!(told.len() == 1 && told[0].starts_with(start) && told[0].ends_with(end), "{told:?}");
}

/// The number of calls of EC2 and of the table that the region's sweep makes.
fn cost_of_sweep(world: &FunctionWorld) -> (u64, u64) {
    world.table.reset_meter();
    let made = || world.ec2.calls().values().map(|count| count.made).sum::<u64>();
    let before = made();
    region_sweep(world);
    (made() - before, world.table.meter().total().calls)
}

/// An instance that runs, with its claim and its Node.
fn running() -> (FunctionWorld, InstanceId) {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let held = launch_instance(&world);
    let id = held.id.clone();
    let state = ClaimState::Initialized { instance: held, node: node_name(0), at: EPOCH };
    let owner = InstanceOwner { instance: id.clone(), cluster: cluster(), claim: name(0), offering: None };
    commit(
        &world,
        vec![put(keys::claim(&cluster(), &name(0)), &claim(0, state)), put(keys::instance(&id), &owner)],
    );
    pass(&world, 120);
    report_node(&world, 1, &id);
    sweep(&world, &Lifecycle::new());
    (world, id)
}

fn report_node(world: &FunctionWorld, generation: u64, id: &InstanceId) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(0).as_str(), "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"providerID": format!("aws:///us-east-1a/{id}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    report(world, generation, vec![node]);
}

#[test]
fn the_regions_sweep_finds_the_cluster_of_an_impaired_instance_which_then_asks_by_itself() {
    let (world, id) = running();
    assert_eq!(cost_of_sweep(&world), (3, 0));
    world.ec2.set_status_check(&id, StatusCheck::System, Impairment::Fails).unwrap();
    pass(&world, 60);
    report_node(&world, 2, &id);
    region_sweep(&world);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Initialized);
    pass(&world, 60);
    report_node(&world, 3, &id);
    block_on(Lifecycle::new().handle(&world, &WakeScope::Cluster(cluster()), &[WakeCause::StateChanged]))
        .unwrap();
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Draining);
}

#[test]
fn an_impaired_instance_of_nobody_costs_one_read() {
    let world = world_with(&[]);
    let id = launch_instance(&world).id;
    pass(&world, 120);
    world.ec2.set_status_check(&id, StatusCheck::Instance, Impairment::Fails).unwrap();
    assert_eq!(cost_of_sweep(&world), (3, 1));
}

#[test]
fn an_event_of_aws_health_that_was_lost_is_found_once() {
    let (world, id) = running();
    let starts_at = world.clock.now() + SignedDuration::from_hours(72);
    let event = HealthEvent {
        event_type_code: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned(),
        event_type_category: "scheduledChange".to_owned(),
        starts_at,
        instances: vec![id],
    };
    world.ec2.announce(&event).unwrap();
    region_sweep(&world);
    assert_eq!(claim_in(&world, 0).announced.and_then(|announced| announced.starts_at), Some(starts_at));
    // Its owner and its claim.
    assert_eq!(cost_of_sweep(&world), (3, 2));
}

#[test]
fn a_drain_of_another_reason_ends_with_an_instance_that_stops_no_pods() {
    let drained = |readiness: Readiness, nodes: (usize, usize)| {
        let mut input =
            with_snapshot(impaired(minutes(12), nodes), |seen| seen.nodes[0].readiness = readiness);
        input.claims.insert(name(0), claim(0, draining(0, minutes(11), None)));
        let (plan, _) = planned(&input);
        let of_first = plan.steps.iter().find(|step| step.after.name == name(0));
        of_first.map(|step| step.journal[0].message.clone())
    };
    let why = format!("instance `{}` has failed its system status check for 2 minutes", id(0));
    let ended = format!("drain ended: {why}, and its kubelet doesn't report, so nothing stops its pods");
    assert_eq!(drained(Readiness::NotReady, (1, 1)), Some(ended));
    // A kubelet that reports can stop them, in as long as it has in a repair.
    let forced = format!("the drain of NodeClaim `{}` ends at 2026-01-01T00:14:00Z: {why}", name(0));
    assert_eq!(drained(Readiness::Ready, (1, 1)), Some(forced));
    assert_eq!(drained(Readiness::NotReady, (5, 2)), None);
    assert_eq!(drained(Readiness::Ready, (5, 2)), None);
}
