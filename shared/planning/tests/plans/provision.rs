//! Provisioning, as an operator of a cluster sees it. A test with a number in its name replays behaviour of
//! Karpenter's own tests (kubernetes-sigs/karpenter `pkg/controllers/provisioning`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use tenon_domain::api::pod::{HostPort, NodeSelectorTerm, PodShape};
use tenon_domain::catalog::{Availability, CapacityType, Unavailability};
use tenon_domain::id::NodeClassName;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{ExistingNode, NodeKind, PlanCompletion, ProvisionInput, StepBudget, plan};
use tenon_planning::solve::{self as bound, BoundOmission};

#[test]
fn nothing_to_place_gives_an_empty_plan() {
    let (plan, report) = plan(&input(Vec::new(), vec![default_pool()]));
    assert!(plan.is_empty());
    assert_eq!((plan.wake_at, report.outcome), (None, PlanCompletion::Complete));
}

#[test]
fn c082_nodes_are_packed_and_small_pods_fill_them() {
    let types = || vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    let large = pods("large", 40, shape(&[("cpu", "10m"), ("memory", "1.8G")]));
    claims(&input(large.clone(), vec![pool("default", types())]), 20);
    let small = pods("small", 20, shape(&[("cpu", "10m"), ("memory", "400M")]));
    let all = large.into_iter().chain(small).collect();
    let (_, report) = claims(&input(all, vec![pool("default", types())]), 20);
    assert!(report.unschedulable.is_empty());
}

#[test]
fn c083_tiny_pods_are_bounded_by_the_number_of_pods_and_get_the_smallest_type() {
    let tiny = pods("tiny", 25, shape(&[("cpu", "1m"), ("memory", "1M")]));
    let (plan, _) = claims(&input(tiny, vec![default_pool()]), 5);
    for claim in &plan.claims {
        assert_eq!(claim.instance_types.first().unwrap().as_str(), "small.instance-type");
        assert_eq!(claim.pods.len(), 5);
    }
}

#[test]
fn c083_nothing_of_an_unknown_resource_is_schedulable() {
    let pod = pods("zero", 1, shape(&[("foo.com/weird", "0")]));
    claims(&input(pod, vec![default_pool()]), 1);
    check_reason(
        &input(pods("some", 1, shape(&[("foo.com/weird", "1")])), vec![default_pool()]),
        "InsufficientResources",
    );
}

fn in_flight(labels: &[(&str, &str)]) -> ExistingNode {
    let mut node =
        node("default-abcde", NodeKind::InFlight, &[("cpu", "2"), ("memory", "2Gi"), ("pods", "5")]);
    node.labels.extend(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    node
}

#[test]
fn c085_room_on_a_claim_in_flight_is_used_and_nothing_launched_twice() {
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![default_pool()]);
    world.nodes.push(in_flight(&[]));
    let (plan, _) = claims(&world, 0);
    assert_eq!(plan.placements.first().unwrap().node, "default-abcde");
}

#[test]
fn c085_a_second_node_is_launched_when_the_pod_does_not_fit_or_selects_another() {
    let mut world = input(pods("web", 1, shape(&[("cpu", "3")])), vec![default_pool()]);
    world.nodes.push(in_flight(&[]));
    claims(&world, 1);
    let other_zone = selecting(shape(&[("cpu", "1")]), labels::ZONE, "test-zone-2");
    let mut world = input(pods("web", 1, other_zone), vec![default_pool()]);
    world.nodes.push(in_flight(&[(labels::ZONE, "test-zone-1")]));
    let (plan, _) = claims(&world, 1);
    let zones: Vec<&str> = plan.claims[0].zones.iter().map(|zone| zone.as_str()).collect();
    assert_eq!(zones, ["test-zone-2"]);
}

#[test]
fn nodes_that_are_initialised_are_filled_before_those_that_start() {
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), Vec::new());
    world.nodes.push(in_flight(&[]));
    world.nodes.push(node("z", NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")]));
    let (plan, _) = claims(&world, 0);
    assert_eq!(plan.placements[0].node, "z");
}

#[test]
fn an_overdrawn_node_takes_nothing() {
    let mut full = node("a", NodeKind::Initialized, &[("cpu", "2"), ("memory", "1Gi"), ("pods", "5")]);
    full.occupancy.add(&running(&[("memory", "2Gi")]));
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![default_pool()]);
    world.nodes.push(full);
    claims(&world, 1);
}

