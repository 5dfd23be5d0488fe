//! A pool prepared for planning: its template's requirements, and its instance types.
//!
//! Decides which instance types are available for requirements, and at which price ([`EquivalenceClass`]). It doesn't decide how
//! many pods share one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::NodePool;
use tenon_domain::catalog::{CapacityType, InstanceTypeOption, OfferedReservation, Offering};
use tenon_domain::id::ReservationId;
use tenon_domain::labels;
use tenon_domain::registry::MinValuesPolicy;
use tenon_domain::requirement::{Requirement, Requirements, UndefinedKeys};

use super::InputMeasures;
use super::attachments::{VolumesExceeded, exceeded};
use super::daemons::{PoolDaemons, TypeRoom, TypeRooms};
use super::dense::{DenseAmounts, within};
use super::domains::DomainAnswers;
use super::front::{front, thinned};
use super::input::{PoolInput, PoolReadiness};
use super::limits::{ClusterUse, Limit, charge, limits_left};
use super::needs::PodGroup;
use super::offers::Offers;
use super::open::OpenOfferings;
use super::purchase::DearSpot;
use super::trials::Spent;

/// The rank of a price that isn't known: above every known one, and small enough to be added up.
pub(crate) const UNKNOWN_PRICE: u64 = 1 << 50;

/// An instance type in a pool. The room of its nodes depends on the claim, by its DaemonSets ([`TypeRoom`]).
#[derive(Debug)]
pub(crate) struct Type<'a> {
    /// The type.
    pub(crate) option: &'a InstanceTypeOption,
    /// How many volumes of each driver its nodes attach.
    pub(crate) volumes: DenseAmounts,
    /// Its charge against each of the pool's limits.
    pub(crate) charges: Vec<i128>,
    /// Its offerings that count.
    pub(crate) offerings: Vec<CountedOffering>,
}

/// An offering of a type that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedOffering {
    /// Its place and capacity type, as an index of the pool's.
    pub(crate) place: usize,
    /// How it is paid for.
    pub(crate) capacity_type: CapacityType,
    /// Its price in nano-dollars an hour; [`UNKNOWN_PRICE`] where unknown.
    pub(crate) price: u64,
    /// Its index among the type's offerings.
    pub(crate) index: usize,
}

/// A pool, compiled.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    /// The pool's input.
    pub(crate) input: &'a PoolInput,
    /// Which offerings count.
    pub(crate) open: OpenOfferings,
    /// The rest of the cluster's limits before the plan's claims, in nanos.
    of_cluster: Vec<(Limit, i128)>,
    /// Whether pods wait where the template's `minValues` can't be met.
    pub(crate) min_values: MinValuesPolicy,
    /// The time, if offerings may be probed beside available ones.
    pub(crate) riders_at: Option<Timestamp>,
    /// The template's requirements and labels, and the pool's own label.
    pub(crate) offered: Requirements,
    /// Its instance types, by name.
    pub(crate) types: Vec<Type<'a>>,
    /// The DaemonSets of its nodes.
    pub(crate) daemons: PoolDaemons<'a>,
    /// The CSI drivers of the last dimensions of room.
    pub(crate) drivers: Vec<Arc<str>>,
    /// The limits of the pool, with the rest of each, in nanos.
    pub(crate) limits: Vec<(Limit, i128)>,
    /// One offering for each place and capacity type that any type has.
    pub(crate) places: Vec<&'a Offering>,
    /// What claims of the pool share.
    pub(crate) offers: Offers,
    /// By requirement and type, whether the type's labels are compatible.
    labels: BTreeMap<Requirement, Vec<bool>>,
    /// Answers to questions about groups.
    pub(crate) answers: DomainAnswers,
    classes: Vec<EquivalenceClass>,
    by_requirements: BTreeMap<Requirements, usize>,
    joined: BTreeMap<(usize, usize), Option<usize>>,
    /// Reservations that the plan has used up.
    closed: BTreeSet<ReservationId>,
}

/// The pool's types and prices for equal requirements.
#[derive(Debug)]
pub(crate) struct EquivalenceClass {
    /// The requirements of the pool and its pods together.
    pub(crate) merged: Requirements,
    /// By type, the fleet's price; `None` for an unavailable type.
    pub(crate) prices: Vec<Option<u64>>,
    /// By type, the room of its nodes.
    pub(crate) rooms: TypeRooms,
    /// By place, whether offerings there are compatible.
    pub(crate) allowed: Vec<bool>,
    /// By type: the capacity type that the fleet would use.
    pub(crate) capacity_types: Vec<Option<CapacityType>>,
    /// Types that none is both cheaper and larger than; cheapest first.
    pub(crate) front: Arc<[usize]>,
    /// Those of them that packing tries: of types that are the same but for their size, few sizes.
    pub(crate) tried: Arc<[usize]>,
}

