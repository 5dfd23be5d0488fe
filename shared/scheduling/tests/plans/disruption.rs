//! What disruption decides. Numbers in names are those of the conformance cases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use proptest::prelude::*;
use tenon_domain::SignedDuration;
use tenon_domain::api::Pod;
use tenon_domain::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use tenon_domain::api::node_pool::NodePool;
use tenon_domain::api::pod::{DoNotDisrupt, LabelSelector, PodPhase, PodShape, Readiness};
use tenon_domain::api::workload::{IntOrPercent, PdbBound, PodDisruptionBudget, UnhealthyPodEviction};
use tenon_domain::budget::{Budget, Nodes};
use tenon_domain::catalog::CapacityType;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::claim::{
    Claim, ClaimState, CommandRole, Drift, DriftReason, LaunchedInstance, RemovalReason, Terms,
};
use tenon_domain::class_status::ResolvedImage;
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName,
    SubnetId, Zone,
};
use tenon_domain::registry::{Gate, Gates};
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::{
    ClassReservation, ClassReservations, LaunchedInto, MatchCriteria, ReservationKind, ReservedCapacity,
};
use tenon_domain::resources::ResourceList;
use tenon_scheduling::disruption::{
    ClaimView, ClassReadiness, ClassView, DriftingReservations, Halt, Input, NodeView, Plan, RefusalReason,
    Report, Step, plan,
};
use tenon_scheduling::provision::NodeKind;

const OLD: &str = "ami-old";
const NEW: &str = "ami-new";

fn claim_name(index: usize) -> ClaimName {
    ClaimName::parse(format!("default-{index:05}")).unwrap()
}

fn node_name(index: usize) -> NodeName {
    NodeName::parse(format!("node-{index:05}")).unwrap()
}

fn instance(index: usize, image: &str) -> LaunchedInstance {
    LaunchedInstance {
        id: InstanceId::parse(format!("i-{index:05}")).unwrap(),
        instance_type: InstanceType::parse("default.instance-type").unwrap(),
        zone: Zone::parse("test-zone-1").unwrap(),
        subnet: Some(SubnetId::parse("subnet-1").unwrap()),
        reservation: None,
        capacity_type: CapacityType::OnDemand,
        image: ImageId::parse(image).unwrap(),
    }
}

/// An initialised claim with an old image, marked so `drifted_at` seconds in.
fn drifted(index: usize, drifted_at: i64, pods: Vec<Pod>) -> ClaimView {
    let mut view = settled(index, OLD, pods);
    view.claim.drift = Some(Drift {
        reason: DriftReason::AmiDrift,
        since: at(drifted_at),
        from: OLD.to_owned(),
        to: NEW.to_owned(),
    });
    view
}

fn settled(index: usize, image: &str, pods: Vec<Pod>) -> ClaimView {
    let node = node_name(index);
    ClaimView {
        claim: Claim {
            name: claim_name(index),
            revision: 5,
            pool: NodePoolName::parse("default").unwrap(),
            class: NodeClassName::parse("default").unwrap(),
            launch: LaunchId::parse("launch-1").unwrap(),
            created_at: at(-1000),
            state: ClaimState::Initialized {
                instance: instance(index, image),
                node: node.clone(),
                at: at(-900),
            },
            drift: None,
            role: CommandRole::None,
            terms: None,
            requests: ResourceList::new(),
        },
        architecture: Some(Architecture::X86_64),
        node: Some(NodeView {
            name: node.to_string(),
            readiness: Readiness::Ready,
            do_not_disrupt: DoNotDisrupt::No,
            pods: pods
                .into_iter()
                .map(|pod| Pod { node: Some(node.clone()), phase: PodPhase::Running, ..pod })
                .collect(),
        }),
    }
}

fn class() -> ClassView {
    ClassView {
        name: NodeClassName::parse("default").unwrap(),
        readiness: ClassReadiness::Ready,
        images: vec![ResolvedImage {
            id: ImageId::parse(NEW).unwrap(),
            name: "new".to_owned(),
            architecture: Architecture::X86_64,
            created_at: at(0),
        }],
        subnets: vec![SubnetId::parse("subnet-1").unwrap()],
        reservations: None,
    }
}

