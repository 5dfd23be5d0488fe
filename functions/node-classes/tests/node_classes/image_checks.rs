//! Images that a class rejects for what only a launch, its types or its snapshots show.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::class_status::{ConditionReason, ConditionType, ImageFault};
use tenon_domain::id::ImageId;
use tenon_domain::image::BootMode;
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::launch_verdict::{VALIDATION_REFRESH, VerdictOutcome};
use tenon_domain::unavailable::{LaunchAsked, Mark, Refusal, RefusalCause, RequestDigest, UnavailableKey};
use tenon_domain::wake::WakeCause;
use tenon_ec2::port::{ImageArchitecture, SnapshotState};
use tenon_table::items::{self, keys};
use tenon_twin::{Call, NewImage};

use crate::running::{Running, allowances, class, image, running, tags, validating};
use crate::validating::{answer, put};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn told(running: &Running) -> String {
    let status = running.status().unwrap();
    status.condition(ConditionType::AmisReady).unwrap().message.clone()
}

fn faults(running: &Running, id: &ImageId) -> Vec<ImageFault> {
    let rejected = running.status().unwrap().rejected_images;
    let of_this = rejected.iter().filter(|image| image.id == *id);
    of_this.flat_map(|image| image.reasons.iter().map(|reason| reason.fault)).collect()
}

fn booting(name: &str, architecture: ImageArchitecture, mode: BootMode) -> NewImage {
    let mut new = NewImage { tags: tags(), ..NewImage::named(name, architecture) };
    new.facts.boot_mode = Some(mode);
    new
}

#[test]
fn an_image_takes_the_types_that_boot_it_and_is_rejected_where_none_does() {
    let check = |new: NewImage, expected: &str| {
        let running = running(allowances());
        running.world.ec2.add_image(new);
        running.report(&[class(json!({}))]);
        running.wake(WakeCause::SnapshotChanged);
        let message = told(&running);
        assert!(message.contains(expected), "{message}");
        running.obstacle()
    };
    let x86 = |mode| booting("nodes-1", ImageArchitecture::X86_64, mode);
    assert_eq!(check(x86(BootMode::Uefi), "no image for x86_64 types without UEFI, arm64 types"), "ready");
    assert_eq!(check(x86(BootMode::UefiPreferred), "no image for arm64 types"), "ready");
    assert_eq!(check(x86(BootMode::LegacyBios), "no image for arm64 types"), "ready");
    let arm = |mode| booting("nodes-1", ImageArchitecture::Arm64, mode);
    assert_eq!(check(arm(BootMode::Uefi), "no image for x86_64 types"), "ready");
    let refused = "boots by legacy BIOS, and all arm64 types by UEFI";
    assert_eq!(check(arm(BootMode::LegacyBios), refused), "AMIsReady=False ImagesRejected");
}

/// A class that EC2 allowed launches from with its first image, and that took a second one.
fn updated() -> (Running, [ImageId; 2]) {
    let running = validating();
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    answer(&running, VerdictOutcome::Allowed, None);
    running.world.clock.advance(MINUTE);
    let new = running.world.ec2.add_image(image("nodes-2"));
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), std::slice::from_ref(&new));
    (running, [old, new])
}

fn refused(image: &ImageId) -> VerdictOutcome {
    let message = format!("EC2 refuses launches from this class (Not authorized for images: [{image}])");
    VerdictOutcome::Denied { reason: ConditionReason::LaunchRefused, message, image: Some(image.clone()) }
}

#[test]
fn an_image_that_ec2_refuses_leaves_the_class_on_the_one_before_for_an_hour() {
    let (running, [old, new]) = updated();
    answer(&running, refused(&new), None);
    assert_eq!(running.images(), std::slice::from_ref(&old));
    assert_eq!(faults(&running, &new), [ImageFault::LaunchRefused]);
    assert!(told(&running).contains("Not authorized for images"), "{}", told(&running));
    let subject = Subject { kind: SubjectKind::Image, name: new.to_string() };
    let records = running.recorded_of(subject);
    assert_eq!(records.iter().map(|record| record.decision).collect::<Vec<_>>(), [Decision::ImageRejected]);
    answer(&running, VerdictOutcome::Allowed, None);
    assert_eq!(running.obstacle(), "ready");
    for minutes in [5, 54] {
        running.world.clock.advance(SignedDuration::from_mins(minutes));
        running.wake(WakeCause::Sweep);
        assert_eq!((running.images(), running.obstacle().as_str()), (vec![old.clone()], "ready"));
    }
    running.world.clock.advance(MINUTE);
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), std::slice::from_ref(&new));
    // The second refusal in a row holds for two hours, and the class's owner may end it.
    answer(&running, refused(&new), None);
    answer(&running, VerdictOutcome::Allowed, None);
    running.world.clock.advance(SignedDuration::from_mins(90));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), [old]);
    let mut again: Value = class(json!({}));
    again["metadata"]["annotations"] = json!({VALIDATION_REFRESH: "1"});
    running.report(&[again]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), [new]);
}