#[test]
fn c086_a_tainted_node_with_room_takes_only_pods_that_tolerate_it() {
    let taint = |effect| Taint { value: "batch".to_owned(), ..Taint::new("dedicated", effect) };
    let check = |kind, effect, tolerations: &[Toleration], placed: &[&str]| {
        let mut asking = shape(&[("cpu", "1")]);
        asking.tolerations = tolerations.to_vec();
        let mut world = input(pods("web", 1, asking), vec![default_pool()]);
        let room = &[("cpu", "2"), ("memory", "2Gi"), ("pods", "5")];
        world.nodes = vec![ExistingNode { taints: vec![taint(effect)], ..node("tainted", kind, room) }];
        let (plan, _) = claims(&world, 1 - placed.len());
        let found: Vec<&str> = plan.placements.iter().map(|placement| placement.node.as_str()).collect();
        assert_eq!(found, placed, "{kind:?} {effect:?}");
    };
    for kind in [NodeKind::Initialized, NodeKind::Starting, NodeKind::InFlight] {
        check(kind, TaintEffect::NoSchedule, &[], &[]);
        check(kind, TaintEffect::NoExecute, &[], &[]);
        check(kind, TaintEffect::NoSchedule, &[Toleration::exists("other")], &[]);
        check(kind, TaintEffect::NoSchedule, &[Toleration::exists("dedicated")], &["tainted"]);
        check(kind, TaintEffect::PreferNoSchedule, &[], &["tainted"]);
    }
}

#[test]
fn the_room_of_a_node_is_given_to_one_group_of_pods_alone() {
    let room = &[("cpu", "2"), ("memory", "2Gi"), ("pods", "5")];
    for kind in [NodeKind::Initialized, NodeKind::Starting, NodeKind::InFlight] {
        let groups = [("a", "1500m"), ("b", "1400m"), ("c", "1300m")];
        let all = groups.iter().flat_map(|(name, cpu)| pods(name, 1, shape(&[("cpu", cpu)]))).collect();
        let mut world = input(all, Vec::new());
        world.nodes = vec![node("one", kind, room)];
        let (plan, report) = claims(&world, 0);
        assert_eq!((plan.placements.len(), report.unschedulable.len()), (1, 2), "{kind:?}");
    }
}

