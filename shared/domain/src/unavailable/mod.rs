//! What EC2 refused: capacity, quotas, addresses, requests; by what was refused, with when to ask again.
//!
//! [`UnavailableKey`] says what can be refused, [`Mark`] what is known of one refusal and how that changes, [`Marks`]
//! what all of them mean for an offering. Nothing here decides which error refuses what, nor what is launched instead.
//!
//! Marks are the account's in a region: all its clusters share them, so they name zones by id. A mark is asked after by
//! one probe at a time: a launch that took the mark's lease with the commit that made the launch.

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
