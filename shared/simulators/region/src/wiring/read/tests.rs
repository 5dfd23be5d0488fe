//! The wiring of the stacks as they are deployed, and errors for what can't be played.

use std::collections::BTreeSet;

use serde_json::json;
use tenon_domain::registry::FeatureGate;

use super::super::cluster_schedules;
use super::*;

fn routed(bus: BusName, event: &Value) -> Vec<&'static str> {
    let wiring = Wiring::built_in().unwrap();
    wiring.route(bus, event).into_iter().map(FunctionName::as_str).collect()
}

#[test]
fn every_function_has_its_queue_or_is_invoked() {
    let wiring = Wiring::built_in().unwrap();
    assert_eq!(wiring.queues.len(), FunctionName::ALL.len());
    let lifecycle = &wiring.queues[&FunctionName::Lifecycle];
    assert_eq!(lifecycle.batch_window, SignedDuration::from_secs(1));
    assert_eq!((lifecycle.max_receive_count, lifecycle.at_once), (5, 10));
    assert_eq!(wiring.queues[&FunctionName::Provisioner].batch_window, SignedDuration::ZERO);
    assert_eq!(wiring.queues[&FunctionName::Interruption].batch_window, SignedDuration::ZERO);
    let invoked = wiring.queues.values().filter(|queue| queue.kind == QueueKind::Invocations);
    let invoked: Vec<_> = invoked.map(|queue| (queue.function.as_str(), queue.max_receive_count)).collect();
    assert_eq!(invoked, [("catalog", 3), ("images", 3)]);
}

#[test]
fn a_target_is_the_queue_of_a_function_that_has_one_and_the_function_otherwise() {
    let queues = Wiring::built_in().unwrap().queues;
    let check = |arn: &str, expected: Option<FunctionName>| {
        let found = target_of("Rule", "Targets[].Arn", Some(&json!({ "Fn::GetAtt": arn })), &queues);
        assert_eq!(found.ok(), expected, "{arn}");
    };
    check("LifecycleQueue.Arn", Some(FunctionName::Lifecycle));
    check("ImagesFunction.Arn", Some(FunctionName::Images));
    // The function would read the event as its batch's, and another one's queue isn't there.
    check("LifecycleFunction.Arn", None);
    check("ImagesQueue.Arn", None);
    check("RegistryFunction.Arn", None);
}

#[test]
fn an_invocation_that_lambda_drops_between_its_retries_is_an_error() {
    let check = |age: u64, retries: u64, expected: Option<u32>| {
        let properties = json!({"Timeout": 60, "MemorySize": 128, "EventInvokeConfig":
            {"MaximumEventAgeInSeconds": age, "MaximumRetryAttempts": retries}});
        let found = read_invoked("ImagesFunction", FunctionName::Images, &properties);
        assert_eq!(found.ok().map(|queue| queue.max_receive_count), expected, "{age} s, {retries} retries");
    };
    check(360, 2, Some(3));
    check(359, 2, None);
    check(60, 0, Some(1));
    check(3_600, 3, None);
}

#[test]
fn aws_events_reach_the_functions_that_the_design_names() {
    let state = |state: &str| json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"state": state}});
    assert_eq!(routed(BusName::Default, &state("terminated")), ["lifecycle"]);
    assert!(routed(BusName::Default, &state("running")).is_empty());
    let image =
        json!({"source": "aws.ec2", "detail-type": "EC2 AMI State Change", "detail": {"State": "available"}});
    assert_eq!(routed(BusName::Default, &image), ["images"]);
    assert!(routed(BusName::Tenon, &image).is_empty());
    let shift =
        json!({"source": "aws.arc-zonal-shift", "detail-type": "Autoshift In Progress", "detail": {}});
    assert_eq!(routed(BusName::Default, &shift), ["node-classes"]);
}

#[test]
fn an_agent_wakes_only_whom_its_change_concerns() {
    let event = |changed: &[&str], pending: u32| json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed", "detail": {"changed": changed, "pending_pods": pending}});
    assert_eq!(routed(BusName::Tenon, &event(&["pods"], 3)), ["provisioner"]);
    assert!(routed(BusName::Tenon, &event(&["pods"], 0)).is_empty());
    assert_eq!(routed(BusName::Tenon, &event(&["nodes"], 0)), ["lifecycle"]);
    let freed = json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed",
        "detail": {"changed": ["pods"], "pending_pods": 0, "deletions": 0, "freed": 1}});
    assert_eq!(routed(BusName::Tenon, &freed), ["disruption"]);
}

#[test]
fn what_people_delete_or_edit_wakes_who_acts_on_it() {
    let event = |changed: &str, deletions: u32| {
        json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed",
        "detail": {"changed": [changed], "pending_pods": 0, "deletions": deletions}})
    };
    let check = |changed, deletions, expected: &[&str]| {
        let mut woken = routed(BusName::Tenon, &event(changed, deletions));
        woken.sort_unstable();
        woken.dedup();
        assert_eq!(woken, expected, "{changed}, {deletions} deletions");
    };
    check("nodeclaims", 1, &["lifecycle"]);
    check("nodes", 1, &["lifecycle"]);
    check("nodepools", 2, &["disruption", "lifecycle", "provisioner"]);
    // Edited.
    check("nodepools", 0, &["disruption", "lifecycle", "provisioner"]);
    check("nodeclasses", 0, &["node-classes"]);
    // A NodeClaim changes with every step of its claim, and the function that decided it knows.
    check("nodeclaims", 0, &[]);
}

#[test]
fn schedules_have_their_periods() {
    let wiring = Wiring::built_in().unwrap();
    let spot = wiring.schedules.iter().find(|s| s.name == "SpotPricesSchedule").unwrap();
    assert_eq!(spot.every, SignedDuration::from_mins(10));
    let sweeps = cluster_schedules("tenon", "prod", FeatureGate::Disabled).unwrap();
    let ScheduleTarget::Event { detail, .. } = &sweeps[0].target else { panic!("{sweeps:?}") };
    assert_eq!(detail["cluster"], "prod");
}

#[test]
fn only_a_cluster_that_leaves_shifted_zones_alone_looks_for_them_every_minute() {
    let periods = |gate| {
        let sweeps = cluster_schedules("tenon", "prod", gate).unwrap();
        sweeps.iter().map(|sweep| sweep.every.as_secs()).collect::<BTreeSet<_>>()
    };
    assert_eq!(periods(FeatureGate::Disabled), BTreeSet::from([180, 300]));
    assert_eq!(periods(FeatureGate::Enabled), BTreeSet::from([60, 180, 300]));
}

#[test]
fn a_condition_that_cant_be_played_is_named() {
    let stack = "Conditions:\n  Odd: !Or [a, b]\nResources:\n  X: {Type: T, Condition: Odd}\n";
    let error = read_cluster(stack, &[]).unwrap_err();
    assert_eq!((error.resource.as_str(), error.property.as_str()), ("X", "Condition"));
}

#[test]
fn what_cant_be_played_is_an_error() {
    let check = |expression: &str| parse_rate(expression);
    assert_eq!(check("rate(1 minute)"), Some(SignedDuration::from_mins(1)));
    assert_eq!(check("cron(0 1 * * ? *)"), None);
    assert_eq!(check("rate(0 minutes)"), None);
}
