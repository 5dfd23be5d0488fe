//! EC2's refusals: capacity, quotas, addresses, requests, each with the time of the next probe.
//!
//! [`UnavailableKey`] is the subject of a refusal, [`Mark`] its state, [`Marks`] the effect of all of them on an
//! offering. It doesn't decide which error marks which key, nor the next launch.
//!
//! Marks belong to an account's region: all its clusters share them, so they name zones by id. One launch at a time
//! probes a mark; it takes the mark's lease in the transaction that commits the launch.

mod key;
mod mark;
mod marks;
#[cfg(test)]
mod tests;

pub use key::{OfferingKey, RequestDigest, UnavailableKey, WantedOffering};
pub use mark::{
    FIRST_HOLD, FORGET_AFTER, INTERRUPTED_HOLD, LAST_RESORT, LEASE, LaunchAsked, MOST_HOLD, Mark, MarkState,
    Probe, RESERVATION_INTERRUPTION, Refusal, RefusalCause, SPOT_INTERRUPTION,
};
pub use marks::{Blocking, Marks};
