//! Probing: asking EC2 again for exhausted capacity.
//!
//! Decides which claims probe. A claim with nothing but probes goes first if a pool has nothing available, or only a
//! less preferred and dearer capacity type. Other claims take due offerings along. The leases decide what a launch
//! really probes, when it is built. If nothing else is left, one claim asks for the capacity that was asked for
//! longest ago, even while its mark holds ([`last`]), so that no pod waits longer than [`LAST_RESORT`].
//!
//! Invariants: an available offering is used, except while a probe for a better one is being answered; pending pods
//! cause probes, and disruption commands whose replacements have nothing else. A trial, which nothing may follow, causes
//! none.
//!
//! [`LAST_RESORT`]: tenon_domain::unavailable::LAST_RESORT

use std::collections::BTreeSet;

use tenon_domain::catalog::{CapacityType, PriceRank};

use super::draft::{Draft, Member};
use super::finish::TypesOffered;
use super::input::{PoolStanding, ProvisionInput, Purpose};
use super::open::OpenOfferings;
use super::output::AskReason;
use super::pack;
use super::pool::{EquivalenceClass, Pool, Type};
use super::purchase::{DearSpot, bought};
use super::round::{PlanInProgress, Preference, cheapest_alternative};
use super::{InputMeasures, PodGroup};

/// The most offerings that a claim probes beside its available ones.
pub(crate) const RIDERS_PER_CLAIM: usize = 16;

/// The pools again, each with other offerings; `None` for a pool without such offerings, and for plans that don't probe.
pub(crate) fn views<'a>(
    purpose: &Purpose,
    pools: &[Pool<'a>],
    measures: &InputMeasures<'a>,
    open: OpenOfferings,
) -> Vec<Option<Pool<'a>>> {
    let of = |pool: &Pool<'a>| {
        let some = waits(purpose) && pool.is_ready() && has_any(pool, open);
        some.then(|| Pool::open(pool.input, measures, open))
    };
    pools.iter().map(of).collect()
}

const fn waits(purpose: &Purpose) -> bool {
    match purpose {
        Purpose::PendingPods | Purpose::AskingReplacement(_) => true,
        Purpose::Replacement(_) => false,
    }
}

fn has_any(pool: &Pool<'_>, open: OpenOfferings) -> bool {
    let mut offerings = pool.types.iter().flat_map(|one| &one.option.offerings);
    offerings.any(|offering| open.includes(pool.input, offering))
}

/// Claims with nothing but probes, for groups that gain from the due offerings. All pods of these groups wait for the
/// answer, which comes before the next plan.
pub(crate) fn first(
    filling: &mut PlanInProgress<'_, '_>,
    pool: &mut Pool<'_>,
    due: &mut Pool<'_>,
    preference: Preference,
) {
    let mut members = filling.members(due, preference);
    let groups = filling.groups;
    members.retain(|member| groups.get(member.group).is_some_and(|group| matters(pool, due, group, member)));
    ask(filling, pool, due, &members);
}

/// Claims for groups without any other offering, from the capacity that was asked for longest ago.
pub(crate) fn last<'a>(
    filling: &mut PlanInProgress<'_, '_>,
    purpose: &Purpose,
    pools: &mut [Pool<'a>],
    input: &'a ProvisionInput,
    measures: &InputMeasures<'a>,
) {
    if filling.is_done() {
        return;
    }
    let mut views = views(purpose, pools, measures, OpenOfferings::LastResort(input.now));
    for preference in [Preference::Kept, Preference::Dropped] {
        for (pool, last) in pools.iter_mut().zip(&mut views) {
            if let Some(last) = last {
                pool.cap(filling.state.of_cluster);
                let members = filling.members(last, preference);
                ask(filling, pool, last, &members);
            }
        }
    }
}

