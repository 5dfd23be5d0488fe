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

mod dense;
mod diagnose;
mod existing;
mod finish;
pub mod input;
mod needs;
mod open;
pub mod output;
mod pack;
mod pool;
mod probe;
pub mod report;
mod reserved;
mod sample;
mod steps;

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::api::Pod;
use tenon_domain::evidence::Waiting;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{tolerates_all, tolerates_forbidding};

pub use input::{
    ExistingNode, NodeKind, PoolInput, PoolReadiness, PoolStanding, ProvisionInput, Purpose, StepBudget,
    Storage,
};
pub use output::{AskReason, Placement, PlannedClaim, ProvisionPlan, UsableOffering};
pub use report::{PlanCompletion, ProvisionReport, Reason, Unschedulable, UnschedulableCause};
pub use sample::sample;

pub(crate) use dense::Dimensions;
pub(crate) use needs::{Daemon, PodGroup, groups};
pub(crate) use pool::Pool;

use dense::{add_times, times};
use needs::counted;
use open::OpenOfferings;
use pack::{Draft, Member};
use reserved::{Again, ReservedRoom};
use steps::Steps;

/// Plans for the input's pods: existing room first, then new claims of the first pool that accepts (weight
/// descending, then name descending), avoiding taints `PreferNoSchedule` if another pool will do. If all of a pool's
/// offerings are exhausted, one claim probes them first (module `probe`).
pub fn plan(input: &ProvisionInput) -> (ProvisionPlan, ProvisionReport) {
    let measures = measures(input);
    let (groups, mut unschedulable) = groups(input, &measures.dimensions);
    let mut filling = PlanInProgress {
        groups: &groups,
        waiting: groups.iter().map(|group| count(group.pods.len())).collect(),
        steps: Steps::new(input.steps),
        room: ReservedRoom::default(),
        claims: Vec::new(),
    };
    let placements = existing::place(input, &groups, &mut filling.waiting, &mut filling.steps);
    let mut pools: Vec<Pool<'_>> = if filling.is_done() {
        Vec::new()
    } else {
        in_order(input)
            .into_iter()
            .map(|pool| Pool::new(pool, &measures.daemons, &measures.dimensions))
            .collect()
    };
    let mut due = probe::views(input, &pools, &measures, OpenOfferings::Due(input.now));
    for preference in [Preference::Kept, Preference::Dropped] {
        for (pool, due) in pools.iter_mut().zip(&mut due).filter(|(pool, _)| pool.is_ready()) {
            pool.cap_nodes(filling.claims.len());
            if let Some(due) = due {
                probe::first(&mut filling, pool, due, preference);
                pool.riders_at = Some(input.now);
            }
            filling.fill(pool, preference);
        }
    }
    probe::last(&mut filling, &mut pools, input, &measures);
    let PlanInProgress { waiting, steps, claims, .. } = filling;
    let mut back_at = BTreeSet::new();
    for (group, left) in groups.iter().zip(&waiting).filter(|(_, left)| **left > 0) {
        let causes = causes(&pools, group, input.now);
        back_at.extend(causes.iter().filter_map(|cause| cause.reason.ends_at()));
        let refused = last_pods(group, *left);
        unschedulable.extend(refused.map(|pod| Unschedulable { pod: counted(pod), causes: causes.clone() }));
    }
    unschedulable.sort();
    let outcome = steps.outcome();
    let again = (outcome == PlanCompletion::BudgetExhausted).then_some(input.now);
    let wake_at = back_at.into_iter().chain(again).min();
    let report = ProvisionReport {
        waiting: waits(&unschedulable),
        warnings: needs::ignored_preferences(&input.pods),
        unschedulable,
        steps: steps.used(),
        outcome,
    };
    (ProvisionPlan { claims: finish::name(input, claims), placements, wake_at }, report)
}

/// A plan in the making.
struct PlanInProgress<'f, 'a> {
    groups: &'f [PodGroup<'a>],
    /// Pods of each group that have no place yet and want one from this plan.
    waiting: Vec<u32>,
    steps: Steps,
    /// The free capacity of reservations.
    room: ReservedRoom,
    claims: Vec<PlannedClaim>,
}

