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
use crate::id::NodeClassName;
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
            name, generation, spec_digest, hash, subnets, security_groups, images, ..
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
            hash,
            subnets: kept(subnets, known.map(|k| &k.subnets)).unwrap_or_default(),
            security_groups: kept(security_groups, known.map(|k| &k.security_groups)).unwrap_or_default(),
            images: kept(images, known.map(|k| &k.images)).unwrap_or_default(),
            rejected_images: observation.image_notices.rejected,
            reservations: kept_reservations(observation.reservations, known),
            placement_group: observation
                .placement_group
                .and_then(|seen| kept(seen, known.and_then(|known| known.placement_group.as_ref()))),
            instance_profile: kept(
                observation.instance_profile,
                known.and_then(|k| k.instance_profile.as_ref()),
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
    let concerned = |shifted: &&ShiftedZone| match subnets {
        Seen::Holds(subnets) => subnets.iter().any(|subnet| subnet.zone_id == shifted.zone_id),
        Seen::Refused { .. } | Seen::Unseen { .. } => true,
    };
    let zones: Vec<String> = shifted
        .iter()
        .filter(concerned)
        .map(|shifted| format!("`{}` {}", shifted.zone_id, shifted.end))
        .collect();
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
mod tests {
    use super::*;
    use crate::catalog::facts::PlacementStrategy;
    use crate::id::{SubnetId, Zone, ZoneId};
    use crate::zonal_shift::ShiftEnd;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn subnet(name: &str, free_addresses: u32) -> ClassSubnet {
        ClassSubnet {
            id: SubnetId::parse(name).unwrap(),
            zone: Zone::parse("us-east-1a").unwrap(),
            zone_id: ZoneId::parse("use1-az1").unwrap(),
            free_addresses,
            shifted: None,
        }
    }

    fn observation() -> ClassObservation {
        ClassObservation {
            name: NodeClassName::parse("default").unwrap(),
            generation: 3,
            spec_digest: "abc".to_owned(),
            hash: None,
            subnets: Seen::Holds(vec![subnet("subnet-b", 5), subnet("subnet-a", 5), subnet("subnet-c", 9)]),
            security_groups: Seen::Holds(vec![]),
            images: Seen::Holds(vec![]),
            image_notices: ImageNotices::default(),
            instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
            profile_seen: None,
            reservations: None,
            placement_group: None,
            shifts: None,
            validation: Seen::Holds(()),
            validation_note: None,
            unsupported: vec![],
        }
    }

    fn unseen<T>() -> Seen<T> {
        let reason = ConditionReason::SubnetResolutionFailed;
        Seen::Unseen { reason, message: "throttled".to_owned(), next_try: at(60) }
    }

    fn check(observation: ClassObservation, expected: &[&str]) {
        let status = ClassStatus::observed(observation, None, at(0));
        let lines: Vec<String> = status
            .conditions
            .iter()
            .map(|c| format!("{} {} {}", c.condition.as_str(), c.status.as_str(), c.reason_text()))
            .collect();
        assert_eq!(lines, expected);
        for condition in &status.conditions {
            assert!(
                condition.status != ConditionStatus::Unknown || condition.next_try.is_some(),
                "{condition:?}"
            );
        }
    }

    #[test]
    fn all_conditions_come_from_one_observation() {
        check(
            observation(),
            &[
                "AMIsReady True AMIsReady",
                "SubnetsReady True SubnetsReady",
                "SecurityGroupsReady True SecurityGroupsReady",
                "InstanceProfileReady True InstanceProfileReady",
                "ValidationSucceeded True ValidationSucceeded",
                "Ready True Ready",
            ],
        );
        let refused = Seen::Refused {
            reason: ConditionReason::AmiNotFound,
            message: "no image is available".to_owned(),
        };
        check(
            ClassObservation {
                images: refused,
                subnets: unseen(),
                unsupported: vec!["spec.context".to_owned()],
                ..observation()
            },
            &[
                "AMIsReady False AMINotFound",
                "SubnetsReady Unknown SubnetResolutionFailed",
                "SecurityGroupsReady True SecurityGroupsReady",
                "InstanceProfileReady True InstanceProfileReady",
                "ValidationSucceeded False DependenciesNotReady",
                "Ready False UnhealthyDependents",
                "tenon.dev/Unsupported True UnsupportedFields",
            ],
        );
    }

    #[test]
    fn what_isnt_seen_keeps_what_was_known_of_the_same_spec() {
        let first = ClassStatus::observed(observation(), None, at(0));
        let ids: Vec<&str> = first.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
        assert_eq!(ids, ["subnet-c", "subnet-a", "subnet-b"]);
        let second = ClassStatus::observed(
            ClassObservation { subnets: unseen(), ..observation() },
            Some(&first),
            at(9),
        );
        assert_eq!((second.subnets.len(), second.ready(), second.revision), (3, false, 2));
        assert_eq!(second.obstacle().unwrap().condition, ConditionType::SubnetsReady);
        assert_eq!(second.condition(ConditionType::AmisReady).unwrap().since, at(0));
        assert_eq!(second.condition(ConditionType::Ready).unwrap().since, at(9));
        let changed = ClassObservation { subnets: unseen(), spec_digest: "def".to_owned(), ..observation() };
        assert_eq!(ClassStatus::observed(changed, Some(&first), at(9)).subnets, []);
    }

    fn shifted(zone: &str) -> ShiftedZone {
        ShiftedZone { zone_id: ZoneId::parse(zone).unwrap(), end: ShiftEnd::At(at(600)) }
    }

    #[test]
    fn a_selected_placement_group_is_a_condition_and_none_is_none() {
        let group = ResolvedPlacementGroup {
            id: "pg-1".parse().unwrap(),
            name: "near".to_owned(),
            strategy: PlacementStrategy::Cluster,
            partitions: None,
        };
        let observed = |seen, previous: Option<&ClassStatus>| {
            let observation = ClassObservation { placement_group: seen, ..observation() };
            ClassStatus::observed(observation, previous, at(0))
        };
        let plain = observed(None, None);
        assert!(plain.condition(ConditionType::PlacementGroupReady).is_none() && plain.ready());
        let found = observed(Some(Seen::Holds(group.clone())), None);
        assert_eq!(found.placement_group, Some(group.clone()));
        assert!(found.ready());
        let refused = Seen::Refused {
            reason: ConditionReason::PlacementGroupNotFound,
            message: "no such group".to_owned(),
        };
        let gone = observed(Some(refused), Some(&found));
        assert_eq!(gone.placement_group, None);
        assert_eq!(gone.obstacle().unwrap().reason_text(), "PlacementGroupNotFound");
        assert!(!gone.ready());
        let unanswered = observed(Some(unseen()), Some(&found));
        assert_eq!(unanswered.placement_group, Some(group));
    }

    fn with_shifts(shifts: Seen<BTreeSet<ShiftedZone>>) -> ClassObservation {
        ClassObservation { shifts: Some(shifts), ..observation() }
    }

    fn told(status: &ClassStatus) -> String {
        let found = status.condition(ConditionType::ZonesInService);
        found.map_or("untold".to_owned(), |c| format!("{} {}", c.status.as_str(), c.reason_text()))
    }

    #[test]
    fn a_shifted_zone_is_told_and_keeps_the_class_from_nothing() {
        let away = with_shifts(Seen::Holds(BTreeSet::from([shifted("use1-az1"), shifted("use1-az2")])));
        let status = ClassStatus::observed(away, None, at(0));
        assert_eq!((told(&status).as_str(), status.ready()), ("False ZonalShiftActive", true));
        let message = &status.condition(ConditionType::ZonesInService).unwrap().message;
        let expected = "not launching in zones with a zonal shift: `use1-az1` until 1970-01-01T00:10:00Z";
        assert_eq!(message, expected);
        assert!(
            status.subnets.iter().all(|subnet| subnet.is_shifted(at(599)) && !subnet.is_shifted(at(600)))
        );
        // The new spec has no observation yet, but the shift is known.
        let reason = ConditionReason::ZonalShiftResolutionFailed;
        let unseen = Seen::Unseen { reason, message: "throttled".to_owned(), next_try: at(60) };
        let unanswered = ClassObservation { spec_digest: "def".to_owned(), ..with_shifts(unseen) };
        let kept = ClassStatus::observed(unanswered, Some(&status), at(9));
        assert_eq!(
            (told(&kept).as_str(), kept.shifts()),
            ("Unknown ZonalShiftResolutionFailed", status.shifts())
        );
        assert!(kept.ready());
        let back = ClassStatus::observed(with_shifts(Seen::Holds(BTreeSet::new())), Some(&kept), at(9));
        assert_eq!((told(&back).as_str(), back.shifts().len()), ("True ZonesInService", 0));
        let off = ClassStatus::observed(observation(), Some(&status), at(9));
        assert_eq!((told(&off).as_str(), off.shifts().len()), ("untold", 0));
    }

    #[test]
    fn a_note_is_told_of_a_validation_that_holds_and_of_no_other() {
        let note = |reason| Some(ValidationNote { reason, message: "denied by a policy".to_owned() });
        let check = |validation, reason, expected| {
            let noted = ClassObservation { validation, validation_note: note(reason), ..observation() };
            let status = ClassStatus::observed(noted, None, at(0));
            let told = status.condition(ConditionType::ValidationSucceeded).unwrap();
            assert_eq!((told.reason_text(), told.message.as_str(), status.ready()), expected);
        };
        let (warned, disabled) = (ConditionReason::Holds, ConditionReason::DryRunDisabled);
        check(Seen::Holds(()), warned, ("ValidationSucceeded", "denied by a policy", true));
        check(Seen::Holds(()), disabled, ("DryRunDisabled", "denied by a policy", true));
        let reason = ConditionReason::AwaitingValidation;
        let awaited = Seen::Unseen { reason, message: "not yet".to_owned(), next_try: at(60) };
        check(awaited, warned, ("AwaitingValidation", "not yet", false));
    }

    #[test]
    fn what_else_is_known_of_images_is_told_though_the_class_is_ready() {
        let notices = ImageNotices {
            message: "not taking `ami-2`".to_owned(),
            unreadable: Some("can't read it".to_owned()),
            next_try: Some(at(60)),
            ..ImageNotices::default()
        };
        let seen = ClassObservation { image_notices: notices.clone(), ..observation() };
        let status = ClassStatus::observed(seen, None, at(0));
        let condition = |wanted| status.condition(wanted).unwrap();
        assert_eq!(condition(ConditionType::AmisReady).message, "not taking `ami-2`");
        assert_eq!(condition(ConditionType::Unsupported).message, "can't read it");
        assert_eq!((status.ready(), status.next_try()), (true, Some(at(60))));
        let refused =
            Seen::Refused { reason: ConditionReason::ImagesRejected, message: "too young".to_owned() };
        let seen = ClassObservation { images: refused, image_notices: notices, ..observation() };
        let status = ClassStatus::observed(seen, None, at(0));
        let amis = status.condition(ConditionType::AmisReady).unwrap();
        assert_eq!((amis.message.as_str(), amis.next_try), ("too young", Some(at(60))));
    }

    #[test]
    fn looking_again_and_seeing_the_same_is_no_change() {
        let first = ClassStatus::observed(observation(), None, at(0));
        assert!(first.same_as(&ClassStatus::observed(observation(), Some(&first), at(60))));
        let other = ClassObservation { subnets: unseen(), ..observation() };
        assert!(!first.same_as(&ClassStatus::observed(other, Some(&first), at(60))));
    }
}
