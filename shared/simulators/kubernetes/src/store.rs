//! The objects of the simulated API server, and the indexes for its controllers.
//!
//! Decides versions, UIDs, finalizers, and when an object is removed. It doesn't decide the controllers' reactions.
//!
//! Invariants: an unchanged object gets no new version; the indexes hold exactly the existing pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tenon_domain::digest::Digest;

use super::PodCounts;
use tenon_snapshot::kube::{KubeError, key_of};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::versions::{ObjectChange, Versions};

/// Namespace and name.
pub(super) type StoredName = (String, String);

/// All objects.
#[derive(Debug, Default)]
pub(super) struct ObjectStore {
    seed: u64,
    version: u64,
    versions: Versions,
    objects: BTreeMap<Kind, BTreeMap<StoredName, Object>>,
    pods_by_node: BTreeMap<String, BTreeSet<StoredName>>,
    pod_counts: PodCounts,
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    touched: BTreeSet<ObjectKey>,
    gone_owners: BTreeSet<String>,
}

impl ObjectStore {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(&key.kind)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    pub(super) fn pod(&self, name: &StoredName) -> Option<&Object> {
        self.objects.get(&Kind::Pod)?.get(name)
    }

    /// All objects of a kind, by namespace and name.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = &Object> + Clone {
        self.objects.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// The pods that are bound to a node.
    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Object> {
        self.pods_by_node.get(node).into_iter().flatten().filter_map(|name| self.pod(name))
    }

    /// How many pods are how far.
    pub(super) fn pod_counts(&self) -> PodCounts {
        self.pod_counts
    }

    /// The objects that an owner controls.
    pub(super) fn owned_by(&self, owner: &str) -> impl Iterator<Item = &Object> {
        self.dependents_of(owner).filter(move |object| {
            object::controller(object).and_then(|controller| text(controller, "/uid")) == Some(owner)
        })
    }

