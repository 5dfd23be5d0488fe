//! The effect of an answer on marks: refusals, successes, probes without an answer.
//!
//! Decides which mark each part of EC2's answer is about. The domain decides the mark's next form, and the executor
//! writes it once, despite other writers. An error without an override is about no offering.
//!
//! Source: aws/karpenter-provider-aws `pkg/cache/unavailableofferings.go`. `tenon-ec2`
//! decides the effects of errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::catalog::{CapacityType, InstanceTypeFacts, PartData, SpotPrices};
use tenon_domain::claim::{LaunchFailure, LaunchedInstance};
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;
use tenon_domain::unavailable::{
    LaunchAsked, Mark, OfferingKey, Refusal, RefusalCause, RequestDigest, UnavailableKey, WantedOffering,
};
use tenon_ec2::port::{CreateFleetRequest, FleetItemError, FleetOverride, TargetCapacityType};
use tenon_ec2::{Effect, ErrorClass, blame, effect};
use tenon_state::cluster::refused_requests;
use tenon_table::items::RefreshedParts;

use super::{LaunchAnswer, SettleFailure, SettleInput};

/// EC2's word about one mark, existing or new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkWord {
    /// The thing.
    pub key: UnavailableKey,
    /// The word.
    pub said: OfferingAnswer,
}

/// EC2's word about a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferingAnswer {
    /// It was refused.
    Refused {
        /// The code.
        code: String,
        /// EC2's message, if the request itself is refused.
        message: Option<String>,
        /// For a quota, the vCPUs of the smallest refused type, if known.
        vcpus: Option<u32>,
    },
    /// It was launched.
    Had,
    /// Its probing launch got all its instances from other offerings.
    Untried,
    /// Its probing launch got no instance, and no answer about it.
    Nothing,
}

impl MarkWord {
    /// The mark after it; `None` if nothing changes.
    #[must_use]
    pub fn next(&self, before: Option<&Mark>, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Mark> {
        match &self.said {
            OfferingAnswer::Refused { code, message, vcpus } => {
                let cause = RefusalCause::Launch(asked.launch);
                let (key, vcpus) = (&self.key, *vcpus);
                let refusal = Refusal { key, code, cluster: asked.cluster, cause, vcpus, now };
                Some(Mark { message: message.clone(), ..Mark::refused(before, &refusal)? })
            }
            OfferingAnswer::Had => before?.cleared(asked, now),
            OfferingAnswer::Untried => before?.untried(asked, now),
            OfferingAnswer::Nothing => before?.unanswered(asked, now),
        }
    }
}

/// Facts about types and zones of any age: zone ids and type sizes don't change, and prices are only told.
#[derive(Debug, Clone, Copy, Default)]
pub struct CatalogFacts<'a> {
    zones: Option<&'a BTreeMap<Zone, ZoneId>>,
    types: Option<&'a BTreeMap<InstanceType, Arc<InstanceTypeFacts>>>,
    on_demand: Option<&'a BTreeMap<InstanceType, UsdPerHour>>,
    spot: Option<&'a SpotPrices>,
}

impl<'a> CatalogFacts<'a> {
    /// The catalogue's parts that ever arrived.
    #[must_use]
    pub fn of(parts: &'a RefreshedParts) -> Self {
        let mut facts = Self::default();
        for part in parts.values() {
            match &*part.data {
                PartData::InstanceTypes(types) => facts.types = Some(types),
                PartData::Offerings(offerings) => facts.zones = Some(&offerings.zones),
                PartData::OnDemandPrices(prices) => facts.on_demand = Some(prices),
                PartData::SpotPrices(prices) => facts.spot = Some(prices),
            }
        }
        facts
    }

    /// The price of an instance, as it is paid for; none in a reservation, which is paid for already.
    pub(super) fn price(&self, instance: &LaunchedInstance) -> Option<UsdPerHour> {
        let LaunchedInstance { instance_type, zone, capacity_type, .. } = instance;
        match capacity_type {
            CapacityType::OnDemand => self.on_demand?.get(instance_type).copied(),
            CapacityType::Spot => self.spot?.get(instance_type)?.get(zone).copied(),
            CapacityType::Reserved => None,
        }
    }

    fn vcpus(&self, of: &InstanceType) -> Option<u32> {
        self.types?.get(of).map(|facts| facts.vcpus)
    }
}

