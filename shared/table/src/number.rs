//! Numbers as DynamoDB stores them: decimal, exact, at most 38 significant digits.
//!
//! Decides the valid numbers and their canonical text. Its only arithmetic is a counter's sum.

use std::fmt;

/// Significant digits that DynamoDB keeps.
const DIGITS: usize = 38;
/// The exponent of the first significant digit: 1E-130 up to 9.99…E+125.
const LOWEST: i64 = -130;
const HIGHEST: i64 = 125;
/// A longer exponent is out of range with any digits; the bound keeps the arithmetic exact.
const EXPONENT_DIGITS: usize = 6;

/// A number in its canonical text: plain decimal, no needless zeros, no exponent. Equal numbers have equal texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number(String);

/// A text that DynamoDB wouldn't take as a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// Not a decimal number at all.
    #[error("`{text}` is not a number: expected a decimal such as `-12.5` or `1e3`")]
    Malformed {
        /// The text as given.
        text: String,
    },
    /// More significant digits than DynamoDB keeps.
    #[error("`{text}` has {digits} significant digits: DynamoDB keeps at most 38")]
    TooPrecise {
        /// The text as given.
        text: String,
        /// Its significant digits.
        digits: usize,
    },
    /// Too large or too close to zero.
    #[error("`{text}` is outside of what DynamoDB keeps: 1E-130 to 9.99E+125, either sign")]
    OutOfRange {
        /// The text as given.
        text: String,
    },
}

impl Number {
    /// Parses a decimal number, with an exponent or without.
    ///
    /// # Errors [`NumberError`] for numbers that DynamoDB refuses.
    pub fn parse(text: &str) -> Result<Self, NumberError> {
        let malformed = || NumberError::Malformed { text: text.to_owned() };
        let out_of_range = || NumberError::OutOfRange { text: text.to_owned() };
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent).ok_or_else(malformed)?),
            None => (unsigned, Some(0)),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(malformed());
        }
        let digits = format!("{whole}{fraction}");
        let from_first = digits.trim_start_matches('0');
        let significant = from_first.trim_end_matches('0');
        if significant.is_empty() {
            return Ok(Self("0".to_owned()));
        }
        if significant.len() > DIGITS {
            return Err(NumberError::TooPrecise { text: text.to_owned(), digits: significant.len() });
        }
        // The exponent of the first significant digit: 0 for 1 to 9, 1 for tens, -1 for tenths.
        let first = exponent.ok_or_else(out_of_range)? + from_first.len() as i64 - 1 - fraction.len() as i64;
        if !(LOWEST..=HIGHEST).contains(&first) {
            return Err(out_of_range());
        }
        Ok(Self(render(negative, significant, first)))
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number where it is whole and fits, else nothing.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The number where it is whole and fits, else nothing.
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// A counter's exact next value; `None` if it has more than 38 significant digits or is out of range.
    #[must_use]
    pub fn checked_add(&self, amount: i64) -> Option<Self> {
        let (whole, fraction) = self.0.split_once('.').unwrap_or((&self.0, ""));
        let one = Digits::of(&format!("{whole}{fraction}"));
        let other = Digits::of(&format!("{amount}{}", "0".repeat(fraction.len())));
        let sum = one.plus(&other);
        let digits: String = sum.lowest_first.iter().rev().map(|digit| char::from(b'0' + digit)).collect();
        let (whole, fraction) = digits.split_at_checked(digits.len().saturating_sub(fraction.len()))?;
        Self::parse(&format!("{}{whole}.{fraction}", if sum.negative { "-" } else { "" })).ok()
    }

    /// The number's part of its item's size: a byte, one for a minus sign, and one for each pair of digits from the
    /// first that isn't `00` to the last. Pairs are counted from the decimal point, so `12` is one and `120` two. The
    /// developer guide says "approximately"; this is what DynamoDB Local 2.6.1 counts.
    #[must_use]
    pub fn size(&self) -> u64 {
        let (negative, digits) = self.0.strip_prefix('-').map_or((0, &*self.0), |digits| (1, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let before = if whole.len() % 2 == 1 { "0" } else { "" };
        let after = if fraction.len() % 2 == 1 { "0" } else { "" };
        let aligned = format!("{before}{whole}{fraction}{after}");
        let pairs: Vec<bool> = aligned.as_bytes().chunks(2).map(|pair| pair != b"00").collect();
        let first = pairs.iter().position(|counts| *counts);
        let last = pairs.iter().rposition(|counts| *counts);
        let counted = first.zip(last).map_or(0, |(first, last)| last - first + 1);
        (counted + 1 + negative) as u64
    }
}

/// A whole number of any length: the sum of a counter at 1E+125 has more digits than a machine's numbers.
struct Digits {
    negative: bool,
    lowest_first: Vec<u8>,
}

impl Digits {
    /// Of digits, with a minus sign or without.
    fn of(text: &str) -> Self {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        Self { negative, lowest_first: digits.bytes().rev().map(|byte| byte.saturating_sub(b'0')).collect() }
    }

    fn plus(&self, other: &Self) -> Self {
        let length = self.lowest_first.len().max(other.lowest_first.len()) + 1;
        // The complement to ten: adding it subtracts, and a sum below zero ends in nines.
        let (mut carry, mut digits) = (0, Vec::with_capacity(length));
        for place in 0..length {
            let sum = self.signed(place) + other.signed(place) + carry;
            digits.push(sum.rem_euclid(10));
            carry = sum.div_euclid(10);
        }
        let negative = carry < 0;
        if negative {
            let mut carry = 1;
            for digit in &mut digits {
                let sum = 9 - *digit + carry;
                *digit = sum % 10;
                carry = sum / 10;
            }
        }
        Self { negative, lowest_first: digits.iter().map(|digit| digit.unsigned_abs()).collect() }
    }

    fn signed(&self, place: usize) -> i8 {
        let digit = self.lowest_first.get(place).map_or(0, |digit| i8::try_from(*digit).unwrap_or(0));
        if self.negative { -digit } else { digit }
    }
}

/// The exponent's value; `Some(None)` if it has too many digits to matter, `None` if it isn't a number.
#[expect(
    clippy::option_option,
    reason = "no exponent, one that is too long and a value are three answers, which only the parser reads"
)]
fn parse_exponent(text: &str) -> Option<Option<i64>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if digits.trim_start_matches('0').len() > EXPONENT_DIGITS {
        return Some(None);
    }
    Some(text.parse().ok())
}

