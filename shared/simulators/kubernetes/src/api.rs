//! The API server's verbs: `kubectl apply` and the agent's port on the store.
//!
//! Decides refusals, and admission's defaults. Reads share the stored JSON without a copy.

use std::sync::Arc;

use serde_json::{Value, json};

use super::SimulatedCluster;
use super::state::{AppliedFields, ClusterState};
use super::store::{child, merge_patch, metadata};
use tenon_snapshot::kube::{Deletion, Eviction, Kube, KubeError, Precondition, key_of};
use tenon_snapshot::note::Note;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::pod::PodRef;

/// Fields of `metadata` that only the API server sets.
const SERVER_FIELDS: [&str; 5] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// An API server keeps events for an hour; this one the latest.
const NOTES_KEPT: usize = 10_000;
/// For how long the API server lets pods stay on a node that isn't ready (`DefaultTolerationSeconds`).
const DEFAULT_TOLERATION_SECONDS: u32 = 300;

impl ClusterState {
    /// Applies a manifest, as `kubectl apply` does: labels and annotations go that the object's last manifest had and this
    /// one hasn't. Those that others set stay.
    pub(super) fn apply_manifest(&mut self, mut manifest: Value) -> Result<Object, KubeError> {
        let Some(key) = ObjectKey::of(&manifest) else { return self.apply(manifest) };
        let given = applied_fields(&manifest);
        // A deleted object's manifest says nothing about its successor.
        let known = self.store.get(&key).and_then(|_| self.applied.get(&key));
        for (field, name) in known.into_iter().flat_map(|last| last.difference(&given)) {
            let fields = metadata(&mut manifest).entry(*field).or_insert_with(|| json!({}));
            if let Some(fields) = fields.as_object_mut() {
                fields.insert(name.clone(), Value::Null);
            }
        }
        let applied = self.apply(manifest)?;
        self.applied.insert(key, given);
        Ok(applied)
    }

    /// Creates or updates an object. `status`, labels and annotations outside of it stay.
    pub(super) fn apply(&mut self, mut object: Value) -> Result<Object, KubeError> {
        let Some(old) = ObjectKey::of(&object).and_then(|key| self.store.get(&key)).map(Arc::clone) else {
            return self.create(object);
        };
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            let Some(known) = old.pointer(&format!("/metadata/{field}")) else { continue };
            let mut merged = known.clone();
            if let Some(given) = object.pointer(&format!("/metadata/{field}")) {
                merge_patch(&mut merged, given);
            }
            metadata(&mut object).insert(field.to_owned(), merged);
        }
        for field in SERVER_FIELDS {
            match old.pointer(&format!("/metadata/{field}")) {
                Some(value) => metadata(&mut object).insert(field.to_owned(), value.clone()),
                None => metadata(&mut object).remove(field),
            };
        }
        let mut status = old.get("status").cloned().unwrap_or(Value::Null);
        if let Some(given) = object.get("status") {
            merge_patch(&mut status, given);
        }
        if let (Some(fields), false) = (object.as_object_mut(), status.is_null()) {
            fields.insert("status".to_owned(), status);
        }
        if let (Some(fields), Some(version)) = (object.as_object_mut(), old.get("apiVersion")) {
            fields.insert("apiVersion".to_owned(), version.clone());
        }
        let namespace = object::namespace(&old).to_owned();
        if !namespace.is_empty() {
            metadata(&mut object).insert("namespace".to_owned(), json!(namespace));
        }
        self.store.update(object)
    }

    /// Creates an object, after admission.
    pub(super) fn create(&mut self, mut object: Value) -> Result<Object, KubeError> {
        if text(&object, "/kind") == Some(Kind::Pod.as_str()) {
            self.admit_pod(&mut object);
        }
        self.store.create(object, self.now)
    }

    /// Admission's defaults for a pod: phase, grace period, priority, and tolerations for nodes that aren't ready.
    fn admit_pod(&self, pod: &mut Value) {
        child(pod, "status").entry("phase").or_insert(json!("Pending"));
        let class = text(pod, "/spec/priorityClassName").unwrap_or_default().to_owned();
        let priority = match class.as_str() {
            "" => None,
            "system-cluster-critical" => Some(2_000_000_000_i64),
            "system-node-critical" => Some(2_000_001_000),
            name => {
                let class = self.store.get(&ObjectKey::new(Kind::PriorityClass, "", name));
                class.and_then(|class| class.get("value")).and_then(Value::as_i64)
            }
        };
        let mut tolerations = object::list(pod, "/spec/tolerations").to_vec();
        for key in [tenon_domain::taint::NOT_READY, tenon_domain::taint::UNREACHABLE] {
            let covers = |t: &Value| {
                matches!(text(t, "/key"), Some(known) if known == key)
                    || text(t, "/key").unwrap_or_default().is_empty()
            };
            if !tolerations.iter().any(covers) {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}));
            }
        }
        let spec = child(pod, "spec");
        spec.insert("tolerations".to_owned(), Value::Array(tolerations));
        spec.entry("terminationGracePeriodSeconds").or_insert(json!(30));
        if let Some(priority) = priority {
            spec.entry("priority").or_insert(json!(priority));
        }
    }

    /// Replaces the status: it has one writer.
    fn apply_status(&mut self, object: &Value) -> Result<Object, KubeError> {
        let key = key_of(object)?;
        let Some(old) = self.store.get(&key) else { return Err(KubeError::NotFound { key }) };
        let mut applied = Value::clone(old);
        if let (Some(fields), Some(status)) = (applied.as_object_mut(), object.get("status")) {
            fields.insert("status".to_owned(), status.clone());
        }
        self.store.update(applied)
    }

    fn patch(
        &mut self,
        key: &ObjectKey,
        patch: &Value,
        precondition: &Precondition,
    ) -> Result<Object, KubeError> {
        let Some(old) = self.store.get(key) else { return Err(KubeError::NotFound { key: key.clone() }) };
        let version = text(old, "/metadata/resourceVersion").unwrap_or_default();
        if let Precondition::ResourceVersion(expected) = precondition
            && expected != version
        {
            let message = format!("resourceVersion is `{version}`, not `{expected}`");
            return Err(KubeError::Conflict { key: key.clone(), message });
        }
        let mut object = Value::clone(old);
        merge_patch(&mut object, patch);
        if let (Some(fields), Some(status)) = (object.as_object_mut(), old.get("status")) {
            fields.insert("status".to_owned(), status.clone());
        }
        for field in SERVER_FIELDS {
            if let Some(value) = old.pointer(&format!("/metadata/{field}")) {
                metadata(&mut object).insert(field.to_owned(), value.clone());
            }
        }
        self.store.update(object)
    }

    fn delete_one(&mut self, key: &ObjectKey, uid: &str, grace: Option<u32>) -> Result<Deletion, KubeError> {
        let Some(object) = self.store.get(key) else { return Ok(Deletion::NotFound) };
        let found = object::uid(object);
        if !uid.is_empty() && found != uid {
            let message = format!("its UID is `{found}`, not `{uid}`");
            return Err(KubeError::Conflict { key: key.clone(), message });
        }
        let _deleted = self.store.delete(key, grace, self.now);
        Ok(Deletion::Accepted)
    }
}