/// The offering of an instance, where its zone's id is known.
#[must_use]
pub(super) fn offering_of(input: SettleInput<'_>, instance: &LaunchedInstance) -> Option<OfferingKey> {
    Some(OfferingKey {
        capacity_type: instance.capacity_type,
        zone_id: zone_id(input, &instance.zone)?,
        instance_type: instance.instance_type.clone(),
    })
}

/// The words of an answer, one for each key. A refusal overrules a success, because the launch got its instances
/// before it was refused. `refused` is the reason if the request itself is refused: it marks the class if the class
/// is to blame, otherwise the pool.
pub(super) fn words(
    input: SettleInput<'_>,
    answer: &LaunchAnswer,
    instances: &[LaunchedInstance],
    refused: Option<&LaunchFailure>,
) -> Vec<MarkWord> {
    let mut words: BTreeMap<UnavailableKey, OfferingAnswer> = BTreeMap::new();
    for (key, code, vcpus) in refusals(input, answer) {
        let said = words.entry(key).or_insert_with(|| OfferingAnswer::Refused {
            code: code.to_owned(),
            message: None,
            vcpus,
        });
        if let OfferingAnswer::Refused { vcpus: least, .. } = said {
            *least = least.zip(vcpus).map(|(a, b)| a.min(b));
        }
    }
    if let (Some(LaunchFailure { reason, message }), Some(status)) = (refused, input.status) {
        let [of_class, of_pool] = refused_requests(input.cluster, &input.launch.pool, status);
        let key = if blame(message).is_some() { of_class } else { of_pool };
        let (code, message) = (reason.clone(), Some(message.clone()));
        words.entry(key).or_insert_with(|| OfferingAnswer::Refused { code, message, vcpus: None });
    }
    for key in instances.iter().flat_map(|instance| had(input, instance)) {
        words.entry(key).or_insert(OfferingAnswer::Had);
    }
    let ours = |mark: &&Mark| {
        mark.probe
            .as_ref()
            .is_some_and(|probe| probe.launch == input.launch.id && probe.cluster == *input.cluster)
    };
    let unnamed = if instances.is_empty() { OfferingAnswer::Nothing } else { OfferingAnswer::Untried };
    for mark in input.marks.iter().filter(ours) {
        words.entry(mark.key.clone()).or_insert_with(|| unnamed.clone());
    }
    words.into_iter().map(|(key, said)| MarkWord { key, said }).collect()
}

/// What follows a refusal for capacity: another plan at once helps only around a mark that this launch was planned
/// without. Otherwise the request itself is held, because the plan would be the same.
pub(super) fn after_capacity(
    input: SettleInput<'_>,
    answer: &LaunchAnswer,
    words: &[MarkWord],
) -> SettleFailure {
    let is_refusal = |word: &&MarkWord| matches!(word.said, OfferingAnswer::Refused { .. });
    let mut refused = words.iter().filter(is_refusal).peekable();
    match answer {
        LaunchAnswer::Found(_) => SettleFailure::Capacity,
        LaunchAnswer::Fleet(_) if refused.peek().is_none() => SettleFailure::Unmarked,
        LaunchAnswer::Fleet(_) | LaunchAnswer::Refused(_) => {
            if refused.any(|word| changes_plan(input, word)) {
                SettleFailure::Capacity
            } else {
                SettleFailure::Request
            }
        }
    }
}

/// Whether the launch was planned without the mark of the word. A mark on spot changes no plan of an on-demand launch.
fn changes_plan(input: SettleInput<'_>, word: &MarkWord) -> bool {
    if word.key == UnavailableKey::CapacityType(CapacityType::Spot) {
        let request = CreateFleetRequest::from_stored(&input.launch.request);
        if request.is_ok_and(|request| request.capacity_type == TargetCapacityType::OnDemand) {
            return false;
        }
    }
    input.marks.get(&word.key).is_none_or(|known| {
        known.asked_at > input.launch.created_at || word.next(Some(known), input.asked(), input.now).is_some()
    })
}

