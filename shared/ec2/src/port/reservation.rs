//! Capacity reservations as EC2 returns them.

use tenon_domain::Timestamp;
use tenon_domain::id::{InstanceType, ReservationId, Zone};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};

use super::{TagFilter, Tags};

/// Active capacity reservations. Criteria are ANDed; empty ones don't restrict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CapacityReservationFilter {
    /// Any of these ids; an unknown one is `NotFound`.
    pub ids: Vec<String>,
    /// The account that owns it.
    pub owner: Option<String>,
    /// Which instances it takes.
    pub match_criteria: Option<MatchCriteria>,
    /// All of these.
    pub tags: Vec<TagFilter>,
}

/// A capacity reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityReservation {
    /// Its id.
    pub id: ReservationId,
    /// The account that owns it.
    pub owner: String,
    /// Its only instance type.
    pub instance_type: InstanceType,
    /// Its zone's name.
    pub zone: Zone,
    /// Which instances it takes.
    pub match_criteria: MatchCriteria,
    /// Its kind.
    pub kind: ReservationKind,
    /// Its end, if it has one.
    pub ends_at: Option<Timestamp>,
    /// Its free instances at the moment of the answer.
    pub available: u32,
    /// Its tags.
    pub tags: Tags,
}

/// A launch template's preference for capacity reservations; without one EC2's default is `open`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationPreference {
    /// `capacity-reservations-only`, with this one as the target.
    Only(ReservationId),
    /// `none`: in no reservation, not even a matching open one.
    None,
}
