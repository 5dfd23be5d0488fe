//! Controllers of pods: Deployments (through ReplicaSets), ReplicaSets, StatefulSets, Jobs, DaemonSets.
//!
//! Decides the number of pods and their names, not their nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tenon_domain::digest::Digest;
use tenon_domain::taint::{
    NOT_READY, Taint, TaintEffect, Toleration, UNREACHABLE, UNSCHEDULABLE, tolerates_forbidding,
};

use super::pods::{self, from_template, is_active, reference};
use super::selector::matches_node;
use super::state::ClusterState;
use super::store::{child, metadata};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

/// Tolerations that the DaemonSet controller adds to its pods.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    (UNSCHEDULABLE, "NoSchedule"),
];

/// Reconciles the pods of a workload.
type Reconcile = fn(&mut ClusterState, &Object);

/// The controllers.
const RECONCILED: [(Kind, Reconcile); 5] = [
    (Kind::Deployment, ClusterState::reconcile_deployment),
    (Kind::ReplicaSet, ClusterState::reconcile_replica_set),
    (Kind::StatefulSet, ClusterState::reconcile_stateful_set),
    (Kind::Job, ClusterState::reconcile_job),
    (Kind::DaemonSet, ClusterState::reconcile_daemon_set),
];

impl ClusterState {
    /// Reconciles the pods of one workload.
    pub(super) fn reconcile_workload(&mut self, key: &ObjectKey) {
        let Some(owner) = self.store.get(key).map(Arc::clone) else { return };
        if object::deleted_at(&owner).is_some() {
            return;
        }
        if let Some((_, reconcile)) = RECONCILED.iter().find(|(kind, _)| *kind == key.kind) {
            reconcile(self, &owner);
        }
    }

