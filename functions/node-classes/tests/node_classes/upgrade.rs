//! Statuses of an older build, whose digests can't be computed again.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::wake::WakeCause;
use tenon_table::items::{keys, set};
use tenon_table::{Table, content_commit};
use tenon_twin::{Call, FaultWhen};

use crate::running::{Running, allowances, class, image, running, throttled};
use tenon_memory_table::block_on;

/// A class that resolved under an older build.
fn upgraded() -> Running {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let status = ClassStatus { spec_digest: "3k9x20ab7c1d4e5f".to_owned(), ..running.status().unwrap() };
    let key = keys::node_class(&running.cluster, &status.name);
    block_on(running.world.table.commit(&content_commit(vec![], vec![set(key, &status)]))).unwrap();
    running
}

#[test]
fn an_upgrade_changes_no_class_and_rewrites_its_digest() {
    let running = upgraded();
    let (recorded, steps) = (running.recorded("default"), running.steps());
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.status().unwrap().spec_digest, "3k9x20ab7c1d4e5f", "the class isn't due");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert!(running.status().unwrap().spec_digest.starts_with("v1-"));
    assert_eq!((running.recorded("default"), running.steps()), (recorded, steps));
}

#[test]
fn an_upgrade_takes_nothing_away_while_ec2_throttles() {
    let running = upgraded();
    let before = running.images();
    running.fail(Call::DescribeImages, FaultWhen::Next(1), throttled(Call::DescribeImages));
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.obstacle().as_str(), running.images()), ("ready", before));
}

#[test]
fn a_class_that_was_edited_during_an_upgrade_is_looked_at_at_once() {
    let running = upgraded();
    let mut edited = class(json!({"amiSelectorTerms": [{"name": "none-*", "owner": "self"}]}));
    edited["metadata"]["generation"] = json!(2);
    running.report(&[edited]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), vec![]);
}
