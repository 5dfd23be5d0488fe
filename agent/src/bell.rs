//! The doorbell: announces a changed snapshot to the functions. It says when to look, never what is true.

use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenon_snapshot::snapshot::ChunkKind;

/// The detail type of the event.
pub const DETAIL_TYPE: &str = "Snapshot Changed";

/// Rings for the functions: PutEvents in a real cluster.
pub trait Bell: Send + Sync {
    /// Rings. Lost rings are found by the sweep.
    ///
    /// # Errors
    /// [`BellError`]: the ring may be lost.
    fn ring(&self, ring: &Ring) -> impl Future<Output = Result<(), BellError>> + Send;
}

/// The ring failed. The sweep finds the change.
#[derive(Debug, Clone, thiserror::Error)]
#[error("can't publish to the event bus")]
pub struct BellError(#[source] pub Arc<dyn Error + Send + Sync>);

/// The content of a ring: hints, which may be outdated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// The written generation.
    pub generation: u64,
    /// The changed kinds.
    pub changed: BTreeSet<ChunkKind>,
    /// Pods that wait for a node.
    pub pending_pods: u32,
    /// Claims whose NodeClaim, NodePool or Node is deleted, and that no action drains yet.
    pub deletions: u32,
    /// Nodes that pods left.
    pub freed: u32,
}

/// The form of a ring in an event's `detail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingForm {
    /// The form's version: 1.
    pub v: u32,
    /// The cluster.
    pub cluster: String,
    /// The written generation.
    pub generation: u64,
    /// Kinds of chunks that changed, by name.
    pub changed: Vec<String>,
    /// Pods that wait for a node.
    pub pending_pods: u32,
    /// The number of deleted claims that no action drains yet.
    #[serde(default)]
    pub deletions: u32,
    /// The number of Nodes that pods left since the last ring for it.
    #[serde(default)]
    pub freed: u32,
}

impl Ring {
    /// Whether a function acts on it at once. Changes of bound pods wait for the sweep.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.pending_pods > 0 || self.freed > 0 || !self.changed.iter().all(is_of_pods)
    }

    /// The ring of a cluster as an event's `detail`.
    #[must_use]
    pub fn to_form(&self, cluster: &tenon_domain::id::ClusterName) -> RingForm {
        RingForm {
            v: 1,
            cluster: cluster.to_string(),
            generation: self.generation,
            changed: self.changed.iter().map(|kind| kind.as_str().to_owned()).collect(),
            pending_pods: self.pending_pods,
            deletions: self.deletions,
            freed: self.freed,
        }
    }
}

/// Whether chunks of a kind tell which pods exist, or follow them: volumes are attached where pods are bound.
pub(crate) const fn is_of_pods(kind: &ChunkKind) -> bool {
    matches!(kind, ChunkKind::Pods | ChunkKind::Shapes | ChunkKind::Attachments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_stable() {
        let changed = BTreeSet::from([ChunkKind::Pods, ChunkKind::Nodes]);
        let form = Ring { generation: 3, changed, pending_pods: 2, deletions: 1, freed: 3 }
            .to_form(&tenon_domain::id::ClusterName::parse("prod").unwrap());
        assert_eq!(
            serde_json::to_string(&form).unwrap(),
            r#"{"v":1,"cluster":"prod","generation":3,"changed":["pods","nodes"],"pending_pods":2,"deletions":1,"freed":3}"#
        );
    }
}
