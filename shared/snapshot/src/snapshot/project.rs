//! What of an object is kept, and what crosses to the table: what [`tenon_domain::manifest`] reads, in Kubernetes' form.
//!
//! Decides what is left out beside that: what stays with the agent, annotations that nobody asks for, and what differs
//! from pod to pod of one controller. Images, commands, environment, secrets' names and probes are no fields that are
//! read: what isn't in the table can't leak from it. Fields keep their names, so one reader reads manifests and snapshots.

use serde_json::{Map, Value, json};
use tenon_domain::id::Uid;
use tenon_domain::labels::{
    DO_NOT_DISRUPT, EC2NODECLASS_HASH, EC2NODECLASS_HASH_VERSION, NODEPOOL, NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION, TERMINATION_TIMESTAMP,
};
use tenon_domain::manifest;

use crate::object::{self, Kind, list, text};

/// Labels that differ between pods of a controller. They stay with the pod, or no two pods would share a shape.
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
/// Kinds of which only the name counts in `metadata`.
const NAMED: [Kind; 3] = [Kind::CsiNode, Kind::VolumeAttachment, Kind::Service];
/// The annotations with a class's hash.
const CLASS_HASHES: [&str; 2] = [EC2NODECLASS_HASH, EC2NODECLASS_HASH_VERSION];
/// The annotations with a pool's hash.
const POOL_HASHES: [&str; 2] = [NODEPOOL_HASH, NODEPOOL_HASH_VERSION];
/// An annotation with a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The parts of an object that a store keeps, because functions or the agent's plans read them. Idempotent.
/// Pods are kept as [`crate::pod::SeenPod`].
#[must_use]
pub fn keep(kind: Kind, mut object: Value) -> Value {
    if kind == Kind::Pod || kind.chunks().is_none() {
        return object;
    }
    manifest::keep(kind.as_str(), &mut object);
    if let Some(metadata) = fields(&mut object, "/metadata") {
        let ours = |key: &str| key.starts_with("tenon.dev/");
        if kind == Kind::Node {
            // Other agents' annotations change every minute.
            retain(metadata, "annotations", |key| key.contains("karpenter.") || ours(key));
        } else if kind == Kind::NodeClaim {
            // It repeats the labels of its Node and of its requirements; an annotation says whose it is, and one when its
            // drain ends.
            retain(metadata, "labels", |key| key == NODEPOOL);
            let used = [DO_NOT_DISRUPT, TERMINATION_TIMESTAMP];
            retain(metadata, "annotations", |key| used.contains(&key) || ours(key));
        } else if NAMED.contains(&kind) {
            metadata.retain(|field, _| ["name", "namespace", "resourceVersion"].contains(&field.as_str()));
        } else {
            retain(metadata, "annotations", |key| key != LAST_APPLIED);
        }
    }
    if let Some(template) = object.pointer_mut("/spec/template").filter(|_| kind == Kind::DaemonSet) {
        share(template);
    }
    packed(&object)
}

/// The parts of an object that are sent: the kept ones, without those that only the agent reads.
pub(super) fn sent(object: &Value) -> Value {
    let Some(kind) = text(object, "/kind").and_then(Kind::parse) else { return object.clone() };
    let mut sent = keep(kind, object.clone());
    if let Some(metadata) = fields(&mut sent, "/metadata") {
        metadata.retain(|field, _| !stays(kind, field));
        // The agent's own writes, from the table.
        retain(metadata, "annotations", |key| !CLASS_HASHES.contains(&key));
        if kind == Kind::NodePool {
            retain(metadata, "annotations", |key| !POOL_HASHES.contains(&key));
        }
        if kind == Kind::NodeClaim {
            retain(metadata, "annotations", |key| [DO_NOT_DISRUPT, TERMINATION_TIMESTAMP].contains(&key));
        }
        // Its own name is 64 digits that nothing packs, and nobody asks for it.
        if let (Kind::VolumeAttachment, Some(volume)) =
            (kind, text(object, "/spec/source/persistentVolumeName"))
        {
            metadata.insert("name".to_owned(), json!(volume));
        }
    }
    if let Some(fields) = sent.as_object_mut() {
        if [Kind::NodePool, Kind::Ec2NodeClass].contains(&kind) {
            // Their statuses are written here, and compared before.
            fields.remove("status");
        } else if kind == Kind::NodeClaim {
            // What else became of the claim is in the table already.
            let used = ["providerID", "nodeName", "lastPodEventTime"];
            retain(fields, "status", |key| used.contains(&key));
        }
    }
    sent
}

