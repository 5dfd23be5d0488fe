//! Which reader reads a document, and where its object goes.
//!
//! Decides by `apiVersion` and `kind`. Kinds that nothing here needs are skipped with a warning; a kind that is read,
//! under a wrong version, is an error, since it would be left out silently otherwise.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::meta::ObjectMeta;
use crate::api::workload::WorkloadKind;
use crate::requirement::hints::nearest;

use super::decode::{At, Fields};
use super::meta::{Scope, read_meta};
use super::tree::{Tree, Value};
use super::{Manifests, Object};
use super::{node, node_claim, node_class, node_pool, pdb, pod, storage, workload};

/// Kinds that are read, each with its `apiVersion`.
const KINDS: [(&str, &str); 18] = [
    ("Pod", "v1"),
    ("Node", "v1"),
    ("Namespace", "v1"),
    ("PersistentVolume", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Deployment", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
    ("StorageClass", "storage.k8s.io/v1"),
    ("PriorityClass", "scheduling.k8s.io/v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("NodePool", "karpenter.sh/v1"),
    ("NodeClaim", "karpenter.sh/v1"),
    ("EC2NodeClass", "karpenter.k8s.aws/v1"),
    ("List", "v1"),
];
/// A kind of Karpenter's that exists and isn't read.
const NODE_OVERLAY: &str = "NodeOverlay";

/// Objects by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Collected {
    objects: BTreeMap<(String, String, String), Object>,
    skipped: BTreeSet<String>,
}

impl Collected {
    fn add(&mut self, at: At<'_>, object: Object) {
        let key = match &object {
            Object::Pod(o) => ("Pod", o.name.namespace.clone(), o.name.name.clone()),
            Object::Workload(o) => keyed(workload::kind_name(o.kind), &o.meta),
            Object::DaemonSet(o) => keyed("DaemonSet", &o.meta),
            Object::Node(o) => keyed("Node", &o.meta),
            Object::PersistentVolume(o) => keyed("PersistentVolume", &o.meta),
            Object::PersistentVolumeClaim(o) => keyed("PersistentVolumeClaim", &o.meta),
            Object::StorageClass(o) => keyed("StorageClass", &o.meta),
            Object::Namespace(o) => keyed("Namespace", o),
            Object::PodDisruptionBudget(o) => keyed("PodDisruptionBudget", &o.meta),
            Object::NodePool(o) => keyed("NodePool", &o.meta),
            Object::NodeClass(o) => keyed("EC2NodeClass", &o.meta),
            Object::NodeClaim(o) => keyed("NodeClaim", &o.meta),
            Object::PriorityClass(_) => return,
            Object::Skipped(kind) => {
                at.warn(format!("kind `{kind}` isn't read"), "nothing that is decided here depends on it");
                self.skipped.insert(kind.clone());
                return;
            }
        };
        let (kind, namespace, name) = key;
        let full = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        if self.objects.insert((namespace, name, kind.to_owned()), object).is_some() {
            at.warn(format!("{kind} `{full}` is given twice; the last one counts"), "keep one of them");
        }
    }

    pub(super) fn into_manifests(self) -> Manifests {
        let mut manifests = Manifests { skipped: self.skipped.into_iter().collect(), ..Manifests::default() };
        for object in self.objects.into_values() {
            match object {
                Object::Pod(o) => manifests.pods.push(*o),
                Object::Workload(o) => manifests.workloads.push(*o),
                Object::DaemonSet(o) => manifests.daemon_sets.push(*o),
                Object::Node(o) => manifests.nodes.push(*o),
                Object::PersistentVolume(o) => manifests.persistent_volumes.push(*o),
                Object::PersistentVolumeClaim(o) => manifests.persistent_volume_claims.push(*o),
                Object::StorageClass(o) => manifests.storage_classes.push(*o),
                Object::Namespace(o) => manifests.namespaces.push(*o),
                Object::PodDisruptionBudget(o) => manifests.pdbs.push(*o),
                Object::NodePool(o) => manifests.node_pools.push(*o),
                Object::NodeClass(o) => manifests.node_classes.push(*o),
                Object::NodeClaim(o) => manifests.node_claims.push(*o),
                Object::PriorityClass(_) | Object::Skipped(_) => {}
            }
        }
        manifests
    }
}

fn keyed(kind: &'static str, meta: &ObjectMeta) -> (&'static str, String, String) {
    (kind, meta.namespace.clone(), meta.name.clone())
}

/// The kind of a list's items; `None` if this isn't a list. Items of `List` say their kind themselves.
fn item_kind(tree: &Tree) -> Option<Option<&str>> {
    let kind = tree.text("kind")?.strip_suffix("List")?;
    matches!(tree.get("items").map(|entry| &entry.value.value), Some(Value::List(_) | Value::Null))
        .then_some((!kind.is_empty()).then_some(kind))
}

/// Goes through an object, or through the items of a list.
pub(super) fn each_item(tree: &Tree, visit: &mut impl FnMut(&Tree)) {
    match tree.get("items").map(|entry| &entry.value.value) {
        Some(Value::List(items)) if item_kind(tree).is_some() => {
            items.iter().for_each(|item| each_item(item, visit))
        }
        Some(_) | None => visit(tree),
    }
}

/// Reads a document: an object or a list of them.
pub(super) fn read_document(at: At<'_>, into: &mut Collected) {
    if at.tree().value == Value::Null {
        return;
    }
    read_item(at, None, into);
}

fn read_item(at: At<'_>, kind: Option<&str>, into: &mut Collected) {
    if let Some(kind) = item_kind(at.tree()) {
        if let Some(list) = at.list("items") {
            list.items().for_each(|item| read_item(item, kind, into));
        }
    } else if let Some(object) = read_object(at, kind) {
        into.add(at, object);
    }
}

/// Reads one object; `listed` is its kind where a list says it for its items.
pub(super) fn read_object(at: At<'_>, listed: Option<&str>) -> Option<Object> {
    if !at.check_map(Fields::Any) {
        return None;
    }
    let kind = match (at.has("kind"), listed) {
        (false, Some(kind)) => kind.to_owned(),
        (true, _) | (false, None) => {
            let version = listed.is_some()
                || at.required_text("apiVersion", "the kind's version, such as `apiVersion: v1`").is_some();
            let kind = at.required_text("kind", "a kind, such as `kind: Pod`");
            kind.filter(|_| version)?
        }
    };
    let version = at.text_of("apiVersion");
    if !is_read(at, &kind, version.as_deref())? {
        return Some(Object::Skipped(kind));
    }
    read_kind(at, &kind)
}

/// Whether a kind is read; nothing after an error.
fn is_read(at: At<'_>, kind: &str, version: Option<&str>) -> Option<bool> {
    let Some(version) = version else { return Some(KINDS.iter().any(|(known, _)| *known == kind)) };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let ours = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
    if let Some((_, expected)) = KINDS.iter().find(|(known, _)| *known == kind) {
        if *expected == version {
            return Some(true);
        }
        if !KINDS.iter().any(|(_, known)| ours(known) == group) {
            return Some(false);
        }
        if let Some(field) = at.field("apiVersion") {
            field.error(format!("`{version}` has no kind `{kind}`"), format!("write `{expected}`"));
        }
        return None;
    }
    let karpenter = ["karpenter.sh", "karpenter.k8s.aws"].contains(&group);
    if karpenter && kind != NODE_OVERLAY {
        let near = nearest(kind, KINDS.iter().filter(|(_, v)| ours(v) == group).map(|(kind, _)| *kind));
        let remedy = near.map_or("leave it out".to_owned(), |near| format!("did you mean `{near}`?"));
        if let Some(field) = at.field("kind") {
            field.error(format!("`{group}` has no kind `{kind}`"), remedy);
        }
        return None;
    }
    Some(false)
}

fn read_kind(at: At<'_>, kind: &str) -> Option<Object> {
    let workload = |kind| workload::read_workload(at, kind).map(Box::new).map(Object::Workload);
    match kind {
        "Pod" => pod::read_pod(at).map(Box::new).map(Object::Pod),
        "Deployment" => workload(WorkloadKind::Deployment),
        "ReplicaSet" => workload(WorkloadKind::ReplicaSet),
        "StatefulSet" => workload(WorkloadKind::StatefulSet),
        "Job" => workload(WorkloadKind::Job),
        "CronJob" => workload(WorkloadKind::CronJob),
        "DaemonSet" => workload::read_daemon_set(at).map(Box::new).map(Object::DaemonSet),
        "Node" => node::read_node(at).map(Box::new).map(Object::Node),
        "PersistentVolume" => storage::read_persistent_volume(at).map(Box::new).map(Object::PersistentVolume),
        "PersistentVolumeClaim" => {
            storage::read_persistent_volume_claim(at).map(Box::new).map(Object::PersistentVolumeClaim)
        }
        "StorageClass" => storage::read_storage_class(at).map(Box::new).map(Object::StorageClass),
        "Namespace" => read_namespace(at).map(Box::new).map(Object::Namespace),
        "PodDisruptionBudget" => {
            pdb::read_pod_disruption_budget(at).map(Box::new).map(Object::PodDisruptionBudget)
        }
        "NodePool" => node_pool::read_node_pool(at).map(Box::new).map(Object::NodePool),
        "EC2NodeClass" => node_class::read_node_class(at).map(Box::new).map(Object::NodeClass),
        "NodeClaim" => node_claim::read_node_claim(at).map(Box::new).map(Object::NodeClaim),
        "PriorityClass" => {
            let meta = read_meta(at, Scope::Cluster, Fields::Any);
            if !at.has("value") {
                at.missing("value", "the priority");
            }
            let _: Option<i32> = at.integer_of("value", i64::from(i32::MIN)..=i64::from(i32::MAX));
            meta.map(|meta| Object::PriorityClass(meta.name))
        }
        // A `List` without items.
        _ => Some(Object::Skipped(kind.to_owned())),
    }
}

/// Reads a Namespace: its labels are all that matters.
pub(super) fn read_namespace(at: At<'_>) -> Option<ObjectMeta> {
    read_meta(at, Scope::Cluster, Fields::Any)
}
