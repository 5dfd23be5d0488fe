//! What instances show about their images.

use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord};
use tenon_domain::class_status::{ClassObservation, ClassStatus, ConditionReason, ImageNotices, Seen};
use tenon_domain::id::{ImageId, NodeClassName};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::StateReason;

use super::*;
use crate::boots::BootLesson;

fn image() -> ImageId {
    held(0).image
}

fn class() -> NodeClassName {
    claim(0, ClaimState::Planned).class
}

/// The class as it resolved.
fn status() -> ClassStatus {
    fn none<T>() -> Seen<T> {
        Seen::Refused { reason: ConditionReason::ClusterNotRegistered, message: String::new() }
    }
    let observation = ClassObservation {
        name: class(),
        generation: 1,
        uid: None,
        spec_digest: "v2-1".to_owned(),
        hash: None,
        subnets: none(),
        security_groups: none(),
        images: none(),
        image_notices: ImageNotices::default(),
        instance_profile: none(),
        asked_profile: None,
        profile_seen: None,
        reservations: None,
        placement_group: None,
        shifts: None,
        validation: none(),
        validation_note: None,
        unsupported: Vec::new(),
    };
    ClassStatus::observed(observation, None, EPOCH)
}

/// A minute-old claim whose instance EC2 ended with this reason.
fn ended(code: &str, words: &str) -> LifecycleInput {
    let mut gone = instance(0, InstanceState::Terminated, minutes(1));
    gone.state_reason = Some(StateReason { code: code.to_owned(), message: words.to_owned() });
    of_class(with_ec2(input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![]), vec![gone]))
}

/// A claim whose instance runs without a Node.
fn missing() -> LifecycleInput {
    let runs = instance(0, InstanceState::Running, minutes(1));
    of_class(with_ec2(input(minutes(16), vec![claim(0, launched(0, minutes(1)))], vec![]), vec![runs]))
}

fn of_class(mut seen: LifecycleInput) -> LifecycleInput {
    seen.classes.insert(class(), status());
    seen
}

fn faults(seen: &LifecycleInput) -> Vec<(BootFault, usize)> {
    let lessons = planned(seen).0.boots;
    let fault = |lesson: BootLesson| Some((lesson.record?.failure?.fault, lesson.holds.len()));
    lessons.into_iter().filter_map(fault).collect()
}

fn known(joined_at: Option<Timestamp>, failed_at: Option<Timestamp>) -> BootRecord {
    let failure = failed_at.map(|at| BootFailure {
        fault: BootFault::LaunchFailed,
        code: None,
        message: String::new(),
        instance: id(9),
        at,
        form: BootForm { spec_digest: "v2-1".to_owned(), refresh: None },
    });
    BootRecord { revision: 4, joined_at, failure, ..BootRecord::new(cluster(), class(), image()) }
}

fn with_record(mut seen: LifecycleInput, record: BootRecord) -> LifecycleInput {
    seen.boots.insert((record.class.clone(), record.image.clone()), record);
    seen
}

#[test]
fn an_instance_that_ec2_ends_for_its_image_before_a_node_joins_blames_the_image() {
    let words = "Client.InternalError: Client error on launch";
    let seen = ended("Client.InternalError", words);
    assert_eq!(faults(&seen), [(BootFault::LaunchFailed, 1)]);
    let (plan, _) = planned(&seen);
    let failure = plan.boots[0].record.clone().unwrap().failure.unwrap();
    assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some("Client.InternalError"), words));
    let message = format!("EC2 terminated instance `{}` (instance terminated): {words}", id(0));
    assert_eq!(plan.steps[0].journal[0].message, message);
    assert_eq!(faults(&ended("Server.InternalError", words)), [(BootFault::LaunchFailed, 1)]);
    assert_eq!(faults(&ended("Server.SpotInstanceTermination", "")), vec![]);
    assert_eq!(faults(&ended("Client.UserInitiatedShutdown", "")), vec![]);
    // With a Node it isn't the image.
    let mut joined = ended("Client.InternalError", words);
    joined.claims = BTreeMap::from([(name(0), claim(0, registered(0, minutes(1))))]);
    assert_eq!(faults(&joined), vec![]);
}

#[test]
fn a_node_that_never_joins_blames_only_an_image_of_which_none_ever_joined() {
    assert_eq!(faults(&missing()), [(BootFault::NeverJoined, 1)]);
    assert_eq!(faults(&with_record(missing(), known(Some(EPOCH), None))), vec![]);
    let mut proven = missing();
    proven.claims.insert(name(1), claim(1, initialized(1, minutes(3))));
    assert_eq!(faults(&proven), vec![]);
    // An agent that never reported shows no Node of any image.
    let mut blind = missing();
    blind.snapshot = Err(Waiting::SnapshotMissing);
    let (plan, _) = planned(&blind);
    assert_eq!((plan.steps.len(), plan.boots.len()), (1, 0));
}

