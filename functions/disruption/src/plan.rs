//! Plans disruption from observations. Pure.
//!
//! Decides which observations support a plan, and drops commands whose replacements can't be launched, or that one
//! transaction doesn't hold.
//! `tenon_planning` decides which nodes leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::NodeClaimObject;
use tenon_domain::api::NodePool;
use tenon_domain::api::node_pool::ConsolidationPolicy;
use tenon_domain::api::pod::DoNotDisrupt;
use tenon_domain::catalog::{HeldOffering, InstanceTypeOption, find_option, held_offerings};
use tenon_domain::claim::{Claim, ClaimPhase, Drift, RemovalReason, Terms};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::{Command, CommandState};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, ClusterName, CommandId, NodeClassName, NodePoolName, Region};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::karpenter;
use tenon_domain::labels;
use tenon_domain::launch::LaunchCause;
use tenon_domain::money::Currency;
use tenon_domain::registry::{FeatureGate, GateName, Registry};
use tenon_domain::report::{self, ALL_POOLS, Finding, Shown};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Snapshot;
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{Built, LaunchInput, build, write_launch};
use tenon_launching::zones::ZoneTally;
use tenon_planning::disruption::{
    self, ClaimView, ClassReadiness, ClassView, CommandStep, DisruptionInput, DisruptionPause,
    DisruptionPlan, DisruptionRefusal, DisruptionReport, DriftingReservations, HaltState, MovingTime,
    NewCommand, NodeView, RefusalReason, UndoneCommand,
};
use tenon_planning::provision::Purpose;
use tenon_state::cluster::{ObservedCluster, ReadyClass};
use tenon_state::observe::{ClusterObservation, evidence};
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::limits::TRANSACTION_ACTIONS;

/// How often used nodes are compared with new prices: spot prices change every few minutes, and mostly by little.
const REPRICED_EVERY: SignedDuration = SignedDuration::from_mins(30);

/// The writes for a candidate: its claim, its action, and a record in two places.
const WRITES_OF_A_CANDIDATE: usize = 4;
/// The command, the cluster's revision, and the count of steps.
const OTHER_WRITES: usize = 3;

/// Whether the pool's used nodes go where their pods cost less elsewhere.
fn consolidates(pool: &NodePool) -> bool {
    pool.disruption.consolidate_after.is_some()
        && pool.disruption.consolidation_policy != ConsolidationPolicy::WhenEmpty
}

/// A plan with all that its writes are made from.
#[derive(Debug)]
pub(crate) struct PlannedDisruption {
    pub(crate) plan: DisruptionPlan,
    /// The launches of commands' replacements, by command, without those that can't be built.
    pub(crate) built: BTreeMap<CommandId, Built>,
    /// When prices that have changed are looked at, where a pool consolidates used nodes.
    pub(crate) reprice_at: Option<Timestamp>,
    /// The offerings of the cluster's instances, for its metrics.
    pub(crate) offerings: Vec<HeldOffering>,
    /// How long drains may take, by claim.
    pub(crate) terms: BTreeMap<ClaimName, Terms>,
    classes: BTreeMap<NodeClassName, ReadyClass>,
    types: BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
    evidence: BTreeMap<String, u64>,
    zones: ZoneTally,
}

impl PlannedDisruption {
    /// The input of replacements' launches.
    pub(crate) fn launch_input<'a>(
        &'a self,
        registry: &'a Registry,
        region: &'a Region,
        view: &'a ClusterView,
    ) -> LaunchInput<'a> {
        LaunchInput {
            now: view.now,
            by: FunctionName::Disruption,
            registry,
            classes: &self.classes,
            types: &self.types,
            region,
            marks: &view.marks,
            zones: &self.zones,
            replaced: &[],
            displaced: None,
            leaving: &view.leaving,
            evidence: &self.evidence,
        }
    }
}

