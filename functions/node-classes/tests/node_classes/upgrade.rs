//! Statuses of older builds, whose digests can't be compared.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::wake::WakeCause;
use tenon_table::items::{keys, set};
use tenon_table::{Table, content_commit};
use tenon_twin::{Call, FaultWhen};

use crate::running::{Running, allowances, class, image, running, throttled};
use tenon_memory_table::block_on;

/// Digests of the earliest build, and of `class-spec-1`.
const OLDER: [&str; 2] = ["3k9x20ab7c1d4e5f", "v1-1a6wodzr3ysjwuh9"];

/// A class that resolved under an older build, whose status has that digest.
fn upgraded(digest: &str) -> Running {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let status = ClassStatus { spec_digest: digest.to_owned(), ..running.status().unwrap() };
    let key = keys::node_class(&running.cluster, &status.name);
    block_on(running.world.table.commit(&content_commit(vec![], vec![set(key, &status)]))).unwrap();
    running
}

#[test]
fn an_upgrade_changes_no_class_and_rewrites_its_digest() {
    for older in OLDER {
        let running = upgraded(older);
        let (recorded, steps) = (running.recorded("default"), running.steps());
        running.report(&[class(json!({}))]);
        running.wake(WakeCause::SnapshotChanged);
        assert_eq!(running.status().unwrap().spec_digest, older, "the class isn't due");
        running.world.clock.advance(SignedDuration::from_mins(5));
        running.wake(WakeCause::Sweep);
        assert!(running.status().unwrap().spec_digest.starts_with("v2-"), "{older}");
        assert_eq!((running.recorded("default"), running.steps()), (recorded, steps), "{older}");
    }
}

#[test]
fn an_upgrade_takes_nothing_away_while_ec2_throttles() {
    for older in OLDER {
        let running = upgraded(older);
        let before = running.images();
        running.fail(Call::DescribeImages, FaultWhen::Next(1), throttled(Call::DescribeImages));
        running.world.clock.advance(SignedDuration::from_mins(5));
        running.wake(WakeCause::Sweep);
        assert_eq!((running.obstacle().as_str(), running.images()), ("ready", before), "{older}");
    }
}

#[test]
fn a_class_that_was_edited_during_an_upgrade_is_looked_at_at_once() {
    for older in OLDER {
        let running = upgraded(older);
        running.report(&[class(json!({"amiSelectorTerms": [{"name": "none-*", "owner": "self"}]}))]);
        running.wake(WakeCause::SnapshotChanged);
        assert_eq!(running.images(), vec![], "{older}");
    }
}
