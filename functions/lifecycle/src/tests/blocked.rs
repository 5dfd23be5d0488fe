//! A drain that doesn't go on: somebody is told what is in the way, once, and a wake costs nothing meanwhile. One that
//! waits for load balancers alone isn't blocked.

use super::*;
use tenon_domain::claim::Terms;
use tenon_domain::drain_block::{DrainBlock, DrainObstacle};
use tenon_domain::labels::LOAD_BALANCER_DEREGISTRATION;
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

fn seconds(n: i64) -> Timestamp {
    EPOCH + SignedDuration::from_secs(n)
}

/// A drain since the first minute, which the agent reports to be done, and whose instance still runs.
fn done(now: Timestamp, deadline: Option<Timestamp>, annotation: Option<&str>) -> LifecycleInput {
    let input = with_snapshot(blocked(now, deadline, 1), |snapshot| {
        snapshot.reports[0].progress = ActionProgress::Done;
        let written = annotation.map(|value| (LOAD_BALANCER_DEREGISTRATION.to_owned(), value.to_owned()));
        snapshot.node_pools[0].meta.annotations.extend(written);
    });
    with_ec2(input, vec![instance(0, InstanceState::Running, EPOCH)])
}

/// What is recorded of the drain's end, or else what is told, and when it is looked at again.
fn end(input: &LifecycleInput) -> Result<String, (Vec<String>, Timestamp)> {
    let (plan, report) = planned(input);
    match plan.steps.first() {
        Some(step) => Ok(step.journal[0].message.clone()),
        None => Err((words(report), plan.wake_at)),
    }
}

#[test]
fn a_drain_that_ends_with_volumes_attached_names_them() {
    let left = |volumes: &[&str]| {
        end(&with_snapshot(done(seconds(700), None, None), |snapshot| {
            let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
            snapshot.reports[0].progress = ActionProgress::Left { volumes };
        }))
        .unwrap()
    };
    let start = "drained: no evictable pod is left on the node;";
    assert_eq!(
        left(&["pv-1"]),
        format!(
            "{start} volume `pv-1` is still attached, and the end of the instance detaches it: see why its \
             VolumeAttachment stayed"
        )
    );
    assert_eq!(
        left(&["pv-1", "pv-2"]),
        format!(
            "{start} volumes `pv-1`, `pv-2` are still attached, and the end of the instance detaches them: see why \
             their VolumeAttachments stayed"
        )
    );
}

#[test]
fn an_instance_stays_while_load_balancers_deregister_it() {
    let drained = "drained: no evictable pod is left on the node";
    let (had, less) = (
        format!("{drained}; load balancers had 90 s to deregister the instance"),
        format!("{drained}; its deadline left load balancers less than 90 s to deregister the instance"),
    );
    let told = |until: &str| {
        format!(
            "NodeClaim `default-00000` is drained, and its instance stays: load balancers have 90 s from the drain's \
             begin to deregister it, as `tenon.dev/load-balancer-deregistration` of NodePool `default` says; it is \
             terminated at 2026-01-01T00:{until}Z"
        )
    };
    let stays = |until: &str, at: i64| Err((vec![told(until)], seconds(at)));
    assert_eq!(end(&done(seconds(149), None, Some("90s"))), stays("02:30", 150));
    assert_eq!(end(&done(seconds(150), None, Some("90s"))), Ok(had.clone()));
    assert_eq!(end(&done(seconds(65), None, None)), Ok(drained.to_owned()));
    assert_eq!(end(&done(seconds(65), None, Some("0s"))), Ok(drained.to_owned()));
    assert_eq!(end(&done(seconds(65), None, Some("soon"))), Ok(drained.to_owned()), "told by `disruption`");
    // The deadline bounds it.
    assert_eq!(end(&done(seconds(65), Some(seconds(120)), Some("90s"))), stays("02:00", 120));
    assert_eq!(end(&done(seconds(120), Some(seconds(120)), Some("90s"))), Ok(less));
    // The agent came late, so the label did.
    let late = with_snapshot(done(seconds(150), None, Some("90s")), |snapshot| {
        snapshot.nodes[0].meta.deleted_at = Some(seconds(80));
    });
    assert_eq!(end(&late), stays("02:50", 170));
    // Load balancers aren't faster because the Node is gone.
    let gone = with_snapshot(done(seconds(149), None, Some("90s")), |snapshot| snapshot.nodes.clear());
    assert_eq!(end(&gone), stays("02:30", 150));
}

#[test]
fn a_pool_that_is_gone_gives_load_balancers_what_it_gave_at_the_launch() {
    let ends_at_once = |pools: &[NodePool]| {
        let mut input = with_snapshot(done(seconds(65), None, None), |snapshot| {
            snapshot.node_pools = pools.to_vec();
        });
        let deregistration = Some(SignedDuration::from_secs(90));
        let own = Terms {
            expire_after: None,
            termination_grace_period: None,
            load_balancer_deregistration: deregistration,
        };
        input.claims.values_mut().for_each(|claim| claim.terms = Some(own));
        end(&input).is_ok()
    };
    assert!(!ends_at_once(&[]));
    assert!(ends_at_once(&[pool()]));
}