/// Plans; `None` without evidence, or if there is nothing to disrupt.
pub(crate) fn plan(
    cluster: &ClusterName,
    region: &Region,
    observed: &ClusterObservation,
) -> (Option<PlannedDisruption>, report::Report) {
    let view = &observed.view;
    let mut told = report::Report::default();
    if let Ok(registry) = &view.registry {
        told_pause(registry, &mut told);
    }
    let found = match (&view.registry, &view.halt, &observed.snapshot) {
        (Ok(registry), None, Ok(snapshot)) => Ok((registry, snapshot)),
        (Err(missing), _, _) | (Ok(_), None, Err(missing)) => Err(missing.clone()),
        (Ok(_), Some(_), _) => Err(Waiting::TableRestored),
    };
    let (registry, snapshot) = match found {
        Ok(found) => found,
        Err(missing) => {
            told.wait(&missing);
            return (None, told);
        }
    };
    if let Some(waiting) = karpenter::waiting(&snapshot.pods) {
        told.wait(&waiting);
    }
    if view.claims.is_empty() {
        return (None, told);
    }
    let mut world = ObservedCluster::new(cluster, registry, view, snapshot);
    world.resolve(region, &observed.compiled);
    let currency = Currency::of_region(region);
    let (plan, report) = disruption::plan(&input(&world, view, snapshot, currency));
    report.tell(&mut told);
    let terms = view.claims.values().filter_map(|claim| {
        let pool = snapshot.node_pools.iter().find(|pool| pool.name == claim.pool);
        Some((claim.name.clone(), claim.terms_or(pool)?))
    });
    let mut planned = PlannedDisruption {
        reprice_at: snapshot
            .node_pools
            .iter()
            .any(consolidates)
            .then(|| view.now.saturating_add(REPRICED_EVERY).unwrap_or(view.now)),
        offerings: offerings(view, &world.types),
        terms: terms.collect(),
        built: BTreeMap::new(),
        classes: world.classes,
        types: world.types,
        evidence: evidence(view, snapshot.generation),
        zones: ZoneTally::of(view.claims.values()),
        plan,
    };
    planned.built = built(&planned.launch_input(registry, region, view), view, &planned.plan, &mut told);
    let large = too_large(&planned.launch_input(registry, region, view), &planned);
    report_of(&large).tell(&mut told);
    planned.plan.commands.retain(|command| !large.contains_key(&command.id));
    (Some(planned), told)
}

/// The offerings of instances that may still run, with what the plan knows of them.
fn offerings(
    view: &ClusterView,
    types: &BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
) -> Vec<HeldOffering> {
    let running = view.claims.values().filter(|claim| claim.phase().has_instance());
    held_offerings(running.filter_map(|claim| {
        let instance = claim.state.instance()?;
        Some((instance, find_option(types.get(&claim.pool)?, &instance.instance_type)?))
    }))
}

/// Builds the launches of replacements, and reports those that can't be built.
fn built(
    input: &LaunchInput<'_>,
    view: &ClusterView,
    plan: &DisruptionPlan,
    told: &mut report::Report,
) -> BTreeMap<CommandId, Built> {
    let new = plan.commands.iter().map(|command| {
        let replaced = command.candidates.as_slice();
        (&command.id, replaced, &command.replacement)
    });
    let more = plan.advances.iter().filter_map(|advance| match &advance.step {
        CommandStep::Replace { plan, .. } => {
            let replaced =
                view.commands.get(&advance.command).map_or(&[][..], |known| known.candidates.as_slice());
            Some((&advance.command, replaced, plan))
        }
        CommandStep::Drain { .. } | CommandStep::Undo { .. } | CommandStep::Finish => None,
    });
    let mut all = BTreeMap::new();
    for (command, replaced, replacement) in new.chain(more) {
        let input = LaunchInput { replaced, ..input.clone() };
        let built = build(&input, &replacement.claims, &LaunchCause::Replacement(command.clone()));
        built.tell(told);
        all.insert(command.clone(), built);
    }
    all
}

