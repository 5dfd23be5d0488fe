//! Pods with less choice among zones than others, and pods that rules of others only keep away.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checker::faults;
use crate::support::*;
use crate::topology::{all_placed, by_zone, in_zone, with_volumes};
use tenon_domain::api::pod::{NodeInclusionPolicy, PodShape, TopologySpreadConstraint};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{PoolInput, ProvisionInput, ProvisionPlan, plan};

/// The zones of each pod's claim.
fn zones(plan: &ProvisionPlan) -> BTreeMap<&str, Vec<String>> {
    let of = plan.claims.iter().flat_map(|claim| claim.pods.iter().map(move |pod| (pod, claim)));
    of.map(|(pod, claim)| (pod.name.name.as_str(), claim.zones.iter().map(ToString::to_string).collect()))
        .collect()
}

fn apart(one: &mut PodShape) {
    one.required_pod_anti_affinity = vec![term(labels::ZONE, "db")];
}

fn spread_out(one: &mut PodShape) {
    one.topology_spread = vec![spread(labels::ZONE, "db", 1)];
}

/// All zones have every price.
fn on_demand() -> PoolInput {
    let mut pool = default_pool();
    pool.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"]));
    pool
}

/// Replicas with a volume in a zone each, and others without, which are planned first where nothing else decides.
fn replicas(bound: &[&str], free: usize, rule: fn(&mut PodShape)) -> ProvisionInput {
    let mut world = with_volumes(bound, true);
    world.pods.iter_mut().for_each(|pod| rule(Arc::make_mut(&mut pod.shape)));
    let mut one = app("db", "1");
    rule(&mut one);
    world.pods.extend(pods("any", free, one));
    world
}

#[test]
fn pods_whose_volumes_are_in_a_zone_get_it_before_pods_that_may_go_elsewhere() {
    let check = |bound: &[&str], free: usize, rule: fn(&mut PodShape), expected: &[usize]| {
        let empty = replicas(bound, free, rule);
        let mut full = empty.clone();
        full.nodes = ZONES.iter().map(|zone| in_zone(&format!("full-{zone}"), zone, "100m")).collect();
        for world in [empty, full] {
            let (made, report) = plan(&world);
            assert_eq!(faults(&world, &made), Vec::<String>::new());
            assert_eq!(by_zone(&made), expected);
            let left = bound.len() + free - expected.iter().sum::<usize>();
            assert_eq!(report.unschedulable.len(), left, "{:#?}", report.unschedulable);
            let mut left = report.unschedulable.iter().map(|one| one.pod.name.name.as_str());
            assert!(left.all(|name| name.starts_with("any")), "{:#?}", report.unschedulable);
        }
    };
    check(&[ZONES[1]], 2, apart, &[1, 1, 1]);
    check(&[ZONES[0], ZONES[2]], 1, apart, &[1, 1, 1]);
    check(&ZONES, 1, apart, &[1, 1, 1]);
    check(&[ZONES[1]], 2, spread_out, &[1, 1, 1]);
    check(&[ZONES[1]], 8, spread_out, &[3, 3, 3]);
    // They go on as soon as the spread allows it.
    check(&[ZONES[1], ZONES[1]], 4, spread_out, &[2, 2, 2]);
    let all: Vec<&str> = ZONES.iter().flat_map(|zone| [*zone; 4]).collect();
    check(&all, 0, spread_out, &[4, 4, 4]);
}

#[test]
fn pods_that_follow_replicas_with_volumes_change_nothing_for_these() {
    let mut world = replicas(&[ZONES[1]], 2, spread_out);
    let mut web = app("web", "700m");
    web.required_pod_affinity = vec![term(labels::ZONE, "db")];
    world.pods.extend(pods("web", 5, web));
    let plan = all_placed(&world);
    let zones = zones(&plan);
    let mut of_replicas: Vec<&Vec<String>> =
        zones.iter().filter(|(name, _)| !name.starts_with("web")).map(|(_, zones)| zones).collect();
    of_replicas.sort();
    assert_eq!(of_replicas, ZONES.map(|zone| vec![zone.to_owned()]).iter().collect::<Vec<_>>());
    assert_eq!(zones["db-0"], [ZONES[1]]);
}