/// A cluster of these claims, each node full of nothing but its own pods: 3900m CPU, five pods.
fn cluster(claims: Vec<ClaimView>, budget: Nodes) -> Input {
    let mut default = pool("default", vec![FakeType::new("default.instance-type", 4, 4, 5).option()]);
    default.pool.disruption.budgets = vec![Budget::always(budget)];
    let mut world = input(Vec::new(), vec![default.clone()]);
    for view in &claims {
        let Some(found) = &view.node else { continue };
        let mut one = node(
            &found.name,
            NodeKind::Initialized,
            &[("cpu", "3900m"), ("memory", "4086Mi"), ("pods", "5")],
        );
        one.used = ResourceList::sum(found.pods.iter().map(|pod| &pod.shape.requests));
        world.nodes.push(one);
    }
    Input {
        now: at(0),
        halt: Halt::Running,
        claims,
        classes: vec![class()],
        pools: vec![default.pool],
        pdbs: Vec::new(),
        commands: Vec::new(),
        counted: BTreeSet::new(),
        world,
    }
}

fn busy(index: usize) -> Vec<Pod> {
    pods(&format!("web-{index}"), 1, shape(&[("cpu", "3")]))
}

fn candidates(plan: &Plan) -> Vec<String> {
    plan.commands.iter().flat_map(|command| &command.candidates).map(ToString::to_string).collect()
}

fn refusals(report: &Report) -> BTreeMap<&'static str, usize> {
    report.refusals.iter().fold(BTreeMap::new(), |mut counts, refusal| {
        *counts.entry(refusal.reason.as_str()).or_default() += 1;
        counts
    })
}

#[test]
fn c104_c113_budgets_bound_how_many_go_at_once() {
    for (budget, expected) in [(Nodes::Percent(30), 3), (Nodes::Percent(100), 10), (Nodes::Percent(0), 0)] {
        for pods_of in [|_| Vec::new(), busy as fn(usize) -> Vec<Pod>] {
            let claims = (0..10).map(|index| drifted(index, -10, pods_of(index))).collect();
            let (plan, report) = plan(&cluster(claims, budget));
            assert_eq!(plan.commands.len(), expected, "{report:?}");
            let left = 10 - expected;
            assert_eq!(refusals(&report).get("BudgetExhausted").copied().unwrap_or(0), left);
        }
    }
}

#[test]
fn what_goes_already_or_is_not_ready_uses_up_the_budget() {
    let mut claims: Vec<ClaimView> = (0..10).map(|index| drifted(index, -10, busy(index))).collect();
    let ClaimState::Initialized { instance, node, .. } = claims[0].claim.state.clone() else {
        unreachable!()
    };
    claims[0].claim.state = ClaimState::Draining {
        instance,
        node: Some(node),
        reason: RemovalReason::SpotInterrupted,
        at: at(-5),
        deadline: None,
    };
    claims[1].node.as_mut().unwrap().readiness = Readiness::NotReady;
    let (plan, report) = plan(&cluster(claims, Nodes::Count(3)));
    // The one that isn't ready is counted already, so it and one other go.
    assert_eq!(plan.commands.len(), 2);
    let exhausted = RefusalReason::BudgetExhausted {
        pool: NodePoolName::parse("default").unwrap(),
        allowed: 3,
        going: 3,
    };
    assert!(report.refusals.iter().any(|refusal| refusal.reason == exhausted), "{report:?}");
}

#[test]
fn c113_empty_nodes_go_first_then_the_oldest_drift() {
    let claims = vec![drifted(0, -10, busy(0)), drifted(1, -30, busy(1)), drifted(2, -5, Vec::new())];
    let (plan, _) = plan(&cluster(claims, Nodes::Percent(100)));
    assert_eq!(candidates(&plan), ["default-00002", "default-00001", "default-00000"]);
    assert!(plan.commands[0].drains_at_once());
    assert_eq!(plan.commands[1].replacement.claims.len(), 1);
}

