//! What a launch's answer means: which claims got an instance, which failed and why, what EC2 has no capacity for.
//!
//! Pure and deterministic: instances in the order of their ids are dealt to the launch's claims in theirs, so that who
//! reads the same answer twice settles the same. It doesn't ask EC2 and doesn't write.
//!
//! Invariants: a claim gets at most one instance, an instance at most one claim; a claim that isn't waiting for its
//! launch keeps its state; an answer with errors but enough instances fails nothing.
//!
//! Source: KARPENTER.md 2.3.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_cloud::port::{FleetItemError, FleetOverride, FleetResult, Instance};
use tenon_cloud::{Class, Ec2Error};
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchFailure, LaunchedInstance};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{Launch, LaunchState};
use tenon_domain::unavailable::{Mark, MarkState, Marks, OfferingKey, UnavailableKey};
use tenon_domain::wake::FunctionName;

/// How long exhausted capacity isn't asked for again; the peer's. Source: KARPENTER.md 2.3.
pub const EXHAUSTED_FOR: SignedDuration = SignedDuration::from_mins(3);
/// How long a request that EC2 refuses for what it is isn't made again at first; doubled up to
/// [`REFUSED_AT_MOST`]. A change of the class makes it another request.
pub const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(1);
/// See [`REFUSED_FOR`].
pub const REFUSED_AT_MOST: SignedDuration = SignedDuration::from_mins(15);
/// Characters of EC2's words that are kept with a claim.
const MESSAGE_CHARS: usize = 300;

/// What became of a launch.
#[derive(Debug, Clone)]
pub enum Answer {
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
    /// The claims of the cluster that are known, by the launch's order; others are gone.
    pub claims: &'a [&'a Claim],
    /// The class, as it resolved last: its subnets name zones.
    pub status: Option<&'a ClassStatus>,
    /// Marks so far.
    pub marks: &'a Marks,
}

/// A launch, settled.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The launch's next form.
    pub launch: Launch,
    /// Each claim's next form.
    pub claims: Vec<Claim>,
    /// What isn't asked for again for a while.
    pub marks: Vec<Mark>,
    /// A record for each claim.
    pub records: Vec<JournalRecord>,
    /// Why claims failed, if any did.
    pub failed: Option<Failure>,
}

/// Why claims failed: what the planner does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There was no capacity: plan around it at once.
    Capacity,
    /// The template is gone: make it anew at once.
    TemplateMissing,
    /// The request is refused for what it is.
    Request,
}

/// Settles a launch.
#[must_use]
pub fn settle(input: SettleInput<'_>, answer: &Answer) -> Settlement {
    let mut instances = instances(answer);
    instances.sort_by(|a, b| a.id.cmp(&b.id));
    let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);
    let (failure, kind) = failure(answer);
    let mut left = instances.into_iter();
    let mut settlement = Settlement {
        launch: Launch {
            revision: input.launch.revision.saturating_add(1),
            state: LaunchState::Settled { at: input.now, instances: count },
            ..input.launch.clone()
        },
        claims: Vec::new(),
        marks: Vec::new(),
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
        settlement.records.push(record(input, claim, &state));
        settlement.claims.extend(claim.stepped(state).ok());
    }
    let refused = (settlement.failed == Some(Failure::Request)).then_some(failure.reason.as_str());
    settlement.marks = marks(input, answer, refused);
    settlement
}

