//! The simulated cluster as its users see it.

use super::*;
use serde_json::json;
use tenon_memory_table::block_on;
use tenon_snapshot::kube::{Eviction, Kube, Precondition};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn cluster() -> SimulatedCluster {
    SimulatedCluster::new(SimulationConfig::default(), at(0))
}

fn node(name: &str) -> NodeSpec {
    let resources = BTreeMap::from([
        ("cpu".to_owned(), "4".to_owned()),
        ("memory".to_owned(), "8Gi".to_owned()),
        ("pods".to_owned(), "10".to_owned()),
    ]);
    NodeSpec {
        name: name.to_owned(),
        provider_id: format!("aws:///us-east-1a/i-{name}"),
        labels: BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), format!("zone-{name}"))]),
        taints: vec![],
        capacity: resources.clone(),
        allocatable: resources,
        joins_after: SignedDuration::from_secs(10),
        ready_after: SignedDuration::from_secs(5),
    }
}

fn deployment(name: &str, replicas: usize, spec: Value) -> Value {
    let mut pod =
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]});
    store::merge_patch(&mut pod, &spec);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}})
}

fn budget(name: &str, app: &str, spec: Value) -> Value {
    let mut pdb = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": app}}}});
    store::merge_patch(&mut pdb, &json!({"spec": spec}));
    pdb
}

/// Lets the cluster run until it rests, or until `until`.
fn run(cluster: &SimulatedCluster, until: i64) {
    while let Some(due) = cluster.next_due().filter(|due| *due <= at(until)) {
        cluster.tick(due);
    }
    cluster.tick(at(until));
}

fn message(cluster: &SimulatedCluster) -> String {
    let pods = cluster.objects(Kind::Pod);
    let condition = |pod: &Object| text(pod, "/status/conditions/0/message").map(str::to_owned);
    pods.iter().find_map(condition).unwrap_or_default()
}

#[test]
fn pods_wait_for_a_node_and_run_on_it() {
    let cluster = cluster();
    cluster.apply(deployment("web", 3, json!({}))).unwrap();
    run(&cluster, 1);
    assert_eq!(cluster.pod_counts(), PodCounts { pending: 3, ..PodCounts::default() });
    assert_eq!(message(&cluster), "0/0 nodes are available.");
    cluster.add_node(node("a"));
    run(&cluster, 12);
    assert_eq!(message(&cluster), "0/1 nodes are available: 1 node(s) had untolerated taint(s).");
    run(&cluster, 16);
    assert_eq!(cluster.pod_counts(), PodCounts { starting: 3, ..PodCounts::default() });
    run(&cluster, 30);
    assert_eq!(cluster.pod_counts(), PodCounts { running: 3, ..PodCounts::default() });
    assert_eq!(cluster.next_due(), None);
}

#[test]
fn the_scheduler_keeps_every_filter() {
    let check = |spec: Value, expected: &str| {
        let cluster = cluster();
        let mut spec_a = node("a");
        spec_a.taints.push(json!({"key": "team", "value": "x", "effect": "NoSchedule"}));
        cluster.add_node(spec_a);
        cluster.add_node(node("b"));
        run(&cluster, 20);
        cluster.apply(deployment("web", 2, spec)).unwrap();
        run(&cluster, 30);
        let placed: Vec<String> =
            cluster.pods_by_node().iter().map(|(node, pods)| format!("{node}={}", pods.len())).collect();
        let placed = placed.join(" ");
        assert!(expected.split(" or ").any(|one| one == placed), "{placed}, not {expected}");
    };
    let tolerant = json!([{"operator": "Exists"}]);
    check(json!({}), "a=0 b=2");
    check(json!({"tolerations": tolerant}), "a=1 b=1");
    check(
        json!({"tolerations": tolerant, "nodeSelector": {"topology.kubernetes.io/zone": "zone-a"}}),
        "a=2 b=0",
    );
    let ports = json!([{"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
    check(json!({"containers": ports}), "a=0 b=1");
    let large = json!([{"name": "a", "resources": {"requests": {"cpu": "3"}}}]);
    check(json!({"containers": large}), "a=0 b=1");
    let selector = json!({"matchLabels": {"app": "web"}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    // The node whose taints the pods don't tolerate counts: taints are ignored by default.
    check(json!({"topologySpreadConstraints": spread}), "a=0 b=1");
    let term = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]);
    let required = |kind: &str| json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    check(json!({"tolerations": tolerant, "affinity": required("podAntiAffinity")}), "a=1 b=1");
    check(json!({"affinity": required("podAntiAffinity")}), "a=0 b=1");
    let either = "a=2 b=0 or a=0 b=2";
    check(json!({"tolerations": tolerant, "affinity": required("podAffinity")}), either);
    check(json!({"resourceClaims": [{"name": "gpu"}]}), "a=0 b=0");
    check(json!({"schedulingGates": [{"name": "wait"}]}), "a=0 b=0");
}

#[test]
fn daemons_run_on_every_node_that_they_tolerate() {
    let cluster = cluster();
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "a"}]}});
    cluster
        .apply(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "kube-system"},
            "spec": {"template": template}}))
        .unwrap();
    cluster.add_node(node("a"));
    let mut tainted = node("b");
    tainted.taints.push(json!({"key": "team", "effect": "NoSchedule"}));
    cluster.add_node(tainted);
    run(&cluster, 60);
    let nodes: Vec<String> = cluster
        .objects(Kind::Pod)
        .iter()
        .filter_map(|pod| text(pod, "/spec/nodeName").map(str::to_owned))
        .collect();
    assert_eq!(nodes, ["a"]);
}