#[test]
fn another_form_of_the_class_than_the_launched_one_is_not_blamed() {
    let mut seen = missing();
    let hash = |text: &str| Some(text.parse().unwrap());
    let mut changed = status();
    changed.hash = hash("2");
    seen.classes.insert(class(), changed);
    seen.claims =
        BTreeMap::from([(name(0), Claim { class_hash: hash("1"), ..claim(0, launched(0, minutes(1))) })]);
    assert_eq!(faults(&seen), vec![]);
}

#[test]
fn a_node_that_joins_is_remembered_once_and_clears_an_earlier_failure() {
    let joins = |record: Option<BootRecord>| {
        let seen = input(minutes(9), vec![claim(0, launched(0, minutes(1)))], vec![node(0)]);
        let seen = record.into_iter().fold(of_class(seen), with_record);
        planned(&seen).0.boots.into_iter().filter_map(|lesson| lesson.record).collect::<Vec<_>>()
    };
    let first = joins(None);
    assert_eq!((first[0].revision, first[0].joined_at), (1, Some(minutes(9))));
    assert_eq!(joins(Some(known(Some(minutes(8)), None))), vec![]);
    let created = claim(0, ClaimState::Planned).created_at;
    let earlier = created - SignedDuration::from_secs(1);
    let cleared = joins(Some(known(None, Some(earlier))));
    assert_eq!((cleared[0].revision, cleared[0].failure.is_none()), (5, true));
    let later = joins(Some(known(None, Some(created + SignedDuration::from_secs(1)))));
    assert!(later[0].failure.is_some());
}

#[test]
fn the_claim_steps_once_the_classes_had_time_to_look() {
    let seen = ended("Client.InternalError", "");
    let world = world_with(&seen.claims.values().cloned().collect::<Vec<_>>());
    let carry_out = |plan: &LifecyclePlan, now: Timestamp| {
        let done = block_on(crate::commit::commit(&world, &cluster(), plan, now)).unwrap();
        block_on(crate::execute::execute(&world, &cluster(), plan, &done, now)).unwrap();
        done
    };
    let done = carry_out(&planned(&seen).0, seen.now);
    assert_eq!((done.held.len(), done.claims.len(), done.looks_again()), (1, 0, true));
    let wake = |function, seconds| RungBell::Wake {
        function,
        cluster: cluster(),
        after: SignedDuration::from_secs(seconds),
    };
    let rung = world.signals.take();
    assert!(rung.contains(&wake(FunctionName::NodeClasses, 0)), "{rung:?}");
    assert!(rung.contains(&wake(FunctionName::Lifecycle, 5)), "{rung:?}");
    let key = keys::boot(&world.installation.region, &cluster(), &class(), &image());
    let written: BootRecord = from_item(&key, &world.table.peek(&key).unwrap()).unwrap();

    let mut again = with_record(ended("Client.InternalError", ""), written);
    again.now = seen.now + SignedDuration::from_secs(4);
    assert_eq!(carry_out(&planned(&again).0, again.now).held.len(), 1);
    again.now = seen.now + SignedDuration::from_secs(5);
    let done = carry_out(&planned(&again).0, again.now);
    assert_eq!((done.held.len(), done.claims.len()), (0, 1));
}

#[test]
fn a_claim_whose_image_failed_meanwhile_is_asked_about() {
    let created = claim(0, ClaimState::Planned).created_at;
    let asks = |failed_at| crate::boots::asks_ec2(&with_record(missing(), known(None, Some(failed_at))));
    assert!(asks(created + SignedDuration::from_secs(1)));
    assert!(!asks(created));
    assert!(!crate::boots::asks_ec2(&missing()));
}

#[test]
fn after_a_lost_race_over_a_lesson_the_claim_steps_at_once() {
    let seen = ended("Client.InternalError", "");
    let world = world_with(&seen.claims.values().cloned().collect::<Vec<_>>());
    let key = keys::boot(&world.installation.region, &cluster(), &class(), &image());
    block_on(world.table.commit(&content_commit(vec![], vec![put(key, &known(None, None))]))).unwrap();
    let done = block_on(crate::commit::commit(&world, &cluster(), &planned(&seen).0, seen.now)).unwrap();
    assert_eq!((done.held.len(), done.claims.len()), (0, 1));
    assert!(done.not_learned.is_none());
}
