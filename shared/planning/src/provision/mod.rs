//! Provisioning: new claims for pods, and pods that fit on existing nodes.
//!
//! Decides nodes, types, prices and placements. It doesn't decide the CreateFleet request, nor the time of the next
//! look: the provisioner does. Unsupported constraints are refused by name ([`Reason::UnsupportedConstraint`]).
//!
//! Invariants: the order of the input's lists changes nothing; a claim's pods fit all of its instance types; a pod
//! that fits an available, allowed type is placed, unless limits or steps run out. It never panics.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/provisioning/scheduling`. How many pods go on one claim is our
//! own rule (module `pack`).

mod alternatives;
mod attachments;
mod daemons;
mod dense;
mod diagnose;
mod domains;
mod draft;
mod elders;
mod ends;
mod exclusions;
mod exclusive;
mod existing;
pub mod explain;
mod fill;
mod finish;
mod front;
pub mod input;
mod lanes;
mod limits;
mod merge;
mod min_values;
mod narrow;
mod needs;
mod occupancy;
mod offers;
mod open;
pub mod output;
mod pack;
mod picky;
mod pool;
mod probe;
mod purchase;
mod reason_words;
mod repack;
pub mod report;
mod reserved;
mod rest;
mod resting;
mod restrict;
mod round;
mod sample;
mod shared;
mod steps;
mod top_up;
mod topology;
mod trials;
mod turns;
mod volumes;
mod waiting;
mod ways;

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, Uid};
use tenon_domain::registry::MinValuesPolicy;

pub use explain::{
    ExcludedTypes, ExclusionCause, FittingType, PodExplanation, PoolExplanation, PricedOffering, explain,
};
pub use input::{
    DefaultSpread, ExistingNode, GuessedVcpus, NodeKind, PoolInput, PoolReadiness, PoolStanding,
    ProvisionInput, Purpose, StepBudget, Storage,
};
pub use occupancy::Occupancy;
pub use output::{AskReason, Placement, PlannedClaim, ProvisionPlan, UsableOffering};
pub use report::{PlanCompletion, ProvisionReport, Reason, Unschedulable, UnschedulableCause};
pub use sample::sample;
pub use shared::{ClaimOfferings, Shared};
pub use steps::StepsRanOut;
pub use trials::PlanTrials;

pub(crate) use daemons::Daemon;
pub(crate) use dense::{Dimensions, within};
pub(crate) use needs::{PodGroup, counted, groups};
pub(crate) use pool::Pool;
pub(crate) use purchase::{DearSpot, bought};
pub(crate) use topology::census;
pub(crate) use ways::Ways;

use attachments::VolumeLimits;
use elders::PodsByAge;
use ends::{DomainEnd, RefusedGroup};
use exclusions::EndedPlan;
use existing::Rooms;
use limits::ClusterUse;
use reserved::ReservedRoom;
use rest::Rest;
use round::{Growth, PlanAttempt, PlanState};
use steps::Steps;
use topology::census::Census;
use trials::Spent;
use waiting::WaitingGroups;
use ways::WaysTable;

/// Plans for the input's pods: existing room first, then new claims of the first pool that accepts (weight
/// descending, then name descending), avoiding taints `PreferNoSchedule` if another pool will do. If all of a pool's
/// offerings are exhausted, one claim probes them first (module `probe`).
///
/// Pods that find no place with a preference give it up, and pods that find none in the domain that they were dealt to
/// are dealt to another: each time the rest is planned again.
pub fn plan(input: &ProvisionInput) -> (ProvisionPlan, ProvisionReport) {
    plan_scope(input, &Scope::of(input), &measures(input, &input.pods), &mut Vec::new())
}

