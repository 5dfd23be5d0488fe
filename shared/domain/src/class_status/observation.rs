//! One observation of a class, and the status that follows from it.
//!
//! Decides all conditions from one observation. Invariants: a condition is True only after it was observed to hold;
//! an Unknown condition has a reason and a time of the next try.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use super::image::{ImageNotices, ResolvedImage, types_without_image};
use super::status::{ClassStatus, ClassSubnet, SeenProfile};
use crate::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use crate::class_hash::ClassHash;
use crate::id::{NodeClassName, Uid};
use crate::placement::ResolvedPlacementGroup;
use crate::reservation::{ClassReservation, ClassReservations, ReservedCapacity};
use crate::zonal_shift::ShiftedZone;

/// The observation of one part of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// It holds.
    Holds(T),
    /// It doesn't hold.
    Refused {
        /// Why.
        reason: ConditionReason,
        /// A sentence with the remedy.
        message: String,
    },
    /// It couldn't be seen.
    Unseen {
        /// Why.
        reason: ConditionReason,
        /// A sentence.
        message: String,
        /// The time of the next observation.
        next_try: Timestamp,
    },
}

/// The observation of a class's capacity reservations, behind the open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenReservations {
    /// The open gate.
    pub right: ReservedCapacity,
    /// The observed reservations.
    pub seen: Seen<Vec<ClassReservation>>,
}

/// What is told of a validation that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationNote {
    /// The condition's reason.
    pub reason: ConditionReason,
    /// A sentence.
    pub message: String,
}

/// One observation of a class: every part of it, seen in the same pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassObservation {
    /// The class.
    pub name: NodeClassName,
    /// `metadata.generation` of its spec.
    pub generation: u64,
    /// Its UID, if it has one.
    pub uid: Option<Uid>,
    /// Digest of its spec.
    pub spec_digest: String,
    /// Hash of its spec; `None` for an unregistered cluster, whose certificate authority isn't known.
    pub hash: Option<ClassHash>,
    /// Its subnets.
    pub subnets: Seen<Vec<ClassSubnet>>,
    /// Its security groups.
    pub security_groups: Seen<Vec<ResolvedSecurityGroup>>,
    /// Its images.
    pub images: Seen<Vec<ResolvedImage>>,
    /// What else there is to know about its images.
    pub image_notices: ImageNotices,
    /// Its nodes' identity.
    pub instance_profile: Seen<InstanceProfile>,
    /// The instance profile that the class asks for, if its cluster allows it. Launches name it also where only a launch
    /// can show whether nodes can have it: nodes without a profile join no cluster.
    pub asked_profile: Option<InstanceProfile>,
    /// The profile with its role, as IAM returned it last.
    pub profile_seen: Option<SeenProfile>,
    /// Its capacity reservations; `None` with the gate `ReservedCapacity` off.
    pub reservations: Option<SeenReservations>,
    /// Its placement group; `None` if it selects none.
    pub placement_group: Option<Seen<ResolvedPlacementGroup>>,
    /// Zones that the cluster is shifted away from; `None` with the setting `zonal_shift` Disabled.
    pub shifts: Option<Seen<BTreeSet<ShiftedZone>>>,
    /// Whether the spec is valid, its snapshots are allowed, and EC2 doesn't refuse its launches.
    pub validation: Seen<()>,
    /// What else there is to tell of a validation that holds.
    pub validation_note: Option<ValidationNote>,
    /// Fields of its spec that nothing acts on.
    pub unsupported: Vec<String>,
}

impl ClassStatus {
    /// The status after an observation. A part without an answer keeps its last value, so that a throttled EC2
    /// removes no subnets, but its condition is Unknown. The revision is the next one; a condition keeps its time
    /// while its status stays.
    #[must_use]
    pub fn observed(observation: ClassObservation, previous: Option<&Self>, now: Timestamp) -> Self {
        let judgements = judge(&observation);
        let conditions = judgements
            .into_iter()
            .map(|judgement| dated(judgement, observation.generation, previous, now))
            .collect();
        let ClassObservation {
            name,
            generation,
            uid,
            spec_digest,
            hash,
            subnets,
            security_groups,
            images,
            ..
        } = observation;
        // Shifts belong to the cluster, so the last observation is valid for every spec.
        let shifts = match observation.shifts {
            Some(seen) => kept(seen, previous.map(Self::shifts).as_ref()).unwrap_or_default(),
            None => BTreeSet::new(),
        };
        // Resources of another spec are not valid for this one.
        let known = previous.filter(|previous| previous.spec_digest == spec_digest);
        let mut status = Self {
            name,
            revision: previous.map_or(1, |previous| previous.revision.saturating_add(1)),
            generation,
            uid,
            hash,
            subnets: kept(subnets, known.map(|k| &k.subnets)).unwrap_or_default(),
            security_groups: kept(security_groups, known.map(|k| &k.security_groups)).unwrap_or_default(),
            images: kept(images, known.map(|k| &k.images)).unwrap_or_default(),
            rejected_images: observation.image_notices.rejected,
            refused_images: observation.image_notices.refused,
            reservations: kept_reservations(observation.reservations, known),
            placement_group: observation
                .placement_group
                .and_then(|seen| kept(seen, known.and_then(|known| known.placement_group.as_ref()))),
            instance_profile: launched_profile(
                observation.instance_profile,
                observation.asked_profile,
                known.and_then(|known| known.instance_profile.as_ref()),
            ),
            profile_seen: observation.profile_seen,
            spec_digest,
            conditions,
            resolved_at: now,
        };
        for subnet in &mut status.subnets {
            let shift = shifts.iter().find(|shifted| shifted.zone_id == subnet.zone_id);
            subnet.shifted = shift.map(|shifted| shifted.end).filter(|end| end.holds(now));
        }
        status.subnets.sort_by(|a, b| b.free_addresses.cmp(&a.free_addresses).then_with(|| a.id.cmp(&b.id)));
        status.security_groups.sort();
        status.images.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        status
    }
}

