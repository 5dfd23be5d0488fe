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
use super::rest;
use super::size;
use crate::disruption::input::DisruptionInput;
use crate::disruption::output::RefusalReason;
use crate::provision::{
    AskReason, DearSpot, Placement, PlannedClaim, PoolInput, ProvisionPlan, UsableOffering, bought,
};

/// A single spot node is replaced by spot only with so many cheaper types: fewer, and the next interruption is near.
const SPOT_TYPES: usize = 15;

/// Nodes that go together, and where their pods go.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// Places among the candidates.
    pub(crate) nodes: Vec<usize>,
    /// Its claims are of all types; [`Judge::carried_out`] leaves those that make it cheaper.
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

/// What a claim costs in the one way that it would be paid for.
struct Quote<'c> {
    claim: &'c PlannedClaim,
    kind: CapacityType,
    cheapest: u64,
    /// The dearest offering of each type, by the claim's order of types.
    dearest: Vec<(&'c InstanceType, u64)>,
}

impl<'c> Quote<'c> {
    /// Of the way that a launch would buy first: a spot launch that fails mustn't end on demand, dearer. Probes are no
    /// offers.
    fn of(claim: &'c PlannedClaim) -> Option<Self> {
        let known = |one: &&UsableOffering| one.asked == AskReason::Available && one.price.is_some();
        let kind =
            bought(claim.offerings.iter().filter(known), DearSpot::of(&claim.requirements))?.capacity_type;
        let (mut cheapest, mut dearest) = (u64::MAX, Vec::<(&InstanceType, u64)>::new());
        for one in claim.offerings.iter().filter(known).filter(|one| one.capacity_type == kind) {
            let price = one.price.map_or(u64::MAX, UsdPerHour::nanos);
            cheapest = cheapest.min(price);
            match dearest.last_mut() {
                Some((name, most)) if **name == one.instance_type => *most = price.max(*most),
                Some(_) | None => dearest.push((&one.instance_type, price)),
            }
        }
        Some(Self { claim, kind, cheapest, dearest })
    }

    /// The claim with these types alone.
    fn claim(&self, types: &BTreeSet<&InstanceType>) -> Option<PlannedClaim> {
        self.claim.restricted(|one| {
            one.asked == AskReason::Available
                && one.price.is_some()
                && one.capacity_type == self.kind
                && types.contains(&one.instance_type)
        })
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
        // Parts of a set that is too large are looked at, too.
        if self.exceeds_budgets(nodes) || !size::fits(nodes.len(), &plan) {
            return Err(None);
        }
        let now = self.price(nodes);
        let quotes = quotes(&plan.claims).ok_or(None)?;
        let planned = quotes.iter().map(|quote| quote.cheapest).fold(0, u64::saturating_add);
        let saves = UsdPerHour::from_nanos(now.nanos().saturating_sub(planned));
        if saves < self.least(nodes, now) || (now.nanos() <= planned && !quotes.is_empty()) {
            return Err(self.too_little(nodes, saves, now));
        }
        let closed = self.is_spot_to_spot(nodes, &quotes) && self.input.spot_to_spot == FeatureGate::Disabled;
        for quote in &quotes {
            let types = self.types(nodes, quote, (planned, now));
            // Where no type is cheaper, the open gate would change nothing.
            if closed && types != Err(None) {
                return Err(Some(RefusalReason::SpotToSpotDisabled));
            }
            let types = types?;
            let asks = quote.claim.requirements.iter().any(|asked| asked.min_values().is_some());
            if asks && self.restricted(nodes, quote, types).is_none() {
                return Err(Some(RefusalReason::MinValuesUnmet { pool: quote.claim.pool.clone() }));
            }
        }
        self.totals.approve(self.all(nodes), saves, now).map_err(Some)?;
        Ok(Move { nodes: nodes.to_vec(), plan, saves })
    }

    /// All the nodes as one move.
    pub(crate) fn whole(&self, nodes: &[usize], plan: ProvisionPlan) -> Option<Move> {
        self.judged(nodes, plan).ok()
    }

    /// A move whose claims are of those types alone that make it cheaper, whatever EC2 gives; `None` where these haven't
    /// the values that their pool's `minValues` ask for.
    pub(crate) fn carried_out(&self, one: &Move) -> Option<Move> {
        let quotes = quotes(&one.plan.claims)?;
        let planned = quotes.iter().map(|quote| quote.cheapest).fold(0, u64::saturating_add);
        let money = (planned, self.price(&one.nodes));
        let claims = quotes.iter().map(|quote| {
            let types = self.types(&one.nodes, quote, money).ok()?;
            self.restricted(&one.nodes, quote, types)
        });
        let plan = ProvisionPlan { claims: claims.collect::<Option<_>>()?, ..one.plan.clone() };
        Some(Move { plan, ..one.clone() })
    }

