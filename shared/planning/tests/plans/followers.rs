//! Pods whose places depend on other pods of the same plan: they follow these, or wait for the room that these leave.

use crate::checker::faults;
use crate::support::*;
use crate::topology::{all_placed, in_zone};
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape, TopologySpreadConstraint, WhenUnsatisfiable};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{PoolInput, ProvisionPlan, plan};

/// Types of 2, 4, 8 and 16 vCPUs.
fn sizes() -> PoolInput {
    let sizes = [("m.large", 2), ("m.xlarge", 4), ("m.2xlarge", 8), ("m.4xlarge", 16)];
    pool("default", sizes.map(|(name, cpu)| FakeType::new(name, cpu, 4 * cpu, 50).option()).to_vec())
}

/// A pod of an app that follows the pods of another.
fn follower(name: &str, cpu: &str, key: &str, of: &str) -> PodShape {
    let mut one = app(name, cpu);
    one.required_pod_affinity = vec![term(key, of)];
    one
}

fn together(groups: impl IntoIterator<Item = (&'static str, usize, PodShape)>) -> Vec<Pod> {
    groups.into_iter().flat_map(|(name, count, shape)| pods(name, count, shape)).collect()
}

/// The pods of each claim, the largest claim first.
fn sizes_of(plan: &ProvisionPlan) -> Vec<usize> {
    let mut sizes: Vec<usize> = plan.claims.iter().map(|claim| claim.pods.len()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

#[test]
fn a_claim_comes_to_a_larger_type_for_a_pod_that_must_be_on_its_node() {
    let fol = follower("fol", "500m", labels::HOSTNAME, "web");
    let all = together([("web", 1, app("web", "1800m")), ("fol", 1, fol)]);
    let plan = all_placed(&input(all, vec![sizes()]));
    assert_eq!(sizes_of(&plan), [2]);
    assert!(!plan.claims[0].instance_types.iter().any(|one| one.as_str() == "m.large"), "{plan:#?}");
}

#[test]
fn no_claim_comes_to_a_type_that_the_limits_leave_no_room_for() {
    let check = |limit: i64, expected: usize| {
        let fol = follower("fol", "500m", labels::HOSTNAME, "web");
        let all = together([("web", 1, app("web", "1800m")), ("fol", 1, fol)]);
        let mut limited = sizes();
        limited.pool.limits = ResourceList::new().with(ResourceName::CPU, Quantity::from_integer(limit));
        let world = input(all, vec![limited]);
        let (plan, report) = plan(&world);
        assert_eq!(faults(&world, &plan), Vec::<String>::new());
        assert_eq!(report.unschedulable.len(), expected, "{limit}");
    };
    check(3, 1);
    check(4, 0);
}

#[test]
fn pods_follow_pods_that_follow_others() {
    let chain = |key: &str| {
        let all = together([
            ("a", 1, app("a", "900m")),
            ("b", 1, follower("b", "1500m", key, "a")),
            ("c", 1, follower("c", "500m", key, "b")),
            ("d", 1, follower("d", "1700m", key, "c")),
        ]);
        all_placed(&input(all, vec![sizes()]))
    };
    let zones = chain(labels::ZONE);
    assert!(zones.claims.iter().all(|claim| claim.zones == zones.claims[0].zones), "{zones:#?}");
    assert_eq!(sizes_of(&chain(labels::HOSTNAME)), [4]);
}

#[test]
fn pods_follow_one_that_gives_up_its_preferences_first() {
    let mut tainted = sizes();
    tainted.pool.template.taints =
        vec![Taint { key: "t".to_owned(), value: "x".to_owned(), effect: TaintEffect::PreferNoSchedule }];
    let mut web = app("web", "1500m");
    let any = TopologySpreadConstraint {
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
        ..spread(labels::ZONE, "web", 1)
    };
    web.topology_spread = vec![any];
    let all = together([("web", 1, web), ("fol", 1, follower("fol", "100m", labels::ZONE, "web"))]);
    let plan = all_placed(&input(all, vec![tainted]));
    assert!(plan.claims.iter().all(|claim| claim.zones.len() == 1), "{plan:#?}");
}

#[test]
fn a_pod_that_spreads_by_others_has_them_on_its_node() {
    let mut web = app("web", "500m");
    web.topology_spread = vec![spread(labels::ZONE, "cache", 1)];
    let cache = follower("cache", "1800m", labels::HOSTNAME, "web");
    let plan = all_placed(&input(together([("web", 1, web), ("cache", 1, cache)]), vec![sizes()]));
    assert_eq!(sizes_of(&plan), [2]);
}

/// Whichever of them kube-scheduler tries first, the others must follow it.
#[test]
fn pods_that_an_affinity_selects_are_where_the_pods_with_it_are() {
    let check = |plain: PodShape| {
        let all = together([("a", 3, plain), ("b", 3, follower("web", "500m", labels::ZONE, "web"))]);
        let plan = all_placed(&input(all, vec![sizes()]));
        assert!(plan.claims.iter().all(|claim| claim.zones == plan.claims[0].zones), "{plan:#?}");
        assert_eq!(plan.claims[0].zones.len(), 1);
    };
    check(app("web", "1500m"));
    let mut bound = app("web", "1500m");
    bound.node_selector.insert(labels::ZONE.to_owned(), ZONES[2].to_owned());
    check(bound);
}

/// A spread by others' pods holds wherever these come: they may come before.
#[test]
fn pods_spread_by_others_where_these_are_in_the_end() {
    let mut first = app("first", "500m");
    first.topology_spread =
        vec![TopologySpreadConstraint { min_domains: Some(3), ..spread(labels::ZONE, "web", 3) }];
    let here = Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]]);
    first.required_node_affinity =
        vec![NodeSelectorTerm { match_expressions: vec![here], match_fields: vec![] }];
    let mut web = app("web", "500m");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let world = input(together([("first", 2, first), ("web", 15, web)]), vec![sizes()]);
    let (plan, report) = plan(&world);
    assert_eq!(faults(&world, &plan), Vec::<String>::new());
    assert_eq!(report.unschedulable.len(), 2, "in no zone are at most 3 pods of the others");
}

/// Each pod keeps the others out of its zone, and one that finds no place there leaves the zone to the next.
#[test]
fn a_zone_that_a_pod_could_not_have_is_another_pod_s() {
    let apart = |name: &str, cpu: &str| {
        let mut one = app("db", cpu);
        one.labels.insert("name".to_owned(), name.to_owned());
        one.required_pod_anti_affinity = vec![term(labels::ZONE, "db")];
        let here = Requirement::one_of(labels::ZONE, [ZONES[0]]);
        one.required_node_affinity =
            vec![NodeSelectorTerm { match_expressions: vec![here], match_fields: vec![] }];
        one
    };
    let mut none = sizes();
    none.pool.limits = ResourceList::new().with(ResourceName::NODES, Quantity::from_integer(0));
    let mut world =
        input(together([("large", 1, apart("large", "3")), ("small", 1, apart("small", "1"))]), vec![none]);
    world.nodes.push(in_zone("free", ZONES[0], "2"));
    let (plan, report) = plan(&world);
    assert_eq!(faults(&world, &plan), Vec::<String>::new());
    let places: Vec<String> = plan.placements.iter().map(|one| one.pod.name.to_string()).collect();
    assert_eq!((places, report.unschedulable.len()), (vec!["default/small-0000".to_owned()], 1));
}
