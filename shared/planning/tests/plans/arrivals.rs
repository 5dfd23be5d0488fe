//! What must hold while a plan is carried out: kube-scheduler places pod by pod, on the nodes that are there.

use crate::checker::faults;
use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape, TopologySpreadConstraint, WhenUnsatisfiable};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{PoolInput, ProvisionInput, ProvisionPlan, plan};

const RACK: &str = "example.com/rack";
const DEDICATED: &str = "dedicated";

/// How many pods with a prefix the plan has a place for.
fn placed(plan: &ProvisionPlan, prefix: &str) -> usize {
    let launched = plan.claims.iter().flat_map(|claim| &claim.pods);
    let all = plan.placements.iter().map(|one| &one.pod).chain(launched);
    all.filter(|pod| pod.name.name.starts_with(prefix)).count()
}

/// Plans, and checks that no pod of the plan is kept away from its place.
fn valid(input: &ProvisionInput) -> ProvisionPlan {
    let (made, _) = plan(input);
    assert_eq!(faults(input, &made), Vec::<String>::new());
    made
}

fn limited(resource: &str, amount: &str) -> PoolInput {
    let mut one = default_pool();
    one.pool.limits = list(&[(resource, amount)]);
    one
}

fn two(one: Vec<Pod>, other: Vec<Pod>) -> Vec<Pod> {
    one.into_iter().chain(other).collect()
}

#[test]
fn pods_that_others_count_need_no_domain_where_no_node_has_the_label() {
    let soft = TopologySpreadConstraint {
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
        ..spread(RACK, "web", 1)
    };
    let counting = PodShape { topology_spread: vec![soft], ..app("db", "1") };
    let apart = PodShape { required_pod_anti_affinity: vec![term(RACK, "web")], ..app("db", "1") };
    let all = pods("web", 6, app("web", "1")).into_iter().chain(pods("soft", 2, counting));
    let made = valid(&input(all.chain(pods("apart", 1, apart)).collect(), vec![default_pool()]));
    assert_eq!((placed(&made, "web"), placed(&made, "soft")), (6, 2));
}

#[test]
fn the_pod_with_the_highest_priority_gets_the_last_room() {
    let urgent = PodShape { priority: 1000, ..app("urgent", "9") };
    let all = pods("web", 1, app("web", "9500m")).into_iter().chain(pods("urgent", 1, urgent));
    let (plan, report) = plan(&input(all.collect(), vec![limited("nodes", "1")]));
    assert_eq!(plan.claims[0].pods[0].name.name, "urgent-0000");
    assert_eq!(report.unschedulable.len(), 1);
}

#[test]
fn the_last_room_is_for_the_highest_priority_even_if_it_gives_up_preferences_first() {
    let mut urgent = PodShape { priority: 10, ..app("urgent", "9") };
    urgent.preferred_pod_affinity = vec![(1, term(labels::ZONE, "nobody"))];
    let all = two(pods("web", 1, app("web", "9500m")), pods("urgent", 1, urgent));
    let made = valid(&input(all, vec![limited("nodes", "1")]));
    assert_eq!((placed(&made, "urgent"), placed(&made, "web")), (1, 0));
}

#[test]
fn a_domain_with_room_for_some_pods_of_a_spread_keeps_these() {
    let mut one = selecting(app("web", "1"), labels::ZONE, ZONES[0]);
    one.topology_spread = vec![spread(labels::CAPACITY_TYPE, "web", 1)];
    one.required_pod_anti_affinity = vec![term(labels::ZONE, "web")];
    let made = valid(&input(pods("web", 5, one), vec![default_pool()]));
    assert_eq!(placed(&made, "web"), 1);
}

#[test]
fn a_zone_that_only_other_pods_nodes_open_counts_for_a_spread() {
    let mut dedicated = pool("dedicated", six());
    dedicated.pool.template.taints = vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)];
    let mut plain = pool("plain", six());
    let two_zones = Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]]);
    plain.pool.template.requirements.add(two_zones);
    let mut far = selecting(app("far", "1"), labels::ZONE, ZONES[2]);
    far.tolerations = vec![Toleration::exists(DEDICATED)];
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let made = valid(&input(two(pods("far", 1, far), pods("web", 9, web)), vec![dedicated, plain]));
    assert_eq!((placed(&made, "far"), placed(&made, "web")), (1, 2));
}

#[test]
fn a_zone_without_more_room_counts_for_a_spread_if_others_have_a_node_there() {
    let mut narrow = limited("nodes", "1");
    narrow.pool.template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[2]]));
    let mut plain = pool("plain", six());
    plain.pool.template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]]));
    let far = selecting(app("far", "15"), labels::ZONE, ZONES[2]);
    let mut web = app("web", "2");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let made = valid(&input(two(pods("far", 1, far), pods("web", 9, web)), vec![narrow, plain]));
    assert_eq!((placed(&made, "far"), placed(&made, "web")), (1, 2));
}

#[test]
fn a_spread_counts_zones_that_a_pod_only_prefers_not_to_be_in() {
    let preferred = NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::ZONE, [ZONES[2]])],
        match_fields: Vec::new(),
    };
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    web.preferred_node_affinity = vec![(10, preferred)];
    let elsewhere = selecting(app("db", "1"), labels::ZONE, ZONES[0]);
    let made = valid(&input(two(pods("db", 1, elsewhere), pods("web", 6, web)), vec![default_pool()]));
    assert_eq!(placed(&made, "web"), 6);
}
