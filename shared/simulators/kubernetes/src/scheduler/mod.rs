//! kube-scheduler with its default profile: the node of each pod, or the reason why there is none.
//!
//! Decides by kube-scheduler's filters, then by its scores; among the best nodes it draws one, by the seed. A pod's
//! nominated node is tried first, and its room is kept from pods of no higher priority. An attempt that fails ends the
//! nomination.
//!
//! Not simulated: preemption; ImageLocality; scoring only some of more than 100 feasible nodes; the flush of
//! unschedulable pods.
//!
//! Invariants: a pod is bound only if every filter passes at that moment; equal pods that don't fit are tried once
//! between two bindings.

mod attachments;
mod filter;
mod info;
mod neighbours;
mod placing;
mod queue;
mod score;
mod shape;
mod spread;
mod terms;
#[cfg(test)]
mod tests;
mod unbound;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::state::ClusterState;
use super::store::{child, set_condition};
use super::{Placing, pods};
pub(super) use attachments::bound_volumes as attached_volumes;
use info::NodeInfo;
use placing::FilterRefusal;
use queue::{AttemptSeen, Happened, QueueTurn, SchedulingQueue};
use shape::{SchedulingNeeds, SeenNeeds};
use spread::default_selector;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use terms::Matches;
use unbound::{UnboundPlace, UnboundPod, UnboundPods};

/// How full nodes are ranked (NodeResourcesFit's scoring strategy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Score {
    /// The emptier, the better: Kubernetes' default.
    #[default]
    LeastAllocated,
    /// The fuller, the better.
    MostAllocated,
}

/// The scheduler's memory between passes.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    score: Score,
    /// The state of the draws among equal nodes.
    draws: u64,
    shapes: SeenNeeds,
    matches: Matches,
    nodes: BTreeMap<String, NodeInfo>,
    stale: BTreeSet<String>,
    waiting: UnboundPods,
    queue: SchedulingQueue,
    happened: Happened,
    /// UnboundPod pods by the node for which they are nominated, then by UID.
    nominated: BTreeMap<String, BTreeMap<String, Arc<SchedulingNeeds>>>,
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
    pub(super) fn new(score: Score, seed: u64) -> Self {
        Self { score, draws: seed, ..Self::default() }
    }

    /// A Node changed, or a pod left it.
    pub(super) fn node_changed(&mut self, node: &str) {
        self.stale.insert(node.to_owned());
        self.happened.nodes.insert(node.to_owned());
        self.work = SchedulerWork::Some;
    }

    /// A pod came, changed or went.
    pub(super) fn pod_touched(&mut self, key: &ObjectKey) {
        self.waiting.touch((key.namespace.clone(), key.name.clone()));
    }

    /// A pod came or changed.
    pub(super) fn pod_changed(&mut self, pod: &Value) {
        self.work = SchedulerWork::Some;
        let Some(node) = text(pod, "/spec/nodeName") else { return };
        self.stale.insert(node.to_owned());
        if object::deleted_at(pod).is_some() || pods::is_finished(pod) {
            self.happened.nodes.insert(node.to_owned());
            self.happened.neighbours = true;
        } else if !self.nodes.get(node).is_some_and(|node| node.knows(pod)) {
            self.happened.neighbours = true;
        }
    }

    /// A Service changed: other pods may be spread with those that it selects.
    pub(super) fn services_changed(&mut self) {
        self.shapes.look_again();
        self.waiting.touch_all();
        self.world_changed();
    }

    /// Something else changed that placement depends on.
    pub(super) fn world_changed(&mut self) {
        self.happened.other = true;
        self.work = SchedulerWork::Some;
    }

    /// One of several (splitmix64).
    fn draw(&mut self, count: usize) -> usize {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.draws;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        usize::try_from(mixed % count).unwrap_or(0)
    }

    /// Forgets a nomination. Its room is free for others now.
    fn drop_nomination(&mut self, uid: &str, node: Option<&str>) {
        let Some(node) = node else { return };
        if let Some(pods) = self.nominated.get_mut(node)
            && pods.remove(uid).is_some()
        {
            self.happened.nodes.insert(node.to_owned());
            self.work = SchedulerWork::Some;
        }
    }
}

impl ClusterState {
    /// Tries the pods whose turn it is.
    pub(super) fn schedule(&mut self) {
        if self.scheduler.work == SchedulerWork::None {
            return;
        }
        self.scheduler.work = SchedulerWork::None;
        let happened = std::mem::take(&mut self.scheduler.happened);
        self.refresh(&happened);
        let new = self.follow_waiting();
        match self.config.placing {
            Placing::Scheduler => {}
            Placing::Caller => return,
        }
        let mut turns = self.turns(&happened, &new);
        turns.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut hopeless: BTreeMap<(usize, Option<String>), FilterRefusal> = BTreeMap::new();
        for (_, UnboundPod { pod, shape, nominated }) in turns {
            let key = (shape.id, nominated);
            let found = match hopeless.get(&key) {
                Some(refusal) => Err(refusal.clone()),
                None => self.place(&pod, &shape),
            };
            match found {
                Ok(node) => {
                    self.bind(&pod, &shape, &node);
                    // Where neighbours matter, this pod may have opened a place.
                    hopeless.retain(|_, refusal| !refusal.minds_neighbours());
                }
                Err(refusal) => {
                    let reasons = Arc::clone(&refusal.reasons);
                    self.scheduler.queue.failed(object::uid(&pod), reasons, self.now);
                    self.scheduler.drop_nomination(object::uid(&pod), nominated_node(&pod));
                    self.refuse(&pod, "Unschedulable", &refusal.message);
                    // What it no longer keeps is free for the next pod with the same nomination.
                    if nominated_node(&pod).is_none() {
                        hopeless.insert(key, refusal);
                    }
                }
            }
        }
    }