#[test]
fn host_ports_of_a_pod_that_was_placed_are_taken() {
    let mut listening = shape(&[("cpu", "100m")]);
    listening.host_ports =
        BTreeSet::from([HostPort { ip: "0.0.0.0".to_owned(), port: 80, protocol: "TCP".to_owned() }]);
    let other = PodShape { requests: list(&[("cpu", "200m"), ("pods", "1")]), ..listening.clone() };
    let all = pods("a", 1, listening).into_iter().chain(pods("b", 1, other)).collect();
    let mut world = input(all, Vec::new());
    world.nodes = vec![node("one", NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")])];
    assert_eq!(claims(&world, 0).0.placements.len(), 1);
}

#[test]
fn c091_the_heaviest_pool_wins_and_an_explicit_selector_beats_it() {
    let heavy = || {
        let mut heavy = pool("heavy", six());
        heavy.pool.weight = 50;
        heavy
    };
    let world = |shape| input(pods("web", 1, shape), vec![default_pool(), heavy()]);
    let (plan, _) = claims(&world(shape(&[("cpu", "1")])), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "heavy");
    let (plan, _) = claims(&world(selecting(shape(&[("cpu", "1")]), labels::NODEPOOL, "default")), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "default");
}

#[test]
fn a_plan_counts_on_the_prices_of_what_its_launches_buy() {
    // The prices of spot, in percent of on-demand: of both types, and of the launches where they buy spot.
    let check = |small: Option<u64>, large: Option<u64>, claims: usize, spot: Option<u64>| {
        let [mut cheap, mut dear] = [("small.instance-type", 2), ("large.instance-type", 16)]
            .map(|(name, size)| FakeType::new(name, size, size, 40).option());
        let of = |price: UsdPerHour, percent: u64| UsdPerHour::from_nanos(price.nanos() / 100 * percent);
        for (one, percent) in [(&mut cheap, small), (&mut dear, large)] {
            for offering in one.offerings.iter_mut().filter(|one| one.capacity_type == CapacityType::Spot) {
                offering.price = offering.price.zip(percent).map(|(price, percent)| of(price, percent));
            }
        }
        let pod = shape(&[("cpu", "1500m"), ("memory", "1Gi")]);
        let (plan, _) = plan(&input(pods("web", claims, pod), vec![pool("default", vec![cheap, dear])]));
        let price = FakeType::new("small.instance-type", 2, 2, 40).price();
        let paid = spot.map_or(price, |percent| of(price, percent));
        let expected: Vec<Option<UsdPerHour>> = vec![Some(paid); claims];
        let found: Vec<Option<UsdPerHour>> = plan.claims.iter().map(|claim| claim.price).collect();
        assert_eq!(found, expected, "{small:?} {large:?}");
    };
    check(Some(50), Some(50), 1, Some(50));
    check(Some(200), Some(100), 1, None);
    check(None, Some(100), 1, None);
    check(None, None, 1, None);
    // The large type holds four pods for less than four times the small one's spot price.
    check(Some(300), Some(60), 4, None);
    check(None, Some(60), 4, None);
}

#[test]
fn a_pod_selects_an_ec2_node_class() {
    let of_class = |name: &str, class: &str| {
        let mut made = pool(name, six());
        made.pool.template.node_class.name = NodeClassName::parse(class).unwrap();
        made
    };
    let heavy = || {
        let mut heavy = of_class("heavy", "a");
        heavy.pool.weight = 100;
        heavy
    };
    let web = |class: &str| pods("web", 1, selecting(shape(&[("cpu", "1")]), labels::EC2NODECLASS, class));
    let (plan, _) = claims(&input(web("b"), vec![heavy(), of_class("light", "b")]), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "light");
    claims(&input(web("c"), vec![heavy()]), 0);
    // A template's label doesn't change the class that the nodes are of.
    let mut labelled = heavy();
    labelled.pool.template.labels.insert(labels::EC2NODECLASS.to_owned(), "b".to_owned());
    claims(&input(web("a"), vec![labelled.clone()]), 1);
    claims(&input(web("b"), vec![labelled]), 0);
    let mut of_another = heavy();
    of_another.pool.template.requirements.add(Requirement::one_of(labels::EC2NODECLASS, ["b"]));
    claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![of_another]), 0);
}

#[test]
fn c091_a_pool_without_prefer_no_schedule_is_preferred_and_one_with_it_used_at_need() {
    let mut avoided = pool("avoided", six());
    avoided.pool.weight = 50;
    avoided.pool.template.taints = vec![Taint::new("slow", TaintEffect::PreferNoSchedule)];
    let pod = || pods("web", 1, shape(&[("cpu", "1")]));
    let (plan, _) = claims(&input(pod(), vec![avoided.clone(), default_pool()]), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "default");
    let (plan, _) = claims(&input(pod(), vec![avoided]), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "avoided");
}

#[test]
fn affinity_terms_are_ored_and_a_term_that_cannot_be_had_is_passed_over() {
    let term = |key: &str, value: &str| NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(key, [value])],
        match_fields: Vec::new(),
    };
    let mut either = shape(&[("cpu", "1")]);
    either.required_node_affinity = vec![term(labels::ARCH, "s390x"), term(labels::ZONE, "test-zone-2")];
    let (plan, _) = claims(&input(pods("web", 1, either), vec![default_pool()]), 1);
    assert_eq!(plan.claims[0].zones.len(), 1);
}

/// A pod that may be on nodes with one value of a label or on those with another.
fn either(mut shape: PodShape, key: &str, values: [&str; 2]) -> PodShape {
    let term = |value: &str| NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(key, [value])],
        match_fields: Vec::new(),
    };
    shape.required_node_affinity = values.map(term).into();
    shape
}

