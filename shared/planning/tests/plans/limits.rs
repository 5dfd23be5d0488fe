//! Limits: of a NodePool, and of a cluster's nodes. A test with a number in its name replays behaviour of Karpenter's own
//! tests (kubernetes-sigs/karpenter `pkg/controllers/provisioning`).

use crate::support::*;
use tenon_domain::id::InstanceType;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::PoolInput;

fn limited(limits: &[(&str, &str)]) -> PoolInput {
    let mut pool = default_pool();
    pool.pool.limits = list(limits);
    pool
}

#[test]
fn c089_limits() {
    let exclusive = |count| pods("web", count, shape(&[("cpu", "1500m")]));
    let mut used = limited(&[("cpu", "20")]);
    used.usage = list(&[("cpu", "100")]);
    check_reason(&input(exclusive(1), vec![used]), "LimitsExceeded");
    claims(&input(exclusive(1), vec![limited(&[("cpu", "2")])]), 1);
    let (_, report) = claims(&input(exclusive(2), vec![limited(&[("cpu", "3")])]), 1);
    assert_eq!(report.unschedulable.len(), 1);
    let large = pods("large", 3, shape(&[("cpu", "3500m")]));
    let mut two = limited(&[("nodes", "2")]);
    two.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
    let (_, report) = claims(&input(large, vec![two]), 2);
    assert_eq!(
        report.unschedulable[0].reason().to_string(),
        "the `nodes` limit leaves no room for a matching instance type: raise `spec.limits`"
    );
}

#[test]
fn the_clusters_most_nodes_are_no_limit_of_a_pool() {
    let large = || pods("large", 3, shape(&[("cpu", "3500m")]));
    let check = |nodes_left, limits: &[(&str, &str)], launched, reason: &str| {
        let pool = PoolInput { nodes_left: Some(nodes_left), ..limited(limits) };
        let (_, report) = claims(&input(large(), vec![pool]), launched);
        assert_eq!(report.unschedulable[0].reason().into_str(), reason);
        report.unschedulable[0].message()
    };
    let message = "NodePool `default`: the cluster has as many nodes as `MaxNodes` allows: \
                   raise it in the cluster's stack";
    assert_eq!(check(2, &[], 2, "MaxNodesReached"), message);
    assert_eq!(check(2, &[("nodes", "5")], 2, "MaxNodesReached"), message);
    check(5, &[("nodes", "2")], 2, "LimitsExceeded");
    check(2, &[("nodes", "2")], 2, "LimitsExceeded");
}

#[test]
fn what_a_pool_may_not_launch_goes_to_the_next() {
    let mut first = limited(&[("nodes", "1")]);
    first.pool.weight = 10;
    first.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
    let second = pool("second", six());
    let (plan, _) = claims(&input(pods("web", 2, shape(&[("cpu", "3500m")])), vec![first, second]), 2);
    let pools: Vec<&str> = plan.claims.iter().map(|claim| claim.pool.as_str()).collect();
    assert_eq!(pools, ["default", "second"]);
}

#[test]
fn a_limit_of_something_that_no_type_has_limits_nothing() {
    claims(&input(pods("web", 2, shape(&[("cpu", "3")])), vec![limited(&[("nvidia.com/gpu", "8")])]), 2);
}

#[test]
fn a_type_that_is_cheaper_and_larger_but_over_the_limit_hides_no_other() {
    let mut large = FakeType::new("a.large", 8, 8, 5).option();
    for offering in &mut large.offerings {
        offering.price = offering.price.map(|price| UsdPerHour::from_nanos(price.nanos() / 10));
    }
    let mut both = pool("default", vec![large, FakeType::new("a.little", 2, 2, 5).option()]);
    both.pool.limits = list(&[("cpu", "4")]);
    let (plan, _) = claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![both]), 1);
    assert_eq!(*plan.claims[0].instance_types, ["a.little"].map(|name| InstanceType::parse(name).unwrap()));
}

#[test]
fn the_clusters_most_nodes_are_counted_over_all_pools() {
    let first = || PoolInput { nodes_left: Some(2), ..limited(&[("nodes", "1")]) };
    let second = PoolInput { nodes_left: Some(2), ..pool("a-second", six()) };
    let large = pods("large", 4, shape(&[("cpu", "3500m")]));
    let mut amd = vec![first(), second];
    for pool in &mut amd {
        pool.pool.template.requirements =
            [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
    }
    let (_, report) = claims(&input(large, amd), 2);
    assert_eq!(report.unschedulable.len(), 2);
}
