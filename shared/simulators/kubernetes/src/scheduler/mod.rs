//! kube-scheduler: the node of each pod, or the reason why there is none.
//!
//! Decides by kube-scheduler's filters. A pod's nominated node is tried first; its room is kept by scheduling
//! nominated pods before others of their priority. Among feasible nodes it prefers those whose PreferNoSchedule
//! taints are tolerated, then the emptier or the fuller ones, then the lower name. It doesn't preempt.
//!
//! Invariants: a pod is bound only if every filter passes at that moment; equal pods that don't fit are tried once in
//! a pass.

mod filter;
mod info;
mod neighbours;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::pods;
use super::state::ClusterState;
use super::store::{child, set_condition};
use filter::Infeasible;
use info::NodeInfo;
use neighbours::Neighbours;
use shape::{SchedulingNeeds, SeenNeeds};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

/// Which of several feasible nodes is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Score {
    /// The emptiest: Kubernetes' default.
    #[default]
    LeastAllocated,
    /// The fullest.
    MostAllocated,
}

/// The scheduler's memory between passes.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    score: Score,
    shapes: SeenNeeds,
    nodes: BTreeMap<String, NodeInfo>,
    stale: BTreeSet<String>,
    work: SchedulerWork,
}

/// Whether anything changed since the last pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SchedulerWork {
    #[default]
    None,
    Some,
}

impl Scheduler {
    pub(super) fn new(score: Score) -> Self {
        Self { score, ..Self::default() }
    }

    /// A Node, or the pods on it, changed.
    pub(super) fn node_changed(&mut self, node: &str) {
        self.stale.insert(node.to_owned());
        self.work = SchedulerWork::Some;
    }

    /// Something else changed that placement depends on.
    pub(super) fn world_changed(&mut self) {
        self.work = SchedulerWork::Some;
    }
}

