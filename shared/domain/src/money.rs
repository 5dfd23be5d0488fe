//! Money: USD per hour as whole nano-dollars, so that sums and comparisons are exact.
//!
//! A region's prices share one currency and are compared only with each other, so a plan doesn't depend on the
//! currency. Output for people names it.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::id::Region;

crate::words! {
    /// The currency of a region's prices. Its words are the codes of price lists.
    #[derive(Default)]
    pub enum Currency {
        /// `USD`: everywhere but in China.
        #[default]
        Usd = "USD",
        /// `CNY`: all prices in the partition `aws-cn`.
        Cny = "CNY",
    }
}

impl Currency {
    /// The currency of EC2's prices in a region.
    #[must_use]
    pub fn of_region(region: &Region) -> Self {
        if region.as_str().starts_with("cn-") { Self::Cny } else { Self::Usd }
    }
}

/// A price in nano-dollars per hour (EC2 quotes at most ten decimals, and the tenth is always 0). In `aws-cn` the
/// unit is CNY: [`Currency::of_region`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UsdPerHour(u64);

const NANOS: u64 = 1_000_000_000;

/// A text that isn't a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a price: expected decimal USD such as `0.0961`, at most nine decimals")]
pub struct ParsePriceError(pub String);

impl UsdPerHour {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A price in nano-dollars an hour.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The price in nano-dollars an hour.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Parses decimal USD; decimals beyond the ninth must be zero.
    ///
    /// # Errors
    /// [`ParsePriceError`] for anything else, a negative price among it.
    pub fn parse(text: &str) -> Result<Self, ParsePriceError> {
        let wrong = || ParsePriceError(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        let fraction = fraction.trim_end_matches('0');
        if whole.is_empty()
            || text.ends_with('.')
            || !digits(whole)
            || !digits(fraction)
            || fraction.len() > 9
        {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let fraction: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
        whole.checked_mul(NANOS).and_then(|w| w.checked_add(fraction)).map(Self).ok_or_else(wrong)
    }

    /// A multiple of this price.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

/// The shortest exact decimal form: `0.096`, `1`, `12.24`.
impl fmt::Display for UsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / NANOS, self.0 % NANOS);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{fraction:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl Add for UsdPerHour {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for UsdPerHour {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for UsdPerHour {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(UsdPerHour::parse(text).unwrap().to_string(), expected);
    }

    #[test]
    fn prices_print_in_their_shortest_exact_form() {
        check("0.0960000000", "0.096");
        check("1", "1");
        check("12.240", "12.24");
        check("0.000000001", "0.000000001");
    }

    #[test]
    fn prices_are_in_yuan_in_china_and_in_dollars_elsewhere() {
        for (region, currency) in [("cn-north-1", "CNY"), ("us-gov-west-1", "USD"), ("eu-west-1", "USD")] {
            let found = Currency::of_region(&Region::parse(region).unwrap());
            assert_eq!((found.as_str(), Currency::parse(currency)), (currency, Some(found)), "{region}");
        }
    }

    #[test]
    fn what_is_not_a_price_is_refused() {
        for text in ["", "-1", ".5", ".", "1.", "1.2.3", "1e3", "0.0000000001", "18446744074", "a"] {
            assert!(UsdPerHour::parse(text).is_err(), "{text}");
        }
    }
}
