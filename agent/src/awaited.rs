//! Which changes of the cluster actions wait for.
//!
//! Decides after which changes the actions are read and applied again. A step reads all of a cluster's actions, so a
//! restless cluster whose Nodes have all they need pays for none. It doesn't decide when: the pace does.

use tenon_domain::snapshot::ActionProgress;
use tenon_snapshot::ActionKind;

/// The changes of the cluster that actions wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Awaited {
    /// None: there are no actions.
    #[default]
    Nothing,
    /// Those of Nodes: somebody may undo an action.
    Nodes,
    /// Any: a Node is to join or to open, or pods are to leave.
    Anything,
}

impl Awaited {
    /// What an action waits for. A registered Node opens once it is Ready, and then gets its pods.
    pub(crate) const fn by(kind: ActionKind, progress: &ActionProgress) -> Self {
        match kind {
            ActionKind::Register => Self::Anything,
            ActionKind::Initialize | ActionKind::Disrupt | ActionKind::Drain | ActionKind::Finalize => {
                if progress.is_done() {
                    Self::Nodes
                } else {
                    Self::Anything
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_that_is_done_waits_for_nodes_alone() {
        let check = |kind, done, working| {
            assert_eq!(Awaited::by(kind, &ActionProgress::Done), done);
            assert_eq!(Awaited::by(kind, &ActionProgress::working(1)), working);
        };
        check(ActionKind::Register, Awaited::Anything, Awaited::Anything);
        for kind in [ActionKind::Initialize, ActionKind::Disrupt, ActionKind::Drain, ActionKind::Finalize] {
            check(kind, Awaited::Nodes, Awaited::Anything);
        }
    }
}