#[test]
fn a_daemons_pod_that_waits_for_a_node_goes_with_it() {
    let cluster = cluster();
    let container = json!([{"name": "a", "resources": {"requests": {"cpu": "64"}}}]);
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": container}});
    cluster
        .apply(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "kube-system"},
            "spec": {"template": template}}))
        .unwrap();
    cluster.add_node(node("a"));
    run(&cluster, 60);
    assert_eq!(cluster.objects(Kind::Pod).len(), 1, "it waits: the Node is too small");
    cluster.remove_instance("aws:///us-east-1a/i-a");
    run(&cluster, 200);
    assert_eq!(cluster.objects(Kind::Node).len(), 0);
    assert_eq!(cluster.objects(Kind::Pod).len(), 0);
}

#[test]
fn evictions_keep_budgets_and_are_logged() {
    let cluster = cluster();
    cluster.add_node(node("a"));
    cluster.apply(deployment("web", 2, json!({}))).unwrap();
    cluster.apply(budget("web", "web", json!({"maxUnavailable": 1}))).unwrap();
    run(&cluster, 60);
    let pods: Vec<(ObjectKey, String)> = cluster
        .objects(Kind::Pod)
        .iter()
        .map(|pod| (ObjectKey::of(pod).unwrap(), object::uid(pod).to_owned()))
        .collect();
    let evict = |n: usize, uid: &str| block_on(cluster.evict(&pods[n].0, uid)).unwrap();
    assert_eq!(evict(0, "another"), Eviction::Conflict);
    assert_eq!(evict(0, &pods[0].1), Eviction::Evicted);
    let Eviction::TooManyRequests { message } = evict(1, &pods[1].1) else { panic!("the budget is used up") };
    assert!(
        message.ends_with("The disruption budget web needs 1 healthy pods and has 1 currently"),
        "{message}"
    );
    // Its successor runs: the next may go.
    run(&cluster, 65);
    cluster.look_begins(at(65));
    run(&cluster, 70);
    assert_eq!(evict(0, &pods[0].1), Eviction::NotFound);
    assert_eq!(evict(1, &pods[1].1), Eviction::Evicted);
    let times: Vec<_> = cluster.evictions().iter().map(|e| (e.looked_at, e.at)).collect();
    assert_eq!(times, [(at(60), at(60)), (at(65), at(70))]);
    let log: Vec<(String, u32)> = cluster.evictions().into_iter().flat_map(|e| e.budgets).collect();
    assert_eq!(log, [("web".to_owned(), 1), ("web".to_owned(), 1)]);
    cluster.apply(budget("other", "web", json!({"minAvailable": "50%"}))).unwrap();
    run(&cluster, 90);
    let pod = &cluster.objects(Kind::Pod)[0];
    let outcome = block_on(cluster.evict(&ObjectKey::of(pod).unwrap(), object::uid(pod))).unwrap();
    assert!(matches!(outcome, Eviction::TooManyRequests { .. }), "two budgets block");
}