/// The template's requirements: its own, its labels', and the labels of the pool and its class, which registration sets
/// whatever the template says.
pub(crate) fn offered(pool: &NodePool) -> Requirements {
    let own = [
        (labels::NODEPOOL, pool.name.as_str()),
        (labels::EC2NODECLASS, pool.template.node_class.name.as_str()),
    ];
    let labels = pool.template.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let labels = labels.filter(|(key, _)| own.iter().all(|(set, _)| set != key));
    pool.template.requirements.clone().and(&Requirements::from_labels(labels.chain(own)))
}

/// Whether a pool's requirements exclude its own class: none of its nodes would meet them.
fn excludes_own_class(pool: &NodePool) -> bool {
    !pool.template.requirements.allows(labels::EC2NODECLASS, pool.template.node_class.name.as_str())
}

impl<'a> Pool<'a> {
    /// Prepares a pool.
    pub(crate) fn new(input: &'a PoolInput, measures: &InputMeasures<'a>) -> Self {
        Self::open(input, measures, OpenOfferings::Available)
    }

    /// The same, with other offerings.
    pub(crate) fn open(input: &'a PoolInput, measures: &InputMeasures<'a>, open: OpenOfferings) -> Self {
        let InputMeasures { daemons, dimensions, min_values, limits: volumes, spent, .. } = measures;
        let offered = offered(&input.pool);
        let limits = limits_left(input, spent);
        let goes = |option: &&InstanceTypeOption| {
            !excludes_own_class(&input.pool) && option.labels.intersects(&offered).is_ok()
        };
        let mut options: Vec<&InstanceTypeOption> = input.types.iter().filter(goes).collect();
        options.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
        let mut places = DistinctPlaces::of_those(input, open);
        let types: Vec<Type<'a>> = options
            .into_iter()
            .map(|option| Type {
                option,
                volumes: volumes.of_type(option),
                charges: limits.iter().map(|(name, _)| charge(option, name)).collect(),
                offerings: places.of(option),
            })
            .collect();
        let taints = &input.pool.template.taints;
        let daemons = PoolDaemons::of(daemons, &offered, taints, &types, dimensions);
        Self {
            input,
            open,
            min_values: *min_values,
            of_cluster: spent.of_cluster().left(input),
            riders_at: None,
            offered,
            types,
            daemons,
            drivers: volumes.drivers().to_vec(),
            limits,
            places: places.found,
            offers: Offers::default(),
            labels: BTreeMap::new(),
            answers: DomainAnswers::default(),
            classes: Vec::new(),
            by_requirements: BTreeMap::new(),
            joined: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    /// The driver of which a pod has more volumes than a node of a type attaches.
    pub(crate) fn exceeded_volumes(&self, room: &TypeRoom, group: &PodGroup<'_>) -> Option<VolumesExceeded> {
        exceeded(&self.drivers, group, &room.amounts)
    }

    /// What a pod can ask for instead, so that fewer DaemonSets run beside it; nothing where all run everywhere.
    pub(crate) fn beside_daemons(&self, asked: &Requirements) -> Vec<Requirements> {
        let with = |left_out: Requirements| asked.clone().and(&left_out);
        let narrowed = self.daemons.left_out().into_iter().map(with);
        narrowed.filter(|asked| self.offered.is_compatible(asked, UndefinedKeys::WellKnownAreOpen)).collect()
    }

    /// The room of the types on claims with these requirements.
    pub(crate) fn rooms(&self, merged: &Requirements) -> TypeRooms {
        self.daemons.rooms(&self.types, merged)
    }

    /// As [`Self::begin_again`], for other pods: the types stay, and what was derived for pods is forgotten, so that the
    /// plan is the one that a new pool would have.
    pub(crate) fn begin_another(&mut self, spent: &Spent) -> bool {
        self.forget();
        self.begin_again(spent)
    }

    /// Drops all that was derived for pods.
    fn forget(&mut self) {
        self.classes.clear();
        self.offers = Offers::default();
        self.answers = DomainAnswers::default();
        self.by_requirements.clear();
        self.joined.clear();
    }

    /// Returns the charges of a plan. Returns whether the pool is as new: with closed reservations it must be compiled
    /// again.
    pub(crate) fn begin_again(&mut self, spent: &Spent) -> bool {
        self.limits = limits_left(self.input, spent);
        self.of_cluster = spent.of_cluster().left(self.input);
        self.riders_at = None;
        self.closed.is_empty()
    }

    /// Whether the plan has used up the offering's reservation.
    pub(crate) fn is_closed(&self, offering: &Offering) -> bool {
        offering.reservation.as_ref().is_some_and(|of| self.closed.contains(&of.id))
    }

    /// The reservations of a type under a class's requirements, in the order of use.
    pub(crate) fn reserved(&self, class: usize, type_index: usize) -> Vec<OfferedReservation> {
        let Some((class, one)) = self.classes.get(class).zip(self.types.get(type_index)) else {
            return Vec::new();
        };
        let open = self.offerings(one, &class.merged, self.open);
        let open = open.filter(|offering| offering.reservation.is_some());
        let mut ranked: Vec<_> = open.map(|offering| (offering.rank(), offering)).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().filter_map(|(_, offering)| offering.reservation.clone()).collect()
    }

    /// Whether the limits leave room for a node of a type.
    pub(crate) fn allows_one(&self, type_index: usize) -> bool {
        let charges = self.types.get(type_index).map(|one| &one.charges);
        charges
            .is_some_and(|charges| self.limits.iter().zip(charges).all(|((_, left), charge)| charge <= left))
    }

    /// Returns the charges of claims of a type to the limits.
    pub(crate) fn refund(&mut self, type_index: usize, claims: u32) {
        let Some(one) = self.types.get(type_index) else { return };
        for ((_, left), charge) in self.limits.iter_mut().zip(&one.charges) {
            *left += charge.saturating_mul(i128::from(claims));
        }
    }

    /// Excludes these reservations from now on, and drops all derived classes.
    pub(crate) fn close<'r>(&mut self, reservations: impl Iterator<Item = &'r ReservationId>) {
        let before = self.closed.len();
        self.closed.extend(reservations.cloned());
        if self.closed.len() == before {
            return;
        }
        let (places, closed) = (&self.places, &self.closed);
        let is_open = |place: usize| {
            let of = places.get(place).and_then(|offering| offering.reservation.as_ref());
            of.is_none_or(|of| !closed.contains(&of.id))
        };
        for one in &mut self.types {
            one.offerings.retain(|offering| is_open(offering.place));
        }
        self.forget();
    }

    /// Lowers the cluster's limits by the claims of this plan, which are of any pool.
    pub(crate) fn cap(&mut self, planned: ClusterUse) {
        let allowed = planned.lessened(&self.of_cluster);
        for (limit, left) in &mut self.limits {
            if let Some((_, allowed)) = allowed.iter().find(|(of, _)| of == limit) {
                *left = (*allowed).min(*left);
            }
        }
    }

    /// Whether claims can be made of it.
    pub(crate) fn is_ready(&self) -> bool {
        self.input.readiness == PoolReadiness::Ready
    }

    /// A class.
    pub(crate) fn class(&self, id: usize) -> Option<&EquivalenceClass> {
        self.classes.get(id)
    }

    /// The fleet's price for a type under a class's requirements; `None` if it isn't available.
    pub(crate) fn price(&self, class: usize, type_index: usize) -> Option<u64> {
        self.classes.get(class)?.prices.get(type_index).copied().flatten()
    }

    /// The class of a pod's requirements, if they are compatible with the pool's template and some type is available.
    /// Classes are made once.
    pub(crate) fn class_of(&mut self, asked: &Requirements) -> Option<usize> {
        self.offered
            .is_compatible(asked, UndefinedKeys::WellKnownAreOpen)
            .then(|| self.intern(self.offered.clone().and(asked)))
            .flatten()
    }

    /// The class of a claim's requirements.
    pub(crate) fn class_of_merged(&mut self, merged: &Requirements) -> Option<usize> {
        self.intern(merged.clone())
    }

    /// The class of claims that hold pods of both classes, if there can be any.
    pub(crate) fn join(&mut self, a: usize, b: usize) -> Option<usize> {
        if a == b {
            return Some(a);
        }
        let key = (a.min(b), a.max(b));
        if let Some(known) = self.joined.get(&key) {
            return *known;
        }
        let (left, right) = (self.classes.get(a)?, self.classes.get(b)?);
        let both =
            left.merged.intersects(&right.merged).is_ok().then(|| left.merged.clone().and(&right.merged));
        let joined = both.and_then(|both| self.intern(both));
        self.joined.insert(key, joined);
        joined
    }

    /// The compatible types, each with the least price of its compatible offerings.
    pub(crate) fn least_prices(&self, asked: &Requirements) -> Vec<(usize, u64)> {
        if !self.offered.is_compatible(asked, UndefinedKeys::WellKnownAreOpen) {
            return Vec::new();
        }
        let merged = self.offered.clone().and(asked);
        let allowed: Vec<bool> = self.places.iter().map(|offering| offering.goes_with(&merged)).collect();
        let goes = |one: &Type<'_>| one.option.labels.intersects(&merged).is_ok();
        let least = |one: &Type<'_>| {
            let prices = one.offerings.iter().filter(|of| allowed.get(of.place).copied().unwrap_or(false));
            prices.map(|offering| offering.price).min()
        };
        self.types
            .iter()
            .enumerate()
            .filter(|(_, one)| goes(one))
            .filter_map(|(index, one)| Some((index, least(one)?)))
            .collect()
    }

