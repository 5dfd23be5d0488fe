//! The parts of the catalogue, and their join into the options for a class.
//!
//! Decides a type's offerings: one for each zone that offers it and each of its capacity types, with the price, or
//! the reason why it is unavailable. It doesn't decide freshness: the caller passes only fresh parts.
//!
//! Invariants: options are sorted by name; a type is offered only in zones that EC2 names; an unknown price is
//! `None`, never a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalog::facts::{InstanceTypeFacts, UsageClass};
use crate::catalog::learned::LearnedOf;
use crate::catalog::offering::{Availability, CapacityType, Offering, Unavailability};
use crate::catalog::option::{InstanceTypeOption, Surroundings};
use crate::catalog::places::{ClassNodes, Exhaustion, Places, subnets_of};
use crate::catalog::settings::NodeSettings;
use crate::evidence::{CatalogPart, Ready};
use crate::id::{InstanceType, Region, Zone, ZoneId};
use crate::money::UsdPerHour;
use crate::unavailable::OfferingKey;

/// One part's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartData {
    /// The answers of DescribeInstanceTypes, by type.
    InstanceTypes(BTreeMap<InstanceType, Arc<InstanceTypeFacts>>),
    /// The zones that offer each type.
    Offerings(ZoneOfferings),
    /// Prices by type.
    OnDemandPrices(BTreeMap<InstanceType, UsdPerHour>),
    /// Prices by type and zone.
    SpotPrices(BTreeMap<InstanceType, BTreeMap<Zone, UsdPerHour>>),
}

/// Which zones offer which types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneOfferings {
    /// The region's zones, by name.
    pub zones: BTreeMap<Zone, ZoneId>,
    /// Zones by type.
    pub offered: BTreeMap<InstanceType, BTreeSet<Zone>>,
}

impl PartData {
    /// Which part it is.
    #[must_use]
    pub const fn part(&self) -> CatalogPart {
        match self {
            Self::InstanceTypes(_) => CatalogPart::InstanceTypes,
            Self::Offerings(_) => CatalogPart::Offerings,
            Self::OnDemandPrices(_) => CatalogPart::OnDemandPrices,
            Self::SpotPrices(_) => CatalogPart::SpotPrices,
        }
    }

    /// The number of types in it.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::InstanceTypes(types) => types.len(),
            Self::Offerings(offerings) => offerings.offered.len(),
            Self::OnDemandPrices(prices) => prices.len(),
            Self::SpotPrices(prices) => prices.len(),
        }
    }
}

/// Spot prices, by type and zone.
pub type SpotPrices = BTreeMap<InstanceType, BTreeMap<Zone, UsdPerHour>>;

/// Fresh parts of the catalogue. A price list may be missing if a plan can do without; its offerings are unavailable
/// then. An offering without a price in its list is available, and ranks last.
#[derive(Debug, Clone)]
pub struct Catalog<'a> {
    /// The region.
    pub region: &'a Region,
    /// The answers of DescribeInstanceTypes.
    pub types: Ready<&'a BTreeMap<InstanceType, Arc<InstanceTypeFacts>>>,
    /// The zones that offer each type.
    pub offerings: Ready<&'a ZoneOfferings>,
    /// On-demand prices.
    pub on_demand: Option<Ready<&'a BTreeMap<InstanceType, UsdPerHour>>>,
    /// Spot prices by zone.
    pub spot: Option<Ready<&'a SpotPrices>>,
    /// Learned memory; the estimate holds for all else.
    pub learned: LearnedOf<'a>,
}

