//! Capacity reservations as offerings.
//!
//! Decides in which zones a class's reservations are offered, their price for ranking, and when they are unavailable.
//! It doesn't select reservations: they come from behind their gate ([`Reservations`]).
//!
//! Invariant: an available reserved offering has room for an instance, as far as is known.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/instancetype/offering/reserved_capacity_resolver.go`.

use crate::catalog::offering::{Availability, CapacityType, Offering, Unavailability};
use crate::catalog::option::InstanceTypeOption;
use crate::catalog::parts::Catalog;
use crate::catalog::places::{ClassNodes, Exhaustion};
use crate::id::ReservationId;
use crate::money::UsdPerHour;
use crate::reservation::{ClassReservation, ReservationKind, ReservationState, Reservations};
use crate::unavailable::{OfferingKey, WantedOffering};

/// The on-demand price is divided by this for ranking: a reservation is paid for already, and keeps the order of
/// on-demand prices. Source: the module's.
const RESERVED_DIVISOR: u64 = 10_000_000;

/// The price for ranking a reserved offering; zero only if the on-demand price is.
#[must_use]
pub const fn reserved_price(on_demand: UsdPerHour) -> UsdPerHour {
    UsdPerHour::from_nanos(on_demand.nanos().div_ceil(RESERVED_DIVISOR))
}

/// The reservation of an offering.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferedReservation {
    /// Its kind.
    pub kind: ReservationKind,
    /// The reservation.
    pub id: ReservationId,
    /// How many instances it has room for.
    pub left: u32,
}

impl Catalog<'_> {
    /// Adds a class's reservations to its choices. One of a zone or a type that the catalogue doesn't have is none.
    pub fn offer_reserved(
        &self,
        options: &mut [InstanceTypeOption],
        reservations: &Reservations<'_>,
        nodes: ClassNodes<'_>,
        exhaustion: Exhaustion<'_>,
    ) {
        let ClassNodes { settings, places } = nodes;
        let zones = self.zones(places, exhaustion);
        for option in options {
            let facts = std::sync::Arc::clone(&option.facts);
            let offerings = reservations.of_type(&facts.name).iter().filter_map(|(reservation, left)| {
                let (zone_id, place) = zones.get(&reservation.zone)?;
                let key = OfferingKey {
                    capacity_type: CapacityType::Reserved,
                    zone_id: (*zone_id).clone(),
                    instance_type: facts.name.clone(),
                };
                let availability = if place.is_lasting() {
                    place.clone()
                } else {
                    availability(reservation, *left, exhaustion).unwrap_or_else(|| {
                        place.clone().and(of_marks(&key, facts.vcpus, reservation, exhaustion))
                    })
                };
                Some(Offering {
                    zone: reservation.zone.clone(),
                    zone_id: (*zone_id).clone(),
                    capacity_type: CapacityType::Reserved,
                    reservation: Some(OfferedReservation {
                        kind: reservation.kind,
                        id: reservation.id.clone(),
                        left: *left,
                    }),
                    price: self
                        .price(&facts.name, &reservation.zone, CapacityType::Reserved)
                        .map(reserved_price),
                    availability,
                })
            });
            let offerings: Vec<Offering> = offerings.collect();
            if !offerings.is_empty() {
                option.offer(self.region, settings, offerings);
            }
        }
    }
}

/// Why a reservation itself is unavailable, apart from marks.
fn availability(
    reservation: &ClassReservation,
    left: u32,
    exhaustion: Exhaustion<'_>,
) -> Option<Availability> {
    match reservation.state(exhaustion.now) {
        ReservationState::Expiring => Some(Availability::Unavailable(Unavailability::ReservationExpiring)),
        ReservationState::Active if left == 0 => {
            Some(Availability::Unavailable(Unavailability::ReservationUsedUp))
        }
        ReservationState::Active => None,
    }
}

/// The effect of marks on a reservation. Once a mark is due, any launch may ask, if the reservation's count has room:
/// the count is evidence, which a capacity pool doesn't have.
fn of_marks(
    offering: &OfferingKey,
    vcpus: u32,
    reservation: &ClassReservation,
    exhaustion: Exhaustion<'_>,
) -> Availability {
    let wanted = WantedOffering {
        requests: exhaustion.requests,
        reservation: Some(&reservation.id),
        ..WantedOffering::new(offering, vcpus)
    };
    match exhaustion.marks.blocking(&wanted, exhaustion.now) {
        Some(blocking) if !blocking.is_due(exhaustion.now) => {
            let (until, last_resort_at) = (blocking.until, blocking.last_resort_at);
            Availability::Unavailable(Unavailability::Exhausted { until, last_resort_at })
        }
        Some(_) | None => Availability::Available,
    }
}
