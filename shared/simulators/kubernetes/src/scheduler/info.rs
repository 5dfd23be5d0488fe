//! The scheduler's data about a node, and the ranking of feasible nodes.

use std::sync::Arc;

use serde_json::Value;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect};

use super::Score;
use super::shape::{SchedulingNeeds, quantities};
use tenon_snapshot::object::{self, Object};

/// A node with its pods.
#[derive(Debug)]
pub(super) struct NodeInfo {
    pub(super) name: String,
    pub(super) labels: Value,
    pub(super) taints: Vec<Taint>,
    pub(super) cordoned: bool,
    pub(super) free: ResourceList,
    pub(super) pods: Vec<(Object, Arc<SchedulingNeeds>)>,
    allocatable: ResourceList,
}

/// Lower is better: taints that would rather not have the pod, then parts per million that are taken (or free).
pub(super) type Rank = (usize, i128);

impl NodeInfo {
    pub(super) fn new(node: &Value, pods: Vec<(Object, Arc<SchedulingNeeds>)>) -> Self {
        let allocatable = quantities(node, "/status/allocatable");
        let mut free = allocatable.clone();
        for (_, shape) in &pods {
            free.subtract(&shape.requests);
        }
        Self {
            name: object::name(node).to_owned(),
            labels: node.pointer("/metadata/labels").cloned().unwrap_or(Value::Null),
            taints: object::taints(node),
            cordoned: node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)),
            free,
            pods,
            allocatable,
        }
    }

    pub(super) fn add(&mut self, pod: Object, shape: Arc<SchedulingNeeds>) {
        self.free.subtract(&shape.requests);
        self.pods.push((pod, shape));
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).and_then(Value::as_str)
    }

    pub(super) fn rank(&self, shape: &SchedulingNeeds, score: Score) -> Rank {
        let unwanted = self.taints.iter().filter(|taint| {
            taint.effect == TaintEffect::PreferNoSchedule
                && !shape.tolerations.iter().any(|t| t.tolerates(taint))
        });
        let taken = |name: &ResourceName| {
            let all = self.allocatable.get(name).nanos();
            let left = self.free.get(name).saturating_sub(shape.requests.get(name)).nanos();
            if all <= 0 { 1_000_000 } else { (all - left).saturating_mul(1_000_000) / all }
        };
        let taken = taken(&ResourceName::CPU) + taken(&ResourceName::MEMORY);
        let rank = match score {
            Score::LeastAllocated => taken,
            Score::MostAllocated => -taken,
        };
        (unwanted.count(), rank)
    }
}
