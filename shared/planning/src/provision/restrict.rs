//! A planned claim with some of its offerings.
//!
//! Decides what of the claim follows from its offerings, and whether its pool's `minValues` still hold. It doesn't decide
//! which offerings stay.

use std::collections::BTreeSet;

use tenon_domain::catalog::{CapacityType, find_option};
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;

use super::finish::narrowed;
use super::input::PoolInput;
use super::output::{PlannedClaim, UsableOffering};
use super::purchase::{DearSpot, bought};

impl PlannedClaim {
    /// The claim with the offerings that `keep` names; `None` if there are none.
    #[must_use]
    pub fn restricted(&self, keep: impl Fn(&UsableOffering) -> bool) -> Option<Self> {
        let offerings: Vec<UsableOffering> = self.offerings.iter().filter(|one| keep(one)).cloned().collect();
        let left: BTreeSet<&InstanceType> = offerings.iter().map(|one| &one.instance_type).collect();
        let types: Vec<InstanceType> =
            self.instance_types.iter().filter(|name| left.contains(name)).cloned().collect();
        let zones: BTreeSet<Zone> = offerings.iter().map(|one| one.zone.clone()).collect();
        let capacity_types: BTreeSet<CapacityType> = offerings.iter().map(|one| one.capacity_type).collect();
        let price = bought(offerings.iter(), DearSpot::of(&self.requirements))?.known_price();
        Some(Self {
            requirements: narrowed(&self.requirements, &types, &zones, &capacity_types).into(),
            instance_types: types.into(),
            offerings: offerings.into_iter().collect(),
            zones,
            capacity_types,
            price,
            ..self.clone()
        })
    }

    /// Whether its types have as many values as its requirements' `minValues` ask for.
    #[must_use]
    pub fn has_min_values(&self, pool: &PoolInput) -> bool {
        self.requirements.iter().all(|requirement| {
            let Some(least) = requirement.min_values() else { return true };
            usize::try_from(least).is_ok_and(|least| self.values(requirement, pool) >= least)
        })
    }

    fn values(&self, requirement: &Requirement, pool: &PoolInput) -> usize {
        let key = requirement.key();
        let mut values: BTreeSet<&str> = BTreeSet::new();
        match key {
            labels::ZONE => values.extend(self.offerings.iter().map(|one| one.zone.as_str())),
            labels::ZONE_ID => values.extend(self.offerings.iter().map(|one| one.zone_id.as_str())),
            labels::CAPACITY_TYPE => {
                values.extend(self.offerings.iter().map(|one| one.capacity_type.as_str()));
            }
            _ => {
                let options = self.instance_types.iter().filter_map(|name| find_option(&pool.types, name));
                let known = options.filter_map(|option| option.labels.get(key));
                let own = known.filter(|label| !label.is_complement()).flat_map(Requirement::values);
                values.extend(own.map(String::as_str).filter(|value| self.requirements.allows(key, value)));
            }
        }
        values.len()
    }
}
