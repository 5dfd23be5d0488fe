//! Placement groups of classes.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::class_status::ConditionType;
use tenon_domain::wake::WakeCause;
use tenon_ec2::port::PlacementGroup;
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen};

use crate::running::{Running, allowances, class, image, running, throttled};

const CALL: Call = Call::DescribePlacementGroups;

fn group() -> PlacementGroup {
    PlacementGroup {
        id: "pg-0a".parse().unwrap(),
        name: "apart".to_owned(),
        strategy: PlacementStrategy::Partition,
        partition_count: Some(3),
    }
}

fn selecting(selector: &serde_json::Value) -> Running {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.create_placement_group(group());
    running.report(&[class(json!({"placementGroupSelector": selector}))]);
    running.wake(WakeCause::SnapshotChanged);
    running
}

fn look_again(running: &Running) {
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
}

fn resolved(running: &Running) -> Option<(String, Option<u32>)> {
    running.status().unwrap().placement_group.map(|group| (group.id.to_string(), group.partitions))
}

#[test]
fn a_placement_group_is_found_by_name_or_by_id() {
    for selector in [json!({"name": "apart"}), json!({"id": "pg-0a"})] {
        let running = selecting(&selector);
        assert_eq!(running.obstacle(), "ready");
        assert_eq!(resolved(&running), Some(("pg-0a".to_owned(), Some(3))));
        let status = running.status().unwrap();
        assert!(status.condition(ConditionType::Unsupported).is_none());
    }
}

#[test]
fn a_class_without_a_selector_has_no_condition_and_asks_nothing() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "ready");
    assert!(running.status().unwrap().condition(ConditionType::PlacementGroupReady).is_none());
    assert!(!running.world.ec2.calls().contains_key(&CALL));
}

#[test]
fn a_placement_group_that_is_gone_keeps_the_class_from_launches() {
    let running = selecting(&json!({"name": "apart"}));
    running.world.ec2.delete_placement_group(&group().id);
    look_again(&running);
    assert_eq!(running.obstacle(), "PlacementGroupReady=False PlacementGroupNotFound");
    assert!(running.message().contains("`apart`"), "{}", running.message());
    assert_eq!(resolved(&running), None);
    running.world.ec2.create_placement_group(group());
    look_again(&running);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn a_placement_group_stays_while_ec2_does_not_answer_and_a_denied_query_is_named() {
    let running = selecting(&json!({"name": "apart"}));
    let effect = FaultEffect::Refused(throttled(CALL));
    running.world.ec2.inject(Fault { call: CALL, effect, when: FaultWhen::Next(9) });
    look_again(&running);
    assert_eq!(running.obstacle(), "ready");
    assert!(resolved(&running).is_some());
    let refused = selecting(&json!({"name": "apart"}));
    refused.world.ec2.deny(CALL, "an explicit deny");
    look_again(&refused);
    assert_eq!(refused.obstacle(), "PlacementGroupReady=False PlacementGroupResolutionFailed");
    assert!(refused.message().contains("`ec2:DescribePlacementGroups`"), "{}", refused.message());
}
