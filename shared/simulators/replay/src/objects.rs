//! What a plan is about, as objects of Kubernetes: pods, volumes, DaemonSets, Nodes.
//!
//! A real API server takes them, too, but for the owners' UIDs, which it makes itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, NodeSelectorTerm, PodAffinityTerm, PodShape, PodVolume,
    TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::api::storage::{ClaimUsers, CsiNode, VolumeBinding};
use tenon_domain::api::workload::DaemonSet;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{Taint, Toleration};
use tenon_planning::provision::{ProvisionInput, Storage};

/// The priority of Kubernetes' own class for what a node can't be without.
const NODE_CRITICAL: i32 = 2_000_001_000;
/// The owners of pods that are there, with their names as UIDs.
const OWNERS: [&str; 2] = ["ReplicaSet", "DaemonSet"];

/// Amounts as a status has them.
#[must_use]
pub fn quantities(list: &ResourceList) -> Value {
    let all = list.iter().map(|(name, amount)| (name.to_string(), json!(amount.to_string())));
    Value::Object(all.collect())
}

/// Taints as a Node has them.
#[must_use]
pub fn taints(all: &[Taint]) -> Value {
    let one =
        |taint: &Taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str()});
    all.iter().map(one).collect()
}

fn expressions<'r>(all: impl IntoIterator<Item = &'r Requirement>) -> Value {
    let written = all.into_iter().flat_map(Requirement::to_node_selector);
    written
        .map(|one| json!({"key": one.key, "operator": one.operator.as_str(), "values": one.values}))
        .collect()
}

fn selector(of: &LabelSelector) -> Value {
    json!({"matchExpressions": expressions(&of.requirements)})
}

fn node_term(of: &NodeSelectorTerm) -> Value {
    json!({"matchExpressions": expressions(&of.match_expressions), "matchFields": expressions(&of.match_fields)})
}

fn pod_term(of: &PodAffinityTerm) -> Value {
    json!({
        "labelSelector": of.selector.as_ref().map(selector),
        "namespaces": of.namespaces,
        "namespaceSelector": of.namespace_selector.as_ref().map(selector),
        "topologyKey": of.topology_key,
        "matchLabelKeys": of.match_label_keys,
        "mismatchLabelKeys": of.mismatch_label_keys,
    })
}

fn constraint(of: &TopologySpreadConstraint) -> Value {
    let policy = |of: NodeInclusionPolicy| match of {
        NodeInclusionPolicy::Honor => "Honor",
        NodeInclusionPolicy::Ignore => "Ignore",
    };
    json!({
        "maxSkew": of.max_skew,
        "topologyKey": of.topology_key,
        "whenUnsatisfiable": match of.when_unsatisfiable {
            WhenUnsatisfiable::DoNotSchedule => "DoNotSchedule",
            WhenUnsatisfiable::ScheduleAnyway => "ScheduleAnyway",
        },
        "labelSelector": of.selector.as_ref().map(selector),
        "minDomains": of.min_domains,
        "nodeAffinityPolicy": policy(of.node_affinity_policy),
        "nodeTaintsPolicy": policy(of.node_taints_policy),
        "matchLabelKeys": of.match_label_keys,
    })
}

fn affinity(of: &PodShape) -> Value {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let pods = |required: &[PodAffinityTerm], preferred: &[(i32, PodAffinityTerm)]| {
        let weighted = |(weight, term): &(i32, PodAffinityTerm)| json!({"weight": weight, "podAffinityTerm": pod_term(term)});
        json!({
            REQUIRED: required.iter().map(pod_term).collect::<Vec<_>>(),
            PREFERRED: preferred.iter().map(weighted).collect::<Vec<_>>(),
        })
    };
    let weighted =
        |(weight, term): &(i32, NodeSelectorTerm)| json!({"weight": weight, "preference": node_term(term)});
    let mut nodes = Map::new();
    if !of.required_node_affinity.is_empty() {
        let terms: Vec<Value> = of.required_node_affinity.iter().map(node_term).collect();
        nodes.insert(REQUIRED.to_owned(), json!({"nodeSelectorTerms": terms}));
    }
    nodes.insert(PREFERRED.to_owned(), of.preferred_node_affinity.iter().map(weighted).collect());
    json!({
        "nodeAffinity": nodes,
        "podAffinity": pods(&of.required_pod_affinity, &of.preferred_pod_affinity),
        "podAntiAffinity": pods(&of.required_pod_anti_affinity, &of.preferred_pod_anti_affinity),
    })
}

