//! Interrupted nodes: EC2 takes the instance back, or changes it, at a time that it told.
//!
//! Decides which nodes keep their pods while replacements start. Their pods are planned for as if they were pending.

use jiff::Timestamp;

use super::{ClaimState, RemovalReason};

crate::words! {
    /// What happens to the pods of an interrupted node.
    pub enum InterruptionOrder {
        /// They stay until their replacements take them, as far as EC2's deadline allows.
        ReplaceFirst,
        /// They are evicted at once.
        Drain,
    }
}

impl RemovalReason {
    /// Whether EC2 takes or changes the instance, and may tell when.
    #[must_use]
    pub const fn is_interruption(self) -> bool {
        match self {
            Self::SpotInterrupted | Self::CapacityReservationInterrupted | Self::ScheduledChange => true,
            Self::Drifted
            | Self::Empty
            | Self::Underutilized
            | Self::InstanceStopped
            | Self::InstanceTerminated
            | Self::Deleted
            | Self::Expired
            | Self::RegistrationTimeout
            | Self::InitializationTimeout
            | Self::Unhealthy
            | Self::RebalanceRecommended => false,
        }
    }
}

impl ClaimState {
    /// When an interrupted node ends that keeps its pods until their replacement is there; `None` for all other nodes.
    #[must_use]
    pub fn holds_pods_until(&self) -> Option<Timestamp> {
        match self {
            Self::Draining { node: Some(_), reason, deadline, .. } if reason.is_interruption() => *deadline,
            Self::Draining { .. }
            | Self::Planned
            | Self::LaunchFailed { .. }
            | Self::Launched { .. }
            | Self::Registered { .. }
            | Self::Initialized { .. }
            | Self::Disrupting { .. }
            | Self::Drained { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => None,
        }
    }
}
