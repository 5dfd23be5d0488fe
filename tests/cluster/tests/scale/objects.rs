//! Tenon's nodes with their NodeClaims, and pods of ReplicaSets, as many as wanted.
//!
//! Decides names, digits and fields that compress as badly as those of a real cluster: Kubernetes' generated names,
//! EC2's ids, unused images and environments.

use serde_json::{Value, json};
use tenon_domain::digest::Digest;

/// The size of a cluster. Its workloads share its pods evenly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterSize {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) workloads: usize,
}

pub(crate) const NAMESPACE: &str = "shop";
/// The characters of Kubernetes' generated names. Source: k8s.io/apimachinery/pkg/util/rand, `alphanums` (1.35, read
/// 2026-11).
const LETTERS: [char; 27] = [
    'b', 'c', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w', 'x', 'z', '2',
    '4', '5', '6', '7', '8', '9',
];

/// So many hexadecimal digits that follow from nothing that anybody sees, always the same for a text.
fn digits(text: &str, count: usize) -> String {
    Digest::of_texts([text]).hex().chars().take(count).collect()
}

/// The end of a name.
fn suffix(text: &str, length: usize) -> String {
    let digest = Digest::of_texts([text]);
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).copied().unwrap_or('b');
    digest.bytes().iter().take(length).map(letter).collect()
}

fn node_name(n: usize) -> String {
    format!("ip-10-0-{}-{}.ec2.internal", n / 250, n % 250)
}

fn family(n: usize) -> &'static str {
    ["m5", "c5", "r5", "m6i", "c6i"].get(n % 5).expect("one of five")
}

fn zone(n: usize) -> String {
    format!("us-east-1{}", ["a", "b", "c"].get(n % 3).expect("one of three"))
}

fn labels(n: usize) -> Value {
    let family = family(n);
    let mut labels = json!({
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": node_name(n),
        "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot", "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": zone(n), "topology.k8s.aws/zone-id": format!("use1-az{}", n % 3),
        "node.kubernetes.io/instance-type": format!("{family}.2xlarge"),
    });
    for (label, value) in [
        ("instance-category", family.get(..1).expect("a letter")),
        ("instance-family", family),
        ("instance-generation", family.get(1..2).expect("a digit")),
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
        let labels = labels.as_object_mut().expect("labels are a map");
        labels.insert(format!("karpenter.k8s.aws/{label}"), json!(value));
    }
    labels
}

fn provider_id(n: usize) -> String {
    format!("aws:///{}/i-0{}", zone(n), digits(&format!("instance/{n}"), 16))
}

/// A Node with a kubelet's list of images.
pub(crate) fn node(n: usize) -> Value {
    let resources =
        json!({"cpu": "8", "memory": "31482280Ki", "pods": "58", "ephemeral-storage": "83873772Ki"});
    let image = |i: usize| {
        let digest = digits(&format!("image/{i}"), 64);
        json!({"names": [format!("registry.example.com/team/image-{i}@sha256:{digest}"),
            format!("registry.example.com/team/image-{i}:v1.2.3")], "sizeBytes": 100_000_000 + i})
    };
    let images: Vec<Value> = (0..40).map(image).collect();
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(n), "labels": labels(n),
            "annotations": {"csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{n:017x}\"}}"),
                "karpenter.sh/nodepool-hash": "1234567890123456789"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": provider_id(n)},
        "status": {"capacity": resources, "allocatable": resources, "images": images}})
}

/// A NodeClaim like the agent's, without the annotation that marks it as the agent's own.
pub(crate) fn node_claim(n: usize) -> Value {
    let labels = labels(n);
    let requirement =
        |key: &str| json!({"key": key, "operator": "In", "values": [labels.get(key).expect("a label")]});
    let requirements = [
        "karpenter.sh/nodepool",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "karpenter.sh/capacity-type",
    ]
    .map(requirement);
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("default-{}", suffix(&format!("claim/{n}"), 8)), "labels": labels,
            "annotations": {"karpenter.sh/nodepool-hash": "1234567890123456789"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": requirements,
            "resources": {"requests": {"cpu": "7110m", "memory": "21Gi", "pods": "20"}}, "expireAfter": "720h"}})
}

/// A workload's name, and the name of its ReplicaSet.
fn names(workload: usize) -> (String, String) {
    let kind = ["web", "orders", "billing-worker", "search-indexer"].get(workload % 4).expect("one of four");
    let app = format!("{kind}-{workload}");
    let set = format!("{app}-{}", suffix(&app, 10));
    (app, set)
}

/// The ReplicaSet of a workload. It is deleted and held by a finalizer: its controller leaves it alone, and its pods have
/// an owner.
pub(crate) fn replica_set(workload: usize) -> Value {
    let (app, set) = names(workload);
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": set, "namespace": NAMESPACE, "finalizers": ["tests.tenon.dev/held"]},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}}})
}

/// A pod of a workload, whose ReplicaSet has this UID. Without a node it stays pending, because its scheduler doesn't
/// exist.
pub(crate) fn pod(size: ClusterSize, n: usize, owner: &str, bound: Bound) -> Value {
    let workload = n % size.workloads;
    let (app, set) = names(workload);
    let env: Vec<Value> = (0..6)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": "some value that nobody here reads"}))
        .collect();
    let place = digits(&format!("place/{n}"), 8);
    let node = usize::from_str_radix(&place, 16).expect("hexadecimal digits") % size.nodes;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{set}-{}", suffix(&format!("pod/{n}"), 5)), "namespace": NAMESPACE,
            "labels": {"app": app, "pod-template-hash": suffix(&app, 10), "team": format!("team-{}", n % 20)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": owner,
                "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"schedulerName": "nobody", "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "app", "image": "registry.example.com/web:1", "env": env,
                "resources": {"requests": {"cpu": format!("{}m", 100 + workload), "memory": "256Mi"}}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}}}]}});
    if let (Bound::Yes, Some(spec)) = (bound, pod.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("nodeName".to_owned(), json!(node_name(node)));
    }
    pod
}

/// Whether a pod is bound when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Yes,
    No,
}
