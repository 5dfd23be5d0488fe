//! What a launch buys of a claim's offerings.
//!
//! Decides which offering gives a claim its price, in the order of the launch: a reservation first, then the cheapest
//! offering; of equal prices spot. So spot counts only where it has a price and costs no more than on-demand. A launch with
//! `minValues` keeps all its offerings, and spot that has a price comes before on-demand. An offering without a price comes
//! last. It doesn't decide which offerings a claim has.

use tenon_domain::catalog::CapacityType;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirements;

use super::output::{PlannedClaim, UsableOffering};
use super::pool::UNKNOWN_PRICE;

/// What becomes of spot that costs more than on-demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DearSpot {
    /// The launch drops it.
    Dropped,
    /// `minValues` keep it.
    Kept,
}

/// The order in which a launch buys offerings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PurchaseRank {
    is_unreserved: bool,
    is_unpriced: bool,
    /// The capacity type, where it comes before the price.
    preferred: Option<CapacityType>,
    /// The price in nano-dollars an hour; [`UNKNOWN_PRICE`] where unknown.
    pub(crate) price: u64,
    /// How it is paid for.
    pub(crate) capacity_type: CapacityType,
}

impl DearSpot {
    /// With a claim's requirements.
    pub(crate) fn of(requirements: &Requirements) -> Self {
        match requirements.iter().any(|requirement| requirement.min_values().is_some()) {
            true => Self::Kept,
            false => Self::Dropped,
        }
    }

    /// The rank of an offering with a price as the planner counts it.
    pub(crate) fn rank(self, capacity_type: CapacityType, price: u64) -> PurchaseRank {
        PurchaseRank {
            is_unreserved: capacity_type != CapacityType::Reserved,
            is_unpriced: price >= UNKNOWN_PRICE,
            preferred: match self {
                Self::Dropped => None,
                Self::Kept => Some(capacity_type),
            },
            price,
            capacity_type,
        }
    }
}

impl PurchaseRank {
    /// The price, if known.
    pub(crate) fn known_price(self) -> Option<UsdPerHour> {
        (!self.is_unpriced).then(|| UsdPerHour::from_nanos(self.price))
    }
}

/// What a launch would buy first of these offerings: of available ones, or of probes if none is available.
pub(crate) fn bought<'o>(
    offerings: impl Iterator<Item = &'o UsableOffering> + Clone,
    dear: DearSpot,
) -> Option<PurchaseRank> {
    let surest = offerings.clone().map(|offering| offering.asked).min()?;
    let settled = offerings.filter(|offering| offering.asked == surest);
    let price = |offering: &UsableOffering| {
        offering.price.map_or(UNKNOWN_PRICE, |price| price.nanos().min(UNKNOWN_PRICE))
    };
    settled.map(|offering| dear.rank(offering.capacity_type, price(offering))).min()
}

impl PlannedClaim {
    /// The capacity type that its launch would buy.
    #[must_use]
    pub fn bought(&self) -> Option<CapacityType> {
        let rank = bought(self.offerings.iter(), DearSpot::of(&self.requirements))?;
        Some(rank.capacity_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::AskReason;

    #[test]
    fn a_launch_buys_spot_where_it_is_known_to_cost_no_more() {
        let check = |offerings: &[(CapacityType, Option<u64>)], dear: DearSpot, expected| {
            let offering = |(capacity_type, price): &(CapacityType, Option<u64>)| UsableOffering {
                instance_type: "m5.large".parse().unwrap(),
                zone: "test-zone-1".parse().unwrap(),
                zone_id: "tstz1".parse().unwrap(),
                capacity_type: *capacity_type,
                reservation: None,
                price: price.map(UsdPerHour::from_nanos),
                asked: AskReason::Available,
            };
            let all: Vec<UsableOffering> = offerings.iter().map(offering).collect();
            let rank = bought(all.iter(), dear).unwrap();
            let found = (rank.capacity_type, rank.known_price().map(UsdPerHour::nanos));
            assert_eq!(found, expected, "{offerings:?} {dear:?}");
        };
        let spot = |price: u64| (CapacityType::Spot, Some(price));
        let on_demand = |price: u64| (CapacityType::OnDemand, Some(price));
        let (no_spot_price, no_price) = ((CapacityType::Spot, None), (CapacityType::OnDemand, None));
        check(&[spot(3), on_demand(9)], DearSpot::Dropped, spot(3));
        check(&[spot(9), on_demand(9)], DearSpot::Dropped, spot(9));
        check(&[spot(12), on_demand(9)], DearSpot::Dropped, on_demand(9));
        check(&[no_spot_price, on_demand(9)], DearSpot::Dropped, on_demand(9));
        check(&[spot(12), no_price], DearSpot::Dropped, spot(12));
        check(&[no_spot_price, no_price], DearSpot::Dropped, no_spot_price);
        check(&[spot(12), on_demand(9)], DearSpot::Kept, spot(12));
        check(&[no_spot_price, on_demand(9)], DearSpot::Kept, on_demand(9));
        check(
            &[spot(1), (CapacityType::Reserved, Some(2))],
            DearSpot::Dropped,
            (CapacityType::Reserved, Some(2)),
        );
    }
}
