//! Disruption: the worlds that its tests share. A test with a number in its name replays behaviour of Karpenter's own
//! tests (kubernetes-sigs/karpenter `pkg/controllers/disruption`).

mod blocked;
mod commands;
mod consolidation;
mod consolidation_begins;
mod drift;
mod empty;
mod exhaustive;
mod expired;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use proptest::prelude::*;
use tenon_domain::SignedDuration;
use tenon_domain::api::Pod;
use tenon_domain::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use tenon_domain::api::node_pool::NodePool;
use tenon_domain::api::pod::{DoNotDisrupt, LabelSelector, PodOrigin, PodPhase, PodShape, Readiness};
use tenon_domain::api::workload::{IntOrPercent, PdbBound, PodDisruptionBudget, UnhealthyPodEviction};
use tenon_domain::budget::{Budget, BudgetNodes, DisruptionReason};
use tenon_domain::catalog::CapacityType;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::claim::{
    Claim, ClaimState, CommandRole, Drift, DriftReason, LaunchedInstance, RemovalReason, Terms,
};
use tenon_domain::class_hash::{FieldDigests, PoolHash};
use tenon_domain::class_status::{ImageVariant, ResolvedImage};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NamespacedName, NodeClassName,
    NodeName, NodePoolName, SecurityGroupId, SubnetId, Zone,
};
use tenon_domain::money::Currency;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::registry::{FeatureGate, GateName, Gates};
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::{
    ClassReservation, ClassReservations, LaunchedInto, MatchCriteria, ReservationKind, ReservedCapacity,
};
use tenon_domain::taint::Toleration;
use tenon_planning::disruption::{
    Adoption, ClaimView, ClassReadiness, ClassView, CommandStep, ConsolidatableMark, DisruptionInput,
    DisruptionPause, DisruptionPlan, DisruptionReport, DriftingReservations, HaltState, NewCommand, NodeView,
    RefusalReason, plan,
};
use tenon_planning::provision::Occupancy;
use tenon_planning::provision::{NodeKind, StepBudget};

pub(super) const OLD: &str = "ami-old";
pub(super) const NEW: &str = "ami-new";

pub(super) fn claim_name(index: usize) -> ClaimName {
    ClaimName::parse(format!("default-{index:05}")).unwrap()
}

pub(super) fn node_name(index: usize) -> NodeName {
    NodeName::parse(format!("node-{index:05}")).unwrap()
}

pub(super) fn instance(index: usize, image: &str) -> LaunchedInstance {
    LaunchedInstance {
        id: InstanceId::parse(format!("i-{index:05}")).unwrap(),
        instance_type: InstanceType::parse("default.instance-type").unwrap(),
        zone: Zone::parse("test-zone-1").unwrap(),
        subnet: Some(SubnetId::parse("subnet-1").unwrap()),
        reservation: None,
        placement: None,
        capacity_type: CapacityType::OnDemand,
        image: ImageId::parse(image).unwrap(),
    }
}

/// An initialised claim with an old image, marked so `drifted_at` seconds in.
pub(super) fn drifted(index: usize, drifted_at: i64, pods: Vec<Pod>) -> ClaimView {
    let mut view = settled(index, OLD, pods);
    view.claim.drift = Some(Drift {
        reason: DriftReason::AmiDrift,
        since: at(drifted_at),
        from: OLD.to_owned(),
        to: NEW.to_owned(),
        fields: Vec::new(),
    });
    view
}

pub(super) fn settled(index: usize, image: &str, pods: Vec<Pod>) -> ClaimView {
    let node = node_name(index);
    ClaimView {
        claim: Claim {
            revision: 5,
            pool_hash: Some(PoolHash::of(&node_pool("default").template)),
            security_groups: Some(BTreeSet::from([group("sg-1")])),
            state: ClaimState::Initialized {
                instance: instance(index, image),
                node: node.clone(),
                at: at(-900),
            },
            ..Claim::planned(
                claim_name(index),
                (NodePoolName::parse("default").unwrap(), NodeClassName::parse("default").unwrap()),
                LaunchId::parse("launch-1").unwrap(),
                at(-1000),
            )
        },
        facts: Some(Arc::new(facts("m5.large", 2, 8))),
        node: Some(NodeView {
            name: node.to_string(),
            readiness: Readiness::Ready,
            labels: BTreeMap::new(),
            do_not_disrupt: DoNotDisrupt::No,
            pods: pods
                .into_iter()
                .map(|pod| Pod { node: Some(node.clone()), phase: PodPhase::Running, ..pod })
                .collect(),
            pod_left_at: None,
        }),
    }
}

pub(super) fn group(id: &str) -> SecurityGroupId {
    SecurityGroupId::parse(id).unwrap()
}

pub(super) fn class() -> ClassView {
    ClassView {
        name: NodeClassName::parse("default").unwrap(),
        readiness: ClassReadiness::Ready,
        images: vec![ResolvedImage {
            id: ImageId::parse(NEW).unwrap(),
            name: "new".to_owned(),
            architecture: Architecture::X86_64,
            variant: ImageVariant::Any,
            boot_mode: None,
            created_at: at(0),
            own_snapshots: BTreeMap::new(),
        }],
        failed_images: BTreeSet::new(),
        hash: None,
        fields: None,
        security_groups: BTreeSet::from([group("sg-1")]),
        subnets: vec![SubnetId::parse("subnet-1").unwrap()],
        reservations: None,
        placement_group: None,
    }
}

/// A cluster of these claims, each node full of nothing but its own pods: 3900m CPU, five pods.
pub(super) fn cluster(claims: Vec<ClaimView>, budget: BudgetNodes) -> DisruptionInput {
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
        one.occupancy = Occupancy::of(&found.pods);
        world.nodes.push(one);
    }
    DisruptionInput {
        now: at(0),
        paused: BTreeMap::new(),
        cluster_budget: None,
        currency: Currency::Usd,
        spot_to_spot: FeatureGate::Disabled,
        halt: HaltState::Running,
        claims,
        classes: vec![class()],
        pools: vec![default.pool],
        pdbs: Vec::new(),
        commands: Vec::new(),
        moved: Vec::new(),
        undone: Vec::new(),
        replaced_drift: BTreeMap::new(),
        counted: BTreeMap::new(),
        world,
    }
}

pub(super) fn busy(index: usize) -> Vec<Pod> {
    pods(&format!("web-{index}"), 1, shape(&[("cpu", "3")]))
}

pub(super) fn candidates(plan: &DisruptionPlan) -> Vec<String> {
    plan.commands.iter().flat_map(|command| &command.candidates).map(ToString::to_string).collect()
}

pub(super) fn refusals(report: &DisruptionReport) -> BTreeMap<&'static str, usize> {
    report.refusals.iter().fold(BTreeMap::new(), |mut counts, refusal| {
        *counts.entry(refusal.reason.into_str()).or_default() += 1;
        counts
    })
}

/// A command that holds claim 0, with claim 1 as its replacement.
pub(super) fn commanded(replacement: ClaimState, attempts: u32, not_before: i64) -> DisruptionInput {
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
    let mut world = cluster(vec![candidate, other], BudgetNodes::Percent(100));
    world.commands.push(Command {
        id,
        revision: 1,
        pool: NodePoolName::parse("default").unwrap(),
        reason: RemovalReason::Drifted,
        drifted_to: None,
        candidates: vec![claim_name(0)],
        replacements: vec![claim_name(1)],
        state: CommandState::Replacing { since: at(-20), attempts, not_before: at(not_before), unplanned: 0 },
        created_at: at(-20),
    });
    world
}
