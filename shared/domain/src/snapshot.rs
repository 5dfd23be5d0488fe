//! The cluster as its agent reported it last.
//!
//! A snapshot is evidence, not truth: it has a generation and an age, and every decision names both. It holds the
//! *full* scheduling shape of the pods, even the parts that no planner uses.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::node_claim::NodeClaimObject;
use crate::api::storage::{CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment};
use crate::api::workload::{DaemonSet, PodDisruptionBudget, Service};
use crate::api::{Ec2NodeClass, Node, NodePool, Pod};
use crate::drain_block::DrainBlock;
use crate::id::NodeClassName;

/// The report of one cluster's agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The count of the agent's changes.
    pub generation: u64,
    /// When the agent last confirmed this generation.
    pub seen_at: Timestamp,
    /// The API server's version, such as `1.35`; `None` from an agent that doesn't report it.
    pub kubernetes_version: Option<String>,
    /// All pods that aren't finished.
    pub pods: Vec<Pod>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// All PodDisruptionBudgets.
    pub pdbs: Vec<PodDisruptionBudget>,
    /// Volumes' places.
    pub persistent_volumes: Vec<PersistentVolume>,
    /// Claims for volumes.
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    /// Storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// The limits of Nodes on volumes; empty from an agent that doesn't report them.
    pub csi_nodes: Vec<CsiNode>,
    /// Volumes that are attached to Nodes.
    pub volume_attachments: Vec<VolumeAttachment>,
    /// Services' selectors.
    pub services: Vec<Service>,
    /// Labels of namespaces, by name.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// NodePools that could be read.
    pub node_pools: Vec<NodePool>,
    /// EC2NodeClasses that could be read.
    pub node_classes: Vec<Ec2NodeClass>,
    /// NodeClaims, as the cluster holds them.
    pub node_claims: Vec<NodeClaimObject>,
    /// Unreadable objects: kind, name and problem.
    pub unreadable: Vec<Unreadable>,
    /// The agent's results of its actions, by claim.
    pub reports: Vec<ActionReport>,
}

impl Snapshot {
    /// Whether the cluster has an EC2NodeClass of the name that can't be read.
    #[must_use]
    pub fn has_unreadable_class(&self, name: &NodeClassName) -> bool {
        self.unreadable.iter().any(|object| object.kind == "EC2NodeClass" && object.name == name.as_str())
    }
}

/// An object that the agent reported and that couldn't be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    /// Its kind.
    pub kind: String,
    /// Its name, with its namespace where it has one.
    pub name: String,
    /// All that is wrong with it, a sentence each.
    pub errors: Vec<String>,
}

/// The agent's result of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionReport {
    /// The claim.
    pub claim: String,
    /// The number of the action.
    pub number: u64,
    /// How far it is.
    pub progress: ActionProgress,
}

/// How far an action is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionProgress {
    /// In progress.
    Working {
        /// The number of pods that a drain waits for.
        pods_left: u32,
        /// What a drain can't get past by itself.
        blocks: Vec<DrainBlock>,
    },
    /// Done, and seen to be so.
    Done,
    /// A drain is over, though volumes are still attached: the time to wait for them is.
    Left {
        /// The volumes, by name.
        volumes: Vec<String>,
    },
}

impl ActionProgress {
    /// Whether nothing is left to do.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match self {
            Self::Working { .. } => false,
            Self::Done | Self::Left { .. } => true,
        }
    }

    /// In progress, without obstacles.
    #[must_use]
    pub const fn working(pods_left: u32) -> Self {
        Self::Working { pods_left, blocks: Vec::new() }
    }
}
