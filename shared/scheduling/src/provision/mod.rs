//! Provisioning: which nodes to launch for pods, and which pods have room already.
//!
//! Decides nodes, types, prices and placements. It doesn't decide how EC2 is asked, nor when to look: those are the
//! provisioner's. What isn't supported is refused by name ([`Reason::UnsupportedConstraint`]).
//!
//! Invariants: the order of the input's lists changes nothing; no claim's pods exceed any of its instance types; a
//! pod that fits an allowed type that can be had is placed, unless limits or steps run out. Never panics.
//!
//! Source: KARPENTER.md 3.4; how many pods go on one claim is our own rule (module `pack`).

mod dense;
mod diagnose;
mod existing;
mod finish;
pub mod input;
mod needs;
pub mod output;
mod pack;
mod pool;
pub mod report;
mod steps;

use std::collections::BTreeSet;

use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{tolerates_all, tolerates_forbidding};

pub use input::{ExistingNode, Input, NodeKind, PoolInput, PoolReadiness, Purpose, StepBudget, Storage};
pub use output::{Placement, Plan, PlannedClaim, UsableOffering};
pub use report::{Cause, Outcome, Reason, Report, Unschedulable};

pub(crate) use dense::Dimensions;
pub(crate) use needs::{Daemon, Group, groups};
pub(crate) use pool::Pool;

use dense::{add_times, times};
use needs::counted;
use pack::{Draft, Member};
use steps::Steps;

/// Plans for the input's pods: room that is there first, then new claims, from the first pool that accepts (weight
/// descending, then name descending), avoiding taints `PreferNoSchedule` where another pool will do.
pub fn plan(input: &Input) -> (Plan, Report) {
    let mut steps = Steps::new(input.steps);
    let Shape { daemons, dimensions } = shape(input);
    let (groups, mut unschedulable) = groups(input, &dimensions);
    let mut waiting: Vec<u32> = groups.iter().map(|group| count(group.pods.len())).collect();
    let placements = existing::place(input, &groups, &mut waiting, &mut steps);
    let mut pools: Vec<Pool<'_>> = if waiting.iter().all(|left| *left == 0) {
        Vec::new()
    } else {
        in_order(input).into_iter().map(|pool| Pool::new(pool, &daemons, &dimensions)).collect()
    };
    let mut claims = Vec::new();
    for preference in [Preference::Kept, Preference::Dropped] {
        for pool in pools.iter_mut().filter(|pool| pool.input.readiness == PoolReadiness::Ready) {
            pool.cap_nodes(claims.len());
            let members = members(pool, &groups, &waiting, preference);
            let drafts = pack::pack(pool, &members, &mut steps);
            claims
                .extend(drafts.iter().flat_map(|draft| launch(pool, &groups, &members, &mut waiting, draft)));
        }
    }
    let mut back_at = BTreeSet::new();
    for (group, left) in groups.iter().zip(&waiting).filter(|(_, left)| **left > 0) {
        let causes = causes(&pools, group);
        back_at.extend(causes.iter().filter_map(|cause| cause.reason.ends_at()));
        let skipped = group.pods.len().saturating_sub(usize::try_from(*left).unwrap_or(usize::MAX));
        let refused = group.pods.iter().skip(skipped);
        unschedulable.extend(refused.map(|pod| Unschedulable { pod: counted(pod), causes: causes.clone() }));
    }
    unschedulable.sort();
    let outcome = steps.outcome();
    let again = (outcome == Outcome::BudgetExhausted).then_some(input.now);
    let wake_at = back_at.into_iter().filter(|at| *at > input.now).chain(again).min();
    let report = Report {
        waiting: waits(input, &unschedulable),
        warnings: needs::ignored_preferences(&input.pods),
        unschedulable,
        steps: steps.used(),
        outcome,
    };
    (Plan { claims: finish::name(input, claims), placements, wake_at }, report)
}

/// What the whole input is measured by.
pub(crate) struct Shape<'a> {
    pub(crate) daemons: Vec<Daemon<'a>>,
    pub(crate) dimensions: Dimensions,
}