    fn price(&self, nodes: &[usize]) -> UsdPerHour {
        self.all(nodes).map(|used| used.price).sum()
    }

    /// What must be saved: the most that one of the nodes' pools asks for, and what is due to pods that moved lately.
    fn least(&self, nodes: &[usize], now: UsdPerHour) -> UsdPerHour {
        let rests: UsdPerHour = self.all(nodes).map(|used| used.rests).sum();
        self.minimum(nodes, now) + rests
    }

    /// The most that one of the nodes' pools asks for.
    fn minimum(&self, nodes: &[usize], now: UsdPerHour) -> UsdPerHour {
        self.all(nodes).map(|used| used.terms.savings.of(now)).max().unwrap_or_default()
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
        if saves > UsdPerHour::ZERO && saves >= self.minimum(nodes, now) {
            let moved = self
                .all(nodes)
                .map(|used| rest::moved(&used.pods, &self.input.moved, used.terms.rest, self.input.now));
            let (pool, rest) = (used.pool.name.clone(), used.terms.rest);
            return Some(RefusalReason::MovedLately { pool, moved: moved.sum(), rest });
        }
        let hundredths = u128::from(saves.nanos()).saturating_mul(10_000).checked_div(now.nanos().into())?;
        (saves > UsdPerHour::ZERO).then(|| RefusalReason::SavesTooLittle {
            pool: used.pool.name.clone(),
            saves,
            hundredths: u64::try_from(hundredths).unwrap_or(u64::MAX),
            least: used.terms.savings,
            currency: self.input.currency,
        })
    }

    fn is_all_spot(&self, nodes: &[usize]) -> bool {
        self.all(nodes).all(|used| used.capacity_type == CapacityType::Spot)
    }

    /// Whether spot nodes alone are replaced, by spot.
    fn is_spot_to_spot(&self, nodes: &[usize], quotes: &[Quote<'_>]) -> bool {
        self.is_all_spot(nodes) && quotes.iter().any(|quote| quote.kind == CapacityType::Spot)
    }

    /// The types whose dearest offering the claim's share of the money pays for, cheapest first.
    fn types<'c>(
        &self,
        nodes: &[usize],
        quote: &Quote<'c>,
        (planned, now): (u64, UsdPerHour),
    ) -> Result<Vec<&'c InstanceType>, Option<RefusalReason>> {
        let slack = now.nanos().saturating_sub(self.least(nodes, now).nanos()).saturating_sub(planned);
        let share = if planned == 0 { slack } else { share_of(slack, quote.cheapest, planned) };
        // Even if nothing must be saved, it must be cheaper.
        let most = quote.cheapest.saturating_add(share).min(now.nanos().saturating_sub(1));
        let mut types: Vec<(&InstanceType, u64)> =
            quote.dearest.iter().copied().filter(|(_, price)| *price <= most).collect();
        if let [_, _, ..] = nodes {
            let same =
                self.all(nodes).filter(|used| types.iter().any(|(name, _)| *name == used.instance_type));
            if let Some(cheapest) = same.map(|used| used.price.nanos()).min() {
                types.retain(|(_, price)| *price < cheapest);
            }
        }
        let found = types.len();
        if let ([_], CapacityType::Spot, true) = (nodes, quote.kind, self.is_all_spot(nodes))
            && found < SPOT_TYPES
        {
            return Err((found > 0).then_some(RefusalReason::TooFewSpotTypes { found }));
        }
        if types.is_empty() {
            return Err(None);
        }
        Ok(types.into_iter().map(|(name, _)| name).collect())
    }

    /// The claim with these types, of spot for one spot node only with the cheapest of them.
    fn restricted(
        &self,
        nodes: &[usize],
        quote: &Quote<'_>,
        types: Vec<&InstanceType>,
    ) -> Option<PlannedClaim> {
        let pool = self.pool(quote.claim)?;
        let with = |types: &[&InstanceType]| {
            let claim = quote.claim(&types.iter().copied().collect())?;
            self.has_min_values(&claim, pool).then_some(claim)
        };
        match (nodes, quote.kind, self.is_all_spot(nodes)) {
            ([_], CapacityType::Spot, true) => {
                (SPOT_TYPES..=types.len()).find_map(|count| with(types.get(..count)?))
            }
            _ => with(&types),
        }
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

/// What each claim costs; `None` if one can't be bought or has no price.
fn quotes(claims: &[PlannedClaim]) -> Option<Vec<Quote<'_>>> {
    claims.iter().map(Quote::of).collect()
}

fn share_of(slack: u64, own: u64, all: u64) -> u64 {
    let share = u128::from(slack).saturating_mul(own.into()).checked_div(all.into()).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}