/// Plans for the pods of a scope. Pools are compiled when a pod needs one; those that are there are used again.
pub(crate) fn plan_scope<'a>(
    input: &'a ProvisionInput,
    scope: &Scope<'_>,
    measures: &InputMeasures<'a>,
    pools: &mut Vec<Pool<'a>>,
) -> (ProvisionPlan, ProvisionReport) {
    measures.ways.forget();
    let selectors = census::selectors(input, scope);
    let residents = census::residents(input, scope, &selectors);
    let (groups, mut unschedulable) = groups(input, scope, measures, (&selectors, &residents));
    if !pools.iter_mut().all(|pool| pool.begin_another(&measures.spent)) {
        pools.clear();
    }
    let by_age = PodsByAge::of(&groups);
    let mut attempt = PlanAttempt {
        input,
        scope,
        measures,
        pools,
        placements: Vec::new(),
        state: PlanState {
            steps: Steps::new(input.steps),
            room: ReservedRoom::besides(&measures.spent),
            claims: Vec::new(),
            of_cluster: ClusterUse::default(),
            open: Vec::new(),
            growth: Growth::No,
            rooms: Rooms::of(scope, measures, &residents),
            census: Census::of(scope, &residents, &keys(&groups)),
        },
        rest: Rest::of(groups),
    };
    attempt.run();
    let PlanAttempt { pools, mut placements, state, mut rest, .. } = attempt;
    let PlanState { steps, mut claims, census, .. } = state;
    by_age.give(&mut rest, &mut placements, &mut claims);
    placements.sort();
    let mut back_at = BTreeSet::new();
    let refused: Vec<RefusedGroup<'_, '_>> = rest.refused().collect();
    let unplanned: BTreeSet<&Uid> = unschedulable.iter().map(|one| &one.pod.uid).collect();
    let unplanned: Vec<&Pod> = scope.pods.iter().filter(|pod| unplanned.contains(&pod.uid)).collect();
    let ended = EndedPlan {
        census: &census,
        steps: &steps,
        ways: &measures.ways,
        waiting: WaitingGroups::of(&refused, &unplanned, &selectors),
        now: input.now,
    };
    for refused in &refused {
        let causes = causes(input, pools, refused, &ended);
        back_at.extend(causes.iter().filter_map(|cause| cause.reason.ends_at()));
        let pods = refused.group.pods.iter();
        unschedulable.extend(pods.map(|pod| Unschedulable { pod: counted(pod), causes: causes.clone() }));
    }
    unschedulable.sort();
    let outcome = steps.outcome();
    let again = (outcome == PlanCompletion::BudgetExhausted).then_some(input.now);
    let wake_at = back_at.into_iter().chain(again).min();
    let report =
        ProvisionReport { waiting: waits(&unschedulable), unschedulable, steps: steps.used(), outcome };
    (ProvisionPlan { claims: finish::name(input, scope, claims), placements, wake_at }, report)
}

/// The part of a plan's world that differs from trial to trial.
pub(crate) struct Scope<'s> {
    /// Pods to place.
    pub(crate) pods: &'s [Pod],
    /// Nodes that may have room.
    pub(crate) nodes: Vec<&'s ExistingNode>,
    /// Names that new claims can't have.
    pub(crate) taken_names: &'s BTreeSet<ClaimName>,
    /// The reason for the plan.
    pub(crate) purpose: &'s Purpose,
}

impl<'s> Scope<'s> {
    /// The whole input.
    pub(crate) fn of(input: &'s ProvisionInput) -> Self {
        let ProvisionInput { pods, nodes, taken_names, purpose, .. } = input;
        Self { pods, nodes: nodes.iter().collect(), taken_names, purpose }
    }
}

/// The pools in the order in which they are tried.
pub(crate) fn compiled<'a>(input: &'a ProvisionInput, measures: &InputMeasures<'a>) -> Vec<Pool<'a>> {
    in_order(input).into_iter().map(|pool| Pool::new(pool, measures)).collect()
}