/// The labels and annotations of a manifest, by the field of its metadata.
fn applied_fields(manifest: &Value) -> AppliedFields {
    let of_field = |field: &'static str| {
        let given = manifest.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
        let given = given.into_iter().flatten().filter(|(_, value)| !value.is_null());
        given.map(move |(name, _)| (field, name.clone()))
    };
    ["labels", "annotations"].into_iter().flat_map(of_field).collect()
}

impl Kube for SimulatedCluster {
    async fn version(&self) -> Result<String, KubeError> {
        Ok(self.state().version.clone())
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, KubeError> {
        Ok(self.objects(kind))
    }

    async fn pods(&self) -> Result<Vec<PodRef>, KubeError> {
        let mut state = self.state();
        let ClusterState { store, pods, .. } = &mut *state;
        let all: Vec<Object> = store.all(Kind::Pod).map(Arc::clone).collect();
        Ok(pods.read(&all))
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, KubeError> {
        Ok(self.state().store.get(key).map(Arc::clone))
    }

    async fn create(&self, object: Value) -> Result<Object, KubeError> {
        self.state().create(object)
    }

    async fn patch(
        &self,
        key: &ObjectKey,
        patch: &Value,
        precondition: &Precondition,
    ) -> Result<Object, KubeError> {
        self.state().patch(key, patch, precondition)
    }

    async fn apply_status(&self, object: &Value) -> Result<Object, KubeError> {
        self.state().apply_status(object)
    }

    async fn note(&self, note: &Note) -> Result<(), KubeError> {
        let notes = &mut self.state().notes;
        if notes.len() == NOTES_KEPT {
            notes.pop_front();
        }
        notes.push_back(note.clone());
        Ok(())
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<Deletion, KubeError> {
        self.state().delete_one(key, uid, grace_seconds)
    }

    async fn nominate(&self, pods: &[(ObjectKey, String)], node: &str) -> Result<(), KubeError> {
        let mut state = self.state();
        for (key, uid) in pods {
            if state.store.get(key).is_some_and(|pod| object::uid(pod) == uid) {
                state.store.change(key, |pod| {
                    child(pod, "status").insert("nominatedNodeName".to_owned(), json!(node));
                });
            }
        }
        Ok(())
    }

    async fn evict(&self, pod: &ObjectKey, uid: &str) -> Result<Eviction, KubeError> {
        Ok(self.state().evict(pod, uid))
    }
}
