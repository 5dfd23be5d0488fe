//! A quantity as a value: its units, order and arithmetic.
//!
//! Invariants: a quantity is a whole number of nano-units. Equality and order are by value: `1Gi` equals `1024Mi` and
//! `1073741824`. The format only preserves the writer's family of suffixes in the canonical text.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Nano-units in a unit.
pub(super) const NANOS: i128 = 1_000_000_000;

/// The family of suffixes in which a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Powers of 1000: `500m`, `2k`, `3G`.
    DecimalSi,
    /// Powers of 1024: `512Mi`.
    BinarySi,
    /// An exponent: `12e6`.
    DecimalExponent,
}

/// A quantity of some resource: cores, bytes, a count.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A quantity in nano-units.
    #[must_use]
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// A count of whole units, written with decimal suffixes.
    #[must_use]
    pub const fn from_integer(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS, format: Format::DecimalSi }
    }

    /// Bytes, written with binary suffixes.
    #[must_use]
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS, format: Format::BinarySi }
    }

    /// Mebibytes, written with binary suffixes.
    #[must_use]
    pub const fn from_mebi(mebibytes: i64) -> Self {
        Self { nanos: mebibytes as i128 * (1 << 20) * NANOS, format: Format::BinarySi }
    }

    /// The value in nano-units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The family of suffixes in which it is written.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whether this is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether this is less than nothing.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The value in thousandths, rounded up; capped at 64 bits.
    #[must_use]
    pub fn milli_ceil(self) -> i64 {
        saturate(div_ceil(self.nanos, 1_000_000))
    }

    /// The value in whole units, rounded up; capped at 64 bits.
    #[must_use]
    pub fn value_ceil(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS))
    }

    /// The sum in this one's format (the other's if this is nothing); `None` on overflow.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.nanos.checked_add(other.nanos).map(|nanos| Self { nanos, format: self.format_with(other) })
    }

    /// The difference in this one's format (the other's if this is nothing); `None` on overflow.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.nanos.checked_sub(other.nanos).map(|nanos| Self { nanos, format: self.format_with(other) })
    }

    /// The sum, capped.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), format: self.format_with(other) }
    }

    /// The difference, capped; may be negative.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos), format: self.format_with(other) }
    }

    /// A multiple of this, capped.
    #[must_use]
    pub fn saturating_mul(self, count: u32) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(count)), format: self.format }
    }

    /// This, or zero if it is negative.
    #[must_use]
    pub fn at_least_zero(self) -> Self {
        Self { nanos: self.nanos.max(0), format: self.format }
    }

    fn format_with(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

fn div_ceil(value: i128, divisor: i128) -> i128 {
    value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_the_format_of_the_first_that_is_not_zero() {
        let sum = |a: &str, b: &str| {
            Quantity::parse(a).unwrap().checked_add(Quantity::parse(b).unwrap()).unwrap().to_string()
        };
        assert_eq!(sum("1Gi", "1k"), "1073742824");
        assert_eq!(sum("0", "1Gi"), "1Gi");
        assert_eq!(sum("100m", "900m"), "1");
    }

    #[test]
    fn accessors_round_up() {
        let quantity = Quantity::parse("1500100u").unwrap();
        assert_eq!((quantity.milli_ceil(), quantity.value_ceil()), (1501, 2));
        assert_eq!(Quantity::parse("-1500m").unwrap().value_ceil(), -1);
    }
}
