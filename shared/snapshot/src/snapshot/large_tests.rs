//! The cost of a cluster with 1,000 nodes and 20,000 pods: the bytes of its snapshot, and of one pod's life.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_domain::digest::Digest;
use tenon_table::Item;
use tenon_table::value::attributes_size;

use super::size::SizeBudget;
use super::{CHUNKS_MOST, Chunk, ChunkKind, ClusterObjects, Encoded, Encoder, Manifest, SNAPSHOT_SIZE_MOST};
use crate::object::Object;
use crate::pod::PodNeedsSet;

const NODES: usize = 1_000;
const PODS: usize = 20_000;
const WORKLOADS: usize = 200;
/// The goals.
const SNAPSHOT_BYTES: usize = 500 * 1_000;
const CHANGE_BYTES: usize = 8 * 1_000;

/// Random digits, like those of API servers and EC2: always the same for a text.
fn random(text: &str, digits: usize) -> String {
    Digest::of_texts([text]).hex()[..digits].to_owned()
}

/// A UID.
fn uid(text: &str) -> String {
    let hex = random(text, 32);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The end of a pod's name, as Kubernetes makes it.
fn suffix(text: &str, length: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Digest::of_texts([text]);
    digest
        .bytes()
        .iter()
        .take(length)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

/// Some second of a month.
fn some_time(text: &str) -> String {
    let second = i64::from_str_radix(&random(text, 6), 16).unwrap() % 2_600_000;
    at(second).to_string()
}

fn node_name(n: usize) -> String {
    format!("ip-10-0-{}-{}.ec2.internal", n / 250, n % 250)
}

fn node(n: usize) -> Object {
    let name = node_name(n);
    let family = ["m5", "c5", "r5", "m6i", "c6i"][n % 5];
    let zone = ["a", "b", "c"][n % 3];
    let mut labels = json!({
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
        "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot", "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": format!("us-east-1{zone}"), "topology.k8s.aws/zone-id": format!("use1-az{}", n % 3),
        "node.kubernetes.io/instance-type": format!("{family}.2xlarge"),
    });
    for (label, value) in [
        ("instance-category", &family[..1]),
        ("instance-family", family),
        ("instance-generation", &family[1..2]),
        ("instance-size", "2xlarge"),
        ("instance-cpu", "8"),
        ("instance-cpu-manufacturer", "intel"),
        ("instance-memory", "32768"),
        ("instance-ebs-bandwidth", "4750"),
        ("instance-network-bandwidth", "2500"),
        ("instance-hypervisor", "nitro"),
        ("instance-encryption-in-transit-supported", "false"),
        ("ec2nodeclass", "default"),
    ] {
        labels[format!("karpenter.k8s.aws/{label}")] = json!(value);
    }
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": kind, "message": "kubelet says so",
            "lastHeartbeatTime": some_time("now"), "lastTransitionTime": some_time(&name)})
    };
    Arc::new(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": uid(&name), "labels": labels, "resourceVersion": "7",
            "creationTimestamp": some_time(&name), "annotations": {"karpenter.sh/nodepool-hash": "1234567890123456789"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": format!("aws:///us-east-1{zone}/i-{}", random(&format!("i/{name}"), 17))},
        "status": {
            "capacity": {"cpu": "8", "memory": "32132280Ki", "pods": "58", "ephemeral-storage": "83873772Ki"},
            "allocatable": {"cpu": "7910m", "memory": "31115448Ki", "pods": "58", "ephemeral-storage": "76224326324"},
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True")]}}))
}

fn claim(n: usize) -> Object {
    let (name, node) = (format!("default-{}", suffix(&format!("claim/{n}"), 8)), node(n));
    let labels = node.pointer("/metadata/labels").unwrap();
    let requirement = |key: &str, value: &Value| json!({"key": key, "operator": "In", "values": [value]});
    let label = |key: &str| requirement(key, &labels[key]);
    Arc::new(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": uid(&name), "labels": labels, "creationTimestamp": some_time(&name),
            "generation": 1, "finalizers": ["karpenter.sh/termination"],
            "annotations": {"karpenter.sh/nodepool-hash": "1234567890123456789", "tenon.dev/launch": random(&name, 20)}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [label("karpenter.sh/nodepool"), label("node.kubernetes.io/instance-type"),
                label("topology.kubernetes.io/zone"), label("karpenter.sh/capacity-type")],
            "resources": {"requests": {"cpu": "7110m", "memory": "21Gi", "pods": "20"}}, "expireAfter": "720h"},
        "status": {"providerID": node.pointer("/spec/providerID"), "nodeName": node_name(n), "imageID": "ami-0123456789abcdef0",
            "capacity": node.pointer("/status/capacity"), "allocatable": node.pointer("/status/allocatable")}}))
}

