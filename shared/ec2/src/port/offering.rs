//! Where types are offered and what they cost, as EC2 and the Pricing API tell it.

use tenon_domain::Timestamp;
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

/// What a location of an offering is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationType {
    /// Zones by name.
    AvailabilityZone,
    /// Zones by id.
    AvailabilityZoneId,
}

/// A type and where it is offered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeOffering {
    /// The type.
    pub instance_type: InstanceType,
    /// A zone's name or id, as was asked for.
    pub location: String,
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AvailabilityZone {
    /// Its name in this account.
    pub name: Zone,
    /// Its id, the same in every account.
    pub id: ZoneId,
}

/// A spot price.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotPrice {
    /// The type.
    pub instance_type: InstanceType,
    /// The zone's name.
    pub zone: Zone,
    /// The price.
    pub price: UsdPerHour,
    /// Since when.
    pub since: Timestamp,
}

/// The code of the refusal of every question about prices in a partition that has no Pricing API. It is ours: nothing is
/// sent.
pub const NO_PRICING_API: &str = "NoPricingApi";

/// The code of an answer that can't be read, of any call. It is ours: AWS sent something else than it says it does.
pub const MALFORMED_ANSWER: &str = "MalformedAnswer";

/// An on-demand price (Linux, shared tenancy), in the region's currency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnDemandPrice {
    /// The type.
    pub instance_type: InstanceType,
    /// The price.
    pub price: UsdPerHour,
}
