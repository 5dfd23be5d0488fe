//! Which nodes a rule about other pods counts, and what follows for pods that it counts.

use crate::checker::faults;
use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{NodeKind, ProvisionInput, ProvisionPlan, plan};

const RACK: &str = "example.com/rack";

/// Plans for all pods, and checks that no pod of the plan is kept away from its place.
fn whole(input: &ProvisionInput) -> ProvisionPlan {
    let (made, report) = plan(input);
    assert_eq!(report.unschedulable, Vec::new());
    assert_eq!(faults(input, &made), Vec::<String>::new());
    made
}

fn both(one: Vec<Pod>, other: Vec<Pod>) -> Vec<Pod> {
    one.into_iter().chain(other).collect()
}

/// A world with a node that has a rack, and pools whose nodes have none.
fn beside_a_rack(pods: Vec<Pod>) -> ProvisionInput {
    let mut world = input(pods, vec![default_pool()]);
    let mut racked =
        node("racked", NodeKind::Initialized, &[("cpu", "2"), ("memory", "4Gi"), ("pods", "12")]);
    racked.labels.insert(labels::ZONE.to_owned(), ZONES[0].to_owned());
    racked.labels.insert(RACK.to_owned(), "r1".to_owned());
    world.nodes = vec![racked];
    world
}

#[test]
fn pods_that_only_others_count_come_to_nodes_without_the_label() {
    let counting = PodShape { topology_spread: vec![spread(RACK, "web", 1)], ..app("db", "100m") };
    let made = whole(&beside_a_rack(both(pods("db", 1, counting), pods("web", 9, app("web", "1500m")))));
    assert!(!made.claims.is_empty());
}

#[test]
fn pods_that_are_apart_by_a_label_come_to_nodes_without_it() {
    let apart = PodShape { required_pod_anti_affinity: vec![term(RACK, "web")], ..app("web", "1") };
    let made = whole(&beside_a_rack(pods("web", 5, apart)));
    assert_eq!(made.placements.len(), 1);
}

#[test]
fn a_node_without_a_label_of_another_spread_of_the_pod_counts_for_none() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1), spread(RACK, "db", 5)];
    let mut racked = default_pool();
    racked.pool.template.requirements.add(Requirement::one_of(RACK, ["r1"]));
    racked.pool.template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]]));
    let mut world = input(pods("web", 4, web), vec![racked]);
    let mut other = node("other", NodeKind::Initialized, &[("cpu", "2"), ("memory", "4Gi"), ("pods", "12")]);
    other.labels.insert(labels::ZONE.to_owned(), ZONES[2].to_owned());
    world.nodes = vec![other];
    whole(&world);
}

#[test]
fn pods_that_give_up_a_preference_for_a_zone_open_no_zone_too_far_behind() {
    let preferred = NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::ZONE, [ZONES[2]])],
        match_fields: Vec::new(),
    };
    let mut web = app("web", "500m");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    web.preferred_node_affinity = vec![(10, preferred)];
    let fixed = selecting(app("web", "500m"), labels::ZONE, ZONES[0]);
    whole(&input(both(pods("fixed", 8, fixed), pods("web", 12, web)), vec![default_pool()]));
}

#[test]
fn pods_that_a_spread_over_some_nodes_counts_are_certain_to_be_on_these_or_not() {
    let mut counting = selecting(app("web", "50m"), labels::ARCH, "arm64");
    counting.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let anywhere = app("web", "3500m");
    whole(&input(
        both(pods("counting", 30, counting), pods("anywhere", 8, anywhere)),
        vec![pool("default", six())],
    ));
}

#[test]
fn a_pod_that_needs_others_on_its_node_begins_no_other_zone_than_theirs() {
    let mut near = app("web", "50m");
    near.required_pod_affinity = vec![term(labels::ZONE, "web")];
    let mut beside = app("web", "100m");
    beside.required_pod_affinity = vec![term(labels::HOSTNAME, "web")];
    let world = input(both(pods("near", 20, near), pods("beside", 1, beside)), vec![default_pool()]);
    let (made, report) = plan(&world);
    assert_eq!(faults(&world, &made), Vec::<String>::new());
    assert!(report.unschedulable.iter().all(|one| one.pod.name.name.starts_with("beside")));
}
