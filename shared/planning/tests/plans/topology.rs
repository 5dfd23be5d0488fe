//! Rules about other pods: topology spread, pod affinity and anti-affinity, and volumes that bind pods to a zone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::checker::faults;
use crate::drawn::Draw;
use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::meta::ObjectMeta;
use tenon_domain::api::pod::{
    LabelSelector, NodeSelectorTerm, PodAffinityTerm, PodVolume, TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::api::storage::{
    ClaimUsers, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding,
};
use tenon_domain::labels;
use tenon_domain::registry::{PlanPolicies, PreferencePolicy};
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{
    ExistingNode, NodeKind, ProvisionInput, ProvisionPlan, Storage, Unschedulable, plan,
};

/// A valid plan that places all pods.
pub(crate) fn all_placed(input: &ProvisionInput) -> ProvisionPlan {
    let (plan, report) = plan(input);
    assert!(report.unschedulable.is_empty(), "{:#?}", report.unschedulable);
    assert_eq!(faults(input, &plan), Vec::<String>::new());
    plan
}

/// How many pods the plan has for each zone, on new nodes.
pub(crate) fn by_zone(plan: &ProvisionPlan) -> Vec<usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for claim in &plan.claims {
        assert_eq!(claim.zones.len(), 1, "{claim:#?}");
        *counts.entry(claim.zones.first().unwrap().to_string()).or_default() += claim.pods.len();
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

pub(crate) fn in_zone(name: &str, zone: &str, cpu: &str) -> ExistingNode {
    let mut one = node(name, NodeKind::Initialized, &[("cpu", cpu), ("memory", "16Gi"), ("pods", "20")]);
    one.labels.insert(labels::ZONE.to_owned(), zone.to_owned());
    one
}

#[test]
fn pods_are_spread_over_zones_and_every_claim_has_one() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let plan = all_placed(&input(pods("web", 10, web), vec![default_pool()]));
    assert_eq!(by_zone(&plan), [3, 3, 4]);
}

#[test]
fn a_spread_counts_pods_on_nodes_and_fills_the_emptiest_zone() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut world = input(pods("web", 4, web.clone()), vec![default_pool()]);
    let mut full = in_zone("full", ZONES[0], "3");
    (0..3).for_each(|_| full.occupancy.add(&Arc::new(web.clone())));
    world.nodes.push(full);
    let plan = all_placed(&world);
    assert_eq!(by_zone(&plan), [2, 2]);
}

#[test]
fn a_spread_over_nodes_puts_as_many_on_each_as_its_skew() {
    let mut web = app("web", "100m");
    web.topology_spread = vec![spread(labels::HOSTNAME, "web", 2)];
    let plan = all_placed(&input(pods("web", 6, web), vec![default_pool()]));
    assert_eq!(plan.claims.iter().map(|claim| claim.pods.len()).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn c095_where_only_one_zone_takes_new_nodes_the_skew_bounds_its_pods() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 5)];
    let mut last = default_pool();
    last.pool.template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[2]]));
    let mut world = input(pods("web", 10, web.clone()), vec![last]);
    for (name, zone) in [("first", ZONES[0]), ("second", ZONES[1])] {
        let mut full = in_zone(name, zone, "1");
        full.occupancy.add(&Arc::new(web.clone()));
        world.nodes.push(full);
    }
    let (plan, report) = plan(&world);
    assert_eq!(faults(&world, &plan), Vec::<String>::new());
    assert_eq!((by_zone(&plan), report.unschedulable.len()), (vec![6], 4), "one more than 5 above 1, 1");
}

#[test]
fn c095_zones_without_pods_are_filled_beside_one_that_has_three() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut full = in_zone("full", ZONES[0], "3");
    (0..3).for_each(|_| full.occupancy.add(&Arc::new(web.clone())));
    let mut world = input(pods("web", 3, web), vec![default_pool()]);
    world.nodes.push(full);
    assert_eq!(by_zone(&all_placed(&world)), [1, 2]);
}

