//! Kubernetes objects as JSON: kinds, keys and the fields that every reader needs.
//!
//! Decides the kinds, and the address of an object. It doesn't validate: a missing field, or one of another type,
//! reads as absent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::api::meta::is_kubernetes_node;
use tenon_domain::manifest;
use tenon_domain::taint::{Taint, Toleration};

use crate::snapshot::ChunkKind;

/// An object in Kubernetes' own form, shared: listing thousands copies no JSON.
pub type Object = Arc<Value>;

tenon_domain::words! {
    /// The kinds that are read or written.
    pub enum Kind {
        /// `v1 Pod`.
        Pod,
        /// `v1 Node`.
        Node,
        /// `v1 Namespace`.
        Namespace,
        /// `v1 PersistentVolume`.
        PersistentVolume,
        /// `v1 PersistentVolumeClaim`.
        PersistentVolumeClaim,
        /// `storage.k8s.io/v1 StorageClass`.
        StorageClass,
        /// `storage.k8s.io/v1 CSINode`.
        CsiNode = "CSINode",
        /// `storage.k8s.io/v1 VolumeAttachment`.
        VolumeAttachment,
        /// `v1 Service`.
        Service,
        /// `apps/v1 DaemonSet`.
        DaemonSet,
        /// `apps/v1 Deployment`.
        Deployment,
        /// `apps/v1 ReplicaSet`.
        ReplicaSet,
        /// `apps/v1 StatefulSet`.
        StatefulSet,
        /// `batch/v1 Job`.
        Job,
        /// `policy/v1 PodDisruptionBudget`.
        PodDisruptionBudget,
        /// `scheduling.k8s.io/v1 PriorityClass`.
        PriorityClass,
        /// `coordination.k8s.io/v1 Lease`.
        Lease,
        /// `karpenter.sh/v1 NodePool`.
        NodePool,
        /// `karpenter.k8s.aws/v1 EC2NodeClass`.
        Ec2NodeClass = "EC2NodeClass",
        /// `karpenter.sh/v1 NodeClaim`.
        NodeClaim,
    }
}

/// Whether a kind's objects live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceScope {
    /// They don't.
    Cluster,
    /// They do.
    Namespaced,
}

impl Kind {
    /// The kind's `apiVersion`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Pod
            | Self::Node
            | Self::Namespace
            | Self::PersistentVolume
            | Self::PersistentVolumeClaim
            | Self::Service => "v1",
            Self::StorageClass | Self::CsiNode | Self::VolumeAttachment => "storage.k8s.io/v1",
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => "apps/v1",
            Self::Job => "batch/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::PriorityClass => "scheduling.k8s.io/v1",
            Self::Lease => "coordination.k8s.io/v1",
            Self::NodePool | Self::NodeClaim => "karpenter.sh/v1",
            Self::Ec2NodeClass => "karpenter.k8s.aws/v1",
        }
    }

    /// The chunks of a snapshot that its objects are in; `None` for a kind that isn't reported, whose objects the agent
    /// only reads one by one, if at all.
    #[must_use]
    pub const fn chunks(self) -> Option<ChunkKind> {
        match self {
            Self::Pod => Some(ChunkKind::Pods),
            Self::Node => Some(ChunkKind::Nodes),
            Self::Namespace => Some(ChunkKind::Namespaces),
            Self::PersistentVolume | Self::PersistentVolumeClaim | Self::StorageClass => {
                Some(ChunkKind::Volumes)
            }
            Self::CsiNode | Self::VolumeAttachment => Some(ChunkKind::Attachments),
            Self::Service => Some(ChunkKind::Services),
            Self::DaemonSet => Some(ChunkKind::DaemonSets),
            Self::PodDisruptionBudget => Some(ChunkKind::Pdbs),
            Self::NodePool => Some(ChunkKind::NodePools),
            Self::Ec2NodeClass => Some(ChunkKind::NodeClasses),
            Self::NodeClaim => Some(ChunkKind::NodeClaims),
            Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::Job
            | Self::PriorityClass
            | Self::Lease => None,
        }
    }

    /// Whether its objects live in namespaces.
    #[must_use]
    pub const fn scope(self) -> ResourceScope {
        match self {
            Self::Node
            | Self::Namespace
            | Self::PersistentVolume
            | Self::StorageClass
            | Self::CsiNode
            | Self::VolumeAttachment
            | Self::PriorityClass
            | Self::NodePool
            | Self::Ec2NodeClass
            | Self::NodeClaim => ResourceScope::Cluster,
            Self::Pod
            | Self::PersistentVolumeClaim
            | Self::Service
            | Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::Job
            | Self::PodDisruptionBudget
            | Self::Lease => ResourceScope::Namespaced,
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// A key; the namespace of a cluster-scoped kind is ignored.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let namespace = match kind.scope() {
            ResourceScope::Cluster => String::new(),
            ResourceScope::Namespaced => namespace.into(),
        };
        Self { kind, namespace, name: name.into() }
    }

    /// The key of a Node.
    pub fn node(name: impl Into<String>) -> Self {
        Self::new(Kind::Node, "", name)
    }

    /// The key of an object, from its `kind` and `metadata`; the default namespace is `default`. `None` for an
    /// unknown kind or an object without a name.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let kind = Kind::parse(text(object, "/kind")?)?;
        let namespace = match text(object, "/metadata/namespace") {
            Some("") | None => "default",
            Some(namespace) => namespace,
        };
        Some(Self::new(kind, namespace, text(object, "/metadata/name")?))
    }
}