    /// Reads the nodes, and the namespaces, that changed.
    fn refresh(&mut self, happened: &Happened) {
        if happened.other {
            self.scheduler.matches.read(self.store.all(Kind::Namespace));
        }
        for name in std::mem::take(&mut self.scheduler.stale) {
            match self.store.get(&ObjectKey::node(name.as_str())) {
                None => {
                    self.scheduler.nodes.remove(&name);
                }
                Some(node) => {
                    let pods = self.store.pods_on(&name).filter(|pod| !pods::is_finished(pod));
                    let shapes = &mut self.scheduler.shapes;
                    let pods = pods
                        .map(|pod| (Arc::clone(pod), shapes.of(pod, || default_selector(&self.store, pod))))
                        .collect();
                    self.scheduler.nodes.insert(name, NodeInfo::new(node, pods));
                }
            }
        }
    }

    /// Reads the pods that changed, and gives those that began to wait, in the order in which they were created. Gated
    /// ones are refused here: they don't enter the queue.
    fn follow_waiting(&mut self) -> Vec<UnboundPlace> {
        let mut new = Vec::new();
        // Controllers may have made pods in this moment.
        for key in self.store.touched_pods() {
            self.scheduler.waiting.touch((key.namespace.clone(), key.name.clone()));
        }
        for name in self.scheduler.waiting.take_changed() {
            let waits =
                |pod: &&Object| text(pod, "/spec/nodeName").is_none() && pods::is_active(pod) && is_ours(pod);
            let mut now = self.store.pod(&name).filter(waits).cloned();
            if let Some(pod) = now.take_if(|pod| !object::list(pod, "/spec/schedulingGates").is_empty()) {
                let message = "Scheduling is blocked due to non-empty scheduling gates";
                self.refuse(&pod, "SchedulingGated", message);
            }
            let Self { scheduler, store, .. } = self;
            let before = scheduler.waiting.named(&name);
            if let Some(UnboundPod { pod, nominated: Some(node), .. }) = before
                && let Some(pods) = scheduler.nominated.get_mut(node)
            {
                pods.remove(object::uid(pod));
            }
            if let Some(UnboundPod { pod, .. }) = before
                && now.as_ref().is_none_or(|now| object::uid(now) != object::uid(pod))
            {
                scheduler.queue.leave(object::uid(pod));
            }
            let Some(pod) = now else {
                scheduler.waiting.remove(&name);
                continue;
            };
            let shape = scheduler.shapes.of(&pod, || default_selector(store, &pod));
            let nominated = nominated_node(&pod).map(str::to_owned);
            if let Some(node) = &nominated {
                let pods = scheduler.nominated.entry(node.clone()).or_default();
                pods.insert(object::uid(&pod).to_owned(), Arc::clone(&shape));
            }
            if !scheduler.queue.has(object::uid(&pod)) {
                new.push(unbound::place(&pod));
            }
            scheduler.waiting.set(name, UnboundPod { pod, shape, nominated });
        }
        new.sort();
        for one in new.iter().filter_map(|place| self.scheduler.waiting.get(place)) {
            self.scheduler.queue.enter(object::uid(&one.pod));
        }
        new
    }

    /// The pods to be tried, each with its turn. Where nothing happened that may help the others, only new ones are.
    fn turns(&self, happened: &Happened, new: &[UnboundPlace]) -> Vec<(QueueTurn, UnboundPod)> {
        let Scheduler { waiting, queue, nodes, .. } = &self.scheduler;
        let mut seen = AttemptSeen::new(happened, nodes, self.now);
        let mut turn = |one: &UnboundPod| {
            let turn = queue.turn(one, &mut seen)?;
            Some((turn, one.clone()))
        };
        if happened.is_nothing() {
            new.iter().filter_map(|place| waiting.get(place)).filter_map(turn).collect()
        } else {
            waiting.iter().filter_map(&mut turn).collect()
        }
    }

    fn bind(&mut self, pod: &Object, shape: &Arc<SchedulingNeeds>, node: &str) {
        let Some(key) = ObjectKey::of(pod) else { return };
        let now = self.now;
        self.store.change(&key, |pod| {
            child(pod, "spec").insert("nodeName".to_owned(), json!(node));
            child(pod, "status").remove("nominatedNodeName");
            set_condition(pod, "PodScheduled", "True", "", now);
        });
        let elsewhere = nominated_node(pod).filter(|nominated| *nominated != node);
        self.scheduler.drop_nomination(object::uid(pod), elsewhere);
        if let Some(pods) = self.scheduler.nominated.get_mut(node) {
            pods.remove(object::uid(pod));
        }
        let bound = self.store.get(&key).cloned();
        if let (Some(info), Some(bound)) = (self.scheduler.nodes.get_mut(node), &bound) {
            info.add(bound, shape);
        }
        // At once: the next pod with the claim must follow.
        bound.iter().for_each(|pod| self.make_volumes(pod));
        self.scheduler.happened.neighbours = true;
    }

    fn refuse(&mut self, pod: &Object, reason: &str, message: &str) {
        if says(pod, reason, message) {
            return;
        }
        let Some(key) = ObjectKey::of(pod) else { return };
        let now = self.now;
        self.store.change_status(&key, |pod| {
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
