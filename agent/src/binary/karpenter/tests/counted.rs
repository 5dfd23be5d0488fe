//! Counters and durations: steps of claims, their ends, starts of pods, drains.

use tenon_domain::SignedDuration;
use tenon_domain::claim::{CommandRole, LaunchFailure, MinValuesState, Terms};
use tenon_domain::snapshot::ActionProgress;
use tenon_snapshot::ObjectKey;
use tenon_snapshot::object::Kind;

use super::*;
use crate::converge::{EvictionAnswer, GonePod};

#[test]
fn steps_of_claims_count_once_and_from_the_first_look_on() {
    let metrics = seen(look(vec![], vec![]));
    let none = BTreeMap::new();
    let old = with(claim("default-old00"), draining(RemovalReason::Drifted));
    converge(&metrics, std::slice::from_ref(&old), &none);
    lacks(&metrics, 0, "karpenter_nodeclaims_created_total");

    let relaxed = Claim { min_values: MinValuesState::Relaxed, ..claim("default-aaaaa") };
    converge(&metrics, &[old, relaxed.clone()], &none);
    // Between two looks it launched, joined, and is being drained; the other one is gone.
    let gone = with(claim("default-old00"), terminated(RemovalReason::Drifted));
    let drained = with(relaxed, draining(RemovalReason::Empty));
    for _ in 0..2 {
        converge(&metrics, &[gone.clone(), drained.clone()], &none);
    }
    converge(&metrics, &[drained], &none);
    check(
        &metrics,
        0,
        &[
            "karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"default\",min_values_relaxed=\"true\"} 1",
            "karpenter_nodes_created_total{nodepool=\"default\",zone=\"us-east-1a\"} 1",
            "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"default\",capacity_type=\"spot\",\
                consolidation_policy=\"when_empty\",termination_mode=\"graceful\"} 1",
            "karpenter_nodeclaims_terminated_total{nodepool=\"default\",capacity_type=\"spot\",zone=\"us-east-1a\"} 1",
        ],
    );
}

#[test]
fn a_replacement_counts_once_its_command_is_read() {
    let metrics = leader();
    let (none, command) = (BTreeMap::new(), CommandId::parse("command-1").unwrap());
    let replacement = Claim { role: CommandRole::Replacement(command.clone()), ..claim("default-aaaaa") };
    assert!(
        metrics.unknown_commands(&claims(std::slice::from_ref(&replacement))).is_empty(),
        "the first look"
    );
    converge(&metrics, &[], &none);
    let all = [replacement];
    assert_eq!(metrics.unknown_commands(&claims(&all)), [command.clone()].into());
    converge(&metrics, &all, &none);
    lacks(&metrics, 0, "karpenter_nodeclaims_created_total");
    converge(&metrics, &all, &BTreeMap::from([(command, RemovalReason::Drifted)]));
    check(
        &metrics,
        0,
        &[
            "karpenter_nodeclaims_created_total{reason=\"drifted\",nodepool=\"default\",min_values_relaxed=\"false\"} 1",
        ],
    );
    assert!(metrics.unknown_commands(&claims(&all)).is_empty());
}