/// The DaemonSets, and the resources that they and the pods ask for.
pub(crate) fn shape(input: &Input) -> Shape<'_> {
    let daemons = needs::daemons(&input.daemon_sets);
    let pods = input.pods.iter().map(|pod| &pod.shape.requests);
    let dimensions = Dimensions::of(pods.chain(daemons.iter().map(|daemon| daemon.requests)));
    Shape { daemons, dimensions }
}

/// Whether taints `PreferNoSchedule` keep pods out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preference {
    Kept,
    Dropped,
}

/// Pools in the order in which they are tried.
pub(crate) fn in_order(input: &Input) -> Vec<&PoolInput> {
    let mut pools: Vec<&PoolInput> = input.pools.iter().collect();
    pools.sort_by(|a, b| (b.pool.weight, &b.pool.name).cmp(&(a.pool.weight, &a.pool.name)));
    pools
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The groups that still wait and that the pool accepts. Of ORed affinity terms the one that is cheapest alone counts.
fn members<'g>(
    pool: &mut Pool<'_>,
    groups: &'g [Group<'_>],
    waiting: &[u32],
    preference: Preference,
) -> Vec<Member<'g>> {
    let taints = &pool.input.pool.template.taints;
    let mut members = Vec::new();
    for (index, (group, left)) in groups.iter().zip(waiting).enumerate().filter(|(_, (_, left))| **left > 0) {
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

fn cheapest_alternative(pool: &mut Pool<'_>, group: &Group<'_>) -> Option<(f64, usize)> {
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

/// The claims of a draft, each with its pods, which no longer wait then.
fn launch(
    pool: &Pool<'_>,
    groups: &[Group<'_>],
    members: &[Member<'_>],
    waiting: &mut [u32],
    draft: &Draft,
) -> Vec<PlannedClaim> {
    let of = |index: usize| {
        let member = members.get(index)?;
        Some((member, groups.get(member.group)?))
    };
    let mut need = members.first().map_or_else(Vec::new, |member| vec![0; member.need.len()]);
    let mut requests = ResourceList::new();
    for (index, count) in &draft.counts {
        if let Some((member, group)) = of(*index) {
            add_times(&mut need, member.need, *count);
            requests.add(&times(group.requests, *count));
        }
    }
    let claim = pool.class(draft.class).and_then(|class| {
        let types = pool.holding(class, draft.type_index, &need);
        pool.claim(class, &types, &requests)
    });
    let Some(claim) = claim else { return Vec::new() };
    let mut claims = Vec::new();
    for _ in 0..draft.times {
        let mut one = claim.clone();
        for (index, count) in &draft.counts {
            let Some((member, group)) = of(*index) else { continue };
            let Some(left) = waiting.get_mut(member.group) else { continue };
            let skipped = group.pods.len().saturating_sub(usize::try_from(*left).unwrap_or(usize::MAX));
            let taken = group.pods.iter().skip(skipped).take(usize::try_from(*count).unwrap_or(usize::MAX));
            one.pods.extend(taken.map(|pod| counted(pod)));
            *left = left.saturating_sub(*count);
        }
        one.pods.sort();
        claims.push(one);
    }
    claims
}

fn causes(pools: &[Pool<'_>], group: &Group<'_>) -> Vec<Cause> {
    if pools.is_empty() {
        return vec![Cause { pool: None, reason: Reason::NoNodePool }];
    }
    pools.iter().map(|pool| diagnose::cause(pool, group)).collect()
}

/// What pools wait for that somebody's pods might have gone to.
fn waits(input: &Input, unschedulable: &[Unschedulable]) -> Vec<tenon_domain::evidence::Waiting> {
    let waited: BTreeSet<_> =
        unschedulable.iter().flat_map(|pod| &pod.causes).filter_map(|cause| cause.pool.as_ref()).collect();
    let found: BTreeSet<_> = input
        .pools
        .iter()
        .filter(|pool| waited.contains(&pool.pool.name))
        .filter_map(|pool| match &pool.readiness {
            PoolReadiness::NotReady(waiting) => Some(waiting.clone()),
            PoolReadiness::Ready | PoolReadiness::NodeClassNotFound(_) => None,
        })
        .collect();
    found.into_iter().collect()
}