    /// The objects that name an owner, whether or not it controls them.
    fn dependents_of(&self, owner: &str) -> impl Iterator<Item = &Object> {
        self.owned.get(owner).into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// The dependents of an owner that doesn't exist.
    pub(super) fn orphans_of(&self, owner: &str) -> impl Iterator<Item = &Object> {
        self.dependents_of(owner).filter(|object| {
            object::list(object, "/metadata/ownerReferences")
                .iter()
                .all(|other| !self.is_there(object, other))
        })
    }

    /// Whether the owner that a reference names is there. One of a kind that isn't kept here is.
    fn is_there(&self, object: &Value, reference: &Value) -> bool {
        let (kind, name) = (text(reference, "/kind"), text(reference, "/name").unwrap_or_default());
        let Some(kind) = kind.and_then(Kind::parse) else { return true };
        // An owner is in the object's namespace, or in none.
        let found = [object::namespace(object), ""].map(|namespace| ObjectKey::new(kind, namespace, name));
        let mut found = found.iter().filter_map(|key| self.get(key));
        found.any(|owner| text(reference, "/uid") == Some(object::uid(owner)))
    }

    /// The changed objects since the last call, by key, with removed ones.
    pub(super) fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.touched)
    }

    /// The pods among those that [`ObjectStore::take_touched`] will give.
    pub(super) fn touched_pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.touched.iter().filter(|key| key.kind == Kind::Pod)
    }

    /// Whether anything changed since then.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The version of the latest change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The counters of changes.
    pub(super) fn versions(&self) -> Versions {
        self.versions
    }

    /// UIDs of objects removed since the last call.
    pub(super) fn take_gone_owners(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.gone_owners)
    }

    /// Creates an object: UID, creation time, version.
    pub(super) fn create(&mut self, mut object: Value, now: Timestamp) -> Result<Object, KubeError> {
        let key = key_of(&object)?;
        if self.get(&key).is_some() {
            return Err(KubeError::Conflict { key, message: "it exists already".to_owned() });
        }
        self.version += 1;
        let uid = new_uid(self.seed, self.version, &key);
        let api_version = json!(key.kind.api_version());
        if let Some(fields) = object.as_object_mut() {
            fields.entry("apiVersion").or_insert(api_version);
        }
        let meta = metadata(&mut object);
        if !key.namespace.is_empty() {
            meta.insert("namespace".to_owned(), json!(key.namespace));
        }
        // A manifest may bring a UID, so that tests can name it.
        meta.entry("uid").or_insert(json!(uid));
        meta.insert("creationTimestamp".to_owned(), json!(now.to_string()));
        meta.insert("generation".to_owned(), json!(1));
        meta.remove("deletionTimestamp");
        Ok(self.insert(key, object))
    }

    /// Replaces an object. A changed spec raises the generation; a terminating object without finalizers is removed.
    pub(super) fn update(&mut self, mut object: Value) -> Result<Object, KubeError> {
        let key = key_of(&object)?;
        let Some(old) = self.get(&key).map(Arc::clone) else { return Err(KubeError::NotFound { key }) };
        if old.get("spec") != object.get("spec") {
            let generation =
                tenon_snapshot::object::at(&old, "/metadata/generation").and_then(Value::as_u64).unwrap_or(0);
            metadata(&mut object).insert("generation".to_owned(), json!(generation + 1));
        }
        let version =
            tenon_snapshot::object::at(&old, "/metadata/resourceVersion").cloned().unwrap_or(Value::Null);
        metadata(&mut object).insert("resourceVersion".to_owned(), version);
        if *old == object {
            return Ok(old);
        }
        let object = self.insert(key.clone(), object);
        if object::deleted_at(&object).is_some() && !is_held(&object) {
            self.remove(&key);
        }
        Ok(object)
    }

    /// Changes an object in place, if it exists; see [`ObjectStore::update`].
    pub(super) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        if let Some(old) = self.get(key) {
            let mut object = Value::clone(old);
            change(&mut object);
            // It exists and has a key: nothing of this can fail.
            let _updated = self.update(object);
        }
    }

    /// Changes the status of an object that stays as it is otherwise: the rest isn't compared.
    pub(super) fn change_status(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.get(key) else { return };
        let mut object = Value::clone(old);
        change(&mut object);
        if old.get("status") != object.get("status") {
            self.insert(key.clone(), object);
        }
    }

    /// Deletes an object as the API server does: pods that are bound get their grace, finalizers hold. `false` where
    /// it doesn't exist.
    pub(super) fn delete(&mut self, key: &ObjectKey, grace: Option<u32>, now: Timestamp) -> Option<()> {
        let object = Arc::clone(self.get(key)?);
        let grace = if key.kind == Kind::Pod { pod_grace(&object, grace) } else { 0 };
        let at = now.saturating_add(SignedDuration::from_secs(grace.into())).unwrap_or(Timestamp::MAX);
        match object::deleted_at(&object) {
            // A later deletion only ever shortens a pod's grace, and changes nothing of anything else.
            Some(known) if key.kind != Kind::Pod || (known <= at && grace > 0) => {}
            Some(_) | None => {
                self.change(key, |object| {
                    let meta = metadata(object);
                    meta.insert("deletionTimestamp".to_owned(), json!(at.to_string()));
                    if key.kind == Kind::Pod {
                        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
                    }
                });
            }
        }
        Some(())
    }

    /// Removes an object without finalizers, whatever else delays it: the kubelet's last report on a pod.
    pub(super) fn release(&mut self, key: &ObjectKey) {
        self.change(key, |object| {
            metadata(object).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        });
    }

    fn insert(&mut self, key: ObjectKey, mut object: Value) -> Object {
        self.version += 1;
        metadata(&mut object).insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        let object = Arc::new(object);
        let name = (key.namespace.clone(), key.name.clone());
        let old = self.objects.entry(key.kind).or_default().insert(name, Arc::clone(&object));
        let waits = key.kind == Kind::Pod && text(&object, "/spec/nodeName").is_none();
        let arrives = old.is_none() && waits;
        let stayed = old.as_deref().is_none_or(|old| object::deleted_at(old).is_none());
        self.versions.count(match (arrives, stayed && object::deleted_at(&object).is_some()) {
            (true, _) => ObjectChange::Arrival,
            (false, true) => ObjectChange::of_deleted(key.kind),
            (false, false) => ObjectChange::of(key.kind),
        });
        if let Some(old) = old {
            self.unindex(&key, &old);
        }
        for owner in owners(&object) {
            self.owned.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        if key.kind == Kind::Pod {
            let name = (key.namespace.clone(), key.name.clone());
            if let Some(node) = text(&object, "/spec/nodeName") {
                self.pods_by_node.entry(node.to_owned()).or_default().insert(name);
            }
            if let Some(count) = self.pod_counts.of(&object) {
                *count += 1;
            }
        }
        self.touched.insert(key);
        object
    }

    fn remove(&mut self, key: &ObjectKey) {
        let name = (key.namespace.clone(), key.name.clone());
        let Some(old) = self.objects.get_mut(&key.kind).and_then(|objects| objects.remove(&name)) else {
            return;
        };
        self.version += 1;
        self.versions.count(ObjectChange::of_deleted(key.kind));
        self.unindex(key, &old);
        self.gone_owners.insert(object::uid(&old).to_owned());
        self.touched.insert(key.clone());
        // Its controllers, and the counters over it, look again.
        if let Some(node) = text(&old, "/spec/nodeName") {
            self.touched.insert(ObjectKey::node(node));
        }
        if let Some(owner) = object::controller(&old)
            && let (Some(kind), Some(name)) =
                (text(owner, "/kind").and_then(Kind::parse), text(owner, "/name"))
        {
            self.touched.insert(ObjectKey::new(kind, object::namespace(&old), name));
        }
    }

    fn unindex(&mut self, key: &ObjectKey, old: &Value) {
        for owner in owners(old) {
            drop_from(&mut self.owned, owner, key);
        }
        if key.kind == Kind::Pod {
            let name = (key.namespace.clone(), key.name.clone());
            if let Some(node) = text(old, "/spec/nodeName") {
                drop_from(&mut self.pods_by_node, node, &name);
            }
            if let Some(count) = self.pod_counts.of(old) {
                *count = count.saturating_sub(1);
            }
        }
    }
}

