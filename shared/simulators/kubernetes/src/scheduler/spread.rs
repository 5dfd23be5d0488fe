//! The default constraints by which pods are spread: whose pods count.
//!
//! Decides the selector of a pod that names no constraint itself. It decides neither the topology nor the skew.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

use super::super::store::ObjectStore;

/// The selector by which a pod is spread if it says nothing itself: those of the Services that select it, and its
/// ReplicaSet's or StatefulSet's, together. Without any of them it isn't spread.
///
/// Source: `DefaultSelector` in kubernetes/kubernetes `pkg/scheduler/framework/plugins/helper/spread.go`, read 2026-11.
pub(super) fn default_selector(store: &ObjectStore, pod: &Value) -> Option<Value> {
    let labels = object::text_map(pod, "/metadata/labels");
    let own = |service: &&Object| object::namespace(service) == object::namespace(pod);
    let selectors = store.all(Kind::Service).filter(own).map(|one| object::text_map(one, "/spec/selector"));
    let selecting = selectors.filter(|of| of.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let served: BTreeMap<String, String> = selecting.flatten().collect();
    let owner = owner_selector(store, pod).unwrap_or(Value::Null);
    let of_owner = object::texts(&owner, "/matchLabels")
        .map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
    let required: Vec<Value> =
        of_owner.chain(object::list(&owner, "/matchExpressions").iter().cloned()).collect();
    let some = !served.is_empty() || !required.is_empty();
    some.then(|| json!({"matchLabels": served, "matchExpressions": required}))
}

/// The selector of the ReplicaSet or StatefulSet that a pod belongs to. One without a selector has its template's
/// labels.
fn owner_selector(store: &ObjectStore, pod: &Value) -> Option<Value> {
    let owner = object::controller(pod)?;
    let kind = Kind::parse(text(owner, "/kind")?)
        .filter(|kind| matches!(kind, Kind::ReplicaSet | Kind::StatefulSet))?;
    let set = store.get(&ObjectKey::new(kind, object::namespace(pod), text(owner, "/name")?))?;
    let labels =
        || set.pointer("/spec/template/metadata/labels").map(|labels| json!({"matchLabels": labels}));
    set.pointer("/spec/selector").cloned().or_else(labels)
}