#[test]
fn a_pod_with_alternatives_goes_where_others_go() {
    let types = || vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    let check = |nodes: Option<&str>| {
        let small = either(shape(&[("cpu", "1")]), labels::ZONE, ["test-zone-1", "test-zone-2"]);
        let large = selecting(shape(&[("cpu", "2")]), labels::ZONE, "test-zone-2");
        let all = pods("small", 3, small).into_iter().chain(pods("large", 3, large)).collect();
        let mut pool = pool("default", types());
        pool.pool.limits = nodes.map(|nodes| list(&[("nodes", nodes)])).unwrap_or_default();
        let (_, report) = claims(&input(all, vec![pool]), 3);
        assert_eq!(report.unschedulable, []);
    };
    check(None);
    check(Some("3"));
}

#[test]
fn a_pod_joins_the_claim_of_another_alternative_where_a_limit_allows_no_more() {
    // The pods fit in neither zone alone.
    let either = either(shape(&[("cpu", "1")]), labels::ZONE, ["test-zone-1", "test-zone-2"]);
    let one = |name, zone: &str| pods(name, 1, selecting(shape(&[("cpu", "2500m")]), labels::ZONE, zone));
    let all = pods("either", 2, either).into_iter().chain(one("first", "test-zone-1"));
    let mut pool = pool("default", vec![FakeType::new("default.instance-type", 4, 4, 5).option()]);
    pool.pool.limits = list(&[("nodes", "2")]);
    let (_, report) = claims(&input(all.chain(one("second", "test-zone-2")).collect(), vec![pool]), 2);
    assert_eq!(report.unschedulable, []);
}

#[test]
fn an_alternative_that_a_limit_has_no_room_for_is_passed_over() {
    let types = ["large.instance-type", "small.instance-type"];
    let pod = either(shape(&[("cpu", "1")]), labels::INSTANCE_TYPE, types);
    let options =
        types.into_iter().zip([16, 2]).map(|(name, size)| FakeType::new(name, size, size, 20).option());
    let mut pool = pool("default", options.collect());
    pool.pool.limits = list(&[("cpu", "4")]);
    let (plan, report) = claims(&input(pods("web", 2, pod), vec![pool]), 2);
    assert_eq!(report.unschedulable, []);
    assert!(plan.claims.iter().all(|claim| claim.instance_types[0].as_str() == "small.instance-type"));
}

#[test]
fn host_ports_clash_only_where_port_protocol_and_address_do() {
    let listens =
        |ip: &str, port, protocol: &str| HostPort { ip: ip.to_owned(), port, protocol: protocol.to_owned() };
    let check = |one: HostPort, other: HostPort, nodes: usize| {
        let of = |cpu, port: &HostPort| PodShape {
            host_ports: BTreeSet::from([port.clone()]),
            ..shape(&[("cpu", cpu)])
        };
        let all =
            pods("a", 1, of("100m", &one)).into_iter().chain(pods("b", 1, of("200m", &other))).collect();
        let (plan, _) = plan(&input(all, vec![default_pool()]));
        assert_eq!(plan.claims.len(), nodes, "{one:?} beside {other:?}");
    };
    check(listens("", 80, "TCP"), listens("", 80, "TCP"), 2);
    check(listens("", 80, "TCP"), listens("", 81, "TCP"), 1);
    check(listens("", 80, "TCP"), listens("", 80, "UDP"), 1);
    check(listens("10.0.0.1", 80, "TCP"), listens("10.0.0.2", 80, "TCP"), 1);
    check(listens("10.0.0.1", 80, "TCP"), listens("10.0.0.1", 80, "TCP"), 2);
    check(listens("10.0.0.1", 80, "TCP"), listens("0.0.0.0", 80, "TCP"), 2);
    check(listens("::", 80, "TCP"), listens("10.0.0.1", 80, "TCP"), 2);
}

#[test]
fn host_ports_keep_pods_apart() {
    let mut listening = shape(&[("cpu", "100m")]);
    listening.host_ports =
        BTreeSet::from([HostPort { ip: "0.0.0.0".to_owned(), port: 80, protocol: "TCP".to_owned() }]);
    claims(&input(pods("web", 3, listening.clone()), vec![default_pool()]), 3);
    let mut world = input(pods("web", 1, listening.clone()), vec![default_pool()]);
    world.daemon_sets = vec![daemon_set("ingress", listening)];
    check_reason(&world, "HostPortsTaken");
}

