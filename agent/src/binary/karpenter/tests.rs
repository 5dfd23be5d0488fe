//! What a user scrapes, line by line.

mod counted;
mod page;

use serde_json::{Value, json};
use tenon_domain::catalog::{CapacityType, HeldOffering};
use tenon_domain::claim::{ClaimState, LaunchedInstance};
use tenon_domain::id::{
    ClaimName, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName, Zone,
};
use tenon_domain::money::UsdPerHour;
use tenon_domain::wake::FunctionName;
use tenon_snapshot::object::Object;
use tenon_snapshot::pod::{PodRef, SeenPod};
use tenon_table::items::Generations;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn time(second: i64) -> String {
    at(second).to_string()
}

/// A leader that hasn't looked yet.
fn leader() -> KarpenterMetrics {
    let metrics = KarpenterMetrics::default();
    metrics.begin(at(0));
    metrics
}

fn text(metrics: &KarpenterMetrics, second: i64) -> String {
    let mut text = String::new();
    metrics.write_counted(&mut text, at(second)).unwrap();
    metrics.write_cluster(&mut text, at(second)).unwrap();
    text
}

/// Whether a scrape has these lines, and no other samples of their metrics.
fn check(metrics: &KarpenterMetrics, second: i64, expected: &[&str]) {
    let text = text(metrics, second);
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    let named: BTreeSet<String> = expected.iter().map(|line| name(line)).collect();
    let found: BTreeSet<&str> = text.lines().filter(|line| named.contains(&name(line))).collect();
    assert_eq!(found, expected.iter().copied().collect());
}

fn lacks(metrics: &KarpenterMetrics, second: i64, name: &str) {
    let text = text(metrics, second);
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect();
    assert!(found.is_empty(), "{found:?}");
}

fn object(value: Value) -> Object {
    Arc::new(value)
}

fn node(name: &str, deleted: Option<i64>) -> Object {
    let labels = json!({"karpenter.k8s.aws/instance-cpu": "2", "karpenter.k8s.aws/instance-memory": "8192",
        "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default", "kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "m7g.large", "team": "shop", "topology.kubernetes.io/zone": "us-east-1a"});
    let mut metadata = json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": time(100), "labels": labels,
        "annotations": {"tenon.dev/nodeclaim": name}, "finalizers": ["karpenter.sh/termination"]});
    if let Some(second) = deleted {
        metadata["deletionTimestamp"] = json!(time(second));
    }
    object(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
        "spec": {"providerID": format!("aws:///us-east-1a/i-{name}")},
        "status": {"capacity": {"cpu": "2", "ephemeral-storage": "20Gi", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "ephemeral-storage": "18Gi", "memory": "7Gi", "pods": "29"}}}))
}

fn node_claim(name: &str, deleted: Option<i64>) -> Object {
    let mut metadata = json!({"name": name, "uid": format!("uid-of-{name}"),
        "labels": {"karpenter.sh/nodepool": "default"},
        "annotations": {"tenon.dev/launch": "launch-1"}, "finalizers": ["karpenter.sh/termination"]});
    if let Some(second) = deleted {
        metadata["deletionTimestamp"] = json!(time(second));
    }
    object(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata,
        "status": {"providerID": format!("aws:///us-east-1a/i-{name}"),
            "conditions": [{"type": "Launched", "status": "True", "reason": "Launched", "lastTransitionTime": time(90)},
                {"type": "Registered", "status": "Unknown", "reason": "NodeNotFound", "lastTransitionTime": time(80)}]}}))
}

fn pool() -> Object {
    object(
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "uid": "p"},
        "spec": {"limits": {"cpu": "1k", "nvidia.com/gpu": 4}, "disruption": {"consolidationPolicy": "WhenEmpty"}},
        "status": {"resources": {"cpu": "1930m", "memory": "8Gi", "nodes": "1"},
            "conditions": [{"type": "Ready", "status": "False", "reason": "NotReady", "lastTransitionTime": time(50)}]}}),
    )
}

