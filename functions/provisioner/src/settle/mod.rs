//! The meaning of a launch's answer: claims with an instance, failed claims with reasons, refused capacity.
//!
//! Pure and deterministic: instances in the order of their ids are dealt to the launch's claims in theirs, so two
//! readers of one answer settle it equally. It doesn't call EC2 and doesn't write.
//!
//! Invariants: a claim gets at most one instance, an instance at most one claim; a claim that isn't `Planned` keeps
//! its state; errors beside enough instances fail no claim; no failure is planned again at once without a mark that
//! changes the plan. Module `marks` has the effects on marks.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/instance/instance.go`, `pkg/errors/errors.go`.

mod marks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchFailure, LaunchedInstance};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{Launch, LaunchState};
use tenon_domain::money::Currency;
use tenon_domain::unavailable::{LaunchAsked, Marks, OfferingKey};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::{FleetOverride, FleetResult, Instance, TargetCapacityType};
use tenon_ec2::{Ec2Error, ErrorClass, launched_reason, launched_reason_of};

pub use marks::{CatalogFacts, MarkWord, OfferingAnswer};

/// Characters of EC2's words that are kept of a refusal.
pub(crate) const MESSAGE_CHARS: usize = 300;
/// Offerings that a record spells out.
const OFFERINGS_TOLD: usize = 10;

/// The result of a launch.
#[derive(Debug, Clone)]
pub enum LaunchAnswer {
    /// EC2 answered.
    Fleet(FleetResult),
    /// EC2's answer is lost; these instances carry the launch's tag.
    Found(Vec<Instance>),
    /// EC2 refused the call.
    Refused(Ec2Error),
}

/// Where and when a launch is settled.
#[derive(Debug, Clone, Copy)]
pub struct SettleInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: &'a ClusterName,
    /// The launch.
    pub launch: &'a Launch,
    /// The launch's known claims in its order; the others don't exist any longer.
    pub claims: &'a [&'a Claim],
    /// The class, if it still has the spec and the images that the launch was made from: otherwise what EC2 says of the
    /// launch's request says nothing of it. Its subnets name zones.
    pub status: Option<&'a ClassStatus>,
    /// Marks so far, the launch's own leases among them.
    pub marks: &'a Marks,
    /// The catalogue's zones, types and prices.
    pub catalog: CatalogFacts<'a>,
    /// The currency of its prices.
    pub currency: Currency,
}

impl<'a> SettleInput<'a> {
    /// The launch that asked.
    #[must_use]
    pub const fn asked(&self) -> LaunchAsked<'a> {
        LaunchAsked { cluster: self.cluster, launch: &self.launch.id, planned_at: self.launch.created_at }
    }
}

/// A launch, settled.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The launch's next form.
    pub launch: Launch,
    /// Each claim's next form.
    pub claims: Vec<Claim>,
    /// EC2's words about marks, existing or new.
    pub marks: Vec<MarkWord>,
    /// The offerings of the instances, as far as their zones' ids are known.
    pub offerings: BTreeMap<InstanceId, OfferingKey>,
    /// A record for each claim.
    pub records: Vec<JournalRecord>,
    /// Why claims failed, if any did.
    pub failed: Option<SettleFailure>,
}

/// Why claims failed, and so the planner's next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleFailure {
    /// No capacity: plan around it at once.
    Capacity,
    /// No capacity, and no refusal that a mark can hold, such as a throttled item: plan again after a while, because
    /// the plan would be the same.
    Unmarked,
    /// The template doesn't exist: create it again at once.
    TemplateMissing,
    /// The request itself is refused.
    Request,
}