fn instances(answer: &Answer) -> Vec<LaunchedInstance> {
    match answer {
        Answer::Fleet(result) => result
            .instances
            .iter()
            .flat_map(|some| some.ids.iter().map(move |id| (id, some)))
            .filter_map(|(id, some)| {
                // Every override of ours names its zone and image.
                Some(LaunchedInstance {
                    id: id.clone(),
                    instance_type: some.instance_type.clone(),
                    zone: some.from.zone.clone()?,
                    subnet: some.from.subnet.clone(),
                    capacity_type: CapacityType::from(some.capacity_type),
                    image: some.from.image.clone()?,
                })
            })
            .collect(),
        Answer::Found(found) => found
            .iter()
            .filter(|instance| !instance.state.is_going())
            .map(|instance| LaunchedInstance {
                id: instance.id.clone(),
                instance_type: instance.instance_type.clone(),
                zone: instance.zone.clone(),
                subnet: instance.subnet.clone(),
                capacity_type: CapacityType::from(instance.capacity_type),
                image: instance.image.clone(),
            })
            .collect(),
        Answer::Refused(_) => Vec::new(),
    }
}

/// Why claims without an instance failed.
fn failure(answer: &Answer) -> (LaunchFailure, Failure) {
    let made = |reason: &str, message: String| LaunchFailure {
        reason: reason.to_owned(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    };
    match answer {
        Answer::Found(_) => {
            let message = "EC2's answer was lost, and no instance carries the launch's tag";
            (made("LaunchFailed", message.to_owned()), Failure::Capacity)
        }
        Answer::Refused(error) => {
            let class = error.class();
            (made(reason(class), error.to_string()), kind(class))
        }
        Answer::Fleet(result) => {
            // Only what isn't capacity tells the user something new.
            let told = result.errors.iter().find(|error| kind(error.class()) != Failure::Capacity);
            let first = told.or_else(|| result.errors.first());
            let message = first.map_or_else(
                || "EC2 gave no instance and no error".to_owned(),
                |error| format!("{}: {}", error.code, error.message),
            );
            match told {
                Some(error) => (made(reason(error.class()), message), kind(error.class())),
                None => (made("InsufficientCapacityError", message), Failure::Capacity),
            }
        }
    }
}

const fn kind(class: Class) -> Failure {
    match class {
        Class::InsufficientCapacity
        | Class::Quota
        | Class::Unsupported
        | Class::SubnetFull
        | Class::ReservationFull
        | Class::ServiceLinkedRoleMissing
        | Class::Throttled
        | Class::Server => Failure::Capacity,
        Class::TemplateMissing => Failure::TemplateMissing,
        Class::ImageUnavailable
        | Class::Unauthorized
        | Class::NotFound
        | Class::AlreadyExists
        | Class::TokenMismatch
        | Class::Invalid
        | Class::Unknown => Failure::Request,
    }
}

/// The peer's reason of the condition `Launched`.
const fn reason(class: Class) -> &'static str {
    match class {
        Class::InsufficientCapacity | Class::Unsupported | Class::ReservationFull => {
            "InsufficientCapacityError"
        }
        Class::Quota => "FleetQuotaExceeded",
        Class::SubnetFull => "InsufficientFreeAddressesInSubnet",
        Class::ServiceLinkedRoleMissing => "SpotSLRCreationFailed",
        Class::TemplateMissing => "LaunchTemplateNotFound",
        Class::ImageUnavailable => "InvalidAMIID",
        Class::Throttled => "RequestLimitExceeded",
        Class::Unauthorized => "Unauthorized",
        Class::Server => "InternalError",
        Class::NotFound | Class::AlreadyExists | Class::TokenMismatch | Class::Invalid | Class::Unknown => {
            "LaunchFailed"
        }
    }
}

fn record(input: SettleInput<'_>, claim: &Claim, state: &ClaimState) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Claim, name: claim.name.to_string() };
    let (decision, message) = if let ClaimState::LaunchFailed { failure, .. } = state {
        let why = format!("{} ({})", failure.reason, failure.message);
        (Decision::LaunchFailed, format!("NodeClaim `{}` got no instance: {why}", claim.name))
    } else {
        let told =
            |i: &LaunchedInstance| format!("{} ({}, {}, {})", i.id, i.instance_type, i.zone, i.capacity_type);
        let text = state.instance().map(told).unwrap_or_default();
        (Decision::Launched, format!("NodeClaim `{}` got instance {text}", claim.name))
    };
    let by = FunctionName::Provisioner.as_str();
    let mut record =
        JournalRecord::new(subject, input.now, by, decision, message).detail("launch", &input.launch.id);
    if let Some(instance) = state.instance() {
        record = record.detail("instance", &instance.id).detail("image", &instance.image);
    }
    if let ClaimState::LaunchFailed { failure, .. } = state {
        record = record.detail("reason", &failure.reason);
    }
    record
}