#[test]
fn c094_with_fewer_domains_than_min_domains_the_least_is_none() {
    let check = |least: u32, zones: &[&str], count: usize, expected: &[usize]| {
        let mut web = app("web", "1");
        let rule = TopologySpreadConstraint { min_domains: Some(least), ..spread(labels::ZONE, "web", 1) };
        web.topology_spread = vec![rule];
        let mut offering = default_pool();
        let some = Requirement::one_of(labels::ZONE, zones.iter().copied());
        offering.pool.template.requirements.add(some);
        let (plan, report) = plan(&input(pods("web", count, web), vec![offering]));
        assert_eq!(by_zone(&plan), expected);
        assert_eq!(report.unschedulable.len(), count - expected.iter().sum::<usize>());
        report.unschedulable.first().map(Unschedulable::message)
    };
    let message = check(3, &ZONES[..2], 3, &[1, 1]);
    assert_eq!(
        message.as_deref(),
        Some(
            "its topology spread with `maxSkew` 1 leaves no value of `topology.kubernetes.io/zone` for the pod: \
             `test-zone-1`, `test-zone-2` (full while there are fewer values than `minDomains` 3): let NodePools offer \
             more values, or lower `minDomains`"
        )
    );
    check(4, &ZONES, 6, &[1, 1, 1]);
    check(3, &ZONES, 11, &[3, 4, 4]);
    check(2, &ZONES, 11, &[3, 4, 4]);
}

#[test]
fn a_spread_over_capacity_types_uses_both() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::CAPACITY_TYPE, "web", 1)];
    let plan = all_placed(&input(pods("web", 6, web), vec![default_pool()]));
    let of = |kind: &str| {
        let claims =
            plan.claims.iter().filter(|claim| claim.capacity_types.iter().all(|one| one.as_str() == kind));
        claims.map(|claim| claim.pods.len()).sum::<usize>()
    };
    assert_eq!((of("spot"), of("on-demand")), (3, 3));
}

#[test]
fn pods_that_exclude_each_other_get_a_node_each() {
    let mut db = app("db", "100m");
    db.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "db")];
    let plan = all_placed(&input(pods("db", 5, db), vec![default_pool()]));
    assert_eq!(plan.claims.len(), 5);
}

#[test]
fn c098_pods_that_exclude_each_other_by_zone_get_a_zone_each_and_the_rest_is_told() {
    let mut db = app("db", "1");
    db.required_pod_anti_affinity = vec![term(labels::ZONE, "db")];
    let world = input(pods("db", 4, db), vec![default_pool()]);
    let (plan, report) = plan(&world);
    assert_eq!(faults(&world, &plan), Vec::<String>::new());
    assert_eq!(by_zone(&plan), [1, 1, 1]);
    assert_eq!(report.unschedulable.len(), 1);
    assert!(report.unschedulable[0].message().starts_with("its anti-affinity leaves no value"));
}

#[test]
fn c098_the_anti_affinity_of_pods_that_run_keeps_others_away() {
    let mut lonely = app("lonely", "100m");
    lonely.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "web")];
    let mut taken = in_zone("taken", ZONES[0], "3");
    taken.occupancy.add(&Arc::new(lonely.clone()));
    let mut world = input(pods("web", 1, app("web", "1")), vec![default_pool()]);
    world.nodes.push(taken.clone());
    assert_eq!(all_placed(&world).claims.len(), 1);
    lonely.required_pod_anti_affinity = vec![term(labels::ZONE, "web")];
    taken.occupancy.add(&Arc::new(lonely));
    world.nodes = vec![taken];
    let plan = all_placed(&world);
    assert_eq!(plan.claims.len(), 1);
    assert!(!plan.claims[0].zones.iter().any(|zone| zone.as_str() == ZONES[0]));
}

#[test]
fn c097_pods_that_need_each_other_share_a_zone() {
    let mut web = app("web", "1");
    web.required_pod_affinity = vec![term(labels::ZONE, "web")];
    let plan = all_placed(&input(pods("web", 12, web), vec![default_pool()]));
    assert_eq!(by_zone(&plan), [12]);
}

#[test]
fn c097_pods_that_need_each_other_share_a_node_as_far_as_it_has_room() {
    let mut web = app("web", "1");
    web.required_pod_affinity = vec![term(labels::HOSTNAME, "web")];
    assert_eq!(all_placed(&input(pods("web", 5, web.clone()), vec![default_pool()])).claims.len(), 1);
    // Of the six types none has room for more than five pods.
    let mut world = input(pods("web", 10, web.clone()), vec![default_pool()]);
    let (made, report) = plan(&world);
    assert_eq!((made.claims.len(), report.unschedulable.len()), (1, 5));
    let mut full = in_zone("full", ZONES[0], "5");
    (0..5).for_each(|_| full.occupancy.add(&Arc::new(web.clone())));
    world.nodes.push(full);
    world.pods.truncate(5);
    let (made, report) = plan(&world);
    assert_eq!((made.claims.len(), report.unschedulable.len()), (0, 5));
}

