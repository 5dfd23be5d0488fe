//! Pods: the needs of one ([`PodShape`], shared by equal pods) and its place ([`Pod`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::api::meta::OwnerReference;
use crate::id::{NamespacedName, NodeName, Uid};
use crate::labels::NODEPOOL;
use crate::manifest::duration;
use crate::manifest::fields::{MOST, integer, text, within};
use crate::requirement::Requirement;
use crate::resources::ResourceList;
use crate::taint::Toleration;

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub name: NamespacedName,
    /// The pod's UID. It is derived from the name in a manifest without a UID, and in a snapshot for a bound pod,
    /// which no claim counts.
    pub uid: Uid,
    /// Its creation time; absent for a bound pod of a snapshot.
    pub created_at: Option<Timestamp>,
    /// `status.startTime`; a snapshot has it only for pods whose [`Self::shape`] has a `do_not_disrupt`.
    pub started_at: Option<Timestamp>,
    /// The node that it is bound to (`spec.nodeName`).
    pub node: Option<NodeName>,
    /// When it was bound: the last transition of its condition `PodScheduled`.
    pub bound_at: Option<Timestamp>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Its `Ready` condition.
    pub readiness: Readiness,
    /// The scheduler's last verdict.
    pub scheduling: SchedulingVerdict,
    /// `metadata.deletionTimestamp`, when it is terminating.
    pub deleted_at: Option<Timestamp>,
    /// Its needs; equal pods share one value.
    pub shape: Arc<PodShape>,
}

crate::words! {
    /// `status.phase` of a pod.
    #[derive(Default)]
    pub enum PodPhase {
        /// Not running yet.
        #[default]
        Pending,
        /// At least one container runs.
        Running,
        /// All containers ended well.
        Succeeded,
        /// All containers ended, one of them badly.
        Failed,
        /// Its node can't be reached.
        Unknown,
    }
}

/// A `Ready` condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Readiness {
    /// `Ready=True`.
    Ready,
    /// Anything else.
    #[default]
    NotReady,
}

/// The condition `PodScheduled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SchedulingVerdict {
    /// No verdict yet, or bound.
    #[default]
    None,
    /// `PodScheduled=False`, reason `Unschedulable`.
    Unschedulable,
    /// `PodScheduled=False`, reason `SchedulingGated`.
    Gated,
    /// Another pod is being preempted for it (`status.nominatedNodeName`).
    Nominated,
}

impl Pod {
    /// Whether it has ended (`Succeeded` or `Failed`).
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether it waits for a node: not bound, not finished, not terminating.
    #[must_use]
    pub fn is_unbound(&self) -> bool {
        self.node.is_none() && !self.is_finished() && self.deleted_at.is_none()
    }
}

