//! The result of sending launches, as the pass and its doorbells need it.

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::unavailable::{FIRST_HOLD, UnavailableKey};

use crate::settle::{SettleFailure, Settlement};

/// The result of sending launches.
#[derive(Debug, Default)]
pub(crate) struct SentLaunches {
    /// Claims with an instance.
    pub(crate) launched: Vec<Claim>,
    /// Claims without one.
    pub(crate) failed: Vec<Claim>,
    /// The number of settled launches, including those that another run settled first.
    pub(crate) settled: usize,
    /// Whether another plan at once may help.
    pub(crate) plan_again: bool,
    /// When the first postponed launch is due.
    pub(crate) retry_at: Option<Timestamp>,
    /// Whether EC2's answers changed what the conditions of a class tell of its launches.
    pub(crate) classes: bool,
}

impl SentLaunches {
    /// Schedules a retry.
    pub(crate) fn put_off(&mut self, at: Timestamp) {
        self.retry_at = Some(self.retry_at.map_or(at, |first| first.min(at)));
    }

    /// Adds a settled launch.
    pub(crate) fn take(&mut self, settlement: Settlement) {
        self.settled += 1;
        let of_classes = |key: &UnavailableKey| {
            matches!(key, UnavailableKey::Request(_) | UnavailableKey::CapacityType(_))
        };
        self.classes |= settlement.marks.iter().any(|word| of_classes(&word.key));
        match settlement.failed {
            None | Some(SettleFailure::Request) => {}
            Some(SettleFailure::Capacity | SettleFailure::TemplateMissing) => self.plan_again = true,
            Some(SettleFailure::Unmarked) => {
                let at = settlement.claims.iter().filter_map(|claim| claim.state.since()).max();
                if let Some(at) = at.and_then(|at| at.checked_add(FIRST_HOLD).ok()) {
                    self.put_off(at);
                }
            }
        }
        for claim in settlement.claims {
            if claim.state.instance().is_some() { self.launched.push(claim) } else { self.failed.push(claim) }
        }
    }

    /// Adds the result of a later run, whose `plan_again` counts alone.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.launched.extend(other.launched);
        self.failed.extend(other.failed);
        self.settled += other.settled;
        self.plan_again = other.plan_again;
        self.classes |= other.classes;
        if let Some(at) = other.retry_at {
            self.put_off(at);
        }
        self
    }
}
