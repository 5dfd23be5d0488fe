//! From drafts to claims: all suitable types and offerings, the written requirements, the names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::catalog::{CapacityType, InstanceTypeOption, Offering, PriceRank};
use tenon_domain::claim::{MinValuesState, Terms};
use tenon_domain::class_hash::{FieldDigests, PoolHash};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ClaimName, InstanceType, Zone};
use tenon_domain::labels;
use tenon_domain::launch::CountedPod;
use tenon_domain::requirement::{Requirement, Requirements};
use tenon_domain::resources::ResourceList;

use super::Scope;
use super::daemons::TypeRoom;
use super::dense::within;
use super::draft::Draft;
use super::input::{PoolInput, ProvisionInput, Purpose};
use super::offers::SharedPart;
use super::open::OpenOfferings;
use super::output::{AskReason, PlannedClaim, UsableOffering};
use super::pool::{EquivalenceClass, Pool, Type};
use super::purchase::{DearSpot, bought};
use super::reserved::may_use;
use super::shared::Shared;

/// The most instance types of a claim, which keeps `spec.requirements` small.
pub(crate) const MAX_INSTANCE_TYPES: usize = 600;

/// How many characters of a claim's name come from the digest.
const NAME_DIGITS: usize = 5;

/// Names of objects have at most 253 characters.
const LONGEST_PREFIX: usize = 253 - 1 - NAME_DIGITS;

/// The types that a claim may be of, and every way to have one of them.
pub(crate) struct TypesOffered<'t, 'a> {
    /// Cheapest first.
    pub(crate) types: Vec<&'t Type<'a>>,
    pub(crate) offerings: Vec<UsableOffering>,
}

