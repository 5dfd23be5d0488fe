//! What a set of nodes saves if it goes: the plan for its pods, taken apart into moves that don't depend on each other.
//!
//! Decides the types that a replacement may be of, so that it is cheaper whatever EC2 gives, and what a move must save. A
//! move's nodes share replacements. Room on nodes that stay is its own, so each move is valid whichever others fail.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/consolidation.go`, `multinodeconsolidation.go`. Unlike
//! the peer's, a move may have several replacements.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::catalog::CapacityType;
use tenon_domain::id::{InstanceType, Uid};
use tenon_domain::money::UsdPerHour;
use tenon_domain::registry::{FeatureGate, MinValuesPolicy};

use super::balanced::PoolTotals;
use super::candidate::UsedNode;
use crate::disruption::input::DisruptionInput;
use crate::disruption::output::RefusalReason;
use crate::provision::{AskReason, Placement, PlannedClaim, PoolInput, ProvisionPlan, UsableOffering};

/// A single spot node is replaced by spot only with so many cheaper types: fewer, and the next interruption is near.
const SPOT_TYPES: usize = 15;

/// Nodes that go together, and where their pods go.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// Places among the candidates.
    pub(crate) nodes: Vec<usize>,
    pub(crate) plan: ProvisionPlan,
    /// What it saves at today's prices.
    pub(crate) saves: UsdPerHour,
}

/// The moves of a plan, and why some nodes stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proposal {
    pub(crate) moves: Vec<Move>,
    /// Nodes that go together, and why they stay.
    pub(crate) refused: Vec<(Vec<usize>, RefusalReason)>,
}

impl Proposal {
    /// What all moves save.
    pub(crate) fn saves(&self) -> UsdPerHour {
        self.moves.iter().map(|one| one.saves).sum()
    }
}

/// What moves are judged by.
pub(crate) struct Judge<'j, 'a> {
    pub(crate) input: &'a DisruptionInput,
    pub(crate) nodes: &'j [UsedNode<'a>],
    pub(crate) totals: &'j PoolTotals<'a>,
    /// How many nodes of a pool may go at once at most, by pool.
    pub(crate) allowed: &'j BTreeMap<&'a str, usize>,
}

