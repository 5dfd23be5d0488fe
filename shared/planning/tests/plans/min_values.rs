//! `minValues` of a pool, and what becomes of those that can't be met.

use crate::support::*;
use tenon_domain::claim::MinValuesState;
use tenon_domain::labels;
use tenon_domain::registry::MinValuesPolicy;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{PoolInput, plan};

/// Types of 2, 4, 8 and 16 CPU, of which the limit leaves three.
fn limited(least: u32) -> PoolInput {
    let sizes = [("m.large", 2), ("m.xlarge", 4), ("m.2xlarge", 8), ("m.4xlarge", 16)];
    let sizes = sizes.map(|(name, cpu)| FakeType::new(name, cpu, 4 * cpu, 29).option());
    let mut pool = pool("default", sizes.to_vec());
    let asked = Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(least));
    pool.pool.template.requirements.add(asked);
    pool.pool.limits = list(&[("cpu", "8")]);
    pool
}

#[test]
fn min_values_of_zones_and_ways_to_pay_count_what_the_types_offer() {
    let check = |key: &str, least: u32, planned: usize| {
        let mut pool = default_pool();
        let asked = Requirement::exists(key).with_min_values(Some(least));
        pool.pool.template.requirements.add(asked);
        let (plan, report) = plan(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![pool]));
        assert_eq!(plan.claims.len(), planned, "{key} {least}: {report:#?}");
    };
    check(labels::ZONE, 3, 1);
    check(labels::ZONE, 4, 0);
    check(labels::CAPACITY_TYPE, 2, 1);
    check(labels::CAPACITY_TYPE, 3, 0);
}

#[test]
fn min_values_keep_alternatives() {
    let with = |least| {
        let mut picky = default_pool();
        let types = ["default.instance-type", "small.instance-type", "gpu-vendor.instance-type"];
        picky.pool.template.requirements =
            [Requirement::one_of(labels::INSTANCE_TYPE, types).with_min_values(Some(least))]
                .into_iter()
                .collect();
        picky
    };
    let tiny = || pods("web", 3, shape(&[("cpu", "1")]));
    // Three on one node would leave out the small type.
    let (plan, _) = claims(&input(tiny(), vec![with(3)]), 3);
    assert!(plan.claims.iter().all(|claim| claim.instance_types.len() == 3));
    claims(&input(tiny(), vec![with(2)]), 1);
    check_reason(&input(pods("web", 1, shape(&[("cpu", "3")])), vec![with(3)]), "MinValuesNotSatisfied");
}

/// The peer's case C092.
#[test]
fn c092_min_values_that_cant_be_met_are_lowered_at_best_effort_before_another_pool_is_tried() {
    let mut picky = default_pool();
    picky.pool.weight = 10;
    let types = ["default.instance-type", "small.instance-type", "gpu-vendor.instance-type"];
    picky.pool.template.requirements =
        [Requirement::one_of(labels::INSTANCE_TYPE, types).with_min_values(Some(3))].into_iter().collect();
    let mut other = default_pool();
    other.pool.name = "other".parse().unwrap();
    other.pool.weight = 1;
    // The small type doesn't hold 3 CPU.
    let mut world = input(pods("web", 1, shape(&[("cpu", "3")])), vec![picky, other]);
    let (strict, _) = claims(&world, 1);
    assert_eq!(strict.claims[0].pool.as_str(), "other");
    world.policies.min_values = MinValuesPolicy::BestEffort;
    let (lowered, _) = claims(&world, 1);
    let claim = &lowered.claims[0];
    assert_eq!((claim.pool.as_str(), claim.instance_types.len()), ("default", 2));
    assert_eq!(claim.requirements.get(labels::INSTANCE_TYPE).unwrap().min_values(), Some(2));
    assert_eq!(claim.annotations[labels::MIN_VALUES_RELAXED], "true");
    assert_eq!(claim.min_values, MinValuesState::Relaxed);
    // What can be met is kept as it is written, at a higher price.
    world.pods = pods("web", 3, shape(&[("cpu", "1")]));
    let (kept, _) = claims(&world, 3);
    assert!(kept.claims.iter().all(|claim| claim.min_values == MinValuesState::AsWritten));
}

#[test]
fn values_that_limits_leave_out_do_not_count() {
    let report = check_reason(
        &input(pods("web", 1, shape(&[("cpu", "100m")])), vec![limited(5)]),
        "MinValuesNotSatisfied",
    );
    assert_eq!(
        report.unschedulable[0].reason().to_string(),
        "`minValues` of `node.kubernetes.io/instance-type` is 5, but only 3 values are available: lower it, or allow more"
    );
}

#[test]
fn a_claim_has_as_few_pods_as_limits_and_min_values_ask_for_together() {
    let (plan, report) = claims(&input(pods("web", 3, shape(&[("cpu", "1")])), vec![limited(3)]), 1);
    let claim = &plan.claims[0];
    assert_eq!((claim.pods.len(), claim.instance_types.len()), (1, 3));
    let reasons: Vec<&str> = report.unschedulable.iter().map(|one| one.reason().into_str()).collect();
    assert_eq!(reasons, ["LimitsExceeded", "LimitsExceeded"]);
}

#[test]
fn at_best_effort_min_values_are_lowered_to_what_limits_leave() {
    let check = |least: u32, count: usize, cpu: &str, kept: u32| {
        let mut world = input(pods("web", count, shape(&[("cpu", cpu)])), vec![limited(least)]);
        world.policies.min_values = MinValuesPolicy::BestEffort;
        let (plan, _) = claims(&world, 1);
        let claim = &plan.claims[0];
        assert_eq!((claim.pods.len(), claim.instance_types.len()), (count, kept as usize));
        assert_eq!(claim.requirements.get(labels::INSTANCE_TYPE).unwrap().min_values(), Some(kept));
    };
    check(5, 1, "100m", 3);
    check(3, 3, "1", 2);
    // Pods come first: one claim alone would take the whole limit.
    let mut web = app("web", "3500m");
    web.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "web")];
    let mut world = input(pods("web", 2, web), vec![limited(3)]);
    world.policies.min_values = MinValuesPolicy::BestEffort;
    claims(&world, 2);
}