/// A status, reason and message before it is dated.
struct ConditionJudgement {
    condition: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
    next_try: Option<Timestamp>,
}

fn kept<T: Clone>(seen: Seen<T>, known: Option<&T>) -> Option<T> {
    match seen {
        Seen::Holds(value) => Some(value),
        Seen::Refused { .. } => None,
        Seen::Unseen { .. } => known.cloned(),
    }
}

/// The profile that launches name.
fn launched_profile(
    seen: Seen<InstanceProfile>,
    asked: Option<InstanceProfile>,
    known: Option<&InstanceProfile>,
) -> Option<InstanceProfile> {
    match seen {
        Seen::Refused { reason, .. } | Seen::Unseen { reason, .. } if reason.is_decided_by_launch() => asked,
        other @ (Seen::Holds(_) | Seen::Refused { .. } | Seen::Unseen { .. }) => kept(other, known),
    }
}

fn kept_reservations(seen: Option<SeenReservations>, known: Option<&ClassStatus>) -> ClassReservations {
    let Some(SeenReservations { right, seen }) = seen else { return ClassReservations::default() };
    match seen {
        Seen::Holds(found) => ClassReservations::resolved(right, found),
        Seen::Refused { .. } => ClassReservations::default(),
        Seen::Unseen { .. } => known.map(|known| known.reservations.clone()).unwrap_or_default(),
    }
}

fn judge(observation: &ClassObservation) -> Vec<ConditionJudgement> {
    let mut judgements = vec![
        judge_images(observation),
        judge_part(ConditionType::SubnetsReady, &observation.subnets),
        judge_part(ConditionType::SecurityGroupsReady, &observation.security_groups),
        judge_part(ConditionType::InstanceProfileReady, &observation.instance_profile),
    ];
    if let Some(reservations) = &observation.reservations {
        judgements.push(judge_part(ConditionType::CapacityReservationsReady, &reservations.seen));
    }
    if let Some(group) = &observation.placement_group {
        judgements.push(judge_part(ConditionType::PlacementGroupReady, group));
    }
    let below =
        conjunction(ConditionType::ValidationSucceeded, ConditionReason::DependenciesNotReady, &judgements);
    judgements.push(below.unwrap_or_else(|| judge_validation(observation)));
    let below = conjunction(ConditionType::Ready, ConditionReason::UnhealthyDependents, &judgements);
    judgements.push(below.unwrap_or_else(|| holds(ConditionType::Ready)));
    judgements.extend(judge_unsupported(observation));
    judgements.extend(observation.shifts.as_ref().map(|seen| judge_shifts(seen, &observation.subnets)));
    judgements
}

/// Whether EC2 would take a launch, and what else there is to tell.
fn judge_validation(observation: &ClassObservation) -> ConditionJudgement {
    let judged = judge_part(ConditionType::ValidationSucceeded, &observation.validation);
    match (&observation.validation_note, judged.status) {
        (Some(ValidationNote { reason, message }), ConditionStatus::True) => {
            ConditionJudgement { reason: *reason, message: message.clone(), ..judged }
        }
        (Some(_), ConditionStatus::False | ConditionStatus::Unknown) | (None, _) => judged,
    }
}