/// One claim for each group; of a pool on probation one at all.
fn ask(
    filling: &mut PlanInProgress<'_, '_>,
    pool: &mut Pool<'_>,
    asking: &mut Pool<'_>,
    members: &[Member<'_>],
) {
    if members.is_empty() {
        return;
    }
    asking.limits.clone_from(&pool.limits);
    let drafts = pack::pack(asking, members, &mut filling.state.steps);
    let (drafts, _) = filling.state.room.admit(asking, drafts);
    let mut asked: BTreeSet<usize> = BTreeSet::new();
    for draft in drafts {
        let known = draft.counts.iter().any(|(member, _)| asked.contains(member));
        let enough = pool.input.standing == PoolStanding::OnProbation && !asked.is_empty();
        if known || enough {
            continue;
        }
        let draft = Draft { times: 1, ..draft };
        if filling.launch(asking, members, &draft) > 0 {
            asked.extend(draft.counts.iter().map(|(member, _)| *member));
            let charges = asking.types.get(draft.type_index).map_or(&[][..], |one| &one.charges);
            for ((_, left), charge) in pool.limits.iter_mut().zip(charges) {
                *left = left.saturating_sub(*charge);
            }
        }
    }
    if asked.is_empty() {
        return;
    }
    for member in members {
        filling.waiting.iter_mut().skip(member.group).take(1).for_each(|left| *left = 0);
    }
}

/// Whether a pool has nothing available for a group, or only a less preferred capacity type that costs more than the
/// due one.
fn matters(pool: &mut Pool<'_>, due: &Pool<'_>, group: &PodGroup<'_>, member: &Member<'_>) -> bool {
    let Some((worth, class)) = cheapest_alternative(pool, group) else { return true };
    let first = |pool: &Pool<'_>, class| first_capacity_type(pool, class, member.need);
    match (first(due, member.class), first(pool, class)) {
        (Some(better), Some(had)) => better < had && member.worth < worth,
        (Some(_) | None, None) | (None, Some(_)) => false,
    }
}

/// The capacity type that the fleet would use first for a pod.
fn first_capacity_type(pool: &Pool<'_>, class: usize, need: &[i64]) -> Option<CapacityType> {
    let class = pool.class(class)?;
    let of = |index: &usize| {
        class.capacity_types.get(*index).copied().flatten().filter(|_| class.holds(*index, need))
    };
    class.front.iter().filter_map(of).min()
}

impl<'a> Pool<'a> {
    /// The types and offerings of a claim, and the probes beside them: of the fleet's first capacity type and, if the
    /// fleet tries the cheapest first, cheaper than the available ones; the cheapest [`RIDERS_PER_CLAIM`].
    pub(crate) fn with_riders<'t>(
        &'t self,
        class: &EquivalenceClass,
        draft: &Draft,
        need: &[i64],
        own: TypesOffered<'t, 'a>,
    ) -> TypesOffered<'t, 'a> {
        let first = bought(own.offerings.iter(), DearSpot::of(&class.merged));
        let (Some(now), Some(first)) = (self.riders_at, first) else { return own };
        let (capacity_type, bound) = (first.capacity_type, PriceRank::of(first.known_price()));
        let along = OpenOfferings::Along { now, capacity_type };
        let more = self.holding(class, along, draft.type_index, need);
        let TypesOffered { types: more, offerings: mut riders } =
            self.with_offerings(&more, &class.merged, along, draft);
        riders.retain(|offering| {
            offering.asked == AskReason::Probe
                && match capacity_type {
                    CapacityType::Spot => true,
                    CapacityType::OnDemand | CapacityType::Reserved => PriceRank::of(offering.price) < bound,
                }
        });
        riders.sort_by(|a, b| {
            (PriceRank::of(a.price), &a.instance_type, &a.zone).cmp(&(
                PriceRank::of(b.price),
                &b.instance_type,
                &b.zone,
            ))
        });
        riders.truncate(RIDERS_PER_CLAIM);
        if riders.is_empty() {
            return own;
        }
        let names: BTreeSet<_> =
            own.offerings.iter().chain(&riders).map(|offering| offering.instance_type.clone()).collect();
        let types: Vec<&Type<'a>> =
            more.into_iter().filter(|one| names.contains(&one.option.facts.name)).collect();
        let mut all = self.with_offerings(&types, &class.merged, along, draft);
        all.offerings.retain(|offering| offering.asked == AskReason::Available || riders.contains(offering));
        all
    }
}
