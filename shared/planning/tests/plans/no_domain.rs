//! Pods that rules about other pods leave no domain: what is in the way in each, and a remedy that helps.

use std::sync::Arc;

use crate::support::*;
use tenon_domain::api::pod::{LabelSelector, NodeSelectorTerm, PodShape, PodVolume};
use tenon_domain::api::storage::{
    ClaimUsers, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding,
};
use tenon_domain::catalog::{Availability, Unavailability};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{NodeKind, PoolInput, ProvisionInput, Unschedulable, plan};

const ZONE_RULE: &str = "no value of `topology.kubernetes.io/zone` for the pod";

/// The message of the last pod without a place.
fn told(input: &ProvisionInput) -> String {
    let (_, report) = plan(input);
    report.unschedulable.last().map(Unschedulable::message).unwrap_or_default()
}

/// A world without a place for a pod, and the same where its remedy was followed.
fn check(world: &ProvisionInput, expected: &str, mended: &[ProvisionInput]) {
    assert_eq!(told(world), expected);
    for mended in mended {
        assert_eq!(told(mended), "");
    }
}

fn apart(name: &str, key: &str) -> PodShape {
    PodShape { required_pod_anti_affinity: vec![term(key, name)], ..app(name, "1") }
}

fn beside(name: &str, key: &str, other: &str) -> PodShape {
    PodShape { required_pod_affinity: vec![term(key, other)], ..app(name, "1") }
}

/// A node in a zone that runs a pod.
fn running_in(world: &mut ProvisionInput, zone: &str, cpu: &str, shape: &PodShape) {
    let name = format!("node-{}", world.nodes.len());
    let mut one = node(&name, NodeKind::Initialized, &[("cpu", cpu), ("memory", "1Gi"), ("pods", "20")]);
    one.labels.insert(labels::ZONE.to_owned(), zone.to_owned());
    one.occupancy.add(&Arc::new(shape.clone()));
    world.nodes.push(one);
}

fn pool_in(name: &str, zones: &[&str]) -> PoolInput {
    let mut one = pool(name, six());
    one.pool.template.requirements.add(Requirement::one_of(labels::ZONE, zones.iter().copied()));
    one
}

/// A claim, bound to a volume of a zone if there is one.
fn keep(world: &mut ProvisionInput, claim: &str, zone: Option<&str>) {
    world.storage.classes = vec![StorageClass {
        meta: meta("ebs", ""),
        provisioner: "ebs.csi.aws.com".to_owned(),
        binding: VolumeBinding::WaitForFirstConsumer,
        allowed_topologies: Vec::new(),
    }];
    world.storage.claims.push(PersistentVolumeClaim {
        meta: meta(claim, "default"),
        storage_class: Some("ebs".to_owned()),
        volume: zone.map(|_| format!("pv-{claim}")),
        phase: if zone.is_some() { "Bound" } else { "Pending" }.to_owned(),
        users: ClaimUsers::Many,
    });
    world.storage.volumes.extend(zone.map(|zone| PersistentVolume {
        meta: meta(&format!("pv-{claim}"), ""),
        node_affinity: vec![NodeSelectorTerm {
            match_expressions: vec![Requirement::one_of(labels::ZONE, [zone])],
            match_fields: Vec::new(),
        }],
        driver: None,
    }));
}

fn using(shape: PodShape, claim: &str) -> PodShape {
    PodShape { volumes: vec![PodVolume::Claim(claim.to_owned())], ..shape }
}