/// Settles a launch.
#[must_use]
pub fn settle(input: SettleInput<'_>, answer: &LaunchAnswer) -> Settlement {
    let mut instances = instances(input.launch, answer);
    instances.sort_by(|a, b| a.id.cmp(&b.id));
    let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);
    let (failure, kind) = failure(answer);
    let offering = |instance: &LaunchedInstance| {
        marks::offering_of(input, instance).map(|offering| (instance.id.clone(), offering))
    };
    let offerings = instances.iter().filter_map(offering).collect();
    let exhausted = exhausted(answer);
    let mut left = instances.iter().cloned();
    let mut settlement = Settlement {
        launch: Launch {
            revision: input.launch.revision.saturating_add(1),
            state: LaunchState::Settled { at: input.now, instances: count },
            ..input.launch.clone()
        },
        claims: Vec::new(),
        marks: Vec::new(),
        offerings,
        records: Vec::new(),
        failed: None,
    };
    for claim in input.claims.iter().filter(|claim| claim.phase() == ClaimPhase::Planned) {
        let state = match left.next() {
            Some(instance) => ClaimState::Launched { instance, at: input.now },
            None => {
                settlement.failed = Some(kind);
                ClaimState::LaunchFailed { at: input.now, failure: failure.clone() }
            }
        };
        let record = record(input, claim, &state);
        settlement.records.push(match exhausted.is_empty() {
            true => record,
            false => record.detail("exhausted", &exhausted),
        });
        settlement.claims.extend(claim.stepped(state).ok());
    }
    let refused = (settlement.failed == Some(SettleFailure::Request)).then_some(&failure);
    settlement.marks = marks::words(input, answer, &instances, refused);
    if settlement.failed == Some(SettleFailure::Capacity) {
        let next = marks::after_capacity(input, answer, &settlement.marks);
        settlement.failed = Some(next);
        if next == SettleFailure::Request {
            settlement.marks = marks::words(input, answer, &instances, Some(&failure));
        }
    }
    settlement
}

/// The instances of a launch. Their reservation and placement are the launch's own; EC2's field isn't read.
fn instances(launch: &Launch, answer: &LaunchAnswer) -> Vec<LaunchedInstance> {
    let paid = |capacity_type: TargetCapacityType| match &launch.reservation {
        Some(_) => CapacityType::Reserved,
        None => CapacityType::from(capacity_type),
    };
    match answer {
        LaunchAnswer::Fleet(result) => result
            .instances
            .iter()
            .flat_map(|some| some.ids.iter().map(move |id| (id, some)))
            .filter_map(|(id, some)| {
                // Each of our overrides names its zone and image.
                Some(LaunchedInstance {
                    id: id.clone(),
                    instance_type: some.instance_type.clone(),
                    zone: some.from.zone.clone()?,
                    subnet: some.from.subnet.clone(),
                    capacity_type: paid(some.capacity_type),
                    reservation: launch.reservation.clone(),
                    placement: launch.placement.clone(),
                    image: some.from.image.clone()?,
                })
            })
            .collect(),
        LaunchAnswer::Found(found) => found
            .iter()
            .filter(|instance| !instance.state.is_going())
            .map(|instance| LaunchedInstance {
                id: instance.id.clone(),
                instance_type: instance.instance_type.clone(),
                zone: instance.zone.clone(),
                subnet: instance.subnet.clone(),
                capacity_type: paid(instance.capacity_type),
                reservation: launch.reservation.clone(),
                placement: launch.placement.clone(),
                image: instance.image.clone(),
            })
            .collect(),
        LaunchAnswer::Refused(_) => Vec::new(),
    }
}

/// The offerings that EC2 had no capacity for, in its own order, by what they are called: why others were taken.
fn exhausted(answer: &LaunchAnswer) -> String {
    let LaunchAnswer::Fleet(result) = answer else { return String::new() };
    let refused = result.errors.iter().filter(|error| error.class() == ErrorClass::InsufficientCapacity);
    let told = refused.filter_map(|error| {
        let FleetOverride { instance_type, zone, .. } = error.from.as_ref()?;
        let paid = CapacityType::from(error.capacity_type).as_str();
        Some(format!("{instance_type} {paid} in {}", zone.as_ref()?))
    });
    let mut named: Vec<String> = Vec::new();
    for name in told {
        if !named.contains(&name) {
            named.push(name);
        }
    }
    let more = named.len().saturating_sub(OFFERINGS_TOLD);
    named.truncate(OFFERINGS_TOLD);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(", ")
}

