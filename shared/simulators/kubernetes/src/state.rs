//! The cluster's state and its scheduler of changes: timers, and the reactions to a change.
//!
//! Decides the order: timers by time, then by kind and name; after each moment the controllers by key, then the
//! scheduler, until nothing changes any longer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::nodes::SimulatedKubelet;
use super::scheduler::Scheduler;
use super::store::{ObjectStore, StoredName};
use super::{Evicted, SimulationConfig, pods};
use tenon_snapshot::note::Note;
use tenon_snapshot::object::{self, Kind, ObjectKey, text};
use tenon_snapshot::pod::PodReader;

/// Controllers that feed each other for ever would be a fault of this simulation: they are cut off.
const ROUNDS_OF_A_MOMENT: usize = 1_000;

/// The version of Kubernetes before an upgrade.
const VERSION: &str = "1.35";

/// A change that happens by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The kubelet of an instance makes its Node.
    Join(String),
    /// The kubelet of an instance is Ready.
    Ready(String),
    /// The Node of a removed instance becomes unreachable.
    Unreachable(String),
    /// The cloud controller finds that a Node's instance doesn't exist.
    CloudController(String),
    /// A pod runs.
    Start(StoredName, String),
    /// A pod's containers end by themselves.
    Complete(StoredName, String),
    /// A terminating pod's containers end.
    Stop(StoredName, String),
    /// A NoExecute taint's tolerations may run out on a node.
    Taints(String),
    /// Pods of a removed Node are deleted.
    CollectPods(String),
    /// Volumes may be detached from a Node.
    Detach(String),
}

/// Labels and annotations of a manifest: the field of its metadata, and the name.
pub(super) type AppliedFields = BTreeSet<(&'static str, String)>;

/// The cluster.
#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) config: SimulationConfig,
    pub(super) now: Timestamp,
    pub(super) version: String,
    pub(super) store: ObjectStore,
    /// What the last manifest of each applied object had.
    pub(super) applied: BTreeMap<ObjectKey, AppliedFields>,
    pub(super) kubelets: BTreeMap<String, SimulatedKubelet>,
    pub(super) evictions: Vec<Evicted>,
    /// When the last look of whoever evicts began.
    pub(super) looked_at: Option<Timestamp>,
    pub(super) notes: VecDeque<Note>,
    pub(super) pods: PodReader,
    pub(super) scheduler: Scheduler,
    /// Pods with attached volumes, and their Nodes.
    pub(super) with_volumes: BTreeMap<StoredName, String>,
    /// The Node and the time of each detachment.
    pub(super) detached: Vec<(String, Timestamp)>,
    timers: BTreeSet<(Timestamp, Timer)>,
}

/// The controllers that must look again.
#[derive(Debug, Default)]
struct Dirty {
    workloads: BTreeSet<ObjectKey>,
    namespaces: BTreeSet<String>,
    nodes: BTreeSet<String>,
    all_daemon_sets: bool,
}

impl ClusterState {
    pub(super) fn new(config: SimulationConfig, now: Timestamp) -> Self {
        let store = ObjectStore::new(config.seed);
        let scheduler = Scheduler::new(config.score, config.seed);
        Self {
            config,
            now,
            version: VERSION.to_owned(),
            store,
            applied: BTreeMap::new(),
            kubelets: BTreeMap::new(),
            evictions: vec![],
            looked_at: None,
            notes: VecDeque::new(),
            pods: PodReader::default(),
            scheduler,
            with_volumes: BTreeMap::new(),
            detached: Vec::new(),
            timers: BTreeSet::new(),
        }
    }

    pub(super) fn tick(&mut self, now: Timestamp) {
        self.settle();
        while let Some((at, _)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.now = self.now.max(at);
            while let Some((_, timer)) = self.timers.first().filter(|(due, _)| *due == at).cloned() {
                self.timers.remove(&(at, timer.clone()));
                self.ring(timer);
            }
            self.settle();
        }
        self.now = self.now.max(now);
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        if self.store.is_touched() { Some(self.now) } else { self.timers.first().map(|(at, _)| *at) }
    }

    /// Sets a timer `after` from now.
    pub(super) fn after(&mut self, after: SignedDuration, timer: Timer) {
        self.timers.insert((self.now.saturating_add(after).unwrap_or(Timestamp::MAX), timer));
    }