/// A pod: where it is, and its phase.
fn pod(name: &str, node: Option<&str>, phase: &str, patch: &Value) -> PodRef {
    let mut value = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "creationTimestamp": time(100),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]},
        "spec": {"containers": [{"name": "c", "resources":
            {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}]},
        "status": {"phase": phase, "conditions": []}});
    if let Some(node) = node {
        value["spec"]["nodeName"] = json!(node);
    }
    merge(&mut value, patch);
    Arc::new(SeenPod::read(&value).unwrap())
}

fn merge(value: &mut Value, patch: &Value) {
    match (value, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (key, patch) in patch {
                merge(fields.entry(key.as_str()).or_insert(Value::Null), patch);
            }
        }
        (value, patch) => *value = patch.clone(),
    }
}

/// The conditions of a pod that was bound, and of one that is Ready.
fn conditions(bound: Option<i64>, ready: Option<i64>) -> Value {
    let holds =
        |kind: &str, second: i64| json!({"type": kind, "status": "True", "lastTransitionTime": time(second)});
    let bound = bound.map(|second| holds("PodScheduled", second));
    let ready = ready.map(|second| holds("Ready", second));
    json!({"status": {"conditions": bound.into_iter().chain(ready).collect::<Vec<_>>()}})
}

fn daemon(name: &str, node: &str) -> PodRef {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "d", "controller": true}]);
    let patch = json!({"metadata": {"ownerReferences": owner},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}}]}});
    pod(name, Some(node), "Running", &patch)
}

fn look(nodes: Vec<Object>, pods: Vec<PodRef>) -> ClusterLook {
    ClusterLook { nodes, pods, pools: vec![pool()], ..ClusterLook::default() }
}

fn seen(look: ClusterLook) -> KarpenterMetrics {
    let metrics = leader();
    metrics.observe_look(look, at(200));
    metrics
}

const NODE: &str = "node_name=\"a\",managed=\"true\",instance_cpu=\"2\",instance_memory=\"8192\",capacity_type=\"spot\",\
    nodepool=\"default\",arch=\"arm64\",instance_type=\"m7g.large\",zone=\"us-east-1a\"";

