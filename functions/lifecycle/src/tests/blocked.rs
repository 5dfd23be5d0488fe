//! A drain that doesn't go on: somebody is told what is in the way, once, and a wake costs nothing meanwhile.

use super::*;
use tenon_domain::drain_block::{DrainBlock, DrainObstacle};
use tenon_domain::snapshot::{ActionProgress, ActionReport};

/// A drain since the first minute, which the agent reports to be blocked by a budget that keeps so many pods.
fn blocked(now: Timestamp, deadline: Option<Timestamp>, keeps: u32) -> LifecycleInput {
    let claims = vec![claim(0, draining(0, minutes(1), deadline))];
    let mut input = with_snapshot(input(now, claims, vec![node(0)]), |snapshot| {
        let block = DrainBlock {
            by: DrainObstacle::PodDisruptionBudget,
            names: vec!["a/web".to_owned()],
            first: "a/web-1".to_owned(),
            count: keeps,
        };
        let action = drain_action(0);
        snapshot.reports.push(ActionReport {
            claim: action.claim.to_string(),
            number: action.number,
            progress: ActionProgress::Working { pods_left: keeps, blocks: vec![block] },
        });
    });
    let action = drain_action(0);
    input.actions.insert(action.claim.clone(), action);
    input.audit.at = Some(now);
    input
}

fn words(report: Report) -> Vec<String> {
    let mut findings: Vec<Finding> = Vec::new();
    report.deliver(&mut findings);
    findings.iter().map(|finding| finding.message("lifecycle")).collect()
}

#[test]
fn an_obstacle_is_told_after_a_minute_and_not_looked_at_again_before_something_changes() {
    let (plan, report) = planned(&blocked(EPOCH + SignedDuration::from_secs(90), None, 2));
    assert_eq!((words(report), plan.wake_at), (Vec::new(), minutes(2)));
    let (plan, report) = planned(&blocked(minutes(2), None, 2));
    assert_eq!(
        words(report),
        [
            "NodeClaim `default-00000` isn't drained yet: PodDisruptionBudget `a/web` keeps pod `a/web-1` and 1 other: \
             make its other pods Ready, add replicas, or allow a disruption"
        ]
    );
    assert_eq!(plan.wake_at, minutes(2) + crate::AUDIT_EVERY);
    let (_, report) = planned(&blocked(minutes(2), Some(minutes(61)), 1));
    let told = words(report);
    assert!(told[0].ends_with("; at 2026-01-01T01:01:00Z the instance is terminated anyway"), "{told:?}");
}
