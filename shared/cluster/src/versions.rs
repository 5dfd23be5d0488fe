//! How often a cluster changed.

use crate::object::Kind;

/// Counts of changes that somebody may read: a cheap way to see that nothing happened. They only say whether there was
/// one since they were read last; they wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    /// Changes of any object.
    pub all: u64,
    /// Changes of Nodes, which actions wait for.
    pub nodes: u64,
}

impl Versions {
    /// Counts a change of an object of this kind.
    pub fn count(&mut self, kind: Kind) {
        self.all = self.all.wrapping_add(1);
        if kind == Kind::Node {
            self.nodes = self.nodes.wrapping_add(1);
        }
    }
}
