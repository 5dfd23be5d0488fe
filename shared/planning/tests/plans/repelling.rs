//! Pods that keep each other out of domains: those with less choice have theirs first, and others leave it to them.

use crate::support::*;
use crate::topology::{all_placed, in_zone, with_volumes};
use std::sync::Arc;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape};
use tenon_domain::id::NodePoolName;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::plan;

use crate::checker::faults;

fn within(mut shape: PodShape, key: &str, values: &[&str]) -> PodShape {
    let here = Requirement::one_of(key, values.iter().copied());
    shape.required_node_affinity =
        vec![NodeSelectorTerm { match_expressions: vec![here], match_fields: vec![] }];
    shape
}

fn apart(mut shape: PodShape, key: &str, others: &[&str]) -> PodShape {
    shape.required_pod_anti_affinity.extend(others.iter().map(|other| term(key, other)));
    shape
}

fn with(mut shape: PodShape, key: &str, other: &str) -> PodShape {
    shape.required_pod_affinity.push(term(key, other));
    shape
}

fn spread_out(mut shape: PodShape) -> PodShape {
    let name = shape.labels["app"].clone();
    shape.topology_spread.push(spread(labels::ZONE, &name, 1));
    shape
}

fn world(groups: &[(&str, usize, &PodShape)]) -> Vec<Pod> {
    groups.iter().flat_map(|(name, count, shape)| pods(name, *count, (*shape).clone())).collect()
}

#[test]
fn pods_leave_the_only_domain_of_others_to_these() {
    let check = |groups: &[(&str, usize, &PodShape)]| {
        all_placed(&input(world(groups), vec![default_pool()]));
    };
    let (first, two) = ([ZONES[0]], [ZONES[0], ZONES[1]]);
    for cpu in ["500m", "3"] {
        // Whether the free one repels the others, or is repelled by them.
        let free = apart(app("free", cpu), labels::ZONE, &["bound"]);
        check(&[("f", 1, &free), ("o", 1, &within(app("bound", "1"), labels::ZONE, &first))]);
        let bound = within(apart(app("bound", "1"), labels::ZONE, &["free"]), labels::ZONE, &first);
        check(&[("f", 1, &app("free", cpu)), ("o", 1, &bound)]);
        let (f, g) = (app("fixed", cpu), app("fixed", "1"));
        let (f, g) = (within(f, labels::ZONE, &[ZONES[0]]), within(g, labels::ZONE, &[ZONES[1]]));
        check(&[("f", 1, &f), ("g", 1, &g), ("o", 1, &apart(app("free", "1"), labels::ZONE, &["fixed"]))]);
        let many = spread_out(within(app("bound", "1"), labels::ZONE, &two));
        check(&[("f", 1, &free), ("o", 20, &many)]);
    }
    let free = apart(app("free", "1"), labels::ARCH, &["bound"]);
    check(&[("f", 1, &free), ("o", 1, &selecting(app("bound", "1"), labels::ARCH, "arm64"))]);
    let free = apart(app("free", "1"), labels::CAPACITY_TYPE, &["bound"]);
    for value in ["on-demand", "spot"] {
        check(&[("f", 1, &free), ("o", 1, &selecting(app("bound", "1"), labels::CAPACITY_TYPE, value))]);
    }
    // The followers of bound ones are bound, too.
    let free = apart(app("free", "1"), labels::ZONE, &["follower"]);
    let lead = within(app("lead", "1"), labels::ZONE, &first);
    check(&[("f", 2, &free), ("l", 1, &lead), ("o", 2, &with(app("follower", "1"), labels::ZONE, "lead"))]);
    // Only one zone takes both.
    let bound = apart(within(app("bound", "1"), labels::ZONE, &first), labels::ZONE, &["middle"]);
    let middle = apart(within(app("middle", "1"), labels::ZONE, &two), labels::ZONE, &["free"]);
    check(&[("f", 3, &app("free", "2")), ("m", 3, &middle), ("o", 3, &bound)]);
}

#[test]
fn pods_leave_the_only_domain_that_running_pods_left_to_others() {
    let repelled = app("repelled", "1");
    let free = apart(app("free", "1"), labels::ZONE, &["repelled"]);
    let mut one = input(world(&[("f", 1, &free), ("o", 3, &repelled)]), vec![default_pool()]);
    for (name, zone) in [("second", ZONES[1]), ("third", ZONES[2])] {
        let mut full = in_zone(name, zone, "1");
        full.occupancy.add(&Arc::new(apart(app("other", "1"), labels::ZONE, &["repelled"])));
        one.nodes.push(full);
    }
    all_placed(&one);
}

#[test]
fn pods_leave_the_zone_of_others_volumes_to_these() {
    let mut one = with_volumes(&[ZONES[0]], true);
    let mut bound = PodShape::clone(&one.pods[0].shape);
    bound.labels.insert("app".to_owned(), "bound".to_owned());
    let mut free = apart(app("free", "1"), labels::ZONE, &["bound"]);
    free.namespace.clone_from(&bound.namespace);
    one.pods[0].shape = Arc::new(bound);
    one.pods.extend(pods("f", 1, free));
    all_placed(&one);
}

