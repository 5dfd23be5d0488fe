//! The pace of calls to EC2, which is that of its token bucket.
//!
//! Decides whether a call may be made now. Rounds of a wake share one pace, and so do the wakes of a process: the bucket
//! is the account's and region's.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Calls that are made at once. EC2 takes 50 mutating calls at once and 5 a second after them from an account and
/// region ("Request throttling for the Amazon EC2 API", read November 2026); the rest is for other tools.
const AT_ONCE: i32 = 40;
/// The time between calls after those.
pub(crate) const THEN_EVERY: SignedDuration = SignedDuration::from_millis(250);

/// The pace of the calls: [`AT_ONCE`], then one [`THEN_EVERY`].
#[derive(Debug, Default)]
pub(crate) struct CallPace {
    /// When the calls that were made would have ended, one [`THEN_EVERY`].
    booked_until: Mutex<Option<Timestamp>>,
}

impl CallPace {
    /// Takes the right to a call, if there is one now.
    pub(crate) fn take(&self, now: Timestamp) -> bool {
        let mut booked = self.booked_until.lock().unwrap_or_else(PoisonError::into_inner);
        let from = booked.map_or(now, |until| until.max(now));
        let allowed = from.duration_since(now) <= THEN_EVERY.saturating_mul(AT_ONCE - 1);
        if allowed {
            *booked = from.checked_add(THEN_EVERY).ok();
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_calls_at_once_there_are_four_a_second() {
        let pace = CallPace::default();
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        let calls = |milliseconds| (0..100).filter(|_| pace.take(at(milliseconds))).count();
        assert_eq!([0, 0, 249, 250, 1_000, 5_000].map(calls), [40, 0, 0, 1, 3, 16]);
        assert_eq!(calls(60_000), 40);
    }
}