#[test]
fn with_its_steps_used_up_a_plan_says_so_and_what_it_has_is_valid() {
    let mut world = input(pods("web", 50, shape(&[("cpu", "3")])), vec![default_pool()]);
    world.steps = StepBudget { max: 0 };
    let report = check_reason(&world, "StepBudgetExhausted");
    assert_eq!(report.outcome, PlanCompletion::BudgetExhausted);
}

#[test]
fn the_bound_is_at_most_the_price() {
    let world = input(pods("web", 9, shape(&[("cpu", "900m"), ("memory", "1Gi")])), vec![default_pool()]);
    let (plan, _) = plan(&world);
    let bound = bound::linear(&world, &plan).unwrap();
    assert!(bound <= plan.price() && bound.nanos() > 0, "{bound} {}", plan.price());
}

#[test]
fn the_bound_leaves_out_types_of_which_the_limits_allow_no_node() {
    let check = |limits: &[(&str, &str)], expected: usize| {
        let types = [("small.instance-type", 4), ("large.instance-type", 16)];
        let types =
            types.into_iter().map(|(name, cpu)| FakeType::new(name, cpu, 2 * cpu, 40).option()).collect();
        let mut world = input(pods("web", 3, shape(&[("cpu", "900m")])), vec![pool("default", types)]);
        world.pools[0].pool.limits = list(limits);
        let (plan, _) = plan(&world);
        let programme = tenon_planning::bound::programme(&world, &plan).unwrap();
        assert_eq!(programme.columns.len(), expected, "{limits:?}");
    };
    check(&[], 2);
    check(&[("cpu", "16")], 2);
    check(&[("cpu", "15")], 1);
}

#[test]
fn claims_are_written_as_node_claims() {
    let (plan, _) = claims(&input(pods("web", 1, shape(&[("cpu", "3")])), vec![default_pool()]), 1);
    let claim = &plan.claims[0];
    let written: BTreeMap<String, Vec<String>> =
        claim.requirements.to_node_selectors().into_iter().map(|one| (one.key, one.values)).collect();
    assert_eq!(written[labels::CAPACITY_TYPE], ["on-demand", "spot"]);
    assert_eq!(written[labels::NODEPOOL], ["default"]);
    assert_eq!(written[labels::EC2NODECLASS], ["default"]);
    assert_eq!(written[labels::INSTANCE_TYPE].len(), claim.instance_types.len());
    let name = claim.name.as_str();
    assert_eq!((name.len(), name.starts_with("default-")), ("default-".len() + 5, true));
}

#[test]
fn a_plan_that_places_everything_waits_for_nothing() {
    let exhausted = Unavailability::Exhausted { until: at(180), last_resort_at: at(180) };
    let mut types = six();
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.availability = Availability::Unavailable(exhausted.clone());
    }
    let mut first = pool("first", types);
    first.pool.weight = 10;
    let world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![first, default_pool()]);
    assert_eq!(claims(&world, 1).0.wake_at, None);
}

