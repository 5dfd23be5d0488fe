//! The offerings of a pool that count for a claim: available ones, or ones to probe.
//!
//! Decides nothing about time: an exhausted offering knows when it is due. A pool on probation has no available
//! offering until one claim was tried.

use jiff::Timestamp;
use tenon_domain::catalog::{Availability, CapacityType, Offering, Unavailability};

use super::input::{PoolInput, PoolStanding};

/// Which offerings of a pool count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenOfferings {
    /// Available offerings.
    Available,
    /// The offerings that a probe may request at this time.
    Due(Timestamp),
    /// Offerings that may be probed at this time as the last resort.
    LastResort(Timestamp),
    /// Available offerings, and those that a launch of that capacity type may probe beside them.
    Along { now: Timestamp, capacity_type: CapacityType },
}

impl OpenOfferings {
    /// Whether an offering of a pool counts.
    pub(crate) fn includes(self, pool: &PoolInput, offering: &Offering) -> bool {
        let probation = pool.standing == PoolStanding::OnProbation;
        match &offering.availability {
            Availability::Available => match self {
                Self::Available | Self::Along { .. } => !probation,
                Self::Due(_) | Self::LastResort(_) => probation,
            },
            Availability::Unavailable(Unavailability::Exhausted { until, last_resort_at }) => match self {
                Self::Available => false,
                Self::Due(now) => *until <= now,
                Self::LastResort(now) => *until.min(last_resort_at) <= now,
                Self::Along { now, capacity_type } => {
                    !probation && *until <= now && offering.capacity_type == capacity_type
                }
            },
            Availability::Unavailable(_) => false,
        }
    }
}
