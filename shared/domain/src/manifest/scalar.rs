//! Plain scalars of YAML.
//!
//! Decides which unquoted texts are null, booleans and numbers, as `kubectl` reads them.

use serde_json::{Number, Value};

/// The value of a plain scalar to `kubectl`, which keeps the booleans of YAML 1.1.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        let digits = text.replace('_', "");
        if let Some(integer) = integer(&digits) {
            return integer.into();
        }
        // A number that is too large stays a string.
        let float = is_float(&digits).then(|| digits.parse().ok()).flatten();
        if let Some(number) = float.and_then(Number::from_f64) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2), ("0B", 2)]
        .into_iter()
        .find_map(|(prefix, radix)| digits.strip_prefix(prefix).map(|rest| (radix, rest)))
        .unwrap_or(if digits.len() > 1 && digits.starts_with('0') { (8, digits) } else { (10, digits) });
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_alphanumeric());
    let value = plain.then(|| i64::from_str_radix(digits, radix).ok()).flatten()?;
    value.checked_mul(sign)
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|e| !e.is_empty() && digits(e))
}