#[test]
fn a_lost_instance_loses_its_node_and_its_pods_come_back_elsewhere() {
    let cluster = cluster();
    cluster.add_node(node("a"));
    cluster.apply(deployment("web", 2, json!({}))).unwrap();
    run(&cluster, 60);
    cluster.remove_instance("aws:///us-east-1a/i-a");
    cluster.add_node(node("b"));
    run(&cluster, 99);
    assert_eq!(cluster.pods_by_node()["a"].len(), 2, "no controller has noticed yet");
    run(&cluster, 100);
    let lost = cluster.object(Kind::Node, "", "a").unwrap();
    assert_eq!(object::condition(&lost, "Ready"), Some("Unknown"));
    run(&cluster, 200);
    assert_eq!(cluster.object(Kind::Node, "", "a"), None);
    assert_eq!(cluster.pods_by_node()["b"].len(), 2);
    assert_eq!(cluster.pod_counts(), PodCounts { running: 2, ..PodCounts::default() });
}

#[test]
fn a_finalizer_holds_a_node_and_its_removal_lets_it_go() {
    let cluster = cluster();
    cluster.add_node(node("a"));
    run(&cluster, 20);
    let key = ObjectKey::node("a");
    let patch = |patch: Value| block_on(cluster.patch(&key, &patch, &Precondition::None)).unwrap();
    let before = patch(json!({"metadata": {"finalizers": ["karpenter.sh/termination"]}}));
    assert_eq!(cluster.delete(Kind::Node, "", "a"), Deletion::Accepted);
    let deleted = object::deleted_at(&cluster.object(Kind::Node, "", "a").unwrap());
    assert_eq!(deleted, Some(at(20)));
    run(&cluster, 30);
    cluster.delete(Kind::Node, "", "a");
    assert_eq!(object::deleted_at(&cluster.object(Kind::Node, "", "a").unwrap()), deleted);
    let version =
        Precondition::ResourceVersion(text(&before, "/metadata/resourceVersion").unwrap().to_owned());
    let stale = block_on(cluster.patch(&key, &json!({"metadata": {"finalizers": null}}), &version));
    assert!(matches!(stale, Err(KubeError::Conflict { .. })));
    patch(json!({"metadata": {"finalizers": null}}));
    assert_eq!(cluster.object(Kind::Node, "", "a"), None);
}

#[test]
fn a_manifest_takes_back_its_own_labels_and_annotations_alone() {
    let cluster = cluster();
    let apply = |labels: Value, annotations: Value| {
        let metadata = json!({"name": "a", "labels": labels, "annotations": annotations});
        cluster
            .apply(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": {}}))
            .unwrap();
    };
    let shown = || {
        let pool = cluster.object(Kind::NodePool, "", "a").unwrap();
        (pool["metadata"]["labels"].clone(), pool["metadata"]["annotations"].clone())
    };
    apply(json!({"team": "web", "tier": "1"}), json!({"pause": "true"}));
    let key = ObjectKey::new(Kind::NodePool, "", "a");
    let hash = json!({"metadata": {"annotations": {"hash": "7"}}});
    block_on(cluster.patch(&key, &hash, &Precondition::None)).unwrap();
    apply(json!({"team": "data"}), json!({}));
    assert_eq!(shown(), (json!({"team": "data"}), json!({"hash": "7"})));
    // Once another has it, the manifest doesn't take it back.
    block_on(cluster.patch(
        &key,
        &json!({"metadata": {"annotations": {"pause": "true"}}}),
        &Precondition::None,
    ))
    .unwrap();
    apply(json!({"team": "data"}), json!({}));
    assert_eq!(shown().1, json!({"hash": "7", "pause": "true"}));
    // A new object of the name begins anew.
    cluster.delete(Kind::NodePool, "", "a");
    apply(json!({}), json!({}));
    assert_eq!(cluster.object(Kind::NodePool, "", "a").unwrap().pointer("/metadata/labels/team"), None);
}

/// Tenon takes a spec with the generation that it knows for unchanged.
#[test]
fn a_changed_spec_raises_the_generation_and_nothing_else_does() {
    let cluster = cluster();
    let class = |role: &str, team: &str| {
        json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "a", "labels": {"team": team}}, "spec": {"role": role}})
    };
    let generation = || {
        let class = cluster.object(Kind::Ec2NodeClass, "", "a").unwrap();
        class.pointer("/metadata/generation").and_then(Value::as_u64)
    };
    let apply = |role: &str, team: &str| {
        cluster.apply(class(role, team)).unwrap();
        generation()
    };
    assert_eq!(apply("nodes", "web"), Some(1));
    assert_eq!(apply("nodes", "data"), Some(1));
    assert_eq!(apply("others", "data"), Some(2));
    let key = ObjectKey::new(Kind::Ec2NodeClass, "", "a");
    let patch = |patch: Value| {
        block_on(cluster.patch(&key, &patch, &Precondition::None)).unwrap();
        generation()
    };
    assert_eq!(patch(json!({"metadata": {"annotations": {"team": "web"}, "generation": 7}})), Some(2));
    assert_eq!(patch(json!({"spec": {"role": "nodes"}})), Some(3));
    let mut told = class("ignored", "ignored");
    told["status"] = json!({"conditions": []});
    block_on(cluster.apply_status(&told)).unwrap();
    assert_eq!(generation(), Some(3));
}