#[test]
fn a_node_has_its_resources_and_those_of_its_pods() {
    let pods = vec![daemon("logs-1", "a"), pod("web-1", Some("a"), "Running", &json!({}))];
    let look = ClusterLook { claims: vec![node_claim("a", None)], ..look(vec![node("a", None)], pods) };
    let metrics = seen(look);
    for (name, resources) in [
        (
            "allocatable",
            &[
                ("cpu", "1.93"),
                ("ephemeral_storage", "19327352832.0"),
                ("memory", "7516192768.0"),
                ("pods", "29.0"),
            ][..],
        ),
        (
            "system_overhead",
            &[
                ("cpu", "0.07"),
                ("ephemeral_storage", "2147483648.0"),
                ("memory", "1073741824.0"),
                ("pods", "0.0"),
            ],
        ),
        ("total_pod_requests", &[("cpu", "0.6"), ("memory", "1073741824.0"), ("pods", "2.0")]),
        ("total_pod_limits", &[("cpu", "1.0"), ("memory", "2147483648.0"), ("pods", "2.0")]),
        ("total_daemon_requests", &[("cpu", "0.1"), ("pods", "1.0")]),
        ("total_daemon_limits", &[("cpu", "1.0"), ("pods", "1.0")]),
    ] {
        let line = |(resource, value)| {
            format!("karpenter_nodes_{name}{{{NODE},resource_type=\"{resource}\"}} {value}")
        };
        let lines: Vec<String> = resources.iter().copied().map(line).collect();
        check(&metrics, 200, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
    check(&metrics, 260, &[&format!("karpenter_nodes_current_lifetime_seconds{{{NODE}}} 160.0")]);
}

#[test]
fn the_cluster_is_counted_with_nodes_that_are_on_their_way() {
    let pods = vec![pod("web-1", Some("a"), "Running", &json!({}))];
    let claims = vec![node_claim("a", None), node_claim("b", None)];
    let foreign = object(json!({"kind": "Node", "metadata": {"name": "z", "uid": "z"}}));
    let metrics = seen(ClusterLook { claims, ..look(vec![node("a", None), foreign], pods) });
    check(
        &metrics,
        200,
        &[
            "karpenter_cluster_state_node_count 3.0",
            "karpenter_cluster_state_synced 1.0",
            "karpenter_cluster_state_unsynced_time_seconds 0.0",
            "karpenter_cluster_utilization_percent{resource_type=\"cpu\"} 25.906735751295338",
            "karpenter_cluster_utilization_percent{resource_type=\"ephemeral_storage\"} 0.0",
            "karpenter_cluster_utilization_percent{resource_type=\"memory\"} 14.285714285714287",
            "karpenter_cluster_utilization_percent{resource_type=\"pods\"} 3.4482758620689655",
            "karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m7g.large\"} 2.0",
            "karpenter_cloudprovider_instance_type_memory_bytes{instance_type=\"m7g.large\"} 8589934592.0",
        ],
    );
}

#[test]
fn a_pod_says_where_it_is_and_how_long_it_waits() {
    let pods = vec![
        pod("web-1", Some("a"), "Running", &conditions(Some(105), Some(110))),
        pod("web-2", None, "Pending", &json!({})),
        pod("web-3", Some("a"), "Pending", &conditions(Some(105), None)),
    ];
    let web = "namespace=\"shop\",owner=\"/apis/apps/v1/namespaces/shop/replicasets/web\"";
    let host = "node=\"a\",nodepool=\"default\",zone=\"us-east-1a\",arch=\"arm64\",capacity_type=\"spot\",\
        instance_type=\"m7g.large\"";
    check(
        &seen(look(vec![node("a", None)], pods)),
        160,
        &[
            &format!(
                "karpenter_pods_state{{name=\"web-1\",{web},{host},phase=\"Running\",scheduled=\"true\",\
                ready=\"true\",managed=\"true\"}} 1.0"
            ),
            &format!(
                "karpenter_pods_state{{name=\"web-2\",{web},phase=\"Pending\",scheduled=\"false\",\
                ready=\"false\",managed=\"false\"}} 1.0"
            ),
            &format!(
                "karpenter_pods_state{{name=\"web-3\",{web},{host},phase=\"Pending\",scheduled=\"true\",\
                ready=\"false\",managed=\"true\"}} 1.0"
            ),
            "karpenter_pods_unbound_time_seconds{name=\"web-2\",namespace=\"shop\"} 60.0",
            "karpenter_pods_unstarted_time_seconds{name=\"web-2\",namespace=\"shop\"} 60.0",
            "karpenter_pods_unstarted_time_seconds{name=\"web-3\",namespace=\"shop\"} 60.0",
        ],
    );
}

#[test]
fn a_pool_has_limits_and_usage_and_objects_have_conditions() {
    let class =
        object(json!({"kind": "EC2NodeClass", "metadata": {"name": "linux", "deletionTimestamp": time(40)}}));
    let claims = vec![node_claim("b", None)];
    let metrics = seen(ClusterLook { claims, classes: vec![class], ..look(vec![], vec![]) });
    check(
        &metrics,
        100,
        &[
            "karpenter_nodepools_limit{resource_type=\"cpu\",nodepool=\"default\"} 1000.0",
            "karpenter_nodepools_limit{resource_type=\"nvidia.com/gpu\",nodepool=\"default\"} 4.0",
            "karpenter_nodepools_usage{resource_type=\"cpu\",nodepool=\"default\"} 1.93",
            "karpenter_nodepools_usage{resource_type=\"memory\",nodepool=\"default\"} 8589934592.0",
            "karpenter_nodepools_usage{resource_type=\"nodes\",nodepool=\"default\"} 1.0",
            "operator_nodepool_status_condition_count{name=\"default\",type=\"Ready\",status=\"False\",\
                reason=\"NotReady\"} 1.0",
            "operator_nodepool_status_condition_current_status_seconds{name=\"default\",type=\"Ready\",\
                status=\"False\",reason=\"NotReady\"} 50.0",
            "operator_nodeclaim_status_condition_count{name=\"b\",type=\"Launched\",status=\"True\",\
                reason=\"Launched\"} 1.0",
            "operator_nodeclaim_status_condition_count{name=\"b\",type=\"Registered\",status=\"Unknown\",\
                reason=\"NodeNotFound\"} 1.0",
            "operator_ec2nodeclass_termination_current_time_seconds{name=\"linux\"} 60.0",
        ],
    );
}

#[test]
fn what_is_not_seen_is_not_told() {
    let metrics = seen(look(vec![node("a", None)], vec![]));
    metrics.observe_blindness(at(300));
    metrics.observe_blindness(at(310));
    let lost = ["karpenter_cluster_state_synced 0.0", "karpenter_cluster_state_unsynced_time_seconds 20.0"];
    check(&metrics, 320, &lost);
    for name in ["karpenter_nodes_allocatable", "karpenter_nodepools_limit", "karpenter_pods_state"] {
        lacks(&metrics, 320, name);
    }
    metrics.observe_look(look(vec![], vec![]), at(330));
    check(&metrics, 330, &["karpenter_cluster_state_synced 1.0"]);
    metrics.end();
    assert!(!text(&metrics, 340).contains("karpenter_cluster_state_synced "));
}

fn instance() -> LaunchedInstance {
    LaunchedInstance {
        id: InstanceId::parse("i-0abc").unwrap(),
        instance_type: InstanceType::parse("m5.large").unwrap(),
        zone: Zone::parse("us-east-1a").unwrap(),
        subnet: None,
        reservation: None,
        placement: None,
        capacity_type: CapacityType::Spot,
        image: ImageId::parse("ami-0123456789abcdef0").unwrap(),
    }
}

fn claim(name: &str) -> Claim {
    Claim::planned(
        ClaimName::parse(name).unwrap(),
        (NodePoolName::parse("default").unwrap(), NodeClassName::parse("linux").unwrap()),
        LaunchId::parse("launch-1").unwrap(),
        at(5),
    )
}

fn claims(all: &[Claim]) -> BTreeMap<String, Claim> {
    all.iter().map(|claim| (claim.name.to_string(), claim.clone())).collect()
}

fn with(claim: Claim, state: ClaimState) -> Claim {
    Claim { state, ..claim }
}

fn draining(reason: RemovalReason) -> ClaimState {
    ClaimState::Draining {
        instance: instance(),
        node: Some(NodeName::parse("n").unwrap()),
        reason,
        at: at(40),
        deadline: None,
    }
}

fn terminated(reason: RemovalReason) -> ClaimState {
    let node = Some(NodeName::parse("n").unwrap());
    ClaimState::Terminated { instance: Some(instance()), node, reason, at: at(50) }
}

fn converge(metrics: &KarpenterMetrics, all: &[Claim], reasons: &BTreeMap<CommandId, RemovalReason>) {
    metrics.observe_claims(ConvergedClaims { claims: &claims(all), reasons, reports: &[] });
}

/// A NodePool of two budgets, with these annotations and conditions.
fn budgeted_pool(annotations: &Value, conditions: &Value) -> Object {
    object(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "p", "annotations": annotations},
        "spec": {
            "disruption": {"budgets": [{"nodes": "10%"}, {"nodes": "1", "reasons": ["Drifted"]}]},
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "linux"},
                "requirements": []}}},
        "status": {"conditions": conditions}}))
}

