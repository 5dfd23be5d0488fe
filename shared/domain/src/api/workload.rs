//! Controllers of pods, PodDisruptionBudgets and Services.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::api::meta::ObjectMeta;
use crate::api::pod::{LabelSelector, Pod, PodShape};
use crate::resources::ResourceList;

/// A controller that makes pods from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its kind.
    pub kind: WorkloadKind,
    /// How many pods it makes: `replicas`, what a Job still runs at once; a CronJob makes none.
    pub replicas: u32,
    /// The number in its first pod's name: a StatefulSet's `spec.ordinals.start`, else 0.
    pub first_ordinal: u32,
    /// The needs of its pods.
    pub template: Arc<PodShape>,
}

crate::words! {
    /// Kinds of controllers.
    pub enum WorkloadKind {
        /// `apps/v1 Deployment`.
        Deployment,
        /// `apps/v1 ReplicaSet`.
        ReplicaSet,
        /// `apps/v1 StatefulSet`.
        StatefulSet,
        /// `batch/v1 Job`.
        Job,
        /// `batch/v1 CronJob`.
        CronJob,
    }
}

/// A DaemonSet: overhead on every node that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The needs of its pods.
    pub template: Arc<PodShape>,
}

impl DaemonSet {
    /// The same, with at least the requests that most of its pods really have: a LimitRange or an autoscaler raises them
    /// above the template's. While a new template rolls out, the higher of both counts.
    #[must_use]
    pub fn as_it_runs<'p>(&self, pods: impl IntoIterator<Item = &'p Pod>) -> Self {
        let uid = self.meta.uid.as_ref();
        let is_own = |shape: &PodShape| {
            let owner = shape.owner.as_ref().filter(|_| shape.is_of_daemon_set());
            owner.is_some_and(|owner| match uid {
                Some(uid) if !owner.uid.is_empty() => owner.uid == uid.as_str(),
                Some(_) | None => owner.name == self.meta.name && shape.namespace == self.meta.namespace,
            })
        };
        let mut counts: BTreeMap<&ResourceList, usize> = BTreeMap::new();
        for pod in pods.into_iter().filter(|pod| is_own(&pod.shape)) {
            *counts.entry(&pod.shape.requests).or_default() += 1;
        }
        let mut requests = self.template.requests.clone();
        if let Some((most, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            requests.raise(most);
        }
        if requests == self.template.requests {
            return self.clone();
        }
        let template = Arc::new(PodShape { requests, ..PodShape::clone(&self.template) });
        Self { meta: self.meta.clone(), template }
    }
}

/// A Service: kube-scheduler spreads the pods that it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.selector`, by which it selects pods of its namespace; an absent one selects none.
    pub selector: Option<BTreeMap<String, String>>,
}

/// A PodDisruptionBudget, `policy/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Which pods of its namespace; an empty selector selects all, none selects none.
    pub selector: Option<LabelSelector>,
    /// `minAvailable` or `maxUnavailable`.
    pub bound: PdbBound,
    /// `status.disruptionsAllowed`, as the controller computed it.
    pub disruptions_allowed: u32,
    /// `unhealthyPodEvictionPolicy`.
    pub unhealthy_pods: UnhealthyPodEviction,
}

/// The bound of a PodDisruptionBudget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PdbBound {
    /// `minAvailable`: pods that must stay healthy.
    MinAvailable(IntOrPercent),
    /// `maxUnavailable`: pods that may be unhealthy or evicted.
    MaxUnavailable(IntOrPercent),
}

/// A number or a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IntOrPercent {
    /// A number.
    Int(u32),
    /// Per cent.
    Percent(u32),
}

/// `unhealthyPodEvictionPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename = "an unhealthy pod eviction policy")]
pub enum UnhealthyPodEviction {
    /// Pods that aren't Ready are guarded too, unless the budget is met.
    #[default]
    IfHealthyBudget,
    /// Pods that aren't Ready may always go.
    AlwaysAllow,
}
