//! Controllers of pods, and PodDisruptionBudgets.

use std::sync::Arc;

use serde::Deserialize;

use crate::api::meta::ObjectMeta;
use crate::api::pod::{LabelSelector, PodShape};

/// A controller that makes pods from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its kind.
    pub kind: WorkloadKind,
    /// How many pods it makes: `replicas`, a Job's `parallelism`; a CronJob makes none.
    pub replicas: u32,
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