#[test]
fn c113_pods_without_a_place_keep_their_node_and_the_next_one_goes() {
    let claims = vec![drifted(0, -30, pods("huge", 1, shape(&[("cpu", "64")]))), drifted(1, -10, busy(1))];
    let (plan, report) = plan(&cluster(claims, Nodes::Percent(100)));
    assert_eq!(candidates(&plan), ["default-00001"]);
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
}

#[test]
fn room_elsewhere_is_used_and_not_given_away_twice() {
    let small = |index: usize| pods(&format!("web-{index}"), 1, shape(&[("cpu", "1500m")]));
    let claims = vec![
        drifted(0, -30, small(0)),
        drifted(1, -20, small(1)),
        drifted(2, -10, small(2)),
        settled(3, NEW, small(3)),
    ];
    let (plan, _) = plan(&cluster(claims, Nodes::Percent(100)));
    assert_eq!(plan.commands.len(), 3);
    let placed: usize = plan.commands.iter().map(|command| command.replacement.placements.len()).sum();
    let new: usize = plan.commands.iter().map(|command| command.replacement.claims.len()).sum();
    // One fits beside the settled node's pod; nodes that drifted themselves are no place to move to.
    assert_eq!((placed, new), (1, 2), "{plan:#?}");
}

fn guarded(pods: Vec<Pod>) -> Vec<Pod> {
    pods.into_iter()
        .map(|pod| {
            let mut shape: PodShape = (*pod.shape).clone();
            shape.labels.insert("app".to_owned(), "web".to_owned());
            Pod { shape: Arc::new(shape), ..pod }
        })
        .collect()
}

fn pdb(allowed: u32) -> PodDisruptionBudget {
    PodDisruptionBudget {
        meta: ObjectMeta { name: "web".to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() },
        selector: Some(LabelSelector { requirements: vec![Requirement::one_of("app", ["web"])] }),
        bound: PdbBound::MinAvailable(IntOrPercent::Int(1)),
        disruptions_allowed: allowed,
        unhealthy_pods: UnhealthyPodEviction::IfHealthyBudget,
    }
}

fn with_grace(mut world: Input) -> Input {
    let pool: &mut NodePool = &mut world.pools[0];
    pool.template.termination_grace_period = Some(SignedDuration::from_mins(5));
    world
}

#[test]
fn c113_pdbs_block_and_a_grace_period_unblocks() {
    let world = |allowed| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], Nodes::Percent(100));
        world.pdbs = vec![pdb(allowed)];
        world
    };
    let (waiting, report) = plan(&world(0));
    assert_eq!(refusals(&report), BTreeMap::from([("BlockedByPdb", 1)]));
    // Looked at again soon: nobody is woken when a budget is free again.
    assert!(waiting.wake_at.is_some_and(|at| at <= world(0).now + SignedDuration::from_secs(60)));
    assert_eq!(plan(&world(1)).0.commands.len(), 1);
    assert_eq!(plan(&with_grace(world(0))).0.commands.len(), 1);
}

#[test]
fn the_grace_period_that_unblocks_is_the_claims_own() {
    let world = |own: Option<SignedDuration>| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], Nodes::Percent(100));
        world.pdbs = vec![pdb(0)];
        world.claims[0].claim.terms = Some(Terms { expire_after: None, termination_grace_period: own });
        world
    };
    let own = Some(SignedDuration::from_mins(5));
    assert_eq!(plan(&world(own)).0.commands.len(), 1);
    assert_eq!(plan(&with_grace(world(None))).0.commands.len(), 0);
}

