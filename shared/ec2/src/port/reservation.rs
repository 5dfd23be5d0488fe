//! Capacity reservations, as EC2 tells them.

use tenon_domain::Timestamp;
use tenon_domain::id::{InstanceType, ReservationId, Zone};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};

use super::{TagFilter, Tags};

/// Active capacity reservations. What is given must hold together; what is empty isn't asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CapacityReservationFilter {
    /// Any of these ids; one that doesn't exist is `NotFound`.
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
    /// The only type that it holds.
    pub instance_type: InstanceType,
    /// Its zone's name.
    pub zone: Zone,
    /// Which instances it takes.
    pub match_criteria: MatchCriteria,
    /// What kind it is.
    pub kind: ReservationKind,
    /// When it ends, if it does.
    pub ends_at: Option<Timestamp>,
    /// Instances that it has room for at the moment of the answer.
    pub available: u32,
    /// Its tags.
    pub tags: Tags,
}

/// What a launch template says of capacity reservations; one that says nothing has EC2's default, `open`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationPreference {
    /// `capacity-reservations-only`, with this one as the target.
    Only(ReservationId),
    /// `none`: in no reservation, an open one that matches neither.
    None,
}
