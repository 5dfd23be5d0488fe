//! From an event of an image to the status of its classes: the runs, the calls, and what EC2 is asked twice.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::class_status::ConditionType;
use tenon_domain::id::{ImageId, NodeClassName};
use tenon_domain::wake::WakeCause;
use tenon_ec2::port::Tags;
use tenon_harness::RungBell;
use tenon_images::Images;
use tenon_memory_table::block_on;
use tenon_node_classes::NodeClasses;
use tenon_runtime::{Handler, WakeScope};
use tenon_table::items::{self, keys};
use tenon_twin::{Call, FaultWhen, NewImage};

use crate::running::{Running, allowances, class, image, running, tags, throttled};

/// The calls since the last look, to EC2 and the services beside it, by name.
struct EventCalls<'a> {
    running: &'a Running,
    before: BTreeMap<Call, u64>,
}

impl<'a> EventCalls<'a> {
    fn of(running: &'a Running) -> Self {
        running.world.table.reset_meter();
        drop(running.world.signals.take());
        Self { running, before: made(running) }
    }

    fn aws(&self) -> BTreeMap<Call, u64> {
        let made = made(self.running).into_iter();
        let new = made.map(|(call, made)| (call, made - self.before.get(&call).copied().unwrap_or(0)));
        new.filter(|(_, new)| *new > 0).collect()
    }

    fn table(&self) -> u64 {
        self.running.world.table.meter().operations.values().map(|usage| usage.calls).sum()
    }
}

fn made(running: &Running) -> BTreeMap<Call, u64> {
    running.world.ec2.calls().into_iter().map(|(call, count)| (call, count.made)).collect()
}

/// The images that `images` announces, after one run for this cause.
fn announced(running: &Running, cause: WakeCause) -> Vec<WakeCause> {
    block_on(Images.handle(&running.world, &WakeScope::Region, &[cause])).unwrap();
    let said = running.world.signals.take();
    let images = said.into_iter().filter_map(|rung| match rung {
        RungBell::Event(event) => Some(WakeCause::ImageChanged(event.detail["image"].as_str()?.parse().ok())),
        RungBell::Agent(_) | RungBell::Wake { .. } => None,
    });
    images.collect()
}

fn sweep(running: &Running) {
    announced(running, WakeCause::Sweep);
}

/// One run of each function for an event of these images; both handle what the bus brings as one batch.
fn event(running: &Running, id: &ImageId) {
    for cause in announced(running, WakeCause::ImageChanged(Some(id.clone()))) {
        running.wake(cause);
    }
}

/// A class that is resolved, and whose image was swept.
fn resolved(classes: &[Value], images: Vec<NewImage>) -> (Running, Vec<ImageId>) {
    let running = running(allowances());
    let ids = images.into_iter().map(|image| running.world.ec2.add_image(image)).collect();
    running.report(classes);
    running.wake(WakeCause::SnapshotChanged);
    running.world.clock.advance(SignedDuration::from_secs(1));
    sweep(&running);
    running.world.clock.advance(SignedDuration::from_secs(1));
    (running, ids)
}

fn selecting(term: Value) -> Value {
    class(json!({ "amiSelectorTerms": [term] }))
}

/// So many queries for images, and one for the snapshots of the new one.
fn asked(images: u64) -> BTreeMap<Call, u64> {
    BTreeMap::from([(Call::DescribeImages, images), (Call::DescribeSnapshots, 1)])
}

