//! Zones and prices of instance types, as EC2 and the Pricing API return them.

use tenon_domain::Timestamp;
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

/// The kind of an offering's location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationType {
    /// Zones by name.
    AvailabilityZone,
    /// Zones by id.
    AvailabilityZoneId,
}

/// A type and a location that offers it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeOffering {
    /// The type.
    pub instance_type: InstanceType,
    /// A zone's name or id, depending on the request.
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
    /// The start of its validity.
    pub since: Timestamp,
}

/// The code of every price query's refusal in a partition without a Pricing API. It is ours: no request is sent.
pub const NO_PRICING_API: &str = "NoPricingApi";

/// The code of an unreadable answer of any call. It is ours: the answer contradicts the API's documentation.
pub const MALFORMED_ANSWER: &str = "MalformedAnswer";

/// An on-demand price (Linux, shared tenancy), in the region's currency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnDemandPrice {
    /// The type.
    pub instance_type: InstanceType,
    /// The price.
    pub price: UsdPerHour,
}
