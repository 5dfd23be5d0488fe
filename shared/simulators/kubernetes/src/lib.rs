//! A simulated cluster: an API server in memory, controllers, kube-scheduler's placement, and kubelets that join.
//!
//! Decides the changes of a cluster in virtual time: [`SimulatedCluster::tick`] sets the time,
//! [`SimulatedCluster::next_due`] is the time of the next change. It stands in for a real cluster, by the rules of
//! kube-scheduler 1.35; a test of `tenon-cluster-tests` compares its placement with the real one's.
//!
//! Not simulated: preemption, volumes of other drivers than EBS being made, traffic of Services, rolling updates (a
//! changed template replaces a Deployment's pods at once), DRA (such pods are unschedulable), ordered StatefulSets (their
//! pods start in parallel).
//!
//! Invariants: the same seed and the same calls give the same cluster; between two ticks only calls of the API change
//! it; the eviction log holds every successful eviction, with the budgets at that moment.

mod api;
mod attachments;
mod budgets;
mod kubelet;
mod nodes;
mod pods;
mod provisioner;
mod scheduler;
mod selector;
mod state;
mod store;
mod workloads;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use nodes::NodeSpec;
pub use scheduler::Score;

use state::ClusterState;
use tenon_snapshot::kube::{Deletion, KubeError};
use tenon_snapshot::note::Note;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::versions::Versions;

/// How the simulated cluster behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationConfig {
    /// The seed of UIDs, generated names and draws among equal nodes.
    pub seed: u64,
    /// From a pod's binding to its Ready: pulling images and starting.
    pub pod_start: SignedDuration,
    /// From a pod's deletion to its end, if its grace is no shorter.
    pub pod_stop: SignedDuration,
    /// From an instance's end to `Ready=Unknown` of its Node: kube-controller-manager's `node-monitor-grace-period`.
    pub unreachable_after: SignedDuration,
    /// From then until the cloud controller deletes the Node.
    pub cloud_controller_after: SignedDuration,
    /// From a Node's end to the deletion of its pods: the period of pod garbage collection.
    pub pod_gc_after: SignedDuration,
    /// From a pod's end to the end of its volumes' attachments.
    pub detaches_after: SignedDuration,
    /// How the scheduler ranks full nodes.
    pub score: Score,
    /// Who places pods.
    pub placing: Placing,
}

/// Who places pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placing {
    /// The simulated kube-scheduler.
    #[default]
    Scheduler,
    /// The caller, by `spec.nodeName`: the scheduler only rates nodes, such as for pods that another one places.
    Caller,
}

impl Default for SimulationConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            pod_start: SignedDuration::from_secs(3),
            pod_stop: SignedDuration::from_secs(2),
            unreachable_after: SignedDuration::from_secs(40),
            cloud_controller_after: SignedDuration::from_secs(5),
            pod_gc_after: SignedDuration::from_secs(20),
            detaches_after: SignedDuration::from_secs(8),
            score: Score::LeastAllocated,
            placing: Placing::Scheduler,
        }
    }
}

/// A simulated cluster; clones are the same cluster.
#[derive(Debug, Clone)]
pub struct SimulatedCluster {
    state: Arc<Mutex<ClusterState>>,
}

/// An eviction that the API server let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    /// When.
    pub at: Timestamp,
    /// When the look began from which it follows; `at`, where nobody said.
    pub looked_at: Timestamp,
    /// Which pod.
    pub pod: ObjectKey,
    /// Its node.
    pub node: String,
    /// Its grace period.
    pub grace: SignedDuration,
    /// Whether a PodDisruptionBudget covers it.
    pub guarded: bool,
    /// Whether it has a volume that one node at a time can have.
    pub has_volume: bool,
    /// The PodDisruptionBudgets that it used: name, `disruptionsAllowed` just before. A pod that isn't Ready uses
    /// none if `unhealthyPodEvictionPolicy` lets it go, because it isn't among the healthy ones.
    pub budgets: Vec<(String, u32)>,
}

/// How many pods are how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodCounts {
    /// `Running`.
    pub running: usize,
    /// Bound, and not running yet.
    pub starting: usize,
    /// Not bound.
    pub pending: usize,
    /// Terminating, in any phase; not counted above.
    pub terminating: usize,
    /// `Succeeded` or `Failed`.
    pub finished: usize,
}

impl PodCounts {
    /// The count of pods that are as far as this one; none for pods of DaemonSets.
    fn of(&mut self, pod: &Value) -> Option<&mut usize> {
        if is_daemon_pod(pod) {
            return None;
        }
        let bound = text(pod, "/spec/nodeName").is_some();
        Some(match text(pod, "/status/phase") {
            Some("Succeeded" | "Failed") => &mut self.finished,
            _ if object::deleted_at(pod).is_some() => &mut self.terminating,
            Some("Running") => &mut self.running,
            _ if bound => &mut self.starting,
            _ => &mut self.pending,
        })
    }
}

impl SimulatedCluster {
    /// An empty cluster at a time.
    #[must_use]
    pub fn new(config: SimulationConfig, now: Timestamp) -> Self {
        Self { state: Arc::new(Mutex::new(ClusterState::new(config, now))) }
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        // A panic in another test thread leaves no inconsistency that matters here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Upgrades the control plane to a version, such as `1.36`.
    pub fn upgrade(&self, version: &str) {
        version.clone_into(&mut self.state().version);
    }

    /// Executes all changes due up to `now`.
    pub fn tick(&self, now: Timestamp) {
        self.state().tick(now);
    }

    /// When something happens next by itself; nothing in a cluster that rests.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.state().next_due()
    }

