//! The node of one pod, or why there is none.
//!
//! Decides by filters, scores and the draw among equal nodes. Which pods are tried, and when, is the queue's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_snapshot::object::{self, Object, ObjectKey};

use super::super::state::ClusterState;
use super::attachments;
use super::filter::{self, Infeasible};
use super::info::NodeInfo;
use super::neighbours::Neighbours;
use super::score::Scoring;
use super::shape::SchedulingNeeds;
use super::spread::default_selector;
use super::volumes::VolumeNeeds;
use super::{Scheduler, nominated_node};

/// Why a pod found no node.
#[derive(Clone)]
pub(super) struct FilterRefusal {
    pub(super) message: String,
    pub(super) reasons: Arc<BTreeSet<Infeasible>>,
}

/// A pod that looks for a node.
struct PlacedPod<'a> {
    uid: &'a str,
    shape: &'a SchedulingNeeds,
    volumes: VolumeNeeds<'a>,
    neighbours: Neighbours<'a>,
}

impl ClusterState {
    /// The node for a pod, or why there is none.
    pub(super) fn place(&mut self, pod: &Object, shape: &SchedulingNeeds) -> Result<String, FilterRefusal> {
        let candidate = self.candidate(pod, shape)?;
        let nominated = nominated_node(pod).and_then(|name| self.scheduler.nodes.get(name));
        if let Some(node) = nominated.filter(|node| self.scheduler.judge(&candidate, node).is_ok()) {
            return Ok(node.name.clone());
        }
        let mut refusals: BTreeMap<Infeasible, usize> = BTreeMap::new();
        let mut feasible: Vec<&NodeInfo> = Vec::new();
        for node in self.scheduler.nodes.values() {
            match self.scheduler.judge(&candidate, node) {
                Err(reasons) => {
                    reasons.into_iter().for_each(|reason| *refusals.entry(reason).or_default() += 1);
                }
                Ok(()) => feasible.push(node),
            }
        }
        if feasible.is_empty() {
            return Err(self.refusal(refusals));
        }
        let mut best: Vec<String> = Vec::new();
        let scores = self.scheduler.scores(shape, &feasible);
        let most = scores.iter().copied().max().unwrap_or(0);
        for (node, _) in feasible.iter().zip(&scores).filter(|(_, score)| **score == most) {
            best.push(node.name.clone());
        }
        let drawn = if best.len() > 1 { self.scheduler.draw(best.len()) } else { 0 };
        Ok(best.swap_remove(drawn.min(best.len() - 1)))
    }

    fn candidate<'a>(
        &'a self,
        pod: &'a Object,
        shape: &'a SchedulingNeeds,
    ) -> Result<PlacedPod<'a>, FilterRefusal> {
        let Scheduler { nodes, matches, .. } = &self.scheduler;
        let volumes = VolumeNeeds::of(&self.store, pod)
            .map_err(|reason| self.refusal(BTreeMap::from([(reason, nodes.len())])))?;
        if attachments::is_claim_in_use(&self.store, shape, nodes.values()) {
            return Err(self.refusal(BTreeMap::from([(Infeasible::VolumeClaimInUse, nodes.len())])));
        }
        let neighbours = Neighbours::new(shape, nodes.values(), matches);
        Ok(PlacedPod { uid: object::uid(pod), shape, volumes, neighbours })
    }

    /// What kube-scheduler thinks of each node for a waiting pod: its score, or why it doesn't fit.
    pub(crate) fn ratings(&mut self, key: &ObjectKey) -> BTreeMap<String, Result<i64, String>> {
        let Some(pod) = self.store.get(key).map(Arc::clone) else { return BTreeMap::new() };
        let happened = std::mem::take(&mut self.scheduler.happened);
        self.refresh(&happened);
        self.scheduler.happened = happened;
        let shape = self.scheduler.shapes.of(&pod, || default_selector(&self.store, &pod));
        let Ok(candidate) = self.candidate(&pod, &shape) else { return BTreeMap::new() };
        let mut ratings = BTreeMap::new();
        let mut feasible: Vec<&NodeInfo> = Vec::new();
        for node in self.scheduler.nodes.values() {
            match self.scheduler.judge(&candidate, node) {
                Ok(()) => feasible.push(node),
                Err(reasons) => {
                    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                    ratings.insert(node.name.clone(), Err(reasons.join(", ")));
                }
            }
        }
        let scores = self.scheduler.scores(&shape, &feasible);
        ratings.extend(feasible.iter().zip(scores).map(|(node, score)| (node.name.clone(), Ok(score))));
        ratings
    }

    /// kube-scheduler's sentence.
    fn refusal(&self, refusals: BTreeMap<Infeasible, usize>) -> FilterRefusal {
        let all = self.scheduler.nodes.len();
        let mut parts: Vec<String> =
            refusals.iter().map(|(refusal, count)| format!("{count} {refusal}")).collect();
        parts.sort();
        let separator = if parts.is_empty() { "." } else { ": " };
        let end = if parts.is_empty() { "" } else { "." };
        let message = format!("0/{all} nodes are available{separator}{}{end}", parts.join(", "));
        FilterRefusal { message, reasons: Arc::new(refusals.into_keys().collect()) }
    }
}

impl Scheduler {
    /// Whether a node takes a pod, with the pods nominated for it and without them.
    fn judge(&self, candidate: &PlacedPod<'_>, node: &NodeInfo) -> Result<(), Vec<Infeasible>> {
        let PlacedPod { uid, shape, volumes, neighbours } = candidate;
        let nominated = self.nominated.get(&node.name).into_iter().flatten();
        let beside: Vec<&SchedulingNeeds> = nominated
            .filter(|(other, needs)| other.as_str() != *uid && needs.priority >= shape.priority)
            .map(|(_, needs)| &**needs)
            .collect();
        filter::check(shape, node, volumes, &beside)?;
        neighbours.check(node).map_err(|reason| vec![reason])?;
        if !shape.minds_neighbours() && beside.iter().all(|one| one.anti_affinity.is_empty()) {
            return Ok(());
        }
        neighbours.check_beside(node, &beside).map_err(|reason| vec![reason])
    }

    fn scores(&self, shape: &SchedulingNeeds, feasible: &[&NodeInfo]) -> Vec<i64> {
        let Self { nodes, matches, score, .. } = self;
        Scoring { shape, nodes, matches, strategy: *score }.of(feasible)
    }
}

impl FilterRefusal {
    /// Whether a pod that is bound later may change it.
    pub(super) fn minds_neighbours(&self) -> bool {
        self.reasons.iter().any(Infeasible::minds_neighbours)
    }
}
