//! Limits: of a NodePool, and of a cluster's nodes. A test with a number in its name replays behaviour of Karpenter's own
//! tests (kubernetes-sigs/karpenter `pkg/controllers/provisioning`).

use crate::support::*;
use crate::topology::by_zone;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::id::InstanceType;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{ExistingNode, NodeKind, PoolInput, ProvisionInput, plan};

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
fn few_nodes_are_large_enough_for_all_pods() {
    let check = |nodes: &str, count, cpu, expected| {
        let sizes = [("m.1", 1), ("m.2", 2), ("m.8", 8), ("m.16", 16), ("m.32", 32)];
        let types = sizes.map(|(name, cpu)| FakeType::new(name, cpu, 4 * cpu, 58).option());
        let only = pool("default", types.to_vec());
        let mut limited = only.clone();
        limited.pool.limits = list(&[("nodes", nodes)]);
        for pool in [limited, PoolInput { nodes_left: nodes.parse().ok(), ..only }] {
            let web = pods("web", count, shape(&[("cpu", cpu)]));
            let (plan, report) = claims(&input(web, vec![pool]), expected);
            assert_eq!(report.unschedulable, [], "{plan:?}");
        }
    };
    check("1", 4, "1500m", 1);
    check("2", 38, "1500m", 2);
    check("1", 1, "100m", 1);
}

#[test]
fn leaving_nodes_leave_room_until_the_pool_has_twice_its_limit() {
    let check = |stays: &str, leaves: &str, launched| {
        let mut pool = limited(&[("nodes", "2")]);
        pool.pool.template.requirements =
            [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
        (pool.usage, pool.leaving) = (list(&[("nodes", stays)]), list(&[("nodes", leaves)]));
        let large = pods("large", 3, shape(&[("cpu", "3500m")]));
        let (_, report) = claims(&input(large, vec![pool]), launched);
        assert!(report.unschedulable.iter().all(|one| one.reason().into_str() == "LimitsExceeded"));
    };
    check("2", "0", 0);
    check("1", "1", 1);
    check("0", "2", 2);
    check("0", "3", 1);
    check("0", "4", 0);
    check("2", "1", 0);
    check("3", "0", 0);
}

#[test]
fn leaving_nodes_leave_no_room_in_the_clusters_bounds() {
    let mut pool = PoolInput { nodes_left: Some(0), ..limited(&[("nodes", "2")]) };
    pool.leaving = list(&[("nodes", "2")]);
    check_reason(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![pool]), "MaxNodesReached");
}

#[test]
fn the_clusters_most_nodes_are_no_limit_of_a_pool() {
    let large = || pods("large", 3, shape(&[("cpu", "3500m")]));
    let check = |nodes_left, limits: &[(&str, &str)], launched, reason: &str| {
        let mut pool = PoolInput { nodes_left: Some(nodes_left), ..limited(limits) };
        pool.pool.template.requirements =
            [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
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

fn large() -> InstanceTypeOption {
    FakeType::new("m.large", 2, 8, 29).option()
}

/// Six pods spread over zones; a large node holds one, one of double the size two.
fn spread_over_zones(nodes: Vec<ExistingNode>, pools: Vec<PoolInput>) -> ProvisionInput {
    let mut web = app("web", "1500m");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut world = input(pods("web", 6, web), pools);
    world.nodes = nodes;
    world
}

/// The pods on new nodes by zone, of which a limit keeps the others.
fn check_spread(world: &ProvisionInput, expected: &[usize]) {
    let (made, report) = plan(world);
    assert_eq!(by_zone(&made), expected, "{report:#?}");
    assert_eq!(report.unschedulable.len(), world.pods.len() - expected.iter().sum::<usize>());
    for refused in &report.unschedulable {
        assert_eq!(refused.reason().into_str(), "LimitsExceeded");
    }
}

#[test]
fn a_limit_takes_pods_of_a_spread_away_evenly() {
    let check = |limits: &[(&str, &str)], types: Vec<InstanceTypeOption>, full: usize, expected: &[usize]| {
        let mut only = pool("default", types);
        only.pool.limits = list(limits);
        let nodes = ZONES.iter().take(full).map(|zone| {
            let mut one =
                node(&format!("full-{zone}"), NodeKind::Initialized, &[("cpu", "100m"), ("pods", "9")]);
            one.labels.insert(labels::ZONE.to_owned(), (*zone).to_owned());
            one
        });
        check_spread(&spread_over_zones(nodes.collect(), vec![only]), expected);
    };
    check(&[("cpu", "8")], vec![large()], 0, &[1, 1, 2]);
    check(&[("nodes", "4")], vec![large()], 0, &[1, 1, 2]);
    check(&[("cpu", "8")], vec![large()], 3, &[1, 1, 2]);
    check(&[("cpu", "8")], vec![large()], 1, &[1, 1, 2]);
    check(&[("cpu", "4")], vec![large()], 0, &[1, 1]);
    let double = FakeType::new("m.xlarge", 4, 16, 58).option();
    check(&[("cpu", "8")], vec![large(), double], 0, &[1, 1, 2]);
}

#[test]
fn a_limit_of_the_pool_of_some_zones_holds_back_the_others() {
    let check = |zones: usize, cpu: &str, expected: &[usize]| {
        let mut first = pool("first", vec![large()]);
        first.pool.limits = list(&[("cpu", cpu)]);
        first
            .pool
            .template
            .requirements
            .add(Requirement::one_of(labels::ZONE, ZONES.iter().take(zones).copied()));
        let mut second = pool("second", vec![large()]);
        second
            .pool
            .template
            .requirements
            .add(Requirement::one_of(labels::ZONE, ZONES.iter().skip(zones).copied()));
        check_spread(&spread_over_zones(Vec::new(), vec![first, second]), expected);
    };
    check(1, "2", &[1, 2, 2]);
    check(2, "4", &[1, 1, 2]);
    check(2, "2", &[1, 1]);
}

/// Ten pods in zones of four, three and three need four nodes; nine fit on three.
#[test]
fn nodes_within_a_limit_are_filled() {
    let mut web = app("web", "1200m");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut only = pool("default", vec![FakeType::new("m.xlarge", 4, 16, 58).option()]);
    only.pool.limits = list(&[("cpu", "12")]);
    check_spread(&input(pods("web", 10, web), vec![only]), &[3, 3, 3]);
}
