//! The fleet of a launch: its capacity type, its overrides, its subnets.
//!
//! Decides the CreateFleet request from the offerings that a plan allows, and the marks whose lease the launch must
//! hold. It doesn't decide which nodes are needed. Invariants: a fleet has one capacity type; it has the cheapest
//! overrides, of at most [`TYPES_PER_FLEET`] types and at most [`OVERRIDES_PER_FLEET`] in number, under at most
//! [`TEMPLATES_PER_FLEET`] templates; it asks for a marked offering only under the leases of all the offering's marks.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/instance/instance.go`, `filter/filter.go`.

use std::collections::{BTreeMap, BTreeSet};
use tenon_domain::catalog::find_option;

use jiff::Timestamp;
use tenon_domain::catalog::facts::InstanceTypeFacts;
use tenon_domain::catalog::{AmiFamily, CapacityType, InstanceTypeOption, NodeSettings};
use tenon_domain::class_status::{ClassStatus, ClassSubnet, image_for};
use tenon_domain::id::{ImageId, InstanceType};
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_domain::registry::MinValuesPolicy;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::resources::ResourceName;
use tenon_domain::unavailable::{
    MarkState, Marks, OfferingKey, RequestDigest, UnavailableKey, WantedOffering,
};
use tenon_ec2::port::FleetOverride;
use tenon_planning::provision::{AskReason, PlannedClaim, UsableOffering};

use crate::min_values::{Flexibility, MinValuesLost};
use crate::zones::{ZoneTally, cheapest_first};

/// The most types of a fleet. Source: `maxInstanceTypes` of aws/karpenter-provider-aws
/// `pkg/providers/instance/instance.go`.
pub const TYPES_PER_FLEET: usize = 60;
/// EC2's limit on launch specifications of an instant fleet.
pub const OVERRIDES_PER_FLEET: usize = 300;
/// The most templates of a fleet: with 20 claims, their records and 16 leases they still fit into one
/// transaction. EC2 takes 50 (`LaunchTemplateConfigs` of CreateFleet).
pub const TEMPLATES_PER_FLEET: usize = 20;

/// The most leases of a launch that also has unmarked offerings: each is an item of the launch's commit.
pub(crate) const LEASES_ALONG: usize = 16;
/// The most leases of a launch of one claim with nothing but probes.
const LEASES_ALONE: usize = 64;

/// Everything that a fleet depends on.
#[derive(Debug, Clone, Copy)]
pub struct FleetInput<'a> {
    /// The class's status.
    pub status: &'a ClassStatus,
    /// The settings of the class's nodes.
    pub settings: &'a NodeSettings,
    /// The types of the claim's pool, by name.
    pub types: &'a [InstanceTypeOption],
    /// The region's marks: capacity that EC2 refused.
    pub marks: &'a Marks,
    /// The identity of the claim's requests, under which EC2's refusals are marked.
    pub requests: Requests<'a>,
    /// Marks whose lease another launch of the same plan takes.
    pub taken: &'a BTreeSet<UnavailableKey>,
    /// What the launch is for. Only a launch for pending pods probes marks beside available offerings.
    pub purpose: FleetPurpose,
    /// The on-demand nodes of each zone: of zones at one price, the one with the fewest comes first.
    pub zones: &'a ZoneTally,
    /// Whether a cut that loses `minValues` refuses the launch.
    pub min_values: MinValuesPolicy,
    /// The time.
    pub now: Timestamp,
}

/// The reason for a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetPurpose {
    /// Pending pods.
    PendingPods,
    /// The pods of nodes that leave once the replacement is there.
    Replacement,
}

/// The identity of the requests for a claim's nodes.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// Digests that marks of offerings may name.
    pub digests: &'a [RequestDigest],
    /// Keys of marks on the requests as a whole.
    pub whole: &'a [UnavailableKey],
}

/// The reason why there is no fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoFleet {
    /// No offering is left to launch.
    NoOverride,
    /// Another launch of the plan probes the same marks first.
    Taken,
    /// The types that fit into a fleet don't satisfy the NodePool's `minValues`.
    MinValues(MinValuesLost),
}

/// A fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Its capacity type.
    pub capacity_type: CapacityType,
    /// The capacity reservation of the launch.
    pub reservation: Option<LaunchedInto>,
    /// The placement group of the launch.
    pub placement: Option<LaunchPlacement>,
    /// The tenancy of the launch.
    pub tenancy: Tenancy,
    /// Overrides by template, cheapest first. On demand their priorities say so to EC2, too.
    pub overrides: BTreeMap<TemplateKey, Vec<FleetOverride>>,
    /// The marks whose lease the launch takes.
    pub leases: BTreeSet<UnavailableKey>,
    /// Types among the overrides without a known price.
    pub unpriced: BTreeSet<InstanceType>,
}

