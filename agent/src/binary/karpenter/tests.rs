//! What a user scrapes, line by line.

use serde_json::{Value, json};
use tenon_domain::SignedDuration;
use tenon_domain::catalog::{CapacityType, HeldOffering};
use tenon_domain::claim::{ClaimState, CommandRole, LaunchFailure, LaunchedInstance, MinValuesState, Terms};
use tenon_domain::id::{
    ClaimName, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName, Zone,
};
use tenon_domain::money::UsdPerHour;
use tenon_domain::snapshot::ActionProgress;
use tenon_domain::wake::FunctionName;
use tenon_snapshot::ObjectKey;
use tenon_snapshot::object::{Kind, Object};
use tenon_snapshot::pod::{PodRef, SeenPod};
use tenon_table::items::Generations;

use super::objects::ObjectEnd;
use super::*;
use crate::binary::metrics::{Metrics, StepLabels};
use crate::converge::{EvictionAnswer, GonePod};

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

#[test]
fn steps_of_claims_count_once_and_from_the_first_look_on() {
    let metrics = seen(look(vec![], vec![]));
    let none = BTreeMap::new();
    let old = with(claim("default-old00"), draining(RemovalReason::Drifted));
    converge(&metrics, std::slice::from_ref(&old), &none);
    lacks(&metrics, 0, "karpenter_nodeclaims_created_total");

    let relaxed = Claim { min_values: MinValuesState::Relaxed, ..claim("default-aaaaa") };
    converge(&metrics, &[old, relaxed.clone()], &none);
    // Between two looks it launched, joined, and is being drained; the other one is gone.
    let gone = with(claim("default-old00"), terminated(RemovalReason::Drifted));
    let drained = with(relaxed, draining(RemovalReason::Empty));
    for _ in 0..2 {
        converge(&metrics, &[gone.clone(), drained.clone()], &none);
    }
    converge(&metrics, &[drained], &none);
    check(
        &metrics,
        0,
        &[
            "karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"default\",min_values_relaxed=\"true\"} 1",
            "karpenter_nodes_created_total{nodepool=\"default\",zone=\"us-east-1a\"} 1",
            "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"default\",capacity_type=\"spot\",\
                consolidation_policy=\"when_empty\",termination_mode=\"graceful\"} 1",
            "karpenter_nodeclaims_terminated_total{nodepool=\"default\",capacity_type=\"spot\",zone=\"us-east-1a\"} 1",
        ],
    );
}

#[test]
fn a_replacement_counts_once_its_command_is_read() {
    let metrics = leader();
    let (none, command) = (BTreeMap::new(), CommandId::parse("command-1").unwrap());
    let replacement = Claim { role: CommandRole::Replacement(command.clone()), ..claim("default-aaaaa") };
    assert!(
        metrics.unknown_commands(&claims(std::slice::from_ref(&replacement))).is_empty(),
        "the first look"
    );
    converge(&metrics, &[], &none);
    let all = [replacement];
    assert_eq!(metrics.unknown_commands(&claims(&all)), [command.clone()].into());
    converge(&metrics, &all, &none);
    lacks(&metrics, 0, "karpenter_nodeclaims_created_total");
    converge(&metrics, &all, &BTreeMap::from([(command, RemovalReason::Drifted)]));
    check(
        &metrics,
        0,
        &[
            "karpenter_nodeclaims_created_total{reason=\"drifted\",nodepool=\"default\",min_values_relaxed=\"false\"} 1",
        ],
    );
    assert!(metrics.unknown_commands(&claims(&all)).is_empty());
}

