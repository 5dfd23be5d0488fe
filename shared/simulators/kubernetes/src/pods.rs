//! Pods from templates, and their properties.

use serde_json::{Value, json};

use super::store::{child, metadata};
use tenon_snapshot::object::{self, text};

/// Whether a pod has ended.
pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
}

/// Whether a pod is neither finished nor terminating.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && object::deleted_at(pod).is_none()
}

/// Whether a pod is Ready and stays.
pub(super) fn is_healthy(pod: &Value) -> bool {
    is_active(pod) && object::condition(pod, "Ready") == Some("True")
}

/// A pod of an owner's template, under a name.
pub(super) fn from_template(owner: &Value, template: &Value, name: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {}});
    if let Some(spec) = template.get("spec") {
        child(&mut pod, "spec")
            .extend(spec.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    }
    let meta = metadata(&mut pod);
    for field in ["labels", "annotations"] {
        if let Some(map) = template.pointer(&format!("/metadata/{field}")) {
            meta.insert(field.to_owned(), map.clone());
        }
    }
    meta.insert("name".to_owned(), json!(name));
    meta.insert("namespace".to_owned(), json!(object::namespace(owner)));
    meta.insert("ownerReferences".to_owned(), json!([reference(owner)]));
    pod
}

/// The reference by which an owner controls an object.
pub(super) fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": text(owner, "/apiVersion").unwrap_or_default(),
        "kind": text(owner, "/kind").unwrap_or_default(),
        "name": object::name(owner),
        "uid": object::uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