#[test]
fn a_pod_follows_another_to_its_node_and_to_its_zone() {
    for key in [labels::HOSTNAME, labels::ZONE] {
        let mut cache = app("cache", "1");
        cache.required_pod_affinity = vec![term(key, "web")];
        let all = pods("web", 2, app("web", "1")).into_iter().chain(pods("cache", 2, cache.clone()));
        let plan = all_placed(&input(all.collect(), vec![default_pool()]));
        assert!(!plan.claims.is_empty());
        // Alone it has nobody to follow.
        let report = check_reason(&input(pods("cache", 1, cache), vec![default_pool()]), "NoDomain");
        assert!(report.unschedulable[0].message().starts_with("its affinity leaves no "));
    }
}

/// kube-scheduler counts only pods that all terms select.
#[test]
fn a_pod_with_two_affinities_follows_pods_that_are_both() {
    let mut cache = app("cache", "1");
    cache.required_pod_affinity = vec![term(labels::ZONE, "web"), term(labels::ZONE, "db")];
    let all = ["web", "db"].map(|name| pods(name, 1, app(name, "1"))).into_iter().flatten();
    let world = input(all.chain(pods("cache", 1, cache.clone())).collect(), vec![default_pool()]);
    assert_eq!(plan(&world).1.unschedulable.len(), 1);
    cache.required_pod_affinity[1].selector =
        Some(LabelSelector { requirements: vec![Requirement::exists("app")] });
    let world = input(
        pods("web", 1, app("web", "1")).into_iter().chain(pods("cache", 1, cache)).collect(),
        vec![default_pool()],
    );
    all_placed(&world);
}

#[test]
fn a_pod_follows_one_that_runs() {
    let mut cache = app("cache", "1");
    cache.required_pod_affinity = vec![term(labels::ZONE, "web")];
    let mut running = in_zone("running", ZONES[1], "1");
    running.occupancy.add(&Arc::new(app("web", "1")));
    let mut world = input(pods("cache", 3, cache), vec![default_pool()]);
    world.nodes.push(running);
    let plan = all_placed(&world);
    assert!(plan.claims.iter().all(|claim| claim.zones.iter().all(|zone| zone.as_str() == ZONES[1])));
}

#[test]
fn other_namespaces_count_only_where_they_are_named_or_selected() {
    let check = |change: fn(&mut PodAffinityTerm), expected: usize| {
        let mut apart = term(labels::HOSTNAME, "web");
        change(&mut apart);
        let mut db = app("db", "100m");
        db.required_pod_anti_affinity = vec![apart];
        let mut elsewhere = app("web", "100m");
        elsewhere.namespace = "shop".to_owned();
        let mut taken = in_zone("taken", ZONES[0], "3");
        taken.occupancy.add(&Arc::new(elsewhere));
        let mut world = input(pods("db", 1, db), vec![default_pool()]);
        world.nodes.push(taken);
        world.namespaces =
            BTreeMap::from([("shop".to_owned(), BTreeMap::from([("team".to_owned(), "a".to_owned())]))]);
        assert_eq!(all_placed(&world).claims.len(), expected);
    };
    check(|_| {}, 0);
    check(|term| term.namespaces = vec!["shop".to_owned()], 1);
    check(|term| term.namespaces = vec!["other".to_owned()], 0);
    check(|term| term.namespace_selector = Some(LabelSelector::default()), 1);
    let team =
        |value: &'static str| LabelSelector { requirements: vec![Requirement::one_of("team", [value])] };
    let _ = team;
    check(
        |term| {
            term.namespace_selector =
                Some(LabelSelector { requirements: vec![Requirement::one_of("team", ["a"])] });
        },
        1,
    );
    check(
        |term| {
            term.namespace_selector =
                Some(LabelSelector { requirements: vec![Requirement::one_of("team", ["b"])] });
        },
        0,
    );
}

#[test]
fn revisions_of_a_deployment_are_spread_each_for_itself() {
    let revision = |hash: &str| {
        let mut web = app("web", "1");
        web.labels.insert("pod-template-hash".to_owned(), hash.to_owned());
        let keys = vec!["pod-template-hash".to_owned()];
        web.topology_spread =
            vec![TopologySpreadConstraint { match_label_keys: keys, ..spread(labels::ZONE, "web", 1) }];
        web
    };
    let mut old = in_zone("old", ZONES[0], "9");
    (0..6).for_each(|_| old.occupancy.add(&Arc::new(revision("one"))));
    let mut world = input(pods("web", 3, revision("two")), vec![default_pool()]);
    world.nodes.push(old);
    let plan = all_placed(&world);
    // One of each zone: the first is on the node that is there.
    assert_eq!((plan.placements.len(), by_zone(&plan)), (1, vec![1, 1]));
}