fn spec(of: &PodShape) -> Value {
    let ports: Vec<Value> = of
        .host_ports
        .iter()
        .map(|port| json!({"containerPort": port.port, "hostPort": port.port, "hostIP": port.ip, "protocol": port.protocol}))
        .collect();
    let tolerations: Vec<Value> = of.tolerations.iter().map(toleration).collect();
    let volumes = of.volumes.iter().enumerate().map(|(index, volume)| match volume {
        PodVolume::Claim(name) => {
            json!({"name": format!("v{index}"), "persistentVolumeClaim": {"claimName": name}})
        }
        PodVolume::Ephemeral { volume, storage_class } => json!({"name": volume,
            "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": storage_class}}}}),
    });
    let mut requests = quantities(&of.requests);
    if let Some(requests) = requests.as_object_mut() {
        requests.remove("pods");
    }
    json!({
        "containers": [{"name": "a", "image": "a", "resources": {"requests": requests}, "ports": ports}],
        "nodeSelector": of.node_selector,
        "affinity": affinity(of),
        "topologySpreadConstraints": of.topology_spread.iter().map(constraint).collect::<Vec<_>>(),
        "tolerations": tolerations,
        "volumes": volumes.collect::<Vec<_>>(),
        "priority": of.priority,
        "priorityClassName": (of.priority != 0).then(|| priority_class(of.priority)),
        "schedulerName": "default-scheduler",
    })
}

/// The name of the PriorityClass of a priority.
fn priority_class(priority: i32) -> String {
    match priority {
        NODE_CRITICAL => "system-node-critical".to_owned(),
        other => format!("priority-{other}"),
    }
}

fn toleration(of: &Toleration) -> Value {
    json!({"key": of.key, "operator": of.operator.as_str(), "value": of.value,
        "effect": of.effect.map(|effect| effect.as_str())})
}

/// A pod of a shape, on a node or waiting.
#[must_use]
pub fn pod(name: &str, shape: &PodShape, node: Option<&str>) -> Value {
    let owners: Vec<Value> = shape
        .owner
        .iter()
        .filter(|owner| OWNERS.contains(&owner.kind.as_str()))
        .map(|owner| {
            json!({"apiVersion": "apps/v1", "kind": owner.kind, "name": owner.name, "uid": owner.name, "controller": true})
        })
        .collect();
    let mut spec = spec(shape);
    if let (Some(node), Some(fields)) = (node, spec.as_object_mut()) {
        fields.insert("nodeName".to_owned(), json!(node));
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": shape.namespace, "labels": shape.labels, "ownerReferences": owners},
        "spec": spec,
    })
}