/// Plain decimal text of the digits; the first has the weight `10^first`.
fn render(negative: bool, significant: &str, first: i64) -> String {
    let sign = if negative { "-" } else { "" };
    let Ok(whole_digits) = usize::try_from(first + 1) else {
        let zeros = usize::try_from(-first - 1).unwrap_or(0);
        return format!("{sign}0.{}{significant}", "0".repeat(zeros));
    };
    match significant.split_at_checked(whole_digits) {
        Some(("", fraction)) => format!("{sign}0.{fraction}"),
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{significant}{}", "0".repeat(whole_digits.saturating_sub(significant.len()))),
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value.to_string())
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self(value.to_string())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Number::parse(text).unwrap().as_str(), expected, "{text}");
    }

    fn check_size(text: &str, expected: u64) {
        assert_eq!(Number::parse(text).unwrap().size(), expected, "{text}");
    }

    #[test]
    fn equal_numbers_have_one_text() {
        for (text, expected) in [
            ("0", "0"),
            ("-0.00", "0"),
            ("007", "7"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-12e2", "-1200"),
            ("1200E-5", "0.012"),
            ("+3", "3"),
            ("0.10e1", "1"),
            ("99.9e-1", "9.99"),
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
            ("0e999999999999", "0"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn the_range_is_dynamodbs() {
        check("1e125", &format!("1{}", "0".repeat(125)));
        check("1e-130", &format!("0.{}1", "0".repeat(129)));
        for text in ["1e126", "1e-131", "1e9999999999", "-1e-9999999999"] {
            assert!(matches!(Number::parse(text), Err(NumberError::OutOfRange { .. })), "{text}");
        }
        let long = "1".repeat(39);
        assert_eq!(Number::parse(&long), Err(NumberError::TooPrecise { text: long.clone(), digits: 39 }));
        for text in ["", "-", ".", "1.2.3", "1e", "e5", "0x10", "NaN", "1 ", "--1", "1e+-2", "½"] {
            assert!(matches!(Number::parse(text), Err(NumberError::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn the_size_counts_pairs_of_digits() {
        let nines = "9".repeat(38);
        let table = [
            ("0", 1),
            ("7", 2),
            ("12", 2),
            ("10", 2),
            ("100", 2),
            ("120", 3),
            ("123", 3),
            ("1000", 2),
            ("1005", 3),
            ("1200", 2),
            ("0.5", 2),
            ("0.05", 2),
            ("0.12", 2),
            ("1.2", 3),
            ("0.00125", 3),
            ("12.5", 3),
            ("1.2345", 4),
            ("1e125", 2),
            ("-1", 3),
            ("-40.5", 4),
            ("-1e-130", 3),
            (&nines, 20),
        ];
        for (text, expected) in table {
            check_size(text, expected);
        }
    }

    #[test]
    fn a_counters_sum_is_exact_or_nothing() {
        let check = |text: &str, amount: i64, expected: Option<&str>| {
            let found = Number::parse(text).unwrap().checked_add(amount);
            let expected = expected.map(|text| Number::parse(text).unwrap());
            assert_eq!(found, expected, "{text} + {amount}");
        };
        check("41", 1, Some("42"));
        check("1", -3, Some("-2"));
        check("-1000", 1, Some("-999"));
        check("5", -5, Some("0"));
        check("0", i64::MIN, Some("-9223372036854775808"));
        check("-9223372036854775808", i64::MIN, Some("-18446744073709551616"));
        check("1.5", 1, Some("2.5"));
        check("0.1", -1, Some("-0.9"));
        check("-0.25", 1, Some("0.75"));
        check(&"9".repeat(38), 1, Some("1e38"));
        check("1e38", -1, Some(&"9".repeat(38)));
        check("1e41", 10_000, Some("100000000000000000000000000000000000010000"));
        check("1e41", 1_000, None);
        check("1e-37", 1, Some("1.0000000000000000000000000000000000001"));
        check("1e-38", 1, None);
        check("9.9e125", 0, Some("9.9e125"));
        check("9.9e125", 1, None);
        check("1e-130", 0, Some("1e-130"));
    }
}
