//! The reasons to wait, as facts. Their sentences are elsewhere.
//!
//! Decides which reasons are different ones, and which end by themselves.

use jiff::{SignedDuration, Timestamp};

use super::CatalogPart;
use crate::id::NamespacedName;

/// The reason of a class that `node-classes` hasn't resolved yet.
pub const NOT_RESOLVED: &str = "AwaitingReconciliation";
/// The reason of a class that the agent reported and that can't be read.
pub const CLASS_UNREADABLE: &str = "NodeClassUnreadable";
/// The reason of a class that is being deleted.
pub const CLASS_DELETED: &str = "NodeClassTerminating";

/// Why a decision waits. Not an error: it ends in the report, the journal and a condition. Conditions, reports and
/// metrics have its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Waiting {
    /// A part of the catalogue never arrived.
    CatalogNotHydrated {
        /// Which.
        part: CatalogPart,
    },
    /// A part of the catalogue is too old.
    CatalogStale {
        /// Which.
        part: CatalogPart,
        /// How old it is.
        age: SignedDuration,
    },
    /// The cluster's agent never reported.
    SnapshotMissing,
    /// The agent's last heartbeat is too old.
    SnapshotStale {
        /// How old it is.
        age: SignedDuration,
    },
    /// The agent's last heartbeat has a time that hasn't come yet.
    SnapshotAhead {
        /// How far it is ahead.
        by: SignedDuration,
    },
    /// The agent's snapshot is too large for the functions' memory.
    SnapshotTooLarge {
        /// How much it is at least.
        size: u64,
        /// The most that is read.
        most: u64,
        /// The unit of the size.
        unit: &'static str,
    },
    /// A node class isn't ready; holds what it waits for.
    NodeClassNotReady {
        /// The class.
        class: String,
        /// The reason of its first condition that isn't True.
        reason: String,
    },
    /// A NodePool isn't ready by its own status, which only a simulation asks: functions judge its class.
    NodePoolNotReady {
        /// The pool.
        pool: String,
        /// The reason of its condition.
        reason: String,
        /// Its message.
        message: Option<String>,
    },
    /// EC2 refuses a pool's launches, whatever the offering.
    LaunchRefused {
        /// The pool.
        pool: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: Option<String>,
        /// When a launch is tried again.
        until: Timestamp,
    },
    /// A pool's nodes don't join.
    NodesNotJoining {
        /// The pool.
        pool: String,
        /// How many rounds of launches failed in a row.
        rounds: u32,
        /// When a launch is tried again.
        until: Timestamp,
    },
    /// A pool's nodes join, and aren't initialised.
    NodesNotInitialized {
        /// The pool.
        pool: String,
        /// How many rounds of launches failed in a row.
        rounds: u32,
        /// What the last Node lacked, in a sentence.
        lacked: String,
        /// When a launch is tried again.
        until: Timestamp,
    },
    /// A Karpenter controller works in the cluster, for the same NodePools.
    KarpenterRuns {
        /// One of its pods.
        pod: NamespacedName,
    },
    /// The cluster isn't in the registry: its per-cluster stack isn't deployed.
    ClusterNotRegistered,
    /// The table was restored, or unknown instances have our tags, and no person has confirmed it yet.
    TableRestored,
}

impl Waiting {
    /// The part of the reason that makes it a different one: the class's or the pool's own reason. An age doesn't.
    #[must_use]
    pub fn condition(&self) -> Option<&str> {
        match self {
            Self::NodeClassNotReady { reason, .. } | Self::NodePoolNotReady { reason, .. } => Some(reason),
            Self::LaunchRefused { code, .. } => Some(code),
            Self::CatalogNotHydrated { part } | Self::CatalogStale { part, .. } => Some(part.as_str()),
            Self::SnapshotMissing
            | Self::SnapshotStale { .. }
            | Self::SnapshotAhead { .. }
            | Self::SnapshotTooLarge { .. }
            | Self::NodesNotJoining { .. }
            | Self::NodesNotInitialized { .. }
            | Self::KarpenterRuns { .. }
            | Self::ClusterNotRegistered
            | Self::TableRestored => None,
        }
    }

    /// When it ends by itself, where that is known.
    #[must_use]
    pub const fn ends_at(&self) -> Option<Timestamp> {
        match self {
            Self::LaunchRefused { until, .. }
            | Self::NodesNotJoining { until, .. }
            | Self::NodesNotInitialized { until, .. } => Some(*until),
            Self::CatalogNotHydrated { .. }
            | Self::CatalogStale { .. }
            | Self::SnapshotMissing
            | Self::SnapshotStale { .. }
            | Self::SnapshotAhead { .. }
            | Self::SnapshotTooLarge { .. }
            | Self::NodeClassNotReady { .. }
            | Self::NodePoolNotReady { .. }
            | Self::KarpenterRuns { .. }
            | Self::ClusterNotRegistered
            | Self::TableRestored => None,
        }
    }
}
