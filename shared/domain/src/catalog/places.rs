//! Where nodes of a class can be, and when.
//!
//! Decides what stands in the way of a zone and of an offering: no subnet, a zonal shift, a mark. It decides nothing about
//! prices and about what a zone offers, and doesn't make marks.
//!
//! Invariant: a zone is as available as its best subnet.

use jiff::Timestamp;

use crate::catalog::offering::{Availability, Unavailability};
use crate::catalog::settings::NodeSettings;
use crate::class_status::ClassSubnet;
use crate::id::Zone;
use crate::unavailable::{Blocking, Marks, OfferingKey, RequestDigest, UnavailableKey, WantedOffering};

/// Where nodes of a class can be.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a> {
    /// In every zone of the region: the class's subnets aren't known.
    AllZones,
    /// In the zones of its subnets.
    Subnets(&'a [ClassSubnet]),
}

/// Nodes of a class: their settings and their zones.
#[derive(Debug, Clone, Copy)]
pub struct ClassNodes<'a> {
    /// Their settings.
    pub settings: &'a NodeSettings,
    /// Their places.
    pub places: Places<'a>,
}

/// Marks, as they apply to a class at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Exhaustion<'a> {
    /// The region's marks.
    pub marks: &'a Marks,
    /// Identities of the requests for the class's nodes.
    pub requests: &'a [RequestDigest],
    /// The moment.
    pub now: Timestamp,
}

impl Places<'_> {
    /// Whether nodes can be in a zone, apart from marks and zonal shifts.
    pub(super) fn with_subnet(self, zone: &Zone) -> Availability {
        match self {
            Self::Subnets(subnets) if subnets.iter().all(|subnet| subnet.zone != *zone) => {
                Availability::Unavailable(Unavailability::NoSubnet)
            }
            Self::AllZones | Self::Subnets(_) => Availability::Available,
        }
    }
}

impl Exhaustion<'_> {
    pub(super) fn of_offering(&self, offering: &OfferingKey, vcpus: u32) -> Availability {
        let wanted = WantedOffering { requests: self.requests, ..WantedOffering::new(offering, vcpus) };
        self.marks
            .blocking(&wanted, self.now)
            .map_or(Availability::Available, |blocking| exhausted(&blocking))
    }
}

/// Whether a class has a subnet with addresses in the zone, and the zone is in service.
pub(super) fn subnets_of(zone: &Zone, subnets: &[ClassSubnet], exhaustion: Exhaustion<'_>) -> Availability {
    let here = || subnets.iter().filter(|subnet| subnet.zone == *zone);
    // A shift is a zone's, so all subnets in it are shifted or none is.
    if here().any(|subnet| subnet.is_shifted(exhaustion.now)) {
        return Availability::Unavailable(Unavailability::ZoneShifted);
    }
    let blocking = |subnet: &ClassSubnet| {
        let key = UnavailableKey::Subnet(subnet.id.clone());
        exhaustion.marks.blocking_key(&key, exhaustion.now)
    };
    // The one that has addresses first is the zone's; one that isn't marked has some.
    let first = here().map(blocking).min_by_key(|blocking| blocking.as_ref().map(|blocking| blocking.until));
    match first {
        None => Availability::Unavailable(Unavailability::NoSubnet),
        Some(None) => Availability::Available,
        Some(Some(blocking)) => exhausted(&blocking),
    }
}

/// A mark holds until a launch gets its capacity; once it is due, only a probe may ask.
const fn exhausted(blocking: &Blocking) -> Availability {
    let Blocking { until, last_resort_at, .. } = *blocking;
    Availability::Unavailable(Unavailability::Exhausted { until, last_resort_at })
}
