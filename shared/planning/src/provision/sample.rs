//! A claim without pods: what a launch of a NodePool would ask EC2 for.
//!
//! Decides its types and offerings: all that the pool takes of one architecture, as a claim of a small pod would have
//! them, marked or not. No claim is made of it: it shows EC2 what launches ask for.

use std::collections::BTreeSet;

use tenon_domain::catalog::facts::Architecture;
use tenon_domain::catalog::{InstanceTypeOption, PriceRank};
use tenon_domain::claim::{MinValuesState, Terms};
use tenon_domain::class_hash::{FieldDigests, PoolHash};
use tenon_domain::id::ClaimName;
use tenon_domain::labels;
use tenon_domain::resources::ResourceList;

use super::finish::{MAX_INSTANCE_TYPES, narrow, node_labels};
use super::input::PoolInput;
use super::output::{AskReason, PlannedClaim, UsableOffering};
use super::pool::offered;
use super::purchase::{DearSpot, bought};

/// A claim of the pool, of one architecture; `None` if the pool takes no type of it.
#[must_use]
pub fn sample(input: &PoolInput, architecture: &Architecture) -> Option<PlannedClaim> {
    let pool = &input.pool;
    let mut requirements = offered(pool);
    let fits = |option: &&InstanceTypeOption| {
        option.facts.architectures.contains(architecture) && option.labels.intersects(&requirements).is_ok()
    };
    let usable = |option: &InstanceTypeOption| -> Vec<UsableOffering> {
        let offerings = option.offerings.iter();
        let open = offerings
            .filter(|offering| !offering.availability.is_lasting() && offering.goes_with(&requirements));
        open.map(|offering| UsableOffering::of(option, offering, AskReason::Available)).collect()
    };
    let mut types: Vec<Vec<UsableOffering>> = input.types.iter().filter(fits).map(usable).collect();
    // A reservation is used up at times, and its launches have a template of their own.
    if types.iter().flatten().any(|offering| offering.reservation.is_none()) {
        for offerings in &mut types {
            offerings.retain(|offering| offering.reservation.is_none());
        }
    }
    types.retain(|offerings| !offerings.is_empty());
    types.sort_by_cached_key(|offerings| {
        let price = offerings.iter().map(|offering| PriceRank::of(offering.price)).min();
        (price, offerings.first().map(|offering| offering.instance_type.clone()))
    });
    types.truncate(MAX_INSTANCE_TYPES);
    let names = types.iter().filter_map(|offerings| offerings.first());
    let instance_types: Vec<_> = names.map(|offering| offering.instance_type.clone()).collect();
    let offerings: Vec<UsableOffering> = types.into_iter().flatten().collect();
    let zones: BTreeSet<_> = offerings.iter().map(|offering| offering.zone.clone()).collect();
    let capacity_types: BTreeSet<_> = offerings.iter().map(|offering| offering.capacity_type).collect();
    let price = bought(offerings.iter(), DearSpot::of(&requirements))?.known_price();
    narrow(&mut requirements, labels::INSTANCE_TYPE, instance_types.iter().map(AsRef::as_ref));
    narrow(&mut requirements, labels::CAPACITY_TYPE, capacity_types.iter().map(|one| one.as_str()));
    if requirements.contains(labels::ZONE) {
        narrow(&mut requirements, labels::ZONE, zones.iter().map(AsRef::as_ref));
    }
    let template = &pool.template;
    Some(PlannedClaim {
        name: ClaimName::parse("dry-run").ok()?,
        pool: pool.name.clone(),
        pool_hash: PoolHash::of(template),
        pool_fields: FieldDigests::of_template(template),
        class: template.node_class.name.clone(),
        labels: node_labels(&template.labels, &requirements),
        requirements: requirements.into(),
        annotations: template.annotations.clone(),
        taints: template.taints.clone(),
        startup_taints: template.startup_taints.clone(),
        terms: Terms::of(pool),
        instance_types: instance_types.into(),
        offerings: offerings.into_iter().collect(),
        zones,
        capacity_types,
        min_values: MinValuesState::AsWritten,
        pods: Vec::new(),
        requests: ResourceList::new(),
        price,
    })
}
