//! The types and offerings of claims, made once for all claims that share them.
//!
//! Decides nothing that `finish` wouldn't: it holds for claims without a reservation and without probes beside their
//! own offerings, which are nearly all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::catalog::CapacityType;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::{ResourceList, ResourceName};

use super::daemons::TypeRoom;
use super::dense::within;
use super::draft::Draft;
use super::finish::{MAX_INSTANCE_TYPES, narrowed, usable_offering};
use super::output::UsableOffering;
use super::pool::Pool;
use super::purchase::{DearSpot, PurchaseRank};
use super::shared::{ClaimOfferings, Shared};

/// The order of overheads: the least has the least CPU and memory; overheads differ only by whole DaemonSets.
pub(crate) type OverheadRank = (i128, i128, usize);

/// The rank of an overhead.
pub(crate) fn overhead_rank(list: &ResourceList) -> OverheadRank {
    (list.get(&ResourceName::CPU).nanos(), list.get(&ResourceName::MEMORY).nanos(), list.len())
}

/// What claims of a pool share.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// By class.
    by_class: BTreeMap<usize, Choices>,
    /// By class and types.
    alike: BTreeMap<(usize, Vec<usize>), Arc<SharedPart>>,
}

/// The types of a class.
#[derive(Debug)]
struct Choices {
    /// Available types, cheapest first, then by name.
    order: Vec<usize>,
    /// By type, its offerings.
    offerings: Vec<Option<Arc<[UsableOffering]>>>,
    /// Whether any is in a reservation.
    has_reserved: bool,
}

/// What equal claims share.
#[derive(Debug)]
pub(crate) struct SharedPart {
    pub(crate) requirements: Shared<Requirements>,
    pub(crate) instance_types: Shared<Vec<InstanceType>>,
    pub(crate) offerings: ClaimOfferings,
    pub(crate) zones: BTreeSet<Zone>,
    pub(crate) capacity_types: BTreeSet<CapacityType>,
    pub(crate) price: Option<UsdPerHour>,
    pub(crate) least_overhead: ResourceList,
}

impl Pool<'_> {
    /// What a draft's claims share with others; `None` if theirs is special.
    pub(crate) fn shared_part(&mut self, draft: &Draft, need: &[i64]) -> Option<Arc<SharedPart>> {
        if draft.reservation.is_some() || self.riders_at.is_some() {
            return None;
        }
        let mut offers = std::mem::take(&mut self.offers);
        let found = self.in_offers(&mut offers, draft, need);
        self.offers = offers;
        found
    }

    fn in_offers(&self, offers: &mut Offers, draft: &Draft, need: &[i64]) -> Option<Arc<SharedPart>> {
        let choices = match offers.by_class.entry(draft.class) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(self.choices(draft.class)?),
        };
        if choices.has_reserved {
            return None;
        }
        let class = self.class(draft.class)?;
        let (chosen, chosen_room) = (self.types.get(draft.type_index)?, class.room(draft.type_index)?);
        let holds = |index: &&usize| {
            self.types.get(**index).zip(class.room(**index)).is_some_and(|(one, room)| {
                within(need, &room.amounts)
                    && one.charges.iter().zip(&chosen.charges).all(|(charge, most)| charge <= most)
                    && (Arc::ptr_eq(&room.host_ports, &chosen_room.host_ports)
                        || room.host_ports.is_subset(&chosen_room.host_ports))
            })
        };
        let types: Vec<usize> =
            choices.order.iter().filter(holds).take(MAX_INSTANCE_TYPES).copied().collect();
        let key = (draft.class, types);
        if let Some(known) = offers.alike.get(&key) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(self.part_of(choices, draft.class, &key.1)?);
        offers.alike.insert(key, Arc::clone(&made));
        Some(made)
    }

    fn choices(&self, class: usize) -> Option<Choices> {
        let class = self.class(class)?;
        let allowed = |place: usize| class.allowed.get(place) == Some(&true);
        let mut ranked: Vec<(u64, usize)> = Vec::new();
        for (index, one) in self.types.iter().enumerate() {
            let available = class.prices.get(index).copied().flatten().is_some();
            let own = one.offerings.iter().filter(|of| allowed(of.place));
            ranked.extend(own.map(|of| of.price).min().filter(|_| available).map(|price| (price, index)));
        }
        // Types are sorted by name.
        ranked.sort_unstable();
        let mut places = self.places.iter().zip(&class.allowed).filter(|(_, allowed)| **allowed);
        Some(Choices {
            order: ranked.into_iter().map(|(_, index)| index).collect(),
            offerings: vec![None; self.types.len()],
            has_reserved: places.any(|(place, _)| place.reservation.is_some()),
        })
    }

    fn part_of(&self, choices: &mut Choices, class: usize, types: &[usize]) -> Option<SharedPart> {
        let class = self.class(class)?;
        let allowed = |place: usize| class.allowed.get(place) == Some(&true);
        let mut offerings: Vec<Arc<[UsableOffering]>> = Vec::with_capacity(types.len());
        let mut seen = vec![false; self.places.len()];
        let dear = DearSpot::of(&class.merged);
        let mut bought: Option<PurchaseRank> = None;
        let mut least_overhead: Option<&TypeRoom> = None;
        for index in types {
            let one = self.types.get(*index)?;
            let own = || one.offerings.iter().filter(|of| allowed(of.place));
            for of in own() {
                seen.iter_mut().skip(of.place).take(1).for_each(|seen| *seen = true);
                let rank = dear.rank(of.capacity_type, of.price);
                bought = Some(bought.map_or(rank, |first| first.min(rank)));
            }
            let made = choices.offerings.get_mut(*index)?;
            let chunk = made.get_or_insert_with(|| {
                let all = own().filter_map(|of| one.option.offerings.get(of.index));
                let mut all: Vec<UsableOffering> =
                    all.map(|offering| usable_offering(self.input, one.option, offering)).collect();
                all.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
                all.into()
            });
            offerings.push(Arc::clone(chunk));
            let room = class.room(*index)?;
            if least_overhead.is_none_or(|least| room.overhead_rank < least.overhead_rank) {
                least_overhead = Some(room);
            }
        }
        let places = || self.places.iter().zip(&seen).filter(|(_, seen)| **seen).map(|(place, _)| place);
        let zones: BTreeSet<Zone> = places().map(|place| place.zone.clone()).collect();
        let capacity_types: BTreeSet<CapacityType> = places().map(|place| place.capacity_type).collect();
        let types = types.iter().filter_map(|index| self.types.get(*index));
        let names: Vec<InstanceType> = types.map(|one| one.option.facts.name.clone()).collect();
        Some(SharedPart {
            requirements: narrowed(&class.merged, &names, &zones, &capacity_types).into(),
            instance_types: names.into(),
            offerings: ClaimOfferings::of(offerings),
            zones,
            capacity_types,
            price: bought.and_then(PurchaseRank::known_price),
            least_overhead: least_overhead?.overhead.clone(),
        })
    }
}
