//! Conditions of one observation, and what the next one keeps.

use super::*;
use crate::api::meta::ObjectMeta;
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

#[test]
fn a_status_is_of_a_class_of_its_uid_and_generation() {
    let meta = |uid: Option<&str>, generation| ObjectMeta {
        uid: uid.map(|uid| uid.parse().unwrap()),
        generation,
        ..ObjectMeta::default()
    };
    let status = |uid: Option<&str>| {
        let uid = uid.map(|uid| uid.parse().unwrap());
        ClassStatus::observed(ClassObservation { uid, ..observation() }, None, at(0))
    };
    let (known, old) = (status(Some("a")), status(None));
    assert!(
        known.is_of(&meta(Some("a"), 3)) && old.is_of(&meta(Some("a"), 3)) && known.is_of(&meta(None, 3))
    );
    assert!(!known.is_of(&meta(Some("b"), 3)) && !known.is_of(&meta(Some("a"), 4)));
}

fn observation() -> ClassObservation {
    ClassObservation {
        name: NodeClassName::parse("default").unwrap(),
        generation: 3,
        uid: None,
        spec_digest: "abc".to_owned(),
        hash: None,
        subnets: Seen::Holds(vec![subnet("subnet-b", 5), subnet("subnet-a", 5), subnet("subnet-c", 9)]),
        security_groups: Seen::Holds(vec![]),
        images: Seen::Holds(vec![]),
        image_notices: ImageNotices::default(),
        instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
        asked_profile: None,
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
    let refused =
        Seen::Refused { reason: ConditionReason::AmiNotFound, message: "no image is available".to_owned() };
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
    let second =
        ClassStatus::observed(ClassObservation { subnets: unseen(), ..observation() }, Some(&first), at(9));
    assert_eq!((second.subnets.len(), second.ready(), second.revision), (3, false, 2));
    assert_eq!(second.obstacle().unwrap().condition, ConditionType::SubnetsReady);
    assert_eq!(second.condition(ConditionType::AmisReady).unwrap().since, at(0));
    assert_eq!(second.condition(ConditionType::Ready).unwrap().since, at(9));
    let changed = ClassObservation { subnets: unseen(), spec_digest: "def".to_owned(), ..observation() };
    assert_eq!(ClassStatus::observed(changed, Some(&first), at(9)).subnets, []);
}

/// A launch that is to show whether nodes can have the profile must name it.
#[test]
fn a_profile_that_a_launch_decides_about_is_named_by_launches() {
    let asked = InstanceProfile::Name("nodes".to_owned());
    let check = |seen: Seen<InstanceProfile>, expected: bool| {
        let observation = ClassObservation {
            instance_profile: seen.clone(),
            asked_profile: Some(asked.clone()),
            ..observation()
        };
        let named = ClassStatus::observed(observation, None, at(0)).instance_profile;
        assert_eq!(named, expected.then(|| asked.clone()), "{seen:?}");
    };
    let refused = |reason| Seen::Refused { reason, message: "no".to_owned() };
    let unseen = |reason| Seen::Unseen { reason, message: "no answer".to_owned(), next_try: at(60) };
    check(Seen::Holds(asked.clone()), true);
    check(unseen(ConditionReason::InstanceProfileNotChecked), true);
    check(refused(ConditionReason::LaunchRefused), true);
    check(refused(ConditionReason::InstanceProfileNotFound), false);
    check(unseen(ConditionReason::InstanceProfileNotPropagated), false);
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
    let expected =
        "not launching in zones with a zonal shift: `us-east-1a` (use1-az1) until 1970-01-01T00:10:00Z";
    assert_eq!(message, expected);
    assert!(status.subnets.iter().all(|subnet| subnet.is_shifted(at(599)) && !subnet.is_shifted(at(600))));
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
    let refused = Seen::Refused { reason: ConditionReason::ImagesRejected, message: "too young".to_owned() };
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
