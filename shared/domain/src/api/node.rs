//! Nodes, as the cluster reports them.

use jiff::Timestamp;

use crate::api::meta::ObjectMeta;
use crate::api::pod::Readiness;
use crate::id::{NodeName, ProviderId};
use crate::resources::ResourceList;
use crate::taint::{Taint, TaintEffect, UNSCHEDULABLE};

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its metadata; labels and taints steer placement.
    pub meta: ObjectMeta,
    /// Its name.
    pub name: NodeName,
    /// `spec.providerID`, once the kubelet or the cloud controller has set it to an EC2 instance.
    pub provider_id: Option<ProviderId>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub schedulable: Schedulable,
    /// `status.capacity`.
    pub capacity: ResourceList,
    /// `status.allocatable`.
    pub allocatable: ResourceList,
    /// Its `Ready` condition.
    pub readiness: Readiness,
    /// All conditions, for repair and consistency.
    pub conditions: Vec<NodeCondition>,
}

impl Node {
    /// Its taints, with the one that Kubernetes gives a cordoned node.
    #[must_use]
    pub fn all_taints(&self) -> Vec<Taint> {
        let mut taints = self.taints.clone();
        let cordoned = match self.schedulable {
            Schedulable::Yes => false,
            Schedulable::No => !taints.iter().any(|taint| taint.key == UNSCHEDULABLE),
        };
        taints.extend(cordoned.then(|| Taint::new(UNSCHEDULABLE, TaintEffect::NoSchedule)));
        taints
    }
}

/// Whether the scheduler may use a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Schedulable {
    /// It may.
    #[default]
    Yes,
    /// Cordoned.
    No,
}

/// One of `status.conditions` of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Such as `Ready` or `NetworkingReady`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    pub since: Option<Timestamp>,
}