/// What makes a launch template of a fleet differ from its others. A kubelet is told the pods that the plan counted on,
/// so types with different pod counts have a template each, as with the peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateKey {
    /// The image.
    pub image: ImageId,
    /// The pods that the plan counted on; `None` if the kubelet isn't told: on a Custom image, and where nodeadm counts
    /// them itself (docs/decisions/nodeadm-counts-the-pods-of-interfaces.md).
    pub max_pods: Option<u32>,
    /// How many EFA interfaces the types have, if the claim requests any; a template's interfaces must fit its types.
    pub efa_interfaces: u32,
}

/// Whether a claim's pods request Elastic Fabric Adapters. Without a request its instances are launched with none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EfaRequest {
    /// They do.
    Requested,
    /// They don't.
    NotRequested,
}

impl EfaRequest {
    /// The request of a claim.
    pub(crate) fn of(claim: &PlannedClaim) -> Self {
        if claim.requests.get(&ResourceName::EFA).is_zero() { Self::NotRequested } else { Self::Requested }
    }

    /// How many EFA interfaces an instance of the type is launched with: all that it has.
    fn interfaces(self, option: &InstanceTypeOption) -> u32 {
        match self {
            Self::Requested => {
                let all = option.capacity.get(&ResourceName::EFA).value_ceil();
                u32::try_from(all).unwrap_or(0)
            }
            Self::NotRequested => 0,
        }
    }
}

/// The fleet for a claim.
///
/// # Errors
/// [`NoFleet`].
pub fn fleet(claim: &PlannedClaim, input: FleetInput<'_>) -> Result<Fleet, NoFleet> {
    let flexible = claim.requirements.iter().any(|requirement| requirement.min_values().is_some());
    let mut offerings: Vec<&UsableOffering> = claim.offerings.iter().collect();
    let reservation = reserved(&mut offerings);
    if !flexible {
        drop_exotic(&mut offerings, input.types);
        drop_dear_spot(&mut offerings);
    }
    let capacity_type = capacity_type(&offerings).ok_or(NoFleet::NoOverride)?;
    offerings.retain(|offering| offering.capacity_type == capacity_type);
    cheapest_first(&mut offerings, &claim.pool, input.zones);
    let asks_only = offerings.iter().all(|offering| offering.asked == AskReason::Probe);
    let most = match input.purpose {
        FleetPurpose::PendingPods | FleetPurpose::Replacement if asks_only => LEASES_ALONE,
        FleetPurpose::PendingPods => LEASES_ALONG,
        FleetPurpose::Replacement => 0,
    };
    let fleet = Fleet {
        capacity_type,
        reservation,
        placement: input.status.placement_group.as_ref().map(|group| group.place(&claim.requirements)),
        tenancy: Tenancy::of(&claim.requirements),
        overrides: BTreeMap::new(),
        leases: BTreeSet::new(),
        unpriced: BTreeSet::new(),
    };
    let mut choosing = Choosing {
        input,
        efa: EfaRequest::of(claim),
        most,
        types: BTreeSet::new(),
        count: 0,
        is_cut: false,
        left: None,
        fleet,
    };
    let subnets = subnets(input);
    offerings.retain(|offering| subnets.contains_key(offering.zone.as_str()));
    let mut of_all = Flexibility::new(&claim.requirements, input.types);
    // Offerings that `minValues` needs come first, so that no cut drops them.
    let (needed, others): (Vec<_>, Vec<_>) = offerings.iter().copied().partition(|one| of_all.add(one));
    for offering in needed.into_iter().chain(others) {
        if let Some(subnet) = subnets.get(offering.zone.as_str()) {
            choosing.add(offering, subnet);
        }
    }
    choosing.keeps(claim, &offerings, &of_all).map_err(NoFleet::MinValues)?;
    let Choosing { fleet, left, .. } = choosing;
    match left {
        // A claim with nothing but probes waits for the answer to the first probe.
        Some(Left::Taken) if asks_only => Err(NoFleet::Taken),
        Some(_) if fleet.overrides.is_empty() => Err(NoFleet::Taken),
        None if fleet.overrides.is_empty() => Err(NoFleet::NoOverride),
        Some(_) | None => Ok(fleet),
    }
}

/// A fleet in the making.
struct Choosing<'a> {
    input: FleetInput<'a>,
    /// Whether the claim requests EFA interfaces.
    efa: EfaRequest,
    /// How many leases its launch may take.
    most: usize,
    types: BTreeSet<InstanceType>,
    count: usize,
    /// Whether a full fleet dropped an offering.
    is_cut: bool,
    /// Why a marked offering was dropped, if one was.
    left: Option<Left>,
    fleet: Fleet,
}

