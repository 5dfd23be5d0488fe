//! Wakes: why a function looks. A wake says *when* to look, never *what* is true.

use jiff::{SignedDuration, Timestamp};

use crate::evidence::CatalogPart;
use crate::id::{ClusterName, ImageId, InstanceId};

crate::words! {
    /// The functions. template.yaml, keys, records and events have its word.
    pub enum FunctionName {
        /// Types, zones and prices into the table.
        Catalog = "catalog",
        /// Image states.
        Images = "images",
        /// Resolves classes.
        NodeClasses = "node-classes",
        /// Plans and launches claims.
        Provisioner = "provisioner",
        /// Steps claims.
        Lifecycle = "lifecycle",
        /// Drains interrupted instances at once.
        Interruption = "interruption",
        /// Drift, within budgets.
        Disruption = "disruption",
    }
}

/// A wake: its scope and its cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<ClusterName>,
    /// Why.
    pub cause: WakeCause,
}

/// Why a function looks: a hint, which may be wrong, late or doubled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeCause {
    /// A schedule: look whether anything changed.
    Sweep,
    /// The schedule of a part of the catalogue.
    Refresh(CatalogPart),
    /// The cluster's agent wrote a new snapshot.
    SnapshotChanged,
    /// Another function changed something that this one plans from.
    StateChanged,
    /// EC2 or an image pipeline announced a change of an image.
    ImageChanged(Option<ImageId>),
    /// ARC announced an autoshift.
    ZonalShift,
    /// EC2 announced a change of an instance's state.
    InstanceState {
        /// The instance.
        instance: InstanceId,
        /// `running`, `stopping`, `stopped`, `shutting-down`, `terminated`, ….
        state: String,
    },
    /// EC2 takes instances back, or announces that it may.
    Interruption {
        /// The instances.
        instances: Vec<InstanceId>,
        /// How.
        kind: InterruptionKind,
        /// When EC2 ends them, if its event has the time.
        deadline: Option<Timestamp>,
    },
}

/// The time between EC2's warning and the interruption, if the warning has no time of its own.
pub const NOTICE: SignedDuration = SignedDuration::from_mins(2);

/// How EC2 interrupts an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterruptionKind {
    /// Spot: two minutes' notice.
    Spot,
    /// A recommendation only.
    Rebalance,
    /// AWS Health: a scheduled change.
    ScheduledChange,
    /// An interruptible capacity reservation or a capacity block.
    CapacityReservation,
}