/// A Job of three pods, of which two run at once, for five seconds each.
fn short_job() -> Value {
    let template = json!({"metadata": {"annotations": {"tenon.dev/simulated-run-seconds": "5"}},
        "spec": {"containers": [{"name": "a"}]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": 2, "completions": 3, "template": template}})
}

#[test]
fn jobs_end_and_deployments_are_deleted_with_what_they_own() {
    let cluster = cluster();
    cluster.add_node(node("a"));
    cluster.apply(short_job()).unwrap();
    cluster.apply(deployment("web", 2, json!({}))).unwrap();
    run(&cluster, 100);
    assert_eq!(cluster.pod_counts(), PodCounts { running: 2, finished: 3, ..PodCounts::default() });
    cluster.apply(deployment("web", 1, json!({}))).unwrap();
    run(&cluster, 120);
    assert_eq!(cluster.pod_counts().running, 1);
    cluster.delete(Kind::Deployment, "default", "web");
    run(&cluster, 140);
    assert_eq!(cluster.pod_counts(), PodCounts { finished: 3, ..PodCounts::default() });
}

#[test]
fn a_job_that_is_done_stays_done_without_its_pods() {
    let cluster = cluster();
    cluster.add_node(node("a"));
    cluster.apply(short_job()).unwrap();
    run(&cluster, 100);
    assert_eq!(cluster.pod_counts(), PodCounts { finished: 3, ..PodCounts::default() });
    for pod in cluster.objects(Kind::Pod) {
        cluster.delete(Kind::Pod, "default", object::name(&pod));
    }
    run(&cluster, 200);
    assert_eq!(cluster.pod_counts(), PodCounts::default());
}

#[test]
fn the_same_calls_give_the_same_cluster() {
    let play = || {
        let cluster = cluster();
        cluster.apply(deployment("web", 5, json!({}))).unwrap();
        cluster.add_node(node("a"));
        cluster.add_node(node("b"));
        run(&cluster, 100);
        cluster.objects(Kind::Pod)
    };
    assert_eq!(play(), play());
}

#[test]
fn thousands_of_pods_are_placed_quickly() {
    let cluster = cluster();
    for n in 0..50 {
        cluster
            .apply(deployment(
                &format!("web-{n}"),
                100,
                json!({"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "10m"}}}]}),
            ))
            .unwrap();
    }
    for n in 0..100 {
        let mut spec = node(&format!("n{n}"));
        spec.allocatable.insert("pods".to_owned(), "60".to_owned());
        cluster.add_node(spec);
    }
    run(&cluster, 100);
    assert_eq!(cluster.pod_counts(), PodCounts { running: 5_000, ..PodCounts::default() });
}

#[test]
fn what_nobody_owns_any_more_is_collected() {
    let cluster = cluster();
    let made = |kind: Kind, name: &str, owners: Vec<Value>| {
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "ownerReferences": owners}});
        let made = cluster.apply(object).unwrap();
        json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "name": name, "uid": object::uid(&made)})
    };
    let (one, other) = (made(Kind::NodePool, "one", vec![]), made(Kind::NodePool, "other", vec![]));
    let claim = made(Kind::NodeClaim, "claim", vec![one, other]);
    made(Kind::Node, "node", vec![claim]);
    let there = |kind, name: &str| cluster.object(kind, "", name).is_some();
    let delete = |name: &str, until| {
        cluster.delete(Kind::NodePool, "", name);
        run(&cluster, until);
    };
    delete("one", 1);
    assert!(there(Kind::NodeClaim, "claim"), "it has another owner");
    delete("other", 2);
    assert!(!there(Kind::NodeClaim, "claim") && !there(Kind::Node, "node"));
}
