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

/// A condition of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolConditionType {
    /// The spec passes the checks at run time.
    ValidationSucceeded,
    /// Mirrors its class.
    NodeClassReady,
    /// Both.
    Ready,
    /// Its latest launches joined; doesn't gate `Ready`.
    NodeRegistrationHealthy,
    /// Tenon's own: names fields that Tenon doesn't act on. It exists only if there are any, and doesn't gate
    /// `Ready`.
    Unsupported,
}

impl PoolConditionType {
    /// All conditions.
    pub const ALL: [Self; 5] = [
        Self::ValidationSucceeded,
        Self::NodeClassReady,
        Self::Ready,
        Self::NodeRegistrationHealthy,
        Self::Unsupported,
    ];

    /// The condition's type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ValidationSucceeded => "ValidationSucceeded",
            Self::NodeClassReady => "NodeClassReady",
            Self::Ready => "Ready",
            Self::NodeRegistrationHealthy => "NodeRegistrationHealthy",
            Self::Unsupported => "tenon.dev/Unsupported",
        }
    }

    /// The condition of that type.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.as_str() == text)
    }
}