/// A pending image becomes available, and EC2's event of it comes: the class takes it in two runs.
fn check(term: impl FnOnce(&ImageId) -> Value) {
    let running = running(allowances());
    let new = running.world.ec2.create_image(NewImage { tags: tags(), ..image("nodes-2") });
    running.report(&[selecting(term(&new))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
    // The sweep comes while the image is pending.
    running.world.clock.advance(SignedDuration::from_secs(31));
    sweep(&running);
    running.world.clock.advance(SignedDuration::from_secs(30));
    let cold = NodeClasses::default();
    let meter = EventCalls::of(&running);
    let causes = announced(&running, WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(causes, [WakeCause::ImageChanged(Some(new.clone()))], "one more run");
    // The announcement is one call.
    let to_announcement = meter.table() + meter.aws().values().sum::<u64>() + 1;
    block_on(cold.handle(&running.world, &WakeScope::Region, &causes)).unwrap();
    assert_eq!(running.images(), std::slice::from_ref(&new));
    assert_eq!(meter.aws(), asked(1));
    // The status is the last that is written, and the class's event comes after it.
    let to_status = meter.table() + meter.aws().values().sum::<u64>() + 1;
    // A new process reads the snapshot's classes, too.
    assert_eq!((to_announcement, to_status), (4, 11), "{:?}", running.world.table.meter());
    assert_eq!(running.said(), ["Node Class Ready"]);
}

#[test]
fn an_event_reaches_the_status_in_two_runs_and_ten_calls_or_eleven_of_a_new_process() {
    check(|_| json!({"tags": {"karpenter.sh/discovery": "prod"}}));
    check(|_| json!({"name": "nodes-*"}));
    check(|_| json!({"name": "nodes-*", "owner": "self"}));
    check(|id| json!({"id": id.as_str()}));
}

#[test]
fn a_warm_function_has_the_classes_of_the_snapshot_and_reads_them_once() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    event(&running, &new);
    assert_eq!(running.images(), [new]);
    assert_eq!(meter.aws(), asked(1));
    assert_eq!(meter.table(), 7);
}

#[test]
fn classes_with_equal_terms_ask_and_read_once() {
    let second = |name: &str| {
        let mut class = class(json!({}));
        class["metadata"]["name"] = json!(name);
        class["metadata"]["uid"] = json!(name);
        class
    };
    let (running, _) = resolved(&[class(json!({})), second("other")], vec![image("nodes-1")]);
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    event(&running, &new);
    let key = keys::node_class(&running.cluster, &NodeClassName::parse("other").unwrap());
    let other: tenon_domain::class_status::ClassStatus =
        items::from_item(&key, &running.world.table.peek(&key).unwrap()).unwrap();
    assert_eq!((running.images(), other.images[0].id.clone()), (vec![new.clone()], new));
    assert_eq!(meter.aws(), asked(1));
    assert_eq!(meter.table(), 8, "one more commit");
}

/// The other parts stay as they are, with their conditions, and aren't told of.
#[test]
fn the_parts_that_nobody_asks_about_stay_as_they_are() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    let before = running.status().unwrap();
    // Nobody would see it.
    running.fail(Call::DescribeSubnets, FaultWhen::Permille(1000), throttled(Call::DescribeSubnets));
    let new = running.world.ec2.add_image(image("nodes-2"));
    event(&running, &new);
    let after = running.status().unwrap();
    assert_eq!(after.images[0].id, new);
    let told = |status: &tenon_domain::class_status::ClassStatus| {
        let others = |condition: ConditionType| condition != ConditionType::AmisReady;
        let conditions = status.conditions.iter().filter(|told| others(told.condition)).cloned();
        (status.subnets.clone(), status.security_groups.clone(), conditions.collect::<Vec<_>>())
    };
    assert_eq!(told(&after), told(&before));
    assert_eq!(
        (&after.instance_profile, &after.profile_seen),
        (&before.instance_profile, &before.profile_seen)
    );
}

#[test]
fn a_refused_part_stays_refused_and_the_image_is_taken() {
    let none = json!({ "subnetSelectorTerms": [{"tags": {"team": "nobody"}}] });
    let (running, _) = resolved(&[class(none)], vec![image("nodes-1")]);
    assert_eq!(running.obstacle(), "SubnetsReady=False SubnetsNotFound");
    let new = running.world.ec2.add_image(image("nodes-2"));
    event(&running, &new);
    assert_eq!(
        (running.images(), running.obstacle().as_str()),
        (vec![new], "SubnetsReady=False SubnetsNotFound")
    );
}

#[test]
fn an_image_that_concerns_no_class_costs_a_look_at_the_table() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    let other = running.world.ec2.add_image(image("other"));
    let causes = announced(&running, WakeCause::ImageChanged(Some(other)));
    let meter = EventCalls::of(&running);
    causes.into_iter().for_each(|cause| running.wake(cause));
    assert_eq!((meter.aws(), meter.table()), (BTreeMap::new(), 3));
}

/// A doorbell that comes before the record: nothing is known of the image, so EC2 is asked, for images alone.
#[test]
fn an_image_without_a_record_is_asked_of_ec2() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), [new]);
    assert_eq!(meter.aws(), asked(1));
}

