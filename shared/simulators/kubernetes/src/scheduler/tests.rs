//! kube-scheduler's behaviour, each in a small world: a test is named after the behaviour.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_snapshot::object::{Kind, text};

use super::super::{Placing, SimulatedCluster, SimulationConfig, store};

mod volumes;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// A cluster without controllers' surprises: Nodes and pods are made by hand.
struct World(SimulatedCluster);

impl World {
    fn new() -> Self {
        Self(SimulatedCluster::new(SimulationConfig::default(), Timestamp::UNIX_EPOCH))
    }

    /// A Ready Node of 4 CPU, 8Gi and 10 pods in a zone.
    fn node(&self, name: &str, zone: &str, patch: Value) -> &Self {
        let mut node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        store::merge_patch(&mut node, &patch);
        self.apply(node)
    }

    /// A pod of 1 CPU and 2Gi with the label `app`.
    fn pod(&self, name: &str, app: &str, spec: Value) -> &Self {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}});
        store::merge_patch(&mut pod, &json!({"spec": spec}));
        self.apply(pod)
    }

    /// A pod that runs on a node, or only looks like one that waits: nobody places it.
    fn running(&self, name: &str, app: &str, node: &str, spec: Value) -> &Self {
        let mut with = json!({"nodeName": node});
        store::merge_patch(&mut with, &spec);
        self.pod(name, app, with)
    }

    fn apply(&self, object: Value) -> &Self {
        self.0.apply(object).unwrap();
        self
    }

    fn tick(&self, second: i64) -> &Self {
        self.0.tick(Timestamp::from_second(second).unwrap());
        self
    }

    fn node_of(&self, pod: &str) -> String {
        let pod = self.0.object(Kind::Pod, "default", pod).unwrap();
        text(&pod, "/spec/nodeName").unwrap_or("-").to_owned()
    }

    fn nominated(&self, pod: &str) -> Option<String> {
        let pod = self.0.object(Kind::Pod, "default", pod).unwrap();
        text(&pod, "/status/nominatedNodeName").map(str::to_owned)
    }

    fn nominate(&self, pod: &str, node: &str) -> &Self {
        let pod = self.0.object(Kind::Pod, "default", pod).unwrap();
        let mut pod = Value::clone(&pod);
        pod["status"]["nominatedNodeName"] = json!(node);
        self.apply(pod)
    }

    /// What the scheduler thinks of the nodes for one pod: `a=` and a score, or `a: ` and a reason.
    fn rates(&self, spec: Value) -> Vec<String> {
        let mut other = json!({"schedulerName": "nobody"});
        store::merge_patch(&mut other, &spec);
        self.0.delete(Kind::Pod, "default", "rated");
        self.pod("rated", "web", other).tick(0);
        let show = |(node, rating): (String, Result<i64, String>)| match rating {
            Ok(score) => format!("{node}={score}"),
            Err(reason) => format!("{node}: {reason}"),
        };
        self.0.ratings("default", "rated").into_iter().map(show).collect()
    }

    fn feasible(&self, spec: Value) -> String {
        let rates = self.rates(spec);
        let names = rates.iter().filter_map(|one| one.split_once('=').map(|(name, _)| name));
        names.collect::<Vec<_>>().join(" ")
    }
}

fn two_zones() -> World {
    let world = World::new();
    world.node("a", "z1", json!({})).node("b", "z2", json!({}));
    world
}

fn selecting(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

fn spread(key: &str, more: Value) -> Value {
    let mut rule = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selecting("web")});
    store::merge_patch(&mut rule, &more);
    rule
}

