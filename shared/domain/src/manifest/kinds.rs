//! The reader of each kind of object, and the list that takes the object.
//!
//! Decides by `apiVersion` and `kind`. Unused kinds are skipped with a warning. A known kind with a wrong version is an
//! error, because its objects would be missing from the plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::decode::{At, Place, UnknownField, UnknownFields, Whole, quoted};
use super::fields::{MOST, integer};
use super::meta::{KindScope, Metadata, SERVERS};
use super::{ManifestObject, Manifests};
use super::{node, node_claim, node_class, node_pool, pdb, pod, service, storage, workload};
use crate::api::meta::ObjectMeta;
use crate::api::workload::WorkloadKind;
use crate::requirement::hints::nearest;

/// Kinds that are read, each with its `apiVersion`.
const KINDS: [(&str, &str); 21] = [
    ("Pod", "v1"),
    ("Node", "v1"),
    ("Namespace", "v1"),
    ("PersistentVolume", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Service", "v1"),
    ("Deployment", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
    ("StorageClass", "storage.k8s.io/v1"),
    ("CSINode", "storage.k8s.io/v1"),
    ("VolumeAttachment", "storage.k8s.io/v1"),
    ("PriorityClass", "scheduling.k8s.io/v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("NodePool", "karpenter.sh/v1"),
    ("NodeClaim", "karpenter.sh/v1"),
    ("EC2NodeClass", "karpenter.k8s.aws/v1"),
    ("List", "v1"),
];
/// A group of Kubernetes that once had some of these kinds, and has none of them now.
const FORMER_GROUP: &str = "extensions";
/// A kind of Karpenter that Tenon ignores.
const NODE_OVERLAY: &str = "NodeOverlay";
/// The prefix of a skipped kind's name.
const SKIPPED: &str = "skipped ";

/// Objects by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Collected {
    objects: BTreeMap<(String, String, String), ManifestObject>,
    skipped: BTreeSet<String>,
}

impl Collected {
    fn add(&mut self, at: &Place<'_>, object: ManifestObject) {
        let key = match &object {
            ManifestObject::Pod(o) => ("Pod", o.name.namespace.clone(), o.name.name.clone()),
            ManifestObject::Workload(o) => keyed(o.kind.as_str(), &o.meta),
            ManifestObject::DaemonSet(o) => keyed("DaemonSet", &o.meta),
            ManifestObject::Node(o) => keyed("Node", &o.meta),
            ManifestObject::PersistentVolume(o) => keyed("PersistentVolume", &o.meta),
            ManifestObject::PersistentVolumeClaim(o) => keyed("PersistentVolumeClaim", &o.meta),
            ManifestObject::StorageClass(o) => keyed("StorageClass", &o.meta),
            ManifestObject::CsiNode(o) => keyed("CSINode", &o.meta),
            ManifestObject::VolumeAttachment(o) => keyed("VolumeAttachment", &o.meta),
            ManifestObject::Service(o) => keyed("Service", &o.meta),
            ManifestObject::Namespace(o) => keyed("Namespace", o),
            ManifestObject::PodDisruptionBudget(o) => keyed("PodDisruptionBudget", &o.meta),
            ManifestObject::NodePool(o) => keyed("NodePool", &o.meta),
            ManifestObject::NodeClass(o) => keyed("EC2NodeClass", &o.meta),
            ManifestObject::NodeClaim(o) => keyed("NodeClaim", &o.meta),
            ManifestObject::PriorityClass(_) => return,
            ManifestObject::Skipped(kind) => {
                at.warn(format!("ignoring kind `{kind}`"), "Tenon doesn't use it");
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
                ManifestObject::Pod(o) => manifests.pods.push(*o),
                ManifestObject::Workload(o) => manifests.workloads.push(*o),
                ManifestObject::DaemonSet(o) => manifests.daemon_sets.push(*o),
                ManifestObject::Node(o) => manifests.nodes.push(*o),
                ManifestObject::PersistentVolume(o) => manifests.persistent_volumes.push(*o),
                ManifestObject::PersistentVolumeClaim(o) => manifests.persistent_volume_claims.push(*o),
                ManifestObject::StorageClass(o) => manifests.storage_classes.push(*o),
                ManifestObject::CsiNode(o) => manifests.csi_nodes.push(*o),
                ManifestObject::VolumeAttachment(o) => manifests.volume_attachments.push(*o),
                ManifestObject::Service(o) => manifests.services.push(*o),
                ManifestObject::Namespace(o) => manifests.namespaces.push(*o),
                ManifestObject::PodDisruptionBudget(o) => manifests.pdbs.push(*o),
                ManifestObject::NodePool(o) => manifests.node_pools.push(*o),
                ManifestObject::NodeClass(o) => manifests.node_classes.push(*o),
                ManifestObject::NodeClaim(o) => manifests.node_claims.push(*o),
                ManifestObject::PriorityClass(_) | ManifestObject::Skipped(_) => {}
            }
        }
        manifests
    }
}

fn keyed(kind: &'static str, meta: &ObjectMeta) -> (&'static str, String, String) {
    (kind, meta.namespace.clone(), meta.name.clone())
}

/// The kind of a list's items; `None` if this isn't a list. Items of a plain `List` carry their own kind.
fn item_kind(object: &Value) -> Option<Option<&str>> {
    let kind = object.get("kind")?.as_str()?.strip_suffix("List")?;
    matches!(object.get("items"), Some(Value::Array(_) | Value::Null))
        .then_some((!kind.is_empty()).then_some(kind))
}

/// Whether this is a list by its kind alone: a `List`, or one of a kind that is read.
fn is_named_list(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let Some(kind) = text("kind").and_then(|kind| kind.strip_suffix("List")) else { return false };
    let wanted = if kind.is_empty() { "List" } else { kind };
    KINDS
        .iter()
        .any(|(known, version)| *known == wanted && text("apiVersion").is_none_or(|given| given == *version))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

/// Visits an object, or each item of a list with the kind that the list gives it.
pub(super) fn each_item(object: &Value, listed: Option<&str>, visit: &mut impl FnMut(&Value, Option<&str>)) {
    match item_kind(object) {
        Some(kind) => items(object).for_each(|item| each_item(item, kind, visit)),
        None => visit(object, listed),
    }
}

/// Reads a document of a file: an object or a list of them.
pub(super) fn read_document(at: At<'_, '_>, into: &mut Collected) {
    if !at.value.is_null() {
        read_item(at, None, into);
    }
}

fn read_item(at: At<'_, '_>, kind: Option<&str>, into: &mut Collected) {
    if let Some(kind) = item_kind(at.value) {
        let list = at.key("items", at.value);
        items(at.value).enumerate().for_each(|(index, item)| read_item(list.index(index, item), kind, into));
    } else if is_named_list(at.value) {
        match at.value.get("items") {
            None => at.place.missing("items", "the list's objects, or `items: []`"),
            Some(_) => at.place.key("items").error("expected a list", "write the objects as a list"),
        }
    } else if let Some(object) = read_strictly(at, kind) {
        into.add(&at.place, object);
    }
}

/// Reads one object of a file. Unknown fields are errors in Karpenter's kinds; in pods, those that may affect placement
/// get a warning, and so do those of a controller's `spec`. `listed` is the kind that a typed list gives its items.
pub(super) fn read_strictly(at: At<'_, '_>, listed: Option<&str>) -> Option<ManifestObject> {
    let kind = kind_of(at, listed)?;
    let read = read_kind(at, &kind);
    let ours = ["NodePool", "NodeClaim", "EC2NodeClass"].contains(&kind.as_str());
    let strangers = at.place.context().strangers.take();
    let told = strangers.iter().filter(|(_, stranger)| match stranger.fate {
        UnknownFields::Named | UnknownFields::Told => true,
        UnknownFields::Dropped => ours && !SERVERS.iter().any(|field| stranger.pointer.ends_with(field)),
        UnknownFields::Kept => false,
    });
    for (field, stranger) in told {
        let UnknownField { pointer: _, known, unread, fate } = stranger;
        let remedy = match stranger.nearest() {
            Some(near) => format!("did you mean `{near}`?"),
            // Forty names say nothing.
            None if !unread.is_empty() => "leave it out".to_owned(),
            None => format!("leave it out; known fields are {}", quoted(known)),
        };
        if ours {
            at.place.context().report(field, "unknown field", remedy);
        } else {
            let message = match fate {
                UnknownFields::Told => "unknown field, so ignored",
                UnknownFields::Named | UnknownFields::Dropped | UnknownFields::Kept => {
                    "unknown field that may affect placement: pods with it get no node"
                }
            };
            at.place.context().caution(field, message, remedy);
        }
    }
    read
}

/// Reads an object of an API server. Unknown fields with a meaning are named on the object, others are ignored. What a file
/// gets a warning for is told on the object too: nobody reads the file of one that is in a cluster.
pub(super) fn read_stored(at: At<'_, '_>) -> Option<ManifestObject> {
    let kind = kind_of(at, None)?;
    let mut read = read_kind(at, &kind)?;
    let unknown = at.place.context().named();
    let warnings = || at.place.context().warned();
    match &mut read {
        ManifestObject::NodePool(pool) => {
            pool.unknown = unknown;
            pool.warnings = warnings();
        }
        ManifestObject::NodeClaim(claim) => claim.unknown = unknown,
        ManifestObject::NodeClass(class) => {
            class.unsupported.extend(unknown);
            class.unsupported.sort();
            class.warnings = warnings();
        }
        // A pod has them in its shape. A controller's template counts with its known fields.
        ManifestObject::Pod(_)
        | ManifestObject::Workload(_)
        | ManifestObject::DaemonSet(_)
        | ManifestObject::Node(_)
        | ManifestObject::PersistentVolume(_)
        | ManifestObject::PersistentVolumeClaim(_)
        | ManifestObject::StorageClass(_)
        | ManifestObject::CsiNode(_)
        | ManifestObject::VolumeAttachment(_)
        | ManifestObject::Service(_)
        | ManifestObject::Namespace(_)
        | ManifestObject::PodDisruptionBudget(_)
        | ManifestObject::PriorityClass(_)
        | ManifestObject::Skipped(_) => {}
    }
    Some(read)
}

/// `apiVersion` and `kind`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
}

/// The kind of an object: `""` for an ignored kind, `None` after an error.
fn kind_of(at: At<'_, '_>, listed: Option<&str>) -> Option<String> {
    let head: Head = at.read()?;
    at.place.context().strangers.take();
    let kind = head.kind.or_else(|| listed.map(str::to_owned));
    if head.api_version.is_none() && listed.is_none() {
        at.place.missing("apiVersion", "the kind's version, such as `apiVersion: v1`");
    }
    if kind.is_none() {
        at.place.missing("kind", "a kind, such as `kind: Pod`");
    }
    let kind = kind?;
    if head.api_version.is_none() && listed.is_none() {
        return None;
    }
    Some(if is_read(&at.place, &kind, head.api_version.as_deref())? {
        kind
    } else {
        format!("{SKIPPED}{kind}")
    })
}

/// Whether Tenon reads a kind; `None` after an error.
fn is_read(place: &Place<'_>, kind: &str, version: Option<&str>) -> Option<bool> {
    let Some(version) = version else { return Some(KINDS.iter().any(|(known, _)| *known == kind)) };
    let group_of = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let group = group_of(version);
    if let Some((_, expected)) = KINDS.iter().find(|(known, _)| *known == kind) {
        if *expected == version {
            return Some(true);
        }
        if group != FORMER_GROUP && !KINDS.iter().any(|(_, known)| group_of(known) == group) {
            return Some(false);
        }
        place
            .key("apiVersion")
            .error(format!("`{version}` has no kind `{kind}`"), format!("write `{expected}`"));
        return None;
    }
    if ["karpenter.sh", "karpenter.k8s.aws"].contains(&group.as_str()) && kind != NODE_OVERLAY {
        let near = nearest(kind, KINDS.iter().filter(|(_, v)| group_of(v) == group).map(|(kind, _)| *kind));
        let remedy = near.map_or("leave it out".to_owned(), |near| format!("did you mean `{near}`?"));
        place.key("kind").error(format!("`{group}` has no kind `{kind}`"), remedy);
        return None;
    }
    Some(false)
}

/// Reads an object of a kind.
pub(super) fn read_kind(at: At<'_, '_>, kind: &str) -> Option<ManifestObject> {
    if let Some(kind) = WorkloadKind::parse(kind) {
        return workload::read_workload(at, kind).map(Box::new).map(ManifestObject::Workload);
    }
    match kind {
        "Pod" => pod::read_pod(at).map(Box::new).map(ManifestObject::Pod),
        "DaemonSet" => workload::read_daemon_set(at).map(Box::new).map(ManifestObject::DaemonSet),
        "Node" => node::read_node(at).map(Box::new).map(ManifestObject::Node),
        "PersistentVolume" => {
            storage::read_persistent_volume(at).map(Box::new).map(ManifestObject::PersistentVolume)
        }
        "PersistentVolumeClaim" => {
            storage::read_persistent_volume_claim(at).map(Box::new).map(ManifestObject::PersistentVolumeClaim)
        }
        "StorageClass" => storage::read_storage_class(at).map(Box::new).map(ManifestObject::StorageClass),
        "CSINode" => storage::read_csi_node(at).map(Box::new).map(ManifestObject::CsiNode),
        "VolumeAttachment" => {
            storage::read_volume_attachment(at).map(Box::new).map(ManifestObject::VolumeAttachment)
        }
        "Service" => service::read_service(at).map(Box::new).map(ManifestObject::Service),
        "Namespace" => read_namespace(at).map(Box::new).map(ManifestObject::Namespace),
        "PodDisruptionBudget" => {
            pdb::read_pod_disruption_budget(at).map(Box::new).map(ManifestObject::PodDisruptionBudget)
        }
        "NodePool" => node_pool::read_node_pool(at).map(Box::new).map(ManifestObject::NodePool),
        "EC2NodeClass" => node_class::read_node_class(at).map(Box::new).map(ManifestObject::NodeClass),
        "NodeClaim" => node_claim::read_node_claim(at).map(Box::new).map(ManifestObject::NodeClaim),
        "PriorityClass" => read_priority_class(at),
        // A `List` within a list, or an ignored kind.
        _ => Some(ManifestObject::Skipped(kind.strip_prefix(SKIPPED).unwrap_or(kind).to_owned())),
    }
}

/// A Namespace: only its labels matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Namespace {
    #[serde(default, rename = "apiVersion")]
    _api_version: Whole,
    #[serde(default, rename = "kind")]
    _kind: Whole,
    #[serde(default)]
    metadata: Metadata,
}

fn read_namespace(at: At<'_, '_>) -> Option<ObjectMeta> {
    at.read::<Namespace>()?.metadata.of_object(&at.place, KindScope::Cluster)
}

#[derive(Deserialize)]
struct PriorityClass {
    #[serde(default)]
    metadata: Metadata,
    #[serde(rename = "value", deserialize_with = "integer::<{ i32::MIN as i64 }, MOST, _, _>")]
    _value: i32,
}

fn read_priority_class(at: At<'_, '_>) -> Option<ManifestObject> {
    let class: PriorityClass = at.read()?;
    let meta = class.metadata.of_object(&at.place, KindScope::Cluster)?;
    Some(ManifestObject::PriorityClass(meta.name))
}
