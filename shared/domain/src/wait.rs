//! Waits and their ends.
//!
//! Decides how a wait grows with each failure. It doesn't decide what is waited for, nor how long: those who wait name
//! their first and their longest wait.
//!
//! Invariant: no count of failures makes a wait negative, or longer than the longest.

use jiff::{SignedDuration, Timestamp};

/// The first wait, doubled so often, and never more than the longest.
#[must_use]
pub fn doubled(first: SignedDuration, times: u32, longest: SignedDuration) -> SignedDuration {
    first.saturating_mul(2_i32.saturating_pow(times)).min(longest)
}

/// The moment so much later; the same moment where time ends before.
#[must_use]
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_until_it_is_the_longest() {
        let check = |times: u32, expected: i64| {
            let (first, longest) = (SignedDuration::from_secs(5), SignedDuration::from_mins(1));
            assert_eq!(doubled(first, times, longest).as_secs(), expected, "{times}");
        };
        check(0, 5);
        check(1, 10);
        check(3, 40);
        check(4, 60);
        check(31, 60);
        check(u32::MAX, 60);
    }
}
