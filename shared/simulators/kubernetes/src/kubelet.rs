//! Kubelets and pods: start, completion, stop; and the deletion of pods without a kubelet.
//!
//! Decides the times. A kubelet without an instance does nothing: its pods neither start nor end.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::pods;
use super::state::{ClusterState, Timer};
use super::store::{StoredName, child, set_condition};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

/// Annotation of a pod: after so many seconds of running it succeeds, as a Job's pods do.
const RUN_SECONDS: &str = "/metadata/annotations/tenon.dev~1simulated-run-seconds";

/// How often a kubelet looks whether a volume is attached.
const ATTACHED_AGAIN: SignedDuration = SignedDuration::from_secs(1);

impl ClusterState {
    /// Sets the timers of a bound pod. With several calls the earliest counts.
    pub(super) fn observe_bound_pod(&mut self, key: &ObjectKey, pod: &Object) {
        let Some(node) = text(pod, "/spec/nodeName") else { return };
        let name = (key.namespace.clone(), key.name.clone());
        let uid = object::uid(pod).to_owned();
        if object::deleted_at(pod).is_some() {
            let grace = tenon_snapshot::object::at(pod, "/metadata/deletionGracePeriodSeconds")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            let stop = self.config.pod_stop.min(SignedDuration::from_secs(grace));
            let deleted = object::deleted_at(pod).unwrap_or(self.now);
            let begun = deleted.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(self.now);
            self.at(begun.saturating_add(stop).unwrap_or(Timestamp::MAX), Timer::Stop(name, uid));
        } else if text(pod, "/status/phase") == Some("Pending") && self.is_served(node) {
            self.after(self.config.pod_start, Timer::Start(name, uid));
        }
    }

    /// The pod of that name, if it is still the same one.
    fn same_pod(&self, name: &StoredName, uid: &str) -> Option<Object> {
        self.store.pod(name).filter(|pod| object::uid(pod) == uid).map(Arc::clone)
    }

    pub(super) fn start_pod(&mut self, name: &StoredName, uid: &str) {
        let Some(pod) = self.same_pod(name, uid) else { return };
        let node = text(&pod, "/spec/nodeName").unwrap_or_default();
        if text(&pod, "/status/phase") != Some("Pending") || !pods::is_active(&pod) || !self.is_served(node) {
            return;
        }
        if !self.attach_volumes(&pod_key(name), &pod) {
            self.after(ATTACHED_AGAIN, Timer::Start(name.clone(), uid.to_owned()));
            return;
        }
        let now = self.now;
        self.store.change(&pod_key(name), |pod| {
            let status = child(pod, "status");
            status.insert("phase".to_owned(), json!("Running"));
            status.insert("startTime".to_owned(), json!(now.to_string()));
            set_condition(pod, "Ready", "True", "", now);
        });
        if let Some(seconds) = text(&pod, RUN_SECONDS).and_then(|seconds| seconds.parse().ok()) {
            self.after(SignedDuration::from_secs(seconds), Timer::Complete(name.clone(), uid.to_owned()));
        }
    }

    pub(super) fn complete_pod(&mut self, name: &StoredName, uid: &str) {
        let Some(pod) = self.same_pod(name, uid) else { return };
        let node = text(&pod, "/spec/nodeName").unwrap_or_default();
        if pods::is_finished(&pod) || !self.is_served(node) {
            return;
        }
        let now = self.now;
        self.store.change(&pod_key(name), |pod| {
            child(pod, "status").insert("phase".to_owned(), json!("Succeeded"));
            set_condition(pod, "Ready", "False", "PodCompleted", now);
        });
    }

    pub(super) fn stop_pod(&mut self, name: &StoredName, uid: &str) {
        let Some(pod) = self.same_pod(name, uid) else { return };
        let node = text(&pod, "/spec/nodeName").unwrap_or_default();
        if object::deleted_at(&pod).is_some() && self.is_served(node) {
            self.store.release(&pod_key(name));
        }
    }

    /// Deletes the pods of a node that don't tolerate its NoExecute taints, or not any longer.
    pub(super) fn enforce_taints(&mut self, node: &str) {
        let Some(object) = self.store.get(&ObjectKey::node(node)).map(Arc::clone) else { return };
        let taints: Vec<&Value> = object::list(&object, "/spec/taints")
            .iter()
            .filter(|taint| text(taint, "/effect") == Some("NoExecute"))
            .collect();
        if taints.is_empty() {
            return;
        }
        let on_node: Vec<Object> =
            self.store.pods_on(node).filter(|pod| pods::is_active(pod)).map(Arc::clone).collect();
        for pod in on_node {
            match self.tolerated_until(&pod, &taints) {
                None => {}
                Some(at) if at <= self.now => {
                    if let Some(key) = ObjectKey::of(&pod) {
                        let _deleted = self.store.delete(&key, None, self.now);
                    }
                }
                Some(at) => self.at(at, Timer::Taints(node.to_owned())),
            }
        }
    }

    /// Until when a pod may stay in spite of the taints; `None` if it may stay for ever.
    fn tolerated_until(&self, pod: &Value, taints: &[&Value]) -> Option<Timestamp> {
        let tolerations = object::tolerations(pod);
        let until = |value: &&Value| {
            let taint = object::taint(value)?;
            let since = object::time(value, "/timeAdded").unwrap_or(self.now);
            let matching: Vec<_> =
                tolerations.iter().filter(|toleration| toleration.tolerates(&taint)).collect();
            if matching.is_empty() {
                return Some(self.now);
            }
            let seconds = matching.iter().filter_map(|toleration| toleration.toleration_seconds).min()?;
            since.checked_add(SignedDuration::from_secs(seconds.max(0))).ok()
        };
        taints.iter().filter_map(until).min()
    }

    /// Deletes, without a grace period, pods bound to a Node that doesn't exist.
    pub(super) fn collect_pods(&mut self, node: &str) {
        if self.store.get(&ObjectKey::node(node)).is_some() {
            return;
        }
        let keys: Vec<ObjectKey> = self.store.pods_on(node).filter_map(|pod| ObjectKey::of(pod)).collect();
        for key in keys {
            let _deleted = self.store.delete(&key, Some(0), self.now);
        }
    }
}

fn pod_key(name: &StoredName) -> ObjectKey {
    ObjectKey::new(Kind::Pod, name.0.as_str(), name.1.as_str())
}