/// The reason why a marked offering is not in the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Another launch holds the lease, or this launch has its most leases.
    Held,
    /// Another launch of the same plan takes the lease.
    Taken,
}

impl Choosing<'_> {
    /// Sorts the overrides in the order of the offerings, which EC2 is told by their priorities on demand, and checks
    /// that a cut dropped no `minValues`.
    fn keeps(
        &mut self,
        claim: &PlannedClaim,
        offerings: &[&UsableOffering],
        of_all: &Flexibility<'_>,
    ) -> Result<(), MinValuesLost> {
        let place = |one: &FleetOverride| {
            offerings
                .iter()
                .position(|o| o.instance_type == one.instance_type && Some(&o.zone) == one.zone.as_ref())
        };
        let mut kept = Flexibility::new(&claim.requirements, self.input.types);
        for overrides in self.fleet.overrides.values_mut() {
            overrides.sort_by_cached_key(place);
            if self.fleet.capacity_type == CapacityType::OnDemand {
                for one in overrides.iter_mut() {
                    one.priority = place(one).and_then(|place| u32::try_from(place).ok());
                }
            }
            for offering in overrides.iter().filter_map(place).filter_map(|place| offerings.get(place)) {
                kept.add(offering);
            }
        }
        match (kept.lost(of_all), self.input.min_values) {
            (Some(lost), MinValuesPolicy::Strict) if self.is_cut => Err(lost),
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Whether an override of the type, under the template, is one too many.
    fn is_full(&self, name: &InstanceType, key: &TemplateKey) -> bool {
        let templates = &self.fleet.overrides;
        (!self.types.contains(name) && self.types.len() == TYPES_PER_FLEET)
            || (!templates.contains_key(key) && templates.len() == TEMPLATES_PER_FLEET)
            || self.count == OVERRIDES_PER_FLEET
    }

    fn add(&mut self, offering: &UsableOffering, subnet: &ClassSubnet) {
        let name = &offering.instance_type;
        let Some(option) = find_option(self.input.types, name) else { return };
        let facts = &*option.facts;
        let Some(image) = image_for(&self.input.status.images, facts) else { return };
        let key = TemplateKey {
            image: image.id.clone(),
            max_pods: max_pods(self.input.settings, option),
            efa_interfaces: self.efa.interfaces(option),
        };
        if self.is_full(name, &key) {
            self.is_cut = true;
            return;
        }
        match leases(self.input, offering, facts, subnet) {
            Leases::All(keys) if keys.iter().any(|key| self.input.taken.contains(key)) => {
                self.left = self.left.max(Some(Left::Taken));
                return;
            }
            Leases::All(keys) => {
                let all: BTreeSet<UnavailableKey> = self.fleet.leases.union(&keys).cloned().collect();
                if all.len() > self.most {
                    self.left = self.left.max(Some(Left::Held));
                    return;
                }
                self.fleet.leases = all;
            }
            Leases::Probed => {
                self.left = self.left.max(Some(Left::Held));
                return;
            }
        }
        self.types.insert(name.clone());
        self.count += 1;
        if offering.price.is_none() {
            self.fleet.unpriced.insert(name.clone());
        }
        self.fleet.overrides.entry(key).or_default().push(FleetOverride {
            instance_type: name.clone(),
            subnet: Some(subnet.id.clone()),
            zone: Some(offering.zone.clone()),
            image: Some(image.id.clone()),
            priority: None,
        });
    }
}

/// The pods that the plan counted on for a type, if its kubelet must be told.
fn max_pods(settings: &NodeSettings, option: &InstanceTypeOption) -> Option<u32> {
    let of_interfaces = settings.kubelet.max_pods.is_none()
        && settings.kubelet.pods_per_core.unwrap_or(0) == 0
        && settings.reserved_enis == 0;
    match settings.ami_family {
        AmiFamily::Custom => None,
        // nodeadm counts the interfaces' addresses itself, also of a type that its image doesn't know.
        AmiFamily::Al2023 if of_interfaces => None,
        AmiFamily::Al2
        | AmiFamily::Al2023
        | AmiFamily::Bottlerocket
        | AmiFamily::Windows2019
        | AmiFamily::Windows2022
        | AmiFamily::Windows2025 => u32::try_from(option.capacity.get(&ResourceName::PODS).value_ceil()).ok(),
    }
}

/// The leases that an offering needs.
enum Leases {
    /// The launch must hold the leases of all of these.
    All(BTreeSet<UnavailableKey>),
    /// Another launch holds one of them.
    Probed,
}

fn leases(
    input: FleetInput<'_>,
    offering: &UsableOffering,
    facts: &InstanceTypeFacts,
    subnet: &ClassSubnet,
) -> Leases {
    let key = OfferingKey {
        capacity_type: offering.capacity_type,
        zone_id: offering.zone_id.clone(),
        instance_type: offering.instance_type.clone(),
    };
    let reservation = offering.reservation.as_ref().map(|of| &of.id);
    let wanted = WantedOffering {
        requests: input.requests.digests,
        reservation,
        ..WantedOffering::new(&key, facts.vcpus)
    };
    let subnet = UnavailableKey::Subnet(subnet.id.clone());
    let named = std::iter::once(&subnet).chain(input.requests.whole).filter_map(|key| input.marks.get(key));
    let mut keys = BTreeSet::new();
    for mark in input.marks.concerning(&wanted).chain(named) {
        match mark.state(input.now) {
            MarkState::Forgotten => {}
            MarkState::Held | MarkState::Due => {
                keys.insert(mark.key.clone());
            }
            MarkState::Probing(_) => return Leases::Probed,
        }
    }
    Leases::All(keys)
}

/// For each zone in service, the subnet with the most free addresses among subnets without a mark. If all of a zone's
/// subnets are marked, the one whose mark ends first.
fn subnets(input: FleetInput<'_>) -> BTreeMap<&str, &ClassSubnet> {
    let mut best: BTreeMap<&str, (Option<Timestamp>, &ClassSubnet)> = BTreeMap::new();
    // The status lists subnets with the most free addresses first.
    for subnet in input.status.subnets.iter().filter(|subnet| !subnet.is_shifted(input.now)) {
        let blocking = input.marks.blocking_key(&UnavailableKey::Subnet(subnet.id.clone()), input.now);
        let found = (blocking.map(|blocking| blocking.until), subnet);
        let known = best.entry(subnet.zone.as_str()).or_insert(found);
        if found.0 < known.0 {
            *known = found;
        }
    }
    best.into_iter().map(|(zone, (_, subnet))| (zone, subnet)).collect()
}

/// Keeps only the reservation's offerings of a claim that has any. The next plan counts the claim in its reservation,
/// and a refusal makes its pods pending at once.
fn reserved(offerings: &mut Vec<&UsableOffering>) -> Option<LaunchedInto> {
    let found = offerings.iter().find_map(|offering| offering.reservation.clone())?;
    offerings.retain(|offering| offering.reservation.as_ref().is_some_and(|of| of.id == found.id));
    Some(LaunchedInto { id: found.id, kind: found.kind })
}

/// The available offerings, or all if none is available. A probe beside them decides nothing: its refusal must leave
/// the claim the fleet that it has without the probe.
fn settled<'o, 'a>(
    offerings: &'o [&'a UsableOffering],
) -> impl Iterator<Item = &'a UsableOffering> + use<'o, 'a> {
    let some = offerings.iter().any(|offering| offering.asked == AskReason::Available);
    offerings.iter().copied().filter(move |offering| !some || offering.asked == AskReason::Available)
}

