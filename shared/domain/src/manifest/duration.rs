//! Durations in manifests.
//!
//! Decides two grammars: Go's (pod annotations) and the narrower one of Karpenter's resources.

use jiff::SignedDuration;

/// Go's units in nanoseconds; longer names first, so that `ms` isn't read as `m`.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads Go's grammar: `1h30m`, `1.5h`, `-10ms`, `0`.
pub(crate) fn parse_go(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total = 0_i128;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let (unit, tail) = UNITS.iter().find_map(|(name, nanos)| Some((*nanos, tail.strip_prefix(name)?)))?;
        total = total.checked_add(nanos(number, unit)?)?;
        if total > i128::from(i64::MAX) {
            return None;
        }
        if tail.is_empty() {
            return i64::try_from(sign * total).ok().map(SignedDuration::from_nanos);
        }
        rest = tail;
    }
}

fn nanos(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(fraction) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.into() };
    // In every unit, digits after the 18th decimal are worth less than a nanosecond.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.checked_mul(unit)?.checked_add(part.checked_mul(unit)? / scale)
}

/// Reads a duration of Karpenter's resources: whole hours, minutes and seconds, `([0-9]+(s|m|h))+`.
pub(crate) fn parse_plain(text: &str) -> Option<SignedDuration> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h'));
    (plain && !text.contains("ms")).then(|| parse_go(text)).flatten()
}

/// Writes what [`parse_plain`] reads, without fractions of a second.
pub(crate) fn format_plain(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let parts = [(seconds / 3600, 'h'), (seconds % 3600 / 60, 'm'), (seconds % 60, 's')];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        for (text, expected) in [
            ("1h30m", Some(SignedDuration::from_secs(5400))),
            ("1.5h", Some(SignedDuration::from_secs(5400))),
            ("-10ms", Some(SignedDuration::from_millis(-10))),
            ("0", Some(SignedDuration::ZERO)),
            (".5s", Some(SignedDuration::from_millis(500))),
            ("1m1h", Some(SignedDuration::from_secs(3660))),
            ("true", None),
            ("", None),
            ("5", None),
            ("h", None),
            ("1d", None),
            ("1.2.3s", None),
            ("99999999999h", None),
        ] {
            assert_eq!(parse_go(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_durations_are_whole_and_positive() {
        assert_eq!(parse_plain("720h"), Some(SignedDuration::from_hours(720)));
        assert_eq!(parse_plain("1h30m10s"), Some(SignedDuration::from_secs(5410)));
        for text in ["1.5h", "-1h", "10ms", "Never", "", "h", "1"] {
            assert_eq!(parse_plain(text), None, "{text}");
        }
    }
}