#[test]
fn each_reason_has_its_labels() {
    let check = |claim: Claim, expected: Option<&str>| {
        let metrics = seen(look(vec![], vec![]));
        converge(&metrics, &[], &BTreeMap::new());
        converge(&metrics, &[claim], &BTreeMap::new());
        let text = text(&metrics, 0);
        let found = text.lines().find_map(|line| line.strip_prefix("karpenter_nodeclaims_disrupted_total"));
        assert_eq!(found, expected);
    };
    let of = |reason| with(claim("default-aaaaa"), draining(reason));
    let within = |reason, grace| Claim {
        terms: Some(Terms {
            expire_after: None,
            termination_grace_period: Some(grace),
            load_balancer_deregistration: None,
        }),
        ..of(reason)
    };
    let spot = "nodepool=\"default\",capacity_type=\"spot\",consolidation_policy=\"\"";
    let line =
        |reason: &str, mode: &str| format!("{{reason=\"{reason}\",{spot},termination_mode=\"{mode}\"}} 1");
    check(of(RemovalReason::SpotInterrupted), Some(&line("spot_interrupted", "graceful")));
    check(of(RemovalReason::RebalanceRecommended), Some(&line("rebalance_recommendation", "graceful")));
    check(of(RemovalReason::Unhealthy), Some(&line("unhealthy", "forceful")));
    check(of(RemovalReason::Deleted), None);
    let hour = SignedDuration::from_hours(1);
    check(within(RemovalReason::Expired, hour), Some(&line("expired", "eventual")));
    check(within(RemovalReason::Drifted, SignedDuration::ZERO), Some(&line("drifted", "forceful")));
    let failure = LaunchFailure { reason: "InsufficientCapacityError".to_owned(), message: String::new() };
    let failed = with(claim("default-aaaaa"), ClaimState::LaunchFailed { at: at(9), failure });
    let none = "{reason=\"insufficient_capacity\",nodepool=\"default\",capacity_type=\"\",consolidation_policy=\"\",\
        termination_mode=\"graceful\"} 1";
    check(failed, Some(none));
}

#[test]
fn nodes_and_claims_that_are_gone_are_counted_with_their_times() {
    let metrics = leader();
    let there = |deleted| ClusterLook {
        claims: vec![node_claim("a", deleted)],
        ..look(vec![node("a", deleted), node("b", None)], vec![])
    };
    metrics.observe_look(there(None), at(1_000));
    metrics.observe_look(there(Some(1_010)), at(1_012));
    // Another one disappears without having been deleted: nobody knows when it ended.
    metrics.observe_look(look(vec![], vec![]), at(1_060));
    check(
        &metrics,
        1_060,
        &[
            "karpenter_nodes_terminated_total{nodepool=\"default\",zone=\"us-east-1a\"} 1",
            "karpenter_nodes_lifetime_duration_seconds_sum{nodepool=\"default\"} 960.0",
            "karpenter_nodes_lifetime_duration_seconds_count{nodepool=\"default\"} 1",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.5\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.9\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.99\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"1\"} 50.0",
            "karpenter_nodes_termination_duration_seconds_sum{nodepool=\"default\"} 50.0",
            "karpenter_nodes_termination_duration_seconds_count{nodepool=\"default\"} 1",
            "karpenter_nodeclaims_termination_duration_seconds_sum{nodepool=\"default\"} 50.0",
            "karpenter_nodeclaims_termination_duration_seconds_count{nodepool=\"default\"} 1",
        ],
    );
    let bucket = "karpenter_nodes_lifetime_duration_seconds_bucket{le=\"1800.0\",nodepool=\"default\"} 1\n";
    assert!(text(&metrics, 1_060).contains(bucket));
}