#[test]
fn zones_that_the_pod_does_not_select_are_named_with_its_own_fields() {
    let pinned = || selecting(apart("web", labels::ZONE), labels::ZONE, "test-zone-1");
    check(
        &input(pods("web", 2, pinned()), vec![default_pool()]),
        &format!(
            "its anti-affinity leaves {ZONE_RULE}: `test-zone-1` (holds pods that it avoids), `test-zone-2`, `test-zone-3` \
             (its node selector or affinity is against it): allow `test-zone-2`, `test-zone-3` in the pod's node selector and \
             affinity, or relax the rule"
        ),
        &[
            input(pods("web", 2, apart("web", labels::ZONE)), vec![default_pool()]),
            input(
                pods("web", 2, selecting(app("web", "1"), labels::ZONE, "test-zone-1")),
                vec![default_pool()],
            ),
        ],
    );
    // A selection of something else has the same effect.
    let of_pool = || selecting(apart("web", labels::ZONE), labels::NODEPOOL, "default");
    let pools = || vec![pool_in("default", &["test-zone-1"]), pool_in("other", &["test-zone-2"])];
    check(
        &input(pods("web", 2, of_pool()), pools()),
        &format!(
            "its anti-affinity leaves {ZONE_RULE}: `test-zone-1` (holds pods that it avoids), `test-zone-2` (its node \
             selector or affinity is against it): allow `test-zone-2` in the pod's node selector and affinity, or relax the \
             rule"
        ),
        &[input(pods("web", 2, apart("web", labels::ZONE)), pools())],
    );
    // Where another zone has such pods, too, no selection helps.
    let mut everywhere = input(pods("web", 2, pinned()), vec![pool_in("default", &ZONES[..2])]);
    running_in(&mut everywhere, "test-zone-2", "100m", &app("web", "1"));
    check(
        &everywhere,
        &format!(
            "its anti-affinity leaves {ZONE_RULE}: `test-zone-1`, `test-zone-2` (holds pods that it avoids): relax the rule"
        ),
        &[],
    );
    check(
        &input(pods("web", 4, apart("web", labels::ZONE)), vec![default_pool()]),
        &format!(
            "its anti-affinity leaves {ZONE_RULE}: `test-zone-1`, `test-zone-2`, `test-zone-3` (holds pods that it avoids): \
             let a NodePool offer another one, or relax the rule"
        ),
        &[],
    );
}

#[test]
fn zones_where_the_pods_volumes_are_not_are_named() {
    let world = |shape: PodShape| {
        let mut world = input(pods("web", 2, using(shape, "data")), vec![pool_in("default", &ZONES[..2])]);
        keep(&mut world, "data", Some("test-zone-1"));
        world
    };
    check(
        &world(apart("web", labels::ZONE)),
        &format!(
            "its anti-affinity leaves {ZONE_RULE}: `test-zone-1` (holds pods that it avoids), `test-zone-2` (its volumes are \
             elsewhere): give the pod volumes that `test-zone-2` can have, or relax the rule"
        ),
        &[world(app("web", "1"))],
    );
    let mut elsewhere =
        input(pods("web", 1, using(app("web", "1"), "data")), vec![pool_in("default", &ZONES[..1])]);
    keep(&mut elsewhere, "data", Some("test-zone-2"));
    let mut allowed = elsewhere.clone();
    allowed.pools = vec![default_pool()];
    check(
        &elsewhere,
        "NodePool `default`: incompatible requirements: the pod's volumes require `topology.kubernetes.io/zone In \
         [test-zone-2]`, nodes have `topology.kubernetes.io/zone In [test-zone-1]`: allow it in the NodePool's requirements, \
         or give the pod other volumes",
        &[allowed],
    );
}

#[test]
fn pods_that_follow_others_into_a_full_skew_need_no_room() {
    let world = |skew: u32| {
        let mut web = beside("web", labels::ZONE, "web");
        web.topology_spread = vec![spread(labels::ZONE, "web", skew)];
        let mut world = input(pods("web", 1, web), vec![default_pool()]);
        running_in(&mut world, "test-zone-1", "1", &app("web", "100m"));
        running_in(&mut world, "test-zone-1", "1", &app("web", "100m"));
        world
    };
    check(
        &world(2),
        &format!(
            "its affinity and its topology spread with `maxSkew` 2 leave {ZONE_RULE}: `test-zone-1` (2 pods more than the \
             least), `test-zone-2`, `test-zone-3` (none of the pods that it follows): raise `maxSkew`, let the pods that it \
             follows run elsewhere, too, or relax the rule"
        ),
        &[world(3)],
    );
    let shared = |skew: u32| {
        let mut web = app("web", "1");
        web.topology_spread = vec![spread(labels::ZONE, "web", skew)];
        let mut world = input(pods("web", 3, using(web, "data")), vec![default_pool()]);
        keep(&mut world, "data", None);
        world
    };
    let found = told(&shared(2));
    assert!(
        found.ends_with(
            "(the volume that it shares is elsewhere): raise `maxSkew`, or give the pods claims of their own"
        ),
        "{found}"
    );
    check(&shared(3), "", &[]);
}