#[test]
fn each_reason_has_its_labels() {
    let check = |claim: Claim, expected: Option<&str>| {
        let metrics = seen(look(vec![], vec![]));
        converge(&metrics, &[], &BTreeMap::new());
        converge(&metrics, &[claim], &BTreeMap::new());
        let text = text(&metrics, 0);
        let found = text.lines().find_map(|line| line.strip_prefix("karpenter_nodeclaims_disrupted_total"));
        assert_eq!(found, expected);
    };
    let of = |reason| with(claim("default-aaaaa"), draining(reason));
    let within = |reason, grace| Claim {
        terms: Some(Terms {
            expire_after: None,
            termination_grace_period: Some(grace),
            load_balancer_deregistration: None,
        }),
        ..of(reason)
    };
    let spot = "nodepool=\"default\",capacity_type=\"spot\",consolidation_policy=\"\"";
    let line =
        |reason: &str, mode: &str| format!("{{reason=\"{reason}\",{spot},termination_mode=\"{mode}\"}} 1");
    check(of(RemovalReason::SpotInterrupted), Some(&line("spot_interrupted", "graceful")));
    check(of(RemovalReason::RebalanceRecommended), Some(&line("rebalance_recommendation", "graceful")));
    check(of(RemovalReason::Unhealthy), Some(&line("unhealthy", "forceful")));
    check(of(RemovalReason::Deleted), None);
    let hour = SignedDuration::from_hours(1);
    check(within(RemovalReason::Expired, hour), Some(&line("expired", "eventual")));
    check(within(RemovalReason::Drifted, SignedDuration::ZERO), Some(&line("drifted", "forceful")));
    let failure = LaunchFailure { reason: "InsufficientCapacityError".to_owned(), message: String::new() };
    let failed = with(claim("default-aaaaa"), ClaimState::LaunchFailed { at: at(9), failure });
    let none = "{reason=\"insufficient_capacity\",nodepool=\"default\",capacity_type=\"\",consolidation_policy=\"\",\
        termination_mode=\"graceful\"} 1";
    check(failed, Some(none));
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
        at: at(100),
        refusals: None,
        told_at: None,
        offerings: vec![
            of("m7g.large", CapacityType::Spot, "0.0353", false),
            // No Node has these any longer.
            of("m7g.large", CapacityType::OnDemand, "0.0816", true),
            of("m5.large", CapacityType::Spot, "0.04", true),
        ],
    };
    metrics.observe_offerings(Some(record), at(200));
    assert!(!metrics.wants_offerings(at(259)) && metrics.wants_offerings(at(260)));
    let labels = "{instance_type=\"m7g.large\",capacity_type=\"spot\",zone=\"us-east-1a\"}";
    let name = "karpenter_cloudprovider_instance_type_offering";
    let lines = [format!("{name}_price_estimate{labels} 0.0353"), format!("{name}_available{labels} 0.0")];
    let six_hours_later = 100 + 6 * 3_600;
    check(&metrics, six_hours_later, &lines.each_ref().map(String::as_str));
    lacks(&metrics, six_hours_later + 1, &format!("{name}_price_estimate"));
    lacks(&metrics, six_hours_later + 1, &format!("{name}_available"));
}

#[test]
fn nodes_and_claims_that_are_gone_are_counted_with_their_times() {
    let metrics = leader();
    let there = |deleted| ClusterLook {
        claims: vec![node_claim("a", deleted)],
        ..look(vec![node("a", deleted), node("b", None)], vec![])
    };
    metrics.observe_look(there(None), at(1_000));
    metrics.observe_look(there(Some(1_010)), at(1_012));
    // Another one disappears without having been deleted: nobody knows when it ended.
    metrics.observe_look(look(vec![], vec![]), at(1_060));
    check(
        &metrics,
        1_060,
        &[
            "karpenter_nodes_terminated_total{nodepool=\"default\",zone=\"us-east-1a\"} 1",
            "karpenter_nodes_lifetime_duration_seconds_sum{nodepool=\"default\"} 960.0",
            "karpenter_nodes_lifetime_duration_seconds_count{nodepool=\"default\"} 1",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.5\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.9\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"0.99\"} 50.0",
            "karpenter_nodes_termination_duration_seconds{nodepool=\"default\",quantile=\"1\"} 50.0",
            "karpenter_nodes_termination_duration_seconds_sum{nodepool=\"default\"} 50.0",
            "karpenter_nodes_termination_duration_seconds_count{nodepool=\"default\"} 1",
            "karpenter_nodeclaims_termination_duration_seconds_sum{nodepool=\"default\"} 50.0",
            "karpenter_nodeclaims_termination_duration_seconds_count{nodepool=\"default\"} 1",
        ],
    );
    let bucket = "karpenter_nodes_lifetime_duration_seconds_bucket{le=\"1800.0\",nodepool=\"default\"} 1\n";
    assert!(text(&metrics, 1_060).contains(bucket));
}

