//! `minValues` of a pool, and what becomes of those that can't be met.

use crate::support::*;
use tenon_domain::claim::MinValuesState;
use tenon_domain::labels;
use tenon_domain::registry::MinValuesPolicy;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::plan;

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
