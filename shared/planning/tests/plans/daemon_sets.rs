//! DaemonSets: what their pods take of a node. A test with a number in its name replays behaviour of Karpenter's own
//! tests (kubernetes-sigs/karpenter `pkg/controllers/provisioning`).

use std::sync::Arc;

use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::PodShape;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{NodeKind, PoolInput, explain};

const TEAM: &str = "example.com/team";

/// One type with 1900m CPU for pods, on nodes of two teams.
fn large() -> PoolInput {
    let mut pool = pool("default", vec![FakeType::new("m.large", 2, 8, 29).option()]);
    pool.pool.template.requirements = [Requirement::one_of(TEAM, ["blue", "red"])].into_iter().collect();
    pool
}

#[test]
fn daemon_sets_that_do_not_tolerate_a_pool_take_nothing_of_its_nodes() {
    let tainted = || {
        let mut pool = default_pool();
        pool.pool.template.taints = vec![Taint::new("dedicated", TaintEffect::NoSchedule)];
        pool
    };
    let tolerating = |cpu: &str| {
        let mut shape = shape(&[("cpu", cpu)]);
        shape.tolerations = vec![Toleration::exists("dedicated")];
        shape
    };
    let mut world = input(pods("web", 1, tolerating("1")), vec![tainted()]);
    world.daemon_sets =
        vec![daemon_set("intolerant", shape(&[("cpu", "2")])), daemon_set("tolerant", tolerating("500m"))];
    let (plan, _) = claims(&world, 1);
    assert_eq!(plan.claims[0].requests, list(&[("cpu", "1500m"), ("pods", "2")]));
    assert_eq!(plan.claims[0].instance_types[0].as_str(), "small.instance-type");
    // Of a node that is there, too.
    let mut here = node("one", NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")]);
    here.taints = tainted().pool.template.taints;
    world.nodes = vec![here];
    assert_eq!(claims(&world, 0).0.placements.len(), 1);
}

#[test]
fn c088_daemon_sets_are_overhead_where_they_run() {
    let pod = || pods("web", 1, shape(&[("cpu", "1")]));
    let mut world = input(pod(), vec![default_pool()]);
    world.daemon_sets = vec![
        daemon_set("everywhere", shape(&[("cpu", "2"), ("memory", "1Gi")])),
        daemon_set("arm-only", selecting(shape(&[("cpu", "12")]), labels::ARCH, "arm64")),
        daemon_set("elsewhere", selecting(shape(&[("cpu", "64")]), "custom", "label")),
    ];
    let (plan, _) = claims(&world, 1);
    let claim = &plan.claims[0];
    assert_eq!(claim.requests, list(&[("cpu", "3"), ("memory", "1Gi"), ("pods", "2")]));
    let types: Vec<&str> = claim.instance_types.iter().map(|t| t.as_str()).collect();
    assert_eq!(
        types,
        [
            "default.instance-type",
            "gpu-vendor-b.instance-type",
            "gpu-vendor.instance-type",
            "arm.instance-type"
        ]
    );
}

#[test]
fn c088_the_host_name_in_a_daemon_sets_affinity_means_nothing() {
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![default_pool()]);
    world.daemon_sets =
        vec![daemon_set("named", selecting(shape(&[("cpu", "2")]), labels::HOSTNAME, "node-1"))];
    let (plan, _) = claims(&world, 1);
    assert_eq!(plan.claims[0].requests, list(&[("cpu", "3"), ("pods", "2")]));
}

#[test]
fn c088_what_daemon_pods_really_request_counts() {
    let really = |cpu: &str| {
        let shape = of_daemon_set(&running(&[("cpu", cpu), ("pods", "1")]));
        let shape = PodShape { namespace: "default".to_owned(), ..PodShape::clone(&shape) };
        pod(&format!("agent-{cpu}"), &Arc::new(shape))
    };
    let check = |template: &str, pods_of_set: &[Pod], overhead: &str| {
        let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![default_pool()]);
        world.daemon_sets = vec![daemon_set("agent", shape(&[("cpu", template)])).as_it_runs(pods_of_set)];
        let (plan, _) = claims(&world, 1);
        let expected = list(&[("cpu", "1"), ("pods", "2")]).plus(&list(&[("cpu", overhead)]));
        assert_eq!(plan.claims[0].requests, expected, "{template}");
    };
    check("1", &[], "1");
    check("1", &[really("2"), really("2"), really("500m")], "2");
    // A new template that asks for more is rolling out.
    check("2", &[really("500m")], "2");
}

