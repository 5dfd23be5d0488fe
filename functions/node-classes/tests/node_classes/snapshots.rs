//! Snapshots for classes' volumes: every process on a node can read them, so the cluster's stack allows them.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::registry::Allowances;
use tenon_domain::wake::WakeCause;
use tenon_ec2::port::{SnapshotState, Tags, VolumeSnapshot};
use tenon_twin::{Call, FaultWhen};

use crate::running::{Running, allowances, class, image, running, set, throttled};

/// A class with a volume beside its root's, from that snapshot.
fn with_data(snapshot: &str) -> Value {
    with_volume("/dev/xvdb", snapshot)
}

fn with_volume(device: &str, snapshot: &str) -> Value {
    class(json!({"blockDeviceMappings": [{"deviceName": device, "ebs": {"snapshotID": snapshot}}]}))
}

fn team() -> Tags {
    Tags::from([("team".to_owned(), "web".to_owned())])
}

/// An account with snapshots with and without a team's tag, and two shared ones; the class has one image.
fn world(allowed: Allowances, class: &Value) -> Running {
    let running = running(allowed);
    running.world.ec2.add_image(image("nodes-1"));
    for (id, owner, alias, tags) in [
        ("snap-0web", "111122223333", None, team()),
        ("snap-0secret", "111122223333", None, Tags::new()),
        ("snap-0shared", "444455556666", None, Tags::new()),
        ("snap-0amazon", "999999999999", Some("amazon".to_owned()), Tags::new()),
    ] {
        let (id, owner) = (id.to_owned(), owner.to_owned());
        let state = Some(SnapshotState::Completed);
        running.world.ec2.add_snapshot(VolumeSnapshot { id, owner, owner_alias: alias, state, tags });
    }
    running.report(std::slice::from_ref(class));
    running.wake(WakeCause::SnapshotChanged);
    running
}

fn check(allowed: Allowances, snapshot: &str, expected: &str) {
    let running = world(allowed, &with_data(snapshot));
    assert_eq!(running.obstacle(), expected, "{snapshot}");
    if expected != "ready" {
        let message = running.message();
        assert!(message.contains(snapshot) && message.contains("`spec.blockDeviceMappings`"), "{message}");
    }
}

const REFUSED: &str = "ValidationSucceeded=False NotAllowed";

#[test]
fn without_an_allowance_no_snapshot_of_the_account_is_read_on_a_node() {
    for snapshot in ["snap-0web", "snap-0secret", "snap-0shared", "snap-0amazon", "snap-0gone"] {
        check(allowances(), snapshot, REFUSED);
    }
    let running = world(allowances(), &with_data("snap-0secret"));
    assert_eq!(
        running.message(),
        "snapshots `snap-0secret` of `spec.blockDeviceMappings` not allowed: the registry of cluster `prod` allows only the \
         snapshots that all images of the class have for this device; change the class, or the cluster's stack"
    );
    // The images' own are asked about, before the class takes them.
    assert_eq!(running.world.ec2.calls().get(&Call::DescribeSnapshots).map(|count| count.made), Some(1));
}

#[test]
fn the_snapshot_of_the_classs_own_images_is_allowed_for_its_device() {
    let running = world(allowances(), &class(json!({})));
    let own = running.images()[0].as_str().replace("ami-", "snap-");
    let of = |device: &str| {
        running.report(&[with_volume(device, &own)]);
        running.wake(WakeCause::SnapshotChanged);
        running.obstacle()
    };
    let owned = || running.status().unwrap().images.remove(0).own_snapshots;
    assert_eq!(of("/dev/xvda"), "ready");
    assert_eq!(owned(), BTreeMap::from([("/dev/xvda".to_owned(), own.clone())]), "left to EC2");
    assert_eq!(of("/dev/xvdb"), REFUSED);
    assert!(owned().is_empty(), "another device's");
    // A newer image has another one.
    assert_eq!(of("/dev/xvda"), "ready");
    running.world.clock.advance(SignedDuration::from_mins(6));
    running.world.ec2.tick(running.world.clock.now());
    running.world.ec2.add_image(image("nodes-2"));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), REFUSED);
}

#[test]
fn a_stack_allows_snapshots_by_their_owner() {
    let of = |owners: &[&str]| Allowances { snapshot_owners: set(owners), ..allowances() };
    check(of(&["111122223333"]), "snap-0secret", "ready");
    check(of(&["444455556666"]), "snap-0shared", "ready");
    check(of(&["amazon"]), "snap-0amazon", "ready");
    check(of(&["444455556666", "amazon"]), "snap-0secret", REFUSED);
    check(of(&["111122223333"]), "snap-0shared", REFUSED);
}

#[test]
fn a_stack_allows_snapshots_by_their_tags_as_well() {
    let tagged =
        || Allowances { snapshot_owners: set(&["111122223333"]), snapshot_tags: team(), ..allowances() };
    check(tagged(), "snap-0web", "ready");
    check(tagged(), "snap-0secret", REFUSED);
    check(tagged(), "snap-0shared", REFUSED);
    check(Allowances { snapshot_owners: set(&["444455556666"]), ..tagged() }, "snap-0web", REFUSED);
}

#[test]
fn a_snapshot_that_is_gone_is_named() {
    let owned = Allowances { snapshot_owners: set(&["111122223333"]), ..allowances() };
    check(owned, "snap-0gone", "ValidationSucceeded=False SnapshotNotFound");
}

#[test]
fn a_throttled_look_at_snapshots_allows_nothing_and_takes_nothing_away() {
    let owned = || Allowances { snapshot_owners: set(&["111122223333"]), ..allowances() };
    let call = Call::DescribeSnapshots;
    let running = world(owned(), &with_data("snap-0secret"));
    assert_eq!(running.obstacle(), "ready");
    running.fail(call, FaultWhen::Next(1), throttled(call));
    running.world.clock.advance(SignedDuration::from_mins(6));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "ready");

    running.fail(call, FaultWhen::Next(1), throttled(call));
    running.report(&[with_data("snap-0web")]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "ValidationSucceeded=Unknown ValidationIncomplete");
}