    /// By type, whether its labels are compatible.
    fn labelled(&mut self, merged: &Requirements) -> Vec<bool> {
        let mut all = vec![true; self.types.len()];
        for requirement in merged.iter() {
            let known = self.labels.entry(requirement.clone()).or_insert_with(|| {
                let asked: Requirements = std::iter::once(requirement.clone()).collect();
                self.types.iter().map(|one| one.option.labels.intersects(&asked).is_ok()).collect()
            });
            all.iter_mut().zip(known.iter()).for_each(|(all, one)| *all &= *one);
        }
        all
    }

    fn intern(&mut self, merged: Requirements) -> Option<usize> {
        if let Some(id) = self.by_requirements.get(&merged) {
            return self.classes.get(*id).is_some_and(|class| !class.front.is_empty()).then_some(*id);
        }
        let allowed: Vec<bool> = self.places.iter().map(|offering| offering.goes_with(&merged)).collect();
        let (labelled, dear) = (self.labelled(&merged), DearSpot::of(&merged));
        let (capacity_types, prices): (Vec<Option<CapacityType>>, Vec<Option<u64>>) = self
            .types
            .iter()
            .zip(labelled)
            .map(|(one, labelled)| one.first(&allowed, dear).filter(|_| labelled))
            .map(Option::unzip)
            .unzip();
        let rooms = self.rooms(&merged);
        let front = front(&self.types, &rooms, &prices);
        let tried = thinned(&rooms, &prices, &front);
        let (id, possible) = (self.classes.len(), !front.is_empty());
        self.by_requirements.insert(merged.clone(), id);
        self.classes.push(EquivalenceClass { merged, prices, rooms, allowed, capacity_types, front, tried });
        possible.then_some(id)
    }
}

