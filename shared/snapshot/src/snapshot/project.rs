//! The projection of objects: the fields that scheduling and draining need, in Kubernetes' form.
//!
//! Decides which fields are dropped: images, commands, environment, names of secrets, probes. No reader needs them,
//! and data outside the table can't leak from it. Fields keep their names, so one reader serves manifests and
//! snapshots.

use serde_json::{Map, Value, json};
use tenon_domain::id::Uid;
use tenon_domain::labels::{DO_NOT_DISRUPT, NODEPOOL};

use crate::object::{self, Kind, list, text};

/// Labels that every pod of a controller has of its own: they stay with the pod, or no two pods would be alike.
const OWN_LABELS: [&str; 3] = [
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];
/// Annotations of pods that decide something.
const POD_ANNOTATIONS: [&str; 4] = [
    "karpenter.sh/do-not-disrupt",
    "controller.kubernetes.io/pod-deletion-cost",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
];
/// Fields of a pod's spec that decide its place, as they are.
const POD_FIELDS: [&str; 11] = [
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "tolerations",
    "overhead",
    "resources",
    "resourceClaims",
    "priority",
    "priorityClassName",
    "schedulingGates",
    "terminationGracePeriodSeconds",
];
/// An annotation with a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The pod's needs, without its own part: equal pods have equal shapes.
pub(crate) fn pod_shape(pod: &Value) -> Value {
    let mut shape = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata(pod),
        "spec": pod_spec(pod.get("spec").unwrap_or(&Value::Null)),
    });
    if let Some(metadata) = shape.get_mut("metadata").and_then(Value::as_object_mut) {
        // Readers ask for a name; the pod's own is in its row.
        metadata.insert("name".to_owned(), json!("shape"));
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
        }
    }
    let allocated = allocated(pod);
    if let (Some(fields), false) = (shape.as_object_mut(), allocated.is_empty()) {
        fields.insert("status".to_owned(), json!({"containerStatuses": allocated}));
    }
    shape
}

/// The pod's own part: `[name, uid, created, node, phase, flags, started, deleted, labels]`. Times are seconds since
/// 1970; absent trailing fields are dropped. Flags: `r` Ready, `u` Unschedulable, `g` SchedulingGated, `n` nominated.
///
/// Random digits don't compress, so a bound pod has only those that readers need: its name stands for its UID, its
/// creation time is dropped, and its start time stays only with `karpenter.sh/do-not-disrupt`.
pub(crate) fn pod_row(pod: &Value) -> Value {
    let seconds = |pointer: &str| object::time(pod, pointer).map_or(Value::Null, |at| json!(at.as_second()));
    let own: Map<String, Value> = object::texts(pod, "/metadata/labels")
        .filter(|(key, _)| OWN_LABELS.contains(key))
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let (name, node) = (object::name(pod), text(pod, "/spec/nodeName").unwrap_or_default());
    let (uid, created) = if node.is_empty() {
        (object::uid(pod), seconds("/metadata/creationTimestamp"))
    } else {
        (bound_uid(name, object::uid(pod)), Value::Null)
    };
    let asks = object::texts(pod, "/metadata/annotations").any(|(key, _)| key == DO_NOT_DISRUPT);
    let mut row = vec![
        json!(name),
        json!(uid),
        created,
        json!(node),
        json!(text(pod, "/status/phase").unwrap_or("Pending")),
        json!(flags(pod)),
        if asks { seconds("/status/startTime") } else { Value::Null },
        seconds("/metadata/deletionTimestamp"),
        if own.is_empty() { Value::Null } else { Value::Object(own) },
    ];
    while row.last() == Some(&Value::Null) {
        row.pop();
    }
    Value::Array(row)
}

/// The placeholder for a bound pod's UID: its name, unless that is longer than a UID may be.
fn bound_uid<'a>(name: &'a str, uid: &'a str) -> &'a str {
    if Uid::parse(name).is_ok() { name } else { uid }
}

fn flags(pod: &Value) -> String {
    let mut flags = String::new();
    if object::condition(pod, "Ready") == Some("True") {
        flags.push('r');
    }
    let scheduled = list(pod, "/status/conditions").iter().find(|c| text(c, "/type") == Some("PodScheduled"));
    if let Some(condition) = scheduled
        && text(condition, "/status") == Some("False")
    {
        match text(condition, "/reason") {
            Some("Unschedulable") => flags.push('u'),
            Some("SchedulingGated") => flags.push('g'),
            _ => {}
        }
    }
    if text(pod, "/status/nominatedNodeName").is_some_and(|node| !node.is_empty()) {
        flags.push('n');
    }
    flags
}