    fn reconcile_deployment(&mut self, deployment: &Object) {
        let template =
            tenon_snapshot::object::at(deployment, "/spec/template").cloned().unwrap_or(Value::Null);
        let hash = Digest::of_texts([template.to_string().as_str()]).base36(9);
        let name = format!("{}-{hash}", object::name(deployment));
        let owned: Vec<ObjectKey> =
            self.store.owned_by(object::uid(deployment)).filter_map(|object| ObjectKey::of(object)).collect();
        for old in owned.iter().filter(|key| key.name != name) {
            let _deleted = self.store.delete(old, None, self.now);
        }
        let mut set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": object::namespace(deployment),
                "labels": {"pod-template-hash": hash},
                "ownerReferences": [reference(deployment)],
            },
            "spec": {"replicas": replicas(deployment), "template": template},
        });
        if let Some(template) = set.pointer_mut("/spec/template") {
            let labels = metadata(template).entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert("pod-template-hash".to_owned(), json!(hash));
            }
        }
        // Kind and name are known: nothing of this can fail.
        let _applied = self.apply(set);
    }

    fn reconcile_replica_set(&mut self, set: &Object) {
        let wanted = replicas(set);
        let active: Vec<Object> =
            self.store.owned_by(object::uid(set)).filter(|pod| is_active(pod)).map(Arc::clone).collect();
        self.delete_surplus(&active, wanted);
        for _ in active.len()..wanted {
            self.create_pod_of(set, None);
        }
    }

    fn reconcile_stateful_set(&mut self, set: &Object) {
        let wanted: BTreeSet<String> =
            (0..replicas(set)).map(|n| format!("{}-{n}", object::name(set))).collect();
        let known: Vec<Object> = self.store.owned_by(object::uid(set)).map(Arc::clone).collect();
        for pod in &known {
            // A finished pod is replaced under its name, once it is removed.
            if !wanted.contains(object::name(pod)) || pods::is_finished(pod) {
                self.delete_pod(pod);
            }
        }
        let names: BTreeSet<&str> = known.iter().map(|pod| object::name(pod)).collect();
        for name in wanted.iter().filter(|name| !names.contains(name.as_str())) {
            self.create_pod_of(set, Some(name));
        }
    }

    fn reconcile_job(&mut self, job: &Object) {
        let parallelism = count(job, "/spec/parallelism", 1);
        let completions = count(job, "/spec/completions", parallelism);
        let owned: Vec<Object> = self.store.owned_by(object::uid(job)).map(Arc::clone).collect();
        let succeeded = self.count_succeeded(job, &owned);
        let active: Vec<Object> = owned.into_iter().filter(|pod| is_active(pod)).collect();
        let wanted = parallelism.min(completions.saturating_sub(succeeded));
        self.delete_surplus(&active, wanted);
        for _ in active.len()..wanted {
            self.create_pod_of(job, None);
        }
    }

    /// How many of the Job's pods succeeded, also of those that are gone: `status.succeeded`. Kubernetes keeps a finished
    /// pod with a finalizer until it is counted; here the status names the counted pods that are still there.
    fn count_succeeded(&mut self, job: &Object, owned: &[Object]) -> usize {
        let known = object::list(job, "/status/uncountedTerminatedPods/succeeded");
        let ended = |pod: &&Object| text(pod, "/status/phase") == Some("Succeeded");
        let there: BTreeSet<&str> = owned.iter().filter(ended).map(|pod| object::uid(pod)).collect();
        let new = there.iter().filter(|uid| !known.iter().any(|had| had.as_str() == Some(**uid))).count();
        let succeeded = count(job, "/status/succeeded", 0).saturating_add(new);
        if let Some(key) = ObjectKey::of(job).filter(|_| succeeded > 0) {
            self.store.change_status(&key, |counted| {
                let status = child(counted, "status");
                status.insert("succeeded".to_owned(), json!(succeeded));
                status.insert("uncountedTerminatedPods".to_owned(), json!({"succeeded": there}));
            });
        }
        succeeded
    }

    /// Deletes the pods beyond the wanted number: unbound ones first, then by name.
    fn delete_surplus(&mut self, active: &[Object], wanted: usize) {
        let mut pods: Vec<&Object> = active.iter().collect();
        pods.sort_by_key(|pod| (text(pod, "/spec/nodeName").is_some(), object::name(pod)));
        for pod in pods.into_iter().take(active.len().saturating_sub(wanted)) {
            self.delete_pod(pod);
        }
    }

    fn delete_pod(&mut self, pod: &Object) {
        if let Some(key) = ObjectKey::of(pod) {
            let _deleted = self.store.delete(&key, None, self.now);
        }
    }

    /// Creates a pod of the owner's template; its name is generated where none is given.
    fn create_pod_of(&mut self, owner: &Object, name: Option<&str>) {
        let Some(template) = tenon_snapshot::object::at(owner, "/spec/template") else { return };
        let generated = || {
            let parts = [
                self.config.seed.to_string(),
                object::uid(owner).to_owned(),
                self.store.version().to_string(),
            ];
            format!(
                "{}-{}",
                object::name(owner),
                Digest::of_texts(parts.iter().map(String::as_str)).base36(5)
            )
        };
        let name = name.map_or_else(generated, str::to_owned);
        let mut pod = from_template(owner, template, &name);
        if text(owner, "/kind") == Some(Kind::StatefulSet.as_str()) {
            let labels = metadata(&mut pod).entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), json!(name));
            }
        }
        // A name that is taken (one in 60 million) is tried again with the next change.
        let _created = self.create(pod);
    }

    pub(super) fn reconcile_daemon_sets(&mut self) {
        let sets: Vec<Object> = self.store.all(Kind::DaemonSet).map(Arc::clone).collect();
        for set in sets.iter().filter(|set| object::deleted_at(set).is_none()) {
            self.reconcile_daemon_set(set);
        }
    }

    fn reconcile_daemon_set(&mut self, set: &Object) {
        let Some(template) = tenon_snapshot::object::at(set, "/spec/template") else { return };
        let mut covered = BTreeSet::new();
        let nodes: Vec<Object> = self.store.all(Kind::Node).map(Arc::clone).collect();
        let there: BTreeSet<&str> = nodes.iter().map(|node| object::name(node)).collect();
        let owned: Vec<Object> = self.store.owned_by(object::uid(set)).map(Arc::clone).collect();
        for pod in &owned {
            // The controller deletes pods that wait for a Node that is gone; bound ones are the garbage collector's.
            let waits_in_vain = text(pod, "/spec/nodeName").is_none()
                && daemon_node(pod).is_some_and(|node| !there.contains(node));
            if pods::is_finished(pod) || waits_in_vain {
                self.delete_pod(pod);
            }
            covered.extend(daemon_node(pod).map(str::to_owned));
        }
        let tolerations = daemon_tolerations(template);
        for node in nodes.iter().filter(|node| !covered.contains(object::name(node))) {
            if runs_on(template, &tolerations, node) {
                let name = object::name(node);
                let suffix = Digest::of_texts([
                    object::uid(set),
                    object::uid(node),
                    &self.store.version().to_string(),
                ]);
                let pod_name = format!("{}-{}", object::name(set), suffix.base36(5));
                let pod = daemon_pod(set, template, &pod_name, name);
                let _created = self.create(pod);
            }
        }
    }
}