/// A Node that takes pods.
#[must_use]
pub fn node(
    name: &str,
    labels: &BTreeMap<String, String>,
    tainted: &[Taint],
    allocatable: &ResourceList,
) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints(tainted)},
        "status": {
            "allocatable": quantities(allocatable),
            "capacity": quantities(allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Namespaces, PriorityClasses, volumes, DaemonSets and the owners of pods.
#[must_use]
pub fn surroundings(input: &ProvisionInput) -> Vec<Value> {
    let mut all: Vec<Value> = input
        .namespaces
        .iter()
        .map(|(name, labels)| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
        .collect();
    all.extend(priority_classes(input));
    all.extend(storage(&input.storage));
    all.extend(input.daemon_sets.iter().map(daemon_set));
    all.extend(replica_sets(input));
    all
}

/// Nobody is preempted for their pods, as nothing here simulates that.
fn priority_classes(input: &ProvisionInput) -> Vec<Value> {
    let running = input.nodes.iter().flat_map(|node| node.occupancy.shapes());
    let all = input.pods.iter().map(|pod| &pod.shape).chain(running).map(|shape| shape.priority);
    let priorities: BTreeSet<i32> = all.filter(|priority| ![0, NODE_CRITICAL].contains(priority)).collect();
    let one = |priority: &i32| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": priority_class(*priority)}, "value": priority, "preemptionPolicy": "Never"})
    };
    priorities.iter().map(one).collect()
}

fn storage(of: &Storage) -> Vec<Value> {
    let claims = of.claims.iter().map(|claim| {
        let bound = claim.volume.as_ref().map(|_| json!({"pv.kubernetes.io/bind-completed": "yes"}));
        let mode = match claim.users {
            ClaimUsers::Many => "ReadWriteOnce",
            ClaimUsers::OnePod => "ReadWriteOncePod",
        };
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim.meta.name, "namespace": claim.meta.namespace, "annotations": bound},
            "spec": {"storageClassName": claim.storage_class, "volumeName": claim.volume,
                "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": claim.phase}})
    });
    let volumes = of.volumes.iter().map(|volume| {
        let terms: Vec<Value> = volume.node_affinity.iter().map(node_term).collect();
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume.meta.name},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": volume.driver.as_ref().map(|driver| json!({"driver": driver, "volumeHandle": volume.meta.name}))}})
    });
    let classes = of.classes.iter().map(|class| {
        let topologies = class.allowed_topologies.iter().map(|term| {
            let labels = term.match_expressions.iter().map(|one| json!({"key": one.key(), "values": one.values()}));
            json!({"matchLabelExpressions": labels.collect::<Vec<_>>()})
        });
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class.meta.name},
            "provisioner": class.provisioner, "volumeBindingMode": match class.binding {
                VolumeBinding::Immediate => "Immediate",
                VolumeBinding::WaitForFirstConsumer => "WaitForFirstConsumer",
            },
            "allowedTopologies": topologies.collect::<Vec<_>>()})
    });
    claims.chain(volumes).chain(classes).chain(of.nodes.iter().map(csi_node)).collect()
}

/// A CSINode.
#[must_use]
pub fn csi_node(of: &CsiNode) -> Value {
    let driver = |(name, most): (&String, &Option<u32>)| json!({"name": name, "nodeID": of.meta.name, "allocatable": most.map(|most| json!({"count": most}))});
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": of.meta.name},
        "spec": {"drivers": of.drivers.iter().map(driver).collect::<Vec<_>>()}})
}

fn daemon_set(of: &DaemonSet) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": of.meta.name, "namespace": of.meta.namespace, "uid": of.meta.name},
        "spec": {"template": {"metadata": {"labels": of.template.labels}, "spec": spec(&of.template)}}})
}

/// ReplicaSets with as many pods as there are, so that their controller neither makes nor deletes any.
fn replica_sets(input: &ProvisionInput) -> Vec<Value> {
    let mut found: BTreeMap<&str, (usize, &PodShape)> = BTreeMap::new();
    let running = input.nodes.iter().flat_map(|node| node.occupancy.shapes());
    for shape in input.pods.iter().map(|pod| &pod.shape).chain(running) {
        if let Some(owner) = shape.owner.as_ref().filter(|owner| owner.kind == "ReplicaSet") {
            found.entry(&owner.name).or_insert((0, shape)).0 += 1;
        }
    }
    let one = |(name, (count, shape)): (&str, (usize, &PodShape))| {
        let template = json!({"metadata": {"labels": shape.labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": shape.namespace, "uid": name},
            "spec": {"replicas": count, "selector": {"matchLabels": shape.labels}, "template": template}})
    };
    found.into_iter().map(one).collect()
}