fn required(kind: &str, terms: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn a_node_without_all_labels_of_a_pods_spreads_counts_for_none_of_them() {
    let world = two_zones();
    world.node("c", "z3", json!({"metadata": {"labels": {"rack": "r1"}}}));
    world.running("one", "web", "c", json!({}));
    // Only `c` has a rack: it is the one node that counts, so its zone holds the most and the least pods.
    let both = json!([spread(ZONE, json!({})), spread("rack", json!({}))]);
    assert_eq!(world.feasible(json!({"topologySpreadConstraints": both})), "c");
}

#[test]
fn an_empty_selector_of_a_spread_counts_no_pod_that_runs() {
    let world = two_zones();
    world.running("one", "web", "a", json!({})).running("two", "web", "a", json!({}));
    let rule = spread(ZONE, json!({"labelSelector": {"matchLabels": null}}));
    assert_eq!(world.feasible(json!({"topologySpreadConstraints": [rule]})), "a b");
    assert_eq!(world.feasible(json!({"topologySpreadConstraints": [spread(ZONE, json!({}))]})), "b");
}

#[test]
fn spreads_count_nodes_and_pods_by_their_policies() {
    let check = |more: Value, spec: Value, expected: &str| {
        let world = two_zones();
        let dedicated = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
        world.node(
            "c",
            "z3",
            json!({"spec": {"taints": dedicated}, "metadata": {"labels": {"arch": "arm"}}}),
        );
        world.running("one", "web", "a", json!({})).running("two", "web", "b", json!({}));
        let mut all = spec;
        store::merge_patch(&mut all, &json!({"topologySpreadConstraints": [spread(ZONE, more)]}));
        assert_eq!(world.feasible(all), expected);
    };
    // Of `c` nobody knows that the pod can't go there.
    check(json!({}), json!({}), "");
    check(json!({"nodeTaintsPolicy": "Honor"}), json!({}), "a b");
    check(json!({"maxSkew": 2}), json!({}), "a b");
    check(json!({"nodeTaintsPolicy": "Honor", "minDomains": 3}), json!({}), "");
    check(json!({"nodeTaintsPolicy": "Honor", "minDomains": 2}), json!({}), "a b");
    check(json!({}), json!({"nodeSelector": {ZONE: "z1"}}), "a");
    check(json!({"nodeAffinityPolicy": "Ignore"}), json!({"nodeSelector": {ZONE: "z1"}}), "");
    // The pod has no such label: the key says nothing.
    check(json!({"matchLabelKeys": ["revision"], "maxSkew": 2}), json!({}), "a b");
}

#[test]
fn a_pod_counts_for_affinity_only_if_all_terms_select_it() {
    let world = two_zones();
    world.running("one", "web", "a", json!({})).running("two", "db", "b", json!({}));
    let term = |key: &str, app: &str| json!({"topologyKey": key, "labelSelector": selecting(app)});
    let check = |terms: Value, expected: &str| {
        assert_eq!(world.feasible(required("podAffinity", terms)), expected);
    };
    check(json!([term(ZONE, "db")]), "b");
    check(json!([term(ZONE, "web"), term(HOST, "web")]), "a");
    // No pod is both, and the pod itself isn't either: it isn't the first of its kind.
    check(json!([term(ZONE, "web"), term(ZONE, "db")]), "");
    // A node without the label takes not even the first.
    let first = json!([{"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "new", "operator": "DoesNotExist"}]}}]);
    check(first, "");
}

#[test]
fn label_keys_of_affinity_ask_for_the_pods_own_values_or_for_others() {
    let world = two_zones();
    world.running("one", "web", "a", json!({})).running("two", "db", "b", json!({}));
    let check = |keys: Value, expected: &str| {
        let mut term = json!({"topologyKey": HOST, "labelSelector": {}});
        store::merge_patch(&mut term, &keys);
        assert_eq!(world.feasible(required("podAntiAffinity", json!([term]))), expected);
    };
    check(json!({"matchLabelKeys": ["app"]}), "b");
    check(json!({"mismatchLabelKeys": ["app"]}), "a");
    check(json!({"mismatchLabelKeys": ["absent"]}), "");
}

#[test]
fn namespaces_of_affinity_are_named_or_selected() {
    let world = two_zones();
    world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "x"}}}));
    world.apply(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"nodeName": "a", "containers": []}}));
    let check = |more: Value, expected: &str| {
        let mut term = json!({"topologyKey": HOST, "labelSelector": selecting("web")});
        store::merge_patch(&mut term, &more);
        assert_eq!(world.feasible(required("podAntiAffinity", json!([term]))), expected);
    };
    check(json!({}), "a b");
    check(json!({"namespaces": ["shop"]}), "b");
    check(json!({"namespaces": ["other"]}), "a b");
    check(json!({"namespaceSelector": {}}), "b");
    check(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), "b");
    check(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": ["other"]}), "a b");
}