#[test]
fn preferences_shape_nodes_where_they_can_be_met_and_are_given_up_where_not() {
    let mut web = app("web", "1");
    web.preferred_node_affinity = vec![(
        1,
        NodeSelectorTerm {
            match_expressions: vec![Requirement::one_of(labels::ZONE, [ZONES[2]])],
            match_fields: Vec::new(),
        },
    )];
    let zones = |plan: &ProvisionPlan| -> BTreeSet<String> {
        plan.claims.iter().flat_map(|claim| &claim.zones).map(ToString::to_string).collect()
    };
    let world = input(pods("web", 2, web.clone()), vec![default_pool()]);
    assert_eq!(zones(&all_placed(&world)), BTreeSet::from([ZONES[2].to_owned()]));
    let policies = PlanPolicies { preferences: PreferencePolicy::Ignore, ..world.policies };
    let ignoring = ProvisionInput { policies, ..world };
    assert!(zones(&all_placed(&ignoring)).len() > 1);
    // A zone that doesn't exist is given up.
    web.preferred_node_affinity[0].1.match_expressions = vec![Requirement::one_of(labels::ZONE, ["nowhere"])];
    assert!(!all_placed(&input(pods("web", 2, web), vec![default_pool()])).claims.is_empty());
}

#[test]
fn a_preferred_spread_is_kept_where_it_can_be_and_given_up_where_not() {
    let mut web = app("web", "1");
    let mut soft = spread(labels::ZONE, "web", 1);
    soft.when_unsatisfiable = WhenUnsatisfiable::ScheduleAnyway;
    web.topology_spread = vec![soft];
    let plan = all_placed(&input(pods("web", 6, web.clone()), vec![default_pool()]));
    assert_eq!(by_zone(&plan), [2, 2, 2]);
    web.topology_spread[0].min_domains = None;
    web.topology_spread[0].topology_key = "example.com/rack".to_owned();
    assert!(!all_placed(&input(pods("web", 6, web), vec![default_pool()])).claims.is_empty());
}

#[test]
fn preferred_neighbours_are_kept_apart_while_there_is_another_place() {
    let mut web = app("web", "100m");
    web.preferred_pod_anti_affinity = vec![(10, term(labels::HOSTNAME, "web"))];
    let plan = all_placed(&input(pods("web", 3, web.clone()), vec![default_pool()]));
    assert_eq!(plan.claims.len(), 3);
    let mut limited = default_pool();
    limited.pool.limits = list(&[("nodes", "1")]);
    let plan = all_placed(&input(pods("web", 3, web), vec![limited]));
    assert_eq!(plan.claims.len(), 1);
}

#[test]
fn custom_labels_of_a_pool_are_domains() {
    let mut racks = default_pool();
    racks.pool.template.requirements =
        [Requirement::one_of("example.com/rack", ["r1", "r2"])].into_iter().collect();
    let mut web = app("web", "1");
    web.topology_spread = vec![spread("example.com/rack", "web", 1)];
    let plan = all_placed(&input(pods("web", 6, web), vec![racks]));
    let of = |rack: &str| {
        let there = plan
            .claims
            .iter()
            .filter(|claim| claim.labels.get("example.com/rack").is_some_and(|of| of == rack));
        there.map(|claim| claim.pods.len()).sum::<usize>()
    };
    assert_eq!((of("r1"), of("r2")), (3, 3));
}

