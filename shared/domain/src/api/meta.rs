//! The metadata of every object.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::id::Uid;

/// `metadata` of an object, as far as Tenon reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectMeta {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; `default` where a namespaced manifest gives none, empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.uid`; absent in manifests that no API server has seen.
    pub uid: Option<Uid>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
    /// `metadata.generation`; 0 where absent.
    pub generation: u64,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: the latest end of the object, finalizers aside.
    pub deleted_at: Option<Timestamp>,
}

/// One of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerReference {
    /// The owner's kind, such as `ReplicaSet`; a `Node` of another API group has its group's name too.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID; empty in manifests that leave it out.
    pub uid: String,
    /// Whether the owner is the managing controller.
    pub role: OwnerRole,
}

/// Whether an owner is a Node of Kubernetes, whose kubelet made the object; other API groups have Nodes too.
#[must_use]
pub fn is_kubernetes_node(api_version: &str, kind: &str) -> bool {
    kind == "Node" && !api_version.contains('/')
}

/// The role of an owner towards its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerRole {
    /// `controller: true`.
    Controller,
    /// Any other owner.
    Owner,
}
