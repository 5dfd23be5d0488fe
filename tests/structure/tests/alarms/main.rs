//! Alarms that can ring, and ring for what they are meant for: each reads a metric that AWS publishes under exactly its
//! dimensions, of a resource of the stacks, and its rule tells the failure's minutes from the healthy ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

mod evaluate;
mod failures;
mod metrics;
mod stack;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenon_structure_tests::read;

use crate::evaluate::{AlarmRule, AlarmState};
use crate::failures::{AlarmCase, HEALTHY, ages_of_failing, cases};
use crate::metrics::problems;
use crate::stack::EvaluatedStack;

const STACKS: [&str; 2] = ["template.yaml", "infra/cluster.yaml"];

fn stacks() -> [EvaluatedStack; 2] {
    STACKS.map(EvaluatedStack::read)
}

/// The minutes at whose ends the alarm isn't in this state, from one of them on.
fn otherwise(rule: &AlarmRule, minutes: &[Option<f64>], from: usize, state: AlarmState) -> Vec<usize> {
    (from..=minutes.len()).filter(|end| rule.state(&minutes[..*end]) != state).collect()
}

/// What is wrong with an alarm's rule.
fn misjudged(case: &AlarmCase, rule: &AlarmRule) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, minutes) in case.healthy.iter().enumerate() {
        // The first half fills every period that is read.
        let rings = otherwise(rule, minutes, HEALTHY / 2, AlarmState::Ok);
        if let Some(minute) = rings.first() {
            problems.push(format!("rings for the healthy minutes {number}, in minute {minute}"));
        }
    }
    for failure in &case.failures {
        let from = HEALTHY + failure.rings_within;
        let quiet = otherwise(rule, &failure.minutes, from, AlarmState::Alarm);
        if let Some(minute) = quiet.first() {
            problems.push(format!("`{}`: doesn't ring {} minutes after it", failure.what, minute - HEALTHY));
        }
    }
    problems
}

/// What is wrong with the alarms of both stacks.
fn findings(stacks: &[EvaluatedStack; 2]) -> Vec<String> {
    let [region, cluster] = stacks;
    let cases = cases(region, cluster);
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for stack in stacks {
        for (name, alarm) in stack.of_kind("AWS::CloudWatch::Alarm") {
            let mut found = problems(stack, alarm);
            let case = cases.iter().find(|case| case.alarm == name);
            match (AlarmRule::read(alarm), case) {
                (Ok(rule), Some(case)) => found.extend(misjudged(case, &rule)),
                (Err(unknown), _) => found.push(unknown),
                (Ok(_), None) => found.push("what is it meant for?".to_owned()),
            }
            findings.extend(found.into_iter().map(|problem| format!("{}, {name}: {problem}", stack.path)));
            seen.insert(name.to_owned());
        }
    }
    let gone = cases.iter().map(|case| case.alarm).filter(|name| !seen.contains(*name));
    findings.extend(gone.map(|name| format!("no stack has {name}")));
    findings
}

