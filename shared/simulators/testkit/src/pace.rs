//! The pace of a history.
//!
//! Decides how much time passes between deeds, and what that means for the times that invariants allow.

use jiff::SignedDuration;

use crate::accepted::SEEN_WITHIN;
use crate::validation::LOOKS;

/// The virtual time between steps. Most histories are quick, so that much happens at once. Some are slow, so that they
/// reach audits, timeouts and the restore of an hour-old table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryPace {
    /// A step is a few seconds.
    Quick,
    /// A step is up to a minute.
    Slow,
    /// The same, and calls are slow and nothing else goes wrong: the stated times hold at each step.
    Fair,
    /// The same, and the table is restored on the way.
    Restored,
    /// A step is up to ten minutes, and most of them only scale a Deployment, so that what nodes cost shows.
    Long,
}

impl HistoryPace {
    /// The longest step, in seconds.
    pub(crate) const fn longest_step(self) -> u64 {
        match self {
            Self::Quick => 4,
            Self::Slow | Self::Fair | Self::Restored => 60,
            Self::Long => 600,
        }
    }

    /// The longest outage of something that classes depend on, in seconds: a part of the history.
    pub(crate) const fn longest_outage(self) -> u64 {
        match self {
            Self::Quick => 120,
            Self::Slow | Self::Fair | Self::Restored | Self::Long => 900,
        }
    }

    /// How long the world may be other than a class says: a sweep's period, which is the longest time until a stated next
    /// try too. Among faults one of them may be lost.
    pub(crate) const fn class_lag(self) -> SignedDuration {
        match self {
            Self::Fair => SignedDuration::from_secs(SEEN_WITHIN.as_secs() + LOOKS.as_secs()),
            Self::Quick | Self::Slow | Self::Restored | Self::Long => {
                SignedDuration::from_secs(2 * SEEN_WITHIN.as_secs() + LOOKS.as_secs())
            }
        }
    }

    /// How long a repair takes once it is due: the agent reports, the function may fail, and sweeps come after that.
    pub(crate) const fn repaired_within(self) -> SignedDuration {
        SignedDuration::from_mins(match self {
            Self::Fair => 10,
            Self::Quick | Self::Slow | Self::Restored | Self::Long => 20,
        })
    }

    /// How long an unhealthy node may stay once few are: while many are, Tenon looks every five minutes, and looks may
    /// fail.
    pub(crate) const fn looked_again(self) -> SignedDuration {
        SignedDuration::from_mins(match self {
            Self::Fair => 6,
            Self::Quick | Self::Slow | Self::Restored | Self::Long => 12,
        })
    }

    /// How long a settled region is watched after a wake: an audit's period if there is time.
    pub(crate) const fn second_look(self) -> SignedDuration {
        match self {
            Self::Quick => SignedDuration::from_mins(3),
            Self::Slow | Self::Fair | Self::Restored | Self::Long => SignedDuration::from_mins(15),
        }
    }
}