#[test]
fn the_ports_of_sidecars_are_taken() {
    let world = two_zones();
    let port = json!([{"containerPort": 80, "hostPort": 80}]);
    let container = |policy: Value| json!([{"name": "b", "ports": port, "restartPolicy": policy}]);
    world.running("one", "web", "a", json!({"initContainers": container(json!("Always"))}));
    world.running("two", "web", "b", json!({"initContainers": container(Value::Null)}));
    assert_eq!(world.feasible(json!({"containers": [{"name": "a", "ports": port}]})), "b");
    let udp = json!([{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]);
    assert_eq!(world.feasible(json!({"containers": [{"name": "a", "ports": udp}]})), "a b");
}

#[test]
fn all_lacking_resources_are_told() {
    let world = World::new();
    world.node("a", "z1", json!({"status": {"allocatable": {"pods": "0"}}}));
    let large =
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "5", "memory": "9Gi"}}}]});
    assert_eq!(world.rates(large), ["a: Too many pods, Insufficient cpu, Insufficient memory"]);
}

/// A pod without neighbours: resources 1, balance 1, taints 3 times 100 where nothing is unwanted.
#[test]
fn scores_are_sums_of_the_plugins_with_their_weights() {
    let world = two_zones();
    world.running("one", "db", "a", json!({}));
    // a: 2 of 4 CPU and 4 of 8Gi are left, b: 3 and 6.
    assert_eq!(world.rates(json!({})), ["a=450", "b=475"]);
    let lopsided =
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "3", "memory": "0"}}}]});
    // a: (0 + 75) / 2 and 1 - (1 - 0.25) / 2; b: (25 + 100) / 2 and 1 - 0.75 / 2.
    assert_eq!(world.rates(lopsided), ["a=399", "b=424"]);
    // Nothing asked counts as 100m and 200Mi, and balance says nothing.
    assert_eq!(world.rates(json!({"containers": [{"name": "a", "resources": null}]})), ["a=372", "b=397"]);
}

#[test]
fn unwanted_taints_weigh_three_times() {
    let world = two_zones();
    let taint = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
    world.node("c", "z1", json!({"spec": {"taints": [taint("x")]}}));
    world.node("d", "z1", json!({"spec": {"taints": [taint("x"), taint("y")]}}));
    assert_eq!(world.rates(json!({})), ["a=475", "b=475", "c=325", "d=175"]);
    let tolerations = json!([{"key": "y", "operator": "Exists"}]);
    assert_eq!(world.rates(json!({"tolerations": tolerations})), ["a=475", "b=475", "c=175", "d=175"]);
}

#[test]
fn preferred_node_affinity_weighs_twice() {
    let world = two_zones();
    let zone = |zone: &str| json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let preferred =
        json!([{"weight": 50, "preference": zone("z1")}, {"weight": 25, "preference": zone("z2")}]);
    let spec =
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    assert_eq!(world.rates(spec), ["a=675", "b=575"]);
}

#[test]
fn preferred_neighbours_weigh_twice_and_those_that_run_have_a_say() {
    let world = two_zones();
    world.node("c", "z3", json!({}));
    let near = json!({"topologyKey": ZONE, "labelSelector": selecting("web")});
    let wish = json!([{"weight": 10, "podAffinityTerm": near}]);
    let preferred =
        |kind: &str| json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wish}}});
    let small =
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "0", "memory": "0"}}}]});
    let with = |more: Value| {
        let mut all = small.clone();
        store::merge_patch(&mut all, &more);
        all
    };
    world.running("one", "web", "a", small.clone());
    // A required term of a pod that runs counts 1, a preferred one its weight.
    let required = required("podAffinity", json!([near]));
    world.running("two", "db", "b", with(required));
    world.running("three", "db", "c", with(preferred("podAntiAffinity")));
    let without = world.rates(small.clone());
    // Sums: a 0, b 1, c -10.
    assert_eq!(without, ["a=580", "b=600", "c=400"]);
    // Sums: a 10, b 1, c -10.
    assert_eq!(world.rates(with(preferred("podAffinity"))), ["a=600", "b=510", "c=400"]);
}