#[test]
fn domains_are_too_few_where_the_pod_selects_them() {
    let world = |zone: Option<&str>| {
        let mut web = zone.map_or(app("web", "1"), |zone| selecting(app("web", "1"), labels::ZONE, zone));
        web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
        web.topology_spread[0].min_domains = Some(2);
        input(pods("web", 2, web), vec![pool_in("default", &ZONES[..2])])
    };
    check(
        &world(Some("test-zone-1")),
        &format!(
            "its topology spread with `maxSkew` 1 leaves {ZONE_RULE}: `test-zone-1` (full while there are fewer values than \
             `minDomains` 2), `test-zone-2` (its node selector or affinity is against it): allow `test-zone-2` in the pod's \
             node selector and affinity, or lower `minDomains`"
        ),
        &[world(None)],
    );
}

#[test]
fn a_domain_that_another_rule_rules_out_is_told_with_it() {
    let spot_in_one = || {
        let mut spot = pool_in("spot", &["test-zone-1"]);
        spot.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["spot"]));
        spot.pool.limits = list(&[("cpu", "2")]);
        let mut usual = default_pool();
        usual.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"]));
        vec![spot, usual]
    };
    let mut web = app("web", "3");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1), spread(labels::CAPACITY_TYPE, "web", 1)];
    let mut world = input(pods("web", 1, web), spot_in_one());
    running_in(&mut world, "test-zone-1", "100m", &app("web", "100m"));
    running_in(&mut world, "test-zone-1", "100m", &app("db", "100m"));
    running_in(&mut world, "test-zone-2", "100m", &app("db", "100m"));
    for (node, capacity) in world.nodes.iter_mut().zip(["on-demand", "spot", "on-demand"]) {
        node.labels.insert(labels::CAPACITY_TYPE.to_owned(), capacity.to_owned());
    }
    // A higher limit is no help: the only spot is where such a pod runs.
    let mut mended = world.clone();
    for pool in &mut mended.pools {
        pool.pool.template.requirements.remove(labels::ZONE);
        pool.pool.limits = list(&[]);
    }
    let mut of_both = world.clone();
    of_both.pools[0].pool.limits = list(&[]);
    for found in [world, of_both] {
        check(
            &found,
            "its topology spread with `maxSkew` 1 leaves no value of `karpenter.sh/capacity-type` for the pod: `on-demand` (1 \
             pod more than the least), `spot` (its rules about `topology.kubernetes.io/zone` leave no new node there): let a \
             NodePool offer `spot` with other values of `topology.kubernetes.io/zone`, or raise `maxSkew`",
            &[mended.clone()],
        );
    }
}

#[test]
fn a_node_without_the_pods_that_others_need_there_is_no_matter_of_room() {
    let mut cache = beside("cache", labels::HOSTNAME, "db");
    cache.topology_spread = vec![spread(labels::ZONE, "cache", 1)];
    let mut world = input(pods("cache", 2, cache), vec![pool_in("default", &ZONES[..2])]);
    running_in(&mut world, "test-zone-1", "4", &app("db", "1"));
    running_in(&mut world, "test-zone-2", "100m", &app("other", "100m"));
    let mut mended = world.clone();
    running_in(&mut mended, "test-zone-2", "4", &app("db", "1"));
    check(
        &world,
        &format!(
            "its topology spread with `maxSkew` 1 leaves {ZONE_RULE}: `test-zone-1` (1 pod more than the least), \
             `test-zone-2` (no node with room runs the pods that it needs on its node): let pods that it follows run in \
             `test-zone-2` on nodes with room, or raise `maxSkew`"
        ),
        &[mended],
    );
}

#[test]
fn pods_that_wait_for_each_other_are_named() {
    let of = |shapes: Vec<PodShape>| {
        let all = shapes.into_iter().zip(["x", "y", "z"]);
        let all = all.map(|(shape, name)| pod(name, &Arc::new(shape))).collect();
        input(all, vec![default_pool()])
    };
    let in_turn = |name: &str| {
        format!(
            "its affinity follows pods that wait for it in turn: `default/{name}`; none can be the first: let one of the \
             affinities select the labels of its own pods, too, or make it a preferred one"
        )
    };
    let both = |key: &str| of(vec![beside("x", key, "y"), beside("y", key, "x")]);
    check(&both(labels::ZONE), &in_turn("x"), &[of(vec![app("x", "1"), beside("y", labels::ZONE, "x")])]);
    check(&both(labels::HOSTNAME), &in_turn("x"), &[]);
    let mut first = beside("x", labels::ZONE, "y");
    first.labels.insert("tier".to_owned(), "front".to_owned());
    let mut second = beside("y", labels::ZONE, "x");
    second.labels.insert("tier".to_owned(), "front".to_owned());
    for shape in [&mut first, &mut second] {
        shape.required_pod_affinity[0].selector =
            Some(LabelSelector { requirements: vec![Requirement::one_of("tier", ["front"])] });
    }
    check(&of(vec![first, second]), "", &[]);
    // Three in a ring, and one that waits for them.
    let ring = of(vec![
        beside("x", labels::ZONE, "y"),
        beside("y", labels::ZONE, "z"),
        beside("z", labels::ZONE, "x"),
    ]);
    check(&ring, &in_turn("x"), &[]);
    let after = of(vec![
        beside("x", labels::ZONE, "y"),
        beside("y", labels::ZONE, "x"),
        beside("z", labels::ZONE, "x"),
    ]);
    check(
        &after,
        "its affinity follows pods that have no place either: `default/x`: see why they have none, or relax the rule",
        &[],
    );
}

