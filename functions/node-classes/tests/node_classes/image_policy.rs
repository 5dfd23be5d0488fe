//! Images that a class rejects, by its policy or for what they are.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::class_status::ConditionType;
use tenon_domain::id::ImageId;
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_ec2::port::{EnaSupport, ImageFacts, ImagePlatform, RootDeviceType, Tags};
use tenon_harness::RungBell;
use tenon_twin::NewImage;

use crate::running::{Running, allowances, class, image, running, tags};

const APPROVED: &str = r#"{"requiredTags":{"stage":"approved"}}"#;
const AGED: &str = r#"{"minimumAge":"2h"}"#;

fn with_policy(policy: &str, replaced: Value) -> Value {
    let mut class = class(replaced);
    if !policy.is_empty() {
        class["metadata"]["annotations"] = json!({"tenon.dev/image-policy": policy});
    }
    class
}

fn staged(name: &str, stage: &str) -> NewImage {
    let staged = Tags::from([("stage".to_owned(), stage.to_owned())]);
    NewImage { tags: tags().into_iter().chain(staged).collect(), ..image(name) }
}

/// A condition's message. All images here are of one architecture, which `AMIsReady` always says.
fn told(running: &Running, condition: ConditionType) -> String {
    let status = running.status().unwrap();
    let message = status.condition(condition).map(|told| told.message.clone()).unwrap_or_default();
    let other = "no image for arm64 types";
    let rest = message.strip_suffix(other).map(|rest| rest.trim_end_matches("; ").to_owned());
    rest.unwrap_or(message)
}

fn recorded(running: &Running, id: &ImageId) -> Vec<Decision> {
    let subject = Subject { kind: SubjectKind::Image, name: id.to_string() };
    running.recorded_of(subject).into_iter().map(|record| record.decision).collect()
}

/// An older image that is always accepted, and a newer one: the class takes it, or has this against it.
fn check(newer: NewImage, policy: &str, replaced: Value, expected: &str) {
    let running = running(allowances());
    let old = running.world.ec2.add_image(staged("nodes-1", "approved"));
    running.world.clock.advance(SignedDuration::from_hours(3));
    let new = running.world.ec2.add_image(newer);
    running.report(&[with_policy(policy, replaced)]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "ready", "{policy} {expected}");
    let rejected = running.status().unwrap().rejected_images;
    let words = |id: &ImageId| {
        let reasons = rejected.iter().filter(|image| image.id == *id).flat_map(|image| &image.reasons);
        reasons.map(|reason| reason.fault.as_str()).collect::<Vec<_>>().join(" ")
    };
    let found = if running.images() == [new.clone()] { "taken".to_owned() } else { words(&new) };
    assert_eq!(found, expected, "{policy}");
    assert_eq!(words(&old), "");
}

/// The facts of a current image, edited.
fn made(edit: impl Fn(&mut ImageFacts)) -> NewImage {
    let mut image = image("nodes-2");
    edit(&mut image.facts);
    image
}