#[test]
fn c113_do_not_disrupt_blocks_while_it_lasts_and_a_grace_period_unblocks_pods() {
    let world = |word: DoNotDisrupt| {
        let mut world = cluster(vec![drifted(0, -30, busy(0))], Nodes::Percent(100));
        let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
        pod.started_at = Some(at(-60));
        pod.shape = Arc::new(PodShape { do_not_disrupt: word, ..(*pod.shape).clone() });
        world
    };
    let (blocked, report) = plan(&world(DoNotDisrupt::Always));
    assert_eq!((blocked.commands.len(), refusals(&report)), (0, BTreeMap::from([("DoNotDisrupt", 1)])));
    let (waits, _) = plan(&world(DoNotDisrupt::For(SignedDuration::from_secs(90))));
    assert_eq!((waits.commands.len(), waits.wake_at), (0, Some(at(30))));
    assert_eq!(plan(&world(DoNotDisrupt::For(SignedDuration::from_secs(60)))).0.commands.len(), 1);
    let (ignored, report) = plan(&world(DoNotDisrupt::Invalid("yes".to_owned())));
    assert_eq!((ignored.commands.len(), report.warnings.len()), (1, 1));
    assert_eq!(plan(&with_grace(world(DoNotDisrupt::Always))).0.commands.len(), 1);
    let mut node_says = with_grace(world(DoNotDisrupt::No));
    node_says.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always;
    assert!(plan(&node_says).0.commands.is_empty());
}

#[test]
fn pods_of_daemon_sets_need_no_replacement() {
    let mut agent: PodShape = shape(&[("cpu", "100m")]);
    agent.owner = Some(OwnerReference {
        kind: "DaemonSet".to_owned(),
        name: "agent".to_owned(),
        uid: String::new(),
        role: OwnerRole::Controller,
    });
    let (plan, _) = plan(&cluster(vec![drifted(0, -30, pods("agent", 1, agent))], Nodes::Percent(100)));
    assert!(plan.commands[0].drains_at_once());
}

#[test]
fn another_image_marks_drift_and_the_same_one_clears_it() {
    let world = cluster(vec![settled(0, OLD, busy(0)), drifted(1, -30, busy(1))], Nodes::Percent(0));
    let (marked, _) = plan(&world);
    assert_eq!((marked.marks.len(), marked.commands.len(), marked.wake_at), (1, 0, Some(at(0))));
    let drift = marked.marks[0].drift.as_ref().unwrap();
    assert_eq!((drift.from.as_str(), drift.to.as_str(), drift.reason.as_str()), (OLD, NEW, "AMIDrift"));
    let mut back = cluster(vec![drifted(1, -30, busy(1))], Nodes::Percent(100));
    back.classes[0].images[0].id = ImageId::parse(OLD).unwrap();
    let (cleared, _) = plan(&back);
    assert_eq!((cleared.marks[0].drift.is_none(), cleared.commands.len()), (true, 0));
}