/// Marks that follow from an answer, each once.
fn marks(input: SettleInput<'_>, answer: &Answer, refused: Option<&str>) -> Vec<Mark> {
    let mut marks: BTreeMap<UnavailableKey, Mark> = BTreeMap::new();
    if let Answer::Fleet(result) = answer {
        for error in &result.errors {
            let key = exhausted(input, error);
            marks.extend(key.map(|key| (key.clone(), mark(input, key, &error.code, EXHAUSTED_FOR))));
        }
    }
    if let Answer::Refused(error) = answer
        && error.class() == Class::ServiceLinkedRoleMissing
    {
        let key = UnavailableKey::CapacityType(CapacityType::Spot);
        marks.insert(key.clone(), mark(input, key, reason(error.class()), EXHAUSTED_FOR));
    }
    if let (Some(code), Some(status)) = (refused, input.status) {
        let key = tenon_launching::world::refused_request(input.cluster, &input.launch.pool, status);
        let before = remembered(input, &key).map_or(0, |mark| mark.count);
        let factor = 2_i32.saturating_pow(before.min(8));
        let after = REFUSED_FOR.saturating_mul(factor).min(REFUSED_AT_MOST);
        marks.insert(key.clone(), mark(input, key, code, after));
    }
    marks.into_values().collect()
}

fn mark(input: SettleInput<'_>, key: UnavailableKey, code: &str, hold: SignedDuration) -> Mark {
    let before = remembered(input, &key);
    Mark {
        revision: input.marks.get(&key).map_or(0, |mark| mark.revision).saturating_add(1),
        code: code.to_owned(),
        count: before.map_or(1, |mark| mark.count.saturating_add(1)),
        since: before.map_or(input.now, |mark| mark.since),
        asked_at: input.now,
        until: input.now.saturating_add(hold).unwrap_or(input.now),
        from_vcpus: None,
        probe: None,
        seen_by: input.cluster.clone(),
        key,
    }
}

fn remembered<'a>(input: SettleInput<'a>, key: &UnavailableKey) -> Option<&'a Mark> {
    input.marks.get(key).filter(|mark| mark.state(input.now) != MarkState::Forgotten)
}

/// What an item's error says is exhausted.
fn exhausted(input: SettleInput<'_>, error: &FleetItemError) -> Option<UnavailableKey> {
    let capacity_type = CapacityType::from(error.capacity_type);
    let from: &FleetOverride = &error.from;
    match error.class() {
        Class::InsufficientCapacity | Class::Unsupported | Class::ReservationFull => {
            let zone = from.zone.as_ref()?;
            let subnet = input.status?.subnets.iter().find(|subnet| subnet.zone == *zone)?;
            Some(UnavailableKey::Offering(OfferingKey {
                capacity_type,
                zone_id: subnet.zone_id.clone(),
                instance_type: from.instance_type.clone(),
            }))
        }
        Class::Quota => Some(UnavailableKey::quota(capacity_type, &from.instance_type)),
        Class::SubnetFull => from.subnet.clone().map(UnavailableKey::Subnet),
        Class::ServiceLinkedRoleMissing => Some(UnavailableKey::CapacityType(CapacityType::Spot)),
        Class::TemplateMissing
        | Class::ImageUnavailable
        | Class::Throttled
        | Class::Unauthorized
        | Class::NotFound
        | Class::AlreadyExists
        | Class::TokenMismatch
        | Class::Invalid
        | Class::Server
        | Class::Unknown => None,
    }
}