fn pod_metadata(pod: &Value) -> Value {
    let mut metadata = Map::new();
    let source = pod.get("metadata").unwrap_or(&Value::Null);
    copy(source, &mut metadata, &["namespace", "labels"]);
    let annotations: Map<String, Value> = object::texts(source, "/annotations")
        .filter(|(key, _)| POD_ANNOTATIONS.contains(key))
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    if let Some(owner) = object::controller(pod) {
        let mut reference = Map::new();
        copy(owner, &mut reference, &["apiVersion", "kind", "name", "uid", "controller"]);
        metadata.insert("ownerReferences".to_owned(), json!([reference]));
    }
    Value::Object(metadata)
}

fn pod_spec(spec: &Value) -> Value {
    let mut projected = Map::new();
    copy(spec, &mut projected, &POD_FIELDS);
    copy(spec, &mut projected, &["schedulerName"]);
    for field in ["containers", "initContainers"] {
        let containers: Vec<Value> = list(spec, &format!("/{field}")).iter().map(container).collect();
        if !containers.is_empty() {
            projected.insert(field.to_owned(), Value::Array(containers));
        }
    }
    let volumes: Vec<Value> = list(spec, "/volumes").iter().filter_map(volume).collect();
    if !volumes.is_empty() {
        projected.insert("volumes".to_owned(), Value::Array(volumes));
    }
    Value::Object(projected)
}

fn container(container: &Value) -> Value {
    let mut projected = Map::new();
    copy(container, &mut projected, &["name", "resources", "restartPolicy"]);
    let ports: Vec<Value> = list(container, "/ports")
        .iter()
        .filter(|port| port.get("hostPort").and_then(Value::as_u64).unwrap_or(0) > 0)
        .cloned()
        .collect();
    if !ports.is_empty() {
        projected.insert("ports".to_owned(), Value::Array(ports));
    }
    Value::Object(projected)
}

fn volume(volume: &Value) -> Option<Value> {
    let mut projected = Map::new();
    copy(volume, &mut projected, &["name", "persistentVolumeClaim", "ephemeral"]);
    (projected.len() > 1).then_some(Value::Object(projected))
}

/// The node's reserve for containers that are being resized in place.
fn allocated(pod: &Value) -> Vec<Value> {
    let requested = |name: &str| {
        let containers = list(pod, "/spec/containers").iter();
        containers
            .into_iter()
            .find(|c| text(c, "/name") == Some(name))
            .and_then(|c| c.pointer("/resources/requests"))
    };
    let differs = |status: &&Value| {
        let allocated = status.get("allocatedResources");
        allocated.is_some() && allocated != requested(text(status, "/name").unwrap_or_default())
    };
    let project = |status: &Value| json!({"name": status.get("name"), "allocatedResources": status.get("allocatedResources")});
    list(pod, "/status/containerStatuses").iter().filter(differs).map(project).collect()
}

/// A Node.
pub(super) fn node(node: &Value) -> Value {
    let condition = |c: &Value| {
        let mut condition = Map::new();
        copy(c, &mut condition, &["type", "status", "lastTransitionTime"]);
        Value::Object(condition)
    };
    let conditions: Vec<Value> = list(node, "/status/conditions").iter().map(condition).collect();
    let mut metadata = metadata(node);
    // No reader needs a Node's generation or its UID, 18 incompressible bytes; foreign annotations change every
    // minute.
    metadata.remove("generation");
    metadata.remove("uid");
    retain(&mut metadata, "annotations", |key| key.contains("karpenter.") || key.starts_with("tenon.dev/"));
    let mut spec = Map::new();
    copy(node.get("spec").unwrap_or(&Value::Null), &mut spec, &["providerID", "taints", "unschedulable"]);
    let mut status = Map::new();
    copy(node.get("status").unwrap_or(&Value::Null), &mut status, &["capacity", "allocatable"]);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    whole(node, metadata, json!(spec), Some(json!(status)))
}

/// A DaemonSet: its template.
pub(super) fn daemon_set(set: &Value) -> Value {
    let template = set.pointer("/spec/template").unwrap_or(&Value::Null);
    let template = json!({
        "metadata": pod_metadata(template),
        "spec": pod_spec(template.get("spec").unwrap_or(&Value::Null)),
    });
    let mut spec = Map::new();
    copy(set.get("spec").unwrap_or(&Value::Null), &mut spec, &["selector"]);
    spec.insert("template".to_owned(), template);
    whole(set, metadata(set), json!(spec), None)
}

/// A PodDisruptionBudget.
pub(super) fn pdb(pdb: &Value) -> Value {
    let mut status = Map::new();
    copy(pdb.get("status").unwrap_or(&Value::Null), &mut status, &["disruptionsAllowed"]);
    let mut metadata = metadata(pdb);
    metadata.remove("generation");
    whole(pdb, metadata, pdb.get("spec").cloned().unwrap_or(Value::Null), Some(json!(status)))
}