impl Catalog<'_> {
    /// The options for a class, by name, without types that no zone offers or no node can use.
    #[must_use]
    pub fn options(
        &self,
        settings: &NodeSettings,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> Vec<InstanceTypeOption> {
        let mut options = self.described(settings, places, exhaustion);
        options.retain(|option| option.facts.is_for_nodes());
        options
    }

    /// The same with types that no node can use: for people, never for a plan.
    #[must_use]
    pub fn described(
        &self,
        settings: &NodeSettings,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> Vec<InstanceTypeOption> {
        let nodes = ClassNodes { settings, places };
        let mut options = self.unmarked(nodes);
        self.mark(&mut options, nodes, exhaustion);
        options
    }

    /// The same as of a region without marks and zonal shifts. It depends on neither the time nor the subnets, except
    /// for their zones, so it can be kept.
    #[must_use]
    pub fn unmarked(&self, nodes: ClassNodes<'_>) -> Vec<InstanceTypeOption> {
        let ClassNodes { settings, places } = nodes;
        let zones: BTreeMap<&Zone, (&ZoneId, Availability)> =
            self.offerings.zones.iter().map(|(zone, id)| (zone, (id, places.with_subnet(zone)))).collect();
        self.types
            .values()
            .filter_map(|facts| {
                let offered = self.offerings.offered.get(&facts.name)?;
                let offerings = self.offerings_of(facts, offered, &zones);
                let surroundings = Surroundings { region: self.region, learned: self.learned.memory(facts) };
                Some(InstanceTypeOption::new(Arc::clone(facts), settings, surroundings, offerings))
            })
            .collect()
    }

    /// Applies marks and zonal shifts to options that have no reservations yet. Earlier marks on them leave no trace.
    pub fn mark(
        &self,
        options: &mut [InstanceTypeOption],
        nodes: ClassNodes<'_>,
        exhaustion: Exhaustion<'_>,
    ) {
        let zones = self.zones(nodes.places, exhaustion);
        for option in options {
            let facts = Arc::clone(&option.facts);
            option.judge(nodes.settings, |offering| {
                let Some((zone_id, place)) = zones.get(&offering.zone) else {
                    return Availability::Unavailable(Unavailability::NotOffered);
                };
                self.availability(offering.capacity_type, place, || {
                    let key = OfferingKey {
                        capacity_type: offering.capacity_type,
                        zone_id: (*zone_id).clone(),
                        instance_type: facts.name.clone(),
                    };
                    exhaustion.of_offering(&key, facts.vcpus)
                })
            });
        }
    }

    /// The region's zones, with the reason where a class can't be in one.
    pub(super) fn zones(
        &self,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> BTreeMap<&Zone, (&ZoneId, Availability)> {
        let availability = |zone: &Zone| match places {
            Places::AllZones => Availability::Available,
            Places::Subnets(subnets) => subnets_of(zone, subnets, exhaustion),
        };
        self.offerings.zones.iter().map(|(zone, id)| (zone, (id, availability(zone)))).collect()
    }

    fn offerings_of(
        &self,
        facts: &InstanceTypeFacts,
        offered: &BTreeSet<Zone>,
        zones: &BTreeMap<&Zone, (&ZoneId, Availability)>,
    ) -> Vec<Offering> {
        let capacity_types =
            [(CapacityType::Spot, UsageClass::Spot), (CapacityType::OnDemand, UsageClass::OnDemand)];
        let bought = capacity_types.into_iter().filter(|(_, class)| facts.usage_classes.contains(class));
        let mut offerings = Vec::new();
        for (capacity_type, _) in bought {
            for (zone, (zone_id, place)) in zones.iter().filter(|(zone, _)| offered.contains(**zone)) {
                offerings.push(Offering {
                    zone: (*zone).clone(),
                    zone_id: (*zone_id).clone(),
                    capacity_type,
                    reservation: None,
                    price: self.price(&facts.name, zone, capacity_type),
                    availability: self.availability(capacity_type, place, || Availability::Available),
                });
            }
        }
        offerings
    }

    /// Whether an offering of a place is available, and under the marks if nothing else is in the way.
    fn availability(
        &self,
        capacity_type: CapacityType,
        place: &Availability,
        marks: impl FnOnce() -> Availability,
    ) -> Availability {
        if place.is_lasting() {
            place.clone()
        } else if self.is_priced(capacity_type) {
            place.clone().and(marks())
        } else {
            Availability::Unavailable(Unavailability::PriceUnknown)
        }
    }

    pub(super) fn price(
        &self,
        name: &InstanceType,
        zone: &Zone,
        capacity_type: CapacityType,
    ) -> Option<UsdPerHour> {
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => self.on_demand.as_ref()?.get(name).copied(),
            CapacityType::Spot => self.spot.as_ref()?.get(name)?.get(zone).copied(),
        }
    }

    /// Whether there are prices of that kind at all.
    const fn is_priced(&self, capacity_type: CapacityType) -> bool {
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => self.on_demand.is_some(),
            CapacityType::Spot => self.spot.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