/// A pod of a Deployment; pending without a `node`.
fn pod(n: usize, node: Option<usize>) -> Value {
    let workload = n % WORKLOADS;
    let app = format!("{}-{workload}", ["web", "orders", "billing-worker", "search-indexer"][workload % 4]);
    let hash = suffix(&app, 10);
    let name = format!("{app}-{hash}-{}", suffix(&format!("pod/{n}"), 5));
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": format!("team-{}", workload % 20), "uid": uid(&name), "resourceVersion": "1",
            "creationTimestamp": some_time(&name), "labels": {"app": app, "pod-template-hash": hash},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-{hash}"),
                "uid": uid(&app), "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "priority": 0,
            "containers": [{"name": "app", "image": "registry.example.com/web:1",
                "resources": {"requests": {"cpu": format!("{}m", 100 + workload), "memory": "256Mi"}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}}}]},
        "status": {"phase": "Pending"}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node_name(node));
        pod["status"] = json!({"phase": "Running", "startTime": some_time(&name),
            "conditions": [{"type": "Ready", "status": "True"}]});
    }
    pod
}

/// The Node of a running pod: the scheduler's choice follows from nothing that is in the pod.
fn node_of(n: usize) -> usize {
    usize::from_str_radix(&random(&format!("node/{n}"), 8), 16).unwrap() % NODES
}

fn objects() -> (ClusterObjects, PodNeedsSet) {
    let mut shapes = PodNeedsSet::default();
    let pods = (0..PODS).map(|n| Arc::new(shapes.read(&pod(n, Some(node_of(n)))).unwrap())).collect();
    let objects = ClusterObjects {
        pods,
        nodes: (0..NODES).map(node).collect(),
        node_claims: (0..NODES).map(claim).collect(),
        ..ClusterObjects::default()
    };
    (objects, shapes)
}

fn chunk_bytes(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|chunk| chunk.name.bytes).sum()
}

fn item_bytes(item: &Item) -> usize {
    usize::try_from(attributes_size(item)).unwrap()
}

/// The bytes of a report: new chunks, the manifest, and a new index.
fn written(encoded: &Encoded, before: Option<&Manifest>) -> usize {
    let index = encoded.manifest.index.as_ref();
    let new = index.filter(|index| before.and_then(|before| before.index.as_ref()) != Some(index));
    let items = new.map(|index| index.to_item()).into_iter().chain(encoded.manifest.to_item());
    let items: usize = items.map(|item| item_bytes(&item)).sum();
    chunk_bytes(&encoded.new) + items
}

#[test]
fn a_large_snapshot_is_small() {
    let (objects, _shapes) = objects();
    let first = Encoder::default().encode(&objects, None, at(0));
    let mut of_kind: BTreeMap<ChunkKind, Vec<usize>> = BTreeMap::new();
    for chunk in &first.new {
        of_kind.entry(chunk.name.kind).or_default().push(chunk.name.bytes);
    }
    for (kind, bytes) in &of_kind {
        let (sum, most) = (bytes.iter().sum::<usize>(), bytes.iter().max().unwrap());
        println!("{kind}: {sum} bytes in {} chunks, the largest {most}", bytes.len());
    }
    let all = written(&first, None);
    println!("all: {all} bytes, the manifest's and its index's {}", all - chunk_bytes(&first.new));
    assert!(all <= SNAPSHOT_BYTES, "{all}");
}

/// A cluster as large as any known one is far below the limit of functions.
#[test]
fn a_large_snapshot_is_read_with_room_to_spare() {
    let (objects, _shapes) = objects();
    let encoded = Encoder::default().encode(&objects, None, at(0));
    let size: u64 = encoded
        .new
        .iter()
        .map(|chunk| Chunk::unpack(&chunk.to_item(), SizeBudget::new(SNAPSHOT_SIZE_MOST)).unwrap().1)
        .sum();
    println!("{size} of {SNAPSHOT_SIZE_MOST} in {} chunks", encoded.new.len());
    assert!(size * 2 <= SNAPSHOT_SIZE_MOST, "{size}");
    assert!(encoded.new.len() * 20 <= CHUNKS_MOST);
}

/// Pods of all workloads are created, bound, started and deleted, one after the other: enough that indexes are
/// replaced, and parts are split and joined.
#[test]
fn one_pods_change_is_small() {
    let (mut objects, mut shapes) = objects();
    let mut encoder = Encoder::default();
    let mut manifest = encoder.encode(&objects, None, at(0)).manifest;
    let (mut most, mut sum, mut count) = (0, 0, 0);
    for n in PODS..PODS + 40 {
        let waiting = pod(n, None);
        let running = pod(n, Some(node_of(n)));
        let mut bound = running.clone();
        bound["status"] = waiting["status"].clone();
        for life in [Some(waiting), Some(bound), Some(running), None] {
            objects.pods.truncate(PODS);
            objects.pods.extend(life.map(|pod| Arc::new(shapes.read(&pod).unwrap())));
            let encoded = encoder.encode(&objects, Some(&manifest), at(1));
            let bytes = written(&encoded, Some(&manifest));
            assert!(!encoded.new.is_empty() && bytes <= CHANGE_BYTES, "{n}: {bytes}");
            (most, sum, count) = (bytes.max(most), sum + bytes, count + 1);
            manifest = encoded.manifest;
        }
    }
    println!("{count} changes, the largest {most} bytes, {} on average", sum / count);
}
