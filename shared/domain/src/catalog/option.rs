//! An instance type as an option for a class: labels, resources and offerings.
//!
//! Joins the other modules' results. It doesn't choose a type, only a type's cheapest compatible offering.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::attachments::attachable_volumes;
use crate::catalog::compatibility::compatibility;
use crate::catalog::facts::{InstanceTypeFacts, UsageClass};
use crate::catalog::node_labels;
use crate::catalog::node_shape::{LearnedMemory, node_shape, storage_of};
use crate::catalog::offering::{
    Availability, CapacityType, Offering, OfferingRank, PriceRank, Unavailability,
};
use crate::catalog::reserved::OfferedReservation;
use crate::catalog::settings::NodeSettings;
use crate::id::{InstanceType, Region};
use crate::labels;
use crate::placement::ResolvedPlacementGroup;
use crate::quantity::Quantity;
use crate::requirement::{Requirement, Requirements};
use crate::resources::{ResourceList, ResourceName};

/// An instance type that nodes of a class may be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceTypeOption {
    /// EC2's facts.
    pub facts: Arc<InstanceTypeFacts>,
    /// The labels of its nodes; a key without a value is an explicit `DoesNotExist`.
    pub labels: Requirements,
    /// `status.capacity` of its nodes.
    pub capacity: ResourceList,
    /// `status.allocatable` of its nodes.
    pub allocatable: ResourceList,
    /// The `ephemeral-storage` that the class's spec promises, where its Nodes have less.
    pub promised_storage: Option<Quantity>,
    /// The EBS volumes that pods may attach to its nodes, as far as EC2's facts tell.
    pub ebs_volumes: Option<u32>,
    /// Its offerings, by zone, then capacity type.
    pub offerings: Vec<Offering>,
}

/// The order of choices: the cheapest offering first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionRank<'a> {
    /// The price of its cheapest offering.
    pub price: PriceRank,
    /// The type, which makes the rank unique.
    pub name: &'a InstanceType,
}

/// The catalogue's region, and its data about one type.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The region.
    pub region: &'a Region,
    /// Memory that kubelets reported for the type and the class's images.
    pub learned: Option<LearnedMemory>,
}

impl InstanceTypeOption {
    /// A type's option for a class. If the type doesn't suit the class, its offerings are unavailable for that
    /// reason.
    #[must_use]
    pub fn new(
        facts: Arc<InstanceTypeFacts>,
        settings: &NodeSettings,
        surroundings: Surroundings<'_>,
        mut offerings: Vec<Offering>,
    ) -> Self {
        rule_out(&facts, settings, &mut offerings);
        sort(&mut offerings);
        let shape = node_shape(&facts, settings, surroundings.learned);
        let mut labels = node_labels::requirements(&facts, settings.ami_family);
        add_place(&mut labels, surroundings.region, &offerings);
        add_capacity_types(&mut labels, &facts, &offerings);
        add_placement(&mut labels, settings.placement.as_ref());
        Self {
            labels,
            capacity: shape.capacity.resources(),
            allocatable: shape.allocatable.resources(),
            promised_storage: None,
            ebs_volumes: attachable_volumes(&facts, settings),
            facts,
            offerings,
        }
    }

    /// Adds offerings and their labels.
    pub(super) fn offer(&mut self, region: &Region, settings: &NodeSettings, mut more: Vec<Offering>) {
        rule_out(&self.facts, settings, &mut more);
        self.offerings.append(&mut more);
        sort(&mut self.offerings);
        add_place(&mut self.labels, region, &self.offerings);
        add_capacity_types(&mut self.labels, &self.facts, &self.offerings);
    }

    /// Takes the `ephemeral-storage` that Nodes of the class have, where that is less than its spec promises.
    pub fn lower_storage(&mut self, settings: &NodeSettings, bytes: u64) {
        let [capacity, allocatable] = storage_of(&self.facts, settings, bytes);
        let promised = self.capacity.get(&ResourceName::EPHEMERAL_STORAGE);
        if capacity < promised {
            self.capacity.insert(ResourceName::EPHEMERAL_STORAGE, capacity);
            self.allocatable.insert(ResourceName::EPHEMERAL_STORAGE, allocatable);
            self.promised_storage = Some(promised);
        }
    }

    /// Decides anew whether its offerings are available. Its labels stay: they name the zones of the class's subnets,
    /// whether or not there is capacity.
    pub(super) fn judge(
        &mut self,
        settings: &NodeSettings,
        availability: impl Fn(&Offering) -> Availability,
    ) {
        for offering in &mut self.offerings {
            offering.availability = availability(offering);
        }
        rule_out(&self.facts, settings, &mut self.offerings);
    }

    /// Makes its offerings unavailable because the cluster's stack doesn't allow its family. What rules an offering out for
    /// good says more and stays. Prices stay, because running nodes need them.
    pub fn disallow_family(&mut self) {
        for offering in &mut self.offerings {
            match offering.availability {
                Availability::Unavailable(
                    Unavailability::NotOffered
                    | Unavailability::NoSubnet
                    | Unavailability::Incompatible(_)
                    | Unavailability::FamilyNotAllowed,
                ) => {}
                Availability::Available
                | Availability::Unavailable(
                    Unavailability::PriceUnknown
                    | Unavailability::Exhausted { .. }
                    | Unavailability::ZoneShifted
                    | Unavailability::ReservationUsedUp
                    | Unavailability::ReservationExpiring,
                ) => offering.availability = Availability::Unavailable(Unavailability::FamilyNotAllowed),
            }
        }
    }

