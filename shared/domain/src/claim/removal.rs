//! Why claims are removed.
//!
//! Decides the words. `lifecycle`, `interruption` and `disruption` decide when.

crate::words! {
    /// The reason of a claim's removal. Its word is stable. Whatever a later release removes it for, it goes, and nothing is
    /// judged by it: neither an image nor a budget.
    pub enum RemovalReason else Deleted {
        /// It drifted and has been replaced.
        Drifted,
        /// No pod on it needed a place.
        Empty,
        /// Its pods cost less elsewhere.
        Underutilized,
        /// EC2 takes its spot instance back.
        SpotInterrupted,
        /// EC2 takes its reserved instance back.
        CapacityReservationInterrupted,
        /// AWS Health announced a change of its instance.
        ScheduledChange,
        /// Its instance is stopping or stopped.
        InstanceStopped,
        /// Its instance is terminated, and not by us.
        InstanceTerminated,
        /// The user deleted the claim, its Node, its pool or its class.
        Deleted,
        /// Its `expireAfter` passed.
        Expired,
        /// No Node joined in time.
        RegistrationTimeout,
        /// Its Node joined, and wasn't ready for pods in time.
        InitializationTimeout,
        /// Its Node stayed unhealthy.
        Unhealthy,
        /// EC2 recommended to move its pods.
        RebalanceRecommended,
    }
}

impl RemovalReason {
    /// The reason in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Drifted => "drifted",
            Self::Empty => "empty",
            Self::Underutilized => "underutilized",
            Self::SpotInterrupted => "spot interruption",
            Self::CapacityReservationInterrupted => "capacity reservation interruption",
            Self::ScheduledChange => "scheduled change",
            Self::InstanceStopped => "instance stopped",
            Self::InstanceTerminated => "instance terminated",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::RegistrationTimeout => "registration timeout",
            Self::InitializationTimeout => "initialization timeout",
            Self::Unhealthy => "unhealthy",
            Self::RebalanceRecommended => "rebalance recommended",
        }
    }
}
