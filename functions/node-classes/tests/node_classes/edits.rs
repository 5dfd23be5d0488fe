//! Edited classes, also while EC2 throttles: nothing of the older spec counts for the new one.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::wake::WakeCause;
use tenon_twin::{Call, FaultWhen};

use crate::running::{Running, allowances, class, image, running, throttled};

/// A class that resolved, edited so while such a call is throttled.
fn edited(replaced: Value, throttles: Call) -> Running {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.add_image(image("other-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "ready");
    running.report(&[class(replaced)]);
    running.fail(throttles, FaultWhen::Next(1), throttled(throttles));
    running.world.clock.advance(SignedDuration::from_secs(60));
    running.wake(WakeCause::SnapshotChanged);
    running
}

/// How many parts of the class are known: subnets, security groups, images.
fn known(running: &Running) -> [usize; 3] {
    let status = running.status().unwrap();
    [status.subnets.len(), status.security_groups.len(), status.images.len()]
}

fn check(replaced: Value, throttles: Call, obstacle: &str, parts: [usize; 3], later: [usize; 3]) {
    let running = edited(replaced, throttles);
    assert_eq!((running.obstacle().as_str(), known(&running)), (obstacle, parts));
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.obstacle().as_str(), known(&running)), ("ready", later));
}

#[test]
fn images_that_the_spec_selected_before_its_edit_are_not_launched() {
    let terms = json!({"amiSelectorTerms": [{"name": "other-*", "owner": "self"}]});
    check(terms, Call::DescribeImages, "AMIsReady=Unknown AMIResolutionFailed", [2, 1, 0], [2, 1, 1]);
}

/// Its generation is its predecessor's, and its UID isn't.
#[test]
fn a_class_that_was_made_anew_is_not_its_predecessor() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    let other = running.world.ec2.add_image(image("other-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let mut anew = class(json!({"amiSelectorTerms": [{"name": "other-*", "owner": "self"}]}));
    anew["metadata"]["uid"] = json!("u-2");
    running.report(&[anew]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.images(), running.status().unwrap().generation), (vec![other], 1));
}

#[test]
fn subnets_that_the_spec_selected_before_its_edit_are_not_launched_in() {
    let running = running(allowances());
    let subnets = tenon_memory_table::block_on(tenon_ec2::Ec2::describe_subnets(
        &running.world.ec2,
        &tenon_ec2::port::ResourceFilter::default(),
    ));
    let one = subnets.unwrap()[0].id.to_string();
    let terms = json!({"subnetSelectorTerms": [{"id": one}]});
    check(terms, Call::DescribeSubnets, "SubnetsReady=Unknown SubnetResolutionFailed", [0, 1, 1], [1, 1, 1]);
}

#[test]
fn security_groups_that_the_spec_selected_before_its_edit_are_on_no_node() {
    let running = running(allowances());
    let groups = tenon_memory_table::block_on(tenon_ec2::Ec2::describe_security_groups(
        &running.world.ec2,
        &tenon_ec2::port::ResourceFilter::default(),
    ));
    let one = groups.unwrap()[0].id.to_string();
    let terms = json!({"securityGroupSelectorTerms": [{"id": one}]});
    check(
        terms,
        Call::DescribeSecurityGroups,
        "SecurityGroupsReady=Unknown SecurityGroupResolutionFailed",
        [2, 0, 1],
        [2, 1, 1],
    );
}