fn drop_from<T: Ord>(index: &mut BTreeMap<String, BTreeSet<T>>, key: &str, value: &T) {
    if let Some(set) = index.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            index.remove(key);
        }
    }
}

/// The UIDs of an object's owners.
fn owners(object: &Value) -> impl Iterator<Item = &str> {
    object::list(object, "/metadata/ownerReferences").iter().filter_map(|owner| text(owner, "/uid"))
}

/// Whether something keeps a terminating object: a finalizer, or a pod's grace.
fn is_held(object: &Value) -> bool {
    !object::list(object, "/metadata/finalizers").is_empty()
        || tenon_snapshot::object::at(object, "/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_u64)
            .unwrap_or(0)
            > 0
}

/// A pod that no kubelet runs, or that has finished, is removed at once.
fn pod_grace(pod: &Value, asked: Option<u32>) -> u32 {
    let finished = matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
    if text(pod, "/spec/nodeName").is_none() || finished {
        return 0;
    }
    let own = tenon_snapshot::object::at(pod, "/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    asked.unwrap_or_else(|| own.and_then(|own| u32::try_from(own).ok()).unwrap_or(30))
}

fn new_uid(seed: u64, version: u64, key: &ObjectKey) -> String {
    let hex = Digest::of_texts([seed.to_string().as_str(), &version.to_string(), &key.to_string()]).hex();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().to_owned();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// `metadata` of an object, made where it isn't there.
pub(super) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(object, "metadata")
}

/// A map among the fields of an object, made where it isn't there.
pub(super) fn child<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    as_map(as_map(object).entry(field).or_insert(Value::Null))
}

/// The value as a map; another value becomes an empty one.
fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!()
        }
    }
}

/// RFC 7396.
pub(super) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        for (field, value) in fields {
            if value.is_null() {
                map.remove(field);
            } else {
                merge_patch(map.entry(field.as_str()).or_insert(Value::Null), value);
            }
        }
    }
}

/// Sets a condition of `status.conditions`; its transition time changes only with its status.
pub(super) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, now: Timestamp) {
    let conditions = child(object, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    let at = match list.iter().find(|c| text(c, "/type") == Some(kind)) {
        Some(known) if text(known, "/status") == Some(status) => known.get("lastTransitionTime").cloned(),
        Some(_) | None => None,
    };
    let at = at.unwrap_or_else(|| json!(now.to_string()));
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": at});
    if let (Some(fields), false) = (condition.as_object_mut(), reason.is_empty()) {
        fields.insert("reason".to_owned(), json!(reason));
    }
    match list.iter_mut().find(|c| text(c, "/type") == Some(kind)) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