/// The commands that don't fit into one transaction, with their candidates and the number of replacements.
fn too_large(
    input: &LaunchInput<'_>,
    planned: &PlannedDisruption,
) -> BTreeMap<CommandId, (Vec<ClaimName>, usize)> {
    let writes = |command: &NewCommand| {
        let mut change = Change::of(&input.registry.cluster);
        for launch in planned.built.get(&command.id).iter().flat_map(|built| &built.launches) {
            write_launch(input, launch, 0, |_| false, &mut change);
        }
        change
            .group()
            .writes
            .len()
            .saturating_add(command.candidates.len().saturating_mul(WRITES_OF_A_CANDIDATE))
    };
    let large = planned
        .plan
        .commands
        .iter()
        .filter(|command| writes(command).saturating_add(OTHER_WRITES) > TRANSACTION_ACTIONS);
    large.map(|one| (one.id.clone(), (one.candidates.clone(), one.replacement.claims.len()))).collect()
}

/// What is told of commands that don't fit.
fn report_of(large: &BTreeMap<CommandId, (Vec<ClaimName>, usize)>) -> DisruptionReport {
    let refusals = large.values().flat_map(|(candidates, count)| {
        let reason = RefusalReason::TooManyReplacements { count: *count };
        candidates.iter().map(move |claim| DisruptionRefusal {
            claim: claim.clone(),
            reason: reason.clone(),
            waits_for: None,
        })
    });
    DisruptionReport { refusals: refusals.collect(), ..DisruptionReport::default() }
}

/// The input of disruption.
fn input(
    world: &ObservedCluster<'_>,
    view: &ClusterView,
    snapshot: &Snapshot,
    currency: Currency,
) -> DisruptionInput {
    let objects: BTreeMap<&ClaimName, &NodeClaimObject> =
        snapshot.node_claims.iter().map(|object| (&object.name, object)).collect();
    let pod_left_at = |claim: &ClaimName| objects.get(claim).and_then(|object| object.last_pod_event);
    let claims = view.claims.values().map(|claim| ClaimView {
        claim: claim.clone(),
        facts: world.facts(claim),
        node: world.node_of(claim).map(|node| NodeView {
            name: node.name.to_string(),
            readiness: node.readiness,
            labels: if claim.phase() == ClaimPhase::Disrupting {
                node.meta.labels.clone()
            } else {
                BTreeMap::new()
            },
            do_not_disrupt: match node.meta.annotations.get(labels::DO_NOT_DISRUPT).map(String::as_str) {
                Some("true") => DoNotDisrupt::Always,
                Some(_) | None => DoNotDisrupt::No,
            },
            pods: world.bound_to(&node.name),
            pod_left_at: pod_left_at(&claim.name),
        }),
    });
    DisruptionInput {
        now: view.now,
        paused: paused(view, snapshot),
        cluster_budget: view.registry.as_ref().ok().and_then(|of| of.settings.disruption_budget),
        currency,
        spot_to_spot: view
            .registry
            .as_ref()
            .map_or_else(|_| FeatureGate::default(), |of| of.gates.of(GateName::SpotToSpotConsolidation)),
        halt: if view.halt.is_some() { HaltState::Halted } else { HaltState::Running },
        claims: claims.collect(),
        classes: view.classes.values().map(|status| class_view(status, view, snapshot)).collect(),
        pools: snapshot.node_pools.clone(),
        pdbs: snapshot.pdbs.clone(),
        commands: view.commands.values().filter(|command| command.is_active()).cloned().collect(),
        moved: moved(view),
        undone: undone(view),
        replaced_drift: replaced_drift(view),
        counted: world.counted(),
        world: world.input(world.pending(), Purpose::PendingPods, &BTreeSet::new()),
    }
}

/// When consolidations moved pods.
fn moved(view: &ClusterView) -> Vec<MovingTime> {
    let consolidations =
        view.commands.values().filter(|command| command.reason == RemovalReason::Underutilized);
    let time = |command: &Command| {
        let to = match command.state {
            CommandState::Replacing { .. } | CommandState::Draining { .. } => view.now,
            CommandState::Done { at } => at,
        };
        MovingTime { from: command.created_at, to }
    };
    consolidations.map(time).collect()
}

