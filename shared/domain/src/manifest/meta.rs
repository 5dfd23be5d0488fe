//! `metadata`, and the fields that every object has.
//!
//! Decides names, namespaces and the form of labels. It doesn't decide which labels a NodePool may set.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::decode::{KeepUnknown, Place, Whole};
use super::fields::{labels, text, texts, time, within};
use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::id::{Uid, is_dns_subdomain};

/// Whether a kind's objects live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KindScope {
    Namespaced,
    Cluster,
}

/// Fields of `metadata` that the API server writes and Tenon doesn't read.
pub(super) const SERVERS: [&str; 4] =
    ["generateName", "selfLink", "deletionGracePeriodSeconds", "managedFields"];

/// An object: its metadata, its `spec` and its `status`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectFields<S, T> {
    #[serde(default, rename = "apiVersion")]
    _api_version: Whole,
    #[serde(default, rename = "kind")]
    _kind: Whole,
    #[serde(default)]
    pub(super) metadata: Metadata,
    pub(super) spec: Option<S>,
    pub(super) status: Option<T>,
}

/// A part of an object that nobody reads.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Unread {}

impl<S, T> ObjectFields<S, T> {
    /// Its `spec`; an error if it is missing.
    pub(super) fn spec(&mut self, place: &Place<'_>) -> Option<S> {
        if self.spec.is_none() {
            place.missing("spec", "a map");
        }
        self.spec.take()
    }
}

/// `metadata`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: String,
    namespace: String,
    uid: Option<Uid>,
    #[serde(rename = "resourceVersion")]
    _resource_version: Whole,
    #[serde(deserialize_with = "labels")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "texts")]
    pub(super) annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    owner_references: Vec<KeepUnknown<OwnerFields>>,
    #[serde(deserialize_with = "within::<0, { i64::MAX }, _, _>")]
    generation: Option<u64>,
    #[serde(deserialize_with = "time")]
    creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    deletion_timestamp: Option<Timestamp>,
}

/// One of `ownerReferences`.
#[derive(Debug, Deserialize)]
struct OwnerFields {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(deserialize_with = "text")]
    kind: String,
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl From<KeepUnknown<OwnerFields>> for OwnerReference {
    fn from(KeepUnknown(owner): KeepUnknown<OwnerFields>) -> Self {
        let OwnerFields { api_version, kind, name, uid, controller } = owner;
        let kind = match api_version.split_once('/') {
            Some((group, _)) if kind == "Node" => format!("{kind}.{group}"),
            Some(_) | None => kind,
        };
        Self { kind, name, uid, role: if controller { OwnerRole::Controller } else { OwnerRole::Owner } }
    }
}

impl Metadata {
    /// The metadata of the object at `place`; an error without a name.
    pub(super) fn of_object(self, place: &Place<'_>, scope: KindScope) -> Option<ObjectMeta> {
        let metadata = place.key("metadata");
        let meta = self.of_template(scope);
        if meta.name.is_empty() {
            metadata.missing("name", "a name");
            return None;
        }
        if !is_dns_subdomain(&meta.name) {
            metadata.key("name").error(
                format!("`{}` is not a name", meta.name),
                "write lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
            );
            return None;
        }
        Some(meta)
    }

    /// The metadata of a template, which needs no name.
    pub(super) fn of_template(self, scope: KindScope) -> ObjectMeta {
        let namespace = match scope {
            KindScope::Cluster => String::new(),
            KindScope::Namespaced if self.namespace.is_empty() => "default".to_owned(),
            KindScope::Namespaced => self.namespace,
        };
        ObjectMeta {
            name: self.name,
            namespace,
            uid: self.uid,
            labels: self.labels,
            annotations: self.annotations,
            finalizers: self.finalizers,
            owners: self.owner_references.into_iter().map(OwnerReference::from).collect(),
            generation: self.generation.unwrap_or(0),
            created_at: self.creation_timestamp,
            deleted_at: self.deletion_timestamp,
        }
    }
}
