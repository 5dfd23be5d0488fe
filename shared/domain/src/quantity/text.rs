//! The text of a quantity: Kubernetes' grammar, read and written.
//!
//! Decides the meaning of a text, the canonical text of a quantity, and the error for a malformed text. Digits below
//! a nano-unit are rounded away from zero on reading, as Kubernetes does.

use std::fmt;

use super::value::{Format, NANOS, Quantity};

/// Kubernetes caps values at the largest 64-bit integer (apimachinery, `resource.maxAllowed`).
const MAX_READ_NANOS: i128 = (i64::MAX as i128) * NANOS;
/// More digits than this before the point exceed [`MAX_READ_NANOS`], counted in nano-units.
const MAX_NANO_DIGITS: usize = 28;

/// The suffixes, each with its power of ten or two.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The problem of a malformed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuantityProblem {
    /// There is no text.
    Empty,
    /// No digit where the number should be.
    NoNumber,
    /// More than one decimal point; holds the text up to the second one.
    SecondPoint(String),
    /// The suffix isn't one of Kubernetes'; holds it, and a suggestion.
    UnknownSuffix(String, Option<&'static str>),
}

impl fmt::Display for QuantityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the text is empty; write `0` for nothing"),
            Self::NoNumber => f.write_str("no digit where the number should be"),
            Self::SecondPoint(head) => {
                write!(f, "a second decimal point after `{head}`; keep one")
            }
            Self::UnknownSuffix(suffix, Some(meant)) => {
                write!(f, "unknown suffix `{suffix}`; did you mean `{meant}`?")
            }
            Self::UnknownSuffix(suffix, None) => write!(f, "unknown suffix `{suffix}`"),
        }
    }
}

/// A text that isn't a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{value}` is not a quantity: {problem}; expected a number with an optional suffix \
     (n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or e and an exponent), such as `500m` or `1.5Gi`"
)]
pub struct ParseQuantityError {
    /// The text as given.
    pub value: String,
    /// The problem.
    pub problem: QuantityProblem,
}

impl Quantity {
    /// Parses Kubernetes' grammar. Digits below a nano-unit are rounded away from zero; values beyond 64 bits are
    /// capped.
    ///
    /// # Errors [`ParseQuantityError`] names the value, the problem and the grammar.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        parse_text(text).map_err(|problem| ParseQuantityError { value: text.to_owned(), problem })
    }
}

impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        Self::parse(text)
    }
}

/// The canonical text: no fraction, the largest suffix that keeps the value exact.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        if nanos == 0 {
            return f.write_str("0");
        }
        match self.format() {
            // Below 1024 Kubernetes writes decimals, so that `512` and `500m` aren't rounded.
            Format::BinarySi if nanos.abs() >= 1024 * NANOS => fmt_binary(nanos, f),
            Format::BinarySi | Format::DecimalSi => {
                let (mantissa, exponent) = decimal_parts(nanos);
                let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
                write!(f, "{mantissa}{suffix}")
            }
            Format::DecimalExponent => match decimal_parts(nanos) {
                (mantissa, 0) => write!(f, "{mantissa}"),
                (mantissa, exponent) => write!(f, "{mantissa}e{exponent}"),
            },
        }
    }
}

fn fmt_binary(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut value = away_from_zero(nanos, NANOS);
    let mut suffix = "";
    for (next, _) in BINARY {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    write!(f, "{value}{suffix}")
}

/// Mantissa and exponent, the exponent the largest multiple of three up to 18 that keeps the mantissa whole.
fn decimal_parts(nanos: i128) -> (i128, i32) {
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 1000 == 0 && exponent < 18 {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}

fn away_from_zero(value: i128, divisor: i128) -> i128 {
    value / divisor + value.signum() * i128::from(value % divisor != 0)
}

/// The factor of a suffix.
enum Scale {
    PowerOfTen(i32),
    PowerOfTwo(u32),
}

fn parse_text(text: &str) -> Result<Quantity, QuantityProblem> {
    if text.is_empty() {
        return Err(QuantityProblem::Empty);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end).unwrap_or((unsigned, ""));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if let Some((before, _)) = fraction.split_once('.') {
        return Err(QuantityProblem::SecondPoint(format!("{whole}.{before}")));
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityProblem::NoNumber);
    }
    let (scale, format) = parse_suffix(suffix)?;
    let magnitude = match scale {
        Scale::PowerOfTen(exponent) => decimal_nanos(whole, fraction, exponent),
        Scale::PowerOfTwo(power) => binary_nanos(whole, fraction, power),
    };
    Ok(Quantity::from_nanos(sign * magnitude.unwrap_or(MAX_READ_NANOS).min(MAX_READ_NANOS), format))
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), QuantityProblem> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::PowerOfTen(*exponent), Format::DecimalSi));
    }
    if let Some((_, power)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::PowerOfTwo(*power), Format::BinarySi));
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).and_then(|e| e.parse::<i32>().ok()) {
        return Ok((Scale::PowerOfTen(exponent), Format::DecimalExponent));
    }
    Err(QuantityProblem::UnknownSuffix(suffix.to_owned(), meant_suffix(suffix)))
}