/// A pod's requirements on its node and its neighbours: the full scheduling shape. Equal pods share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodShape {
    /// The namespace: affinity and spread select within it.
    pub namespace: String,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The sum of its containers' requests, with `pods: 1`.
    pub requests: ResourceList,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` of the node affinity: terms are ORed.
    pub required_node_affinity: Vec<NodeSelectorTerm>,
    /// `preferredDuringSchedulingIgnoredDuringExecution` of the node affinity.
    pub preferred_node_affinity: Vec<(i32, NodeSelectorTerm)>,
    /// Required pod affinity.
    pub required_pod_affinity: Vec<PodAffinityTerm>,
    /// Preferred pod affinity with weights.
    pub preferred_pod_affinity: Vec<(i32, PodAffinityTerm)>,
    /// Required pod anti-affinity.
    pub required_pod_anti_affinity: Vec<PodAffinityTerm>,
    /// Preferred pod anti-affinity with weights.
    pub preferred_pod_anti_affinity: Vec<(i32, PodAffinityTerm)>,
    /// `spec.topologySpreadConstraints`.
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Host ports of all containers.
    pub host_ports: BTreeSet<HostPort>,
    /// Volumes that bind it to a place or count against a limit.
    pub volumes: Vec<PodVolume>,
    /// Names of the resource claims (DRA) that it needs.
    pub resource_claims: Vec<String>,
    /// `spec.priority`; 0 where absent.
    pub priority: i32,
    /// `spec.priorityClassName`; empty where absent.
    pub priority_class: String,
    /// `spec.schedulingGates`.
    pub scheduling_gates: Vec<String>,
    /// `spec.schedulerName`; `default-scheduler` where absent.
    pub scheduler_name: String,
    /// The controlling owner.
    pub owner: Option<OwnerReference>,
    /// Annotation `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: DoNotDisrupt,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`; 0 where absent or unparsable.
    pub deletion_cost: i32,
    /// `spec.terminationGracePeriodSeconds`; 30 where absent.
    pub termination_grace_seconds: u32,
    /// A mirror of a static pod (annotation `kubernetes.io/config.mirror`, or a Node that owns it).
    pub origin: PodOrigin,
    /// Fields that this version doesn't know, by place, where they may decide which node fits: nobody can say where such
    /// a pod may run.
    pub unknown: Vec<String>,
    /// The known field that the first of them is probably meant to be.
    pub meant: Option<&'static str>,
}

/// The scheduler that Tenon makes nodes for.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

impl PodShape {
    /// Whether another scheduler places the pod: nobody knows where, so no node is made for it.
    #[must_use]
    pub fn is_of_other_scheduler(&self) -> bool {
        self.scheduler_name != DEFAULT_SCHEDULER
    }

    /// Whether it runs only on nodes of no NodePool: all its affinity's terms say that `karpenter.sh/nodepool` doesn't
    /// exist.
    #[must_use]
    pub fn avoids_node_pools(&self) -> bool {
        let avoids = |term: &NodeSelectorTerm| {
            term.match_expressions.iter().any(|asked| asked.key() == NODEPOOL && asked.is_empty())
        };
        !self.required_node_affinity.is_empty() && self.required_node_affinity.iter().all(avoids)
    }

    /// Whether a DaemonSet made the pod.
    #[must_use]
    pub fn is_of_daemon_set(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
    }
}

/// Where a pod comes from, as far as draining cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PodOrigin {
    /// The API server.
    #[default]
    Api,
    /// A file on its node; the API server holds a mirror only.
    Static,
}

/// Value of the annotation `karpenter.sh/do-not-disrupt`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DoNotDisrupt {
    /// Absent.
    #[default]
    No,
    /// `true`.
    Always,
    /// A positive duration, counted from `status.startTime`.
    For(SignedDuration),
    /// Neither: ignored, with a warning.
    Invalid(String),
}

impl DoNotDisrupt {
    /// Reads the annotation's value, by Go's grammar of durations; `None` where the annotation is absent.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            None => Self::No,
            Some("true") => Self::Always,
            Some(text) => match duration::parse_go(text) {
                Some(duration) if duration.is_positive() => Self::For(duration),
                Some(_) | None => Self::Invalid(text.to_owned()),
            },
        }
    }

    /// When a pod with this start stops staying where it is; `None` where no time ends it, or it hasn't started.
    #[must_use]
    pub fn until(&self, started_at: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::No | Self::Always | Self::Invalid(_) => None,
            Self::For(duration) => Some(started_at?.checked_add(*duration).unwrap_or(Timestamp::MAX)),
        }
    }

    /// Whether a pod with this start stays where it is; one that hasn't started does.
    #[must_use]
    pub fn keeps(&self, started_at: Option<Timestamp>, now: Timestamp) -> bool {
        match self {
            Self::No | Self::Invalid(_) => false,
            Self::Always => true,
            Self::For(duration) => started_at.is_none_or(|start| now.duration_since(start) < *duration),
        }
    }
}

/// One ORed term of a node selector; its expressions are ANDed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NodeSelectorTerm {
    /// `matchExpressions`.
    pub match_expressions: Vec<Requirement>,
    /// `matchFields`, which only DaemonSets' own pods use (`metadata.name In [node]`).
    pub match_fields: Vec<Requirement>,
}

/// A pod affinity or anti-affinity term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinityTerm {
    /// Which pods.
    #[serde(rename = "labelSelector")]
    pub selector: Option<LabelSelector>,
    /// In which namespaces, by name.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// In which namespaces, by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Within which domain.
    #[serde(deserialize_with = "text")]
    pub topology_key: String,
    /// `matchLabelKeys`.
    #[serde(default)]
    pub match_label_keys: Vec<String>,
    /// `mismatchLabelKeys`.
    #[serde(default)]
    pub mismatch_label_keys: Vec<String>,
}

/// One of `topologySpreadConstraints`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// `maxSkew`, at least 1.
    #[serde(deserialize_with = "integer::<1, MOST, _, _>")]
    pub max_skew: u32,
    /// `topologyKey`.
    #[serde(deserialize_with = "text")]
    pub topology_key: String,
    /// The behaviour if the constraint can't be satisfied.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Which pods are counted.
    #[serde(rename = "labelSelector")]
    pub selector: Option<LabelSelector>,
    /// `minDomains`.
    #[serde(default, deserialize_with = "within::<1, MOST, _, _>")]
    pub min_domains: Option<u32>,
    /// `nodeAffinityPolicy`; Kubernetes' default is Honor.
    #[serde(default = "honor")]
    pub node_affinity_policy: NodeInclusionPolicy,
    /// `nodeTaintsPolicy`; Kubernetes' default is Ignore.
    #[serde(default = "ignore")]
    pub node_taints_policy: NodeInclusionPolicy,
    /// `matchLabelKeys`.
    #[serde(default)]
    pub match_label_keys: Vec<String>,
}

const fn honor() -> NodeInclusionPolicy {
    NodeInclusionPolicy::Honor
}

const fn ignore() -> NodeInclusionPolicy {
    NodeInclusionPolicy::Ignore
}

/// `whenUnsatisfiable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename = "an action")]
pub enum WhenUnsatisfiable {
    /// The pod waits.
    DoNotSchedule,
    /// The pod is placed anyway.
    ScheduleAnyway,
}

/// Whether nodes that the pod can't use count for a spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename = "a node inclusion policy")]
pub enum NodeInclusionPolicy {
    /// They don't count.
    Honor,
    /// They count.
    Ignore,
}

/// A label selector: `matchLabels` and `matchExpressions` together, ANDed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LabelSelector {
    /// All requirements; `matchLabels` become `In` with one value.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether labels fulfil all requirements; an empty selector matches everything.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| match labels.get(requirement.key()) {
            Some(value) => requirement.has(value),
            None => requirement.accepts_absence(),
        })
    }
}

/// A host port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `hostIP`; `0.0.0.0` where absent.
    pub ip: String,
    /// `hostPort`.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// A volume that matters to placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodVolume {
    /// `persistentVolumeClaim.claimName`.
    Claim(String),
    /// An ephemeral volume: its claim is named `<pod>-<volume>`; the storage class, where given.
    Ephemeral {
        /// The volume's name.
        volume: String,
        /// `storageClassName`.
        storage_class: Option<String>,
    },
}
