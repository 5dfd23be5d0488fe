//! A disruption command: nodes to remove, and the nodes that replace them.
//!
//! Decides the data of a command. `disruption` decides its candidates and its time.
//!
//! Invariant: candidates drain only once every replacement is initialised, so a command in
//! [`CommandState::Replacing`] hasn't drained a node.

use jiff::Timestamp;

use crate::claim::RemovalReason;
use crate::id::{ClaimName, CommandId, NodePoolName};

/// A disruption command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its id.
    pub id: CommandId,
    /// The count of steps; the next step is conditional on it.
    pub revision: u64,
    /// The pool of its candidates.
    pub pool: NodePoolName,
    /// Why they go.
    pub reason: RemovalReason,
    /// What they drifted to at its begin, if that is why; items of older releases don't say it.
    pub drifted_to: Option<String>,
    /// The claims that go; none once a pause gave them back: they are tried again as soon as it ends.
    pub candidates: Vec<ClaimName>,
    /// The replacement claims, without failed ones.
    pub replacements: Vec<ClaimName>,
    /// How far it is.
    pub state: CommandState,
    /// When it was committed.
    pub created_at: Timestamp,
}

/// How far a command is. The table has its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum CommandState {
    /// Its replacements aren't all initialised yet.
    Replacing {
        /// Since when.
        since: Timestamp,
        /// The number of failed replacements that were planned again.
        attempts: u32,
        /// The next replacement isn't planned before.
        not_before: Timestamp,
        /// Pods that no replacement is planned for yet: they wait for EC2's answer to the one that asks again.
        unplanned: u32,
    },
    /// Its candidates are on their way out.
    Draining {
        /// Since when.
        since: Timestamp,
    },
    /// Its candidates don't exist any longer, or it was given up.
    Done {
        /// When.
        at: Timestamp,
    },
}

impl Command {
    /// Whether it still holds its candidates.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        match self.state {
            CommandState::Replacing { .. } | CommandState::Draining { .. } => true,
            CommandState::Done { .. } => false,
        }
    }
}
