//! Claims and their Nodes as `lifecycle` sees them: the inputs and worlds that the tests plan for, and plans of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::meta::ObjectMeta;
use tenon_domain::api::node::Schedulable;
use tenon_domain::api::node_pool::{ConsolidationPolicy, DisruptionPolicy, NodeClaimTemplate, NodeClassRef};
use tenon_domain::api::pod::Readiness;
use tenon_domain::api::{Node, NodePool};
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::class_status::ConditionStatus;
use tenon_domain::evidence::{Waiting, require_snapshot};
use tenon_domain::id::InstanceId;
use tenon_domain::journal::Decision;
use tenon_domain::labels;
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::money::Currency;
use tenon_domain::pool_status::PoolConditionType;
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::FeatureGate;
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::snapshot::{ActionProgress, ActionReport, Snapshot};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_domain::wake::WakeCause;
use tenon_ec2::port::{ImageArchitecture, Instance, InstanceState, Tags, TargetCapacityType};
use tenon_harness::claims::{
    claim as nth, claim_name as name, cluster, instance as held, instance_id as id, node_name, world_of,
    world_with,
};
use tenon_harness::{EPOCH, FunctionWorld, RungBell, WorldConfig};
use tenon_memory_table::block_on;
use tenon_runtime::{Handler, WakeScope};
use tenon_snapshot::{ActionKind, NodeAction};
use tenon_table::content_commit;
use tenon_table::items::{Halt, InstanceOwner, TypeRecord, from_item, keys, put};
use tenon_table::{Table, Write};

use crate::Lifecycle;
use crate::audit_record::AuditRecord;
use crate::input::{Ec2View, LifecycleInput};
use crate::plan::{LifecyclePlan, plan};
use crate::statuses::StatusView;
use tenon_domain::report::{Finding, Report};

mod blocked;
mod boots;
mod consistency;
mod ec2;
mod ended;
mod forgotten;
mod handler;
mod joined;
mod labelled;
mod learned;
mod orphans;
mod partition;
mod pool_status;
mod registered;
mod reminders;
mod repaired;
mod statuses;
mod strays;
mod templates;
mod terms;

fn minutes(n: i64) -> Timestamp {
    EPOCH + SignedDuration::from_mins(n)
}

fn launched(n: usize, at: Timestamp) -> ClaimState {
    ClaimState::Launched { instance: held(n), at }
}

fn registered(n: usize, at: Timestamp) -> ClaimState {
    ClaimState::Registered { instance: held(n), node: node_name(n), at }
}

fn initialized(n: usize, at: Timestamp) -> ClaimState {
    ClaimState::Initialized { instance: held(n), node: node_name(n), at }
}

fn draining(n: usize, at: Timestamp, deadline: Option<Timestamp>) -> ClaimState {
    let reason = RemovalReason::SpotInterrupted;
    ClaimState::Draining { instance: held(n), node: Some(node_name(n)), reason, at, deadline }
}

fn terminating(n: usize, at: Timestamp) -> ClaimState {
    ClaimState::Terminating {
        instance: held(n),
        node: Some(node_name(n)),
        reason: RemovalReason::Deleted,
        at,
    }
}

fn terminated(n: usize, at: Timestamp) -> ClaimState {
    let (instance, node) = (Some(held(n)), Some(node_name(n)));
    ClaimState::Terminated { instance, node, reason: RemovalReason::Deleted, at }
}

fn claim(n: usize, state: ClaimState) -> Claim {
    let requests = ResourceList::new().with(ResourceName::CPU, Quantity::parse("500m").unwrap());
    Claim { requests, ..nth(n, state) }
}