#[test]
fn pods_of_a_replica_set_are_spread_by_default_and_others_arent() {
    let world = World::new();
    world.node("a", "z1", json!({})).node("b", "z1", json!({})).node("c", "z2", json!({}));
    for name in ["one", "two"] {
        world.running(name, "web", "a", json!({"containers": [{"name": "a"}]}));
    }
    assert_eq!(world.rates(json!({"containers": []})), ["a=395", "b=400", "c=400"]);
    world.0.delete(Kind::Pod, "default", "rated");
    world.apply(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "set"},
        "spec": {"replicas": 1, "selector": selecting("web"), "template": {}}}));
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true});
    world.apply(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "owned", "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"schedulerName": "nobody", "containers": []}}));
    world.tick(0);
    let ratings = world.0.ratings("default", "owned");
    let scores: BTreeMap<&str, i64> =
        ratings.iter().map(|(node, rating)| (node.as_str(), *rating.as_ref().unwrap())).collect();
    // By host name 2, 0 and 0 pods (weight ln 5, `maxSkew` 3), by zone 2, 2 and 0 (ln 4, 5): 12, 9 and 6 together.
    // Of 100 they get 100 * (12 + 6 - sum) / 12, twice.
    assert_eq!(scores, BTreeMap::from([("a", 395 + 100), ("b", 400 + 150), ("c", 400 + 200)]));
}

#[test]
fn pods_that_a_service_selects_are_spread_by_default() {
    let world = World::new();
    world.node("a", "z1", json!({})).node("b", "z1", json!({})).node("c", "z2", json!({}));
    for name in ["one", "two"] {
        world.running(name, "web", "a", json!({"containers": [{"name": "a"}]}));
    }
    let service = |name: &str, namespace: &str, spec: Value| {
        world.apply(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec}));
        world.rates(json!({"containers": []}))
    };
    let unspread = ["a=395", "b=400", "c=400"];
    assert_eq!(service("other", "default", json!({"selector": {"app": "db"}})), unspread);
    assert_eq!(service("elsewhere", "shop", json!({"selector": {"app": "web"}})), unspread);
    assert_eq!(service("none", "default", json!({})), unspread);
    assert_eq!(service("web", "default", json!({"selector": {"app": "web"}})), ["a=495", "b=550", "c=600"]);
}

#[test]
fn nominated_pods_keep_their_room_from_pods_of_no_higher_priority() {
    let check = |priority: i64, expected: &str| {
        let world = World::new();
        world.node("a", "z1", json!({"status": {"allocatable": {"cpu": "1"}}}));
        // Its node comes later, or it waits for a gate: it is nominated and doesn't run.
        world.running("first", "web", "a", json!({})).tick(0);
        world.pod("kept", "web", json!({"priority": 5})).nominate("kept", "a").tick(1);
        assert_eq!((world.node_of("kept"), world.nominated("kept")), ("-".to_owned(), None), "refused");
        world.nominate("kept", "a").tick(2);
        world.pod("other", "web", json!({"priority": priority, "nodeSelector": {ZONE: "z1"}})).tick(3);
        world.0.delete(Kind::Pod, "default", "first");
        world.tick(60);
        assert_eq!(format!("{} {}", world.node_of("kept"), world.node_of("other")), expected);
    };
    check(0, "a -");
    check(6, "- a");
}

#[test]
fn a_pod_goes_to_its_nominated_node_though_another_is_better() {
    let world = two_zones();
    world.running("one", "db", "a", json!({}));
    world.pod("web", "web", json!({})).nominate("web", "a").tick(0);
    assert_eq!((world.node_of("web"), world.nominated("web")), ("a".to_owned(), None));
}

#[test]
fn nominated_pods_count_as_neighbours_on_their_node_only() {
    let world = two_zones();
    let gate = json!({"schedulerName": "default-scheduler", "nodeSelector": {"no": "such"}});
    world.pod("kept", "web", gate).tick(0);
    world.nominate("kept", "a").tick(0);
    let apart = |key: &str| {
        required("podAntiAffinity", json!([{"topologyKey": key, "labelSelector": selecting("web")}]))
    };
    assert_eq!(world.feasible(apart(HOST)), "b");
    // Another node of the zone doesn't see it.
    world.node("c", "z1", json!({}));
    assert_eq!(world.feasible(apart(ZONE)), "b c");
}

