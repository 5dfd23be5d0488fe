//! The operations on objects in Kubernetes, and their execution.
//!
//! Decides whether an object differs from what it should show, and how the difference is written. It doesn't decide what
//! it should show.
//!
//! Invariants: an unchanged status, annotation or finalizer isn't written again; an object that changed since it was read
//! keeps its finalizers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenon_domain::class_hash::PoolHash;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::manifest::{self, ManifestObject};
use tenon_snapshot::object::{self, Kind, ObjectKey, text};
use tenon_snapshot::{Kube, KubeError, Precondition};

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub enum FaceOp {
    /// Applies a status.
    Status(Value),
    /// Sets annotations, and leaves others alone.
    Annotate {
        /// Of which object.
        key: ObjectKey,
        /// The annotations.
        annotations: Map<String, Value>,
    },
    /// Makes a NodeClaim.
    Create(Value),
    /// Deletes a NodeClaim: our finalizer holds it.
    Delete(ObjectKey, String),
    /// Sets or removes our finalizer.
    Finalizers {
        /// Which.
        key: ObjectKey,
        /// The object's version at planning.
        version: String,
        /// All finalizers then.
        finalizers: Vec<Value>,
    },
    /// Makes a NodePool the owner of a NodeClaim.
    Own {
        /// The NodeClaim.
        key: ObjectKey,
        /// The object's version at planning.
        version: String,
        /// All owners then.
        owners: Vec<Value>,
    },
}

/// Executes one operation. The next step plans again for an object that changed.
///
/// # Errors [`KubeError`] if the API server gives no answer, or refuses permanently.
pub async fn execute_face<K: Kube>(kube: &K, op: &FaceOp) -> Result<(), KubeError> {
    let done = match op {
        FaceOp::Status(object) => kube.apply_status(object).await.map(|_| ()),
        FaceOp::Annotate { key, annotations } => {
            let patch = json!({"metadata": {"annotations": annotations}});
            kube.patch(key, &patch, &Precondition::None).await.map(|_| ())
        }
        FaceOp::Create(object) => kube.create(object.clone()).await.map(|_| ()),
        FaceOp::Delete(key, uid) => kube.delete(key, uid, None).await.map(|_| ()),
        FaceOp::Finalizers { key, version, finalizers } => {
            patch_at(kube, key, version, json!({"finalizers": finalizers})).await
        }
        FaceOp::Own { key, version, owners } => {
            patch_at(kube, key, version, json!({"ownerReferences": owners})).await
        }
    };
    match done {
        Err(KubeError::Conflict { .. } | KubeError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// Changes the metadata of an object that is as it was at planning.
async fn patch_at<K: Kube>(
    kube: &K,
    key: &ObjectKey,
    version: &str,
    metadata: Value,
) -> Result<(), KubeError> {
    let precondition = Precondition::ResourceVersion(version.to_owned());
    kube.patch(key, &json!({"metadata": metadata}), &precondition).await.map(|_| ())
}

/// The operation that shows a status, where it isn't shown.
pub(super) fn changed_status(object: &Value, status: Value) -> Option<FaceOp> {
    let kind = Kind::parse(text(object, "/kind")?)?;
    let name = object::name(object);
    let known = object.get("status").cloned().unwrap_or(Value::Null);
    (in_order(known) != in_order(status.clone())).then(|| FaceOp::Status(with_status(kind, name, status)))
}

/// The operation that annotates a NodePool with the hash of its template, where it isn't.
pub(super) fn changed_pool_hash(object: &Value) -> Option<FaceOp> {
    let Ok(ManifestObject::NodePool(pool)) = manifest::read_stored(object) else { return None };
    annotated(object, Kind::NodePool, PoolHash::of(&pool.template).annotations())
}

/// The operation that annotates a class with the hash of its spec, where it isn't. The hash of an older spec isn't shown.
pub(super) fn changed_hash(object: &Value, class: &ClassStatus) -> Option<FaceOp> {
    let generation = object::at(object, "/metadata/generation").and_then(Value::as_u64);
    let annotations = class.hash.filter(|_| generation == Some(class.generation))?.annotations();
    annotated(object, Kind::Ec2NodeClass, annotations)
}

/// The operation that adds a finalizer, where it is missing.
pub(super) fn with_finalizer(object: &Value, ours: &str) -> Option<FaceOp> {
    let known = object::list(object, "/metadata/finalizers");
    let is_missing = known.iter().all(|finalizer| finalizer != ours);
    let all = || known.iter().cloned().chain([json!(ours)]).collect();
    is_missing.then(all).and_then(|finalizers| finalizers_op(object, finalizers))
}

/// The operation that removes a finalizer, where it is there.
pub(super) fn released(object: &Value, ours: &str) -> Option<FaceOp> {
    let known = object::list(object, "/metadata/finalizers");
    let others: Vec<Value> = known.iter().filter(|finalizer| *finalizer != ours).cloned().collect();
    let is_there = others.len() < known.len();
    is_there.then_some(others).and_then(|finalizers| finalizers_op(object, finalizers))
}

pub(super) fn delete(object: &Value) -> FaceOp {
    let key = ObjectKey::new(Kind::NodeClaim, "", object::name(object));
    FaceOp::Delete(key, object::uid(object).to_owned())
}

pub(super) fn with_status(kind: Kind, name: &str, status: Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name}, "status": status})
}

/// The operation that sets annotations, where they aren't set.
fn annotated(object: &Value, kind: Kind, annotations: [(&'static str, String); 2]) -> Option<FaceOp> {
    let shown: BTreeMap<&str, &str> = object::texts(object, "/metadata/annotations").collect();
    if annotations.iter().all(|(key, value)| shown.get(key) == Some(&value.as_str())) {
        return None;
    }
    let key = ObjectKey::new(kind, "", object::name(object));
    let annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    Some(FaceOp::Annotate { key, annotations })
}

fn finalizers_op(object: &Value, finalizers: Vec<Value>) -> Option<FaceOp> {
    let kind = Kind::parse(text(object, "/kind")?)?;
    Some(FaceOp::Finalizers {
        key: ObjectKey::new(kind, "", object::name(object)),
        version: text(object, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
        finalizers,
    })
}

/// A status with its conditions by type: the API server keeps them in an order of its own.
fn in_order(mut status: Value) -> Value {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.sort_by_cached_key(|condition| text(condition, "/type").unwrap_or_default().to_owned());
    }
    status
}
