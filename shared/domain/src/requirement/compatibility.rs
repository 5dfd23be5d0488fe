//! Whether a node side's labels satisfy a pod side's requirements.
//!
//! Decides for requirements only, not for resources, taints or topology.
//!
//! Source: `Compatible` of kubernetes-sigs/karpenter `pkg/scheduling/requirements.go`.

use std::fmt;

use super::hints::label_hint;
use super::requirement::Requirement;
use super::requirements::Requirements;
use crate::labels;

/// The meaning of a key that the pod side requires and the node side doesn't define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UndefinedKeys {
    /// The node has no such label.
    Absent,
    /// A well-known label gets its value from the instance type and its offering; any other is absent.
    WellKnownAreOpen,
}

/// One key on which the two sides disagree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// The node side doesn't define a required label.
    Undefined {
        /// The label's key.
        key: String,
        /// The label that was probably meant.
        meant: Option<String>,
    },
    /// No value satisfies both.
    NoCommonValue {
        /// The node side's requirement.
        node: Requirement,
        /// The pod side's requirement.
        pod: Requirement,
    },
}

impl Conflict {
    /// The label's key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Undefined { key, .. } => key,
            Self::NoCommonValue { pod, .. } => pod.key(),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { key, meant: None } => write!(f, "label `{key}` does not have known values"),
            Self::Undefined { key, meant: Some(meant) } => {
                write!(f, "label `{key}` does not have known values (did you mean `{meant}`?)")
            }
            Self::NoCommonValue { node, pod } => {
                write!(f, "the pod requires `{pod}`, nodes have `{node}`")
            }
        }
    }
}

/// Why two sides don't go together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("incompatible requirements, {}", .conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Incompatible {
    /// Never empty; by key.
    pub conflicts: Vec<Conflict>,
}

impl Requirements {
    /// Whether this node side is compatible with a pod side.
    ///
    /// # Errors [`Incompatible`] with every key on which they disagree.
    pub fn compatible(&self, pod: &Self, undefined: UndefinedKeys) -> Result<(), Incompatible> {
        let conflicts: Vec<Conflict> = pod
            .iter()
            .filter(|asked| !self.agrees(asked, undefined))
            .map(|asked| self.conflict(asked))
            .collect();
        if conflicts.is_empty() { Ok(()) } else { Err(Incompatible { conflicts }) }
    }

    /// Like [`Requirements::compatible`], without the reasons.
    #[must_use]
    pub fn is_compatible(&self, pod: &Self, undefined: UndefinedKeys) -> bool {
        pod.iter().all(|asked| self.agrees(asked, undefined))
    }

    /// Whether two sides share a value for each key that both define; other keys are ignored.
    ///
    /// # Errors [`Incompatible`] with every key on which they disagree.
    pub fn intersects(&self, other: &Self) -> Result<(), Incompatible> {
        let conflicts: Vec<Conflict> = other
            .iter()
            .filter(|asked| self.get(asked.key()).is_some_and(|offered| !have_common_value(offered, asked)))
            .map(|asked| self.conflict(asked))
            .collect();
        if conflicts.is_empty() { Ok(()) } else { Err(Incompatible { conflicts }) }
    }

    fn agrees(&self, asked: &Requirement, undefined: UndefinedKeys) -> bool {
        match self.get(asked.key()) {
            Some(offered) => have_common_value(offered, asked),
            None => {
                asked.accepts_absence()
                    || match undefined {
                        UndefinedKeys::Absent => false,
                        UndefinedKeys::WellKnownAreOpen => labels::is_well_known(asked.key()),
                    }
            }
        }
    }

    fn conflict(&self, asked: &Requirement) -> Conflict {
        match self.get(asked.key()) {
            Some(offered) => Conflict::NoCommonValue { node: offered.clone(), pod: asked.clone() },
            None => Conflict::Undefined {
                key: asked.key().to_owned(),
                meant: label_hint(asked.key(), self.keys()).map(str::to_owned),
            },
        }
    }
}

/// A common value, or the label's absence where both sides accept it.
fn have_common_value(offered: &Requirement, asked: &Requirement) -> bool {
    offered.intersects(asked) || (offered.accepts_absence() && asked.accepts_absence())
}