#[test]
fn the_queue_is_ordered_by_priority_then_by_the_time_of_entering() {
    let world = World::new();
    let place = |n: i64| json!({"priority": n});
    world.pod("old", "web", place(0)).tick(0);
    world.pod("new", "web", place(0)).pod("urgent", "web", place(9)).tick(100);
    // `old` fails again and enters behind `new`.
    world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "any"}}));
    world.tick(200);
    world.node("a", "z1", json!({"status": {"allocatable": {"cpu": "2"}}})).tick(300);
    let placed = ["old", "new", "urgent"].map(|pod| world.node_of(pod));
    assert_eq!(placed, ["a", "-", "a"]);
}

#[test]
fn a_nomination_outlives_changes_that_dont_concern_the_pod() {
    let world = World::new();
    world.node("small", "z1", json!({"status": {"allocatable": {"cpu": "500m"}}}));
    world.pod("web", "web", json!({})).tick(0);
    world.nominate("web", "later").tick(1);
    // A node that is too small, and a pod elsewhere.
    world.node("other", "z1", json!({"status": {"allocatable": {"cpu": "100m"}}})).tick(20);
    world.running("one", "db", "small", json!({"containers": []})).tick(40);
    assert_eq!(world.nominated("web"), Some("later".to_owned()));
    // A node that it would fit, but for the taint: the attempt fails.
    let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    world.node("later", "z1", json!({"spec": {"taints": taints}})).tick(60);
    assert_eq!((world.nominated("web"), world.node_of("web")), (None, "-".to_owned()));
}

#[test]
fn equal_nodes_are_drawn_by_the_seed() {
    let of = |seed: u64| {
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let world = World(SimulatedCluster::new(config, Timestamp::UNIX_EPOCH));
        world.node("a", "z1", json!({})).node("b", "z1", json!({})).pod("web", "web", json!({})).tick(0);
        world.node_of("web")
    };
    assert_eq!(of(3), of(3));
    let drawn: std::collections::BTreeSet<String> = (0..20).map(of).collect();
    assert_eq!(drawn.len(), 2);
}

#[test]
fn pods_that_the_caller_places_wait_for_it_and_are_rated() {
    let config = SimulationConfig { placing: Placing::Caller, ..SimulationConfig::default() };
    let world = World(SimulatedCluster::new(config, Timestamp::UNIX_EPOCH));
    world.node("a", "z1", json!({"status": {"allocatable": {"cpu": "1500m"}}}));
    world.pod("one", "web", json!({})).pod("two", "web", json!({})).tick(0);
    assert_eq!(world.node_of("one"), "-");
    assert!(world.0.ratings("default", "two")["a"].is_ok());
    // A nomination keeps room, as if the scheduler placed pods.
    world.nominate("one", "a").tick(1);
    assert_eq!(world.0.ratings("default", "two")["a"], Err("Insufficient cpu".to_owned()));
    world.pod("one", "web", json!({"nodeName": "a"})).tick(2);
    assert_eq!((world.node_of("one"), world.node_of("two")), ("a".to_owned(), "-".to_owned()));
    assert_eq!(world.0.ratings("default", "two")["a"], Err("Insufficient cpu".to_owned()));
}

#[test]
fn terms_of_a_nominated_pod_keep_out_only_pods_that_mind_terms() {
    let world = two_zones();
    let apart = |from: &str| {
        required("podAntiAffinity", json!([{"topologyKey": HOST, "labelSelector": selecting(from)}]))
    };
    let mut waits = apart("web");
    waits["nodeSelector"] = json!({"no": "such"});
    world.pod("kept", "db", waits).tick(0);
    world.nominate("kept", "a").tick(0);
    // kube-scheduler skips the plugin for a pod without terms that no running pod keeps away.
    assert_eq!(world.feasible(json!({})), "a b");
    assert_eq!(world.feasible(apart("nobody")), "b");
    world.node("c", "z3", json!({})).running("other", "db", "c", apart("web"));
    assert_eq!(world.feasible(json!({})), "b");
}