/// The candidates of done commands that still serve: a command that isn't undone leaves none.
fn undone(view: &ClusterView) -> Vec<UndoneCommand> {
    let serves = |name: &&ClaimName| {
        let phase = view.claims.get(*name).map(Claim::phase);
        matches!(phase, Some(ClaimPhase::Initialized | ClaimPhase::Disrupting))
    };
    let of = |command: &Command| match command.state {
        CommandState::Replacing { .. } | CommandState::Draining { .. } => Vec::new(),
        CommandState::Done { at } => {
            let candidates = command.candidates.iter().filter(serves).cloned();
            let undone = |claim| UndoneCommand {
                claim,
                reason: command.reason,
                drifted_to: command.drifted_to.clone(),
                at,
            };
            candidates.map(undone).collect()
        }
    };
    view.commands.values().flat_map(of).collect()
}

/// The drift for which each command replaced its candidates.
fn replaced_drift(view: &ClusterView) -> BTreeMap<CommandId, Drift> {
    let drifted = view.commands.values().filter(|command| command.reason == RemovalReason::Drifted);
    let of = |command: &Command| {
        let drift = command.candidates.iter().find_map(|name| view.claims.get(name)?.drift.clone())?;
        Some((command.id.clone(), drift))
    };
    drifted.filter_map(of).collect()
}

/// The pools whose voluntary disruption is paused: all, if the cluster's setting says so, or if Karpenter runs, which pauses
/// least.
fn paused(view: &ClusterView, snapshot: &Snapshot) -> BTreeMap<NodePoolName, DisruptionPause> {
    let all = view.registry.as_ref().is_ok_and(is_paused);
    let by_karpenter = karpenter::waiting(&snapshot.pods).map(|_| DisruptionPause::Karpenter);
    let pause = |pool: &NodePool| match (all, pool.is_paused()) {
        (true, _) => Some(DisruptionPause::Setting),
        (false, true) => Some(DisruptionPause::Annotation),
        (false, false) => by_karpenter,
    };
    snapshot.node_pools.iter().filter_map(|pool| Some((pool.name.clone(), pause(pool)?))).collect()
}

fn is_paused(registry: &Registry) -> bool {
    registry.settings.voluntary_disruption == FeatureGate::Disabled
}

/// Tells the cluster's pause of all its pools. A pool's own pause is in its status.
fn told_pause(registry: &Registry, told: &mut report::Report) {
    if is_paused(registry) {
        let subject = Subject { kind: SubjectKind::Pool, name: ALL_POOLS.to_owned() };
        let sentence = "voluntary disruption of {} is paused";
        let why = "`VoluntaryDisruption` of the cluster's stack is `Disabled`; `Enabled` ends the pause";
        told.tell(Finding::refused(subject, "Setting", sentence, why).shown(Shown::DisruptionPaused));
    }
}

/// A class whose spec changed since its last resolution says nothing about drift.
fn class_view(status: &ClassStatus, view: &ClusterView, snapshot: &Snapshot) -> ClassView {
    let right = view.registry.as_ref().ok().and_then(|registry| ReservedCapacity::behind(&registry.gates));
    let spec = snapshot.node_classes.iter().find(|class| class.name == status.name);
    let current = spec.is_some_and(|class| status.is_of(&class.meta) && class.meta.deleted_at.is_none());
    ClassView {
        name: status.name.clone(),
        readiness: if current && status.ready() { ClassReadiness::Ready } else { ClassReadiness::NotReady },
        images: status.images.clone(),
        failed_images: status
            .rejected_images
            .iter()
            .filter(|image| image.reasons.iter().all(|reason| reason.fault.is_of_instance()))
            .map(|image| image.id.clone())
            .collect(),
        hash: status.hash,
        fields: spec.map(|class| class.spec_hash.fields()),
        security_groups: status.security_groups.iter().map(|group| group.id.clone()).collect(),
        subnets: status.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        reservations: right
            .map(|right| DriftingReservations { right, of_class: status.reservations.clone() }),
        placement_group: status.placement_group.as_ref().map(|group| group.id.clone()),
    }
}
