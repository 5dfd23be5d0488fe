//! Images that a class passes over because an instance of each failed.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord};
use tenon_domain::class_status::{ConditionType, ImageFault};
use tenon_domain::id::ImageId;
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::launch_verdict::VALIDATION_REFRESH;
use tenon_domain::wake::WakeCause;
use tenon_memory_table::block_on;
use tenon_table::items::{self, keys};
use tenon_table::{Table, content_commit};

use crate::running::{Running, allowances, class, image, running};

/// A class with these images, the last one newest.
fn world(names: &[&str]) -> (Running, Vec<ImageId>) {
    let running = running(allowances());
    let images = names.iter().map(|name| {
        running.world.clock.advance(SignedDuration::from_secs(60));
        running.world.ec2.add_image(image(name))
    });
    let images = images.collect();
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "ready");
    running.said();
    (running, images)
}

/// `lifecycle` noticed an image's failure now, and wakes this function.
fn fail(running: &Running, image: &ImageId, fault: BootFault) {
    let status = running.status().unwrap();
    let (code, message) = match fault {
        BootFault::LaunchFailed => {
            (Some("Client.InternalError".to_owned()), "Client.InternalError: Client error on launch")
        }
        BootFault::NeverJoined => (None, "no Node joined within 15 minutes"),
    };
    let failure = BootFailure {
        fault,
        code,
        message: message.to_owned(),
        instance: "i-1".parse().unwrap(),
        at: running.world.clock.now(),
        form: BootForm { spec_digest: status.spec_digest, refresh: None },
    };
    let record = BootRecord::new(running.cluster.clone(), status.name, image.clone());
    let record = record.failed(&failure).unwrap();
    let key = keys::boot(&running.world.installation.region, &running.cluster, &record.class, image);
    block_on(running.world.table.commit(&content_commit(vec![], vec![items::put(key, &record)]))).unwrap();
    running.wake(WakeCause::StateChanged);
}

fn told(running: &Running) -> String {
    running.status().unwrap().condition(ConditionType::AmisReady).unwrap().message.clone()
}

fn faults(running: &Running) -> Vec<ImageFault> {
    let rejected = running.status().unwrap().rejected_images;
    rejected.iter().flat_map(|image| image.reasons.iter().map(|reason| reason.fault)).collect()
}

fn refreshed(class: Value, value: &str) -> Value {
    let mut class = class;
    class["metadata"]["annotations"] = json!({VALIDATION_REFRESH: value});
    class
}

#[test]
fn an_image_that_failed_leaves_the_class_on_the_one_before_for_an_hour() {
    let (running, images) = world(&["nodes-1", "nodes-2"]);
    assert_eq!(running.images(), [images[1].clone()]);
    fail(&running, &images[1], BootFault::LaunchFailed);
    assert_eq!((running.obstacle().as_str(), running.images()), ("ready", vec![images[0].clone()]));
    assert_eq!(faults(&running), [ImageFault::LaunchFailed]);
    assert_eq!(running.said(), ["Node Class Ready", "Image Rejected"]);
    let message = told(&running);
    let expected = format!(
        "not taking: `{}` (`nodes-2`) failed to launch: EC2 terminated instance `i-1` (Client.InternalError: Client error \
         on launch); if a volume is encrypted,",
        images[1]
    );
    assert!(message.starts_with(&expected) && message.contains("`kms:CreateGrant`"), "{message}");
    let subject = Subject { kind: SubjectKind::Image, name: images[1].to_string() };
    let recorded: Vec<Decision> = running.recorded_of(subject).iter().map(|record| record.decision).collect();
    assert_eq!(recorded, [Decision::ImageRejected]);
    // Each look says the same.
    running.world.clock.advance(SignedDuration::from_mins(59));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.images(), running.said()), (vec![images[0].clone()], vec![]));
    running.world.clock.advance(SignedDuration::from_mins(1));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.images(), faults(&running)), (vec![images[1].clone()], vec![]));
}

#[test]
fn without_another_image_the_class_is_not_ready_and_says_when_it_tries_again() {
    for (fault, reason) in
        [(BootFault::LaunchFailed, "LaunchFailed"), (BootFault::NeverJoined, "NeverJoined")]
    {
        let (running, images) = world(&["nodes-1"]);
        fail(&running, &images[0], fault);
        assert_eq!(running.obstacle(), format!("AMIsReady=False {reason}"));
        let until = running.world.clock.now() + SignedDuration::from_hours(1);
        let message = running.message();
        assert!(message.contains(&format!("; next try at {until}, or when the class")), "{message}");
        let status = running.status().unwrap();
        assert_eq!(status.condition(ConditionType::AmisReady).unwrap().next_try, Some(until));
        running.world.clock.advance(SignedDuration::from_hours(1));
        running.wake(WakeCause::Sweep);
        assert_eq!((running.obstacle().as_str(), running.images()), ("ready", images));
    }
}

#[test]
fn a_changed_class_or_annotation_tries_the_image_at_once() {
    let edited = class(json!({"detailedMonitoring": true}));
    for changed in [edited, refreshed(class(json!({})), "1")] {
        let (running, images) = world(&["nodes-1"]);
        fail(&running, &images[0], BootFault::LaunchFailed);
        running.world.clock.advance(SignedDuration::from_secs(10));
        running.report(&[changed]);
        running.wake(WakeCause::SnapshotChanged);
        assert_eq!((running.obstacle().as_str(), running.images()), ("ready", images));
    }
}

#[test]
fn a_failure_of_another_class_or_of_an_image_that_ec2_withdrew_says_nothing() {
    let (running, images) = world(&["nodes-1", "nodes-2"]);
    let other = class(json!({}));
    let mut other = other;
    other["metadata"]["name"] = json!("other");
    running.report(&[class(json!({})), other]);
    running.wake(WakeCause::SnapshotChanged);
    fail(&running, &images[1], BootFault::NeverJoined);
    let key = keys::node_class(&running.cluster, &"other".parse().unwrap());
    let status: tenon_domain::class_status::ClassStatus =
        items::from_item(&key, &running.world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(status.images[0].id, images[1]);
    assert_eq!(running.images(), [images[0].clone()]);
    running.world.ec2.disable_image(&images[1]).unwrap();
    running.wake(WakeCause::ImageChanged(None));
    assert_eq!(faults(&running), [ImageFault::NotAvailable]);
}