/// EC2's refusals, with their code and the type's size.
fn refusals<'a>(
    input: SettleInput<'_>,
    answer: &'a LaunchAnswer,
) -> Vec<(UnavailableKey, &'a str, Option<u32>)> {
    match answer {
        LaunchAnswer::Fleet(result) => {
            let of_error = |error: &'a FleetItemError| {
                let vcpus = error.from.as_ref().and_then(|from| input.catalog.vcpus(&from.instance_type));
                exhausted(input, error).map(|key| (key, error.code.as_str(), vcpus))
            };
            result.errors.iter().filter_map(of_error).collect()
        }
        LaunchAnswer::Refused(error) if error.class() == ErrorClass::ServiceLinkedRoleMissing => {
            let code = tenon_ec2::launched_reason_of(error);
            vec![(UnavailableKey::CapacityType(CapacityType::Spot), code, None)]
        }
        LaunchAnswer::Refused(_) | LaunchAnswer::Found(_) => Vec::new(),
    }
}

/// The key that an item's error exhausts; `None` if it names no offering.
fn exhausted(input: SettleInput<'_>, error: &FleetItemError) -> Option<UnavailableKey> {
    // EC2 calls a launch into a reservation on-demand; its offering is another one here.
    let capacity_type = match input.launch.reservation {
        Some(_) => CapacityType::Reserved,
        None => CapacityType::from(error.capacity_type),
    };
    let from = error.from.as_ref();
    let offering = || {
        let from: &FleetOverride = from?;
        let zone_id = zone_id(input, from.zone.as_ref()?)?;
        Some(OfferingKey { capacity_type, zone_id, instance_type: from.instance_type.clone() })
    };
    match effect(error.class()) {
        // A refusal of a reservation says nothing about the capacity pool. A reservation that our launch didn't name
        // has no mark.
        Effect::Offering | Effect::Reservation if input.launch.reservation.is_some() => {
            let into = input.launch.reservation.as_ref()?;
            Some(UnavailableKey::Reservation(into.id.clone()))
        }
        Effect::Reservation => None,
        // A placement group may lack the capacity that other launches get.
        Effect::Offering if input.launch.placement.is_some() => Some(UnavailableKey::RequestOffering {
            digest: RequestDigest::of_class(input.cluster, input.status?),
            offering: offering()?,
        }),
        Effect::Offering => offering().map(UnavailableKey::Offering),
        // Nor its placement group, which is the class's.
        Effect::RequestOffering | Effect::PlacementGroup => Some(UnavailableKey::RequestOffering {
            digest: RequestDigest::of_class(input.cluster, input.status?),
            offering: offering()?,
        }),
        Effect::Quota => Some(UnavailableKey::quota(capacity_type, &from?.instance_type)),
        Effect::Subnet => from?.subnet.clone().map(UnavailableKey::Subnet),
        Effect::Spot => Some(UnavailableKey::CapacityType(CapacityType::Spot)),
        Effect::Request | Effect::Nothing => None,
    }
}

/// The marks that an instance contradicts.
fn had(input: SettleInput<'_>, instance: &LaunchedInstance) -> Vec<UnavailableKey> {
    let requests: Vec<RequestDigest> =
        input.status.iter().map(|status| RequestDigest::of_class(input.cluster, status)).collect();
    let subnet = instance.subnet.clone().map(UnavailableKey::Subnet);
    let requests_of = |status| refused_requests(input.cluster, &input.launch.pool, status);
    let named = subnet.into_iter().chain(input.status.map(requests_of).into_iter().flatten());
    let mut keys: Vec<UnavailableKey> = named.filter(|key| input.marks.get(key).is_some()).collect();
    if let Some(offering) = offering_of(input, instance) {
        // A type of unknown size doesn't contradict a quota.
        let vcpus = input.catalog.vcpus(&instance.instance_type).unwrap_or(0);
        let reservation = input.launch.reservation.as_ref().map(|into| &into.id);
        let wanted =
            WantedOffering { requests: &requests, reservation, ..WantedOffering::new(&offering, vcpus) };
        keys.extend(input.marks.concerning(&wanted).map(|mark| mark.key.clone()));
    }
    keys
}

/// The zone's id, as the catalogue has it; the class's subnets, which may have changed since, say it too.
fn zone_id(input: SettleInput<'_>, zone: &Zone) -> Option<ZoneId> {
    let of_class = || {
        let subnets = &input.status?.subnets;
        subnets.iter().find(|subnet| subnet.zone == *zone).map(|subnet| &subnet.zone_id)
    };
    input.catalog.zones.and_then(|zones| zones.get(zone)).or_else(of_class).cloned()
}