#[test]
fn pods_count_by_their_own_times_once() {
    let metrics = leader();
    let running = pod("old", Some("a"), "Running", &conditions(Some(90), Some(95)));
    let waits = pod("web-1", None, "Pending", &json!({}));
    metrics.observe_look(look(vec![], vec![running.clone(), waits]), at(102));
    // One that came meanwhile is Ready already; the other is bound.
    let fast = pod("fast", Some("a"), "Running", &conditions(Some(101), Some(103)));
    let bound = pod("web-1", Some("a"), "Pending", &conditions(Some(107), None));
    metrics.observe_look(look(vec![], vec![fast.clone(), running.clone(), bound]), at(110));
    let unready = pod("fast", Some("a"), "Running", &conditions(Some(101), None));
    let runs = pod("web-1", Some("a"), "Running", &conditions(Some(107), None));
    metrics.observe_look(look(vec![], vec![unready, running.clone(), runs]), at(112));
    check(&metrics, 112, &["karpenter_pods_unstarted_time_seconds{name=\"web-1\",namespace=\"shop\"} 12.0"]);
    let ready = pod("web-1", Some("a"), "Running", &conditions(Some(107), Some(120)));
    metrics.observe_look(look(vec![], vec![fast, running, ready]), at(130));
    metrics.observe_look(look(vec![], vec![]), at(132));
    check(
        &metrics,
        132,
        &[
            "karpenter_pods_bound_duration_seconds_sum 8.0",
            "karpenter_pods_bound_duration_seconds_count 2",
            "karpenter_pods_startup_duration_seconds{quantile=\"0\"} 3.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.5\"} 3.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.9\"} 20.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"0.99\"} 20.0",
            "karpenter_pods_startup_duration_seconds{quantile=\"1\"} 20.0",
            "karpenter_pods_startup_duration_seconds_sum 23.0",
            "karpenter_pods_startup_duration_seconds_count 2",
        ],
    );
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let metrics = leader();
    let before = pod("db-0", Some("a"), "Running", &conditions(Some(100), Some(104)));
    metrics.observe_look(look(vec![], vec![before]), at(110));
    let patch = json!({"metadata": {"uid": "another"}});
    let mut ready = conditions(Some(101), Some(106));
    merge(&mut ready, &patch);
    metrics.observe_look(look(vec![], vec![pod("db-0", Some("a"), "Running", &ready)]), at(120));
    let counts =
        ["karpenter_pods_bound_duration_seconds_count 1", "karpenter_pods_startup_duration_seconds_count 1"];
    check(&metrics, 120, &counts);
}

#[test]
fn drains_and_evictions_are_counted() {
    let pods =
        vec![pod("web-1", Some("a"), "Running", &json!({})), pod("web-2", Some("z"), "Running", &json!({}))];
    let metrics = seen(look(vec![node("a", None)], pods));
    let all = claims(&[with(claim("a"), draining(RemovalReason::Underutilized))]);
    let evicted = |name: &str, answer| PodEviction { pod: ObjectKey::new(Kind::Pod, "shop", name), answer };
    let evictions = [
        evicted("web-1", EvictionAnswer::Evicted),
        evicted("web-2", EvictionAnswer::Evicted),
        evicted("web-1", EvictionAnswer::Refused),
        evicted("web-3", EvictionAnswer::Gone(GonePod::NotFound)),
        evicted("web-3", EvictionAnswer::Gone(GonePod::Conflict)),
    ];
    metrics.observe_evictions(&evictions, &all);
    let report = |progress| [ActionReport { claim: "a".to_owned(), number: 1, progress }];
    for progress in [ActionProgress::working(1), ActionProgress::Done, ActionProgress::Done] {
        let (reasons, reports) = (BTreeMap::new(), report(progress));
        metrics.observe_claims(ConvergedClaims { claims: &all, reasons: &reasons, reports: &reports });
    }
    check(
        &metrics,
        200,
        &[
            "karpenter_pods_eviction_requests_total{code=\"200\"} 2",
            "karpenter_pods_eviction_requests_total{code=\"404\"} 1",
            "karpenter_pods_eviction_requests_total{code=\"409\"} 1",
            "karpenter_pods_eviction_requests_total{code=\"429\"} 1",
            "karpenter_pods_drained_total{reason=\"Underutilized\"} 1",
            "karpenter_pods_drained_total{reason=\"Forceful Termination\"} 1",
            "karpenter_nodes_drained_total{nodepool=\"default\"} 1",
        ],
    );
}

#[test]
fn a_new_leader_counts_no_drain_that_was_over() {
    let metrics = leader();
    let all = claims(&[with(claim("a"), draining(RemovalReason::Drifted))]);
    let reports = [ActionReport { claim: "a".to_owned(), number: 1, progress: ActionProgress::Done }];
    for _ in 0..2 {
        let reasons = BTreeMap::new();
        metrics.observe_claims(ConvergedClaims { claims: &all, reasons: &reasons, reports: &reports });
    }
    lacks(&metrics, 0, "karpenter_nodes_drained_total");
}