impl<'a> Pool<'a> {
    /// The types of a class that hold the needed amounts, charge the limits at most as much as the chosen type, and
    /// leave its free host ports free. Cheapest offering first, then by name, at most [`MAX_INSTANCE_TYPES`].
    pub(crate) fn holding(
        &self,
        class: &EquivalenceClass,
        open: OpenOfferings,
        chosen: usize,
        need: &[i64],
    ) -> Vec<&Type<'a>> {
        let Some((chosen, chosen_room)) = self.types.get(chosen).zip(class.room(chosen)) else {
            return Vec::new();
        };
        let holds = |one: &Type<'_>, room: &TypeRoom| {
            within(need, &room.amounts)
                && one.charges.iter().zip(&chosen.charges).all(|(charge, most)| charge <= most)
                && room.host_ports.is_subset(&chosen_room.host_ports)
        };
        let goes = |one: &Type<'_>, price: Option<u64>| {
            // A class's prices cover the pool's own offerings only.
            price.is_some() || (open != self.open && one.option.labels.intersects(&class.merged).is_ok())
        };
        let mut found: Vec<_> = self
            .types
            .iter()
            .zip(&class.prices)
            .zip(class.rooms.iter())
            .filter(|((one, price), room)| goes(one, **price) && holds(one, room))
            .map(|((one, _), _)| one)
            .filter_map(|one| Some((one.option.rank(self.offerings(one, &class.merged, open))?, one)))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.truncate(MAX_INSTANCE_TYPES);
        found.into_iter().map(|(_, one)| one).collect()
    }

    /// The type's offerings that the view includes and that are compatible, without reservations that the plan has
    /// used up.
    pub(crate) fn offerings<'t>(
        &'t self,
        one: &'t Type<'a>,
        merged: &'t Requirements,
        open: OpenOfferings,
    ) -> impl Iterator<Item = &'t Offering> + use<'t, 'a> {
        let offerings = one.option.offerings.iter();
        offerings.filter(move |offering| {
            open.includes(self.input, offering) && !self.is_closed(offering) && offering.goes_with(merged)
        })
    }

    /// A claim without its name and pods, in the draft's reservation if it has one.
    pub(crate) fn claim(&mut self, draft: &Draft, need: &[i64], pods: &ResourceList) -> Option<PlannedClaim> {
        let part = match self.shared_part(draft, need) {
            Some(part) => part,
            None => Arc::new(self.own_part(draft, need)?),
        };
        let template = &self.input.pool.template;
        let lowered = self.lowered_min_values(draft, need, &part.requirements);
        let mut annotations = template.annotations.clone();
        if lowered.is_some() {
            annotations.insert(labels::MIN_VALUES_RELAXED.to_owned(), "true".to_owned());
        }
        Some(PlannedClaim {
            name: ClaimName::parse("unnamed").ok()?,
            pool: self.input.pool.name.clone(),
            pool_hash: PoolHash::of(template),
            pool_fields: FieldDigests::of_template(template),
            class: template.node_class.name.clone(),
            labels: node_labels(&template.labels, &part.requirements),
            min_values: match lowered {
                Some(_) => MinValuesState::Relaxed,
                None => MinValuesState::AsWritten,
            },
            requirements: lowered.map_or_else(|| part.requirements.clone(), Shared::from),
            annotations,
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            terms: Terms::of(&self.input.pool),
            instance_types: part.instance_types.clone(),
            offerings: part.offerings.clone(),
            zones: part.zones.clone(),
            capacity_types: part.capacity_types.clone(),
            pods: Vec::new(),
            requests: pods.clone().plus(&part.least_overhead),
            price: part.price,
        })
    }

    /// What a draft's claims are made of, where they share it with no others.
    fn own_part(&self, draft: &Draft, need: &[i64]) -> Option<SharedPart> {
        let class = self.class(draft.class)?;
        let types = self.holding(class, self.open, draft.type_index, need);
        let own = self.with_offerings(&types, &class.merged, self.open, draft);
        let TypesOffered { types, offerings } = self.with_riders(class, draft, need, own);
        let zones: BTreeSet<Zone> = offerings.iter().map(|offering| offering.zone.clone()).collect();
        let capacity_types: BTreeSet<CapacityType> =
            offerings.iter().map(|offering| offering.capacity_type).collect();
        let price = bought(offerings.iter(), DearSpot::of(&class.merged))?.known_price();
        let names: Vec<InstanceType> = types.iter().map(|one| one.option.facts.name.clone()).collect();
        let own: BTreeSet<&InstanceType> = names.iter().collect();
        let rooms = self.types.iter().zip(class.rooms.iter());
        let rooms = rooms.filter(|(one, _)| own.contains(&one.option.facts.name)).map(|(_, room)| room);
        let least_overhead = rooms.min_by_key(|room| room.overhead_rank)?.overhead.clone();
        Some(SharedPart {
            requirements: narrowed(&class.merged, &names, &zones, &capacity_types).into(),
            instance_types: names.into(),
            offerings: offerings.into_iter().collect(),
            zones,
            capacity_types,
            price,
            least_overhead,
        })
    }

    /// The types of a claim with their offerings, cheapest first. Types that need another claim's reservation are
    /// dropped. A type without the reservation that the draft counted on comes later.
    pub(crate) fn with_offerings<'t>(
        &self,
        types: &[&'t Type<'a>],
        merged: &Requirements,
        open: OpenOfferings,
        draft: &Draft,
    ) -> TypesOffered<'t, 'a> {
        let mut kept: Vec<(&Type<'a>, Vec<UsableOffering>)> =
            types.iter().map(|one| (*one, self.usable(one, merged, open, draft))).collect();
        kept.retain(|(_, offerings)| !offerings.is_empty());
        kept.sort_by_cached_key(|(one, offerings)| {
            let price = offerings.iter().map(|offering| PriceRank::of(offering.price)).min();
            (price, one.option.facts.name.clone())
        });
        let (types, offerings): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        TypesOffered { types, offerings: offerings.into_iter().flatten().collect() }
    }

    /// All usable offerings of a type for a draft's claims, by zone.
    fn usable(
        &self,
        one: &Type<'a>,
        merged: &Requirements,
        open: OpenOfferings,
        draft: &Draft,
    ) -> Vec<UsableOffering> {
        let own = |offering: &&Offering| may_use(offering, draft.reservation.as_ref());
        let as_usable = |offering: &Offering| usable_offering(self.input, one.option, offering);
        let mut found: Vec<UsableOffering> =
            self.offerings(one, merged, open).filter(own).map(as_usable).collect();
        found.sort_by(|a, b| {
            (&a.zone, a.capacity_type, &a.reservation).cmp(&(&b.zone, b.capacity_type, &b.reservation))
        });
        found
    }
}

