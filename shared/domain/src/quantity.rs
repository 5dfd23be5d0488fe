//! Quantities in Kubernetes' grammar, as exact integers.
//!
//! Decides what a quantity's text means and how it is written canonically. It doesn't decide which resources exist
//! or what a quantity counts (cores, bytes, pods).
//!
//! Invariants: a quantity is a whole number of nano-units; what is finer is rounded away from zero when it is read,
//! as Kubernetes does. Equality and order are those of the value: `1Gi` equals `1024Mi` and `1073741824`. The format
//! is kept only so that the canonical text keeps the family of suffixes that its writer used.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Nano-units in a unit.
const NANOS: i128 = 1_000_000_000;
/// Kubernetes caps what it reads at the largest 64-bit integer (apimachinery, `resource.maxAllowed`).
const MAX_READ_NANOS: i128 = (i64::MAX as i128) * NANOS;
/// More digits than this before the point exceed [`MAX_READ_NANOS`], counted in nano-units.
const MAX_NANO_DIGITS: usize = 28;

/// The suffixes, each with the power of ten or of two that it stands for.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

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

/// What is wrong with a text that isn't a quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuantityProblem {
    /// There is no text.
    Empty,
    /// No digit where the number should be.
    NoNumber,
    /// More than one decimal point; holds the text up to the second one.
    SecondPoint(String),
    /// The suffix isn't one of Kubernetes'; holds it, and the one that was probably meant.
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
    /// What is wrong with it.
    pub problem: QuantityProblem,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// So many nano-units.
    #[must_use]
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// So many thousandths, such as millicores.
    #[must_use]
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * 1_000_000, format: Format::DecimalSi }
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

    /// Reads Kubernetes' grammar. Finer than a nano-unit is rounded away from zero; beyond 64 bits is capped.
    ///
    /// # Errors
    /// [`ParseQuantityError`] names the value, what is wrong with it and the grammar.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        parse_text(text).map_err(|problem| ParseQuantityError { value: text.to_owned(), problem })
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

    /// The value in mebibytes, rounded up; capped at 64 bits.
    #[must_use]
    pub fn mebi_ceil(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS << 20))
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

    /// So many times this, capped.
    #[must_use]
    pub fn saturating_mul(self, count: u32) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(count)), format: self.format }
    }

    /// This, or nothing if it is negative.
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

impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        Self::parse(text)
    }
}

/// The canonical text: no fraction, the largest suffix that keeps the value exact.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            // Below 1024 Kubernetes writes decimals, so that `512` and `500m` aren't rounded.
            Format::BinarySi if self.nanos.abs() >= 1024 * NANOS => fmt_binary(self.nanos, f),
            Format::BinarySi | Format::DecimalSi => {
                let (mantissa, exponent) = decimal_parts(self.nanos);
                let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
                write!(f, "{mantissa}{suffix}")
            }
            Format::DecimalExponent => match decimal_parts(self.nanos) {
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

fn div_ceil(value: i128, divisor: i128) -> i128 {
    value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)
}

fn away_from_zero(value: i128, divisor: i128) -> i128 {
    value / divisor + value.signum() * i128::from(value % divisor != 0)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// What a suffix multiplies by.
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
    Ok(Quantity { nanos: sign * magnitude.unwrap_or(MAX_READ_NANOS).min(MAX_READ_NANOS), format })
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

/// Nano-units of `whole.fraction` times ten to the exponent; `None` if that exceeds what is kept.
///
/// The decimal point moves, nothing is multiplied: exact for any number of digits.
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

/// Nano-units of `whole.fraction` times two to the power; `None` if that exceeds what is kept.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> Option<i128> {
    let unit = NANOS << power;
    let whole = whole.trim_start_matches('0');
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = whole.checked_mul(unit)?;
    // Schoolbook multiplication of the unit by the fraction, last digit first: what leaves to the right of the
    // point is only remembered as "not zero".
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
        assert_eq!(Quantity::from_mebi(3).mebi_ceil(), 3);
        assert_eq!(Quantity::from_bytes(1).mebi_ceil(), 1);
        assert_eq!(Quantity::from_milli(-1500).value_ceil(), -1);
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
