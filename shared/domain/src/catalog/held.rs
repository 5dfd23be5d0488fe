//! The offerings that a cluster's instances have, as a plan knew them.
//!
//! Decides what is kept of an offering for the cluster's metrics: its price, and whether a launch may ask for it. It
//! doesn't decide how old that may be.
//!
//! Invariant: one entry for each type, zone and capacity type, and at most [`HELD_AT_MOST`].

use std::collections::BTreeMap;

use crate::catalog::CapacityType;
use crate::catalog::offering::{Availability, Offering};
use crate::catalog::option::InstanceTypeOption;
use crate::claim::LaunchedInstance;
use crate::id::{InstanceType, Zone};
use crate::money::UsdPerHour;

/// The most offerings that are kept. They lie in an item that is written with each plan: 150 of them have some 10 KB.
pub const HELD_AT_MOST: usize = 150;

/// An offering that an instance of the cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldOffering {
    /// The instance type.
    pub instance_type: InstanceType,
    /// The zone.
    pub zone: Zone,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// The price, if known. Of several reservations it is the least.
    pub price: Option<UsdPerHour>,
    /// Whether a launch may ask for it, as far as the plan knew.
    pub available: bool,
}

/// The offerings of instances, each with its type as an option of its NodePool, in the order of types and zones.
#[must_use]
pub fn held_offerings<'a>(
    instances: impl Iterator<Item = (&'a LaunchedInstance, &'a InstanceTypeOption)>,
) -> Vec<HeldOffering> {
    let mut held: BTreeMap<(&InstanceType, &Zone, CapacityType), (Option<UsdPerHour>, bool)> =
        BTreeMap::new();
    for (instance, option) in instances {
        let is_its = |offering: &&Offering| {
            offering.zone == instance.zone && offering.capacity_type == instance.capacity_type
        };
        for offering in option.offerings.iter().filter(is_its) {
            let key = (&instance.instance_type, &instance.zone, instance.capacity_type);
            let (price, available) = held.entry(key).or_default();
            *price = [*price, offering.price].into_iter().flatten().min();
            *available |= offering.availability == Availability::Available;
        }
    }
    let offering = |((instance_type, zone, capacity_type), (price, available)): (
        (&InstanceType, &Zone, CapacityType),
        (Option<UsdPerHour>, bool),
    )| HeldOffering {
        instance_type: instance_type.clone(),
        zone: zone.clone(),
        capacity_type,
        price,
        available,
    };
    held.into_iter().take(HELD_AT_MOST).map(offering).collect()
}
