//! Randomness as a function: the same seed and question give the same answer, in any order.
//!
//! Invariant: it has no state, so the draws of one part of the twin don't affect those of another.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tenon_domain::SignedDuration;

/// A number for a question (its parts, in order).
pub(super) fn draw(seed: u64, question: &[&str]) -> u64 {
    // FNV-1a spreads the question over 64 bits; ChaCha makes neighbours unlike each other.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325 ^ seed;
    for part in question {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    ChaCha8Rng::seed_from_u64(hash).next_u64()
}

/// A span of time, from which delays are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The shortest.
    pub min: SignedDuration,
    /// The longest.
    pub max: SignedDuration,
}

impl Span {
    /// From so many to so many seconds.
    #[must_use]
    pub const fn seconds(min: i64, max: i64) -> Self {
        Self { min: SignedDuration::from_secs(min), max: SignedDuration::from_secs(max) }
    }

    /// A delay for a question, in whole milliseconds.
    pub(super) fn draw(self, seed: u64, question: &[&str]) -> SignedDuration {
        let width = u64::try_from((self.max - self.min).as_millis()).unwrap_or(0);
        let extra = draw(seed, question) % width.saturating_add(1);
        self.min + SignedDuration::from_millis(i64::try_from(extra).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_questions_have_equal_answers_and_others_have_others() {
        assert_eq!(draw(1, &["a", "b"]), draw(1, &["a", "b"]));
        assert_ne!(draw(1, &["a", "b"]), draw(2, &["a", "b"]));
        assert_ne!(draw(1, &["a", "b"]), draw(1, &["ab"]));
    }

    #[test]
    fn delays_stay_in_their_span() {
        let span = Span::seconds(5, 15);
        for n in 0..200 {
            let delay = span.draw(7, &[&n.to_string()]);
            assert!(span.min <= delay && delay <= span.max, "{delay}");
        }
    }
}