/// The Node that a DaemonSet's pod is for.
fn daemon_node(pod: &Value) -> Option<&str> {
    text(pod, "/spec/nodeName").or_else(|| {
        let terms =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        text(pod, &format!("{terms}/0/matchFields/0/values/0"))
    })
}

fn daemon_tolerations(template: &Value) -> Vec<Toleration> {
    let mut tolerations = object::tolerations(template);
    tolerations.extend(
        DAEMON_TOLERATIONS.iter().map(|(key, effect)| Toleration {
            effect: TaintEffect::parse(effect),
            ..Toleration::exists(*key)
        }),
    );
    // The scheduler taints a node that isn't Ready with NoSchedule too; daemons start there all the same.
    tolerations.extend(
        [NOT_READY, UNREACHABLE]
            .map(|key| Toleration { effect: Some(TaintEffect::NoSchedule), ..Toleration::exists(key) }),
    );
    tolerations
}

/// Whether the DaemonSet wants a pod on this node.
fn runs_on(template: &Value, tolerations: &[Toleration], node: &Value) -> bool {
    let empty = json!({});
    let labels = tenon_snapshot::object::at(node, "/metadata/labels").unwrap_or(&empty);
    let selector = object::texts(template, "/spec/nodeSelector")
        .all(|(key, value)| labels.get(key).and_then(Value::as_str) == Some(value));
    let required = template.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let affinity = required
        .and_then(Value::as_array)
        .is_none_or(|terms| matches_node(terms, labels, object::name(node)));
    let taints: Vec<Taint> = object::taints(node);
    selector && affinity && tolerates_forbidding(&taints, tolerations).is_ok()
}

/// A DaemonSet's pod for a node: the node affinity's terms get the node's name, the tolerations those of daemons.
fn daemon_pod(set: &Value, template: &Value, name: &str, node: &str) -> Value {
    let mut pod = from_template(set, template, name);
    let mut tolerations = object::list(&pod, "/spec/tolerations").to_vec();
    let added =
        DAEMON_TOLERATIONS.into_iter().chain([(NOT_READY, "NoSchedule"), (UNREACHABLE, "NoSchedule")]);
    tolerations
        .extend(added.map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})));
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let spec = child(&mut pod, "spec");
    spec.insert("tolerations".to_owned(), Value::Array(tolerations));
    let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
    let required = child(affinity, "nodeAffinity")
        .entry("requiredDuringSchedulingIgnoredDuringExecution")
        .or_insert_with(|| json!({"nodeSelectorTerms": []}));
    // Like the DaemonSet controller: the name replaces the template's affinity, which the node already satisfies.
    if let Some(required) = required.as_object_mut() {
        required.clear();
        required.insert("nodeSelectorTerms".to_owned(), json!([{"matchFields": fields}]));
    }
    pod
}

/// `spec.replicas`; 1 where absent.
pub(super) fn replicas(owner: &Value) -> usize {
    count(owner, "/spec/replicas", 1)
}

fn count(owner: &Value, pointer: &str, absent: usize) -> usize {
    owner
        .pointer(pointer)
        .and_then(Value::as_u64)
        .map_or(absent, |n| usize::try_from(n).unwrap_or(usize::MAX))
}