impl<'f> PlanInProgress<'f, '_> {
    fn is_done(&self) -> bool {
        self.waiting.iter().all(|left| *left == 0)
    }

    /// Claims of a pool for all that still waits and that it accepts.
    fn fill(&mut self, pool: &mut Pool<'_>, preference: Preference) {
        self.room.close(pool);
        loop {
            pool.cap_nodes(self.claims.len());
            let members = self.members(pool, preference);
            let drafts = pack::pack(pool, &members, &mut self.steps);
            let (drafts, again) = self.room.admit(pool, drafts);
            for draft in &drafts {
                self.launch(pool, &members, draft);
            }
            match again {
                Again::Yes => self.room.close(pool),
                Again::No => break,
            }
        }
    }

    /// Groups with pending pods that the pool accepts. Of ORed affinity terms, the cheapest counts.
    fn members(&self, pool: &mut Pool<'_>, preference: Preference) -> Vec<Member<'f>> {
        let taints = &pool.input.pool.template.taints;
        let mut members = Vec::new();
        let waiting = self.groups.iter().zip(&self.waiting).enumerate();
        for (index, (group, left)) in waiting.filter(|(_, (_, left))| **left > 0) {
            let tolerated = match preference {
                Preference::Kept => tolerates_all(taints, group.tolerations).is_ok(),
                Preference::Dropped => tolerates_forbidding(taints, group.tolerations).is_ok(),
            };
            if let Some((worth, class)) = tolerated.then(|| cheapest_alternative(pool, group)).flatten() {
                members.push(Member {
                    group: index,
                    class,
                    need: &group.need,
                    host_ports: group.host_ports,
                    worth,
                    waiting: *left,
                });
            }
        }
        members
    }

    /// Makes the claims of a draft, and places their pods. Returns the number of claims.
    fn launch(&mut self, pool: &Pool<'_>, members: &[Member<'_>], draft: &Draft) -> u32 {
        let of = |index: usize| {
            let member = members.get(index)?;
            Some((member, self.groups.get(member.group)?))
        };
        let mut need = members.first().map_or_else(Vec::new, |member| vec![0; member.need.len()]);
        let mut requests = ResourceList::new();
        for (index, count) in &draft.counts {
            if let Some((member, group)) = of(*index) {
                add_times(&mut need, member.need, *count);
                requests.add(&times(group.requests, *count));
            }
        }
        let Some(claim) = pool.claim(draft, &need, &requests) else { return 0 };
        for _ in 0..draft.times {
            let mut one = claim.clone();
            for (index, count) in &draft.counts {
                let Some((member, group)) = of(*index) else { continue };
                let Some(left) = self.waiting.get_mut(member.group) else { continue };
                let taken = last_pods(group, *left).take(usize::try_from(*count).unwrap_or(usize::MAX));
                one.pods.extend(taken.map(counted));
                *left = left.saturating_sub(*count);
            }
            one.pods.sort();
            self.claims.push(one);
        }
        draft.times
    }
}

/// The pods of a group that wait, where so many do: the first have places.
fn last_pods<'g>(group: &'g PodGroup<'_>, left: u32) -> impl Iterator<Item = &'g Pod> {
    let skipped = group.pods.len().saturating_sub(usize::try_from(left).unwrap_or(usize::MAX));
    group.pods.iter().skip(skipped).copied()
}

/// Values derived once from the whole input.
pub(crate) struct InputMeasures<'a> {
    pub(crate) daemons: Vec<Daemon<'a>>,
    pub(crate) dimensions: Dimensions,
}

/// The DaemonSets, and the resources that they and the pods ask for.
pub(crate) fn measures(input: &ProvisionInput) -> InputMeasures<'_> {
    let daemons = needs::daemons(&input.daemon_sets);
    let pods = input.pods.iter().map(|pod| &pod.shape.requests);
    let dimensions = Dimensions::of(pods.chain(daemons.iter().map(|daemon| daemon.requests)));
    InputMeasures { daemons, dimensions }
}

/// Whether taints `PreferNoSchedule` keep pods out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preference {
    Kept,
    Dropped,
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

fn cheapest_alternative(pool: &mut Pool<'_>, group: &PodGroup<'_>) -> Option<(f64, usize)> {
    let mut best: Option<(f64, usize)> = None;
    for alternative in &group.alternatives {
        let class = alternative.for_new_node().and_then(|asked| pool.class_of(&asked));
        let Some(class) = class else { continue };
        if let Some(worth) = pack::worth(pool, class, &group.need)
            && best.is_none_or(|(least, _)| worth < least)
        {
            best = Some((worth, class));
        }
    }
    best
}

fn causes(pools: &[Pool<'_>], group: &PodGroup<'_>, now: Timestamp) -> Vec<UnschedulableCause> {
    if pools.is_empty() {
        return vec![UnschedulableCause { pool: None, reason: Reason::NoNodePool }];
    }
    pools.iter().map(|pool| diagnose::cause(pool, group, now)).collect()
}

/// What pools of unschedulable pods wait for.
fn waits(unschedulable: &[Unschedulable]) -> Vec<Waiting> {
    let causes = unschedulable.iter().flat_map(|pod| &pod.causes);
    let found: BTreeSet<&Waiting> = causes.filter_map(|cause| cause.reason.waiting()).collect();
    found.into_iter().cloned().collect()
}