#[test]
fn pods_count_by_their_own_times_once() {
    let metrics = leader();
    let running = pod("old", Some("a"), "Running", &conditions(Some(90), Some(95)));
    let waits = pod("web-1", None, "Pending", &json!({}));
    metrics.observe_look(look(vec![], vec![running.clone(), waits]), at(102));
    // One that came meanwhile is Ready already; the other is bound.
    let fast = pod("fast", Some("a"), "Running", &conditions(Some(101), Some(103)));
    let bound = pod("web-1", Some("a"), "Pending", &conditions(Some(107), None));
    metrics.observe_look(look(vec![], vec![fast.clone(), running.clone(), bound]), at(110));
    let unready = pod("fast", Some("a"), "Running", &conditions(Some(101), None));
    let runs = pod("web-1", Some("a"), "Running", &conditions(Some(107), None));
    metrics.observe_look(look(vec![], vec![unready, running.clone(), runs]), at(112));
    check(&metrics, 112, &["karpenter_pods_unstarted_time_seconds{name=\"web-1\",namespace=\"shop\"} 12.0"]);
    let ready = pod("web-1", Some("a"), "Running", &conditions(Some(107), Some(120)));
    metrics.observe_look(look(vec![], vec![fast, running, ready]), at(130));
    metrics.observe_look(look(vec![], vec![]), at(132));
    check(
        &metrics,
        132,
        &[
            "karpenter_pods_bound_duration_seconds_sum 8.0",
            "karpenter_pods_bound_duration_seconds_count 2",
            "karpenter_pods_startup_duration_seconds{quantile=\"0\"} 3.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.5\"} 3.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.9\"} 20.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.99\"} 20.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"1\"} 20.0",
            "karpenter_pods_startup_duration_seconds_sum 23.0",
            "karpenter_pods_startup_duration_seconds_count 2",
        ],
    );
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let metrics = leader();
    let before = pod("db-0", Some("a"), "Running", &conditions(Some(100), Some(104)));
    metrics.observe_look(look(vec![], vec![before]), at(110));
    let patch = json!({"metadata": {"uid": "another"}});
    let mut ready = conditions(Some(101), Some(106));
    merge(&mut ready, &patch);
    metrics.observe_look(look(vec![], vec![pod("db-0", Some("a"), "Running", &ready)]), at(120));
    let counts =
        ["karpenter_pods_bound_duration_seconds_count 1", "karpenter_pods_startup_duration_seconds_count 1"];
    check(&metrics, 120, &counts);
}

#[test]
fn drains_and_evictions_are_counted() {
    let pods =
        vec![pod("web-1", Some("a"), "Running", &json!({})), pod("web-2", Some("z"), "Running", &json!({}))];
    let metrics = seen(look(vec![node("a", None)], pods));
    let all = claims(&[with(claim("a"), draining(RemovalReason::Underutilized))]);
    let evicted = |name: &str, answer| PodEviction { pod: ObjectKey::new(Kind::Pod, "shop", name), answer };
    let evictions = [
        evicted("web-1", EvictionAnswer::Evicted),
        evicted("web-2", EvictionAnswer::Evicted),
        evicted("web-1", EvictionAnswer::Refused),
        evicted("web-3", EvictionAnswer::Gone(GonePod::NotFound)),
        evicted("web-3", EvictionAnswer::Gone(GonePod::Conflict)),
    ];
    metrics.observe_evictions(&evictions, &all);
    let report = |progress| [ActionReport { claim: "a".to_owned(), number: 1, progress }];
    for progress in [ActionProgress::working(1), ActionProgress::Done, ActionProgress::Done] {
        let (reasons, reports) = (BTreeMap::new(), report(progress));
        metrics.observe_claims(ConvergedClaims { claims: &all, reasons: &reasons, reports: &reports });
    }
    check(
        &metrics,
        200,
        &[
            "karpenter_pods_eviction_requests_total{code=\"200\"} 2",
            "karpenter_pods_eviction_requests_total{code=\"404\"} 1",
            "karpenter_pods_eviction_requests_total{code=\"409\"} 1",
            "karpenter_pods_eviction_requests_total{code=\"429\"} 1",
            "karpenter_pods_drained_total{reason=\"Underutilized\"} 1",
            "karpenter_pods_drained_total{reason=\"Forceful Termination\"} 1",
            "karpenter_nodes_drained_total{nodepool=\"default\"} 1",
        ],
    );
}

#[test]
fn a_new_leader_counts_no_drain_that_was_over() {
    let metrics = leader();
    let all = claims(&[with(claim("a"), draining(RemovalReason::Drifted))]);
    let reports = [ActionReport { claim: "a".to_owned(), number: 1, progress: ActionProgress::Done }];
    for _ in 0..2 {
        let reasons = BTreeMap::new();
        metrics.observe_claims(ConvergedClaims { claims: &all, reasons: &reasons, reports: &reports });
    }
    lacks(&metrics, 0, "karpenter_nodes_drained_total");
}
