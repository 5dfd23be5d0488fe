//! Counters of a cluster's changes.

use crate::object::Kind;

/// Counters that cheaply show whether anything changed since the last look. Only inequality means anything; they
/// wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    /// Changes of any object.
    pub all: u64,
    /// Changes of Nodes, which actions wait for.
    pub nodes: u64,
    /// Pods that came without a Node.
    pub arrivals: u64,
    /// Deleted Nodes, NodeClaims and NodePools.
    pub deletions: u64,
}

/// The kind of an object's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectChange {
    /// A Node's.
    Node,
    /// A pod came, and waits for a Node.
    Arrival,
    /// A Node, a NodeClaim or a NodePool has a new deletion timestamp, or doesn't exist any longer.
    Deletion,
    /// Any other.
    Other,
}

impl ObjectChange {
    /// The change of an object of this kind that stays and isn't a pod that came.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        if kind == Kind::Node { Self::Node } else { Self::Other }
    }

    /// The deletion of an object of this kind.
    #[must_use]
    pub fn of_deleted(kind: Kind) -> Self {
        if [Kind::Node, Kind::NodeClaim, Kind::NodePool].contains(&kind) {
            Self::Deletion
        } else {
            Self::Other
        }
    }
}

impl Versions {
    /// Counts a change.
    pub const fn count(&mut self, change: ObjectChange) {
        self.all = self.all.wrapping_add(1);
        match change {
            ObjectChange::Node => self.nodes = self.nodes.wrapping_add(1),
            ObjectChange::Arrival => self.arrivals = self.arrivals.wrapping_add(1),
            // An action may also wait for a Node's deletion.
            ObjectChange::Deletion => {
                self.nodes = self.nodes.wrapping_add(1);
                self.deletions = self.deletions.wrapping_add(1);
            }
            ObjectChange::Other => {}
        }
    }
}