/// Whether a field of `metadata` stays with the agent. Generations of Nodes count heartbeats' neighbours; nobody asks for
/// a Node's UID, which is 18 bytes that nothing packs.
fn stays(kind: Kind, field: &str) -> bool {
    match field {
        "resourceVersion" | "ownerReferences" => true,
        "generation" => [Kind::Node, Kind::PodDisruptionBudget, Kind::Namespace].contains(&kind),
        "uid" => [Kind::Node, Kind::NodeClaim, Kind::Namespace].contains(&kind),
        "annotations" | "finalizers" | "creationTimestamp" | "deletionTimestamp" => kind == Kind::Namespace,
        _ => false,
    }
}

/// The pod's needs, without its own part: equal pods have equal shapes.
pub(crate) fn pod_shape(pod: &Value) -> Value {
    let mut shape = pod.clone();
    manifest::keep("Pod", &mut shape);
    let allocated = allocated(&shape);
    share(&mut shape);
    if let Some(fields) = shape.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!("v1"));
        fields.insert("kind".to_owned(), json!("Pod"));
        fields.remove("status");
        if !allocated.is_empty() {
            fields.insert("status".to_owned(), Value::Object(allocated));
        }
        // Readers ask for a name; the pod's own is in its row.
        if let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
            metadata.insert("name".to_owned(), json!("shape"));
        }
        fields.entry("spec").or_insert_with(|| json!({}));
    }
    shape
}