/// Names and types of the metrics of a scrape, as Prometheus stores them.
fn names(text: &str) -> BTreeMap<String, String> {
    let head = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let total = if kind == "counter" { "_total" } else { "" };
        Some((format!("{name}{total}"), kind.to_owned()))
    };
    text.lines().filter_map(head).collect()
}

/// A scrape with a sample of each counter: without one, not even its name is there.
fn of_each() -> KarpenterMetrics {
    let metrics = seen(look(vec![], vec![]));
    converge(&metrics, &[], &BTreeMap::new());
    converge(&metrics, &[with(claim("default-aaaaa"), terminated(RemovalReason::Empty))], &BTreeMap::new());
    let (pool, zone) = ("default".to_owned(), "us-east-1a".to_owned());
    let node =
        ObjectEnd::Node { pool: pool.clone(), zone, termination_seconds: 1.0, lifetime_seconds: Some(2.0) };
    metrics.counted.count_end(&node, at(0));
    metrics.counted.count_end(&ObjectEnd::NodeClaim { pool: pool.clone(), termination_seconds: 1.0 }, at(0));
    metrics.counted.count_drained_node(pool);
    metrics.counted.count_eviction(EvictionAnswer::Evicted, String::new);
    metrics
}

#[test]
fn the_page_lists_them_all_by_name_and_type() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let (name, kind) = (cells.next()?.trim().trim_matches('`'), cells.next()?.trim());
        let types = ["counter", "gauge", "histogram", "summary"];
        types.contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
    };
    let mut scraped = names(&text(&of_each(), 200));
    let (own, mut own_text) = (Metrics::default(), String::new());
    own.steps.get_or_create(&StepLabels { outcome: "ended" }).inc();
    own.write(&mut own_text, at(0)).unwrap();
    scraped.extend(names(&own_text));
    let listed: BTreeMap<String, String> = page.lines().filter_map(row).collect();
    assert_eq!(listed, scraped);
}

/// A writer that finds out whether the main loop would have to wait for it.
struct Unlocked<'a>(&'a KarpenterMetrics);

impl fmt::Write for Unlocked<'_> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        let free = self.0.seen.try_lock().is_ok() && self.0.uses.try_lock().is_ok();
        if free { Ok(()) } else { Err(fmt::Error) }
    }
}

#[test]
fn nobody_waits_for_a_slow_reader() {
    let pods = vec![pod("web-1", Some("a"), "Running", &json!({}))];
    let metrics = seen(look(vec![node("a", None)], pods));
    assert_eq!(metrics.write_cluster(&mut Unlocked(&metrics), at(200)), Ok(()));
}

/// 20,000 pods of 1,000 Deployments on 1,000 Nodes.
fn large() -> ClusterLook {
    let nodes = (0..1_000).map(|index| node(&format!("n-{index:04}"), None)).collect();
    let made = |index: usize| {
        let patch = json!({"metadata": {"labels": {"app": format!("app-{}", index / 20)}}});
        let mut patched = conditions(Some(105), Some(110));
        merge(&mut patched, &patch);
        pod(&format!("p-{index:05}"), Some(&format!("n-{:04}", index % 1_000)), "Running", &patched)
    };
    look(nodes, (0..20_000).map(made).collect())
}

/// A writer that keeps nothing, as a reader that is fast.
#[derive(Default)]
struct Counting {
    bytes: usize,
    lines: usize,
}

impl fmt::Write for Counting {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len();
        self.lines += text.matches('\n').count();
        Ok(())
    }
}

#[test]
fn a_large_cluster_is_scraped_soon_and_an_unchanged_look_costs_little() {
    let metrics = seen(large());
    let seen_before = metrics.seen().sight.last().cloned().unwrap();
    let mut took = Vec::new();
    for _ in 0..2 {
        let (mut writer, began) = (Counting::default(), std::time::Instant::now());
        metrics.write_cluster(&mut writer, at(200)).unwrap();
        took.push((began.elapsed(), writer.bytes, writer.lines));
    }
    let began = std::time::Instant::now();
    metrics.observe_look((*seen_before).clone(), at(202));
    println!("the first scrape and the next: {took:?}; a look: {:?}", began.elapsed());
    let (first, second) = (took[0], took[1]);
    assert_eq!((first.1, first.2), (second.1, second.2));
    assert!((34_000..35_000).contains(&first.2), "{} lines", first.2);
    // Generous: unoptimised, and beside other tests.
    assert!(second.0.as_secs() < 5, "{:?}", second.0);
}
