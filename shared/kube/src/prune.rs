//! Objects without unused fields: parsing drops the fields at once.
//!
//! Decides which parts of an answer stay in memory. Most bytes of an object are managed fields, or a Node's images;
//! their JSON tree takes ten times as much memory, and a page of a list holds hundreds of objects.
//!
//! Invariant: no dropped field is in use ([`tenon_domain::manifest::keep`], [`tenon_snapshot::snapshot::keep`]).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicResourceScope, Resource};
use serde::de::{Deserialize, Deserializer};
use serde_json::Value;
use tenon_domain::manifest;
use tenon_snapshot::object::{Kind, text};

use crate::resource::{group_version, plural};

/// Drops the unused fields of some kinds.
pub(crate) trait Prune: Send + Sync + 'static {
    fn prune(object: &mut Value);
}

/// A pod: its JSON is short-lived, because the watch keeps a [`tenon_snapshot::SeenPod`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum PodForm {}
/// Any other object: its kind isn't known here, so the store drops the other fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObjectForm {}

impl Prune for PodForm {
    fn prune(object: &mut Value) {
        manifest::keep(Kind::Pod.as_str(), object);
    }
}

impl Prune for ObjectForm {
    fn prune(object: &mut Value) {
        for (part, field) in [("metadata", "managedFields"), ("status", "images")] {
            if let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) {
                fields.remove(field);
            }
        }
    }
}

/// An object without unused fields.
pub(crate) struct Pruned<F> {
    /// Its JSON, which may lack `apiVersion` and `kind`, as items of a list do.
    pub(crate) value: Value,
    meta: ObjectMeta,
    form: PhantomData<F>,
}

impl<F> Clone for Pruned<F> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), meta: self.meta.clone(), form: PhantomData }
    }
}

impl<F> fmt::Debug for Pruned<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pruned").field("value", &self.value).finish_non_exhaustive()
    }
}

impl<'de, F: Prune> Deserialize<'de> for Pruned<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        F::prune(&mut value);
        let own = |pointer| text(&value, pointer).map(str::to_owned);
        let meta = ObjectMeta {
            name: own("/metadata/name"),
            namespace: own("/metadata/namespace"),
            resource_version: own("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { value, meta, form: PhantomData })
    }
}

impl<F: Prune> Resource for Pruned<F> {
    type DynamicType = Kind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        group_version(*kind).0.into()
    }

    fn version(kind: &Kind) -> Cow<'_, str> {
        group_version(*kind).1.into()
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
        plural(*kind).into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenon_snapshot::SeenPod;
    use tenon_snapshot::snapshot::keep;

    fn noise() -> Value {
        json!([{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}])
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"env": "x"},
                "managedFields": noise(), "ownerReferences": [{"kind": "DaemonSet", "controller": true}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "s"}],
                "resources": {"requests": {"cpu": "1"}}}], "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
                "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}],
                "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "imageID": "x"}]}})
    }

    #[test]
    fn a_pruned_pod_reads_as_the_whole_one() {
        let pruned: Pruned<PodForm> = serde_json::from_value(pod()).unwrap();
        assert_eq!(SeenPod::read(&pruned.value), SeenPod::read(&pod()));
        let text = pruned.value.to_string();
        for gone in ["managedFields", "\"E\"", "secretName", "podIPs", "imageID"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert_eq!(pruned.meta.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn a_pruned_object_keeps_what_is_kept_of_the_whole_one() {
        let check = |kind: Kind, patch: Value| {
            let mut whole = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "managedFields": noise(),
                "annotations": {"karpenter.sh/nodepool-hash": "1"}, "finalizers": ["f"]}});
            if let (Some(fields), Value::Object(patch)) = (whole.as_object_mut(), patch) {
                fields.extend(patch);
            }
            let pruned: Pruned<ObjectForm> = serde_json::from_value(whole.clone()).unwrap();
            assert_eq!(keep(kind, pruned.value), keep(kind, whole), "{kind}");
        };
        check(
            Kind::Node,
            json!({"spec": {"providerID": "p"}, "status": {"images": [{"names": ["x"]}], "capacity": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "x"}]}}),
        );
        check(
            Kind::PodDisruptionBudget,
            json!({"spec": {"minAvailable": 1}, "status": {"disruptionsAllowed": 1}}),
        );
        check(
            Kind::StorageClass,
            json!({"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"}),
        );
        check(
            Kind::NodePool,
            json!({"spec": {"weight": 1}, "status": {"nodes": 3, "resources": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        );
    }
}