#[test]
fn a_pod_that_asks_for_none_of_a_resource_goes_where_there_is_none() {
    let mut world = input(pods("web", 1, shape(&[("cpu", "1"), ("example.com/card", "0")])), Vec::new());
    world.daemon_sets = vec![daemon_set("cards", shape(&[("example.com/card", "1")]))];
    world.nodes = vec![node("one", NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")])];
    assert_eq!(claims(&world, 0).0.placements.len(), 1);
}

#[test]
fn a_plan_is_empty_only_without_claims_and_placements() {
    let pod = || pods("web", 1, shape(&[("cpu", "1")]));
    let launches = plan(&input(pod(), vec![default_pool()])).0;
    let mut there = input(pod(), Vec::new());
    there.nodes = vec![node("one", NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")])];
    let places = plan(&there).0;
    assert_eq!((launches.claims.len(), launches.placements.len()), (1, 0));
    assert_eq!((places.claims.len(), places.placements.len()), (0, 1));
    assert!(!launches.is_empty() && !places.is_empty());
}

#[test]
fn without_steps_no_further_node_is_looked_at() {
    let mut world = input(pods("web", 2, shape(&[("cpu", "1")])), Vec::new());
    world.nodes =
        ["a", "b"].map(|name| node(name, NodeKind::Initialized, &[("cpu", "1"), ("pods", "5")])).into();
    assert_eq!(claims(&world, 0).0.placements.len(), 2);
    world.steps = StepBudget { max: 1 };
    let (plan, report) = claims(&world, 0);
    assert_eq!((plan.placements.len(), report.outcome), (1, PlanCompletion::BudgetExhausted));
}

/// A world in which each of so many groups may use each of 24 types, none of which another is as good as.
fn of_groups(count: usize) -> ProvisionInput {
    let names: Vec<&'static str> = (0..24).map(|n| &*format!("t.{n:02}").leak()).collect();
    let types =
        names.iter().zip(0..).map(|(name, n)| FakeType::new(name, 2 + n, 4 + n, 20).option()).collect();
    let group = |n: usize| pods(&format!("g{n}"), 1, shape(&[("cpu", &format!("{}m", n + 1))]));
    input((0..count).flat_map(group).collect(), vec![pool("default", types)])
}

#[test]
fn a_bound_of_more_than_12_000_variables_is_not_worked_out() {
    let programme = |groups| {
        let world = of_groups(groups);
        let (plan, _) = plan(&world);
        tenon_planning::bound::programme(&world, &plan)
    };
    let largest = programme(499).unwrap();
    let variables: usize = largest.columns.iter().map(|column| column.users.len() + 1).sum();
    assert_eq!(variables, 12_000);
    assert!(programme(500).is_none());
}

#[test]
fn a_bound_of_more_than_2_000_kinds_of_pods_is_not_worked_out() {
    let programme = |groups| {
        let mut world = of_groups(groups);
        // One type, so that each kind has one variable.
        world.pools[0].types = Arc::new(world.pools[0].types[23..].to_vec());
        let (plan, _) = plan(&world);
        tenon_planning::bound::programme(&world, &plan)
    };
    assert_eq!(programme(2_000).unwrap().columns.len(), 1);
    assert!(programme(2_001).is_none());
}

#[test]
fn without_time_there_is_no_bound() {
    let world = of_groups(20);
    let (plan, _) = plan(&world);
    let found = bound::linear_within(&world, &plan, Duration::ZERO);
    assert_eq!(found, Err(BoundOmission::TimeUp));
}

#[test]
fn a_pod_that_names_a_node_goes_there_and_nowhere_else() {
    let mut one = shape(&[("cpu", "1")]);
    let field = Requirement::one_of("metadata.name", ["b"]);
    one.required_node_affinity =
        vec![NodeSelectorTerm { match_expressions: Vec::new(), match_fields: vec![field] }];
    let mut world = input(pods("web", 3, one), vec![default_pool()]);
    world.nodes =
        ["a", "b"].map(|name| node(name, NodeKind::Initialized, &[("cpu", "2"), ("pods", "5")])).into();
    let (plan, report) = claims(&world, 0);
    let nodes: Vec<&str> = plan.placements.iter().map(|placement| placement.node.as_str()).collect();
    assert_eq!((nodes, report.unschedulable.len()), (vec!["b", "b"], 1));
}

#[test]
fn a_node_is_labelled_with_its_pool_and_what_only_the_pool_says() {
    let mut one = default_pool();
    one.pool.template.requirements =
        [Requirement::one_of("team", ["a"]), Requirement::one_of(labels::ARCH, ["amd64"])]
            .into_iter()
            .collect();
    let (plan, _) = claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![one]), 1);
    let expected = [(labels::NODEPOOL, "default"), ("team", "a")];
    assert_eq!(plan.claims[0].labels, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

#[test]
fn what_is_refused_changes_nothing_in_the_bound_of_what_is_planned() {
    let placed = || pods("web", 6, shape(&[("cpu", "1"), ("memory", "1Gi")]));
    let bound = |pods: Vec<tenon_domain::api::Pod>| {
        let world = input(pods, vec![default_pool()]);
        bound::linear(&world, &plan(&world).0).unwrap()
    };
    let huge = pods("huge", 1, shape(&[("cpu", "1000000000"), ("memory", "1000000Ti")]));
    assert_eq!(bound(placed().into_iter().chain(huge).collect()), bound(placed()));
}