/// A PersistentVolume, a claim for one, or a StorageClass.
pub(super) fn volume_object(object: &Value) -> Value {
    let source = object.get("spec").unwrap_or(&Value::Null);
    let mut spec = Map::new();
    copy(source, &mut spec, &["nodeAffinity", "storageClassName", "volumeName"]);
    if let Some(driver) = text(source, "/csi/driver") {
        spec.insert("csi".to_owned(), json!({"driver": driver}));
    }
    let phase = text(object, "/status/phase").map(|phase| json!({"phase": phase}));
    let mut projected = whole(object, metadata(object), json!(spec), phase);
    if let Some(fields) = projected.as_object_mut() {
        copy(object, fields, &["provisioner", "volumeBindingMode", "allowedTopologies"]);
    }
    projected
}

/// A NodePool or EC2NodeClass: all of its spec.
pub(super) fn karpenter_object(object: &Value) -> Value {
    whole(object, metadata(object), object.get("spec").cloned().unwrap_or(Value::Null), None)
}

/// A NodeClaim: its whole spec, and the parts of its status about its Node. Of its labels only the NodePool's stays,
/// because Node and requirements repeat the others; the table has the rest of the claim.
pub(super) fn node_claim(claim: &Value) -> Value {
    let metadata = claim_metadata(claim, |key| key == DO_NOT_DISRUPT);
    let mut status = Map::new();
    copy(claim.get("status").unwrap_or(&Value::Null), &mut status, &["providerID", "nodeName"]);
    let status = (!status.is_empty()).then_some(json!(status));
    whole(claim, metadata, claim.get("spec").cloned().unwrap_or(Value::Null), status)
}

fn claim_metadata(claim: &Value, annotations: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut metadata = metadata(claim);
    metadata.remove("uid");
    retain(&mut metadata, "labels", |key| key == NODEPOOL);
    retain(&mut metadata, "annotations", annotations);
    metadata
}

/// Keeps the entries of a map of `metadata` whose keys are wanted.
fn retain(metadata: &mut Map<String, Value>, field: &str, wanted: impl Fn(&str) -> bool) {
    if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| wanted(key));
        if map.is_empty() {
            metadata.remove(field);
        }
    }
}

/// The part of an object that a store keeps: everything that its projection and the agent's plans read. Its
/// projection equals the whole object's. Pods are kept as [`crate::pod::SeenPod`].
#[must_use]
pub fn keep(kind: Kind, object: &Value) -> Value {
    let mut kept = match kind {
        Kind::Node => node(object),
        Kind::DaemonSet => daemon_set(object),
        Kind::PodDisruptionBudget => pdb(object),
        Kind::PersistentVolume | Kind::PersistentVolumeClaim | Kind::StorageClass => volume_object(object),
        Kind::Namespace => namespace(object),
        // Their statuses are written here, and compared before.
        Kind::NodePool | Kind::Ec2NodeClass => written_here(object, metadata(object)),
        // An annotation names the owner.
        Kind::NodeClaim => {
            let ours = |key: &str| key == DO_NOT_DISRUPT || key.starts_with("tenon.dev/");
            written_here(object, claim_metadata(object, ours))
        }
        Kind::Pod
        | Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::Job
        | Kind::PriorityClass
        | Kind::Lease => object.clone(),
    };
    let source = object.get("metadata").unwrap_or(&Value::Null);
    if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
        copy(source, metadata, &["uid", "resourceVersion", "ownerReferences"]);
    }
    kept
}

/// An object with all of its spec and status.
fn written_here(object: &Value, metadata: Map<String, Value>) -> Value {
    let spec = object.get("spec").map_or(Value::Null, packed);
    whole(object, metadata, spec, object.get("status").map(packed))
}

/// A Namespace: its labels.
pub(super) fn namespace(namespace: &Value) -> Value {
    let mut metadata = Map::new();
    copy(namespace.get("metadata").unwrap_or(&Value::Null), &mut metadata, &["name", "labels"]);
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn metadata(object: &Value) -> Map<String, Value> {
    let mut metadata = Map::new();
    let fields = [
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "finalizers",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
    ];
    copy(object.get("metadata").unwrap_or(&Value::Null), &mut metadata, &fields);
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    metadata
}

fn whole(object: &Value, metadata: Map<String, Value>, spec: Value, status: Option<Value>) -> Value {
    let mut whole = Map::new();
    copy(object, &mut whole, &["apiVersion", "kind"]);
    whole.insert("metadata".to_owned(), Value::Object(metadata));
    if !spec.is_null() {
        whole.insert("spec".to_owned(), spec);
    }
    if let Some(status) = status {
        whole.insert("status".to_owned(), status);
    }
    Value::Object(whole)
}

fn copy(from: &Value, to: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        if let Some(value) = from.get(*field).filter(|value| !value.is_null()) {
            to.insert((*field).to_owned(), packed(value));
        }
    }
}

/// A copy with tight maps: maps filled while parsing have half their capacity unused.
fn packed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), packed(value))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(packed).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