fn initialized() -> ClaimState {
    ClaimState::Initialized { instance: instance(), node: NodeName::parse("n").unwrap(), at: at(30) }
}

/// The gauges of what the NodePool's budgets allow.
fn check_allowed(pool: Object, [underutilized, empty, drifted]: [u32; 3]) {
    let metrics = seen(ClusterLook { pools: vec![pool], ..ClusterLook::default() });
    lacks(&metrics, 200, "karpenter_nodepools_allowed_disruptions");
    let mut all: Vec<Claim> =
        (0..19).map(|n| with(claim(&format!("default-{n:05}")), initialized())).collect();
    // Both count: what leaves uses up a budget, and isn't subtracted here. The third never joined.
    all.push(with(claim("default-leave"), draining(RemovalReason::Drifted)));
    all.push(with(claim("default-going"), draining(RemovalReason::Expired)));
    all.push(claim("default-plans"));
    converge(&metrics, &all, &BTreeMap::new());
    let line = |reason: &str, allowed: u32| {
        format!(
            "karpenter_nodepools_allowed_disruptions{{nodepool=\"default\",reason=\"{reason}\"}} {allowed}.0"
        )
    };
    let lines = [line("Underutilized", underutilized), line("Empty", empty), line("Drifted", drifted)];
    check(&metrics, 200, &lines.each_ref().map(String::as_str));
}