#[test]
fn every_alarm_rings_for_what_it_is_meant_for_and_for_nothing_else() {
    let findings = findings(&stacks());
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Each of these mistakes makes an alarm dead, late or loud.
#[test]
fn a_mistake_in_an_alarm_is_found() {
    let by_reference = |name: &str| json!({ "Ref": name });
    let mistakes: [(&str, &str, Value); 21] = [
        ("CatalogSilentAlarm", "Dimensions/0/Value", json!({ "Fn::GetAtt": "CatalogFunction.Arn" })),
        ("CatalogSilentAlarm", "Dimensions/0/Name", json!("Function")),
        ("CatalogSilentAlarm", "MetricName", json!("NumberOfMessagesDeleted")),
        ("LifecycleSilentAlarm", "Dimensions/0/Value", by_reference("LifecycleQueue")),
        ("LifecycleSilentAlarm", "Dimensions/0/Value", json!({ "Fn::GetAtt": "LifecycleQueue.Arn" })),
        ("LifecycleSilentAlarm", "Dimensions/0/Name", json!("Queue")),
        ("CatalogStaleAlarm", "Dimensions/1/Value", by_reference("CatalogStaleRule")),
        ("CatalogStaleAlarm", "Dimensions", json!([])),
        ("CatalogStaleAlarm", "Statistic", json!("Average")),
        ("CatalogStaleAlarm", "MetricName", json!("TriggeredRule")),
        ("ImagesSilentAlarm", "Statistic", json!("SampleCount")),
        ("LifecycleSilentAlarm", "Period", json!(300)),
        ("ImagesSilentAlarm", "TreatMissingData", json!("notBreaching")),
        ("ProvisionerSilentAlarm", "TreatMissingData", json!("notBreaching")),
        ("ProvisionerSilentAlarm", "Threshold", json!(11)),
        ("LifecycleSilentAlarm", "ComparisonOperator", json!("GreaterThanThreshold")),
        ("LifecycleWaitingAlarm", "EvaluationPeriods", json!(4)),
        ("LifecycleWaitingAlarm", "EvaluationPeriods", json!(1)),
        ("InterruptionWaitingAlarm", "Period", json!(30)),
        ("DeadLettersAlarm", "Threshold", json!(1)),
        ("DeadLettersAlarm", "TreatMissingData", json!("breaching")),
    ];
    for (alarm, property, value) in mistakes {
        assert_found(0, alarm, property, value);
    }
    let of_cluster = [
        ("AttentionAlarm", "Dimensions/1/Value", by_reference("AttentionRule")),
        ("AttentionAlarm", "Threshold", json!(5)),
        ("AttentionAlarm", "Threshold", json!(9)),
        ("AttentionAlarm", "Period", json!(300)),
        ("AttentionAlarm", "EvaluationPeriods", json!(2)),
        ("AttentionAlarm", "TreatMissingData", json!("notBreaching")),
    ];
    for (alarm, property, value) in of_cluster {
        assert_found(1, alarm, property, value);
    }
}

/// The alarms of the stack of this place say that the property's new value is wrong.
#[track_caller]
fn assert_found(stack: usize, alarm: &str, property: &str, value: Value) {
    let mut stacks = stacks();
    let pointer = format!("/Resources/{alarm}/Properties/{property}");
    let place = stacks[stack].document.pointer_mut(&pointer);
    *place.unwrap_or_else(|| panic!("{pointer} isn't there")) = value.clone();
    let findings = findings(&stacks);
    assert!(findings.iter().any(|finding| finding.contains(alarm)), "{alarm}: {property} = {value}");
}

/// A warning that fails returns every 15 s, so that it leaves the age of the oldest message within one minute: the alarm
/// tells of a queue that isn't read, and the dead letters tell of warnings that fail.
#[test]
fn a_failing_warning_is_told_by_its_dead_letters() {
    let [region, _] = stacks();
    let resources = &region.document["Resources"];
    let rule = |name: &str| AlarmRule::read(&resources[name]["Properties"]).unwrap();
    let seconds = resources["InterruptionQueue"]["Properties"]["VisibilityTimeout"].as_u64().unwrap();
    assert!(seconds * 2 < 60, "a third receive within a minute");
    let ages = ages_of_failing(1, 1, HEALTHY);
    let rings = otherwise(&rule("InterruptionWaitingAlarm"), &ages, 1, AlarmState::Ok);
    assert_eq!(rings, [] as [usize; 0]);
    assert_eq!(rule("DeadLettersAlarm").state(&[Some(1.0)]), AlarmState::Alarm);
}

/// Lambda counts invocations, failed ones among them, and no successes. So the silent alarm of a function without a queue
/// tells that it doesn't run, and the dead letters tell that it fails: an invocation ends there three minutes after its
/// event.
#[test]
fn failing_invocations_are_told_by_their_dead_letters() {
    let [region, _] = stacks();
    let resources = &region.document["Resources"];
    let rule = |name: &str| AlarmRule::read(&resources[name]["Properties"]).unwrap();
    for function in ["Catalog", "Images"] {
        let silent = format!("{function}SilentAlarm");
        assert_eq!(resources[&silent]["Properties"]["MetricName"], "Invocations");
        let failing = vec![Some(1.0); HEALTHY];
        assert_eq!(rule(&silent).state(&failing), AlarmState::Ok, "{function}");
        let kept = &resources[format!("{function}Function")]["Properties"]["EventInvokeConfig"];
        let kept = region.text(&kept["DestinationConfig"]["OnFailure"]["Destination"]);
        let alarm = &resources["ExecutionDeadLettersAlarm"]["Properties"];
        let watched = region.text(&alarm["Dimensions"][0]["Value"]);
        assert!(kept.ends_with(&format!(":{watched}")), "{kept} isn't {watched}");
        assert_eq!(rule("ExecutionDeadLettersAlarm").state(&[Some(1.0)]), AlarmState::Alarm);
    }
}

/// The alarms of silence count the region's own sweep, by the rule of the clusters' sweeps: they ring where it is disabled
/// or has lost a target, and not in a region without clusters.
#[test]
fn the_regions_sweep_takes_the_way_of_the_clusters() {
    let [region, cluster] = stacks();
    let target = |stack: &EvaluatedStack, schedule: &str| {
        stack.document["Resources"][schedule]["Properties"]["Target"]["EventBridgeParameters"].clone()
    };
    let sent = target(&region, "InstanceStatusSchedule");
    assert_eq!(sent, target(&cluster, "SweepSchedule"));
    let rule = &region.document["Resources"]["SweepRule"]["Properties"];
    let pattern = json!({ "source": [sent["Source"]], "detail-type": [sent["DetailType"]] });
    assert_eq!(rule["EventPattern"], pattern);
    let targets: BTreeSet<String> =
        rule["Targets"].as_array().unwrap().iter().map(|target| region.text(&target["Arn"])).collect();
    let watched = |alarm: &str| {
        let dimension = &region.document["Resources"][alarm]["Properties"]["Dimensions"][0]["Value"];
        let name = region.text(dimension);
        targets.iter().filter(|target| target.ends_with(&format!(":{name}"))).count()
    };
    assert_eq!(["ProvisionerSilentAlarm", "LifecycleSilentAlarm"].map(watched), [1, 1]);
}

/// A rule behind an alarm matches an event that is sent, of this cluster if it is a cluster's.
#[test]
fn what_an_alarm_counts_is_an_event_of_the_document() {
    let document = read("docs/events.md");
    for stack in stacks() {
        let rules = stack.of_kind("AWS::Events::Rule").into_iter();
        for (name, rule) in rules.filter(|(_, rule)| rule.get("Targets").is_none()) {
            let (path, pattern) = (stack.path, &rule["EventPattern"]);
            for kind in pattern["detail-type"].as_array().unwrap() {
                let heading = format!("### {}\n", kind.as_str().unwrap());
                assert!(document.contains(&heading), "{path}, {name}: no event {kind} in docs/events.md");
            }
            let of_cluster = pattern["detail"]["cluster"].as_array().map(|of| stack.text(&of[0]));
            let expected = (path == "infra/cluster.yaml").then(|| "prod".to_owned());
            assert_eq!(of_cluster, expected, "{path}, {name}");
        }
    }
}