#[test]
fn a_subnet_that_the_class_no_longer_has_marks_drift() {
    let subnets =
        |names: &[&str]| names.iter().map(|name| SubnetId::parse(*name).unwrap()).collect::<Vec<_>>();
    let world = |given: &[&str]| {
        let mut world = cluster(vec![settled(0, NEW, busy(0))], Nodes::Percent(0));
        world.classes[0].subnets = subnets(given);
        world
    };
    assert!(plan(&world(&["subnet-1", "subnet-2"])).0.marks.is_empty());
    let mut moved = world(&["subnet-3", "subnet-2"]);
    let (marked, _) = plan(&moved);
    let drift = marked.marks[0].drift.clone().unwrap();
    assert_eq!((drift.reason.as_str(), drift.from.as_str()), ("SubnetDrift", "subnet-1"));
    assert_eq!(drift.to, "subnet-2,subnet-3");
    // Other free addresses give another order, and no other mark.
    moved.claims[0].claim.drift = Some(drift);
    moved.classes[0].subnets.reverse();
    assert!(plan(&moved).0.marks.is_empty());
    let many: Vec<String> = (2..10).map(|n| format!("subnet-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let to = plan(&world(&many)).0.marks.remove(0).drift.unwrap().to;
    assert_eq!(to, "subnet-2,subnet-3,subnet-4,subnet-5,subnet-6 and 3 more");
}

#[test]
fn of_a_subnet_that_was_never_kept_nothing_is_said() {
    let mut view = settled(0, NEW, busy(0));
    let instance = LaunchedInstance { subnet: None, ..instance(0, NEW) };
    view.claim.state = ClaimState::Initialized { instance, node: node_name(0), at: at(-900) };
    let mut world = cluster(vec![view], Nodes::Percent(100));
    world.classes[0].subnets = vec![SubnetId::parse("subnet-2").unwrap()];
    assert!(plan(&world).0.is_empty());
}

/// A claim whose launch asked for `cr-1`, of a class that has these reservations behind that gate.
fn reserved(gate: Gate, ids: &[&str]) -> Input {
    let mut view = settled(0, NEW, busy(0));
    let into = LaunchedInto { id: "cr-1".parse().unwrap(), kind: ReservationKind::Default };
    let instance = LaunchedInstance { reservation: Some(into), ..instance(0, NEW) };
    view.claim.state = ClaimState::Initialized { instance, node: node_name(0), at: at(-900) };
    let mut world = cluster(vec![view], Nodes::Percent(100));
    let reservation = |id: &&str| ClassReservation {
        id: id.parse().unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: InstanceType::parse("default.instance-type").unwrap(),
        zone: Zone::parse("test-zone-1").unwrap(),
        match_criteria: MatchCriteria::Targeted,
        kind: ReservationKind::Default,
        ends_at: None,
        available: 0,
    };
    let of_class = ClassReservations::restored(ids.iter().map(reservation).collect());
    world.classes[0].reservations = ReservedCapacity::behind(Gates { reserved_capacity: gate })
        .map(|right| DriftingReservations { right, of_class });
    world
}

#[test]
fn a_claim_drifts_from_a_reservation_that_its_class_lost_only_behind_the_gate() {
    let (marked, _) = plan(&reserved(Gate::Enabled, &["cr-2", "cr-3"]));
    let drift = marked.marks[0].drift.clone().unwrap();
    assert_eq!((drift.reason.as_str(), drift.from.as_str()), ("CapacityReservationDrift", "cr-1"));
    assert_eq!(drift.to, "cr-2,cr-3");
    let (alone, _) = plan(&reserved(Gate::Enabled, &[]));
    assert_eq!(alone.marks[0].drift.as_ref().unwrap().to, "none");
    assert!(plan(&reserved(Gate::Enabled, &["cr-1", "cr-2"])).0.is_empty());
    assert!(plan(&reserved(Gate::Disabled, &["cr-2"])).0.is_empty());
    // What was marked while the gate was open is no drift once it is off.
    let mut off = reserved(Gate::Disabled, &["cr-2"]);
    off.claims[0].claim.drift = Some(drift);
    assert_eq!(plan(&off).0.marks[0].drift, None);
}

#[test]
fn an_instance_that_an_open_reservation_took_never_drifts_from_it() {
    // No launch of ours asked for one, so the claim has none.
    let mut world = reserved(Gate::Enabled, &["cr-2"]);
    world.claims = vec![settled(0, NEW, busy(0))];
    assert!(plan(&world).0.is_empty());
}

#[test]
fn nothing_is_known_to_have_drifted_while_the_class_is_not_ready() {
    let mut world = cluster(vec![settled(0, OLD, busy(0))], Nodes::Percent(100));
    world.classes[0].readiness = ClassReadiness::NotReady;
    assert!(plan(&world).0.is_empty());
    world.classes.clear();
    assert!(plan(&world).0.is_empty());
}

#[test]
fn a_settled_world_gives_an_empty_plan() {
    let (plan, report) =
        plan(&cluster((0..5).map(|i| settled(i, NEW, busy(i))).collect(), Nodes::Percent(100)));
    assert!(plan.is_empty() && plan.wake_at.is_none() && report.refusals.is_empty());
}

#[test]
fn while_halted_nothing_is_taken_away() {
    let mut world = cluster(vec![drifted(0, -30, Vec::new())], Nodes::Percent(100));
    world.halt = Halt::Halted;
    let (plan, report) = plan(&world);
    assert!(plan.is_empty());
    assert_eq!(report.waiting[0].reason(), "TableRestored");
}

/// A command that holds claim 0, with claim 1 as its replacement.
fn commanded(replacement: ClaimState, attempts: u32, not_before: i64) -> Input {
    let id = CommandId::parse("command-1").unwrap();
    let mut candidate = drifted(0, -30, busy(0));
    let ClaimState::Initialized { instance, node, .. } = candidate.claim.state.clone() else {
        unreachable!()
    };
    candidate.claim.state = ClaimState::Disrupting { instance, node, command: id.clone(), at: at(-20) };
    let mut other = settled(1, NEW, Vec::new());
    other.claim.state = replacement;
    other.claim.role = CommandRole::Replacement(id.clone());
    let joined = other.claim.state.node().is_some();
    other.node = other.node.filter(|_| joined);
    let mut world = cluster(vec![candidate, other], Nodes::Percent(100));
    world.commands.push(Command {
        id,
        revision: 1,
        pool: NodePoolName::parse("default").unwrap(),
        reason: RemovalReason::Drifted,
        candidates: vec![claim_name(0)],
        replacements: vec![claim_name(1)],
        state: CommandState::Replacing { since: at(-20), attempts, not_before: at(not_before) },
        created_at: at(-20),
    });
    world
}

#[test]
fn candidates_drain_once_their_replacements_are_initialised_and_not_before() {
    let launched = ClaimState::Launched { instance: instance(1, NEW), at: at(-10) };
    let (waits, _) = plan(&commanded(launched, 0, -20));
    assert!(waits.is_empty());
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let (drains, _) = plan(&commanded(ready, 0, -20));
    assert_eq!(drains.advances[0].step, Step::Drain { candidates: vec![claim_name(0)] });
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
    assert_eq!(drains.advances[0].step, Step::Drain { candidates: vec![claim_name(0)] });
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
    let Step::Replace { failed: gone, plan: replacement, attempts, not_before } = &again.advances[0].step
    else {
        panic!("{again:?}")
    };
    assert_eq!((gone.as_slice(), replacement.claims.len(), *attempts), ([claim_name(1)].as_slice(), 1, 2));
    assert_eq!(*not_before, at(20));
    let (later, _) = plan(&commanded(failed(), 1, 15));
    assert!(later.is_empty());
    assert_eq!(later.wake_at, Some(at(15)));
}

#[test]
fn a_command_without_candidates_ends() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(-1) };
    let mut world = commanded(ready, 0, -20);
    world.claims.remove(0);
    assert_eq!(plan(&world).0.advances[0].step, Step::Finish);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn budgets_hold_and_order_means_nothing(
        nodes in prop::collection::vec((0_u8..4, -60_i64..0, 0_usize..3, any::<bool>()), 0..14),
        budget in 0_u32..8,
    ) {
        let claims: Vec<ClaimView> = nodes
            .iter()
            .enumerate()
            .map(|(index, (kind, since, count, ready))| {
                let own = pods(&format!("p{index}"), *count, shape(&[("cpu", "1")]));
                let mut view = if *kind == 0 { settled(index, NEW, own) } else { drifted(index, *since, own) };
                if !ready {
                    view.node.as_mut().unwrap().readiness = Readiness::NotReady;
                }
                view
            })
            .collect();
        let world = cluster(claims, Nodes::Count(budget));
        let (planned, report) = plan(&world);
        let unready = nodes.iter().filter(|(_, _, _, ready)| !ready).count();
        let taken_ready = planned
            .commands
            .iter()
            .filter(|c| world.claims.iter().any(|v| v.claim.name == c.candidates[0]
                && v.node.as_ref().unwrap().readiness == Readiness::Ready))
            .count();
        prop_assert!(planned.commands.is_empty() || taken_ready + unready <= usize::try_from(budget).unwrap() );
        let drifted = nodes.iter().filter(|(kind, ..)| *kind != 0).count();
        prop_assert_eq!(planned.commands.len() + report.refusals.len(), drifted);
        let mut turned = world.clone();
        turned.claims.reverse();
        turned.world.nodes.reverse();
        prop_assert_eq!(plan(&turned), (planned, report));
    }
}