#[test]
fn a_policy_rejects_what_it_is_to_keep_out() {
    let plain = || image("nodes-2");
    check(plain(), "", json!({}), "taken");
    check(plain(), "{}", json!({}), "taken");
    check(plain(), AGED, json!({}), "TooYoung");
    check(plain(), r#"{"minimumAge":"0s"}"#, json!({}), "taken");
    check(plain(), APPROVED, json!({}), "TagsMissing");
    check(staged("nodes-2", "building"), APPROVED, json!({}), "TagsMissing");
    check(staged("nodes-2", "approved"), APPROVED, json!({}), "taken");
    check(staged("nodes-2", "building"), "requiredTags: {stage: '*'}", json!({}), "taken");
    let both = r#"{"minimumAge":"2h","requiredTags":{"stage":"approved"}}"#;
    check(plain(), both, json!({}), "TooYoung TagsMissing");
    let foreign = || NewImage {
        owner: Some("999988887777".to_owned()),
        owner_alias: Some("amazon".to_owned()),
        tags: tags(),
        ..plain()
    };
    let by_tags = || json!({"amiSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}]});
    check(foreign(), "", by_tags(), "taken");
    check(foreign(), r#"{"owners":["self"]}"#, by_tags(), "OwnerNotAccepted");
    check(foreign(), r#"{"owners":["self","amazon"]}"#, by_tags(), "taken");
}

#[test]
fn an_image_that_no_node_can_have_is_rejected() {
    let large = || {
        made(|facts| {
            for volume in facts.volumes.values_mut() {
                volume.size_gib = Some(30);
            }
        })
    };
    let mapped = |size: &str| json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]});
    check(large(), "", json!({}), "VolumeTooSmall");
    check(large(), "", mapped("29Gi"), "VolumeTooSmall");
    check(large(), "", mapped("30Gi"), "taken");
    check(large(), "", mapped("32G"), "taken");
    check(made(|facts| facts.ena = Some(EnaSupport::Missing)), "", json!({}), "EnaMissing");
    let stored = |facts: &mut ImageFacts| facts.root_device_type = Some(RootDeviceType::InstanceStore);
    check(made(stored), "", json!({}), "InstanceStoreRoot");
    let windows = |facts: &mut ImageFacts| facts.platform = Some(ImagePlatform::Windows);
    check(made(windows), "", json!({}), "WrongPlatform");
    check(made(windows), "", json!({"amiFamily": "Custom"}), "taken");
    check(made(|facts| *facts = ImageFacts::default()), "", json!({}), "taken");
}

#[test]
fn a_rejected_newest_image_leaves_the_class_on_its_own_and_is_told_once_until_it_is_approved() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(staged("nodes-1", "approved"));
    running.report(&[with_policy(APPROVED, json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.images(), running.said()), (vec![old.clone()], vec!["Node Class Ready".to_owned()]));
    running.world.clock.advance(SignedDuration::from_secs(60));
    let new = running.world.ec2.add_image(staged("nodes-2", "building"));
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!((running.images(), running.obstacle().as_str()), (vec![old], "ready"));
    assert_eq!(running.said(), ["Image Rejected"]);
    let message = format!("not taking: `{new}` (`nodes-2`) isn't tagged `stage=approved`");
    assert_eq!(told(&running, ConditionType::AmisReady), message);
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.said(), [""; 0]);
    assert_eq!(recorded(&running, &new), [Decision::ImageRejected]);
    // The pipeline's second word.
    running.world.ec2.tag_image(&new, "stage", "approved").unwrap();
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!((running.images(), running.said()), (vec![new], vec!["Node Class Ready".to_owned()]));
    assert_eq!(told(&running, ConditionType::AmisReady), "");
    assert_eq!(running.status().unwrap().rejected_images, []);
}

#[test]
fn an_image_is_taken_at_the_moment_when_it_is_old_enough() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.world.clock.advance(SignedDuration::from_hours(3));
    let new = running.world.ec2.add_image(image("nodes-2"));
    let old_enough = running.world.clock.now() + SignedDuration::from_hours(2);
    running.report(&[with_policy(AGED, json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), std::slice::from_ref(&old));
    assert_eq!(running.status().unwrap().next_try(), Some(old_enough));
    running.world.clock.advance(SignedDuration::from_mins(118));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), [old]);
    let rung = running.world.signals.take();
    let looks = |bell: &RungBell| matches!(bell, RungBell::Wake { function: FunctionName::NodeClasses, .. });
    assert_eq!(rung.iter().filter(|bell| looks(bell)).count(), 1, "{rung:?}");
    running.world.clock.advance(SignedDuration::from_mins(2));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), [new]);
}

#[test]
fn a_policy_that_can_not_be_read_lets_no_image_in() {
    const WRONG: &str = "minimumAge: soon";
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.world.clock.advance(SignedDuration::from_secs(60));
    let new = running.world.ec2.add_image(image("nodes-2"));
    running.report(&[with_policy(WRONG, json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.images(), running.obstacle().as_str()), (vec![old], "ready"));
    let problem = "can't read annotation `tenon.dev/image-policy`: `minimumAge` has `soon`";
    for condition in [ConditionType::AmisReady, ConditionType::Unsupported] {
        let message = told(&running, condition);
        assert!(message.contains(problem), "{message}");
    }
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.images(), told(&running, ConditionType::Unsupported).as_str()), (vec![new], ""));
}