/// Takes out of a pod, or of a template, what says nothing of its needs.
fn share(pod: &mut Value) {
    let kept = |owner: &Value| -> Value {
        let fields = ["apiVersion", "kind", "name", "uid", "controller"];
        fields.iter().filter_map(|field| Some(((*field).to_owned(), owner.get(*field)?.clone()))).collect()
    };
    let says =
        |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true)) || object::is_node_owner(owner);
    let owners: Vec<Value> = list(pod, "/metadata/ownerReferences").iter().filter(says).map(kept).collect();
    if let Some(metadata) = fields(pod, "/metadata") {
        metadata.retain(|field, _| ["namespace", "labels", "annotations"].contains(&field.as_str()));
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
        }
        retain(metadata, "annotations", |key| POD_ANNOTATIONS.contains(&key));
        if !owners.is_empty() {
            metadata.insert("ownerReferences".to_owned(), Value::Array(owners));
        }
    }
    let Some(spec) = fields(pod, "/spec") else { return };
    // On the host's network the API server says of every port that it is one of the host's.
    spec.retain(|field, value| !value.is_null() && !["nodeName", "hostNetwork"].contains(&field.as_str()));
    for containers in ["containers", "initContainers"] {
        for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            let on_host = |port: &Value| port.get("hostPort").and_then(Value::as_u64).unwrap_or(0) > 0;
            retain_elements(container, "ports", on_host);
        }
    }
    if let Some(spec) = pod.get_mut("spec") {
        retain_elements(spec, "volumes", |volume| volume.as_object().is_some_and(|volume| volume.len() > 1));
    }
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
    let (uid, since) = if node.is_empty() {
        (object::uid(pod), seconds("/metadata/creationTimestamp"))
    } else {
        (bound_uid(name, object::uid(pod)), scheduled(pod).map_or(Value::Null, bound_seconds))
    };
    let asks = object::texts(pod, "/metadata/annotations").any(|(key, _)| key == DO_NOT_DISRUPT);
    let mut row = vec![
        json!(name),
        json!(uid),
        since,
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

fn scheduled(pod: &Value) -> Option<&Value> {
    list(pod, "/status/conditions").iter().find(|c| text(c, "/type") == Some("PodScheduled"))
}

/// When a bound pod was bound.
fn bound_seconds(scheduled: &Value) -> Value {
    let bound = text(scheduled, "/status") == Some("True");
    let at = object::time(scheduled, "/lastTransitionTime").filter(|_| bound);
    at.map_or(Value::Null, |at| json!(at.as_second()))
}

fn flags(pod: &Value) -> String {
    let mut flags = String::new();
    if object::condition(pod, "Ready") == Some("True") {
        flags.push('r');
    }
    if let Some(condition) = scheduled(pod)
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

/// The fields with the node's reserve, for the pod and for containers: they say something of their own while these are
/// being resized in place.
const RESERVES: [&str; 2] = ["allocatedResources", "resources"];

/// The parts of a pod's status that reserve other resources than its spec requests.
fn allocated(pod: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    for (statuses, containers) in
        [("containerStatuses", "/spec/containers"), ("initContainerStatuses", "/spec/initContainers")]
    {
        let of_spec = |status: &Value| {
            list(pod, containers).iter().find(|one| text(one, "/name") == text(status, "/name"))
        };
        let resized = list(pod, &format!("/status/{statuses}")).iter().filter_map(|status| {
            let mut reserves = resized(status, of_spec(status))?;
            reserves.insert("name".to_owned(), status.get("name")?.clone());
            Some(Value::Object(reserves))
        });
        let resized: Vec<Value> = resized.collect();
        if !resized.is_empty() {
            found.insert(statuses.to_owned(), Value::Array(resized));
        }
    }
    found.extend(pod.get("status").and_then(|status| resized(status, pod.get("spec"))).into_iter().flatten());
    // Then the reserve counts alone.
    let pending = list(pod, "/status/conditions").iter().find(|one| is_of_resize(one));
    if let Some(pending) = pending.filter(|pending| text(pending, "/reason") == Some("Infeasible"))
        && !found.is_empty()
    {
        let kept =
            json!({"type": "PodResizePending", "status": pending.get("status"), "reason": "Infeasible"});
        found.insert("conditions".to_owned(), json!([kept]));
    }
    found
}

fn is_of_resize(condition: &Value) -> bool {
    text(condition, "/type") == Some("PodResizePending")
}

/// The reserves of a status, if one of them differs from what the spec requests.
fn resized(status: &Value, spec: Option<&Value>) -> Option<Map<String, Value>> {
    let requested = spec.and_then(|spec| object::at(spec, "/resources/requests"));
    let differs = |field: &str| {
        let pointer = if field == "resources" { "/resources/requests" } else { "/allocatedResources" };
        let reserved = object::at(status, pointer);
        reserved.is_some() && reserved != requested
    };
    let kept = RESERVES.into_iter().filter_map(|field| Some((field.to_owned(), status.get(field)?.clone())));
    RESERVES.into_iter().any(differs).then(|| kept.collect())
}

fn fields<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer)?.as_object_mut()
}

/// Keeps the wanted elements of a list, and drops an empty list.
fn retain_elements(of: &mut Value, field: &str, wanted: impl Fn(&Value) -> bool) {
    let Some(fields) = of.as_object_mut() else { return };
    if let Some(elements) = fields.get_mut(field).and_then(Value::as_array_mut) {
        elements.retain(wanted);
        if elements.is_empty() {
            fields.remove(field);
        }
    }
}

/// Keeps the wanted entries of a map, and drops an empty map.
fn retain(fields: &mut Map<String, Value>, field: &str, wanted: impl Fn(&str) -> bool) {
    if let Some(map) = fields.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| wanted(key));
        if map.is_empty() {
            fields.remove(field);
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
