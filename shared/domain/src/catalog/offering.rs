//! Offerings: an instance type in a zone by a capacity type, with a price.
//!
//! Decides the order of offerings, and whether one is compatible with requirements. Availability is an input. An
//! unavailable offering stays with its reason, because running nodes need its price.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::catalog::compatibility::Incompatibility;
use crate::catalog::reserved::OfferedReservation;
use crate::id::{ReservationId, Zone, ZoneId};
use crate::labels;
use crate::money::UsdPerHour;
use crate::requirement::Requirements;
use crate::reservation::ReservationKind;

crate::words! {
    /// The capacity type, in the order of preference at equal prices. Its words are the values of
    /// `karpenter.sh/capacity-type`.
    pub enum CapacityType {
        /// In a capacity reservation, paid for already.
        Reserved = "reserved",
        /// Spot.
        Spot = "spot",
        /// On demand.
        OnDemand = "on-demand",
    }
}

/// A way to have an instance type: one zone, one way of paying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offering {
    /// The zone's name in this account.
    pub zone: Zone,
    /// The zone's id.
    pub zone_id: ZoneId,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// The reservation, for `reserved`.
    pub reservation: Option<OfferedReservation>,
    /// The price, if known.
    pub price: Option<UsdPerHour>,
    /// Whether it is available now.
    pub availability: Availability,
}

/// Whether an offering is available now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// It can, as far as is known.
    Available,
    /// It can't.
    Unavailable(Unavailability),
}

impl Availability {
    /// Whether it is unavailable for a reason other than a mark.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Available | Self::Unavailable(Unavailability::Exhausted { .. }) => false,
            Self::Unavailable(_) => true,
        }
    }

    /// Both conditions together: available if both are; the later time if both are exhausted.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Unavailable(Unavailability::Exhausted { until: a, last_resort_at: c }),
                Self::Unavailable(Unavailability::Exhausted { until: b, last_resort_at: d }),
            ) => Self::Unavailable(Unavailability::Exhausted { until: a.max(b), last_resort_at: c.max(d) }),
            (Self::Available, other) | (other, Self::Available) => other,
            (lasting, _) if lasting.is_lasting() => lasting,
            (_, lasting) => lasting,
        }
    }
}

/// The reason why an offering is unavailable. Reports and metrics have its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Unavailability {
    /// EC2 doesn't have the type in this zone.
    #[error("the zone doesn't offer the type")]
    NotOffered,
    /// The class has no subnet in this zone.
    #[error("the class has no subnet in the zone")]
    NoSubnet,
    /// Nodes of the class can't be of this type.
    #[error(transparent)]
    Incompatible(Incompatibility),
    /// The price list of its capacity type is missing or too old.
    #[error("its price is unknown")]
    PriceUnknown,
    /// The cluster's stack doesn't allow its family.
    #[error("its family isn't among `AllowedFamilies` of the cluster's stack")]
    FamilyNotAllowed,
    /// EC2 refused it for lack of capacity, and no later launch got any.
    #[error("capacity is exhausted")]
    Exhausted {
        /// The end of the hold; after it, only a probe may ask.
        until: Timestamp,
        /// The time from which it may be probed as the last resort.
        last_resort_at: Timestamp,
    },
    /// The zone is shifted away from.
    #[error("the zone has a zonal shift")]
    ZoneShifted,
    /// The reservation has no instance left.
    #[error("the reservation is used up")]
    ReservationUsedUp,
    /// The reservation is about to end.
    #[error("the reservation is about to end")]
    ReservationExpiring,
}

impl Unavailability {
    /// Whether the type can never be in this zone for this class, so that the zone isn't one of the type's.
    #[must_use]
    pub const fn rules_zone_out(&self) -> bool {
        match self {
            Self::NotOffered | Self::NoSubnet => true,
            Self::Incompatible(_)
            | Self::PriceUnknown
            | Self::FamilyNotAllowed
            | Self::Exhausted { .. }
            | Self::ZoneShifted
            | Self::ReservationUsedUp
            | Self::ReservationExpiring => false,
        }
    }
}

/// The rank of a price: an unknown price comes after every known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriceRank {
    /// It is known.
    Known(UsdPerHour),
    /// It isn't.
    Unknown,
}

impl PriceRank {
    /// The rank of a price.
    #[must_use]
    pub const fn of(price: Option<UsdPerHour>) -> Self {
        match price {
            Some(price) => Self::Known(price),
            None => Self::Unknown,
        }
    }
}

/// The order of offerings: cheapest first, then as they are preferred, then by zone; of a zone's reservations the one
/// with the most room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferingRank<'a> {
    /// The price.
    pub price: PriceRank,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// The kind of its reservation.
    pub kind: Option<ReservationKind>,
    /// The zone.
    pub zone: &'a Zone,
    /// How many instances its reservation has room for: the most first.
    pub left: Reverse<u32>,
    /// The reservation, which makes the rank unique.
    pub reservation: Option<&'a ReservationId>,
}

impl Offering {
    /// Whether it is available now.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.availability == Availability::Available
    }

    /// Whether its zone, capacity type and reservation match the requirements.
    #[must_use]
    pub fn goes_with(&self, asked: &Requirements) -> bool {
        let of = self.reservation.as_ref();
        let labelled = |key: &str, value: Option<&str>| match (value, asked.get(key)) {
            (_, None) => true,
            (Some(value), Some(requirement)) => requirement.has(value),
            (None, Some(requirement)) => requirement.accepts_absence(),
        };
        let kind = of.map(|reservation| reservation.kind);
        labelled(labels::CAPACITY_RESERVATION_ID, of.map(|reservation| reservation.id.as_str()))
            && labelled(labels::CAPACITY_RESERVATION_TYPE, kind.map(ReservationKind::type_label))
            && labelled(
                labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
                kind.map(ReservationKind::interruptible_label),
            )
            && asked.allows(labels::CAPACITY_TYPE, self.capacity_type.as_str())
            && asked.allows(labels::ZONE, self.zone.as_str())
            && asked.allows(labels::ZONE_ID, self.zone_id.as_str())
    }

    /// Its place among offerings.
    #[must_use]
    pub fn rank(&self) -> OfferingRank<'_> {
        OfferingRank {
            price: PriceRank::of(self.price),
            capacity_type: self.capacity_type,
            kind: self.reservation.as_ref().map(|reservation| reservation.kind),
            zone: &self.zone,
            left: Reverse(self.reservation.as_ref().map_or(0, |reservation| reservation.left)),
            reservation: self.reservation.as_ref().map(|reservation| &reservation.id),
        }
    }
}
