//! Which zone comes first where on-demand capacity costs the same in several, so that the end of one zone doesn't
//! take all nodes.

use std::collections::BTreeMap;

use tenon_domain::catalog::{CapacityType, PriceRank};
use tenon_domain::claim::Claim;
use tenon_domain::id::{NodePoolName, Zone};
use tenon_ec2::port::FleetOverride;
use tenon_planning::provision::{PlannedClaim, UsableOffering};

use crate::fleet::Fleet;

/// How many on-demand nodes of each NodePool a zone has: those that are there, and those of the launches so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneTally(BTreeMap<(NodePoolName, Zone), usize>);

impl ZoneTally {
    /// The tally of the cluster's claims.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut tally = Self::default();
        for claim in claims.into_iter().filter(|claim| !claim.phase().is_final()) {
            let on_demand = |capacity_type| capacity_type == CapacityType::OnDemand;
            if let Some(instance) = claim.state.instance().filter(|of| on_demand(of.capacity_type)) {
                tally.add(&claim.pool, &instance.zone, 1);
            }
        }
        tally
    }

    /// How many nodes of the pool the zone has.
    #[must_use]
    pub fn nodes(&self, pool: &NodePoolName, zone: &Zone) -> usize {
        self.0.get(&(pool.clone(), zone.clone())).copied().unwrap_or(0)
    }

    /// Counts more nodes of the pool.
    pub fn add(&mut self, pool: &NodePoolName, zone: &Zone, nodes: usize) {
        *self.0.entry((pool.clone(), zone.clone())).or_default() += nodes;
    }
}

/// Sorts offerings of one capacity type: the cheapest first. An on-demand price is the same in all zones of a region,
/// so of these the zone with the fewest nodes comes first.
pub(crate) fn cheapest_first(offerings: &mut [&UsableOffering], pool: &NodePoolName, zones: &ZoneTally) {
    offerings.sort_by_cached_key(|one| {
        let turn = match one.capacity_type {
            CapacityType::OnDemand => Some((zones.nodes(pool, &one.zone), one.zone.clone())),
            CapacityType::Spot | CapacityType::Reserved => None,
        };
        (PriceRank::of(one.price), turn, one.instance_type.clone(), one.zone.clone())
    });
}

/// The zones in which the fleet's first choice costs the same, in the order in which EC2 tries them; none unless the
/// fleet is on demand.
pub(crate) fn tied_zones<'f>(fleet: &'f Fleet, claim: &PlannedClaim) -> Vec<&'f Zone> {
    if fleet.capacity_type != CapacityType::OnDemand {
        return Vec::new();
    }
    let mut choices: Vec<&FleetOverride> = fleet.overrides.values().flatten().collect();
    choices.sort_by_key(|one| one.priority);
    let price = |one: &FleetOverride| {
        let is_it = |offering: &&UsableOffering| {
            offering.capacity_type == CapacityType::OnDemand
                && offering.instance_type == one.instance_type
                && Some(&offering.zone) == one.zone.as_ref()
        };
        claim.offerings.iter().find(is_it).map(|offering| PriceRank::of(offering.price))
    };
    let least = choices.first().copied().and_then(price);
    let mut zones: Vec<&Zone> = Vec::new();
    for one in choices.into_iter().take_while(|one| price(one) == least) {
        zones.extend(one.zone.as_ref().filter(|zone| !zones.contains(zone)));
    }
    zones
}