impl ClusterState {
    /// Places the pods that wait for a node: higher priority first, then those that are nominated, then the older, then
    /// by name.
    pub(super) fn schedule(&mut self) {
        if self.scheduler.work == SchedulerWork::None {
            return;
        }
        self.scheduler.work = SchedulerWork::None;
        self.refresh_nodes();
        let mut queue: Vec<Object> =
            self.store.unbound().filter(|pod| pods::is_active(pod) && is_ours(pod)).map(Arc::clone).collect();
        queue.sort_by_cached_key(|pod| {
            let priority = pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0);
            let created = text(pod, "/metadata/creationTimestamp").unwrap_or_default().to_owned();
            (
                -priority,
                nominated_node(pod).is_none(),
                created,
                object::namespace(pod).to_owned(),
                object::name(pod).to_owned(),
            )
        });
        let mut hopeless: BTreeMap<usize, String> = BTreeMap::new();
        for pod in queue {
            let shape = self.scheduler.shapes.of(&pod);
            if let Some(message) = hopeless.get(&shape.id) {
                let message = message.clone();
                self.refuse(&pod, "Unschedulable", &message);
                continue;
            }
            if !object::list(&pod, "/spec/schedulingGates").is_empty() {
                self.refuse(
                    &pod,
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                );
                continue;
            }
            match self.place(&pod, &shape) {
                Ok(node) => self.bind(&pod, &shape, &node),
                Err(message) => {
                    // Where neighbours matter, a pod that is bound later in the pass may open a place.
                    if !shape.minds_neighbours() {
                        hopeless.insert(shape.id, message.clone());
                    }
                    self.refuse(&pod, "Unschedulable", &message);
                }
            }
        }
    }

    /// Reads the nodes that changed.
    fn refresh_nodes(&mut self) {
        for name in std::mem::take(&mut self.scheduler.stale) {
            match self.store.get(&ObjectKey::node(name.as_str())) {
                None => {
                    self.scheduler.nodes.remove(&name);
                }
                Some(node) => {
                    let pods: Vec<_> =
                        self.store.pods_on(&name).filter(|pod| !pods::is_finished(pod)).collect();
                    let pods = pods
                        .into_iter()
                        .map(|pod| (Arc::clone(pod), self.scheduler.shapes.of(pod)))
                        .collect();
                    self.scheduler.nodes.insert(name, NodeInfo::new(node, pods));
                }
            }
        }
    }

    /// The node for a pod, or why there is none.
    fn place(&self, pod: &Object, shape: &SchedulingNeeds) -> Result<String, String> {
        let volumes = self
            .volume_terms(pod)
            .map_err(|refusal| self.sentence(&BTreeMap::from([(refusal, self.scheduler.nodes.len())])))?;
        let neighbours =
            Neighbours::new(shape, self.scheduler.nodes.values(), self.store.all(Kind::Namespace));
        let feasible =
            |node: &NodeInfo| filter::check(shape, node, &volumes).and_then(|()| neighbours.check(node));
        if let Some(nominated) = nominated_node(pod)
            && self.scheduler.nodes.get(nominated).is_some_and(|node| feasible(node).is_ok())
        {
            return Ok(nominated.to_owned());
        }
        let mut refusals: BTreeMap<Infeasible, usize> = BTreeMap::new();
        let mut best: Option<(info::Rank, &str)> = None;
        for (name, node) in &self.scheduler.nodes {
            match feasible(node) {
                Err(refusal) => *refusals.entry(refusal).or_default() += 1,
                Ok(()) => {
                    let rank = node.rank(shape, self.scheduler.score);
                    if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                        best = Some((rank, name));
                    }
                }
            }
        }
        best.map(|(_, name)| name.to_owned()).ok_or_else(|| self.sentence(&refusals))
    }

    /// kube-scheduler's sentence.
    fn sentence(&self, refusals: &BTreeMap<Infeasible, usize>) -> String {
        let all = self.scheduler.nodes.len();
        let parts: Vec<String> =
            refusals.iter().map(|(refusal, count)| format!("{count} {refusal}")).collect();
        let separator = if parts.is_empty() { "." } else { ": " };
        let end = if parts.is_empty() { "" } else { "." };
        format!("0/{all} nodes are available{separator}{}{end}", parts.join(", "))
    }

    fn bind(&mut self, pod: &Object, shape: &Arc<SchedulingNeeds>, node: &str) {
        let Some(key) = ObjectKey::of(pod) else { return };
        let now = self.now;
        self.store.change(&key, |pod| {
            child(pod, "spec").insert("nodeName".to_owned(), json!(node));
            child(pod, "status").remove("nominatedNodeName");
            set_condition(pod, "PodScheduled", "True", "", now);
        });
        if let (Some(info), Some(bound)) = (self.scheduler.nodes.get_mut(node), self.store.get(&key)) {
            info.add(Arc::clone(bound), Arc::clone(shape));
        }
    }

    fn refuse(&mut self, pod: &Object, reason: &str, message: &str) {
        if says(pod, reason, message) {
            return;
        }
        let Some(key) = ObjectKey::of(pod) else { return };
        let now = self.now;
        self.store.change(&key, |pod| {
            // Preemption, which finds nothing here, ends with that.
            child(pod, "status").remove("nominatedNodeName");
            set_condition(pod, "PodScheduled", "False", reason, now);
            let conditions = child(pod, "status").get_mut("conditions").and_then(Value::as_array_mut);
            let condition =
                conditions.into_iter().flatten().find(|c| text(c, "/type") == Some("PodScheduled"));
            if let Some(fields) = condition.and_then(Value::as_object_mut) {
                fields.insert("message".to_owned(), json!(message));
            }
        });
    }

    /// The node selector terms that the pod's bound volumes ask for: every list has to match.
    fn volume_terms(&self, pod: &Value) -> Result<Vec<Vec<Value>>, Infeasible> {
        let namespace = object::namespace(pod);
        let mut terms = Vec::new();
        for volume in object::list(pod, "/spec/volumes") {
            let Some(claim) = text(volume, "/persistentVolumeClaim/claimName") else { continue };
            let key = ObjectKey::new(Kind::PersistentVolumeClaim, namespace, claim);
            let claim = self.store.get(&key).ok_or(Infeasible::VolumeClaimMissing)?;
            let Some(name) = text(claim, "/spec/volumeName") else { continue };
            let Some(volume) = self.store.get(&ObjectKey::new(Kind::PersistentVolume, "", name)) else {
                continue;
            };
            let required = object::list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
            if !required.is_empty() {
                terms.push(required.to_vec());
            }
        }
        Ok(terms)
    }
}

/// Whether a pod's condition already has this refusal.
fn says(pod: &Value, reason: &str, message: &str) -> bool {
    let conditions = object::list(pod, "/status/conditions");
    let found = conditions.iter().find(|c| text(c, "/type") == Some("PodScheduled"));
    let fields = [("/status", "False"), ("/reason", reason), ("/message", message)];
    pod.pointer("/status/nominatedNodeName").is_none()
        && found.is_some_and(|found| fields.iter().all(|(field, value)| text(found, field) == Some(value)))
}

fn nominated_node(pod: &Value) -> Option<&str> {
    text(pod, "/status/nominatedNodeName").filter(|node| !node.is_empty())
}

fn is_ours(pod: &Value) -> bool {
    matches!(text(pod, "/spec/schedulerName"), None | Some("" | "default-scheduler"))
}
