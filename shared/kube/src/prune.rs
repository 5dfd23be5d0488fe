//! Reading objects without what nobody reads: whole subtrees are skipped while the answer is parsed.
//!
//! Decides which fields of an answer become memory at all. A Node's images and every object's managed fields are most of
//! its bytes; a JSON tree of them is ten times as large again, and a page of a list holds hundreds.
//!
//! Invariant: what is skipped here is in no projection ([`tenon_snapshot::snapshot::keep`]).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicResourceScope, Resource};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tenon_snapshot::object::{Kind, text};

use crate::resource::{group_version, plural};

/// What of a JSON value is kept.
pub(crate) enum Keep {
    /// All.
    All,
    /// These fields of an object.
    Fields(&'static [(&'static str, Self)]),
    /// This of each element of a list.
    Each(&'static Self),
}

/// What is kept of the objects of some kinds.
pub(crate) trait Form: Send + Sync + 'static {
    const KEEP: &'static Keep;
}

/// A pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PodForm {}
/// Any other object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObjectForm {}

impl Form for PodForm {
    const KEEP: &'static Keep = &POD;
}
impl Form for ObjectForm {
    const KEEP: &'static Keep = &OBJECT;
}

const METADATA: Keep = Keep::Fields(&[
    ("name", Keep::All),
    ("namespace", Keep::All),
    ("uid", Keep::All),
    ("resourceVersion", Keep::All),
    ("generation", Keep::All),
    ("creationTimestamp", Keep::All),
    ("deletionTimestamp", Keep::All),
    ("labels", Keep::All),
    ("annotations", Keep::All),
    ("finalizers", Keep::All),
    ("ownerReferences", Keep::All),
]);
static CONDITION: Keep = Keep::Fields(&[
    ("type", Keep::All),
    ("status", Keep::All),
    ("reason", Keep::All),
    ("message", Keep::All),
    ("lastTransitionTime", Keep::All),
    ("observedGeneration", Keep::All),
]);
static CONTAINER: Keep = Keep::Fields(&[
    ("name", Keep::All),
    ("resources", Keep::All),
    ("restartPolicy", Keep::All),
    ("ports", Keep::All),
]);
static VOLUME: Keep =
    Keep::Fields(&[("name", Keep::All), ("persistentVolumeClaim", Keep::All), ("ephemeral", Keep::All)]);
static CONTAINER_STATUS: Keep = Keep::Fields(&[("name", Keep::All), ("allocatedResources", Keep::All)]);
const POD_SPEC: Keep = Keep::Fields(&[
    ("nodeName", Keep::All),
    ("schedulerName", Keep::All),
    ("nodeSelector", Keep::All),
    ("affinity", Keep::All),
    ("topologySpreadConstraints", Keep::All),
    ("tolerations", Keep::All),
    ("overhead", Keep::All),
    ("resources", Keep::All),
    ("resourceClaims", Keep::All),
    ("priority", Keep::All),
    ("priorityClassName", Keep::All),
    ("schedulingGates", Keep::All),
    ("terminationGracePeriodSeconds", Keep::All),
    ("containers", Keep::Each(&CONTAINER)),
    ("initContainers", Keep::Each(&CONTAINER)),
    ("volumes", Keep::Each(&VOLUME)),
]);
const POD_STATUS: Keep = Keep::Fields(&[
    ("phase", Keep::All),
    ("startTime", Keep::All),
    ("nominatedNodeName", Keep::All),
    ("conditions", Keep::Each(&CONDITION)),
    ("containerStatuses", Keep::Each(&CONTAINER_STATUS)),
]);
const OBJECT_STATUS: Keep = Keep::Fields(&[
    ("capacity", Keep::All),
    ("allocatable", Keep::All),
    ("conditions", Keep::Each(&CONDITION)),
    ("disruptionsAllowed", Keep::All),
    ("phase", Keep::All),
    ("providerID", Keep::All),
    ("nodeName", Keep::All),
    ("imageID", Keep::All),
    ("lastPodEventTime", Keep::All),
    ("resources", Keep::All),
    ("nodes", Keep::All),
    ("nodeClassObservedGeneration", Keep::All),
    ("subnets", Keep::All),
    ("securityGroups", Keep::All),
    ("amis", Keep::All),
    ("capacityReservations", Keep::All),
    ("instanceProfile", Keep::All),
]);
static POD: Keep = Keep::Fields(&[("metadata", METADATA), ("spec", POD_SPEC), ("status", POD_STATUS)]);
static OBJECT: Keep = Keep::Fields(&[
    ("metadata", METADATA),
    ("spec", Keep::All),
    ("status", OBJECT_STATUS),
    ("provisioner", Keep::All),
    ("volumeBindingMode", Keep::All),
    ("allowedTopologies", Keep::All),
]);

/// An object without what nobody reads.
pub(crate) struct Pruned<F> {
    /// Its JSON; `apiVersion` and `kind` aren't in it, as in a list's items.
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

impl<'de, F: Form> Deserialize<'de> for Pruned<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = F::KEEP.deserialize(deserializer)?;
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

impl<F: Form> Resource for Pruned<F> {
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

impl<'de> DeserializeSeed<'de> for &Keep {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Keep::All => Value::deserialize(deserializer),
            Keep::Fields(_) | Keep::Each(_) => deserializer.deserialize_any(self),
        }
    }
}

/// Lists and objects are pruned; anything else where they are expected reads as absent.
impl<'de> Visitor<'de> for &Keep {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Keep::Fields(fields) = self else {
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut kept = Map::new();
        while let Some(name) = access.next_key::<Cow<'de, str>>()? {
            match fields.iter().find(|(field, _)| *field == name) {
                Some((_, keep)) => {
                    kept.insert(name.into_owned(), access.next_value_seed(keep)?);
                }
                None => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        match self {
            Keep::Each(element) => {
                while let Some(value) = access.next_element_seed(*element)? {
                    kept.push(value);
                }
            }
            Keep::All | Keep::Fields(_) => while access.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(kept))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
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
            assert_eq!(keep(kind, &pruned.value), keep(kind, &whole), "{kind}");
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

    #[test]
    fn what_is_of_another_type_reads_as_absent() {
        let pruned: Pruned<PodForm> =
            serde_json::from_value(json!({"metadata": "x", "spec": [1], "status": {"conditions": {"a": 1}}}))
                .unwrap();
        assert_eq!(pruned.value, json!({"metadata": null, "spec": [], "status": {"conditions": null}}));
    }
}
