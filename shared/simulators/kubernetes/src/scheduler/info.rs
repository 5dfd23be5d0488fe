//! The scheduler's data about a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::Taint;

use super::shape::{PodAmounts, SchedulingNeeds, quantities};
use tenon_snapshot::object::{self, Object};

/// A node with its pods.
#[derive(Debug, Clone)]
pub(super) struct NodeInfo {
    pub(super) name: String,
    pub(super) labels: Value,
    pub(super) taints: Vec<Taint>,
    pub(super) cordoned: bool,
    pub(super) free: ResourceList,
    /// CPU and memory that pods can have, ask for, and count for.
    pub(super) amounts: NodeAmounts,
    /// Its pods by the id of their shape.
    pub(super) pods: BTreeMap<usize, SamePods>,
    uids: Vec<String>,
}

/// Equal pods of a node.
#[derive(Debug, Clone)]
pub(super) struct SamePods {
    pub(super) shape: Arc<SchedulingNeeds>,
    pub(super) all: i64,
    /// Those that aren't terminating.
    pub(super) staying: i64,
}

/// CPU and memory of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeAmounts {
    pub(super) allocatable: PodAmounts,
    pub(super) asked: PodAmounts,
    pub(super) counted: PodAmounts,
}

impl NodeInfo {
    pub(super) fn new(node: &Value, pods: Vec<(Object, Arc<SchedulingNeeds>)>) -> Self {
        let allocatable = quantities(node, "/status/allocatable");
        let amounts = NodeAmounts { allocatable: PodAmounts::of(&allocatable), ..NodeAmounts::default() };
        let mut info = Self {
            name: object::name(node).to_owned(),
            labels: node.pointer("/metadata/labels").cloned().unwrap_or(Value::Null),
            taints: object::taints(node),
            cordoned: node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)),
            free: allocatable,
            amounts,
            pods: BTreeMap::new(),
            uids: Vec::new(),
        };
        for (pod, shape) in pods {
            info.add(&pod, &shape);
        }
        info
    }

    pub(super) fn add(&mut self, pod: &Object, shape: &Arc<SchedulingNeeds>) {
        self.free.subtract(&shape.requests);
        self.amounts.asked = self.amounts.asked.plus(shape.asked);
        self.amounts.counted = self.amounts.counted.plus(shape.counted);
        let new = || SamePods { shape: Arc::clone(shape), all: 0, staying: 0 };
        let equal = self.pods.entry(shape.id).or_insert_with(new);
        equal.all += 1;
        equal.staying += i64::from(object::deleted_at(pod).is_none());
        self.uids.push(object::uid(pod).to_owned());
    }

    /// Whether the pod is known to be here.
    pub(super) fn knows(&self, pod: &Value) -> bool {
        self.uids.iter().any(|uid| uid == object::uid(pod))
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).and_then(Value::as_str)
    }
}
