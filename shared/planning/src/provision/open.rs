//! Which offerings of a pool count for a claim: what can be had, or what is to be asked for again.
//!
//! Decides nothing of when that is: an exhausted offering says it itself. Of a pool on probation nothing can be had until
//! one claim was tried.

use jiff::Timestamp;
use tenon_domain::catalog::{Availability, CapacityType, Offering, Unavailability};

use super::input::{PoolInput, PoolStanding};

/// Which offerings of a pool count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenOfferings {
    /// Those that can be had, as far as is known.
    Available,
    /// Those that a probe may ask for at this time.
    Due(Timestamp),
    /// Those that may be asked for at this time where nothing else is left.
    LastResort(Timestamp),
    /// Those that can be had, and what a launch of that capacity type may probe for beside them.
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