#[test]
fn pods_that_select_a_zone_get_it_before_larger_and_more_important_ones_that_select_none() {
    let check = |changes: [fn(&mut PodShape); 3]| {
        let shapes = changes.map(|change| {
            let mut one = app("db", "1");
            apart(&mut one);
            change(&mut one);
            one
        });
        let all = shapes.into_iter().zip(["one", "two", "three"]).flat_map(|(one, name)| pods(name, 1, one));
        let world = input(all.collect(), vec![default_pool()]);
        assert_eq!(by_zone(&all_placed(&world)), [1, 1, 1]);
    };
    check([|_| {}, |one| one.priority = 100, |one| *one = selecting(one.clone(), labels::ZONE, ZONES[0])]);
    check([
        |one| *one = selecting(one.clone(), labels::ZONE, ZONES[0]),
        |one| {
            *one = selecting(one.clone(), labels::ZONE, ZONES[1]);
            one.requests = app("db", "500m").requests;
        },
        |one| one.requests = app("db", "1500m").requests,
    ]);
    let mut fixed = selecting(app("db", "1"), labels::ZONE, ZONES[1]);
    let everywhere = NodeInclusionPolicy::Ignore;
    fixed.topology_spread =
        vec![TopologySpreadConstraint { node_affinity_policy: everywhere, ..spread(labels::ZONE, "db", 1) }];
    let mut free = app("db", "1");
    spread_out(&mut free);
    let all = pods("fixed", 1, fixed).into_iter().chain(pods("any", 2, free));
    let world = input(all.collect(), vec![default_pool()]);
    assert_eq!(by_zone(&all_placed(&world)), [1, 1, 1]);
}

#[test]
fn pods_that_are_only_kept_away_share_a_node_that_may_come_to_any_zone_left() {
    let mut lonely = app("lonely", "10m");
    lonely.required_pod_anti_affinity = vec![term(labels::ZONE, "web")];
    let mut taken = in_zone("taken", ZONES[0], "10m");
    taken.occupancy.add(&Arc::new(lonely.clone()));
    let mut world = input(pods("web", 4, app("web", "100m")), vec![on_demand()]);
    world.nodes.push(taken);
    let plan = all_placed(&world);
    assert_eq!(plan.claims.len(), 1);
    assert_eq!(zones(&plan)["web-0000"], [ZONES[1], ZONES[2]]);
    // The same where the pod that is apart waits itself: it comes first.
    let all = pods("web", 5, app("web", "100m")).into_iter().chain(pods("lonely", 1, lonely));
    assert_eq!(all_placed(&input(all.collect(), vec![on_demand()])).claims.len(), 2);
}

#[test]
fn a_pod_that_keeps_away_from_pods_that_run_may_come_to_any_zone_left() {
    let mut running = in_zone("running", ZONES[0], "10m");
    running.occupancy.add(&Arc::new(app("db", "10m")));
    let mut web = app("web", "1");
    apart(&mut web);
    let mut world = input(pods("web", 3, web), vec![on_demand()]);
    world.nodes.push(running);
    let plan = all_placed(&world);
    assert_eq!(plan.claims.len(), 1);
    assert_eq!(zones(&plan)["web-0000"], [ZONES[1], ZONES[2]]);
}

#[test]
fn pods_that_others_keep_away_from_leave_these_the_other_zones() {
    let mut wide = app("wide", "1");
    wide.required_pod_anti_affinity = vec![term(labels::ZONE, "plain")];
    wide.topology_spread =
        vec![TopologySpreadConstraint { min_domains: Some(2), ..spread(labels::ZONE, "wide", 1) }];
    let all = pods("wide", 2, wide).into_iter().chain(pods("plain", 2, app("plain", "1")));
    let plan = all_placed(&input(all.collect(), vec![default_pool()]));
    assert_eq!(by_zone(&plan), [1, 1, 2]);
}

#[test]
fn pods_that_their_spread_does_not_count_share_a_node() {
    let mut web = app("web", "100m");
    web.topology_spread = vec![spread(labels::ZONE, "other", 1)];
    assert_eq!(all_placed(&input(pods("web", 3, web.clone()), vec![default_pool()])).claims.len(), 1);
    web.topology_spread[0].selector = None;
    assert_eq!(all_placed(&input(pods("web", 3, web), vec![default_pool()])).claims.len(), 1);
}

#[test]
fn a_pod_that_asks_for_a_label_comes_to_no_node_without_it() {
    // The labelled pool can't serve, and a spread of others asks where the pod is.
    let (mut labelled, mut other) = (default_pool(), default_pool());
    labelled.pool.template.labels.insert("rack".to_owned(), "r0".to_owned());
    let many = Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(50));
    labelled.pool.template.requirements.add(many);
    other.pool.name = "other".parse().unwrap();
    let (mut racked, mut asking) = (app("racked", "1"), app("asking", "1"));
    racked.node_selector.insert("rack".to_owned(), "r0".to_owned());
    asking.topology_spread = vec![spread("rack", "racked", 3)];
    let mut all = pods("racked", 1, racked);
    all.extend(pods("asking", 1, asking));
    let (plan, _) = plan(&input(all, vec![labelled, other]));
    let mut placed = plan.claims.iter().flat_map(|claim| &claim.pods);
    assert!(placed.all(|pod| !pod.name.name.starts_with("racked")), "{plan:#?}");
}