#[test]
fn c088_daemon_pods_that_run_already_are_not_counted_twice() {
    let full = node("a", NodeKind::Initialized, &[("cpu", "3"), ("pods", "10")]);
    let uses = running(&[("cpu", "2"), ("pods", "1")]);
    let with = |shape: &Arc<PodShape>| {
        let mut full = full.clone();
        full.occupancy.add(shape);
        full
    };
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![default_pool()]);
    world.daemon_sets = vec![daemon_set("agent", shape(&[("cpu", "2")]))];
    world.nodes.push(with(&uses));
    claims(&world, 1);
    world.nodes = vec![with(&of_daemon_set(&uses))];
    claims(&world, 0);
}

#[test]
fn daemon_sets_take_nothing_of_a_claim_that_goes_elsewhere() {
    let check = |key: &str, here: &str, elsewhere: &str| {
        let web = pods("web", 1, selecting(shape(&[("cpu", "1")]), key, here));
        let mut world = input(web, vec![large()]);
        world.daemon_sets = vec![daemon_set("agent", selecting(shape(&[("cpu", "1500m")]), key, elsewhere))];
        let (plan, _) = claims(&world, 1);
        assert_eq!(plan.claims[0].requests, list(&[("cpu", "1"), ("pods", "1")]), "{key}");
        world.daemon_sets = vec![daemon_set("agent", selecting(shape(&[("cpu", "1500m")]), key, here))];
        check_reason(&world, "InsufficientResources");
    };
    check(labels::ZONE, "test-zone-2", "test-zone-1");
    check(labels::CAPACITY_TYPE, "on-demand", "spot");
    check(TEAM, "red", "blue");
}

#[test]
fn each_zone_of_a_spread_has_its_own_daemon_sets() {
    let sizes = [("m.large", 2), ("m.xlarge", 4)].map(|(name, cpu)| FakeType::new(name, cpu, 8, 29).option());
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut world = input(pods("web", 3, web), vec![pool("default", sizes.to_vec())]);
    let zonal = selecting(shape(&[("cpu", "1500m")]), labels::ZONE, "test-zone-1");
    world.daemon_sets = vec![daemon_set("zonal", zonal)];
    let (plan, _) = claims(&world, 3);
    for claim in &plan.claims {
        let zone = claim.zones.first().unwrap().as_str();
        let (first, cpu) = if zone == "test-zone-1" { ("m.xlarge", "2500m") } else { ("m.large", "1") };
        assert_eq!(claim.instance_types[0].as_str(), first, "{zone}");
        let pods = if zone == "test-zone-1" { "2" } else { "1" };
        assert_eq!(claim.requests, list(&[("cpu", cpu), ("pods", pods)]), "{zone}");
    }
}

#[test]
fn a_pod_without_room_beside_a_daemon_set_goes_where_that_does_not_run() {
    let check = |key: &str, value: &str, zones: usize, ways: usize| {
        let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![large()]);
        world.daemon_sets = vec![daemon_set("agent", selecting(shape(&[("cpu", "1500m")]), key, value))];
        let (plan, _) = claims(&world, 1);
        let claim = &plan.claims[0];
        assert_eq!((claim.zones.len(), claim.capacity_types.len()), (zones, ways), "{key}");
        assert!(claim.offerings.iter().all(|one| one.zone.as_str() != value));
        assert!(claim.offerings.iter().all(|one| one.capacity_type.as_str() != value));
        assert_ne!(claim.labels[TEAM], value);
        assert_eq!(claim.requests, list(&[("cpu", "1"), ("pods", "1")]), "{key}");
        let explained = explain(&world, &world.pods[0]);
        assert_eq!(explained.pools[0].fits.len(), 1, "{key}");
    };
    check(labels::ZONE, "test-zone-1", 2, 2);
    check(labels::CAPACITY_TYPE, "spot", 3, 1);
    check(TEAM, "blue", 3, 2);
}
