//! The EC2NodeClass that a NodePool means.
//!
//! Decides whether the cluster has it, and the words where it hasn't. It doesn't decide whether the class is resolved:
//! its status says that.
//!
//! Invariant: a NodePool of another kind of class means no EC2NodeClass, though one may have the same name.

use std::fmt;

use crate::api::node_pool::NodeClassRef;
use crate::api::{Ec2NodeClass, NodePool};
use crate::evidence::{CLASS_UNREADABLE, Waiting};
use crate::id::NodeClassName;
use crate::labels::PROVIDER_DOMAIN;
use crate::snapshot::Snapshot;

/// Why a NodePool has no class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbsentClass {
    /// It names a kind of class that Tenon doesn't serve.
    NotServed {
        /// `nodeClassRef.kind`.
        kind: String,
        /// `nodeClassRef.group`.
        group: String,
    },
    /// No class has the name.
    NotFound(NodeClassName),
    /// The class of the name can't be read.
    Unreadable(NodeClassName),
}

impl AbsentClass {
    /// Why nothing is read as the class of this reference.
    #[must_use]
    pub fn of(wanted: &NodeClassRef) -> Self {
        if wanted.is_served() {
            Self::NotFound(wanted.name.clone())
        } else {
            Self::NotServed { kind: wanted.kind.clone(), group: wanted.group.clone() }
        }
    }

    /// The reason of conditions and findings.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotServed { .. } => "NodeClassNotServed",
            Self::NotFound(_) => "NodeClassNotFound",
            Self::Unreadable(_) => CLASS_UNREADABLE,
        }
    }
}

/// A sentence with the remedy.
impl fmt::Display for AbsentClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed { kind, group } => write!(
                f,
                "its `nodeClassRef` is kind `{kind}` of group `{group}`, and Tenon serves kind `EC2NodeClass` of group \
                 `{PROVIDER_DOMAIN}`: correct it"
            ),
            Self::NotFound(class) => {
                write!(f, "EC2NodeClass `{class}` doesn't exist: create it, or correct `nodeClassRef`")
            }
            Self::Unreadable(class) => {
                let (class, reason) = (class.to_string(), CLASS_UNREADABLE.to_owned());
                write!(f, "{}", Waiting::NodeClassNotReady { class, reason })
            }
        }
    }
}

impl Snapshot {
    /// The class of a NodePool.
    ///
    /// # Errors
    /// [`AbsentClass`].
    pub fn class_of(&self, pool: &NodePool) -> Result<&Ec2NodeClass, AbsentClass> {
        let wanted = &pool.template.node_class;
        let seen = self.node_classes.iter().find(|class| wanted.means(&class.name));
        seen.ok_or_else(|| match AbsentClass::of(wanted) {
            AbsentClass::NotFound(name) if self.has_unreadable_class(&name) => AbsentClass::Unreadable(name),
            absent @ (AbsentClass::NotFound(_)
            | AbsentClass::Unreadable(_)
            | AbsentClass::NotServed { .. }) => absent,
        })
    }
}
