//! Whether EC2 allows launches, as a class's condition tells it.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::catalog::CapacityType;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::launch_verdict::{
    ClassVerdicts, JudgedRequest, LaunchVerdict, VALIDATION_REFRESH, VerdictOutcome,
};
use tenon_domain::unavailable::{LaunchAsked, Mark, Refusal, RefusalCause, RequestDigest, UnavailableKey};
use tenon_domain::wake::WakeCause;
use tenon_memory_table::block_on;
use tenon_table::items::{self, keys};
use tenon_table::{Table, Write, content_commit};

use crate::running::{Running, allowances, class, image, running, validating};

const AWAITS: &str = "ValidationSucceeded=Unknown AwaitingValidation";

pub(crate) fn put(running: &Running, write: Write) {
    block_on(running.world.table.commit(&content_commit(Vec::new(), vec![write]))).unwrap();
}

/// What `provisioner` writes after EC2's answer.
pub(crate) fn answer(running: &Running, outcome: VerdictOutcome, refresh: Option<&str>) {
    let status = running.status().unwrap();
    let digest = RequestDigest::of_class(&running.cluster, &status);
    let request = JudgedRequest { digest: &digest, refresh };
    let now = running.world.clock.now();
    let verdict = LaunchVerdict::of_dry_run(None, request, &Architecture::X86_64, outcome, now);
    let key = keys::node_class(&running.cluster, &status.name);
    put(running, items::set(key, &ClassVerdicts::default().with(verdict)));
    running.wake(WakeCause::StateChanged);
}

/// What `provisioner` writes after EC2 refused a launch.
fn refuse(running: &Running, key: &UnavailableKey, code: &str) {
    let launch = "launch-1".parse().unwrap();
    let now = running.world.clock.now();
    let asked = LaunchAsked { cluster: &running.cluster, launch: &launch, planned_at: now };
    let refusal = Refusal {
        key,
        code,
        cluster: asked.cluster,
        cause: RefusalCause::Launch(asked.launch),
        vcpus: None,
        now,
    };
    let mark = Mark::refused(None, &refusal).unwrap();
    put(running, items::set(keys::unavailable(&running.world.installation.region, key), &mark));
    running.wake(WakeCause::StateChanged);
}

/// A class that resolves and awaits EC2's word.
fn awaiting() -> Running {
    let running = validating();
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), AWAITS);
    running
}

fn denied() -> VerdictOutcome {
    let reason = ConditionReason::RunInstancesAuthCheckFailed;
    VerdictOutcome::Denied { reason, message: "EC2 denies `ec2:RunInstances`".to_owned(), image: None }
}

fn told(running: &Running) -> (ConditionStatus, &'static str, String) {
    let status = running.status().unwrap();
    let told = status.condition(ConditionType::ValidationSucceeded).unwrap();
    (told.status, told.reason_text(), told.message.clone())
}

#[test]
fn a_class_awaits_ec2s_word_and_is_launched_from_meanwhile() {
    let running = awaiting();
    assert!(running.status().unwrap().launchable());
    answer(&running, VerdictOutcome::Allowed, None);
    assert_eq!(running.obstacle(), "ready");
    let steps = running.steps();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.obstacle().as_str(), running.steps()), ("ready", steps));
}

#[test]
fn a_denial_is_told_with_its_remedy_and_ends_with_the_next_answer() {
    let running = awaiting();
    answer(&running, denied(), None);
    assert_eq!(running.obstacle(), "ValidationSucceeded=False RunInstancesAuthCheckFailed");
    assert!(running.message().starts_with("EC2 denies `ec2:RunInstances`; Tenon asks EC2 again"));
    assert!(running.status().unwrap().launchable(), "one launch at a time may decide");
    answer(&running, VerdictOutcome::Allowed, None);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn a_warning_is_told_of_a_ready_class() {
    let running = awaiting();
    answer(&running, VerdictOutcome::Doubted { message: "a policy denies it".to_owned() }, None);
    let expected = "a policy denies it; the first launch has one instance, and decides";
    assert_eq!(told(&running), (ConditionStatus::True, "ValidationSucceeded", expected.to_owned()));
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn other_images_or_a_changed_annotation_are_another_request() {
    let running = awaiting();
    answer(&running, denied(), None);
    let refreshed = |value: &str| -> Value {
        let mut class = class(json!({}));
        class["metadata"]["annotations"] = json!({VALIDATION_REFRESH: value});
        class
    };
    running.report(&[refreshed("1")]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), AWAITS);
    answer(&running, VerdictOutcome::Allowed, Some("1"));
    assert_eq!(running.obstacle(), "ready");
    running.world.clock.advance(SignedDuration::from_secs(1));
    let newer = running.world.ec2.add_image(image("nodes-2"));
    running.wake(WakeCause::ImageChanged(Some(newer)));
    assert_eq!(running.obstacle(), AWAITS);
}

#[test]
fn without_dry_runs_the_first_launch_decides() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let (status, reason, _) = told(&running);
    assert_eq!(
        (status, reason, running.obstacle().as_str()),
        (ConditionStatus::True, "DryRunDisabled", "ready")
    );
}

#[test]
fn a_missing_service_linked_role_is_told_with_the_command_that_creates_it() {
    let running = awaiting();
    answer(&running, VerdictOutcome::Allowed, None);
    refuse(&running, &UnavailableKey::CapacityType(CapacityType::Spot), "SpotSLRCreationFailed");
    let (status, _, message) = told(&running);
    assert_eq!(status, ConditionStatus::True);
    assert!(message.contains("aws iam create-service-linked-role --aws-service-name spot"), "{message}");
}

#[test]
fn an_instance_profile_that_is_put_right_ends_a_refused_launch_without_another_launch() {
    let running = awaiting();
    answer(&running, VerdictOutcome::Allowed, None);
    assert_eq!(running.obstacle(), "ready");
    let (profile, ec2) = ("tenon-us-east-1-prod-nodes", &running.world.ec2);
    ec2.remove_role_from_instance_profile(profile).unwrap();
    let digest = RequestDigest::of_class(&running.cluster, &running.status().unwrap());
    refuse(&running, &UnavailableKey::Request(digest), "InvalidIamInstanceProfileArn.Malformed");
    let later = |seconds| {
        running.world.clock.advance(SignedDuration::from_secs(seconds));
        running.wake(WakeCause::Sweep);
    };
    later(60);
    assert_eq!(running.obstacle(), "InstanceProfileReady=False InstanceProfileWithoutRole");
    ec2.add_role_to_instance_profile(profile, "nodes").unwrap();
    later(60);
    assert_eq!(running.obstacle(), "InstanceProfileReady=Unknown InstanceProfileNotPropagated");
    later(60);
    assert_eq!(running.obstacle(), "ready");
    // EC2's later word counts.
    let digest = RequestDigest::of_class(&running.cluster, &running.status().unwrap());
    refuse(&running, &UnavailableKey::Request(digest), "InvalidIamInstanceProfileArn.Malformed");
    assert_eq!(running.obstacle(), "InstanceProfileReady=False LaunchRefused");
}