/// Whether the class has images, and what else there is to know about them.
fn judge_images(observation: &ClassObservation) -> ConditionJudgement {
    let judged = judge_part(ConditionType::AmisReady, &observation.images);
    let ImageNotices { message, next_try, .. } = &observation.image_notices;
    let next_try = judged.next_try.into_iter().chain(*next_try).min();
    let without = match &observation.images {
        Seen::Holds(images) => types_without_image(images),
        Seen::Refused { .. } | Seen::Unseen { .. } => Vec::new(),
    };
    let without = (!without.is_empty()).then(|| format!("no image for {}", without.join(", ")));
    // A part without an answer has the message of the last one.
    let without = without.filter(|without| !message.ends_with(without));
    let messages = Some(message.clone()).filter(|message| !message.is_empty()).into_iter().chain(without);
    let message = messages.collect::<Vec<_>>().join("; ");
    match judged.status {
        ConditionStatus::True => ConditionJudgement { message, next_try, ..judged },
        ConditionStatus::False | ConditionStatus::Unknown => ConditionJudgement { next_try, ..judged },
    }
}

/// The parts of the class that are ignored or can't be read, if there are any.
fn judge_unsupported(observation: &ClassObservation) -> Option<ConditionJudgement> {
    let ignored = &observation.unsupported;
    let ignored =
        (!ignored.is_empty()).then(|| format!("unsupported, so ignored: `{}`", ignored.join("`, `")));
    let parts: Vec<String> =
        ignored.into_iter().chain(observation.image_notices.unreadable.clone()).collect();
    (!parts.is_empty()).then(|| ConditionJudgement {
        condition: ConditionType::Unsupported,
        status: ConditionStatus::True,
        reason: ConditionReason::UnsupportedFields,
        message: parts.join("; "),
        next_try: None,
    })
}

/// Whether the class's zones are in service. That one isn't keeps it from nothing: the others are launched in.
fn judge_shifts(seen: &Seen<BTreeSet<ShiftedZone>>, subnets: &Seen<Vec<ClassSubnet>>) -> ConditionJudgement {
    let condition = ConditionType::ZonesInService;
    let Seen::Holds(shifted) = seen else { return judge_part(condition, seen) };
    let told = |shifted: &ShiftedZone| match subnets {
        Seen::Holds(subnets) => {
            let in_zone = subnets.iter().find(|subnet| subnet.zone_id == shifted.zone_id)?;
            Some(shifted.words(Some(&in_zone.zone)))
        }
        Seen::Refused { .. } | Seen::Unseen { .. } => Some(shifted.words(None)),
    };
    let zones: Vec<String> = shifted.iter().filter_map(told).collect();
    if zones.is_empty() {
        return holds(condition);
    }
    ConditionJudgement {
        condition,
        status: ConditionStatus::False,
        reason: ConditionReason::ZonalShiftActive,
        message: format!("not launching in zones with a zonal shift: {}", zones.join(", ")),
        next_try: None,
    }
}

fn holds(condition: ConditionType) -> ConditionJudgement {
    ConditionJudgement {
        condition,
        status: ConditionStatus::True,
        reason: ConditionReason::Holds,
        message: String::new(),
        next_try: None,
    }
}

fn judge_part<T>(condition: ConditionType, seen: &Seen<T>) -> ConditionJudgement {
    match seen {
        Seen::Holds(_) => holds(condition),
        Seen::Refused { reason, message } => ConditionJudgement {
            condition,
            status: ConditionStatus::False,
            reason: *reason,
            message: message.clone(),
            next_try: None,
        },
        Seen::Unseen { reason, message, next_try } => ConditionJudgement {
            condition,
            status: ConditionStatus::Unknown,
            reason: *reason,
            message: message.clone(),
            next_try: Some(*next_try),
        },
    }
}

/// The conjunction if not all hold: False if one is False, otherwise Unknown until the first retry.
fn conjunction(
    condition: ConditionType,
    reason: ConditionReason,
    of: &[ConditionJudgement],
) -> Option<ConditionJudgement> {
    let not_true: Vec<&ConditionJudgement> =
        of.iter().filter(|below| below.status != ConditionStatus::True).collect();
    if not_true.is_empty() {
        return None;
    }
    let refused = not_true.iter().any(|below| below.status == ConditionStatus::False);
    let names: Vec<String> = not_true
        .iter()
        .map(|below| format!("`{}`={}", below.condition.as_str(), below.status.as_str()))
        .collect();
    Some(ConditionJudgement {
        condition,
        status: if refused { ConditionStatus::False } else { ConditionStatus::Unknown },
        reason,
        message: names.join(", "),
        next_try: not_true.iter().filter_map(|below| below.next_try).min(),
    })
}

fn dated(
    judgement: ConditionJudgement,
    generation: u64,
    previous: Option<&ClassStatus>,
    now: Timestamp,
) -> Condition {
    let ConditionJudgement { condition, status, reason, message, next_try } = judgement;
    let before = previous.and_then(|previous| previous.condition(condition));
    let since = before.filter(|before| before.status == status).map_or(now, |before| before.since);
    Condition { condition, status, reason, message, since, observed_generation: generation, next_try }
}

#[cfg(test)]
mod tests;