/// Why claims without an instance failed.
fn failure(answer: &LaunchAnswer) -> (LaunchFailure, SettleFailure) {
    let made = |reason: &str, message: String| LaunchFailure {
        reason: reason.to_owned(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    };
    match answer {
        LaunchAnswer::Found(_) => {
            let message = "EC2's answer was lost, and no instance has the launch's tag";
            (made("LaunchFailed", message.to_owned()), SettleFailure::Capacity)
        }
        LaunchAnswer::Refused(error) => {
            let kind = match kind(error.class()) {
                // An error of the whole call names no offering to plan around.
                SettleFailure::Capacity if error.class() != ErrorClass::ServiceLinkedRoleMissing => {
                    SettleFailure::Request
                }
                kind @ (SettleFailure::Capacity
                | SettleFailure::Unmarked
                | SettleFailure::TemplateMissing
                | SettleFailure::Request) => kind,
            };
            (made(launched_reason_of(error), error.to_string()), kind)
        }
        LaunchAnswer::Fleet(result) => {
            // Only errors other than capacity are news to the user.
            let told = result.errors.iter().find(|error| kind(error.class()) != SettleFailure::Capacity);
            let first = told.or_else(|| result.errors.first());
            let message = first.map_or_else(
                || "EC2 returned no instance and no error".to_owned(),
                |error| format!("{}: {}", error.code, error.message),
            );
            match told {
                Some(error) => {
                    (made(launched_reason(&error.code, &error.message), message), kind(error.class()))
                }
                None => (made("InsufficientCapacityError", message), SettleFailure::Capacity),
            }
        }
    }
}

const fn kind(class: ErrorClass) -> SettleFailure {
    match class {
        ErrorClass::InsufficientCapacity
        | ErrorClass::Quota
        | ErrorClass::FleetCount
        | ErrorClass::PlacementGroup
        | ErrorClass::Unsupported
        | ErrorClass::SubnetFull
        | ErrorClass::ReservationFull
        | ErrorClass::ServiceLinkedRoleMissing
        | ErrorClass::Throttled
        | ErrorClass::Server => SettleFailure::Capacity,
        ErrorClass::TemplateMissing => SettleFailure::TemplateMissing,
        ErrorClass::AccountLimit
        | ErrorClass::ImageUnavailable
        | ErrorClass::Unauthorized
        | ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::TokenMismatch
        | ErrorClass::Invalid
        | ErrorClass::Unknown => SettleFailure::Request,
    }
}

fn record(input: SettleInput<'_>, claim: &Claim, state: &ClaimState) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Claim, name: claim.name.to_string() };
    let (decision, message) = if let ClaimState::LaunchFailed { failure, .. } = state {
        let why = format!("{} ({})", failure.reason, failure.message);
        (Decision::LaunchFailed, format!("no instance for NodeClaim `{}`: {why}", claim.name))
    } else {
        let told = |i: &LaunchedInstance| {
            format!("`{}` ({}, {}, {})", i.id, i.instance_type, i.zone, i.capacity_type)
        };
        let text = state.instance().map(told).unwrap_or_default();
        (Decision::Launched, format!("launched instance {text} for NodeClaim `{}`", claim.name))
    };
    let by = FunctionName::Provisioner.as_str();
    let mut record =
        JournalRecord::new(subject, input.now, by, decision, message).detail("launch", &input.launch.id);
    if let Some(instance) = state.instance() {
        record = record
            .detail("instance", &instance.id)
            .detail("image", &instance.image)
            .detail("instanceType", &instance.instance_type)
            .detail("zone", &instance.zone)
            .detail("capacityType", instance.capacity_type.as_str());
        // The plan's price is that of its first type. EC2 may have launched another one.
        if let Some(price) = input.catalog.price(instance) {
            record = record.detail("launchedPrice", price).detail("currency", input.currency.as_str());
        }
    }
    if let ClaimState::LaunchFailed { failure, .. } = state {
        record = record.detail("reason", &failure.reason);
    }
    record
}