/// `Pod prod/web-1`, `Node a`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// The value at a JSON pointer (RFC 6901). It is called for every object at every look, and `serde_json`'s own makes
/// two strings for each step.
#[must_use]
pub fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut found = object;
    for step in pointer.split('/').skip(1) {
        found = match found {
            Value::Array(elements) => elements.get(step.parse::<usize>().ok()?)?,
            Value::Object(fields) if step.contains('~') => {
                fields.get(&step.replace("~1", "/").replace("~0", "~"))?
            }
            Value::Object(fields) => fields.get(step)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(found)
}

/// The text at a JSON pointer.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    at(object, pointer).and_then(Value::as_str)
}

/// The texts of the map at a JSON pointer, such as labels.
pub fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = at(object, pointer).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// [`texts`] as an owned map.
#[must_use]
pub fn text_map(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    texts(object, pointer).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The elements of the list at a JSON pointer; none if there is no list.
#[must_use]
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The time at a JSON pointer.
#[must_use]
pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer)?.parse().ok()
}

/// `metadata.name`; empty where absent.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// `metadata.namespace`; empty where absent.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace").unwrap_or_default()
}

/// `metadata.uid`; empty where absent.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

/// `metadata.deletionTimestamp`.
#[must_use]
pub fn deleted_at(object: &Value) -> Option<Timestamp> {
    time(object, "/metadata/deletionTimestamp")
}

/// The managing controller among `metadata.ownerReferences`.
#[must_use]
pub fn controller(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// Whether an owner is a Node of Kubernetes: its kubelet made the object.
#[must_use]
pub fn is_node_owner(owner: &Value) -> bool {
    let api_version = text(owner, "/apiVersion").unwrap_or_default();
    text(owner, "/kind").is_some_and(|kind| is_kubernetes_node(api_version, kind))
}

/// Since when a condition is True.
#[must_use]
pub fn true_since(object: &Value, kind: &str) -> Option<Timestamp> {
    let holds = |condition: &&Value| {
        text(condition, "/type") == Some(kind) && text(condition, "/status") == Some("True")
    };
    time(list(object, "/status/conditions").iter().find(holds)?, "/lastTransitionTime")
}

/// The status of a condition, such as `True`.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let found = list(object, "/status/conditions").iter().find(|c| text(c, "/type") == Some(kind))?;
    text(found, "/status")
}

/// `spec.taints` of a Node, without invalid ones.
#[must_use]
pub fn taints(node: &Value) -> Vec<Taint> {
    list(node, "/spec/taints").iter().filter_map(taint).collect()
}

/// A taint in Kubernetes' form.
#[must_use]
pub fn taint(value: &Value) -> Option<Taint> {
    manifest::part(value)
}

/// `spec.tolerations` of a pod or of a pod template, without invalid ones.
#[must_use]
pub fn tolerations(pod: &Value) -> Vec<Toleration> {
    list(pod, "/spec/tolerations").iter().filter_map(manifest::part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenon_domain::taint::TaintEffect;

    #[test]
    fn keys_read_as_kubectl_writes_them() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "web-1"}});
        assert_eq!(ObjectKey::of(&pod).unwrap().to_string(), "Pod default/web-1");
        let node = json!({"kind": "Node", "metadata": {"name": "a", "namespace": "ignored"}});
        assert_eq!(ObjectKey::of(&node).unwrap().to_string(), "Node a");
        assert_eq!(ObjectKey::of(&json!({"kind": "Secret", "metadata": {"name": "s"}})), None);
    }

    #[test]
    fn kinds_are_read_by_their_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn what_has_the_wrong_type_reads_as_absent() {
        let node = json!({"metadata": {"name": 3, "labels": {"a": 1, "b": "2"}},
            "spec": {"taints": [{"key": "a", "effect": "Never"}, {"key": "b", "effect": "NoExecute"}]}});
        assert_eq!(name(&node), "");
        assert_eq!(text_map(&node, "/metadata/labels"), BTreeMap::from([("b".into(), "2".into())]));
        assert_eq!(taints(&node), [Taint::new("b", TaintEffect::NoExecute)]);
    }
}