impl EquivalenceClass {
    /// The room of a type's nodes.
    pub(crate) fn room(&self, type_index: usize) -> Option<&TypeRoom> {
        self.rooms.get(type_index)
    }

    /// Whether nodes of a type hold the needed amounts.
    pub(crate) fn holds(&self, type_index: usize, need: &[i64]) -> bool {
        self.room(type_index).is_some_and(|room| within(need, &room.amounts))
    }
}

impl Type<'_> {
    /// What the fleet would buy first: its capacity type and its price.
    fn first(&self, allowed: &[bool], dear: DearSpot) -> Option<(CapacityType, u64)> {
        let allowed = |offering: &&CountedOffering| allowed.get(offering.place).copied().unwrap_or(false);
        let ranks = self.offerings.iter().filter(allowed);
        let first = ranks.map(|offering| dear.rank(offering.capacity_type, offering.price)).min()?;
        Some((first.capacity_type, first.price))
    }
}

/// The distinct places and capacity types of offerings: requirements are checked once for each.
struct DistinctPlaces<'a> {
    pool: &'a PoolInput,
    open: OpenOfferings,
    found: Vec<&'a Offering>,
    index: BTreeMap<(&'a str, CapacityType, Option<&'a str>), usize>,
}

impl<'a> DistinctPlaces<'a> {
    const fn of_those(pool: &'a PoolInput, open: OpenOfferings) -> Self {
        Self { pool, open, found: Vec::new(), index: BTreeMap::new() }
    }

    fn of(&mut self, option: &'a InstanceTypeOption) -> Vec<CountedOffering> {
        let (pool, open) = (self.pool, self.open);
        let all = option.offerings.iter().enumerate();
        let counting = all.filter(|(_, offering)| open.includes(pool, offering));
        counting
            .map(|(index, offering)| {
                let key = (
                    offering.zone.as_str(),
                    offering.capacity_type,
                    offering.reservation.as_ref().map(|of| of.id.as_str()),
                );
                let place = *self.index.entry(key).or_insert_with(|| {
                    self.found.push(offering);
                    self.found.len() - 1
                });
                let price = offering.price.map_or(UNKNOWN_PRICE, |price| price.nanos().min(UNKNOWN_PRICE));
                CountedOffering { place, capacity_type: offering.capacity_type, price, index }
            })
            .collect()
    }
}