/// The fleet's capacity type: the most preferred among priced offerings, or among all if none has a price.
fn capacity_type(offerings: &[&UsableOffering]) -> Option<CapacityType> {
    let of = |priced: bool| {
        settled(offerings)
            .filter(move |offering| !priced || offering.price.is_some())
            .map(|o| o.capacity_type)
    };
    of(true).min().or_else(|| of(false).min())
}

/// Drops bare metal and types with accelerators, unless nothing else is left. A part of a GPU, as `g6f` has, is no
/// device that a pod can request, so it doesn't count.
fn drop_exotic(offerings: &mut Vec<&UsableOffering>, types: &[InstanceTypeOption]) {
    let exotic = |offering: &UsableOffering| {
        find_option(types, &offering.instance_type).is_some_and(|option| {
            let facts = &option.facts;
            facts.bare_metal
                || facts.gpus.iter().any(|gpu| gpu.count > 0)
                || facts.neuron_devices.iter().any(|device| device.count > 0)
        })
    };
    if settled(offerings).any(|offering| !exotic(offering)) {
        offerings.retain(|offering| !exotic(offering));
    }
}

/// Drops spot offerings above the price of the cheapest on-demand offering.
fn drop_dear_spot(offerings: &mut Vec<&UsableOffering>) {
    let on_demand = |o: &&UsableOffering| o.capacity_type == CapacityType::OnDemand;
    let bound = settled(offerings).filter(on_demand).filter_map(|offering| offering.price).min();
    let Some(bound) = bound else { return };
    offerings
        .retain(|o| o.capacity_type != CapacityType::Spot || o.price.is_some_and(|price| price <= bound));
}

#[cfg(test)]
mod choice_tests;

#[cfg(test)]
mod tests;