    /// Sets a timer for a time.
    pub(super) fn at(&mut self, at: Timestamp, timer: Timer) {
        self.timers.insert((at.max(self.now), timer));
    }

    fn ring(&mut self, timer: Timer) {
        match timer {
            Timer::Join(instance) => self.join(&instance),
            Timer::Ready(instance) => self.become_ready(&instance),
            Timer::Unreachable(instance) => self.become_unreachable(&instance),
            Timer::CloudController(instance) => self.delete_node_of(&instance),
            Timer::Start(pod, uid) => self.start_pod(&pod, &uid),
            Timer::Complete(pod, uid) => self.complete_pod(&pod, &uid),
            Timer::Stop(pod, uid) => self.stop_pod(&pod, &uid),
            Timer::Taints(node) => self.enforce_taints(&node),
            Timer::CollectPods(node) => self.collect_pods(&node),
            Timer::Detach(node) => self.detach_volumes(&node),
        }
    }

    /// Runs controllers, kubelets and the scheduler until nothing changes any longer.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_OF_A_MOMENT {
            let touched = self.store.take_touched();
            if touched.is_empty() {
                return;
            }
            let dirty = self.observe_touched(touched);
            self.collect_orphans();
            for node in &dirty.nodes {
                self.enforce_taints(node);
                if self.store.get(&ObjectKey::node(node.as_str())).is_none() {
                    self.after(self.config.pod_gc_after, Timer::CollectPods(node.clone()));
                }
            }
            for workload in &dirty.workloads {
                self.reconcile_workload(workload);
            }
            if dirty.all_daemon_sets {
                self.reconcile_daemon_sets();
            }
            for namespace in &dirty.namespaces {
                self.update_budgets(namespace);
            }
            self.schedule();
        }
    }

    fn observe_touched(&mut self, touched: BTreeSet<ObjectKey>) -> Dirty {
        let mut dirty = Dirty::default();
        for key in touched {
            match key.kind {
                Kind::Pod => self.observe_pod(&key, &mut dirty),
                Kind::Node => {
                    self.scheduler.node_changed(&key.name);
                    dirty.all_daemon_sets = true;
                    dirty.nodes.insert(key.name);
                }
                Kind::DaemonSet => {
                    dirty.all_daemon_sets = true;
                }
                Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::Job => {
                    dirty.workloads.insert(key);
                }
                Kind::PodDisruptionBudget => {
                    dirty.namespaces.insert(key.namespace);
                }
                Kind::PersistentVolume
                | Kind::PersistentVolumeClaim
                | Kind::StorageClass
                | Kind::CsiNode
                | Kind::VolumeAttachment
                | Kind::Namespace => {
                    self.scheduler.world_changed();
                }
                Kind::Service => self.scheduler.services_changed(),
                Kind::PriorityClass | Kind::Lease | Kind::NodePool | Kind::Ec2NodeClass | Kind::NodeClaim => {
                }
            }
        }
        dirty
    }

    fn observe_pod(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        dirty.namespaces.insert(key.namespace.clone());
        self.scheduler.pod_touched(key);
        let Some(pod) = self.store.get(key).cloned() else {
            self.release_volumes(&(key.namespace.clone(), key.name.clone()));
            return;
        };
        self.scheduler.pod_changed(&pod);
        if pods::is_finished(&pod) {
            self.release_volumes(&(key.namespace.clone(), key.name.clone()));
        }
        if !pods::is_finished(&pod) {
            self.make_volumes(&pod);
        }
        // What isn't attached yet is attached before the pod starts.
        self.attach_volumes(key, &pod);
        if object::deleted_at(&pod).is_some() || pods::is_finished(&pod) {
            dirty.workloads.extend(owner_key(&pod));
        }
        self.observe_bound_pod(key, &pod);
    }

    /// Deletes the dependents of removed objects: the garbage collector, in the background.
    fn collect_orphans(&mut self) {
        for owner in self.store.take_gone_owners() {
            let owned: Vec<ObjectKey> =
                self.store.orphans_of(&owner).filter_map(|object| ObjectKey::of(object)).collect();
            for key in owned {
                let _deleted = self.store.delete(&key, None, self.now);
            }
        }
    }
}

/// The workload that controls a pod.
fn owner_key(pod: &Value) -> Option<ObjectKey> {
    let owner = object::controller(pod)?;
    Some(ObjectKey::new(Kind::parse(text(owner, "/kind")?)?, object::namespace(pod), text(owner, "/name")?))
}