#[test]
fn pods_that_others_wait_for_are_named_whatever_keeps_them() {
    let with = |x: PodShape| {
        let all = vec![pod("x", &Arc::new(x)), pod("y", &Arc::new(beside("y", labels::ZONE, "x")))];
        input(all, vec![default_pool()])
    };
    let expected = "its affinity follows pods that have no place either: `default/x`: see why they have none, or relax the rule";
    check(&with(app("x", "100")), expected, &[with(app("x", "1"))]);
    let gated = PodShape { scheduling_gates: vec!["example.com/quota".to_owned()], ..app("x", "1") };
    check(&with(gated), expected, &[]);
}

#[test]
fn nodes_without_the_label_of_a_rule_are_told() {
    let mut world = input(pods("cache", 1, beside("cache", labels::ZONE, "db")), vec![default_pool()]);
    running_in(&mut world, "test-zone-1", "1", &app("db", "100m"));
    let labelled = world.clone();
    world.nodes[0].labels.remove(labels::ZONE);
    check(
        &world,
        &format!(
            "its affinity leaves {ZONE_RULE}: the Nodes of the pods that it follows lack the label: add it to them, or relax \
             the rule"
        ),
        &[labelled],
    );
}

#[test]
fn a_zone_that_is_exhausted_or_over_a_limit_is_told_so() {
    let follower = || pods("cache", 1, beside("cache", labels::ZONE, "db"));
    let mut types = six();
    let exhausted = Unavailability::Exhausted { until: at(180), last_resort_at: at(180) };
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        if offering.zone.as_str() == "test-zone-1" {
            offering.availability = Availability::Unavailable(exhausted.clone());
        }
    }
    let mut world = input(follower(), vec![pool("default", types)]);
    running_in(&mut world, "test-zone-1", "100m", &app("db", "100m"));
    let mut later = world.clone();
    later.pools = vec![default_pool()];
    check(
        &world,
        &format!(
            "its affinity leaves {ZONE_RULE}: `test-zone-2`, `test-zone-3` (none of the pods that it follows), `test-zone-1` \
             (unavailable for now): wait for `test-zone-1`, or relax the rule. NodePool `default`: 6 instance types fit, none \
             is available now in `test-zone-1`; next try at `2026-01-01T00:03:00Z`: allow other instance types, zones or \
             capacity types"
        ),
        &[later],
    );
    assert_eq!(plan(&world).0.wake_at, Some(at(180)));
}

#[test]
fn a_label_of_no_pool_and_a_node_by_name_are_told_with_the_field_that_helps() {
    let world = |shape: PodShape| input(pods("web", 1, shape), vec![default_pool()]);
    let mut labelled = world(selecting(app("web", "1"), "rack", "r1"));
    labelled.pools[0].pool.template.labels.insert("rack".to_owned(), "r1".to_owned());
    check(
        &world(selecting(app("web", "1"), "rack", "r1")),
        "NodePool `default`: incompatible requirements: label `rack` does not have known values: give the NodePool's nodes the \
         label by `spec.template.metadata.labels`, or remove it from the pod",
        &[labelled],
    );
    check(
        &world(selecting(app("web", "1"), labels::HOSTNAME, "ip-1")),
        "NodePool `default`: incompatible requirements: the pod requires `kubernetes.io/hostname In [ip-1]`, nodes have \
         `kubernetes.io/hostname NotIn [ip-1]`: a new node has a name of its own: let the pod select nodes by other labels, or \
         make room on those that it names",
        &[],
    );
}