fn pool() -> NodePool {
    NodePool {
        meta: ObjectMeta { name: "default".to_owned(), generation: 1, ..ObjectMeta::default() },
        name: "default".parse().unwrap(),
        template: NodeClaimTemplate {
            labels: BTreeMap::from([("team".to_owned(), "web".to_owned())]),
            annotations: BTreeMap::new(),
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".to_owned(),
                kind: "EC2NodeClass".to_owned(),
                name: "default".parse().unwrap(),
            },
            requirements: Requirements::new(),
            taints: vec![Taint::new("dedicated", TaintEffect::NoSchedule)],
            startup_taints: vec![Taint::new("cni", TaintEffect::NoSchedule)],
            expire_after: Some(SignedDuration::from_hours(720)),
            termination_grace_period: None,
        },
        disruption: DisruptionPolicy {
            consolidate_after: None,
            consolidation_policy: ConsolidationPolicy::WhenEmpty,
            budgets: vec![],
        },
        limits: ResourceList::new(),
        weight: 0,
        replicas: None,
        unknown: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A Node that registered and is Ready.
fn node(n: usize) -> Node {
    let offers = ResourceList::new().with(ResourceName::CPU, Quantity::parse("1930m").unwrap());
    Node {
        meta: ObjectMeta {
            name: format!("node-{n}"),
            labels: BTreeMap::from([(labels::REGISTERED.to_owned(), "true".to_owned())]),
            ..ObjectMeta::default()
        },
        name: node_name(n),
        provider_id: Some(tenon_state::action::provider_id(&held(n))),
        taints: vec![],
        schedulable: Schedulable::Yes,
        capacity: offers.clone(),
        allocatable: offers,
        readiness: Readiness::Ready,
        conditions: vec![],
    }
}

fn not_ready(n: usize) -> Node {
    Node { readiness: Readiness::NotReady, ..node(n) }
}

/// MiB of an m5.large, as EC2 states them.
const STATED: u64 = 8192;

fn type_record() -> TypeRecord {
    TypeRecord {
        name: "m5.large".parse().unwrap(),
        labels: BTreeMap::from([(labels::INSTANCE_MEMORY.to_owned(), STATED.to_string())]),
        capacity: ResourceList::new().with(ResourceName::MEMORY, Quantity::from_mebi(7577)),
        zones: vec![],
        currency: Currency::Usd,
        on_demand: None,
        on_demand_of: None,
        spot: BTreeMap::new(),
    }
}

/// An input whose snapshot was just seen.
fn input(now: Timestamp, claims: Vec<Claim>, nodes: Vec<Node>) -> LifecycleInput {
    let snapshot =
        Snapshot { generation: 5, seen_at: now, nodes, node_pools: vec![pool()], ..Snapshot::default() };
    LifecycleInput {
        now,
        cluster: cluster(),
        region: "us-east-1".parse().unwrap(),
        claims: claims.into_iter().map(|claim| (claim.name.clone(), claim)).collect(),
        expiring: BTreeSet::new(),
        launches: BTreeMap::new(),
        actions: BTreeMap::new(),
        pools: BTreeMap::new(),
        classes: BTreeMap::new(),
        verdicts: BTreeMap::new(),
        snapshot: require_snapshot(Some((snapshot, now)), now),
        types: BTreeMap::from([("m5.large".parse().unwrap(), type_record())]),
        learned: BTreeMap::new(),
        boots: BTreeMap::new(),
        ec2: None,
        gone: BTreeSet::new(),
        statuses: None,
        templates: None,
        audit: AuditRecord { revision: 1, at: Some(now), templates_at: Some(now), ..AuditRecord::default() },
        consoles: None,
        node_repair: FeatureGate::Disabled,
        halt: None,
    }
}

fn with_snapshot(mut input: LifecycleInput, change: impl FnOnce(&mut Snapshot)) -> LifecycleInput {
    let mut snapshot = (**input.snapshot.as_ref().unwrap()).clone();
    change(&mut snapshot);
    let seen_at = snapshot.seen_at;
    input.snapshot = require_snapshot(Some((snapshot, seen_at)), input.now);
    input
}

fn instance(n: usize, state: InstanceState, launched_at: Timestamp) -> Instance {
    Instance {
        id: id(n),
        instance_type: "m5.large".parse().unwrap(),
        image: "ami-1".parse().unwrap(),
        architecture: ImageArchitecture::X86_64,
        capacity_type: TargetCapacityType::OnDemand,
        reservation: None,
        zone: "us-east-1a".parse().unwrap(),
        zone_id: "use1-az1".parse().ok(),
        partition: None,
        subnet: "subnet-1".parse().ok(),
        security_groups: vec![],
        state,
        state_reason: None,
        launched_at,
        private_ip: String::new(),
        private_dns_name: String::new(),
        client_token: None,
        fleet: None,
        tags: Tags::from([
            (tenon_domain::tags::LAUNCH.to_owned(), "launch-1".to_owned()),
            (tenon_domain::tags::CLAIM.to_owned(), name(n).to_string()),
            ("Name".to_owned(), name(n).to_string()),
        ]),
    }
}

fn with_ec2(mut input: LifecycleInput, instances: Vec<Instance>) -> LifecycleInput {
    let instances = instances.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
    input.ec2 = Some(Ec2View { instances, ..Ec2View::default() });
    input
}

fn with_launch(mut input: LifecycleInput, state: LaunchState) -> LifecycleInput {
    let launch = Launch {
        id: "launch-1".parse().unwrap(),
        revision: 2,
        pool: "default".parse().unwrap(),
        class: "default".parse().unwrap(),
        token: "token".parse().unwrap(),
        made_from: None,
        reservation: None,
        placement: None,
        request: String::new(),
        claims: vec![LaunchClaim { name: name(0), pods: vec![] }],
        cause: LaunchCause::PendingPods,
        created_at: EPOCH,
        state,
    };
    input.launches.insert(launch.id.clone(), launch);
    input
}

fn settled() -> LaunchState {
    LaunchState::Settled { at: EPOCH, instances: 1 }
}

fn drain_action(n: usize) -> NodeAction {
    NodeAction {
        claim: name(n),
        number: 3,
        kind: ActionKind::Drain,
        provider_id: None,
        node: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: vec![],
        startup_taints: vec![],
        deadline: None,
        replacement: tenon_snapshot::ReplacementOrder::Anytime,
    }
}

fn commit(world: &FunctionWorld, writes: Vec<Write>) {
    block_on(world.table.commit(&content_commit(vec![], writes))).unwrap();
}

fn sweep(world: &FunctionWorld, lifecycle: &Lifecycle) {
    block_on(lifecycle.handle(world, &WakeScope::Cluster(cluster()), &[WakeCause::Sweep])).unwrap();
}

fn claim_in(world: &FunctionWorld, n: usize) -> Claim {
    let key = keys::claim(&cluster(), &name(n));
    from_item(&key, &world.table.peek(&key).unwrap()).unwrap()
}

fn planned(input: &LifecycleInput) -> (LifecyclePlan, Report) {
    plan(input)
}

/// The reasons of refusals and waits.
fn told(report: Report) -> Vec<String> {
    let mut findings: Vec<Finding> = Vec::new();
    report.deliver(&mut findings);
    findings.into_iter().map(|finding| finding.reason).collect()
}

/// The steps of the first claim.
fn phases(input: &LifecycleInput) -> Vec<Decision> {
    planned(input).0.steps.iter().flat_map(|step| step.decisions().collect::<Vec<_>>()).collect()
}

fn check(input: &LifecycleInput, expected: &[Decision]) {
    assert_eq!(phases(input), expected);
}

#[test]
fn what_the_user_deletes_drains_but_only_a_readable_snapshot_says_so() {
    let seen = || input(minutes(30), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
    check(&seen(), &[]);
    let deleted = |snapshot: &mut Snapshot| snapshot.nodes[0].meta.deleted_at = Some(minutes(29));
    check(&with_snapshot(seen(), deleted), &[Decision::Draining]);
    check(&with_snapshot(seen(), |snapshot| snapshot.node_pools.clear()), &[]);
    // One without a Node has no NodeClaim yet that Kubernetes could delete.
    let coming = input(minutes(3), vec![claim(0, launched(0, minutes(1)))], vec![]);
    let coming = with_snapshot(coming, |snapshot| snapshot.node_pools.clear());
    let deleted_pool = coming.deleted_by_user(&coming.claims[&name(0)]);
    assert_eq!(deleted_pool.as_deref(), Some("its NodePool `default` was deleted"));
    let unreadable = |snapshot: &mut Snapshot| {
        snapshot.node_pools.clear();
        let (kind, name) = ("NodePool".to_owned(), "default".to_owned());
        snapshot.unreadable.push(tenon_domain::snapshot::Unreadable { kind, name, errors: vec![] });
    };
    check(&with_snapshot(seen(), unreadable), &[]);
    check(&with_snapshot(seen(), |snapshot| snapshot.nodes.clear()), &[Decision::Draining]);
    let mut stale = seen();
    stale.snapshot = Err(Waiting::SnapshotStale { age: SignedDuration::from_secs(91) });
    check(&stale, &[]);
    let (plan, _) = planned(&with_snapshot(seen(), deleted));
    let action = plan.steps[0].action.as_ref().unwrap();
    assert_eq!((action.kind, action.number), (ActionKind::Drain, 4));
    // A new action has its own number: a report of the one before isn't taken for its end.
    let mut asked_before = with_snapshot(seen(), deleted);
    asked_before.actions.insert(name(0), NodeAction { kind: ActionKind::Register, ..drain_action(0) });
    let (plan, _) = planned(&asked_before);
    let action = plan.steps[0].action.as_ref().unwrap();
    assert_eq!((action.number, action.provider_id.is_some()), (4, true));
    // Expiry.
    let late = EPOCH + SignedDuration::from_hours(720 + 24);
    check(&input(late, vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]), &[Decision::Draining]);
}

#[test]
fn a_halt_holds_terminations_back_and_nothing_else() {
    let halted = |claims, nodes| {
        let mut seen =
            with_ec2(input(minutes(5), claims, nodes), vec![instance(0, InstanceState::Running, EPOCH)]);
        seen.halt = Some(tenon_table::items::Halt { since: EPOCH, reason: String::new() });
        seen
    };
    let joined = [Decision::Registered, Decision::Initialized];
    check(&halted(vec![claim(0, launched(0, minutes(1)))], vec![node(0)]), &joined);
    let drained =
        ClaimState::Drained { instance: held(0), node: None, reason: RemovalReason::Deleted, at: minutes(4) };
    check(&halted(vec![claim(0, drained)], vec![]), &[]);
}

#[test]
fn what_needs_a_person_or_the_agents_next_word_is_looked_at_again_soon() {
    let two = |n| Node { name: node_name(n), ..node(0) };
    let several = input(minutes(5), vec![claim(0, launched(0, minutes(1)))], vec![two(0), two(1)]);
    assert_eq!(planned(&several).0.wake_at, minutes(6));
    // The snapshot is as old as the drain, so it doesn't show whether there is a Node.
    let unseen = input(minutes(5), vec![claim(0, draining(0, minutes(5), None))], vec![]);
    let soon = minutes(5) + tenon_domain::evidence::HEARTBEAT_EVERY;
    assert_eq!(planned(&unseen).0.wake_at, soon);
}

#[test]
fn a_drain_ends_when_it_is_done_or_due_or_the_node_is_gone() {
    let running = || vec![instance(0, InstanceState::Running, EPOCH)];
    let seen = |deadline, nodes| {
        with_ec2(input(minutes(5), vec![claim(0, draining(0, minutes(4), deadline))], nodes), running())
    };
    let gone = [Decision::Drained, Decision::Terminating];
    check(&seen(None, vec![node(0)]), &[]);
    check(&seen(Some(minutes(6)), vec![node(0)]), &[]);
    check(&seen(Some(minutes(5)), vec![node(0)]), &gone);
    check(&seen(None, vec![]), &gone);
    let mut done = seen(None, vec![node(0)]);
    done.actions.insert(name(0), drain_action(0));
    let report = |number| ActionReport { claim: name(0).to_string(), number, progress: ActionProgress::Done };
    check(&with_snapshot(done, |snapshot| snapshot.reports.push(report(3))), &gone);
    let mut older = seen(None, vec![node(0)]);
    older.actions.insert(name(0), drain_action(0));
    check(&with_snapshot(older, |snapshot| snapshot.reports.push(report(2))), &[]);
}