impl<'a> Judge<'_, 'a> {
    /// Takes a plan for the pods of these nodes apart.
    pub(crate) fn propose(&self, set: &[usize], plan: &ProvisionPlan) -> Proposal {
        let mut proposal = Proposal::default();
        for (nodes, plan) in self.apart(set, plan) {
            match self.judged(&nodes, plan) {
                Ok(one) => proposal.moves.push(one),
                Err(Some(reason)) => proposal.refused.push((nodes, reason)),
                Err(None) => {}
            }
        }
        proposal
    }

    fn used(&self, index: usize) -> Option<&UsedNode<'a>> {
        self.nodes.get(index)
    }

    fn all<'s>(&'s self, set: &'s [usize]) -> impl Iterator<Item = &'s UsedNode<'a>> + Clone {
        set.iter().filter_map(|index| self.nodes.get(*index))
    }

    /// The parts of a plan whose nodes share no replacement.
    fn apart(&self, set: &[usize], plan: &ProvisionPlan) -> Vec<(Vec<usize>, ProvisionPlan)> {
        let mut part_of: BTreeMap<usize, usize> = set.iter().map(|index| (*index, *index)).collect();
        let mut owner: BTreeMap<&Uid, usize> = BTreeMap::new();
        for index in set {
            let pods = self.used(*index).map_or(&[][..], |used| used.pods.as_slice());
            owner.extend(pods.iter().map(|pod| (&pod.uid, *index)));
        }
        let part = |part_of: &BTreeMap<usize, usize>, uid: &Uid| {
            owner.get(uid).and_then(|index| part_of.get(index)).copied()
        };
        for claim in &plan.claims {
            let parts: BTreeSet<usize> =
                claim.pods.iter().filter_map(|pod| part(&part_of, &pod.uid)).collect();
            let Some(first) = parts.first().copied() else { continue };
            part_of.values_mut().filter(|one| parts.contains(one)).for_each(|one| *one = first);
        }
        let mut found: BTreeMap<usize, (Vec<usize>, ProvisionPlan)> = BTreeMap::new();
        for (index, one) in &part_of {
            found.entry(*one).or_default().0.push(*index);
        }
        for claim in &plan.claims {
            let of = claim.pods.first().and_then(|pod| part(&part_of, &pod.uid));
            if let Some((_, plan)) = of.and_then(|part| found.get_mut(&part)) {
                plan.claims.push(claim.clone());
            }
        }
        for placement in &plan.placements {
            let of = part(&part_of, &placement.pod.uid);
            if let Some((_, plan)) = of.and_then(|part| found.get_mut(&part)) {
                plan.placements.push(Placement::clone(placement));
            }
        }
        found.into_values().collect()
    }

    /// A part as a move; the reason why it is none, if somebody may want to know it.
    fn judged(&self, nodes: &[usize], plan: ProvisionPlan) -> Result<Move, Option<RefusalReason>> {
        if self.exceeds_budgets(nodes) {
            return Err(None);
        }
        let now: UsdPerHour = self.all(nodes).map(|used| used.price).sum();
        let least = self.all(nodes).map(|used| used.terms.savings.of(now)).max().unwrap_or_default();
        let plan = if plan.claims.is_empty() {
            plan
        } else {
            ProvisionPlan { claims: self.cheaper(nodes, &plan.claims, now, least)?, ..plan }
        };
        let saves = UsdPerHour::from_nanos(now.nanos().saturating_sub(plan.price().nanos()));
        if saves < least {
            return Err(self.too_little(nodes, saves, now));
        }
        let worth = self.totals.approve(self.all(nodes), saves, now);
        if !worth {
            return Err(Some(RefusalReason::Unbalanced));
        }
        Ok(Move { nodes: nodes.to_vec(), plan, saves })
    }

    /// More nodes of a pool than ever may go at once make no move.
    fn exceeds_budgets(&self, nodes: &[usize]) -> bool {
        let mut of_pool: BTreeMap<&str, usize> = BTreeMap::new();
        for used in self.all(nodes) {
            *of_pool.entry(used.pool.name.as_str()).or_default() += 1;
        }
        let most = |pool: &str| self.allowed.get(pool).copied().unwrap_or(0).max(1);
        of_pool.iter().any(|(pool, count)| *count > most(pool))
    }

    fn too_little(&self, nodes: &[usize], saves: UsdPerHour, now: UsdPerHour) -> Option<RefusalReason> {
        let used = self.used(*nodes.first()?)?;
        let hundredths = u128::from(saves.nanos()).saturating_mul(10_000).checked_div(now.nanos().into())?;
        (saves > UsdPerHour::ZERO).then(|| RefusalReason::SavesTooLittle {
            pool: used.pool.name.clone(),
            hundredths: u64::try_from(hundredths).unwrap_or(u64::MAX),
            least: used.terms.savings,
        })
    }

    /// The replacements with those types alone that make them cheaper together, whatever EC2 gives.
    fn cheaper(
        &self,
        nodes: &[usize],
        claims: &[PlannedClaim],
        now: UsdPerHour,
        least: UsdPerHour,
    ) -> Result<Vec<PlannedClaim>, Option<RefusalReason>> {
        let pinned: Vec<PlannedClaim> =
            claims.iter().map(|claim| self.pinned(nodes, claim)).collect::<Result<_, _>>()?;
        let planned: u64 = pinned.iter().filter_map(|claim| claim.price).map(UsdPerHour::nanos).sum();
        let most = now.nanos().saturating_sub(least.nanos());
        let Some(slack) = most.checked_sub(planned) else {
            let saves = UsdPerHour::from_nanos(now.nanos().saturating_sub(planned));
            return Err(self.too_little(nodes, saves, now));
        };
        pinned.iter().map(|claim| self.capped(nodes, claim, (slack, planned), now)).collect()
    }

    /// The claim without probes, and of one way of paying: a spot launch that fails mustn't end on demand, dearer.
    fn pinned(&self, nodes: &[usize], claim: &PlannedClaim) -> Result<PlannedClaim, Option<RefusalReason>> {
        let known = |one: &UsableOffering| one.asked == AskReason::Available && one.price.is_some();
        let offers =
            |kind: CapacityType| claim.offerings.iter().any(|one| known(one) && one.capacity_type == kind);
        let all_spot = self.all(nodes).all(|used| used.capacity_type == CapacityType::Spot);
        if all_spot && offers(CapacityType::Spot) && self.input.spot_to_spot == FeatureGate::Disabled {
            return Err(Some(RefusalReason::SpotToSpotDisabled));
        }
        let kinds = [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand];
        let kind = kinds.into_iter().find(|kind| offers(*kind)).ok_or(None)?;
        claim.restricted(|one| known(one) && one.capacity_type == kind).ok_or(None)
    }

    /// The claim with the types whose dearest offering its share of the money pays for.
    fn capped(
        &self,
        nodes: &[usize],
        claim: &PlannedClaim,
        (slack, planned): (u64, u64),
        now: UsdPerHour,
    ) -> Result<PlannedClaim, Option<RefusalReason>> {
        let own = claim.price.map_or(0, UsdPerHour::nanos);
        let share = match planned {
            0 => slack,
            _ => share_of(slack, own, planned),
        };
        // What pays for nothing less must at least be cheaper.
        let most = own.saturating_add(share).min(now.nanos().saturating_sub(1));
        let mut dearest: BTreeMap<&InstanceType, u64> = BTreeMap::new();
        for one in claim.offerings.iter() {
            let price = one.price.map_or(u64::MAX, UsdPerHour::nanos);
            let known = dearest.entry(&one.instance_type).or_default();
            *known = price.max(*known);
        }
        dearest.retain(|_, price| *price <= most);
        if let [_, _, ..] = nodes {
            let same = self.all(nodes).filter(|used| dearest.contains_key(used.instance_type));
            if let Some(cheapest) = same.map(|used| used.price.nanos()).min() {
                dearest.retain(|_, price| *price < cheapest);
            }
        }
        let pool = self.pool(claim).ok_or(None)?;
        let mut types: Vec<&InstanceType> =
            claim.instance_types.iter().filter(|name| dearest.contains_key(name)).collect();
        let of = |types: &[&InstanceType]| claim.restricted(|one| types.contains(&&one.instance_type));
        let spot = claim.capacity_types.contains(&CapacityType::Spot);
        let all_spot = self.all(nodes).all(|used| used.capacity_type == CapacityType::Spot);
        if let ([_], true) = (nodes, spot && all_spot) {
            if types.len() < SPOT_TYPES {
                let found = types.len();
                return Err((found > 0).then_some(RefusalReason::TooFewSpotTypes { found }));
            }
            let enough = (SPOT_TYPES..types.len()).find(|count| {
                let some = types.get(..*count).and_then(of);
                some.is_some_and(|claim| self.has_min_values(&claim, pool))
            });
            types.truncate(enough.unwrap_or(types.len()));
        }
        let claim = of(&types).ok_or(None)?;
        if self.has_min_values(&claim, pool) { Ok(claim) } else { Err(None) }
    }

    fn has_min_values(&self, claim: &PlannedClaim, pool: &PoolInput) -> bool {
        match self.input.world.policies.min_values {
            MinValuesPolicy::Strict => claim.has_min_values(pool),
            MinValuesPolicy::BestEffort => true,
        }
    }

    fn pool(&self, claim: &PlannedClaim) -> Option<&'a PoolInput> {
        self.input.world.pools.iter().find(|pool| pool.pool.name == claim.pool)
    }
}

fn share_of(slack: u64, own: u64, all: u64) -> u64 {
    let share = u128::from(slack).saturating_mul(own.into()).checked_div(all.into()).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}