/// An offering as claims have it.
pub(crate) fn usable_offering(
    pool: &PoolInput,
    option: &InstanceTypeOption,
    offering: &Offering,
) -> UsableOffering {
    let asked = if OpenOfferings::Available.includes(pool, offering) {
        AskReason::Available
    } else {
        AskReason::Probe
    };
    UsableOffering::of(option, offering, asked)
}

/// A class's requirements with the types, zones and capacity types of a claim.
pub(crate) fn narrowed(
    merged: &Requirements,
    types: &[InstanceType],
    zones: &BTreeSet<Zone>,
    capacity_types: &BTreeSet<CapacityType>,
) -> Requirements {
    let mut requirements = merged.clone();
    narrow(&mut requirements, labels::INSTANCE_TYPE, types.iter().map(AsRef::as_ref));
    narrow(&mut requirements, labels::CAPACITY_TYPE, capacity_types.iter().map(|one| one.as_str()));
    if requirements.contains(labels::ZONE) {
        narrow(&mut requirements, labels::ZONE, zones.iter().map(AsRef::as_ref));
    }
    requirements
}

pub(crate) fn narrow<'t>(requirements: &mut Requirements, key: &str, values: impl Iterator<Item = &'t str>) {
    let least = requirements.get(key).and_then(Requirement::min_values);
    requirements.replace(Requirement::one_of(key, values).with_min_values(least));
}

/// The template's labels and a value for each required custom label.
pub(crate) fn node_labels(
    template: &BTreeMap<String, String>,
    requirements: &Requirements,
) -> BTreeMap<String, String> {
    let mut all = template.clone();
    let own = requirements.iter().filter(|r| r.key() == labels::NODEPOOL || !labels::is_well_known(r.key()));
    for requirement in own.filter(|requirement| !requirement.accepts_absence()) {
        if let Some(value) = requirement.any() {
            all.insert(requirement.key().to_owned(), value);
        }
    }
    all
}

/// Sorts the claims and names them by their content, independent of the input's order.
pub(crate) fn name(
    input: &ProvisionInput,
    scope: &Scope<'_>,
    mut claims: Vec<PlannedClaim>,
) -> Vec<PlannedClaim> {
    claims.sort_by(|a, b| (&a.pool, &a.pods).cmp(&(&b.pool, &b.pods)));
    let purpose = match scope.purpose {
        Purpose::PendingPods => "",
        Purpose::Replacement(command) | Purpose::AskingReplacement(command) => command.as_str(),
    };
    let now = input.now.to_string();
    let of_pod = |pod: &CountedPod| [pod.name.to_string(), pod.uid.to_string()];
    let pods: Vec<String> = claims.iter().flat_map(|claim| &claim.pods).flat_map(of_pod).collect();
    let head = [input.cluster.as_str(), &now, purpose];
    let digest = Digest::of_texts(head.into_iter().chain(pods.iter().map(String::as_str))).hex();
    let mut taken = scope.taken_names.clone();
    for (index, claim) in claims.iter_mut().enumerate() {
        let index = index.to_string();
        let prefix = prefix(claim.pool.as_str());
        let free = (0_u32..).find_map(|salt| {
            let digits = Digest::of_texts([&digest, &index, &salt.to_string()].map(String::as_str));
            let name = ClaimName::parse(format!("{prefix}-{}", digits.base36(NAME_DIGITS)));
            name.ok().filter(|name| !taken.contains(name))
        });
        if let Some(name) = free {
            taken.insert(name.clone());
            claim.name = name;
        }
    }
    claims.sort_by(|a, b| (&a.pool, &a.name).cmp(&(&b.pool, &b.name)));
    claims
}

/// The pool's name, cut so that an object's name has room for the digits.
fn prefix(pool: &str) -> &str {
    let cut = pool.get(..LONGEST_PREFIX).unwrap_or(pool);
    cut.trim_end_matches(['-', '.'])
}