#[test]
fn pods_leave_the_zones_of_others_pools_to_these() {
    let mut only = default_pool();
    only.pool.name = NodePoolName::parse("only").unwrap();
    only.pool.template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[0]]));
    only.pool.template.taints = vec![Taint::new("t", TaintEffect::NoSchedule)];
    let mut bound = selecting(app("bound", "1"), labels::NODEPOOL, "only");
    bound.tolerations = vec![Toleration::exists("t")];
    let free = apart(app("free", "2"), labels::ZONE, &["bound"]);
    all_placed(&input(world(&[("f", 1, &free), ("o", 1, &bound)]), vec![default_pool(), only]));
}

#[test]
fn pods_prefer_to_be_apart_from_those_with_less_choice() {
    let mut free = app("free", "2");
    free.preferred_pod_anti_affinity = vec![(1, term(labels::ZONE, "bound"))];
    let bound = within(app("bound", "1"), labels::ZONE, &[ZONES[0]]);
    let plan = all_placed(&input(world(&[("f", 1, &free), ("o", 1, &bound)]), vec![default_pool()]));
    assert_eq!(plan.claims.len(), 2, "{plan:#?}");
    assert!(plan.claims.iter().all(|claim| claim.zones.len() == 1), "{plan:#?}");
    assert_ne!(plan.claims[0].zones, plan.claims[1].zones);
}

#[test]
fn where_not_all_find_a_place_those_with_less_choice_do() {
    let free = apart(app("free", "2"), labels::ZONE, &["bound"]);
    let bound = ZONES.map(|zone| within(app("bound", "1"), labels::ZONE, &[zone]));
    let all = world(&[("f", 1, &free), ("a", 1, &bound[0]), ("b", 1, &bound[1]), ("c", 1, &bound[2])]);
    let one = input(all, vec![default_pool()]);
    let (plan, report) = plan(&one);
    assert_eq!(faults(&one, &plan), Vec::<String>::new());
    let without: Vec<&str> = report.unschedulable.iter().map(|one| &*one.pod.name.name).collect();
    assert_eq!(without, ["f-0000"]);
}

#[test]
fn where_not_all_find_a_place_those_of_higher_priority_do() {
    let mut free = apart(app("free", "2"), labels::ZONE, &["bound"]);
    free.priority = 1;
    let bound = ZONES.map(|zone| within(app("bound", "1"), labels::ZONE, &[zone]));
    let all = world(&[("f", 1, &free), ("a", 1, &bound[0]), ("b", 1, &bound[1]), ("c", 1, &bound[2])]);
    let one = input(all, vec![default_pool()]);
    let (plan, report) = plan(&one);
    assert_eq!(faults(&one, &plan), Vec::<String>::new());
    assert_eq!(report.unschedulable.len(), 1);
    assert_ne!(report.unschedulable[0].pod.name.name, "f-0000");
}

/// How many pods, the zones that they may go to, and the groups that they keep away from; a group with `s` is spread, too.
type DrawnGroup = (usize, &'static str, &'static [usize], &'static str);

/// Small worlds for which all places were tried: as many pods find one as can.
#[test]
fn as_many_pods_find_a_place_as_can() {
    const NAMES: [&str; 3] = ["g0", "g1", "g2"];
    let check = |groups: [DrawnGroup; 3], running: &[(usize, usize)], expected: usize| {
        let shapes = [0, 1, 2].map(|index| {
            let (_, zones, others, kind) = groups[index];
            let zones: Vec<&str> = zones.chars().map(|zone| ZONES["abc".find(zone).unwrap()]).collect();
            let others: Vec<&str> = others.iter().map(|other| NAMES[*other]).collect();
            let one = apart(within(app(NAMES[index], "1"), labels::ZONE, &zones), labels::ZONE, &others);
            if kind == "s" { spread_out(one) } else { one }
        });
        let all: Vec<(&str, usize, &PodShape)> =
            (0..3).map(|index| (NAMES[index], groups[index].0, &shapes[index])).collect();
        let mut one = input(world(&all), vec![default_pool()]);
        for (number, (group, zone)) in running.iter().enumerate() {
            let mut full = in_zone(&format!("full-{number}"), ZONES[*zone], "1");
            full.occupancy.add(&Arc::new(shapes[*group].clone()));
            one.nodes.push(full);
        }
        let (plan, report) = plan(&one);
        assert_eq!(faults(&one, &plan), Vec::<String>::new());
        let placed = one.pods.len() - report.unschedulable.len();
        assert_eq!(placed, expected, "{groups:?} {running:?} {:#?}", report.unschedulable);
    };
    check([(3, "a", &[], ""), (2, "abc", &[], ""), (3, "abc", &[0], "")], &[(2, 2), (1, 0)], 8);
    check([(1, "bc", &[1], ""), (3, "b", &[], ""), (3, "abc", &[1], "")], &[], 7);
    check([(3, "ab", &[1], ""), (3, "ac", &[1], ""), (0, "abc", &[], "")], &[], 5);
    check([(3, "abc", &[1], ""), (2, "abc", &[1], "s"), (0, "abc", &[], "")], &[(0, 2), (1, 0)], 4);
    check([(2, "abc", &[], ""), (2, "abc", &[2], ""), (3, "ac", &[], "")], &[(0, 0), (1, 2)], 7);
    check([(3, "ab", &[2], ""), (3, "ac", &[], "s"), (1, "ac", &[], "")], &[(0, 2)], 7);
    check([(1, "ab", &[], ""), (1, "abc", &[0], ""), (0, "abc", &[], "")], &[(1, 1), (0, 2)], 2);
    check([(2, "a", &[], "s"), (1, "abc", &[0], ""), (0, "abc", &[], "")], &[], 3);
}