/// The suffix that differs from this one only by case or by a trailing `B`, as in `GB`, `gib` or `K`.
fn meant_suffix(suffix: &str) -> Option<&'static str> {
    let bare = suffix.trim_end_matches(['b', 'B']);
    let binary = BINARY.iter().map(|(s, _)| *s);
    let decimal = DECIMAL.iter().map(|(s, _)| *s).filter(|s| !s.is_empty());
    binary.chain(decimal).find(|s| s.eq_ignore_ascii_case(bare))
}

/// Nano-units of `whole.fraction` times ten to the exponent; `None` if the result is too large.
///
/// Only the decimal point moves, so it is exact for any number of digits.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i32) -> Option<i128> {
    let point = i64::try_from(whole.len()).ok()?.checked_add(i64::from(exponent))?.checked_add(9)?;
    let (mut nanos, mut kept, mut finer) = (0_i128, 0_usize, false);
    for (place, digit) in (0_i64..).zip(whole.bytes().chain(fraction.bytes())) {
        let digit = i128::from(digit - b'0');
        if place >= point {
            finer |= digit != 0;
            continue;
        }
        nanos = nanos * 10 + digit;
        kept += usize::from(nanos != 0);
        if kept > MAX_NANO_DIGITS {
            return None;
        }
    }
    let digits = i64::try_from(whole.len() + fraction.len()).ok()?;
    if nanos != 0 {
        for _ in digits..point {
            nanos = nanos.checked_mul(10).filter(|n| *n <= MAX_READ_NANOS)?;
        }
    }
    Some(nanos + i128::from(finer))
}

/// Nano-units of `whole.fraction` times two to the power; `None` if the result is too large.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> Option<i128> {
    let unit = NANOS << power;
    let whole = whole.trim_start_matches('0');
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = whole.checked_mul(unit)?;
    // Schoolbook multiplication of the unit by the fraction, last digit first. Digits right of the point only count
    // as "not zero".
    let (mut carry, mut finer) = (0_i128, false);
    for digit in fraction.bytes().rev() {
        let product = unit * i128::from(digit - b'0') + carry;
        finer |= product % 10 != 0;
        carry = product / 10;
    }
    nanos.checked_add(carry + i128::from(finer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, canonical: &str) {
        assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
    }

    #[test]
    fn quantities_print_in_kubernetes_canonical_form() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+2", "2"),
            ("-1.5", "-1500m"),
            ("6000Mi", "6000Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1023", "1023"),
            ("100000", "100k"),
            ("1200", "1200"),
            ("2G", "2G"),
            ("1E", "1E"),
            ("1E3", "1e3"),
            ("12e6", "12e6"),
            ("1.5e3", "1500"),
            ("1e-1", "100e-3"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-0.1n", "-1n"),
            ("0.0000000001Ki", "103n"),
            ("100u", "100u"),
            ("99999999999999999999999999", "9223372036854775807"),
            ("1e100", "9223372036854775807"),
            ("1e-100", "1e-9"),
            ("0e100", "0"),
            ("9Ei", "9223372036854775807"),
            ("00012Mi", "12Mi"),
        ] {
            check(text, canonical);
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_named_with_its_remedy() {
        for (text, message) in [
            ("1.5.0Gi", "`1.5.0Gi` is not a quantity: a second decimal point after `1.5`; keep one; "),
            ("", "`` is not a quantity: the text is empty; write `0` for nothing; "),
            ("Gi", "`Gi` is not a quantity: no digit where the number should be; "),
            ("-", "`-` is not a quantity: no digit where the number should be; "),
            ("1GB", "`1GB` is not a quantity: unknown suffix `GB`; did you mean `G`?; "),
            ("1gib", "`1gib` is not a quantity: unknown suffix `gib`; did you mean `Gi`?; "),
            ("1K", "`1K` is not a quantity: unknown suffix `K`; did you mean `k`?; "),
            ("1 Gi", "`1 Gi` is not a quantity: unknown suffix ` Gi`; "),
            ("1e", "`1e` is not a quantity: unknown suffix `e`; did you mean `E`?; "),
            ("1ü", "`1ü` is not a quantity: unknown suffix `ü`; "),
        ] {
            let error = Quantity::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert!(error.contains("such as `500m` or `1.5Gi`"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back_as_the_same_value(nanos in -MAX_READ_NANOS..MAX_READ_NANOS) {
            for format in [Format::DecimalSi, Format::DecimalExponent] {
                let quantity = Quantity::from_nanos(nanos, format);
                prop_assert_eq!(Quantity::parse(&quantity.to_string()).unwrap(), quantity);
            }
        }

        #[test]
        fn whole_bytes_read_back_as_the_same_value(bytes in any::<i64>()) {
            let quantity = Quantity::from_bytes(bytes.max(-i64::MAX));
            prop_assert_eq!(Quantity::parse(&quantity.to_string()).unwrap(), quantity);
        }

        #[test]
        fn parsing_never_fails_badly(text in "[-+]?[0-9.]{0,40}[eEinumkKMGTPi0-9+-]{0,4}") {
            let _ = Quantity::parse(&text);
        }
    }
}