/// A world whose pods have a volume of their own in a zone each.
pub(crate) fn with_volumes(zones: &[&str], bound: bool) -> ProvisionInput {
    let meta = |name: &str, namespace: &str| ObjectMeta {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        ..ObjectMeta::default()
    };
    let zonal = |zone: &str| NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::ZONE, [zone])],
        match_fields: Vec::new(),
    };
    let mut all: Vec<Pod> = Vec::new();
    let mut storage = Storage {
        classes: vec![StorageClass {
            meta: meta("zonal", ""),
            provisioner: "ebs.csi.aws.com".to_owned(),
            binding: VolumeBinding::WaitForFirstConsumer,
            allowed_topologies: zones.iter().map(|zone| zonal(zone)).collect(),
        }],
        ..Storage::default()
    };
    for (index, zone) in zones.iter().enumerate() {
        let name = format!("data-{index}");
        let mut one = app("db", "1");
        one.volumes = vec![PodVolume::Claim(name.clone())];
        all.push(pod(&format!("db-{index}"), &Arc::new(one)));
        storage.claims.push(PersistentVolumeClaim {
            meta: meta(&name, "default"),
            storage_class: Some("zonal".to_owned()),
            volume: bound.then(|| format!("pv-{index}")),
            phase: "Bound".to_owned(),
            users: ClaimUsers::Many,
        });
        storage.volumes.push(PersistentVolume {
            meta: meta(&format!("pv-{index}"), ""),
            node_affinity: vec![zonal(zone)],
            driver: Some("ebs.csi.aws.com".to_owned()),
        });
    }
    let mut world = input(all, vec![default_pool()]);
    world.storage = storage;
    world
}

#[test]
fn pods_go_where_their_volumes_are() {
    let plan = all_placed(&with_volumes(&[ZONES[0], ZONES[1], ZONES[1], ZONES[2]], true));
    assert_eq!(by_zone(&plan), [1, 1, 2]);
    // Volumes that are made with the pod follow it, within the topologies of their class.
    let plan = all_placed(&with_volumes(&[ZONES[2], ZONES[2]], false));
    assert_eq!(by_zone(&plan), [2]);
}

/// A world with rules of every kind, about nodes and about either zones or capacity types, from a number.
fn drawn(number: u64) -> ProvisionInput {
    let mut draw = Draw::new(number);
    let names = ["a", "b", "c"];
    let mut all = Vec::new();
    let wide = if draw.below(4) == 0 { labels::CAPACITY_TYPE } else { labels::ZONE };
    let some = |draw: &mut Draw| names[usize::try_from(draw.below(3)).unwrap()];
    for index in 0..1 + draw.below(6) {
        let own = some(&mut draw);
        let mut one = app(own, ["100m", "500m", "1", "2"][usize::try_from(draw.below(4)).unwrap()]);
        let key = [wide, wide, labels::HOSTNAME][usize::try_from(draw.below(3)).unwrap()];
        let of = if draw.below(2) == 0 { own } else { some(&mut draw) };
        match draw.below(6) {
            0 | 1 => {
                let skew = 1 + u32::try_from(draw.below(2)).unwrap();
                one.topology_spread = vec![spread(key, of, skew)];
            }
            2 => one.required_pod_anti_affinity = vec![term(key, of)],
            3 => one.required_pod_affinity = vec![term(key, of)],
            4 => one.preferred_pod_anti_affinity = vec![(1, term(key, of))],
            _ => {}
        }
        // Which capacity types a zone has isn't the checker's to know.
        if draw.below(4) == 0 && wide == labels::ZONE {
            one.node_selector
                .insert(labels::ZONE.to_owned(), ZONES[usize::try_from(draw.below(3)).unwrap()].to_owned());
        }
        let count = usize::try_from(1 + draw.below(8)).unwrap();
        all.extend(pods(&format!("g{index}"), count, one));
    }
    let mut world = input(all, vec![default_pool()]);
    for index in 0..draw.below(4) {
        let zone = ZONES[usize::try_from(draw.below(3)).unwrap()];
        let mut one = in_zone(&format!("node-{index}"), zone, "6");
        one.labels.insert(labels::CAPACITY_TYPE.to_owned(), "on-demand".to_owned());
        for _ in 0..draw.below(3) {
            let mut running = app(some(&mut draw), "500m");
            if draw.below(3) == 0 {
                running.required_pod_anti_affinity = vec![term(
                    [wide, labels::HOSTNAME][usize::try_from(draw.below(2)).unwrap()],
                    some(&mut draw),
                )];
            }
            one.occupancy.add(&Arc::new(running));
        }
        world.nodes.push(one);
    }
    world
}

#[test]
fn plans_keep_every_rule() {
    for number in 0..1500 {
        let world = drawn(number);
        let (made, _) = plan(&world);
        assert_eq!(faults(&world, &made), Vec::<String>::new(), "world {number}");
    }
}

#[test]
fn the_order_of_pods_and_nodes_changes_nothing() {
    for number in 0..500 {
        let world = drawn(number);
        let mut other = world.clone();
        other.pods.reverse();
        other.nodes.reverse();
        assert_eq!(plan(&world), plan(&other), "world {number}");
    }
}