    /// Counts changes: a cheap way to see that there were none.
    #[must_use]
    pub fn versions(&self) -> Versions {
        self.state().store.versions()
    }

    /// Creates or updates an object, as `kubectl apply` does.
    ///
    /// # Errors
    /// [`KubeError::Invalid`] for kinds that aren't known and objects without a name.
    pub fn apply(&self, object: Value) -> Result<Object, KubeError> {
        self.state().apply_manifest(object)
    }

    /// Sets the replicas of a Deployment in the namespace `default`, from the current number, like `kubectl scale`.
    ///
    /// # Errors [`KubeError::NotFound`] without a Deployment of that name.
    pub fn scale(&self, name: &str, replicas: impl FnOnce(i64) -> i64) -> Result<Object, KubeError> {
        let key = ObjectKey::new(Kind::Deployment, "default", name);
        let mut state = self.state();
        let Some(found) = state.store.get(&key) else { return Err(KubeError::NotFound { key }) };
        let mut deployment = Value::clone(found);
        let now = deployment.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        store::child(&mut deployment, "spec")
            .insert("replicas".to_owned(), Value::from(replicas(now).max(0)));
        state.apply(deployment)
    }

    /// Sets a condition of a Node, as its kubelet or a monitoring agent does.
    pub fn set_node_condition(&self, node: &str, condition: &str, status: &str) {
        let mut state = self.state();
        let now = state.now;
        let set = |node: &mut Value| store::set_condition(node, condition, status, "Monitored", now);
        state.store.change(&ObjectKey::node(node), set);
    }

    /// Deletes an object, like `kubectl delete`: finalizers and grace periods delay it, and its dependents are
    /// deleted with it.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Deletion {
        let mut state = self.state();
        let now = state.now;
        match state.store.delete(&ObjectKey::new(kind, namespace, name), None, now) {
            Some(()) => Deletion::Accepted,
            None => Deletion::NotFound,
        }
    }

    /// Boots an instance: its kubelet joins as the specification says.
    pub fn add_node(&self, spec: NodeSpec) {
        self.state().boot(spec);
    }

    /// Removes an instance: its kubelet is silent from now on.
    pub fn remove_instance(&self, provider_id: &str) {
        self.state().power_off(provider_id);
    }

    /// Silences the kubelet of an instance that goes on running: its pods stop, and nobody deletes its Node.
    pub fn silence_kubelet(&self, provider_id: &str) {
        self.state().silence(provider_id);
    }

    /// Whether the kubelet of an instance is silent, which its Node shows only some time later.
    #[must_use]
    pub fn is_silent(&self, provider_id: &str) -> bool {
        self.state().is_silent(provider_id)
    }

    /// One object.
    #[must_use]
    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Option<Object> {
        self.state().store.get(&ObjectKey::new(kind, namespace, name)).map(Arc::clone)
    }

    /// All objects of a kind, by namespace and name.
    #[must_use]
    pub fn objects(&self, kind: Kind) -> Vec<Object> {
        self.state().store.all(kind).map(Arc::clone).collect()
    }

    /// How many pods are how far, those of DaemonSets left out.
    #[must_use]
    pub fn pod_counts(&self) -> PodCounts {
        self.state().store.pod_counts()
    }

    /// Names of the pods on each Node, `namespace/name`, those of DaemonSets and finished ones left out.
    #[must_use]
    pub fn pods_by_node(&self) -> BTreeMap<String, Vec<String>> {
        let state = self.state();
        let of = |node: &Object| {
            let name = object::name(node).to_owned();
            let pods =
                state.store.pods_on(&name).filter(|pod| !is_daemon_pod(pod) && !pods::is_finished(pod));
            let pods = pods.map(|pod| format!("{}/{}", object::namespace(pod), object::name(pod))).collect();
            (name, pods)
        };
        state.store.all(Kind::Node).map(of).collect()
    }

    /// What kube-scheduler thinks of each Node for a pod that waits: its score, or why the pod doesn't fit. It knows
    /// changes up to the last [`SimulatedCluster::tick`].
    #[must_use]
    pub fn ratings(&self, namespace: &str, pod: &str) -> BTreeMap<String, Result<i64, String>> {
        self.state().ratings(&ObjectKey::new(Kind::Pod, namespace, pod))
    }

    /// The recent events, in their order.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        self.state().notes.iter().cloned().collect()
    }

    /// When volumes were detached, with their Node, in their order.
    #[must_use]
    pub fn detachments(&self) -> Vec<(String, Timestamp)> {
        self.state().detached.clone()
    }

    /// Whoever evicts begins to look: evictions from now on follow from what is read from now on.
    pub fn look_begins(&self, now: Timestamp) {
        self.state().looked_at = Some(now);
    }

    /// The successful evictions, in their order.
    #[must_use]
    pub fn evictions(&self) -> Vec<Evicted> {
        self.state().evictions.clone()
    }
}

fn is_daemon_pod(pod: &Value) -> bool {
    object::controller(pod).is_some_and(|owner| text(owner, "/kind") == Some("DaemonSet"))
}