#[test]
fn a_pool_tells_what_its_budgets_allow_once_the_claims_are_read() {
    let none = json!([]);
    check_allowed(budgeted_pool(&json!({}), &none), [3, 3, 1]);
    check_allowed(budgeted_pool(&json!({"tenon.dev/pause-disruption": "true"}), &none), [0, 0, 0]);
    let paused = json!([{"type": "tenon.dev/DisruptionPaused", "status": "True", "reason": "Setting"}]);
    check_allowed(budgeted_pool(&json!({}), &paused), [0, 0, 0]);
}

#[test]
fn offerings_of_nodes_have_the_prices_of_the_last_plan_while_they_mean_something() {
    let metrics = seen(look(vec![node("a", None)], vec![]));
    assert!(metrics.wants_offerings(at(200)));
    let of = |instance_type: &str, capacity_type, price: &str, available| HeldOffering {
        instance_type: InstanceType::parse(instance_type).unwrap(),
        zone: Zone::parse("us-east-1a").unwrap(),
        capacity_type,
        price: UsdPerHour::parse(price).ok(),
        available,
    };
    let record = SeenRecord {
        function: FunctionName::Disruption,
        generations: Generations::default(),
        deadline: None,
        wake_at: None,
        at: at(100),
        refusals: None,
        told_at: None,
        offerings: vec![
            of("m7g.large", CapacityType::Spot, "0.0353", false),
            // No Node has these any longer.
            of("m7g.large", CapacityType::OnDemand, "0.0816", true),
            of("m5.large", CapacityType::Spot, "0.04", true),
        ],
        offerings_at: None,
    };
    metrics.observe_offerings(Some(record.clone()), at(200));
    assert!(!metrics.wants_offerings(at(259)) && metrics.wants_offerings(at(260)));
    let labels = "{instance_type=\"m7g.large\",capacity_type=\"spot\",zone=\"us-east-1a\"}";
    let name = "karpenter_cloudprovider_instance_type_offering";
    let lines = [format!("{name}_price_estimate{labels} 0.0353"), format!("{name}_available{labels} 0.0")];
    let six_hours_later = 100 + 6 * 3_600;
    check(&metrics, six_hours_later, &lines.each_ref().map(String::as_str));
    lacks(&metrics, six_hours_later + 1, &format!("{name}_price_estimate"));
    lacks(&metrics, six_hours_later + 1, &format!("{name}_available"));
    // A later look that only kept them makes them no younger.
    let kept = SeenRecord { at: at(six_hours_later), offerings_at: Some(at(100)), ..record };
    metrics.observe_offerings(Some(kept), at(six_hours_later));
    check(&metrics, six_hours_later, &lines.each_ref().map(String::as_str));
    lacks(&metrics, six_hours_later + 1, &format!("{name}_price_estimate"));
}
