//! The status of a NodePool.
//!
//! Decides nothing: `lifecycle` counts nodes and resources.

use jiff::Timestamp;

use crate::class_status::ConditionStatus;
use crate::id::NodePoolName;
use crate::resources::ResourceList;

/// A NodePool's status. Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool_status.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    /// The pool.
    pub name: NodePoolName,
    /// The count of changes; the next change is conditional on it.
    pub revision: u64,
    /// `metadata.generation` of the observed spec.
    pub generation: u64,
    /// Its nodes, claims without a Node among them.
    pub nodes: u64,
    /// The sum of their capacity, `nodes` among it.
    pub resources: ResourceList,
    /// Its conditions, by type.
    pub conditions: Vec<PoolCondition>,
}

/// One condition of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolCondition {
    /// Which.
    pub condition: PoolConditionType,
    /// Its status.
    pub status: ConditionStatus,
    /// A CamelCase reason.
    pub reason: String,
    /// A sentence; empty where it holds.
    pub message: String,
    /// Since when it has this status.
    pub since: Timestamp,
}

crate::words! {
    /// A condition of a pool. Its word is the condition's type.
    pub enum PoolConditionType {
        /// The spec passes the checks at run time.
        ValidationSucceeded,
        /// Mirrors its class.
        NodeClassReady,
        /// Both.
        Ready,
        /// Its latest launches joined; doesn't gate `Ready`.
        NodeRegistrationHealthy,
        /// Tenon's own: names fields that Tenon doesn't act on, and what can't be understood. It exists only if there are
        /// any, and doesn't gate `Ready`.
        Unsupported = "tenon.dev/Unsupported",
        /// Tenon's own: none of its nodes is disrupted voluntarily. It exists only while that is so, and doesn't gate
        /// `Ready`.
        DisruptionPaused = "tenon.dev/DisruptionPaused",
    }
}