#[test]
fn an_image_that_ec2_refused_while_it_was_disabled_is_taken_once_it_is_enabled() {
    let (running, [old, new]) = updated();
    running.world.ec2.disable_image(&new).unwrap();
    // EC2 refuses a launch before the class sees the change.
    answer(&running, refused(&new), None);
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), std::slice::from_ref(&old));
    answer(&running, VerdictOutcome::Allowed, None);
    running.world.clock.advance(MINUTE);
    running.world.ec2.enable_image(&new).unwrap();
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!((running.images(), faults(&running, &new)), (vec![new.clone()], Vec::new()));
    // What EC2 refuses from now on is refused for longer.
    answer(&running, refused(&new), None);
    answer(&running, VerdictOutcome::Allowed, None);
    running.world.clock.advance(SignedDuration::from_mins(90));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), [old]);
}

#[test]
fn without_another_image_a_refused_one_stays_and_the_class_is_not_ready() {
    let running = validating();
    let only = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    answer(&running, refused(&only), None);
    assert_eq!(running.images(), [only]);
    assert_eq!(running.obstacle(), "ValidationSucceeded=False LaunchRefused");
    assert!(told(&running).starts_with("keeping image"), "{}", told(&running));
}

#[test]
fn a_refused_launch_that_names_its_image_is_a_refusal_of_the_image() {
    let (running, [old, new]) = updated();
    refuse_launch(
        &running,
        "AMIAuthorizationFailure",
        &format!("AuthFailure: Not authorized for images: [{new}]"),
    );
    assert_eq!((running.images(), faults(&running, &new)), (vec![old], vec![ImageFault::LaunchRefused]));
}

/// What `provisioner` writes after EC2 refused a launch from the class as it is.
fn refuse_launch(running: &Running, code: &str, message: &str) {
    let status = running.status().unwrap();
    let key = UnavailableKey::Request(RequestDigest::of_class(&running.cluster, &status));
    let (launch, now) = ("launch-1".parse().unwrap(), running.world.clock.now());
    let asked = LaunchAsked { cluster: &running.cluster, launch: &launch, planned_at: now };
    let refusal = Refusal {
        key: &key,
        code,
        cluster: asked.cluster,
        cause: RefusalCause::Launch(asked.launch),
        vcpus: None,
        now,
    };
    let mark = Mark { message: Some(message.to_owned()), ..Mark::refused(None, &refusal).unwrap() };
    put(running, items::set(keys::unavailable(&running.world.installation.region, &key), &mark));
    running.wake(WakeCause::StateChanged);
}

#[test]
fn a_launch_that_ec2_refused_while_its_image_was_disabled_says_nothing_of_the_enabled_one() {
    let (running, [old, new]) = updated();
    running.world.ec2.disable_image(&new).unwrap();
    let message = format!("InvalidAMIID.Unavailable: The image ID '{new}' is not available: it is disabled");
    refuse_launch(&running, "InvalidAMIID", &message);
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), [old]);
    running.world.clock.advance(MINUTE);
    running.world.ec2.enable_image(&new).unwrap();
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    running.wake(WakeCause::StateChanged);
    let awaits = "ValidationSucceeded=Unknown AwaitingValidation";
    assert_eq!((running.images(), running.obstacle().as_str()), (vec![new], awaits));
    answer(&running, VerdictOutcome::Allowed, None);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn an_image_waits_for_its_own_snapshots_and_one_look_asks_for_them_once() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let asked = || running.world.ec2.calls().get(&Call::DescribeSnapshots).map_or(0, |count| count.made);
    let before = asked();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(asked(), before, "the class has the newest image");
    let new = running.world.ec2.add_image(image("nodes-2"));
    running.world.ec2.set_snapshots_of(&new, SnapshotState::Pending);
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!((running.images(), asked()), (vec![old.clone()], before + 1));
    assert_eq!(faults(&running, &new), [ImageFault::SnapshotPending]);
    running.world.ec2.set_snapshots_of(&new, SnapshotState::Error);
    running.world.clock.advance(MINUTE);
    running.wake(WakeCause::Sweep);
    assert_eq!((running.images(), faults(&running, &new)), (vec![old], vec![ImageFault::SnapshotFailed]));
    running.world.ec2.set_snapshots_of(&new, SnapshotState::Completed);
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), [new]);
}