#[test]
fn records_older_than_ten_minutes_answer_nothing() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    running.world.clock.advance(SignedDuration::from_mins(10));
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    event(&running, &new);
    assert_eq!(running.images(), [new]);
    // Once by `images`, by its id, and once by the class's terms.
    assert_eq!(meter.aws(), asked(2));
}

/// A sweep that EC2 answered in part confirms none of its queries.
#[test]
fn a_sweep_without_all_its_answers_answers_nothing() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.fail(Call::DescribeImages, FaultWhen::Next(1), throttled(Call::DescribeImages));
    block_on(Images.handle(&running.world, &WakeScope::Region, &[WakeCause::Sweep])).unwrap_err();
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    event(&running, &new);
    assert_eq!(meter.aws(), BTreeMap::from([(Call::DescribeImages, 2)]));
}

fn staged(name: &str, stage: &str) -> NewImage {
    NewImage { tags: Tags::from([("stage".to_owned(), stage.to_owned())]), ..image(name) }
}

#[test]
fn an_image_that_goes_leaves_the_class_by_its_record() {
    let check = |goes: &dyn Fn(&Running, &ImageId), says: &str| {
        let term = json!({"tags": {"stage": "approved"}});
        let images = vec![staged("nodes-1", "approved"), staged("nodes-2", "approved")];
        let (running, ids) = resolved(&[selecting(term)], images);
        let (old, new) = (&ids[0], &ids[1]);
        assert_eq!(running.images(), std::slice::from_ref(new), "{says}");
        goes(&running, new);
        let meter = EventCalls::of(&running);
        event(&running, new);
        assert_eq!(running.images(), std::slice::from_ref(old), "{says}");
        assert_eq!(meter.aws(), BTreeMap::from([(Call::DescribeImages, 1)]), "{says}");
        // The next look at everything agrees.
        let before = running.status().unwrap();
        running.world.clock.advance(SignedDuration::from_mins(5));
        running.wake(WakeCause::Sweep);
        assert!(running.status().unwrap().same_as(&before), "{says}");
    };
    check(&|running, id| running.world.ec2.disable_image(id).unwrap(), "disabled");
    check(&|running, id| running.world.ec2.deregister_image(id).unwrap(), "deregistered");
    check(&|running, id| running.world.ec2.tag_image(id, "stage", "withdrawn").unwrap(), "retagged");
}

/// A tag changes without an event, and the class's own look sees it before the next sweep. An event of another image
/// must not bring the image back by its old record.
#[test]
fn an_image_that_was_withdrawn_without_an_event_does_not_return() {
    let term = json!({"tags": {"stage": "approved"}});
    let images = vec![staged("nodes-1", "approved"), staged("nodes-2", "approved")];
    let (running, ids) = resolved(&[selecting(term)], images);
    let (old, new) = (&ids[0], &ids[1]);
    running.world.ec2.tag_image(new, "stage", "withdrawn").unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.images(), std::slice::from_ref(old));
    running.world.clock.advance(SignedDuration::from_secs(1));
    let other = running.world.ec2.add_image(staged("a-nodes", "approved"));
    running.world.ec2.disable_image(&other).unwrap();
    event(&running, &other);
    assert_eq!(running.images(), std::slice::from_ref(old));
}

#[test]
fn a_class_whose_spec_changed_is_asked_about_in_full() {
    let (running, _) = resolved(&[class(json!({}))], vec![image("nodes-1")]);
    running.report(&[class(json!({"userData": "#!/bin/sh"}))]);
    let new = running.world.ec2.add_image(image("nodes-2"));
    let meter = EventCalls::of(&running);
    event(&running, &new);
    assert_eq!(running.images(), [new]);
    assert!(meter.aws().contains_key(&Call::DescribeSubnets), "{:?}", meter.aws());
}

#[test]
fn a_class_by_alias_is_asked_of_ssm_and_of_nothing_else() {
    let running = running(allowances());
    running.report(&[class(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.world.clock.advance(SignedDuration::from_secs(1));
    sweep(&running);
    let image = running.images()[0].clone();
    running.world.ec2.tag_image(&image, "seen", "1").unwrap();
    let meter = EventCalls::of(&running);
    event(&running, &image);
    let asked: Vec<Call> = meter.aws().into_keys().collect();
    assert_eq!(asked, [Call::DescribeImages, Call::GetParameters]);
    assert_eq!(meter.aws()[&Call::DescribeImages], 1);
}