/// The labels that rules of waiting pods ask about.
fn keys(groups: &[PodGroup<'_>]) -> BTreeSet<Arc<str>> {
    groups.iter().flat_map(PodGroup::keys).cloned().collect()
}

/// Values derived once from the whole input.
pub(crate) struct InputMeasures<'a> {
    pub(crate) daemons: Vec<Daemon<'a>>,
    pub(crate) dimensions: Dimensions,
    pub(crate) min_values: MinValuesPolicy,
    /// What earlier plans on the same input have used up.
    pub(crate) spent: Spent,
    /// The limits on volumes, whose dimensions follow those of the resources.
    pub(crate) limits: VolumeLimits<'a>,
    /// What the groups of pods ask of their nodes.
    pub(crate) ways: WaysTable,
}

/// The DaemonSets, and the resources that they and the pods ask for.
pub(crate) fn measures<'a>(
    input: &'a ProvisionInput,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> InputMeasures<'a> {
    let daemons = daemons::daemons(&input.daemon_sets);
    let pods: Vec<&Pod> = pods.into_iter().collect();
    let requests = pods.iter().map(|pod| &pod.shape.requests);
    let dimensions = Dimensions::of(requests.chain(daemons.iter().map(|daemon| daemon.requests)));
    let limits = VolumeLimits::of(input, &pods, dimensions.names().count());
    InputMeasures {
        daemons,
        dimensions,
        min_values: input.policies.min_values,
        spent: Spent::default(),
        limits,
        ways: WaysTable::default(),
    }
}

/// Pools in the order in which they are tried.
pub(crate) fn in_order(input: &ProvisionInput) -> Vec<&PoolInput> {
    let mut pools: Vec<&PoolInput> = input.pools.iter().collect();
    pools.sort_by(|a, b| (b.pool.weight, &b.pool.name).cmp(&(a.pool.weight, &a.pool.name)));
    pools
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn causes(
    input: &ProvisionInput,
    pools: &mut [Pool<'_>],
    refused: &RefusedGroup<'_, '_>,
    ended: &EndedPlan<'_>,
) -> Vec<UnschedulableCause> {
    if pools.is_empty() {
        let reason = if input.static_pools.is_empty() {
            Reason::NoNodePool { leaving: input.leaving_pools.iter().cloned().collect() }
        } else {
            Reason::OnlyStaticNodePools { pools: input.static_pools.iter().cloned().collect() }
        };
        return vec![UnschedulableCause { pool: None, reason }];
    }
    let RefusedGroup { group, end, .. } = *refused;
    let found: Vec<Option<Reason>> =
        pools.iter().map(|pool| diagnose::cause(pool, group, input.now)).collect();
    // Where a pool has all that a pod asks for, only its neighbours can be in the way, or the limit of a pool that alone
    // has the domains which they leave.
    let fits = found.iter().any(Option::is_none);
    let unfinished = || ended.steps.ran_out().map_or(Reason::NoRoomBesideOthers, Reason::StepBudgetExhausted);
    let of_pool = |(pool, reason): (&Pool<'_>, Option<Reason>)| UnschedulableCause {
        pool: Some(pool.input.pool.name.clone()),
        reason: reason.unwrap_or_else(unfinished),
    };
    let causes: Vec<UnschedulableCause> = pools.iter().zip(found).map(of_pool).collect();
    if !fits {
        return causes;
    }
    let limits = causes.iter().filter(|cause| cause.reason.is_limit() && end == DomainEnd::Limit);
    let limits: Vec<UnschedulableCause> = limits.cloned().collect();
    match exclusions::no_domain(pools, refused, ended) {
        Some(no_domain) if limits.is_empty() || no_domain.whatever_limits => no_domain.causes,
        Some(_) | None if !limits.is_empty() => limits,
        Some(_) | None => causes,
    }
}

/// What pools of unschedulable pods wait for.
fn waits(unschedulable: &[Unschedulable]) -> Vec<Waiting> {
    let causes = unschedulable.iter().flat_map(|pod| &pod.causes);
    let found: BTreeSet<&Waiting> = causes.filter_map(|cause| cause.reason.waiting()).collect();
    found.into_iter().cloned().collect()
}