#[test]
fn a_class_without_images_and_with_an_unreadable_policy_is_not_ready() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[with_policy("2h", json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False ImagePolicyInvalid");
    assert!(running.message().contains("correct the annotation, or remove it"), "{}", running.message());
}

#[test]
fn where_no_image_is_accepted_the_class_keeps_its_own_while_ec2_launches_it() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.report(&[with_policy(APPROVED, json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.images(), running.obstacle().as_str()), (vec![old.clone()], "ready"));
    let message = format!(
        "keeping image `{old}`, because no other is accepted, though it isn't tagged `stage=approved`"
    );
    assert_eq!(told(&running, ConditionType::AmisReady), message);
    running.world.ec2.deregister_image(&old).unwrap();
    running.wake(WakeCause::ImageChanged(Some(old.clone())));
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
    let says_so = || running.message().contains(&format!("EC2 doesn't return `{old}`"));
    assert!(says_so(), "{}", running.message());
    // A later look knows no image of the class any more.
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert!(says_so(), "{}", running.message());
}

#[test]
fn a_new_class_whose_images_are_all_rejected_is_not_ready_and_looks_again() {
    let running = running(allowances());
    let now = running.world.clock.now();
    let young = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[with_policy(AGED, json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False ImagesRejected");
    assert_eq!(running.status().unwrap().next_try(), Some(now + SignedDuration::from_hours(2)));
    running.world.clock.advance(SignedDuration::from_hours(2));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.images(), running.obstacle().as_str()), (vec![young], "ready"));
}

#[test]
fn a_deprecated_image_is_the_last_choice_or_none() {
    let taken = |policy: &str| {
        let running = running(allowances());
        let deprecated_at = Some(running.world.clock.now());
        running.world.ec2.add_image(NewImage { deprecated_at, ..image("nodes-1") });
        running.report(&[with_policy(policy, json!({}))]);
        running.wake(WakeCause::SnapshotChanged);
        running.obstacle()
    };
    assert_eq!(taken(""), "ready");
    assert_eq!(taken(r#"{"deprecated":"accept"}"#), "ready");
    assert_eq!(taken(r#"{"deprecated":"reject"}"#), "AMIsReady=False ImagesRejected");
}

#[test]
fn an_image_that_is_disabled_under_its_class_is_told_with_the_one_before() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.world.clock.advance(SignedDuration::from_secs(60));
    let new = running.world.ec2.add_image(image("nodes-2"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), std::slice::from_ref(&new));
    running.said();
    running.world.clock.advance(SignedDuration::from_secs(60));
    running.world.ec2.disable_image(&new).unwrap();
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!((running.images(), running.said()), (vec![old], vec!["Node Class Ready".to_owned()]));
    assert_eq!(
        told(&running, ConditionType::AmisReady),
        format!("not taking: `{new}` (`nodes-2`) is disabled")
    );
    let message = running.recorded("default").pop().unwrap().message;
    assert!(message.ends_with(&format!("instead of {new} (disabled)")), "{message}");
}

#[test]
fn a_root_device_that_the_class_does_not_map_is_told() {
    let root = "/dev/sda1".to_owned();
    let other = made(|facts| {
        facts.volumes = facts.volumes.values().map(|volume| (root.clone(), volume.clone())).collect();
        facts.root_device_name = Some(root.clone());
    });
    let running = running(allowances());
    running.world.ec2.add_image(other);
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let message = told(&running, ConditionType::AmisReady);
    assert!(message.contains("is `/dev/sda1`, so `/dev/xvda` becomes another volume"), "{message}");
    let mapped = json!({"blockDeviceMappings": [{"deviceName": root, "ebs": {"volumeSize": "20Gi"}}]});
    running.report(&[class(mapped)]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(told(&running, ConditionType::AmisReady), "");
}