    /// Available offerings that match the requirements.
    pub fn available<'a>(&'a self, asked: &'a Requirements) -> impl Iterator<Item = &'a Offering> {
        self.offerings.iter().filter(|offering| offering.is_available() && offering.goes_with(asked))
    }

    /// The cheapest available offering that matches the requirements.
    #[must_use]
    pub fn cheapest<'a>(&'a self, asked: &'a Requirements) -> Option<(OfferingRank<'a>, &'a Offering)> {
        self.available(asked).map(|offering| (offering.rank(), offering)).min_by_key(|(rank, _)| *rank)
    }

    /// Its place among the choices, by the cheapest of some of its offerings.
    pub fn rank<'a>(&'a self, among: impl Iterator<Item = &'a Offering>) -> Option<OptionRank<'a>> {
        let price = among.map(|offering| PriceRank::of(offering.price)).min()?;
        Some(OptionRank { price, name: &self.facts.name })
    }
}

/// Makes all offerings unavailable if the type doesn't suit the class.
fn rule_out(facts: &InstanceTypeFacts, settings: &NodeSettings, offerings: &mut [Offering]) {
    if let Err(incompatibility) = compatibility(facts, settings) {
        for offering in offerings.iter_mut().filter(|offering| offering.is_available()) {
            offering.availability =
                Availability::Unavailable(Unavailability::Incompatible(incompatibility.clone()));
        }
    }
}

fn sort(offerings: &mut [Offering]) {
    offerings.sort_by(|a, b| {
        (&a.zone, a.capacity_type, &a.reservation).cmp(&(&b.zone, b.capacity_type, &b.reservation))
    });
}

/// Zones in which the type is offered and the class has a subnet, and the region.
fn add_place(labels: &mut Requirements, region: &Region, offerings: &[Offering]) {
    let offered = || {
        offerings.iter().filter(|offering| match &offering.availability {
            Availability::Available => true,
            Availability::Unavailable(why) => !why.rules_zone_out(),
        })
    };
    let zones: BTreeSet<_> = offered().map(|offering| offering.zone.as_str()).collect();
    let zone_ids: BTreeSet<_> = offered().map(|offering| offering.zone_id.as_str()).collect();
    labels.replace(Requirement::one_of(labels::ZONE, zones));
    labels.replace(Requirement::one_of(labels::ZONE_ID, zone_ids));
    labels.replace(Requirement::one_of(labels::REGION, [region.as_str()]));
}

/// The class's placement group and its partitions. Without a group, no value is `DoesNotExist`.
fn add_placement(labels: &mut Requirements, group: Option<&ResolvedPlacementGroup>) {
    let partitions = group.map(ResolvedPlacementGroup::partition_numbers).into_iter().flatten();
    let partitions = partitions.map(|number| number.to_string());
    labels.replace(Requirement::one_of(labels::PLACEMENT_GROUP_ID, group.map(|group| group.id.as_str())));
    labels.replace(Requirement::one_of(labels::PLACEMENT_GROUP_PARTITION, partitions));
}

/// The ways of paying that the type has, and the class's reservations of it.
fn add_capacity_types(labels: &mut Requirements, facts: &InstanceTypeFacts, offerings: &[Offering]) {
    let mut capacity_types: BTreeSet<_> = facts
        .usage_classes
        .iter()
        .filter_map(|usage_class| match usage_class {
            UsageClass::OnDemand => Some(CapacityType::OnDemand.as_str()),
            UsageClass::Spot => Some(CapacityType::Spot.as_str()),
            UsageClass::CapacityBlock | UsageClass::Other(_) => None,
        })
        .collect();
    let reservations: BTreeSet<_> =
        offerings.iter().filter_map(|offering| offering.reservation.as_ref()).collect();
    if !reservations.is_empty() {
        capacity_types.insert(CapacityType::Reserved.as_str());
    }
    // Without a reservation, no value is `DoesNotExist`.
    let of = |label: fn(&OfferedReservation) -> &str| {
        reservations.iter().map(|reservation| label(reservation)).collect::<BTreeSet<&str>>()
    };
    let id = of(|reservation| reservation.id.as_str());
    let kind = of(|reservation| reservation.kind.type_label());
    let interruptible = of(|reservation| reservation.kind.interruptible_label());
    labels.replace(Requirement::one_of(labels::CAPACITY_RESERVATION_ID, id));
    labels.replace(Requirement::one_of(labels::CAPACITY_RESERVATION_TYPE, kind));
    labels.replace(Requirement::one_of(labels::CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible));
    labels.replace(Requirement::one_of(labels::CAPACITY_TYPE, capacity_types));
}
/// The option of a type, from options by name.
#[must_use]
pub fn find_option<'a>(
    types: &'a [InstanceTypeOption],
    name: &InstanceType,
) -> Option<&'a InstanceTypeOption> {
    let place = types.binary_search_by(|option| option.facts.name.cmp(name)).ok()?;
    types.get(place)
}
